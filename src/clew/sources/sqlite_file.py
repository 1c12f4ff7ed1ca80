"""A user's own SQLite file: opened to be read, never written, and left as it was."""

from __future__ import annotations

import contextlib
import re
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TypeVar

from clew.errors import SourceError, nearest
from clew.sources import file_state
from clew.sources.rows import Columns, identifier

__all__ = ["Layout", "freshness", "interrupted", "layout", "read"]

T = TypeVar("T")

MAGIC = b"SQLite format 3\0"
STEPS = 500
"""Steps of SQLite's machine between two looks at the clock: some tens of rows."""
BUSY_SECONDS = 1.0
"""How long another program's write is waited for: most are over in milliseconds."""
TRIES = 3


def read(file: Path, work: Callable[[sqlite3.Connection], T], *, seconds: float) -> T:
    """What `work` makes of the file; a SourceError where it cannot be read.

    A connection for each call: opening takes a fraction of a millisecond, a file that was replaced
    is seen, and nothing is kept open. Whatever runs past `seconds` is stopped, so that a thread
    nobody waits for any more comes to an end.
    """
    end = time.monotonic() + seconds
    for _ in range(TRIES):
        before, still = freshness(file), _at_rest(file)
        try:
            made = _once(file, work, end, seconds, still=still)
        except SourceError:
            if still and freshness(file) != before:
                continue
            raise
        if not still or freshness(file) == before:
            return made
    raise SourceError(f"{file} is being written all the time: try again in a moment")


def _once(
    file: Path, work: Callable[[sqlite3.Connection], T], end: float, seconds: float, *, still: bool
) -> T:
    address = f"{file.absolute().as_uri()}?mode=ro{'&immutable=1' if still else ''}"
    try:
        with _opened(address, end) as db:
            return work(db)
    except sqlite3.Error as error:
        raise SourceError(f"{file}: {_advice(error, seconds)}") from error
    except SourceError as error:
        raise SourceError(f"{file}: {error}") from None


def freshness(file: Path) -> str:
    """Changes with the file, also where a change is still in its write-ahead log."""
    return file_state(file, _log(file))


def _log(file: Path) -> Path:
    return file.with_name(file.name + "-wal")


def _at_rest(file: Path) -> bool:
    """Whether it is in WAL mode with no log beside it. Even a reader would then make two files
    and leave them behind, unless SQLite is told that nothing changes meanwhile."""
    try:
        if not file.is_file():
            what = "is not a file" if file.exists() else "is not there"
            raise SourceError(f"{file} {what}: check `file` of this source")
        with file.open("rb") as stream:
            header = stream.read(20)
    except OSError as error:
        reason = error.strerror or error
        raise SourceError(f"{file} cannot be read: {reason}; check its permissions") from error
    if header and not header.startswith(MAGIC):
        raise SourceError(f"{file} is not an SQLite database: check `file` of this source")
    return header[18:20] == b"\2\2" and not _log(file).exists()


@contextlib.contextmanager
def _opened(address: str, end: float) -> Iterator[sqlite3.Connection]:
    patience = max(0.0, min(BUSY_SECONDS, end - time.monotonic()))
    db = sqlite3.connect(address, uri=True, timeout=patience, isolation_level=None)
    try:
        db.text_factory = _text
        db.set_progress_handler(lambda: time.monotonic() > end, STEPS)
        # The file may be anybody's: its views and triggers run nothing that could do harm.
        for pragma in ("query_only=ON", "trusted_schema=OFF", "cell_size_check=ON"):
            db.execute(f"PRAGMA {pragma}")
        db.execute("PRAGMA temp_store=MEMORY")
        db.execute("BEGIN")  # one state of the file for all statements
        yield db
    finally:
        db.close()


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace")


# ---------------------------------------------------------------- what went wrong


def _advice(error: sqlite3.Error, seconds: float) -> str:
    message = str(error)
    if "fts5" in message and "file format" in message:
        return (
            f"{message}; this SQLite ({sqlite3.sqlite_version}) reads another format: rebuild the "
            "table with it, or update the one that is older"
        )
    if "no such module" in message or "no such tokenizer" in message:
        return f"{message}; this Python's SQLite lacks that extension: name an ordinary table"
    code = getattr(error, "sqlite_errorcode", None) or 0
    said = _CODES.get(code & 0xFF)
    return said.format(message=message, seconds=seconds) if said else f"{message}; check its schema"


