"""One memory as plain data, and back: what an export says of it, and what an import takes."""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from clew.errors import InputError, nearest
from clew.memory import given
from clew.memory.identity import public_id, record_id
from clew.types import Life, Record, Vectors

__all__ = ["FIELDS", "Told", "plain", "told"]

_LIFE = tuple(field.name for field in fields(Life))
_REMEMBERED = (*given.ITEM, *given.OPTIONAL)
FIELDS = (
    *_REMEMBERED,
    *("updated_at", "ended_at", *_LIFE, "feedback"),
    *("embedding_model", "embedding_dim", "chunk_size"),
)
"""What a mapping may have. `feedback` is {"useful": n, "useless": n}, another way to say these."""
UNIT = 1e-3
"""How far from 1 the length of a vector may be that is taken as it is: so it comes back bit by
bit."""


@dataclass(frozen=True, slots=True)
class Told:
    """One memory of an import, checked."""

    record: Record
    life: Mapping[str, Any]
    """What was said of its life: fields of `Life`."""
    new: bool
    """Nothing is said that only a memory which was there before has: its text is its name."""
    rows: Vectors | None = None
    model: str | None = None
    chunk_size: int | None = None
    """How long the passages are that the rows are of, where they are several."""


def plain(
    record: Record, life: Life, held: tuple[str, Vectors] | None, *, chunk_size: int
) -> dict[str, Any]:
    """All there is to know of a memory. `held` are its vectors and their model."""
    data: dict[str, Any] = {
        "id": public_id(record.id, record.collection),
        "content": record.content,
        "type": record.type,
        "namespace": record.collection,
        "importance": record.importance,
        "tags": list(record.tags),
        "metadata": dict(record.metadata),
        "created_at": record.created_at,
        "updated_at": record.updated_at,
        "ended_at": record.ended_at,
        **{name: getattr(life, name) for name in _LIFE},
    }
    for name in ("valid_from", "valid_to"):  # where they are said
        if (moment := getattr(record, name)) is not None:
            data[name] = moment
    if life.successor is not None:
        data["successor"] = public_id(life.successor, record.collection)
    if held is not None:
        model, rows = held
        data["embedding"] = base64.b64encode(rows.astype("<f4").tobytes()).decode("ascii")
        data["embedding_model"], data["embedding_dim"] = model, rows.shape[1]
        if len(rows) > 1:
            data["chunk_size"] = chunk_size
    return data


def told(item: Any, *, now: float) -> Told:
    """A mapping read back; an InputError says what is wrong with it."""
    if not isinstance(item, Mapping):
        raise InputError(f"a memory is a mapping of its fields, not {item!r:.100}")
    if "memory_type" in item:
        raise InputError(
            "this is an export of Ariadne's, which leaves out what was deleted and what users "
            "said of it: import its database itself, with `clew import --from arriadne FILE`"
        )
    for name in item:
        if name not in FIELDS:
            raise InputError(f"unknown field {name!r}: {nearest(str(name), FIELDS)}")
    _writable(item)
    record = given.record_of({k: v for k, v in item.items() if k in _REMEMBERED}, now=now)
    life = _life(item)
    new = item.get("id") is None and not life and item.get("embedding_model") is None
    ended = _moment(item, "ended_at")
    if ended is None:
        life |= {"reason": "", "successor": None}
    elif not life.get("reason"):
        life |= {"reason": "forgotten"}
    rows = _rows(item)
    return Told(
        replace(
            record,
            id=record.id if item.get("id") is not None else _name(record),
            created_at=_moment(item, "created_at"),
            updated_at=_moment(item, "updated_at"),
            ended_at=ended,
        ),
        life,
        new and ended is None,
        rows,
        None if rows is None else _text(item, "embedding_model"),
        _count(item, "chunk_size", least=1),
    )


def _writable(item: Mapping[str, Any]) -> None:
    """Said here, the error names the line; the store would know the id only."""
    texts = {name: value for name, value in item.items() if name != "embedding"}
    try:
        json.dumps(texts, ensure_ascii=False, allow_nan=False, default=_sequence).encode("utf-8")
    except UnicodeEncodeError:
        raise InputError("there is half a character (a lone surrogate) in it") from None
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f"it cannot be kept: {error}") from None


