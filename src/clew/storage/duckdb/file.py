"""One DuckDB file: opened once in a process, shared by all who open it there.

DuckDB lets one process at a time write to a file. Within it any number of threads read, each with a
cursor of its own, while one writes: writers wait for each other, so that none meets a conflict.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import threading
import time
import uuid
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clew.errors import ConfigError, StoreError
from clew.filter import glob_pattern
from clew.storage.duckdb.connection import Connection, Gate, Rows, explained
from clew.storage.duckdb.kept import Names, Vocabulary
from clew.storage.duckdb.schema import MIGRATIONS
from clew.storage.duckdb.wal import lost_commits
from clew.storage.sqlite import CLOSED

if TYPE_CHECKING:
    from clew.storage.duckdb.database import Database

__all__ = ["File", "opened", "released"]

MAGIC = slice(8, 12)
ANSWERS = 1_000
"""Kept at a time."""
AGAIN = 0.05
"""Seconds until a file that another process has is tried again."""
SETTINGS: dict[str, str | bool | int | float | list[str]] = {
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "immediate_transaction_mode": True,
}
"""Nothing is ever fetched from anywhere, and a transaction sees the state in which it began."""


class File:
    """The database itself, in this process."""

    def __init__(self, path: Path, *, read_only: bool):
        self.path, self.read_only = path, read_only
        self.users = 0
        self.closed = False
        self.gate = Gate()
        self.writing = threading.RLock()
        self.owner: Database | None = None
        """Whose transaction is under way."""
        self.version = 0
        """Grows with every write."""
        self.epoch = 0
        """Grows when the file is replaced: cursors of an earlier one are of no use."""
        self.turning = threading.Lock()
        """Held while a transaction begins, and from a commit until the version has grown."""
        self.answers: dict[tuple[Any, ...] | None, tuple[int, Rows]] = {}
        self._keeping = threading.Lock()
        self._connections: weakref.WeakSet[Connection] = weakref.WeakSet()
        self._main = self._connect()
        self.names, self.vocabulary = Names(), Vocabulary()
        self.writer = self.connection()

    def _connect(self) -> Any:
        import duckdb

        main = duckdb.connect(str(self.path), read_only=self.read_only, config=SETTINGS)
        main.create_function("clew_glob", _glob, ["VARCHAR", "VARCHAR"], "BOOLEAN")
        return main

    def connection(self) -> Connection:
        made = Connection(self)
        with self._keeping:
            self._connections.add(made)
        return made

    def cursor(self) -> Any:
        return self._connected().cursor()

    def _connected(self) -> Any:
        self.check()
        if self._main is None:  # replaced, but not opened again
            raise StoreError(CLOSED)
        return self._main

    def check(self) -> None:
        """What was answered before may be told while the file is being replaced."""
        if self.closed:
            raise StoreError(CLOSED)

    def keep(self, key: tuple[Any, ...], found: Rows, version: int) -> None:
        """An answer, unless something was written since it was asked for."""
        with self._keeping:
            if len(self.answers) >= ANSWERS:
                self.answers.clear()
            if version == self.version:
                self.answers[key] = version, found

    def written(self) -> None:
        with self._keeping:
            self.version += 1
            self.answers.clear()

    def migrate(self) -> None:
        tables = "SELECT COUNT(*) FROM duckdb_tables() WHERE NOT internal"
        known = "SELECT COUNT(*) FROM duckdb_tables() WHERE table_name = 'changes'"
        have = 0
        if self.one(tables):
            if not self.one(known):
                raise StoreError(
                    f"{self.path} is not a Clew store but another program's database: give "
                    "another path"
                )
            have = int(self.one("SELECT value FROM meta WHERE key = 'format'") or 0)
        if have > len(MIGRATIONS):
            raise StoreError(
                f"{self.path} was written by a newer Clew (format {have}, this one knows "
                f"{len(MIGRATIONS)}): upgrade with `pip install -U clew-search`"
            )
        if have == len(MIGRATIONS) or self.read_only:
            return
        self.writer.execute("BEGIN")
        try:
            for migrate in MIGRATIONS[have:]:
                migrate(self.writer)
            number = str(len(MIGRATIONS))
            self.writer.execute("INSERT OR REPLACE INTO meta VALUES ('format', ?)", (number,))
            self.writer.execute("COMMIT")
        except BaseException:
            with contextlib.suppress(StoreError):
                self.writer.execute("ROLLBACK")
            raise
        self.written()

    def one(self, query: str) -> Any:
        row = self.writer.execute(query).fetchone()
        return None if row is None else row[0]

    def checkpoint(self) -> None:
        """Bring the log into the file. DuckDB does so by itself from some megabytes on."""
        with self.writing:
            if not self.closed and not self.read_only and self.owner is None:
                self.writer.execute("CHECKPOINT")

    def vacuum(self) -> None:
        """Write the file anew without what was deleted: DuckDB only reuses its place, and until
        then it can be read there."""
        with self.writing:
            if self.owner is not None:
                raise StoreError(f"{self.path}: a block of writes is under way: end it first")
            with self.gate.alone():
                self._write_anew()

    def _write_anew(self) -> None:
        self._connected()
        if self.read_only:
            raise StoreError(f"{self.path} is on a read-only disk: copy it to write")
        fresh = self.path.with_name(f"{self.path.name}.new")
        _remove(fresh)
        try:
            with explained(self.path):
                self._main.execute("CHECKPOINT")
                self._copy_to(fresh)
            self._disconnect()
            fresh.replace(self.path)
            _remove(self.path, log_only=True)
        except OSError as error:
            raise StoreError(f"{self.path} could not be written anew: {error}") from error
        finally:
            _remove(fresh)
            if self._main is None:
                with explained(self.path):  # another process may have been quicker
                    self._main = self._connect()
        self.written()

    def _copy_to(self, fresh: Path) -> None:
        alias = f"clew_{uuid.uuid4().hex}"
        mine = self._main.execute("SELECT current_database()").fetchone()[0].replace('"', '""')
        place = str(fresh).replace("'", "''")
        self._main.execute(f"ATTACH '{place}' AS {alias}")
        try:
            self._main.execute(f'COPY FROM DATABASE "{mine}" TO {alias}')
        finally:
            self._main.execute(f"DETACH {alias}")

    def _disconnect(self) -> None:
        for connection in list(self._connections):
            connection.drop()
        self.epoch += 1
        main, self._main = self._main, None
        with explained(self.path):  # it writes what is in the log
            main.close()

    def close(self) -> None:
        with self.gate.alone():
            self.closed = True
            if self._main is not None:
                self._disconnect()


_OPEN: dict[tuple[int, Path], File] = {}
"""By process, since a forked one cannot use what its parent has open."""
_OPENING = threading.Lock()


def opened(path: Path, *, busy_seconds: float) -> File:
    """The file as this process has it open, or opens it now: another process that has it is waited
    for."""
    try:
        import duckdb
    except ImportError as error:
        raise ConfigError(
            f"a DuckDB store needs the package duckdb ({error}): pip install 'clew-search[duckdb]'"
        ) from error
    _look(path)
    key = os.getpid(), path
    end = time.monotonic() + busy_seconds
    while True:
        with _OPENING:
            if (file := _OPEN.get(key)) is None:
                try:
                    file = _open(path)
                except (duckdb.Error, RuntimeError) as error:
                    held = re.search(r"Conflicting lock is held in .*?\(PID (\d+)\)", str(error))
                    if held is None:
                        with explained(path):
                            raise
                    if time.monotonic() > end:
                        raise StoreError(
                            f"{path}: another process (number {held[1]}) has it open, and DuckDB "
                            "lets one at a time: close it there and try again, or use the default "
                            "store, which many processes may share (see `clew migrate`)"
                        ) from error
            if file is not None:
                if not _OPEN:  # one that is left open is complained of when Python ends
                    atexit.register(_close_all)
                _OPEN[key] = file
                file.users += 1
                return file
        time.sleep(AGAIN)


def released(file: File) -> None:
    """One user less; the last one closes it."""
    with _OPENING:
        file.users -= 1
        if not file.users:
            _OPEN.pop((os.getpid(), file.path), None)
            file.close()


def _close_all() -> None:
    for (process, _), file in list(_OPEN.items()):
        if process == os.getpid():
            file.close()


def _open(path: Path) -> File:
    if lost_commits(path):
        raise StoreError(
            f"{path}: the log beside it ({path.name}.wal) is damaged, and DuckDB would drop what "
            "was written last without a word: restore both from a backup; or keep a copy of the "
            "log and open the file with DuckDB itself, which takes what comes before the damage"
        )
    read_only = path.exists() and not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK))
    file = File(path, read_only=read_only)
    try:
        file.migrate()
    except BaseException:
        file.close()
        raise
    return file


def _look(path: Path) -> None:
    """What is no DuckDB file is left alone: DuckDB would try to fetch a reader for some."""
    if path.is_dir():
        raise StoreError(f"{path} is a folder: give a file, such as {path / 'clew.duckdb'}")
    if not path.parent.is_dir():
        raise StoreError(f"there is no folder {path.parent}: make it first, or check the path")
    with contextlib.suppress(OSError), path.open("rb") as head:
        if head.read(12)[MAGIC] != b"DUCK":
            raise StoreError(f"{path} is not a DuckDB database: give another path")


def _remove(path: Path, *, log_only: bool = False) -> None:
    for name in (f"{path.name}.wal", *([] if log_only else [path.name])):
        path.with_name(name).unlink(missing_ok=True)


def _glob(pattern: str, path: str) -> bool:
    return glob_pattern(pattern).fullmatch(path) is not None
