"""TreeSnapshot: the tree of a store, its arrays on disk, mapped, and caught up with the store
before a search; and SemanticTree, the same as an engine has it, to be built and looked at.

`derived/tree.json` says which folder `derived/tree-TOKEN/` is the tree. Every file's checksum is
compared when it is opened: numbers that a bad disk has changed would send a walk round in circles.

It follows the store's change log. One that cannot (built from another store, or so long ago that
the log does not reach back) is not guessed at: the error names the command that builds it anew.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from clew.background import Recent
from clew.config import Config
from clew.errors import InputError, SourceError, StoreError
from clew.filter import Filter, visible
from clew.models.chat import load_llm
from clew.protocols import Progress, Store
from clew.storage.snapshot import DerivedFolder, State, map_array, read_state, save_array
from clew.tree.build import MODES, build_tree, update_tree
from clew.tree.hierarchy import ROOT, TEXTS, Texts, Tree, is_leaf
from clew.tree.labels import Divider, LabelWriter
from clew.tree.search import LeafMask, TreeView
from clew.validate import check_whole, guarded, is_whole

FORM = 2  # of the files: another is built anew
WORDS = "tree-words.jsonl"  # what a chat model wrote, by content
BUILD = "run `clew tree build`"
ARRAYS = (
    *("parents", "starts", "kids", "facets", "weights", "homes", "gone", "prints"),
    *("examples", "written", "told", "moved"),
)
FACTS = ("mode", "model", "branching", "unplaced", "built")
MASKS = 16  # filters whose masks are kept


class SupersededError(SourceError):
    """Another process has put another tree in the place of the one that was to be replaced."""


def _folder(derived: Path) -> DerivedFolder:
    fields = ("token", "edition", "sizes", "checksums", *FACTS)
    return DerivedFolder(
        derived / "tree.json", *fields, identity={"form": FORM}, key="token", prefix="tree-"
    )


def _state(derived: Path) -> State | None:
    """What says which tree is in force; None: there is none."""
    folder = _folder(derived)
    if (state := folder.state()) is None and folder.file.exists():
        raise SourceError(f"the tree was not built here by this Clew, or is damaged: {BUILD}")
    return state


def read_tree(derived: Path) -> Tree | None:
    """The tree that is on disk now, mapped."""
    _state(derived)
    try:
        return _folder(derived).open(_map_tree)
    except (OSError, EOFError, ValueError, KeyError, TypeError, IndexError) as error:
        raise SourceError(f"the tree's files are damaged ({error}): {BUILD}") from None


def _map_tree(place: Path, state: State) -> Tree:
    # trees written by older versions leave out what every name ends with
    sums = {f"{name.removesuffix('.npy')}.npy": each for name, each in state["checksums"].items()}
    if name := _folder(place.parent).damaged({**state, "checksums": sums}):
        raise ValueError(f"{name} is not as it was written")

    def array(name: str) -> Any:
        return map_array(place / f"{name}.npy")

    texts: dict[str, Any] = {n: Texts(array(f"{n}_ends"), array(f"{n}_content")) for n in TEXTS}
    arrays: dict[str, Any] = {name: array(name) for name in ARRAYS}
    facts: dict[str, Any] = {name: state[name] for name in FACTS}
    if [len(arrays["parents"]), len(arrays["homes"])] != state["sizes"]:
        raise ValueError("they do not belong together")
    first, second = state["edition"]
    token = str(state["token"])
    return Tree(edition=(int(first), int(second)), token=token, **facts, **texts, **arrays)


def write_tree(tree: Tree, derived: Path, *, over: str | None = None) -> Tree:
    """Make it the tree, whole or not at all; what it is from now on. With `over`, only in the place
    of the tree of that token: SupersededError where that is not the tree any more."""
    import filelock

    folder = _folder(derived)

    def fill(place: Path) -> State:
        arrays: dict[str, Any] = {name: getattr(tree, name) for name in ARRAYS}
        for name in TEXTS:
            texts: Texts = getattr(tree, name)
            arrays |= {f"{name}_ends": texts.ends, f"{name}_content": texts.content}
        for name, array in arrays.items():
            save_array(place / f"{name}.npy", array)
        sizes = [len(tree.parents), len(tree.homes)]
        facts = {name: getattr(tree, name) for name in FACTS}
        return {"edition": list(tree.edition), "sizes": sizes, **facts}

    try:
        derived.mkdir(parents=True, exist_ok=True)
        with filelock.FileLock(derived / "tree.lock"):
            if over is not None and (folder.state() or {}).get("token") != over:
                raise SupersededError
            tree.token = str(folder.swap(fill)["token"])
    except OSError as error:
        raise StoreError(
            f"the tree cannot be written to {derived}: {error.strerror}; is the disk full?"
        ) from error
    return tree


class TreeSnapshot:
    """Thread-safe. It lies among what is derived from the store."""

    def __init__(self, store: Store):
        self._store, self._derived = store, store.folder / "derived"
        self._words = self._derived / WORDS
        self._tree: Tree | None = None
        self._lock = threading.Lock()
        self._masks: Recent[tuple[str, Filter, tuple[int, int]], LeafMask] = Recent(MASKS)

    def current(self, model: str) -> Tree:
        """The tree as of now, by this model's vectors; a SourceError where there is none."""
        with self._lock:
            while True:
                tree = self._load()
                if tree is None:
                    raise SourceError(f"there is no tree yet: {BUILD}")
                if tree.model != model:
                    raise SourceError(
                        f"the tree is built from vectors of {tree.model}, and this store now has "
                        f"those of {model}: {BUILD}"
                    )
                edition = self._store.view().changes.edition()  # of now, also in a view
                if tree.edition == edition:
                    return tree
                # another process built or dropped it meanwhile: what is there now counts
                with contextlib.suppress(SupersededError):
                    return self._follow(tree, edition)

    def _load(self) -> Tree | None:
        """What is on disk, unless it is what is here already."""
        state = _state(self._derived)
        if state is None:
            self._tree = None
        elif self._tree is None or self._tree.token != state["token"]:
            self._tree = read_tree(self._derived)
        return self._tree

    def _follow(self, tree: Tree, edition: tuple[int, int]) -> Tree:
        touched = self._store.changes.touched(tree.edition)
        if touched is None:
            raise SourceError(
                "the tree was built from another store, or so long ago that what has changed since "
                f"is not known: {BUILD}"
            )
        token = tree.token
        tree = update_tree(tree, self._store, touched, edition)
        tree.token = token
        with contextlib.suppress(StoreError):  # a read-only disk: it is kept in memory
            tree = write_tree(tree, self._derived, over=token)
        self._tree = tree
        return tree

    def drop(self) -> bool:
        """Remove the tree and all that was kept for it; whether there was one. No record is
        touched."""
        import filelock

        folder = _folder(self._derived)
        with self._lock:
            self._tree = None
            if not (there := folder.file.exists()) and not self._words.exists():
                return False
            with filelock.FileLock(self._derived / "tree.lock"):
                folder.file.unlink(missing_ok=True)
                self._words.unlink(missing_ok=True)
                folder.sweep(None)
            return there

    def mask(self, tree: Tree, filter: Filter) -> LeafMask:
        """Which leaves a filter leaves; kept until something is written."""
        key = (tree.token, filter, tree.edition)
        if (known := self._masks.use(key)) is not None:
            return known
        leaves = tree.there
        if filter and self._store.count(filter) < self._store.count(Filter()):
            may = np.zeros(len(leaves), np.bool_)
            known_leaves = tree.leaf_of
            for row in self._store.lifecycle.ledger(filter):
                if (leaf := known_leaves.get(row[0])) is not None:
                    may[leaf] = True
            leaves = leaves & may
        mask = LeafMask(leaves, tree.count_below(leaves))
        self._masks.keep(key, mask)
        return mask

    def check(self) -> Iterator[tuple[str, bool, str]]:
        """For `Engine.doctor`: (what was checked, is it well, what to do if not), if there is one.
        The files are read again: they may have been damaged since they were opened."""
        problem = ""
        try:
            there = read_tree(self._derived) is not None
        except SourceError as error:
            there, problem = True, str(error)
        if there:
            yield "tree can be read", not problem, problem


