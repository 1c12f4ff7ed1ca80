"""DuckDB: its dialect and schema.

A statement costs DuckDB a third of a millisecond before it reads a row: so there are few large ones
where SQLite has many small ones.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

import numpy as np

from clew.errors import StoreError
from clew.storage.arrays import ArrayTables, Rows
from clew.storage.tables import COLUMNS, Row
from clew.types import Vector

if TYPE_CHECKING:
    from clew.storage.duckdb_file import DuckFile
    from clew.storage.filters import Allowed

_INDEXED = 50
"""DuckDB looks so many values up in an index; for more it reads the whole column."""
_WORTH = 20
"""Look-ups of so many each take as long as to read all of a column of long texts."""
_KEPT = 50_000
"""Records up to which all ids are kept in memory until the next write: one look-up of a hundred
takes longer than the rest of a leg."""

# Lists where SQLite needs tables: a record's tags and links are in its row. No unique keys but
# those of small tables: DuckDB checks them slowly, and numbers are given under a lock anyway. The
# views have the names that SQLite's tables have.
_FIRST = """
    CREATE TABLE meta (key VARCHAR PRIMARY KEY, value VARCHAR NOT NULL);
    CREATE TABLE counters (name VARCHAR PRIMARY KEY, last BIGINT NOT NULL);
    INSERT INTO counters VALUES ('rid', 0), ('cid', 0);

    CREATE TABLE records (
        rid BIGINT NOT NULL,
        id VARCHAR NOT NULL,
        collection VARCHAR NOT NULL,
        type VARCHAR NOT NULL,
        domain VARCHAR NOT NULL,
        title VARCHAR NOT NULL,
        path VARCHAR,
        importance DOUBLE NOT NULL,
        created_at DOUBLE NOT NULL,
        updated_at DOUBLE NOT NULL,
        metadata VARCHAR NOT NULL,
        ended_at DOUBLE,
        tags VARCHAR[] NOT NULL,
        links VARCHAR[] NOT NULL,
        content VARCHAR NOT NULL
    );
    CREATE INDEX records_rid ON records (rid);
    CREATE INDEX records_id ON records (id);

    CREATE TABLE chunks (
        cid BIGINT NOT NULL,
        rid BIGINT NOT NULL,
        "start" BIGINT NOT NULL,
        "end" BIGINT NOT NULL,
        first_line BIGINT NOT NULL,
        last_line BIGINT NOT NULL,
        heading VARCHAR NOT NULL,
        digest BLOB NOT NULL
    );
    CREATE INDEX chunks_cid ON chunks (cid);
    CREATE INDEX chunks_rid ON chunks (rid);

    CREATE TABLE vectors (
        cid BIGINT NOT NULL,
        embedding_model VARCHAR NOT NULL,
        embedding_dim INTEGER NOT NULL,
        embedding FLOAT[] NOT NULL
    );

    CREATE TABLE labels (kind VARCHAR NOT NULL, label VARCHAR NOT NULL, rid BIGINT NOT NULL);
    -- A value is text or a number. Of a whole one both are kept: a DOUBLE may round it.
    CREATE TABLE attributes (
        rid BIGINT NOT NULL, key VARCHAR NOT NULL, text VARCHAR, number DOUBLE, whole BIGINT
    );

    CREATE TABLE roots (collection VARCHAR PRIMARY KEY, folder VARCHAR NOT NULL);
    CREATE TABLE files (
        collection VARCHAR NOT NULL, path VARCHAR NOT NULL,
        size BIGINT NOT NULL, mtime_ns BIGINT NOT NULL,
        digest VARCHAR NOT NULL, indexed_ns BIGINT NOT NULL,
        PRIMARY KEY (collection, path)
    );

    CREATE TABLE lives (
        rid BIGINT NOT NULL,
        accesses BIGINT NOT NULL,
        strength DOUBLE NOT NULL,
        accessed_at DOUBLE,
        useful BIGINT NOT NULL,
        useless BIGINT NOT NULL,
        reason VARCHAR NOT NULL,
        successor VARCHAR
    );

    CREATE TABLE changes (
        seq BIGINT NOT NULL, kind VARCHAR NOT NULL, first BIGINT NOT NULL, last BIGINT NOT NULL,
        token BIGINT NOT NULL
    );

    CREATE VIEW texts AS SELECT rid, content FROM records;
    CREATE VIEW tags AS SELECT label AS tag, rid FROM labels WHERE kind = 'tag';
    CREATE VIEW links AS SELECT rid, unnest(links) AS target FROM records
