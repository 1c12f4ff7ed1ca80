"""The server behind a Postgres store: its connections, transactions, and what goes wrong with them.

Connections come from a pool and are given back after each statement or transaction. One that was
lost is replaced: what was only read is asked again, a write that had not begun begins again, and of
one whose COMMIT was not answered the server is asked what became of it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

import psycopg
from psycopg import Connection, sql
from psycopg_pool import ConnectionPool, PoolClosed, PoolTimeout

from clew.errors import ConfigError, InputError, StoreError
from clew.protocols import Progress
from clew.storage import StoreLocation
from clew.storage.postgres import MIGRATIONS, PostgresTables, adapt, policies
from clew.storage.tables import CLOSED, Database

T = TypeVar("T")

OLDEST_SERVER, OLDEST_VECTOR = 15, (0, 8)
"""Views that show no more than the asker may see, and scans of an index that go on until enough
rows pass a filter."""
SCHEMA, POOL = "clew", 8
_SHARED_PORT = 6543
"""Of Supabase's pooler, which gives every transaction another connection."""
_AGAIN = 0.05
"""Seconds until something is tried again."""

logging.getLogger("psycopg.pool").addHandler(logging.NullHandler())  # it is said to who waits


class ConnectionLostError(StoreError):
    """Nothing of what was being written is kept."""


class PostgresAddress(NamedTuple):
    """What a URL says, for libpq and for Clew."""

    conninfo: str
    schema: str
    pool: int
    prepare: bool

    @classmethod
    def of(cls, url: str) -> PostgresAddress:
        parts = urlsplit(url)
        given = dict(parse_qsl(parts.query, keep_blank_values=True))
        schema, pool, prepare = (given.pop(name, "") for name in ("schema", "pool", "prepare"))
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,62}", schema or SCHEMA):
            raise ConfigError(f"schema={schema!r:.80} is no name: letters, digits and _ will do")
        if pool and not (pool.isdigit() and int(pool)):
            raise ConfigError(f"pool={pool!r:.80}: expected a number of connections")
        if prepare not in ("", "on", "off"):
            raise ConfigError(f"prepare={prepare!r:.80}: on or off")
        given.setdefault("connect_timeout", "10")
        given.setdefault("application_name", "clew")
        with contextlib.suppress(ValueError):
            prepare = prepare or ("off" if parts.port == _SHARED_PORT else "on")
        query = urlencode(given, quote_via=quote)  # libpq takes a + for itself
        rest = f"{parts.scheme}://{parts.netloc}{parts.path}?{query}"
        return cls(rest, schema or SCHEMA, int(pool or POOL), prepare != "off")


