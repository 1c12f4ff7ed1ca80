"""A record that a caller gives, made ready for the store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from clew.errors import InputError, nearest
from clew.types import Chunk, Document, Entry, Record, Vectors

__all__ = ["entry"]


def entry(
    record: Record | Mapping[str, Any], vector: Vectors | None = None, *, chunk_size: int
) -> Entry:
    """The record with its passages. With a `vector` (a table of one row) it is one passage."""
    if not isinstance(record, Record):
        record = _record(record)
    for name in ("id", "content"):
        if not getattr(record, name).strip():
            raise InputError(f"record {record.id!r}: {name} must not be empty")
    if vector is None and len(record.content) > chunk_size:
        from clew.ingest.chunk import chunk

        kind = "markdown" if record.type == "markdown" else "text"
        document = Document(record.content, kind, title=record.title)
        return Entry(record, chunk(document, size=chunk_size))
    whole = Chunk(0, len(record.content), (1, record.content.count("\n") + 1))
    return Entry(record, (whole,), vectors=vector)


def _record(given: Mapping[str, Any]) -> Record:
    if not isinstance(given, Mapping):
        raise InputError(f"a record is a Record or a mapping of its fields, not {given!r:.100}")
    known = [field.name for field in fields(Record)]
    for name in given:
        if name not in known:
            raise InputError(f"unknown record field {name!r}: {nearest(str(name), known)}")
    for name in ("id", "content"):
        if name not in given:
            raise InputError(f"a record needs {name!r}: {dict(given)!r:.100} has none")
    return Record(**given)
