"""The slate of a node: what is put before a scorer together."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from clew.tree.hierarchy import is_leaf

__all__ = ["Slate", "augmented", "sampled"]


class Slate(NamedTuple):
    """The children of one node, and others that tie its scores to those of other slates."""

    node: int
    children: tuple[int, ...]
    others: tuple[int, ...] = ()
    masked: int = 0
    """Leaves of the node that may not be found."""
    leaves: int = 0
    """Leaves of the node, those included."""

    @property
    def keys(self) -> tuple[int, ...]:
        return self.children + self.others


def augmented(
    node: int,
    children: Sequence[int],
    *,
    siblings: Mapping[int, float],
    found: Mapping[int, float],
    samples: int,
    seed: tuple[int, ...],
) -> tuple[int, ...]:
    """Aug(v): beside inner children the best-scoring sibling of v, beside leaves some of those that
    were found already (`found`: leaf → path relevance)."""
    others: list[int] = []
    if any(not is_leaf(key) for key in children):
        rivals = [key for key in siblings if key != node]
        others += sorted(rivals, key=lambda key: (-siblings[key], key))[:1]
    if any(is_leaf(key) for key in children):
        new = {key: relevance for key, relevance in found.items() if key not in children}
        others += sampled(new, samples, seed)
    return tuple(others)


def sampled(found: Mapping[int, float], count: int, seed: tuple[int, ...]) -> list[int]:
    """`count` different leaves, each with a chance in proportion to e to its relevance: the largest
    of relevance plus Gumbel noise."""
    if not found or not count:
        return []
    keys = sorted(found)
    noise = np.random.default_rng(seed).gumbel(size=len(keys)).tolist()
    lot = {k: found[k] + n for k, n in zip(keys, noise, strict=True) if math.isfinite(found[k])}
    return sorted(lot, key=lambda key: (-lot[key], key))[:count]
