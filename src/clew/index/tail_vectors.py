"""The tail of a vector index: rows that are not in its files yet, scored exactly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from clew.index.tail import Found, Lag, best
from clew.storage import log
from clew.storage.filters import Allowed
from clew.types import Vector, Vectors

__all__ = ["Files", "Mask", "Places", "Row", "VectorTail", "dot"]

Row = tuple[int, int, bytes]
"""(cid, rid, float32 numbers)"""
Places = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

NONE: Places = np.empty(0, np.int64)


class Files(Protocol):
    """What a tail may ask of the files."""

    def places_of(self, cids: Places) -> Places:
        """The positions of these chunks. Most are new, and nowhere."""
        ...


class VectorTail:
    """One state of the tail; never changed. Later states may share the array of rows with it, and
    write only behind those that it knows of."""

    __slots__ = ("_cids", "_living", "_rids", "_rows", "alive", "lag", "masked")

    def __init__(
        self,
        lag: Lag,
        dim: int,
        rows: Vectors | None = None,
        cids: Places = NONE,
        rids: Places = NONE,
        living: Mask | None = None,
        masked: Places = NONE,
    ):
        self.lag = lag
        self.masked = masked
        """Positions in the files that were replaced or removed."""
        self._rows = np.empty((0, dim), np.float32) if rows is None else rows
        """With room for more than there are."""
        self._cids, self._rids = cids, rids
        self._living = np.ones(len(cids), np.bool_) if living is None else living
        self.alive = int(np.count_nonzero(self._living))

    def extended(
        self, mentions: Sequence[log.Mention], rows: Sequence[Row], files: Files
    ) -> VectorTail:
        """With what these rows of the log name: `rows` are the vectors that there are of it now."""
        new = Lag.of(self.lag.place, mentions)
        touched = np.array(sorted(new.numbers("vector", "gone")), np.int64)
        living = self._living & ~np.isin(self._cids, touched)
        more = files.places_of(touched)
        count, total = len(self._cids), len(self._cids) + len(rows)
        table = self._rows
        if total > len(table):
            table = np.empty((2 * total, table.shape[1]), np.float32)
            table[:count] = self._rows[:count]
        for i, (_, _, numbers) in enumerate(rows, start=count):
            table[i] = np.frombuffer(numbers, "<f4")
        return VectorTail(
            self.lag.further(mentions),
            table.shape[1],
            table,
            np.append(self._cids, np.array([row[0] for row in rows], np.int64)),
            np.append(self._rids, np.array([row[1] for row in rows], np.int64)),
            np.append(living, np.ones(len(rows), np.bool_)),
            np.union1d(self.masked, more) if len(more) else self.masked,
        )

    def rebased(self, base: log.Place, files: Files) -> VectorTail:
        """What is left of it when the files, as they are now, have all up to `base`."""
        lag = self.lag.rebased(base)
        if lag is self.lag and not len(self.masked):
            return self
        added = np.array(sorted(lag.numbers("vector")), np.int64)
        keep = self._living & np.isin(self._cids, added)
        touched = np.array(sorted(lag.numbers("vector", "gone")), np.int64)
        return VectorTail(
            lag,
            self._rows.shape[1],
            self._rows[: len(keep)][keep],
            self._cids[keep],
            self._rids[keep],
            None,
            files.places_of(touched),
        )

    def search(
        self, query: Vector, allowed: Allowed | None, limit: int, per_record: int = 1
    ) -> list[Found]:
        """The best `limit` records of it by inner product, so many entries each, best first."""
        mask = self._living if allowed is None else self._living & allowed.of_rids(self._rids)
        scores = dot(self._rows[: len(self._cids)], query).astype(np.float64).round(6)
        places = np.flatnonzero(mask)
        places = places[np.argsort(-scores[places], kind="stable")]
        rids, cids = self._rids[places].tolist(), self._cids[places].tolist()
        return best(zip(rids, cids, scores[places].tolist(), strict=True), limit, per_record)


def dot(rows: Vectors, query: Vector) -> Vectors:
    # Not BLAS: it takes a second thread and waits for it. With the other core busy that is
    # slower than one thread, which is enough to keep the memory busy.
    scores: Vectors = np.vecdot(rows, query)
    return scores
