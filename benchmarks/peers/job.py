"""What a peer is asked to do, and how its answers come back. Standard library and numpy only.

Each peer_*.py runs in an environment of its own, with the job's folder as its only argument:

- job.json: k, modes, warmup, patience, target (see Job), and where to keep the index.
- texts.jsonl: id, text, scope, title. vectors.npy: a row for each.
- queries.jsonl: id, text, scope. query_vectors.npy: a row for each.
- tokens.npz and query_tokens.npz, where late interaction is asked for: the rows of all, a row for
  each token, and how many each text or query has.

It leaves built.json (versions, seconds) when its index stands, answers.jsonl (mode, id, ids, ms)
line by line, and done.json (memory, disk, notes) when all is answered.
"""

from __future__ import annotations

import ctypes
import gc
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

OVERFETCH = 10
"""How many times k a system without filters is asked for, to be filtered afterwards."""


@dataclass(frozen=True)
class Text:
    id: str
    text: str
    scope: str
    title: str = ""
    """What the text begins with, where it has a title: for systems that have a field for it."""


@dataclass(frozen=True)
class Query:
    id: str
    text: str
    scope: str
    """Empty: search everything."""
    vector: Any
    tokens: Any = None
    """A row for each token, where the job has them."""


Ask = Callable[[Query], Iterable[str]]
"""The ids of the best k, best first."""


@dataclass
class Job:
    folder: Path
    k: int
    modes: list[str]
    warmup: int
    """The first so many queries are asked, but not noted."""
    patience: float
    """Seconds after which a mode's answering stops, finished or not."""
    target: float | None
    """The vector recall to tune for, where a system has a knob for it. None: leave it alone."""
    index: Path
    notes: list[str] = field(default_factory=list)
    tuning: float = 0.0
    """Seconds spent on finding a setting, which are not part of loading."""

    @classmethod
    def read(cls, folder: Path) -> Job:
        given = json.loads((folder / "job.json").read_text("utf-8"))
        return cls(folder, **{**given, "index": Path(given["index"])})

    def texts(self) -> Iterator[Text]:
        with (self.folder / "texts.jsonl").open(encoding="utf-8") as lines:
            yield from (Text(**json.loads(line)) for line in lines)

    def batches(self, size: int) -> Iterator[tuple[list[Text], Any]]:
        """Texts with their vectors, `size` at a time."""
        some: list[Text] = []
        first = 0
        for text in self.texts():
            some.append(text)
            if len(some) == size:
                yield some, np.array(self.vectors[first : first + size])
                first += size
                some = []
        if some:
            yield some, np.array(self.vectors[first:])

    def tokens(self, name: str = "tokens") -> list[Any] | None:
        """A matrix for each text, a row for each token; None: the job has none."""
        file = self.folder / f"{name}.npz"
        if not file.exists():
            return None
        with np.load(file) as arrays:
            return np.split(arrays["rows"], np.cumsum(arrays["lengths"])[:-1])

    @cached_property
    def vectors(self) -> Any:
        return np.load(self.folder / "vectors.npy", mmap_mode="r")

    @cached_property
    def queries(self) -> list[Query]:
        rows = np.load(self.folder / "query_vectors.npy")
        tokens = self.tokens("query_tokens") or [None] * len(rows)
        with (self.folder / "queries.jsonl").open(encoding="utf-8") as lines:
            return [
                Query(**json.loads(line), vector=row, tokens=each)
                for line, row, each in zip(lines, rows, tokens, strict=True)
            ]

    @cached_property
    def ids(self) -> list[str]:
        return [text.id for text in self.texts()]

    @cached_property
    def scoped(self) -> bool:
        return any(query.scope for query in self.queries)

    @cached_property
    def _scopes(self) -> dict[str, str]:
        return {text.id: text.scope for text in self.texts()}

    def depth(self, query: Query) -> int:
        """How many a system that cannot filter is to be asked for."""
        return self.k * (OVERFETCH if query.scope else 1)

    def within(self, ids: Iterable[str], query: Query) -> list[str]:
        """The best k of the query's scope, for a system that cannot filter."""
        if query.scope:
            ids = (found for found in ids if self._scopes[found] == query.scope)
        return list(ids)[: self.k]

    def by_text(self) -> dict[str, Any]:
        """Vectors by query text, for systems that want a function from text to vector."""
        return {query.text: query.vector for query in self.queries}

    def tune(self, settings: Sequence[Any], ask: Callable[[Query, Any], Iterable[str]]) -> Any:
        """The first setting whose vector answers to the warm-up queries reach the target; else the
        best. The first one where there is no target."""
        if self.target is None or not self.warmup:
            return settings[0]
        begun = time.perf_counter()
        queries = self.queries[: self.warmup]
        rows = np.stack([query.vector for query in queries])
        best = np.argsort(-(self.vectors @ rows.T), axis=0)[: self.k].T
        truth = [{self.ids[place] for place in places} for places in best]
        recalls = []
        for setting in settings:
            found = [set(list(ask(query, setting))[: self.k]) for query in queries]
            recalls.append(
                np.mean([len(f & t) / self.k for f, t in zip(found, truth, strict=True)])
            )
            if recalls[-1] >= self.target:
                break
        chosen = settings[int(np.argmax(recalls))]
        self.notes.append(f"tuned on the warm-up queries: {chosen}, recall {max(recalls):.3f}")
        self.tuning += time.perf_counter() - begun
        return chosen


