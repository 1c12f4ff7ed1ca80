"""Memory: Clew's `Memory` against Ariadne's, with the same texts and the same vectors.

    python benchmarks/memory.py --out docs/benchmarks/memory.md

Memories are three real sentences each, with vectors made from bge-small's (corpus.py); queries are
real ones with their vectors, so that nobody embeds. Each system runs in a process of its own, with
the same Python, NumPy and FAISS, and times itself (memory_worker.py). The two take turns, a few
hundred memories or ten queries at a time, so that whatever else the machine does hits both:

- remember: one by one, from none to 5,000; and 500 at a time with `remember_many`.
- recall: text and vector given, the best five, after a warm-up; and in turns with remembering.
- cold open: a new process opens the 5,000 and answers once. Imports are counted apart: Ariadne's
  are made before it is opened, Clew's largely while it is, and count against it.

Then Clew alone: 200,000 memories, asked in turns with the 5,000. The inverted lists that so many
vectors need grow with each batch, which is part of the load's time.

Last, `Memory.hybrid_search` in turns with `Engine.search` over the same 200,000 texts and vectors,
5,000 given at a time, right after the last batch: the engine was told to `optimise`, the memory was
told nothing. `--engine` measures that alone.

Ariadne compares each new memory with all others, to refuse near-duplicates, and makes the index for
that anew whenever it is opened; that is most of its time. `remember_many` refuses exact ones only.

Both are as they come. Ariadne waits for the disk at every commit (SQLite's FULL), Clew does not
(NORMAL: a killed process loses nothing, a power cut may lose the last moment). With
CLEW_SYNCHRONOUS=FULL in the environment Clew waits as well.

A quick look:

    python benchmarks/memory.py --singles 500 --many 20000 --cold 2
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import corpus as corpora
from report import Table, figure, options, p, publish, say

HERE = Path(__file__).parent
NAMES = {"clew": "Clew", "arriadne": "Ariadne"}
BESIDE = {"clew": "Memory.hybrid_search", "engine": "Engine.search"}
K = 5
TURN = 250
"""Memories that one system is given before it is the other's turn."""
BATCH = 500
BIG_BATCH = 5_000
ASKED = 10
"""Queries in a turn."""

Times = dict[str, list[float]]


class Process:
    """A worker, from the outside."""

    def __init__(self, system: str, job: Path, database: Path):
        database.parent.mkdir(parents=True, exist_ok=True)
        words = [sys.executable, str(HERE / "memory_worker.py"), system, str(job), str(database)]
        self.system = system
        self._process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8"
        )

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.stdin.close()  # type: ignore[union-attr]
            self._process.wait()

    def tell(self, what: str, **how: Any) -> dict[str, Any]:
        pipe, answers = self._process.stdin, self._process.stdout
        assert pipe and answers
        print(json.dumps({"do": what, **how}), file=pipe, flush=True)
        answer = answers.readline()
        if not answer:
            raise SystemExit(f"{self.system} stopped at {what!r}: see above")
        return json.loads(answer)


