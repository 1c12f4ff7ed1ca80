"""One reader per kind of file, chosen by the file's name."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from functools import cache
from pathlib import PurePosixPath
from typing import cast

from clew.errors import ClewError, InputError
from clew.ingest.readers.code import LANGUAGES, NAMES
from clew.ingest.readers.text import whole
from clew.protocols import Reader
from clew.types import Document

VERSION = 3
"""Of what readers make of a file. A store that was filled by another one reads its files anew."""

_TEXTS = (".txt", ".text", ".log", ".org", ".adoc", ".asciidoc", ".tex")
# suffix → (kind, module:function). A module is imported when the first file of its kind is read.
_READERS: Mapping[str, tuple[str, str]] = {
    **dict.fromkeys(LANGUAGES, ("code", "code:read_code")),
    **dict.fromkeys(_TEXTS, ("text", "text:read_text")),
    **dict.fromkeys((".md", ".markdown", ".mdx"), ("markdown", "markdown:read_markdown")),
    ".rst": ("rst", "text:read_rst"),
    **dict.fromkeys((".html", ".htm", ".xhtml"), ("html", "html:read_html")),
    ".csv": ("table", "tables:read_csv"),
    ".tsv": ("table", "tables:read_tsv"),
    **dict.fromkeys((".jsonl", ".ndjson"), ("table", "tables:read_jsonl")),
    ".xlsx": ("table", "documents:read_xlsx"),
    ".pdf": ("document", "documents:read_pdf"),
    ".docx": ("document", "documents:read_docx"),
    ".pptx": ("document", "documents:read_pptx"),
}


def known_suffixes() -> frozenset[str]:
    """The endings that have a reader, with their dot. Files without one can be read as well."""
    return frozenset(_READERS)


def kind_of(suffix: str) -> str | None:
    """The type that records of files with this ending have; None where nothing reads them."""
    return _READERS[suffix][0] if suffix in _READERS else None


def is_table(path: str) -> bool:
    """Whether a file of this name has rows."""
    return kind_of(PurePosixPath(path).suffix.lower()) == "table"


def reader_for(path: str) -> Reader | None:
    """What reads a file of this name; None when nothing does."""
    name = PurePosixPath(path).name
    suffix = PurePosixPath(path).suffix.lower()
    if name in NAMES:
        return _load("code:read_code")
    if suffix:
        return _load(_READERS[suffix][1]) if suffix in _READERS else None
    # README, LICENSE, a note without an ending. Not .env and its like: they hold settings and keys.
    return None if name.startswith(".") else _load("text:read_text")


def read(data: bytes, path: str) -> Document:
    """The document in a file's bytes. Whatever is wrong with them is an InputError."""
    reader = reader_for(path)
    if reader is None:
        raise InputError(f"no reader for {PurePosixPath(path).suffix or path!r} files")
    try:
        return cast(Document, whole(reader(data, path)))
    except (ClewError, MemoryError):
        raise
    except Exception as error:  # parsers of damaged files raise whatever they stumble over
        raise InputError(f"cannot read {path}: {str(error) or type(error).__name__}") from error


@cache
def _load(name: str) -> Reader:
    module, _, function = name.partition(":")
    return cast(Reader, getattr(importlib.import_module(f"{__name__}.{module}"), function))
