"""What entries come to before they are rows: checked, digested, compared. No database in it, so
that every one writes the same."""

from __future__ import annotations

import contextlib
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from clew.errors import InputError
from clew.text.passage import digest, labels, passage, titles
from clew.types import Entry, Record, Vectors


@contextlib.contextmanager
def writable(entries: Sequence[Entry]) -> Iterator[None]:
    """What a database cannot take, in words that name the record."""
    try:
        yield
    except UnicodeEncodeError as error:
        raise InputError(_half_a_character(entries)) from error
    except OverflowError as error:
        raise InputError(f"a number is too large to be kept: {error}") from error


def possible(ids: Sequence[str]) -> Sequence[str]:
    """Those that a record can have: none has half a character in its id."""
    if any(not name.isascii() and _HALF.search(name) for name in ids):
        return [name for name in ids if not _HALF.search(name)]
    return ids


_HALF = re.compile("[\ud800-\udfff]")


Twins = dict[tuple[Any, ...], str]
"""Records in use, by what they say and when that is true."""


def twins_of(found: Iterable[tuple[Any, ...]]) -> Twins:
    """Of (collection, type, content, valid_from, valid_to, id). What is told without a time is the
    same as what has no end."""
    twins: Twins = {}
    for *said, since, until, name in found:
        twins[*said, since, until] = name
        if until is None:
            twins.setdefault((*said, None, None), name)
    return twins


def new_ones(
    entries: Sequence[Entry], taken: dict[str, Record], twins: Twins
) -> tuple[list[Entry], list[tuple[str, str]]]:
    """Those to be written, and per entry a status and the id under which its text is kept, given
    the records whose ids the entries have, and those that say the same as one of them."""
    fresh: list[Entry] = []
    kept: list[tuple[str, str]] = []
    for entry in entries:
        record = entry.record
        told = record.collection, record.type, record.content
        if (there := taken.get(record.id)) is not None:
            if (there.collection, there.type, there.content) != told:
                raise InputError(
                    f"the id {record.id!r} is taken by another text: leave the id out, or update "
                    "or supersede that one"
                )
            kept.append(("duplicate", record.id))
            continue
        said = (*told, record.valid_from, record.valid_to)
        if (twin := twins.get(said)) is not None:
            kept.append(("duplicate", twin))
        else:
            fresh.append(entry)
            taken[record.id] = record
            twins.update(twins_of([(*said, record.id)]))
            kept.append(("created", record.id))
    return fresh, kept


def first_digests(entries: Sequence[Entry]) -> list[bytes]:
    """What the texts begin with, by which those that say the same are looked up."""
    return [digest_of(entry, 0) for entry in entries if entry.chunks]


def tags_of(record: Record) -> list[str]:
    """As they are kept: folded, each once."""
    return list(dict.fromkeys(tag.lstrip("#").casefold() for tag in record.tags))


def _half_a_character(entries: Sequence[Entry]) -> str:
    for record in (entry.record for entry in entries):
        texts = (record.id, record.title, record.path or "", record.content, _json(record))
        named = (record.collection, record.type, record.domain, *record.tags, *record.links)
        if any(_HALF.search(text) for text in (*texts, *named)):
            return f"record {record.id!r} has half a character (a lone surrogate) in it"
    return "a record has half a character (a lone surrogate) in it"


def check_given(entries: Sequence[Entry], model: str | None) -> int:
    """The dimension of the given vectors (0: none given), after making sure that they fit each
    other."""
    dim = 0
    for entry in entries:
        if entry.vectors is None:
            continue
        if model is None:
            raise InputError("vectors were given without naming the model that made them")
        rows = float32(entry.vectors, len(entry.chunks), f"record {entry.record.id!r}")
        if dim and rows.shape[1] != dim:
            raise InputError(f"vectors of {dim} and of {rows.shape[1]} dimensions in one batch")
        dim = rows.shape[1]
    return dim


