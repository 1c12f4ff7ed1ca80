"""Ask Clew and the floor the same queries: recall, times, and where the time goes.

engine.py uses these functions; as a command this file does the same on one small size:

    python benchmarks/queries.py --records 50000
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import numpy.typing as npt

import clew
from floor import Floor, exact, query_tokens, recall

import corpus as corpora
from report import Table, options, p, publish

__all__ = ["FILTERS", "Timing", "bereft", "filtered", "interleaved", "recall_under"]

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


@dataclass(slots=True)
class Timing:
    """Milliseconds of each query, by who answered it."""

    wall: dict[str, list[float]] = field(default_factory=dict)
    cpu: dict[str, list[float]] = field(default_factory=dict)
    """Of all threads: says more than the wall when others use the machine as well."""
    stages: dict[str, list[float]] = field(default_factory=dict)
    """Where Clew's time went, by its own trace."""

    def note(self, what: str, wall: float, cpu: float) -> None:
        self.wall.setdefault(what, []).append(wall * 1e3)
        self.cpu.setdefault(what, []).append(cpu * 1e3)

    def rows(self) -> list[tuple[str, float, float, float]]:
        """p50, p95 and CPU p50 of each."""
        return [
            (what, p(ms, 50), p(ms, 95), p(self.cpu[what], 50)) for what, ms in self.wall.items()
        ]


def interleaved(engine: clew.Engine, floor: Floor, warm: Queries, timed: Queries) -> Timing:
    """Both answer each query, in turns first: what else the machine does hits both alike."""
    timing = Timing()

    def ask_clew(text: str, vector: Floats, tokens: list[str]) -> None:
        cpu, begun = time.process_time(), time.perf_counter()
        result = engine.search(text, vector=vector)
        timing.note("Clew, hybrid", time.perf_counter() - begun, time.process_time() - cpu)
        if result.degraded or result.cache:
            raise SystemExit(f"not a fair answer: {result.degraded or result.cache}")
        for stage, ms in result.trace["stages_ms"].items():
            timing.stages.setdefault(stage, []).append(ms)
        for source, about in result.trace["sources"].items():
            timing.stages.setdefault(f"source {source}", []).append(about["ms"])

    def ask_floor(text: str, vector: Floats, tokens: list[str]) -> None:
        cpu, begun = time.process_time(), time.perf_counter()
        floor.keyword(tokens)
        cpu_between, between = time.process_time(), time.perf_counter()
        floor.nearest(vector)
        end, cpu_end = time.perf_counter(), time.process_time()
        timing.note("floor", end - begun, cpu_end - cpu)
        timing.note("floor, Tantivy", between - begun, cpu_between - cpu)
        timing.note("floor, FAISS", end - between, cpu_end - cpu_between)

    both: tuple[Callable[..., None], ...] = (ask_clew, ask_floor)
    for queries in (warm, timed):
        timing = Timing()
        for i, (text, vector) in enumerate(zip(*queries, strict=True)):
            tokens = query_tokens(text)
            for ask in both if i % 2 else reversed(both):
                ask(text, vector, tokens)
    return timing


def filtered(engine: clew.Engine, warm: Queries, timed: Queries, name: str, timing: Timing) -> None:
    """Hybrid under a filter that keeps this share, noted as one more row."""
    for queries in (warm, timed):
        what = f"Clew, filter {name}"
        timing.wall.pop(what, None), timing.cpu.pop(what, None)
        for i, (text, vector) in enumerate(zip(*queries, strict=True)):
            wanted = _filter(name, i)
            cpu, begun = time.process_time(), time.perf_counter()
            engine.search(text, vector=vector, filter=wanted)
            timing.note(what, time.perf_counter() - begun, time.process_time() - cpu)


def bereft(engine: clew.Engine, queries: Queries, timing: Timing) -> None:
    """Hybrid after one record was deleted, as it is in most stores. Half the queries warm up."""
    engine.remove("r0000000")
    half = len(queries[0]) // 2
    for i, (text, vector) in enumerate(zip(*queries, strict=True)):
        cpu, begun = time.process_time(), time.perf_counter()
        engine.search(text, vector=vector)
        if i >= half:
            spent = time.perf_counter() - begun, time.process_time() - cpu
            timing.note("Clew, a record deleted", *spent)


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
    with (
        TemporaryDirectory(dir=arguments.work, ignore_cleanup_errors=True) as work,
        clew.open(Path(work), cache=False) as engine,
    ):
        engine.add(made, vectors=vectors)
        floor = Floor.build(Path(work) / "tantivy", (r.content for r in made), vectors)
        measured = recall_under(engine, vectors, timed, "none")["recall"]
        floor.tune(timed[1], exact(timed[1], vectors), target=measured)
        timing = interleaved(engine, floor, warm, timed)
    rows: list[tuple[object, ...]] = [*timing.rows()]
    rows += [(f"Clew, {stage}", p(ms, 50), p(ms, 95), "") for stage, ms in timing.stages.items()]
    note = f"Recall@10: Clew {measured:.3f}, FAISS {floor.recall:.3f} with {floor.probes} probes."
    table = Table(
        f"{arguments.records:,} records", ("what", "p50 ms", "p95 ms", "CPU p50 ms"), rows, note
    )
    publish("Queries", __doc__, [table], {"ms": timing.wall, "recall": measured}, arguments)


if __name__ == "__main__":
    main()
