"""One store copied into another, of whichever kind: batch by batch, and compared in the end.

How far a copy is stands in a note in the target, by which it is known again and goes on. Nothing is
ever changed in the source.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from clew.errors import InputError, counted
from clew.filter import EVERYTHING
from clew.protocols import Progress, Store
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
_STATE = ("source", "target", "after", "done", "merge", "finished")
"""What the note says of a copy, besides where it is from."""
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


class Homes:
    """The folders of two stores, between which indexed folders are carried over; None: not known,
    or none that it stays in.

    A store has indexed folders relative to its own one or absolute. Copied as it is, "." would be
    another folder, and the next run of indexing would find none of the files there.
    """

    def __init__(self, source: Path | None = None, target: Path | None = None):
        self._source, self._target = source, target

    def written(self, folder: str) -> str:
        """An indexed folder of the source, as the target has to say it."""
        place = _placed(folder, self._source)
        if not place.is_absolute():
            return folder
        own = self._target is not None and place == self._target.resolve()
        return "." if own else str(place)

    def check(self, ours: Mapping[str, str], theirs: Mapping[str, str]) -> None:
        """An InputError where both have a folder of one name, and not the same one: their files
        would be taken for each other's."""
        for name in sorted(ours.keys() & theirs.keys()):
            here, there = _placed(ours[name], self._source), _placed(theirs[name], self._target)
            if here != there:
                raise InputError(
                    f"both stores have indexed a folder as {name!r}, {here} in the source and "
                    f"{there} in the target, and their files would be taken for each other's: give "
                    f"an empty target, or index it there instead (`clew index {here}`), which "
                    "gives it another name"
                )


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
    copy = _resume(source, target, origin=origin, merge=merge)
    if copy.finished:
        both = merge or copy.merge
        report = _compare(source, target, merge=both, homes=homes, progress=progress)
        if report.well:
            report.already = True
            return report
        if not merge:
            raise InputError(_ITS_OWN)  # accesses, perhaps, which make no other edition
        copy = _start(source, target, origin=origin, merge=True)
    resumed = copy.stale or bool(copy.after)
    if copy.stale:
        copy.drop_gone(source, target)
    total = source.count(EVERYTHING)
    for page in pages(source, after=copy.after, size=BATCH):
        copy.after, copy.done = page[-1].record.id, copy.done + len(page)
        with target.atomic():
            copy.look(target)
            _copy_page(page, target)
            copy.write(target)
        if progress:
            progress("copying", copy.done, total)
    _copy_rest(source, target, homes)
    edition = list(source.changes.edition())
    report = _compare(source, target, merge=merge, homes=homes, progress=progress)
    report.resumed = resumed
    with target.atomic():
        copy.look(target)
        if report.well:
            copy.source, copy.finished = edition, True
            if target.notes.get(_BEFORE):
                target.notes[_BEFORE] = ""
        else:  # what was copied is not as it should be: the next run copies all of it
            copy.after, copy.done = "", 0
        copy.write(target)
    return report


# ---------------------------------------------------------------------- how far it is


@dataclass(slots=True)
class _Copy:
    """A copy that is under way, or was finished."""

    origin: str
    source: list[int]
    """The source's edition when it began."""
    target: list[int] | None
    """The target's, after the copy's own last write: as long as that is still its edition, all that
    is in it came from the copy. None: somebody else has written too."""
    after: str = ""
    """The last record that was copied."""
    done: int = 0
    merge: bool = False
    finished: bool = False
    stale: bool = False
    """Whether the source was written to since: then all of it is copied again."""
    before: set[str] = field(default_factory=set)

    def look(self, target: Store) -> None:
        """Whether the target is still as the copy left it; within the transaction of a write."""
        if self.target != list(target.changes.edition()):
            self.target = None

    def write(self, target: Store) -> None:
        """In the transaction of what it tells of."""
        if self.target is not None:
            self.target = list(target.changes.edition())
        state = {"from": self.origin, **{name: getattr(self, name) for name in _STATE}}
        target.notes[NOTE] = json.dumps(state)

    def drop_gone(self, source: Store, target: Store) -> None:
        """Take out again what the copy brought and the source has no more: somebody may have wanted
        it forgotten."""
        there = {row[0] for row in source.lifecycle.ledger(EVERYTHING)}
        with target.atomic():
            self.look(target)
            mine = {row[0] for row in target.lifecycle.ledger(EVERYTHING)} - self.before
            if self.target is not None:
                target.delete(sorted(mine - there))
            self.write(target)


def _resume(source: Store, target: Store, *, origin: str, merge: bool) -> _Copy:
    """What to do: go on with an earlier run, or begin. An InputError where the target has work of
    its own that nobody said may be written over."""
    state = _read_state(target)
    edition = list(source.changes.edition())
    ours = state.get("from") == origin
    untouched = state.get("target") == list(target.changes.edition())
    if ours and untouched:
        same = state["source"] == edition
        copy = _Copy(origin, edition, state["target"], merge=bool(state["merge"]))
        if state["finished"]:
            if same:
                copy.finished = True
                return copy
        elif merge or not copy.merge:
            copy.stale = not same
            copy.before = set(json.loads(target.notes.get(_BEFORE) or "[]"))
            if same:
                copy.after, copy.done = str(state["after"]), int(state["done"])
            return copy
    there = target.count(EVERYTHING)
    if not merge and (there or (ours and not untouched)):  # it may have forgotten all there was
        raise InputError(_refusal(state, origin, there))
    return _start(source, target, origin=origin, merge=merge)


