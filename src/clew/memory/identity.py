"""Ids are per namespace, while a store's record ids are unique in a file: the one as the other.

    profile of default  →  profile
    profile of ana      →  profile␟ana      ␟ is U+001F, which no namespace has

Files from before that have plain record ids in every namespace. They are found by them in their own
namespace, and nothing is rewritten.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from clew.errors import InputError, nearest
from clew.filter import EVERYTHING, Filter
from clew.protocols import Store
from clew.types import Record

__all__ = [
    "DEFAULT",
    "everywhere",
    "find",
    "place",
    "placed",
    "public_id",
    "record_id",
    "unknown",
]

DEFAULT = "default"
MARK = "\x1f"
NAMED = 4
"""Namespaces that are named where several have the id."""
NEAR = 50
"""Ids that begin alike, among which one that was mistyped may be."""


def record_id(id: str, namespace: str) -> str:
    """Where a new memory is kept."""
    return id if namespace == DEFAULT and MARK not in id else f"{id}{MARK}{namespace}"


def public_id(record_id: str, namespace: str) -> str:
    """The id by which its owner knows the record of this namespace."""
    return record_id.removesuffix(MARK + namespace)


def find(store: Store, ids: Sequence[str], namespace: str | None) -> list[Record]:
    """Memories by their ids, in the order asked for; what there is not is left out. Without a
    namespace the one that has the id is meant, and of several none."""
    if namespace is None:
        return [record for each in ids for record in _only(each, everywhere(store, each))]
    named = [(each, namespace) for each in ids]
    there = _there(store, named)
    return [there[name] for name in named if name in there]


def _there(store: Store, named: Iterable[tuple[str, str]]) -> dict[tuple[str, str], Record]:
    places = [each for own, space in named for each in (f"{own}{MARK}{space}", own)]
    found = store.get(list(dict.fromkeys(places)))
    return {(public_id(r.id, r.collection), r.collection): r for r in found}


def everywhere(store: Store, id: str) -> list[Record]:
    """Those of the first namespaces that have this id."""
    near = [*store.get([id]), *store.select(EVERYTHING, limit=NAMED, after=id + MARK)]
    return [record for record in near if public_id(record.id, record.collection) == id]


def _only(id: str, found: list[Record]) -> list[Record]:
    if len(found) > 1:
        spaces = ", ".join(repr(record.collection) for record in found)
        raise InputError(f"several namespaces have a memory {id!r} ({spaces}): say which is meant")
    return found


def unknown(store: Store, id: str, namespace: str | None) -> InputError:
    """What to say of an id that nothing has: the nearest one. Where a namespace is named, others
    are not looked at: what they have is not for who asks in this one."""
    here = Filter(collection=namespace or ())
    near = store.select(here, limit=NEAR, after=id[:2])
    names = {public_id(record.id, record.collection) for record in near}
    hint = nearest(id, names) if names else ""
    where = "" if namespace is None else f" in {namespace!r}"
    said = f"there is no memory {id!r}{where}"
    close = f": {hint}" if hint.startswith("did you") else ": see `recall` or `clew memories`"
    return InputError(said + close)


def place(store: Store, named: Iterable[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """The record id under which each (id, namespace) is kept, or is to be kept."""
    wanted = list(named)
    there = _there(store, wanted)
    taken = {record.id for record in there.values()}
    places: dict[tuple[str, str], str] = {}
    for name in wanted:
        if (known := there.get(name)) is not None:
            places[name] = known.id
        else:  # the plain one may be that of a memory of another namespace, from before
            plain = record_id(*name)
            places[name] = MARK.join(name) if plain in taken else plain
    return places


def placed(store: Store, records: Sequence[Record]) -> list[Record]:
    """New memories under the ids that they have in the file, where they are known there."""
    named = [(public_id(record.id, record.collection), record.collection) for record in records]
    places = place(store, named)
    return [replace(r, id=places[name]) for r, name in zip(records, named, strict=True)]
