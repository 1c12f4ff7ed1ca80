"""The layer in memory: what was answered lately, and the sources' lists that others may use."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from clew.cache.keys import generation_of
from clew.types import Candidate, SearchResult, Vector

__all__ = ["Kept", "Lent", "Place", "Recent"]

LISTS = 512
"""Lists that are kept to be lent: some ten thousand bytes each."""


@dataclass(frozen=True, slots=True)
class Kept:
    """One answer with all that is needed to find it again."""

    key: str
    result: SearchResult
    made: float
    """By the wall clock, as other processes see it too."""
    size: int
    """Bytes, about."""


class Lent(NamedTuple):
    """What one source has found, and for which query."""

    text: str
    vector: Vector
    candidates: tuple[Candidate, ...]


Place = tuple[str, str, Hashable]
"""Group, source, and all of the query that the source's list follows from."""


class Recent:
    """Answers in the order of their last use. Its owner holds a lock around every call."""

    def __init__(self, *, entries: int, bytes: float):
        self._most, self._most_bytes = entries, bytes
        self._kept: OrderedDict[str, Kept] = OrderedDict()
        self._lists: OrderedDict[Place, Lent] = OrderedDict()
        self._newest = -1
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def kept(self) -> Iterable[Kept]:
        return self._kept.values()

    def get(self, key: str) -> Kept | None:
        if (found := self._kept.get(key)) is not None:
            self._kept.move_to_end(key)
        return found

    def put(self, kept: Kept) -> None:
        self.see(generation_of(kept.key))
        self.drop(kept.key)
        if kept.size > self._most_bytes:
            return  # it would push out all others first
        self._kept[kept.key] = kept
        self.bytes += kept.size
        while self._kept and (len(self._kept) > self._most or self.bytes > self._most_bytes):
            self.drop(next(iter(self._kept)))

    def drop(self, key: str) -> None:
        if (gone := self._kept.pop(key, None)) is not None:
            self.bytes -= gone.size

    def see(self, generation: int) -> None:
        """A newer one makes all that is older dead."""
        if generation <= self._newest:
            return
        self._newest = generation
        for key in [key for key in self._kept if generation_of(key) < generation]:
            self.drop(key)
        for place in [place for place in self._lists if generation_of(place[0]) < generation]:
            del self._lists[place]

    def list_at(self, place: Place) -> Lent | None:
        if (found := self._lists.get(place)) is not None:
            self._lists.move_to_end(place)
        return found

    def put_list(self, place: Place, lent: Lent) -> None:
        self._lists[place] = lent
        self._lists.move_to_end(place)
        while len(self._lists) > min(LISTS, self._most):
            self._lists.popitem(last=False)

    def clear(self) -> None:
        self._kept.clear()
        self._lists.clear()
        self.bytes = 0
