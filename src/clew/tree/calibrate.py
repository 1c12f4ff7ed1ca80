"""Scores of many slates put on one scale: the latent relevance behind what a scorer said.

A scorer that sees one slate at a time (a chat model above all) is strict here and generous there.
With s_iv what it said of node v in slate i, the model is s_iv ≈ a · ŝ_v + b_i: one scale for all,
one bias for each slate (arXiv 2510.13217). Nodes that stand in several slates tie the biases
together. Least squares over all that was said so far, solved directly: given the biases, the best
a · ŝ_v is the mean of s_iv − b_i over its slates; put back in, that leaves one linear equation for
each slate.

Two things the data cannot say are fixed: the biases are the smallest that fit (a little ridge, so
that slates which share no node have one too), and ŝ has a mean of one half and a spread of one
quarter, which makes the scale the spread of what was said, times four.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

__all__ = ["MIDDLE", "SPREAD", "Calibration", "calibrate"]

MIDDLE, SPREAD = 0.5, 0.25
RIDGE = 0.05
FLAT = 1e-9
"""A spread below this, by the size of the scores, is none: all were given the same."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """What was fitted."""

    scale: float = 0.0
    """a. Nothing: the scorer makes no difference between nodes."""
    biases: tuple[float, ...] = ()
    """b_i, in the order of the slates."""
    scores: Mapping[int, float] = field(default_factory=dict)
    """ŝ_v by node."""


def calibrate(
    slates: Sequence[Mapping[int, float]], *, biased: bool = True, ridge: float = RIDGE
) -> Calibration:
    """Fit to all slates, each node → what was said of it there. Not `biased`: every b_i is 0, as if
    slates could be compared as they are."""
    times = Counter(node for slate in slates for node in slate)
    if not times:
        return Calibration(biases=(0.0,) * len(slates))
    biases = _biases(slates, times, ridge) if biased else [0.0] * len(slates)
    sums = dict.fromkeys(times, 0.0)
    for slate, bias in zip(slates, biases, strict=True):
        for node, score in slate.items():
            sums[node] += score - bias
    latent = np.asarray([sums[node] / count for node, count in times.items()])
    middle, spread = float(latent.mean()), float(latent.std())
    if spread <= FLAT * max(1.0, float(np.abs(latent).max())):
        return Calibration(0.0, tuple(biases), dict.fromkeys(times, MIDDLE))
    scale = spread / SPREAD
    scores = MIDDLE + (latent - middle) / scale
    # What the middle takes out of the scores, the biases get: a · ŝ + b is what was said.
    offset = middle - scale * MIDDLE
    return Calibration(
        scale,
        tuple(bias + offset for bias in biases),
        dict(zip(times, scores.tolist(), strict=True)),
    )


def _biases(
    slates: Sequence[Mapping[int, float]], times: Mapping[int, int], ridge: float
) -> list[float]:
    """The smallest that fit. A node of one slate takes any bias without an error, so only those of
    several have an equation in it."""
    shared = [node for node, count in times.items() if count > 1]
    column = {node: i for i, node in enumerate(shared)}
    there = np.zeros((len(slates), len(shared)))
    said = np.zeros_like(there)
    for i, slate in enumerate(slates):
        for node, score in slate.items():
            if (at := column.get(node)) is not None:
                there[i, at], said[i, at] = 1.0, score
    part = there / np.asarray([times[node] for node in shared])
    left = np.diag(there.sum(axis=1) + ridge) - part @ there.T
    found: list[float] = np.linalg.solve(left, said.sum(axis=1) - part @ said.sum(axis=0)).tolist()
    return found
