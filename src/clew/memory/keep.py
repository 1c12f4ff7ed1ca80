"""Memories on their way into the store."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from clew.engine import Engine
from clew.errors import InputError, ModelError
from clew.filter import Filter
from clew.ingest.records import make_entry
from clew.memory.identity import public_id
from clew.memory.lifecycle import with_details
from clew.memory.results import Remembered
from clew.protocols import Store
from clew.text.passage import passage, titles
from clew.types import Entry, Record, Vector

__all__ = [
    "Prepared",
    "check_ids",
    "embedded",
    "entry_of",
    "prepared",
    "reembed",
    "revive",
    "rewrite",
    "written",
]

log = logging.getLogger("clew")
PAGE = 500
TAKEN = (
    "the id {!r} is taken by another text: leave the id out, or update or supersede that memory; "
    "nothing was written"
)


@dataclass(frozen=True, slots=True)
class Prepared:
    """Memories ready to be written: nothing slow is left to do, such as embedding."""

    entries: tuple[Entry, ...]
    theirs: tuple[int, ...]
    """Places of those whose vector the caller gave."""


def prepared(engine: Engine, records: Sequence[Record], rows: Sequence[Vector | None]) -> Prepared:
    """With their passages and vectors. A row is the vector the caller gave."""
    entries = [entry_of(engine, r, row) for r, row in zip(records, rows, strict=True)]
    own = [i for i, row in enumerate(rows) if row is None]
    for i, made in zip(own, embedded(engine, [entries[i] for i in own]), strict=True):
        entries[i] = made
    theirs = tuple(i for i, row in enumerate(rows) if row is not None)
    return Prepared(tuple(entries), theirs)


def check_ids(store: Store, records: Iterable[Record]) -> None:
    """Ids that callers gave, before anything is written: none may be another text's."""
    told: dict[str, Record] = {}
    for record in records:
        if _text_of(told.setdefault(record.id, record)) != _text_of(record):
            raise InputError(TAKEN.format(public_id(record.id, record.collection)))
    for known in store.get(list(told)):
        if _text_of(known) != _text_of(told[known.id]):
            raise InputError(TAKEN.format(public_id(known.id, known.collection)))


def _text_of(record: Record) -> tuple[str, str, str]:
    return record.collection, record.type, record.content


def written(engine: Engine, ready: Prepared, *, given_model: str) -> list[Remembered]:
    """All of them or none, by their record ids. `given_model` made the vectors that callers
    gave."""
    entries, own = ready.entries, sorted({*range(len(ready.entries))} - {*ready.theirs})
    ids: dict[int, tuple[str, str, str]] = {}
    with engine.store.atomic():
        for some, model in ((ready.theirs, given_model), (own, engine.model)):
            if some:
                put = engine.store.put_new([entries[i] for i in some], model=model)
                ids.update((i, (*kept, model)) for i, kept in zip(some, put, strict=True))
        return [
            Remembered(name, status, entries[i].vectors is not None)
            if status == "created"
            else _told_again(engine, name, entries[i], model)
            for i, (status, name, model) in sorted(ids.items())
        ]


def _told_again(engine: Engine, id: str, entry: Entry, model: str) -> Remembered:
    """A known memory takes over what is new beside its text, a vector if it has none, and is back
    if it had ended: then it is "updated"."""
    store = engine.store
    revived = bool(revive(engine, [id]))  # only one that is told by its id can have ended
    (known,) = store.get([id])
    merged, held = with_details(known, entry.record), id in store.vectors_of([id])
    if entry.vectors is not None and not held:
        store.put([replace(entry, record=merged)], model=model)
        return Remembered(id, "updated", embedded=True)
    if merged != known:
        rewrite(engine, merged)
    return Remembered(id, "updated" if revived or merged != known else "duplicate", held)


def entry_of(engine: Engine, record: Record, row: Vector | None = None) -> Entry:
    """A memory with its passages; with a vector of its own it is one passage."""
    given = None if row is None else row.reshape(1, -1)
    return make_entry(record, given, chunk_size=engine.config.chunk_size)


def rewrite(engine: Engine, record: Record) -> None:
    """A record whose text is as it was. A vector that was given is of the whole text, however long:
    it stays one passage."""
    model, rows = engine.store.vectors_of([record.id]).get(record.id, (None, None))
    row = rows[0] if rows is not None and len(rows) == 1 else None
    engine.store.put([entry_of(engine, record, row)], model=model)


def revive(engine: Engine, ids: Sequence[str]) -> list[str]:
    """Take back the end of records; those that had one. What was superseded is true again."""
    store = engine.store
    with store.atomic():
        lives, back = store.lives(ids), store.revive(ids)
        for record in store.get([n for n in lives if lives[n].reason == "superseded"]):
            if record.valid_to is not None:
                rewrite(engine, replace(record, valid_to=None))
            if record.id not in back:  # it was still to end
                store.set_lives({record.id: replace(lives[record.id], reason="", successor=None)})
                back.append(record.id)
    return back


def embedded(engine: Engine, entries: Sequence[Entry]) -> list[Entry]:
    """With vectors of our own, where they can be made: a text is kept in any case."""
    embedder = engine.embedder
    texts = [
        passage(title, chunk.heading, e.record.content[chunk.start : chunk.end])
        for e in entries
        for title in [titles(e.record.title, e.record.metadata)]
        for chunk in e.chunks
    ]
    try:
        if not entries or not embedder.dim:  # an API may have to be asked for it
            return list(entries)
        made = embedder.embed_documents(texts)
    except ModelError as error:
        log.warning("kept without vectors, found by words till `reembed`: %s", error)
        return list(entries)
    whole: list[Entry] = []
    first = 0
    for e in entries:
        whole.append(replace(e, vectors=made[first : first + len(e.chunks)]))
        first += len(e.chunks)
    return whole


def reembed(engine: Engine, scope: Filter) -> int:
    """Vectors of the current model for the passages in a scope that have none of it; how many."""
    store, embedder, done, last = engine.store, engine.embedder, 0, ""
    if not embedder.dim:
        embedder.embed_query("")  # says why it cannot
    while page := store.select(scope, limit=PAGE, after=last):
        last = page[-1].id
        chunks = [each for some in store.chunks_of([r.id for r in page]).values() for each in some]
        texts = store.texts([each.number for each in chunks if each.model != embedder.model])
        if texts:
            rows = embedder.embed_documents([text for _, text in texts])
            done += store.set_vectors([cid for cid, _ in texts], rows, model=embedder.model)
    return done
