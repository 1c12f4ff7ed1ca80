"""Scores of one list on a common scale, 0 to 1."""

from __future__ import annotations

from collections.abc import Sequence
from math import fsum, inf, sqrt

__all__ = ["min_max", "three_sigma"]


def min_max(scores: Sequence[float], more: Sequence[float] = ()) -> list[float]:
    """The lowest 0, the highest 1. A single score, or all equal: 1, not 0. `more`, scores between
    these, are put on the scale and have no say in it; so with the others."""
    if not scores:
        return []
    low, high = min(scores), max(scores)
    if high == low:
        return [1.0] * (len(scores) + len(more))
    if high - low == inf:  # halved, they are still apart
        return min_max([score / 2 for score in scores], [score / 2 for score in more])
    return [(score - low) / (high - low) for score in (*scores, *more)]


def three_sigma(scores: Sequence[float], more: Sequence[float] = ()) -> list[float]:
    """Mean − 3σ is 0, mean + 3σ is 1, clamped (distribution-based score fusion)."""
    if not scores:
        return []
    if min(scores) == max(scores):
        return [1.0] * (len(scores) + len(more))
    mean = fsum(scores) / len(scores)
    sigma = sqrt(fsum((score - mean) ** 2 for score in scores) / len(scores))
    if not sigma:  # too close for floating point to tell apart
        return [1.0] * (len(scores) + len(more))
    return [
        min(1.0, max(0.0, (score - mean + 3 * sigma) / (6 * sigma))) for score in (*scores, *more)
    ]
