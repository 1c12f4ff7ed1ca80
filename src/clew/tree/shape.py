"""The shape of a tree: which nodes have which children, from the vectors of the leaves.

Bottom-up, leaves are put into groups, then the groups, until few enough are left for the root.
Top-down, all are divided into as many parts as a node may have, and each part again. Who divides is
k-means, or a chat model that is shown a sample of the records and gives its groups names.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from clew.models.vectors import unit
from clew.tree.cluster import FILL, Numbers, grouped, parted
from clew.tree.hierarchy import is_leaf
from clew.types import Vectors

__all__ = ["Divide", "Shape", "bottom_up", "top_down"]

Divide = Callable[[Numbers], list[tuple[str, Numbers]] | None]
"""Rows in named parts; None: it cannot say."""


@dataclass(slots=True)
class Shape:
    """Children of each inner node, the root first and parents before their children."""

    kids: list[list[int]] = field(default_factory=list)
    names: dict[int, str] = field(default_factory=dict)
    """Labels that came with the division."""


def bottom_up(vectors: Vectors, branching: int, *, seed: int = 0) -> Shape:
    """Groups of alike ones, groups of groups, up to the root."""
    keys = [~n for n in range(len(vectors))]
    rows, weight = vectors, np.ones(len(vectors))
    made: list[list[int]] = []
    while len(keys) > branching:
        groups = grouped(rows, branching, seed=seed)
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
    return Shape(_from_the_root(made))


def _from_the_root(made: list[list[int]]) -> list[list[int]]:
    """Numbered level by level; the last one made is the root."""
    order = [len(made) - 1]
    for node in order:
        order += [key for key in made[node] if not is_leaf(key)]
    number = {node: n for n, node in enumerate(order)}
    return [[key if is_leaf(key) else number[key] for key in made[node]] for node in order]


def top_down(
    vectors: Vectors, branching: int, *, divide: Divide | None = None, seed: int = 0
) -> Shape:
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
        for label, part in _divided(vectors, rows, branching, divide, seed):
            if len(part) == 1:
                shape.kids[node].append(~int(part[0]))
            else:
                waiting.append((node, label, part))
    return shape


def _divided(
    vectors: Vectors, rows: Numbers, branching: int, divide: Divide | None, seed: int
) -> list[tuple[str, Numbers]]:
    named = divide(rows) if divide is not None else None
    if named is not None:
        return named
    count = min(branching, max(2, -(-len(rows) // max(1, round(branching * FILL)))))
    if count < branching:  # the parts fit into one node each: filled well, they are fewer
        groups = grouped(vectors[rows], branching, seed=seed)
        if 2 <= len(groups) <= branching:
            return [("", rows[group]) for group in groups]
    return [("", part) for part in parted(vectors, rows, count, seed=seed)]
