"""From a dump of Wikipedia abstracts to the FTS5 file that the exocortex source reads.

The file is written beside its place and moved there when it is whole: a build that is interrupted,
or whose dump is cut short, leaves the old file as it was. One article per title; where a title
comes again, the last one counts.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import glob
import os
import sqlite3
import time
import uuid
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from clew.errors import InputError, StoreError
from clew.ingest.dumps import Article, articles
from clew.protocols import Progress
from clew.text.analyser import pairs

__all__ = ["Built", "build", "is_exocortex"]

APPLICATION_ID = 0x436C6578  # "Clex", in the file's header
FORMAT = 1
BATCH = 10_000
EXAMPLES = 5
HASH_BYTES = 32 << 20
"""FTS5 keeps this much of the index in memory before it writes a part of it."""
MERGE_PAGES = 2_000
"""Pages merged at a time; Ctrl-C is heard in between."""
STALE = 86_400.0
"""Seconds after which an unfinished file belongs to a build that was killed."""

SCHEMA = f"""
    PRAGMA application_id = {APPLICATION_ID};
    PRAGMA user_version = {FORMAT};
    PRAGMA page_size = 8192;
    PRAGMA journal_mode = OFF;  -- the file is thrown away unless it becomes whole
    PRAGMA synchronous = OFF;
    PRAGMA cache_size = -65536;
    CREATE TABLE about (key TEXT PRIMARY KEY, value) WITHOUT ROWID;
    CREATE TABLE articles (
        id INTEGER PRIMARY KEY, title TEXT NOT NULL, abstract TEXT NOT NULL, url TEXT, pairs TEXT
    );
    CREATE VIRTUAL TABLE abstracts USING fts5 (
        title, abstract, pairs, url UNINDEXED,
        content = 'articles', content_rowid = 'id',
        tokenize = 'porter unicode61 remove_diacritics 2'
    );
"""


@dataclass(slots=True)
class Built:
    """What a build did."""

    file: str
    articles: int = 0
    replaced: int = 0
    """Articles whose title came again."""
    skipped: int = 0
    examples: list[str] = field(default_factory=list)
    """Where the first of those skipped stand, and why."""
    bytes: int = 0
    seconds: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def build(dump: str, out: Path, *, progress: Progress | None = None) -> Built:
    """Make `out` from the dump, or leave it as it was and say why."""
    begun = time.perf_counter()
    report = Built(str(out))
    with _beside(_checked(out)) as part:
        try:
            with contextlib.closing(sqlite3.connect(part, isolation_level=None)) as db:
                db.executescript(SCHEMA)
                _load(db, dump, report, progress)
                _index(db, report.articles, progress)
                _merge(db, progress)
                _note(db, dump, report)
        except sqlite3.Error as error:
            raise StoreError(
                f"{out} could not be written: {error}; make room, or choose another --out"
            ) from error
        report.bytes = part.stat().st_size
    report.seconds = round(time.perf_counter() - begun, 3)
    return report


# ---------------------------------------------------------------- steps


def _load(db: sqlite3.Connection, dump: str, report: Built, progress: Progress | None) -> None:
    """All articles into the table, then those away whose title comes again."""
    name = "standard input" if dump == "-" else dump

    def complain(line: int, what: str) -> None:
        report.skipped += 1
        if len(report.examples) < EXAMPLES:
            report.examples.append(f"{name}:{line}: {what:.200}")

    stream = articles(dump, complain)
    count = 0
    db.execute("BEGIN")
    while batch := list(islice(stream, BATCH)):
        rows = ((a.title, a.abstract, a.url, _pairs(a)) for a in batch)
        db.executemany("INSERT INTO articles VALUES (NULL, ?, ?, ?, ?)", rows)
        count += len(batch)
        if progress:
            progress("reading", count, 0)
    if not count:
        raise InputError(
            f"{name} has no article with a title and an abstract: give a dump of abstracts, such "
            "as enwiki-…-abstract.xml.gz"
        )
    report.replaced = db.execute(
        "DELETE FROM articles WHERE id IN (SELECT id FROM (SELECT id, "
        "lead(id) OVER (PARTITION BY title ORDER BY id) AS again FROM articles) "
        "WHERE again IS NOT NULL)"
    ).rowcount
    report.articles = count - report.replaced
    db.execute("COMMIT")


def _pairs(article: Article) -> str:
    return pairs(f"{article.title}\n{article.abstract}")


def _index(db: sqlite3.Connection, total: int, progress: Progress | None) -> None:
    db.execute("INSERT INTO abstracts (abstracts, rank) VALUES ('hashsize', ?)", (HASH_BYTES,))
    next_ids = "SELECT max(id) FROM (SELECT id FROM articles WHERE id > ? ORDER BY id LIMIT ?)"
    add = (
        "INSERT INTO abstracts (rowid, title, abstract, pairs) "
        "SELECT id, title, abstract, pairs FROM articles WHERE id > ? AND id <= ?"
    )
    db.execute("BEGIN")
    done = last = 0
    while (upto := db.execute(next_ids, (last, BATCH)).fetchone()[0]) is not None:
        done += db.execute(add, (last, upto)).rowcount
        last = upto
        if progress:
            progress("indexing", done, total)
    db.execute("COMMIT")


def _merge(db: sqlite3.Connection, progress: Progress | None) -> None:
    """Into one piece, which is asked faster than several."""
    command = "INSERT INTO abstracts (abstracts, rank) VALUES ('merge', ?)"
    pages, steps = -MERGE_PAGES, 0  # less than nothing: begin, also with few pieces
    while True:
        before = db.total_changes
        db.execute(command, (pages,))
        if pages > 0 and db.total_changes - before < 2:  # as its documentation says
            return
        pages, steps = MERGE_PAGES, steps + 1
        if progress:
            progress("merging", steps, 0)


def _note(db: sqlite3.Connection, dump: str, report: Built) -> None:
    now = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
    source = "standard input" if dump == "-" else Path(dump).name
    facts = {"articles": report.articles, "built": now, "from": source, "skipped": report.skipped}
    db.executemany("INSERT INTO about VALUES (?, ?)", facts.items())


# ---------------------------------------------------------------- the file


def _checked(out: Path) -> Path:
    """Where the file goes. What is no exocortex is never overwritten."""
    place = out.expanduser().resolve()
    if not place.parent.is_dir():
        raise InputError(f"there is no folder {str(place.parent)!r}: make it, or change --out")
    ours = place.is_file() and (not place.stat().st_size or is_exocortex(place))
    if place.exists() and not ours:
        raise InputError(f"{out} is something else, which is not overwritten: change --out")
    return place


def is_exocortex(file: Path) -> bool:
    """Whether `build` made this file."""
    with file.open("rb") as stream:
        header = stream.read(72)
    return header.startswith(b"SQLite format 3") and header[68:] == APPLICATION_ID.to_bytes(4)


@contextlib.contextmanager
def _beside(place: Path) -> Iterator[Path]:
    """A file to write, which takes its place when all went well and is gone when not."""
    for left in place.parent.glob(f"{glob.escape(place.name)}.*.part"):
        if time.time() - left.stat().st_mtime > STALE:
            left.unlink(missing_ok=True)
    part = place.with_name(f"{place.name}.{uuid.uuid4().hex[:8]}.part")
    try:
        yield part
        with part.open("rb") as stream:
            os.fsync(stream.fileno())
        part.replace(place)
    finally:
        part.unlink(missing_ok=True)
