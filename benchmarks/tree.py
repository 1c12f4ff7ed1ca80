"""The tree: how much of a flat search it finds, for how few scorings, and how that grows.

    python benchmarks/tree.py --out docs/benchmarks/tree.md --plot docs/benchmarks/tree.png

- Recall. Trees over scifact and k8s_docs, built bottom-up and top-down without a chat model, walked
  by embeddings. recall@100 by the sets' judgements, beside the flat vector leg's.
- Reading. The same queries with the cross-encoder as the scorer of slates, which may read so many
  texts. Beside it the flat hybrid list, and the flat hybrid list whose first 25 were read by the
  same cross-encoder, blended alike. A sample of the queries: reading is slow.
- Masks. 30 % of the records are filtered out at random. What remains of the judgements is asked
  for, of the walk with the mask (which is not called off, by the option for that), and of the walk
  without it, from whose list the same records are then struck. The default, which calls such a
  walk off after three iterations, is in the table too: without a graph, words and vectors answer.
- Growth. Records made from real texts and vectors (see corpus.py), given with their vectors through
  `Engine.add`. A query counts as many scorings as the walk makes, and as it makes until it meets
  the record that exact search has first.

A scoring of an inner node compares the query with up to six vectors, of a leaf with each passage
of the record. --stores names a folder with ready stores, by the sets' names.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import clew
from answerless import PATIENT, opened
from clew.engine import Engine
from clew.eval import datasets, metrics
from clew.filter import Filter
from clew.storage import FOLDER
from clew.tree import Walk
from clew.tree.search import TreeView
from clew.tree.traverse import Traversal, traverse
from clew.types import SearchResult, Vector
from systems import draw

import corpus as corpora
from report import Table, figure, options, p, publish, say

SETS = ("scifact", "k8s_docs")
DEEP = 100
MASKED = 0.3
SEED = 7
Run = dict[str, list[str]]


@dataclass(slots=True)
class Asked:
    """What a way of searching found."""

    run: Run
    scored: list[int]
    ms: list[float]
    fallbacks: int = 0

    def mean(self, judged: Mapping[str, Mapping[str, int]], measure: str) -> float:
        found = metrics.per_query(judged, {q: self.run[q] for q in judged}, measures=(measure,))
        return float(metrics.mean(list(found[measure].values())))


def ask(
    engine: Engine, questions: Sequence[datasets.Question], *, limit: int = DEEP, **how: Any
) -> Asked:
    asked = Asked({}, [], [])
    for question in questions:
        begun = time.perf_counter()
        found = engine.search(
            question.text,
            limit=limit,
            depth=max(limit, DEEP),
            syntax=False,
            snippets=False,
            group_by="record",
            **how,
        )
        asked.ms.append((time.perf_counter() - begun) * 1e3)
        asked.run[question.id] = [hit.id for hit in found]
        said = _walked(found)
        asked.scored.append(said.get("scored", 0))
        asked.fallbacks += "fallback" in said
    return asked


def _walked(found: SearchResult) -> Mapping[str, Any]:
    return dict(found.trace["sources"].get("tree", {}).get("how", {}))


def copied(dataset: datasets.Dataset, stores: Path | None, work: Path) -> Engine:
    """The set's store, in a place where a tree may be built."""
    with opened(dataset, stores) as ready:
        root = ready.root or Path()
    folder = work / dataset.name
    shutil.copytree(root / FOLDER, folder / FOLDER)
    return clew.open(folder, create=False, **PATIENT, rerank_seconds=3600.0)


# ---------------------------------------------------------------------- recall


