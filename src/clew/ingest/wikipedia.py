"""Dumps of Wikipedia abstracts, and the FTS5 file made of one that the exocortex source reads.

    <feed><doc><title>Wikipedia: Keel</title><url>…</url><abstract>…</abstract>…</doc>…</feed>
    {"title": "Keel", "abstract": "…", "url": "…"}

A dump (XML or JSON lines, plain, gzip or bzip2) is read as a stream: in hand at any time are a
piece of the file and the articles in it. The FTS5 file is written beside its place and moved there
when it is whole: a build that is interrupted leaves the old file as it was. One article per title;
where a title comes again, the last one counts.
"""

from __future__ import annotations

import bz2
import contextlib
import datetime as dt
import glob
import gzip
import io
import json
import re
import sqlite3
import sys
import time
import uuid
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, cast
from xml.parsers import expat

from clew.errors import InputError, StoreError
from clew.protocols import Progress, batched
from clew.text.analyser import pairs
from clew.trust import flush

BLOCK = 1 << 20
LONGEST_PIECE = 16 << 20
"""Bytes of a line of JSON, which is skipped when longer, or of a tag, which ends the reading."""
LONGEST_ABSTRACT = 10_000
"""Characters. A whole article is cut here: its beginning says what it is about."""
DEEPEST = 64
"""Levels of XML; a dump has four."""

Stream = io.BufferedReader | gzip.GzipFile | bz2.BZ2File
Article = tuple[str, str, str]
"""Title, abstract, address."""

_JSON_FIELDS = (
    ("title", "name", "page_title"),
    ("abstract", "extract", "summary", "opening_text", "text", "description"),
    ("url", "link", "uri"),
)
"""What an article's fields are called in JSON lines; the first that has words counts."""
_XML_FIELDS = ("title", "abstract", "url")
_SITE = re.compile(
    r"\A\s*\S*(?:wiki|вики|вікі|ويكي|위키|ウィキ|维基|維基|विकि|ויקי)\S*?\s*[:：]\s*",
    re.IGNORECASE,
)
"""The site's name, which an XML dump puts before every title."""
_DAMAGED = "the compressed dump is cut short or damaged after this line: fetch it again"


