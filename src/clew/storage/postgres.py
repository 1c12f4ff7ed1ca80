"""Postgres: its dialect and schema. The connections are in postgres_server.py.

No statement counts on the state of a session, so that a pooler that hands out another connection
for every transaction (Supabase's, PgBouncer) does: tables are named with their schema, settings
are those of a transaction.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar
from zlib import crc32

import numpy as np
from psycopg import Connection
from psycopg.abc import Buffer
from psycopg.adapt import Dumper, Loader
from psycopg.pq import Format

from clew.errors import InputError
from clew.filter import FOLDERS, STAR, glob_pattern, split_glob
from clew.storage.arrays import ArrayTables, Rows
from clew.storage.postgres_words import index_words
from clew.storage.tables import COLUMNS, Row, spaced
from clew.types import Vector

if TYPE_CHECKING:
    from clew.storage.filters import Allowed
    from clew.storage.postgres_server import PostgresDatabase

T = TypeVar("T")

LONGEST_VECTOR = 16_000
"""Dimensions that pgvector keeps."""
_AT_ONCE = 50_000
"""Values of one statement."""
_COPIED_FROM = 60
"""Rows from which on they are copied: that takes one more turn to the server, and then less."""
_TABLES = (
    *("meta", "counters", "records", "chunks", "vectors", "labels", "attributes", "roots"),
    *("files", "lives", "changes", "words", "terms", "members", "texts", "tags", "links"),
)
_NAMED = re.compile(rf"\b(FROM|JOIN|INTO|UPDATE)\s+({'|'.join(_TABLES)})\b")
_LISTED = "ARRAY(SELECT value FROM (SELECT unnest(?) AS value) AS listed)"
"""Of a list in a filter: as itself, the planner sees what is in it and how much that leaves."""
_NOT_IN = re.compile(r"(\w+\.\w+) NOT IN \(SELECT (\w+) FROM (\w+) WHERE ([^()]*)\)")

# Text is compared by its bytes, as in SQLite and in Python. The views have the names that SQLite's
# tables have, and show whoever asks no more than the tables do. A vector and a passage's words stay
# in their row, uncompressed, as long as a page has room for them.
_FIRST = """
    CREATE TABLE meta (key TEXT COLLATE "C" PRIMARY KEY, value TEXT NOT NULL);
    CREATE TABLE counters (name TEXT PRIMARY KEY, last BIGINT NOT NULL);
    INSERT INTO counters VALUES ('rid', 0), ('cid', 0);

    CREATE TABLE records (
        rid BIGINT PRIMARY KEY,
        id TEXT COLLATE "C" NOT NULL UNIQUE,
        collection TEXT COLLATE "C" NOT NULL,
        type TEXT COLLATE "C" NOT NULL,
        domain TEXT COLLATE "C" NOT NULL,
        title TEXT COLLATE "C" NOT NULL,
        path TEXT COLLATE "C",
        importance DOUBLE PRECISION NOT NULL,
        created_at DOUBLE PRECISION NOT NULL,
        updated_at DOUBLE PRECISION NOT NULL,
        metadata TEXT NOT NULL,
        ended_at DOUBLE PRECISION,
        valid_from DOUBLE PRECISION,
        valid_to DOUBLE PRECISION,
        checksum BIGINT,
        tags TEXT[] NOT NULL,
        links TEXT[] NOT NULL,
        content TEXT COLLATE "C" NOT NULL
    );
    CREATE INDEX ON records (collection, created_at);
    CREATE INDEX ON records (type);
    CREATE INDEX ON records (domain) WHERE domain <> '';
    CREATE INDEX ON records (path) WHERE path IS NOT NULL;
    CREATE INDEX ON records (updated_at);
    CREATE INDEX ON records (valid_from) WHERE valid_from IS NOT NULL AND ended_at IS NULL;
    CREATE INDEX ON records (valid_to) WHERE valid_to IS NOT NULL AND ended_at IS NULL;

    CREATE TABLE chunks (
        cid BIGINT PRIMARY KEY,
        rid BIGINT NOT NULL,
        "start" BIGINT NOT NULL,
        "end" BIGINT NOT NULL,
        first_line BIGINT NOT NULL,
        last_line BIGINT NOT NULL,
        heading TEXT COLLATE "C" NOT NULL,
        digest BYTEA NOT NULL,
        checksum BIGINT
    );
    CREATE INDEX ON chunks (rid);
    CREATE INDEX ON chunks (digest);

    CREATE TABLE vectors (
        cid BIGINT PRIMARY KEY,
        embedding_model TEXT COLLATE "C" NOT NULL,
        embedding_dim INTEGER NOT NULL,
        embedding vector NOT NULL,
        checksum BIGINT
    ) WITH (toast_tuple_target = 8160);
    ALTER TABLE vectors ALTER COLUMN embedding SET STORAGE EXTERNAL;
    CREATE INDEX ON vectors (embedding_model, cid);

    CREATE TABLE labels (kind TEXT NOT NULL, label TEXT COLLATE "C" NOT NULL, rid BIGINT NOT NULL);
    CREATE INDEX ON labels (kind, label, rid);
    CREATE INDEX ON labels (rid);
    CREATE TABLE attributes (
        rid BIGINT NOT NULL, key TEXT COLLATE "C" NOT NULL, text TEXT COLLATE "C",
        number DOUBLE PRECISION, whole BIGINT
    );
    CREATE INDEX ON attributes (rid);
    CREATE INDEX ON attributes (key, number);
    CREATE INDEX ON attributes USING hash (text) WHERE text IS NOT NULL;

    CREATE TABLE roots (collection TEXT COLLATE "C" PRIMARY KEY, folder TEXT NOT NULL);
    CREATE TABLE files (
        collection TEXT COLLATE "C" NOT NULL, path TEXT COLLATE "C" NOT NULL,
        size BIGINT NOT NULL, mtime_ns BIGINT NOT NULL,
        digest TEXT NOT NULL, indexed_ns BIGINT NOT NULL,
        PRIMARY KEY (collection, path)
    );

    CREATE TABLE lives (
        rid BIGINT PRIMARY KEY,
        accesses BIGINT NOT NULL,
        strength DOUBLE PRECISION NOT NULL,
        accessed_at DOUBLE PRECISION,
        useful BIGINT NOT NULL,
        useless BIGINT NOT NULL,
        reason TEXT COLLATE "C" NOT NULL,
        successor TEXT COLLATE "C"
    );
    CREATE INDEX ON lives (successor) WHERE successor IS NOT NULL;

    CREATE TABLE changes (
        seq BIGINT PRIMARY KEY, kind TEXT NOT NULL, first BIGINT NOT NULL, last BIGINT NOT NULL,
        token BIGINT NOT NULL
    );

    -- Words, as the analyser gives them: see postgres_words.py.
    CREATE TABLE words (
        cid BIGINT PRIMARY KEY,
        rid BIGINT NOT NULL,
        body_tokens INTEGER NOT NULL,
        title_tokens INTEGER NOT NULL,
        body_length INTEGER NOT NULL,
        title_length INTEGER NOT NULL,
        body TSVECTOR NOT NULL,
        title TSVECTOR NOT NULL
    ) WITH (toast_tuple_target = 8160);
    ALTER TABLE words ALTER COLUMN body SET STORAGE EXTERNAL;
    CREATE INDEX ON words (rid);
    CREATE INDEX words_body ON words USING gin (body);
    -- How many passages have a word: the sum of what each write has changed; and which.
    CREATE TABLE terms (
        token TEXT COLLATE "C" NOT NULL,
        body BIGINT NOT NULL,
        title BIGINT NOT NULL,
        cids BIGINT[] NOT NULL,
        body_counts SMALLINT[] NOT NULL,
        title_counts SMALLINT[] NOT NULL,
        body_lengths SMALLINT[] NOT NULL,
        title_lengths SMALLINT[] NOT NULL
    );
    CREATE INDEX ON terms (token);

    CREATE VIEW texts WITH (security_invoker) AS SELECT rid, content FROM records;
    CREATE VIEW tags WITH (security_invoker) AS
        SELECT label AS tag, rid FROM labels WHERE kind = 'tag';
    CREATE VIEW links WITH (security_invoker) AS SELECT rid, unnest(links) AS target FROM records;

    -- Who does not own the tables sees the namespaces (collections) that `members` gives him, and
    -- of those only the one that the setting clew.namespace names, if it names any.
    CREATE TABLE members (role NAME NOT NULL, namespace TEXT COLLATE "C" NOT NULL);
    CREATE FUNCTION may_see(given TEXT) RETURNS BOOLEAN LANGUAGE sql STABLE AS $$
        SELECT coalesce(nullif(current_setting('clew.namespace', true), ''), given) = given
           AND EXISTS (SELECT 1 FROM {schema}.members WHERE role = current_user
                       AND namespace = given) $$;
