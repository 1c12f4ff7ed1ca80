"""Files whose name has words of the query in it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from clew.protocols import Context, Source
from clew.sources import FunctionSource
from clew.types import Candidate, Query

__all__ = ["filenames"]

BEST = 10


def filenames(root: Path, *, best: int = BEST) -> Source:
    """The share of the query's words in the file's name, without its suffix; that is what its
    `floor` is of."""

    def source(query: Query, context: Context) -> Sequence[Candidate]:
        words = query.terms.words
        groups = [(1 / len(words), word) for word in words]
        found = context.store.labelled(
            ("name",), groups, query.filter, limit=min(best, query.depth), terms=query.terms
        )
        return [c for c in found if c.score >= query.floor]

    return FunctionSource(source, outside="", by_terms=True)