def recall(
    engine: Engine, dataset: datasets.Dataset
) -> tuple[list[tuple[Any, ...]], dict[str, Any]]:
    flat = ask(engine, dataset.queries, mode="vector")
    whole = flat.mean(dataset.qrels, "recall@100")
    rows: list[tuple[Any, ...]] = []
    numbers: dict[str, Any] = {"flat": whole}
    for mode in ("top-down", "bottom-up"):  # the last one stays
        begun = time.perf_counter()
        built = engine.tree.build(mode=mode, llm=False)
        seconds = time.perf_counter() - begun
        walk = ask(engine, dataset.queries, tree=Walk())
        share = walk.mean(dataset.qrels, "recall@100")
        numbers[mode] = {"recall": share, "most": max(walk.scored)}
        rows.append(
            (
                *(dataset.name, mode, built["nodes"], built["depth"], f"{seconds:.1f}"),
                *(f"{share:.4f}", f"{whole:.4f}", f"{share / whole:.1%}"),
                *(f"{np.mean(walk.scored):.0f}", max(walk.scored), p(walk.ms, 50)),
            )
        )
        say(f"{dataset.name} {mode}: {share:.4f} of {whole:.4f}")
    return rows, numbers


# ---------------------------------------------------------------------- reading


def reading(
    engine: Engine, dataset: datasets.Dataset, *, count: int, reads: int
) -> tuple[list[tuple[Any, ...]], dict[str, float]]:
    some = _sample(dataset.queries, count)
    judged = {q.id: dataset.qrels[q.id] for q in some}
    ways: dict[str, dict[str, Any]] = {
        "flat hybrid": {},
        "flat hybrid, 25 read": {"rerank": True},
        f"tree, {reads} read": {"tree": Walk(scorer="cross-encoder", reads=reads)},
        "tree by embeddings": {"tree": Walk()},
    }
    rows, means, single = [], {}, dict[str, list[float]]()
    for name, how in ways.items():
        found = ask(engine, some, limit=10, **how)
        scores = metrics.per_query(judged, found.run, measures=("ndcg@10",))["ndcg@10"]
        single[name] = [scores[q.id] for q in some]
        means[name] = metrics.mean(single[name])
        say(f"{dataset.name} {name}: {means[name]:.4f}")
    for name, values in single.items():
        against = [metrics.difference(values, single[other])[1] for other in list(ways)[:2]]
        rows.append((dataset.name, name, f"{means[name]:.4f}", *(f"{v:.3f}" for v in against)))
    return rows, means


def _sample(questions: Sequence[datasets.Question], count: int) -> list[datasets.Question]:
    chosen = np.random.default_rng(SEED).permutation(len(questions))[:count]
    return [questions[i] for i in sorted(chosen.tolist())]


# ---------------------------------------------------------------------- masks


def masks(
    engine: Engine, dataset: datasets.Dataset
) -> tuple[list[tuple[Any, ...]], dict[str, Any]]:
    names = [record.id for record in dataset.records or ()]
    keep = np.random.default_rng(SEED).random(len(names)) >= MASKED
    left = {name for name, kept in zip(names, keep.tolist(), strict=True) if kept}
    judged = {
        q: rest
        for q, of in dataset.qrels.items()
        if any((rest := {d: g for d, g in of.items() if d in left}).values())
    }
    questions = [q for q in dataset.queries if q.id in judged]
    only = Filter(ids=sorted(left))
    whole = ask(engine, questions, limit=500, tree=Walk())
    whole.run = {q: [d for d in found if d in left][:DEEP] for q, found in whole.run.items()}
    ways = {
        "walk, nothing masked": whole,
        "walk, 30 % masked": ask(engine, questions, tree=Walk(abort=False), filter=only),
        "default: called off": ask(engine, questions, tree=Walk(), filter=only),
    }
    rows, numbers = [], {}
    for name, asked in ways.items():
        figures = {m: asked.mean(judged, m) for m in ("recall@100", "ndcg@10")}
        numbers[name] = figures
        rows.append(
            (
                *(dataset.name, name, *(f"{value:.4f}" for value in figures.values())),
                *(f"{np.mean(asked.scored):.0f}", f"{asked.fallbacks / len(questions):.0%}"),
            )
        )
        say(f"{dataset.name} {name}: {figures}")
    return rows, numbers


# ---------------------------------------------------------------------- growth


def growth(sizes: Sequence[int], data: Path, work: Path, queries: int) -> list[dict[str, Any]]:
    corpus = corpora.load(data)
    return [_grown(size, corpus, work / f"grown-{size}", queries) for size in sizes]


