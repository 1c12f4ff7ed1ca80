"""What opening a store costs: time and resident memory, in a process that does nothing else.

    python benchmarks/probe.py STORE [QUERIES.npz]

STORE is a folder with a `.clew` inside; the file of queries has `texts` and `vectors`. Prints JSON:
after importing, after opening, after the first query and after all. Resident memory counts the
mapped pages of files that were touched, which the system takes back when it needs them; RssAnon is
what the process really holds.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import clew


def probe(store: Path, texts: Sequence[str], vectors: Any) -> dict[str, Any]:
    """What it prints of a store and these queries."""
    import numpy as np

    with TemporaryDirectory() as folder:
        queries = Path(folder) / "queries.npz"
        np.savez(queries, texts=np.array(texts), vectors=vectors)
        command = [sys.executable, __file__, str(store), str(queries)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
    return dict(json.loads(done.stdout))


def main() -> None:
    if len(sys.argv) not in (2, 3) or sys.argv[1] in ("-h", "--help"):
        print(__doc__)
        raise SystemExit(0 if "-h" in sys.argv or "--help" in sys.argv else 2)
    report: dict[str, Any] = {"import": memory_mb()}
    begun = time.perf_counter()
    with clew.open(sys.argv[1], create=False, cache=False) as engine:
        report["open_ms"] = (time.perf_counter() - begun) * 1e3
        report["open"] = memory_mb()
        if len(sys.argv) == 3:
            report |= queried(engine, Path(sys.argv[2]))
    print(json.dumps(report))


def queried(engine: clew.Engine, file: Path) -> dict[str, Any]:
    import numpy as np  # only now: it would count as part of opening

    with np.load(file) as arrays:
        texts, vectors = arrays["texts"].tolist(), arrays["vectors"]
    times = []
    report: dict[str, Any] = {}
    for text, vector in zip(texts, vectors, strict=True):
        begun = time.perf_counter()
        engine.search(text, vector=vector)
        times.append((time.perf_counter() - begun) * 1e3)
        report.setdefault("first", memory_mb())
    return report | {"first_ms": times[0], "all": memory_mb(), "queries": len(times)}


def memory_mb() -> dict[str, float]:
    """VmRSS and RssAnon from /proc: Linux only."""
    lines = Path("/proc/self/status").read_text().splitlines()
    fields = dict(line.split(":", 1) for line in lines)
    return {name: int(fields[name].split()[0]) / 1024 for name in ("VmRSS", "RssAnon")}


if __name__ == "__main__":
    main()
