"""One memory in a process of its own, for memory.py: told by lines of JSON what to do next.

    python benchmarks/memory_worker.py SYSTEM JOB_FOLDER DATABASE

SYSTEM is clew, engine or arriadne. The job's folder has texts.jsonl, vectors.npy, queries.json and
query_vectors.npy. Each line on stdin is {"do": name, …}; the answer is a line on stdout. Times are
taken here, around the call and nothing else, so that talking about it costs nobody anything.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import sys
import time
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np


class Job:
    """What is remembered and asked."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.query_vectors = np.load(folder / "query_vectors.npy")
        self.queries: list[str] = json.loads((folder / "queries.json").read_text("utf-8"))

    @cached_property
    def texts(self) -> list[str]:
        with (self.folder / "texts.jsonl").open(encoding="utf-8") as lines:
            return [json.loads(line) for line in lines]

    @cached_property
    def vectors(self) -> Any:
        return np.load(self.folder / "vectors.npy", mmap_mode="r")


class Remembers:
    """The names that `clew.Memory` and `AriadneMemory` have in common."""

    memory: Any

    def remember(self, text: str, row: Any) -> bool:
        return self.memory.remember(text, embedding=row)["status"] == "created"

    def remember_many(self, items: list[dict[str, Any]]) -> int:
        return sum(each["status"] == "created" for each in self.memory.remember_many(items))

    def recall(self, text: str, row: Any, k: int) -> list[str]:
        return [hit["content"] for hit in self.memory.recall(text, embedding=row, k=k)]


class Clew(Remembers):
    """`clew.Memory` from this checkout, as it comes."""

    def __init__(self, database: Path, dim: int):
        import clew

        self.imported = time.perf_counter()
        self.memory = clew.Memory(str(database), embedding_dim=dim)

    def hybrid(self, text: str, row: Any, k: int) -> list[str]:
        return [hit["content"] for hit in self.memory.hybrid_search(text, row, k=k)]

    def settle(self) -> None:
        self.memory.optimise()


class Engine:
    """`clew.Engine`, the same texts and vectors as records."""

    def __init__(self, database: Path, dim: int):
        import clew

        self.imported = time.perf_counter()
        self.memory = clew.open(database.parent, model="none")
        self._count = 0

    def remember_many(self, items: list[dict[str, Any]]) -> int:
        records = [
            {"id": str(number), "content": item["content"]}
            for number, item in enumerate(items, self._count)
        ]
        self._count += len(items)
        return len(self.memory.add(records, vectors=[item["embedding"] for item in items]))

    def hybrid(self, text: str, row: Any, k: int) -> list[str]:
        found = self.memory.search(text, vector=row, limit=k, syntax=False, cache=False)
        return [hit.content for hit in found]

    def settle(self) -> None:
        self.memory.optimise()


class Ariadne(Remembers):
    """`AriadneMemory`, as its README uses it."""

    def __init__(self, database: Path, dim: int):
        from arriadne import AriadneMemory

        self.imported = time.perf_counter()
        self.memory = AriadneMemory(db_path=str(database), embedding_dim=dim)

    def settle(self) -> None:
        """It makes its index as it goes."""


class Worker:
    """What it can be told to do."""

    def __init__(self, system: type[Clew | Engine | Ariadne], job: Job, database: Path):
        self.job, self.database = job, database
        begun = time.perf_counter()
        self.system = system(database, int(job.query_vectors.shape[1]))
        self.importing = (self.system.imported - begun) * 1e3
        self.opening = (time.perf_counter() - self.system.imported) * 1e3

    def opened(self) -> dict[str, Any]:
        return {"import_ms": self.importing, "open_ms": self.opening}

    def remember(self, *, first: int, last: int) -> dict[str, Any]:
        """One by one."""
        texts, rows = self.job.texts[first:last], np.array(self.job.vectors[first:last])
        ms, created = [], 0
        for text, row in zip(texts, rows, strict=True):
            taken, made = _timed(lambda text=text, row=row: self.system.remember(text, row))
            ms.append(taken)
            created += made
        return {"ms": ms, "created": created}

    def remember_many(self, *, first: int, last: int) -> dict[str, Any]:
        """All at once."""
        texts, rows = self.job.texts[first:last], np.array(self.job.vectors[first:last])
        items = [{"content": t, "embedding": row} for t, row in zip(texts, rows, strict=True)]
        taken, created = _timed(lambda: self.system.remember_many(items))
        return {"ms": [taken], "created": created}

    def recall(self, *, first: int, last: int, k: int) -> dict[str, Any]:
        return self._ask(self.system.recall, first, last, k)

    def hybrid(self, *, first: int, last: int, k: int) -> dict[str, Any]:
        return self._ask(self.system.hybrid, first, last, k)

    def _ask(self, ask: Callable[..., list[str]], first: int, last: int, k: int) -> dict[str, Any]:
        ms, found = [], []
        for text, row in zip(
            self.job.queries[first:last], self.job.query_vectors[first:last], strict=True
        ):
            taken, contents = _timed(lambda text=text, row=row: ask(text, row, k))
            ms.append(taken)
            found.append(contents)
        return {"ms": ms, "found": found}

    def alternate(self, *, first: int, last: int, query: int, k: int) -> dict[str, Any]:
        """A memory, a question, the next memory: what an agent does in a conversation."""
        times: dict[str, list[float]] = {"remember": [], "recall": []}
        for number in range(first, last):
            times["remember"] += self.remember(first=number, last=number + 1)["ms"]
            asked = query + number - first
            times["recall"] += self.recall(first=asked, last=asked + 1, k=k)["ms"]
        return times

    def settle(self) -> dict[str, Any]:
        """The end of a bulk load: what would otherwise be done in the background is done now."""
        return {"ms": [_timed(self.system.settle)[0]]}

    def size(self) -> dict[str, Any]:
        gc.collect()
        if sys.platform == "linux":
            ctypes.CDLL("libc.so.6").malloc_trim(0)
        # Its folder holds nothing but the database and what belongs to it.
        files = [file for file in self.database.parent.rglob("*") if file.is_file()]
        return {"disk_mb": sum(f.stat().st_size for f in files) / 1e6, "memory_mb": _memory_mb()}

    def close(self) -> dict[str, Any]:
        taken, _ = _timed(self.system.memory.close)
        return {"ms": [taken]}


def _timed(step: Callable[[], Any]) -> tuple[float, Any]:
    begun = time.perf_counter()
    done = step()
    return (time.perf_counter() - begun) * 1e3, done


def _memory_mb() -> float | None:
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return None
    return next((int(x.split()[1]) / 1024 for x in lines if x.startswith("VmRSS")), None)


def main() -> None:
    if len(sys.argv) != 4:
        raise SystemExit(__doc__)
    # Whatever a library prints must not get between the answers.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    job = Job(Path(sys.argv[2]))
    system = {"clew": Clew, "engine": Engine, "arriadne": Ariadne}[sys.argv[1]]
    worker = Worker(system, job, Path(sys.argv[3]))
    for line in sys.stdin:
        told = json.loads(line)
        done = getattr(worker, told.pop("do"))(**told)
        print(json.dumps(done), file=answers, flush=True)


if __name__ == "__main__":
    main()
