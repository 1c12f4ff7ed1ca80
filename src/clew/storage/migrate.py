"""One store copied into another, of whichever kind: batch by batch, and compared in the end.

What was interrupted goes on from there (begun.py). Nothing is ever changed in the source.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from clew.errors import InputError
from clew.filter import EVERYTHING
from clew.protocols import Progress, Store
from clew.storage.begun import ITS_OWN, NOTES, begin, begin_anew
from clew.storage.compare import Whole, pages, unlike, wholes
from clew.storage.location import Homes
from clew.types import Entry, Held, Record

__all__ = ["Migrated", "migrate"]

BATCH = 500
"""Records that are copied in one transaction."""
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
    already: bool = False
    """Whether it was finished before, and nothing was to be done."""
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
    homes: Homes | None = None,
    progress: Progress | None = None,
) -> Migrated:
    """Copy everything; `origin` names the source, by which an interrupted run is known again.

    With `merge` the target may have records of its own. Those of the same id are replaced. `homes`
    are the folders of the two stores, from which indexed folders are told.
    """
    homes = homes or Homes()
    homes.check(source.files.roots(), target.files.roots())
    begun = begin(source, target, origin=origin, merge=merge)
    if begun.finished:
        both = merge or begun.merge
        report = _compared(source, target, merge=both, homes=homes, progress=progress)
        if report.well:
            report.already = True
            return report
        if not merge:
            raise InputError(ITS_OWN)  # accesses, perhaps, which make no other edition
        begun = begin_anew(source, target, origin=origin, merge=True)
    resumed = begun.stale or bool(begun.after)
    if begun.stale:
        begun.drop_gone(source, target)
    total = source.count(EVERYTHING)
    for page in pages(source, after=begun.after, size=BATCH):
        begun.after, begun.done = page[-1].record.id, begun.done + len(page)
        with target.atomic():
            begun.look(target)
            _copy(page, target)
            begun.write(target)
        if progress:
            progress("copying", begun.done, total)
    _copy_rest(source, target, homes)
    edition = list(source.changes.edition())
    report = _compared(source, target, merge=merge, homes=homes, progress=progress)
    report.resumed = resumed
    if report.well:
        begun.finish(target, source=edition)
    else:
        begun.start_over(target)
    return report


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
    # A record that had ended there and has not here would keep the reason of an end it has no more.
    there = target.lifecycle.get([whole.record.id for whole in page])
    lives = {whole.record.id: whole.life for whole in page}
    target.lifecycle.set({name: life for name, life in lives.items() if there.get(name) != life})


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
    for name, theirs in target.vectors.chunks(list(held)).items():
        for here, there in zip(held[name], theirs, strict=True):
            known = here.model == there.model and np.array_equal(here.vector, there.vector)  # type: ignore[arg-type]
            if here.model is not None and not known:
                numbers.setdefault(here.model, []).append(there.number)
                vectors.setdefault(here.model, []).append(here.vector)
    for model, some in numbers.items():
        target.vectors.set(some, np.stack(vectors[model]), model=model)


def _copy_rest(source: Store, target: Store, homes: Homes) -> None:
    with target.atomic():
        for collection, folder in source.files.roots().items():
            target.files.set_root(collection, homes.written(folder))
        for collection in _collections(source):
            target.files.set_states(collection, source.files.states(collection))
        for key, value in dict(source.notes).items():
            if key not in NOTES:
                target.notes[key] = value


def _collections(store: Store) -> list[str]:
    return sorted({*store.files.roots(), *(row[0] for row in store.lifecycle.tally())})


def _compared(
    source: Store, target: Store, *, merge: bool, homes: Homes, progress: Progress | None
) -> Migrated:
    report = Migrated()
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
        (
            "roots",
            {name: homes.written(folder) for name, folder in source.files.roots().items()},
            target.files.roots(),
        ),
        ("notes", dict(source.notes), dict(target.notes)),
    ]
    kept += [
        (f"files of {c}", source.files.states(c), target.files.states(c))
        for c in _collections(source)
    ]
    for what, ours, others in kept:
        if any(others.get(key) != value for key, value in ours.items() if key not in NOTES):
            report.rest.append(what)
    return report
