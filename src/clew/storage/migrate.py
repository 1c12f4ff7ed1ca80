"""One store copied into another, of whichever kind: batch by batch, and compared in the end.

How far a copy is stands in a note in the target, by which it is known again and goes on. Nothing is
ever changed in the source.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from clew.errors import InputError, counted
from clew.filter import EVERYTHING
from clew.protocols import Progress, Store, read_pages
from clew.types import Entry, Held, Life, Record

BATCH = 500
"""Records that are copied in one transaction."""
NOTE = "migration"
_BEFORE = "migration: there before"
"""Ids that a target had before a copy was merged into it; while that is under way."""
NOTES = frozenset({NOTE, _BEFORE})
_NAMED = 20
"""Records that differ and are named; of more, the number says enough."""
_OTHERWISE = "give an empty one, or --merge to add to it (records of the same id are replaced)"
_ITS_OWN = (
    "the target was copied from there already, and one of the two was written to since: what the "
    f"target has is its own now; {_OTHERWISE}"
)
_STATE = {"from", "source", "target", "after", "done", "merge", "finished"}
_FIELDS = (
    *("id", "path", "collection", "type", "domain"),
    *("importance", "created_at", "updated_at", "ended_at", "valid_from", "valid_to"),
)


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


class Homes(NamedTuple):
    """The folders of two stores, between which indexed folders are carried over; None: not known,
    or none that it stays in.

    A store has indexed folders relative to its own one or absolute. Copied as it is, "." would be
    another folder, and the next run of indexing would find none of the files there.
    """

    source: Path | None = None
    target: Path | None = None

    def written(self, roots: Mapping[str, str]) -> dict[str, str]:
        """The indexed folders of the source, as the target has to say them."""
        own = None if self.target is None else self.target.resolve()
        said = {}
        for name, folder in roots.items():
            place = _placed(folder, self.source)
            absolute = "." if place == own else str(place)
            said[name] = absolute if place.is_absolute() else folder
        return said

    def check(self, ours: Mapping[str, str], theirs: Mapping[str, str]) -> None:
        """An InputError where both have a folder of one name, and not the same one: their files
        would be taken for each other's."""
        for name in sorted(ours.keys() & theirs.keys()):
            if not self.alike(ours[name], theirs[name]):
                here, there = _placed(ours[name], self.source), _placed(theirs[name], self.target)
                raise InputError(
                    f"both stores have indexed a folder as {name!r}, {here} in the source and "
                    f"{there} in the target, and their files would be taken for each other's: give "
                    f"an empty target, or index it there instead (`clew index {here}`), which "
                    "gives it another name"
                )

    def alike(self, ours: str, theirs: str) -> bool:
        """Whether both mean one folder; as they are written, where one is not known to be on the
        disk."""
        here, there = _placed(ours, self.source), _placed(theirs, self.target)
        return here == there if here.is_absolute() == there.is_absolute() else ours == theirs


def _placed(folder: str, home: Path | None) -> Path:
    return Path(folder) if home is None else (home / folder).resolve()


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
    copy = _Copy(source, target, origin, homes, progress)
    copy.resume(merge)
    if copy.state["finished"]:
        report = copy.compare(merge or copy.state["merge"])
        if report.well:
            report.already = True
            return report
        if not merge:
            raise InputError(_ITS_OWN)  # accesses, perhaps, which make no other edition
        copy.start(merge)
    resumed = copy.stale or bool(copy.state["after"])
    if copy.stale:
        copy.drop_gone()
    total = source.count(EVERYTHING)
    for page in pages(source, after=copy.state["after"], size=BATCH):
        with copy.step() as state:
            _copy_page(page, target)
            state["after"], state["done"] = page[-1].record.id, state["done"] + len(page)
        if progress:
            progress("copying", state["done"], total)
    _copy_rest(source, target, homes)
    edition = list(source.changes.edition())
    report = copy.compare(merge)
    report.resumed = resumed
    with copy.step() as state:
        if report.well:
            state["source"], state["finished"] = edition, True
            if target.notes.get(_BEFORE):
                target.notes[_BEFORE] = ""
        else:  # what was copied is not as it should be: the next run copies all of it
            state["after"], state["done"] = "", 0
    return report


# ---------------------------------------------------------------------- how far it is


