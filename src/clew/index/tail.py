"""Changes that a derived index does not have on disk yet, kept in memory beside it.

To write an index to the disk takes many times as long as a search, nearly all of it waiting for the
disk, and only one process can. So a search that finds an index a little behind reads the
few passages that the change log names and ranks them beside what is on disk. What the log says is
gone is masked out of the answers from the disk. Now and then somebody writes the index, in the
background, and the tail begins anew.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from clew.storage import log

__all__ = ["FAR", "ROOM", "Found", "Lag", "best", "merged", "room"]

ROOM = 512
"""Changes from which on an index is written in the background: to rank so many in memory takes a
small part of a search."""
SHARE = 0.5
FEWEST = 16
"""A small index is written sooner: passages in the tail are weighed by the average length of those
on disk, which must not be too few to tell."""
FAR = 4
"""A search waits for the index to be written when it is this many times further behind."""

Found = tuple[int, int, float]
"""(rid, cid, score)"""


def room(indexed: int) -> int:
    """How many changes are kept in memory beside an index with so many passages."""
    return min(ROOM, max(FEWEST, int(SHARE * indexed)))


@dataclass(frozen=True, slots=True)
class Lag:
    """The rows of the log between what is on disk and what is served."""

    base: log.Place
    place: log.Place
    mentions: tuple[log.Mention, ...] = ()
    sizes: Mapping[str, int] = field(default_factory=dict)
    """How many numbers rows of each kind name, with repetitions."""

    @classmethod
    def none(cls, place: log.Place) -> Lag:
        return cls(place, place)

    @classmethod
    def of(cls, base: log.Place, mentions: Sequence[log.Mention]) -> Lag:
        return cls.none(base).further(mentions)

    def further(self, mentions: Sequence[log.Mention]) -> Lag:
        if not mentions:
            return self
        sizes = dict(self.sizes)
        for _, _, kind, first, last in mentions:
            sizes[kind] = sizes.get(kind, 0) + last - first + 1
        return Lag(self.base, mentions[-1][:2], (*self.mentions, *mentions), sizes)

    def rebased(self, base: log.Place) -> Lag:
        """What is left when the disk has all up to `base`. What was served stays served: nobody may
        lose sight of a write that he has seen."""
        if base == self.base:
            return self
        known = any(mention[:2] == base for mention in self.mentions)
        left = [mention for mention in self.mentions if mention.number > base[0]]
        return Lag.of(base, left if known else [])

    def size(self, kinds: Iterable[str]) -> int:
        """How many changes these are to an index that goes by rows of these kinds."""
        return sum(self.sizes.get(kind, 0) for kind in kinds)

    def numbers(self, *kinds: str) -> set[int]:
        """The chunks that rows of these kinds name."""
        return {
            number
            for _, _, kind, first, last in self.mentions
            if kind in kinds
            for number in range(first, last + 1)
        }


def best(ranked: Iterable[Found], limit: int, per_record: int = 1) -> list[Found]:
    """The first `limit` records of a list that is best first, so many entries each; more where
    scores at the cut are equal."""
    entries: dict[int, int] = {}
    taken: list[Found] = []
    last = math.inf
    for one in ranked:
        if len(entries) >= limit and one[2] < last:
            break
        count = entries.get(one[0], 0)
        if count < per_record:
            entries[one[0]] = count + 1
            taken.append(one)
        last = one[2]
    return taken


def merged(found: list[Found], more: list[Found], limit: int, per_record: int = 1) -> list[Found]:
    """Two lists as one, as `best` has it."""
    if not more:
        return found
    both = sorted((*found, *more), key=_order)
    return best(both, limit, per_record)


def _order(one: Found) -> Any:
    return -one[2], one[0], one[1]
