"""From a store's records to a tree, and from a tree to one after edits.

Only what has a vector of the model has a place. Everything is made from the store, deterministic,
and can be made again. After edits new records are placed, changed ones moved, removed ones masked.
Summaries stay as they are: how many leaves came or went since is counted. But what a chat model
wrote is not kept above a leaf that went: it may tell of what is not there any more.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from zlib import crc32

import numpy as np
import numpy.typing as npt

from clew.errors import SourceError, check_known
from clew.filter import Filter
from clew.models import EXTERNAL
from clew.protocols import Progress, Store, batched, ignore_progress
from clew.tree.hierarchy import (
    EXAMPLES,
    FACETS,
    NUMBERS,
    ROOT,
    TEXTS,
    Longs,
    Texts,
    Tree,
    find_centres,
    is_leaf,
    leaves_below,
    shape_bottom_up,
    shape_top_down,
    split_rows,
)
from clew.tree.labels import (
    LABEL_WORDS,
    SHOWN,
    Divider,
    Group,
    LabelWriter,
    NodeText,
    extract_texts,
    headline,
    strip_marks,
)
from clew.types import Record, Vector, Vectors
from clew.validate import unit

MODES = ("bottom-up", "top-down")
BATCH = 500
FEW = 512  # passages that the facets of a node are found from
READ = 12  # children of a node that a chat model is shown
COUNTED = 48  # leaves of a node whose words are counted beside its examples


@dataclass(slots=True)
class Leaves:
    """Records that have vectors."""

    ids: list[str]
    vectors: Vectors
    """The direction of each as a whole."""
    passages: npt.NDArray[np.float16]
    firsts: Longs
    """Where the passages of each begin, and the end."""
    prints: list[int]
    unplaced: int

    def rows(self, leaves: Sequence[int]) -> Vectors:
        """The passages of these leaves, or evenly chosen ones where there are very many."""
        runs = [np.arange(self.firsts[n], self.firsts[n + 1]) for n in leaves]
        rows = np.concatenate(runs) if runs else np.empty(0, np.int64)
        return np.asarray(self.passages[_thin_out(rows)], np.float32)


def _thin_out(rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    return rows[:: max(1, -(-len(rows) // FEW))]


def build_tree(
    store: Store,
    *,
    model: str,
    branching: int,
    mode: str = "bottom-up",
    divider: Divider | None = None,
    writer: LabelWriter | None = None,
    progress: Progress | None = None,
) -> Tree:
    """A tree over all records of the store. `divider` and `writer` are a chat model's work."""
    check_known("unknown mode", MODES, mode)
    progress = progress or ignore_progress
    edition = store.changes.edition()  # what is written from now on is caught up with
    leaves = _read_leaves(store, model, progress)
    progress("grouping", 0, 0)
    if mode == "bottom-up":
        shape = shape_bottom_up(leaves.vectors, branching)
    else:
        divide = None
        if divider is not None:
            divide = partial(divider.divide, store, leaves.ids, leaves.vectors)
        shape = shape_top_down(leaves.vectors, branching, divide=divide)
    count = len(shape.kids)
    draft = Draft(
        store=store,
        mode=mode,
        model=model,
        branching=branching,
        built=time.time(),
        kids=shape.kids,
        parents=[-1] * count,
        moved=[0] * count,
        ids=leaves.ids,
        homes=[-1] * len(leaves.ids),
        gone=[0] * len(leaves.ids),
        prints=leaves.prints,
    )
    for node in range(count):
        draft.adopt(node)
        mine = draft.below(node)
        directions, weight = _find_facets(leaves.rows(mine))
        few = _thin_out(np.asarray(mine, np.int64)).tolist()
        draft.facets.append(directions)
        draft.weights.append(weight)
        draft.examples.append(_choose_examples(directions, weight, few, leaves.vectors[few]))
        draft.told.append(len(mine))
        if node % 50 == 0:
            progress("describing nodes", node, count)
    _label_all(draft, shape.names, writer, progress)
    return draft.freeze(edition=edition, unplaced=leaves.unplaced)


# ---------------------------------------------------------------------- leaves


