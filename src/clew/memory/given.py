"""What callers give a memory, checked before anything is written."""

from __future__ import annotations

import datetime as dt
import math
import re
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from clew.errors import InputError, nearest
from clew.filter import Filter
from clew.moments import Moment, timestamp
from clew.text.counted import counted
from clew.types import Record, Vector

__all__ = [
    "LONGEST",
    "TYPES",
    "TimeRange",
    "check_namespace",
    "check_type",
    "moment",
    "record_of",
    "scope",
    "vector_of",
]

TYPES = ("semantic", "episodic", "procedural")
LONGEST = 1_000_000
"""Characters of one memory: a longer text is a document, and better indexed as one."""
NAMESPACE = re.compile(r"[\w][\w.:/@+ -]{0,199}")
ITEM = ("content", "type", "importance", "tags", "metadata", "embedding", "namespace")
OPTIONAL = ("id", "created_at")

TimeRange = tuple[Moment | None, Moment | None]
"""From and to, both included; None: open."""


def record_of(item: Mapping[str, Any], *, now: float) -> Record:
    """The record that `remember(**item)` writes."""
    for name in item:
        if name not in (*ITEM, *OPTIONAL):
            raise InputError(f"unknown field {name!r}: {nearest(str(name), (*ITEM, *OPTIONAL))}")
    metadata, created = item.get("metadata"), item.get("created_at")
    return Record(
        id=_id(item.get("id")),
        content=_content(item.get("content")),
        collection=check_namespace(item.get("namespace", "default")),
        type=check_type(item.get("type", "semantic")),
        tags=item.get("tags") or (),
        importance=check_share("importance", item.get("importance", 0.5)),
        created_at=now if created is None else moment(created, "created_at"),
        metadata={} if metadata is None else metadata,
    )


def _id(given: Any) -> str:
    if given is None:
        return uuid.uuid4().hex
    if not isinstance(given, str) or not given.strip() or len(given) > 500:
        raise InputError(f"an id is a text of 1 to 500 characters, not {given!r:.100}")
    return given


def _content(given: Any) -> str:
    if not isinstance(given, str):
        raise InputError(f"content must be text, not {type(given).__name__}")
    content = given.strip()
    if not content:
        raise InputError("content is empty: say what to remember")
    if len(content) > LONGEST:
        raise InputError(
            f"a memory of {counted(len(content), 'character')} is too long, {LONGEST:,} is the "
            "most: remember its parts, or put it into a file and index that"
        )
    return content


def check_type(given: Any) -> str:
    if given not in TYPES:
        raise InputError(f"unknown type {given!r:.100}: {nearest(str(given), TYPES)}")
    return str(given)


def check_namespace(given: Any) -> str:
    if not isinstance(given, str) or not NAMESPACE.fullmatch(given):
        raise InputError(
            f"{given!r:.100} is no namespace: use up to 200 letters, digits, spaces and any of "
            "_ - . : / @ +, beginning with a letter or digit"
        )
    return given


def check_share(name: str, given: Any) -> float:
    number = isinstance(given, (int, float)) and not isinstance(given, bool)
    if not number or not 0 <= given <= 1:  # NaN is not, either
        raise InputError(f"{name} must be a number from 0 to 1, not {given!r:.100}")
    return float(given)


def moment(given: Any, name: str) -> float:
    """Seconds since the epoch. A time of day without its zone could be off by a day: refused."""
    stamp = given
    if isinstance(given, str):
        try:
            stamp = dt.datetime.fromisoformat(given.strip()) if len(given.strip()) > 10 else given
        except ValueError:
            stamp = given
    if isinstance(stamp, dt.datetime) and stamp.tzinfo is None:
        raise InputError(
            f"{name} {given!r} has no time zone: use datetime.now(timezone.utc), or "
            "2026-03-14T09:30+00:00"
        )
    return timestamp(stamp, name=name)


def vector_of(given: Any, *, dim: int) -> Vector:
    """The embedding a caller gives, at length 1."""
    import numpy as np

    from clew.ingest.entry import table
    from clew.models.unit import unit

    row: Any = np.asarray(given) if not isinstance(given, (str, bytes)) else np.empty((0, 0))
    if row.ndim != 1:
        raise InputError("an embedding is one row of numbers")
    rows = table([row], records=1)
    if rows.shape[1] != dim:
        raise InputError(
            f"the embedding has {counted(rows.shape[1], 'dimension')}, this memory's have {dim}: "
            "use the same model, or open it with embedding_dim="
            f"{rows.shape[1]} in a new file"
        )
    if not rows.any():
        raise InputError("the embedding is all zeros: it has no direction to compare")
    whole: Vector = unit(rows)[0]
    return whole


def scope(
    namespace: str | None,
    *,
    type_filter: str | Sequence[str] | None = None,
    importance_min: float | None = None,
    time_range: TimeRange | None = None,
    tags: str | Sequence[str] | None = None,
    metadata: Mapping[str, Any] | None = None,
    as_of: Moment | None = None,
    active: bool | None = True,
) -> Filter:
    """The filter these stand for. With `as_of` what held then is found, ended since or not."""
    types = [type_filter] if isinstance(type_filter, str) else (type_filter or ())
    start, end = _range(time_range)
    return Filter(
        collection=() if namespace is None else check_namespace(namespace),
        type=[check_type(each) for each in types],
        importance_min=None
        if importance_min is None
        else check_share("importance_min", importance_min),
        created_after=start,
        created_before=None if end is None else math.nextafter(end, math.inf),  # included
        tags=tags or (),
        metadata=metadata,
        as_of=None if as_of is None else moment(as_of, "as_of"),
        active=active if as_of is None else None,
    )


def _range(given: Any) -> tuple[float | None, float | None]:
    if given is None:
        return None, None
    if not isinstance(given, (tuple, list)) or len(given) != 2:
        raise InputError(f"time_range is a pair (from, to), not {given!r:.100}")
    start, end = (
        None if bound is None else moment(bound, f"time_range, {name}")
        for bound, name in zip(given, ("from", "to"), strict=True)
    )
    if start is not None and end is not None and start > end:
        raise InputError("this time_range is reversed: give the earlier moment first")
    return start, end
