"""The stores side by side: the same records and vectors in each, asked in turns.

    python benchmarks/stores.py --out docs/benchmarks/stores.md

- Load: records with vectors through `Engine.add`, a batch into one store, then into the other, and
  the indexes brought into shape in the end.
- Query time: hybrid, top 10, the query's vector given, with no cache of answers. Each query is
  asked of one store, then of the other, who is first in turns; with filters that keep 1 % of the
  records (16 of them in use), and right after a write.
- Open: a fresh process opens the store and asks one query (see probe.py). Files are in the system's
  cache.
- Copy: `clew migrate` from one into the other, with the comparison of every record in the end.

Texts and vectors are made from real ones (see corpus.py).
"""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import clew
from clew.storage.migrate import migrate
from clew.store import open_store
from probe import probe

import corpus as corpora
from report import Table, figure, options, p, publish, say

STORES = {"embedded": "", "duckdb": "duckdb:///.clew/clew.duckdb"}
BATCH = 5_000
FILTERS = 16


def measure(size: int, corpus: corpora.Corpus, work: Path, arguments: Any) -> dict[str, Any]:
    folders = {name: work / f"{name}-{size}" for name in STORES}
    for name, folder in folders.items():
        folder.mkdir()
        settings = f'store = "{STORES[name]}"\ncache = false\n'
        (folder / "clew.toml").write_text(settings, "utf-8")
    engines = {name: clew.open(folder) for name, folder in folders.items()}
    try:
        say(f"{size:,} records: loading")
        load = _load(engines, corpus, size)
        say(f"{size:,} records: timing")
        ask = arguments.queries
        warm = (corpus.queries[:ask], corpus.query_vectors[:ask])
        timed = (corpus.queries[ask : 2 * ask], corpus.query_vectors[ask : 2 * ask])
        asked: dict[str, dict[str, list[float]]] = {}
        for what in ("hybrid", "hybrid, filter 1 %", "hybrid, after a write"):
            _ask(engines, warm, what)
            asked[what] = _ask(engines, timed, what)
        bytes_ = {name: engine.status()["bytes"]["database"] for name, engine in engines.items()}
    finally:
        for engine in engines.values():
            engine.close()
    say(f"{size:,} records: opening in a fresh process")
    probes = {name: probe(folder, timed[0][:1], timed[1][:1]) for name, folder in folders.items()}
    say(f"{size:,} records: copying")
    return {
        "records": size,
        "load": load,
        "ms": {
            what: {name: {"p50": p(ms, 50), "p95": p(ms, 95)} for name, ms in of.items()}
            for what, of in asked.items()
        },
        "open": probes,
        "copy": _copied(work, folders, size),
        "database_mb": {name: count / 1e6 for name, count in bytes_.items()},
    }


def _load(engines: dict[str, clew.Engine], corpus: corpora.Corpus, size: int) -> dict[str, float]:
    seconds = dict.fromkeys(engines, 0.0)
    for block in range(0, size, corpora.BLOCK):
        records, vectors = corpora.records(corpus, block, block + corpora.BLOCK)
        for first in range(0, len(records), BATCH):
            for name, engine in engines.items():
                begun = time.perf_counter()
                engine.add(records[first : first + BATCH], vectors=vectors[first : first + BATCH])
                seconds[name] += time.perf_counter() - begun
    for name, engine in engines.items():
        begun = time.perf_counter()
        engine.optimise()
        seconds[name] += time.perf_counter() - begun
    return {name: size / taken for name, taken in seconds.items()}


def _ask(
    engines: dict[str, clew.Engine], queries: tuple[list[str], Any], what: str
) -> dict[str, list[float]]:
    taken: dict[str, list[float]] = {name: [] for name in engines}
    for i, (text, vector) in enumerate(zip(*queries, strict=True)):
        only = {"metadata": {"bucket": i % FILTERS}} if "filter" in what else None
        order = list(engines) if i % 2 else list(reversed(engines))
        for name in order:
            engine = engines[name]
            if "write" in what:
                engine.add([{"id": "the one that changes", "content": f"{text} {i}"}])
            begun = time.perf_counter()
            engine.search(text, vector=vector, filter=only)
            taken[name].append((time.perf_counter() - begun) * 1e3)
    return taken


def _copied(work: Path, folders: dict[str, Path], size: int) -> dict[str, float]:
    """Records a second, into a new store of the other kind."""
    rates = {}
    for name, target in (("embedded", "duckdb:///copy.duckdb"), ("duckdb", "embedded:///copy.db")):
        begun = time.perf_counter()
        with (
            closing(open_store(STORES[name], base=folders[name])) as one,
            closing(open_store(target, base=work)) as other,
        ):
            report = migrate(one, other, origin=name)
        if not report.well:
            raise SystemExit(f"{target} differs from {name}: {report}")
        rates[f"{name} into {target.partition(':')[0]}"] = size / (time.perf_counter() - begun)
    return rates


def tables(results: list[dict[str, Any]]) -> list[Table]:
    figures, times, loads = [], [], []
    for result in results:
        size = f"{result['records']:,}"
        for what, of in result["ms"].items():
            ratio = of["duckdb"]["p50"] / of["embedded"]["p50"]
            if what == "hybrid":
                text = f"DuckDB's p50 at {size}"
                figures.append(
                    figure(text, f"{ratio:.2f} × the embedded store's", "≤ 3 ×", ratio <= 3)
                )
            for name, ms in of.items():
                shown = f"{ratio:.2f} ×" if name == "duckdb" else ""
                times.append((size, what, name, ms["p50"], ms["p95"], shown))
        for name in STORES:
            probe = result["open"][name]
            copied = next(rate for key, rate in result["copy"].items() if key.startswith(name))
            loads.append(
                (
                    *(size, name, result["load"][name]),
                    *(probe["open_ms"], probe["first_ms"], probe["first"]["RssAnon"]),
                    *(result["database_mb"][name], copied),
                )
            )
    return [
        Table("Figures", ("figure", "measured", "wanted", "holds"), figures),
        Table("Query time", ("records", "what", "store", "p50 ms", "p95 ms", "ratio"), times),
        Table(
            "Load, open, copy",
            (
                *("records", "store", "loaded a second", "open ms", "first query ms"),
                *("held MB", "database MB", "copied a second"),
            ),
            loads,
            "`held` is what a fresh process has in memory after one query, without what is mapped "
            "from files; `copied` is into the other kind of store, compared in the end.",
        ),
    ]


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--records", type=int, nargs="+", default=[20_000], help="sizes")
    parser.add_argument("--queries", type=int, default=400, help="how many (up to 600)")
    arguments = parser.parse_args()
    corpus = corpora.load(arguments.data)
    results = []
    for size in sorted(arguments.records):
        with TemporaryDirectory(
            dir=arguments.work, prefix="clew-benchmark-", ignore_cleanup_errors=True
        ) as work:
            results.append(measure(size, corpus, Path(work), arguments))
    publish("Stores", __doc__, tables(results), {"results": results}, arguments)


if __name__ == "__main__":
    main()
