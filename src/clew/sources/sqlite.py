"""Any table, view or FTS5 table of a user's own SQLite file, and abstracts of Wikipedia in one.

The file is opened to be read, never written, and left as it was. No word of a query is ever part of
an SQL statement, and in FTS5's own language each is quoted; names of tables and columns are looked
up in the schema first. How rows are ranked is in table_search.py.
"""

from __future__ import annotations

import contextlib
import re
import sqlite3
import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from clew.errors import ConfigError, InputError, SourceError, nearest
from clew.protocols import Context, Source, Store
from clew.sources import file_state
from clew.sources.table_search import Scored, Table, TableSearch, identifier, spelt_words
from clew.types import Answer, Candidate, Query

T = TypeVar("T")

SECONDS = 4.0
"""Less than a search waits for its sources, so that what was found by then still counts."""
EXOCORTEX = ".clew/exocortex.db"
NOT_YET = "no exocortex built yet: run `clew exocortex build DUMP`"
MAGIC = b"SQLite format 3\0"
STEPS = 500
"""Steps of SQLite's machine between two looks at the clock: some tens of rows."""
BUSY_SECONDS = 1.0
"""How long another program's write is waited for: most are over in milliseconds."""
TRIES = 3


def sqlite(
    root: Path,
    *,
    name: str = "sqlite",
    file: str,
    table: str,
    text: str,
    id: str = "rowid",
    title: str = "",
    path: str = "",
    collection: str = "sqlite",
    domain: str = "",
    personal: tuple[str, ...] = ("personal/", ".context/personal/"),
    seconds: float = SECONDS,
) -> Source:
    """Rows of a table: `text`, `id`, `title` and `path` are names of its columns.

    Their ids are `name:id`, by the name that the source has in the settings, so that rows of two
    tables are never taken for one, whatever collection they are in. Rows are of `domain`, or
    personal where their path begins with one of `personal`. What takes longer than `seconds` is
    stopped.
    """
    for option, value in (("table", table), ("text", text), ("id", id), ("collection", collection)):
        if not value:
            raise ConfigError(f"{option} is empty: an sqlite source needs it")
    about = Table(
        table,
        text,
        id,
        title,
        path,
        source=name,
        collection=collection,
        domain=domain,
        personal=tuple(personal),
    )
    return _source(root, file, about, seconds)


def exocortex(
    root: Path,
    *,
    name: str = "exocortex",
    file: str = EXOCORTEX,
    optional: bool = False,
    seconds: float = SECONDS,
) -> Source:
    """Articles of Wikipedia by title and abstract, in the FTS5 file that `clew exocortex build`
    makes. With `optional` a file that is not there is passed over in silence: for a profile in
    which everybody has this source."""
    table = Table(
        "abstracts",
        text="abstract",
        id="title",
        title="title",
        path="url",
        pairs="pairs",
        source=name,
        collection="exocortex",
        type="exocortex",
    )
    return _source(root, file, table, seconds, "" if optional else NOT_YET)


def _source(
    root: Path, file: str, table: Table, seconds: float, missing: str | None = None
) -> TableSource:
    if not file or "\0" in file:
        raise ConfigError(f'file = {file!r}: name the SQLite file, such as "notes.db"')
    if not 0 < seconds < float("inf"):
        raise ConfigError(f"seconds = {seconds!r}: expected more than 0")
    return TableSource(root / Path(file).expanduser(), table, float(seconds), missing)


@dataclass(frozen=True)
class TableSource(Source):
    """One table that can be searched. Opens its file when asked, and closes it again."""

    file: Path
    table: Table
    seconds: float
    missing: str | None
    """What to say when the file is not there, instead of that; nothing where this is empty."""

    def __call__(self, query: Query, context: Context) -> Sequence[Candidate] | Answer:
        search = TableSearch(query, self.table)
        if search.hopeless:
            return ()
        if self.missing is not None and not self.file.exists():
            if self.missing:
                raise SourceError(self.missing)
            return ()

        def look(db: sqlite3.Connection) -> tuple[Scored, str | None]:
            return search.rank(db, _read_schema(db, self.table))

        scored, problem = _read(self.file, look, seconds=self.seconds)
        scored.sort(key=lambda each: (-each[0], each[1].id))
        found = [search.candidate(record, s) for s, record in scored if s >= query.floor]
        return Answer(found, problem) if problem else found

    def reads(self, query: Query) -> Hashable | None:
        """An FTS5 table is asked for words as they are spelt, and for phrases in their place."""
        return None if query.terms.phrases else (query.terms.words, *spelt_words(query.text))

    def freshness(self, store: Store) -> str:
        return database_state(self.file)


def describe_exocortex(file: Path) -> dict[str, Any]:
    """How many articles a file has, when it was made and from what."""
    from clew.ingest.wikipedia import is_exocortex

    def look(db: sqlite3.Connection) -> dict[str, Any]:
        return dict(db.execute("SELECT key, value FROM about ORDER BY key").fetchall())

    if not file.exists():
        raise InputError(f"there is no exocortex {file}: run `clew exocortex build DUMP`")
    if not is_exocortex(file):
        raise InputError(f"{file} was not made by `clew exocortex build`: name another file")
    return {"file": str(file), **_read(file, look, seconds=10.0), "bytes": file.stat().st_size}


# ---------------------------------------------------------------------- the file