def float32(vectors: Vectors, count: int, of: str) -> Vectors:
    """As they are kept, one row per chunk, or an error that says what is wrong."""
    if vectors.ndim != 2 or len(vectors) != count or not vectors.shape[1]:
        raise InputError(f"{of}: {count} chunks but vectors of shape {vectors.shape}")
    with np.errstate(over="ignore"):
        rows = vectors.astype("<f4", copy=False)
    if not np.isfinite(rows).all():
        raise InputError(f"{of}: a vector has NaN or infinity in it")
    return rows


def root_of(id: str, collection: str, path: str | None) -> str:
    """The collection whose folder a file is in: `notes:a/b.md` is notes', even where the settings
    give the record to another one. So is a row of it, `notes:a/b.csv#17`."""
    if id.endswith(f":{path}"):
        return id.removesuffix(f":{path}")
    return id.partition(f":{path}#")[0] if is_row(id, path) else collection


def is_row(id: str, path: str | None) -> bool:
    """Whether a record is a row of the table in the file at `path`, and not the file itself."""
    return path is not None and not id.endswith(f":{path}") and f":{path}#" in id


def labels_of(record: Record) -> Iterator[tuple[str, str]]:
    """What its path says of a record. A thousand rows of one table are not a thousand files of its
    name: only the table's own record goes by it."""
    if record.path is not None and not is_row(record.id, record.path):
        yield from labels(record.path)


def digest_of(entry: Entry, number: int) -> bytes:
    """Of the words of one of its chunks."""
    record, chunk = entry.record, entry.chunks[number]
    title = titles(record.title, record.metadata)
    return digest(passage(title, chunk.heading, record.content[chunk.start : chunk.end]))


def row_of(record: Record, created: float, updated: float) -> tuple[Any, ...]:
    if not 0.0 <= record.importance <= 1.0:
        raise InputError(f"record {record.id!r}: importance {record.importance} is not in 0 … 1")
    moments = record.ended_at, record.valid_from, record.valid_to
    for moment in (record.created_at, record.updated_at, *moments):
        if moment is not None and not math.isfinite(moment):
            raise InputError(f"record {record.id!r}: {moment} is no moment in time")
    return (
        record.id,
        record.collection,
        record.type,
        record.domain,
        record.title,
        record.path,
        record.importance,
        created if record.created_at is None else record.created_at,
        updated if record.updated_at is None else record.updated_at,
        _json(record),
        *moments,
    )


def _json(record: Record) -> str:
    try:
        return json.dumps(dict(record.metadata), ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InputError(f"record {record.id!r}: metadata cannot be kept: {error}") from error


def alike(old: Record, new: Record) -> bool:
    """Whether writing `new` would change anything that can be read back."""
    return (
        old.content == new.content
        and old.title == new.title
        and old.path == new.path
        and (old.collection, old.type, old.domain) == (new.collection, new.type, new.domain)
        and (old.importance, old.ended_at) == (new.importance, new.ended_at)
        and (old.valid_from, old.valid_to) == (new.valid_from, new.valid_to)
        and (new.updated_at is None or old.updated_at == new.updated_at)
        and (new.created_at is None or old.created_at == new.created_at)
        and set(old.tags) == set(tags_of(new))
        and set(old.links) == set(new.links)
        and json.dumps(old.metadata, sort_keys=True)
        == json.dumps(json.loads(_json(new)), sort_keys=True)
    )


def storable(value: Any) -> Any:
    """A database's integers have 64 bits: a larger one is compared as a float."""
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return float(value)
    return value


def scalars(metadata: Mapping[str, Any]) -> Iterator[tuple[str, str | int | float | None]]:
    """What can be filtered by: scalars, and each scalar of a list. A value that is neither leaves
    a None behind, which says that the key is there."""
    for key, value in metadata.items():
        members = value if isinstance(value, (list, tuple)) else (value,)
        scalars = [m for m in members if isinstance(m, (str, int, float))]
        for scalar in scalars:
            yield key, int(scalar) if isinstance(scalar, bool) else storable(scalar)
        if not scalars and value is not None:
            yield key, None
