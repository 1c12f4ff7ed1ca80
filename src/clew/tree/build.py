"""From a store's records to a tree: read the vectors, find the shape, say what each node is about.

Only what has a vector of the model has a place. Everything is made from the store, deterministic,
and can be made again at any time.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal
from zlib import crc32

import numpy as np

from clew.errors import InputError, SourceError, nearest
from clew.filter import Filter
from clew.models.current import EXTERNAL
from clew.models.vectors import unit
from clew.protocols import Progress, Store
from clew.tree.cluster import centres
from clew.tree.divide import Divider
from clew.tree.hierarchy import EXAMPLES, FACETS, ROOT, Halves, Ints, Longs, Texts, Tree, is_leaf
from clew.tree.shape import Shape, bottom_up, top_down
from clew.tree.words import SHOWN, Said, Writer, body, extracted, headline, shares
from clew.types import Record, Vectors

__all__ = [
    *("MODES", "Mode", "build", "examples_of", "facets_of", "fingerprint"),
    *("leaf_texts", "leaf_vectors"),
]

Mode = Literal["bottom-up", "top-down"]
MODES = ("bottom-up", "top-down")
BATCH = 500
FEW = 512
"""Passages that the facets of a node are found from."""
READ = 12
"""Children of a node that a chat model is shown."""


@dataclass(slots=True)
class Leaves:
    """Records that have vectors."""

    ids: list[str]
    vectors: Vectors
    """The direction of each as a whole."""
    passages: Halves
    firsts: Longs
    """Where the passages of each begin, and the end."""
    prints: list[int]
    unplaced: int

    def rows(self, leaves: Sequence[int]) -> Vectors:
        """The passages of these leaves, or evenly chosen ones where there are very many."""
        runs = [np.arange(self.firsts[n], self.firsts[n + 1]) for n in leaves]
        rows = np.concatenate(runs) if runs else np.empty(0, np.int64)
        step = -(-len(rows) // FEW) if len(rows) > FEW else 1
        return np.asarray(self.passages[rows[::step]], np.float32)


def build(
    store: Store,
    *,
    model: str,
    branching: int,
    mode: Mode = "bottom-up",
    divider: Divider | None = None,
    writer: Writer | None = None,
    progress: Progress | None = None,
) -> Tree:
    """A tree over all records of the store. `divider` and `writer` are a chat model's work."""
    if mode not in MODES:
        raise InputError(f"unknown mode {mode!r}: {nearest(str(mode), MODES)}")
    edition = store.changes.edition()  # what is written from now on is caught up with
    leaves = _read(store, model, progress)
    if progress:
        progress("grouping", 0, 0)
    if mode == "bottom-up":
        shape = bottom_up(leaves.vectors, branching)
    else:
        asking = None if divider is None else divider.over(store, leaves.ids, leaves.vectors)
        shape = top_down(leaves.vectors, branching, divide=asking)
    return _described(store, leaves, shape, model, branching, mode, edition, writer, progress)


def _read(store: Store, model: str, progress: Progress | None) -> Leaves:
    names = [row[0] for row in store.lifecycle.ledger(Filter())]
    ids: list[str] = []
    means: list[Vectors] = []
    passages: list[Vectors] = []
    firsts, prints = [0], list[int]()
    for i in range(0, len(names), BATCH):
        texts = leaf_texts(store, names[i : i + BATCH])
        for name, rows in leaf_vectors(store, names[i : i + BATCH], model).items():
            ids.append(name)
            means.append(rows.mean(axis=0))
            passages.append(rows.astype(np.float16))
            firsts.append(firsts[-1] + len(rows))
            prints.append(fingerprint(rows, texts.get(name, "")))
        if progress:
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


def leaf_vectors(store: Store, ids: Sequence[str], model: str) -> dict[str, Vectors]:
    """The passages' vectors of records that have any of this model, in the order of the ids."""
    held = store.vectors.chunks(ids)
    found: dict[str, Vectors] = {}
    for name in ids:
        rows = [h.vector for h in held.get(name, ()) if h.model == model and h.vector is not None]
        if rows:
            found[name] = np.stack(rows)
    return found


def leaf_texts(store: Store, ids: Sequence[str]) -> dict[str, str]:
    """What may be told of each record."""
    return {record.id: f"{record.title}\n{record.content}" for record in store.get(ids)}


def fingerprint(rows: Vectors, text: str) -> int:
    """Other vectors or another text, another number."""
    return crc32(text.encode("utf-8", "surrogatepass"), crc32(rows.astype("<f4").tobytes()))


def facets_of(rows: Vectors) -> tuple[Vectors, Vectors]:
    """Directions (FACETS, dim) that stand for these passages, and how many each stands for."""
    directions = np.zeros((FACETS, rows.shape[1]), np.float32)
    weight = np.zeros(FACETS, np.float32)
    if len(rows):
        found, count = centres(rows, FACETS)
        directions[: len(found)], weight[: len(found)] = found, count
    return directions, weight


