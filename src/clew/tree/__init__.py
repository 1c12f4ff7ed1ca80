"""A hierarchy over a store's records, and walks down it (CONTRACT, section E): see docs/tree.md.

snapshot.py is where to begin reading; build.py makes a tree, search.py walks it. How to walk is
told here, so that saying it imports nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from clew.errors import check_known
from clew.validate import check_number, check_whole

SCORERS = ("embedding", "cross-encoder", "llm")
LONGEST_WALK = 86_400.0  # seconds: a day
_LEAST = {
    "iterations": 1,
    "beam": 1,
    "samples": 0,
    "nodes": 1,
    "seed": 0,
    "reads": 1,
    "branching": 2,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Walk:
    """How to walk a tree: the published settings (arXiv 2510.13217, section 4.1), each of which a
    caller may change."""

    scorer: str = "embedding"
    """Who scores slates: embedding, cross-encoder or llm."""
    iterations: int = 20
    """N."""
    beam: int = 2
    """B: nodes expanded in each iteration."""
    samples: int = 10
    """ℓ: leaves already found that join a slate of leaves."""
    alpha: float = 0.5
    """The part of a node's relevance that it has from its parent."""
    branching: int | None = None
    """Children of a node that are looked at; never more than the tree's own."""
    nodes: int = 500
    """Scorings after which no further node is expanded, by embeddings; a chat model scores every
    slate of all iterations."""
    reads: int = 200
    """Scorings after which no further node is expanded, by a cross-encoder, which reads a text for
    each."""
    abort: bool = True
    """Whether many masked leaves end the traversal, so that the graph answers instead."""
    calibrated: bool = True
    """Whether slates have biases; else their scores are compared as they are."""
    seconds: float = 60.0
    """Time for all of it; what was found by then is the answer."""
    seed: int = 0

    def __post_init__(self) -> None:
        check_known("unknown scorer", SCORERS, self.scorer)
        for name, least in _LEAST.items():
            if (value := getattr(self, name)) is not None or name != "branching":
                check_whole(name, value, least)
        check_number("alpha", self.alpha)
        check_number("seconds", self.seconds, 0, LONGEST_WALK)
