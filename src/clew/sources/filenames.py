"""Files whose name has words of the query in it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from clew.protocols import Context, Source
from clew.types import Candidate, Query

__all__ = ["filenames"]

BEST = 10


def filenames(root: Path, *, best: int = BEST) -> Source:
    """The share of the query's words in the file's name, without its suffix."""

    def source(query: Query, context: Context) -> Sequence[Candidate]:
        words = query.terms.words
        tokens = [token for group in words for token in group]
        if not tokens:
            return ()
        found = context.store.labelled("name", tokens, query.filter, terms=query.terms)
        scored = [
            Candidate(name, sum(not has.isdisjoint(group) for group in words) / len(words))
            for name, has in found.items()
        ]
        return sorted(scored, key=lambda c: (-c.score, c.id))[: min(best, query.depth)]

    return source
