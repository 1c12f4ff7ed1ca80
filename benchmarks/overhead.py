"""What checksums and limits cost: the same work with them and without, in turns, in one process.

    python benchmarks/overhead.py --out docs/benchmarks/overhead.md

**Search**: one store of `--records` made-up notes with vectors; each query is asked hybrid and
uncached, as it is and with the comparison of checksums taken out, first the one, then the other.
**Load**: a folder of `--files` made-up Markdown files is indexed into an empty store, without a
model (embedding would hide the cost), as it is; without checksums; and without the process of its
own that files are read in, with its limits of time and memory.

Processor time of this process and of those it started, which other programs disturb least, and
seconds by the clock, for which the machine has to be quiet.
"""

from __future__ import annotations

import contextlib
import random
import resource
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

import numpy as np

import clew
from clew.ingest import readers
from clew.ingest.chunk import chunk

from report import Table, figure, options, publish, say

DIM, VOCABULARY, QUERIES = 384, 5_000, 200
Times = dict[str, list[float]]


def make_text(chance: random.Random, words: int) -> str:
    """Words as often as in a language: the n-th in the order of 1/n."""
    return " ".join(f"w{int(VOCABULARY ** chance.random())}" for _ in range(words))


def read_here(files: Any, *, chunk_size: int) -> Iterator[tuple[Any, readers.Reading]]:
    """As `readers.read_each`, in this process and without limits."""
    for name, data, path in files:
        document = readers.read(data, path)
        yield name, readers.Reading(document, chunk(document, size=chunk_size), ())


@contextlib.contextmanager
def unchecked() -> Iterator[None]:
    """No checksum is made or compared."""

    def one(*_: Any) -> int:
        return 1

    with contextlib.ExitStack() as held:
        for name in ("fields_fit", "chunk_fits", "record_fits"):
            held.enter_context(mock.patch(f"clew.storage.rows.{name}", one))
        for name in ("sum_chunk", "sum_record"):
            held.enter_context(mock.patch(f"clew.storage.batch.{name}", one))
        for module in ("storage.sqlite", "storage.snapshot", "index.vectors", "index.keyword"):
            held.enter_context(mock.patch(f"clew.{module}.crc32", one))
        yield


def unlimited() -> Any:
    return mock.patch("clew.ingest.sync.read_each", read_here)


def spent() -> float:
    """Processor seconds, of processes that have ended too."""
    times = [resource.getrusage(of) for of in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in times)


def in_turns(
    work: Callable[[int], None], rounds: int, ways: dict[str, Callable[[], Any]]
) -> tuple[Times, Times]:
    """Processor seconds and those of the clock, of each round of each way."""
    ways = {"as it is": contextlib.nullcontext, **ways}
    processor: Times = {name: [] for name in ways}
    clock: Times = {name: [] for name in ways}
    for number in range(rounds):
        for name in sorted(ways, reverse=bool(number % 2)):
            with ways[name]():
                before, begun = spent(), time.perf_counter()
                work(number)
                clock[name].append(time.perf_counter() - begun)
                processor[name].append(spent() - before)
    return processor, clock


def measure_search(folder: Path, *, records: int, rounds: int) -> tuple[Times, Times]:
    chance, vectors = random.Random(14), np.random.default_rng(14)
    notes = [
        clew.Record(f"n{i}", make_text(chance, 120), title=f"note {i}") for i in range(records)
    ]
    asked = [make_text(chance, 4) for _ in range(QUERIES)]
    near = vectors.standard_normal((QUERIES, DIM), dtype=np.float32)
    with clew.open(folder, model="none", cache=False) as engine:
        engine.add(notes, vectors=vectors.standard_normal((records, DIM), dtype=np.float32))
        for query, vector in zip(asked, near, strict=True):
            engine.search(query, vector=vector)

        def ask(number: int) -> None:
            engine.search(asked[number % QUERIES], vector=near[number % QUERIES])

        return in_turns(ask, rounds, {"without checksums": unchecked})


def measure_load(folder: Path, *, files: int, rounds: int) -> tuple[Times, Times]:
    chance = random.Random(15)
    notes = folder / "notes"
    notes.mkdir()
    for i in range(files):
        paragraphs = "\n\n".join(make_text(chance, 80) for _ in range(5))
        (notes / f"{i:05}.md").write_text(f"# Note {i}\n\n{paragraphs}\n")

    def load(_: int) -> None:
        with TemporaryDirectory(dir=folder) as place:
            store = f"embedded:///{place}/store"
            with clew.open(notes, store=store, model="none") as engine:
                assert len(engine.index().added) == files
            while readers._idle:  # what it spent is counted when it has ended
                readers._idle.pop().close()

    load(0)
    ways = {"without checksums": unchecked, "without limits": unlimited}
    return in_turns(load, rounds, ways)


def measure_start(rounds: int) -> list[float]:
    """Processor seconds of the process that files are read in, to be started and read one: what a
    run pays once, however many files it reads."""
    took = []
    for _ in range(rounds):
        before = spent()
        list(readers.read_each([("a", b"# A\n\nA note.\n", "a.md")], chunk_size=1500))
        while readers._idle:
            readers._idle.pop().close()
        took.append(spent() - before)
    return took


def tables(found: dict[str, tuple[Times, Times]], start: list[float]) -> list[Table]:
    rows: list[tuple[Any, ...]] = []
    figures = []
    for name, kinds in found.items():
        for kind, times in zip(("processor", "clock"), kinds, strict=True):
            whole = times.pop("as it is")
            for way, less in times.items():
                # of each pair, so that what the machine did meanwhile hits both
                share = median(a / b - 1 for a, b in zip(whole, less, strict=True))
                what = f"{name}, {kind}, as it is against {way}"
                figures.append(figure(what, f"{share:+.1%}", "≤ 5 %", share <= 0.05))
                rows.append((f"{name}, {kind}, {way}", 1e3 * median(less)))
            rows.append((f"{name}, {kind}, as it is", 1e3 * median(whole)))
    rows.append(("processor, of this to start the process that reads", 1e3 * median(start)))
    return [
        Table("Figures", ("figure", "measured", "wanted", "holds"), figures),
        Table("Medians", ("what", "ms"), rows),
    ]


def main() -> None:
    parser = options(__doc__, data=False)
    parser.add_argument("--records", type=int, default=20_000)
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--searches", type=int, default=2_000)
    parser.add_argument("--loads", type=int, default=9)
    arguments = parser.parse_args()
    with TemporaryDirectory(dir=arguments.work, ignore_cleanup_errors=True) as work:
        say("searching…")
        place = Path(work)
        search = measure_search(
            place / "store", records=arguments.records, rounds=arguments.searches
        )
        say("loading…")
        load = measure_load(place, files=arguments.files, rounds=arguments.loads)
    found = {"hybrid search, p50": search, "load": load}
    start = measure_start(arguments.loads)
    publish("Checksums and limits", __doc__, tables(found, start), found, arguments)


if __name__ == "__main__":
    main()
