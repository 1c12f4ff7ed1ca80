"""Nearness in meaning, by embeddings."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from clew.filter import Filter
from clew.protocols import Context, Source
from clew.sources import FunctionSource
from clew.types import Candidate, Query

__all__ = ["vectors"]


def vectors(root: Path, *, collection: str = "") -> Source:
    """Records whose best passage points the same way as the query."""
    own = Filter(collection=collection or ())

    def source(query: Query, context: Context) -> Sequence[Candidate]:
        allowed = query.filter.narrowed(own)
        vector = None if allowed is None else context.query_vector()
        if allowed is None or vector is None:
            return ()
        return context.store.nearest(
            vector,
            allowed,
            model=context.model,
            limit=query.depth,
            terms=query.terms,
            per_record=query.passages,
        )

    return FunctionSource(source, outside="")
