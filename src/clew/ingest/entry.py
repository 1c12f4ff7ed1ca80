"""A record that a caller gives, made ready for the store."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clew.errors import InputError
from clew.types import Chunk, Document, Entry, Record, Vectors

__all__ = ["entry"]


def entry(
    record: Record | Mapping[str, Any], vector: Vectors | None = None, *, chunk_size: int
) -> Entry:
    """The record with its passages. With a `vector` (a table of one row) it is one passage."""
    if not isinstance(record, Record):
        try:
            record = Record(**record)
        except TypeError as error:
            raise InputError(f"not a record: {error}") from None
    if not record.id or not record.content.strip():
        raise InputError(f"record {record.id!r}: id and content must not be empty")
    if vector is None and len(record.content) > chunk_size:
        from clew.ingest.chunk import chunk

        kind = "markdown" if record.type == "markdown" else "text"
        document = Document(record.content, kind, title=record.title)
        return Entry(record, chunk(document, size=chunk_size))
    whole = Chunk(0, len(record.content), (1, record.content.count("\n") + 1))
    return Entry(record, (whole,), vectors=vector)
