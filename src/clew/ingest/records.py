"""Records that a caller gives, into a store and out of it again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, islice
from typing import Any

from clew.filter import Filter
from clew.ingest.entry import entry, table
from clew.ingest.readers import is_table
from clew.ingest.sync import row_ids
from clew.models.unit import unit
from clew.protocols import Progress, Store
from clew.types import Record, Vectors

__all__ = ["add", "remove"]

ADD_BATCH = 5_000
REMOVE_BATCH = 1_000


def add(
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
        rows = table(vectors, records=len(records))
    remaining = iter(records)
    while batch := list(islice(remaining, ADD_BATCH)):
        first = len(statuses)
        given = None if rows is None else unit(rows[first : first + len(batch)])
        entries = [
            entry(record, None if given is None else given[i : i + 1], chunk_size=chunk_size)
            for i, record in enumerate(batch)
        ]
        statuses += store.put(entries, model=model)
        if progress:
            progress("adding", len(statuses), 0)
    if len(statuses) >= ADD_BATCH:
        if model:
            store.prepare(model)
        store.refresh(progress=progress, bulk=True)
    return statuses


def remove(store: Store, ids: Sequence[str], *, collection: str | None) -> int:
    """How many there were. A collection goes with its folder's entry."""
    removed = store.delete(ids) if ids else 0
    if collection is not None:
        # its files first, to whichever collection the settings have given them
        files = iter(store.files(collection))
        while some := list(islice(files, REMOVE_BATCH)):
            rows = [row_ids(store, collection, path) for path in filter(is_table, some)]
            removed += store.delete([*(f"{collection}:{path}" for path in some), *chain(*rows)])
        scope = Filter(collection=collection)
        while records := store.select(scope, limit=REMOVE_BATCH):
            removed += store.delete([record.id for record in records])
        store.remove_root(collection)
    return removed
