"""Filters as payload conditions: what of a record goes into every one of its points, and what is
asked of that.

All that is compared for equality is in one list of words, `is`, with one index; moments and numbers
have a field each. What has not ended, or says of no moment that it begins or ceases to be true, has
one that never comes, so that every condition is a plain range.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any
from uuid import UUID, uuid5

from clew.filter import OPERATORS, Filter, on_path
from clew.servers.qdrant.client import Json, Server
from clew.storage.batch import scalars, storable, tags_of
from clew.text.passage import lineage
from clew.timestamps import UNDATED
from clew.types import Record

NAMESPACE = UUID("5f0c8a52-6c4e-5b57-9d3b-3a1b5f3c9e10")
FOREVER = 1e300
"""Of a moment that is not known to come; its negative, of one that has always been."""
FLOATS = ("importance", "created", "updated", "since", "from", "to", "ended")
INDEXES: Json = {"is": "keyword", **dict.fromkeys(FLOATS, "float")}
"""Of every collection that filters hold in."""
_MANY = 1_000


def point_id(id: str) -> str:
    """The point of a record."""
    return str(uuid5(NAMESPACE, id))


def fields_of(record: Record) -> Json:
    """What filters see of a record."""
    created, updated = record.created_at or 0.0, record.updated_at or 0.0
    attributes = list(scalars(record.metadata))
    numbers = [{"k": k, "v": v} for k, v in attributes if isinstance(v, (int, float))]
    words = [
        f"r:{record.id}",
        f"c:{record.collection}",
        f"t:{record.type}",
        f"d:{record.domain}",
        *(f"#{name}" for tag in tags_of(record) for name in lineage(tag)),
        *(f"k:{key}" for key, _ in attributes),
        *(_attribute(key, value) for key, value in attributes if value is not None),
    ]
    if record.path is not None:
        words += ["p", f"p:{record.path}", *_folders(record.path)]
    return {
        "is": list(dict.fromkeys(words)),
        "numbers": numbers,
        "importance": record.importance,
        "created": created,
        "updated": updated,
        "since": created if record.valid_from is None else record.valid_from,
        "from": -FOREVER if record.valid_from is None else record.valid_from,
        "to": FOREVER if record.valid_to is None else record.valid_to,
        "ended": FOREVER if record.ended_at is None else record.ended_at,
    }


def _folders(path: str) -> Iterable[str]:
    """With the slash behind, as filters have them."""
    ends = [i + 1 for i, sign in enumerate(path) if sign == "/"]
    return (f"/{path[:end]}" for end in ends)


def _attribute(key: str, value: Any) -> str:
    """Numbers are the same however they are written."""
    if isinstance(value, str):
        return f"a:{key}\0s{value}"
    value = storable(int(value) if isinstance(value, bool) else value)
    whole = isinstance(value, int) or (value.is_integer() and abs(value) < 2**63)
    return f"a:{key}\0n{int(value) if whole else float(value)!r}"


def having(*words: str) -> Json:
    return {"key": "is", "match": {"any": list(words)}}


def both(*conditions: Json | None) -> Json | None:
    """All of them; None stands for everything."""
    merged: Json = {}
    for one in conditions:
        for part, tests in (one or {}).items():
            merged.setdefault(part, []).extend(tests)
    return merged or None


def condition_of(filter: Filter, server: Server) -> Json | None:
    """What a point has to meet. Patterns of paths and ranges of text, which Qdrant cannot compare,
    are put to the names that there are."""
    must: list[Json] = []
    must_not: list[Json] = []
    for prefix, names in (
        ("c:", filter.collection),
        ("t:", filter.type),
        ("d:", filter.domain),
        ("#", filter.tags),
        ("/", filter.within),
    ):
        if names:
            must.append(having(*(f"{prefix}{name}" for name in names)))
    must += [having(f"#{tag}") for tag in filter.tags_all]
    for prefix, names in (
        ("d:", filter.not_domain),
        ("#", filter.not_tags),
        ("/", filter.not_within),
    ):
        if names:
            must_not.append(having(*(f"{prefix}{name}" for name in names)))
    if filter.ids:
        must.append(having(*(f"r:{name}" for name in _existing(filter.ids, server))))
    for key, low, high in (
        ("importance", {"gte": filter.importance_min}, {"lte": filter.importance_max}),
        ("updated", {"gte": filter.after}, {"lt": filter.before}),
        ("created", {"gte": filter.created_after}, {"lt": filter.created_before}),
        ("from", {"lte": filter.valid_at}, {}),
        ("to", {"gt": filter.valid_at}, {}),
        ("since", {"lte": filter.as_of}, {}),
        ("to", {"gt": filter.as_of}, {}),
        ("ended", {"gt": filter.as_of}, {}),
    ):
        bounds = {name: at for name, at in {**low, **high}.items() if at is not None}
        if bounds:
            must.append({"key": key, "range": bounds})
    for key, before in (("updated", filter.before), ("created", filter.created_before)):
        if before is not None:
            must_not.append({"key": key, "range": {"gte": UNDATED, "lte": UNDATED}})
    if filter.active is not None:
        (must if filter.active else must_not).append({"key": "ended", "range": {"gte": FOREVER}})
    for key, value in filter.metadata:
        if value is None:
            must_not.append(having(f"k:{key}"))
        elif not isinstance(value, tuple) or value[0][0] == "eq":
            several = value if isinstance(value, tuple) else (("eq", value),)
            must.append(having(*(_attribute(key, each) for _, each in several)))
        elif isinstance(value[0][1], str):
            must.append(having(*_strings(key, value, server)))
        else:
            bounds = {name: float(bound) for name, bound in value}
            inner = [{"key": "k", "match": {"value": key}}, {"key": "v", "range": bounds}]
            must.append(having(f"k:{key}"))
            must.append({"nested": {"key": "numbers", "filter": {"must": inner}}})
    if filter.path:
        must.append(having(*_paths(filter.path, server, {"must": [*must], "must_not": must_not})))
    return both({"must": must} if must else None, {"must_not": must_not} if must_not else None)


def _existing(ids: Sequence[str], server: Server) -> Sequence[str]:
    """Of very many ids those that there are: the others would be carried to and fro."""
    if len(ids) <= _MANY:
        return ids
    found = server.get("records", [point_id(name) for name in ids], ["id"])
    return [point["payload"]["id"] for point in found]


def _strings(key: str, bounds: Sequence[tuple[str, str]], server: Server) -> list[str]:
    prefix = f"a:{key}\0s"
    found = server.facet("is", {"must": [having(f"k:{key}")]})
    return [
        word
        for word in found
        if word.startswith(prefix)
        and all(OPERATORS[name](word[len(prefix) :], bound) for name, bound in bounds)
    ]


def _paths(patterns: Sequence[str], server: Server, others: Json) -> list[str]:
    found = server.facet("path", both(others, {"must": [having("p")]}))
    return [f"p:{path}" for path in found if any(on_path(p, path) for p in patterns)]
