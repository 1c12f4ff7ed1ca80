"""The rows nearest to a query, among those in the files of a vector index."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from clew.index.sealed import Sealed
from clew.index.tail_vectors import Places, dot
from clew.types import Vector, Vectors

__all__ = ["View", "nearest"]

EXACT_ROWS = 20_000
"""With a filter that leaves at most this many rows, scoring them all beats probing for them."""
DEEP = 50
"""When more than one row in this many is wanted, all are scored."""

Scored = tuple[Places, Vectors]
"""Positions and their scores, best first."""


@dataclass(frozen=True, slots=True)
class View:
    """One consistent state of the files, mapped; replaced as a whole, never changed."""

    count: int
    rows: Vectors
    cids: npt.NDArray[np.int64]
    rids: npt.NDArray[np.int64]
    alive: npt.NDArray[np.bool_]
    dead: int
    sealed: Sealed | None
    newest: int | None = None
    """The highest chunk; looked for when it is first needed, which takes a millisecond or two."""
    _newest_record: int | None = None

    @property
    def newest_record(self) -> int:
        """The highest record; as `newest`."""
        if self._newest_record is None:
            object.__setattr__(self, "_newest_record", int(self.rids.max(initial=0)))
        assert self._newest_record is not None
        return self._newest_record

    @property
    def sealed_count(self) -> int:
        return self.sealed.count if self.sealed else 0

    def places_of(self, cids: Places) -> Places:
        """The positions of these chunks. Most are new, and nowhere."""
        newest = self.newest
        if newest is None:
            newest = int(self.cids.max(initial=0))
            object.__setattr__(self, "newest", newest)
        known = cids[cids <= newest]
        if not len(known):
            return np.empty(0, np.int64)
        return np.flatnonzero(np.isin(self.cids, known) & self.alive).astype(np.int64)


def nearest(view: View, query: Vector, places: Places | None, want: int) -> tuple[Scored, bool]:
    """The best `want` positions, best first, and whether there are no more to be had."""
    sealed = view.sealed
    total = view.count - view.dead if places is None else len(places)
    few = places is not None and len(places) <= EXACT_ROWS
    if sealed is not None and places is not None and not few:
        # fewer rows than the probes would look at: scoring them is cheaper, and exact
        few = len(places) * sealed.state["lists"] <= sealed.state["probes"] * sealed.count
    # So deep into the list that most inverted lists would have to be looked at.
    deep = want * DEEP > total
    if sealed is None or few or deep:
        among = _alive(view, 0) if places is None else places
        return _exact(view, query, among, want), want >= total
    tail = _alive(view, sealed.count) if places is None else places[places >= sealed.count]
    inside = None if places is None else places[places < sealed.count]
    # The dead are found and dropped: leaving them out in FAISS takes a bitmap of all.
    alive = view.alive if view.dead and places is None else None
    candidates = sealed.candidates(query, view.rows, want, inside=inside, alive=alive)
    found = _exact(view, query, candidates, want)
    if tail is None or len(tail):
        found = _merge(found, _exact(view, query, tail, want), want)
    if len(found[0]) < min(want, total):  # a filter along cluster borders: look at everything
        among = _alive(view, 0) if places is None else places
        return _exact(view, query, among, want), want >= total
    return found, want >= total


def _alive(view: View, first: int, last: int | None = None) -> Places:
    last = view.count if last is None else last
    if not view.dead:
        return np.arange(first, last)
    return first + np.flatnonzero(view.alive[first:last])


def _exact(view: View, query: Vector, places: Places, want: int) -> Scored:
    n = len(places)
    if not n:
        return places, np.empty(0, np.float32)
    contiguous = int(places[-1]) - int(places[0]) + 1 == n
    if contiguous:
        scores = dot(view.rows[int(places[0]) : int(places[-1]) + 1], query)
    elif n * 4 > view.count:  # most rows: one sweep beats picking them
        first, last = int(places[0]), int(places[-1]) + 1
        scores = dot(view.rows[first:last], query)[places - first]
    else:
        scores = dot(view.rows[places], query)
    if n > want:
        top = np.argpartition(-scores, want)[:want]
        scores, places = scores[top], places[top]
    order = np.lexsort((places, -scores))
    return places[order], scores[order]


def _merge(a: Scored, b: Scored, want: int) -> Scored:
    places, scores = np.concatenate([a[0], b[0]]), np.concatenate([a[1], b[1]])
    order = np.lexsort((places, -scores))[:want]
    return places[order], scores[order]
