"""The rows nearest to a query: those in the files of a vector index, and its tail in memory."""

from __future__ import annotations

import threading
from collections import OrderedDict
from functools import cached_property

import numpy as np

from clew.index.inverted_lists import InvertedLists, dot
from clew.index.unflushed import ChunkScore, Numbers, cut_ranking, merge_rankings
from clew.storage.filters import Allowed
from clew.storage.log import Changes, Place
from clew.storage.rows import vector_rows
from clew.storage.tables import Tables
from clew.types import Vector, Vectors

EXACT_ROWS = 20_000
"""With a filter that leaves at most this many rows, scoring them all beats probing for them."""
DEEP = 50
"""When more than one row in this many is wanted, all are scored."""
TIES = 1_000
"""Rows looked at past the limit to settle equal scores by id; more than that are as good as any."""
FILTERS = 32
"""Filters whose positions are kept."""
NONE: Numbers = np.empty(0, np.int64)

Nearest = tuple[Numbers, Vectors]
"""Positions and their scores, best first."""


class VectorFiles:
    """One consistent state of the files, mapped (or as many rows in memory); never changed."""

    def __init__(
        self,
        rows: Vectors,
        cids: Numbers,
        rids: Numbers,
        dead: Numbers = NONE,
        lists: InvertedLists | None = None,
    ):
        """`dead` are positions that were replaced or removed."""
        self.rows, self.cids, self.rids, self.lists = rows, cids, rids, lists
        self.count, self.dead = len(rows), len(dead)
        self.alive = np.ones(self.count, np.bool_)
        self.alive[dead] = False
        self._filtered: OrderedDict[int, tuple[Allowed, Numbers]] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def listed(self) -> int:
        """How many rows are in inverted lists."""
        return self.lists.count if self.lists else 0

    @cached_property  # which takes a millisecond or two
    def _newest_chunk(self) -> int:
        return int(self.cids.max(initial=0))

    @cached_property
    def _newest_record(self) -> int:
        return int(self.rids.max(initial=0))

    def places_of(self, cids: Numbers) -> Numbers:
        """The positions of these chunks. Most are new, and nowhere."""
        known = cids[cids <= self._newest_chunk] if len(cids) else cids
        if not len(known):
            return NONE
        return np.flatnonzero(np.isin(self.cids, known) & self.alive).astype(np.int64)

    def _allowed_places(self, allowed: Allowed) -> Numbers:
        """The positions of allowed records. Kept for the next search with the same filter: to go
        through a million rows takes longer than the search itself."""
        key = id(allowed)
        with self._lock:
            kept = self._filtered.get(key)
            if kept is not None and kept[0] is allowed:
                self._filtered.move_to_end(key)
                return kept[1]
        places = np.flatnonzero(allowed.of_rids(self.rids) & self.alive)
        with self._lock:
            self._filtered[key] = allowed, places
            while len(self._filtered) > FILTERS:
                self._filtered.popitem(last=False)
        return places

    def search(
        self, query: Vector, allowed: Allowed | None, masked: Numbers, limit: int, per_record: int
    ) -> list[ChunkScore]:
        """The best `limit` records, without what is masked, so many entries each; more than that
        where scores at the cut are equal."""
        if self.count == self.dead:
            return []
        places = None
        # A set of all is no restriction, unless somebody has added to the rows meanwhile.
        if allowed is not None and not (allowed.whole and self._newest_record < len(allowed.mask)):
            places = self._allowed_places(allowed)
            if not len(places):
                return []
        total = self.count - self.dead if places is None else len(places)
        want = limit + 16
        while True:
            at, scores = self._nearest(query, places, total, want)
            if len(masked):
                current = ~np.isin(at, masked)
                at, scores = at[current], scores[current]
            rids = self.rids[at]
            ranked = scores.astype(np.float64).round(6)
            _, firsts = np.unique(rids, return_index=True)
            firsts.sort()  # where each record's best row is
            cut = ranked[firsts[limit - 1]] if len(firsts) > limit else -np.inf
            if want >= total or len(firsts) > limit + TIES or cut > ranked[-1]:
                if per_record == 1:
                    at, rids, ranked = at[firsts], rids[firsts], ranked[firsts]
                keep = int(np.searchsorted(-ranked, -cut, side="right"))
                cids = self.cids[at[:keep]].tolist()
                found = zip(rids[:keep].tolist(), cids, ranked[:keep].tolist(), strict=True)
                return list(found) if per_record == 1 else cut_ranking(found, len(rids), per_record)
            want *= 4

    def _nearest(self, query: Vector, places: Numbers | None, total: int, want: int) -> Nearest:
        """The best `want` of these positions (None: of all that are alive), best first."""
        lists = self.lists
        few = places is not None and len(places) <= EXACT_ROWS
        if lists is not None and places is not None and not few:
            # fewer rows than the probes would look at: scoring them is cheaper, and exact
            few = len(places) * lists.state["lists"] <= lists.state["probes"] * lists.count
        # So deep into the list that most inverted lists would have to be looked at.
        if lists is None or few or want * DEEP > total:
            return self._exact(query, self._living(0) if places is None else places, want)
        if places is None:
            # The dead are found and dropped: leaving them out in FAISS takes a bitmap of all.
            inside, tail = None, self._living(lists.count)
            alive = self.alive if self.dead else None
        else:
            inside, tail, alive = places[places < lists.count], places[places >= lists.count], None
        candidates = lists.candidates(query, self.rows, want, inside=inside, alive=alive)
        at, scores = self._exact(query, candidates, want)
        if len(tail):
            more, others = self._exact(query, tail, want)
            at, scores = np.concatenate([at, more]), np.concatenate([scores, others])
            order = np.lexsort((at, -scores))[:want]
            at, scores = at[order], scores[order]
        if len(at) < min(want, total):  # a filter along cluster borders: look at everything
            return self._exact(query, self._living(0) if places is None else places, want)
        return at, scores

    def _living(self, first: int) -> Numbers:
        if not self.dead:
            return np.arange(first, self.count)
        return first + np.flatnonzero(self.alive[first:])

    def _exact(self, query: Vector, places: Numbers, want: int) -> Nearest:
        n = len(places)
        if not n:
            return places, np.empty(0, np.float32)
        first, last = int(places[0]), int(places[-1]) + 1
        if last - first == n:
            scores = dot(self.rows[first:last], query)
        elif n * 4 > self.count:  # most rows: one sweep beats picking them
            scores = dot(self.rows[first:last], query)[places - first]
        else:
            scores = dot(self.rows[places], query)
        if n > want:
            top = np.argpartition(-scores, want)[:want]
            scores, places = scores[top], places[top]
        order = np.lexsort((places, -scores))
        return places[order], scores[order]