class _Copy:
    """A copy that is under way, or was finished."""

    def __init__(
        self, source: Store, target: Store, origin: str, homes: Homes, progress: Progress | None
    ):
        self._source, self._target, self._origin = source, target, origin
        self._homes, self._progress = homes, progress
        self.state: dict[str, Any] = {}
        """What the note says: where the copy is from; the `source`'s edition when it began; the
        `target`'s after the copy's own last write: as long as that is still its edition, all that
        is in it came from the copy (None: somebody else has written too); `after` which record
        it goes on, how many are `done`, whether it is a `merge`, and whether it is `finished`."""
        self.stale = False
        """Whether the source was written to since: then all of it is copied again."""
        self._before: set[str] = set()

    @contextlib.contextmanager
    def step(self) -> Iterator[dict[str, Any]]:
        """A write, and in the same transaction the note that tells of it."""
        target, state = self._target, self.state
        with target.atomic():
            if state["target"] != list(target.changes.edition()):
                state["target"] = None
            yield state
            if state["target"] is not None:
                state["target"] = list(target.changes.edition())
            target.notes[NOTE] = json.dumps(state)

    def start(self, merge: bool) -> None:
        with self._target.atomic():
            before = [row[0] for row in self._target.lifecycle.ledger(EVERYTHING)]
            self._before = set(before)
            self.state = {
                "from": self._origin,
                "source": list(self._source.changes.edition()),
                "target": list(self._target.changes.edition()),
                "after": "",
                "done": 0,
                "merge": merge,
                "finished": False,
            }
            with self.step():
                if before:
                    self._target.notes[_BEFORE] = json.dumps(before)

    def resume(self, merge: bool) -> None:
        """Go on with an earlier run, or begin. An InputError where the target has work of its own
        that nobody said may be written over."""
        target, edition = self._target, list(self._source.changes.edition())
        state = _read_note(target)
        ours = state.get("from") == self._origin
        untouched = state.get("target") == list(target.changes.edition())
        if ours and untouched:
            self.state, same = state, state["source"] == edition
            if state["finished"] and same:
                return
            if not state["finished"] and (merge or not state["merge"]):
                self._before = set(json.loads(target.notes.get(_BEFORE) or "[]"))
                self.stale = not same
                if self.stale:
                    state |= {"source": edition, "after": "", "done": 0}
                return
        there = target.count(EVERYTHING)
        if not merge and (there or (ours and not untouched)):  # it may have forgotten all there was
            raise InputError(_refusal(state, self._origin, there))
        self.start(merge)

    def drop_gone(self) -> None:
        """Take out again what the copy brought and the source has no more: somebody may have wanted
        it forgotten."""
        there = {row[0] for row in self._source.lifecycle.ledger(EVERYTHING)}
        with self.step() as state:
            mine = {row[0] for row in self._target.lifecycle.ledger(EVERYTHING)} - self._before
            if state["target"] is not None:
                self._target.delete(sorted(mine - there))

    def compare(self, merge: bool) -> Migrated:
        source, target, report = self._source, self._target, Migrated()
        total = source.count(EVERYTHING)
        for page in pages(source, size=BATCH):
            there = target.get([whole.record.id for whole in page])
            theirs = {whole.record.id: whole for whole in _complete(target, there)}
            for mine in page:
                name = mine.record.id
                if wrong := _differences(mine, theirs.get(name), more=merge):
                    report.unlike += 1
                    if len(report.differences) < _NAMED:
                        report.differences[name] = wrong
                report.passages += len(mine.held)
                report.vectors += sum(one.vector is not None for one in mine.held)
            report.records += len(page)
            if self._progress:
                self._progress("comparing", report.records, total)
        if not merge:
            report.extra = max(0, target.count(EVERYTHING) - report.records)
        ours, others = source.files.roots(), target.files.roots()
        same = {n: f for n, f in ours.items() if n in others and self._homes.alike(f, others[n])}
        kept: list[tuple[str, Mapping[str, Any], Mapping[str, Any]]] = [
            ("roots", ours, same),
            ("notes", dict(source.notes), dict(target.notes)),
        ]
        for name in _collections(source):
            kept.append((f"files of {name}", source.files.states(name), target.files.states(name)))
        for what, wanted, known in kept:
            if any(known.get(key) != value for key, value in wanted.items() if key not in NOTES):
                report.rest.append(what)
        return report


