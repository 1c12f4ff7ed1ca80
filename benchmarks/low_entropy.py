"""Low entropy: what it costs to leave the vectors out for short queries.

    python benchmarks/low_entropy.py --out docs/benchmarks/low_entropy.md

Athena's rule calls a query of fewer than five words low in entropy, unless it has one of
"protocol", "session", "case study" or "cs-" in it, and spares itself the vectors then. Of each
public set only the queries that the rule takes are asked, once with `low_entropy = "keep"` and once
with "skip", in the default profile and in athena's. nDCG@10 and recall@10 are ir-measures'; p is of
a paired randomisation test. The time is that of the whole search in a process that has searched
before and never for this query, so that keeping the vectors includes embedding it.

In athena's profile every collection is a list of vectors of its own. The sets have no such folders,
so those lists are empty here; asking them takes time all the same.

--stores names a folder with a ready store for each set, by the set's name; without it they are made
(half an hour, kept in the user's cache folder as those of `clew eval`).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from answerless import PATIENT, SHOWN, opened
from clew import config as settings
from clew.engine import Engine
from clew.eval import datasets, metrics
from clew.filter import Filter
from clew.search.plan import is_low_entropy
from quality import SETS

from report import Table, options, p, publish, say

MEASURES = ("ndcg@10", "recall@10")
WAYS = ("keep", "skip")
WARM_UP = ("warm up", "read what is on disk once")
FEW = 10
"""Sets with fewer such queries are counted, and not reported on their own."""


SO = {
    "athena": "So that profile keeps the vectors. Where the model knows the language, skipping "
    "them costs 0.02 (k8s_docs) to 0.06 (cosqa); the other two sets are too small to tell. Where "
    "it does not, they have next to no weight, and skipping them saves time at no cost."
}
"""What follows from a table."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One set's short queries in one profile: values query by query, by way."""

    queries: int
    scores: dict[str, dict[str, list[float]]]
    ms: dict[str, list[float]]

    def mean(self, way: str, measure: str) -> float:
        return metrics.mean(self.scores[way][measure])


def short(dataset: datasets.Dataset) -> list[datasets.Question]:
    return [question for question in dataset.queries if is_low_entropy(question.text)]


def measure(engine: Engine, dataset: datasets.Dataset, profile: str) -> Measured:
    questions = short(dataset)
    qrels = {question.id: dataset.qrels[question.id] for question in questions}
    engines = {way: _as(engine, profile=profile, low_entropy=way) for way in WAYS}
    found: dict[str, dict[str, list[str]]] = {way: {} for way in WAYS}
    ms: dict[str, list[float]] = {way: [] for way in WAYS}
    for asking in engines.values():
        for text in WARM_UP:
            asking.search(text)
    for question in questions:
        within = Filter(collection=question.scope) if question.scope is not None else None
        for way, asking in engines.items():  # in turns, so that a busy minute is both ways'
            begun = time.perf_counter()
            result = asking.search(
                question.text, limit=SHOWN, group_by="record", filter=within, syntax=False
            )
            ms[way].append((time.perf_counter() - begun) * 1e3)
            found[way][question.id] = [hit.id for hit in result]
    scores = {
        way: {
            name: [of[question.id] for question in questions]
            for name, of in metrics.per_query(qrels, found[way], measures=MEASURES).items()
        }
        for way in WAYS
    }
    say(f"{dataset.name}, {profile}: {len(questions):,} short queries")
    return Measured(len(questions), scores, ms)


def _as(engine: Engine, **changed: Any) -> Engine:
    """The same store and model with other settings, and no query in memory."""
    config = settings.load(engine.root, {**PATIENT, **changed})
    return Engine(engine.store, config=config, root=engine.root, embedder=engine.embedder)


def table(profile: str, sets: dict[str, Measured]) -> Table:
    rows: list[tuple[Any, ...]] = []
    for name, of in sets.items():
        gap, chance = metrics.difference(of.scores["skip"]["ndcg@10"], of.scores["keep"]["ndcg@10"])
        cells = [f"{of.mean(way, measure):.4f}" for measure in MEASURES for way in WAYS]
        times = [p(of.ms[way], 50) for way in WAYS]
        spent = (f"{times[0]:.1f}", f"{times[1]:.1f}")
        rows.append((name, of.queries, *cells, f"{gap:+.4f} (p = {chance:.4f})", *spent))
    columns = (
        *("set", "short queries"),
        *(f"{measure} {way}" for measure in ("nDCG@10", "recall@10") for way in WAYS),
        *("nDCG@10 of skipping", "ms keep", "ms skip"),
    )
    note = f"Milliseconds are medians. {SO.get(profile, '')}"
    return Table(f"Profile {profile}", columns, rows, note.strip())


def counts(rows: Sequence[tuple[str, int, int]]) -> Table:
    shown = [(name, total, few, f"{few / total:.0%}") for name, total, few in rows]
    note = (
        f"Sets with fewer than {FEW} are not reported on. The rule counts words by the spaces "
        "between them: nearly every Chinese or Thai query is one of fewer than five."
    )
    columns = ("set", "queries", "low in entropy", "share")
    return Table("What the rule takes", columns, shown, note)


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--stores", type=Path, help="folder with a ready store for each set")
    arguments = parser.parse_args()
    metrics.require("ir_measures", "scipy.stats")
    taken: list[tuple[str, int, int]] = []
    profiles: dict[str, dict[str, Measured]] = {"default": {}, "athena": {}}
    for name in SETS:
        dataset = datasets.read(arguments.data / name)
        taken.append((name, len(dataset.queries), len(short(dataset))))
        if taken[-1][2] < FEW:
            continue
        with opened(dataset, arguments.stores) as engine:
            for profile, sets in profiles.items():
                sets[name] = measure(engine, dataset, profile)
    tables = [counts(taken), *(table(profile, sets) for profile, sets in profiles.items())]
    numbers = {
        profile: {
            name: {way: {m: of.mean(way, m) for m in MEASURES} for way in WAYS}
            for name, of in sets.items()
        }
        for profile, sets in profiles.items()
    }
    publish("Low entropy", __doc__, tables, numbers, arguments)


if __name__ == "__main__":
    main()
