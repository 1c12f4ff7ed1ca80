"""The engine's figures: hybrid query time against the floor, recall, bulk load, memory.

    python benchmarks/engine.py --records 200000 1000000 --out docs/benchmarks/engine.md

Per size, in one run on one machine:

- Load: records with vectors through `Engine.add` (see load.py).
- Recall: the vector leg's top 10 (`mode="vector"`) against exact search over all rows, without a
  filter, and with filters that keep 1 % and 0.01 % of the records.
- Query time: hybrid, top 10, the query's vector given, Clew as it comes (50 candidates per source,
  fusion, passages, snippets, trace). The floor (see floor.py) is bare Tantivy plus bare FAISS tuned
  to Clew's recall. Both answer each query in turn, first one, then the other, so that whatever else
  the machine does hits both alike. Each query is timed once, after a warm-up with other ones. What
  the floor would take at a recall of .99 stands below it.
- Memory: a fresh process opens the store (see probe.py). Files are in the system's cache.

Texts and vectors are made from real ones (see corpus.py). 1,000,000 records take about 12 GB of
disk in the work folder while it runs, 6 GB of memory and ten minutes to half an hour.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import clew
import load as loads
from floor import Floor, exact
from probe import probe
from queries import FILTERS, bereft, filtered, interleaved, lean, recall_under

import corpus as corpora
from report import Table, figure, options, p, publish, say

LEAST = 0.99
"""The recall that the floor is asked for beside Clew's own."""


def measure(size: int, corpus: corpora.Corpus, work: Path, arguments: Any) -> dict[str, Any]:
    """All numbers for one size."""
    store = work / f"store-{size}"
    vectors = np.memmap(work / "rows.f32", np.float32, "w+", shape=(size, 384))
    ask = arguments.queries
    warm = (corpus.queries[:ask], corpus.query_vectors[:ask])
    timed = (corpus.queries[ask : 2 * ask], corpus.query_vectors[ask : 2 * ask])
    with clew.open(store, cache=False) as engine:
        say(f"{size:,} records: loading")
        loading = loads.load(engine, corpus, vectors, batch=arguments.batch)
        say(f"{size:,} records: recall on {ask} queries")
        recalls = {name: recall_under(engine, vectors, timed, name) for name in FILTERS}
        say(f"{size:,} records: building the floor")
        texts = _texts(corpus, size)
        floor = Floor.build(work / f"tantivy-{size}", texts, vectors)
        truth = exact(timed[1], vectors)
        floor.tune(timed[1], truth, target=recalls["none"]["recall"])
        say(f"{size:,} records: timing")
        timing = interleaved(engine, floor, warm, timed)
        reached = floor.probes, floor.recall
        floor.tune(timed[1], truth, target=LEAST)
        lean(floor, timed, timing)
        for name in ("1 %", "0.01 %"):
            filtered(engine, warm, timed, name, timing)
        stage = engine.status()["vectors"]
    say(f"{size:,} records: opening in a fresh process")
    memory = probe(store, *warm)
    with clew.open(store, cache=False) as engine:
        rest = (corpus.queries[2 * ask : 3 * ask], corpus.query_vectors[2 * ask : 3 * ask])
        bereft(engine, rest, timing)
    return {
        "records": size,
        "load": {
            "per_second": loading.rate(),
            "per_second_without_sealing": loading.rate(seal=False),
            "sizes": loading.sizes,
            "stages": loading.stages,
        },
        "loading": loading,
        "recall": recalls,
        "floor": {"lists": floor.lists, "probes": reached[0], "recall": reached[1]},
        "ms": {
            row[0]: dict(zip(("p50", "p95", "cpu"), row[1:], strict=True)) for row in timing.rows()
        },
        "stages_ms": {stage: p(ms, 50) for stage, ms in timing.stages.items()},
        "vectors": stage,
        "memory": memory,
        "disk_mb": _megabytes(store),
        "text_mb": sum(len(text.encode()) for text in _texts(corpus, size)) / 1e6,
    }


def _texts(corpus: corpora.Corpus, size: int) -> Any:
    for first in range(0, size, corpora.BLOCK):
        made, _ = corpora.records(corpus, first, first + corpora.BLOCK)
        yield from (record.content for record in made)


def _megabytes(folder: Path) -> float:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6


# ---------------------------------------------------------------------- tables


