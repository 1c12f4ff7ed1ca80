"""Sealed inverted lists (FAISS) over the first rows of a vector index, memory-mapped.

Two bits a dimension (RaBitQ, Gao and Long, SIGMOD 2024) where there are enough of them: as quick as
one, and near enough that a hundred or two have to be scored again from the exact rows, wherever
these are. Three and four bits take twice as long and find as much (200,000 rows).

How many lists are looked at, and how many rows are scored again, is decided query by query: all
that could still hold one of the best, going by the rough score of the last row wanted among the
nearest few lists. How far rows lie from what centroids and codes say of them is measured when the
lists are built, with vectors made like questions. What recall and time come to is in
docs/benchmarks/engine.md and vector_recall.md.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from clew.index.unflushed import Numbers
from clew.protocols import Progress
from clew.storage.filters import Mask
from clew.storage.snapshot import State, checksum
from clew.types import Vector, Vectors
from clew.validate import unit

NEAR, ROUGH = 0.99, 0.97
"""The shares of the ten best whose list and whose code are within the measured margins. Fewer of
codes: the ten best lie well above the last row wanted, which the margin is taken from."""
SAMPLE = 400
FEWEST = 64
"""Rows always wanted: what the last one scores is what others are held against."""
FIRST, GROWTH = 64, 2
"""Lists looked at to know that score, and how many times as many before it is looked at again."""
FRUITFUL = 0.1
"""As long as further lists give more than this part of the rows wanted, more are looked at."""
MOST, FEW = 4, 4096
"""One row in so many is scored again at most, but for a few, which take no time: there may be any
number of copies of one."""
ROUGH_FROM = 256
"""Dimensions from which two bits each are enough (their error falls with the root); below, 8."""
BITS = 2
RETRAIN = 3.0
"""Centroids are learned anew when the rows have grown by this factor; else the old ones serve."""
REMEASURE = 2.0
"""Recall is measured anew when they have grown by more than this factor: it takes longer than to
add to the lists, so lists that grow with every batch of a bulk load could not afford it."""
ROUNDS, LEARNED_FROM = 4, 64
"""Rounds of k-means, and rows a centroid that it learns from. Eight rounds take twice as long and
give the same recall with as many lists looked at (100,000 rows: 0.9965, and 105 against 106)."""
AT_ONCE = 16_384
"""Rows whose scores for all questions are in memory together."""
MEASURED = ("closeness", "margin", "error", "probes", "recall")


class InvertedLists:
    """Open inverted lists."""

    def __init__(self, index: Any, state: State, centroids: Vectors):
        self.index, self.state, self.centroids = index, state, centroids

    @property
    def name(self) -> str:
        return str(self.state["name"])

    @property
    def count(self) -> int:
        return int(self.state["count"])

    @classmethod
    def open(cls, folder: Path, state: State) -> InvertedLists:
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
        return cls(index, state, index.quantizer.reconstruct_n(0, index.nlist))

    def candidates(
        self,
        query: Vector,
        want: int,
        *,
        inside: Numbers | None = None,
        alive: Mask | None = None,
        everywhere: bool = False,
    ) -> Numbers:
        """Positions that hold nearly all of the best `want`, in order of position; only of those
        `inside`, and `alive`, when given. `everywhere`: all lists are looked at."""
        import faiss

        query, want = np.ascontiguousarray(query, np.float32), max(want, FEWEST)
        near = dot(self.centroids, query)
        order = np.argsort(-near)
        selector, among, error = None, self.count, self.state["error"]
        if inside is not None:
            error *= 2  # codes are the rougher, the farther a list is: nothing near may be left
            bits = np.zeros(self.count, np.bool_)
            bits[inside] = True
            packed = np.packbits(bits, bitorder="little")
            selector = faiss.IDSelectorBitmap(packed)
            among = max(1, len(inside))

        at, rough = np.empty(0, np.int64), np.empty(0, np.float32)
        done, reach, above = 0, len(order), -np.inf
        upto = first = max(FIRST, 2 * want * len(order) // among)
        while done < reach:
            lists = order[done : min(upto, reach)]
            more, scores = _scan(self.index, query, lists, near[lists], above, selector)
            if alive is not None:
                more, scores = more[alive[more]], scores[alive[more]]
            at, rough = np.concatenate([at, more]), np.concatenate([rough, scores])
            done, upto = min(upto, reach), GROWTH * upto
            if len(at) > want:
                last, least = _bar(rough, want)
                above = min(last - error, least)
                if everywhere:
                    continue
                may = self.state["closeness"] * near > last - self.state["margin"]
                # Margins know nothing of a filter that leaves out what is near.
                reach = max(int(np.count_nonzero(may)), 0 if inside is None else 2 * first)
                if done > first and np.count_nonzero(scores >= last) > FRUITFUL * want:
                    reach = max(reach, upto)
                reach = min(reach, len(order))
        at, rough = at[rough >= above], rough[rough >= above]
        if len(at) > (most := max(2 * want, self.count // MOST, FEW)):
            at = at[np.argpartition(-rough, most)[:most]]
        return np.sort(at)


def _bar(rough: Vectors, want: int) -> tuple[float, float]:
    """The rough scores of the last one wanted and of the last of twice as many."""
    several = min(2 * want, len(rough))
    best = np.partition(rough, len(rough) - several)[-several:]
    return float(np.partition(best, several - want)[several - want]), float(best[0])


def _scan(
    index: Any, query: Vector, lists: Numbers, near: Vectors, above: float, selector: Any = None
) -> tuple[Numbers, Vectors]:
    """Positions in these lists whose rough score is above that, and the scores."""
    import faiss

    parameters = faiss.SearchParametersIVF(nprobe=len(lists), sel=selector)
    found = faiss.RangeSearchResult(1)
    # FAISS's own wrapper of this takes neither parameters nor a number of lists
    index.range_search_preassigned_c(
        1,
        faiss.swig_ptr(query),
        above,
        faiss.swig_ptr(lists),
        faiss.swig_ptr(near),
        found,
        False,
        parameters,
    )
    count = int(faiss.rev_swig_ptr(found.lims, 2)[1])
    at: Numbers = faiss.rev_swig_ptr(found.labels, count).copy()
    return at, faiss.rev_swig_ptr(found.distances, count).copy()


class VectorTable(Protocol):
    """Rows by position, wherever they are kept. One that is there no more is NaN."""

    shape: tuple[int, int]

    def __len__(self) -> int: ...

    def __getitem__(self, places: slice | Numbers) -> Vectors: ...


def build_lists(
    folder: Path,
    rows: VectorTable,
    *,
    dead: int,
    previous: InvertedLists | None,
    progress: Progress | None,
    stopped: Callable[[], bool],
) -> State:
    """Write inverted lists over all rows to a new file; its state, with the measured recall.

    `stopped` is asked between steps: a process that wants to end does not wait for all of them.
    """
    import faiss

    count, dim = rows.shape
    rng = np.random.default_rng(count)
    lists = int(3 * np.sqrt(count))

    def tell(done: int, total: int) -> None:
        if stopped():
            raise InterruptedError("the store is being closed")
        if progress:
            progress("sealing vectors", done, total)

    tell(0, count)
    first = 0
    if previous is not None and not (folder / previous.name).exists():
        previous = None  # taken away from under those who have it mapped
    if previous is not None and count < RETRAIN * previous.state["trained_on"]:
        # Same centroids: what is sealed already is taken over as it is.
        index = faiss.read_index(str(folder / previous.name))
        first, trained_on, lists = previous.count, previous.state["trained_on"], index.nlist
    else:
        index = _empty(dim, lists)
        index.cp.niter, index.cp.max_points_per_centroid = ROUNDS, LEARNED_FROM
        index.cp.seed = 1
        sample = np.sort(rng.permutation(count)[: min(count, LEARNED_FROM * lists)])
        index.train(np.nan_to_num(rows[sample]))
        trained_on = count
    step = 50_000
    for i in range(first, count, step):
        index.add(np.nan_to_num(rows[i : i + step]))
        tell(min(i + step, count), count)

    measured_on = previous.state["measured_on"] if first and previous else 0
    if previous is not None and count <= REMEASURE * measured_on:
        measured = {key: previous.state[key] for key in MEASURED}
    else:
        measured, measured_on = _measure(index, rows, rng), count
    old = previous.state if previous is not None else measured
    if first and any(measured[key] > 2 * old[key] + 0.01 for key in ("probes", "error")):
        # New rows unlike the old ones: centroids and code ranges learned from those do not serve.
        return build_lists(
            folder, rows, dead=dead, previous=None, progress=progress, stopped=stopped
        )
    name = f"ivf-{uuid.uuid4().hex[:12]}.faiss"
    temporary = folder / f"{name}.{os.getpid()}.tmp"
    try:
        faiss.write_index(index, str(temporary))
        temporary.replace(folder / name)
    except BaseException:
        with suppress(OSError):  # on a full disk each attempt would leave as much as it got
            temporary.unlink()
        raise
    return {
        "name": name,
        "count": count,
        "dead": dead,
        "lists": lists,
        **measured,
        "trained_on": trained_on,
        "measured_on": measured_on,
        "bytes": (folder / name).stat().st_size,
        "checksum": checksum(folder / name),
    }


def _empty(dim: int, lists: int) -> Any:
    import faiss

    shape = (faiss.IndexFlatIP(dim), dim, lists)
    if dim >= ROUGH_FROM:
        index = faiss.IndexIVFRaBitQ(*shape, faiss.METRIC_INNER_PRODUCT, True, BITS)
        index.qb = 4  # the query's own bits: more take longer and tell next to nothing
        return index
    eight = faiss.ScalarQuantizer.QT_8bit
    return faiss.IndexIVFScalarQuantizer(*shape, eight, faiss.METRIC_INNER_PRODUCT)


def _measure(index: Any, rows: VectorTable, rng: np.random.Generator) -> dict[str, Any]:
    """What `candidates` goes by, learned from vectors like questions, and the recall they get."""
    centroids = index.quantizer.reconstruct_n(0, index.nlist)
    questions, closeness = _questions(index, centroids, rows, rng)
    wanted, top = min(FEWEST, len(rows)), min(10, len(rows))
    scores, truth = _best_rows(questions, rows, wanted)
    scores, truth = scores[:, :top], truth[:, :top]
    near = questions @ centroids.T
    places, at_places = np.unique(truth, return_inverse=True)
    homes = index.quantizer.assign(np.nan_to_num(rows[places]), 1)[at_places].reshape(truth.shape)
    last, errors = np.zeros((len(questions), 1), np.float32), []
    for i, question in enumerate(questions):
        lists = np.union1d(np.argsort(-near[i])[:FIRST], homes[i])
        at, rough = _scan(index, question, lists, near[i][lists], -np.inf)
        if len(at):  # of centroids that are equal, the other one may be a row's own
            last[i], _ = _bar(rough, min(wanted, len(rough)))
            _, best, codes = np.intersect1d(truth[i], at, return_indices=True)
            errors.append(scores[i][best] - rough[codes])
    gaps = last - closeness * np.take_along_axis(near, homes, axis=1)
    learned = {
        "closeness": closeness,
        "margin": float(np.quantile(gaps, NEAR)),
        "error": float(np.quantile(np.concatenate([*errors, np.zeros(1)]), ROUGH)),
    }
    draft = InvertedLists(index, {**learned, "count": len(rows)}, centroids)
    reached = 0
    for question, least in zip(questions, scores[:, -1] - 1e-6, strict=True):
        found = dot(rows[draft.candidates(question, wanted)], question)
        reached += min(top, int(np.count_nonzero(found >= least)))
    probes = np.count_nonzero(closeness * near > last - learned["margin"]) / len(questions)
    recall = round(reached / scores.size, 4)
    return {**learned, "probes": max(min(FIRST, index.nlist), round(probes)), "recall": recall}


def _best_rows(questions: Vectors, rows: VectorTable, wanted: int) -> tuple[Vectors, Numbers]:
    """Scores and positions of the best rows for each question, best first. After the first block
    hardly a row is among them, so that it takes as long as to multiply: half of `faiss.knn`."""
    import faiss

    first = max(AT_ONCE, wanted)
    by = faiss.METRIC_INNER_PRODUCT
    scores, at = faiss.knn(questions, np.nan_to_num(rows[:first]), wanted, metric=by)
    for start in range(first, len(rows), AT_ONCE):
        found = questions @ rows[start : start + AT_ONCE].T
        better = found > scores[:, -1:]
        for i in np.flatnonzero(better.any(axis=1)):
            new = np.flatnonzero(better[i])
            both = np.concatenate([scores[i], found[i, new]])
            order = np.argsort(-both, kind="stable")[:wanted]
            scores[i], at[i] = both[order], np.concatenate([at[i], new + start])[order]
    return scores, at


def _questions(
    index: Any, centroids: Vectors, rows: VectorTable, rng: np.random.Generator
) -> tuple[Vectors, float]:
    """Vectors that lie to rows as questions do, and how close a row is to its centroid.

    Rows themselves will not do, not even with some noise: a question is about as near to a hundred
    passages as to the best one, and these lie in many lists. So a question is made from a passage
    less up to half of what its list has in common, for it asks for what is special, and from half
    to as much of a direction in which passages differ. Measured: benchmarks/vector_recall.py.
    """
    picked = (np.sort(rng.permutation(len(rows))[:SAMPLE]) for _ in range(2))
    about, others = (np.nan_to_num(rows[places]) for places in picked)
    close, homes = index.quantizer.search(about, 1)
    common = rng.uniform(0, 0.4, (len(about), 1)).astype(np.float32)
    special = unit(about - common * centroids[homes[:, 0]])
    mixed = rng.standard_normal((len(about), len(others)), np.float32)
    other = unit(mixed @ (others - others.mean(axis=0)))
    return unit(special + (1 - common) * other), float(close.mean())


def dot(rows: Vectors, query: Vector) -> Vectors:
    # Not BLAS: it takes a second thread and waits for it. With the other core busy that is
    # slower than one thread, which is enough to keep the memory busy.
    scores: Vectors = np.vecdot(rows, query)
    return scores
