"""The three scorers of conversation memory (CONTRACT C) as pure functions over small stores.

Token recall keeps what has a third of the query's words, cosine what is near enough for its model,
and reciprocal rank fusion joins both lists. A scorer returns ids, best first, ties by id; what is
below its threshold is not returned at all, so a query about nothing in the store finds nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

from clew.models import least_cosine
from clew.ranking.fusion import fuse
from clew.text.token_recall import LEAST_RECALL, query_tokens, record_tokens, token_recall
from clew.types import Candidate, Vector

__all__ = ["by_cosine", "by_tokens", "hybrid", "least_cosine"]

Scores = list[tuple[str, float]]


def by_tokens(query: str, texts: Mapping[str, str], *, least: float = LEAST_RECALL) -> Scores:
    """(id, token recall), best first."""
    wanted = query_tokens(query)
    return _kept({name: token_recall(wanted, record_tokens(t)) for name, t in texts.items()}, least)


def by_cosine(query: Vector, vectors: Mapping[str, Vector], *, least: float) -> Scores:
    """(id, cosine), best first; every vector has length 1. Rounded as a store does: what a sum
    depends on its order by decides nothing."""
    cosines = {name: round(float(query @ vector), 6) for name, vector in vectors.items()}
    return _kept(cosines, least)


def hybrid(*lists: Scores, k: int = 60) -> Scores:
    """Plain reciprocal rank fusion: Σ 1 / (k + rank)."""
    named = {
        str(i): [Candidate(name, score) for name, score in ranked] for i, ranked in enumerate(lists)
    }
    return [(found.id, found.score) for found in fuse("rrf", named, k=k)]


def _kept(scores: Mapping[str, float], least: float) -> Scores:
    kept = [(name, score) for name, score in scores.items() if score >= least]
    return sorted(kept, key=lambda pair: (-pair[1], pair[0]))
