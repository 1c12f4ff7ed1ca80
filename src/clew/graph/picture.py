"""The graph as an interactive picture: one HTML file, with no word from the network.

Nodes are the foremost entities and the records that name several of them; colours are themes. The
page lays itself out, always alike, and lets one drag, zoom, search, and click for details.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from clew.errors import InputError
from clew.filter import Filter
from clew.graph.shown import foremost
from clew.graph.snapshot import Snapshot
from clew.protocols import Store

__all__ = ["draw"]

TEMPLATE = Path(__file__).with_name("picture.html")
MOST_NODES = 2_000
PER_ENTITY = 12
"""Records drawn for one entity."""


def draw(
    snapshot: Snapshot, store: Store, filter: Filter, file: Path, *, limit: int
) -> dict[str, int]:
    """Write the picture; how many nodes and edges it has."""
    if not 1 <= limit <= MOST_NODES:
        raise InputError(f"a picture has from 1 to {MOST_NODES} nodes, not {limit}")
    data = _data(snapshot, store, filter, limit)
    # `<` closes the script from within any text; the other two end a line in older readers.
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    for sign, code in (("<", "\\u003c"), ("\u2028", "\\u2028"), ("\u2029", "\\u2029")):
        text = text.replace(sign, code)
    page = TEMPLATE.read_text("utf-8").replace("/*DATA*/null", text)
    try:
        file.write_text(page, "utf-8", errors="replace")
    except OSError as error:
        raise InputError(f"cannot write {file}: {error.strerror}; name another file") from error
    return {"nodes": len(data["nodes"]), "edges": len(data["edges"])}


def _data(snapshot: Snapshot, store: Store, filter: Filter, limit: int) -> dict[str, Any]:
    entities = foremost(snapshot, store, filter, limit=max(1, limit * 2 // 3))
    counts: dict[int, int] = {}
    for entity in entities:
        for node in entity.records[:PER_ENTITY]:
            counts[node] = counts.get(node, 0) + 1
    room = max(0, limit - len(entities))
    records = sorted(counts, key=lambda node: (-counts[node], node))[:room]
    ids = snapshot.ids(records)
    titles = {record.id: record.title for record in store.get(list(ids.values()))}
    place: dict[int, int] = {}
    nodes: list[dict[str, Any]] = []
    level = min(1, len(snapshot.levels) - 1)
    for entity in entities:
        place[entity.node] = len(nodes)
        nodes.append(
            {
                "n": entity.name,
                "k": entity.kind,
                "w": len(entity.records),
                "r": entity.spellings[:6],
            }
        )
    for node in records:
        place[node] = len(nodes)
        nodes.append(
            {
                "n": titles.get(ids[node]) or ids[node],
                "k": "record",
                "w": counts[node],
                "i": ids[node],
            }
        )
    for node, at in place.items():
        nodes[at]["c"] = int(snapshot.levels[level][node]) if level >= 0 else -1
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
    return {"nodes": nodes, "edges": edges}
