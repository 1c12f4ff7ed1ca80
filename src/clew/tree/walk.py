"""What a traversal is told: the published settings, each of which a caller may change."""

from __future__ import annotations

from dataclasses import dataclass

from clew.errors import InputError, nearest

__all__ = ["SCORERS", "Walk"]

SCORERS = ("embedding", "cross-encoder", "llm")
LONGEST = 86_400.0
"""Seconds that a walk may be given: a day."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Walk:
    """How to walk a tree (arXiv 2510.13217, section 4.1)."""

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
    reads: int = 25
    """Passages that a cross-encoder reads, of the leaves that were found."""
    abort: bool = True
    """Whether many masked leaves end the traversal, so that the graph answers instead."""
    calibrated: bool = True
    """Whether slates have biases; else their scores are compared as they are."""
    seconds: float = 60.0
    """Time for all of it; what was found by then is the answer."""
    seed: int = 0

    def __post_init__(self) -> None:
        if self.scorer not in SCORERS:
            raise InputError(
                f"unknown scorer {self.scorer!r}: {nearest(str(self.scorer), SCORERS)}"
            )
        for name, least in (
            ("iterations", 1),
            ("beam", 1),
            ("samples", 0),
            ("nodes", 1),
            ("seed", 0),
        ):
            _check(name, getattr(self, name), least)
        _check("reads", self.reads, 0)
        if self.branching is not None:
            _check("branching", self.branching, 2)
        for name, most in (("alpha", 1.0), ("seconds", LONGEST)):
            value = getattr(self, name)
            number = isinstance(value, (int, float)) and not isinstance(value, bool)
            if not number or not 0 <= value <= most:
                raise InputError(f"{name} must be a number from 0 to {most:g}, not {value!r}")


def _check(name: str, value: object, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise InputError(f"{name} must be a whole number of at least {least}, not {value!r}")