def _read(file: Path, work: Callable[[sqlite3.Connection], T], *, seconds: float) -> T:
    """What `work` makes of the file; a SourceError where it cannot be read.

    A connection for each call: opening takes a fraction of a millisecond, a file that was replaced
    is seen, and nothing is kept open. Whatever runs past `seconds` is stopped, so that a thread
    nobody waits for any more comes to an end.
    """
    end = time.monotonic() + seconds
    for _ in range(TRIES):
        before, still = database_state(file), _at_rest(file)
        patience = max(0.0, min(BUSY_SECONDS, end - time.monotonic()))
        try:
            with open_foreign(file, at_rest=still, patience=patience) as db:
                db.set_progress_handler(lambda: time.monotonic() > end, STEPS)
                made = work(db)
        except (sqlite3.Error, SourceError) as error:
            if still and database_state(file) != before:
                continue
            said = _advice(error, seconds) if isinstance(error, sqlite3.Error) else error
            raise SourceError(f"{file}: {said}") from error
        if not still or database_state(file) == before:
            return made
    raise SourceError(f"{file} is being written all the time: try again in a moment")


def _at_rest(file: Path) -> bool:
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
    return is_at_rest(file, header)


def database_state(file: Path) -> str:
    """Changes with the file, also where a change is still in its write-ahead log."""
    return file_state(file, _log(file))


def _log(file: Path) -> Path:
    return file.with_name(file.name + "-wal")


def is_at_rest(file: Path, header: bytes) -> bool:
    """Whether it is in WAL mode with no log beside it. Even a reader would then make two files
    and leave them behind, unless SQLite is told that nothing changes meanwhile."""
    return header[18:20] == b"\2\2" and not _log(file).exists()


@contextlib.contextmanager
def open_foreign(
    file: Path, *, at_rest: bool, patience: float, **options: Any
) -> Iterator[sqlite3.Connection]:
    """Somebody else's database, to be read only; another program's write is waited for."""
    address = f"{file.absolute().as_uri()}?mode=ro{'&immutable=1' if at_rest else ''}"
    db = sqlite3.connect(address, uri=True, timeout=patience, isolation_level=None, **options)
    try:
        db.text_factory = lambda value: value.decode("utf-8", "replace")
        # The file may be anybody's: its views and triggers run nothing that could do harm.
        for pragma in ("query_only=ON", "trusted_schema=OFF", "cell_size_check=ON"):
            db.execute(f"PRAGMA {pragma}")
        db.execute("PRAGMA temp_store=MEMORY")
        db.execute("BEGIN")  # one state of the file for all statements
        yield db
    finally:
        db.close()


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


# ---------------------------------------------------------------------- its schema

_USING = re.compile(
    r"""\s*CREATE\s+VIRTUAL\s+TABLE\s+(?:IF\s+NOT\s+EXISTS\s+)?
        (?:"(?:[^"]|"")*"|'(?:[^']|'')*'|`(?:[^`]|``)*`|\[[^\]]*\]|[^\s"'`\[(]+)
        \s*USING\s*(\w+)""",
    re.VERBOSE | re.IGNORECASE,
)
_TRIGRAM = re.compile(r"""\btokenize\s*=\s*["']?\s*trigram\b""", re.IGNORECASE)
_DETAIL = re.compile(r"""\bdetail\s*=\s*["']?(full|column|none)\b""", re.IGNORECASE)
_NO_CONTENT = re.compile(r"""\bcontent\s*=\s*(?:''|"")""", re.IGNORECASE)
_PURPOSES = ("text", "id", "title", "path", "pairs")


def _read_schema(db: sqlite3.Connection, table: Table) -> Table:
    """The table or view as its file describes it, with names as they are spelt there; a
    SourceError where it cannot be searched."""
    schema = "SELECT name, type, sql FROM sqlite_master WHERE type IN ('table', 'view')"
    found = db.execute(f"{schema} AND name = ? COLLATE NOCASE", (table.name,)).fetchone()
    if found is None:
        rows = db.execute(schema).fetchall()
        # Without the tables that SQLite or an FTS5 table keeps for itself.
        owned = tuple(f"{name}_" for name, _, sql in rows if _USING.match(sql or ""))
        names = [name for name, _, _ in rows if not name.startswith(("sqlite_", *owned))]
        hint = nearest(table.name, names) if names else "it has none"
        raise SourceError(f"there is no table {table.name!r}: {hint}")
    name, kind, sql = found[0], found[1], found[2] or ""
    using = _USING.match(sql)
    module = using[1].lower() if using else ""
    if module in ("fts3", "fts4"):
        raise SourceError(
            f"the table {name!r} is of the older {module.upper()}: make an FTS5 table of it, or "
            "name the table that holds its texts"
        )
    fts5 = module == "fts5"
    if fts5 and _NO_CONTENT.search(sql):
        raise SourceError(
            f"the FTS5 table {name!r} keeps no texts (content=''): name one that does"
        )
    info = db.execute("SELECT name, hidden FROM pragma_table_xinfo(?)", (name,))
    columns = tuple(column for column, hidden in info if hidden != 1)
    spelt = {column.lower(): column for column in reversed(columns)} | {"": ""}
    if kind == "table" and _has_rowid(db, name):  # a view's rows have no numbers
        spelt.setdefault("rowid", "rowid")
    for wanted in (getattr(table, purpose) for purpose in _PURPOSES):
        if wanted == "rowid" and wanted not in spelt:
            raise SourceError(f"{name!r} has no rowid: name the column of its `id`")
        if wanted.lower() not in spelt:
            hint = nearest(wanted, columns)
            raise SourceError(f"the table {name!r} has no column {wanted!r}: {hint}")
    detail = _DETAIL.search(sql) if fts5 else None
    return replace(
        table,
        name=name,
        **{purpose: spelt[getattr(table, purpose).lower()] for purpose in _PURPOSES},
        columns=columns,
        fts5=fts5,
        trigram=fts5 and _TRIGRAM.search(sql) is not None,
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
