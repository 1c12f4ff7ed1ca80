"""Plain text and reStructuredText, and what every reader needs: characters, titles, tags, links."""

from __future__ import annotations

import codecs
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import unquote

from clew.errors import InputError
from clew.types import Document

Span = tuple[int, int, str]
"""Where something stands, and the words of it that are text."""

# A text file has no NUL; whatever is binary has one early.
_LOOK_FOR_NUL = 8192

_MARKS: tuple[tuple[bytes, str], ...] = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # before UTF-16, whose mark it begins with
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
# Bytes that no Windows-1252 text is likely to have: five undefined ones, and ý þ ÿ.
_NOT_WESTERN = re.compile(rb"[\x81\x8d\x8f\x90\x9d\xfd-\xff]")
# JSON escapes and damaged PDFs bring in halves of characters, which no store can keep.
_UNFIT = re.compile("[\x00\ud800-\udfff]")
_BETWEEN_TAGS = re.compile(r"[,;|]")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:|//")


def read_text(data: bytes, path: str) -> Document:
    text, warnings = decode(data)
    return Document(text=text, kind="text", title=title_from(path), warnings=warnings)


def decode(data: bytes, *, declared: str | None = None) -> tuple[str, tuple[str, ...]]:
    """The characters of a text file, with \\n as its only line end, and what had to be guessed.

    `declared` is the encoding that the file names itself; it counts where the bytes are not UTF-8.
    """
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            return _decode_replacing(data[len(mark) :], encoding)
    if b"\0" in data[:_LOOK_FOR_NUL]:
        raise InputError("looks binary: there is a NUL byte near its start")
    try:
        return _unify_lines(data.decode("utf-8")), ()
    except UnicodeDecodeError:
        pass
    if declared and _is_encoding(declared):
        return _decode_replacing(data, declared)
    # Not one of its high bytes is UTF-8, and all of them are letters or signs of Windows-1252.
    if data.decode("utf-8", "ignore").isascii() and not _NOT_WESTERN.search(data):
        return _unify_lines(data.decode("cp1252")), ("not UTF-8: read as Windows-1252",)
    return _decode_replacing(data, "utf-8")


def _decode_replacing(data: bytes, encoding: str) -> tuple[str, tuple[str, ...]]:
    try:
        return _unify_lines(data.decode(encoding)), ()
    except UnicodeDecodeError:
        kept = data.decode(encoding, "ignore").encode(encoding, "ignore")
        bad = max(1, len(data) - len(kept))
    warning = f"not valid {encoding.upper()}: {bad} {'byte' if bad == 1 else 'bytes'} replaced"
    return _unify_lines(data.decode(encoding, "replace")), (warning,)


def _is_encoding(name: str) -> bool:
    try:
        # Only those that make text of bytes: rot13 and the like are codecs as well.
        return isinstance(b" ".decode(name), str)
    except (LookupError, ValueError):
        return False


