"""Many sources under one deadline: what all of them cost, one that sleeps, and fusing ten lists.

    python benchmarks/sources.py --out docs/benchmarks/sources.md

Over a copy of the bundled sample folder, and over 100,000 records with paths and tags (made from
those of corpus.py):

- Words and vectors alone, and with every kind of source beside them, each query in turns; the
  vector is given, the caches are off. Beside what answers from the store there are an FTS5 table
  of an SQLite file and an exocortex, with a thousand rows each at most (every_source.py).
- One more source that sleeps for a minute. The first searches wait for it up to the deadline (here
  0.5 s) and say so; after four of them it is not asked until it comes back, and searches are as
  quick as before.
- Fusing ten lists of a hundred candidates, with 400 records among them, for the best ten, as a
  search does, and for all.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import clew
from clew.ranking.fusion import STRATEGIES, fuse
from clew.types import Candidate
from every_source import open_records, open_sample

import corpus as corpora
from report import REPOSITORY, Table, figure, options, p, publish, say

DEADLINE = 0.5
SAMPLE_QUERIES = (
    "electric fuse keeps blowing",
    "keel bolt torque",
    "epoxy cure time in cold weather",
    "crane safety near miss",
    "sauna heater wiring",
    "invoices due",
    "first crack temperature espresso",
    "checksum polynomial of the tether frames",
)


def timed(ask: Callable[[], Any]) -> float:
    begun = time.perf_counter()
    ask()
    return (time.perf_counter() - begun) * 1e3


def asleep(query: Any, context: Any) -> Sequence[Candidate]:
    time.sleep(60)
    return ()


def measure(engine: clew.Engine, queries: Sequence[tuple[str, Any]]) -> dict[str, list[float]]:
    """Milliseconds of each query, by what was asked."""
    times: dict[str, list[float]] = {"words and vectors": [], "all sources": []}
    few = ["keyword", "vectors"]
    for again in range(2):  # the first round warms up
        for text, vector in queries:
            ask = {"vector": vector, "cache": False}
            alone = timed(lambda t=text, a=ask: engine.search(t, sources=few, **a))
            every = timed(lambda t=text, a=ask: engine.search(t, **a))
            if again:
                times["words and vectors"].append(alone)
                times["all sources"].append(every)
    engine.sources["asleep"] = asleep
    engine.config = replace(engine.config, deadline=DEADLINE)
    late: list[float] = []
    for text, vector in queries[:4]:
        late.append(timed(lambda t=text, v=vector: engine.search(t, vector=v, cache=False)))
    times["one asleep, the first four"] = late
    times["one asleep, from then on"] = [
        timed(lambda t=text, v=vector: engine.search(t, vector=v, cache=False))
        for text, vector in queries
    ]
    return times


def sample(work: Path) -> dict[str, list[float]]:
    with open_sample(REPOSITORY / "sample", work / "sample") as engine:
        asked = [(text, engine.embed_query(text)) for text in SAMPLE_QUERIES * 10]
        return measure(engine, asked)


def large(work: Path, data: Path, size: int) -> dict[str, list[float]]:
    corpus = corpora.load(data)
    with open_records(corpus, work / "store", size) as engine:
        asked = list(zip(corpus.queries[:200], corpus.query_vectors[:200], strict=True))
        return measure(engine, asked)


def fusing() -> dict[str, list[float]]:
    rng = random.Random(1)
    lists = {
        f"source {i}": [
            Candidate(f"r{name}", 1 - rank / 100)
            for rank, name in enumerate(rng.sample(range(400), 100))
        ]
        for i in range(10)
    }
    return {
        f"{strategy}, the best ten" if head else f"{strategy}, all": [
            timed(lambda s=strategy, h=head: fuse(s, lists, head=h)) for _ in range(200)
        ]
        for strategy in STRATEGIES
        for head in (10, None)
    }


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--records", type=int, default=100_000, help="how many (default 100,000)")
    arguments = parser.parse_args()
    fused = fusing()
    with TemporaryDirectory(dir=arguments.work, ignore_cleanup_errors=True) as work:
        say("the sample folder")
        times = {"sample": sample(Path(work))}
        say(f"{arguments.records:,} records")
        name = f"{arguments.records:,} records"
        times[name] = large(Path(work), arguments.data, arguments.records)
    figures = []
    for where, measured in times.items():
        before, after = p(measured["all sources"], 50), p(measured["one asleep, from then on"], 50)
        what = f"hybrid p50 over {where} with one more source that sleeps"
        ratio = f"{before:.2f} ms → {after:.2f} ms"
        figures.append(figure(what, ratio, "unchanged (≤ 1.25 ×)", after <= 1.25 * before))
        slowest = max(measured["one asleep, the first four"])
        holds = slowest <= DEADLINE * 1e3 + 100
        figures.append(
            figure(
                f"slowest of the first four over {where}",
                f"{slowest:.0f} ms",
                f"≤ deadline {DEADLINE * 1e3:.0f} ms + 100",
                holds,
            )
        )
    worst = max(p(ms, 50) for name, ms in fused.items() if name.endswith("ten"))
    figures.append(
        figure("fusing 10 × 100 candidates, p50", f"{worst:.2f} ms", "< 1 ms", worst < 1)
    )
    rows = [
        (where, what, p(ms, 50), p(ms, 95))
        for where, measured in times.items()
        for what, ms in measured.items()
    ]
    done = [
        Table("Figures", ("figure", "measured", "wanted", "holds"), figures),
        Table("Searches", ("over", "what", "p50 ms", "p95 ms"), rows),
        Table(
            "Fusing ten lists of a hundred",
            ("strategy", "p50 ms", "p95 ms"),
            [(strategy, p(ms, 50), p(ms, 95)) for strategy, ms in fused.items()],
        ),
    ]
    publish("Many sources", __doc__, done, {"searches": times, "fusing": fused}, arguments)


if __name__ == "__main__":
    main()