class _Dump:
    """Articles of a dump in its order; an InputError names the place where it is cut short, damaged
    or no such dump at all. What is skipped is counted."""

    def __init__(self, dump: str, report: ExocortexReport):
        self._dump, self._report = dump, report
        self.name = "standard input" if dump == "-" else dump
        self.line = 0

    def articles(self) -> Iterator[Article]:
        try:
            with contextlib.ExitStack() as opened:
                stream: Stream = cast("io.BufferedReader", sys.stdin.buffer)
                if self._dump != "-":
                    stream = opened.enter_context(Path(self._dump).open("rb"))
                # Its first bytes say how it is packed, since a pipe has no name.
                packing = stream.peek(3)[:3]
                if packing.startswith(b"\x1f\x8b"):
                    stream = opened.enter_context(gzip.GzipFile(fileobj=stream, mode="rb"))
                elif packing == b"BZh":
                    stream = opened.enter_context(bz2.BZ2File(stream))
                start = stream.peek(64).lstrip(b"\xef\xbb\xbf \t\r\n")
                if start.startswith((b"<", b"\xff\xfe", b"\xfe\xff")):
                    yield from self._from_xml(stream)
                elif start.startswith(b"{"):
                    yield from self._from_lines(stream)
                else:
                    raise InputError(f"{self.name} {_why_no_dump(start)}")
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise self._error(_DAMAGED) from error
        except OSError as error:
            if error.errno is None:  # bz2 has no error of its own for what it cannot unpack
                raise self._error(_DAMAGED) from error
            raise InputError(f"{self.name} cannot be read: {error.strerror}") from error

    def _error(self, what: str) -> InputError:
        return InputError(f"{self.name}:{self.line}: {what}")

    def _skip(self, what: str) -> None:
        self._report.skipped += 1
        if len(self._report.examples) < EXAMPLES:
            self._report.examples.append(f"{self.name}:{self.line}: {what:.200}")

    def _checked(self, title: str, abstract: str, url: str) -> Iterator[Article]:
        """The article, if it has a title and an abstract."""
        title, abstract = _clean(title), _clean(abstract[:LONGEST_ABSTRACT])
        if title and abstract:
            yield title, abstract, _clean(url)
        else:
            self._skip("no abstract" if title else "no title")

    def _from_lines(self, stream: Stream) -> Iterator[Article]:
        while line := stream.readline(LONGEST_PIECE):
            self.line += 1
            if len(line) == LONGEST_PIECE and not line.endswith(b"\n"):
                while (line := stream.readline(BLOCK)) and not line.endswith(b"\n"):
                    pass
                self._skip(f"a line of more than {LONGEST_PIECE >> 20} MB")
            elif line.strip():
                try:
                    row = json.loads(line.decode("utf-8-sig"))
                except (ValueError, RecursionError) as error:
                    self._skip(f"not JSON: {error}")
                    continue
                if not isinstance(row, dict):
                    self._skip("not a JSON object")
                elif row.keys() != {"index"}:  # the other half of the lines of a CirrusSearch dump
                    yield from self._checked(*(_first_words(row, names) for names in _JSON_FIELDS))

    def _from_xml(self, stream: Stream) -> Iterator[Article]:
        """The <doc> elements, taken from the parser's events: no tree of them is ever built."""
        parser = expat.ParserCreate()
        parser.buffer_text = True
        path: list[str] = []
        fields: dict[str, str] = {}
        done: list[tuple[int, dict[str, str]]] = []

        def refuse(what: str) -> InputError:
            self.line = parser.CurrentLineNumber
            return self._error(what)

        def start(tag: str, _: Mapping[str, str]) -> None:
            path.append(tag)
            if len(path) > DEEPEST:
                raise refuse("elements within elements without end: this is no such dump")
            if len(path) == 3 and path[1] == "doc" and tag in _XML_FIELDS:
                fields[tag] = ""
                parser.CharacterDataHandler = characters  # not for what nobody wants

        def characters(text: str) -> None:
            fields[path[2]] += text[: LONGEST_ABSTRACT - len(fields[path[2]])]

        def end(tag: str) -> None:
            if len(path) == 3:
                parser.CharacterDataHandler = None
            elif path[1:] == ["doc"]:
                done.append((parser.CurrentLineNumber, dict(fields)))
                fields.clear()
            path.pop()

        def entity(*_: object) -> None:
            raise refuse("it declares entities, which no dump needs and which can grow without end")

        parser.StartElementHandler = start
        parser.EndElementHandler = end
        parser.EntityDeclHandler = entity
        read = 0
        try:
            while data := stream.read(BLOCK):
                parser.Parse(data, False)
                read += len(data)
                if read - parser.CurrentByteIndex > LONGEST_PIECE:
                    most = LONGEST_PIECE >> 20
                    raise refuse(f"a tag of more than {most} MB: this is no such dump")
                for line, found in done:
                    self.line = line
                    title, abstract, url = (found.get(name, "") for name in _XML_FIELDS)
                    yield from self._checked(_SITE.sub("", title), abstract, url)
                done.clear()
                self.line = parser.CurrentLineNumber
            parser.Parse(b"", True)
        except expat.ExpatError as error:
            self.line = error.lineno
            reason = expat.ErrorString(error.code)
            raise self._error(f"not well-formed XML ({reason}): fetch the dump again") from error


def _why_no_dump(start: bytes) -> str:
    if not start:
        return "is empty: give a dump of Wikipedia abstracts"
    if start.startswith(b"["):
        return "is one JSON array: write one object per line instead (jq -c '.[]' does)"
    return "is neither XML nor JSON lines: give a dump of Wikipedia abstracts"


