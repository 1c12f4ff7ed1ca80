"""The truth on one machine: one SQLite file in WAL mode, its schema and its connections."""

from __future__ import annotations

import contextlib
import gc
import os
import sqlite3
import threading
import time
import uuid
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from clew.errors import StoreError
from clew.filter import glob_pattern
from clew.storage import rows
from clew.text.passage import labels

__all__ = ["Connection", "Database", "explained", "plain"]

P = ParamSpec("P")
T = TypeVar("T")


def _script(db: sqlite3.Connection, script: str) -> None:
    """Run statements inside the transaction under way (`executescript` would end it)."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            db.execute(statement)
            statement = ""


def _first(db: sqlite3.Connection) -> None:
    _script(
        db,
        """
        CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;

        -- Narrow on purpose: filters read this table, so the text lives beside it.
        CREATE TABLE records (
            rid INTEGER PRIMARY KEY AUTOINCREMENT,
            id TEXT NOT NULL UNIQUE,
            collection TEXT NOT NULL,
            type TEXT NOT NULL,
            domain TEXT NOT NULL,
            title TEXT NOT NULL,
            path TEXT,
            importance REAL NOT NULL,
            created_at REAL NOT NULL,
            updated_at REAL NOT NULL,
            metadata TEXT NOT NULL
        );
        CREATE INDEX records_collection ON records (collection);
        CREATE INDEX records_type ON records (type);
        CREATE INDEX records_domain ON records (domain) WHERE domain <> '';
        CREATE INDEX records_path ON records (path) WHERE path IS NOT NULL;
        CREATE INDEX records_updated ON records (updated_at);
        CREATE TABLE texts (rid INTEGER PRIMARY KEY, content TEXT NOT NULL);

        CREATE TABLE chunks (
            cid INTEGER PRIMARY KEY AUTOINCREMENT,
            rid INTEGER NOT NULL,
            "start" INTEGER NOT NULL,
            "end" INTEGER NOT NULL,
            first_line INTEGER NOT NULL,
            last_line INTEGER NOT NULL,
            heading TEXT NOT NULL,
            digest BLOB NOT NULL
        );
        CREATE INDEX chunks_rid ON chunks (rid);
        CREATE INDEX chunks_digest ON chunks (digest);

        -- embedding: little-endian float32
        CREATE TABLE vectors (
            cid INTEGER PRIMARY KEY,
            embedding_model TEXT NOT NULL,
            embedding_dim INTEGER NOT NULL,
            embedding BLOB NOT NULL
        );
        CREATE INDEX vectors_model ON vectors (embedding_model);

        CREATE TABLE tags (tag TEXT NOT NULL, rid INTEGER NOT NULL, PRIMARY KEY (tag, rid))
            WITHOUT ROWID;
        CREATE INDEX tags_rid ON tags (rid);
        CREATE TABLE links (rid INTEGER NOT NULL, target TEXT NOT NULL, PRIMARY KEY (rid, target))
            WITHOUT ROWID;
        CREATE INDEX links_target ON links (target);
        -- One row per scalar of a record's metadata, so that filters on it have an index.
        CREATE TABLE attributes (
            key TEXT NOT NULL, value, rid INTEGER NOT NULL, PRIMARY KEY (key, value, rid)
        );
        CREATE INDEX attributes_rid ON attributes (rid);

        CREATE TABLE roots (collection TEXT PRIMARY KEY, folder TEXT NOT NULL) WITHOUT ROWID;
        CREATE TABLE files (
            collection TEXT NOT NULL, path TEXT NOT NULL,
            size INTEGER NOT NULL, mtime_ns INTEGER NOT NULL,
            digest TEXT NOT NULL, indexed_ns INTEGER NOT NULL,
            PRIMARY KEY (collection, path)
        ) WITHOUT ROWID;

        -- What derived indexes have to apply: see log.py.
        CREATE TABLE changes (
            seq INTEGER PRIMARY KEY AUTOINCREMENT,
            kind TEXT NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL,
            token INTEGER NOT NULL
        );
        """,
    )
    db.execute("INSERT INTO meta VALUES ('store', ?)", (uuid.uuid4().hex,))


def _labels(db: sqlite3.Connection) -> None:
    """What a path says of its record, so that file and folder names have an index."""
    _script(
        db,
        """
        CREATE TABLE labels (
            kind TEXT NOT NULL, label TEXT NOT NULL, rid INTEGER NOT NULL,
            PRIMARY KEY (kind, label, rid)
        ) WITHOUT ROWID;
        CREATE INDEX labels_rid ON labels (rid);
        """,
    )
    for rid, path in db.execute("SELECT rid, path FROM records WHERE path IS NOT NULL").fetchall():
        rows = [(kind, label, rid) for kind, label in labels(path)]
        db.executemany("INSERT OR IGNORE INTO labels VALUES (?, ?, ?)", rows)


def _lives(db: sqlite3.Connection) -> None:
    """Records that ended, and how each has fared. `lives` is no part of the change log: an access
    touches no index."""
    _script(
        db,
        """
        ALTER TABLE records ADD COLUMN ended_at REAL;
        CREATE INDEX records_created ON records (collection, created_at);
        CREATE INDEX records_ended ON records (ended_at) WHERE ended_at IS NOT NULL;
        CREATE TABLE lives (
            rid INTEGER PRIMARY KEY,
            accesses INTEGER NOT NULL DEFAULT 0,
            strength REAL NOT NULL DEFAULT 1,
            accessed_at REAL,
            useful INTEGER NOT NULL DEFAULT 0,
            useless INTEGER NOT NULL DEFAULT 0,
            reason TEXT NOT NULL DEFAULT '',
            successor TEXT
        );
        CREATE INDEX lives_successor ON lives (successor) WHERE successor IS NOT NULL;
        """,
    )


def _validity(db: sqlite3.Connection) -> None:
    """When what a record says is true, apart from when it was written. The indexes tell when that
    changes next among those in use."""
    _script(
        db,
        """
        ALTER TABLE records ADD COLUMN valid_from REAL;
        ALTER TABLE records ADD COLUMN valid_to REAL;
        CREATE INDEX records_valid_from ON records (valid_from)
            WHERE valid_from IS NOT NULL AND ended_at IS NULL;
        CREATE INDEX records_valid_to ON records (valid_to)
            WHERE valid_to IS NOT NULL AND ended_at IS NULL;
        """,
    )


APPLICATION_ID = 0x436C6577  # "Clew", in the file's header
MIGRATIONS = [_first, _labels, _lives, _validity]
"""Each takes a store from its number to the next; never change one that was released."""


COUNTED_FROM = 10_000
"""More records than this, and SQLite may count its tables. Of few it learns that walking through
them all is cheapest, and an open connection goes by that when they have become many."""

CLOSED = "this store is closed: open it again"
OTHERS = "{} is not a Clew store but another program's database: give another path"
FORKED = (
    "this store was opened before the process was forked, and SQLite's connections and a model's "
    "threads do not survive that: open it again in the child, or start processes with 'spawn'"
)


class Connection(sqlite3.Connection):
    """Can be referred to weakly: a thread's connection ends when neither it nor anybody needs it.

    Python crashes when one thread closes a connection that another is using, as a search left
    behind at its deadline may be.
    """

    def chunk_texts(self, chunks: Sequence[int]) -> Iterable[tuple[int, int, str, str]]:
        return rows.chunk_texts(self, chunks)

    def vector_rows(
        self, chunks: Sequence[int], *, model: str, dim: int
    ) -> list[tuple[int, int, bytes]]:
        return rows.vector_rows(self, chunks, model=model, dim=dim)

    def __del__(self) -> None:
        try:  # noqa: SIM105 - when Python ends, modules are gone before this is
            self.close()
        except Exception:  # one that could not be opened
            pass


class Database:
    """Connections to the store's file: one per thread for reading, one for writing."""

    def __init__(self, path: Path, *, busy_seconds: float = 10.0, synchronous: str = "NORMAL"):
        self.path = path
        self.read_only = False
        self._busy = busy_seconds
        self._synchronous = synchronous
        self._local = threading.local()
        self._open: weakref.WeakSet[Connection] = weakref.WeakSet()
        self._guard = threading.Lock()
        self._writing = threading.RLock()
        self._spoilt: BaseException | None = None
        self._closed = False
        self._process = os.getpid()
        with explained(path):
            self._look()
            self._writer = self._connect()
            self._migrate()
            self.store_id: str = self._writer.execute(
                "SELECT value FROM meta WHERE key = 'store'"
            ).fetchone()[0]

    def _look(self) -> None:
        """Another program's database is left as it is: to open it our way would make it a WAL one.
        So its header is read first: the application, and whether there is any table."""
        with contextlib.suppress(OSError), self.path.open("rb") as file:
            header = file.read(105)
            foreign = int.from_bytes(header[68:72]) != APPLICATION_ID
            if foreign and header.startswith(b"SQLite format 3") and any(header[103:105]):
                raise StoreError(OTHERS.format(self.path))

    def check(self) -> None:
        """A StoreError unless it can be used, here and now."""
        if self._closed:
            raise StoreError(CLOSED)
        if self._process != os.getpid():
            raise StoreError(FORKED)

    def _connect(self) -> Connection:
        target, uri = str(self.path), False
        if self.read_only or (self.path.exists() and not os.access(self.path.parent, os.W_OK)):
            # WAL wants to write beside the file even to read; a disk that refuses does not change
            # for us. What a log beside the file holds is read all the same.
            log = self.path.with_name(self.path.name + "-wal")
            how = "mode=ro" if log.exists() and log.stat().st_size else "immutable=1"
            target, uri = f"{self.path.absolute().as_uri()}?{how}", True
            self.read_only = True
        db = sqlite3.connect(
            target,
            uri=uri,
            timeout=self._busy,
            isolation_level=None,
            check_same_thread=False,
            factory=Connection,
        )
        with self._guard:
            self._open.add(db)
        if not self.read_only:
            db.execute("PRAGMA page_size = 8192")  # five 384-float rows a page, not two
            self._into_wal(db)
            db.execute(f"PRAGMA synchronous = {self._synchronous}")
        db.execute("PRAGMA cache_size = -32000")
        db.execute("PRAGMA mmap_size = 1073741824")
        db.create_function("clew_glob", 2, _glob, deterministic=True)
        return db

    def _into_wal(self, db: sqlite3.Connection) -> None:
        """SQLite answers "locked" at once, without its usual wait, while another process is making
        the same new file a WAL one: so the wait is here."""
        end = time.monotonic() + self._busy
        while True:
            try:
                db.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError as error:
                if "locked" not in str(error) or time.monotonic() > end:
                    raise
                time.sleep(0.01)

    def _migrate(self) -> None:
        have = self._writer.execute("PRAGMA user_version").fetchone()[0]
        foreign = self._writer.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID
        if foreign and self._writer.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()[0]:
            raise StoreError(OTHERS.format(self.path))
        if have > len(MIGRATIONS):
            raise StoreError(
                f"{self.path} was written by a newer Clew (format {have}, this one knows "
                f"{len(MIGRATIONS)}): upgrade with `pip install -U clew-search`"
            )
        if have == len(MIGRATIONS):
            return
        with self.transaction() as db:
            db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            have = db.execute("PRAGMA user_version").fetchone()[0]  # another process may be first
            for number, migrate in enumerate(MIGRATIONS[have:], start=have + 1):
                migrate(db)
                db.execute(f"PRAGMA user_version = {number}")

    @property
    def reader(self) -> Connection:
        """This thread's connection: each statement sees the newest committed state, and what this
        thread is writing."""
        self.check()
        if getattr(self._local, "writing", False):
            return self._writer
        db: Connection | None = getattr(self._local, "db", None)
        if db is None:
            with explained(self.path):
                db = self._local.db = self._connect()
        return db

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Connection]:
        """One write, whole or not at all. Durable when the block has ended. One within another is
        part of it, and if it fails the outer one fails too, whatever its caller makes of the error:
        half of it may be written (a savepoint for each would cost every write a third more)."""
        self.check()  # before a lock that a thread of the parent may have had when it was forked
        with self._writing, explained(self.path):
            self.check()
            if self._writer.in_transaction:
                try:
                    yield self._writer
                except BaseException as error:
                    self._spoilt = self._spoilt or error
                    raise
                return
            if self.read_only:
                raise StoreError(f"{self.path} is on a read-only disk: copy the folder to write")
            self._writer.execute("BEGIN IMMEDIATE")
            self._local.writing = True
            try:
                yield self._writer
                if self._spoilt is not None:
                    raise StoreError(
                        f"nothing was written: a part of it failed ({self._spoilt})"
                    ) from self._spoilt
                self._writer.execute("COMMIT")
            except BaseException:
                with contextlib.suppress(sqlite3.Error):
                    self._writer.execute("ROLLBACK")
                raise
            finally:
                self._local.writing, self._spoilt = False, None

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[Connection]:
        """Several statements that see one state of the database, whoever writes meanwhile."""
        db = self.reader
        if db.in_transaction:
            yield db
            return
        with explained(self.path):
            db.execute("BEGIN")
            try:
                yield db
            finally:
                db.execute("COMMIT")

    short = "length(embedding) <> 4 * embedding_dim"
    """Of a vector that is not whole."""

    def verdict(self) -> str:
        """What is wrong with the file; nothing, most times."""
        try:
            found = self.reader.execute("PRAGMA quick_check").fetchone()[0]
        except sqlite3.DatabaseError as error:
            return str(error)
        return "" if found == "ok" else str(found)

    def checkpoint(self) -> None:
        """Bring what is in the log into the file, as far as no reader is in the way: pages are read
        faster from there. And count tables that have become large."""
        with self._writing, explained(self.path):
            if not self._closed and not self.read_only:
                many = "SELECT 1 FROM records LIMIT 1 OFFSET ?"
                if self._writer.execute(many, (COUNTED_FROM,)).fetchone():
                    self._writer.execute("PRAGMA optimize")
                self._writer.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()

    def vacuum(self) -> None:
        """Rewrite the file without the space that deletions left, and empty the log beside it."""
        self.check()
        with self._writing, explained(self.path):
            self.check()
            if self.read_only:
                raise StoreError(f"{self.path} is on a read-only disk: copy the folder to write")
            self._writer.execute("VACUUM")
            busy = self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
            if busy:
                raise StoreError(
                    f"{self.path}: another process is reading, so what was deleted is still in the "
                    "log beside it: try again when it is done"
                )

    def close(self) -> None:
        if self._process != os.getpid():  # the parent's, and its own to close
            self._closed = True
            return
        with self._writing:
            self._closed = True
            mine = [self._writer, getattr(self._local, "db", None)]
            self._local = threading.local()  # let go of the other threads'
            with self._guard:
                for db in filter(None, mine):
                    with contextlib.suppress(sqlite3.Error):
                        db.close()
                    self._open.discard(db)
                others = len(self._open)
            if others:
                gc.collect()  # each refers to itself: this ends all but those in use


