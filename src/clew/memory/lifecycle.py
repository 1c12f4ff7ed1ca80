"""What becomes of memories: written, told again, accessed, followed by others, given up."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any

from clew.background import Writer
from clew.engine import Engine
from clew.errors import InputError, ModelError, StoreError
from clew.ingest.records import make_entry
from clew.memory.record import Remembered, find_records, public_id
from clew.protocols import Store
from clew.text.passage import passage, titles
from clew.types import Entry, Life, Record, Vector

_PAGE = 500
_ACCESS_DELAY = 0.25
"""Seconds to wait for more: one transaction for all recalls in that time."""
_ACCESS_PATIENCE = 10.0
"""Seconds to wait, at most, for what is under way when somebody wants to read the counts."""

_log = logging.getLogger("clew")

# ---------------------------------------------------------------- writing


def make_memory_entry(engine: Engine, record: Record, row: Vector | None = None) -> Entry:
    """A memory with its passages; with a vector of its own it is one passage."""
    given = None if row is None else row.reshape(1, -1)
    return make_entry(record, given, chunk_size=engine.config.chunk_size)


def embed_entries(engine: Engine, entries: Sequence[Entry]) -> list[Entry]:
    """Add vectors of our own, where they can be made: a text is kept in any case."""
    texts = [
        passage(title, chunk.heading, e.record.content[chunk.start : chunk.end])
        for e in entries
        for title in [titles(e.record.title, e.record.metadata)]
        for chunk in e.chunks
    ]
    try:
        if not entries or not engine.embedder.dim:  # an API may have to be asked for it
            return list(entries)
        rows = engine.embedder.embed_documents(texts)
    except ModelError as error:
        _log.warning("kept without vectors, found by words till `reembed`: %s", error)
        return list(entries)
    last = accumulate(len(e.chunks) for e in entries)
    return [
        e._replace(vectors=rows[end - len(e.chunks) : end])
        for e, end in zip(entries, last, strict=True)
    ]


def check_ids(store: Store, records: Iterable[Record]) -> None:
    """Refuse ids that callers gave and another text has, before anything is written."""
    told: dict[str, Record] = {}
    for record in records:
        _check_same_text(told.setdefault(record.id, record), record)
    for known in store.get(list(told)):
        _check_same_text(told[known.id], known)


def _check_same_text(one: Record, other: Record) -> None:
    if any(getattr(one, n) != getattr(other, n) for n in ("collection", "type", "content")):
        raise InputError(
            f"the id {public_id(other.id, other.collection)!r} is taken by another text: leave the "
            "id out, or update or supersede that memory; nothing was written"
        )


def write_entries(engine: Engine, ready: Sequence[tuple[Entry, str]]) -> list[Remembered]:
    """Write all of them or none; what became of each, by its record id."""
    kept: dict[int, tuple[str, str]] = {}
    with engine.store.atomic():
        for model in dict.fromkeys(model for _, model in ready):
            some = [i for i, (_, each) in enumerate(ready) if each == model]
            put = engine.store.put_new([ready[i][0] for i in some], model=model)
            kept |= dict(zip(some, put, strict=True))
        done = []
        for i, (made, model) in enumerate(ready):
            status, name = kept[i]
            if status == "created":
                done.append(Remembered(name, status, made.vectors is not None))
            else:
                done.append(_tell_again(engine, name, made, model))
        return done


def _tell_again(engine: Engine, id: str, told: Entry, model: str) -> Remembered:
    """A known memory takes over what is new beside its text, a vector if it has none, and is back
    if it had ended: then it is "updated"."""
    store = engine.store
    revived = bool(revive_records(engine, [id]))  # only one that is told by its id can have ended
    (known,) = store.get([id])
    new = told.record
    merged = replace(
        known,
        importance=max(known.importance, new.importance),
        tags=tuple(dict.fromkeys((*known.tags, *(t.lstrip("#").casefold() for t in new.tags)))),
        metadata={**known.metadata, **new.metadata},
        valid_from=known.valid_from if new.valid_from is None else new.valid_from,
        valid_to=known.valid_to if new.valid_to is None else new.valid_to,
    )
    held = id in store.vectors.of([id])
    if told.vectors is not None and not held:
        store.put([told._replace(record=merged)], model=model)
        return Remembered(id, "updated", embedded=True)
    if merged != known:
        rewrite_record(engine, merged)
    return Remembered(id, "updated" if revived or merged != known else "duplicate", held)


def rewrite_record(engine: Engine, record: Record) -> None:
    """Write a record whose text is as it was. A vector that was given is of the whole text, however
    long: it stays one passage."""
    model, rows = engine.store.vectors.of([record.id]).get(record.id, (None, None))
    row = rows[0] if rows is not None and len(rows) == 1 else None
    engine.store.put([make_memory_entry(engine, record, row)], model=model)


def revive_records(engine: Engine, ids: Sequence[str]) -> list[str]:
    """Take back the end of records; those that had one. What was superseded is true again."""
    store = engine.store
    with store.atomic():
        lives, back = store.lifecycle.get(ids), store.lifecycle.revive(ids)
        for record in store.get([n for n in lives if lives[n].reason == "superseded"]):
            if record.valid_to is not None:
                rewrite_record(engine, replace(record, valid_to=None))
            if record.id not in back:  # it was still to end
                life = lives[record.id]._replace(reason="", successor=None)
                store.lifecycle.set({record.id: life})
                back.append(record.id)
    return back


def refresh_indexes(store: Store, models: Iterable[str], **options: Any) -> None:
    for model in models:
        store.indexes.prepare(model)
    store.indexes.refresh(**options)


# ---------------------------------------------------------------- followed by others


def find_chain(store: Store, last: Record) -> list[Record]:
    """A memory and, however far back, what of its namespace it took the place of. It ends even in a
    circle."""
    found = {last.id: last}
    waiting = [last.id]
    while waiting:
        for earlier in store.get(store.lifecycle.predecessors(waiting.pop(0))):
            if earlier.id not in found and earlier.collection == last.collection:
                found[earlier.id] = earlier
                waiting.append(earlier.id)
    return list(found.values())


def supersede_record(engine: Engine, old: Record, new: Record, *, now: float) -> None:
    """Say till when `old` was true, since `new` takes its place; also what it had followed, where
    the new one goes further back. They are in use no longer, unless that is still to come."""
    earlier = find_chain(engine.store, old) if _true_since(new) < _true_since(old) else [old]
    for record in earlier:
        until = max(_true_since(new), _true_since(record))
        if record.valid_to is not None:
            until = min(until, record.valid_to)
        ended = record.ended_at
        if ended is None and (new.valid_from is None or new.valid_from <= now):
            ended = max(now if r.created_at is None else r.created_at for r in (new, record))
        rewrite_record(engine, replace(record, valid_to=until, ended_at=ended))


def _true_since(record: Record) -> float:
    since = record.created_at if record.valid_from is None else record.valid_from
    return 0.0 if since is None else since


def delete_record(store: Store, id: str) -> bool:
    """Delete it for good; what it had taken the place of is then followed by what took its own, so
    that a history has no hole. Whether there was one."""
    with store.atomic():
        heir = store.lifecycle.get([id]).get(id, Life()).successor
        earlier = store.lifecycle.get(store.lifecycle.predecessors(id))
        heir = None if heir == id else heir
        store.lifecycle.set({name: life._replace(successor=heir) for name, life in earlier.items()})
        return store.delete([id]) > 0


# ---------------------------------------------------------------- use, and what is given up


class AccessCounter:
    """Accesses are counted behind the caller's back: a recall waits for no disk and no other
    process. A process that is killed loses the last moment's counts, nothing else."""

    def __init__(self, store: Store):
        self._store = store
        self._counts: Counter[tuple[str, str]] = Counter()
        self._at = 0.0
        self._lock = threading.Lock()
        self._writer = Writer(self._write, name="clew-accesses", breath=_ACCESS_DELAY)
        self._process = os.getpid()

    def add(self, memories: Iterable[Mapping[str, Any]]) -> None:
        with self._lock:
            self._counts.update((memory["namespace"], memory["id"]) for memory in memories)
            self._at = time.time()
        self._writer.wake()

    def flush(self) -> None:
        """Write all there is, before the counts are read."""
        if self._process == os.getpid():  # a forked child has no thread to wait for
            self._writer.flush(_ACCESS_PATIENCE)

    def close(self) -> None:
        if self._process == os.getpid():
            self._writer.close(_ACCESS_PATIENCE)

    def _write(self) -> None:
        with self._lock:
            counts, at = self._counts, self._at
            self._counts = Counter()
        try:
            for space in {space for space, _ in counts}:
                ids = [name for of, name in counts if of == space]
                found = find_records(self._store, ids, space)
                times = {r.id: counts[space, public_id(r.id, space)] for r in found}
                self._store.lifecycle.count_accesses(times, at=at)
        except StoreError as error:  # a full disk must not take recall down
            _log.warning("accesses are not counted: %s", error)