def _grown(size: int, corpus: corpora.Corpus, folder: Path, queries: int) -> dict[str, Any]:
    with clew.open(folder, **PATIENT) as engine:
        vectors = []
        for first in range(0, size, corpora.BLOCK):
            made, rows = corpora.records(corpus, first, first + corpora.BLOCK)
            some = min(corpora.BLOCK, size - first)
            engine.add(made[:some], vectors=rows[:some])
            vectors.append(rows[:some])
        exact = np.concatenate(vectors)
        begun = time.perf_counter()
        built = engine.tree.build(llm=False)
        seconds = time.perf_counter() - begun
        tree = engine.tree.current(engine.model)
        mask = engine.tree.mask(tree, Filter())
        scored, until, overlap, ms, one = [], [], [], [], []
        for text, vector in zip(corpus.queries, corpus.query_vectors[:queries], strict=False):
            best = [f"r{i:07d}" for i in np.argsort(-(exact @ vector), kind="stable")[:10].tolist()]
            begun = time.perf_counter()
            view = TreeView(tree, engine.store, mask, query=text, vector=vector)
            found = traverse(view, view, Walk())
            ms.append((time.perf_counter() - begun) * 1e3)
            scored.append(found.scored)
            until.append(_until(found, view, best[0]))
            top = {tree.ids[~key] for key, _ in found.leaves[:10]}
            overlap.append(len(top & set(best)) / len(best))
            one.append(_straight(view, vector))
        met = [count for count in until if count is not None]
        size_on_disk = sum(f.stat().st_size for f in (folder / FOLDER / "derived").glob("tree-*/*"))
    say(f"{size:,} records: {np.mean(scored):.0f} scored, built in {seconds:.0f} s")
    return {
        "records": size,
        "nodes": built["nodes"],
        "depth": built["depth"],
        "seconds": seconds,
        "mb": size_on_disk / 1e6,
        "one_path": float(np.mean(one)),
        "until": float(np.median(met)) if met else 0.0,
        "met": len(met) / len(until),
        "scored": float(np.mean(scored)),
        "recall@10": float(np.mean(overlap)),
        "ms": p(ms, 50),
    }


def _until(found: Traversal, view: TreeView, wanted: str) -> int | None:
    """Scorings until the walk has met this record."""
    seen: set[int] = set()
    for step in found.steps:
        seen.update(step.keys)
        if any(key < 0 and view.tree.ids[~key] == wanted for key in step.children):
            return len(seen)
    return None


def _straight(view: TreeView, vector: Vector) -> int:
    """Scorings of the shortest way from the root to a leaf: one node of each level."""
    node, count = 0, 0
    while True:
        children = view.children(node)
        count += len(children)
        near = view.prior(children)
        best = children[int(np.argmax(near))]
        if best < 0:
            return count
        node = best


