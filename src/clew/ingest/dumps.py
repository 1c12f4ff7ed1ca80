"""Dumps of Wikipedia abstracts, read as a stream: XML or JSON lines, plain, gzip or bzip2.

    <feed><doc><title>Wikipedia: Keel</title><url>…</url><abstract>…</abstract>…</doc>…</feed>
    {"title": "Keel", "abstract": "…", "url": "…"}

In hand at any time are a piece of the file and the articles in it, whatever its size.
"""

from __future__ import annotations

import bz2
import contextlib
import gzip
import io
import json
import re
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, cast
from xml.parsers import expat

from clew.errors import InputError

__all__ = ["Article", "articles"]

MOUTHFUL = 1 << 20
LONGEST_PIECE = 16 << 20
"""Bytes of a line of JSON, which is skipped when longer, or of a tag, which ends the reading."""
LONGEST_ABSTRACT = 10_000
"""Characters. A whole article is cut here: its beginning says what it is about."""
DEEPEST = 64
"""Levels of XML; a dump has four."""
TITLE = ("title", "name", "page_title")
ABSTRACT = ("abstract", "extract", "summary", "opening_text", "text", "description")
URL = ("url", "link", "uri")
"""What the fields are called in dumps of JSON lines; the first that has words counts."""

_SITE = re.compile(
    r"\A\s*\S*(?:wiki|вики|вікі|ويكي|위키|ウィキ|维基|維基|विकि|ויקי)\S*?\s*[:：]\s*",
    re.IGNORECASE,
)
"""The site's name, which an XML dump puts before every title."""

Stream = io.BufferedReader | gzip.GzipFile | bz2.BZ2File
Complain = Callable[[int, str], None]
"""Told (line, what is wrong) of everything that is skipped."""


class Article(NamedTuple):
    title: str
    abstract: str
    url: str


class _Place:
    """How far reading has come."""

    def __init__(self, dump: str):
        self.name = "standard input" if dump == "-" else dump
        self.line = 0

    def error(self, what: str) -> InputError:
        return InputError(f"{self.name}:{self.line}: {what}")


def articles(dump: str, complain: Complain) -> Iterator[Article]:
    """The articles of a dump in its order; `-` is standard input.

    An InputError names the place where it is cut short, damaged, or no such dump at all.
    """
    place = _Place(dump)
    try:
        with _unpacked(dump) as stream:
            start = stream.peek(64).lstrip(b"\xef\xbb\xbf \t\r\n")
            if start.startswith((b"<", b"\xff\xfe", b"\xfe\xff")):
                yield from _from_xml(stream, place, complain)
            elif start.startswith(b"{"):
                yield from _from_lines(stream, place, complain)
            else:
                raise InputError(f"{place.name} {_no_dump(start)}")
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise place.error(_DAMAGED) from error
    except OSError as error:
        if error.errno is None:  # bz2 has no error of its own for what it cannot unpack
            raise place.error(_DAMAGED) from error
        raise InputError(f"{place.name} cannot be read: {error.strerror}") from error


_DAMAGED = "the compressed dump is cut short or damaged after this line: fetch it again"


@contextlib.contextmanager
def _unpacked(dump: str) -> Iterator[Stream]:
    """The dump's bytes. Its first ones say how it is packed, since a pipe has no name."""
    given = contextlib.nullcontext(cast("io.BufferedReader", sys.stdin.buffer))
    with Path(dump).open("rb") if dump != "-" else given as raw:
        start = raw.peek(3)[:3]
        if start.startswith(b"\x1f\x8b"):
            with gzip.GzipFile(fileobj=raw, mode="rb") as unzipped:
                yield unzipped
        elif start == b"BZh":
            with bz2.BZ2File(raw) as unpacked:
                yield unpacked
        else:
            yield raw


def _no_dump(start: bytes) -> str:
    if not start:
        return "is empty: give a dump of Wikipedia abstracts"
    if start.startswith(b"["):
        return "is one JSON array: write one object per line instead (jq -c '.[]' does)"
    return "is neither XML nor JSON lines: give a dump of Wikipedia abstracts"


# ---------------------------------------------------------------- JSON lines


