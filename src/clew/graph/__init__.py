"""The knowledge graph of a store: built offline, asked through `engine.graph` and by the source
`graph` (sources/graph.py).

knowledge.py is where to begin reading; build.py makes the graph, search.py and communities.py ask
it. What every search needs to know of it is here, so that looking for one imports nothing.
"""

from __future__ import annotations

from pathlib import Path

from clew.protocols import Store

STATE = Path("derived", "graph", "current.json")
"""What says which graph is in force, in the store's folder."""


def is_built(store: Store) -> bool:
    """Whether a store has a graph, in whatever state. A store of somebody else's may have no folder
    to keep one in."""
    folder: Path | None = getattr(store, "folder", None)
    return folder is not None and (folder / STATE).exists()
