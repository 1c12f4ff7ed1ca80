"""A DuckDB file: one process at a time may have it open.

Within it any number of threads read, each with a cursor of its own, while one writes: writers wait
for each other, so that none meets a conflict.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import shutil
import threading
import time
import uuid
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from clew.errors import StoreError, needs_extra
from clew.protocols import Progress
from clew.storage.checksum import UNSEALED
from clew.storage.duckdb import MIGRATIONS, VIEWS, DuckTables, explained, plain_words
from clew.storage.ownership import HOSTILE
from clew.storage.tables import CLOSED, Database, Tables, identify, match_glob, run_script

_AGAIN = 0.05
"""Seconds until a file that another process has is tried again."""
_SETTINGS: dict[str, str | bool | int | float | list[str]] = {
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "immediate_transaction_mode": True,
}
"""Nothing is ever fetched from anywhere, and a transaction sees the state in which it began."""


class _Gate:
    """Many at work, or one alone: who closes or replaces the file waits for running statements."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._inside = 0
        self._closed = False

    def enter(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: not self._closed)
            self._inside += 1

    def leave(self) -> None:
        with self._changed:
            self._inside -= 1
            self._changed.notify_all()

    @contextlib.contextmanager
    def inside(self) -> Iterator[None]:
        self.enter()
        try:
            yield
        finally:
            self.leave()

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        with self._changed:
            self._changed.wait_for(lambda: not self._closed)
            self._closed = True
            self._changed.wait_for(lambda: not self._inside)
        try:
            yield
        finally:
            with self._changed:
                self._closed = False
                self._changed.notify_all()


class DuckFile:
    """One DuckDB file: opened once in a process, shared by all who open it there."""

    def __init__(self, path: Path, *, read_only: bool):
        self.path, self.read_only = path, read_only
        self.users = 0
        self._made = not path.exists()
        self.closed = False
        self.gate = _Gate()
        self.writing = threading.RLock()
        self.version = 0
        """Grows with every write."""
        self.names: tuple[int, dict[int, str] | None] = -1, None
        """The version that they are of, and the ids of all records; None: they are too many."""
        self._identity: tuple[int, int] | None = None
        self._guard = threading.Lock()
        self._connections: weakref.WeakSet[DuckTables] = weakref.WeakSet()
        self._main = self._connect()
        self.writer = self.connection()

    def _connect(self) -> Any:
        import duckdb

        if not self.read_only and not self.path.exists():
            self._begin_file()
        self._identity = identify(self.path)  # what comes into its place from now on is noticed
        main = duckdb.connect(str(self.path), read_only=self.read_only, config=_SETTINGS)
        self._identity = self._identity or identify(self.path)
        self.keep_private()
        with contextlib.suppress(duckdb.CatalogException):  # another of this process has it open
            main.create_function("clew_glob", match_glob, ["VARCHAR", "VARCHAR"], "BOOLEAN")
        return main

    def _begin_file(self) -> None:
        """A process that is killed while DuckDB begins a file leaves one that nobody can open. So
        it is begun aside, and is there whole or not at all; where a disk has no links, as ever."""
        import duckdb

        fresh = self.path.with_name(f"{self.path.name}.{os.getpid()}.tmp")
        try:
            duckdb.connect(str(fresh), config=_SETTINGS).close()
            with contextlib.suppress(OSError):  # or another process was quicker
                os.link(fresh, self.path)
        finally:
            with contextlib.suppress(OSError):
                fresh.unlink()

    def in_place(self) -> bool:
        return identify(self.path) == self._identity

    def keep_private(self) -> None:
        """What DuckDB makes is for the user alone, whatever the process allows; its log is as the
        database is."""
        with contextlib.suppress(OSError):
            if self._made:
                self.path.chmod(0o600)
            shutil.copymode(self.path, _log_of(self.path))

    def connection(self) -> DuckTables:
        made = DuckTables(self)
        with self._guard:
            self._connections.add(made)
        return made

    def cursor(self) -> Any:
        if self.closed or self._main is None:  # or replaced, and not opened again
            raise StoreError(CLOSED)
        return self._main.cursor()

    def write_anew(self) -> None:
        """Leave out what was deleted: DuckDB only reuses its place, and until then it can be read
        there."""
        fresh = self.path.with_name(f"{self.path.name}.new")
        _unlink(fresh)
        with self._replaced_by(fresh), explained(self.path):
            alias = _attach_copy(self._main, fresh)
            self._main.execute(f"DETACH {alias}")

    def copy_to(self, fresh: Path) -> None:
        with explained(self.path), contextlib.closing(self.cursor()) as cursor:
            with self.gate.inside():
                alias = _attach_copy(cursor, fresh)
            with self.gate.alone():  # a transaction begins in all that is attached, and holds it
                cursor.execute(f"DETACH {alias}")

    def replace_with(self, fresh: Path) -> None:
        with self._replaced_by(fresh):
            self.version += 1

    @contextlib.contextmanager
    def _replaced_by(self, fresh: Path) -> Iterator[None]:
        """Alone with the file, which becomes what is in `fresh` when the block has ended."""
        with self.gate.alone():
            try:
                with explained(self.path):  # what is in the log must not outlive the file
                    self._main.execute("CHECKPOINT")
                yield
                self._disconnect()
                shutil.copymode(self.path, fresh)
                fresh.replace(self.path)
                _log_of(self.path).unlink(missing_ok=True)
            except OSError as error:
                raise StoreError(f"{self.path} could not be written anew: {error}") from error
            finally:
                _unlink(fresh)
                if self._main is None:
                    with explained(self.path):  # another process may have been quicker
                        self._main = self._connect()

    def _disconnect(self) -> None:
        for connection in list(self._connections):
            connection.drop()
        main, self._main = self._main, None
        with explained(self.path):  # it writes what is in the log
            main.close()

    def close(self) -> None:
        with self.gate.alone():
            self.closed = True
            if self._main is not None:
                self._disconnect()