def _read_leaves(store: Store, model: str, progress: Progress) -> Leaves:
    names = [row[0] for row in store.lifecycle.ledger(Filter())]
    ids: list[str] = []
    means: list[Vectors] = []
    passages: list[Vectors] = []
    firsts, prints = [0], list[int]()
    for i in range(0, len(names), BATCH):
        texts = _read_texts(store, names[i : i + BATCH])
        for name, rows in _read_vectors(store, names[i : i + BATCH], model).items():
            ids.append(name)
            means.append(rows.mean(axis=0))
            passages.append(rows.astype(np.float16))
            firsts.append(firsts[-1] + len(rows))
            prints.append(_fingerprint(rows, texts.get(name, "")))
        progress("reading vectors", min(i + BATCH, len(names)), len(names))
    if names and not ids:
        if model == EXTERNAL:
            raise SourceError(
                "a tree is made of vectors, and this store has no model to make any: set one with "
                "`clew config model NAME`, then run `clew index`"
            )
        raise SourceError(
            f"no record has a vector of {model}, and a tree is made of them: run `clew index`"
        )
    dim = passages[0].shape[1] if passages else 1
    return Leaves(
        ids,
        unit(np.stack(means)) if means else np.empty((0, dim), np.float32),
        np.concatenate(passages) if passages else np.empty((0, dim), np.float16),
        np.asarray(firsts, np.int64),
        prints,
        len(names) - len(ids),
    )


def _read_vectors(store: Store, ids: Sequence[str], model: str) -> dict[str, Vectors]:
    """The passages' vectors of records that have any of this model, in the order of the ids."""
    held = store.vectors.chunks(ids)
    found: dict[str, Vectors] = {}
    for name in ids:
        rows = [h.vector for h in held.get(name, ()) if h.model == model and h.vector is not None]
        if rows:
            found[name] = np.stack(rows)
    return found


def _read_texts(store: Store, ids: Sequence[str]) -> dict[str, str]:
    """What may be told of each record."""
    return {record.id: f"{record.title}\n{record.content}" for record in store.get(ids)}


def _fingerprint(rows: Vectors, text: str) -> int:
    """Other vectors or another text, another number."""
    return crc32(text.encode("utf-8", "surrogatepass"), crc32(rows.astype("<f4").tobytes()))


# ---------------------------------------------------------------------- what nodes are about


def _find_facets(rows: Vectors) -> tuple[Vectors, Vectors]:
    """Directions (FACETS, dim) that stand for these passages, and how many each stands for."""
    directions = np.zeros((FACETS, rows.shape[1]), np.float32)
    weight = np.zeros(FACETS, np.float32)
    if len(rows):
        found, count = find_centres(rows, FACETS)
        directions[: len(found)], weight[: len(found)] = found, count
    return directions, weight


def _choose_examples(
    directions: Vectors, weight: Vectors, leaves: Sequence[int], rows: Vectors
) -> list[int]:
    """Choose the leaf, by these vectors, nearest to each facet, the weightiest facet's first."""
    chosen: list[int] = []
    for facet in np.argsort(-weight, kind="stable").tolist():
        if weight[facet] > 0 and len(rows):
            near = np.argsort(-(rows @ directions[facet]), kind="stable").tolist()
            chosen += [leaves[n] for n in near if leaves[n] not in chosen][:1]
    return chosen[:EXAMPLES]


def _get_records(store: Store, names: Iterable[str]) -> dict[str, Record]:
    return {record.id: record for record in store.get(sorted(set(names)))}


