"""A tree as one query sees it: which leaves may be found, how near nodes are, what they say.

What a user may not see does not speak to them either: a summary is shown, and given to a scorer,
only where the records behind its words may all be found. Where they may not, it is made anew from
some that may.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from clew.protocols import Store
from clew.text.passage import passage
from clew.tree.hierarchy import EXAMPLES, Longs, Tree, is_leaf
from clew.tree.words import Said, extracted, headline
from clew.types import Candidate, Record, Vector

__all__ = ["Mask", "View"]

LONGEST = 1200
"""Characters of a passage that a scorer is given."""
NOWHERE = -1.0
"""The nearness of what has no vector."""


@dataclass(frozen=True, slots=True)
class Mask:
    """Which leaves may be found, and how many of them each node has."""

    leaves: npt.NDArray[np.bool_]
    below: Longs

    @classmethod
    def of(cls, tree: Tree, leaves: npt.NDArray[np.bool_]) -> Mask:
        return cls(leaves, tree.counted(leaves))


class View:
    """Of one query. Reads vectors and words of leaves as the walk meets them."""

    def __init__(
        self, tree: Tree, store: Store, mask: Mask, *, query: str, vector: Vector | None = None
    ):
        self.tree, self.store, self.mask = tree, store, mask
        self.query, self.vector = query, vector
        self.branching = tree.branching
        self._near: dict[int, float] = {}
        self._chunks: dict[int, int] = {}
        self._said: dict[int, Said] = {}

    # ------------------------------------------------------------------ the ground

    def children(self, node: int) -> list[int]:
        return self.tree.children(node)

    def open(self, key: int) -> bool:
        return bool(self.mask.leaves[~key] if key < 0 else self.mask.below[key] > 0)

    def share(self, node: int) -> float:
        size = int(self.tree.sizes[node])
        return int(self.mask.below[node]) / size if size else 0.0

    def prior(self, keys: Sequence[int]) -> list[float]:
        unknown = [key for key in keys if key not in self._near]
        if unknown and self.vector is None:
            self._near |= dict.fromkeys(unknown, NOWHERE)
        elif unknown:
            self._measure(unknown)
        return [self._near[key] for key in keys]

    def _measure(self, keys: Sequence[int]) -> None:
        assert self.vector is not None
        inner = [key for key in keys if not is_leaf(key)]
        if inner:
            near = self.tree.nearness(inner, self.vector).tolist()
            self._near |= dict(zip(inner, near, strict=True))
        leaves = {self.tree.ids[~key]: key for key in keys if is_leaf(key)}
        held = self.store.vectors.chunks(list(leaves)) if leaves else {}
        for name, key in leaves.items():
            self._near[key] = NOWHERE
            some = [h for h in held.get(name, ()) if h.model == self.tree.model]
            rows = [h.vector for h in some if h.vector is not None]
            if rows:
                cosines = np.stack(rows) @ self.vector
                best = int(cosines.argmax())
                self._near[key], self._chunks[key] = float(cosines[best]), some[best].number

    # ------------------------------------------------------------------ what nodes say

    def candidate(self, key: int, score: float) -> Candidate:
        return Candidate(self.tree.ids[~key], score, self._chunks.get(key))

    def texts(self, keys: Sequence[int]) -> list[str]:
        """What a scorer reads: a leaf's nearest passage, or a node's label and summary."""
        self.prior(keys)  # which passage that is
        leaves = [key for key in keys if is_leaf(key)]
        found = self.store.passages([self.candidate(key, 0.0) for key in leaves])
        words = {
            key: "" if p is None else passage(p.record.title, p.heading, p.text)[:LONGEST]
            for key, p in zip(leaves, found, strict=True)
        }
        return [words[key] if is_leaf(key) else ": ".join(self.said(key)) for key in keys]

    def said(self, node: int) -> Said:
        """Label and summary of a node, from what may be found below it."""
        if node not in self._said:
            self._said[node] = self._told(node) if self.may_say(node) else self._anew(node)
        return self._said[node]

    def may_say(self, node: int) -> bool:
        """Whether everything that the node's own words are made of may be found."""
        if self.tree.written[node]:  # by somebody who has read more than the examples
            return bool(self.mask.below[node] == self.tree.sizes[node])
        return all(self.mask.leaves[n] for n in self.tree.examples[node].tolist() if n >= 0)

    def _told(self, node: int) -> Said:
        return Said(self.tree.labels[node], self.tree.summaries[node])

    def _anew(self, node: int) -> Said:
        allowed = [n for n in self.tree.below(node) if self.mask.leaves[n]]
        step = max(1, len(allowed) // EXAMPLES)
        records = self.store.get([self.tree.ids[n] for n in allowed[::step][:EXAMPLES]])
        return extracted(records, {}, 0)

    def titles(self, keys: Sequence[int]) -> Mapping[int, str]:
        """Of leaves, for a trace."""
        names = {self.tree.ids[~key]: key for key in keys if is_leaf(key)}
        return {names[r.id]: headline(r) for r in self._records(list(names))}

    def _records(self, ids: Sequence[str]) -> list[Record]:
        return [
            record for i in range(0, len(ids), 500) for record in self.store.get(ids[i : i + 500])
        ]

    @cached_property
    def records(self) -> int:
        return int(self.mask.leaves.sum())
