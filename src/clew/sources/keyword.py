"""BM25 over the full text."""

from __future__ import annotations

from collections.abc import Sequence

from clew.protocols import Context
from clew.types import Candidate, Query

__all__ = ["keyword"]


def keyword(query: Query, context: Context) -> Sequence[Candidate]:
    """Records with all words of the query first; with any of them when too few have all."""
    return context.store.keyword(query.terms, query.filter, limit=query.depth)
