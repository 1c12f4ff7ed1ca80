"""Many processes and threads that recall from and write to one memory at the same time.

    python benchmarks/concurrency.py --out docs/benchmarks/concurrency.md

By default 4 processes of 8 threads each share one file of 5,000 memories for a minute. Every thread
takes turns: a recall (top 10, the query's vector given, so that no model's time counts), which also
counts an access, a random pause, a write of one memory with its vector, a random pause. One write
in five replaces a memory of the thread's own; one recall in five asks for what the thread wrote
last, and must find it.

The pauses keep two cores from being simply overrun (`--pause`; the load is said in the table).

- Before that the same threads run as long with pauses in the place of writes: what their searches
  take is what the machine's cores allow, and what is more than that is due to the writes.
- Errors are exceptions, answers with something `degraded`, and own writes not found at once.
- Lost writes are records that are, in the end, not there as last acknowledged, or not found by
  their words or by their vector.
- Alternating: one thread that writes one record and searches once, in turns, against a search
  with nothing written in between. With a filter the search asks for a hundredth of the records.

Texts and vectors are made from real ones (see corpus.py).
"""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import numpy.typing as npt

import clew

import corpus as corpora
from report import Table, figure, options, p, publish, say

FRESH = 1_000_000
"""The first record that is written while measuring: a block that no store is filled with."""
REPLACED = OWN = 0.2
ALTERNATIONS = 300


class Door:
    """All that is asked of a memory here, in one place."""

    def __init__(self, folder: Path):
        folder.mkdir(exist_ok=True)
        self._memory = clew.Memory(folder / "memory.db")

    def fill(self, records: list[clew.Record], vectors: npt.NDArray[np.float32]) -> None:
        self._memory.remember_many(
            {"id": r.id, "content": r.content, "metadata": r.metadata, "embedding": row}
            for r, row in zip(records, vectors, strict=True)
        )

    def settle(self) -> None:
        self._memory.optimise()

    def write(
        self,
        name: str,
        text: str,
        vector: npt.NDArray[np.float32],
        bucket: int,
        *,
        known: bool = False,
    ) -> None:
        """A memory, or another text for one that is there."""
        said = {"metadata": {"bucket": bucket}, "embedding": vector}
        if known:
            self._memory.update(name, text, **said)
        else:
            self._memory.remember(text, id=name, **said)

    def read(
        self, text: str, vector: npt.NDArray[np.float32], *, bucket: int | None = None
    ) -> tuple[list[str], tuple[str, ...]]:
        """The ids found, and what the answer lacks."""
        kept = None if bucket is None else {"bucket": bucket}
        found = self._memory.recall(text, vector, k=10, metadata=kept)
        return [memory.id for memory in found], found.diagnostics["degraded"]

    def kept(self, name: str, text: str, word: str, vector: npt.NDArray[np.float32]) -> bool:
        """Whether a memory is there as written, and found by its word and by its vector."""
        memory = self._memory.get(name)
        found = (*self._memory.fts_search(word, k=1), *self._memory.vector_search(vector, k=1))
        return (
            memory is not None
            and memory.content == text.strip()
            and [one.id for one in found] == [name, name]
        )

    def close(self) -> None:
        self._memory.close()


# ---------------------------------------------------------------------- what is written and asked


@dataclass(frozen=True, slots=True)
class Material:
    """Texts to write and queries to ask, with their vectors."""

    texts: list[str]
    vectors: npt.NDArray[np.float32]
    queries: list[str]
    query_vectors: npt.NDArray[np.float32]

    def save(self, folder: Path) -> None:
        words = {"texts": self.texts, "queries": self.queries}
        (folder / "material.json").write_text(json.dumps(words), "utf-8")
        np.savez(folder / "material.npz", vectors=self.vectors, query_vectors=self.query_vectors)

    @classmethod
    def load(cls, folder: Path) -> Material:
        words = json.loads((folder / "material.json").read_text("utf-8"))
        with np.load(folder / "material.npz") as arrays:
            return cls(words["texts"], arrays["vectors"], words["queries"], arrays["query_vectors"])


_LETTERS = str.maketrans("0123456789-", "abcdefghijk")


def own_word(name: str, version: int) -> str:
    """One that no other record has, nor an earlier version of this one."""
    return f"zq{name}k{version}".translate(_LETTERS)


def version_of(
    material: Material, name: str, version: int, number: int
) -> tuple[str, npt.NDArray[np.float32]]:
    """The text and the vector that a record has in this version: like no other's."""
    at = number % len(material.texts)
    noise = np.random.default_rng((version, *name.encode())).standard_normal(384)
    row = material.vectors[at] + 0.2 * noise.astype(np.float32) / np.sqrt(384)
    return f"{material.texts[at]} {own_word(name, version)}", row / np.linalg.norm(row)


# ---------------------------------------------------------------------- threads and processes


