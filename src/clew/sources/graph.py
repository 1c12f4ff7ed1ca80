"""What the knowledge graph knows of the entities that a query names, and of the themes that it asks
for (`clew graph build`).

It finds what words and vectors cannot: the page that is linked from the one the query names, or
that shares a rare name with it. Without a built graph it finds nothing, and says nothing. A graph
that is behind the store still serves: what is gone, has changed or may not be seen is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from clew.errors import ConfigError, nearest
from clew.graph import STATE, is_built, naming_damage
from clew.protocols import Context, Source, Store
from clew.sources import file_state
from clew.types import Candidate, Query

MODES = ("local", "global")


class GraphSource(Source):
    """Records near the entities that the query names, and those of themes that are what was asked;
    with `mode = "global"` those of all themes, as far as they fit. While it is `sure`, it says
    nothing else beside other sources: that is weak, and in a fusion by ranks would count like any
    vote. Opened with the first query, and anew when the graph was built again."""

    def __init__(self, root: Path, *, mode: str = "local", sure: bool = True):
        if mode not in MODES:
            raise ConfigError(f"a graph source has no mode {mode!r}: {nearest(mode, MODES)}")
        self.root, self.mode, self.sure = root, mode, sure

    def __call__(self, query: Query, context: Context) -> Sequence[Candidate]:
        if self.idle(context.store):
            return ()
        with naming_damage(context.store):
            return self._search(query, context)

    def _search(self, query: Query, context: Context) -> Sequence[Candidate]:
        from clew.graph import communities, search  # numpy: only where there is a graph
        from clew.graph.snapshot import GraphView

        if (view := GraphView.open(context.store, query.filter)) is None:
            return ()
        if self.mode == "global":
            vector = context.query_vector()
            found = communities.search_themes(view, query.terms, vector=vector, model=context.model)
            return communities.rank_records(found, limit=query.depth)
        near = search.search_near(
            view, query.text, query.terms, limit=query.depth, sure=self.sure
        ).candidates
        voted = communities.vote_records(
            view, query.terms, vector=context.query_vector, model=context.model
        )
        best: dict[str, Candidate] = {}
        for one in (*near, *voted):
            if one.id not in best or best[one.id].score < one.score:
                best[one.id] = one
        return sorted(best.values(), key=lambda c: (-c.score, c.id))[: query.depth]

    def alone(self) -> GraphSource:
        """With all it has."""
        return GraphSource(self.root, mode=self.mode, sure=False)

    def idle(self, store: Store) -> bool:
        """Whether no graph is built: then nobody need ask."""
        return not is_built(store)

    def freshness(self, store: Store) -> str:
        """Another graph may answer otherwise."""
        return file_state(store.folder / STATE) if is_built(store) else ""


graph = GraphSource
