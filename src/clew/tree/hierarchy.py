"""Tree: what is kept of a hierarchy over a store's records, as plain arrays; and the shape of one,
found from the vectors of its leaves.

Inner nodes have numbers from 0, the root's, on. Leaves are records; a leaf's key is the complement
of its number (~0, ~1…), so that one integer names any node.

An inner node is represented by a few directions (facets) rather than their mean: a cluster of
records about two things is near a question about either, and its mean is near neither.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from clew.types import Vector, Vectors
from clew.validate import unit

Ints = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]
ByteArray = npt.NDArray[np.uint8]
Flags = npt.NDArray[np.bool_]
Divide = Callable[[Longs], list[tuple[str, Longs]] | None]
"""Rows in named parts; None: it cannot say."""

ROOT = 0
FACETS = 6
EXAMPLES = 4  # records whose words stand for a node
STALE = 0.2
"""A summary is stale when this share of a node's leaves came or went since it was made."""
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


def is_leaf(key: int) -> bool:
    return key < 0


class Texts(Sequence[str]):
    """Many texts in one row of bytes, read one at a time."""

    def __init__(self, ends: Longs, content: ByteArray):
        # plain arrays: one number of a mapped one takes ten times as long
        self.ends, self.content = np.asarray(ends), np.asarray(content)

    @classmethod
    def of(cls, texts: Iterable[str]) -> Texts:
        encoded = [text.encode("utf-8", "surrogatepass") for text in texts]
        ends = np.cumsum([len(each) for each in encoded], dtype=np.int64)
        return cls(ends, np.frombuffer(b"".join(encoded), np.uint8))

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, index: int) -> str:  # type: ignore[override]
        if not 0 <= index < len(self.ends):
            raise IndexError(index)
        start = self.ends[index - 1] if index else 0
        return self.content[start : self.ends[index]].tobytes().decode("utf-8", "surrogatepass")


@dataclass(slots=False)
class Tree:
    """A whole tree. Steps that change one make another."""

    mode: str
    model: str
    branching: int
    edition: tuple[int, int]
    """Of the store, up to which it is true."""
    parents: Ints
    """Of inner nodes; the root's is -1."""
    starts: Longs
    kids: Ints
    """Keys of the children of node i: kids[starts[i] : starts[i + 1]]."""
    facets: npt.NDArray[np.float16]
    """(node, facet, dimension); directions of length 1, or nothing."""
    weights: npt.NDArray[np.float32]
    """(node, facet): how many leaves it stands for; 0: there is no such facet."""
    homes: Ints
    """Parents of the leaves; -1: void, since its record has another leaf now, or no vector."""
    gone: ByteArray
    """Leaves whose record was removed: masked, until the node needs the room."""
    prints: npt.NDArray[np.uint32]
    """Of each leaf's vectors and text, to see whether a record has others now."""
    ids: Texts
    labels: Texts
    summaries: Texts
    examples: Ints
    """(node, EXAMPLES): leaves that label and summary are made of; -1: none."""
    written: ByteArray
    """Whether a chat model wrote them, who read more than the examples."""
    told: Ints
    """How many leaves a node had when it was summarised."""
    moved: Ints
    """Leaves that came or went since then."""
    unplaced: int = 0
    """Records without a vector, which have no place in it."""
    token: str = ""
    """Names its file; a tree that is not on disk has none."""
    built: float = 0.0

    def __len__(self) -> int:
        return len(self.parents)

    def children(self, node: int) -> list[int]:
        found: list[int] = self.kids[int(self.starts[node]) : int(self.starts[node + 1])].tolist()
        return found

    def parent(self, key: int) -> int:
        return int(self.homes[~key] if key < 0 else self.parents[key])

    @cached_property
    def leaf_of(self) -> dict[str, int]:
        """The leaves of the records that have one, by id."""
        homes = self.homes.tolist()
        return {name: n for n, name in enumerate(self.ids) if homes[n] >= 0}

    @cached_property
    def depths(self) -> Ints:
        """Steps from the root to each inner node."""
        depth = np.zeros(len(self.parents), np.int32)
        above = np.asarray(self.parents)
        while (below := above >= 0).any():
            depth += below
            above = np.where(below, self.parents[np.maximum(above, 0)], -1)
        return depth

    def count_below(self, leaves: Flags) -> Longs:
        """Per inner node, how many of these leaves are below it."""
        count = np.zeros(len(self.parents), np.int64)
        homes = self.homes[leaves & (np.asarray(self.homes) >= 0)]
        np.add.at(count, homes, 1)
        for depth in range(int(self.depths.max(initial=0)), 0, -1):
            at = np.flatnonzero(self.depths == depth)
            np.add.at(count, self.parents[at], count[at])
        return count

    @cached_property
    def sizes(self) -> Longs:
        """Leaves below each inner node."""
        return self.count_below(np.ones(len(self.homes), np.bool_))

    def below(self, node: int) -> list[int]:
        """Numbers of the leaves below a node."""
        return leaves_below(self.children, node)

    def nearness(self, nodes: Sequence[int], vector: Vector) -> Vectors:
        """Cosine of the best facet of each inner node."""
        at = np.asarray(nodes, np.int64)
        found = np.asarray(self.facets[at], np.float32) @ vector
        found[np.asarray(self.weights[at]) <= 0] = -1.0
        best: Vectors = found.max(axis=1)
        return best

    @cached_property
    def there(self) -> Flags:
        """Leaves whose record is in the store."""
        found: Flags = (np.asarray(self.homes) >= 0) & (np.asarray(self.gone) == 0)
        return found

    @cached_property
    def stale(self) -> Flags:
        """Nodes whose summary is about too many others."""
        found: Flags = np.asarray(self.moved) > STALE * np.asarray(self.told)
        return found