def _attach_copy(cursor: Any, fresh: Path) -> str:
    """The name under which a new file with the same in it is attached."""
    alias = f"clew_{uuid.uuid4().hex}"
    mine = cursor.execute("SELECT current_database()").fetchone()[0].replace('"', '""')
    place = str(fresh).replace("'", "''")
    cursor.execute(f"ATTACH '{place}' AS {alias}")
    try:
        cursor.execute(f'COPY FROM DATABASE "{mine}" TO {alias}')
    except BaseException:
        cursor.execute(f"DETACH {alias}")
        raise
    return alias


_OPEN: dict[tuple[int, Path], DuckFile] = {}
"""By process, since a forked one cannot use what its parent has open."""
_OPENING = threading.Lock()


def _open(path: Path, *, busy_seconds: float) -> DuckFile:
    """The file as this process has it open, or opens it now: another process that has it is waited
    for."""
    with needs_extra("duckdb", "a DuckDB store"):
        import duckdb
    _look(path)
    key = os.getpid(), path
    end = time.monotonic() + busy_seconds
    while True:
        with _OPENING:
            try:
                if (file := _OPEN.get(key)) is not None and not file.in_place():
                    with file.gate.inside():  # else it is being written anew
                        gone = not file.in_place()
                    if gone:
                        file.close()
                        file = None
                if file is None:
                    _check_log(path)
                    writable = os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)
                    file = DuckFile(path, read_only=path.exists() and not writable)
                if not _OPEN:  # one that is left open is complained of when Python ends
                    atexit.register(_close_all)
                _OPEN[key] = file
                file.users += 1
                return file
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
        time.sleep(_AGAIN)


def _look(path: Path) -> None:
    """What is no DuckDB file is left alone: DuckDB would try to fetch a reader for some."""
    if path.is_dir():
        raise StoreError(f"{path} is a folder: give a file, such as {path / 'clew.duckdb'}")
    if not path.parent.is_dir():
        raise StoreError(f"there is no folder {path.parent}: make it first, or check the path")
    with contextlib.suppress(OSError), path.open("rb") as head:
        if head.read(12)[8:] != b"DUCK":
            raise StoreError(f"{path} is not a DuckDB database: give another path")


def _close_all() -> None:
    for (process, _), file in list(_OPEN.items()):
        if process == os.getpid():
            file.close()


def _log_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.wal")


def _unlink(path: Path) -> None:
    for file in (_log_of(path), path):
        file.unlink(missing_ok=True)


_HEADER = rb"d\0be\0\x02f\0\x10(?:[\x80-\xff]?[\0-\x7f]){16}g\0[\x80-\xff]*[\0-\x7f]\xff\xff"
_COMMIT = bytes.fromhex("0500000000000000e7fe7d722fed3d5e640064ffff")
"""The entry that ends each commit; always the same."""


