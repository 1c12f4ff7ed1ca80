"""BM25 over the records that have every word of the query; over any word only if none has all.

So one common word does not drag unrelated records in. It is what Ariadne calls full-text search.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from clew.protocols import Context, Source
from clew.sources import FunctionSource
from clew.types import Candidate, Query

__all__ = ["all_words"]


def all_words(root: Path) -> Source:
    """Precise first, generous when that finds nothing."""

    def source(query: Query, context: Context) -> Sequence[Candidate]:
        terms, store = query.terms, context.store
        each = tuple(group[:1] for group in terms.words)
        if len(each) > 1:
            strict = replace(terms, phrases=(*terms.phrases, *each))
            if found := store.keyword(strict, query.filter, limit=query.depth):
                return found
        return store.keyword(terms, query.filter, limit=query.depth)

    return FunctionSource(source, outside="", by_terms=True)
