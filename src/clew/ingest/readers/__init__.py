"""One reader per kind of file, chosen by the file's name."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import PurePosixPath
from typing import cast

from clew.errors import ClewError, InputError
from clew.ingest.readers.code import LANGUAGES, NAMES
from clew.ingest.readers.text import whole
from clew.protocols import Reader
from clew.types import Document

__all__ = ["VERSION", "is_table", "kind_of", "known_suffixes", "read", "reader_for"]

VERSION = 3
"""Of what readers make of a file. A store that was filled by another one reads its files anew."""

# suffix → module:function. A module is imported when the first file of its kind is read.
_READERS: Mapping[str, str] = {
    **dict.fromkeys(LANGUAGES, "code:read"),
    **dict.fromkeys((".txt", ".text", ".log", ".org", ".adoc", ".asciidoc", ".tex"), "text:read"),
    **dict.fromkeys((".md", ".markdown", ".mdx"), "markdown:read"),
    ".rst": "rst:read",
    **dict.fromkeys((".html", ".htm", ".xhtml"), "html:read"),
    ".csv": "tables:read_csv",
    ".tsv": "tables:read_tsv",
    **dict.fromkeys((".jsonl", ".ndjson"), "tables:read_jsonl"),
    ".pdf": "documents:read_pdf",
    ".docx": "documents:read_docx",
    ".pptx": "documents:read_pptx",
    ".xlsx": "documents:read_xlsx",
}

_TABLES = frozenset({".csv", ".tsv", ".jsonl", ".ndjson", ".xlsx"})


def known_suffixes() -> frozenset[str]:
    """The endings that have a reader, with their dot. Files without one can be read as well."""
    return frozenset(_READERS)


def kind_of(suffix: str) -> str | None:
    """The type that records of files with this ending have; None where nothing reads them."""
    if suffix in _TABLES:
        return "table"
    module = _READERS.get(suffix, "").partition(":")[0]
    return {"documents": "document"}.get(module, module) or None


def is_table(path: str) -> bool:
    """Whether a file of this name has rows."""
    return PurePosixPath(path).suffix.lower() in _TABLES


def reader_for(path: str) -> Reader | None:
    """What reads a file of this name; None when nothing does."""
    name = PurePosixPath(path).name
    suffix = PurePosixPath(path).suffix.lower()
    if name in NAMES:
        return _load("code:read")
    if suffix:
        return _load(_READERS[suffix]) if suffix in _READERS else None
    # README, LICENSE, a note without an ending. Not .env and its like: they hold settings and keys.
    return None if name.startswith(".") else _load("text:read")


def read(data: bytes, path: str) -> Document:
    """The document in a file's bytes. Whatever is wrong with them is an InputError."""
    reader = reader_for(path)
    if reader is None:
        raise InputError(f"no reader for {PurePosixPath(path).suffix or path!r} files")
    try:
        return _fit(reader(data, path))
    except (ClewError, MemoryError):
        raise
    except Exception as error:  # parsers of damaged files raise whatever they stumble over
        raise InputError(f"cannot read {path}: {str(error) or type(error).__name__}") from error


@cache
def _load(name: str) -> Reader:
    module, _, function = name.partition(":")
    return cast(Reader, getattr(importlib.import_module(f"{__name__}.{module}"), function))


def _fit(document: Document) -> Document:
    return replace(
        document,
        text=whole(document.text),
        title=whole(document.title),
        tags=whole(document.tags),
        links=whole(document.links),
        metadata=whole(document.metadata),
        headings=whole(document.headings),
        rows=tuple(
            replace(
                row,
                key=whole(row.key),
                text=whole(row.text),
                title=whole(row.title),
                tags=whole(row.tags),
                metadata=whole(row.metadata),
            )
            for row in document.rows
        ),
        warnings=whole(document.warnings),
    )
