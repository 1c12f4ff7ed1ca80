"""The layer in memory: what was asked lately, and the vectors of each group's queries."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from clew.cache.keys import generation_of
from clew.types import SearchResult, Vector

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = ["Kept", "Neighbours", "Recent"]

GROUPS = 32
"""Groups whose vectors are kept at hand; the others are read again from the file."""


@dataclass(frozen=True, slots=True)
class Kept:
    """One answer with all that is needed to find it again."""

    key: str
    group: str
    text: str
    vector: Vector | None
    result: SearchResult
    made: float
    """By the wall clock, as other processes see it too."""
    size: int
    """Bytes, about."""


class Recent:
    """Answers in the order of their last use. Its owner holds a lock around every call."""

    def __init__(self, *, entries: int, bytes: float):
        self._most, self._most_bytes = entries, bytes
        self._kept: OrderedDict[str, Kept] = OrderedDict()
        self._groups: OrderedDict[str, Neighbours] = OrderedDict()
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
        for group in [group for group in self._groups if generation_of(group) < generation]:
            del self._groups[group]

    def neighbours(self, group: str) -> Neighbours:
        """The queries of a group."""
        if (found := self._groups.get(group)) is None:
            found = self._groups[group] = Neighbours(self._most)
            for kept in self._kept.values():
                if kept.group == group and kept.vector is not None:
                    found.add(kept.key, kept.text, kept.vector)
            while len(self._groups) > GROUPS:
                self._groups.popitem(last=False)
        self._groups.move_to_end(group)
        return found

    def known_neighbours(self, group: str) -> Neighbours | None:
        """The same where it is at hand."""
        return self._groups.get(group)

    def clear(self) -> None:
        self._kept.clear()
        self._groups.clear()
        self.bytes = 0


class Neighbours:
    """The queries of one group with their vectors, one row each; the newest `most` of them."""

    def __init__(self, most: int):
        self.seen = 0
        """The last row of the file that is in here."""
        self._most = max(1, most)
        self._texts: dict[str, str] = {}
        self._keys: list[str] = []
        self._rows: npt.NDArray[np.float32] | None = None

    def __len__(self) -> int:
        return len(self._texts)

    def add(self, key: str, text: str, vector: Vector) -> None:
        import numpy as np

        if key in self._texts or len(vector) == 0:
            return
        if self._rows is None:
            self._rows = np.zeros((8, len(vector)), np.float32)
        if self._rows.shape[1] != len(vector):
            return  # of another model: cannot be compared
        if len(self._keys) == len(self._rows):
            self._make_room()
        self._rows[len(self._keys)] = vector
        self._keys.append(key)
        self._texts[key] = text

    def _make_room(self) -> None:
        """Leave out what was dropped, and the oldest where there are too many; then double."""
        import numpy as np

        assert self._rows is not None
        live = [i for i, key in enumerate(self._keys) if key in self._texts]
        live = live[max(0, len(live) - self._most + 1) :]
        rows = np.zeros((max(8, 2 * len(live)), self._rows.shape[1]), np.float32)
        rows[: len(live)] = self._rows[live]
        self._rows = rows
        self._keys = [self._keys[i] for i in live]
        self._texts = {key: self._texts[key] for key in self._keys}

    def drop(self, key: str) -> None:
        self._texts.pop(key, None)

    def ranked(self, vector: Vector, *, least: float) -> list[tuple[str, str]]:
        """(key, text) of the queries at least this near, nearest first; ties: the older first."""
        import numpy as np

        if self._rows is None or self._rows.shape[1:] != vector.shape:
            return []
        cosines = self._rows[: len(self._keys)] @ vector
        near = np.flatnonzero(cosines >= least)
        order = near[np.argsort(-cosines[near], kind="stable")]
        keys = [self._keys[i] for i in order]
        return [(key, self._texts[key]) for key in keys if key in self._texts]
