"""Memories on their way into the store."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

from clew.engine import Engine
from clew.errors import ModelError
from clew.ingest.entry import entry
from clew.memory.lifecycle import with_details
from clew.memory.results import Remembered
from clew.text.passage import passage
from clew.types import Entry, Record, Vector

__all__ = ["Prepared", "embedded", "entry_of", "prepared", "rewrite", "written"]

log = logging.getLogger("clew")


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


def written(engine: Engine, ready: Prepared, *, given_model: str) -> list[Remembered]:
    """All of them or none. `given_model` made the vectors that callers gave."""
    entries, own = ready.entries, sorted({*range(len(ready.entries))} - {*ready.theirs})
    ids: dict[int, tuple[str, str]] = {}
    with engine.store.atomic():
        for some, model in ((ready.theirs, given_model), (own, engine.model)):
            if some:
                put = engine.store.put_new([entries[i] for i in some], model=model)
                ids.update(zip(some, put, strict=True))
        return [
            Remembered(
                name,
                _status(engine, name, entries[i].record, status),
                embedded=entries[i].vectors is not None,
            )
            for i, (status, name) in sorted(ids.items())
        ]


def _status(engine: Engine, id: str, record: Record, status: str) -> str:
    """A known memory takes over what is new beside its text: then it is "updated"."""
    if status != "duplicate":
        return status
    (known,) = engine.store.get([id])
    merged = with_details(known, record)
    if merged == known:
        return status
    rewrite(engine, merged)
    return "updated"


def entry_of(engine: Engine, record: Record, row: Vector | None = None) -> Entry:
    """A memory with its passages; with a vector of its own it is one passage."""
    given = None if row is None else row.reshape(1, -1)
    return entry(record, given, chunk_size=engine.config.chunk_size)


def rewrite(engine: Engine, record: Record) -> None:
    """A record whose text is as it was. A vector that was given is of the whole text, however long:
    it stays one passage."""
    model, rows = engine.store.vectors_of([record.id]).get(record.id, (None, None))
    row = rows[0] if rows is not None and len(rows) == 1 else None
    engine.store.put([entry_of(engine, record, row)], model=model)


def embedded(engine: Engine, entries: Sequence[Entry]) -> list[Entry]:
    """With vectors of our own, where they can be made: a text is kept in any case."""
    embedder = engine.embedder
    if not entries or not embedder.dim:
        return list(entries)
    texts = [
        passage(e.record.title, chunk.heading, e.record.content[chunk.start : chunk.end])
        for e in entries
        for chunk in e.chunks
    ]
    try:
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
