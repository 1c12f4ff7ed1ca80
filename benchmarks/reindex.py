"""Indexing a folder, and indexing it again when nothing has changed.

    python benchmarks/reindex.py --files 10000 --out docs/benchmarks/reindex.md

Markdown files are made from real sentences (see corpus.py): 100 to a folder, a title, a few tags,
two or three headings, about 2,000 characters, last changed on some day of the past years (a file
that changed within the last two seconds is hashed again, which is not what is measured here).

`clew index --no-embed --json` runs three times, each a fresh process: on the new folder, and twice
on the unchanged one. Keyword only is the hardest case: embedding would make the first run minutes
longer and the second one not at all. Times are given for the whole command and for the engine's
part alone (the report's `seconds`), because starting Python takes the same both times.

Then the folder is indexed anew while this process keeps searching, to see after what time the
first search finds something.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import clew
from startup import command

import corpus as corpora
from report import Table, figure, options, publish, say

PER_FOLDER = 100
SECTIONS = 5
"""Records that make up a file, each with a paragraph of its own."""


def write_files(folder: Path, corpus: corpora.Corpus, count: int) -> None:
    rng = np.random.default_rng(5)
    newest = time.time() - 86_400
    paragraphs = _paragraphs(corpus)
    for number in range(count):
        file = folder / f"part-{number // PER_FOLDER:03d}" / f"note-{number:05d}.md"
        file.parent.mkdir(parents=True, exist_ok=True)
        some = [next(paragraphs) for _ in range(SECTIONS)]
        title = " ".join(some[0].split()[:6]).rstrip(".,;")
        tags = ", ".join(f"topic{tag}" for tag in rng.integers(200, size=2))
        body = "\n\n".join(
            f"## Part {i}\n\n{text}" if i % 2 else text for i, text in enumerate(some)
        )
        file.write_text(f"---\ntags: [{tags}]\n---\n# {title}\n\n{body}\n", "utf-8")
        changed = newest - float(rng.random()) * 3e7
        os.utime(file, (changed, changed))


def _paragraphs(corpus: corpora.Corpus) -> Iterator[str]:
    first = 0
    while True:
        made, _ = corpora.records(corpus, first, first + corpora.BLOCK)
        yield from (record.content for record in made)
        first += corpora.BLOCK


def index(folder: Path) -> dict[str, Any]:
    """One run of the command: its report, with the seconds it took in all."""
    begun = time.perf_counter()
    done = subprocess.run(
        [*command(), "index", str(folder), "--no-embed", "--json"],
        capture_output=True,
        text=True,
        check=False,
    )
    seconds = time.perf_counter() - begun
    if done.returncode:
        raise SystemExit(done.stderr)
    return {**json.loads(done.stdout), "whole": seconds}


def first_found(folder: Path, words: str) -> tuple[float, float]:
    """Seconds until a search in another process finds something, and until indexing is done."""
    shutil.rmtree(folder / ".clew", ignore_errors=True)
    begun = time.perf_counter()
    with subprocess.Popen(
        [*command(), "index", str(folder), "--no-embed", "--quiet"], stdout=subprocess.DEVNULL
    ) as running:
        found = 0.0
        while not found and running.poll() is None:
            time.sleep(0.05)
            try:
                with clew.open(folder, create=False, cache=False) as engine:
                    while not found and running.poll() is None:
                        if engine.search(words, mode="keyword"):
                            found = time.perf_counter() - begun
                        time.sleep(0.05)
            except clew.StoreError:
                continue  # not there yet
        running.wait()
    end = time.perf_counter() - begun
    return found or end, end


def tables(runs: list[dict[str, Any]], found: float, end: float) -> list[Table]:
    first, *again = runs
    files = len(first["added"])
    whole = max(run["whole"] for run in again) / first["whole"]
    engine = max(run["seconds"]["text"] for run in again) / first["seconds"]["text"]
    figures = [
        figure("unchanged run, the command", f"1/{1 / whole:.0f}", "< 1/20", whole < 1 / 20),
        figure("unchanged run, the engine", f"1/{1 / engine:.0f}", "< 1/20", engine < 1 / 20),
    ]
    names = ["first run", *(f"unchanged, run {i}" for i in range(1, len(runs)))]
    rows: list[tuple[Any, ...]] = []
    for name, run in zip(names, runs, strict=True):
        text = run["seconds"]["text"]
        changed = len(run["added"]) + len(run["changed"])
        rows.append((name, run["whole"], text, files / text, changed, run["unchanged"]))
    columns = ("run", "command s", "engine s", "files/s", "added or changed", "unchanged")
    note = (
        f"{first['chunks']:,} passages. While it was indexed anew, another process's search found "
        f"something after {found:.1f} s; all was indexed after {end:.1f} s."
    )
    return [
        Table("Figures", ("figure", "measured", "wanted", "holds"), figures),
        Table(f"A folder of {files:,} Markdown files, text only", columns, rows, note),
    ]


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--files", type=int, default=10_000, help="how many (default 10,000)")
    arguments = parser.parse_args()
    corpus = corpora.load(arguments.data)
    with TemporaryDirectory(dir=arguments.work, ignore_cleanup_errors=True) as work:
        folder = Path(work) / "notes"
        say(f"writing {arguments.files:,} files…")
        write_files(folder, corpus, arguments.files)
        runs = []
        for name in ("first run", "unchanged", "unchanged, again"):
            runs.append(index(folder))
            say(f"  {name}: {runs[-1]['whole']:.2f} s")
        words = " ".join(corpus.sentences[int(corpus.pool[0, 0])].split()[:4])
        found, end = first_found(folder, words)
    numbers = {
        "runs": [{"whole": run["whole"], **run["seconds"]} for run in runs],
        "first_found": found,
        "done": end,
    }
    publish("Re-indexing", __doc__, tables(runs, found, end), numbers, arguments)


if __name__ == "__main__":
    main()
