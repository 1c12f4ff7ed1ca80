"""Vectors of what a search has found: read where they are, made where they are not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from clew.engine import Engine
from clew.errors import ModelError
from clew.text.passage import passage, titles
from clew.types import Candidate, Hit, Vector

__all__ = ["passage_vectors", "query_vector"]


def query_vector(engine: Engine, text: str, given: Any = None) -> Vector:
    """The caller's, at length 1, or the engine's own; a ModelError where there is neither."""
    if given is None:
        return engine.embed_query(text)
    import numpy as np

    from clew.models.vectors import unit

    vector: Vector = unit(np.asarray(given, dtype=np.float32).reshape(1, -1))[0]
    return vector


def passage_vectors(
    shown: Sequence[tuple[Hit, int | None]], engine: Engine, *, model: str
) -> list[Vector | None]:
    """Of each hit's passage: the store's, else one made now, else None.

    With each hit goes the store's number of its passage, where the source that found it gave one.
    """
    chunks = [chunk for _, chunk in shown]
    unnamed = [i for i, chunk in enumerate(chunks) if chunk is None]
    # A hit that names none shows the record's first passage, or one that is not in the store.
    first = engine.store.passages([Candidate(shown[i][0].id, 0.0) for i in unnamed])
    for i, its in zip(unnamed, first, strict=True):
        if its is not None and its.text == shown[i][0].content:
            chunks[i] = its.chunk
    known = engine.store.known_vectors([c for c in chunks if c is not None], model=model)
    vectors = [None if chunk is None else known.get(chunk) for chunk in chunks]
    missing = [i for i, vector in enumerate(vectors) if vector is None]
    if missing:
        try:
            made = engine.embedder.embed_documents([_as_embedded(shown[i][0]) for i in missing])
        except ModelError:
            return vectors
        for i, vector in zip(missing, made, strict=True):
            vectors[i] = vector
    return vectors


def _as_embedded(hit: Hit) -> str:
    title = titles(hit.title, hit.metadata)
    return passage(title, str(hit.metadata.get("heading") or ""), hit.content)
