"""Records, vectors and queries for tests of stores, each made in one line."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from clew.filter import Filter
from clew.protocols import Store
from clew.text.parse import parse
from clew.types import Chunk, Entry, Record, Terms, Vector, Vectors

MODEL = "test@1"


def ids(found: Iterable[Any]) -> list[str]:
    return [each.id for each in found]


def entry(
    id: str,
    content: str | Sequence[str],
    *,
    vectors: Sequence[Sequence[float]] | Vectors | None = None,
    headings: Sequence[str] = (),
    **fields: Any,
) -> Entry:
    """A record ready to be put. Content given as several strings: one chunk each."""
    parts = [content] if isinstance(content, str) else list(content)
    text = "\n".join(parts)
    chunks, start, line = [], 0, 1
    for number, part in enumerate(parts):
        last = line + part.count("\n")
        heading = headings[number] if headings else ""
        chunks.append(Chunk(start, start + len(part), (line, last), heading))
        start, line = start + len(part) + 1, last + 1
    rows = None if vectors is None else np.asarray(vectors, np.float32)
    return Entry(Record(id=id, content=text, **fields), tuple(chunks), vectors=rows)


def terms(query: str) -> Terms:
    """The words, phrases and exclusions of a query, as a search would hand them to a store."""
    return parse(query).terms


def unit_rows(count: int, dim: int = 16, *, seed: int = 0) -> Vectors:
    rows = np.random.default_rng(seed).standard_normal((count, dim)).astype(np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def found(store: Store, query: str, *, limit: int = 1000, **filter: Any) -> list[str]:
    """Ids of the keyword leg, in its order."""
    return [c.id for c in store.keyword(terms(query), Filter(**filter), limit=limit)]


def near(
    store: Store,
    vector: Vector | Sequence[float],
    *,
    model: str = MODEL,
    limit: int = 1000,
    query: str = "",
    **filter: Any,
) -> list[str]:
    """Ids of the vector leg, in its order; of `query` phrases and exclusions count."""
    row = np.asarray(vector, np.float32)
    hits = store.nearest(row, Filter(**filter), model=model, limit=limit, terms=terms(query))
    return [c.id for c in hits]


def chunk_numbers(store: Store, id: str, *, model: str = "nobody's") -> list[int]:
    """The numbers a store gave to the chunks of a record that have no vector of `model`."""
    from clew.types import Candidate

    mine = []
    for chunk in store.vectors.pending(model):
        passage = store.passages([Candidate(id, 0.0, chunk)])[0]
        if passage is not None and passage.chunk == chunk:
            mine.append(chunk)
    return sorted(mine)


def ill(store: Store) -> list[str]:
    """What an examination of the store finds wrong."""
    return [f"{what}: {advice}" for what, well, advice in store.upkeep.check() if not well]


WORDS = (
    "keel",
    "mast",
    "sail",
    "rope",
    "deck",
    "bolt",
    "hull",
    "tide",
    "buoy",
    "oar",
    "helm",
    "bow",
)
"""To make texts of, each unlike the others."""
