"""Nearness in meaning, by embeddings."""

from __future__ import annotations

from collections.abc import Sequence

from clew.protocols import Context
from clew.types import Candidate, Query

__all__ = ["vectors"]


def vectors(query: Query, context: Context) -> Sequence[Candidate]:
    """Records whose best passage points the same way as the query."""
    vector = context.query_vector()
    if vector is None:
        return ()
    return context.store.nearest(
        vector, query.filter, model=context.model, limit=query.depth, terms=query.terms
    )
