"""Scores of many slates put on one scale: the latent relevance behind what a scorer said.

A scorer that sees one slate at a time (a chat model above all) is strict here and generous there.
With s_iv what it said of node v in slate i, the model is s_iv ≈ a · ŝ_v + b_i: one scale for all,
one bias for each slate (arXiv 2510.13217). Nodes that stand in several slates tie the biases
together. Least squares over all that was said so far, solved directly: given the biases, the best
a · ŝ_v is the mean of s_iv − b_i over its slates; put back in, that leaves one linear equation for
each slate.

Two things the data cannot say are fixed: the biases are the smallest that fit (by a ridge, so that
slates which share no node have one too), and ŝ has a mean of one half and a spread of one quarter,
which makes the scale four times the spread of what was said, less that of its noise.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["MIDDLE", "SPREAD", "Calibration", "calibrate"]

MIDDLE, SPREAD = 0.5, 0.25
RIDGE, MOST_RIDGE = 1e-3, 100.0
LEAST = 0.05
"""Of the spread of what was said, at least this part of the variance is relevance, not noise."""
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


def calibrate(slates: Sequence[Mapping[int, float]], *, biased: bool = True) -> Calibration:
    """Fit to all slates, each node → what was said of it there. Not `biased`: every b_i is 0, as if
    slates could be compared as they are."""
    times = Counter(node for slate in slates for node in slate)
    if not times:
        return Calibration(biases=(0.0,) * len(slates))
    fit = _fitted(slates, times) if biased else _Fit(np.zeros(len(slates)))
    sums = dict.fromkeys(times, 0.0)
    for slate, bias in zip(slates, fit.biases.tolist(), strict=True):
        for node, score in slate.items():
            sums[node] += score - bias
    latent = np.asarray([sums[node] / count for node, count in times.items()])
    middle, variance = float(latent.mean()), float(latent.var())
    spread = max(variance - fit.error, LEAST * variance) ** 0.5
    if spread <= FLAT * max(1.0, float(np.abs(latent).max())):
        return Calibration(0.0, tuple(fit.biases.tolist()), dict.fromkeys(times, MIDDLE))
    scale = spread / SPREAD
    scores = MIDDLE + (latent - middle) / scale
    # What the middle takes out of the scores, the biases get: a · ŝ + b is what was said.
    offset = middle - scale * MIDDLE
    return Calibration(
        scale,
        tuple((fit.biases + offset).tolist()),
        dict(zip(times, scores.tolist(), strict=True)),
    )


class _Fit(NamedTuple):
    biases: npt.NDArray[np.float64]
    error: float = 0.0
    """Variance among the nodes that comes from noise, and from biases that are not quite right."""


def _fitted(slates: Sequence[Mapping[int, float]], times: Mapping[int, int]) -> _Fit:
    """The biases by which slates agree best about the nodes they share. A node of one slate takes
    any bias without an error, so only those of several have a part in it.

    Solved twice: what is left over the first time tells noise from bias, and so how much ridge the
    biases should have. Where slates differ by noise alone they get next to none.
    """
    shared = [node for node, count in times.items() if count > 1]
    if not shared:
        return _Fit(np.zeros(len(slates)))
    column = {node: i for i, node in enumerate(shared)}
    there = np.zeros((len(slates), len(shared)))
    said = np.zeros_like(there)
    for i, slate in enumerate(slates):
        for node, score in slate.items():
            if (at := column.get(node)) is not None:
                there[i, at], said[i, at] = 1.0, score
    count = np.asarray([times[node] for node in shared])
    part = there / count
    links = there.sum(axis=1)
    left = np.diag(links) - part @ there.T
    right = said.sum(axis=1) - part @ said.sum(axis=0)
    eye = np.eye(len(slates))
    biases = np.linalg.solve(left + RIDGE * eye, right)
    rest = said - there * biases[:, None]
    rest -= there * (rest.sum(axis=0) / np.maximum(count, 1))
    free = float((count - 1).sum()) - int((links > 0).sum()) + 1
    if free < 1:
        return _Fit(biases)
    noise = float((rest**2).sum()) / free
    tied = links > 0
    moods = float(biases[tied].var()) - noise * float((1.0 / links[tied]).mean())
    ridge = max(RIDGE, min(MOST_RIDGE, noise / moods if moods > 0 else MOST_RIDGE))
    doubt = np.linalg.inv(left + ridge * eye)
    # How the biases get into the nodes: each node has the mean of its slates'.
    single = np.asarray([sum(times[node] == 1 for node in slate) for slate in slates])
    among = ((part / count) @ there.T + np.diag(single)) / len(times)
    mean = (part.sum(axis=1) + single) / len(times)
    error = float((doubt * among).sum() - mean @ doubt @ mean)
    error += (float((1.0 / count).sum()) + float(single.sum())) / len(times)
    return _Fit(doubt @ right, noise * error)