def _extract_labels(draft: Draft, nodes: Iterable[int], *, sampled: int = 0) -> dict[int, NodeText]:
    """Words from the nodes' examples alone, weighed against the nodes beside them. So many leaves
    of each are counted beside its examples."""
    said: dict[int, NodeText] = {}
    wanted = set(nodes)
    for parent in sorted({draft.parents[node] for node in wanted}):
        kids = [ROOT] if parent < 0 else draft.kids[parent]
        named: dict[int, tuple[list[str], list[str]]] = {}
        for node in (key for key in kids if not is_leaf(key)):
            examples = draft.examples[node]
            others = list[int]()
            if sampled and node != ROOT:
                below = draft.below(node)
                others = [n for n in below[:: -(-len(below) // sampled)] if n not in examples]
            named[node] = [draft.ids[n] for n in examples], [draft.ids[n] for n in others]
        records = _get_records(
            draft.store, (n for two in named.values() for some in two for n in some)
        )
        groups = {
            node: Group(*([records[n] for n in some if n in records] for some in two))
            for node, two in named.items()
        }
        said |= {node: text for node, text in extract_texts(groups).items() if node in wanted}
    return said


def _label_all(
    draft: Draft, names: dict[int, str], writer: LabelWriter | None, progress: Progress
) -> None:
    """Label and summary of every node. From below, because what is said of a node's children is
    what a chat model is shown of it."""
    count = len(draft.kids)
    said = _extract_labels(draft, range(count), sampled=COUNTED)
    own = {node: text.label for node, text in said.items()}
    draft.written = [0] * count
    for node in range(count - 1, -1, -1):
        if (name := names.get(node)) is not None:
            said[node], draft.written[node] = said[node]._replace(label=name), 1
        elif writer is not None and draft.examples[node]:
            told = writer.write(_show_children(draft, node, said), own[node])
            said[node], draft.written[node] = told or said[node], int(told is not None)
        if writer is not None:
            progress("naming nodes", count - node, count)
    for kids in draft.kids:
        _tell_apart([key for key in kids if not is_leaf(key)], said, own)
    if draft.kids[ROOT]:
        said[ROOT] = said[ROOT]._replace(label="everything")
    draft.labels = [said[node].label for node in range(count)]
    draft.summaries = [said[node].summary for node in range(count)]


def _tell_apart(siblings: Sequence[int], said: dict[int, NodeText], own: dict[int, str]) -> None:
    """Two that a chat model calls the same get a word of their own each."""
    times = Counter(said[node].label.casefold() for node in siblings)
    for node in siblings:
        label = said[node].label
        if times[label.casefold()] > 1:
            words = [*label.split()[: LABEL_WORDS - 1], *own[node].split()]
            said[node] = said[node]._replace(label=" ".join(dict.fromkeys(words[:LABEL_WORDS])))


def _show_children(draft: Draft, node: int, said: dict[int, NodeText]) -> list[str]:
    """Some of a node's children, as a chat model is shown them."""
    kids = draft.kids[node]
    some = kids[:: -(-len(kids) // READ)]
    records = _get_records(draft.store, (draft.ids[~key] for key in some if is_leaf(key)))
    texts = []
    for key in some:
        if not is_leaf(key):
            texts.append(f"{said[key].label}: {said[key].summary}"[: 2 * SHOWN])
        elif (record := records.get(draft.ids[~key])) is not None:
            words = " ".join(strip_marks(record.content).split())[:SHOWN]
            texts.append(f"{headline(record)}\n{words}")
    return texts


# ---------------------------------------------------------------------- edits


def update_tree(tree: Tree, store: Store, touched: Sequence[str], edition: tuple[int, int]) -> Tree:
    """The tree at this edition; `touched` are the records written since its own."""
    edit = Draft.thaw(tree, store)
    known = tree.leaf_of
    total = store.count(Filter())
    before = int(tree.there.sum()) + tree.unplaced
    # as many as before: one may be renamed, or gone while another came back
    if total != before or any(n not in known or tree.gone[known[n]] for n in touched):
        here = {row[0] for row in store.lifecycle.ledger(Filter())}
        for name, leaf in known.items():
            if (name in here) == bool(tree.gone[leaf]):
                edit.gone[leaf] = int(name not in here)
                edit.count_move(edit.homes[leaf], silence=True)
    for some in batched(touched, BATCH):
        vectors, texts = _read_vectors(store, some, tree.model), _read_texts(store, some)
        for name in some:
            edit.put(name, vectors.get(name), texts.get(name, ""))
    edit.reword()
    there = sum(edit.is_there(leaf) for leaf in range(len(edit.homes)))
    return edit.freeze(edition=edition, unplaced=max(0, total - there))


@dataclass(slots=True, kw_only=True)
class Draft:
    """A tree that is being made, or follows what was written to its store. Its fields are those of
    a Tree, as lists."""

    store: Store
    mode: str
    model: str
    branching: int
    built: float
    kids: list[list[int]]
    parents: list[int]
    moved: list[int]
    ids: list[str]
    homes: list[int]
    gone: list[int]
    prints: list[int]
    facets: list[Vectors] = field(default_factory=list)
    weights: list[Vectors] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    summaries: list[str] = field(default_factory=list)
    examples: list[list[int]] = field(default_factory=list)
    """Without the -1 that fill a Tree's up."""
    written: list[int] = field(default_factory=list)
    told: list[int] = field(default_factory=list)
    leaf_of: dict[str, int] = field(default_factory=dict)
    silenced: set[int] = field(default_factory=set)

    @classmethod
    def thaw(cls, tree: Tree, store: Store) -> Draft:
        lists: dict[str, Any] = {name: getattr(tree, name).tolist() for name in NUMBERS}
        lists |= {name: list(getattr(tree, name)) for name in TEXTS}
        return cls(
            store=store,
            mode=tree.mode,
            model=tree.model,
            branching=tree.branching,
            built=tree.built,
            kids=[tree.children(node) for node in range(len(tree))],
            facets=[np.asarray(some, np.float32) for some in tree.facets],
            weights=[np.array(some) for some in tree.weights],
            examples=[[n for n in some if n >= 0] for some in tree.examples.tolist()],
            leaf_of=dict(tree.leaf_of),
            **lists,
        )

    def freeze(self, *, edition: tuple[int, int], unplaced: int) -> Tree:
        self._leave_out_void()
        filled = [some + [-1] * (EXAMPLES - len(some)) for some in self.examples]
        arrays: dict[str, Any] = {
            name: np.asarray(getattr(self, name), dtype) for name, dtype in NUMBERS.items()
        }
        arrays |= {name: Texts.of(getattr(self, name)) for name in TEXTS}
        return Tree(
            mode=self.mode,
            model=self.model,
            branching=self.branching,
            edition=edition,
            starts=np.cumsum([0, *map(len, self.kids)], dtype=np.int64),
            kids=np.asarray([key for kids in self.kids for key in kids], np.int32),
            facets=np.stack(self.facets).astype(np.float16),
            weights=np.stack(self.weights),
            examples=np.asarray(filled, np.int32).reshape(-1, EXAMPLES),
            unplaced=unplaced,
            built=self.built,
            **arrays,
        )

    def _leave_out_void(self) -> None:
        """Number the leaves anew without those that are nowhere: each edit leaves one. Examples
        stay, since what was made of one that is void is not told any more."""
        told = {leaf for some in self.examples for leaf in some}
        left = [n for n, home in enumerate(self.homes) if home >= 0 or n in told]
        numbers = {leaf: n for n, leaf in enumerate(left)}
        for name in ("ids", "homes", "gone", "prints"):
            every = getattr(self, name)
            setattr(self, name, [every[leaf] for leaf in left])
        self.kids = [[~numbers[~k] if is_leaf(k) else k for k in kids] for kids in self.kids]
        self.examples = [[numbers[leaf] for leaf in some] for some in self.examples]

    def adopt(self, node: int) -> None:
        """Tell a node's children whose they are."""
        for key in self.kids[node]:
            if is_leaf(key):
                self.homes[~key] = node
            else:
                self.parents[key] = node

    def put(self, name: str, rows: Vectors | None, text: str) -> None:
        """A record that was written: where its vectors belong, or nowhere without any."""
        leaf = self.leaf_of.get(name)
        if rows is None:
            if leaf is not None and not self.gone[leaf]:
                self._take_out(leaf)
            return
        seal = _fingerprint(rows, text)
        if leaf is not None and self.prints[leaf] == seal:
            return
        if leaf is not None:
            self._take_out(leaf)
        self._place(name, unit(rows.mean(axis=0, keepdims=True))[0], seal)

    def below(self, node: int) -> list[int]:
        return leaves_below(self.kids.__getitem__, node)

    def is_there(self, leaf: int) -> bool:
        return self.homes[leaf] >= 0 and not self.gone[leaf]

    def _take_out(self, leaf: int) -> None:
        self.count_move(self.homes[leaf], silence=True)
        self._void(leaf)

    def _void(self, leaf: int) -> None:
        self.kids[self.homes[leaf]].remove(~leaf)
        self.homes[leaf] = -1
        del self.leaf_of[self.ids[leaf]]

    def _place(self, name: str, vector: Vector, seal: int) -> None:
        path = [ROOT]  # each time to the nearest node
        while inner := [key for key in self.kids[path[-1]] if not is_leaf(key)]:
            near = [
                float((self.facets[n] @ vector)[self.weights[n] > 0].max(initial=-1.0))
                for n in inner
            ]
            path.append(inner[int(np.argmax(near))])
        self.leaf_of[name] = leaf = len(self.ids)
        self.ids.append(name)
        self.homes.append(path[-1])
        self.gone.append(0)
        self.prints.append(seal)
        self.kids[path[-1]].append(~leaf)
        for node in path:
            self._learn(node, vector)
        self.count_move(path[-1])
        self._split(path[-1])

    def _learn(self, node: int, vector: Vector) -> None:
        """The facet that is nearest moves towards it; one that is free is taken."""
        if self.facets[node].shape[1] != len(vector):  # of a tree that had no leaf yet
            self.facets[node] = np.zeros((FACETS, len(vector)), np.float32)
        facets, weight = self.facets[node].copy(), self.weights[node]
        free = np.flatnonzero(weight <= 0)
        if len(free):
            facets[free[0]], weight[free[0]] = vector, 1.0
        else:
            best = int((facets @ vector).argmax())
            moved = facets[best] * weight[best] + vector
            facets[best] = unit(moved.reshape(1, -1))[0]
            weight[best] += 1.0
        self.facets[node] = facets

    def count_move(self, node: int, *, silence: bool = False) -> None:
        """A leaf of this node came or went. What was written of it and of all above may tell of one
        that went: then it is silenced."""
        while node >= 0:
            self.moved[node] += 1
            if silence and self.written[node]:
                self.written[node] = 0
                self.silenced.add(node)
            node = self.parents[node]

    def _split(self, node: int) -> None:
        """Make room where there are too many children, upwards to the root."""
        while node >= 0 and len(self.kids[node]) > self.branching:
            for key in [k for k in self.kids[node] if is_leaf(k) and self.gone[~k]]:
                self._void(~key)
            if len(self.kids[node]) <= self.branching:
                return
            if node == ROOT:  # stays the root: its children get a node of their own first
                node = self._add_node(ROOT, self.kids[ROOT])
                self.kids[ROOT] = [node]
            keys, parent = self.kids[node], self.parents[node]
            one, *others = split_rows(self._directions(keys), np.arange(len(keys)), 2)
            self.kids[node] = [keys[n] for n in one.tolist()]
            made = [self._add_node(parent, [keys[n] for n in o.tolist()]) for o in others]
            self.kids[parent] += made
            for each in (node, *made):
                self._describe(each)
            self._say([node, *made])
            node = parent

    def _add_node(self, parent: int, keys: Sequence[int]) -> int:
        node = len(self.kids)
        self.kids.append(list(keys))
        self.parents.append(parent)
        self.adopt(node)
        self.facets.append(np.zeros_like(self.facets[ROOT]))
        self.weights.append(np.zeros(FACETS, np.float32))
        self.labels.append("")
        self.summaries.append("")
        self.examples.append([])
        for numbers in (self.written, self.told, self.moved):
            numbers.append(0)
        return node

    def _directions(self, keys: Sequence[int]) -> Vectors:
        """One vector for each child."""
        names = [self.ids[~key] for key in keys if is_leaf(key)]
        leaves = _read_vectors(self.store, names, self.model)
        nothing = np.zeros((1, self.facets[ROOT].shape[1]), np.float32)
        rows = [
            leaves.get(self.ids[~key], nothing).mean(axis=0)
            if is_leaf(key)
            else (self.facets[key] * self.weights[key][:, None]).sum(axis=0)
            for key in keys
        ]
        return unit(np.stack(rows))

    def _describe(self, node: int) -> None:
        """Facets and examples of a node whose children are others now."""
        inner = [key for key in self.kids[node] if not is_leaf(key)]
        leaves = [~key for key in self.kids[node] if is_leaf(key)]
        parts = [self.facets[key][self.weights[key] > 0] for key in inner]
        chosen: list[int] = []
        if leaves:
            rows = self._directions([~leaf for leaf in leaves])
            parts.append(rows)
        self.facets[node], self.weights[node] = _find_facets(np.concatenate(parts))
        if leaves:
            chosen = _choose_examples(self.facets[node], self.weights[node], leaves, rows)
        chosen += [leaf for key in inner for leaf in self.examples[key]]
        self.examples[node] = list(dict.fromkeys(chosen))[:EXAMPLES]
        self.told[node] = len(self.below(node))
        self.moved[node] = self.written[node] = 0
        self.silenced.discard(node)

    def _say(self, nodes: Sequence[int]) -> None:
        for node, (label, summary) in _extract_labels(self, nodes).items():
            self.summaries[node] = summary
            if node != ROOT:
                self.labels[node] = label

    def reword(self) -> None:
        """Give those that were silenced words from records that are there."""
        nodes = sorted(self.silenced)
        for node in nodes:
            chosen = [leaf for leaf in self.examples[node] if self.is_there(leaf)]
            if not chosen:
                some = list(filter(self.is_there, self.below(node)))
                chosen = some[:: max(1, len(some) // EXAMPLES)][:EXAMPLES]
            self.examples[node] = chosen
        self._say(nodes)