"""
# When what a record says is true, apart from when it was written.
_VALIDITY = """
    ALTER TABLE records ADD COLUMN valid_from DOUBLE;
    ALTER TABLE records ADD COLUMN valid_to DOUBLE
"""
# Filled when a row is written, and those of before by `checksum.seal`.
_CHECKSUMS = """
    ALTER TABLE records ADD COLUMN checksum BIGINT;
    ALTER TABLE chunks ADD COLUMN checksum BIGINT;
    ALTER TABLE vectors ADD COLUMN checksum BIGINT
"""


def plain_words(statement: str) -> str:
    """A statement without what DuckDB adds or leaves out when it keeps one."""
    return " ".join(re.sub(r'["();]', " ", statement).split())


VIEWS = frozenset(plain_words(each) for each in _FIRST.split(";") if "CREATE VIEW" in each)
MIGRATIONS = [_FIRST, _VALIDITY, _CHECKSUMS]
"""Each takes a store from its number to the next; never change one that was released."""


class DuckTables(ArrayTables):
    """The tables for one thread, or for the one that writes. Its cursor is a new one when the file
    was replaced."""

    SHORT = "len(embedding) <> embedding_dim"

    def __init__(self, file: DuckFile):
        self._file = file
        self._cursor: Any = None
        self.in_transaction = self._failed = False

    def execute(self, query: str, parameters: Sequence[Any] = (), /) -> Rows:
        if query == "BEGIN":
            self._begin()
        elif query in ("COMMIT", "ROLLBACK"):
            self._end(query)
        else:
            return Rows(self._ask(lambda cursor: cursor.execute(query, parameters).fetchall()))
        return Rows()

    def _ask(self, work: Callable[[Any], Any]) -> Any:
        inside = contextlib.nullcontext() if self.in_transaction else self._file.gate.inside()
        with inside, explained(self._file.path):
            if self._cursor is None:
                self._cursor = self._file.cursor()
            try:
                return work(self._cursor)
            except BaseException:
                self._failed = True
                raise

    def _begin(self) -> None:
        """Go through the gate, and stay inside until the end."""
        self._file.gate.enter()
        self.in_transaction, self._failed = True, False
        try:
            self._ask(lambda cursor: cursor.execute("BEGIN"))
        except BaseException:
            self.in_transaction = False
            self._file.gate.leave()
            raise

    def _end(self, word: str) -> None:
        try:
            if self._failed and word == "COMMIT" and self is self._file.writer:
                # DuckDB would roll back, and say that it went well
                raise StoreError("nothing was written: a statement within it failed")
            self._ask(lambda cursor: cursor.execute(word))
            self._file.version += self is self._file.writer
        except BaseException:
            with contextlib.suppress(Exception):  # a failed commit may leave it open
                self._cursor.execute("ROLLBACK")
            raise
        finally:
            self.in_transaction = False
            self._file.gate.leave()

    def drop(self) -> None:
        """Let go of the cursor; with the gate closed."""
        if self._cursor is not None:
            self._cursor.close()
            self._cursor = None

    # ------------------------------------------------------------------ statements

    def among(
        self, query: str, values: Sequence[Any], *more: Any, near: bool = False
    ) -> Iterator[Row]:
        if near and values:  # the bounds let DuckDB pass over most of a large table
            query = _bound(query, values)
        size = len(values) if near or len(values) > _INDEXED * _WORTH else _INDEXED
        query = query.format("SELECT unnest(?)")
        for i in range(0, len(values), max(1, size)):
            yield from self.execute(query, [list(values[i : i + size]), *more])

    def with_vectors(self, query: str, values: Sequence[Any], *more: Any) -> Iterator[Row]:
        """Columns as arrays: much quicker than tuples where there are many rows."""
        if not values:
            return
        query = _bound(query, values).format("SELECT unnest(?)")
        parameters = [list(values), *more]
        found = self._ask(lambda cursor: cursor.execute(query, parameters).fetchnumpy())
        *columns, sums, vectors = found.values()
        rows = (np.asarray(vector, dtype="<f4") for vector in vectors)
        every = zip(sums.tolist(), *(column.tolist() for column in columns), rows, strict=True)
        for known, *rest, row in every:
            if known is None or crc32(row.tobytes()) == known:
                yield *rest, row

    def insert(self, table: str, rows: Sequence[Row], *, replacing: int = 0) -> None:
        if not rows:
            return
        names = self.DETAILS.get(table) or COLUMNS[table]
        if replacing:
            newest = {row[:replacing]: row for row in rows}
            self.remove(table, names[:replacing], list(newest))
            rows = list(newest.values())
        quoted = ", ".join(f'"{name}"' for name in names)
        lists = ", ".join(["unnest(?)"] * len(names))
        columns = [list(column) for column in zip(*rows, strict=True)]
        self.execute(f"INSERT INTO {table} ({quoted}) SELECT {lists}", columns)

    def insert_vectors(self, vectors: Mapping[int, Vector], model: str) -> None:
        """Give them as an array: as parameters, 20,000 of them take ten times as long."""
        count = len(vectors)
        boxed = np.empty(count, dtype=object)
        boxed[:] = list(vectors.values())
        columns = {
            "cid": np.fromiter(vectors, dtype=np.int64, count=count),
            "embedding_model": np.full(count, model, dtype=object),
            "embedding_dim": np.full(count, len(boxed[0]), dtype=np.int32),
            "embedding": boxed,
            "checksum": np.array([crc32(row.tobytes()) for row in boxed], np.int64),
        }
        names = ", ".join(columns)

        def write(cursor: Any) -> None:
            cursor.register("clew_given", columns)
            try:
                cursor.execute(f"INSERT INTO vectors ({names}) SELECT {names} FROM clew_given")
            finally:
                cursor.unregister("clew_given")

        self._ask(write)

    def remove(self, table: str, columns: Sequence[str], keys: Sequence[Row]) -> None:
        if not keys:
            return
        lists = [list(column) for column in zip(*keys, strict=True)]
        if len(columns) == 1:
            query = f"DELETE FROM {table} WHERE {columns[0]} IN (SELECT unnest(?))"
        else:
            given = ", ".join(f'unnest(?) AS "{name}"' for name in columns)
            same = " AND ".join(f'{table}."{name}" = gone."{name}"' for name in columns)
            query = f"DELETE FROM {table} USING (SELECT {given}) AS gone WHERE {same}"
        self.execute(query, lists)

    def set_checksums(self, table: str, key: str, sums: Sequence[tuple[int, int]]) -> None:
        if sums:
            numbers, values = (list(column) for column in zip(*sums, strict=True))
            query = f"""UPDATE {table} SET checksum = given.checksum
                        FROM (SELECT unnest(?) AS number, unnest(?) AS checksum) AS given
                        WHERE {table}.{key} = given.number"""
            self.execute(query, [numbers, values])

    def names(self, rids: Sequence[int]) -> Mapping[int, str]:
        query, file = "SELECT rid, id FROM records", self._file
        version = file.version
        if not self.in_transaction and file.names[0] != version:  # else it may see another state
            most = f"{query} LIMIT {_KEPT + 1}"
            found = self._ask(lambda cursor: cursor.execute(most).fetchnumpy())
            every = dict(zip(found["rid"].tolist(), found["id"].tolist(), strict=True))
            file.names = version, every if len(every) <= _KEPT else None
        at, known = file.names
        if known is None or at != version or self.in_transaction:
            return dict(self.execute(f"{query} WHERE rid IN (SELECT unnest(?))", [list(rids)]))
        return {rid: known[rid] for rid in rids if rid in known}

    def lengths(self, count: int) -> list[int]:
        query = """SELECT "end" - "start" FROM (
                       SELECT *, row_number() OVER (ORDER BY cid) - 1 AS n,
                              COUNT(*) OVER () AS total FROM chunks)
                   WHERE n % greatest(1, total // ?) = 0 ORDER BY cid LIMIT ?"""
        return [row[0] for row in self.execute(query, (count, count))]

    def label_holders(
        self,
        kinds: Sequence[str],
        labels: Sequence[str],
        where: tuple[str, list[Any]] | None,
        allowed: Allowed | None,
        most: int,
    ) -> dict[int, set[str]]:
        """Ask in one statement for all labels, which reads all there are of these kinds."""
        condition, values = where or ("true", [])
        source = "labels AS l" if where is None else "labels AS l JOIN records AS r USING (rid)"
        below = " OR ".join(["starts_with(l.label, ? || '/')"] * len(labels)) or "false"
        query = f"""SELECT l.kind AS kind, l.label AS label, l.rid AS rid FROM {source}
                    WHERE l.kind IN (SELECT unnest(?)) AND {condition} AND (
                        l.label IN (SELECT unnest(?)) OR (l.kind = 'tag' AND ({below})))
                    ORDER BY l.rid DESC"""
        asked = [list(kinds), *values, list(labels), *labels]
        found = self._ask(lambda cursor: cursor.execute(query, asked).fetchnumpy())
        every = zip(*(found[name].tolist() for name in ("kind", "label", "rid")), strict=True)
        may = None if allowed is None else allowed.of_rids(found["rid"].astype(np.int64)).tolist()
        room: dict[tuple[str, str], int] = {}
        has: dict[int, set[str]] = {}
        others: list[tuple[str, int]] = []
        for i, (kind, label, rid) in enumerate(every):  # the newest first
            if may is not None and not may[i]:
                continue
            if room.setdefault((kind, label), most):
                room[kind, label] -= 1
                has.setdefault(rid, set()).add(label)
            else:
                others.append((label, rid))
        for label, rid in others:
            if rid in has:
                has[rid].add(label)
        return has


def _bound(query: str, values: Sequence[int]) -> str:
    """Add the least and the greatest of the numbers."""
    within = rf"\1 IN ({{}}) AND \1 BETWEEN {min(values)} AND {max(values)}"
    return re.sub(r"(\S+) IN \(\{\}\)", within, query)


@contextlib.contextmanager
def explained(path: Path) -> Iterator[None]:
    """DuckDB's words into ours, with what to do."""
    import duckdb

    try:
        yield
    except duckdb.InterruptException as error:
        raise KeyboardInterrupt from error
    except RuntimeError as error:
        if "interrupted" not in str(error).lower():
            raise
        raise KeyboardInterrupt from error  # DuckDB's words for Ctrl-C
    except duckdb.Error as error:
        text = str(error)
        if "surrogate" in text:
            raise UnicodeEncodeError("utf-8", "", 0, 0, "half a character") from error
        if "No space left" in text or "disk is full" in text.lower():
            advice = "the disk is full: free some space and run it again; nothing written is lost"
        elif isinstance(error, duckdb.SerializationException) or re.search(_DAMAGED, text):
            advice = _RESTORE
        elif isinstance(error, duckdb.TransactionException):
            advice = "this program has changed the same rows in another way: try again"
        elif isinstance(error, (duckdb.FatalException, duckdb.InternalException)):
            advice = "DuckDB has given up: close the store and open it again, see `clew doctor`"
        elif isinstance(error, duckdb.IOException):
            advice = "does the folder exist, may you write to it, and is the disk well?"
        elif isinstance(error, duckdb.OutOfMemoryException):
            advice = "there is not enough memory for it: give less at a time"
        else:
            raise
        raise StoreError(f"{path}: {text.splitlines()[0]}; {advice}") from error


_RESTORE = "the file is damaged: restore it from a backup (`clew doctor` examines all of it)"
_DAMAGED = "orrupt|checksum|while replaying WAL|does not match database file"