def examples_of(
    directions: Vectors, weight: Vectors, keys: Sequence[int], rows: Vectors
) -> list[int]:
    """Of leaves with these vectors the nearest to each facet, the weightiest facet's first."""
    chosen: list[int] = []
    for facet in np.argsort(-weight, kind="stable").tolist():
        if weight[facet] > 0 and len(rows):
            near = np.argsort(-(rows @ directions[facet]), kind="stable").tolist()
            chosen += [keys[n] for n in near if keys[n] not in chosen][:1]
    return chosen[:EXAMPLES]


def _described(
    store: Store,
    leaves: Leaves,
    shape: Shape,
    model: str,
    branching: int,
    mode: str,
    edition: tuple[int, int],
    writer: Writer | None,
    progress: Progress | None,
) -> Tree:
    count, dim = len(shape.kids), leaves.vectors.shape[1]
    parents, homes = np.full(count, -1, np.int32), np.full(len(leaves.ids), -1, np.int32)
    for node, kids in enumerate(shape.kids):
        for key in kids:
            if is_leaf(key):
                homes[~key] = node
            else:
                parents[key] = node
    below = _below(shape)
    facets = np.zeros((count, FACETS, dim), np.float16)
    weights = np.zeros((count, FACETS), np.float32)
    examples = np.full((count, EXAMPLES), -1, np.int32)
    for node, mine in enumerate(below):
        directions, weight = facets_of(leaves.rows(mine))
        facets[node], weights[node] = directions, weight
        few = mine[:: -(-len(mine) // FEW)] if len(mine) > FEW else mine
        chosen = examples_of(directions, weight, few, leaves.vectors[few])
        examples[node, : len(chosen)] = chosen
        if progress and node % 50 == 0:
            progress("describing nodes", node, count)
    said, written = _said(store, leaves.ids, shape, examples, writer, progress)
    sizes = np.asarray([len(mine) for mine in below], np.int32)
    return Tree(
        mode=mode,
        model=model,
        branching=branching,
        edition=edition,
        parents=parents,
        starts=np.cumsum([0, *(len(kids) for kids in shape.kids)], dtype=np.int64),
        kids=np.asarray([key for kids in shape.kids for key in kids], np.int32),
        facets=facets,
        weights=weights,
        homes=homes,
        gone=np.zeros(len(homes), np.uint8),
        prints=np.asarray(leaves.prints, np.uint32),
        ids=Texts.of(leaves.ids),
        labels=Texts.of(each.label for each in said),
        summaries=Texts.of(each.summary for each in said),
        examples=examples,
        written=np.asarray(written, np.uint8),
        told=sizes,
        moved=np.zeros(count, np.int32),
        unplaced=leaves.unplaced,
        built=time.time(),
    )


def _below(shape: Shape) -> list[list[int]]:
    """The leaves below each node: children are numbered after their parents."""
    below: list[list[int]] = [[] for _ in shape.kids]
    for node in range(len(shape.kids) - 1, -1, -1):
        for key in shape.kids[node]:
            below[node] += [~key] if is_leaf(key) else below[key]
        below[node].sort()
    return below


def _said(
    store: Store,
    ids: Sequence[str],
    shape: Shape,
    examples: Ints,
    writer: Writer | None,
    progress: Progress | None,
) -> tuple[list[Said], list[bool]]:
    """Label and summary of every node, and which of them a chat model wrote. From below, because
    what is said of a node's children is what a chat model is shown of it."""
    wanted = sorted({n for n in examples.ravel().tolist() if n >= 0})
    records = dict(_records(store, ids, wanted))
    common = shares(list(records.values()))
    said = [Said("", "")] * len(shape.kids)
    written = [False] * len(shape.kids)
    for node in range(len(shape.kids) - 1, -1, -1):
        mine = [records[n] for n in examples[node].tolist() if n in records]
        said[node] = extracted(mine, common, len(records))
        if (name := shape.names.get(node)) is not None:
            said[node], written[node] = said[node]._replace(label=name), True
        elif writer is not None and mine:
            told = writer.write(_shown(store, ids, shape.kids[node], said))
            said[node], written[node] = told or said[node], told is not None
        if progress and writer is not None:
            progress("naming nodes", len(shape.kids) - node, len(shape.kids))
    if said and shape.kids[ROOT]:
        said[ROOT] = said[ROOT]._replace(label="everything")
    return said, written


def _records(
    store: Store, ids: Sequence[str], leaves: Sequence[int]
) -> Iterator[tuple[int, Record]]:
    for i in range(0, len(leaves), BATCH):
        some = {ids[n]: n for n in leaves[i : i + BATCH]}
        for record in store.get(list(some)):
            yield some[record.id], record


def _shown(store: Store, ids: Sequence[str], kids: list[int], said: list[Said]) -> list[str]:
    step = -(-len(kids) // READ)
    some = kids[::step]
    leaves = dict(_records(store, ids, [~key for key in some if is_leaf(key)]))
    texts = []
    for key in some:
        if not is_leaf(key):
            texts.append(f"{said[key].label}: {said[key].summary}"[: 2 * SHOWN])
        elif (record := leaves.get(~key)) is not None:
            words = " ".join(body(record.content).split())[:SHOWN]
            texts.append(f"{headline(record)}\n{words}")
    return texts
