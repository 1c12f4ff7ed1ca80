"""The dialect of databases that have lists: a record's tags and links are in its row, as its text
is. What filters go by is in tables: labels, and attributes with a column for each kind of value."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from clew.storage.batch import labels_of, scalars, storable, tags_of
from clew.storage.tables import OPERATORS, RECORD, Row, Tables
from clew.types import Record

_BEYOND = 2**64
"""More than any whole number that is kept."""


class Rows(list[Row]):
    """What a statement gave, all of it."""

    def fetchall(self) -> Sequence[Row]:
        return self

    def fetchone(self) -> Row | None:
        return self[0] if self else None


class ArrayTables(Tables):
    """What such databases say alike."""

    LIST = "(SELECT unnest(?) AS value)"
    JOIN = "JOIN"
    CONTENT, TEXTS, TAGS, LINKS = "r.content", "", "r.tags", "r.links"
    WHOLE = "trunc({})"
    BY_MODEL = ""
    DETAILS: Mapping[str, Sequence[str]] = {  # type: ignore[misc]
        "records": ("rid", *RECORD, "checksum", "tags", "links", "content"),
        "labels": ("kind", "label", "rid"),
        "attributes": ("rid", "key", "text", "number", "whole"),
    }

    @staticmethod
    def as_list(values: Sequence[Any]) -> list[Any]:
        return list(values)

    @staticmethod
    def as_names(value: list[str]) -> tuple[str, ...]:
        return tuple(value)

    @staticmethod
    def compare(operator: str, bound: Any) -> tuple[str, list[Any]]:
        """Like with like: text with text, and numbers exactly, whole ones (of 64 bits) apart from
        the others since neither kind can hold all of the other. Each is held against the nearest
        of its own kind on either side of the bound, which are one where it has the bound itself."""
        if isinstance(bound, str):
            return f"text {OPERATORS[operator]} ?", [bound]
        bound = storable(bound)
        near = float(bound)
        below = math.nextafter(near, -math.inf) if near > bound else near
        above = math.nextafter(near, math.inf) if near < bound else near
        floor, ceiling = (max(-_BEYOND, min(f(bound), _BEYOND)) for f in (math.floor, math.ceil))
        tests: dict[str, str] = {}
        values: list[Any] = []
        for column, low, high in (("number", below, above), ("whole", floor, ceiling)):
            edges = {"gt": low, "gte": high, "lt": high, "lte": low}
            asked = ("gte", "lte") if operator == "eq" else (operator,)
            tests[column] = " AND ".join(f"{column} {OPERATORS[name]} ?" for name in asked)
            values += [edges[name] for name in asked]
        return "CASE WHEN whole IS NULL THEN {number} ELSE {whole} END".format(**tests), values

    @staticmethod
    def detail_rows(rid: int, columns: Row, record: Record) -> Iterator[tuple[str, Row]]:
        tags = tags_of(record)
        links = list(dict.fromkeys(record.links))
        yield "records", (rid, *columns, tags, links, record.content)
        for kind, label in (*(("tag", tag) for tag in tags), *labels_of(record)):
            yield "labels", (kind, label, rid)
        for key, value in dict.fromkeys(scalars(record.metadata)):
            if value is None or isinstance(value, str):
                yield "attributes", (rid, key, value, None, None)
            else:
                whole = value if isinstance(value, int) else None
                yield "attributes", (rid, key, None, float(value), whole)

    def last_numbers(self) -> tuple[int, int]:
        last: dict[str, int] = dict(self.execute("SELECT name, last FROM counters").fetchall())
        return last["rid"], last["cid"]

    def note_numbers(self, rid: int, cid: int) -> None:
        for name, last in (("rid", rid), ("cid", cid)):
            self.execute("UPDATE counters SET last = ? WHERE name = ?", (last, name))
