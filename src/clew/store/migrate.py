"""One store copied into another, of whichever kind: batch by batch, and compared in the end.

A note in the target says how far it is, so that what was interrupted goes on from there. Nothing is
ever changed in the source.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from clew.errors import InputError
from clew.filter import EVERYTHING
from clew.protocols import Progress, Store
from clew.store.compare import Whole, pages, unlike, wholes
from clew.text.counted import counted
from clew.types import Entry, Held, Life, Record

__all__ = ["Migrated", "migrate"]

BATCH = 500
"""Records that are copied in one transaction."""
NOTE = "migration"
NAMED = 20
"""Records that differ and are named; of more, the number says enough."""


@dataclass(slots=True)
class Migrated:
    """What became of it."""

    records: int = 0
    passages: int = 0
    vectors: int = 0
    resumed: bool = False
    """Whether an earlier run had begun it."""
    unlike: int = 0
    """Records that are not in the target as they are in the source."""
    differences: dict[str, list[str]] = field(default_factory=dict)
    """Of some of them: what differs."""
    extra: int = 0
    """Records that the target has besides."""
    rest: list[str] = field(default_factory=list)
    """What else differs: roots, files, notes."""

    @property
    def well(self) -> bool:
        return not (self.unlike or self.extra or self.rest)


def migrate(
    source: Store,
    target: Store,
    *,
    origin: str,
    merge: bool = False,
    progress: Progress | None = None,
) -> Migrated:
    """Copy everything; `origin` names the source, by which an interrupted run is known again.

    With `merge` the target may have records of its own. Those of the same id are replaced.
    """
    report = Migrated()
    after, done = _begin(source, target, origin, merge)
    report.resumed = bool(after)
    edition, total = list(source.edition()), source.count(EVERYTHING)
    for page in pages(source, after=after, size=BATCH):
        done += len(page)
        state = {"from": origin, "edition": edition, "after": page[-1].record.id, "done": done}
        with target.atomic():
            _copy(page, target)
            target.set_note(NOTE, json.dumps(state))
        if progress:
            progress("copying", done, total)
    _copy_rest(source, target)
    _compare(source, target, report, merge=merge, progress=progress)
    if report.well:
        target.set_note(NOTE, json.dumps({"from": origin, "done": total}))
    return report


def _begin(source: Store, target: Store, origin: str, merge: bool) -> tuple[str, int]:
    """The id after which to go on, and how many were before it; "": from the beginning."""
    try:
        state = json.loads(target.note(NOTE) or "{}")
    except ValueError:
        state = {}
    if state.get("from") == origin:
        unchanged = state.get("edition") == list(source.edition())
        return (str(state["after"]), int(state["done"])) if unchanged else ("", 0)
    there = target.count(EVERYTHING)
    if there and not merge:
        raise InputError(
            f"the target has {counted(there, 'record')} already, and not from there: give an empty "
            "one, or --merge to add to it (records of the same id are replaced)"
        )
    return "", 0


def _copy(page: Sequence[Whole], target: Store) -> None:
    by_model: dict[str | None, list[Entry]] = {}
    parts: dict[str, Sequence[Held]] = {}
    for record, held, _ in page:
        entry, model = _entry(record, held)
        by_model.setdefault(model, []).append(entry)
        if model is None and any(one.model for one in held):
            parts[record.id] = held
    for model, entries in by_model.items():
        target.put(entries, model=model)
    if parts:
        _set_parts(target, parts)
    target.set_lives({w.record.id: w.life for w in page if w.life != Life()})


def _entry(record: Record, held: Sequence[Held]) -> tuple[Entry, str | None]:
    """With vectors where all of its chunks have one of the same model."""
    import numpy as np

    chunks = tuple(one.chunk for one in held)
    models = {one.model for one in held}
    rows = [one.vector for one in held if one.vector is not None]
    if len(models) == 1 and rows and len(rows) == len(held):
        return Entry(record, chunks, vectors=np.stack(rows)), models.pop()
    return Entry(record, chunks), None


def _set_parts(target: Store, held: Mapping[str, Sequence[Held]]) -> None:
    """Vectors of records that are only half embedded, or by several models."""
    import numpy as np

    numbers: dict[str, list[int]] = {}
    vectors: dict[str, list[Any]] = {}
    for name, theirs in target.chunks_of(list(held)).items():
        for here, there in zip(held[name], theirs, strict=True):
            known = here.model == there.model and np.array_equal(here.vector, there.vector)  # type: ignore[arg-type]
            if here.model is not None and not known:
                numbers.setdefault(here.model, []).append(there.number)
                vectors.setdefault(here.model, []).append(here.vector)
    for model, some in numbers.items():
        target.set_vectors(some, np.stack(vectors[model]), model=model)


def _copy_rest(source: Store, target: Store) -> None:
    with target.atomic():
        for collection, folder in source.roots().items():
            target.set_root(collection, folder)
        for collection in _collections(source):
            target.set_files(collection, source.files(collection))
        for key, value in source.notes().items():
            if key != NOTE:
                target.set_note(key, value)


def _collections(store: Store) -> list[str]:
    return sorted({*store.roots(), *(row[0] for row in store.tally())})


def _compare(
    source: Store, target: Store, report: Migrated, *, merge: bool, progress: Progress | None
) -> None:
    total = source.count(EVERYTHING)
    for page in pages(source, size=BATCH):
        there = target.get([whole.record.id for whole in page])
        theirs = {whole.record.id: whole for whole in wholes(target, there)}
        for mine in page:
            name = mine.record.id
            if wrong := unlike(mine, theirs.get(name), more=merge):
                report.unlike += 1
                if len(report.differences) < NAMED:
                    report.differences[name] = wrong
            report.passages += len(mine.held)
            report.vectors += sum(one.vector is not None for one in mine.held)
        report.records += len(page)
        if progress:
            progress("comparing", report.records, total)
    if not merge:
        report.extra = max(0, target.count(EVERYTHING) - report.records)
    kept: list[tuple[str, Mapping[str, Any], Mapping[str, Any]]] = [
        ("roots", source.roots(), target.roots()),
        ("notes", source.notes(), target.notes()),
    ]
    kept += [(f"files of {c}", source.files(c), target.files(c)) for c in _collections(source)]
    for what, ours, others in kept:
        if any(others.get(key) != value for key, value in ours.items() if key != NOTE):
            report.rest.append(what)
