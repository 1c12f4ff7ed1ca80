"""The database of another program (Ariadne), opened to be read and left as it was.

Ariadne keeps its database in WAL mode. While it is in use, a reader shares the log and sees one
state of it from beginning to end. At rest there is no log, and even a reader would make one and
leave it behind; then the file is read as it lies, and looked at again after every step, so that
nothing is given out that was read while somebody began to write.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clew.errors import InputError, StoreError

__all__ = ["Database", "opened"]

MAGIC = b"SQLite format 3\0"
BUSY_SECONDS = 5.0
"""How long a program that holds the file for itself is waited for."""
NEEDED = frozenset({"id", "content", "content_hash", "memory_type", "created_at"})
"""Columns that the table `memories` has had from the first version on, and others have not."""

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Database:
    """What can be asked of an open one."""

    file: Path
    connection: sqlite3.Connection
    state: str | None
    """What the file looked like when it was opened at rest. None: SQLite watches over it."""
    tables: dict[str, tuple[str, ...]]
    """Its tables and their columns, without those that a full-text index keeps for itself."""

    def rows(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        """All that a statement finds, as mappings."""
        with _translated(self.file):
            found = self.connection.execute(sql, values)
            names = [column[0] for column in found.description]
            rows = [dict(zip(names, row, strict=True)) for row in found]
        if self.state is not None and _state(self.file) != self.state:
            raise StoreError(
                f"{self.file} was changed while it was read: do the same again, and what was read "
                "so far is recognised"
            )
        return rows

    def has(self, table: str, *columns: str) -> bool:
        """Whether this version of the schema has it."""
        return table in self.tables and set(columns) <= set(self.tables[table])


@contextlib.contextmanager
def opened(file: Path) -> Iterator[Database]:
    """An Ariadne database; an InputError where it is none, a StoreError where it cannot be read."""
    at_rest = _at_rest(file)
    state = _state(file) if at_rest else None
    address = f"{file.absolute().as_uri()}?mode=ro{'&immutable=1' if at_rest else ''}"
    with _translated(file):
        # Whoever goes through the rows may do so from several threads, one after the other.
        connection = sqlite3.connect(
            address, uri=True, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
        )
    try:
        with _translated(file):
            connection.text_factory = _text
            for pragma in ("query_only=ON", "trusted_schema=OFF", "temp_store=MEMORY"):
                connection.execute(f"PRAGMA {pragma}")
            connection.execute("BEGIN")  # one state of the file for all statements
            tables = _tables(connection)
        _recognise(file, tables)
        yield Database(file, connection, state, tables)
    finally:
        connection.close()


def _at_rest(file: Path) -> bool:
    """Whether it is in WAL mode with no log beside it."""
    try:
        if not file.is_file():
            what = "is a folder" if file.exists() else "is not there"
            raise InputError(f"{file} {what}: give the file of an Ariadne database")
        with file.open("rb") as stream:
            header = stream.read(20)
    except OSError as error:
        reason = error.strerror or error
        raise StoreError(f"{file} cannot be read: {reason}; check its permissions") from error
    if not header:
        raise InputError(f"{file} is empty: give the file of an Ariadne database")
    if not header.startswith(MAGIC):
        raise InputError(
            f"{file} is not an SQLite database, or an encrypted one: give the file of an Ariadne "
            "database, decrypted"
        )
    return header[18:20] == b"\2\2" and not _log(file).exists()


def _log(file: Path) -> Path:
    return file.with_name(file.name + "-wal")


def _state(file: Path) -> str:
    states = []
    for part in (file, _log(file)):
        try:
            about = part.stat()
            states.append(f"{about.st_ino}.{about.st_mtime_ns}.{about.st_size}")
        except OSError:
            states.append("-")
    return "/".join(states)


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace")


def _tables(connection: sqlite3.Connection) -> dict[str, tuple[str, ...]]:
    made = "SELECT name, sql FROM sqlite_master WHERE type = 'table' ORDER BY name"
    tables: list[tuple[str, str | None]] = connection.execute(made).fetchall()
    # A full-text index is made from the memories, and so are the tables that it keeps.
    virtual = [name for name, sql in tables if (sql or "").upper().startswith("CREATE VIRTUAL")]
    derived = tuple(f"{name}_" for name in virtual)
    columns = "SELECT name FROM pragma_table_xinfo(?) WHERE hidden != 1"
    return {
        name: tuple(column for (column,) in connection.execute(columns, (name,)))
        for name, _ in tables
        if name not in virtual and not name.startswith(("sqlite_", *derived))
    }


def _recognise(file: Path, tables: dict[str, tuple[str, ...]]) -> None:
    missing = NEEDED - set(tables.get("memories", ()))
    if missing:
        there = ", ".join(sorted(tables)[:5]) or "none"
        lacks = f"without {', '.join(sorted(missing))}" if "memories" in tables else "missing"
        raise InputError(
            f"{file} is not an Ariadne database (the table 'memories' is {lacks}; tables there: "
            f"{there}): give the file that Ariadne calls db_path"
        )


# ---------------------------------------------------------------- what went wrong


@contextlib.contextmanager
def _translated(file: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", None) or 0
        if code & 0xFF == sqlite3.SQLITE_NOTADB:
            raise InputError(
                f"{file} is not an SQLite database, or an encrypted one: give the file of an "
                "Ariadne database, decrypted"
            ) from error
        said = _CODES.get(code & 0xFF, "cannot be read ({error}): check that Ariadne can open it")
        raise StoreError(f"{file} {said.format(error=error)}") from error


_CODES = {
    sqlite3.SQLITE_BUSY: "is locked by another program: try again when that is done",
    sqlite3.SQLITE_LOCKED: "is locked by another program: try again when that is done",
    sqlite3.SQLITE_CORRUPT: "is damaged ({error}): restore it from a backup",
    sqlite3.SQLITE_CANTOPEN: (
        "cannot be opened ({error}): its folder must be writable while there is a log (-wal) "
        "beside it; open and close it with Ariadne, or copy both to another folder"
    ),
    sqlite3.SQLITE_READONLY: (
        "was left half-written by a program that was stopped: open it once with Ariadne"
    ),
    sqlite3.SQLITE_IOERR: "cannot be read ({error}): check the disk",
}
