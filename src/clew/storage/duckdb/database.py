"""One opening of a DuckDB file: connections to read with, transactions to write in.

It has what the rest of the store knows of embedded/sqlite.py.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path

from clew.errors import StoreError
from clew.storage.duckdb.connection import Connection
from clew.storage.duckdb.file import opened, released
from clew.storage.sqlite import CLOSED

__all__ = ["Database"]

FORKED = (
    "this store was opened before the process was forked, which DuckDB's connections do not "
    "survive: open it again in the child, or start processes with 'spawn'"
)


class Database:
    """One opening of a file: as that of embedded/sqlite.py, with DuckDB behind it."""

    def __init__(self, path: Path, *, busy_seconds: float = 10.0):
        self.path = path
        self._process = os.getpid()
        self._closed = False
        self._spoilt: BaseException | None = None
        self._local = threading.local()
        self._file = opened(path.resolve(), busy_seconds=busy_seconds)
        self.read_only = self._file.read_only
        self.store_id = str(self._file.one("SELECT value FROM meta WHERE key = 'store'"))

    def check(self) -> None:
        """A StoreError unless it can be used, here and now."""
        if self._closed:
            raise StoreError(CLOSED)
        if self._process != os.getpid():
            raise StoreError(FORKED)

    @property
    def reader(self) -> Connection:
        """This thread's connection: each statement sees the newest committed state, and what this
        thread is writing."""
        self.check()
        if getattr(self._local, "writing", False):
            return self._file.writer
        db: Connection | None = getattr(self._local, "db", None)
        if db is None:
            db = self._local.db = self._file.connection()
        return db

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Connection]:
        """One write, whole or not at all. Durable when the block has ended. One within another is
        part of it, and if it fails the outer one fails too, whatever its caller makes of the
        error."""
        self.check()
        file = self._file
        with file.writing:
            self.check()
            writer = file.writer
            if file.owner is not None:
                with self._inner():
                    yield writer
                return
            if file.read_only:
                raise StoreError(f"{self.path} is on a read-only disk: copy it to write")
            writer.execute("BEGIN")
            file.owner, self._local.writing = self, True
            try:
                yield writer
                if self._spoilt is not None:
                    raise StoreError(
                        f"nothing was written: a part of it failed ({self._spoilt})"
                    ) from self._spoilt
                with file.turning:
                    writer.execute("COMMIT")
                    file.written()
            except BaseException:
                if writer.in_transaction:
                    with contextlib.suppress(Exception):
                        writer.execute("ROLLBACK")
                raise
            finally:
                file.owner, self._local.writing, self._spoilt = None, False, None

    @contextlib.contextmanager
    def _inner(self) -> Iterator[None]:
        if self._file.owner is not self:
            raise StoreError(f"{self.path}: this thread is writing to it through another opening")
        try:
            yield
        except BaseException as error:
            self._spoilt = self._spoilt or error
            raise

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[Connection]:
        """Several statements that see one state of the database, whoever writes meanwhile."""
        db = self.reader
        if db.in_transaction:
            yield db
            return
        db.execute("BEGIN")
        try:
            yield db
        finally:
            db.execute("COMMIT")

    def checkpoint(self) -> None:
        self.check()
        self._file.checkpoint()

    def vacuum(self) -> None:
        self.check()
        self._file.vacuum()

    short = "len(embedding) <> embedding_dim"
    """Of a vector that is not whole."""

    def verdict(self) -> str:
        """What is wrong with the file; nothing, most times. All of it is read, and DuckDB compares
        the checksum of each block."""
        tables = "SELECT table_name FROM duckdb_tables() WHERE NOT internal"
        try:
            for (name,) in self.reader.execute(tables).fetchall():
                self.reader.execute(f'SELECT COUNT(*), MAX(hash(t)) FROM "{name}" AS t')
        except StoreError as error:
            return str(error)
        return ""

    def close(self) -> None:
        if self._closed or self._process != os.getpid():
            return
        self._closed = True
        self._local = threading.local()
        released(self._file)