def _from_lines(stream: Stream, place: _Place, complain: Complain) -> Iterator[Article]:
    while line := stream.readline(LONGEST_PIECE):
        place.line += 1
        if len(line) == LONGEST_PIECE and not line.endswith(b"\n"):
            while (line := stream.readline(MOUTHFUL)) and not line.endswith(b"\n"):
                pass
            complain(place.line, f"a line of more than {LONGEST_PIECE >> 20} MB")
        elif line.strip():
            try:
                row = json.loads(line.decode("utf-8-sig"))
            except (ValueError, RecursionError) as error:
                complain(place.line, f"not JSON: {error}")
                continue
            if not isinstance(row, dict):
                complain(place.line, "not a JSON object")
            elif row.keys() != {"index"}:  # the other half of the lines of a CirrusSearch dump
                yield from _whole(
                    _field(row, TITLE), _field(row, ABSTRACT), _field(row, URL), place, complain
                )


def _field(row: Mapping[str, Any], names: tuple[str, ...]) -> str:
    values = (row.get(name) for name in names)
    return next((value for value in values if isinstance(value, str) and value.strip()), "")


def _whole(
    title: str, abstract: str, url: str, place: _Place, complain: Complain
) -> Iterator[Article]:
    """The article, if it has a title and an abstract."""
    article = Article(_clean(title), _clean(abstract[:LONGEST_ABSTRACT]), _clean(url))
    if article.title and article.abstract:
        yield article
    else:
        complain(place.line, "no abstract" if article.title else "no title")


def _clean(text: str) -> str:
    text = " ".join(text.replace("\0", " ").split())
    # half a surrogate pair, which JSON can write, is no character that could be stored
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


# ---------------------------------------------------------------- XML


def _from_xml(stream: Stream, place: _Place, complain: Complain) -> Iterator[Article]:
    docs = _Docs(place)
    try:
        while data := stream.read(MOUTHFUL):
            docs.feed(data)
            for line, fields in docs.taken():
                place.line = line
                title = _SITE.sub("", fields.get("title", ""))
                abstract, url = fields.get("abstract", ""), fields.get("url", "")
                yield from _whole(title, abstract, url, place, complain)
            place.line = docs.line
        docs.feed(b"", last=True)
    except expat.ExpatError as error:
        place.line = error.lineno
        reason = expat.ErrorString(error.code)
        raise place.error(f"not well-formed XML ({reason}): fetch the dump again") from error


class _Docs:
    """The <doc> elements, taken from the parser's events: no tree of them is ever built."""

    def __init__(self, place: _Place):
        self._place = place
        self._depth = 0
        self._fed = 0
        self._fields: dict[str, str] | None = None
        self._pieces: list[str] | None = None
        self._room = 0
        self._done: list[tuple[int, dict[str, str]]] = []
        self._parser = expat.ParserCreate()
        self._parser.buffer_text = True
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.EntityDeclHandler = self._entity

    @property
    def line(self) -> int:
        return self._parser.CurrentLineNumber

    def feed(self, data: bytes, *, last: bool = False) -> None:
        self._parser.Parse(data, last)
        self._fed += len(data)
        if self._fed - self._parser.CurrentByteIndex > LONGEST_PIECE:
            raise self._wrong(f"a tag of more than {LONGEST_PIECE >> 20} MB: this is no such dump")

    def taken(self) -> list[tuple[int, dict[str, str]]]:
        """(line, fields) of those that are complete."""
        done, self._done = self._done, []
        return done

    def _start(self, tag: str, _: Mapping[str, str]) -> None:
        self._depth += 1
        if self._depth > DEEPEST:
            raise self._wrong("elements within elements without end: this is no such dump")
        if self._depth == 2 and tag == "doc":
            self._fields = {}
        elif self._depth == 3 and self._fields is not None and tag in _TAGS:
            self._pieces, self._room = [], LONGEST_ABSTRACT
            self._parser.CharacterDataHandler = self._characters  # not for what nobody wants

    def _characters(self, text: str) -> None:
        if self._pieces is not None and self._room > 0:
            self._pieces.append(text[: self._room])
            self._room -= len(text)

    def _end(self, tag: str) -> None:
        if self._depth == 3 and self._fields is not None and self._pieces is not None:
            self._fields[tag] = "".join(self._pieces)
            self._pieces = self._parser.CharacterDataHandler = None
        elif self._depth == 2 and self._fields is not None:
            self._done.append((self.line, self._fields))
            self._fields = None
        self._depth -= 1

    def _entity(self, *_: object) -> None:
        raise self._wrong(
            "it declares entities, which no dump needs and which can grow without end"
        )

    def _wrong(self, what: str) -> InputError:
        self._place.line = self.line
        return self._place.error(what)


_TAGS = frozenset({"title", "url", "abstract"})