def _sequence(value: Any) -> Any:
    """What is no value of JSON's and is checked elsewhere: tags as a set, moments."""
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    if hasattr(value, "isoformat"):
        return value.isoformat()
    raise TypeError(f"{type(value).__name__} is no value of JSON's")


def _name(record: Record) -> str:
    """An id for a memory that comes without: the same text gets the same one again."""
    when = [moment for moment in (record.valid_from, record.valid_to) if moment is not None]
    said = json.dumps([record.collection, record.type, record.content, *when])
    name = hashlib.blake2b(said.encode(), digest_size=16).hexdigest()
    return record_id(name, record.collection)


def _moment(item: Mapping[str, Any], name: str) -> float | None:
    stamp = item.get(name)
    return None if stamp is None else given.moment(stamp, name)


def _life(item: Mapping[str, Any]) -> dict[str, Any]:
    usual = Life()
    said: dict[str, Any] = {
        name: getattr(usual, name) if item[name] is None else item[name]
        for name in _LIFE
        if name in item
    }
    if (feedback := item.get("feedback")) is not None:
        if not isinstance(feedback, Mapping) or not {"useful", "useless"}.issuperset(feedback):
            raise InputError(f"feedback is {{'useful': n, 'useless': n}}, not {feedback!r:.100}")
        said |= feedback
    for name in ("accesses", "useful", "useless"):
        _count(said, name)
    for name in ("reason", "successor"):
        _text(said, name)
    if "strength" in said:
        strength = said["strength"]
        number = isinstance(strength, (int, float)) and not isinstance(strength, bool)
        if not number or not 0 < strength < math.inf:
            raise InputError(f"strength must be a number above 0, not {strength!r:.100}")
        said["strength"] = float(strength)
    if said.get("accessed_at") is not None:
        said["accessed_at"] = given.moment(said["accessed_at"], "accessed_at")
    return said


def _count(said: Mapping[str, Any], name: str, *, least: int = 0) -> int | None:
    if (number := said.get(name)) is None:
        return None
    whole = isinstance(number, int) and not isinstance(number, bool)
    if not whole or not least <= number < 2**63:
        raise InputError(f"{name} must be a whole number from {least} on, not {number!r:.100}")
    return int(number)


def _text(said: Mapping[str, Any], name: str) -> str | None:
    text = said.get(name)
    if text is not None and (not isinstance(text, str) or len(text) > 500):
        raise InputError(f"{name} is a text of at most 500 characters, not {text!r:.100}")
    return text


def _rows(item: Mapping[str, Any]) -> Vectors | None:
    """Vectors as they were written, or as anybody gives one."""
    embedding, dim = item.get("embedding"), _count(item, "embedding_dim", least=1)
    if embedding is None:
        return None
    import numpy as np

    from clew.ingest.records import make_table
    from clew.models.vectors import unit

    row: Any = None
    if isinstance(embedding, str):
        try:
            row = np.frombuffer(base64.b64decode(embedding, validate=True), "<f4")
        except (binascii.Error, ValueError):
            raise InputError(
                "the embedding is no base64 of 32-bit floats: the file is damaged"
            ) from None
    else:
        with contextlib.suppress(ValueError):  # rows of several lengths
            row = np.asarray(embedding)
        if isinstance(embedding, bytes) or row is None or row.ndim != 1:
            raise InputError("an embedding is one row of numbers")
    dim = dim or len(row)
    if not len(row) or len(row) % dim:
        raise InputError(f"the embedding has {len(row)} numbers, embedding_dim says {dim}")
    rows = make_table(row.reshape(-1, dim), records=len(row) // dim)
    if not rows.any(axis=1).all():
        raise InputError("the embedding is all zeros: it has no direction to compare")
    lengths = np.linalg.norm(rows, axis=1)
    whole: Vectors = rows if (abs(lengths - 1) < UNIT).all() else unit(rows)
    return whole