@dataclass(slots=True)
class Log:
    """What one thread did."""

    reads: list[float] = field(default_factory=list)
    writes: list[float] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    versions: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Acknowledged: name → (version, number of its text)."""


def take_turns(
    door: Door, material: Material, name: str, seconds: float, pause: float, *, writing: bool
) -> Log:
    """One thread's life."""
    rng = random.Random(name)
    log, last, end = Log(), "", time.perf_counter() + seconds
    number = rng.randrange(len(material.texts))

    def rest() -> None:
        time.sleep(rng.uniform(0, 2 * pause))

    def read() -> None:
        at = rng.randrange(len(material.queries))
        text, vector, own = material.queries[at], material.query_vectors[at], ""
        if last and rng.random() < OWN:
            version, of = log.versions[last]
            own, vector = last, version_of(material, last, version, of)[1]
            text = own_word(last, version)
        begun = time.perf_counter()
        found, degraded = door.read(text, vector)
        log.reads.append((time.perf_counter() - begun) * 1e3)
        log.errors.extend(degraded)
        if own and own not in found:
            log.errors.append(f"{own}: written and not found")

    def write() -> None:
        nonlocal last, number
        number += 1
        again = log.versions and rng.random() < REPLACED
        one = rng.choice(list(log.versions)) if again else f"{name}-{number}"
        version = log.versions[one][0] + 1 if one in log.versions else 0
        text, vector = version_of(material, one, version, number)
        begun = time.perf_counter()
        door.write(one, text, vector, number % 100, known=bool(version))
        log.writes.append((time.perf_counter() - begun) * 1e3)
        log.versions[one] = version, number
        last = one

    rest()
    while time.perf_counter() < end:
        for step in (read, write) if writing else (read,):
            try:
                step()
            except Exception as error:  # whatever it is, it counts
                log.errors.append(f"{type(error).__name__}: {error}")
            rest()
        if not writing:
            rest()
    return log


def work(folder: str, name: str, plan: dict[str, Any], gate: Any, results: Any) -> None:
    """One process: opens the store, and lets its threads go when all processes are ready."""
    material = Material.load(Path(folder))
    door = Door(Path(folder) / "store")
    door.read(material.queries[0], material.query_vectors[0])

    def live(thread: int) -> Log:
        return take_turns(
            door,
            material,
            f"{name}-{thread}",
            plan["seconds"],
            plan["pause"],
            writing=plan["writing"],
        )

    with ThreadPoolExecutor(plan["threads"]) as threads:
        gate.wait()
        used = time.process_time()
        logs = list(threads.map(live, range(plan["threads"])))
        used = time.process_time() - used
    door.close()
    results.put((used, logs))


def run(folder: Path, arguments: Any, *, writing: bool) -> dict[str, Any]:
    """All processes once; what they did together."""
    context = multiprocessing.get_context("spawn")
    gate, results = context.Barrier(arguments.processes), context.Queue()
    plan = {
        "seconds": arguments.seconds,
        "pause": arguments.pause / 1e3,
        "threads": arguments.threads,
        "writing": writing,
    }
    processes = [
        context.Process(target=work, args=(str(folder), f"p{i}", plan, gate, results))
        for i in range(arguments.processes)
    ]
    for process in processes:
        process.start()
    done = [results.get() for _ in processes]
    for process in processes:
        process.join()
    logs = [log for _, some in done for log in some]
    return {
        "reads": [ms for log in logs for ms in log.reads],
        "writes": [ms for log in logs for ms in log.writes],
        "errors": [error for log in logs for error in log.errors],
        "versions": {name: at for log in logs for name, at in log.versions.items()},
        "cores": sum(used for used, _ in done) / arguments.seconds,
    }


def lost(folder: Path, material: Material, versions: dict[str, tuple[int, int]]) -> list[str]:
    """Acknowledged records that are not there as written."""
    door, missing = Door(folder / "store"), []
    for name, (version, number) in versions.items():
        text, vector = version_of(material, name, version, number)
        if not door.kept(name, text, own_word(name, version), vector):
            missing.append(name)
    door.close()
    return missing


# ---------------------------------------------------------------------- one thread


def alternate(folder: Path, material: Material) -> dict[str, list[float]]:
    """Times of one thread that writes and searches in turns."""
    door = Door(folder / "store")
    times: dict[str, list[float]] = {}

    def timed(what: str, step: Callable[[], Any]) -> None:
        begun = time.perf_counter()
        step()
        times.setdefault(what, []).append((time.perf_counter() - begun) * 1e3)

    def search(number: int, bucket: int | None = None) -> None:
        at = number % len(material.queries)
        door.read(material.queries[at], material.query_vectors[at], bucket=bucket)

    for number in range(50):  # warm
        search(number)
    for bucket, filtered in ((None, ""), (7, ", with a filter")):
        for number in range(100):
            timed(f"search, nothing written{filtered}", lambda n=number, b=bucket: search(n, b))
        for number in range(ALTERNATIONS):
            name = f"alone{filtered[-6:]}-{number}"
            text, vector = version_of(material, name, 0, number)
            timed("write", lambda w=(name, text, vector, number % 10): door.write(*w))
            timed(f"search after a write{filtered}", lambda n=number, b=bucket: search(n, b))
    door.close()
    return times


