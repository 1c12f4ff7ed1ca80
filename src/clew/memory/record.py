"""A memory as its owner gives and sees it, and as a record of the store.

Ids are per namespace, while a store's record ids are unique in a file:

    profile of default  →  profile
    profile of ana      →  profile␟ana      ␟ is U+001F, which no namespace has

Files from before that have plain record ids in every namespace. They are found by them in their own
namespace, and nothing is rewritten.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import math
import re
import unicodedata
import uuid
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from numbers import Real
from typing import Any, TypeVar, get_args

from clew.errors import InputError, check_known, counted, nearest
from clew.filter import EVERYTHING, Filter
from clew.protocols import Store
from clew.timestamps import Moment, timestamp
from clew.types import FieldMapping, Life, MemoryType, Record, Vector
from clew.validate import check_number, unit

DEFAULT_NAMESPACE = "default"
_MARK = "\x1f"
_NAMESPACES_NAMED = 4
"""Namespaces that are named where several have the id."""
_IDS_COMPARED = 50
"""Ids that begin alike, among which one that was mistyped may be."""
TYPES: tuple[str, ...] = get_args(MemoryType)
MAX_CHARACTERS = 1_000_000
"""Of one memory: a longer text is a document, and better indexed as one."""
NAMESPACE = re.compile(r"[\w][\w.:/@+ -]{0,199}")
"""Beside these, marks that belong to letters, as the vowel signs of Hindi do."""
MEMORY_FIELDS = (
    *("content", "type", "importance", "tags", "metadata", "embedding", "namespace"),
    *("id", "created_at", "valid_from", "valid_to"),
)
CHANGEABLE_FIELDS = "content", "type", "importance", "tags", "metadata", "valid_from", "valid_to"
FIRST_MOMENT, LAST_MOMENT = -62_135_596_800.0, 253_402_300_799.0
"""The years 1 to 9999, which is what can be written as a date."""
_DAY = 86_400.0

Embedding = Vector | Sequence[float]
TimeRange = tuple[Moment | None, Moment | None]
"""From and to, both included, a day as a whole; None: open."""

T = TypeVar("T")


# ---------------------------------------------------------------- ids


def record_id(id: str, namespace: str) -> str:
    """Name the record that a new memory is kept as."""
    plain = namespace == DEFAULT_NAMESPACE and _MARK not in id
    return id if plain else f"{id}{_MARK}{namespace}"


def public_id(record_id: str, namespace: str) -> str:
    """The id by which its owner knows the record of this namespace."""
    return record_id.removesuffix(_MARK + namespace)


def find_records(store: Store, ids: Sequence[str], namespace: str | None) -> list[Record]:
    """Memories by their ids, in the order asked for; what there is not is left out. Without a
    namespace the one that has the id is meant, and it is an error where several have it."""
    if namespace is None:
        return [record for each in ids for record in _find_anywhere(store, each)]
    named = [(each, namespace) for each in ids]
    there = _find_named(store, named)
    return [there[name] for name in named if name in there]


def _find_named(store: Store, named: Iterable[tuple[str, str]]) -> dict[tuple[str, str], Record]:
    places = [each for own, space in named for each in (f"{own}{_MARK}{space}", own)]
    found = store.get(list(dict.fromkeys(places)))
    return {(public_id(r.id, r.collection), r.collection): r for r in found}


def _find_anywhere(store: Store, id: str) -> list[Record]:
    near = [
        *store.get([id]),
        *store.select(EVERYTHING, limit=_NAMESPACES_NAMED, after=id + _MARK),
    ]
    found = [record for record in near if public_id(record.id, record.collection) == id]
    if len(found) > 1:
        spaces = ", ".join(repr(record.collection) for record in found)
        raise InputError(f"several namespaces have a memory {id!r} ({spaces}): say which is meant")
    return found


class UnknownMemoryError(InputError):
    """Nothing has this id."""


def unknown_id(store: Store, id: str, namespace: str | None) -> UnknownMemoryError:
    """What to say of an id that nothing has: the nearest one. Where a namespace is named, others
    are not looked at: what they have is not for who asks in this one."""
    near = store.select(Filter(collection=namespace or ()), limit=_IDS_COMPARED, after=id[:2])
    names = {public_id(record.id, record.collection) for record in near}
    hint = nearest(id, names) if names else ""
    where = "" if namespace is None else f" in {namespace!r}"
    close = hint if hint.startswith("did you") else "see `recall` or `clew memories`"
    return UnknownMemoryError(f"there is no memory {id!r}{where}: {close}")


def record_ids(store: Store, named: Iterable[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """The record id under which each (id, namespace) is kept, or is to be kept."""
    wanted = list(named)
    there = {name: record.id for name, record in _find_named(store, wanted).items()}
    taken = set(there.values())

    def new_id(name: tuple[str, str]) -> str:
        plain = record_id(*name)  # may be that of a memory of another namespace, from before
        return _MARK.join(name) if plain in taken else plain

    return {name: there.get(name) or new_id(name) for name in wanted}


def with_record_ids(store: Store, records: Sequence[Record]) -> list[Record]:
    """New memories under the ids that they have in the file, where they are known there."""
    named = [(public_id(record.id, record.collection), record.collection) for record in records]
    ids = record_ids(store, named)
    return [replace(r, id=ids[name]) for r, name in zip(records, named, strict=True)]


# ---------------------------------------------------------------- answers


@dataclass(frozen=True, slots=True)
class Remembered(FieldMapping):
    """What became of one memory that was given."""

    id: str
    status: str
    """created; duplicate: it was known, word for word; updated: known, and something was added."""
    embedded: bool = False
    """Whether it can be found by meaning already."""


@dataclass(frozen=True, slots=True)
class Recalled(FieldMapping):
    """One memory."""

    id: str
    content: str
    score: float = 0.0
    search_type: str = ""
    """hybrid, fts or vector."""
    type: str = "semantic"
    importance: float = 0.5
    created_at: float = 0.0
    metadata: Mapping[str, Any] = field(default_factory=dict)
    tags: tuple[str, ...] = ()
    namespace: str = DEFAULT_NAMESPACE
    updated_at: float = 0.0
    valid_from: float = 0.0
    """Since when what it says is true, whenever it was written."""
    valid_to: float | None = None
    """Till when; None: no end is known."""
    ended_at: float | None = None
    """When it was forgotten, superseded, evicted or consolidated."""
    accesses: int = 0
    reason: str = ""
    """Why it ended."""
    successor: str | None = None
    signals: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """What each list contributed to the score."""

    @classmethod
    def of(cls, record: Record, life: Life | None = None, **more: Any) -> Recalled:
        life, space, created = life or Life(), record.collection, record.created_at or 0.0
        same = ("content", "type", "importance", "metadata", "tags", "valid_to", "ended_at")
        return cls(
            id=public_id(record.id, space),
            namespace=space,
            created_at=created,
            updated_at=record.updated_at or 0.0,
            valid_from=created if record.valid_from is None else record.valid_from,
            accesses=life.accesses,
            reason=life.reason,
            successor=None if life.successor is None else public_id(life.successor, space),
            **{name: getattr(record, name) for name in same},
            **more,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, ready for JSON."""
        return {**self, "tags": list(self.tags), "metadata": dict(self.metadata)}