"""
_POLICIES = {
    "records": "{schema}.may_see(collection)",
    "files": "{schema}.may_see(collection)",
    "roots": "{schema}.may_see(collection)",
    "vectors": "EXISTS (SELECT 1 FROM {schema}.chunks AS c WHERE c.cid = vectors.cid)",
    **dict.fromkeys(
        ("chunks", "labels", "attributes", "lives", "words"),
        "EXISTS (SELECT 1 FROM {schema}.records AS r WHERE r.rid = {table}.rid)",
    ),
    "members": "role = current_user",
    "meta": "key NOT LIKE 'note:%'",
    "changes": "true",
    "counters": "true",
    "terms": "false",
}
MIGRATIONS = [_FIRST]
"""Each takes a store from its number to the next; never change one that was released."""


def policies(schema: str) -> Iterator[str]:
    """Statements that have everybody but the owner see his own namespaces alone."""
    for table, condition in _POLICIES.items():
        yield f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY"
        using = condition.format(schema=schema, table=table)
        yield f"CREATE POLICY clew_members ON {table} FOR SELECT USING ({using})"


# ---------------------------------------------------------------------- values

_ESCAPE = "\ue000"
"""Postgres keeps no NUL: it is written as two of these, and this as itself and the next."""


def _encode(text: str) -> bytes:
    if "\0" in text or _ESCAPE in text:
        text = text.replace(_ESCAPE, "\ue000\ue001").replace("\0", "\ue000\ue000")
    return text.encode()


def decode(text: str) -> str:
    if _ESCAPE not in text:
        return text
    return re.sub("\ue000(.)", lambda found: "\0" if found[1] == _ESCAPE else _ESCAPE, text)


class NumberArray(list[int]):
    """A list that is one of whole numbers, also when it is empty."""


class _Blobs(list[bytes]):
    """Of bytes."""


class _TextDumper(Dumper):
    def dump(self, obj: str) -> bytes:
        return _encode(obj)


class _TextsDumper(Dumper):
    oid = 1009

    def dump(self, obj: Sequence[str | None]) -> bytes:
        return b"{" + b",".join(map(self._quote, obj)) + b"}"

    @staticmethod
    def _quote(text: str | None) -> bytes:
        if text is None:
            return b"NULL"
        return b'"' + _encode(text).replace(b"\\", b"\\\\").replace(b'"', b'\\"') + b'"'


class _NumbersDumper(Dumper):
    oid = 1016

    def dump(self, obj: Sequence[int]) -> bytes:
        return b"{" + ",".join(map(str, obj)).encode() + b"}"


class _BlobsDumper(Dumper):
    oid = 1001

    def dump(self, obj: Sequence[bytes]) -> bytes:
        return b"{" + b",".join(b'"\\\\x' + blob.hex().encode() + b'"' for blob in obj) + b"}"


class _TextLoader(Loader):
    def load(self, data: Buffer) -> str:
        return decode(str(data, "utf-8"))


class _BinaryTextLoader(_TextLoader):
    format = Format.BINARY


class _VectorLoader(Loader):
    format = Format.BINARY

    def load(self, data: Buffer) -> Vector:
        return np.frombuffer(data, ">f4", offset=4).astype("<f4")


def pack_vector(row: Vector) -> bytes:
    """As pgvector takes it in binary."""
    return struct.pack("!HH", len(row), 0) + row.astype(">f4").tobytes()


def adapt(connection: Connection[Any], vector_oid: int) -> None:
    """Have values come and go as the tables need them."""

    class VectorDumper(Dumper):
        oid, format = vector_oid, Format.BINARY

        def dump(self, obj: Vector) -> bytes:
            return pack_vector(obj)

    known = connection.adapters
    known.register_dumper(np.ndarray, VectorDumper)
    known.register_dumper(str, _TextDumper)
    known.register_dumper(list, _TextsDumper)
    known.register_dumper(NumberArray, _NumbersDumper)
    known.register_dumper(_Blobs, _BlobsDumper)
    known.register_loader("text", _TextLoader)
    known.register_loader("text", _BinaryTextLoader)
    known.register_loader(vector_oid, _VectorLoader)


def listed(values: Sequence[Any]) -> Any:
    """Values of one kind as one parameter."""
    kind = next((type(value) for value in values if value is not None), str if values else int)
    return (list if kind is str else _Blobs if kind is bytes else NumberArray)(values)


@lru_cache(maxsize=1000)
def translate(query: str, schema: str, extension: str) -> str:
    """With tables and pgvector's functions where they are, and parameters as psycopg has them."""
    query = _NOT_IN.sub(
        r"NOT EXISTS (SELECT 1 FROM \3 AS other WHERE \4 AND other.\2 = \1)", query
    )  # Postgres would look through a large list again for every row
    query = query.replace(_LISTED, "?")
    query = _NAMED.sub(rf"\1 {schema}.\2", query)
    query = query.replace("vector_dims(", f"{extension}.vector_dims(")
    return query.replace("%", "%%").replace("?", "%s")


