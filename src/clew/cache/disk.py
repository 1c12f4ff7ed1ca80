"""A SQLite file that may be lost: whatever happens to it, nobody who uses it fails.

A file that is locked, read-only, full or not there gives nothing and takes nothing, and `problem`
says why. One that is damaged is made anew.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

__all__ = ["Disk"]

T = TypeVar("T")
Connection = sqlite3.Connection

APPLICATION_ID = 0x436C6563  # "Clec", in the file's header
WAIT = 0.5
"""Seconds a write waits for another process. Reading does not wait: doing the work is quicker."""
RETRY = 5.0
"""Seconds until a file that could not be opened or written is tried again."""
MEMORY_ONLY = "searches are cached in memory only"
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


class Disk:
    """One connection for reading, one for writing; without a path, none. Thread-safe.

    `schema` makes the tables, `version` is its number: another's tables are dropped.
    """

    def __init__(self, path: Path | None, *, schema: str, version: int):
        self.path = path
        self._schema, self._version = schema, version
        self._reader, self._writer = _Line(), _Line()

    @property
    def problem(self) -> str | None:
        """Why it cannot be written or read at present."""
        return self._writer.problem or self._reader.problem

    @property
    def there(self) -> bool:
        try:
            return self.path is not None and bool(self.path.stat())
        except OSError:
            return False

    def read(self, step: Callable[[Connection], T], nothing: T) -> T:
        """What `step` finds, or `nothing`. It fails on what is damaged, by whichever error."""
        with self._reader.lock:
            if self._reader.shut or not self.there:
                return nothing
            with self._noting(self._reader):
                db = self._opened(self._reader)
                if _version(db) != self._version:
                    return nothing  # whoever writes sees to it
                try:
                    found = step(db)
                except (ValueError, TypeError, KeyError, AttributeError):
                    self._make_anew(self._reader)  # a row of nonsense
                    return nothing
                self._reader.problem = None
                return found
        return nothing

    def write(self, step: Callable[[Connection], T], nothing: T) -> T:
        """Do `step` in one transaction, whole or not at all; `nothing` where that cannot be."""
        with self._writer.lock:
            if self._writer.shut or self.path is None:
                return nothing
            with self._noting(self._writer):
                with _transaction(self._opened(self._writer)) as db:
                    if _version(db) != self._version:
                        self._prepare(db)
                    done = step(db)
                self._writer.problem = None
                return done
        return nothing

    def retry(self) -> None:
        """Do not wait any longer after a failure: somebody asks for it."""
        with self._writer.lock:
            self._writer.retry()

    def shrink(self) -> None:
        """Give back what was deleted, as far as no other process is reading."""
        with self._writer.lock:
            if not self._writer.shut and self.there:
                with self._noting(self._writer):
                    self._opened(self._writer).execute("VACUUM")
        self.truncate()

    def truncate(self) -> None:
        """Leave nothing in the log, as far as no other process is reading it."""
        with self._writer.lock:
            if not self._writer.shut and self.there:
                with self._noting(self._writer):
                    db = self._opened(self._writer)
                    db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def close(self) -> None:
        for line in (self._reader, self._writer):
            with line.lock:
                line.rest(float("inf"))

    @contextlib.contextmanager
    def _noting(self, line: _Line) -> Iterator[None]:
        """What goes wrong becomes `problem`; damage makes the file anew."""
        try:
            yield
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF
            line.problem = f"{error}; {MEMORY_ONLY}"
            if code in _DAMAGED:
                self._make_anew(line)
            elif code not in _BUSY:
                line.rest(RETRY)
        except OSError as error:
            line.problem = f"{error.strerror}; {MEMORY_ONLY}"
            line.rest(RETRY)

    def _opened(self, line: _Line) -> Connection:
        """The connection, to the file that is there now: it may have been deleted or made anew."""
        assert self.path is not None
        now = time.monotonic()
        if line.db is not None and now - line.looked > 1.0:
            line.looked = now
            if not self.there or line.inode != self.path.stat().st_ino:
                line.close()
        if line.db is None:
            wait = WAIT if line is self._writer else 0.0
            line.db = sqlite3.connect(
                self.path, timeout=wait, isolation_level=None, check_same_thread=False
            )
            line.looked, line.inode = now, self.path.stat().st_ino
            if line is self._writer:
                line.db.execute("PRAGMA secure_delete = ON")  # words of removed records, too
                line.db.execute("PRAGMA journal_mode = WAL")
                line.db.execute("PRAGMA journal_size_limit = 4000000")
            line.db.execute("PRAGMA synchronous = OFF")
        return line.db

    def _make_anew(self, line: _Line) -> None:
        """Delete the damaged file, unless another process has put a new one there already."""
        assert self.path is not None
        for each in (self._reader, self._writer):
            if each.lock.acquire(blocking=False):  # else it is in use, and finds out by itself
                each.close()
                each.lock.release()
        with contextlib.suppress(OSError):
            if line.inode == self.path.stat().st_ino:
                for ending in ("-wal", "-shm", ""):
                    self.path.with_name(self.path.name + ending).unlink(missing_ok=True)
                line.problem = None

    def _prepare(self, db: Connection) -> None:
        """Empty tables, also in place of another version's: what they held can be made again."""
        names = db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        ours = db.execute("PRAGMA application_id").fetchone()[0] == APPLICATION_ID
        if names and not ours:
            raise FileExistsError(17, f"{self.path} is another program's database")
        for (name,) in names:
            if not name.startswith("sqlite_"):
                db.execute(f'DROP TABLE "{name}"')
        for statement in self._schema.split(";"):
            db.execute(statement)
        db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        db.execute(f"PRAGMA user_version = {self._version}")


class _Line:
    """A connection that is opened when first needed and left alone for a while when it failed."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.db: Connection | None = None
        self.problem: str | None = None
        self.inode = 0
        self.looked = 0.0
        self._until = 0.0

    @property
    def shut(self) -> bool:
        return time.monotonic() < self._until

    def rest(self, seconds: float) -> None:
        self.close()
        self._until = time.monotonic() + seconds

    def retry(self) -> None:
        """At once, unless it was closed for good."""
        if self._until < float("inf"):
            self._until = 0.0

    def close(self) -> None:
        if self.db is not None:
            with contextlib.suppress(sqlite3.Error):
                self.db.close()
            self.db = None


@contextlib.contextmanager
def _transaction(db: Connection) -> Iterator[Connection]:
    db.execute("BEGIN IMMEDIATE")
    try:
        yield db
        db.execute("COMMIT")
    except BaseException:
        with contextlib.suppress(sqlite3.Error):
            db.execute("ROLLBACK")
        raise


def _version(db: Connection) -> int:
    return int(db.execute("PRAGMA user_version").fetchone()[0])
