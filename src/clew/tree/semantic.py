"""SemanticTree: the tree of an engine's store, built, looked at and dropped."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, cast

from clew.config import Config
from clew.errors import InputError, SourceError
from clew.filter import Filter
from clew.models.chat import load_llm
from clew.protocols import Progress, Store
from clew.tree.build import Mode, build
from clew.tree.divide import Divider
from clew.tree.hierarchy import ROOT, STALE, is_leaf
from clew.tree.snapshot import TreeSnapshot
from clew.tree.view import View
from clew.tree.words import Writer
from clew.visibility import visible

__all__ = ["SemanticTree"]


class SemanticTree:
    """A hierarchy of what the records are about. Get it as `engine.tree`; search it with
    `engine.search(query, tree=True)`."""

    def __init__(self, store: Store, *, model: Callable[[], str], config: Callable[[], Config]):
        """`model` and `config` are those of the engine at the time they are asked for."""
        self._store, self._model, self._config = store, model, config

    @cached_property
    def snapshot(self) -> TreeSnapshot:
        """As it is on the disk, following the store."""
        return TreeSnapshot(self._store)

    def build(
        self,
        *,
        mode: str = "bottom-up",
        branching: int | None = None,
        llm: bool = True,
        progress: Progress | None = None,
    ) -> dict[str, Any]:
        """Make the tree of the store, in the place of one that is there; its figures.

        Bottom-up, records are put into groups by their vectors, and the groups again. Top-down, all
        are divided again and again: by a chat model that names the parts, where one is configured
        and `llm` is not False, and else by their vectors.
        """
        config = self._config()
        most = config.tree_branching if branching is None else branching
        if isinstance(most, bool) or not isinstance(most, int) or not 2 <= most <= 20:
            raise InputError(f"branching must be a whole number from 2 to 20, not {most!r}")
        snapshot = self.snapshot
        snapshot.words_file.parent.mkdir(parents=True, exist_ok=True)
        self._store.indexes.prepare(self._model())
        model = load_llm(config) if llm else None
        writer = divider = None
        if model is not None and mode == "bottom-up":
            writer = Writer(model, snapshot.words_file, seconds=config.llm_seconds)
        elif model is not None:
            divider = Divider(model, most, seconds=config.llm_seconds)
        tree = build(
            self._store,
            model=self._model(),
            branching=most,
            mode=cast(Mode, mode),
            divider=divider,
            writer=writer,
            progress=progress,
        )
        snapshot.put(tree)
        report: dict[str, Any] = dict(snapshot.status(self._model()) or {})
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

    def show(
        self, node: int = ROOT, *, depth: int = 1, include_personal: bool = False
    ) -> dict[str, Any]:
        """A node and what is below it, so many levels down, as plain data. Of what the
        user may not see nothing is shown or told but how much it is: `status` counts all."""
        tree = self.snapshot.current(self._model())
        if isinstance(node, bool) or not isinstance(node, int) or not 0 <= node < len(tree):
            raise InputError(
                f"there is no node {node!r}: they have numbers from 0 to {len(tree) - 1}"
            )
        may = visible(
            Filter(),
            include_personal=include_personal,
            skills_only=False,
            personal=self._config().personal,
        )
        view = View(tree, self._store, self.snapshot.mask(tree, may), query="")
        if node != ROOT and not view.open(node):
            raise SourceError(f"there is nothing to be seen below node {node}: take another")
        return _shown(view, node, depth)

    def status(self) -> dict[str, Any] | None:
        """Its figures, and how stale it is; None: there is none."""
        return self.snapshot.status(self._model())

    def check(self) -> Iterator[tuple[str, bool, str]]:
        """For `Engine.doctor`: whether it can be read; nothing where there is none."""
        return self.snapshot.check()

    def drop(self) -> bool:
        """Remove it; whether there was one. No record is touched."""
        return self.snapshot.drop()


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
