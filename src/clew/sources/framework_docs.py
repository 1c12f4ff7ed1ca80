"""The line that fits best, in the folders that say how a workspace works."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from clew.filter import Filter
from clew.protocols import Context, Source
from clew.sources import FunctionSource
from clew.text.analyser import tokens
from clew.types import Candidate, Passage, Query

__all__ = ["framework_docs"]

FOLDERS = (".framework/", ".context/memory_bank/")
BEST = 5


def framework_docs(root: Path, *, folders: tuple[str, ...] = FOLDERS, best: int = BEST) -> Source:
    """The keyword index proposes passages; the share of the query's words in the best line of each
    is its score."""
    below = Filter(within=folders)

    def source(query: Query, context: Context) -> Sequence[Candidate]:
        words, allowed = query.terms.words, query.filter.narrowed(below)
        if not words or allowed is None:
            return ()
        found = context.store.keyword(query.terms, allowed, limit=min(best, query.depth))
        passages = context.store.passages(found)
        scored = [
            candidate._replace(score=_best_line(passage, words))
            for candidate, passage in zip(found, passages, strict=True)
            if passage is not None
        ]
        return sorted(scored, key=lambda c: (-c.score, c.id))

    return FunctionSource(source, outside="", by_terms=True)


def _best_line(passage: Passage, words: Sequence[tuple[str, ...]]) -> float:
    lines = (set(tokens(line)) for line in passage.text.splitlines())
    hits = (sum(not has.isdisjoint(group) for group in words) for has in lines)
    return max(hits, default=0) / len(words)
