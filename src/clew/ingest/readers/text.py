"""Plain text, and what every other reader needs: characters, titles, tags and links."""

from __future__ import annotations

import codecs
import re
import unicodedata
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import unquote

from clew.errors import InputError
from clew.types import Document

__all__ = [
    "decode",
    "folded_tags",
    "line_starts",
    "local_target",
    "read",
    "title_from",
    "unique",
    "whole",
]

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
_HIGH = re.compile(rb"[\x80-\xff]")
# JSON escapes and damaged PDFs bring in halves of characters, which no store can keep.
_UNFIT = re.compile("[\x00\ud800-\udfff]")
_BETWEEN_TAGS = re.compile(r"[,;|]")


def read(data: bytes, path: str) -> Document:
    text, warnings = decode(data)
    return Document(text=text, kind="text", title=title_from(path), warnings=warnings)


def decode(data: bytes, *, declared: str | None = None) -> tuple[str, tuple[str, ...]]:
    """The characters of a text file, with \\n as its only line end, and what had to be guessed.

    `declared` is the encoding that the file names itself; it counts where the bytes are not UTF-8.
    """
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            return _replacing(data[len(mark) :], encoding)
    if b"\0" in data[:_LOOK_FOR_NUL]:
        raise InputError("looks binary: there is a NUL byte near its start")
    try:
        return _plain(data.decode("utf-8")), ()
    except UnicodeDecodeError:
        pass
    if declared and _is_known(declared):
        return _replacing(data, declared)
    readable = data.decode("utf-8", "ignore").encode()
    # Not one of its high bytes is UTF-8, and all of them are letters or signs of Windows-1252.
    if not _HIGH.search(readable) and not _NOT_WESTERN.search(data):
        return _plain(data.decode("cp1252")), ("not UTF-8: read as Windows-1252",)
    return _replacing(data, "utf-8", bad=len(data) - len(readable))


def _replacing(data: bytes, encoding: str, *, bad: int = 0) -> tuple[str, tuple[str, ...]]:
    text = data.decode(encoding, "replace")
    if not bad:
        try:
            data.decode(encoding)
        except UnicodeDecodeError:
            kept = data.decode(encoding, "ignore").encode(encoding, "ignore")
            bad = max(1, len(data) - len(kept))
    warning = f"not valid {encoding.upper()}: {bad} {'byte' if bad == 1 else 'bytes'} replaced"
    return _plain(text), (warning,) if bad else ()


def _is_known(encoding: str) -> bool:
    try:
        # Only those that make text of bytes: rot13 and the like are codecs as well.
        return isinstance(b" ".decode(encoding), str)
    except (LookupError, ValueError):
        return False


def _plain(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n").replace("\0", "")


def title_from(path: str) -> str:
    """A file's name as a person would write it: `q3-budget_review.md` → `Q3 budget review`."""
    name = PurePosixPath(path).name
    stem = PurePosixPath(path).stem.strip(".")
    # A hyphen between figures stays: 2026-03-14 is a date.
    words = re.sub(r"[\s_]+|(?<!\d)-+|-+(?!\d)", " ", stem).strip()
    if not words:
        return name
    return words[0].upper() + words[1:] if words.islower() else words


def line_starts(text: str) -> list[int]:
    """The offset at which each line begins."""
    return [0, *(found.end() for found in re.finditer("\n", text))]


def whole(value: Any) -> Any:
    """The value with every half character replaced by one that says so; lengths stay the same."""
    if isinstance(value, str):
        return _UNFIT.sub("\ufffd", value) if _UNFIT.search(value) else value
    if isinstance(value, Mapping):
        return {whole(key): whole(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(whole(inner) for inner in value)
    return value


def unique(values: Iterable[str]) -> tuple[str, ...]:
    """In the order of their first appearance, without repeats and empty ones."""
    return tuple(dict.fromkeys(value for value in values if value))


def folded_tags(given: object) -> tuple[str, ...]:
    """Tags as they are compared, from a list, or from a string with commas (; |) or spaces."""
    if isinstance(given, str):
        given = _BETWEEN_TAGS.split(given) if _BETWEEN_TAGS.search(given) else given.split()
    if not isinstance(given, (list, tuple, set)):
        given = [given]
    words = (str(tag) for tag in given if isinstance(tag, (str, int, float)))
    return unique(
        unicodedata.normalize("NFC", word.strip().lstrip("#").casefold()) for word in words
    )


_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:|//")


def local_target(link: str) -> str | None:
    """The file that a link leads to, without its #section; None when it leads out or nowhere."""
    link = link.strip()
    if _SCHEME.match(link):
        return None
    return unquote(link.partition("#")[0].partition("?")[0]).strip() or None
