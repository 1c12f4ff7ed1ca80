"""Vectors into groups of at most so many, alike ones together. Deterministic."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from clew.models.vectors import unit
from clew.types import Vectors

__all__ = ["among", "centres", "grouped", "parted"]

Numbers = npt.NDArray[np.int64]

ROUNDS = 12
FILL = 0.8
"""How full groups are meant to be: k-means makes some larger, and those have to be cut again."""
CELL = 4096
"""More than this are divided roughly first: k-means within a cell takes a fixed time per vector."""
SAMPLE = 64
"""Vectors per rough cell that it is placed by."""


def among(vectors: Vectors, count: int, *, seed: int = 0, rounds: int = ROUNDS) -> Numbers:
    """Spherical k-means: of each vector, the number of its group."""
    centre = _fitted(vectors, min(count, len(vectors)), seed, rounds)
    return np.asarray((vectors @ centre.T).argmax(axis=1), dtype=np.int64)


def centres(vectors: Vectors, count: int, *, seed: int = 0) -> tuple[Vectors, Numbers]:
    """Up to `count` directions that stand for the vectors, and how many each stands for."""
    group = among(vectors, count, seed=seed, rounds=8)
    numbers = np.unique(group)
    means = np.stack([vectors[group == n].mean(axis=0) for n in numbers])
    return unit(means), np.bincount(group, minlength=int(numbers[-1]) + 1)[numbers]


def _fitted(vectors: Vectors, count: int, seed: int, rounds: int) -> Vectors:
    rng = np.random.default_rng(seed)
    centre = vectors[np.sort(rng.choice(len(vectors), count, replace=False))].copy()
    for _ in range(rounds):
        group = (vectors @ centre.T).argmax(axis=1)
        order = np.argsort(group, kind="stable")
        there, starts = np.unique(group[order], return_index=True)
        sums = np.add.reduceat(vectors[order], starts, axis=0)
        before = centre.copy()
        centre[there] = unit(sums)
        if len(there) < count:  # an empty group starts anew somewhere
            empty = np.setdiff1d(np.arange(count), there)
            centre[empty] = vectors[rng.choice(len(vectors), len(empty))]
        elif np.array_equal(before, centre):
            break
    return centre


def grouped(vectors: Vectors, most: int, *, seed: int = 0) -> list[Numbers]:
    """Row numbers in groups of at most `most`, none empty."""
    rows = np.arange(len(vectors))
    cells = [rows]
    if len(vectors) > CELL:
        count = -(-len(vectors) // CELL)
        step = max(1, len(vectors) // (count * SAMPLE))
        centre = _fitted(np.ascontiguousarray(vectors[::step]), count, seed, ROUNDS)
        cell = (vectors @ centre.T).argmax(axis=1)
        cells = [rows[cell == n] for n in range(count)]
    groups = [group for cell in cells if len(cell) for group in _cut(vectors, cell, most, seed)]
    return _merged(vectors, groups, most) if len(groups) > 2 else groups


def _merged(vectors: Vectors, groups: list[Numbers], most: int) -> list[Numbers]:
    """Small groups join the nearest that has room: every node costs a walk as much as a leaf."""
    centre = unit(np.stack([vectors[group].mean(axis=0) for group in groups]))
    sizes = [len(group) for group in groups]
    into = list(range(len(groups)))
    for n in sorted(range(len(groups)), key=lambda n: (sizes[n], n)):
        if sizes[n] > SMALL * most:
            break
        for other in np.argsort(-(centre @ centre[n]), kind="stable")[1:NEAR].tolist():
            if into[other] == other != n and sizes[other] + sizes[n] <= most:
                into[n] = other
                sizes[other] += sizes[n]
                sizes[n] = 0
                break
    joined: dict[int, list[Numbers]] = {}
    for n, group in enumerate(groups):
        at = n
        while into[at] != at:
            at = into[at]
        joined.setdefault(at, []).append(group)
    return [np.sort(np.concatenate(joined[n])) for n in sorted(joined)]


SMALL = 0.4
NEAR = 6


def _cut(vectors: Vectors, rows: Numbers, most: int, seed: int) -> list[Numbers]:
    if len(rows) <= most:
        return [rows]
    count = max(2, -(-len(rows) // max(1, round(most * FILL))))
    parts = parted(vectors, rows, count, seed=seed)
    return [piece for part in parts for piece in _cut(vectors, part, most, seed)]


def parted(vectors: Vectors, rows: Numbers, count: int, *, seed: int = 0) -> list[Numbers]:
    """Two or more parts of these rows, at most `count`, none of which is nearly all of them: else
    a heap of equal texts would take one step for each of them."""
    group = among(vectors[rows], count, seed=seed)
    parts = [part for n in range(count) if len(part := rows[group == n])]
    largest = max(len(part) for part in parts)
    if len(parts) > 1 and largest <= GIANT * len(rows):
        return parts
    along = vectors[rows] @ vectors[rows[0]]
    return np.array_split(rows[np.argsort(-along, kind="stable")], min(count, len(rows)))


GIANT = 0.9
"""A part with more than this share of all is cut evenly, by nearness to the first."""