def _unify_lines(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n").replace("\0", "")


def title_from(path: str) -> str:
    """A file's name as a person would write it: `q3-budget_review.md` → `Q3 budget review`."""
    stem = PurePosixPath(path).stem.strip(".")
    # A hyphen between figures stays: 2026-03-14 is a date.
    words = re.sub(r"[\s_]+|(?<!\d)-+|-+(?!\d)", " ", stem).strip()
    if not words:
        return PurePosixPath(path).name
    return words[0].upper() + words[1:] if words.islower() else words


def line_starts(text: str) -> list[int]:
    return [0, *(found.end() for found in re.finditer("\n", text))]


def cut_spans(text: str, spans: Iterable[Span]) -> str:
    """The text less these spans (in order, and apart from each other), on the same lines."""
    parts: list[str] = []
    at = 0
    for start, end, words in spans:
        parts += (text[at:start], words, "\n" * text.count("\n", start, end))
        at = end
    return "".join((*parts, text[at:])) if at else text


def whole(value: Any) -> Any:
    """The value with every half character replaced by one that says so; lengths stay the same."""
    if isinstance(value, str):
        return _UNFIT.sub("\ufffd", value) if _UNFIT.search(value) else value
    if isinstance(value, Mapping):
        return {whole(key): whole(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        make = getattr(value, "_make", type(value))  # that of a Document or a TableRow
        return make(whole(inner) for inner in value)
    return value


def unique(values: Iterable[str]) -> tuple[str, ...]:
    """Values in the order of their first appearance, without repeats and empty ones."""
    return tuple(dict.fromkeys(value for value in values if value))


def fold_tags(given: object) -> tuple[str, ...]:
    """Tags as they are compared, from a list, or from a string with commas (; |) or spaces."""
    if isinstance(given, str):
        given = _BETWEEN_TAGS.split(given) if _BETWEEN_TAGS.search(given) else given.split()
    if not isinstance(given, (list, tuple, set)):
        given = [given]
    words = (str(tag) for tag in given if isinstance(tag, (str, int, float)))
    return unique(
        unicodedata.normalize("NFC", word.strip().lstrip("#").casefold()) for word in words
    )


def local_target(link: str) -> str | None:
    """The file that a link leads to, without its #section; None when it leads out or nowhere."""
    link = link.strip()
    if _SCHEME.match(link):
        return None
    return unquote(link.partition("#")[0].partition("?")[0]).strip() or None


# ---------------------------------------------------------------- reStructuredText

_ADORNMENT = re.compile(r"([!-/:-@\[-`{-~])\1{2,}[ \t]*$")
_RST_TAGS = re.compile(
    r"^:(?:tags|keywords):[ \t]*(.+)$|^\.\. tags::[ \t]*(.+)$", re.MULTILINE | re.I
)
# `.. ` and neither a directive nor a target, with all that is indented below it.
_RST_COMMENT = re.compile(
    r"^\.\.(?:[ \t]+(?![_|\[]|[\w.:+-]+::).*|(?=\n[ \t]+\S))(?:\n(?:[ \t]+.*)?)*", re.MULTILINE
)
_RST_LINKS = re.compile(
    r":doc:`(?:[^`<>\n]*<([^`<>\n]+)>|([^`<>\n]+))`"
    r"|`[^`<>\n]*<([^`<>\n]+)>`__?"
    r"|^\.\. (?:include|literalinclude)::[ \t]*(\S+)",
    re.MULTILINE,
)


def read_rst(data: bytes, path: str) -> Document:
    """Headings by their adornment, tags from a field list, links to documents."""
    text, warnings = decode(data)
    text = cut_spans(text, ((*found.span(), "") for found in _RST_COMMENT.finditer(text)))
    headings = tuple(_find_headings(text))
    tags = (found[1] or found[2] for found in _RST_TAGS.finditer(text))
    links = (next(filter(None, found.groups())) for found in _RST_LINKS.finditer(text))
    return Document(
        text=text,
        kind="rst",
        title=headings[0][2] if headings else title_from(path),
        tags=unique(tag for given in tags for tag in fold_tags(given)),
        links=unique(local_target(link) or "" for link in links),
        headings=headings,
        warnings=warnings,
    )


def _find_headings(text: str) -> Iterator[tuple[int, int, str]]:
    """A style of adornment is of the level at which it first appears."""
    lines, starts = text.split("\n"), line_starts(text)
    styles: list[tuple[str, bool]] = []
    for i in range(len(lines) - 1):
        words, under = lines[i].strip(), _ADORNMENT.match(lines[i + 1])
        if not under or not words or _ADORNMENT.match(lines[i]):
            continue
        over = _ADORNMENT.match(lines[i - 1]) if i else None
        overlined = over is not None and over[1] == under[1]
        alone = (i == 0 or not lines[i - 1].strip()) and not lines[i][0].isspace()
        # An underline shorter than its title is a dash in prose, or a mistake.
        if (overlined or alone) and len(lines[i + 1].rstrip()) >= len(words):
            style = (under[1], overlined)
            if style not in styles:
                styles.append(style)
            yield starts[i - 1 if overlined else i], styles.index(style) + 1, words
