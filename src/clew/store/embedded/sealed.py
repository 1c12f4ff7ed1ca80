"""Sealed inverted lists (FAISS) over the first rows of a vector file, memory-mapped.

One bit a dimension (RaBitQ, Gao and Long, SIGMOD 2024) where there are enough of them: much smaller
and quicker than 8 bits. The exact rows are at hand to score the candidates again, so rough codes
cost only a few more candidates. What recall and time come to is in docs/benchmarks/engine.md.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from clew.protocols import Progress
from clew.types import Vector, Vectors

__all__ = ["Sealed", "build", "checksum"]

TARGET_RECALL = 0.99
"""Aimed at when the probe count is chosen, on a sample; 0.95 is what is promised."""
SAMPLE = 200
OVERSAMPLE = 6
"""Candidates taken per row wanted, to make up for rough scores."""
FEWEST = 64
"""Rows always wanted: with fewer, a rough score decides too much."""
ROUGH_FROM = 256
"""Dimensions from which one bit each is enough (its error falls with their root); below, 8 bits."""
RETRAIN = 3.0
"""Centroids are learned anew when the rows have grown by this factor; else the old ones serve."""
REMEASURE = 1.5
"""Recall is measured anew when they have grown by this factor: it takes thirty times as long as to
add to the lists, so lists that grow with every batch of a bulk load could not afford it."""


@dataclass(frozen=True, slots=True)
class Sealed:
    """Open inverted lists."""

    index: Any
    state: dict[str, Any]

    @property
    def name(self) -> str:
        return str(self.state["name"])

    @property
    def count(self) -> int:
        return int(self.state["count"])

    @property
    def about(self) -> dict[str, Any]:
        return {key: self.state[key] for key in ("lists", "probes", "recall")}

    @classmethod
    def open(cls, folder: Path, state: dict[str, Any]) -> Sealed:
        import faiss

        path = folder / state["name"]
        if path.stat().st_size != state["bytes"]:
            raise ValueError(f"{path} is not whole")
        try:
            index = faiss.read_index(str(path), faiss.IO_FLAG_MMAP | faiss.IO_FLAG_READ_ONLY)
        except RuntimeError as error:
            raise ValueError(str(error)) from error
        # FAISS would start up to 32 threads per search to read ahead, which takes longer than it.
        faiss.downcast_InvertedLists(index.invlists).prefetch_nthread = 0
        return cls(index, state)

    def candidates(
        self, query: Vector, inside: npt.NDArray[np.int64] | None, want: int
    ) -> npt.NDArray[np.int64]:
        """Positions likely to be among the best, in no order; only those `inside` when given."""
        import faiss

        parameters = faiss.SearchParametersIVF()
        probes = self.state["probes"]
        if inside is not None:
            bits = np.zeros(self.count, np.bool_)
            bits[inside] = True
            packed = np.packbits(bits, bitorder="little")
            parameters.sel = faiss.IDSelectorBitmap(packed)
            # what is left is spread over as many lists: probe for as many rows as without it
            probes = int(probes * self.count / max(1, len(inside)))
        parameters.nprobe = min(probes, self.state["lists"])
        _, places = self.index.search(
            query.reshape(1, -1),
            min(max(want, FEWEST) * OVERSAMPLE, self.count),
            params=parameters,
        )
        return np.sort(places[0][places[0] >= 0])


def build(
    folder: Path,
    rows: Vectors,
    *,
    dead: int,
    previous: Sealed | None,
    progress: Progress | None,
    stopped: Callable[[], bool],
) -> dict[str, Any]:
    """Write inverted lists over all rows to a new file; its state, with the measured recall.

    `stopped` is asked between steps: a process that wants to end does not wait for all of them.
    """
    import faiss

    count, dim = rows.shape
    rng = np.random.default_rng(count)
    lists = int(2 * np.sqrt(count))

    def tell(done: int, total: int) -> None:
        if stopped():
            raise InterruptedError("the store is being closed")
        if progress:
            progress("sealing vectors", done, total)

    tell(0, count)
    first = 0
    if previous is not None and count < RETRAIN * previous.state["trained_on"]:
        # Same centroids: what is sealed already is taken over as it is.
        index = faiss.read_index(str(folder / previous.name))
        first, trained_on, lists = previous.count, previous.state["trained_on"], index.nlist
    else:
        index = _empty(dim, lists)
        index.cp.niter, index.cp.max_points_per_centroid, index.cp.seed = 8, 64, 1
        sample = np.sort(rng.permutation(count)[: min(count, 64 * lists)])
        index.train(np.ascontiguousarray(rows[sample]))
        trained_on = count
    step = 50_000
    for i in range(first, count, step):
        index.add(np.ascontiguousarray(rows[i : i + step]))
        tell(min(i + step, count), count)

    measured_on = previous.state.get("measured_on", 0) if first and previous else 0
    if previous is not None and count < REMEASURE * measured_on:
        probes, recall = previous.state["probes"], previous.state["recall"]
    else:
        probes, recall = _measure(index, rows, rng, lists)
        measured_on = count
    if first and recall < TARGET_RECALL:
        # New rows unlike the old ones: centroids and code ranges learned from those do not serve.
        return build(folder, rows, dead=dead, previous=None, progress=progress, stopped=stopped)
    name = f"ivf-{uuid.uuid4().hex[:12]}.faiss"
    temporary = folder / f"{name}.{os.getpid()}.tmp"
    faiss.write_index(index, str(temporary))
    temporary.replace(folder / name)
    return {
        "name": name,
        "count": count,
        "dead": dead,
        "lists": lists,
        "probes": probes,
        "recall": recall,
        "trained_on": trained_on,
        "measured_on": measured_on,
        "bytes": (folder / name).stat().st_size,
        "sha256": checksum(folder / name),
    }


def _empty(dim: int, lists: int) -> Any:
    import faiss

    shape = (faiss.IndexFlatIP(dim), dim, lists)
    if dim >= ROUGH_FROM:
        index = faiss.IndexIVFRaBitQ(*shape, faiss.METRIC_INNER_PRODUCT)
        index.qb = 8  # the query's own bits
        return index
    eight = faiss.ScalarQuantizer.QT_8bit
    return faiss.IndexIVFScalarQuantizer(*shape, eight, faiss.METRIC_INNER_PRODUCT)


def _measure(index: Any, rows: Vectors, rng: Any, lists: int) -> tuple[int, float]:
    """The fewest probes that reach the target on a sample of the index's own rows, and the recall.

    A row is its own best match, which any index finds, so the sample is moved off its place.
    """
    import faiss

    size = min(SAMPLE, len(rows) // 2)
    places, others = rng.permutation(len(rows))[: 2 * size].reshape(2, -1)
    queries = rows[places] + 0.5 * rows[others]
    queries += rng.standard_normal(queries.shape).astype(np.float32) * (
        0.7 / np.sqrt(queries.shape[1])
    )
    queries /= np.maximum(np.linalg.norm(queries, axis=1, keepdims=True), 1e-9)
    truth = faiss.knn(queries, np.asarray(rows), 10, metric=faiss.METRIC_INNER_PRODUCT)[1]

    def reached(probes: int) -> float:
        parameters = faiss.SearchParametersIVF(nprobe=probes)
        _, found = index.search(queries, FEWEST * OVERSAMPLE, params=parameters)
        shared = [len(np.intersect1d(a, b)) for a, b in zip(found, truth, strict=True)]
        return float(np.mean(shared)) / 10

    low, high = 0, 1
    while (recall := reached(high)) < TARGET_RECALL and high < lists:
        low, high = high, min(lists, 2 * high)
    while high - low > max(1, high // 16):
        middle = (low + high) // 2
        if (there := reached(middle)) >= TARGET_RECALL:
            high, recall = middle, there
        else:
            low = middle
    return high, round(recall, 4)


def checksum(path: Path) -> str:
    import hashlib  # brings OpenSSL, which no search needs

    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
