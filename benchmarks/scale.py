"""How stores grow: bytes a record and query time at several sizes, and the law that fits them.

    python benchmarks/scale.py --out docs/benchmarks/scale.md              # 10^4 and 10^5
    python benchmarks/scale.py --records 10000 100000 1000000 --out …
    python benchmarks/scale.py --stores qdrant --records 10000 20000 50000

- Per size, in a store of its own: records with vectors through `Engine.add` and `optimise`; then
  hybrid queries, top 10, vectors given, no cache of answers, after a warm-up with others.
- Times are the median on the wall, and of CPU time in this process, which says more where others
  use the machine (of a server it says nothing: it computes elsewhere).
- The law: bytes are a + b · records (the least squares of relative errors), milliseconds
  c · records^e (of logarithms), the latter from 50,000 records on: below, vectors are scored one by
  one, and one law does not hold for both ways. With two sizes a law goes through the points; the
  more sizes, the more it is tested: how far it is from each point is in the table.
- Capacity: what 10^6 to 10^9 records come to by that law, where each shard holds so many records
  and all shards are asked at once. It is extrapolated, and says so.

Texts and vectors are made from real ones (see corpus.py).
"""

from __future__ import annotations

import argparse
import json
import os
import time
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import clew
from servers import STORES, disk_bytes, settle, started

import corpus as corpora
from report import Table, options, p, publish, say

BATCH = 10_000
SHARD = 10_000_000
"""Records of one shard in the sums."""
REPLICAS = 2
LISTED = 50_000
"""Records from which on vectors are searched by an index."""


def measure(store: str, size: int, corpus: corpora.Corpus, work: Path, ask: int) -> dict[str, Any]:
    say(f"{store}: {size:,}")
    folder = work / "store"
    with (
        started(store, f"g{size}", work) as (url, server),
        closing(clew.open(folder, cache=False, **({"store": url} if url else {}))) as engine,
    ):
        begun, written = time.perf_counter(), 0
        for block in range(0, size, BATCH):
            records, vectors = corpora.records(corpus, block, block + BATCH)
            engine.add(records, vectors=vectors)
            written += sum(len(record.content.encode()) for record in records)
        engine.optimise()
        settle(store, server, f"g{size}")
        seconds = time.perf_counter() - begun
        wall: list[float] = []
        cpu: list[float] = []
        queries = zip(corpus.queries[: 2 * ask], corpus.query_vectors[: 2 * ask], strict=True)
        for text, vector in queries:
            at, spent = time.perf_counter(), time.process_time()
            engine.search(text, vector=vector)
            wall.append((time.perf_counter() - at) * 1e3)
            cpu.append((time.process_time() - spent) * 1e3)
        return {
            "store": store,
            "records": size,
            "bytes": disk_bytes(store, server, engine, folder / ".clew"),
            "text": written,
            "parts": engine.status()["bytes"],
            "p50": p(wall[ask:], 50),
            "cpu": p(cpu[ask:], 50),
            "per_second": size / seconds,
        }


def fit(rows: list[dict[str, Any]]) -> dict[str, float]:
    """The law of one store."""
    sizes = np.array([row["records"] for row in rows], float)
    held = np.array([row["bytes"] for row in rows], float)
    both = np.stack([np.ones_like(sizes), sizes], axis=1) / held[:, None]
    fixed, each = np.linalg.lstsq(both, np.ones_like(sizes), rcond=None)[0]
    law = {"fixed": float(fixed), "each": float(each)}
    large = [row for row in rows if row["records"] >= LISTED]
    if len(large) > 1:
        at = np.log([row["records"] for row in large])
        power, level = np.polyfit(at, np.log([row[_time(rows)] for row in large]), 1)
        law |= {"power": float(power), "at_one": float(np.exp(level))}
    return law


def _time(rows: list[dict[str, Any]]) -> str:
    """CPU time where all is computed in this process."""
    return "cpu" if rows[0]["store"] == "embedded" else "p50"


