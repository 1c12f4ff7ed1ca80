"""Which entities names mean to one who asks, as far as records say so that may be seen.

An alias is one because a record says it: a link's words, front matter, an acronym beside what it
stands for. To those who may see no such record, the two are different names. And a name that only
hidden records write is none.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from clew.filter import Filter
from clew.graph.snapshot import Entry, Snapshot, seen
from clew.protocols import Store

__all__ = ["Meant", "meant", "picked"]

FIRST_LOOK = 20
"""Records of each name that are looked at before more are."""
MOST_PICKED = 400
"""Records kept of a name that is only part of its entity."""

K = TypeVar("K", bound=Hashable)


class Meant(NamedTuple):
    """What a name means."""

    entity: Entry
    only: tuple[int, ...] | None = None
    """The records that write it so, where those who ask must not know of the entity's other
    names; None: all of the entity's."""


class _Rows(NamedTuple):
    """A query for records, the first column, and its values."""

    query: str
    values: tuple[Any, ...]


def meant(
    snapshot: Snapshot, store: Store, filter: Filter, keys: Sequence[str]
) -> dict[str, Meant]:
    """By key; those that mean nothing to whoever asks are left out."""
    found = snapshot.look_up(keys)
    nodes = sorted({entity.node for _, entity in found.values()})
    names: dict[int, set[int]] = defaultdict(set)
    for node, number in snapshot.among(
        "SELECT node, number FROM names WHERE node IN (SELECT value FROM json_each(?))", nodes
    ):
        names[node].add(number)
    joined = _joined(snapshot, store, filter, [node for node in nodes if len(names[node]) > 1])
    alike = {number: _reached(number, joined) for number, _ in found.values()}
    wanted: dict[str, _Rows] = {}
    parts: dict[str, _Rows] = {}
    for name, (number, entity) in found.items():
        if alike[number] >= names[entity.node]:
            query = "SELECT record FROM mentions WHERE entity = ?"
            wanted[name] = _Rows(query, (entity.node,))
        else:
            query = """SELECT DISTINCT m.record FROM writers AS w
                       JOIN mentions AS m ON m.entity = ? AND m.record = w.record
                       WHERE w.name IN (SELECT value FROM json_each(?))
                       ORDER BY m.after DESC, m.times DESC, m.record"""
            parts[name] = _Rows(query, (entity.node, json.dumps(sorted(alike[number]))))
    known = _any_seen(snapshot, store, filter, wanted)
    result = {name: Meant(found[name][1]) for name in known}
    for name, rows in parts.items():
        if only := picked(snapshot, store, filter, rows.query, rows.values, most=MOST_PICKED):
            result[name] = Meant(found[name][1], tuple(only))
    return result


def _joined(
    snapshot: Snapshot, store: Store, filter: Filter, nodes: Sequence[int]
) -> dict[int, set[int]]:
    """Which names are said to be the same, where a record that may be seen says it."""
    pairs = snapshot.among(
        """SELECT DISTINCT node, first, second FROM joins
           WHERE node IN (SELECT value FROM json_each(?))""",
        nodes,
    )
    query = "SELECT record FROM joins WHERE node = ? AND first = ? AND second = ?"
    said = _any_seen(snapshot, store, filter, {pair: _Rows(query, pair) for pair in pairs})
    found: dict[int, set[int]] = defaultdict(set)
    for _, first, second in said:
        found[first].add(second)
        found[second].add(first)
    return found


def _reached(number: int, joined: Mapping[int, set[int]]) -> set[int]:
    reached, front = {number}, [number]
    while front:
        for other in joined.get(front.pop(), ()):
            if other not in reached:
                reached.add(other)
                front.append(other)
    return reached


def _any_seen(
    snapshot: Snapshot, store: Store, filter: Filter, wanted: Mapping[K, _Rows]
) -> list[K]:
    """Those with a record that may be seen. Of most one of the first few may be."""
    found: dict[K, bool] = {}
    for limit in (FIRST_LOOK, -1):
        left = {name: rows for name, rows in wanted.items() if name not in found}
        records = {
            name: [r[0] for r in snapshot.rows(f"{rows.query} LIMIT ?", *rows.values, limit)]
            for name, rows in left.items()
        }
        ids = snapshot.ids(sorted({r for some in records.values() for r in some}))
        may = seen(snapshot, store, filter, list(ids.values()))
        for name, some in records.items():
            if any(ids.get(record) in may for record in some):
                found[name] = True
            elif len(some) < FIRST_LOOK:
                found[name] = False
    return [name for name in wanted if found.get(name)]


def picked(
    snapshot: Snapshot,
    store: Store,
    filter: Filter,
    query: str,
    values: Sequence[Any],
    *,
    most: int,
) -> list[int]:
    """The first of the records of a query that may be seen."""
    found: list[int] = []
    rows = [row[0] for row in snapshot.rows(query, *values)]
    at, size = 0, most
    while at < len(rows) and len(found) < most:
        some = rows[at : at + size]
        ids = snapshot.ids(some)
        may = seen(snapshot, store, filter, list(ids.values()))
        found += [record for record in some if ids.get(record) in may]
        at, size = at + size, 10 * size  # if few may be seen, few of the next may
    return found[:most]
