"""The tree: records found by walking down a hierarchy of their meanings (see clew/tree/).

`clew search --tree` asks this source alone, with the scorer of its choice. Under `[sources.tree]`
of the settings it is one source among the others, and embeddings walk.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from clew.protocols import Context, Source, Store
from clew.sources import file_state
from clew.types import Answer, Query

if TYPE_CHECKING:
    from clew.tree import Walk
    from clew.tree.search import Tools
    from clew.tree.snapshot import TreeSnapshot

__all__ = ["TreeSource", "tree"]

STATE = Path("derived", "tree.json")
"""What says which tree is in force."""


class TreeSource(Source):
    """Walks the tree of the store that it is asked about."""

    def __init__(
        self, kept: Callable[[Store], TreeSnapshot], walk: Walk, tools: Tools | None = None
    ):
        self._kept, self._walk, self._tools = kept, walk, tools

    def __call__(self, query: Query, context: Context) -> Answer:
        from clew.tree.search import Tools, search_tree

        kept = self._kept(context.store)
        return search_tree(kept, query, context, self._walk, self._tools or Tools())

    def freshness(self, store: Store) -> str:
        """How it walks, and on which tree: one that is built anew answers anew."""
        return f"{self._walk!r} {file_state(store.folder / STATE)}"


def tree(root: Path, *, iterations: int = 20, nodes: int = 500) -> Source:
    """The tree as one of the sources of every search, walked by embeddings."""
    from clew.tree import Walk

    kept: list[tuple[Store, TreeSnapshot]] = []

    def of(store: Store) -> TreeSnapshot:
        from clew.tree.snapshot import TreeSnapshot

        if not kept or kept[-1][0] is not store.origin:
            kept[:] = [(store.origin, TreeSnapshot(store.origin))]
        return kept[-1][1]

    # Among others nobody needs to answer in its place: what it may not say, they do.
    walk = Walk(iterations=iterations, nodes=nodes, abort=False)
    return TreeSource(of, walk)
