"""Bulk load: records with their vectors through `Engine.add`, timed batch by batch.

Each batch is made before the clock starts. `add` returns when the batch is durable and searchable:
rows written, keyword index caught up, vector rows appended, inverted lists built where most
rows are outside of them and else begun, beside the next batch. At the end `optimise` waits for them
and brings them up to date; its time counts. Stages
are told apart by the engine's own progress reports.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

import clew

import corpus as corpora
from report import Table, say

STAGES = ("adding", "keyword index", "vector index", "sealing vectors")
STEP = 100_000
"""Rates are shown per this many records."""


@dataclass(slots=True)
class Loading:
    """How long each batch took, by stage."""

    sizes: list[int] = field(default_factory=list)
    stages: list[dict[str, float]] = field(default_factory=list)
    cpu: float = 0.0
    """Seconds of all threads: says more than the wall when others use the machine as well."""

    def seconds(self, first: int = 0, last: int | None = None, *, seal: bool = True) -> float:
        return sum(
            seconds
            for spent in self.stages[first:last]
            for stage, seconds in spent.items()
            if seal or stage != STAGES[3]
        )

    def rate(self, *, seal: bool = True) -> float:
        return sum(self.sizes) / self.seconds(seal=seal)


def load(
    engine: clew.Engine, corpus: corpora.Corpus, vectors: npt.NDArray[np.float32], *, batch: int
) -> Loading:
    """Fill the engine with `len(vectors)` records, and `vectors` with theirs for later use."""
    loading = Loading()
    total = len(vectors)
    for first in range(0, total, batch):
        last = min(first + batch, total)
        made, rows = corpora.records(corpus, first, last)
        vectors[first:last] = rows
        watch, cpu = _Watch(), time.process_time()
        engine.add(made, vectors=rows, progress=watch)
        loading.cpu += time.process_time() - cpu
        loading.sizes.append(last - first)
        loading.stages.append(watch.stop())
        rate = (last - first) / loading.seconds(len(loading.sizes) - 1)
        say(f"  {last:,} of {total:,} loaded, {rate:,.0f} records/s in this batch")
    watch, cpu = _Watch(), time.process_time()
    engine.optimise(progress=watch)
    loading.cpu += time.process_time() - cpu
    for stage, seconds in watch.stop().items():
        # what it does before its first report is reading, to be counted with the sealing
        stage = STAGES[3] if stage == STAGES[0] else stage
        loading.stages[-1][stage] = loading.stages[-1].get(stage, 0.0) + seconds
    return loading


class _Watch:
    """Time by stage: what passes until the next report belongs to the stage reported last, since
    a stage's last report comes before its commit."""

    def __init__(self) -> None:
        self._spent: dict[str, float] = {}
        self._stage = STAGES[0]
        self._last = time.perf_counter()

    def __call__(self, stage: str, done: int, total: int) -> None:
        now = time.perf_counter()
        self._spent[self._stage] = self._spent.get(self._stage, 0.0) + now - self._last
        self._stage, self._last = stage, now

    def stop(self) -> dict[str, float]:
        self(self._stage, 0, 0)
        return self._spent


def table(loading: Loading) -> Table:
    """Rates and seconds per step, and in all."""
    rows = []
    first = done = 0
    for i, size in enumerate(loading.sizes, 1):
        done += size
        if done % STEP == 0 or i == len(loading.sizes):
            rows.append(_row(loading, f"{sum(loading.sizes[:first]):,} – {done:,}", first, i))
            first = i
    if len(rows) > 1:
        rows.append(_row(loading, "all", 0, len(loading.sizes)))
    columns = ("records", "records/s", "without sealing", *(f"{stage} s" for stage in STAGES))
    note = (
        f"Batches of {loading.sizes[0]:,}, each durable and searchable when `add` returns; "
        "`optimise` is in the last row. "
        f"{loading.cpu / done * 1e6:.0f} µs of CPU time a record, over all threads."
    )
    return Table(f"Bulk load of {done:,} records with vectors", columns, rows, note)


def _row(loading: Loading, name: str, first: int, last: int) -> tuple[str | float, ...]:
    count = sum(loading.sizes[first:last])
    spent = [
        round(sum(stages.get(stage, 0.0) for stages in loading.stages[first:last]), 2)
        for stage in STAGES
    ]
    whole = loading.seconds(first, last)
    return (name, count / whole, count / loading.seconds(first, last, seal=False), *spent)
