"""The graph as people look at it: figures, foremost entities, one entity with all about it, and an
interactive picture: one HTML file, with no word from the network.

Nothing is shown that only records behind the filter say: an entity is named as a record that may be
seen writes it, and a relation needs such a record that names both.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from clew.errors import InputError
from clew.graph.assemble import idf
from clew.graph.communities import choose_level, describe_themes, largest_themes
from clew.graph.search import NameMatch, match_names
from clew.graph.snapshot import EACH, GraphView, SeenEntity

COUNTED = 5_000  # records of one entity that are counted where many entities are shown
MOST_RELATIONS = 200  # relations of one entity that are looked at, and some more for many wanted
TOGETHER = "together"  # how two are related that one passage names
AMONG = 400  # entities among which the foremost are found
TEMPLATE = Path(__file__).with_name("picture.html")
MOST_NODES = 2_000
PER_ENTITY = 12  # records drawn for one entity


def parts_of(matched: Iterable[NameMatch]) -> dict[int, set[int]]:
    """The records by which entities were named that were asked for by one of their names only."""
    parts: dict[int, set[int]] = {}
    for one in matched:
        if one.only is not None:
            parts.setdefault(one.entity.node, set()).update(one.only)
    return parts


def find_foremost(view: GraphView, *, limit: int, each: int = EACH) -> list[SeenEntity]:
    """Entities that hold much together: named by many records, and not by nearly all."""
    rows = view.snapshot.rows(
        "SELECT node, records FROM entities ORDER BY records DESC, node LIMIT ?",
        max(AMONG, 2 * limit),
    )
    worth = {node: count * idf(count, view.snapshot.records) ** 2 for node, count in rows}
    order = sorted(worth, key=lambda node: (-worth[node], node))[: 2 * limit]
    found = view.entities(order, each=each)
    return [found[node] for node in order if node in found][:limit]


def describe_graph(view: GraphView, *, limit: int, level: int | None) -> dict[str, Any]:
    """Figures, foremost entities, themes of one level."""
    snapshot, state = view.snapshot, view.snapshot.state
    themes = []
    if len(snapshot.levels):
        largest = largest_themes(snapshot, choose_level(snapshot, level))
        themes = describe_themes(view, largest[: 2 * limit])[:limit]
    return {
        **{name: state[name] for name in ("records", "entities", "links", "relations")},
        "levels": list(state["levels"]),
        "foremost": [
            {
                "name": entity.name,
                "kind": entity.kind,
                "records": len(entity.records),
                "mentions": entity.mentions,
                "more": entity.more,
            }
            for entity in find_foremost(view, limit=limit, each=COUNTED)
        ],
        "themes": [theme.to_dict() for theme in themes],
    }


def describe_entity(view: GraphView, name: str, *, limit: int) -> dict[str, Any]:
    """One entity: its spellings, the records that name it, what it is related to."""
    matched = match_names(view, name)
    nodes = [one.entity.node for one in matched]
    found = view.entities(nodes, parts=parts_of(matched), each=-1)
    if not found:
        raise InputError(f"the graph knows no {name!r}: `clew graph show` lists what it knows")
    longest = max(
        (one for one in matched if one.entity.node in found),
        key=lambda one: (one.last - one.first, -one.first),
    )
    entity = found[longest.entity.node]
    ids = view.snapshot.ids(entity.records)
    return {
        "name": entity.name,
        "kind": entity.kind,
        "spellings": entity.spellings,
        "mentions": entity.mentions,
        "records": [ids[node] for node in entity.records[:limit]],
        "related": _find_relations(view, entity, limit=limit),
    }


def _find_relations(view: GraphView, entity: SeenEntity, *, limit: int) -> list[dict[str, Any]]:
    """Relations that may be seen, the strongest first: how two are related is told where a record
    that may be seen says so, and counts as often as such records do; of others that are named in
    one such record it is said that they are, and no more."""
    rows = view.snapshot.rows(
        """SELECT number, first, second, kind, weight FROM relations
           WHERE first = ?1 OR second = ?1
           ORDER BY kind = 'together', weight DESC, first, second LIMIT ?2""",
        entity.node,
        MOST_RELATIONS + 3 * limit,
    )
    others = [b if a == entity.node else a for _, a, b, _, _ in rows]
    names = view.entities(others)
    stated = _count_statements(view, [row[0] for row in rows])
    mine = set(entity.records)
    found: list[dict[str, Any]] = []
    told: set[int] = set()
    untold: dict[int, None] = {}

    def add(other: int, kind: str, weight: float, direction: str) -> None:
        relation = {"name": names[other].name, "relation": kind, "direction": direction}
        found.append({**relation, "weight": round(weight, 4)})

    for other, (number, first, _, kind, weight) in zip(others, rows, strict=True):
        if other not in names:
            continue
        if kind != TOGETHER and number in stated:
            weight = float(stated[number])
        elif mine.isdisjoint(names[other].records):
            continue
        elif kind != TOGETHER:
            untold[other] = None
            continue
        told.add(other)
        add(other, kind, weight, "to" if first == entity.node else "from")
    for other in (node for node in untold if node not in told):
        add(other, TOGETHER, 0.0, "to")
    found.sort(key=lambda one: (one["relation"] == TOGETHER, -one["weight"]))
    return found[:limit]


def _count_statements(view: GraphView, relations: Sequence[int]) -> Counter[int]:
    """By how many records that may be seen each of these is stated; without those of none."""
    rows = view.snapshot.among(
        "SELECT relation, record FROM stated WHERE relation IN (SELECT value FROM json_each(?))",
        relations,
    )
    visible = view.visible(record for _, record in rows)
    return Counter(number for number, record in rows if record in visible)


# ---------------------------------------------------------------------- the picture


def draw(view: GraphView, file: Path, *, limit: int) -> dict[str, int]:
    """Write the picture; how many nodes and edges it has.

    Nodes are the foremost entities and the records that name several of them; colours are themes.
    The page lays itself out, always alike, and lets one drag, zoom, search, and click for details.
    """
    if not 1 <= limit <= MOST_NODES:
        raise InputError(f"a picture has from 1 to {MOST_NODES} nodes, not {limit}")
    nodes, edges = _nodes_and_edges(view, limit)
    data = {"nodes": nodes, "edges": edges}
    # `<` closes the script from within any text; the other two end a line in older readers.
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    for sign, code in (("<", "\\u003c"), ("\u2028", "\\u2028"), ("\u2029", "\\u2029")):
        text = text.replace(sign, code)
    page = TEMPLATE.read_text("utf-8").replace("/*DATA*/null", text)
    try:
        file.write_text(page, "utf-8", errors="replace")
    except OSError as error:
        raise InputError(f"cannot write {file}: {error.strerror}; name another file") from error
    return {"nodes": len(nodes), "edges": len(edges)}


def _nodes_and_edges(view: GraphView, limit: int) -> tuple[list[dict[str, Any]], list[list[int]]]:
    snapshot = view.snapshot
    entities = find_foremost(view, limit=max(1, limit * 2 // 3))
    counts = Counter(node for entity in entities for node in entity.records[:PER_ENTITY])
    room = max(0, limit - len(entities))
    records = sorted(counts, key=lambda node: (-counts[node], node))[:room]
    ids = snapshot.ids(records)
    titles = {record.id: record.title for record in view.store.get(list(ids.values()))}
    drawn: dict[int, dict[str, Any]] = {
        entity.node: {
            "n": entity.name,
            "k": entity.kind,
            "w": len(entity.records),
            "r": entity.spellings[:6],
        }
        for entity in entities
    }
    for node in records:
        title = titles.get(ids[node]) or ids[node]
        drawn[node] = {"n": title, "k": "record", "w": counts[node], "i": ids[node]}
    level = min(1, len(snapshot.levels) - 1)
    for node, shown in drawn.items():
        shown["c"] = int(snapshot.levels[level][node]) if level >= 0 else -1
    place = {node: at for at, node in enumerate(drawn)}
    edges = [
        [place[entity.node], place[node]]
        for entity in entities
        for node in entity.records[:PER_ENTITY]
        if node in place
    ]
    links = snapshot.among(
        """SELECT source, target FROM links WHERE source IN (SELECT value FROM json_each(?))
           ORDER BY 1, 2""",
        records,
    )
    edges += [[place[a], place[b], 1] for a, b in links if a in place and b in place]
    return list(drawn.values()), edges