@guarded
class SemanticTree(TreeSnapshot):
    """A hierarchy of what the records are about. Get it as `engine.tree`; search it with
    `engine.search(query, tree=True)`."""

    def __init__(self, store: Store, *, model: Callable[[], str], config: Callable[[], Config]):
        """`model` and `config` are those of the engine at the time they are asked for."""
        super().__init__(store)
        self._model, self._config = model, config

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
        check_whole("branching", most, 2, 20)
        self._derived.mkdir(parents=True, exist_ok=True)
        self._store.indexes.prepare(self._model())
        model = load_llm(config) if llm else None
        writer = divider = None
        if model is not None and mode == "bottom-up":
            writer = LabelWriter(model, self._words, seconds=config.llm_seconds)
        elif model is not None:
            divider = Divider(model, most, seconds=config.llm_seconds)
        tree = build_tree(
            self._store,
            model=self._model(),
            branching=most,
            mode=mode,
            divider=divider,
            writer=writer,
            progress=progress,
        )
        with self._lock:
            self._tree = write_tree(tree, self._derived)
        report = dict(self.status() or {})
        asked = writer or divider
        fields = ("model", "calls", "failures", "problem")
        report["llm"] = asked and {name: getattr(asked, name) for name in fields}
        return report

    def mend(self, *, progress: Progress | None = None) -> None:
        """Make it anew where its files are damaged, as far as is known as it was made."""
        if all(well for _, well, _ in self.check()):
            return
        state = read_state(_folder(self._derived).file) or {}
        mode, branching = state.get("mode"), state.get("branching")
        with contextlib.suppress(SourceError):  # there are too few vectors: `check` says it still
            self.build(
                mode=mode if mode in MODES else MODES[0],
                branching=branching if is_whole(branching, 2, 20) else None,
                llm=False,
                progress=progress,
            )

    def show(
        self, node: int = ROOT, *, depth: int = 1, include_personal: bool = False
    ) -> dict[str, Any]:
        """A node and what is below it, so many levels down, as plain data. Of what the
        user may not see nothing is shown or told but how much it is: `status` counts all."""
        tree = self.current(self._model())
        if not is_whole(node, 0, len(tree) - 1):
            raise InputError(
                f"there is no node {node!r}: they have numbers from 0 to {len(tree) - 1}"
            )
        may = visible(
            Filter(),
            include_personal=include_personal,
            skills_only=False,
            personal=self._config().personal,
        )
        view = TreeView(tree, self._store, self.mask(tree, may), query="")
        if node != ROOT and not view.open(node):
            raise SourceError(f"there is nothing to be seen below node {node}: take another")
        return _describe_node(view, node, depth)

    def status(self) -> dict[str, Any] | None:
        """Figures for people; nothing is caught up for them. None: there is no tree."""
        try:
            with self._lock:
                tree = self._load()
        except SourceError as error:
            return {"problem": str(error)}
        if tree is None:
            return None
        touched = self._store.changes.touched(tree.edition)
        if tree.model != self._model() or touched is None:
            return {"problem": f"built from other vectors or another store: {BUILD}"}
        return {
            "mode": tree.mode,
            "model": tree.model,
            "branching": tree.branching,
            "nodes": len(tree),
            "leaves": int(tree.there.sum()),
            "masked": int(((tree.homes >= 0) & ~tree.there).sum()),
            "unplaced": tree.unplaced,
            "depth": int(tree.depths.max(initial=0)) + 1,
            "stale_summaries": int(tree.stale.sum()),
            "moved": int(tree.moved[0]) if len(tree) else 0,
            "waiting": len(touched),
            "generation": tree.edition[0],
            "built": tree.built,
        }


def _describe_node(view: TreeView, node: int, depth: int) -> dict[str, Any]:
    said = view.describe(node)
    shown: dict[str, Any] = {
        "node": node,
        "label": said.label,
        "summary": said.summary,
        "leaves": int(view.mask.below[node]),
        "stale": bool(view.tree.stale[node]),
    }
    if depth > 0:
        keys = [key for key in view.children(node) if view.open(key)]
        titles = view.titles([key for key in keys if is_leaf(key)])
        shown["children"] = [
            *(_describe_node(view, key, depth - 1) for key in keys if not is_leaf(key)),
            *(
                {"id": view.tree.ids[~key], "title": titles.get(key, "")}
                for key in keys
                if is_leaf(key)
            ),
        ]
    return shown
