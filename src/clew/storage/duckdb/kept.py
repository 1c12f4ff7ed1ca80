"""What is kept in memory of the tables because every search asks for it: the ids of records, and
which labels there are. Both follow the change log."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from clew.storage import log
from clew.text.passage import lineage

if TYPE_CHECKING:
    from clew.storage.duckdb.connection import Connection

__all__ = ["Names", "Vocabulary"]

MOST = 300_000
"""Ids, or labels, that are kept: some fifty megabytes."""
PATCH_AT_MOST = 20_000
"""More changed records than this: read anew."""


class Names:
    """Record → id. One look-up of a hundred takes DuckDB longer than the rest of a leg."""

    def __init__(self) -> None:
        self._place = log.NOWHERE
        self._ids: dict[int, str] = {}
        self._lock = threading.Lock()

    def of(self, db: Connection, rids: Sequence[int]) -> Mapping[int, str]:
        if db.private or log.head(db)[0] < self._place[0]:  # which sees another state
            return _ids(db, rids)
        with self._lock:  # held while asking: what is read now is of this place or a later one
            self._place, touched = _since(db, self._place)
            if touched is None:
                self._ids.clear()
            for rid in touched or ():
                self._ids.pop(rid, None)
            missing = [rid for rid in rids if rid not in self._ids]
            if missing:
                self._ids |= self._read(db, missing)
            return {rid: self._ids[rid] for rid in rids if rid in self._ids}

    def _read(self, db: Connection, missing: Sequence[int]) -> Mapping[int, str]:
        there = db.execute("SELECT COUNT(*) FROM records").fetchone()[0]
        if not self._ids and there <= MOST:
            every = db.numpy("SELECT rid, id FROM records")
            return dict(zip(every["rid"].tolist(), every["id"].tolist(), strict=True))
        if len(self._ids) > MOST:
            self._ids.clear()
        return _ids(db, missing)


class Vocabulary:
    """Which labels any record has, or had: it is not worth a statement to ask for another."""

    def __init__(self) -> None:
        self._place = log.NOWHERE
        self._labels: set[tuple[str, str]] | None = None
        self._lock = threading.Lock()

    def present(self, db: Connection, pairs: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
        """Those of (kind, label) that may have a record; a tag also by one that lies below it."""
        if db.private or log.head(db)[0] < self._place[0]:
            return list(pairs)
        with self._lock:
            place = self._place
            self._place, touched = _since(db, place)
            if touched is None or self._labels is None:
                self._labels = None if _many(db) else _labels(db, None)
            elif touched:
                self._labels |= _labels(db, touched)
            if self._labels is None:
                return list(pairs)
            return [pair for pair in pairs if pair in self._labels]


def _since(db: Connection, place: log.Place) -> tuple[log.Place, list[int] | None]:
    """Where the log is now, and the records it names since; None: too many, or unknown."""
    head = log.head(db)
    if head == place:
        return place, []
    changes = log.since(db, place)
    if changes is None or changes.size("record") > PATCH_AT_MOST:
        return head, None
    return changes.place, changes.numbers("record")


def _ids(db: Connection, rids: Sequence[int]) -> dict[int, str]:
    query = "SELECT rid, id FROM records WHERE rid IN (SELECT unnest(?))"
    return dict(db.execute(query, [list(rids)]).fetchall())


def _many(db: Connection) -> bool:
    row = db.execute("SELECT COUNT(*) FROM labels").fetchone()
    return row is not None and row[0] > 10 * MOST


def _labels(db: Connection, rids: Sequence[int] | None) -> set[tuple[str, str]]:
    query, values = "SELECT DISTINCT kind, label FROM labels", []
    if rids is not None:
        query, values = f"{query} WHERE rid IN (SELECT unnest(?))", [list(rids)]
    found = db.execute(query, values).fetchall()
    return {(kind, name) for kind, label in found for name in lineage(label)}
