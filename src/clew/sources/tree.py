"""The tree: records found by walking down a hierarchy of their meanings (see clew/tree/).

`clew search --tree` asks this source alone, with the scorer of its choice. Under `[sources.tree]`
of the settings it is one source among the others, and embeddings walk.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from clew.config import Config
from clew.errors import ConfigError, InputError
from clew.models.chat import load_llm
from clew.protocols import Context, FileStates, Reranker, Source, Store
from clew.ranking.adaptive import KnowsFacts
from clew.ranking.fusion import fuse
from clew.sources import Configured, file_state, find_kind
from clew.tree import Walk
from clew.tree.search import FLAT, Elsewhere, Flat, Tools, append_after, search_tree
from clew.tree.snapshot import TreeSnapshot
from clew.types import Answer, Candidate, Query

STATE = Path("derived", "tree.json")
"""What says which tree is in force."""
FLAT_SOURCES = ("keyword", "vectors")
GRAPH = "graph"
GRACE = 10.0
"""Seconds beyond a walk's own: for the slate it is at, and for who answers in its place."""


class TreeSource(Source):
    """Walks the tree of the store that it is asked about."""

    def __init__(
        self, kept: Callable[[Store], TreeSnapshot], walk: Walk, tools: Tools | None = None
    ):
        self._kept, self._walk, self._tools = kept, walk, tools

    def __call__(self, query: Query, context: Context) -> Answer:
        kept = self._kept(context.store)
        return search_tree(kept, query, context, self._walk, self._tools or Tools())

    def freshness(self, store: Store) -> str:
        """How it walks, and on which tree: one that is built anew answers anew."""
        return f"{self._walk!r} {file_state(store.folder / STATE)}"


def tree(root: Path, *, iterations: int = 20, nodes: int = 500) -> Source:
    """The tree as one of the sources of every search, walked by embeddings."""
    kept: list[tuple[FileStates, TreeSnapshot]] = []

    def of(store: Store) -> TreeSnapshot:
        if not kept or kept[-1][0] is not store.files:  # which all views of a store have
            kept[:] = [(store.files, TreeSnapshot(store.view()))]
        return kept[-1][1]

    # Among others nobody needs to answer in its place: what it may not say, they do.
    walk = Walk(iterations=iterations, nodes=nodes, abort=False)
    return TreeSource(of, walk)


def plan_tree(
    tree: bool | str | Walk,
    named: Mapping[str, Configured],
    kept: TreeSnapshot,
    config: Config,
    *,
    model: str,
    reranker: Callable[[], Reranker],
    root: Path,
    explain: bool,
) -> Configured:
    """The tree as a source of one search. What cannot be done at all is said at once."""
    if not isinstance(tree, (bool, str, Walk)):
        raise InputError(f"tree is True, the name of a scorer or a Walk, not {tree!r:.100}")
    scorer = tree if isinstance(tree, str) else None
    walk = tree if isinstance(tree, Walk) else walk_of_settings(config, scorer=scorer)
    llm = load_llm(config)
    if walk.scorer == "llm" and llm is None:
        raise ConfigError(
            "no chat model is configured to score the tree: set llm or llm_url (`clew config "
            "llm`), or take another scorer"
        )
    kept.current(model)
    # a copy: the tree will be among them, and would keep itself, with its files
    others = dict(named)
    flat = _flat(others, config)
    tools = Tools(
        reranker=reranker,
        llm=llm,
        llm_seconds=config.llm_seconds,
        blend=config.rerank_blend,
        elsewhere=_elsewhere(others, flat, root),
        flat=flat,
        explain=explain,
    )
    source = TreeSource(lambda store: kept, walk, tools)
    return Configured(source, kind="tree", deadline=walk.seconds + GRACE)


def extend_deadline(config: Config, walking: Configured) -> Config:
    """A walk has its own time; the deadline of all must not be shorter."""
    return replace(config, deadline=max(config.seconds, walking.deadline or 0.0))


def walk_of_settings(config: Config, *, scorer: str | None = None, abort: bool = True) -> Walk:
    """A walk as the settings say."""
    return Walk(
        scorer=config.tree_scorer if scorer is None else scorer,
        iterations=config.tree_iterations,
        beam=config.tree_beam,
        nodes=config.tree_nodes,
        reads=config.tree_reads,
        seconds=config.tree_seconds,
        abort=abort,
    )


def _flat(named: Mapping[str, Configured], config: Config) -> Flat:
    """Words and vectors, fused as in a search of those two alone."""

    def flat(query: Query, context: Context) -> list[Candidate]:
        on = [n for n in FLAT_SOURCES if n in named and named[n].enabled]
        lists = {name: _ask(named[name].source, query, context)[0] for name in on}
        facts = context.facts() if isinstance(context, KnowsFacts) else None
        weights = {name: named[name].weight for name in on}
        fused = fuse(
            config.fusion, lists, k=config.rrf_k, weights=weights, facts=facts, head=query.depth
        )
        chunks = {c.id: c.chunk for some in lists.values() for c in reversed(some)}
        return [Candidate(each.id, each.score, chunks.get(each.id)) for each in fused]

    return flat


def _elsewhere(named: Mapping[str, Configured], flat: Flat, root: Path) -> Elsewhere:
    """The source `graph`, and where it has too little to say, words and vectors fused."""

    def elsewhere(query: Query, context: Context) -> tuple[str, Sequence[Candidate], str]:
        why = "the source graph is off"
        graph = named.get(GRAPH)
        if graph is None and (make := find_kind(GRAPH)) is not None:
            graph = Configured(make(root), kind=GRAPH)
        if graph is not None and graph.enabled:
            found, why = _ask(graph.source.alone(), query, context)
            if found:
                more = list[Candidate]()
                if len(found) < query.limit:
                    more = append_after(found, flat(query, context), most=query.depth)
                if more:
                    told = f"it has {len(found)}; words and vectors add {len(more)} after them"
                    why = "; ".join(filter(None, (why, told)))
                return GRAPH, [*found, *more], why
            why = f"the graph has no answer{f': {why}' if why else ': see `clew graph build`'}"
        return FLAT, flat(query, context), why

    return elsewhere


def _ask(source: Source, query: Query, context: Context) -> tuple[list[Candidate], str]:
    """What another source says; one that fails says nothing, and why."""
    try:
        given = source(query, context)
    except Exception as error:  # anybody's code, as in search/collect.py
        return [], str(error) or type(error).__name__
    if isinstance(given, Answer):
        return list(given.candidates), given.problem
    return list(given), ""
