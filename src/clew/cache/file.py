"""CacheFile: a connection to a SQLite file that may be lost.

Whatever happens to the file, nobody who uses it fails: one that is locked, read-only, full or not
there gives nothing and takes nothing, and `problem` says why; one that is damaged is made anew.
Nothing waits for the disk (synchronous is OFF), so a power cut may leave any page half written:
whoever keeps rows here tells by a digest whether they are whole.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from clew.storage.ownership import create_private, harden

T = TypeVar("T")

VERSION = 2
SCHEMA = """
CREATE TABLE answers (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    key TEXT NOT NULL UNIQUE,
    generation INTEGER NOT NULL,
    made REAL NOT NULL,
    used INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    digest BLOB NOT NULL,
    answer BLOB NOT NULL
);
CREATE INDEX answers_used ON answers (used, bytes);
CREATE TABLE counts (name TEXT PRIMARY KEY, count INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE sources (name TEXT PRIMARY KEY, ms REAL, problem TEXT, at REAL) WITHOUT ROWID
"""
APPLICATION_ID = 0x436C6563  # "Clec", in the file's header
WAIT = 0.5
"""Seconds a write waits for another process. Reading does not wait: doing the work is quicker."""
RETRY = 5.0
"""Seconds until a file that could not be opened or written is tried again."""
MEMORY_ONLY = "searches are cached in memory only"
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


class CacheFile:
    """One connection, to read or to write; without a path, none. It is opened when first needed and
    left alone for a while when it failed. Thread-safe."""

    def __init__(self, path: Path | None, *, writes: bool):
        self.path, self._writes = path, writes
        self.problem: str | None = None
        """Why it cannot be used at present."""
        self._lock = threading.RLock()
        self._db: sqlite3.Connection | None = None
        self._inode = 0
        self._rests_until = 0.0 if path else float("inf")

    @property
    def open(self) -> bool:
        """Whether it is of any use, now or later."""
        return self._rests_until < float("inf")

    def read(self, step: Callable[[sqlite3.Connection], T], nothing: T) -> T:
        """What `step` finds, or `nothing`. Where it fails, the file is damaged."""

        def read(db: sqlite3.Connection) -> T:
            return step(db) if _version(db) == VERSION else nothing  # whoever writes sees to it

        return self._run(read, nothing) if self.exists() else nothing

    def write(self, step: Callable[[sqlite3.Connection], None], *, at_once: bool = False) -> bool:
        """Do `step` in one transaction, whole or not at all; whether it was done. `at_once`: even
        if it has failed a moment ago."""

        def write(db: sqlite3.Connection) -> bool:
            with db:
                db.execute("BEGIN IMMEDIATE")
                if _version(db) != VERSION:
                    self._prepare(db)
                step(db)
            return True

        if at_once and self.open:
            self._rests_until = 0.0
        return self._run(write, False)

    def execute(self, statement: str) -> None:
        """Run a statement outside of any transaction, where the file is there."""
        self.read(lambda db: db.execute(statement).fetchall(), [])

    def exists(self) -> bool:
        try:
            return self.path is not None and bool(self.path.stat())
        except OSError:
            return False

    def close(self) -> None:
        with self._lock:
            self._rest(float("inf"))

    def _run(self, step: Callable[[sqlite3.Connection], T], nothing: T) -> T:
        with self._lock:
            if self.path is None or time.monotonic() < self._rests_until:
                return nothing
            try:
                found = step(self._connect(self.path))
                self.problem = None
                return found
            except sqlite3.Error as error:
                code = getattr(error, "sqlite_errorcode", 0) & 0xFF
                self.problem = f"{error}; {MEMORY_ONLY}"
                if code in _DAMAGED:
                    self._make_anew(self.path)
                elif code not in _BUSY:
                    self._rest(RETRY)
            except OSError as error:
                self.problem = f"{error.strerror}; {MEMORY_ONLY}"
                self._rest(RETRY)
            except (ValueError, TypeError, KeyError, AttributeError):  # a row of nonsense
                self._make_anew(self.path)
        return nothing

    def _connect(self, path: Path) -> sqlite3.Connection:
        """The connection, to the file that is there now: it may have been deleted or made anew."""
        if self._db is not None and (not self.exists() or self._inode != path.stat().st_ino):
            self._disconnect()
        if self._db is None:
            wait = WAIT if self._writes else 0.0
            if self._writes:
                create_private(path)
            self._db = sqlite3.connect(
                path, timeout=wait, isolation_level=None, check_same_thread=False
            )
            self._inode = path.stat().st_ino
            try:
                strange = harden(self._db)
            except sqlite3.Error:
                self._disconnect()
                raise
            if strange:
                raise ValueError("it has triggers, and may be meant to do harm")
            if self._writes:
                self._db.execute("PRAGMA secure_delete = ON")  # words of removed records, too
                self._db.execute("PRAGMA journal_mode = WAL")
                self._db.execute("PRAGMA journal_size_limit = 4000000")
            self._db.execute("PRAGMA synchronous = OFF")
        return self._db

    def _prepare(self, db: sqlite3.Connection) -> None:
        """Make empty tables, also in place of another version's: what these held is no loss."""
        names = db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        ours = db.execute("PRAGMA application_id").fetchone()[0] == APPLICATION_ID
        if names and not ours:
            raise FileExistsError(17, f"{self.path} is another program's database")
        for (name,) in names:
            if not name.startswith("sqlite_"):
                db.execute(f'DROP TABLE "{name}"')
        for statement in SCHEMA.split(";"):
            db.execute(statement)
        db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        db.execute(f"PRAGMA user_version = {VERSION}")

    def _make_anew(self, path: Path) -> None:
        """Delete the damaged file, unless somebody has put a new one there already."""
        self._disconnect()
        with contextlib.suppress(OSError):
            if self._inode == path.stat().st_ino:
                for ending in ("-wal", "-shm", ""):
                    path.with_name(path.name + ending).unlink(missing_ok=True)
                self.problem = None

    def _rest(self, seconds: float) -> None:
        self._disconnect()
        self._rests_until = time.monotonic() + seconds

    def _disconnect(self) -> None:
        if self._db is not None:
            with contextlib.suppress(sqlite3.Error):
                self._db.close()
            self._db = None


def _version(db: sqlite3.Connection) -> int:
    return int(db.execute("PRAGMA user_version").fetchone()[0])
