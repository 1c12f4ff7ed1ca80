"""What callers give a memory, checked before anything is written."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import math
import re
import sys
import unicodedata
import uuid
from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from numbers import Integral, Real
from typing import Any

from clew.errors import InputError, counted, nearest
from clew.filter import Filter
from clew.memory.record import DEFAULT_NAMESPACE, record_id
from clew.timestamps import Moment, timestamp
from clew.types import Record, Vector

TYPES = ("semantic", "episodic", "procedural")
MAX_CHARACTERS = 1_000_000
"""Of one memory: a longer text is a document, and better indexed as one."""
NAMESPACE = re.compile(r"[\w][\w.:/@+ -]{0,199}")
"""Beside these, marks that belong to letters, as the vowel signs of Hindi do."""
MEMORY_FIELDS = (
    *("content", "type", "importance", "tags", "metadata", "embedding", "namespace"),
    *("id", "created_at", "valid_from", "valid_to"),
)
FIRST_MOMENT, LAST_MOMENT = -62_135_596_800.0, 253_402_300_799.0
"""The years 1 to 9999, which is what can be written as a date."""
_DAY = 86_400.0

Embedding = Vector | Sequence[float]
TimeRange = tuple[Moment | None, Moment | None]
"""From and to, both included, a day as a whole; None: open."""


def make_record(item: Mapping[str, Any], *, now: float) -> Record:
    """The record that `remember(**item)` writes, unless its id is known in the file."""
    for name in item:
        if name not in MEMORY_FIELDS:
            raise InputError(f"unknown field {name!r}: {nearest(str(name), MEMORY_FIELDS)}")
    created, since, until = (
        None if (given := item.get(name)) is None else check_moment(given, name)
        for name in ("created_at", "valid_from", "valid_to")
    )
    created = now if created is None else created
    if since is None and until is not None and until <= created:
        since = FIRST_MOMENT  # nobody said since when
    if since is not None and until is not None and since > until:
        raise InputError("its validity is reversed: valid_from must not be after valid_to")
    namespace = check_namespace(item.get("namespace", DEFAULT_NAMESPACE))
    name = uuid.uuid4().hex if item.get("id") is None else check_id(item["id"])
    return Record(
        id=record_id(name, namespace),
        content=_check_content(item.get("content")),
        collection=namespace,
        type=_check_type(item.get("type", TYPES[0])),
        tags=_check_tags(item.get("tags")),
        importance=check_number("importance", item.get("importance", 0.5)),
        created_at=created,
        metadata=_check_metadata(item.get("metadata")),
        valid_from=since,
        valid_to=until,
    )


def change_record(old: Record, changes: Mapping[str, Any], *, now: float) -> Record:
    """What `update` makes of it: fields that are None stay as they are."""
    kept = ("content", "type", "importance", "tags", "metadata", "valid_from", "valid_to")
    fields = {
        **{name: getattr(old, name) for name in (*kept, "created_at")},
        **{name: value for name, value in changes.items() if value is not None},
        "namespace": old.collection,
    }
    new = make_record(fields, now=now)
    return replace(new, id=old.id, ended_at=old.ended_at, updated_at=now)


def check_count(name: str, given: Any, *, least: int = 1) -> int:
    """Return a whole number, numpy's as well; none is larger than any container."""
    if isinstance(given, bool) or not isinstance(given, Integral) or given < least:
        raise InputError(f"{name} must be a whole number from {least} on, not {given!r:.100}")
    return min(int(given), sys.maxsize)


def check_number(name: str, given: Any, low: float = 0.0, high: float = 1.0) -> float:
    number = isinstance(given, Real) and not isinstance(given, bool)
    if not number or not low <= given <= high:  # NaN is not, either
        raise InputError(f"{name} must be a number from {low:g} to {high:g}, not {given!r:.100}")
    return float(given)


