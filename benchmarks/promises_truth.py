"""Truth: whether an answer depends on what was asked before, shows what is gone or private, loses
what two sources have, or keeps anybody waiting.

    python benchmarks/promises_truth.py                     all but the public sets: two minutes
    python benchmarks/promises_truth.py --pairs             the public sets as well

With `--pairs`, of every public set's queries those that are close (cosine of at least .90 by
bge-small) are asked one after the other, and each second answer is compared with that of a search
without any cache. Stores that `clew eval` has made are copied; of other sets the first documents
are indexed (`--documents`). Of sets with more close pairs than `--most` (scripts that the model
does not know) the first so many are taken. With another version's `src` in PYTHONPATH it measures
that one.
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import clew
from clew.eval.datasets import read
from clew.eval.harness import cache_folder
from clew.types import Candidate

from report import Table, options, p, publish, say

CLOSE = 0.90
DEADLINE = 5.0
PERSONAL = (
    "domain: personal",
    "domain: Personal",
    'domain: "personal "',
    "domain: [personal, health]",
    "domain: [health, Personal]",
)


# ---------------------------------------------------------------------- close pairs


def close_pairs(engine: clew.Engine, texts: list[str], most: int) -> list[tuple[str, str]]:
    """Pairs of different queries that are this near, the first so many."""
    pairs: list[tuple[str, str]] = []
    vectors = np.zeros((len(texts), len(engine.embed_query("keel"))), np.float32)
    for number, text in enumerate(texts):
        vectors[number] = engine.embed_query(text)
        near = np.flatnonzero(vectors[:number] @ vectors[number] >= CLOSE)
        pairs += [(texts[before], text) for before in near]
        if len(pairs) >= most:
            break
    return pairs[:most]


def queries(folder: Path) -> list[str]:
    found: list[str] = []
    for file in sorted(folder.glob("queries*.jsonl.gz")):
        with gzip.open(file, "rt", encoding="utf-8") as lines:
            found += [json.loads(line)["text"] for line in lines]
    return list(dict.fromkeys(filter(str.strip, found)))


def store_of(folder: Path, work: Path, documents: int) -> tuple[clew.Engine, str]:
    """The set's store, a copy of the one that `clew eval` has, or made of its first documents."""
    place = work / folder.name
    for known in cache_folder().glob(f"{folder.name}-*"):
        if any('"whole": true' in file.read_text() for file in (known / ".clew").glob("*.json")):
            shutil.copytree(known, place)
            (place / ".clew" / "cache.db").unlink(missing_ok=True)
            return clew.open(place, deadline=120.0), "all"
    engine = clew.open(place, deadline=120.0)
    records = list(read(folder, skip_bad=True).records or ())[:documents]
    engine.add(records)
    engine.embed()
    return engine, f"{len(records):,}"


