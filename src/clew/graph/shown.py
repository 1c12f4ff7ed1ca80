"""The graph as people look at it: figures, foremost entities, one entity with all about it.

Nothing is shown that only records behind the filter say: an entity is named as a record that may be
seen writes it, and a relation needs such a record that names both.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from clew.errors import InputError
from clew.filter import Filter
from clew.graph.assemble import idf
from clew.graph.local import Matched, named
from clew.graph.snapshot import Snapshot, seen
from clew.graph.themes import checked_level, describe
from clew.protocols import Store

__all__ = ["Seen", "name_entities", "overview", "portrait", "seen_entities"]

EACH = 200
"""Records of one entity that are looked at."""
FEW = 20
"""Where fewer of them may be seen, all the others are looked at as well."""
COUNTED = 5_000
"""Records of one entity that are counted where many entities are shown."""
LOOKED_AT = 200
"""Relations of one entity that are looked at, and some more for those who want many."""
TOGETHER = "together"
"""How two are related that one passage names."""
AMONG = 400
"""Entities among which the foremost are found."""


class Seen:
    """What may be seen of one entity."""

    __slots__ = ("kind", "mentions", "more", "name", "node", "records", "spellings")

    def __init__(
        self, node: int, kind: str, rows: Sequence[tuple[int, int, bool, str]], *, more: bool
    ):
        self.node, self.kind = node, kind
        self.more = more  # there are some that were not looked at
        self.records = [row[0] for row in rows]
        self.mentions = sum(row[1] for row in rows)
        counts: Counter[str] = Counter()
        for _, times, after, written in rows:
            counts[written] += times + (1000 if after else 0)
        self.spellings = sorted(counts, key=lambda name: (-counts[name], name))
        self.name = self.spellings[0]


def seen_entities(
    snapshot: Snapshot,
    store: Store,
    filter: Filter,
    nodes: Sequence[int],
    *,
    matched: Sequence[Matched] = (),
    each: int = EACH,
) -> dict[int, Seen]:
    """Those of these entities that a record names which may be seen. Of those that were asked for
    by one of their names, as far as that goes for all of them."""
    nodes = list(dict.fromkeys(nodes))
    parts: dict[int, set[int]] = {}
    for one in matched:
        if one.only is not None:
            parts.setdefault(one.entity.node, set()).update(one.only)
    kinds = snapshot.entities(nodes)
    found: dict[int, Seen] = {}
    for limit in (each, -1):
        mentions = snapshot.mentions(nodes, each=limit)
        ids = snapshot.ids(sorted({row[0] for rows in mentions.values() for row in rows}))
        may = seen(snapshot, store, filter, list(ids.values()))
        hardly: list[int] = []
        for node in nodes:
            part = parts.get(node)
            rows = [
                row
                for row in mentions[node]
                if ids.get(row[0]) in may and (part is None or row[0] in part)
            ]
            if rows and node in kinds:
                more = len(mentions[node]) == limit
                found[node] = Seen(node, kinds[node].kind, rows, more=more)
            if len(rows) < FEW and len(mentions[node]) == limit:
                hardly.append(node)
        if not (nodes := hardly):  # else those that may be seen are further behind
            break
    return found


def name_entities(
    snapshot: Snapshot,
    store: Store,
    filter: Filter,
    nodes: Sequence[int],
    *,
    matched: Sequence[Matched] = (),
) -> dict[int, str]:
    found = seen_entities(snapshot, store, filter, nodes, matched=matched)
    return {node: entity.name for node, entity in found.items()}


def foremost(
    snapshot: Snapshot, store: Store, filter: Filter, *, limit: int, each: int = EACH
) -> list[Seen]:
    """Entities that hold much together: named by many records, and not by nearly all."""
    rows = snapshot.rows(
        "SELECT node, records FROM entities ORDER BY records DESC, node LIMIT ?",
        max(AMONG, 2 * limit),
    )
    worth = {node: count * idf(count, snapshot.records) ** 2 for node, count in rows}
    order = sorted(worth, key=lambda node: (-worth[node], node))[: 2 * limit]
    found = seen_entities(snapshot, store, filter, order, each=each)
    return [found[node] for node in order if node in found][:limit]


def overview(
    snapshot: Snapshot, store: Store, filter: Filter, *, limit: int, level: int | None
) -> dict[str, Any]:
    """Figures, foremost entities, themes of one level."""
    state = snapshot.state
    themes = []
    if len(snapshot.levels):
        chosen = checked_level(snapshot, level)
        rows = snapshot.rows(
            "SELECT number FROM communities WHERE level = ? ORDER BY size DESC, number LIMIT ?",
            chosen,
            2 * limit,
        )
        themes = describe(snapshot, store, filter, [row[0] for row in rows])[:limit]
    return {
        "records": state["records"],
        "entities": state["entities"],
        "links": state["links"],
        "relations": state["relations"],
        "levels": list(state["levels"]),
        "foremost": [
            {
                "name": entity.name,
                "kind": entity.kind,
                "records": len(entity.records),
                "mentions": entity.mentions,
                "more": entity.more,
            }
            for entity in foremost(snapshot, store, filter, limit=limit, each=COUNTED)
        ],
        "themes": [theme.to_dict() for theme in themes],
    }


def portrait(
    snapshot: Snapshot, store: Store, filter: Filter, name: str, *, limit: int
) -> dict[str, Any]:
    """One entity: its spellings, the records that name it, what it is related to."""
    matched = named(snapshot, store, filter, name)
    nodes = [one.entity.node for one in matched]
    found = seen_entities(snapshot, store, filter, nodes, matched=matched, each=-1)
    if not found:
        raise InputError(f"the graph knows no {name!r}: `clew graph show` lists what it knows")
    longest = max(
        (one for one in matched if one.entity.node in found),
        key=lambda one: (one.last - one.first, -one.first),
    )
    entity = found[longest.entity.node]
    ids = snapshot.ids(entity.records)
    return {
        "name": entity.name,
        "kind": entity.kind,
        "spellings": entity.spellings,
        "mentions": entity.mentions,
        "records": [ids[node] for node in entity.records[:limit]],
        "related": related(snapshot, store, filter, entity, limit=limit),
    }


def related(
    snapshot: Snapshot, store: Store, filter: Filter, entity: Seen, *, limit: int
) -> list[dict[str, Any]]:
    """Relations that may be seen, the strongest first: how two are related is told where a record
    that may be seen says so, and counts as often as such records do; of others that are named in
    one such record it is said that they are, and no more."""
    rows = snapshot.rows(
        """SELECT number, first, second, kind, weight FROM relations
           WHERE first = ?1 OR second = ?1
           ORDER BY kind = 'together', weight DESC, first, second LIMIT ?2""",
        entity.node,
        LOOKED_AT + 3 * limit,
    )
    others = [b if a == entity.node else a for _, a, b, _, _ in rows]
    names = seen_entities(snapshot, store, filter, list(dict.fromkeys(others)))
    said = _stated(snapshot, store, filter, [row[0] for row in rows])
    mine = set(entity.records)
    found: list[dict[str, Any]] = []
    told: set[int] = set()
    untold: dict[int, None] = {}
    for other, (number, first, _, kind, weight) in zip(others, rows, strict=True):
        if other not in names:
            continue
        if kind != TOGETHER and number in said:
            weight = float(said[number])
        elif mine.isdisjoint(names[other].records):
            continue
        elif kind != TOGETHER:
            untold[other] = None
            continue
        told.add(other)
        found.append(_relation(names[other], kind, weight, to=first == entity.node))
    found += [_relation(names[n], TOGETHER, 0.0, to=True) for n in untold if n not in told]
    found.sort(key=lambda one: (one["relation"] == TOGETHER, -one["weight"]))
    return found[:limit]


def _relation(other: Seen, kind: str, weight: float, *, to: bool) -> dict[str, Any]:
    return {
        "name": other.name,
        "relation": kind,
        "direction": "to" if to else "from",
        "weight": round(weight, 4),
    }


def _stated(
    snapshot: Snapshot, store: Store, filter: Filter, relations: Sequence[int]
) -> dict[int, int]:
    """By how many records that may be seen each of these is stated; without those of none."""
    rows = snapshot.among(
        """SELECT relation, record FROM stated
           WHERE relation IN (SELECT value FROM json_each(?))""",
        relations,
    )
    ids = snapshot.ids(sorted({record for _, record in rows}))
    may = seen(snapshot, store, filter, list(ids.values()))
    return Counter(number for number, record in rows if ids.get(record) in may)
