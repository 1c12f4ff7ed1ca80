"""How long a command takes to answer, from nothing.

    python benchmarks/startup.py --runs 20 --out docs/benchmarks/startup.md

The bundled sample folder is copied and indexed (with vectors, if the default model is here). Then
fresh processes take turns, so that whatever else the machine does hits all of them alike:

- `clew search` with a query, hybrid, as it comes: it loads the model and embeds the query, and does
  not answer from what it kept (`--no-cache`).
- `python -c "import numpy, faiss, tantivy, onnxruntime"`: what the parts cost by themselves.
- `python -c "import clew"` and `python -c pass`.

Medians of wall time after warm-up runs; compiled .pyc files are there for all of them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from report import REPOSITORY, Table, figure, options, p, publish, say

QUERY = "electric fuse keeps blowing"
PARTS = "import numpy, faiss, tantivy, onnxruntime"
IMPORT = "import time; t = time.perf_counter(); import clew; print(time.perf_counter() - t)"


def prepare(folder: Path, sample: Path) -> None:
    """A copy of the sample folder with an index in it."""
    shutil.copytree(sample, folder, ignore=shutil.ignore_patterns(".clew"))
    say("indexing a copy of the sample folder…")
    run([*command(), "index", str(folder), "--quiet"])


def command() -> list[str]:
    """`clew` as it is installed beside this Python; else as a module."""
    script = Path(sys.executable).with_name("clew")
    return [str(script)] if script.exists() else [sys.executable, "-m", "clew"]


def run(words: list[str], *, folder: Path | None = None) -> str:
    # Without .pyc files every run would compile; a shell that forbids them must not decide this.
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(
        words, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(words)}\n{done.stderr}")
    return done.stdout


def measure(folder: Path, *, runs: int, warmup: int) -> dict[str, list[float]]:
    """Milliseconds of each run of each command, and of `import clew` by its own clock."""
    python = sys.executable
    commands = {
        "clew search": [*command(), "search", "--no-cache", QUERY],
        "clew search --mode keyword": [
            *command(),
            "search",
            "--no-cache",
            QUERY,
            "--mode",
            "keyword",
        ],
        f'python -c "{PARTS}"': [python, "-c", PARTS],
        "import clew, the process": [python, "-c", "import clew"],
        "python -c pass": [python, "-c", "pass"],
    }
    times: dict[str, list[float]] = {name: [] for name in [*commands, "import clew, by itself"]}
    for number in range(warmup + runs):
        for name, words in commands.items():
            begun = time.perf_counter()
            run(words, folder=folder)
            times[name].append((time.perf_counter() - begun) * 1e3)
        times["import clew, by itself"].append(float(run([python, "-c", IMPORT])) * 1e3)
        say(f"  round {number + 1} of {warmup + runs}" + (" (warm-up)" * (number < warmup)))
    return {name: ms[warmup:] for name, ms in times.items()}


def tables(times: dict[str, list[float]]) -> list[Table]:
    median = {name: p(ms, 50) for name, ms in times.items()}
    parts = median[f'python -c "{PARTS}"']
    ratio = median["clew search"] / parts
    alone = median["import clew, by itself"]
    figures = [
        figure("clew search against importing its parts", f"{ratio:.2f} ×", "< 1.4 ×", ratio < 1.4),
        figure("import clew", f"{alone:.0f} ms", "< 100 ms", alone < 100),
    ]
    rows = [
        (name, p(ms, 50), min(ms), p(ms, 95), median[name] / parts) for name, ms in times.items()
    ]
    columns = ("fresh process", "median ms", "fastest", "p95", "of the parts")
    note = f"{len(times['clew search'])} runs each, in turns."
    return [
        Table("Figures", ("figure", "measured", "wanted", "holds"), figures),
        Table("From nothing to an answer", columns, rows, note),
    ]


def main() -> None:
    parser = options(__doc__, data=False)
    parser.add_argument("--runs", type=int, default=20, help="timed runs of each (default 20)")
    parser.add_argument("--warmup", type=int, default=3, help="runs before that (default 3)")
    parser.add_argument(
        "--sample", type=Path, default=REPOSITORY / "sample", help="the folder to search"
    )
    arguments = parser.parse_args()
    with TemporaryDirectory(dir=arguments.work, ignore_cleanup_errors=True) as work:
        folder = Path(work) / "sample"
        prepare(folder, arguments.sample)
        times = measure(folder, runs=arguments.runs, warmup=arguments.warmup)
    publish("Start-up", __doc__, tables(times), {"ms": times}, arguments)


if __name__ == "__main__":
    main()
