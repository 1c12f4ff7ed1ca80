"""The knowledge graph of a store: built offline, asked through `engine.graph` and by the source
`graph` (sources/store.py).

knowledge.py is where to begin reading; build.py makes the graph, search.py and communities.py ask
it. What every search needs to know of it is here, so that looking for one imports nothing.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from clew.errors import ClewError, SourceError
from clew.protocols import Store

STATE = Path("derived", "graph", "current.json")
"""What says which graph is in force, in the store's folder."""
REBUILD = "run `clew graph build --force`"


def is_built(store: Store) -> bool:
    """Whether a store has a graph, in whatever state. A store of somebody else's may have no folder
    to keep one in."""
    folder: Path | None = getattr(store, "folder", None)
    return folder is not None and os.path.exists(f"{folder}/{STATE}")  # noqa: PTH110 - every search


@contextlib.contextmanager
def naming_damage(store: Store) -> Iterator[None]:
    """Around what asks the graph: an error that comes of damage nobody has noticed before says so.
    Where the graph is as it was written, it is a mistake of somebody's and stays what it is."""
    try:
        yield
    except ClewError:
        raise
    except (LookupError, TypeError, ValueError) as error:
        from clew.graph.snapshot import open_graph

        snapshot = open_graph(store)
        if snapshot is not None and (file := snapshot.damaged()):
            raise SourceError(f"the graph's {file} is damaged: {REBUILD}") from error
        raise
