"""Nearness in meaning on a scale from 0 to 1, as `hybrid` wants it."""

from __future__ import annotations

from collections.abc import Sequence

from clew.errors import InputError
from clew.types import Vector

__all__ = ["semantic", "share"]

DIGITS = 6
"""Of a product of float32 rows the rest is noise, which scaling would make a ranking of."""


def semantic(
    query: Vector | Sequence[float] | None,
    vectors: Sequence[Vector | Sequence[float] | None],
    *,
    similarities: Sequence[float | None] | None = None,
) -> list[float | None]:
    """(cos + 1) / 2 of each; averaged with the store's own similarity where there is one.

    A store's similarity is a cosine too, of the best passage of the record rather than of the one
    that is shown, and is put on the same scale. A text of which neither is known has no score.
    """
    known = [None] * len(vectors) if similarities is None else list(similarities)
    if len(known) != len(vectors):
        raise InputError(f"{len(known)} similarities for {len(vectors)} texts: give one for each")
    found: list[float | None] = []
    for own, given in zip(_cosines(query, vectors), known, strict=True):
        parts = [share(cosine) for cosine in (own, given) if cosine is not None]
        found.append(round(sum(parts) / len(parts), DIGITS) if parts else None)
    return found


def share(cosine: float) -> float:
    """From -1…1 to 0…1."""
    return min(1.0, max(0.0, (cosine + 1) / 2))


def _cosines(
    query: Vector | Sequence[float] | None, vectors: Sequence[Vector | Sequence[float] | None]
) -> list[float | None]:
    """None where there is no vector, or one of another dimension."""
    if query is None or not any(vector is not None for vector in vectors):
        return [None] * len(vectors)
    import numpy as np

    from clew.models.unit import unit

    asked = unit(np.asarray(query, dtype=np.float32).reshape(1, -1))[0]
    cosines: list[float | None] = []
    for vector in vectors:
        row = np.empty(0) if vector is None else np.asarray(vector, dtype=np.float32)
        fits = row.shape == asked.shape
        cosines.append(float(unit(row.reshape(1, -1))[0] @ asked) if fits else None)
    return cosines
