"""Filter: which records may be found."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from clew.errors import InputError, nearest
from clew.moments import Moment, timestamp

__all__ = ["Filter"]

_RANGE_OPERATORS = frozenset({"gt", "gte", "lt", "lte"})


@dataclass(frozen=True, slots=True, init=False)
class Filter:
    """Which records may be found. Every field narrows; fields left out, or empty, do not.

    >>> Filter(collection="notes", tags=["risk", "trading"], after="2026-01-01")
    >>> Filter(path="projects/**/*.md", metadata={"status": "open", "effort": {"lte": 3}})
    """

    collection: tuple[str, ...] = ()
    type: tuple[str, ...] = ()
    domain: tuple[str, ...] = ()
    not_domain: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    """Any of these."""
    tags_all: tuple[str, ...] = ()
    """All of these."""
    not_tags: tuple[str, ...] = ()
    """None of these."""
    path: tuple[str, ...] = ()
    """Any of these: a prefix (`projects/`), or a glob where it has `*`, `?` or `[`."""
    importance_min: float | None = None
    importance_max: float | None = None
    after: float | None = None
    """updated_at at or after."""
    before: float | None = None
    """updated_at strictly before."""
    ids: tuple[str, ...] = ()
    metadata: tuple[tuple[str, Any], ...] = ()
    """Sorted (key, value) pairs; a value is a scalar or a sorted tuple of (operator, bound)."""

    def __init__(
        self,
        *,
        collection: str | Sequence[str] = (),
        type: str | Sequence[str] = (),
        domain: str | Sequence[str] = (),
        not_domain: str | Sequence[str] = (),
        tags: str | Sequence[str] = (),
        tags_all: str | Sequence[str] = (),
        not_tags: str | Sequence[str] = (),
        path: str | Sequence[str] = (),
        importance_min: float | None = None,
        importance_max: float | None = None,
        after: Moment | None = None,
        before: Moment | None = None,
        ids: str | Sequence[str] = (),
        metadata: Mapping[str, Any] | None = None,
        **unknown: Any,
    ) -> None:
        for name in unknown:
            known = (f.name for f in fields(Filter))
            raise InputError(f"unknown filter field {name!r}: {nearest(name, known)}")
        put = object.__setattr__
        put(self, "collection", _names("collection", collection))
        put(self, "type", _names("type", type))
        put(self, "domain", _names("domain", domain))
        put(self, "not_domain", _names("not_domain", not_domain))
        put(self, "tags", _names("tags", tags, fold=True))
        put(self, "tags_all", _names("tags_all", tags_all, fold=True))
        put(self, "not_tags", _names("not_tags", not_tags, fold=True))
        put(self, "path", _names("path", path))
        put(self, "importance_min", _bound("importance_min", importance_min))
        put(self, "importance_max", _bound("importance_max", importance_max))
        put(self, "after", None if after is None else timestamp(after, name="after"))
        put(self, "before", None if before is None else timestamp(before, name="before"))
        put(self, "ids", _names("ids", ids))
        put(self, "metadata", _conditions(metadata or {}))
        self._check_ranges()

    def _check_ranges(self) -> None:
        if self.after is not None and self.before is not None and self.after >= self.before:
            raise InputError("this time range is empty: `after` must be earlier than `before`")
        low, high = self.importance_min, self.importance_max
        if low is not None and high is not None and low > high:
            raise InputError("this range is empty: importance_min is above importance_max")

    @classmethod
    def of(cls, value: Filter | Mapping[str, Any] | None) -> Filter:
        """A Filter from what a caller may give: one already, a mapping of its fields, or None."""
        if value is None:
            return EVERYTHING
        if isinstance(value, Filter):
            return value
        if isinstance(value, Mapping):
            return cls(**{str(name): bound for name, bound in value.items()})
        raise InputError(f"a filter is a Filter or a mapping, not {value.__class__.__name__}")

    def __bool__(self) -> bool:
        return self is not EVERYTHING and self != EVERYTHING

    def __and__(self, other: Filter) -> Filter:
        """Both: used for what the query text adds (`tag:`, `path:`…) to what the caller gave."""
        if not self or not other:
            return self or other
        merged: dict[str, Any] = {}
        required: tuple[str, ...] = ()
        for f in fields(Filter):
            mine, theirs = getattr(self, f.name), getattr(other, f.name)
            merged[f.name] = theirs if mine in ((), None) else mine
            if mine in ((), None) or theirs in ((), None) or mine == theirs:
                continue
            if f.name in ("after", "importance_min"):
                merged[f.name] = max(mine, theirs)
            elif f.name in ("before", "importance_max"):
                merged[f.name] = min(mine, theirs)
            elif f.name in ("not_domain", "not_tags", "tags_all"):
                merged[f.name] = (*mine, *theirs)
            elif f.name == "tags" and 1 in (len(mine), len(theirs)):
                # any of one tag is all of it, so both wishes fit into one filter
                alone, several = (mine, theirs) if len(mine) == 1 else (theirs, mine)
                merged["tags"] = several if len(several) > 1 else ()
                required = alone if len(several) > 1 else (*alone, *several)
            elif f.name in ("collection", "type", "domain", "ids"):
                common = tuple(v for v in mine if v in theirs)
                if not common:
                    raise InputError(
                        f"no record can match: {f.name} is asked to be {mine} and {theirs} at once"
                    )
                merged[f.name] = common
            elif f.name == "metadata":
                merged[f.name] = tuple(sorted({*mine, *theirs}, key=repr))  # each holds
            else:
                raise InputError(f"{f.name} is given twice, in the filter and in the query text")
        merged["tags_all"] = tuple(dict.fromkeys((*merged["tags_all"], *required)))
        combined = object.__new__(Filter)
        for name, value in merged.items():
            object.__setattr__(combined, name, value)
        combined._check_ranges()
        return combined


def _names(name: str, value: str | Sequence[str], *, fold: bool = False) -> tuple[str, ...]:
    if not isinstance(value, (str, Sequence, set, frozenset)) or isinstance(value, bytes):
        raise InputError(f"filter field {name!r} takes a string or several, not {value!r}")
    values = (value,) if isinstance(value, str) else tuple(value)
    for v in values:
        if not isinstance(v, str):
            raise InputError(f"filter field {name!r} takes strings, not {v!r}")
    return tuple(v.lstrip("#").casefold() if fold else v for v in values)


def _bound(name: str, value: float | None) -> float | None:
    if value is None:
        return None
    if _number_kind(value) is None:
        raise InputError(f"filter field {name!r} takes a finite number, not {value!r}")
    return float(value)


def _number_kind(value: Any) -> type | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        return float if math.isfinite(float(value)) else None
    except OverflowError:
        return None


def _conditions(metadata: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    if not isinstance(metadata, Mapping):
        raise InputError(f"filter field 'metadata' takes a mapping, not {metadata!r}")
    conditions: list[tuple[str, Any]] = []
    for key, value in metadata.items():
        if not isinstance(key, str):
            raise InputError(f"a metadata key is a string, not {key!r}")
        if isinstance(value, Mapping):
            kinds = {
                str if isinstance(bound, str) else _number_kind(bound) for bound in value.values()
            }
            if len(kinds) != 1 or None in kinds:
                raise InputError(
                    f"a range on metadata {key!r} has numbers or strings as bounds, not {value!r}"
                )
            for operator in value:
                if operator not in _RANGE_OPERATORS:
                    hint = nearest(str(operator), _RANGE_OPERATORS)
                    raise InputError(f"unknown range {operator!r} on metadata {key!r}: {hint}")
            conditions.append((key, tuple(sorted(value.items()))))
        elif value is None or isinstance(value, (str, int, float, bool)):
            conditions.append((key, value))
        else:
            raise InputError(
                f"metadata {key!r} can be compared with a string, a number, a boolean, None or "
                f"a range such as {{'gte': 3}}, not with {type(value).__name__}"
            )
    return tuple(sorted(conditions, key=lambda c: c[0]))


EVERYTHING = Filter()
"""No restriction."""
