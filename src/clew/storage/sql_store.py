"""The half of a store that is tables: all that is written and read, and no legs.

EmbeddedStore (store.py) adds indexes beside it, a server (servers/) those that it has itself.
"""

from __future__ import annotations

import contextlib
import copy
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Self

from clew.filter import Filter
from clew.storage import batch, log, rows
from clew.storage.batch import possible_ids
from clew.storage.filters import where
from clew.storage.side_tables import SqlEmbeddings, SqlFileStates, SqlLifecycle, SqlNotes
from clew.storage.tables import Database, plain
from clew.types import Candidate, Entry, Passage, Record


class Pin:
    """What one view has read: where the log ends, and what followed from that."""

    def __init__(self, head: log.Place):
        self.head = head
        self.lock = threading.RLock()
        self.allowed: dict[Filter, Any] = {}
        self.coverage: dict[str, float] = {}


class SqlStore:
    """Records in the tables of a database."""

    def __init__(self, db: Database, folder: Path):
        self.folder, self._db = folder, db
        self._pin: Pin | None = None
        self.damaged: set[str] | None = None
        self.vectors = SqlEmbeddings(db)
        self.lifecycle = SqlLifecycle(db)
        self.files = SqlFileStates(db)
        self.notes = SqlNotes(db)
        self.changes = SqlChangeLog(self)

    def _pinned(self) -> Self:
        """A view, for which the caller makes what reads indexes."""
        view = copy.copy(self)
        view._pin = Pin(log.head(self._db.reader))
        view.damaged = set()
        view.changes = SqlChangeLog(view)
        return view

    def _head(self) -> log.Place | None:
        return None if self._pin is None else self._pin.head

    # ------------------------------------------------------------------ writing

    def put(self, entries: Sequence[Entry], *, model: str | None = None) -> list[str]:
        with self._db.transaction() as db:
            return batch.put(db, entries, model=model)

    def put_new(
        self, entries: Sequence[Entry], *, model: str | None = None
    ) -> list[tuple[str, str]]:
        with self._db.transaction() as db:
            return batch.put_new(db, entries, model=model)

    @contextlib.contextmanager
    def atomic(self) -> Iterator[None]:
        with self._db.transaction():
            yield

    def delete(self, ids: Sequence[str]) -> int:
        ids = possible_ids(ids)
        with self._db.transaction() as db:
            return batch.delete(db, ids)

    def rename(self, old_id: str, entry: Entry) -> None:
        with self._db.transaction() as db:
            batch.rename(db, old_id, entry)

    # ------------------------------------------------------------------ reading

    def get(self, ids: Sequence[str]) -> list[Record]:
        ids = possible_ids(ids)
        with self._db.snapshot() as db:
            return rows.get(db, ids, self.damaged)

    def select(
        self, filter: Filter, *, limit: int, after: str = "", newest: bool = False
    ) -> list[Record]:
        order = "r.created_at DESC, r.id" if newest else "r.id"
        with self._db.snapshot() as db:
            condition, values = where(filter, db)
            found = db.execute(
                f"SELECT r.id FROM records AS r WHERE {condition} AND r.id > ?"
                f" ORDER BY {order} LIMIT ?",
                [*values, after, limit],
            ).fetchall()
            return rows.get(db, [row[0] for row in found], self.damaged)

    @plain
    def count(self, filter: Filter) -> int:
        db = self._db.reader
        condition, values = where(filter, db)
        query = f"SELECT COUNT(*) FROM records AS r WHERE {condition}"
        return int(db.execute(query, values).fetchone()[0])

    @plain
    def counts(self, field: str, filter: Filter) -> dict[str, int]:
        db = self._db.reader
        condition, values = where(filter, db)
        apart = {"tag": "tags", "key": "attributes"}.get(field)
        of = f"{apart} AS t JOIN records AS r USING (rid)" if apart else "records AS r"
        name = f"t.{field}" if apart else f"r.{field}"
        number = "COUNT(DISTINCT r.rid)" if apart else "COUNT(*)"
        query = f"SELECT {name}, {number} FROM {of} WHERE {condition} AND {name} <> '' GROUP BY 1"
        return dict(db.execute(query, values).fetchall())

    @plain
    def passages(self, candidates: Sequence[Candidate]) -> list[Passage | None]:
        return rows.passages(self._db.reader, candidates, self.damaged)


class Facet:
    """A part of what a view offers."""

    def __init__(self, store: SqlStore):
        self._store, self._db = store, store._db


class SqlChangeLog(Facet):
    def generation(self) -> int:
        return self.edition()[0]

    @plain
    def edition(self) -> tuple[int, int]:
        return self._store._head() or log.head(self._db.reader)

    @plain
    def touched(self, edition: tuple[int, int]) -> list[str] | None:
        with self._db.snapshot() as db:
            if (changes := log.since(db, edition)) is None:
                return None
            rids = set(changes.numbers("record"))
            query = "SELECT DISTINCT rid FROM chunks WHERE cid IN ({})"
            rids.update(row[0] for row in db.among(query, changes.numbers("vector")))
            return sorted(db.names(sorted(rids)).values())
