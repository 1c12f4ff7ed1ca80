"""The tree of an open store: read once, caught up with the store before every search.

It follows the store's change log. One that cannot (built from another store, or so long ago that
the log does not reach back) is not guessed at: the error names the command that builds it anew.
"""

from __future__ import annotations

import contextlib
import threading
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from clew.errors import SourceError, StoreError
from clew.filter import Filter
from clew.protocols import Store
from clew.tree import files
from clew.tree.hierarchy import Tree
from clew.tree.place import caught_up
from clew.tree.view import Mask

__all__ = ["KeptTree"]

MASKS = 16
"""Filters whose masks are kept."""


class KeptTree:
    """Thread-safe. It lies among what is derived from the store."""

    def __init__(self, store: Store):
        self._store, self._derived = store, store.folder / files.DERIVED
        self._tree: Tree | None = None
        self._lock = threading.Lock()
        self._masks: OrderedDict[tuple[str, Filter, tuple[int, int]], Mask] = OrderedDict()

    @property
    def words_file(self) -> Path:
        return self._derived / files.WORDS

    def current(self, model: str) -> Tree:
        """The tree as of now, by this model's vectors; a SourceError where there is none."""
        with self._lock:
            while True:
                tree = self._loaded()
                if tree is None:
                    raise SourceError(f"there is no tree yet: {files.BUILD}")
                if tree.model != model:
                    raise SourceError(
                        f"the tree is built from vectors of {tree.model}, and this store now has "
                        f"those of {model}: {files.BUILD}"
                    )
                edition = self._store.edition()
                if tree.edition == edition:
                    return tree
                # another process built or dropped it meanwhile: what is there now counts
                with contextlib.suppress(files.SupersededError):
                    return self._follow(tree, edition)

    def _loaded(self) -> Tree | None:
        """What is on disk, unless it is what is here already."""
        state = files.peek(self._derived)
        if state is None:
            self._tree = None
        elif self._tree is None or self._tree.token != state["token"]:
            self._tree = files.read(self._derived)
        return self._tree

    def _follow(self, tree: Tree, edition: tuple[int, int]) -> Tree:
        touched = self._store.touched(tree.edition)
        if touched is None:
            raise SourceError(
                "the tree was built from another store, or so long ago that what has changed since "
                f"is not known: {files.BUILD}"
            )
        token = tree.token
        tree = caught_up(tree, self._store, touched, edition)
        tree.token = token
        with contextlib.suppress(StoreError):  # a read-only disk: it is kept in memory
            tree = files.write(tree, self._derived, over=token)
        self._tree = tree
        return tree

    def put(self, tree: Tree) -> Tree:
        """Make this the tree."""
        with self._lock:
            self._tree = files.write(tree, self._derived)
            return self._tree

    def drop(self) -> bool:
        with self._lock:
            self._tree = None
            return files.drop(self._derived)

    def mask(self, tree: Tree, filter: Filter) -> Mask:
        """Which leaves a filter leaves; kept until something is written."""
        key = (tree.token, filter, tree.edition)
        with self._lock:
            if (known := self._masks.get(key)) is not None:
                self._masks.move_to_end(key)
                return known
        leaves = tree.there
        if filter and self._store.count(filter) < self._store.count(Filter()):
            may = np.zeros(len(leaves), np.bool_)
            known_leaves = tree.leaf_of
            for row in self._store.ledger(filter):
                if (leaf := known_leaves.get(row[0])) is not None:
                    may[leaf] = True
            leaves = leaves & may
        mask = Mask.of(tree, leaves)
        with self._lock:
            self._masks[key] = mask
            while len(self._masks) > MASKS:
                self._masks.popitem(last=False)
        return mask

    def check(self) -> Iterator[tuple[str, bool, str]]:
        """(what was checked, is it well, what to do if not), as a store says it. The files are
        read again: they may have been damaged since they were opened."""
        problem = ""
        try:
            there = files.read(self._derived) is not None
        except SourceError as error:
            there, problem = True, str(error)
        if there:
            yield "tree can be read", not problem, problem

    def status(self, model: str) -> dict[str, Any] | None:
        """Figures for people; nothing is caught up for them. None: there is no tree."""
        try:
            with self._lock:
                tree = self._loaded()
        except SourceError as error:
            return {"problem": str(error)}
        if tree is None:
            return None
        touched = self._store.touched(tree.edition)
        if tree.model != model or touched is None:
            return {"problem": f"built from other vectors or another store: {files.BUILD}"}
        nodes = len(tree)
        return {
            "mode": tree.mode,
            "model": tree.model,
            "branching": tree.branching,
            "nodes": nodes,
            "leaves": int(tree.there.sum()),
            "masked": int(((tree.homes >= 0) & ~tree.there).sum()),
            "unplaced": tree.unplaced,
            "depth": int(tree.depths.max(initial=0)) + 1,
            "stale_summaries": tree.stale(),
            "moved": int(tree.moved[0]) if nodes else 0,
            "waiting": len(touched),
            "generation": tree.edition[0],
            "built": tree.built,
        }