class PostgresDatabase(Database):
    """One opening of a store on a server."""

    BEGIN, KIND = "BEGIN WRITING", "postgres"

    def __init__(
        self, place: StoreLocation, folder: Path, *, create: bool = True, busy_seconds: float = 10.0
    ):
        super().__init__(folder, place.name)
        self.address = PostgresAddress.of(place.server)
        self.schema = sql.Identifier(self.address.schema).as_string()
        self.extension, self._vector = "public", 0
        self._busy = busy_seconds
        digest = blake2b(self.address.schema.encode(), digest_size=7, person=b"clew").digest()
        self._lock = int.from_bytes(digest)
        self._writing = threading.RLock()
        self._writer = PostgresTables(self)
        with self.explained(), self._connected() as connection:
            self._check_server(connection, create)
            self._migrate(connection, create)
        threshold = 5 if self.address.prepare else None
        self._pool = ConnectionPool(
            self.address.conninfo,
            min_size=0,
            max_size=self.address.pool,
            num_workers=1,
            timeout=busy_seconds,
            kwargs={"autocommit": True, "prepare_threshold": threshold},
            configure=lambda connection: adapt(connection, self._vector),
            open=True,
            name=f"clew {self.address.schema}",
        )
        query = "SELECT value FROM meta WHERE key = 'store'"
        self.store_id = self._writer.execute(query)[0][0]

    @contextlib.contextmanager
    def _connected(self) -> Iterator[Connection[Any]]:
        with psycopg.connect(self.address.conninfo, autocommit=True) as connection:
            yield connection

    def _connect(self) -> PostgresTables:
        return PostgresTables(self)

    # ------------------------------------------------------------------ what is there

    def _check_server(self, connection: Connection[Any], create: bool) -> None:
        version = connection.info.server_version // 10_000
        if version < OLDEST_SERVER:
            raise StoreError(
                f"{self.name} is Postgres {version}: Clew needs {OLDEST_SERVER} or later; upgrade "
                "the server, or use another"
            )
        query = """SELECT extversion, nspname FROM pg_extension AS e
                   JOIN pg_namespace AS n ON n.oid = e.extnamespace WHERE extname = 'vector'"""
        found = connection.execute(query).fetchone()
        if found is None and create:
            with contextlib.suppress(psycopg.Error):
                connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
                found = connection.execute(query).fetchone()
        if found is None:
            raise StoreError(
                f"{self.name} has no pgvector: run `CREATE EXTENSION vector;` there, as somebody "
                "who may (where the server has none, install it first: github.com/pgvector)"
            )
        if tuple(map(int, re.findall(r"\d+", found[0])[:2])) < OLDEST_VECTOR:
            raise StoreError(
                f"{self.name} has pgvector {found[0]}, without scans that go on until a filter "
                "leaves enough: install 0.8 or later, then run `ALTER EXTENSION vector UPDATE;`"
            )
        self.extension = sql.Identifier(found[1]).as_string()
        oid = connection.execute("SELECT %s::regtype::oid", (f"{self.extension}.vector",))
        self._vector = oid.fetchone()[0]  # type: ignore[index]

    def _migrate(self, connection: Connection[Any], create: bool) -> None:
        have = self._format(connection)
        if have is None and not create:
            raise StoreError(
                f"there is no store in {self.name} (schema {self.address.schema}): check the URL, "
                "or index something"
            )
        if have == len(MIGRATIONS):
            query = f"SELECT has_table_privilege('{self.schema}.records', 'INSERT')"
            ((may,),) = connection.execute(query).fetchall()
            self.read_only = not may
            return
        with connection.transaction():
            connection.execute(f"SELECT pg_advisory_xact_lock({self._lock})")
            have = self._format(connection) or 0  # another process may be first
            if not have:
                connection.execute(f"CREATE SCHEMA IF NOT EXISTS {self.schema}")
            connection.execute(f"SET LOCAL search_path = {self.schema}, {self.extension}")
            for script in MIGRATIONS[have:]:
                connection.execute(script.replace("{schema}", self.schema))
            if not have:
                for statement in policies(self.schema):
                    connection.execute(statement)
                query = "INSERT INTO meta VALUES ('store', %s)"
                connection.execute(query, (uuid.uuid4().hex,))
            connection.execute("DELETE FROM meta WHERE key = 'format'")
            query = "INSERT INTO meta VALUES ('format', %s)"
            connection.execute(query, (str(len(MIGRATIONS)),))

    def _format(self, connection: Connection[Any]) -> int | None:
        """Of the store that is there; None: there is none."""
        query = "SELECT relname FROM pg_class WHERE relnamespace = to_regnamespace(%s)::oid"
        there = {row[0] for row in connection.execute(query, (self.schema,))}
        if not there:
            return None
        query = f"SELECT value FROM {self.schema}.meta WHERE key = 'format'"
        known = connection.execute(query).fetchone() if "meta" in there else None
        self.check_format(int(known[0]) if known else 0, len(MIGRATIONS), foreign=known is None)
        return int(known[0]) if known else None

    # ------------------------------------------------------------------ connections

    def ask(self, work: Callable[[Connection[Any]], T], held: Connection[Any] | None = None) -> T:
        """What a statement gives: in the transaction that holds a connection, or on any. There,
        one that finds its connection lost is asked again."""
        self.check()
        with self.explained():
            if held is not None:
                return work(held)
            end = time.monotonic() + self._busy
            while True:
                connection = self._borrow()
                try:
                    return work(connection)
                except (psycopg.OperationalError, psycopg.InterfaceError):
                    if not connection.closed or time.monotonic() > end:
                        raise
                finally:
                    self._pool.putconn(connection)
                time.sleep(_AGAIN)

    def _borrow(self) -> Connection[Any]:
        try:
            return self._pool.getconn()
        except PoolTimeout:
            figures = self._pool.get_stats()
            if figures.get("pool_size", 0) < self.address.pool:
                with self._connected():  # else it says why there is none
                    pass
            raise StoreError(
                f"{self.name}: all {self.address.pool} connections are in use, and none came free "
                f"in {self._busy:g} s: search with fewer threads, or add ?pool=N to the URL"
            ) from None
        except PoolClosed:
            raise StoreError(CLOSED) from None

    def begin(self, tables: PostgresTables, *, writing: bool) -> None:
        """A moment to read in, or a transaction to write in: who writes is alone with the numbers,
        among all processes."""
        said = "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY"
        if writing:
            said = f"""BEGIN; SET LOCAL lock_timeout = {int(self._busy * 1000)};
                       SELECT pg_advisory_xact_lock({self._lock}); SET LOCAL lock_timeout = 0;
                       SELECT pg_current_xact_id()::text"""

        def start(connection: Connection[Any]) -> Connection[Any]:
            with connection.cursor() as cursor:
                cursor.execute(said)
                while cursor.nextset():
                    pass
                tables.number = int(cursor.fetchone()[0]) if writing else None  # type: ignore[index]
            return connection

        with self.explained():
            end = time.monotonic() + self._busy
            while True:
                connection = self._borrow()
                try:
                    tables.connection = start(connection)
                    return
                except BaseException as error:
                    lost = connection.closed and isinstance(error, psycopg.OperationalError)
                    if not connection.closed:
                        with contextlib.suppress(psycopg.Error):
                            connection.execute("ROLLBACK")
                    self._pool.putconn(connection)
                    if not lost or time.monotonic() > end:
                        raise
                time.sleep(_AGAIN)

    def end(self, tables: PostgresTables, word: str) -> None:
        connection, number = tables.connection, tables.number
        tables.connection = tables.number = None
        if connection is None:
            return
        try:
            with self.explained():
                try:
                    said = connection.execute(word).statusmessage
                except (psycopg.OperationalError, psycopg.InterfaceError):
                    if number is None or word != "COMMIT":
                        return  # a moment that was read has nothing to keep
                    if not connection.closed or not self._is_committed(number):
                        raise
                else:
                    if number is not None and said != word:  # Postgres's answer, and no error
                        raise StoreError("nothing was written: a statement within it failed")
        finally:
            self._pool.putconn(connection)

    def _is_committed(self, number: int) -> bool:
        """What became of a transaction whose end was not heard of."""
        end = time.monotonic() + self._busy
        while time.monotonic() < end:
            with contextlib.suppress(psycopg.OperationalError), self._connected() as connection:
                query = "SELECT pg_xact_status(%s::text::xid8)"
                (status,) = connection.execute(query, (str(number),)).fetchone()  # type: ignore[misc]
                if status != "in progress":
                    return bool(status == "committed")
            time.sleep(_AGAIN)
        return False

    def run_alone(self, *statements: str) -> None:
        """What Postgres runs in no transaction."""
        for statement in statements:
            self.ask(lambda connection, said=statement: connection.execute(said))  # type: ignore[misc]

    # ------------------------------------------------------------------ upkeep

    def check_writable(self) -> None:
        if self.read_only:
            raise StoreError(f"{self.name}: this role may only read: write as the store's owner")

    def verdict(self) -> str:
        try:
            self.reader.execute("SELECT COUNT(*) FROM meta")
        except StoreError as error:
            self.check()
            return str(error)
        return ""

    def checkpoint(self) -> None:
        for table in ("records", "chunks", "vectors", "labels", "attributes", "words", "terms"):
            self.run_alone(f"ANALYZE {self.schema}.{table}")

    def vacuum(self) -> None:
        self.check()
        self.check_writable()
        query = (
            "SELECT relname FROM pg_class WHERE relnamespace = ?::regnamespace AND relkind = 'r'"
        )
        names = [row[0] for row in self.reader.execute(query, (self.schema,))]
        self.run_alone(*(f"VACUUM (FULL, ANALYZE) {self.schema}.{name}" for name in sorted(names)))

    def copy_to(self, file: Path, progress: Progress) -> None:
        raise StoreError(f"{self.name} is no file: see `clew migrate`")

    def replace_with(self, file: Path) -> None:
        raise StoreError(f"{self.name} is no file: see `clew migrate`")

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._process == os.getpid():
            self._pool.close()

    # ------------------------------------------------------------------ errors

    @contextlib.contextmanager
    def explained(self) -> Iterator[None]:
        """Postgres's words into ours, with what to do."""
        try:
            yield
        except psycopg.errors.NumericValueOutOfRange as error:
            raise OverflowError(_first_line(error)) from error
        except psycopg.errors.ProgramLimitExceeded as error:
            raise InputError(
                f"Postgres keeps no id, path or tag of more than 2,600 bytes ({_first_line(error)})"
            ) from error
        except psycopg.Error as error:
            text = _first_line(error)
            state = error.sqlstate or ""
            advice = next(
                (said for sign, said in _ADVICE if re.search(sign, f"{state} {text}")), ""
            )
            if not advice and isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError)):
                raise ConnectionLostError(f"{self.name}: {text}; {_LOST}") from error
            raise StoreError(f"{self.name}: {text}; {advice or 'see `clew doctor`'}") from error

    def again(self, write: Callable[[], T]) -> T:
        """A write that is done once more where the connection was lost under it; not one that is
        part of another, of which more is lost."""
        try:
            return write()
        except ConnectionLostError:
            if self._local.__dict__.get("writing"):
                raise
            return write()


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or ["no answer"])[0]


_LOST = (
    "the connection was lost, and of what was being written nothing is kept: try again, it "
    "connects by itself"
)
_ADVICE = (
    (
        "^28|password authentication|no password supplied|role .* does not exist",
        "check user and password: put it into ~/.pgpass or PGPASSWORD, or into the URL",
    ),
    ("^3D000|database .* does not exist", "make it first: CREATE DATABASE, or check the URL"),
    ("^55P03", "another process is writing to it: wait for it to finish, then try again"),
    ("^53100|No space left", "the server's disk is full: free some space; nothing written is lost"),
    ("^53300|too many", "the server gives no more connections: close some, or lower ?pool=N"),
    ("^42501", "this role may not do that: ask the owner of the store for it"),
    ("^42P01|^42703|^3F000", "it is not a Clew store or is damaged: restore a backup"),
    ("^25006", "this server is a copy that takes no writes: name the one it is a copy of"),
    ("^40", "others have changed the same rows: try again"),
    (
        "refused|could not translate|timeout expired|No such file|is the server running",
        "is the server running, and is this its address?",
    ),
)