def _start(source: Store, target: Store, *, origin: str, merge: bool) -> _Copy:
    with target.atomic():
        before = [row[0] for row in target.lifecycle.ledger(EVERYTHING)]
        here, there = source.changes.edition(), target.changes.edition()
        copy = _Copy(origin, list(here), list(there), merge=merge, before=set(before))
        if before:
            target.notes[_BEFORE] = json.dumps(before)
        copy.write(target)
    return copy


def _read_state(target: Store) -> dict[str, Any]:
    try:
        state = json.loads(target.notes.get(NOTE) or "{}")
    except ValueError:
        return {}
    return state if isinstance(state, dict) and state.keys() >= {"from", *_STATE} else {}


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
    while records := store.select(EVERYTHING, limit=size, after=after):
        yield _complete(store, records)
        after = records[-1].id


def _complete(store: Store, records: Sequence[Record]) -> list[Whole]:
    ids = [record.id for record in records]
    held, lives = store.vectors.chunks(ids), store.lifecycle.get(ids)
    return [
        Whole(record, held.get(record.id, []), lives.get(record.id, Life())) for record in records
    ]


def _copy_page(page: Sequence[Whole], target: Store) -> None:
    by_model: dict[str | None, list[Entry]] = {}
    parts: dict[str, Sequence[Held]] = {}
    for record, held, _ in page:
        entry, model = _make_entry(record, held)
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


def _make_entry(record: Record, held: Sequence[Held]) -> tuple[Entry, str | None]:
    """With vectors where all of its chunks have one of the same model."""
    chunks = tuple(one.chunk for one in held)
    models = {one.model for one in held}
    rows = [one.vector for one in held if one.vector is not None]
    if len(models) == 1 and rows and len(rows) == len(held):
        return Entry(record, chunks, vectors=np.stack(rows)), models.pop()
    return Entry(record, chunks), None


def _set_parts(target: Store, held: Mapping[str, Sequence[Held]]) -> None:
    """Vectors of records that are only half embedded, or by several models."""
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
        for key, value in source.notes.items():
            if key not in NOTES:
                target.notes[key] = value


def _collections(store: Store) -> list[str]:
    return sorted({*store.files.roots(), *(row[0] for row in store.lifecycle.tally())})


# ---------------------------------------------------------------------- comparing


def _compare(
    source: Store, target: Store, *, merge: bool, homes: Homes, progress: Progress | None
) -> Migrated:
    report = Migrated()
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
        if progress:
            progress("comparing", report.records, total)
    if not merge:
        report.extra = max(0, target.count(EVERYTHING) - report.records)
    roots = {name: homes.written(folder) for name, folder in source.files.roots().items()}
    kept: list[tuple[str, Mapping[str, Any], Mapping[str, Any]]] = [
        ("roots", roots, target.files.roots()),
        ("notes", dict(source.notes), dict(target.notes)),
    ]
    for name in _collections(source):
        kept.append((f"files of {name}", source.files.states(name), target.files.states(name)))
    for what, ours, others in kept:
        if any(others.get(key) != value for key, value in ours.items() if key not in NOTES):
            report.rest.append(what)
    return report


def _differences(mine: Whole, theirs: Whole | None, *, more: bool = False) -> list[str]:
    """The parts in which they differ. `more`: theirs may have vectors that mine has not."""
    if theirs is None:
        return ["missing"]
    if more and len(mine.held) == len(theirs.held):
        pairs = zip(mine.held, theirs.held, strict=True)
        held = [b if a.model else b._replace(model=None, vector=None) for a, b in pairs]
        theirs = Whole(theirs.record, held, theirs.life)
    here, there = checksums(mine), checksums(theirs)
    return [part for part in here if here[part] != there[part]]


def checksums(whole: Whole) -> dict[str, str]:
    """One of each part. In which order tags and links were given is not kept everywhere."""
    record = whole.record
    fields = {
        **{name: getattr(record, name) for name in _FIELDS},
        "tags": sorted(record.tags),
        "links": sorted(record.links),
        "metadata": dict(record.metadata),
    }
    chunks = [one.chunk for one in whole.held]
    places = [[chunk.start, chunk.end, *chunk.lines, chunk.heading] for chunk in chunks]
    vectors = (
        b""
        if one.vector is None
        else f"{one.model}\n".encode() + one.vector.astype("<f4").tobytes()
        for one in whole.held
    )
    return {
        "content": _sum(record.content.encode(), record.title.encode()),
        "metadata": _sum(_json(fields)),
        "passages": _sum(*map(_json, places)),
        "vectors": _sum(*vectors),
        "life": _sum(_json(asdict(whole.life))),
    }


def _json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, ensure_ascii=False).encode()


def _sum(*parts: bytes) -> str:
    digest = blake2b(digest_size=16)
    for part in parts:  # each with its length, so that no two sequences run into one
        digest.update(len(part).to_bytes(8) + part)
    return digest.hexdigest()