def check_id(given: Any) -> str:
    if not isinstance(given, str) or not given.strip() or len(given) > 500:
        raise InputError(f"an id is a text of 1 to 500 characters, not {given!r:.100}")
    return check_text(given, "the id")


def check_text(given: str, name: str) -> str:
    """No database takes half a character, and SQLite's lists end at a NUL."""
    try:
        given.encode()
    except UnicodeEncodeError:
        raise InputError(f"{name} has half a character (a lone surrogate) in it") from None
    if "\0" in given and name != "content":
        raise InputError(f"{name} {given!r:.100} has a NUL in it: leave that out")
    return given


def _is_several(given: Any) -> bool:
    return isinstance(given, (Sequence, Set)) and not isinstance(given, (str, bytes))


def _check_tags(given: Any) -> tuple[str, ...]:
    """As they will be found: without # and white space around them, empty ones left out."""
    if isinstance(given, str):
        given = (given,)
    if given and not (_is_several(given) and all(isinstance(tag, str) for tag in given)):
        raise InputError(f"tags must be a string or several, not {given!r:.100}")
    folded = (
        check_text(tag, "the tag").strip().lstrip("#").strip().casefold() for tag in given or ()
    )
    return tuple(dict.fromkeys(tag for tag in folded if tag))


def _check_metadata(given: Any) -> dict[str, Any]:
    """As it will be read back: what JSON makes of it."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise InputError(f"metadata must be a mapping, not {given!r:.100}")
    try:
        text = json.dumps(dict(given), ensure_ascii=False, allow_nan=False)
        text.encode()
        kept: dict[str, Any] = json.loads(text, parse_int=_parse_int)
    except UnicodeEncodeError:
        raise InputError("metadata has half a character (a lone surrogate) in it") from None
    except RecursionError:
        raise InputError("metadata cannot be kept: it is nested too deeply") from None
    except (TypeError, ValueError) as error:
        raise InputError(f"metadata cannot be kept: {error}") from None
    return kept


def _parse_int(digits: str) -> int:
    if len(digits) > 300:
        raise ValueError(f"{digits[:20]}… is too large a number")
    return int(digits)


def _check_content(given: Any) -> str:
    if not isinstance(given, str):
        raise InputError(f"content must be text, not {type(given).__name__}")
    content = check_text(given.strip(), "content")
    if not content:
        raise InputError("content is empty: say what to remember")
    if len(content) > MAX_CHARACTERS:
        raise InputError(
            f"a memory of {counted(len(content), 'character')} is too long, {MAX_CHARACTERS:,} is "
            "the most: remember its parts, or put it into a file and index that"
        )
    return content


def _check_type(given: Any) -> str:
    if given not in TYPES:
        raise InputError(f"unknown type {given!r:.100}: {nearest(str(given), TYPES)}")
    return str(given)


def check_namespace(given: Any) -> str:
    """In the one form of several that look the same."""
    if isinstance(given, str):
        name = unicodedata.normalize("NFC", given)
        letters = "".join(c for c in name if not unicodedata.category(c).startswith("M"))
        if NAMESPACE.fullmatch(letters) and name[0] == letters[0] and len(name) <= 200:
            return name
    raise InputError(
        f"{given!r:.100} is no namespace: use up to 200 letters, digits, spaces and any of "
        "_ - . : / @ +, beginning with a letter or digit"
    )


def check_namespaces(given: Any) -> tuple[str, ...]:
    """One, or several by name."""
    several = given if _is_several(given) and given else (given,)
    return tuple(map(check_namespace, several))


def check_moment(given: Any, name: str) -> float:
    """Seconds since the epoch. A time of day without its zone could be off by a day: refused. A day
    is the one of Greenwich, so that it is the same wherever it is asked for."""
    stamp, day = given, _day_of(given)
    if day is not None:
        stamp = dt.datetime(day.year, day.month, day.day, tzinfo=dt.UTC)
    elif isinstance(given, str):
        with contextlib.suppress(ValueError):  # whose error says how a date is written
            stamp = dt.datetime.fromisoformat(given.strip())
    elif isinstance(given, Real) and not isinstance(given, bool):
        stamp = float(given)
    if isinstance(stamp, dt.datetime) and stamp.tzinfo is None:
        raise InputError(
            f"{name} {given!r} has no time zone: use datetime.now(timezone.utc), or "
            "2026-03-14T09:30+00:00"
        )
    seconds = timestamp(stamp, name=name)
    if not FIRST_MOMENT <= seconds <= LAST_MOMENT:
        raise InputError(f"{name} {given!r} is no time of the years 1 to 9999: it is in seconds")
    return seconds


def _day_of(given: Any) -> dt.date | None:
    """The day, where no time of day is said."""
    if isinstance(given, str):
        try:
            return dt.date.fromisoformat(given.strip())
        except ValueError:
            return None
    return given if isinstance(given, dt.date) and not isinstance(given, dt.datetime) else None


def check_vector(given: Any, *, dim: int) -> Vector:
    """The embedding a caller gives, at length 1."""
    import numpy as np

    from clew.ingest.records import make_table
    from clew.models.vectors import unit

    try:
        row: Any = np.asarray(given)
    except ValueError:  # rows of different lengths
        row = np.empty((0, 0))
    if row.ndim != 1:
        raise InputError("an embedding is one row of numbers")
    with np.errstate(over="ignore"):  # what is too large for 32 bits becomes infinity, and is said
        rows = make_table([row], records=1)
    if rows.shape[1] != dim:
        raise InputError(
            f"the embedding has {counted(rows.shape[1], 'dimension')}, this memory's have {dim}: "
            f"use the same model, or open it with embedding_dim={rows.shape[1]} in a new file"
        )
    if not rows.any():
        raise InputError("the embedding is all zeros: it has no direction to compare")
    whole: Vector = unit(rows)[0]
    return whole


def make_scope(
    namespace: str | Sequence[str] | None,
    *,
    type_filter: str | Sequence[str] | None = None,
    importance_min: float | None = None,
    time_range: TimeRange | None = None,
    tags: str | Sequence[str] | None = None,
    metadata: Mapping[str, Any] | None = None,
    as_of: Moment | None = None,
    valid_at: float | None = None,
    active: bool | None = True,
) -> Filter:
    """The filter these stand for. With `as_of` what held then is found, ended since or not."""
    types = [type_filter] if isinstance(type_filter, str) else (type_filter or ())
    if not _is_several(types):
        raise InputError(f"type_filter is a type or several, not {type_filter!r:.100}")
    wanted = _check_tags(tags)
    if tags and not wanted:
        raise InputError(f"{tags!r:.100} is no tag to look for")
    start, end = _check_range(time_range)
    least = None if importance_min is None else check_number("importance_min", importance_min)
    return Filter(
        collection=() if namespace is None else check_namespaces(namespace),
        type=[_check_type(each) for each in types],
        importance_min=least,
        created_after=start,
        created_before=end,
        tags=wanted,
        metadata=metadata,
        as_of=None if as_of is None else check_moment(as_of, "as_of"),
        valid_at=valid_at if as_of is None else None,
        active=active if as_of is None else None,
    )


def _check_range(given: Any) -> tuple[float | None, float | None]:
    if given is None:
        return None, None
    if not isinstance(given, (tuple, list)) or len(given) != 2:
        raise InputError(f"time_range is a pair (from, to), not {given!r:.100}")
    start, end = (
        None if bound is None else check_moment(bound, f"time_range, {name}")
        for bound, name in zip(given, ("from", "to"), strict=True)
    )
    if start is not None and end is not None and start > end:
        raise InputError("this time_range is reversed: give the earlier moment first")
    if end is not None:  # it is included, where a filter's bound is not
        end = end + _DAY if _day_of(given[1]) else math.nextafter(end, math.inf)
    return start, end
