"""What a kept answer saves, what lists of a query with the same words do, and the search itself.

    python benchmarks/cache.py --out docs/benchmarks/cache.md

Over a copy of the bundled sample folder and over 100,000 records (see corpus.py), with every kind
of source on, an SQLite table and an exocortex among them (every_source.py):

- The engine: a search that is made (`cache=False`), the very same search again, and one with the
  same words asked otherwise, which borrows lists, each with the query's vector at hand, so that
  embedding counts for none.
- The cache itself, filled with a thousand answers: making the keys, an exact hit in memory and from
  the file, and keeping an answer.

All that are compared take turns, query by query, so that whatever else the machine does hits all
alike. `--direct` leaves the engine's part out.

    python benchmarks/cache.py --pairs scifact cranfield nq_utd

asks another question instead: whether an answer depends on what was asked before. Of each public
set's queries those that are close (cosine of at least .90) are asked one after the other, and each
second answer is compared with that of a search without any cache. Of sets with more close pairs
than `--most` (scripts that the model does not know) the first so many are taken. Stores are copies
of those of `clew eval`, made if need be.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import numpy as np

import clew
from answerless import opened
from clew.cache import (
    SearchCache,
    SearchKeys,
    canonical_query,
    search_keys,
    search_parameters,
)
from clew.eval import datasets
from clew.storage import FOLDER
from clew.text.parse import parse
from clew.validate import read_lines
from every_source import open_records, open_sample

import corpus as corpora
from report import REPOSITORY, Table, figure, options, p, publish, say

T = TypeVar("T")
Times = dict[str, list[float]]
SAMPLE_QUERIES = (
    "electric fuse keeps blowing",
    "keel bolt torque",
    "epoxy cure time in cold weather",
    "crane safety near miss",
    "sauna heater wiring",
    "telemetry from the tide gauge",
    "who ordered the new sails",
    "minutes of the last meeting",
    "paint for the hull",
    "how long does the glue need",
    "budget for the workshop",
    "battery drains overnight",
    "spare parts on order",
    "dry dock schedule",
    "leaking roof of the cottage",
)
OTHER_WORDS = ("{}?", "about {}", "tell me about {}", "{} please", "the {}")
ENTRIES = 1000
CLOSE = 0.90


def other_words(engine: clew.Engine, text: str) -> str | None:
    """The same words asked otherwise, as near as the semantic cache wants it."""
    vector, words = engine.embed_query(text), sorted(parse(text).terms.words)
    for form in OTHER_WORDS:
        other = form.format(text)
        same = sorted(parse(other).terms.words) == words
        if same and float(engine.embed_query(other) @ vector) >= CLOSE:
            return other
    return None


def timed(times: Times, what: str, step: Callable[[], T]) -> T:
    begun = time.perf_counter()
    done = step()
    times.setdefault(what, []).append((time.perf_counter() - begun) * 1e3)
    return done


def through_the_engine(engine: clew.Engine, queries: list[str], times: Times) -> int:
    """Each query three ways; how many borrowed."""
    near = 0
    for number, text in enumerate(queries):
        other = other_words(engine, text)
        timed(times, "search made", lambda text=text: engine.search(text, cache=False))
        engine.search(text)
        again = timed(times, "exact hit", lambda text=text: engine.search(text))
        if again.cache != "exact":
            raise SystemExit(f"{text!r} was answered by {again.cache}, not by the exact cache")
        if other is not None:
            timed(
                times, "the same, otherwise", lambda other=other: engine.search(other, cache=False)
            )
            found = timed(times, "semantic hit", lambda other=other: engine.search(other))
            near += found.cache == "semantic"
            if found.cache != "semantic":
                times["semantic hit"].pop()
        if number % 100 == 99:
            say(f"  {number + 1} of {len(queries)}")
    return near


def in_the_cache(engine: clew.Engine, queries: list[str], file: Path, times: Times) -> None:
    """The cache alone, full, with real answers."""
    cache = SearchCache(file, entries=ENTRIES)
    answers = [engine.search(text) for text in queries]
    for number in range(ENTRIES - len(queries)):
        cache.put(f"1.filler{number}", answers[number % len(answers)])
        if number % 200 == 0:
            cache.flush(10.0)
    cache.flush(10.0)
    for text, answer in zip(queries, answers, strict=True):
        keys = timed(times, "cache: both keys", lambda text=text: _keys(text))
        kept = (keys.exact, answer)
        timed(times, "cache: keep", lambda kept=kept: cache.put(*kept))
    cache.flush(10.0)
    reopened = SearchCache(file, entries=ENTRIES)
    for text in queries:
        exact = _keys(text).exact
        for what, ask in (
            ("cache: exact, in memory", lambda exact=exact: cache.get(exact)),
            ("cache: exact, from the file", lambda exact=exact: reopened.get(exact)),
        ):
            if timed(times, what, ask) is None:
                raise SystemExit(f"{what}: {text!r} was not found")
    cache.close()
    reopened.close()


def _keys(text: str) -> SearchKeys:
    others: dict[str, Any] = {"sources": None, "weights": {}, "settings": "as usual", "model": "m"}
    others |= {"strict": False, "rerank": False, "explain": False, "syntax": True}
    parameters = search_parameters(parse(text), generation=(1, 1), freshness={}, **others)
    return search_keys(canonical_query(text), parameters)


def measure(engine: clew.Engine, queries: list[str], work: Path, *, direct: bool) -> dict[str, Any]:
    times: Times = {}
    for text in queries[:20]:  # warm
        engine.search(text)
    near = 0 if direct else through_the_engine(engine, queries, times)
    in_the_cache(engine, queries, work / "direct.db", times)
    return {"queries": len(queries), "near": near, "ms": times}


def on_sample(work: Path, arguments: Any) -> dict[str, Any]:
    say("indexing a copy of the sample folder…")
    with open_sample(arguments.sample, work / "sample") as engine:
        titles = [record.title for record in engine.store.select(clew.Filter(), limit=500)]
        queries = list(dict.fromkeys([*SAMPLE_QUERIES, *filter(None, titles)]))
        return measure(engine, queries[:200], work, direct=arguments.direct)


def on_records(work: Path, arguments: Any) -> dict[str, Any]:
    corpus = corpora.load(arguments.data)
    say(f"loading {arguments.records:,} records…")
    with open_records(corpus, work / "store", arguments.records) as engine:
        queries = corpus.queries[: arguments.queries]
        return measure(engine, queries, work, direct=arguments.direct)


# ---------------------------------------------------------------------- close pairs


def close_pairs(engine: clew.Engine, texts: list[str], most: int) -> list[tuple[str, str]]:
    """Pairs of different queries that are this near, the first so many."""
    pairs: list[tuple[str, str]] = []
    vectors = np.zeros((len(texts), engine.embedder.dim), np.float32)
    for number, text in enumerate(texts):
        vectors[number] = engine.embed_query(text)
        near = np.flatnonzero(vectors[:number] @ vectors[number] >= CLOSE)
        pairs += [(texts[before], text) for before in near]
        if len(pairs) >= most:
            break
    return pairs[:most]


def compare_pairs(engine: clew.Engine, pairs: Iterable[tuple[str, str]]) -> list[int]:
    """How many second queries borrowed lists, had another first hit than alone, another list."""
    lent = first = lists = 0
    for before, text in pairs:
        engine.cache.clear()
        engine.search(before)
        found, alone = engine.search(text), engine.search(text, cache=False)
        lent += found.cache == "semantic"
        first += [hit.id for hit in found][:1] != [hit.id for hit in alone][:1]
        lists += [(h.id, h.score) for h in found] != [(h.id, h.score) for h in alone]
    return [lent, first, lists]


def on_pairs(work: Path, arguments: Any) -> Table:
    rows: list[tuple[Any, ...]] = []
    for name in arguments.pairs:
        say(f"{name}…")
        with opened(datasets.read(arguments.data / name, skip_bad=True), None) as ready:
            shutil.copytree((ready.root or Path()) / FOLDER, work / name / FOLDER)
        files = sorted((arguments.data / name).glob("queries*.jsonl.gz"))
        texts = [json.loads(line)["text"] for file in files for _, line in read_lines(file)]
        with clew.open(work / name, create=False, deadline=120.0) as engine:
            texts = list(dict.fromkeys(filter(str.strip, texts)))
            pairs = close_pairs(engine, texts, arguments.most)
            rows.append((name, len(pairs), *compare_pairs(engine, pairs)))
        say(f"  {rows[-1]}")
    rows.append(("all", *(sum(column) for column in list(zip(*rows, strict=True))[1:])))
    columns = ("set", "pairs", "semantic", "other first hit", "other list")
    return Table("Close queries, one after the other", columns, rows)


# ---------------------------------------------------------------------- tables


def tables(results: dict[str, dict[str, Any]]) -> list[Table]:
    figures, rows = [], []
    for name, result in results.items():
        ms: Times = result["ms"]
        rows += [(name, what, p(some, 50), p(some, 95), len(some)) for what, some in ms.items()]
        if "search made" in ms:
            made, exact = p(ms["search made"], 50), p(ms["exact hit"], 50)
            semantic = p(ms.get("semantic hit") or [np.nan], 50)
            otherwise = p(ms.get("the same, otherwise") or [np.nan], 50)
            text = f"exact hit, {name}"
            figures.append(figure(text, f"{exact:.3f} ms", "< 1 ms", exact < 1))
            text = f"exact hit against the search, {name}"
            share = exact / made
            figures.append(figure(text, f"{share:.3f} ×", "< 0.1 ×", share < 0.1))
            text = f"semantic hit against the search, {name}"
            share = semantic / otherwise
            figures.append(figure(text, f"{share:.2f} ×", "< 1 ×", share < 1))
    notes = " ".join(
        f"{name}: {result['near']} of {result['queries']} questions borrowed lists."
        for name, result in results.items()
        if result["near"]
    )
    columns = ("corpus", "what", "p50 ms", "p95 ms", "timed")
    return [
        Table("Figures", ("figure", "measured", "wanted", "holds"), figures),
        Table("Times", columns, rows, notes),
    ]


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--records", type=int, default=100_000, help="how many (default 100,000)")
    parser.add_argument("--queries", type=int, default=400, help="how many (default 400)")
    parser.add_argument("--direct", action="store_true", help="the cache alone, without the engine")
    parser.add_argument(
        "--sample", type=Path, default=REPOSITORY / "sample", help="the folder to search"
    )
    parser.add_argument("--pairs", nargs="+", help="public sets whose close queries are compared")
    parser.add_argument("--most", type=int, default=300, help="pairs of a set (default 300)")
    arguments = parser.parse_args()
    if arguments.pairs:
        with TemporaryDirectory(dir=arguments.work, ignore_cleanup_errors=True) as work:
            table = on_pairs(Path(work), arguments)
        publish("Close queries", __doc__, [table], {"rows": table.rows}, arguments)
        return
    results: dict[str, dict[str, Any]] = {}
    for name, on in (("sample", on_sample), (f"{arguments.records:,} records", on_records)):
        with TemporaryDirectory(dir=arguments.work, ignore_cleanup_errors=True) as work:
            results[name] = on(Path(work), arguments)
    publish("The caches", __doc__, tables(results), {"results": results}, arguments)


if __name__ == "__main__":
    main()
