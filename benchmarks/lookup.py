"""Lookups: what a kept one saves, how fast keys are made, and whether `hybrid` is worth its name.

    python benchmarks/lookup.py --out docs/benchmarks/lookup.md

Time: `clew.Search` over the texts of one set (scifact), storage alone; each query is looked up anew
(`cache=False`), then twice with the cache, and the second of these is timed, in turns. Keys: as
many different ones as a second holds.

Repository: the commits and files of this one, cloned, are asked for by `clew lookup` as a command,
first where nothing of it is kept, then again: seconds of CPU time of the process and of those that
it starts. `--no-times --no-quality` does only that.

Quality: for every public set, the texts and vectors of benchmarks/quality.py are put into a store,
every judged query is looked up, and the pool is ranked by `bm25`, by `semantic` and by `hybrid`
with the default weights. nDCG@10 is ir-measures'. Nothing was tuned for this. `store's words` is
the engine's own keyword search, which ranks by an index of all texts rather than by the pool.
`best weights` is no method: it takes, of eleven mixtures of words and meaning, the one that is best
on the set's own judgements, and says what other weights could gain at most. Texts of these sets
have no domains, so credibility decides nothing here.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import clew
from clew.cache import build_cache_key
from clew.models import load_embedder
from clew.ranking.lookup_score import hybrid, ordered
from clew.types import Hit
from quality import Collection, embedded, ndcg, read

from report import REPOSITORY, Table, figure, options, p, publish, say

SETS = (
    *("scifact", "cranfield", "locomo", "cosqa", "k8s_docs", "nq_utd"),
    *("cacm", "cisi", "medline1033", "vaswani", "cmrc2018_zh"),
    *("xquad_en", "xquad_zh", "xquad_ru", "xquad_ar", "xquad_th"),
)
SHARES = tuple(tenth / 10 for tenth in range(11))
TIMED = 200
Ranking = dict[str, list[str]]


@contextmanager
def stored(collection: Collection, embedder: Any, work: Path | None) -> Iterator[clew.Engine]:
    vectors, _ = embedded(collection, embedder)
    with (
        TemporaryDirectory(dir=work, ignore_cleanup_errors=True) as folder,
        clew.open(folder, embedder=embedder, cache=False, deadline=3600.0) as engine,
    ):
        records = (
            {"id": t["id"], "content": t["text"], "collection": t["scope"] or "default"}
            for t in collection.texts
        )
        engine.add(records, vectors=vectors)
        engine.optimise()
        yield engine


# ---------------------------------------------------------------------- quality


def rankings(collection: Collection, engine: clew.Engine) -> dict[str, Ranking]:
    """Each query's ten best, by how they were ranked."""
    made: dict[str, Ranking] = {}
    scopes = dict.fromkeys(query["scope"] for query in collection.queries)
    for scope in scopes:
        within = {"collection": scope} if scope else None
        with clew.Search(engine, filter=within, cache=False, deadline=3600.0) as search:
            for query in collection.queries:
                if query["scope"] != scope or not query["text"].strip():
                    continue  # one of a set is empty: it finds nothing, and counts as that
                for way, ids in ranked(search.pool(query["text"])).items():
                    made.setdefault(way, {})[query["id"]] = ids
                own = engine.search(
                    query["text"],
                    mode="keyword",
                    filter=within,
                    syntax=False,
                    limit=10,
                    group_by="record",
                )
                made.setdefault("store's words", {})[query["id"]] = [hit.id for hit in own]
    return made


def ranked(hits: Sequence[Hit]) -> dict[str, list[str]]:
    ids = [hit.id for hit in hits]
    words = [hit.signals["bm25"]["score"] for hit in hits]
    known = all("semantic" in hit.signals for hit in hits)
    near = [hit.signals["semantic"]["score"] if known else 0.0 for hit in hits]
    ways = {
        "bm25": ordered(ids, words, ids)[:10],
        "semantic": ordered(ids, near, ids)[:10] if known else ordered(ids, words, ids)[:10],
        "hybrid": ids[:10],
    }
    for share in SHARES:
        mixed = {"bm25": words, "semantic": near} if known else {"bm25": words}
        scores = hybrid(mixed, weights={"bm25": 1 - share, "semantic": share})
        ways[f"share {share:.1f}"] = ordered(ids, scores, ids)[:10]
    return ways


def quality(sets: Sequence[str], data: Path, work: Path | None) -> dict[str, dict[str, float]]:
    embedder = load_embedder("bge-small")
    if not embedder.dim:
        raise SystemExit("benchmarks need the default model: run `clew models pull bge-small`")
    scores: dict[str, dict[str, float]] = {}
    for name in sets:
        collection = read(data, name)
        with stored(collection, embedder, work) as engine:
            made = rankings(collection, engine)
        scores[name] = {way: ndcg(found, collection.qrels) for way, found in made.items()}
        best = max(SHARES, key=lambda share: scores[name][f"share {share:.1f}"])
        scores[name]["best weights"] = scores[name][f"share {best:.1f}"]
        scores[name]["best share"] = best
        say(f"{name}: bm25 {scores[name]['bm25']:.4f}, hybrid {scores[name]['hybrid']:.4f}")
    return scores


# ---------------------------------------------------------------------- time