def tables(results: list[dict[str, Any]]) -> tuple[list[Table], dict[str, Any]]:
    measured, laws, capacity = [], [], []
    fitted: dict[str, Any] = {}
    for store in dict.fromkeys(row["store"] for row in results):
        rows = [row for row in results if row["store"] == store]
        law = fit(rows) if len(rows) > 1 else None
        for row in rows:
            size = row["records"]
            off = "", ""
            if law:
                held = law["fixed"] + law["each"] * size
                off = f"{held / row['bytes'] - 1:+.1%}", ""
                if "power" in law and size >= LISTED:
                    foreseen = law["at_one"] * size ** law["power"]
                    off = off[0], f"{foreseen / row[_time(rows)] - 1:+.1%}"
            parts = ", ".join(f"{name} {of / size:,.0f}" for name, of in row["parts"].items())
            measured.append(
                (
                    *(store, size, f"{row['bytes'] / size:,.0f}"),
                    f"{(row['bytes'] - row['text']) / size:,.0f}" if "text" in row else "",
                    parts,
                    *(row["p50"], row["cpu"], row["per_second"], *off),
                )
            )
        if law is None:
            continue
        fitted[store] = law
        laws.append(
            (
                store,
                f"{law['fixed'] / 1e6:,.1f} MB + {law['each']:,.0f} · n",
                f"{law['at_one']:.3g} · n^{law['power']:.2f}" if "power" in law else "",
                f"× {10 ** law['power']:.2f}" if "power" in law else "",
            )
        )
        for power in (6, 7, 8, 9):
            size = 10**power
            shards = max(1, -(-size // SHARD))
            one = size * law["each"]
            capacity.append(
                (
                    *(store, f"10^{power}", shards, f"{one / 1e9:,.1f} GB"),
                    f"{REPLICAS * one / 1e9:,.1f} GB",
                    f"{1.5 * REPLICAS * one / 1e9:,.1f} GB",
                    law["at_one"] * min(size, SHARD) ** law["power"] if "power" in law else "",
                )
            )
    columns = (
        *("store", "records", "bytes a record", "beside the text", "of which"),
        *("p50 ms", "CPU p50 ms", "records/s", "law: bytes", "law: ms"),
    )
    made = [Table("Measured", columns, measured)]
    if laws:
        note = "ms is CPU time of the embedded store, the wall's of servers."
        head = ("store", "bytes", "ms", "ten times the records")
        made.append(Table("The law", head, laws, note))
        head = (
            *(
                "store",
                "records",
                "shards",
                "one copy",
                f"{REPLICAS} replicas",
                "with room to work",
            ),
            "ms a query and shard",
        )
        note = f"Extrapolated, nothing of it was run: {SHARD:,} records a shard at most."
        made.append(Table("Capacity by that law", head, capacity, note))
    return made, fitted


def main() -> None:
    parser = options(__doc__ or "")
    parser.add_argument("--records", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--queries", type=int, default=100, help="timed ones (default 100)")
    parser.add_argument("--stores", nargs="+", choices=STORES, default=["embedded"])
    parser.add_argument("--also", type=Path, help="rows that an earlier run printed with --json")
    given: argparse.Namespace = parser.parse_args()
    os.environ.setdefault("CLEW_TRUST", str(given.work or "/tmp"))
    corpus = corpora.load(given.data)
    rows = json.loads(given.also.read_text("utf-8"))["results"] if given.also else []
    for store in given.stores:
        for size in sorted(given.records):
            with TemporaryDirectory(dir=given.work, ignore_cleanup_errors=True) as work:
                rows.append(measure(store, size, corpus, Path(work), given.queries))
            say(json.dumps(rows[-1]))
    made, fitted = tables(rows)
    publish("How stores grow", __doc__ or "", made, {"results": rows, "laws": fitted}, given)


if __name__ == "__main__":
    main()