def compared(engine: clew.Engine, pairs: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """Each second query of a pair, answered after the first and answered alone."""
    told: dict[str, Any] = {"pairs": 0, "lent": 0, "first": 0, "lists": 0, "ms": [], "alone": []}
    for before, text in pairs:
        engine.cache.clear()
        engine.search(before)
        found = engine.search(text)
        alone = engine.search(text, cache=False)
        told["pairs"] += 1
        told["lists"] += [(h.id, h.score) for h in found] != [(h.id, h.score) for h in alone]
        told["first"] += [h.id for h in found][:1] != [h.id for h in alone][:1]
        if found.cache == "semantic":
            told["lent"] += 1
            told["ms"].append(found.trace["total_ms"])
            told["alone"].append(alone.trace["total_ms"])
    return told


def on_pairs(work: Path, arguments: Any) -> Table:
    rows: list[tuple[Any, ...]] = []
    sums = np.zeros(4, int)
    every: dict[str, list[float]] = {"ms": [], "alone": []}
    for folder in sorted(f for f in arguments.data.iterdir() if f.is_dir()):
        if arguments.sets and folder.name not in arguments.sets.split(","):
            continue
        say(f"{folder.name}…")
        engine, documents = store_of(folder, work, arguments.documents)
        with engine:
            pairs = close_pairs(engine, queries(folder), arguments.most)
            told = compared(engine, pairs)
        counts = [told[name] for name in ("pairs", "lent", "first", "lists")]
        rows.append((folder.name, documents, *counts))
        sums += counts
        every = {name: every[name] + told[name] for name in every}
        say(f"  {rows[-1]}")
    rows.append(("all", "", *sums.tolist()))
    note = ""
    if every["ms"]:
        note = (
            f"Answered by the semantic cache: p50 {p(every['ms'], 50):.2f} ms; the same searches "
            f"without it: {p(every['alone'], 50):.2f} ms (with the query's vector at hand)."
        )
    columns = ("set", "documents", "pairs", "semantic", "other first hit", "other list")
    return Table("Close queries, one after the other", columns, rows, note)


# ---------------------------------------------------------------------- what is gone, or edited


def outside_edits(work: Path) -> str:
    """Edits outside the store after which a kept answer was given all the same."""
    stale = 0
    for name in "ab":
        (work / f"{name}.md").write_text(f"the {name} of a boat")
    (work / "tags.txt").write_text("#keel: a.md\n")
    with clew.open(work, model="none", sources={"tags": {"shards": ["tags.txt"]}}) as engine:
        engine.index()
        for _ in range(2):
            engine.search("keel", sources=["tags"])
        (work / "tags.txt").write_text("#keel: b.md\n# edited\n")
        stale += [hit.path for hit in engine.search("keel", sources=["tags"])] != ["b.md"]
        engine.search("boat", sources=["keyword"])
        (work / "clew.toml").write_text("fusion = rrf")
        again = engine.search("boat", sources=["keyword"])
        stale += not any("clew.toml" in each for each in again.degraded)
        (work / "clew.toml").unlink()
    stale += asked_package(work / "site", PACKAGE_EDIT)["stale"]
    return f"{stale} of 3"


def deleted_files(work: Path) -> tuple[str, str]:
    """Files shown though they are deleted; and what it costs to look for those of ten hits."""
    for number in range(40):
        (work / f"n{number}.md").write_text(f"note {number} about the keel of a boat")
    with clew.open(work, model="none") as engine:
        engine.index()
        first = engine.search("keel boat", sources=["keyword"])
        times = []
        for _ in range(200 if find_spec("clew.search.context") else 0):
            from clew.search.context import IndexedFiles

            begun = time.perf_counter()
            IndexedFiles(engine.store, engine.root).states([(hit.id, hit.path) for hit in first])
            times.append((time.perf_counter() - begun) * 1e6)
        for hit in first:
            (work / str(hit.path)).unlink()
        shown = engine.search("keel boat", sources=["keyword"])
    gone = sum(not (work / str(hit.path)).exists() for hit in shown)
    return f"{gone} of {len(first)}", f"{p(times, 50):.0f} µs" if times else "–"


def deleted_text(work: Path) -> str:
    """Whether the words of a removed record are still in the cache's file."""
    with clew.open(work, model="none") as engine:
        engine.add([clew.Record("secret", "the xylophone is under the keel")])
        engine.search("xylophone", sources=["keyword"])
        engine.cache.flush()
        kept = list((work / ".clew").glob("cache.db*"))
        before = sum(file.read_bytes().count(b"xylophone") for file in kept)
        engine.remove("secret")
        kept = list((work / ".clew").glob("cache.db*"))
        after = sum(file.read_bytes().count(b"xylophone") for file in kept)
    return f"{after} of {before} times"


# ---------------------------------------------------------------------- whose and whether


def rows_of_two_tables(work: Path) -> str:
    table = {"kind": "sqlite", "table": "t", "text": "body", "id": "rowid"}
    sources = {name: {**table, "file": f"{name}.db"} for name in ("mails", "notes")}
    for name in sources:
        with closing(sqlite3.connect(work / f"{name}.db")) as db, db:
            db.execute("CREATE TABLE t (body TEXT)")
            db.executemany("INSERT INTO t VALUES (?)", [(f"keel {name} {i}",) for i in range(20)])
    with clew.open(work, model="none", sources=sources) as engine:
        found = engine.search("keel", sources=list(sources), limit=50)
    return f"{len({hit.content for hit in found})} of 40"


def personal_files(work: Path) -> str:
    """Private notes that a search shows by default: by front matter, and in a folder that is called
    personal by an edit of the settings since, or says something else of itself."""
    for number, said in enumerate(PERSONAL):
        (work / f"own{number}.md").write_text(f"---\n{said}\n---\nmy keel {number}\n")
    for folder, said in (("diary", "domain: work"), ("later", "title: x")):
        (work / folder).mkdir()
        (work / folder / "note.md").write_text(f"---\n{said}\n---\na keel\n")
    file = work / "clew.toml"
    file.write_text('[domains]\npersonal = ["diary"]\n')
    with clew.open(work, model="none") as engine:
        engine.index()
        engine.search("keel")
        file.write_text('[domains]\npersonal = ["diary", "later"]\n')
        shown = engine.search("keel", limit=50)
    return f"{len(shown)} of {len(PERSONAL) + 2}"


# ---------------------------------------------------------------------- deadlines

PACKAGE_STUCK = """
    import re
    def moon(root):
        def source(query, context):
            re.match("(a+)+$", "a" * 29 + "b")
            return ()
        return source
"""
PACKAGE_EDIT = """
    from clew.types import Candidate
    def moon(root):
        def source(query, context):
            return [Candidate((root / "said.txt").read_text(), 1.0)]
        return source
"""


def asked_package(site: Path, code: str) -> dict[str, Any]:
    """How an engine fares with a source of an installed package, in a process of its own."""
    about = site / "moonlight-1.0.dist-info"
    about.mkdir(parents=True, exist_ok=True)
    (site / "moonlight.py").write_text(textwrap.dedent(code))
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: moonlight\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[clew.sources]\nmoon = moonlight:moon\n")
    script = f"""
        import json, sys, time
        sys.path.insert(0, {str(site)!r})
        import clew
        from pathlib import Path
        folder = Path({str(site / "store")!r})
        with clew.open(folder, model="none", sources={{"moon": {{}}}}) as engine:
            engine.add([clew.Record("a", "a keel"), clew.Record("b", "a boat")])
            (folder / "said.txt").write_text("a")
            begun = time.perf_counter()
            found = engine.search("keel", sources=["moon"])
            seconds = time.perf_counter() - begun
            engine.search("keel", sources=["moon"])
            (folder / "said.txt").write_text("b")
            again = engine.search("keel", sources=["moon"])
            stale = [hit.id for hit in again] != ["b"]
            print(json.dumps({{"seconds": seconds, "stale": stale}}))
            sys.stdout.flush()
            import os; os._exit(0)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=True
    )
    told: dict[str, Any] = json.loads(done.stdout)
    return told


class Sleeping:
    """An embedder that sleeps for a query while it is told to."""

    model, dim = "sleeping@1", 8

    def __init__(self) -> None:
        self.asleep = threading.Event()

    def embed_documents(self, texts: Any) -> Any:
        return np.tile(np.eye(1, 8, dtype=np.float32), (len(texts), 1))

    def embed_query(self, text: str) -> Any:
        if self.asleep.is_set():
            time.sleep(20)
        return np.eye(1, 8, dtype=np.float32)[0]


def sleeping_embedding(work: Path) -> str:
    embedder = Sleeping()
    with clew.open(work, embedder=embedder) as engine:
        engine.add([clew.Record("a", "the keel of a boat")])
        engine.embed()
        engine.search("keel boat")
        embedder.asleep.set()
        begun = time.perf_counter()
        engine.search("the boat keel")
        return f"{time.perf_counter() - begun:.1f} s"


def many_ids(work: Path) -> str:
    with clew.open(work, model="none") as engine:
        engine.add([clew.Record(str(i), f"keel {i}") for i in range(100)])
        many = [Candidate(f"x{i}", 1.0 / (i + 1)) for i in range(20_000)]
        engine.sources["many"] = lambda query, context: many
        times = []
        for _ in range(5):
            begun = time.perf_counter()
            found = engine.search("keel", explain=True)
            times.append((time.perf_counter() - begun) * 1e3)
        count = found.trace["sources"]["many"]["count"]
    return f"{p(times, 50):.0f} ms, {count:,} ranked"


# ---------------------------------------------------------------------- all of them


def on_folders(work: Path) -> Table:
    def at(name: str) -> Path:
        place = work / name
        place.mkdir()
        return place

    gone, cost = deleted_files(at("gone"))
    steps: list[tuple[str, Callable[[], str], str]] = [
        (
            "edits outside the store that a kept answer ignores",
            lambda: outside_edits(at("edits")),
            "0 of 3",
        ),
        ("deleted files that are shown", lambda: gone, "0 of 10"),
        ("looking at the files of ten hits", lambda: cost, "microseconds"),
        ("words of a removed record in cache.db", lambda: deleted_text(at("text")), "0"),
        (
            "rows found of two tables with the same ids",
            lambda: rows_of_two_tables(at("rows")),
            "40 of 40",
        ),
        ("private notes shown by default", lambda: personal_files(at("personal")), "0 of 7"),
        (
            "a package's source that keeps the interpreter lock",
            lambda: f"{asked_package(at('stuck'), PACKAGE_STUCK)['seconds']:.1f} s",
            f"≤ {DEADLINE:g} s and its start",
        ),
        (
            "an embedding that sleeps for 20 s",
            lambda: sleeping_embedding(at("sleeping")),
            f"≤ {DEADLINE:g} s",
        ),
        ("a source that gives 20,000 ids", lambda: many_ids(at("many")), "50 ranked"),
    ]
    rows = []
    for what, measure, wanted in steps:
        rows.append((what, measure(), wanted))
        say(f"{rows[-1]}")
    return Table("Promises", ("what", "measured", "wanted"), rows)


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--pairs", action="store_true", help="the public sets as well")
    parser.add_argument("--sets", default="", help="only these, by commas")
    parser.add_argument("--documents", type=int, default=400, help="of a set without a store")
    parser.add_argument("--most", type=int, default=300, help="pairs of a set at most")
    arguments = parser.parse_args()
    with TemporaryDirectory(dir=arguments.work, ignore_cleanup_errors=True) as work:
        tables = [] if arguments.sets else [on_folders(Path(work))]
        if arguments.pairs or arguments.sets:
            tables.append(on_pairs(Path(work), arguments))
    numbers = {table.title: table.rows for table in tables}
    publish("Promises: truth", __doc__, tables, numbers, arguments)
    sys.stdout.flush()
    os._exit(0)  # nobody waits for the embedding that sleeps


if __name__ == "__main__":
    main()
