"""Ask Clew and the floor the same queries: recall, times, and where the time goes."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

import clew
from floor import Floor, exact, query_tokens, recall

from report import p

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
        hits = engine.search(text, vector=vector, mode="vector", filter=_filter(name, i), floor=0.0)
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


def lean(floor: Floor, timed: Queries, timing: Timing) -> None:
    """The floor as it is tuned now, noted as one more row."""
    for text, vector in zip(*timed, strict=True):
        tokens = query_tokens(text)
        cpu, begun = time.process_time(), time.perf_counter()
        floor.keyword(tokens)
        floor.nearest(vector)
        what = f"floor, recall {floor.recall:.2f}"
        timing.note(what, time.perf_counter() - begun, time.process_time() - cpu)


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
