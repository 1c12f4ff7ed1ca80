"""What a filter means, said once more in plain Python: no index, no SQL, no regular expression."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping, Sequence
from typing import Any

from clew.types import Record


def keeps(wanted: Mapping[str, Any], record: Record) -> bool:
    """Whether a record passes `Filter(**wanted)`."""
    return all(_TESTS[name](value, record) for name, value in wanted.items())


def _several(value: str | Sequence[str]) -> list[str]:
    return [value] if isinstance(value, str) else list(value)


def _folded(tags: str | Sequence[str]) -> set[str]:
    return {tag.removeprefix("#").casefold() for tag in _several(tags)}


def _tags(record: Record) -> set[str]:
    """With all they lie below."""
    parts = [tag.split("/") for tag in _folded(record.tags)]
    return {"/".join(some[:n]) for some in parts for n in range(1, len(some) + 1)}


def _path(wanted: str | Sequence[str], record: Record) -> bool:
    path = record.path
    if path is None:
        return False
    return any(
        _glob(pattern.split("/"), path.split("/"))
        if any(sign in pattern for sign in "*?[")
        else path.startswith(pattern)
        for pattern in _several(wanted)
    )


def _glob(pattern: list[str], path: list[str]) -> bool:
    """Folder by folder: only `**` stands for any number of them."""
    if not pattern:
        return not path
    if pattern[0] == "**":
        if len(pattern) == 1:
            return bool(path)
        return any(_glob(pattern[1:], path[i:]) for i in range(len(path) + 1))
    return bool(path) and fnmatch.fnmatchcase(path[0], pattern[0]) and _glob(pattern[1:], path[1:])


def _metadata(wanted: Mapping[str, Any], record: Record) -> bool:
    return all(_matches(condition, record.metadata.get(key)) for key, condition in wanted.items())


def _matches(condition: Any, value: Any) -> bool:
    if condition is None:
        return value is None
    members = value if isinstance(value, list) else [value]
    if isinstance(condition, Mapping):
        return any(_within(condition, member) for member in members)
    return any(member is not None and member == condition for member in members)


def _within(bounds: Mapping[str, Any], value: Any) -> bool:
    for operator, bound in bounds.items():
        if isinstance(value, str) != isinstance(bound, str) or value is None:
            return False
        if not {
            "gt": lambda a, b: a > b,
            "gte": lambda a, b: a >= b,
            "lt": lambda a, b: a < b,
            "lte": lambda a, b: a <= b,
        }[operator](value, bound):
            return False
    return True


def _true(at: float, since: float | None, record: Record) -> bool:
    return (since is None or since <= at) and (record.valid_to is None or at < record.valid_to)


_TESTS = {
    "collection": lambda wanted, record: record.collection in _several(wanted),
    "type": lambda wanted, record: record.type in _several(wanted),
    "domain": lambda wanted, record: record.domain in _several(wanted),
    "not_domain": lambda wanted, record: record.domain not in _several(wanted),
    "tags": lambda wanted, record: bool(_folded(wanted) & _tags(record)),
    "not_tags": lambda wanted, record: not _folded(wanted) & _tags(record),
    "tags_all": lambda wanted, record: _folded(wanted) <= _tags(record),
    "path": _path,
    "within": lambda wanted, record: any(
        folder.rstrip("/").split("/")
        == record.path.split("/")[:-1][: folder.rstrip("/").count("/") + 1]
        for folder in _several(wanted)
        if record.path is not None
    ),
    "not_within": lambda wanted, record: not _TESTS["within"](wanted, record),
    "importance_min": lambda wanted, record: record.importance >= wanted,
    "importance_max": lambda wanted, record: record.importance <= wanted,
    "after": lambda wanted, record: record.updated_at >= wanted,
    "before": lambda wanted, record: record.updated_at < wanted,
    "created_after": lambda wanted, record: record.created_at >= wanted,
    "created_before": lambda wanted, record: record.created_at < wanted,
    "active": lambda wanted, record: (record.ended_at is None) == wanted,
    "valid_at": lambda wanted, record: _true(wanted, record.valid_from, record),
    "as_of": lambda wanted, record: (
        _true(wanted, record.created_at if record.valid_from is None else record.valid_from, record)
        and (record.ended_at is None or wanted < record.ended_at)
    ),
    "ids": lambda wanted, record: record.id in _several(wanted),
    "metadata": _metadata,
}