def times(data: Path, work: Path | None) -> dict[str, Any]:
    collection = read(data, "scifact")
    embedder = load_embedder("bge-small")
    queries = [query["text"] for query in collection.queries][:TIMED]
    made: list[float] = []
    kept: list[float] = []
    with (
        stored(collection, embedder, work) as engine,
        clew.Search(engine, cache=False) as anew,
        clew.Search(engine) as cached,
    ):
        for search in (anew, cached):
            search.external_lookup("warm up")
        for query in queries:
            made.append(_ms(lambda query=query: anew.external_lookup(query)))
            first = cached.external_lookup(query, return_handles=True)
            kept.append(_ms(lambda query=query: cached.external_lookup(query)))
            again = cached.external_lookup(query, return_handles=True)
            if again.trace["cache"]["slot"] != "primary" or again.results != first.results:
                raise SystemExit(f"{query!r} was not answered from the cache")
    begun, keys = time.perf_counter(), set()
    while time.perf_counter() - begun < 1.0:
        key = build_cache_key(
            query=f"keel bolt torque {len(keys)}",
            backend="storage_keyword,storage_vector",
            embedding_signature=(embedder.model,),
            hybrid_flags=("bm25=0.3", "semantic=0.5", "credibility=0.2", "max_results=5"),
            storage_hints=("storage_keyword:12.34", "storage_vector:12.34"),
        )
        keys.add(key.primary)
    per_second = len(keys) / (time.perf_counter() - begun)
    return {"made": made, "kept": kept, "keys": per_second}


def repository(work: Path | None) -> dict[str, Any]:
    """Seconds of CPU of a first lookup, and of later ones."""
    with TemporaryDirectory(dir=work) as folder:
        clone = Path(folder, "clone")
        subprocess.run(["git", "clone", "-q", str(REPOSITORY), str(clone)], check=True)
        command = [sys.executable, "-P", "-m", "clew", "lookup", "--repo", str(clone)]
        env = os.environ | {"CLEW_LOOKUPS": str(Path(folder, "kept"))}
        spent = []
        for words in ("who holds the lease", "keel bolt torque", "partial clone", "stale lock"):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run([*command, words], check=True, cwd=folder, env=env, capture_output=True)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            spent.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        count = ("git", "-C", str(clone), "rev-list", "--count", "HEAD")
        commits = int(subprocess.run(count, check=True, capture_output=True, text=True).stdout)
    return {"commits": commits, "first": spent[0], "again": p(spent[1:], 50)}


def _ms(step: Callable[[], Any]) -> float:
    begun = time.perf_counter()
    step()
    return (time.perf_counter() - begun) * 1e3


# ---------------------------------------------------------------------- report


def tables(
    scores: dict[str, dict[str, float]], timed: dict[str, Any] | None, asked: dict[str, Any]
) -> list[Table]:
    said = f"{asked['again']:.2f} s of CPU (the first: {asked['first']:.1f} s)"
    what = f"a later lookup in a repository of {asked['commits']:,} commits"
    figures = [figure(what, said, "≤ 1/2 of the first", asked["again"] <= asked["first"] / 2)]
    done: list[Table] = []
    if timed is not None:
        made, kept = p(timed["made"], 50), p(timed["kept"], 50)
        share = f"1/{made / kept:.0f} ({kept:.3f} of {made:.2f} ms)"
        figures.append(figure("a kept lookup against one made", share, "≤ 1/20", kept <= made / 20))
        keys = timed["keys"]
        figures.append(figure("keys per second", f"{keys:,.0f}", "≥ 10,000", keys >= 10_000))
        rows = [
            (what, p(timed[name], 50), p(timed[name], 95), len(timed[name]))
            for what, name in (("made", "made"), ("kept", "kept"))
        ]
        done.append(Table("Times of a lookup", ("", "p50 ms", "p95 ms", "timed"), rows))
    for name, found in scores.items():
        said = f"{found['hybrid']:.4f}, bm25 {found['bm25']:.4f}"
        holds = round(found["hybrid"], 4) >= round(found["bm25"], 4)
        figures.append(figure(f"hybrid on {name} against bm25", said, "≥", holds))
    ways = ("bm25", "store's words", "semantic", "hybrid", "best weights")
    grid = [
        (name, *(f"{found[way]:.4f}" for way in ways), f"{found['best share']:.1f}")
        for name, found in scores.items()
    ]
    if grid:
        columns = ("set", *ways, "best share of meaning")
        note = "A set in a script that the model does not know is ranked by words alone."
        done.append(Table("nDCG@10", columns, grid, note))
    return [Table("Figures", ("figure", "measured", "wanted", "holds"), figures), *done]


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--sets", help=f"with commas (default: {','.join(SETS)})")
    parser.add_argument("--no-times", action="store_true", help="quality alone")
    parser.add_argument("--no-quality", action="store_true", help="times alone")
    arguments = parser.parse_args()
    sets = arguments.sets.split(",") if arguments.sets else list(SETS)
    timed = None if arguments.no_times else times(arguments.data, arguments.work)
    scores = {} if arguments.no_quality else quality(sets, arguments.data, arguments.work)
    asked = repository(arguments.work)
    numbers = {"ndcg@10": scores, "times": timed, "repository": asked}
    publish("Lookups", __doc__, tables(scores, timed, asked), numbers, arguments)


if __name__ == "__main__":
    main()