# ---------------------------------------------------------------------- tables


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--stores", type=Path, help="folder with ready stores, by the sets' names")
    parser.add_argument("--queries", type=int, default=150, help="sample for reading (per set)")
    parser.add_argument("--reads", type=int, default=200, help="texts a walk may read")
    parser.add_argument("--records", type=int, nargs="*", default=[1_000, 10_000, 100_000])
    parser.add_argument("--sets", nargs="*", default=list(SETS))
    parser.add_argument("--plot", type=Path, help="also draw the growth, to this PNG")
    arguments = parser.parse_args()
    metrics.require("ir_measures", "scipy.stats")
    figures: list[tuple[Any, ...]] = []
    rows: dict[str, list[tuple[Any, ...]]] = {"recall": [], "reading": [], "masks": []}
    numbers: dict[str, Any] = {}
    with TemporaryDirectory(dir=arguments.work, ignore_cleanup_errors=True) as work:
        for name in arguments.sets:
            dataset = datasets.read(arguments.data / name)
            dataset = replace(
                dataset, queries=[q for q in dataset.queries if q.id in dataset.qrels]
            )
            with copied(dataset, arguments.stores, Path(work)) as engine:
                numbers[name] = _of_set(engine, dataset, arguments, rows, figures)
        grown = growth(arguments.records, arguments.data, Path(work), 200)
    numbers["growth"] = grown
    figures += _growth_figures(grown)
    tables = [
        Table("Figures", ("figure", "measured", "wanted", "holds"), figures),
        Table(
            "Walked by embeddings",
            (
                *("set", "mode", "nodes", "levels", "built in s", "recall@100", "flat", "share"),
                *("scored, mean", "most", "p50 ms"),
            ),
            rows["recall"],
        ),
        Table(
            "Read by a cross-encoder, nDCG@10",
            ("set", "what", "nDCG@10", "p against flat", "p against flat, read"),
            rows["reading"],
            f"{arguments.queries} queries per set, chosen at random. p is of a paired "
            "randomisation test, not corrected.",
        ),
        Table(
            "30 % of the records filtered out at random",
            ("set", "what", "recall@100", "nDCG@10", "scored, mean", "called off"),
            rows["masks"],
        ),
        Table(
            "Growth",
            (
                *("records", "nodes", "levels", "built in s", "MB", "one path", "until the first"),
                *("met it", "scored, mean", "recall@10", "p50 ms"),
            ),
            [
                (
                    *(
                        g["records"],
                        g["nodes"],
                        g["depth"],
                        f"{g['seconds']:.1f}",
                        f"{g['mb']:.1f}",
                    ),
                    *(f"{g['one_path']:.0f}", f"{g['until']:.0f}", f"{g['met']:.0%}"),
                    *(f"{g['scored']:.0f}", f"{g['recall@10']:.3f}", g["ms"]),
                )
                for g in grown
            ],
            "One path: scorings of one way down from the root. Until the first: of the walk, "
            "until it met what exact search has first, the median of the queries where it did.",
        ),
    ]
    if arguments.plot and grown:
        draw({"kind": "tree", "growth": grown}, arguments.plot)
    publish("The tree", __doc__, tables, numbers, arguments)


def _of_set(
    engine: Engine,
    dataset: datasets.Dataset,
    arguments: Any,
    rows: dict[str, list[tuple[Any, ...]]],
    figures: list[tuple[Any, ...]],
) -> dict[str, Any]:
    name = dataset.name
    found, recalls = recall(engine, dataset)
    rows["recall"] += found
    for mode in ("bottom-up", "top-down"):
        share = recalls[mode]["recall"] / recalls["flat"]
        text = f"{name}, {mode}: recall@100 of the flat leg's"
        figures.append(figure(text, f"{share:.1%}", "≥ 90 %", share >= 0.9))
        most = recalls[mode]["most"]
        figures.append(figure(f"{name}, {mode}: most scorings", f"{most}", "≤ 500", most <= 500))
    found, means = reading(engine, dataset, count=arguments.queries, reads=arguments.reads)
    rows["reading"] += found
    flat, read, tree, *_ = means.values()
    for what, other in (("the flat hybrid", flat), ("the flat hybrid, read as often", read)):
        text = f"{name}: nDCG@10 of the tree, read, against {what}"
        figures.append(figure(text, f"{tree - other:+.4f}", "≥ 0", tree >= other))
    found, masked = masks(engine, dataset)
    rows["masks"] += found
    before, after, _ = masked.values()
    for measure in ("recall@100", "ndcg@10"):
        drop = 1 - after[measure] / before[measure]
        text = f"{name}: drop of {measure} with 30 % masked"
        figures.append(figure(text, f"{drop:+.1%}", "< 5 %", drop < 0.05))
    return {"recall": recalls, "reading": means, "masks": masked}


def _growth_figures(grown: Sequence[Mapping[str, Any]]) -> list[tuple[Any, ...]]:
    if len(grown) < 2:
        return []
    first, last = grown[0], grown[-1]
    logs = np.log(last["records"]) / np.log(first["records"])
    rows = []
    for name, key in (("one path", "one_path"), ("until the first", "until"), ("all", "scored")):
        times = last[key] / first[key]
        text = f"scorings ({name}) from {first['records']:,} to {last['records']:,} records"
        wanted = f"like the logarithm, which grows × {logs:.2f}; records × "
        wanted += f"{last['records'] / first['records']:,.0f}"
        rows.append(figure(text, f"× {times:.2f}", wanted, times <= 2 * logs))
    return rows


if __name__ == "__main__":
    main()
