"""Where a store's graph is, and the graph itself if it is this store's."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from clew.errors import SourceError
from clew.protocols import Store

if TYPE_CHECKING:
    from clew.graph.snapshot import Snapshot

__all__ = ["NOTE", "opened", "place_of", "token_of"]

NOTE = "graph"
"""The store's note that tells its graph from that of another store."""


def place_of(store: Store) -> Path:
    """Among the other derived indexes."""
    return store.folder / "derived" / "graph"


def token_of(store: Store) -> str:
    return store.note(NOTE) or ""


def opened(store: Store) -> Snapshot | None:
    """None where none is built; a SourceError where what is there cannot serve."""
    from clew.graph.snapshot import current

    snapshot = current(place_of(store))
    if snapshot is not None and snapshot.state["token"] != token_of(store):
        raise SourceError("the graph is that of another store: run `clew graph build`")
    return snapshot
