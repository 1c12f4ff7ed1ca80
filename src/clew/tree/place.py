"""A tree after edits: new records are placed, changed ones moved, removed ones masked.

A new record goes down the nearest nodes to the first that has no inner children; a node that gets
too many is split in two, and its parent if need be. Summaries stay as they are: how many leaves
came or went since is counted, so that one can see how stale they are. But what a chat model wrote
is not kept above a leaf that went: it may tell of what is not there any more, and nobody knows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from clew.filter import Filter
from clew.models.vectors import unit
from clew.protocols import Progress, Store
from clew.tree.build import BATCH, examples_of, facets_of, fingerprint, leaf_texts, leaf_vectors
from clew.tree.cluster import parted
from clew.tree.hierarchy import EXAMPLES, FACETS, ROOT, Texts, Tree, is_leaf
from clew.tree.words import extracted, shares
from clew.types import Vector, Vectors

__all__ = ["caught_up"]


def caught_up(
    tree: Tree,
    store: Store,
    touched: Sequence[str],
    edition: tuple[int, int],
    *,
    progress: Progress | None = None,
) -> Tree:
    """The tree at this edition; `touched` are the records written since its own."""
    draft = _Draft(tree, store)
    known = tree.leaf_of
    total = store.count(Filter())
    before = int(tree.there.sum()) + tree.unplaced
    # as many as before: one may be renamed, or gone while another came back
    if total != before or any(n not in known or tree.gone[known[n]] for n in touched):
        here = {row[0] for row in store.lifecycle.ledger(Filter())}
        for name, leaf in known.items():
            if (name in here) == bool(tree.gone[leaf]):
                draft.set_gone(leaf, name not in here)
    for i in range(0, len(touched), BATCH):
        vectors = leaf_vectors(store, touched[i : i + BATCH], tree.model)
        texts = leaf_texts(store, touched[i : i + BATCH])
        for name in touched[i : i + BATCH]:
            draft.put(name, vectors.get(name), texts.get(name, ""))
        if progress:
            progress("placing", min(i + BATCH, len(touched)), len(touched))
    return draft.tree(edition, total)


class _Draft:
    """A tree that can be changed."""

    def __init__(self, tree: Tree, store: Store):
        self._old, self._store = tree, store
        self.kids = [tree.children(node) for node in range(len(tree))]
        self.parents: list[int] = tree.parents.tolist()
        self.homes: list[int] = tree.homes.tolist()
        self.gone: list[int] = tree.gone.tolist()
        self.prints: list[int] = tree.prints.tolist()
        self.ids = list(tree.ids)
        self.leaf_of = dict(tree.leaf_of)
        self.facets = [np.asarray(f, np.float32) for f in tree.facets]
        self.weights = [np.array(w) for w in tree.weights]
        self.labels, self.summaries = list(tree.labels), list(tree.summaries)
        self.examples: list[list[int]] = tree.examples.tolist()
        self.written: list[int] = tree.written.tolist()
        self.told: list[int] = tree.told.tolist()
        self.moved: list[int] = tree.moved.tolist()
        self._silenced: set[int] = set()

    # ------------------------------------------------------------------ leaves

    def put(self, name: str, rows: Vectors | None, text: str) -> None:
        """A record that was written: where its vectors belong, or nowhere without any."""
        leaf = self.leaf_of.get(name)
        if rows is None:
            if leaf is not None and not self.gone[leaf]:
                self._take_out(leaf)
            return
        seal = fingerprint(rows, text)
        if leaf is not None and self.prints[leaf] == seal:
            return
        if leaf is not None:
            self._take_out(leaf)
        self._place(name, rows, seal)

    def set_gone(self, leaf: int, gone: bool) -> None:
        self.gone[leaf] = int(gone)
        self._count(self.homes[leaf])
        self._silence(self.homes[leaf])

    def _take_out(self, leaf: int) -> None:
        home = self.homes[leaf]
        self.kids[home].remove(~leaf)
        self._count(home)
        self._silence(home)
        self.homes[leaf] = -1
        del self.leaf_of[self.ids[leaf]]

    def _place(self, name: str, rows: Vectors, seal: int) -> None:
        leaf, whole = len(self.ids), unit(rows.mean(axis=0, keepdims=True))[0]
        path = self._path(whole)
        self.ids.append(name)
        self.homes.append(path[-1])
        self.gone.append(0)
        self.prints.append(seal)
        self.leaf_of[name] = leaf
        self.kids[path[-1]].append(~leaf)
        for node in path:
            self._learn(node, whole)
        self._count(path[-1])
        self._split(path[-1])

    def _path(self, vector: Vector) -> list[int]:
        """From the root, each time to the nearest node."""
        path = [ROOT]
        while inner := [key for key in self.kids[path[-1]] if not is_leaf(key)]:
            near = [
                float((self.facets[n] @ vector)[self.weights[n] > 0].max(initial=-1.0))
                for n in inner
            ]
            path.append(inner[int(np.argmax(near))])
        return path

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

    def _count(self, node: int) -> None:
        while node >= 0:
            self.moved[node] += 1
            node = self.parents[node]

    def _silence(self, node: int) -> None:
        """What was written of it and of all above may tell of a leaf that is not there now."""
        while node >= 0:
            if self.written[node]:
                self.written[node] = 0
                self._silenced.add(node)
            node = self.parents[node]

    # ------------------------------------------------------------------ nodes

    def _split(self, node: int) -> None:
        """Make room where there are too many children, upwards to the root."""
        while node >= 0 and len(self.kids[node]) > self._old.branching:
            for key in [k for k in self.kids[node] if is_leaf(k) and self.gone[~k]]:
                self.kids[node].remove(key)
                self.homes[~key] = -1
                del self.leaf_of[self.ids[~key]]
            if len(self.kids[node]) <= self._old.branching:
                return
            if node == ROOT:  # stays the root: its children get a node of their own first
                node = self._new(ROOT, self.kids[ROOT])
                self.kids[ROOT] = [node]
            rows = self._directions(self.kids[node])
            one, *others = parted(rows, np.arange(len(rows)), 2)
            keys = self.kids[node]
            self.kids[node] = [keys[n] for n in one.tolist()]
            made = [self._new(self.parents[node], [keys[n] for n in o.tolist()]) for o in others]
            self.kids[self.parents[node]] += made
            self._describe([node, *made])
            node = self.parents[node]

    def _new(self, parent: int, keys: Sequence[int]) -> int:
        node = len(self.kids)
        self.kids.append(list(keys))
        self.parents.append(parent)
        for key in keys:
            if is_leaf(key):
                self.homes[~key] = node
            else:
                self.parents[key] = node
        self.facets.append(np.zeros_like(self.facets[ROOT]))
        self.weights.append(np.zeros(FACETS, np.float32))
        self.labels.append("")
        self.summaries.append("")
        self.examples.append([-1] * EXAMPLES)
        for numbers in (self.written, self.told, self.moved):
            numbers.append(0)
        return node

    def _directions(self, keys: Iterable[int]) -> Vectors:
        """One vector for each child."""
        keys = list(keys)
        names = [self.ids[~key] for key in keys if is_leaf(key)]
        leaves = leaf_vectors(self._store, names, self._old.model)
        nothing = np.zeros(self.facets[ROOT].shape[1], np.float32)
        rows = []
        for key in keys:
            if is_leaf(key):
                mine = leaves.get(self.ids[~key])
                rows.append(nothing if mine is None else mine.mean(axis=0))
            else:
                rows.append((self.facets[key] * self.weights[key][:, None]).sum(axis=0))
        return unit(np.stack(rows))

    def _describe(self, nodes: Sequence[int]) -> None:
        """Facets, examples and words of nodes whose children are others now."""
        for node in nodes:
            keys = self.kids[node]
            inner = [key for key in keys if not is_leaf(key)]
            leaves = [~key for key in keys if is_leaf(key)]
            rows = self._directions(~n for n in leaves) if leaves else None
            parts = [self.facets[key][self.weights[key] > 0] for key in inner]
            parts += [] if rows is None else [rows]
            self.facets[node], self.weights[node] = facets_of(np.concatenate(parts))
            chosen = [] if rows is None else examples_of(*self._facets(node), leaves, rows)
            chosen += [n for key in inner for n in self.examples[key] if n >= 0]
            chosen = list(dict.fromkeys(chosen))[:EXAMPLES]
            self.examples[node] = chosen + [-1] * (EXAMPLES - len(chosen))
            self.told[node], self.moved[node], self.written[node] = self._size(node), 0, 0
            self._silenced.discard(node)
        self._say(nodes)

    def _say(self, nodes: Sequence[int]) -> None:
        """Words from the examples alone."""
        names = {self.ids[n] for node in nodes for n in self.examples[node] if n >= 0}
        records = {record.id: record for record in self._store.get(sorted(names))}
        common = shares(list(records.values()))
        for node in nodes:
            named = [self.ids[n] for n in self.examples[node] if n >= 0]
            mine = [records[name] for name in named if name in records]
            label, self.summaries[node] = extracted(mine, common, len(records))
            if node != ROOT:
                self.labels[node] = label

    def _reword(self) -> None:
        """Those that were silenced get words from records that are there."""
        nodes = sorted(self._silenced)
        for node in nodes:
            chosen = [n for n in self.examples[node] if n >= 0 and self._there(n)]
            if not chosen:
                below = [n for n in self._below(node) if self._there(n)]
                chosen = below[:: max(1, len(below) // EXAMPLES)][:EXAMPLES]
            self.examples[node] = chosen + [-1] * (EXAMPLES - len(chosen))
        self._say(nodes)
        self._silenced.clear()

    def _there(self, leaf: int) -> bool:
        return self.homes[leaf] >= 0 and not self.gone[leaf]

    def _facets(self, node: int) -> tuple[Vectors, Vectors]:
        return self.facets[node], self.weights[node]

    def _below(self, node: int) -> list[int]:
        return sorted(n for k in self.kids[node] for n in ([~k] if is_leaf(k) else self._below(k)))

    def _size(self, node: int) -> int:
        return sum(1 if is_leaf(key) else self._size(key) for key in self.kids[node])

    # ------------------------------------------------------------------ done

    def tree(self, edition: tuple[int, int], total: int) -> Tree:
        self._reword()
        old = self._old
        there = sum(1 for h, g in zip(self.homes, self.gone, strict=True) if h >= 0 and not g)
        return Tree(
            mode=old.mode,
            model=old.model,
            branching=old.branching,
            edition=edition,
            parents=np.asarray(self.parents, np.int32),
            starts=np.cumsum([0, *map(len, self.kids)], dtype=np.int64),
            kids=np.asarray([key for kids in self.kids for key in kids], np.int32),
            facets=np.stack(self.facets).astype(np.float16),
            weights=np.stack(self.weights),
            homes=np.asarray(self.homes, np.int32),
            gone=np.asarray(self.gone, np.uint8),
            prints=np.asarray(self.prints, np.uint32),
            ids=Texts.of(self.ids),
            labels=Texts.of(self.labels),
            summaries=Texts.of(self.summaries),
            examples=np.asarray(self.examples, np.int32).reshape(-1, EXAMPLES),
            written=np.asarray(self.written, np.uint8),
            told=np.asarray(self.told, np.int32),
            moved=np.asarray(self.moved, np.int32),
            unplaced=max(0, total - there),
            built=old.built,
        )