def leaves_below(children: Any, node: int) -> list[int]:
    """Numbers of the leaves below a node; `children` gives the keys of one's children."""
    found: list[int] = []
    waiting = [node]
    while waiting:
        for key in children(waiting.pop()):
            if is_leaf(key):
                found.append(~key)
            else:
                waiting.append(key)
    return sorted(found)


TEXTS = ("ids", "labels", "summaries")
NUMBERS = {
    **dict.fromkeys(("parents", "homes", "told", "moved"), np.int32),
    **dict.fromkeys(("gone", "written"), np.uint8),
    "prints": np.uint32,
}


# ---------------------------------------------------------------------- the shape


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
    waiting: list[tuple[int, str, Longs]] = [(-1, "", np.arange(len(vectors)))]
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


def _divide_evenly(vectors: Vectors, rows: Longs, branching: int) -> list[Longs]:
    count = min(branching, max(2, -(-len(rows) // max(1, round(branching * FILL)))))
    if count < branching:  # the parts fit into one node each: filled well, they are fewer
        groups = group_rows(vectors[rows], branching)
        if 2 <= len(groups) <= branching:
            return [rows[group] for group in groups]
    return split_rows(vectors, rows, count)


# ---------------------------------------------------------------------- k-means


def find_centres(vectors: Vectors, count: int) -> tuple[Vectors, Longs]:
    """Find up to `count` directions that stand for the vectors; how many each stands for."""
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


def group_rows(vectors: Vectors, most: int) -> list[Longs]:
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


def _cut(vectors: Vectors, rows: Longs, most: int) -> list[Longs]:
    if len(rows) <= most:
        return [rows]
    count = max(2, -(-len(rows) // max(1, round(most * FILL))))
    parts = split_rows(vectors, rows, count)
    return [piece for part in parts for piece in _cut(vectors, part, most)]


def _merge_small(vectors: Vectors, groups: list[Longs], most: int) -> list[Longs]:
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
    joined: dict[int, list[Longs]] = {}
    for n, group in enumerate(groups):
        while into[n] != n:
            n = into[n]
        joined.setdefault(n, []).append(group)
    return [np.sort(np.concatenate(joined[n])) for n in sorted(joined)]


def split_rows(vectors: Vectors, rows: Longs, count: int) -> list[Longs]:
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
