"""The tree before and after a redesign: how much there is to read, how it hangs together, and that
nothing became slower or found less.

    python benchmarks/redesign.py --before 5896791 --out docs/benchmarks/redesign.md

`--before` names a commit, which is checked out beside this tree for as long as it takes. Both run
in this environment, each in a process of its own.

- Structure, by `ast`: lines and files below src/, packages in import cycles (lazy and type-only
  imports counted), members of the `Store` protocol, public functions of more than 12 parameters.
- Speed: both load the same records with vectors (see load.py) and answer the same queries (hybrid,
  top 10, the vector given), and so does the floor (see floor.py), in turns of 25 queries each, so
  that whatever else the machine does hits all three alike.
- Quality: `clew eval` on the public sets by both, hybrid, the first queries of each; each tree has
  a copy of the stores that `clew eval` has made before, and makes the others.
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import copytree
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from platformdirs import user_cache_path

import corpus as corpora
from report import REPOSITORY, Table, figure, options, p, publish, say

SETS = "scifact cranfield cosqa k8s_docs xquad_en xquad_zh xquad_ru xquad_ar xquad_th locomo"
BOTH = ("before", "after")
TURN = 25
"""Queries that one answers before the next does."""


# ---------------------------------------------------------------------- structure


def structure(tree: Path) -> dict[str, int]:
    """What there is to read in a checkout."""
    root = tree / "src" / "clew"
    files = {path: ast.parse(path.read_text("utf-8")) for path in sorted(root.rglob("*.py"))}
    return {
        "lines": sum(len(path.read_text("utf-8").splitlines()) for path in files),
        "files": len(files),
        "files of at most 100 lines": sum(
            len(path.read_text("utf-8").splitlines()) <= 100 for path in files
        ),
        "packages in cycles": _in_cycles(root, files),
        "members of the Store protocol": _members(files, "Store"),
        "public functions of more than 12 parameters": _long(files),
        "type names that stand more than once": _twice(files),
    }


def _package(root: Path, path: Path) -> str:
    return path.relative_to(root).parts[0].removesuffix(".py")


def _in_cycles(root: Path, files: dict[Path, ast.Module]) -> int:
    """Packages from which imports lead back to themselves."""
    edges: dict[str, set[str]] = {}
    for path, module in files.items():
        here = edges.setdefault(_package(root, path), set())
        for node in ast.walk(module):
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module == "clew":
                names = [f"clew.{alias.name}" for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            here |= {name.split(".")[1] for name in names if name.startswith("clew.")}
    edges.pop("__init__", None)  # names what is public, lazily; nothing imports it
    for package, others in edges.items():
        others.discard(package)

    def reach(start: str) -> set[str]:
        seen: set[str] = set()
        todo = list(edges.get(start, ()))
        while todo:
            if (one := todo.pop()) not in seen:
                seen.add(one)
                todo += edges.get(one, ())
        return seen

    return sum(package in reach(package) for package in edges)


def _members(files: dict[Path, ast.Module], name: str) -> int:
    for module in files.values():
        for node in module.body:
            if isinstance(node, ast.ClassDef) and node.name == name:
                return sum(isinstance(each, (ast.FunctionDef, ast.AnnAssign)) for each in node.body)
    return 0


def _long(files: dict[Path, ast.Module]) -> int:
    """`Engine.search`, whose arguments are the fields of a request, and commands, whose parameters
    are options, are not counted."""
    found = 0
    for path, module in files.items():
        for node in ast.walk(module):
            if (
                isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
                and "cli" not in path.parts
            ):
                count = len([*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs])
                first = node.args.args[0].arg if node.args.args else ""
                public = not node.name.startswith("_") or node.name == "__init__"
                if public and count - (first in ("self", "cls")) > 12:
                    found += path.name != "engine.py" or node.name != "search"
    return found


def _twice(files: dict[Path, ast.Module]) -> int:
    names = [node.name for m in files.values() for node in m.body if isinstance(node, ast.ClassDef)]
    return len({name for name in names if names.count(name) > 1})


# ---------------------------------------------------------------------- speed


class Engine:
    """Clew of a checkout, in a process of its own: see `work`."""

    def __init__(self, tree: Path, folder: Path, data: Path):
        paths = [str(tree / "src"), str(REPOSITORY / "benchmarks")]
        command = [sys.executable, __file__, "--worker", str(folder), "--data", str(data)]
        self._process = subprocess.Popen(
            command,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, **what: Any) -> Any:
        assert self._process.stdin and self._process.stdout
        print(json.dumps(what), file=self._process.stdin, flush=True)
        return json.loads(self._process.stdout.readline())

    def close(self) -> None:
        self._process.communicate()


def work(folder: Path, data: Path) -> None:
    """Answer what `Engine.ask` asks, one line for each."""
    import clew
    import load as loads

    corpus = corpora.load(data)
    answers, sys.stdout = sys.stdout, sys.stderr
    vectors = np.empty((0, corpus.vectors.shape[1]), np.float32)
    with clew.open(folder, cache=False) as engine:
        for line in sys.stdin:
            asked = json.loads(line)
            if records := asked.get("load"):
                vectors = np.empty((records, corpus.vectors.shape[1]), np.float32)
                answer: Any = loads.load(engine, corpus, vectors, batch=50_000).rate()
            elif asked.get("recall"):
                from queries import recall_under

                some = corpus.queries[: asked["recall"]], corpus.query_vectors[: asked["recall"]]
                answer = recall_under(engine, vectors, some, "none")["recall"]
            else:
                answer = []
                for number in asked["queries"]:
                    text, vector = corpus.queries[number], corpus.query_vectors[number]
                    begun = time.perf_counter()
                    result = engine.search(text, vector=vector)
                    answer.append((time.perf_counter() - begun) * 1e3)
                    if result.degraded:
                        raise SystemExit(f"not a fair answer: {result.degraded}")
            print(json.dumps(answer), file=answers, flush=True)


def speed(trees: dict[str, Path], folder: Path, arguments: Any) -> dict[str, Any]:
    """Load rates, and milliseconds of each query by who answered it."""
    from floor import Floor, exact

    corpus = corpora.load(arguments.data)
    engines = {
        name: Engine(tree, folder / f"store-{name}", arguments.data) for name, tree in trees.items()
    }
    rates: dict[str, list[float]] = {}
    for name, engine in engines.items():
        say(f"{name}: loading {arguments.records:,} records")
        rates[name] = [engine.ask(load=arguments.records)]
    say("building the floor")
    made, vectors = corpora.records(corpus, 0, arguments.records)
    floor = Floor.build(folder / "tantivy", (record.content for record in made), vectors)
    asked = slice(arguments.queries)
    truth = exact(corpus.query_vectors[asked], vectors)
    target = engines["after"].ask(recall=arguments.queries)
    floor.tune(corpus.query_vectors[asked], truth, target=target)
    say("timing")
    times: dict[str, list[float]] = {"before": [], "after": [], "floor": []}
    for first in range(0, 2 * arguments.queries, TURN):
        numbers = list(range(first, first + TURN))
        for name in sorted(times, reverse=first // TURN % 2 == 1):
            if name == "floor":
                spent = [_ask_floor(floor, corpus, number) for number in numbers]
            else:
                spent = engines[name].ask(queries=numbers)
            if first >= arguments.queries:  # the first half warms up
                times[name] += spent
    for engine in engines.values():
        engine.close()
    return {"rates": rates, "ms": times, "recall": target}


def _ask_floor(floor: Any, corpus: corpora.Corpus, number: int) -> float:
    from floor import query_tokens

    tokens = query_tokens(corpus.queries[number])
    begun = time.perf_counter()
    floor.keyword(tokens)
    floor.nearest(corpus.query_vectors[number])
    return (time.perf_counter() - begun) * 1e3


# ---------------------------------------------------------------------- quality


def quality(tree: Path, home: Path, arguments: Any) -> dict[str, float]:
    """nDCG@10 of the default hybrid on each set."""
    found: dict[str, float] = {}
    kept = user_cache_path("clew") / "eval"
    if kept.is_dir():
        copytree(kept, home / "clew" / "eval")
    for name in arguments.sets.split():
        say(f"  {name}")
        command = [sys.executable, "-m", "clew", "eval", "run", str(arguments.data / name)]
        command += ["--modes", "hybrid", "--limit-queries", str(arguments.queries), "--json"]
        environment = {**os.environ, "PYTHONPATH": str(tree / "src"), "XDG_CACHE_HOME": str(home)}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        found[name] = round(json.loads(done.stdout)["modes"]["hybrid"]["ndcg@10"], 4)
    return found


@contextmanager
def checkout(commit: str) -> Iterator[Path]:
    """The tree of a commit, in a folder of its own while it is needed."""
    with TemporaryDirectory(prefix="clew-before-") as folder:
        tree = Path(folder) / "tree"
        git = ["git", "-C", str(REPOSITORY), "worktree"]
        subprocess.run([*git, "add", "--detach", "--quiet", str(tree), commit], check=True)
        try:
            yield tree
        finally:
            subprocess.run([*git, "remove", "--force", str(tree)], check=True)


def tables(numbers: dict[str, Any]) -> list[Table]:
    shape, figures = numbers["structure"], []
    now = shape["after"]
    wanted = {"lines": 33_500, "files": 150, "packages in cycles": 0}
    wanted |= {"members of the Store protocol": 25}
    wanted |= {"public functions of more than 12 parameters": 0}
    for name, most in wanted.items():
        figures.append(figure(name, f"{now[name]:,}", f"≤ {most:,}", now[name] <= most))
    made = []
    if "speed" in numbers:
        ms = {name: p(times, 50) for name, times in numbers["speed"]["ms"].items()}
        rates = {name: max(rate) for name, rate in numbers["speed"]["rates"].items()}
        ratio, above = ms["after"] / ms["before"], ms["after"] / ms["floor"]
        figures += [
            figure("hybrid p50 against before", f"{ratio:.2f} ×", "≤ 0.85 ×", ratio <= 0.85),
            figure("hybrid p50 against the floor", f"{above:.2f} ×", "≤ 1.6 ×", above <= 1.6),
            figure(
                "load against before",
                f"{rates['after'] / rates['before']:.2f} ×",
                "≥ 1 ×",
                rates["after"] >= rates["before"],
            ),
        ]
        rows = [
            (n, p(t, 50), p(t, 95), rates.get(n, "")) for n, t in numbers["speed"]["ms"].items()
        ]
        made.append(Table("Speed", ("what", "p50 ms", "p95 ms", "records loaded/s"), rows))
    if "quality" in numbers:
        before, after = (numbers["quality"][name] for name in BOTH)
        differ = [name for name in after if after[name] != before[name]]
        figures.append(figure("sets whose nDCG@10 differs", str(len(differ)), "0", not differ))
        scores = [(name, f"{before[name]:.4f}", f"{after[name]:.4f}") for name in after]
        made.append(Table("nDCG@10, default hybrid", ("set", *BOTH), scores))
    read = [(name, shape["before"][name], now[name]) for name in now]
    return [
        Table("Figures", ("figure", "measured", "wanted", "holds"), figures),
        Table("What there is to read", ("what", *BOTH), read),
        *made,
    ]


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--before", default="5896791", help="the commit to compare with")
    parser.add_argument("--records", type=int, default=200_000, help="how many (default 200,000)")
    parser.add_argument("--queries", type=int, default=400, help="how many (default 400)")
    parser.add_argument("--sets", default=SETS, help="public sets, by name")
    parser.add_argument("--only", choices=("structure", "speed", "quality"), help="this part alone")
    parser.add_argument("--worker", type=Path, help="(for itself)")
    arguments = parser.parse_args()
    if arguments.worker:
        work(arguments.worker, arguments.data)
        return
    with (
        checkout(arguments.before) as tree,
        TemporaryDirectory(dir=arguments.work, ignore_cleanup_errors=True) as folder,
    ):
        trees = {"before": tree, "after": REPOSITORY}
        numbers: dict[str, Any] = {"structure": {n: structure(t) for n, t in trees.items()}}
        if arguments.only in (None, "speed"):
            numbers["speed"] = speed(trees, Path(folder), arguments)
        if arguments.only in (None, "quality"):
            numbers["quality"] = {}
            for name, each in trees.items():
                say(f"{name}: quality")
                numbers["quality"][name] = quality(each, Path(folder) / name, arguments)
    publish("The redesign", __doc__, tables(numbers), numbers, arguments)


if __name__ == "__main__":
    main()