def tables(results: list[dict[str, Any]]) -> list[Table]:
    rows, figures = [], []
    for result in results:
        size, ms = f"{result['records']:,}", result["ms"]
        rows += [(size, name, *some.values()) for name, some in ms.items()]
        ratio = ms["Clew, hybrid"]["p50"] / ms["floor"]["p50"]
        figures.append(
            figure(f"hybrid p50 at {size}", f"{ratio:.2f} × the floor", "≤ 1.6 ×", ratio <= 1.6)
        )
        beside = (result["disk_mb"] - result["text_mb"]) / result["records"] * 1e3
        text = f"disk at {size}, beside the text"
        figures.append(figure(text, f"{beside:.2f} kB a record", "≤ 2.5 kB", beside <= 2.5))
        for name, some in result["recall"].items():
            text = f"vector recall@10 at {size}, filter {name}"
            share = some["recall"]
            figures.append(figure(text, f"{share:.4f}", "≥ 0.99", share >= 0.99))
        rate = result["load"]["per_second"]
        figures.append(
            figure(f"load of {size}", f"{rate:,.0f} records/s", "≥ 8,000", rate >= 8_000)
        )
        opened, memory = result["memory"]["open_ms"], result["memory"]["open"]["VmRSS"]
        figures.append(figure(f"open at {size}", f"{opened:.0f} ms", "< 1,000 ms", opened < 1000))
        figures.append(
            figure(f"resident after open at {size}", f"{memory:.0f} MB", "< 1,000 MB", memory < 1e3)
        )
    for small, large in itertools.pairwise(results):
        growth = large["ms"]["Clew, hybrid"]["p50"] / small["ms"]["Clew, hybrid"]["p50"]
        text = f"hybrid p50 from {small['records']:,} to {large['records']:,}"
        figures.append(figure(text, f"× {growth:.2f}", "< × 2.5", growth < 2.5))
        pace = large["load"]["per_second"] / small["load"]["per_second"]
        text = f"load rate at {large['records']:,} against {small['records']:,}"
        figures.append(figure(text, f"× {pace:.2f}", "linear: ≥ × 0.8", pace >= 0.8))
    return [
        Table("Figures", ("figure", "measured", "wanted", "holds"), figures),
        Table(
            "Query time",
            ("records", "what", "p50 ms", "p95 ms", "CPU p50 ms"),
            rows,
            _floors(results),
        ),
        _stage_table(results),
        *(loads.table(result["loading"]) for result in results),
        _memory_table(results),
    ]


def _floors(results: list[dict[str, Any]]) -> str:
    return " ".join(
        f"At {r['records']:,} the floor's FAISS has {r['floor']['lists']:,} lists, "
        f"{r['floor']['probes']} probes and recall@10 {r['floor']['recall']:.3f}; Clew's has "
        f"{r['vectors'].get('lists', 0):,} lists, {r['vectors'].get('probes', 0)} probes and "
        f"{r['vectors'].get('tail', 0):,} rows outside them."
        for r in results
    )


def _stage_table(results: list[dict[str, Any]]) -> Table:
    names = list(results[0]["stages_ms"])
    rows = [
        (f"{r['records']:,}", *(r["stages_ms"].get(name, 0.0) for name in names)) for r in results
    ]
    note = "Medians of each by the trace; the sources run side by side inside `collect`."
    return Table("Where a hybrid search spends its time, ms", ("records", *names), rows, note)


def _memory_table(results: list[dict[str, Any]]) -> Table:
    rows = []
    for r in results:
        memory = r["memory"]
        resident = [f"{m['VmRSS']:.0f} ({m['RssAnon']:.0f})" for m in _moments(memory)]
        rows.append(
            (f"{r['records']:,}", memory["open_ms"], memory["first_ms"], *resident, r["disk_mb"])
        )
    columns = ("records", "open ms", "first query ms", "import", "open", "first query")
    note = "Resident MB, in brackets what is not mapped from files."
    return Table(
        "Opening in a fresh process",
        (*columns, f"{results[0]['memory']['queries']} queries", "disk MB"),
        rows,
        note,
    )


def _moments(memory: dict[str, Any]) -> list[dict[str, float]]:
    return [memory[moment] for moment in ("import", "open", "first", "all")]


def main() -> None:
    parser = options(__doc__)
    parser.add_argument(
        "--records",
        type=int,
        nargs="+",
        default=[200_000, 1_000_000],
        help="sizes (default: both of the figures, 200000 and 1000000)",
    )
    parser.add_argument("--batch", type=int, default=50_000, help="records per call of `add`")
    parser.add_argument("--queries", type=int, default=400, help="how many (200 to 400)")
    arguments = parser.parse_args()
    corpus = corpora.load(arguments.data)
    results = []
    for size in sorted(arguments.records):
        with TemporaryDirectory(
            dir=arguments.work, prefix="clew-benchmark-", ignore_cleanup_errors=True
        ) as work:
            results.append(measure(size, corpus, Path(work), arguments))
    shown = tables(results)
    for result in results:
        del result["loading"]
    publish("The engine", __doc__, shown, {"results": results}, arguments)


if __name__ == "__main__":
    main()
