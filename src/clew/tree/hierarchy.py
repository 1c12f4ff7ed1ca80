"""Tree: what is kept of a hierarchy over a store's records, as plain arrays.

Inner nodes have numbers from 0, the root's, on. Leaves are records; a leaf's key is the complement
of its number (~0, ~1…), so that one integer names any node.

An inner node is represented by a few directions (facets) rather than their mean: a cluster of
records about two things is near a question about either, and its mean is near neither.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from clew.types import Vector, Vectors

__all__ = ["EXAMPLES", "FACETS", "ROOT", "STALE", "Texts", "Tree", "is_leaf"]

Ints = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]
Halves = npt.NDArray[np.float16]
Floats = npt.NDArray[np.float32]
Prints = npt.NDArray[np.uint32]

ROOT = 0
FACETS = 6
EXAMPLES = 4
"""Records whose words stand for a node."""


def is_leaf(key: int) -> bool:
    return key < 0


class Texts(Sequence[str]):
    """Many texts in one row of bytes, read one at a time."""

    def __init__(self, ends: Longs, content: Bytes):
        self.ends, self.content = ends, content

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
        start = int(self.ends[index - 1]) if index else 0
        return self._text(start, int(self.ends[index]))

    def __iter__(self) -> Iterator[str]:
        start = 0
        for end in self.ends.tolist():
            yield self._text(start, end)
            start = end

    def _text(self, start: int, end: int) -> str:
        return self.content[start:end].tobytes().decode("utf-8", "surrogatepass")


@dataclass(slots=False)
class Tree:
    """A whole tree. Steps that change one make another (see place.py)."""

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
    facets: Halves
    """(node, facet, dimension); directions of length 1, or nothing."""
    weights: Floats
    """(node, facet): how many leaves it stands for; 0: there is no such facet."""
    homes: Ints
    """Parents of the leaves; -1: void, since its record has another leaf now, or no vector."""
    gone: Bytes
    """Leaves whose record was removed: masked, until the node needs the room."""
    prints: Prints
    """Of each leaf's vectors and text, to see whether a record has others now."""
    ids: Texts
    labels: Texts
    summaries: Texts
    examples: Ints
    """(node, EXAMPLES): leaves that label and summary are made of; -1: none."""
    written: Bytes
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
        """Of the records that have one, by id."""
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

    def counted(self, leaves: npt.NDArray[np.bool_]) -> Longs:
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
        return self.counted(np.ones(len(self.homes), np.bool_))

    def below(self, node: int) -> list[int]:
        """Numbers of the leaves below a node."""
        found: list[int] = []
        open_ = [node]
        while open_:
            for key in self.children(open_.pop()):
                if is_leaf(key):
                    found.append(~key)
                else:
                    open_.append(key)
        return sorted(found)

    def nearness(self, nodes: Sequence[int], vector: Vector) -> Vectors:
        """Cosine of the best facet of each inner node."""
        at = np.asarray(nodes, np.int64)
        found = np.asarray(self.facets[at], np.float32) @ vector
        found[np.asarray(self.weights[at]) <= 0] = -1.0
        best: Vectors = found.max(axis=1)
        return best

    @cached_property
    def there(self) -> npt.NDArray[np.bool_]:
        """Leaves whose record is in the store."""
        found: npt.NDArray[np.bool_] = (np.asarray(self.homes) >= 0) & (np.asarray(self.gone) == 0)
        return found

    def stale(self) -> int:
        """Nodes whose summary is about too many others: see STALE."""
        return int((np.asarray(self.moved) > STALE * np.asarray(self.told)).sum())


STALE = 0.2
"""A summary is stale when this share of a node's leaves came or went since it was made."""
