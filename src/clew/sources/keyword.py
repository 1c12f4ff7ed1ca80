"""BM25 over the full text."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from clew.filter import Filter
from clew.protocols import Context, Source
from clew.sources import FunctionSource
from clew.types import Candidate, Query

__all__ = ["keyword"]


def keyword(root: Path, *, collection: str = "") -> Source:
    """Records with all words of the query first; with any of them when too few have all."""
    own = Filter(collection=collection or ())

    def source(query: Query, context: Context) -> Sequence[Candidate]:
        allowed = query.filter.narrowed(own)
        if allowed is None:
            return ()
        return context.store.keyword(
            query.terms, allowed, limit=query.depth, per_record=query.passages
        )

    return FunctionSource(source, outside="", by_terms=True)
