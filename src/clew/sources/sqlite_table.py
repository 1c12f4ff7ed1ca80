"""Any table, view or FTS5 table of a user's own SQLite file.

The file is opened to be read (see sqlite_file.py). FTS5 tables are asked with MATCH (full_text.py),
others are looked through (scan.py). No word of a query is ever part of an SQL statement, and in
FTS5's own language each is quoted; names of tables and columns are looked up in the schema first.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from clew.errors import ConfigError, SourceError
from clew.protocols import Context, Source, Store
from clew.sources.rows import Columns, Found, Judge, Origin, Words, candidate, spelt_words
from clew.types import Answer, Candidate, Query

if TYPE_CHECKING:
    from sqlite3 import Connection

__all__ = ["SECONDS", "TableSource", "sqlite"]

SECONDS = 4.0
"""Less than a search waits for its sources, so that what was found by then still counts."""


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
    return TableSource(
        file=database(root, file),
        table=table,
        columns=Columns(text=text, id=id, title=title, path=path),
        origin=Origin(name, collection, "sqlite", domain, tuple(personal)),
        seconds=positive(seconds),
    )


def database(root: Path, file: str) -> Path:
    """The file that an option names, relative to the folder whose store it is."""
    if not file or "\0" in file:
        raise ConfigError(f'file = {file!r}: name the SQLite file, such as "notes.db"')
    return root / Path(file).expanduser()


def positive(seconds: float) -> float:
    if not 0 < seconds < float("inf"):
        raise ConfigError(f"seconds = {seconds!r}: expected more than 0")
    return float(seconds)


@dataclass(frozen=True)
class TableSource(Source):
    """One table that can be searched. Opens its file when asked, and closes it again."""

    file: Path
    table: str
    columns: Columns
    origin: Origin
    seconds: float = SECONDS
    missing: str | None = None
    """What to say when the file is not there, instead of that; nothing where this is empty."""

    def __call__(self, query: Query, context: Context) -> Sequence[Candidate] | Answer:
        judge = Judge(query, self.origin)
        if not query.terms or judge.hopeless:
            return ()
        if self.missing is not None and not self.file.exists():
            if self.missing:
                raise SourceError(self.missing)
            return ()

        words = Words(query)
        scored, problem = self._look(query, words, judge)
        scored.sort(key=lambda each: (-each[0], each[1].id))
        scored = [each for each in scored if each[0] >= query.floor]
        candidates = [candidate(record, score, words) for score, record in scored]
        return Answer(candidates, problem) if problem else candidates

    def _look(self, query: Query, words: Words, judge: Judge) -> Found:
        from clew.sources.full_text import (
            ranked,
        )  # these bring SQLite: only where there is such a source
        from clew.sources.scan import scanned
        from clew.sources.sqlite_file import layout, read

        def look(db: Connection) -> Found:
            there = layout(db, self.table)
            find = ranked if there.fts5 else scanned
            return find(db, there, there.fit(self.columns), query, words, judge)

        return read(self.file, look, seconds=self.seconds)

    def reads(self, query: Query) -> Hashable | None:
        """An FTS5 table is asked for words as they are spelt, and for phrases in their place."""
        return None if query.terms.phrases else (query.terms.words, *spelt_words(query.text))

    def freshness(self, store: Store) -> str:
        from clew.sources.sqlite_file import freshness

        return freshness(self.file)