def run(build: Callable[[Job], dict[str, Ask]], *, packages: Sequence[str]) -> None:
    """Build, then answer in each mode the job names and the system has."""
    if len(sys.argv) != 2:
        raise SystemExit(
            "usage: peer_….py JOB_FOLDER (benchmarks/quality.py and speed.py make one)"
        )
    job = Job.read(Path(sys.argv[1]))
    job.index.mkdir(parents=True)
    begun = time.perf_counter()
    asks = build(job)
    built = {
        "seconds": time.perf_counter() - begun - job.tuning,
        "versions": {name: version(name) for name in packages},
        "modes": list(asks),
    }
    _write(job.folder / "built.json", built)
    _let_go()
    with (job.folder / "answers.jsonl").open("w", encoding="utf-8") as out:
        for mode in job.modes:
            if mode in asks:
                _answer(job, mode, asks[mode], out)
    done = {"memory": _memory_mb(), "disk_mb": _megabytes(job.index), "notes": job.notes}
    _write(job.folder / "done.json", done)


def _answer(job: Job, mode: str, ask: Ask, out: Any) -> None:
    stop = time.monotonic() + job.patience
    for number, query in enumerate(job.queries):
        begun = time.perf_counter()
        ids = list(ask(query))[: job.k]
        ms = (time.perf_counter() - begun) * 1e3
        if number >= job.warmup:
            print(json.dumps({"mode": mode, "id": query.id, "ids": ids, "ms": ms}), file=out)
        if time.monotonic() > stop and number + 1 < len(job.queries):
            asked = max(number + 1 - job.warmup, 0)
            job.notes.append(f"{mode}: {asked} queries in {job.patience:.0f} s, then stopped")
            break
    out.flush()


def _let_go() -> None:
    """Give back what building left behind, so that memory is about searching."""
    gc.collect()
    if sys.platform == "linux":
        ctypes.CDLL("libc.so.6").malloc_trim(0)


def _memory_mb() -> dict[str, float]:
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return {}
    fields = dict(line.split(":", 1) for line in lines)
    return {name: int(fields[name].split()[0]) / 1024 for name in ("VmRSS", "RssAnon")}


def _megabytes(folder: Path) -> float:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6


def _write(path: Path, value: Any) -> None:
    draft = path.with_suffix(".tmp")
    draft.write_text(json.dumps(value), "utf-8")
    draft.replace(path)