def _read_note(target: Store) -> dict[str, Any]:
    try:
        state = json.loads(target.notes.get(NOTE) or "{}")
    except ValueError:
        return {}
    return state if isinstance(state, dict) and state.keys() >= _STATE else {}


def _refusal(state: dict[str, Any], origin: str, there: int) -> str:
    if state.get("from") != origin:
        return (
            f"the target has {counted(there, 'record')} already, and not from there: {_OTHERWISE}"
        )
    if state["finished"]:
        return _ITS_OWN
    if state["merge"] and state["target"] is not None:
        return "a copy with --merge was interrupted: say --merge again to go on with it"
    return f"the target was written to since the copy into it was interrupted: {_OTHERWISE}"


# ---------------------------------------------------------------------- copying


class Whole(NamedTuple):
    """A record with all that a store has of it."""

    record: Record
    held: Sequence[Held]
    life: Life


def pages(store: Store, *, after: str = "", size: int) -> Iterator[list[Whole]]:
    """Every record from there on, by id."""
    for page in read_pages(store, EVERYTHING, size, after=after):
        yield _complete(store, page)


def _complete(store: Store, records: Sequence[Record]) -> list[Whole]:
    ids = [record.id for record in records]
    held, lives = store.vectors.chunks(ids), store.lifecycle.get(ids)
    return [
        Whole(record, held.get(record.id, []), lives.get(record.id, Life())) for record in records
    ]


def _copy_page(page: Sequence[Whole], target: Store) -> None:
    target.put([Entry(of.record, tuple(one.chunk for one in of.held)) for of in page])
    ids = [whole.record.id for whole in page]
    there = target.vectors.chunks(ids)
    numbers: dict[str, list[int]] = {}
    vectors: dict[str, list[Any]] = {}
    for whole in page:
        for mine, its in zip(whole.held, there.get(whole.record.id, ()), strict=True):
            if mine.model is not None and _vector_of(mine) != _vector_of(its):
                numbers.setdefault(mine.model, []).append(its.number)
                vectors.setdefault(mine.model, []).append(mine.vector)
    for model, some in numbers.items():
        target.vectors.set(some, np.stack(vectors[model]), model=model)
    # A record that had ended there and has not here would keep the reason of an end it has no more.
    known = target.lifecycle.get(ids)
    lives = {whole.record.id: whole.life for whole in page}
    target.lifecycle.set({name: life for name, life in lives.items() if known.get(name) != life})


def _copy_rest(source: Store, target: Store, homes: Homes) -> None:
    with target.atomic():
        for collection, folder in homes.written(source.files.roots()).items():
            target.files.set_root(collection, folder)
        for collection in _collections(source):
            target.files.set_states(collection, source.files.states(collection))
        for key, value in source.notes.items():
            if key not in NOTES:
                target.notes[key] = value


def _collections(store: Store) -> list[str]:
    return sorted({*store.files.roots(), *(row[0] for row in store.lifecycle.tally())})


def _differences(mine: Whole, theirs: Whole | None, *, more: bool = False) -> list[str]:
    """The parts in which they differ. `more`: theirs may have vectors that mine has not."""
    if theirs is None:
        return ["missing"]
    if more and len(mine.held) == len(theirs.held):
        pairs = zip(mine.held, theirs.held, strict=True)
        held = [b if a.model else b._replace(model=None, vector=None) for a, b in pairs]
        theirs = Whole(theirs.record, held, theirs.life)
    here, there = parts_of(mine), parts_of(theirs)
    return [part for part in here if here[part] != there[part]]


def parts_of(whole: Whole) -> dict[str, Any]:
    """What can be compared of it. In which order tags and links were given is not kept
    everywhere."""
    record = whole.record
    fields = {
        **{name: getattr(record, name) for name in _FIELDS},
        "tags": sorted(record.tags),
        "links": sorted(record.links),
        "metadata": dict(record.metadata),
    }
    return {
        "content": (record.content, record.title),
        "metadata": json.dumps(fields, sort_keys=True),
        "passages": [one.chunk for one in whole.held],
        "vectors": [_vector_of(one) for one in whole.held],
        "life": whole.life,
    }


def _vector_of(held: Held) -> tuple[str | None, bytes]:
    vector = held.vector
    return held.model, b"" if vector is None else vector.astype("<f4").tobytes()
