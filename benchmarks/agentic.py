"""Agentic search: what taking a query apart gains and costs, and on which scale to compare scores.

    python benchmarks/agentic.py --out docs/benchmarks/agentic.md

Pairs: two queries of a set drawn at random (seeded) and joined by "and"; what is relevant to either
is relevant to both. Needless: the set's own queries that the rules take apart although each asks
one thing. `one search` is a plain search for the whole. The others search for the parts by rules as
well, and differ in how the scores of different searches are made comparable before the best of each
record counts (a tenth more for a record that several found): as they are, in parts of each list's
best, each list between 0 and 1, or by rank alone. nDCG@10 (ir-measures), ten hits from each search,
no validation. `both answered` is the share of pairs with something relevant to either query among
the ten.

The first run makes the indexes (kept in the user's cache folder as those of `clew eval`); --stores
names a folder with a ready store for each set, by the set's name.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import clew
from clew.eval import datasets, harness, metrics
from clew.eval.metrics import HEADLINE
from clew.ranking.fusion import min_max
from clew.search.agentic import SEVERAL
from clew.search.decompose import decompose

from report import Table, options, publish, say

SETS = ("nq_utd", "cranfield", "scifact")
PAIRS = 300
SEED = 5
SHOWN = 10
K = 60

Scale = Callable[[Sequence[float]], Sequence[float]]
SCALES: dict[str, Scale] = {
    "as they are": lambda scores: scores,
    "parts of the best": lambda scores: [score / (max(scores) or 1.0) for score in scores],
    "between 0 and 1": min_max,
    "by rank": lambda scores: [1.0 / (K + rank) for rank in range(1, len(scores) + 1)],
}


@dataclass(frozen=True, slots=True)
class Case:
    """A query, and what is relevant to each thing that it asks."""

    text: str
    relevant: tuple[Mapping[str, int], ...]


def pairs(dataset: datasets.Dataset) -> list[Case]:
    draw = random.Random(SEED)
    cases = []
    for _ in range(PAIRS):
        both = draw.sample(list(dataset.queries), 2)
        text = " and ".join(query.text.strip().rstrip("?. ") for query in both)
        cases.append(Case(text, tuple(dataset.qrels[query.id] for query in both)))
    return cases


def needless(dataset: datasets.Dataset) -> list[Case]:
    return [
        Case(query.text, (dataset.qrels[query.id],))
        for query in dataset.queries
        if len(decompose(query.text, syntax=False)) > 1
    ]


def ranked(engine: clew.Engine, case: Case) -> dict[str, list[str]]:
    """The first ten, by how they were made one list."""
    searches = [
        engine.search(text, limit=SHOWN, syntax=False, group_by="record")
        for text in decompose(case.text, syntax=False)
    ]
    found = {"one search": [hit.id for hit in searches[0]]}
    for way, scale in SCALES.items():
        scores: dict[str, list[float]] = defaultdict(list)
        for search in searches:
            for hit, score in zip(search, scale([hit.score for hit in search]), strict=True):
                scores[hit.id].append(score)
        best = {name: max(of) * (SEVERAL if len(of) > 1 else 1) for name, of in scores.items()}
        found[way] = sorted(best, key=lambda name: (-best[name], name))[:SHOWN]
    own = clew.agentic_search(case.text, SHOWN, validate=False, engine=engine, syntax=False)
    if [hit["id"] for hit in own["results"]] != found["as they are"]:
        raise SystemExit(f"agentic_search ranks otherwise: {case.text!r}")
    return found


def measure(engine: clew.Engine, cases: Sequence[Case]) -> dict[str, dict[str, float]]:
    qrels = {
        str(i): {
            name: max(of.get(name, 0) for of in case.relevant)
            for of in case.relevant
            for name in of
        }
        for i, case in enumerate(cases)
    }
    lists: dict[str, dict[str, list[str]]] = defaultdict(dict)
    for i, case in enumerate(cases):
        for way, ids in ranked(engine, case).items():
            lists[way][str(i)] = ids
    figures = {}
    for way, of in lists.items():
        scores = metrics.per_query(qrels, of, measures=[HEADLINE])[HEADLINE]
        answered = [
            all(any(relevant.get(name, 0) > 0 for name in of[str(i)]) for relevant in case.relevant)
            for i, case in enumerate(cases)
        ]
        figures[way] = {
            "ndcg": sum(scores.values()) / len(cases),
            "answered": sum(answered) / len(cases),
        }
    return figures


def opened(dataset: datasets.Dataset, stores: Path | None) -> clew.Engine:
    patient = {"deadline": 3600.0}
    if stores is not None:
        return clew.open(stores / dataset.name, create=False, **patient)
    engine, no_vectors = harness.open_indexed(dataset, overrides=patient)
    if no_vectors:
        raise SystemExit(no_vectors)
    return engine


def table(title: str, figures: Mapping[str, Any], counts: Mapping[str, int], figure: str) -> Table:
    ways = list(next(iter(figures.values())))
    rows = [(way, *(f"{of[way][figure]:.4f}" for of in figures.values())) for way in ways]
    asked = ", ".join(f"{name} {count}" for name, count in counts.items())
    return Table(title, ("scores", *figures), rows, f"Queries: {asked}.")


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--stores", type=Path, help="folder with a ready store for each set")
    arguments = parser.parse_args()
    metrics.require("ir_measures")
    joined: dict[str, Any] = {}
    apart: dict[str, Any] = {}
    counts: dict[str, int] = {}
    for name in SETS:
        dataset = datasets.read(arguments.data / name, split="test")
        with opened(dataset, arguments.stores) as engine:
            joined[name] = measure(engine, pairs(dataset))
            single = needless(dataset)
            apart[name], counts[name] = measure(engine, single), len(single)
        say(f"{name}: {PAIRS} pairs, {len(single)} taken apart needlessly")
    of_pairs = dict.fromkeys(SETS, PAIRS)
    tables = [
        table("Pairs: nDCG@10", joined, of_pairs, "ndcg"),
        table("Pairs: both answered", joined, of_pairs, "answered"),
        table("Needless: nDCG@10", apart, counts, "ndcg"),
    ]
    publish("Agentic search", __doc__, tables, {"pairs": joined, "needless": apart}, arguments)


if __name__ == "__main__":
    main()
