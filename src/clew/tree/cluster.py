"""The shape of a tree: which nodes have which children, from the vectors of the leaves. Spherical
k-means makes groups of at most so many, alike ones together. Deterministic.

Bottom-up, leaves are put into groups, then the groups, until few enough are left for the root.
Top-down, all are divided into as many parts as a node may have, and each part again. Who divides is
k-means, or a chat model that is shown a sample of the records and gives its groups names.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from clew.models.vectors import unit
from clew.tree.hierarchy import is_leaf
from clew.types import Vectors

Numbers = npt.NDArray[np.int64]
Divide = Callable[[Numbers], list[tuple[str, Numbers]] | None]
"""Rows in named parts; None: it cannot say."""

ROUNDS = 12
FILL = 0.8
"""How full groups are meant to be: k-means makes some larger, and those have to be cut again."""
CELL = 4096
"""More than this are divided roughly first: k-means within a cell takes a fixed time per vector."""
CELL_SAMPLE = 64  # vectors per rough cell that it is placed by
SMALL, NEAR = 0.4, 6
"""Groups that are no fuller than this join one of so many that are nearest."""
GIANT = 0.9
"""A part with more than this share of all is cut evenly, by nearness to the first."""


@dataclass(slots=True)
class Shape:
    """Children of each inner node, the root first and parents before their children."""

    kids: list[list[int]] = field(default_factory=list)
    names: dict[int, str] = field(default_factory=dict)
    """Labels that came with the division."""


def shape_bottom_up(vectors: Vectors, branching: int) -> Shape:
    """Groups of alike ones, groups of groups, up to the root."""
    keys = [~n for n in range(len(vectors))]
    rows, weight = vectors, np.ones(len(vectors))
    made: list[list[int]] = []
    while len(keys) > branching:
        groups = group_rows(rows, branching)
        above: list[int] = []
        for group in groups:
            if len(group) == 1:  # goes up as it is
                above.append(keys[int(group[0])])
            else:
                made.append([keys[n] for n in group.tolist()])
                above.append(len(made) - 1)
        sums = np.stack([(rows[g] * weight[g, None]).sum(axis=0) for g in groups])
        weight = np.array([weight[group].sum() for group in groups])
        rows, keys = unit(sums), above
    made.append(keys)
    order = [len(made) - 1]  # the last one made is the root; numbered from there, level by level
    for node in order:
        order += [key for key in made[node] if not is_leaf(key)]
    number = {node: n for n, node in enumerate(order)}
    return Shape([[k if is_leaf(k) else number[k] for k in made[node]] for node in order])


def shape_top_down(vectors: Vectors, branching: int, *, divide: Divide | None = None) -> Shape:
    """All, divided again and again until a part fits into one node."""
    shape = Shape()
    waiting: list[tuple[int, str, Numbers]] = [(-1, "", np.arange(len(vectors)))]
    for above, name, rows in waiting:
        node = len(shape.kids)
        shape.kids.append([])
        if above >= 0:
            shape.kids[above].append(node)
        if name:
            shape.names[node] = name
        if len(rows) <= branching:
            shape.kids[node] = [~n for n in rows.tolist()]
            continue
        named = divide(rows) if divide is not None else None
        if named is None:
            named = [("", part) for part in _divide_evenly(vectors, rows, branching)]
        for label, part in named:
            if len(part) == 1:
                shape.kids[node].append(~int(part[0]))
            else:
                waiting.append((node, label, part))
    return shape


def _divide_evenly(vectors: Vectors, rows: Numbers, branching: int) -> list[Numbers]:
    count = min(branching, max(2, -(-len(rows) // max(1, round(branching * FILL)))))
    if count < branching:  # the parts fit into one node each: filled well, they are fewer
        groups = group_rows(vectors[rows], branching)
        if 2 <= len(groups) <= branching:
            return [rows[group] for group in groups]
    return split_rows(vectors, rows, count)


# ---------------------------------------------------------------------- k-means


def find_centres(vectors: Vectors, count: int) -> tuple[Vectors, Numbers]:
    """Up to `count` directions that stand for the vectors, and how many each stands for."""
    group = (vectors @ _fit(vectors, count, rounds=8).T).argmax(axis=1)
    numbers = np.unique(group)
    means = np.stack([vectors[group == n].mean(axis=0) for n in numbers])
    return unit(means), np.bincount(group, minlength=int(numbers[-1]) + 1)[numbers]


def _fit(vectors: Vectors, count: int, *, rounds: int = ROUNDS) -> Vectors:
    """The centres of at most so many groups."""
    count = min(count, len(vectors))
    rng = np.random.default_rng(0)
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


def group_rows(vectors: Vectors, most: int) -> list[Numbers]:
    """Row numbers in groups of at most `most`, none empty."""
    rows = np.arange(len(vectors))
    cells = [rows]
    if len(vectors) > CELL:
        count = -(-len(vectors) // CELL)
        step = max(1, len(vectors) // (count * CELL_SAMPLE))
        centre = _fit(np.ascontiguousarray(vectors[::step]), count)
        cell = (vectors @ centre.T).argmax(axis=1)
        cells = [rows[cell == n] for n in range(count)]
    groups = [group for cell in cells if len(cell) for group in _cut(vectors, cell, most)]
    return _merge_small(vectors, groups, most) if len(groups) > 2 else groups


def _cut(vectors: Vectors, rows: Numbers, most: int) -> list[Numbers]:
    if len(rows) <= most:
        return [rows]
    count = max(2, -(-len(rows) // max(1, round(most * FILL))))
    parts = split_rows(vectors, rows, count)
    return [piece for part in parts for piece in _cut(vectors, part, most)]


def _merge_small(vectors: Vectors, groups: list[Numbers], most: int) -> list[Numbers]:
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
        while into[n] != n:
            n = into[n]
        joined.setdefault(n, []).append(group)
    return [np.sort(np.concatenate(joined[n])) for n in sorted(joined)]


def split_rows(vectors: Vectors, rows: Numbers, count: int) -> list[Numbers]:
    """Two or more parts of these rows, at most `count`, none of which is nearly all of them: else
    a heap of equal texts would take one step for each of them."""
    mine = vectors[rows]
    group = (mine @ _fit(mine, count).T).argmax(axis=1)
    parts = [part for n in range(count) if len(part := rows[group == n])]
    largest = max(len(part) for part in parts)
    if len(parts) > 1 and largest <= GIANT * len(rows):
        return parts
    along = mine @ vectors[rows[0]]
    return np.array_split(rows[np.argsort(-along, kind="stable")], min(count, len(rows)))
