"""Ask Clew and the floor the same queries: recall, times, and where the time goes.

engine.py uses these functions; as a command this file does the same on one small size:

    python benchmarks/queries.py --records 50000
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import numpy.typing as npt

import clew
from floor import Floor, exact, query_tokens, recall

import corpus as corpora
from report import Table, options, p, publish

__all__ = ["FILTERS", "filtered", "interleaved", "recall_under", "stages_of"]

FILTERS = {"none": ("", 1), "1 %": ("bucket", 100), "0.01 %": ("rare", 10_000)}
"""The share of records a filter keeps: the metadata it looks at, and how many values that has."""
FILTER_VALUES = 16
"""Different filters in use at once."""

Floats = npt.NDArray[np.float32]
Queries = tuple[list[str], Floats]
"""Texts, and their vectors."""


def _filter(name: str, i: int) -> clew.Filter:
    key, values = FILTERS[name]
    return clew.Filter(metadata={key: _value(values, i)}) if key else clew.Filter()


def _value(values: int, i: int) -> int:
    return (i % FILTER_VALUES) * (values // FILTER_VALUES)


def recall_under(
    engine: clew.Engine, vectors: Floats, queries: Queries, name: str
) -> dict[str, float]:
    _, values = FILTERS[name]
    """The vector leg's recall@10 against exact search among what the filter keeps."""
    found: list[list[int]] = []
    truth: list[list[int]] = [[]] * len(queries[0])
    for i, (text, vector) in enumerate(zip(*queries, strict=True)):
        hits = engine.search(text, vector=vector, mode="vector", filter=_filter(name, i))
        found.append([int(hit.id[1:]) for hit in hits])
    for value in range(min(values, FILTER_VALUES)):  # the queries that share a filter, at once
        start, step = _value(values, value), 1 if values == 1 else FILTER_VALUES
        rows = np.arange(start, len(vectors), values)
        best = exact(queries[1][value::step], vectors[start::values])
        truth[value::step] = rows[best].tolist()
    return {"recall": recall(found, truth), "queries": len(found)}


def interleaved(
    engine: clew.Engine,
    floor: Floor,
    warm: Queries,
    timed: Queries,
) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {
        "Clew, hybrid": [],
        "floor": [],
        "floor, Tantivy": [],
        "floor, FAISS": [],
    }

    def ask_clew(text: str, vector: Floats, tokens: list[str]) -> None:
        begun = time.perf_counter()
        result = engine.search(text, vector=vector)
        times["Clew, hybrid"].append((time.perf_counter() - begun) * 1e3)
        if result.degraded or result.cache:
            raise SystemExit(f"not a fair answer: {result.degraded or result.cache}")

    def ask_floor(text: str, vector: Floats, tokens: list[str]) -> None:
        begun = time.perf_counter()
        floor.keyword(tokens)
        between = time.perf_counter()
        floor.nearest(vector)
        end = time.perf_counter()
        times["floor"].append((end - begun) * 1e3)
        times["floor, Tantivy"].append((between - begun) * 1e3)
        times["floor, FAISS"].append((end - between) * 1e3)

    both: tuple[Callable[..., None], ...] = (ask_clew, ask_floor)
    for queries in (warm, timed):
        for ms in times.values():
            ms.clear()
        for i, (text, vector) in enumerate(zip(*queries, strict=True)):
            tokens = query_tokens(text)
            for ask in both if i % 2 else reversed(both):
                ask(text, vector, tokens)
    return times


def filtered(
    engine: clew.Engine,
    warm: Queries,
    timed: Queries,
    name: str,
) -> list[float]:
    for queries in (warm, timed):
        times = []
        for i, (text, vector) in enumerate(zip(*queries, strict=True)):
            wanted = _filter(name, i)
            begun = time.perf_counter()
            engine.search(text, vector=vector, filter=wanted)
            times.append((time.perf_counter() - begun) * 1e3)
    return times


def stages_of(engine: clew.Engine, queries: Queries) -> dict[str, float]:
    """Where a search spends its time, by its own trace."""
    spent: dict[str, list[float]] = {}
    for text, vector in zip(*queries, strict=True):
        trace = engine.search(text, vector=vector).trace
        for stage, ms in trace["stages_ms"].items():
            spent.setdefault(stage, []).append(ms)
        for source, about in trace["sources"].items():
            spent.setdefault(f"source {source}", []).append(about["ms"])
    return {stage: round(p(ms, 50), 3) for stage, ms in spent.items()}


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--records", type=int, default=50_000, help="how many (default 50,000)")
    parser.add_argument("--queries", type=int, default=400, help="how many (200 to 600)")
    arguments = parser.parse_args()
    corpus = corpora.load(arguments.data)
    made, vectors = corpora.records(corpus, 0, arguments.records)
    ask = arguments.queries
    warm = (corpus.queries[:ask], corpus.query_vectors[:ask])
    timed = (corpus.queries[ask : 2 * ask], corpus.query_vectors[ask : 2 * ask])
    with TemporaryDirectory(dir=arguments.work) as work, clew.open(Path(work)) as engine:
        engine.add(made, vectors=vectors)
        floor = Floor.build(Path(work) / "tantivy", (r.content for r in made), vectors)
        measured = recall_under(engine, vectors, timed, "none")["recall"]
        floor.tune(timed[1], exact(timed[1], vectors), target=measured)
        times = interleaved(engine, floor, warm, timed)
        stages = stages_of(engine, warm)
    rows = [(name, p(ms, 50), p(ms, 95)) for name, ms in times.items()]
    rows += [(f"Clew, {stage}", ms, "") for stage, ms in stages.items()]
    note = f"Recall@10: Clew {measured:.3f}, FAISS {floor.recall:.3f} with {floor.probes} probes."
    table = Table(f"{arguments.records:,} records", ("what", "p50 ms", "p95 ms"), rows, note)
    publish("Queries", __doc__, [table], {"ms": times, "recall": measured}, arguments)


if __name__ == "__main__":
    main()