def write_job(folder: Path, corpus: corpora.Corpus, *, memories: int, queries: int) -> Path:
    """Texts, vectors and queries where the workers find them."""
    folder.mkdir(parents=True)
    whole = -(-memories // corpora.BLOCK) * corpora.BLOCK
    say(f"making {memories:,} memories…")
    made, vectors = corpora.records(corpus, 0, whole)
    with (folder / "texts.jsonl").open("w", encoding="utf-8") as out:
        for record in made[:memories]:
            print(json.dumps(record.content), file=out)
    np.save(folder / "vectors.npy", vectors[:memories])
    (folder / "queries.json").write_text(json.dumps(corpus.queries[:queries]), "utf-8")
    np.save(folder / "query_vectors.npy", corpus.query_vectors[:queries])
    return folder


# ---------------------------------------------------------------------- the two, in turns


def insert(
    workers: list[Process], what: str, *, last: int, turn: int, start: int = 0
) -> dict[str, Any]:
    """Milliseconds of every call and how many were created, per system."""
    done: dict[str, Any] = {w.system: {"ms": [], "created": 0} for w in workers}
    for first in range(start, last, turn):
        for worker in workers:
            given = worker.tell(what, first=first, last=min(first + turn, last))
            done[worker.system]["ms"] += given["ms"]
            done[worker.system]["created"] += given["created"]
        spent = ", ".join(f"{s} {sum(d['ms']) / 1e3:,.1f} s" for s, d in done.items())
        say(f"  {what} {min(first + turn, last):,} of {last:,}: {spent}")
    return done


def ask(workers: dict[str, Process], *, warmup: int, queries: int, what: str = "recall") -> Times:
    """Milliseconds of every recall, by the name a worker has here."""
    for worker in workers.values():
        worker.tell(what, first=0, last=warmup, k=K)
    times: Times = {name: [] for name in workers}
    for first in range(warmup, warmup + queries, ASKED):
        last = min(first + ASKED, warmup + queries)
        for name, worker in workers.items():
            given = worker.tell(what, first=first, last=last, k=K)
            if any(len(found) != K for found in given["found"]):
                raise SystemExit(f"{name} did not find {K} memories where there are more")
            times[name] += given["ms"]
    return times


def alternate(workers: list[Process], *, first: int, steps: int, query: int) -> dict[str, Times]:
    done: dict[str, Times] = {w.system: {"remember": [], "recall": []} for w in workers}
    for start in range(0, steps, ASKED):
        for worker in workers:
            span = {"first": first + start, "last": first + min(start + ASKED, steps)}
            given = worker.tell("alternate", **span, query=query + start, k=K)
            for what, ms in given.items():
                done[worker.system][what] += ms
    return done


def cold(job: Path, databases: dict[str, Path], *, runs: int, query: int) -> dict[str, Times]:
    """A new process each time: imports, opening, the first answer, and all of it by the wall."""
    done: dict[str, Times] = {
        system: {"import": [], "open": [], "first": [], "wall": []} for system in databases
    }
    for run in range(runs):
        for system, database in databases.items():
            begun = time.perf_counter()
            with Process(system, job, database) as worker:
                first = worker.tell("recall", first=query + run, last=query + run + 1, k=K)
                wall = (time.perf_counter() - begun) * 1e3
                opened = worker.tell("opened")
                worker.tell("close")
            done[system]["import"].append(opened["import_ms"])
            done[system]["open"].append(opened["open_ms"])
            done[system]["first"].append(opened["open_ms"] + first["ms"][0])
            done[system]["wall"].append(wall)
        say(f"  cold open, round {run + 1} of {runs}")
    return done


def compare(job: Path, work: Path, arguments: Any) -> dict[str, Any]:
    """Everything that is measured of both."""
    size, asked = arguments.memories, arguments.queries
    single = {system: work / system / "single" / "memory.db" for system in NAMES}
    bulk = {system: work / system / "bulk" / "memory.db" for system in NAMES}
    numbers: dict[str, Any] = {}
    workers = [Process(system, job, path) for system, path in single.items()]
    singles = min(arguments.singles or size, size)
    numbers["remember"] = insert(workers, "remember", last=singles, turn=TURN)
    insert(workers, "remember_many", start=singles, last=size, turn=BATCH)
    say("asking…")
    named = {worker.system: worker for worker in workers}
    numbers["recall"] = ask(named, warmup=arguments.warmup, queries=asked)
    query = arguments.warmup + asked
    numbers["alternate"] = alternate(workers, first=size, steps=arguments.steps, query=query)
    numbers["size"] = {worker.system: worker.tell("size") for worker in workers}
    _end(workers)
    workers = [Process(system, job, path) for system, path in bulk.items()]
    numbers["remember_many"] = insert(workers, "remember_many", last=size, turn=BATCH)
    _end(workers)
    numbers["cold"] = cold(job, bulk, runs=arguments.cold, query=query)
    return numbers


def _end(workers: list[Process]) -> None:
    for worker in workers:
        with worker:
            worker.tell("close")


def grow(job: Path, work: Path, arguments: Any) -> dict[str, Any]:
    """Clew alone: how recall changes with the number of memories."""
    sizes = {f"{n:,}": n for n in (arguments.memories, arguments.many)}
    workers = {
        name: Process("clew", job, work / "grown" / str(size) / "memory.db")
        for name, size in sizes.items()
    }
    numbers: dict[str, Any] = {"remember_many": {}}
    for name, size in sizes.items():
        done = insert([workers[name]], "remember_many", last=size, turn=BIG_BATCH)["clew"]
        done["ms"] += workers[name].tell("settle")["ms"]
        numbers["remember_many"][name] = done
    say("asking both…")
    numbers["recall"] = ask(workers, warmup=arguments.warmup, queries=arguments.queries)
    numbers["size"] = {name: worker.tell("size") for name, worker in workers.items()}
    _end(list(workers.values()))
    return numbers


def beside_engine(job: Path, work: Path, arguments: Any) -> dict[str, Any]:
    """A memory and an engine with the same in them, the searches after a bulk load."""
    workers = [Process(system, job, work / "beside" / system / "memory.db") for system in BESIDE]
    loaded = insert(workers, "remember_many", last=arguments.many, turn=BIG_BATCH)
    settled = workers[1].tell("settle")["ms"][0]
    say("asking both…")
    named = {worker.system: worker for worker in workers}
    asked = ask(named, warmup=0, queries=arguments.queries, what="hybrid")
    _end(workers)
    return {"load": loaded, "optimise_ms": settled, "ms": asked}


# ---------------------------------------------------------------------- tables


def tables(
    two: dict[str, Any], grown: dict[str, Any], beside: dict[str, Any], arguments: Any
) -> list[Table]:
    figures = [*_figures(two, grown), *_ratio(beside, arguments)]
    return [
        Table("Figures", ("figure", "measured", "wanted", "holds"), figures),
        *([_beside_each_other(two, arguments)] if two else ()),
        *([_as_it_grows(grown)] if grown else ()),
        *([_beside_engine(beside, arguments)] if beside else ()),
    ]


def _ratio(beside: dict[str, Any], arguments: Any) -> list[tuple[str, str, str, str]]:
    if not beside:
        return []
    mine, engine = (p(beside["ms"][system], 50) for system in BESIDE)
    what = f"Memory.hybrid_search / Engine.search, p50 at {arguments.many:,}"
    return [figure(what, f"{mine / engine:.2f} ×", "≤ 1.2 ×", mine <= 1.2 * engine)]


def _beside_engine(beside: dict[str, Any], arguments: Any) -> Table:
    rows = [
        (
            name,
            _rate(beside["load"][system]),
            *(p(beside["ms"][system], share) for share in (50, 95)),
        )
        for system, name in BESIDE.items()
    ]
    note = (
        f"{arguments.queries} queries in turns, right after the last batch of {BIG_BATCH:,}; the "
        f"engine's `optimise` took {beside['optimise_ms'] / 1e3:.2g} s."
    )
    columns = ("", "records/s of the load", "p50 ms", "p95 ms")
    return Table(f"Memory beside Engine, {arguments.many:,} records", columns, rows, note)


def _figures(two: dict[str, Any], grown: dict[str, Any]) -> list[tuple[str, str, str, str]]:
    rows: list[tuple[str, str, str, str]] = []
    if not two:
        return rows
    for what, name in (("remember", "one by one"), ("remember_many", f"{BATCH} at a time")):
        ratio = _rate(two[what]["clew"]) / _rate(two[what]["arriadne"])
        rows.append(figure(f"insert rate, {name}", f"{ratio:.3g} ×", "≥ 20 ×", ratio >= 20))
    recall = p(two["recall"]["arriadne"], 50) / p(two["recall"]["clew"], 50)
    rows.append(figure("recall p50", f"1/{recall:.3g}", "≤ 1/5", recall >= 5))
    for what, name in (("open", "cold open"), ("first", "cold open and the first recall")):
        ratio = p(two["cold"]["arriadne"][what], 50) / p(two["cold"]["clew"][what], 50)
        rows.append(figure(name, f"1/{ratio:.3g}", "≤ 1/10", ratio >= 10))
    if grown:
        (small, few), (large, many) = grown["recall"].items()
        ratio = p(many, 50) / p(few, 50)
        text = f"recall p50 at {large} against {small}"
        rows.append(figure(text, f"{ratio:.2f} ×", "≤ 3 ×", ratio <= 3))
    return rows


def _rate(done: dict[str, Any]) -> float:
    """Memories per second."""
    return done["created"] / (sum(done["ms"]) / 1e3)


def _beside_each_other(two: dict[str, Any], arguments: Any) -> Table:
    rows: list[tuple[Any, ...]] = []

    def row(what: str, clew: float, other: float, *, more: bool = False) -> None:
        times = clew / other if more else other / clew
        rows.append((what, clew, other, f"{times:.3g} ×"))

    def times(what: str, numbers: dict[str, Any]) -> None:
        for share in (50, 95):
            row(f"{what} p{share}, ms", *(p(numbers[system], share) for system in NAMES))

    for what in ("remember", "remember_many"):
        row(f"{what}, memories/s", *(_rate(two[what][s]) for s in NAMES), more=True)
    times("remember", {system: two["remember"][system]["ms"] for system in NAMES})
    times("recall", two["recall"])
    for what in ("remember", "recall"):
        name = f"{what} in turns with the other,"
        times(name, {system: two["alternate"][system][what] for system in NAMES})
    for what, name in (
        ("import", "imports"),
        ("open", "cold open"),
        ("first", "cold open and the first recall"),
        ("wall", "the whole process until then"),
    ):
        row(f"{name}, ms", *(p(two["cold"][system][what], 50) for system in NAMES))
    for what, name in (("disk_mb", "files, MB"), ("memory_mb", "memory, MB")):
        if all(two["size"][system][what] for system in NAMES):
            row(name, *(two["size"][system][what] for system in NAMES))
    given = len(two["remember"]["clew"]["ms"])
    kept = {system: two["remember"][system]["created"] for system in NAMES}
    note = (
        f"{arguments.queries} queries, {arguments.steps} turns, {arguments.cold} cold opens; "
        f"medians where nothing else is said. arriadne {version('arriadne')}. Of the first "
        f"{given:,} memories, given one by one, Clew kept {kept['clew']:,} as new and Ariadne "
        f"{kept['arriadne']:,}; it takes near-duplicates for the same."
    )
    columns = ("", "Clew", "Ariadne", "Clew is better by")
    return Table(f"{arguments.memories:,} memories", columns, rows, note)


def _as_it_grows(grown: dict[str, Any]) -> Table:
    rows = []
    for name, ms in grown["recall"].items():
        size = grown["size"][name]
        rate = _rate(grown["remember_many"][name])
        rows.append((name, rate, p(ms, 50), p(ms, 95), size["disk_mb"], size["memory_mb"]))
    columns = ("memories", "remember_many, per s", "recall p50 ms", "p95", "files MB", "memory MB")
    return Table("Clew, as it grows", columns, rows, f"{BIG_BATCH:,} at a time.")


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--memories", type=int, default=5_000, help="for both (default 5,000)")
    parser.add_argument(
        "--singles",
        type=int,
        default=0,
        help="only the first so many one by one, the others at once (default: all; half an hour)",
    )
    parser.add_argument("--many", type=int, default=200_000, help="for Clew alone (0: leave out)")
    parser.add_argument("--queries", type=int, default=300, help="timed ones (default 300)")
    parser.add_argument("--warmup", type=int, default=50, help="queries before them (default 50)")
    parser.add_argument("--steps", type=int, default=100, help="remember, then recall (100)")
    parser.add_argument("--cold", type=int, default=5, help="processes of each (default 5)")
    parser.add_argument("--engine", action="store_true", help="only Memory beside Engine")
    arguments = parser.parse_args()
    corpus = corpora.load(arguments.data)
    needed = arguments.warmup + arguments.queries + max(arguments.steps, arguments.cold)
    if needed > len(corpus.queries):
        raise SystemExit(f"there are {len(corpus.queries):,} queries: ask for fewer")
    with TemporaryDirectory(dir=arguments.work, ignore_cleanup_errors=True) as work:
        folder = Path(work)
        most = max(arguments.memories + arguments.steps, arguments.many)
        job = write_job(folder / "job", corpus, memories=most, queries=needed)
        two = {} if arguments.engine else compare(job, folder, arguments)
        grown = grow(job, folder, arguments) if arguments.many and two else {}
        beside = beside_engine(job, folder, arguments) if arguments.many else {}
    numbers = {"memories": arguments.memories, "two": two, "grown": grown, "beside": beside}
    publish("Memory", __doc__, tables(two, grown, beside, arguments), numbers, arguments)


if __name__ == "__main__":
    main()
