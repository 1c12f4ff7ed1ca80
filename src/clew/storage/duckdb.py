"""DuckDB: its dialect and schema.

A statement costs DuckDB a third of a millisecond before it reads a row: so there are few large ones
where SQLite has many small ones, and answers of one row (where the log ends, whether a domain is
used) are kept until the next write. Only this process can write, and it knows when it did.
"""

from __future__ import annotations

import contextlib
import math
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from clew.errors import StoreError
from clew.storage import log
from clew.storage.batch import labels_of, scalars, storable, tags_of
from clew.storage.tables import COLUMNS, OPERATORS, RECORD, Row, Tables
from clew.text.passage import lineage
from clew.types import Record, Vector

if TYPE_CHECKING:
    from clew.storage.duckdb_file import DuckFile
    from clew.storage.filters import Allowed

_INDEXED = 50
"""DuckDB looks so many values up in an index; for more it reads the whole column."""
_WORTH = 20
"""Look-ups of so many each take as long as to read all of a column of long texts."""
_KEPT = 300_000
"""Ids, or labels, that are kept in memory: some fifty megabytes."""
_PATCH_AT_MOST = 20_000
"""More changed records than this: what is kept is read anew."""
_WHOLE = -(2**63), 2**63 - 1

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
MIGRATIONS = [_FIRST, _VALIDITY]
"""Each takes a store from its number to the next; never change one that was released."""


class Rows(list[Row]):
    """What a statement gave, all of it."""

    def fetchall(self) -> Sequence[Row]:
        return self

    def fetchone(self) -> Row | None:
        return self[0] if self else None