def _check_log(path: Path) -> None:
    """A StoreError where DuckDB's recovery would drop commits that are whole.

    It takes a log that it cannot follow for one whose last write was cut off, and drops the rest:
    after a crash that is right, since that write was promised to nobody. But a damaged header, or
    a damaged length of an entry, has it drop writes that were whole: behind those there are
    commits, behind what was cut off there is nothing. All other damage it finds by its checksums.
    A log is a header and entries: length and checksum, eight bytes each, and so many bytes.
    """
    import duckdb

    log = _log_of(path)
    if not duckdb.__version__.startswith("2.0.") or not log.exists():
        return  # the logs of another version may have another form, and be well
    data = log.read_bytes()  # not mapped: who has the file open may cut it short meanwhile
    header = re.match(_HEADER, data, re.DOTALL)
    place = end = header.end() if header else 0
    while header and end <= len(data):
        place, end = end, end + 16 + int.from_bytes(data[end : end + 8], "little")
    cut_off = len(data) < 64 and b"d\0be\0".startswith(data[:5])
    if data.find(_COMMIT, place) >= 0 or not (header or cut_off):
        raise StoreError(
            f"{path}: the log beside it ({log.name}) is damaged, and DuckDB would drop what was "
            "written last without a word: restore both from a backup; or keep a copy of the log "
            "and open the file with DuckDB itself, which takes what comes before the damage"
        )


class DuckDatabase(Database):
    """One opening of a file in this process."""

    BEGIN, KIND = "BEGIN", "duckdb"

    def __init__(self, path: Path, *, busy_seconds: float = 10.0):
        super().__init__(path)
        self._file = _open(path.resolve(), busy_seconds=busy_seconds)
        self._writing, self._writer = self._file.writing, self._file.writer
        self.read_only = self._file.read_only
        try:
            with self._writing:
                self._migrate()
            self.store_id = self._read_meta("store")
        except BaseException:
            self.close()
            raise

    def _read_meta(self, key: str) -> str:
        row = self._writer.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        return str(row[0]) if row else ""

    def _migrate(self) -> None:
        found = self._writer.execute("SELECT table_name FROM duckdb_tables() WHERE NOT internal")
        have = int(self._read_meta("format") or 0) if ("changes",) in found else 0
        self.check_format(have, len(MIGRATIONS), foreign=bool(found) and ("changes",) not in found)
        views = self._writer.execute("SELECT view_name, sql FROM duckdb_views() WHERE NOT internal")
        for name, statement in views:
            if plain_words(statement) not in VIEWS:
                raise StoreError(f"{self.path} {HOSTILE.format(name)}")
        if have == len(MIGRATIONS):
            return
        if self.read_only:
            raise StoreError(
                f"{self.path} was written by an older Clew and is on a read-only disk: copy it to "
                "where it can be written to"
            )
        with self.transaction() as db:
            for script in MIGRATIONS[have:]:
                run_script(db, script)
            db.insert("meta", [(UNSEALED, "1") if have else ("store", uuid.uuid4().hex)])
            db.insert("meta", [("format", str(len(MIGRATIONS)))], replacing=1)

    def _connect(self) -> DuckTables:
        return self._file.connection()

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Tables]:
        self.check()
        with self._writing:
            if self._writer.in_transaction and not self._local.__dict__.get("writing"):
                raise StoreError(
                    f"{self.path}: this thread is writing to it through another opening"
                )
            with super().transaction() as db:
                yield db
            self._file.keep_private()

    def in_place(self) -> bool:
        return self._file.in_place()

    def verdict(self) -> str:
        """All of it is read, and DuckDB compares the checksum of each block."""
        tables = "SELECT table_name FROM duckdb_tables() WHERE NOT internal"
        try:
            for (name,) in self.reader.execute(tables).fetchall():
                self.reader.execute(f'SELECT COUNT(*), MAX(hash(t)) FROM "{name}" AS t')
        except StoreError as error:
            return str(error)
        return ""

    def checkpoint(self) -> None:
        """DuckDB does so by itself from some megabytes on."""
        self.check()
        with self._writing:
            if not self.read_only and not self._writer.in_transaction:
                self._writer.execute("CHECKPOINT")

    def vacuum(self) -> None:
        self.check()
        with self._writing:
            if self._writer.in_transaction:
                raise StoreError(f"{self.path}: a block of writes is under way: end it first")
            self.check_writable()
            self._file.write_anew()

    def copy_to(self, file: Path, progress: Progress) -> None:
        self.check()
        if self._local.__dict__.get("writing"):
            raise StoreError(f"{self.path}: a block of writes is under way: end it first")
        progress("copying", 0, 1)
        self._file.copy_to(file)
        progress("copying", 1, 1)

    def replace_with(self, file: Path) -> None:
        self.check()
        with self._writing:
            self.check_writable()
            self._file.replace_with(file)

    def close(self) -> None:
        if self._closed or self._process != os.getpid():
            return
        self._closed = True
        self._local = threading.local()
        with _OPENING:
            self._file.users -= 1
            if not self._file.users:  # the last one closes it
                key = os.getpid(), self._file.path
                if _OPEN.get(key) is self._file:
                    del _OPEN[key]
                self._file.close()
