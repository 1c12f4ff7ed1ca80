"""Words, meaning and credibility in one score: s = normalise(Σ weight · normalised component).

Bruch, Gai and Ingber, TOIS 2023, call such a sum a convex combination. Components and their sum are
scaled so that the least is 0 and the greatest 1; where all are equal, all are 1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from clew.errors import ConfigError, InputError, nearest
from clew.ranking.normalise import min_max

__all__ = ["COMPONENTS", "WEIGHTS", "check_shares", "hybrid", "normalised", "ordered"]

COMPONENTS = ("bm25", "semantic", "credibility")
WEIGHTS: Mapping[str, float] = {"bm25": 0.3, "semantic": 0.5, "credibility": 0.2}
TOLERANCE = 0.001
"""By which the sum of the weights may miss 1."""
DIGITS = 6
"""To which scores are told apart; then the id decides."""
_NOISE = 12
"""Digits beyond which sums of floats differ by the order of adding, which scaling would stretch."""

T = TypeVar("T")


def check_shares(given: Mapping[str, Any]) -> dict[str, float]:
    """Weights of the components, none left out. They sum to 1, or are all 0: then each component
    that takes part counts the same."""
    if not isinstance(given, Mapping):
        raise ConfigError(f"weights are a table such as {dict(WEIGHTS)}, not {given!r:.100}")
    for name, value in given.items():
        if name not in COMPONENTS:
            raise ConfigError(f"weights: no component {name!r}: {nearest(str(name), COMPONENTS)}")
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not number or not 0 <= value < math.inf:
            raise ConfigError(f"the weight of {name} must be a number of at least 0, not {value!r}")
    shares = {name: float(given.get(name, 0.0)) for name in COMPONENTS}
    total = math.fsum(shares.values())
    if total and round(abs(total - 1), 9) > TOLERANCE:
        raise ConfigError(f"the weights sum to {total:g}: let them sum to 1")
    return shares


def hybrid(
    components: Mapping[str, Sequence[float]], *, weights: Mapping[str, float] = WEIGHTS
) -> list[float]:
    """One score from 0 to 1 for each text. `components` has a list of scores for each component
    that takes part, all of one length, on whatever scale."""
    shares = effective(components, weights)
    lengths = {len(scores) for scores in components.values()}
    if len(lengths) > 1:
        raise InputError("components are of different lengths: give each text a score in every one")
    scaled = {name: normalised(scores) for name, scores in components.items()}
    count = lengths.pop() if lengths else 0
    sums = [
        math.fsum(shares[name] * scores[i] for name, scores in scaled.items()) for i in range(count)
    ]
    return normalised(sums)


def effective(
    components: Mapping[str, Sequence[float]], weights: Mapping[str, float]
) -> dict[str, float]:
    """What each component that takes part counts, in sum 1."""
    checked = check_shares(weights)
    for name in components:
        if name not in COMPONENTS:
            raise InputError(f"no component {name!r}: {nearest(str(name), COMPONENTS)}")
    total = math.fsum(checked[name] for name in components)
    if not total:
        return {name: 1 / len(components) for name in components}
    return {name: checked[name] / total for name in components}


def normalised(scores: Sequence[float]) -> list[float]:
    """Least 0, greatest 1; differences that are noise are none."""
    if not all(math.isfinite(score) for score in scores):
        raise InputError("a score is not a finite number: leave that text out")
    return min_max([round(score, _NOISE) for score in scores])


def ordered(items: Sequence[T], scores: Sequence[float], ids: Sequence[str]) -> list[T]:
    """Best first; what scores the same to six digits, by id."""
    keys = sorted(range(len(items)), key=lambda i: (-round(scores[i], DIGITS), ids[i]))
    return [items[i] for i in keys]