class DuckTables(Tables):
    """Of one thread, or the one that writes. Its cursor is a new one when the file was replaced."""

    LIST = "(SELECT unnest(?) AS value)"
    JOIN = "JOIN"
    CONTENT, TEXTS, TAGS, LINKS = "r.content", "", "r.tags", "r.links"
    WHOLE = "trunc({})"
    BY_MODEL = ""
    SHORT = "len(embedding) <> embedding_dim"
    DETAILS: Mapping[str, Sequence[str]] = {  # type: ignore[misc]
        "records": ("rid", *RECORD, "tags", "links", "content"),
        "labels": ("kind", "label", "rid"),
        "attributes": ("rid", "key", "text", "number", "whole"),
    }

    def __init__(self, file: DuckFile):
        self._file = file
        self._cursor: Any = None
        self._epoch = -1
        self.in_transaction = False
        self._version = 0
        """Of the file, when this transaction began."""

    @staticmethod
    def as_list(values: Sequence[Any]) -> list[Any]:
        return list(values)

    @staticmethod
    def as_names(value: list[str]) -> tuple[str, ...]:
        return tuple(value)

    @staticmethod
    def compare(operator: str, bound: Any) -> tuple[str, list[Any]]:
        """Like with like: text with text, and numbers exactly, whole ones (of 64 bits) apart from
        the others since neither kind can hold all of the other."""
        sign = OPERATORS[operator]
        if isinstance(bound, str):
            return f"text {sign} ?", [bound]
        bound = storable(bound)
        low, high = math.floor(bound), math.ceil(bound)
        if operator == "eq":
            fits = low == high and _WHOLE[0] <= low <= _WHOLE[1]
            whole: tuple[str, list[Any]] = ("whole = ?", [low]) if fits else ("false", [])
            exact = float(bound) == bound
            number: tuple[str, list[Any]] = (
                ("number = ?", [float(bound)]) if exact else ("false", [])
            )
        else:
            whole = _clip(sign, low if sign in (">", "<=") else high)
            number = f"number {_round(sign, bound)} ?", [float(bound)]
        sql = f"CASE WHEN whole IS NULL THEN {number[0]} ELSE {whole[0]} END"
        return sql, [*number[1], *whole[1]]

    @staticmethod
    def detail_rows(rid: int, columns: Row, record: Record) -> Iterator[tuple[str, Row]]:
        tags = tags_of(record)
        links = list(dict.fromkeys(record.links))
        yield "records", (rid, *columns, tags, links, record.content)
        for kind, label in (*(("tag", tag) for tag in tags), *labels_of(record)):
            yield "labels", (kind, label, rid)
        for key, value in dict.fromkeys(scalars(record.metadata)):
            if value is None or isinstance(value, str):
                yield "attributes", (rid, key, value, None, None)
            else:
                whole = value if isinstance(value, int) else None
                yield "attributes", (rid, key, None, float(value), whole)

    @property
    def private(self) -> bool:
        """Whether it may see what nobody else does."""
        return self.in_transaction and self is self._file.writer

    def execute(self, query: str, parameters: Sequence[Any] = (), /) -> Rows:
        if query in ("BEGIN", "COMMIT", "ROLLBACK"):
            self._turn(query)
            return Rows()
        file, within = self._file, self.in_transaction
        key = None
        if query.startswith("SELECT") and not self.private:
            key = _key(query, parameters)
            known = file.answers.get(key)
            if known is not None and (not within or known[0] == self._version):
                file.check()
                return known[1]
        version = self._version if within else file.version
        found = Rows(self._ask(lambda cursor: cursor.execute(query, parameters).fetchall()))
        if key is not None and len(found) <= 1:
            file.keep(key, found, version)
        return found

    def _ask(self, work: Callable[[Any], Any]) -> Any:
        if self.in_transaction:
            with explained(self._file.path):
                return work(self._live())
        with self._file.gate.inside(), explained(self._file.path):
            return work(self._live())

    def _turn(self, word: str) -> None:
        file = self._file
        if word == "BEGIN":
            file.gate.enter()
            try:
                with file.turning, explained(file.path):  # so that it is known what this one sees
                    self._live().execute(word)
                    self._version = file.version
            except BaseException:
                file.gate.leave()
                raise
            self.in_transaction = True
            return
        try:
            with file.turning, explained(file.path):
                self._live().execute(word)
                if word == "COMMIT" and self is file.writer:
                    file.note_write()
        except BaseException:
            with contextlib.suppress(Exception):  # a failed commit may leave it open
                self._live().execute("ROLLBACK")
            raise
        finally:
            self.in_transaction = False
            file.gate.leave()

    def drop(self) -> None:
        """Let go of the cursor; with the gate closed."""
        if self._cursor is not None:
            self._cursor.close()
            self._cursor = None
        self._epoch = -1

    def _live(self) -> Any:
        if self._epoch != self._file.epoch:
            self._cursor = self._file.cursor()
            self._epoch = self._file.epoch
        return self._cursor

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
        *columns, vectors = found.values()
        rows = (np.asarray(vector, dtype="<f4") for vector in vectors)
        yield from zip(*(column.tolist() for column in columns), rows, strict=True)

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
        """As an array: given as parameters, 20,000 of them take ten times as long."""
        count = len(vectors)
        boxed = np.empty(count, dtype=object)
        boxed[:] = list(vectors.values())
        columns = {
            "cid": np.fromiter(vectors, dtype=np.int64, count=count),
            "embedding_model": np.full(count, model, dtype=object),
            "embedding_dim": np.full(count, len(boxed[0]), dtype=np.int32),
            "embedding": boxed,
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

    def last_numbers(self) -> tuple[int, int]:
        last: dict[str, int] = dict(self.execute("SELECT name, last FROM counters").fetchall())
        return last["rid"], last["cid"]

    def note_numbers(self, rid: int, cid: int) -> None:
        for name, last in (("rid", rid), ("cid", cid)):
            self.execute("UPDATE counters SET last = ? WHERE name = ?", (last, name))

    def names(self, rids: Sequence[int]) -> Mapping[int, str]:
        known = self._file.names.get(self)
        if known is not None:
            return {rid: known[rid] for rid in rids if rid in known}
        query = "SELECT rid, id FROM records WHERE rid IN (SELECT unnest(?))"
        return dict(self.execute(query, [list(rids)]).fetchall())

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
        """In one statement for all labels that any record has."""
        known = self._file.vocabulary.get(self)
        pairs = [(kind, label) for kind in kinds for label in labels]
        if known is not None:
            pairs = [pair for pair in pairs if pair in known]
        if not pairs:
            return {}
        condition, values = where or ("true", [])
        source = "labels AS l" if where is None else "labels AS l JOIN records AS r USING (rid)"
        below = "l.kind = 'tag' AND starts_with(l.label, ? || '/')"
        holds = " OR ".join([f"(l.kind = ? AND (l.label = ? OR {below}))"] * len(pairs))
        query = f"""SELECT l.kind AS kind, l.label AS label, l.rid AS rid FROM {source}
                    WHERE ({holds}) AND {condition} ORDER BY l.rid DESC"""
        asked = [part for kind, label in pairs for part in (kind, label, label)]
        found = self._ask(lambda cursor: cursor.execute(query, [*asked, *values]).fetchnumpy())
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
    """With the least and the greatest of the numbers as well."""
    within = rf"\1 IN ({{}}) AND \1 BETWEEN {min(values)} AND {max(values)}"
    return re.sub(r"(\S+) IN \(\{\}\)", within, query)


def _clip(sign: str, edge: int) -> tuple[str, list[Any]]:
    """`whole sign edge`, for an edge that may be beyond what 64 bits hold."""
    if _WHOLE[0] <= edge <= _WHOLE[1]:
        return f"whole {sign} ?", [edge]
    return ("true" if ("<" in sign) == (edge > 0) else "false"), []


def _round(sign: str, bound: float) -> str:
    """The sign that compares with `float(bound)` as the given one does with the bound itself, which
    a float may not hold: then no number is equal to it, and one side takes the rounded one in."""
    nearest = float(bound)
    if nearest == bound:
        return sign
    return sign[0] if (nearest > bound) == (sign[0] == "<") else f"{sign[0]}="


def _key(query: str, parameters: Sequence[Any]) -> tuple[Any, ...] | None:
    key = (query, *parameters)
    try:
        hash(key)
    except TypeError:  # lists of names
        return None
    return key


class Followed:
    """Something that every search asks for, read once and kept in memory along the change log."""

    def __init__(self, read: Callable[[DuckTables, list[int] | None], dict[Any, Any] | None]):
        """`read` gives it for these records, or for all; None: that is too much."""
        self._read = read
        self._place = log.NOWHERE
        self._kept: dict[Any, Any] | None = None
        self._lock = threading.Lock()

    def get(self, db: DuckTables) -> dict[Any, Any] | None:
        """None: the tables have to be asked."""
        if db.private or log.head(db)[0] < self._place[0]:  # which sees another state
            return None
        with self._lock:  # held while asking: what is read now is of this place or a later one
            head = log.head(db)
            if head != self._place:
                changes = None if self._kept is None else log.since(db, self._place)
                if changes is None or changes.size("record") > _PATCH_AT_MOST:
                    self._kept = self._read(db, None)
                elif self._kept is not None and (touched := changes.numbers("record")):
                    for rid in touched:
                        self._kept.pop(rid, None)
                    self._kept.update(self._read(db, touched) or {})
                self._place = head
            return self._kept


def read_names(db: DuckTables, rids: list[int] | None) -> dict[Any, Any] | None:
    """Record → id. One look-up of a hundred takes DuckDB longer than the rest of a leg."""
    query = "SELECT rid, id FROM records"
    if rids is not None:
        return dict(db.among(query + " WHERE rid IN ({})", rids))
    count = db.execute("SELECT COUNT(*) FROM records").fetchone()
    return None if count is None or count[0] > _KEPT else dict(db.execute(query))


def read_labels(db: DuckTables, rids: list[int] | None) -> dict[Any, Any] | None:
    """Which (kind, label) any record has, or had: it is not worth a statement to ask for another.
    A tag is there also by one that lies below it."""
    query = "SELECT DISTINCT kind, label FROM labels"
    if rids is None:
        count = db.execute("SELECT COUNT(*) FROM labels").fetchone()
        if count is None or count[0] > 10 * _KEPT:
            return None
        found: Iterator[Row] = iter(db.execute(query))
    else:
        found = db.among(query + " WHERE rid IN ({})", rids)
    return {(kind, name): True for kind, label in found for name in lineage(label)}


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
