r"""Reranking: how much of the cross-encoder's word to take.

    python benchmarks/fit_rerank.py --queries 200 --out docs/benchmarks/rerank.md

The training sets of benchmarks/fit_fusion.py, with no query that benchmarks/quality.py reports on.
Each is asked once, as a search whose first 25 passages are read again, with time to read them all.
What the reranker said is then blended with the fused scores in several parts, by the function that
every search uses: a blend of 0 is the order without the reranker, 1 is its order alone. One cell of
the table is also what

    clew eval SET --split SPLIT --limit-queries 200 --modes rerank \
      --set rerank_blend=B --set rerank_seconds=60

prints. `from the others` gives each set the blend that is best on average over the other six. The
setting `rerank_blend` is the blend with the best mean.

Indexes are made and found as in fit_fusion.py, --stores too. --queries N asks the first N of each
set, which is all of them for five of the seven; the reading takes a second or two for each.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

import clew
from clew.config import Config
from clew.eval import datasets, metrics
from clew.eval.metrics import HEADLINE
from clew.filter import Filter
from clew.ranking.fusion import Fused
from clew.ranking.rerank import HEAD, blended
from fit_fusion import SETS, opened

from report import Table, options, publish, say

BLENDS = (0.0, 0.1, 0.2, 0.3, 0.5, 1.0)
SHOWN = 10
ALL_DAY = 3600.0

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Seen:
    """One set, read again once."""

    name: str
    split: str
    gains: Floats
    """nDCG@10 of each query with each of the blends."""
    read: int
    """Passages, of all queries."""


def look(data: Path, name: str, split: str, stores: Path | None, limit: int | None) -> Seen:
    """Ask a set's queries and have the heads of their lists read."""
    dataset = datasets.read(data / name, split=split, limit=limit)
    ranked: dict[float, dict[str, list[str]]] = {blend: {} for blend in BLENDS}
    read = 0
    with opened(dataset, stores, rerank_seconds=ALL_DAY) as engine:
        for question in dataset.queries:
            head = ask(engine, question)
            read += len(head)
            fused, scores = [each for each, _ in head], [score for _, score in head]
            for blend in BLENDS:
                order = blended(fused, scores, blend=blend)[:SHOWN]
                ranked[blend][question.id] = [each.id for each in order]
    gains = [
        metrics.per_query(dataset.qrels, ranked[blend], measures=[HEADLINE])[HEADLINE]
        for blend in BLENDS
    ]
    say(f"{name}: {len(dataset.queries):,} queries, {read:,} passages read")
    table = [[of[q.id] for of in gains] for q in dataset.queries]
    return Seen(name, split, np.array(table), read)


def ask(engine: clew.Engine, question: datasets.Question) -> list[tuple[Fused, float]]:
    """The head of the fused list, in its order, with what the reranker said of each."""
    within = Filter(collection=question.scope) if question.scope is not None else None
    found = engine.search(
        question.text,
        limit=HEAD,
        filter=within,
        syntax=False,
        rerank=True,
        cache=False,
        group_by="record",
    )
    if found.degraded:
        raise SystemExit(f"{question.id}: not a fair answer: {found.degraded}")
    head = [
        (Fused(hit.id, hit.rrf_score, hit.source, {}), hit.signals["reranker"]["score"])
        for hit in found
    ]
    return sorted(head, key=lambda pair: (-pair[0].score, pair[0].id))


# ---------------------------------------------------------------------- figures


def quality(sets: list[Seen]) -> tuple[Table, dict[str, dict[str, float]]]:
    means = np.array([seen.gains.mean(0) for seen in sets])
    unseen = [float(means[i, _best(np.delete(means, i, axis=0))]) for i in range(len(sets))]
    ways = {f"{blend:g}": means[:, i].tolist() for i, blend in enumerate(BLENDS)}
    if len(sets) > 1:
        ways["from the others"] = unseen
    rows = [
        (way, *(f"{value:.4f}" for value in of), f"{np.mean(of):.4f}") for way, of in ways.items()
    ]
    counts = ", ".join(f"{s.name} {s.split} {len(s.gains)}" for s in sets)
    passages = sum(seen.read for seen in sets)
    note = (
        f"Queries: {counts}; {passages:,} passages read by {Config().reranker}. The best mean has "
        f"{BLENDS[_best(means)]:g}; `rerank_blend` is {Config().rerank_blend:g}."
    )
    names = [seen.name for seen in sets]
    numbers = {way: dict(zip(names, of, strict=True)) for way, of in ways.items()}
    return Table("nDCG@10 by blend", ("blend", *names, "mean"), rows, note), numbers


def _best(means: Floats) -> int:
    """The place of the blend that is best on average, every set counting the same."""
    return int(means.mean(0).argmax()) if len(means) else 0


def against(sets: list[Seen]) -> Table:
    rows = []
    for seen in sets:
        without = seen.gains[:, 0].tolist()
        found = [metrics.difference(of.tolist(), without) for of in seen.gains.T[1:]]
        corrected = metrics.holm([p for _, p in found])
        cells = [f"{gap:+.4f} (p = {p:.4f})" for (gap, _), p in zip(found, corrected, strict=True)]
        rows.append((seen.name, *cells))
    note = (
        "Difference in nDCG@10, with p of a paired randomisation test over the set's queries, "
        "corrected for the five comparisons of a set (Holm)."
    )
    columns = ("set", *(f"{blend:g}" for blend in BLENDS[1:]))
    return Table("Against no reranking", columns, rows, note)


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--stores", type=Path, help="folder with a ready store for each set")
    parser.add_argument("--queries", type=int, metavar="N", help="the first N of each set only")
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS), help="only these")
    arguments = parser.parse_args()
    metrics.require("ir_measures", "scipy.stats")
    sets = [
        look(arguments.data, name, SETS[name], arguments.stores, arguments.queries)
        for name in arguments.sets
    ]
    table, numbers = quality(sets)
    publish("Reranking", __doc__, [table, against(sets)], {"ndcg@10": numbers}, arguments)


if __name__ == "__main__":
    main()