_CODES = {
    sqlite3.SQLITE_BUSY: "locked by another program that writes: try again when it is done",
    sqlite3.SQLITE_LOCKED: "locked by another program that writes: try again when it is done",
    sqlite3.SQLITE_CORRUPT: "damaged ({message}): restore it from a backup",
    sqlite3.SQLITE_NOTADB: "not an SQLite database, or an encrypted one: check `file`",
    sqlite3.SQLITE_CANTOPEN: "cannot be opened ({message}): check the permissions of its folder",
    sqlite3.SQLITE_READONLY: (
        "left half-written by a program that was stopped: open it once with that program"
    ),
    sqlite3.SQLITE_IOERR: "cannot be read ({message}): check the disk",
    sqlite3.SQLITE_INTERRUPT: (
        "no answer within {seconds:g} s: ask for rarer words, or raise `seconds` of this source"
    ),
}


# ---------------------------------------------------------------- what is in it


@dataclass(frozen=True, slots=True)
class Layout:
    """One table as its file describes it."""

    table: str
    columns: tuple[str, ...]
    rowid: bool
    """Whether its rows have numbers: a view's have none."""
    fts5: bool = False
    trigram: bool = False
    """Its words are any three characters in a row."""
    detail: str = "full"
    """How much an FTS5 table knows of where a word stands: full, column or none."""

    def fit(self, columns: Columns) -> Columns:
        """The columns as the schema spells them."""
        return Columns(*(self._spelt(getattr(columns, f.name)) for f in fields(Columns)))

    def _spelt(self, name: str) -> str:
        for known in self.columns:
            if known.lower() == name.lower():
                return known
        if not name or (self.rowid and name.lower() == "rowid"):
            return name
        if name == "rowid":
            raise SourceError(f"{self.table!r} has no rowid: name the column of its `id`")
        hint = nearest(name, self.columns)
        raise SourceError(f"the table {self.table!r} has no column {name!r}: {hint}")


_USING = re.compile(
    r"""\s*CREATE\s+VIRTUAL\s+TABLE\s+(?:IF\s+NOT\s+EXISTS\s+)?
        (?:"(?:[^"]|"")*"|'(?:[^']|'')*'|`(?:[^`]|``)*`|\[[^\]]*\]|[^\s"'`\[(]+)
        \s*USING\s*(\w+)""",
    re.VERBOSE | re.IGNORECASE,
)
_TRIGRAM = re.compile(r"""\btokenize\s*=\s*["']?\s*trigram\b""", re.IGNORECASE)
_DETAIL = re.compile(r"""\bdetail\s*=\s*["']?(full|column|none)\b""", re.IGNORECASE)
_NO_CONTENT = re.compile(r"""\bcontent\s*=\s*(?:''|"")""", re.IGNORECASE)


def layout(db: sqlite3.Connection, table: str) -> Layout:
    """What the schema says of a table or view; a SourceError where it cannot be searched."""
    schema = "SELECT name, type, sql FROM sqlite_master WHERE type IN ('table', 'view')"
    found = db.execute(f"{schema} AND name = ? COLLATE NOCASE", (table,)).fetchone()
    if found is None:
        names = _searchable(db.execute(schema).fetchall())
        raise SourceError(
            f"there is no table {table!r}: {nearest(table, names) if names else 'it has none'}"
        )
    name, kind, sql = found[0], found[1], found[2] or ""
    rows = db.execute("SELECT name, hidden FROM pragma_table_xinfo(?)", (name,))
    columns = tuple(column for column, hidden in rows if hidden != 1)
    rowid = kind == "table" and _has_rowid(db, name)
    using = _USING.match(sql)
    module = using[1].lower() if using else ""
    if module in ("fts3", "fts4"):
        raise SourceError(
            f"the table {name!r} is of the older {module.upper()}: make an FTS5 table of it, or "
            "name the table that holds its texts"
        )
    if module != "fts5":
        return Layout(name, columns, rowid)
    if _NO_CONTENT.search(sql):
        raise SourceError(
            f"the FTS5 table {name!r} keeps no texts (content=''): name one that does"
        )
    detail = _DETAIL.search(sql)
    return Layout(
        name,
        columns,
        rowid,
        fts5=True,
        trigram=_TRIGRAM.search(sql) is not None,
        detail=detail[1].lower() if detail else "full",
    )


def _has_rowid(db: sqlite3.Connection, table: str) -> bool:
    # Not quoted: a quoted name that is no column would be taken for a text.
    try:
        db.execute(f"SELECT rowid FROM {identifier(table)} LIMIT 0")
    except sqlite3.OperationalError as error:
        if "no such column" in str(error):
            return False
        raise
    return True


def _searchable(tables: Iterable[tuple[str, str, str | None]]) -> list[str]:
    """Without the tables that SQLite or an FTS5 table keeps for itself."""
    rows = list(tables)
    owned = tuple(f"{name}_" for name, _, sql in rows if _USING.match(sql or ""))
    return [name for name, _, _ in rows if not name.startswith(("sqlite_", *owned))]


def interrupted(error: sqlite3.Error) -> bool:
    """Whether it was stopped because its time was over."""
    return getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_INTERRUPT
