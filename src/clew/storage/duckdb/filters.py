"""A filter as a condition in DuckDB's SQL, on `records AS r`."""

from __future__ import annotations

import math
from typing import Any

from clew.filter import Filter
from clew.storage.filters import bounds, literal_part, storable

__all__ = ["where"]

_OPERATORS = {"gt": ">", "gte": ">=", "lt": "<", "lte": "<="}
_WHOLE = -(2**63), 2**63 - 1


def where(filter: Filter) -> tuple[str, list[Any]]:
    """The condition with its parameters. "true" when there is none."""
    tests: list[str] = []
    values: list[Any] = []

    def test(sql: str, *parameters: Any) -> None:
        tests.append(sql)
        values.extend(parameters)

    for column, names in (
        ("collection", filter.collection),
        ("type", filter.type),
        ("domain", filter.domain),
        ("id", filter.ids),
    ):
        if len(names) == 1:
            test(f"r.{column} = ?", names[0])
        elif names:
            test(f"r.{column} IN (SELECT unnest(?))", list(names))
    if filter.not_domain:
        test("NOT list_contains(?, r.domain)", list(filter.not_domain))
    if filter.tags:
        test(f"r.rid IN {_TAGGED}", list(filter.tags))
    if filter.not_tags:
        test(f"r.rid NOT IN {_TAGGED}", list(filter.not_tags))
    for tag in filter.tags_all:
        test(f"r.rid IN {_TAGGED}", [tag])
    if filter.path:
        options = [_path(pattern) for pattern in filter.path]
        test(" OR ".join(sql for sql, _ in options), *(v for _, vs in options for v in vs))
    if filter.within:
        below = " OR ".join(["starts_with(r.path, ?)"] * len(filter.within))
        test(f"COALESCE({below}, false)", *filter.within)
    if filter.not_within:
        below = " OR ".join(["starts_with(r.path, ?)"] * len(filter.not_within))
        test(f"NOT COALESCE({below}, false)", *filter.not_within)
    for sql, *bound in bounds(filter):
        test(sql, *bound)
    for key, wanted in filter.metadata:
        if wanted is None:
            test("r.rid NOT IN (SELECT rid FROM attributes WHERE key = ?)", key)
            continue
        asked = wanted if isinstance(wanted, tuple) else (("eq", wanted),)
        parts = [_compared(operator, bound) for operator, bound in asked]
        sql = " AND ".join(f"({part})" for part, _ in parts)
        test(
            f"r.rid IN (SELECT rid FROM attributes WHERE key = ? AND {sql})",
            key,
            *(value for _, some in parts for value in some),
        )
    return " AND ".join(f"({t})" for t in tests) or "true", values


# With these tags or below them.
_TAGGED = """(SELECT l.rid FROM labels AS l, (SELECT unnest(?) AS tag) AS asked
              WHERE l.kind = 'tag'
                AND (l.label = asked.tag OR starts_with(l.label, asked.tag || '/')))"""


def _path(pattern: str) -> tuple[str, list[str]]:
    literal = literal_part(pattern)
    if literal == pattern:
        return "COALESCE(starts_with(r.path, ?), false)", [literal]
    # Matched by the very function that decides in Python, which is asked for as few as possible.
    matches = "CASE WHEN starts_with(r.path, ?) THEN clew_glob(?, r.path) ELSE false END"
    return f"COALESCE({matches}, false)", [literal, pattern]


def _compared(operator: str, bound: Any) -> tuple[str, list[Any]]:
    """Like with like: text with text, and numbers exactly, whole ones (of 64 bits) apart from the
    others since neither kind can hold all of the other."""
    if isinstance(bound, str):
        return f"text {_OPERATORS.get(operator, '=')} ?", [bound]
    bound = storable(bound)
    low, high = math.floor(bound), math.ceil(bound)
    if operator == "eq":
        whole = ("whole = ?", [low]) if low == high and _WHOLE[0] <= low <= _WHOLE[1] else _NO
        number = ("number = ?", [float(bound)]) if float(bound) == bound else _NO
    else:
        sign = _OPERATORS[operator]
        edge = low if sign in (">", "<=") else high
        whole = _clipped(sign, edge)
        number = f"number {_rounded(sign, bound)} ?", [float(bound)]
    sql = f"CASE WHEN whole IS NULL THEN {number[0]} ELSE {whole[0]} END"
    return sql, [*number[1], *whole[1]]


_NO: tuple[str, list[Any]] = "false", []


def _clipped(sign: str, edge: int) -> tuple[str, list[Any]]:
    """`whole sign edge`, for an edge that may be beyond what 64 bits hold."""
    if edge > _WHOLE[1]:
        return ("true", []) if "<" in sign else _NO
    if edge < _WHOLE[0]:
        return ("true", []) if ">" in sign else _NO
    return f"whole {sign} ?", [edge]


def _rounded(sign: str, bound: float) -> str:
    """The sign that compares with `float(bound)` as the given one does with the bound itself, which
    a float may not hold: then no number is equal to it, and one side takes the rounded one in."""
    nearest = float(bound)
    if nearest == bound:
        return sign
    return sign[0] if (nearest > bound) == (sign[0] == "<") else f"{sign[0]}="