def _first_words(row: Mapping[str, Any], names: tuple[str, ...]) -> str:
    values = (row.get(name) for name in names)
    return next((value for value in values if isinstance(value, str) and value.strip()), "")


def _clean(text: str) -> str:
    text = " ".join(text.replace("\0", " ").split())
    # half a surrogate pair, which JSON can write, is no character that could be stored
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


# ---------------------------------------------------------------- the exocortex

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
class ExocortexReport:
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


def build_exocortex(dump: str, out: Path, *, progress: Progress | None = None) -> ExocortexReport:
    """Make `out` from the dump (`-` is standard input), or leave it as it was and say why."""
    begun = time.perf_counter()
    report = ExocortexReport(str(out))
    with _beside(_check_place(out)) as part:
        try:
            with contextlib.closing(sqlite3.connect(part, isolation_level=None)) as db:
                db.executescript(SCHEMA)
                _load(db, dump, report, progress)
                _index(db, report.articles, progress)
                _merge(db, progress)
        except sqlite3.Error as error:
            raise StoreError(
                f"{out} could not be written: {error}; make room, or choose another --out"
            ) from error
        report.bytes = part.stat().st_size
    report.seconds = round(time.perf_counter() - begun, 3)
    return report


def is_exocortex(file: Path) -> bool:
    with file.open("rb") as stream:
        header = stream.read(72)
    return header.startswith(b"SQLite format 3") and header[68:] == APPLICATION_ID.to_bytes(4)


def _load(
    db: sqlite3.Connection, dump: str, report: ExocortexReport, progress: Progress | None
) -> None:
    """All articles into the table, then those away whose title comes again."""
    source = _Dump(dump, report)
    count = 0
    db.execute("BEGIN")
    for batch in batched(source.articles(), BATCH):
        rows = ((*article, pairs(f"{article[0]}\n{article[1]}")) for article in batch)
        db.executemany("INSERT INTO articles VALUES (NULL, ?, ?, ?, ?)", rows)
        count += len(batch)
        if progress:
            progress("reading", count, 0)
    if not count:
        raise InputError(
            f"{source.name} has no article with a title and an abstract: give a dump of abstracts, "
            "such as enwiki-…-abstract.xml.gz"
        )
    report.replaced = db.execute(
        "DELETE FROM articles WHERE id IN (SELECT id FROM (SELECT id, "
        "lead(id) OVER (PARTITION BY title ORDER BY id) AS again FROM articles) "
        "WHERE again IS NOT NULL)"
    ).rowcount
    report.articles = count - report.replaced
    facts = {
        "articles": report.articles,
        "built": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "from": source.name if dump == "-" else Path(dump).name,
        "skipped": report.skipped,
    }
    db.executemany("INSERT INTO about VALUES (?, ?)", facts.items())
    db.execute("COMMIT")


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
    """Merge the index into one piece, which is asked faster than several."""
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


def _check_place(out: Path) -> Path:
    """Where the file goes. What is no exocortex is never overwritten."""
    place = out.expanduser().resolve()
    if not place.parent.is_dir():
        raise InputError(f"there is no folder {str(place.parent)!r}: make it, or change --out")
    ours = place.is_file() and (not place.stat().st_size or is_exocortex(place))
    if place.exists() and not ours:
        raise InputError(f"{out} is something else, which is not overwritten: change --out")
    return place


@contextlib.contextmanager
def _beside(place: Path) -> Iterator[Path]:
    """A file to write, which takes its place when all went well and is gone when not."""
    for left in place.parent.glob(f"{glob.escape(place.name)}.*.part"):
        if time.time() - left.stat().st_mtime > STALE:
            left.unlink(missing_ok=True)
    part = place.with_name(f"{place.name}.{uuid.uuid4().hex[:8]}.part")
    try:
        yield part
        flush(part)
        part.replace(place)
    finally:
        part.unlink(missing_ok=True)