# ---------------------------------------------------------------------- the dialect


class PostgresTables(ArrayTables):
    """Of one thread, or the one that writes. It borrows a connection for each statement, or for all
    of a transaction."""

    SHORT = "vector_dims(embedding) <> embedding_dim"
    # Each asked once, by itself: as joins, ten of them would take minutes to plan.
    IN, NOT_IN = "= ANY(ARRAY{})", "<> ALL(ARRAY{})"
    GLOB = "r.path ~ ?"

    def __init__(self, server: PostgresDatabase):
        self._server = server
        self.connection: Connection[Any] | None = None
        """While it is in a transaction."""
        self.number: int | None = None
        """Of the transaction that writes."""

    @property
    def in_transaction(self) -> bool:  # type: ignore[override]
        return self.connection is not None

    as_list = staticmethod(listed)

    @staticmethod
    def as_glob(pattern: str) -> str:
        """Postgres has no groups that stay where they are, and needs none: it never tries again."""
        if glob_pattern(pattern).pattern == re.escape(pattern):  # also one that makes no sense
            return f"^{re.escape(pattern)}$"
        said = {STAR: "[^/]*", FOLDERS: "(?:[^/]*/)*"}
        return f"^{''.join(said.get(part, part) for part in split_glob(pattern))}$"

    def execute(self, query: str, parameters: Sequence[Any] = (), /) -> Rows:
        if query in ("BEGIN", "BEGIN WRITING"):
            self._server.begin(self, writing=query != "BEGIN")
        elif query in ("COMMIT", "ROLLBACK"):
            self._server.end(self, query)
        else:
            said = self.translate(query)
            return Rows(self.ask(lambda connection: _run(connection, said, parameters)))
        return Rows()

    def translate(self, query: str) -> str:
        return translate(query, self._server.schema, self._server.extension)

    def ask(self, work: Callable[[Connection[Any]], T]) -> T:
        return self._server.ask(work, self.connection)

    def rank(self, query: str, parameters: Sequence[Any], **settings: Any) -> list[Row]:
        """A statement that ranks, under settings of its own, in one turn to the server. It is
        planned for these very values, and not compiled, which takes longer than to run it."""
        said = translate.__wrapped__(query, self._server.schema, self._server.extension)
        local = {"jit": "off", **settings}

        def ask(connection: Connection[Any]) -> list[Row]:
            with connection.pipeline():
                if self.connection is None:
                    connection.execute("BEGIN READ ONLY")
                for name, value in local.items():
                    connection.execute(f"SET LOCAL {name} = {value}")
                cursor = connection.execute(said, tuple(parameters), prepare=False)
                if self.connection is None:
                    connection.execute("COMMIT")
            return cursor.fetchall()

        return self.ask(ask)

    def among(
        self, query: str, values: Sequence[Any], *more: Any, near: bool = False
    ) -> Iterator[Row]:
        query = query.replace("IN ({})", "= ANY(?)")
        for i in range(0, len(values), _AT_ONCE):
            yield from self.execute(query, (listed(values[i : i + _AT_ONCE]), *more))

    def with_vectors(self, query: str, values: Sequence[Any], *more: Any) -> Iterator[Row]:
        if not values:
            return
        said = self.translate(query.replace("IN ({})", "= ANY(?)"))
        rows = self.ask(lambda c: _run(c, said, (listed(values), *more), binary=True))
        for *columns, known, vector in rows:
            if known is None or crc32(vector.tobytes()) == known:
                yield *columns, vector

    def insert(self, table: str, rows: Sequence[Row], *, replacing: int = 0) -> None:
        if not rows:
            return
        names = self.DETAILS.get(table) or COLUMNS.get(table) or _OWN[table]
        if replacing:
            newest = {row[:replacing]: row for row in rows}
            self.remove(table, names[:replacing], list(newest))
            rows = list(newest.values())
        quoted = ", ".join(f'"{name}"' for name in names)
        if len(rows) < _COPIED_FROM:
            one = f"({', '.join('?' * len(names))})"
            query = f"INSERT INTO {table} ({quoted}) VALUES {', '.join([one] * len(rows))}"
            self.execute(query, [value for row in rows for value in row])
        else:
            target = f"COPY {self._server.schema}.{table} ({quoted}) FROM STDIN"

            def copy(connection: Connection[Any]) -> None:
                with connection.cursor() as cursor, cursor.copy(target) as stream:
                    for row in rows:
                        stream.write_row(row)

            self.ask(copy)
        if table == "changes":
            index_words(self, rows)

    def insert_vectors(self, vectors: Mapping[int, Vector], model: str) -> None:
        """In Postgres's own form: as text, a number costs more than all the rest of its vector."""
        dim = len(next(iter(vectors.values())))
        if dim > LONGEST_VECTOR:
            raise InputError(
                f"Postgres keeps vectors of {LONGEST_VECTOR:,} dimensions, not {dim:,}"
            )
        name = _encode(model)
        head = struct.pack("!h", 5)
        middle = struct.pack("!i", len(name)) + name + struct.pack("!iii", 4, dim, 4 + 4 * dim)
        parts = [b"PGCOPY\n\xff\r\n\0" + bytes(8)]
        for cid, row in vectors.items():
            number = struct.pack("!iq", 8, cid)
            checksum = struct.pack("!iq", 8, crc32(row.tobytes()))
            parts += (head, number, middle, pack_vector(row), checksum)
        parts.append(struct.pack("!h", -1))
        target = f"""COPY {self._server.schema}.vectors
                     (cid, embedding_model, embedding_dim, embedding, checksum)
                     FROM STDIN (FORMAT BINARY)"""

        def copy(connection: Connection[Any]) -> None:
            with connection.cursor() as cursor, cursor.copy(target) as stream:
                stream.write(b"".join(parts))

        self.ask(copy)

    def remove(self, table: str, columns: Sequence[str], keys: Sequence[Row]) -> None:
        if not keys:
            return
        lists = [listed(column) for column in zip(*keys, strict=True)]
        if len(columns) == 1:
            query = f"DELETE FROM {table} WHERE {columns[0]} = ANY(?)"
        else:
            names, marks = ", ".join(columns), ", ".join("?" * len(columns))
            same = " AND ".join(f"{table}.{name} = gone.{name}" for name in columns)
            query = f"DELETE FROM {table} USING unnest({marks}) AS gone({names}) WHERE {same}"
        self.execute(query, lists)

    def set_checksums(self, table: str, key: str, sums: Sequence[tuple[int, int]]) -> None:
        if sums:
            query = f"""UPDATE {table} SET checksum = given.checksum
                        FROM unnest(?, ?) AS given(number, checksum)
                        WHERE {table}.{key} = given.number"""
            self.execute(query, [NumberArray(column) for column in zip(*sums, strict=True)])

    def names(self, rids: Sequence[int]) -> Mapping[int, str]:
        return dict(self.among("SELECT rid, id FROM records WHERE rid IN ({})", rids))

    def lengths(self, count: int) -> list[int]:
        low, high = self.execute("SELECT MIN(cid), MAX(cid) FROM chunks")[0]
        if low is None:
            return []
        query = """SELECT c.length FROM unnest(?) AS place, LATERAL (
                       SELECT "end" - "start" AS length FROM chunks WHERE cid >= place
                       ORDER BY cid LIMIT 1) AS c"""
        return [row[0] for row in self.execute(query, (NumberArray(spaced(low, high, count)),))]

    def label_holders(
        self,
        kinds: Sequence[str],
        labels: Sequence[str],
        where: tuple[str, list[Any]] | None,
        allowed: Allowed | None,
        most: int,
    ) -> dict[int, set[str]]:
        condition, values = where or ("true", [])
        below = " OR ".join(["l.label ^@ (? || '/')"] * len(labels)) or "false"
        asked = f"l.label = ANY(?) OR (l.kind = 'tag' AND ({below}))"
        mine = [list(labels), *labels]
        query = f"""SELECT rid, label FROM (
                        SELECT l.rid, l.label, row_number() OVER (
                            PARTITION BY l.kind, l.label ORDER BY l.rid DESC) AS number
                        FROM labels AS l JOIN records AS r USING (rid)
                        WHERE l.kind = ANY(?) AND ({asked}) AND {condition}) AS held
                    WHERE number <= {most}"""
        has: dict[int, set[str]] = {}
        for rid, label in self.execute(query, [list(kinds), *mine, *values]):
            has.setdefault(rid, set()).add(label)
        query = (
            f"SELECT rid, label FROM labels AS l WHERE rid = ANY(?) AND kind = ANY(?) AND ({asked})"
        )
        if has:
            for rid, label in self.execute(query, [NumberArray(has), list(kinds), *mine]):
                has[rid].add(label)
        return has


_OWN: Mapping[str, Sequence[str]] = {
    "words": (
        *("cid", "rid", "body_tokens", "title_tokens", "body_length", "title_length"),
        *("body", "title"),
    ),
    "terms": (
        *("token", "body", "title"),
        *("cids", "body_counts", "title_counts", "body_lengths", "title_lengths"),
    ),
}


def _run(
    connection: Connection[Any], query: str, parameters: Sequence[Any], *, binary: bool = False
) -> list[Row]:
    with connection.cursor(binary=binary) as cursor:
        cursor.execute(query, tuple(parameters))
        return cursor.fetchall() if cursor.description else []
