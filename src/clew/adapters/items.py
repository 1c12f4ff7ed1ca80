"""Items of a LangGraph store as records, and back."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping, Sequence
from typing import Any

from langgraph.store.base import PutOp, get_text_at_path, tokenize_path

from clew.adapters.places import key_of, labels_of, namespace_of
from clew.errors import InputError
from clew.ingest.chunk import chunk
from clew.memory import Recalled
from clew.memory.record import public_id
from clew.types import Chunk, Document, Entry, Record

__all__ = ["check_fields", "entry_of", "fields_of"]


def entry_of(id: str, path: str, op: PutOp, *, fields: Sequence[str], size: int) -> Entry:
    """The record that `op` puts; `fields` are indexed where it does not say which. What is not to
    be found by a query has a text, as every memory has, but no passage."""
    value = _check_value(op)
    paths = fields if op.index is None else check_fields(op.index or ())
    texts = [
        text
        for path in paths
        for text in get_text_at_path(value, path if path == "$" else tokenize_path(path))
        if text.strip()
    ]
    content, chunks = _passages(texts, size=size)
    record = Record(
        id=id,
        path=path,
        collection=namespace_of(op.namespace),
        type="semantic",
        content=content or json.dumps(value, sort_keys=True, ensure_ascii=False),
        metadata=value,
    )
    return Entry(record, chunks)


def fields_of(record: Record | Recalled) -> dict[str, Any]:
    """What an Item is made of."""
    own = record.id if isinstance(record, Recalled) else public_id(record.id, record.collection)
    return {
        "namespace": labels_of(own.rpartition("/")[0]),
        "key": key_of(own),
        "value": dict(record.metadata),
        "created_at": dt.datetime.fromtimestamp(record.created_at or 0, dt.UTC),
        "updated_at": dt.datetime.fromtimestamp(record.updated_at or 0, dt.UTC),
    }


def _passages(texts: Sequence[str], *, size: int) -> tuple[str, tuple[Chunk, ...]]:
    """The texts as one, each a passage of its own (several, where it is long)."""
    chunks: list[Chunk] = []
    at, line = 0, 1
    for text in dict.fromkeys(texts):
        parts: Sequence[Chunk] = (Chunk(0, len(text), (1, text.count("\n") + 1)),)
        if len(text) > size:
            parts = chunk(Document(text, "text"), size=size)
        for part in parts:
            first, last = part.lines
            chunks.append(
                Chunk(at + part.start, at + part.end, (line + first - 1, line + last - 1))
            )
        at, line = at + len(text) + 2, line + text.count("\n") + 2
    return "\n\n".join(dict.fromkeys(texts)), tuple(chunks)


def check_fields(given: Any) -> list[str]:
    if isinstance(given, str) or not all(isinstance(path, str) for path in given):
        raise InputError(f"fields to index are a list of paths such as 'text', not {given!r:.100}")
    return list(given)


def _check_value(op: PutOp) -> dict[str, Any]:
    """Only what comes back as it was given: JSON, with text as keys throughout."""
    if not isinstance(op.value, Mapping):
        raise InputError(f"the value of {op.key!r} must be a mapping, not {op.value!r:.100}")
    value = dict(op.value)
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InputError(f"the value of {op.key!r} is not JSON: {error}") from error
    if not _keys_are_text(value):
        raise InputError(f"the value of {op.key!r} has a key that is no text: JSON has none such")
    return value


def _keys_are_text(value: Any) -> bool:
    if isinstance(value, dict):
        return all(isinstance(key, str) and _keys_are_text(each) for key, each in value.items())
    return not isinstance(value, (list, tuple)) or all(map(_keys_are_text, value))
