"""Vector recall with real questions: what is reported, and what questions get.

    python benchmarks/vector_recall.py --out docs/benchmarks/vector_recall.md

Two stores, both with more vectors than are searched one by one (`ivf_threshold`):

- copies: near-copies of 2,000 sentences' vectors (a tenth of their length as noise),
- records: those of corpus.py, three sentences each.

Questions are the test collections' own. Exact is the inner product with every row. Without a
filter, and under one that keeps the half of the rows, cut along the direction in which they differ
most, that the best row of the question is not in. With another version's `src` in PYTHONPATH it
measures that one.
"""

from __future__ import annotations

import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import numpy.typing as npt

import clew
from clew import Filter, Record

import corpus as corpora
from report import Table, options, p, publish, say

BASE, NOISE, TOP = 2_000, 0.1, 10
STEP = 20_000
Floats = npt.NDArray[np.float32]


def copies(corpus: corpora.Corpus, count: int) -> Floats:
    rng = np.random.default_rng(0)
    rows = corpus.vectors[:BASE][np.arange(count) % BASE]
    noise = rng.standard_normal(rows.shape, dtype=np.float32)
    rows = rows + NOISE / np.sqrt(rows.shape[1]) * noise
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), np.float32)


def records(corpus: corpora.Corpus, count: int) -> Floats:
    blocks = [
        corpora.records(corpus, first, min(count, first + corpora.BLOCK))[1]
        for first in range(0, count, corpora.BLOCK)
    ]
    return np.concatenate(blocks)


def measure(rows: Floats, questions: Floats, work: Path) -> list[tuple[Any, ...]]:
    """A line for each filter."""
    sides = rows @ np.linalg.svd(rows[::50] - rows.mean(axis=0), full_matrices=False)[2][0]
    left = sides < np.median(sides)
    with clew.open(work, cache=False) as engine:
        for i in range(0, len(rows), STEP):
            some = [
                Record(f"r{n}", "x", collection="left" if left[n] else "right")
                for n in range(i, min(len(rows), i + STEP))
            ]
            engine.add(some, vectors=rows[i : i + STEP])
        engine.optimise()
        stage = engine.status()["vectors"]
        all_rows = np.ones(len(rows), np.bool_)
        found: dict[str, list[tuple[float, float]]] = {"none": [], "the other half": []}
        for question in questions:
            found["none"].append(recall(engine, rows, question, Filter(), all_rows))
            other = not left[int(np.argmax(rows @ question))]
            among = Filter(collection="left" if other else "right")
            there = left if other else ~left
            found["the other half"].append(recall(engine, rows, question, among, there))
    return [
        (
            name,
            stage["recall"],
            f"{np.mean([share for share, _ in of]):.4f}",
            f"{np.mean([share < 0.9 for share, _ in of]):.1%}",
            p([ms for _, ms in of], 50),
        )
        for name, of in found.items()
    ]


def recall(
    engine: clew.Engine,
    rows: Floats,
    question: Floats,
    among: Filter,
    there: npt.NDArray[np.bool_],
) -> tuple[float, float]:
    """The share of the ten best that is found, and the milliseconds it took."""
    scores = np.where(there, rows @ question, -2.0)
    tenth = np.partition(scores, -TOP)[-TOP]
    begun = time.perf_counter()
    hits = engine.store.nearest(question, among, model=engine.embedder.model, limit=TOP)
    ms = (time.perf_counter() - begun) * 1e3
    return float(np.mean([hit.score >= tenth - 1e-5 for hit in hits[:TOP]])), ms


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--questions", type=int, default=300)
    arguments = parser.parse_args()
    corpus = corpora.load(arguments.data)
    questions = np.ascontiguousarray(corpus.query_vectors[: arguments.questions])
    lines = []
    for name, make in (("copies", copies), ("records", records)):
        rows = make(corpus, arguments.rows)
        with TemporaryDirectory(dir=arguments.work) as work:
            for line in measure(rows, questions, Path(work)):
                lines.append((name, *line))
                say(str(lines[-1]))
    heads = ("rows", "filter", "reported", "recall@10", "questions below .9", "ms p50")
    table = Table(f"{arguments.rows:,} rows, {len(questions)} questions", heads, lines)
    publish("Vector recall", __doc__, [table], {"lines": lines}, arguments)


if __name__ == "__main__":
    main()