class VectorTail:
    """One state of the tail; never changed. Later states may share the table of rows with it, and
    write only behind those that it knows of."""

    def __init__(
        self,
        changes: Changes,
        table: Vectors,
        cids: Numbers = NONE,
        rids: Numbers = NONE,
        dead: Numbers = NONE,
        masked: Numbers = NONE,
    ):
        self.changes = changes
        self.masked = masked
        """Positions in the files that were replaced or removed."""
        self._table = table
        """With room for more rows than there are."""
        self.memory = VectorFiles(table[: len(cids)], cids, rids, dead)

    def extended(self, changes: Changes, db: Tables, model: str, files: VectorFiles) -> VectorTail:
        """With what these name, as it is in the tables now."""
        table, memory = self._table, self.memory
        added = sorted(changes.numbers("vector"))
        rows = vector_rows(db, added, model=model, dim=table.shape[1]) if added else []
        touched = np.array(changes.numbers("vector", "gone"), np.int64)
        total = memory.count + len(rows)
        if total > len(table):
            table = np.empty((2 * total, table.shape[1]), np.float32)
            table[: memory.count] = memory.rows
        for i, (_, _, numbers) in enumerate(rows, start=memory.count):
            table[i] = np.frombuffer(numbers, "<f4")
        more = files.places_of(touched)
        return VectorTail(
            self.changes.extended(changes.rows),
            table,
            np.append(memory.cids, np.array([row[0] for row in rows], np.int64)),
            np.append(memory.rids, np.array([row[1] for row in rows], np.int64)),
            np.flatnonzero(~memory.alive | np.isin(memory.cids, touched)),
            np.union1d(self.masked, more) if len(more) else self.masked,
        )

    def rebased(self, base: Place, files: VectorFiles) -> VectorTail:
        """What is left of it when the files, as they are now, have all up to `base`."""
        changes, memory = self.changes.rebased(base), self.memory
        if changes is self.changes and not len(self.masked):
            return self
        keep = memory.alive & np.isin(memory.cids, changes.numbers("vector"))
        touched = np.array(changes.numbers("vector", "gone"), np.int64)
        left = memory.rows[keep], memory.cids[keep], memory.rids[keep]
        return VectorTail(changes, *left, masked=files.places_of(touched))


class VectorSearcher:
    """One state of a vector index: its files, and the tail. Replaced as a whole."""

    def __init__(self, model: str, files: VectorFiles, tail: VectorTail):
        self.model, self.files, self.tail = model, files, tail

    @property
    def size(self) -> int:
        files, memory = self.files, self.tail.memory
        masked = len(self.tail.masked)
        return files.count - files.dead - masked + memory.count - memory.dead

    def extended(self, db: Tables, changes: Changes) -> VectorSearcher:
        tail = self.tail.extended(changes, db, self.model, self.files)
        return VectorSearcher(self.model, self.files, tail)

    def search(
        self, query: Vector, allowed: Allowed | None, limit: int, per_record: int = 1
    ) -> list[ChunkScore]:
        """The best `limit` records by inner product, so many entries each; more than that where
        scores at the cut are equal."""
        if allowed is not None and not allowed.count:
            return []
        found = self.files.search(query, allowed, self.tail.masked, limit, per_record)
        more = self.tail.memory.search(query, allowed, NONE, limit, per_record)
        return merge_rankings(found, more, limit, per_record)
