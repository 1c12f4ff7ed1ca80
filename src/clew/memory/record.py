"""A memory as a record of the store, and as its owner sees it.

Ids are per namespace, while a store's record ids are unique in a file:

    profile of default  →  profile
    profile of ana      →  profile␟ana      ␟ is U+001F, which no namespace has

Files from before that have plain record ids in every namespace. They are found by them in their own
namespace, and nothing is rewritten.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, TypeVar

from clew.errors import InputError, nearest
from clew.filter import EVERYTHING, Filter
from clew.protocols import Store
from clew.types import Life, Record

DEFAULT_NAMESPACE = "default"
_MARK = "\x1f"
_NAMESPACES_NAMED = 4
"""Namespaces that are named where several have the id."""
_IDS_COMPARED = 50
"""Ids that begin alike, among which one that was mistyped may be."""

T = TypeVar("T")


def read_pages(store: Store, scope: Filter, size: int) -> Iterator[list[Record]]:
    """All records of a scope by id, so many at a time."""
    last = ""
    while page := store.select(scope, limit=size, after=last):
        yield page
        last = page[-1].id


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


def unknown_id(store: Store, id: str, namespace: str | None) -> InputError:
    """What to say of an id that nothing has: the nearest one. Where a namespace is named, others
    are not looked at: what they have is not for who asks in this one."""
    near = store.select(Filter(collection=namespace or ()), limit=_IDS_COMPARED, after=id[:2])
    names = {public_id(record.id, record.collection) for record in near}
    hint = nearest(id, names) if names else ""
    where = "" if namespace is None else f" in {namespace!r}"
    close = hint if hint.startswith("did you") else "see `recall` or `clew memories`"
    return InputError(f"there is no memory {id!r}{where}: {close}")


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


class _FieldMapping(Mapping[str, Any]):
    """A dataclass as a mapping of its fields."""

    __slots__ = ()
    __dataclass_fields__: ClassVar[dict[str, Any]]

    def __getitem__(self, key: str) -> Any:
        if key not in self.__dataclass_fields__:
            raise KeyError(key)
        return getattr(self, key)

    def __iter__(self) -> Iterator[str]:
        return iter(self.__dataclass_fields__)

    def __len__(self) -> int:
        return len(self.__dataclass_fields__)


@dataclass(frozen=True, slots=True)
class Remembered(_FieldMapping):
    """What became of one memory that was given."""

    id: str
    status: str
    """created; duplicate: it was known, word for word; updated: known, and something was added."""
    embedded: bool = False
    """Whether it can be found by meaning already."""


@dataclass(frozen=True, slots=True)
class Recalled(_FieldMapping):
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
        return cls(
            id=public_id(record.id, space),
            content=record.content,
            type=record.type,
            importance=record.importance,
            created_at=created,
            metadata=record.metadata,
            tags=record.tags,
            namespace=space,
            updated_at=record.updated_at or 0.0,
            valid_from=created if record.valid_from is None else record.valid_from,
            valid_to=record.valid_to,
            ended_at=record.ended_at,
            accesses=life.accesses,
            reason=life.reason,
            successor=None if life.successor is None else public_id(life.successor, space),
            **more,
        )


class _Diagnosed(list[T]):
    """A list. `diagnostics` says how it was found and what could not take part."""

    def __init__(self, found: Iterable[T] = (), **diagnostics: Any) -> None:
        super().__init__(found)
        self.diagnostics: dict[str, Any] = diagnostics


class Recollection(_Diagnosed[Recalled]):
    """Memories, best first, with `diagnostics`."""


class WorkingMemory(_Diagnosed[dict[str, Any]]):
    """Memories as plain dicts, ready for a prompt, with `diagnostics`."""
