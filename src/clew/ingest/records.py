"""Records that a caller gives: made ready for the store, put into it and taken out again; and the
second and third pass of indexing, vectors and token codes for the chunks of whatever was put."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import fields
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from clew.errors import InputError, ModelError, check_known, counted
from clew.filter import Filter
from clew.protocols import (
    Embedder,
    LateInteraction,
    PassageTokens,
    Progress,
    Store,
    batched,
    hold_lock,
)
from clew.types import Chunk, Document, Entry, Record, Vectors
from clew.validate import unit

ADD_BATCH = 10_000
"""Records of one transaction. Where half a million are, each touches nearly all pages of the index
of digests, which lie at random: in twos of 5,000 they would write half as many bytes again."""
BULK = 5_000
"""From so many on, the indexes are brought up to date at once and not by the next search."""
REMOVE_BATCH = 1_000
EMBED_BATCH = 128
ENCODE_BATCH = 512
SAMPLED = 1_500
"""Passages that a codebook is made from, about."""
EMBED_LOCK = "embed.lock"
REFRESH_SECONDS = 10.0


def make_entry(
    record: Record | Mapping[str, Any], vector: Vectors | None = None, *, chunk_size: int
) -> Entry:
    """The record with its passages. With a `vector` (a table of one row) it is one passage."""
    if not isinstance(record, Record):
        record = _record(record)
    for name in ("id", "content"):
        if not getattr(record, name).strip():
            raise InputError(f"record {record.id!r}: {name} must not be empty")
    if vector is None and len(record.content) > chunk_size:
        from clew.ingest.chunk import chunk

        kind = "markdown" if record.type == "markdown" else "text"
        document = Document(record.content, kind, title=record.title)
        return Entry(record, chunk(document, size=chunk_size))
    whole = Chunk(0, len(record.content), (1, record.content.count("\n") + 1))
    return Entry(record, (whole,), vectors=vector)


def _record(given: Mapping[str, Any]) -> Record:
    if not isinstance(given, Mapping):
        raise InputError(f"a record is a Record or a mapping of its fields, not {given!r:.100}")
    known = [field.name for field in fields(Record)]
    check_known("unknown record field", known, *given)
    for name in ("id", "content"):
        if name not in given:
            raise InputError(f"a record needs {name!r}: {dict(given)!r:.100} has none")
    return Record(**given)


def make_table(vectors: Vectors | Sequence[Sequence[float]], *, records: int) -> Vectors:
    """Vectors that a caller gives, as rows of floats, one for each of so many records."""
    try:
        given = np.asarray(vectors)
        # Text such as "1.5" would pass as a number.
        rows = given.astype(np.float32) if given.dtype.kind in "fiubO" else None
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"vectors must be a table of numbers: {_why_no_table(vectors)}") from None
    if rows is None:
        kind = "text" if given.dtype.kind in "US" else given.dtype.name
        raise InputError(f"vectors must be a table of numbers, not of {kind}")
    if rows.ndim != 2:
        raise InputError(f"vectors must be a table, a row per record, not {rows.shape}")
    if len(rows) != records:
        pair = f"{counted(len(rows), 'vector')} for {counted(records, 'record')}"
        raise InputError(f"{pair}: give one for each")
    if not np.isfinite(rows).all():
        raise InputError("a vector has NaN or infinity in it: nothing was written")
    return rows


def _why_no_table(vectors: Any) -> str:
    """What numpy does not say: which row it is."""
    lengths: dict[int, int] = {}
    iterable = hasattr(vectors, "__iter__") and not isinstance(vectors, str)
    for number, row in enumerate(vectors if iterable else ()):
        if isinstance(row, str) or not hasattr(row, "__len__"):
            return f"row {number} is {row!r:.60}"
        lengths.setdefault(len(row), number)
    if len(lengths) > 1:
        said = ", ".join(f"row {n} has {length}" for length, n in list(lengths.items())[:2])
        return f"rows differ in length, {said}"
    return " ".join(repr(vectors).split())[:60]


def add_records(
    store: Store,
    records: Iterable[Record | Mapping[str, Any]],
    *,
    vectors: Vectors | Sequence[Sequence[float]] | None,
    model: str | None,
    chunk_size: int,
    progress: Progress | None,
) -> list[str]:
    """Per record "created", "updated" or "unchanged". `vectors` have a row per record."""
    statuses: list[str] = []
    rows = None
    if vectors is not None:
        records = list(records)  # counted before anything is written
        rows = make_table(vectors, records=len(records))
    for batch in batched(records, ADD_BATCH):
        first = len(statuses)
        given = None if rows is None else unit(rows[first : first + len(batch)])
        entries = [
            make_entry(record, None if given is None else given[i : i + 1], chunk_size=chunk_size)
            for i, record in enumerate(batch)
        ]
        statuses += store.put(entries, model=model)
        if progress:
            progress("adding", len(statuses), 0)
    if len(statuses) >= BULK:
        if model:
            store.indexes.prepare(model)
        store.indexes.refresh(progress=progress, bulk=True)
    return statuses


def remove_records(store: Store, ids: Sequence[str], *, collection: str | None) -> int:
    """How many there were. A collection goes with its folder's entry."""
    removed = store.delete(ids) if ids else 0
    if collection is not None:
        from clew.ingest.readers import is_table
        from clew.ingest.sync import row_ids

        # its files first, to whichever collection the settings have given them
        for some in batched(store.files.states(collection), REMOVE_BATCH):
            rows = [row_ids(store, collection, path) for path in filter(is_table, some)]
            removed += store.delete([*(f"{collection}:{path}" for path in some), *chain(*rows)])
        scope = Filter(collection=collection)
        while records := store.select(scope, limit=REMOVE_BATCH):
            removed += store.delete([record.id for record in records])
        store.files.remove_root(collection)
    return removed