# ---------------------------------------------------------------------- tables


def tables(result: dict[str, Any], arguments: Any) -> list[Table]:
    alone, both = result["alone"], result["both"]
    many = f"{arguments.processes} processes × {arguments.threads} threads"
    calm, busy = p(alone["reads"], 99), p(both["reads"], 99)
    errors = len(alone["errors"]) + len(both["errors"])
    figures = [
        figure("errors", f"{errors}", "0", not errors),
        figure("lost writes", f"{len(result['lost'])}", "0", not result["lost"]),
        figure("a read, p99, beside writes", f"{busy:.1f} ms", "≤ 100 ms", busy <= 100),
        figure("of it due to writes", f"{busy - calm:.1f} ms", "≤ 100 ms", busy - calm <= 100),
    ]
    rows = [
        (what, len(ms), *(p(ms, share) for share in (50, 95, 99, 100)))
        for what, ms in (
            ("reads, no writes", alone["reads"]),
            ("reads beside writes", both["reads"]),
            ("writes", both["writes"]),
        )
        if ms
    ]
    note = (
        f"{many}, {arguments.seconds:g} s, from {arguments.records:,} records on, pauses of "
        f"{arguments.pause:g} ms on average. CPU: {alone['cores']:.2f} of {os.cpu_count()} cores "
        f"without writes, {both['cores']:.2f} with them."
    )
    ways = [
        (f"{size:,}", what, len(ms), *(p(ms, share) for share in (50, 95, 99)), float(np.mean(ms)))
        for size, times in result["alternating"].items()
        for what, ms in times.items()
    ]
    timing = ("p50 ms", "p95 ms", "p99 ms")
    return [
        Table("Figures", ("figure", "measured", "wanted", "holds"), figures),
        Table("Reads and writes at once", ("what", "done", *timing, "max ms"), rows, note),
        Table("One thread, in turns", ("records", "what", "done", *timing, "mean ms"), ways),
    ]


def prepare(folder: Path, corpus: corpora.Corpus, size: int) -> Material:
    """A store of `size` records, and what is written to it and asked of it later."""
    say(f"loading {size:,} records…")
    door = Door(folder / "store")
    for first in range(0, size, corpora.BLOCK):
        some, vectors = corpora.records(corpus, first, first + corpora.BLOCK)
        door.fill(some[: size - first], vectors[: size - first])
    door.settle()
    door.close()
    some, vectors = corpora.records(corpus, FRESH, FRESH + corpora.BLOCK)
    texts = [record.content for record in some]
    material = Material(texts, vectors, corpus.queries, corpus.query_vectors)
    material.save(folder)
    return material


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--processes", type=int, default=4, help="how many (default 4)")
    parser.add_argument("--threads", type=int, default=8, help="in each process (default 8)")
    parser.add_argument("--seconds", type=float, default=60, help="of each run (default 60)")
    parser.add_argument("--records", type=int, default=5_000, help="to begin with (default 5,000)")
    parser.add_argument(
        "--pause", type=float, default=100, help="between steps, mean milliseconds (default 100)"
    )
    parser.add_argument(
        "--alternate",
        type=int,
        nargs="*",
        default=[5_000, 100_000],
        help="sizes at which one thread writes and searches in turns (default 5,000 and 100,000)",
    )
    arguments = parser.parse_args()
    corpus = corpora.load(arguments.data)
    result: dict[str, Any] = {"alternating": {}}
    with TemporaryDirectory(dir=arguments.work, ignore_cleanup_errors=True) as work_folder:
        folder = Path(work_folder)
        material = prepare(folder, corpus, arguments.records)
        say("reading…")
        result["alone"] = run(folder, arguments, writing=False)
        say("reading and writing…")
        result["both"] = run(folder, arguments, writing=True)
        versions = result["both"].pop("versions")
        say(f"looking for {len(versions):,} records…")
        result["lost"] = lost(folder, material, versions)
        del result["alone"]["versions"]
    for size in arguments.alternate:
        with TemporaryDirectory(dir=arguments.work, ignore_cleanup_errors=True) as work_folder:
            material = prepare(Path(work_folder), corpus, size)
            say("alternating…")
            result["alternating"][size] = alternate(Path(work_folder), material)
    publish("Many at once", __doc__, tables(result, arguments), result, arguments)
    for error, count in _counted(result["alone"]["errors"] + result["both"]["errors"]):
        say(f"{count} × {error}")


def _counted(errors: list[str]) -> list[tuple[str, int]]:
    return sorted({error: errors.count(error) for error in errors}.items(), key=lambda e: -e[1])


if __name__ == "__main__":
    main()
