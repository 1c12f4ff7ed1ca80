"""What an engine does with its tree: build it, show it, search it through the one pipeline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from clew.config import Config
from clew.errors import ConfigError, InputError, SourceError
from clew.filter import Filter
from clew.models.llm import load_llm
from clew.protocols import Context, Progress, Source
from clew.query.context import QueryContext
from clew.query.visibility import visible
from clew.ranking.fuse import fuse
from clew.sources import kind
from clew.sources.configure import Configured
from clew.sources.tree import TreeSource, derived_folder
from clew.tree.answer import Elsewhere, Tools
from clew.tree.build import Mode, build
from clew.tree.divide import Divider
from clew.tree.hierarchy import ROOT, STALE, is_leaf
from clew.tree.view import View
from clew.tree.walk import Walk
from clew.tree.words import Writer
from clew.types import Answer, Candidate, Query

if TYPE_CHECKING:
    from clew.engine import Engine

__all__ = ["asked_tree", "build_tree", "patient", "settings_walk", "tree_nodes"]

FLAT = ("keyword", "vectors")
GRAPH = "graph"


# ---------------------------------------------------------------------- search


def asked_tree(
    tree: bool | str | Walk,
    named: Mapping[str, Configured],
    engine: Engine,
    config: Config,
    *,
    explain: bool,
) -> Configured:
    """The tree as a source of one search. What cannot be done at all is said at once."""
    walk = _walk(tree, config)
    llm = load_llm(config)
    if walk.scorer == "llm" and llm is None:
        raise ConfigError(
            "no chat model is configured to score the tree: set llm or llm_url (`clew config "
            "llm`), or take another scorer"
        )
    kept = engine.tree
    kept.current(engine.model)
    root = engine.root or Path()
    tools = Tools(
        reranker=engine.load_reranker,
        llm=lambda: llm,
        llm_seconds=config.llm_seconds,
        blend=config.rerank_blend,
        elsewhere=_elsewhere(named, config, root),
        explain=explain,
    )
    source = TreeSource(lambda store: kept, walk, tools, derived=derived_folder(root))
    return Configured(source, kind="tree", deadline=walk.seconds + GRACE)


GRACE = 10.0
"""Seconds beyond a walk's own: for the slate it is at, and for who answers in its place."""


def patient(config: Config, walking: Configured) -> Config:
    """A walk has its own time; the deadline of all must not be shorter."""
    return replace(config, deadline=max(config.seconds, walking.deadline or 0.0))


def _walk(tree: bool | str | Walk, config: Config) -> Walk:
    if isinstance(tree, Walk):
        return tree
    if not isinstance(tree, (bool, str)):
        raise InputError(f"tree is True, the name of a scorer or a Walk, not {tree!r:.100}")
    return settings_walk(config, scorer=None if isinstance(tree, bool) else tree)


def settings_walk(config: Config, *, scorer: str | None = None, abort: bool = True) -> Walk:
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


def _elsewhere(named: Mapping[str, Configured], config: Config, root: Path) -> Elsewhere:
    """The source `graph`, and where it has nothing to say, words and vectors fused."""

    def elsewhere(query: Query, context: Context) -> tuple[str, Sequence[Candidate], str]:
        why = "the source graph is off"
        graph = named.get(GRAPH)
        if graph is None and (make := kind(GRAPH)) is not None:
            graph = Configured(make(root), kind=GRAPH)
        if graph is not None and graph.enabled:
            found, why = _asked(graph.source, query, context)
            if found:
                return GRAPH, found, why
            why = f"the graph has no answer{f': {why}' if why else ': see `clew graph build`'}"
        flat = [n for n in FLAT if n in named and named[n].enabled]
        lists = {name: _asked(named[name].source, query, context)[0] for name in flat}
        facts = context.facts() if isinstance(context, QueryContext) else None
        weights = {name: named[name].weight for name in flat}
        fused = fuse(
            config.fusion, lists, k=config.rrf_k, weights=weights, facts=facts, head=query.depth
        )
        chunks = {c.id: c.chunk for some in lists.values() for c in reversed(some)}
        best = [Candidate(each.id, each.score, chunks.get(each.id)) for each in fused]
        return "flat hybrid", best, why

    return elsewhere


def _asked(source: Source, query: Query, context: Context) -> tuple[list[Candidate], str]:
    """What another source says; one that fails says nothing, and why."""
    try:
        given = source(query, context)
    except Exception as error:  # anybody's code, as in query/collect.py
        return [], str(error) or type(error).__name__
    if isinstance(given, Answer):
        return list(given.candidates), given.problem
    return list(given), ""


# ---------------------------------------------------------------------- build


def build_tree(
    engine: Engine,
    *,
    mode: str,
    branching: int | None,
    llm: bool,
    progress: Progress | None,
) -> dict[str, Any]:
    """Build, swap in, and say what was done."""
    config = engine.config
    most = config.tree_branching if branching is None else branching
    if isinstance(most, bool) or not isinstance(most, int) or not 2 <= most <= 20:
        raise InputError(f"branching must be a whole number from 2 to 20, not {most!r}")
    kept = engine.tree
    kept.words_file.parent.mkdir(parents=True, exist_ok=True)
    engine.store.prepare(engine.model)
    model = load_llm(config) if llm else None
    writer = divider = None
    if model is not None and mode == "bottom-up":
        writer = Writer(model, kept.words_file, seconds=config.llm_seconds)
    elif model is not None:
        divider = Divider(model, most, seconds=config.llm_seconds)
    tree = build(
        engine.store,
        model=engine.model,
        branching=most,
        mode=cast(Mode, mode),
        divider=divider,
        writer=writer,
        progress=progress,
    )
    kept.put(tree)
    report: dict[str, Any] = dict(kept.status(engine.model) or {})
    asked = writer or divider
    report["llm"] = None
    if asked is not None and model is not None:
        report["llm"] = {
            "model": model.model,
            "calls": asked.calls,
            "failures": asked.failures,
            "problem": asked.problem,
        }
    return report


# ---------------------------------------------------------------------- show


def tree_nodes(engine: Engine, node: int, *, depth: int, include_personal: bool) -> dict[str, Any]:
    """A node and what is below it. What the user may not see is not shown, nor told of."""
    kept = engine.tree
    tree = kept.current(engine.model)
    if isinstance(node, bool) or not isinstance(node, int) or not 0 <= node < len(tree):
        raise InputError(f"there is no node {node!r}: they have numbers from 0 to {len(tree) - 1}")
    may = visible(Filter(), include_personal=include_personal, skills_only=False)
    view = View(tree, engine.store, kept.mask(tree, may), query="")
    if node != ROOT and not view.open(node):
        raise SourceError(f"there is nothing to be seen below node {node}: take another")
    return _shown(view, node, depth)


def _shown(view: View, node: int, depth: int) -> dict[str, Any]:
    said = view.said(node)
    tree = view.tree
    inner = [key for key in tree.children(node) if not is_leaf(key) and view.open(key)]
    leaves = [key for key in tree.children(node) if is_leaf(key) and view.open(key)]
    shown: dict[str, Any] = {
        "node": node,
        "label": said.label,
        "summary": said.summary,
        "leaves": int(view.mask.below[node]),
        "stale": bool(tree.moved[node] > STALE * tree.told[node]),
    }
    if depth > 0:
        titles = view.titles(leaves)
        shown["children"] = [_shown(view, key, depth - 1) for key in inner] + [
            {"id": tree.ids[~key], "title": titles.get(key, "")} for key in leaves
        ]
    return shown
