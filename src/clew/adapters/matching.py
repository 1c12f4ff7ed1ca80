"""Filters as LangGraph writes them: {"status": "open", "effort": {"$lte": 3}}.

They are said twice. `pushed` is what Clew's index can answer: never less than what fits, and mostly
just that. `fits` decides.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from clew.errors import InputError, nearest

__all__ = ["check_conditions", "fits", "pushed"]


def _alike(compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    """Numbers with numbers, texts with texts: nothing else has an order."""

    def compared(value: Any, bound: Any) -> bool:
        for kind in ((int, float), str):
            if isinstance(value, kind) and isinstance(bound, kind):
                return compare(value, bound)
        return False

    return compared


_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "$eq": operator.eq,
    "$ne": operator.ne,
    "$gt": _alike(operator.gt),
    "$gte": _alike(operator.ge),
    "$lt": _alike(operator.lt),
    "$lte": _alike(operator.le),
}
EXACT = 2**53
"""Above it, the index may take two whole numbers for one."""


def check_conditions(conditions: Any) -> dict[str, Any]:
    """Refused before anything is looked for: a store without items would not notice."""
    if not isinstance(conditions, Mapping):
        raise InputError(f"a filter is a mapping of keys to values, not {conditions!r:.100}")
    for key, wanted in conditions.items():
        if not isinstance(key, str):
            raise InputError(f"a filter names keys of a value, which are text, not {key!r:.100}")
        _check(wanted)
    return dict(conditions)


def _check(wanted: Any) -> None:
    if isinstance(wanted, (list, tuple)):
        for each in wanted:
            _check(each)
    elif isinstance(wanted, Mapping):
        operators = any(str(name).startswith("$") for name in wanted)
        for name, each in wanted.items():
            if operators and name not in _OPERATORS:
                raise InputError(f"unknown operator {name!r}: {nearest(str(name), _OPERATORS)}")
            if not operators:
                _check(each)


def fits(value: Any, conditions: Mapping[str, Any]) -> bool:
    """Whether an item's value meets all of them; what it does not have counts as None."""
    return all(_meets(value.get(key), wanted) for key, wanted in conditions.items())


def _meets(value: Any, wanted: Any) -> bool:
    if isinstance(wanted, Mapping):
        if any(str(name).startswith("$") for name in wanted):
            return all(_OPERATORS[name](value, bound) for name, bound in wanted.items())
        return isinstance(value, Mapping) and fits(value, wanted)
    if isinstance(wanted, (list, tuple)):
        return (
            isinstance(value, (list, tuple))
            and len(value) == len(wanted)
            and all(_meets(mine, theirs) for mine, theirs in zip(value, wanted, strict=True))
        )
    return bool(value == wanted)


def pushed(conditions: Mapping[str, Any]) -> dict[str, Any]:
    """The part of it that `Filter(metadata=…)` can say."""
    said = ((key, _pushed(wanted)) for key, wanted in conditions.items())
    return {key: terms[0] for key, terms in said if terms}


def _pushed(wanted: Any) -> Sequence[Any]:
    """One condition of Clew's, or none."""
    if not isinstance(wanted, Mapping):
        return [wanted] if wanted is None or _indexed(wanted) else []
    if "$eq" in wanted:
        return _pushed(wanted["$eq"]) if not isinstance(wanted["$eq"], Mapping) else []
    ranges = {
        name[1:]: int(bound) if isinstance(bound, bool) else bound
        for name, bound in wanted.items()
        if name in ("$gt", "$gte", "$lt", "$lte") and _indexed(bound)
    }
    # texts and numbers at once can be met by nothing; `fits` says so
    alike = len({isinstance(bound, str) for bound in ranges.values()}) == 1
    return [ranges] if alike else []


def _indexed(scalar: Any) -> bool:
    """Whether the index compares it as Python does."""
    if isinstance(scalar, str):
        return not any("\ud800" <= character <= "\udfff" for character in scalar)
    if isinstance(scalar, (int, float)):
        return abs(scalar) <= EXACT  # NaN is not, either
    return False