# ---------------------------------------------------------------- vectors
# Each batch is one short transaction, and nothing that is searched or written waits for it.
# Whatever stops the run, the next one goes on from there: what is missing is asked of the store.


def embed_all(
    store: Store,
    embedder: Embedder,
    *,
    folder: Path | None,
    wait: bool,
    batch: int = EMBED_BATCH,
    progress: Progress | None = None,
) -> int | None:
    """How many chunks got a vector, those that came in meanwhile included; None: another run is at
    it, and was not waited for."""
    if (kept := store.indexes.prepare(embedder.model)) not in (0, embedder.dim):
        raise ModelError(
            f"this store's vectors of {embedder.model} have {kept} dimensions, it now gives "
            f"{embedder.dim}: two models of one name; give the embedder a name of its own"
        )
    written = 0
    seen: set[int] = set()
    with _alone(folder, wait=wait, progress=progress) as mine:
        if not mine:
            return None
        refreshed = time.monotonic()
        while pending := [cid for cid in store.vectors.pending(embedder.model) if cid not in seen]:
            done = len(seen)
            seen.update(pending)
            for some in batched(pending, batch):
                written += _embed_chunks(store, embedder, some)
                done += len(some)
                if progress:
                    progress("embedding", done, len(seen))
                if time.monotonic() - refreshed > REFRESH_SECONDS:
                    store.indexes.refresh()
                    refreshed = time.monotonic()
    store.indexes.prepare(embedder.model)
    store.indexes.refresh(progress=progress, optimise=True)
    return written


def _alone(
    folder: Path | None, *, wait: bool, progress: Progress | None
) -> AbstractContextManager[bool]:
    """Whether this run is the only one, in any process, that embeds or encodes for the store in
    `folder`: two at once would do everything twice."""
    if folder is None:
        return nullcontext(True)
    return hold_lock(folder / EMBED_LOCK, wait=wait, needed=False, progress=progress)


def _embed_chunks(store: Store, embedder: Embedder, chunks: Sequence[int]) -> int:
    """Give these a vector, each text embedded once; how many got one."""
    known = store.vectors.known(chunks, model=embedder.model)
    fresh = [(cid, text) for cid, text in store.vectors.texts(chunks) if cid not in known]
    distinct = list(dict.fromkeys(text for _, text in fresh))
    rows = dict(zip(distinct, embedder.embed_documents(distinct), strict=True))
    vectors = known | {cid: rows[text] for cid, text in fresh}
    if not vectors:
        return 0
    together = np.stack(list(vectors.values()))
    return store.vectors.set(list(vectors), together, model=embedder.model)


# ---------------------------------------------------------------- token codes
# Derived from text and model alone, so that what has them keeps them, whatever becomes of records.


def encode_all(
    store: Store,
    model: LateInteraction,
    codes: PassageTokens,
    *,
    folder: Path | None,
    wait: bool,
    lazy: bool = False,
    progress: Progress | None = None,
) -> int:
    """How many passages got token codes; `lazy`: none, only what there are is looked after. Stopped
    at any point, the next run goes on from there; none, where another is at it."""
    with _alone(folder, wait=wait, progress=progress) as mine:
        return _encode_missing(store, model, codes, lazy=lazy, progress=progress) if mine else 0


def _encode_missing(
    store: Store,
    model: LateInteraction,
    codes: PassageTokens,
    *,
    lazy: bool,
    progress: Progress | None,
) -> int:
    digests = store.vectors.digests()
    codes.keep_only(list(digests.values()))
    chunks = {digest: chunk for chunk, digest in reversed(digests.items())}  # one of each text
    have = codes.find(list(chunks))
    pending = sorted(chunk for digest, chunk in chunks.items() if digest not in have)
    done, total = 0, len(pending)

    def tell(more: int) -> None:
        if progress:
            progress("reading tokens", done + more, total)

    if total and not lazy and not have:
        # A codebook is made from passages all over the store.
        step = max(1, total // SAMPLED)
        sample, pending = pending[::step], [c for i, c in enumerate(pending) if i % step]
        made = _encode_chunks(store, model, sample, tell)
        rows = np.concatenate([np.empty((0, model.dim), np.float16), *made.values()])
        if len(rows):
            codes.train(rows, tokens=len(rows) * total // len(sample))
            codes.add(made)
        done = len(sample)
    elif have and codes.outgrown:
        codes.retrain()
    for some in batched(() if lazy else pending, ENCODE_BATCH):
        codes.add(_encode_chunks(store, model, some, tell))
        done += len(some)
    return done


def _encode_chunks(
    store: Store, model: LateInteraction, chunks: Sequence[int], tell: Callable[[int], None]
) -> dict[bytes, Vectors]:
    """The token vectors of these, by the digests of their texts."""
    made: dict[bytes, Vectors] = {}
    for some in batched(chunks, EMBED_BATCH):
        texts = store.vectors.texts(some)
        digests = store.vectors.digests([chunk for chunk, _ in texts])
        rows = model.encode_passages([text for _, text in texts])
        made |= {
            digests[chunk]: of.astype(np.float16)
            for (chunk, _), of in zip(texts, rows, strict=True)
            if chunk in digests
        }
        tell(len(made))
    return made