@contextlib.contextmanager
def explained(path: Path) -> Iterator[None]:
    """SQLite's words into ours, with what to do."""
    try:
        yield
    except sqlite3.Error as error:
        text = str(error)
        if "locked" in text or "busy" in text:
            advice = "another process is writing to it: wait for it to finish, then try again"
        elif "full" in text:
            advice = "the disk is full: free some space and run it again; nothing written is lost"
        elif "readonly" in text or "read-only" in text:
            advice = "the disk or file is read-only: copy the folder, or change its permissions"
        elif "not a database" in text or "malformed" in text:
            advice = "it is not a Clew store or is damaged: see `clew doctor`, restore a backup"
        elif "unable to open" in text:
            advice = "does the folder exist, and may you write to it?"
        elif "disk I/O" in text:
            advice = "the disk refused: is it full or failing?"
        else:
            raise
        raise StoreError(f"{path}: {text}; {advice}") from error


def plain(method: Callable[P, T]) -> Callable[P, T]:
    """For methods of an owner of a `_db`: SQLite's errors in our words."""

    @wraps(method)
    def explaining(*args: P.args, **options: P.kwargs) -> T:
        try:  # and no `with`: it would cost each of a search's dozen calls a microsecond or two
            return method(*args, **options)
        except sqlite3.Error:
            owner: Any = args[0]
            with explained(owner._db.path):
                raise

    return explaining


def _glob(pattern: str, path: str | None) -> bool:
    return path is not None and glob_pattern(pattern).fullmatch(path) is not None