class _Diagnosed(list[T]):
    """A list. `diagnostics` says how it was found and what could not take part."""

    def __init__(self, found: Iterable[T] = (), **diagnostics: Any) -> None:
        super().__init__(found)
        self.diagnostics: dict[str, Any] = diagnostics


class Recollection(_Diagnosed[Recalled]):
    """Memories, best first, with `diagnostics`."""

    def to_dict(self, notes: Sequence[str] = ()) -> dict[str, Any]:
        """Return plain data, ready for JSON; `notes` are on what was asked for and is not there."""
        data = {"results": [each.to_dict() for each in self], **self.diagnostics}
        data |= {"notes": list(notes)} if notes else {}
        return data | ({} if self else {"message": "nothing found"})


class WorkingMemory(_Diagnosed[dict[str, Any]]):
    """Memories as plain dicts, ready for a prompt, with `diagnostics`."""


# ---------------------------------------------------------------- what callers give


def make_record(item: Mapping[str, Any], *, now: float) -> Record:
    """The record that `remember(**item)` writes, unless its id is known in the file."""
    check_known("unknown field", MEMORY_FIELDS, *item)
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
    fields = {
        **{name: getattr(old, name) for name in (*CHANGEABLE_FIELDS, "created_at")},
        **{name: value for name, value in changes.items() if value is not None},
        "namespace": old.collection,
    }
    new = make_record(fields, now=now)
    return replace(new, id=old.id, ended_at=old.ended_at, updated_at=now)


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


def is_several(given: Any) -> bool:
    return isinstance(given, (Sequence, Set)) and not isinstance(given, (str, bytes))


def _check_tags(given: Any) -> tuple[str, ...]:
    """Tags as they will be found: without # and white space around them, empty ones left out."""
    if isinstance(given, str):
        given = (given,)
    if given and not (is_several(given) and all(isinstance(tag, str) for tag in given)):
        raise InputError(f"tags must be a string or several, not {given!r:.100}")
    folded = (
        check_text(tag, "the tag").strip().lstrip("#").strip().casefold() for tag in given or ()
    )
    return tuple(dict.fromkeys(tag for tag in folded if tag))


def _check_metadata(given: Any) -> dict[str, Any]:
    """Metadata as it will be read back: what JSON makes of it."""
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
    check_known("unknown type", TYPES, given)
    return str(given)


def check_namespace(given: Any) -> str:
    """Return the one form of several that look the same."""
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
    several = given if is_several(given) and given else (given,)
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
    if not is_several(types):
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
