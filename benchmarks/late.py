"""Late interaction: what it adds to the hybrid, what its codes lose, and what both cost.

    python benchmarks/late.py --rows FOLDER --out docs/benchmarks/late.md

Each set's queries are asked once, as a search for ten; the lists are fused as they are (`hybrid`),
and with late interaction on their first hundred: from float16 token vectors, from codes of 4 bits a
dimension and from those of 2. No set in the first table took part in the fit of its share. What a
set's queries found and what each of these makes of it is kept in --rows, from where this and
benchmarks/fit_late.py take it again in seconds; it takes an hour or two on two cores for all sets,
and --sets names some.

`identifiers` are part numbers, error codes and names of functions that stand in one to three
records of the sample, k8s_docs and cosqa, each asked by itself; the records that have it are
relevant.

`Cross-encoder` reads the first 25 of the hybrid and of late interaction again, as `--rerank` does,
for a sample of queries; --rerank SETS makes that table alone, over these sets.

Speed: codes of real passages, repeated until there are so many, in one file that is mapped; 100
passages drawn at random from all of it, and all that a search does after it knows its candidates'
digests, in the thread's own time, since others may be at work; then ten times with the file put out
of memory. Index time: the same documents indexed with the setting `off` and `on`, by turns, in the
process's own time. --only speed makes these tables alone, --only quality the first. Memory: of a
process of its own that opens a store of cranfield, with codes and the setting `on`, and without.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import clew
from clew.config import Config
from clew.eval import datasets
from clew.eval.datasets import Dataset
from clew.index.token_codes import TokenCodes
from clew.models import load_late_interaction, load_reranker
from clew.protocols import LateInteraction
from clew.ranking.adaptive import Facts
from clew.ranking.fusion import RankedList, WeightedLists, weigh_lists
from clew.ranking.rerank import HEAD, blended
from clew.search.collect import Outcome
from clew.search.hits import name_candidates, read_passages
from clew.search.token_match import LateStep, TokenReader, open_token_reader
from clew.store import open_store
from clew.text.passage import digest, titles
from clew.text.passage import passage as as_read
from clew.types import Candidate, SearchRequest, Vectors
from clew.validate import multiply
from fit_fusion import ndcg, opened

from report import REPOSITORY, Table, figure, options, p, publish, say

WANTED = {
    "cranfield": (0.422, 0.426),
    "scifact": (0.748, 0.760),
    "locomo": (0.533, 0.578),
    "cosqa": (0.583, 0.583),
    "k8s_docs": (0.765, 0.765),
    "xquad_en": (0.983, 0.989),
    **{f"xquad_{script}": (0.0, 0.0) for script in ("zh", "ru", "ar", "th")},  # not lower
}
MODEL = "colbert-small"
SHOWN = 10
TURN = 20
PARTS = ("quality", "identifiers", "speed", "rerank")
RERANKED, SAMPLED, BLEND = ("cranfield", "locomo"), 40, Config().rerank_blend
CODE = re.compile(
    r"\b(?:[A-Z]{1,5}-?\d[\w-]*\d\w*|[a-z]+(?:_[a-z0-9]+){1,4}|[a-z]+(?:[A-Z][a-z]+){1,4})\b"
)


class FloatRows:
    """Token vectors as they are, in the place of codes."""

    harmed = 0

    def __init__(self, tables: dict[bytes, Vectors]):
        self._tables = tables

    def score(self, query: Vectors, digests: Sequence[bytes]) -> dict[bytes, float]:
        some = {d: self._tables[d] for d in digests if d in self._tables}
        if not some:
            return {}
        starts = np.cumsum([0, *map(len, some.values())][:-1], dtype=np.int64)
        products = multiply(np.concatenate(list(some.values())).astype(np.float32), query.T)
        best = np.maximum.reduceat(products, starts, axis=0).mean(axis=1)
        return dict(zip(some, best.tolist(), strict=True))


@dataclass(frozen=True, slots=True)
class Query:
    """One query, asked once: what fusion was given, and the score of every passage in its lists,
    in the place of a store and of its codes."""

    text: str
    lists: dict[str, RankedList]
    facts: Facts
    scores: dict[str, dict[int, float]]
    """By way, then by passage."""
    passages: dict[int, str]
    """Their texts, of the whole set."""
    way: str = "float16"

    dim, model, harmed = 0, "colbert-small", 0

    @property
    def vectors(self) -> Query:
        return self

    def digests(self, chunks: Sequence[int]) -> dict[int, int]:
        return {chunk: chunk for chunk in chunks}

    def texts(self, chunks: Sequence[int]) -> list[tuple[int, str]]:
        return [(chunk, self.passages[chunk]) for chunk in chunks]

    def score(self, _: Vectors, chunks: Sequence[int]) -> dict[int, float]:
        found = self.scores[self.way]
        return {chunk: found[chunk] for chunk in chunks if chunk in found}

    def encode_query(self, _: str, *, expand: bool = True) -> Vectors:
        return np.zeros((1 + expand, 1), np.float32)

    def votes(self) -> WeightedLists:
        return weigh_lists(self.lists, self.facts, strategy="adaptive")

    def read(self, way: str) -> WeightedLists:
        """With the votes of late interaction."""
        played: Any = replace(self, way=way)
        step = LateStep(lambda: TokenReader(played, played), self.text, seconds=0)
        return step.weigh(self.votes(), self.lists, played)


def ask(dataset: Dataset, arguments: Any, *, every: int = 1) -> tuple[Dataset, list[Query]]:
    """A set's queries, or every second one, from what is kept of them."""
    dataset = dataset.only(dataset.queries[::every])
    file = arguments.rows / f"{dataset.name}-{dataset.split}.json.gz"
    if not file.exists():
        with gzip.open(file.with_suffix(".draft"), "wt") as made:
            json.dump(ask_now(dataset, arguments), made)
        file.with_suffix(".draft").rename(file)
    with gzip.open(file, "rt") as kept:
        told = json.load(kept)
    passages = {int(chunk): text for chunk, text in told["passages"].items()}
    queries = []
    for text, lists, facts, chunks, scores in told["queries"]:
        ranked = {
            name: RankedList([Candidate(*each) for each in given], kind, weight, part)
            for name, (given, kind, weight, part) in lists.items()
        }
        by_way = {way: dict(zip(chunks, of, strict=True)) for way, of in scores.items()}
        queries.append(Query(text, ranked, Facts(*facts), by_way, passages))
    return dataset, queries


def ask_now(dataset: Dataset, arguments: Any) -> dict[str, Any]:
    """What is kept of a set: its queries' lists, the scores and texts of all that is in them."""
    model = load_late_interaction(MODEL, offline=False)
    queries, used = [], set[int]()
    with opened(dataset, arguments.stores) as engine, TemporaryDirectory() as folder:
        tables = read_rows(arguments.rows / f"{dataset.name}.npz", engine, model)
        ways: dict[str, Any] = {"float16": FloatRows(tables)}
        for bits in (4, 2):
            ways[f"{bits} bits"] = write_codes(Path(folder), tables, model, bits)
        for question in dataset.queries:
            lists, facts, _ = engine.collect_lists(request(question))
            row = model.encode_query(question.text, expand=False)
            every = [c.chunk for of in lists.values() for c in of.candidates if c.chunk]
            digests = engine.store.vectors.digests(list(dict.fromkeys(every)))
            found = {way: of.score(row, list(digests.values())) for way, of in ways.items()}
            chunks = [chunk for chunk, digest in digests.items() if digest in found["float16"]]
            scores = {way: [of[digests[c]] for c in chunks] for way, of in found.items()}
            told = {
                name: ([tuple(c[:3]) for c in of.candidates], of.kind, of.weight, of.part)
                for name, of in lists.items()
            }
            queries.append((question.text, told, facts, chunks, scores))
            used.update(chunks)
        return {"queries": queries, "passages": dict(engine.store.vectors.texts(sorted(used)))}


def read_rows(file: Path, engine: clew.Engine, model: LateInteraction) -> dict[bytes, Vectors]:
    """The token vectors of a store's passages by digest, made if they are not kept."""
    if not file.exists():
        digests = engine.store.vectors.digests()
        tables: dict[bytes, Vectors] = {}
        chunks = sorted({d: c for c, d in digests.items()}.values())
        for i in range(0, len(chunks), 256):
            texts = engine.store.vectors.texts(chunks[i : i + 256])
            made = model.encode_passages([text for _, text in texts])
            tables |= {
                digests[c]: of.astype(np.float16) for (c, _), of in zip(texts, made, strict=True)
            }
            say(f"{file.stem}: {len(tables):,} of {len(chunks):,} passages")
        np.savez(
            file,
            rows=np.concatenate(list(tables.values())),
            lengths=np.array([len(of) for of in tables.values()]),
            digests=np.array([np.frombuffer(d, np.uint8) for d in tables]),
        )
    kept = np.load(file)
    ends = np.cumsum(kept["lengths"])
    parts = np.split(kept["rows"], ends[:-1])
    return {row.tobytes(): of for row, of in zip(kept["digests"], parts, strict=True)}


def write_codes(place: Path, tables: dict[bytes, Vectors], model: Any, bits: int) -> TokenCodes:
    """Made once in a run for each set."""
    codes = TokenCodes(place / f"bits-{bits}", model=model.model, dim=model.dim, bits=bits)
    if codes.files() is not None:
        return codes
    rows = np.concatenate(list(tables.values())).astype(np.float32)
    codes.train(rows, tokens=len(rows))
    codes.add(tables)
    return codes


def request(question: datasets.Question) -> SearchRequest:
    return SearchRequest(
        question.text, limit=SHOWN, group_by="record", filter=question.filter, syntax=False
    )


def rank_all(queries: Sequence[Query], ways: Sequence[str]) -> tuple[dict[str, Any], list[float]]:
    """The first ten of each query by each way, and late interaction's shares by the last."""
    ranked: dict[str, list[list[str]]] = {name: [] for name in ("keyword", "hybrid", *ways)}
    shares = []
    for query in queries:
        words = query.lists["keyword"].candidates if "keyword" in query.lists else ()
        ranked["keyword"].append([c.id for c in words[:SHOWN]])
        ranked["hybrid"].append([f.id for f in query.votes().fused(SHOWN)])
        for way in ways:
            votes = query.read(way)
            ranked[way].append([f.id for f in votes.fused(SHOWN)])
        shares.append(votes.facts.late)
    return ranked, shares


def measure_sets(arguments: Any) -> tuple[Table, dict[str, Any]]:
    rows, numbers = [], {}
    ways = ("float16", "4 bits", "2 bits")
    for name in arguments.sets.split(","):
        dataset, queries = ask(datasets.read(arguments.data / name, split="test"), arguments)
        ranked, shares = rank_all(queries, ways)
        found = {way: float(ndcg(dataset, of).mean()) for way, of in ranked.items()}
        numbers[name] = found
        wanted = WANTED[name][1] or found["hybrid"]
        cells = [f"{found[way]:.4f}" for way in ("keyword", "hybrid", *ways)]
        holds = "yes" if found["4 bits"] >= wanted else "NO"
        rows.append((name, *cells, f"{np.mean(shares):.2f}", f"{wanted:.3f}", holds))
        say(f"{name}: {found}")
    columns = ("set", "keyword", "hybrid", *ways, "mean share", "wanted", "holds")
    return Table("nDCG@10", columns, rows, "`wanted` is of 4 bits, the default."), numbers


def measure_identifiers(
    arguments: Any, model: LateInteraction, work: Path
) -> tuple[Table, dict[str, Any]]:
    """A hundred of them."""
    totals: dict[str, list[float]] = {}
    for source, most in (("sample", 30), ("k8s_docs", 35), ("cosqa", 35)):
        if source == "sample":
            engine = clew.open(work / "store", cache=False)
            engine.index(REPOSITORY / "sample")
        else:
            engine = opened(datasets.read(arguments.data / source, split="test"), None)
        with engine:
            tables = read_rows(arguments.rows / f"{source}.npz", engine, model)
            codes = write_codes(work / source, tables, model, 4)
            texts = {r.id: r.content for r in engine.store.select(clew.Filter(), limit=10_000)}
            where: dict[str, set[str]] = {}
            for name, text in texts.items():
                for code in set(CODE.findall(text)):
                    where.setdefault(code, set()).add(name)
            rare = sorted(c for c, of in where.items() if len(of) <= 3 and len(c) > 5)
            asked = rare[:: max(1, len(rare) // most)][:most]
            queries = tuple(datasets.Question(c, c) for c in asked)
            qrels = {c: dict.fromkeys(where[c], 1) for c in asked}
            made = Dataset(source, Path(), "test", None, queries, qrels)
            ranked: dict[str, list[list[str]]] = {"keyword": [], "hybrid": [], "4 bits": []}
            shares = []
            for code in asked:
                lists, facts, _ = engine.collect_lists(request(datasets.Question(code, code)))
                votes = weigh_lists(lists, facts, strategy="adaptive")
                step = LateStep(lambda codes=codes: TokenReader(model, codes), code, seconds=0)  # type: ignore[misc]
                late = step.weigh(votes, lists, engine.store)
                shares.append(late.facts.late)
                ranked["keyword"].append([c.id for c in lists["keyword"].candidates[:SHOWN]])
                ranked["hybrid"].append([f.id for f in votes.fused(SHOWN)])
                ranked["4 bits"].append([f.id for f in late.fused(SHOWN)])
        for way, of in ranked.items():
            totals.setdefault(way, []).extend(ndcg(made, of).tolist())
        totals.setdefault("share", []).extend(shares)
    means = {way: float(np.mean(of)) for way, of in totals.items()}
    row = figure(
        f"nDCG@10 of {len(totals['keyword'])} identifiers",
        f"{means['4 bits']:.4f} (hybrid {means['hybrid']:.4f}, mean share {means['share']:.2f})",
        f"keyword alone, {means['keyword']:.4f}",
        means["4 bits"] >= means["keyword"],
    )
    return Table("Identifiers", ("what", "measured", "at least", "holds"), [row]), means


def measure_reranker(
    arguments: Any, model: LateInteraction, work: Path
) -> tuple[Table, dict[str, Any]]:
    """What the cross-encoder adds to either."""
    reranker = load_reranker("reranker-en")
    rows, numbers = [], {}
    for name in arguments.rerank.split(",") if arguments.rerank else RERANKED:
        dataset = datasets.read(arguments.data / name, split="test")
        dataset = dataset.only(dataset.queries[:: len(dataset.queries) // SAMPLED][:SAMPLED])
        ranked: dict[str, list[list[str]]] = {}
        with opened(dataset, None) as engine:
            tables = read_rows(arguments.rows / f"{name}.npz", engine, model)
            codes = write_codes(work / name, tables, model, 4)
            reader = TokenReader(model, codes)
            for question in dataset.queries:
                lists, facts, _ = engine.collect_lists(request(question))
                votes = weigh_lists(lists, facts, strategy="adaptive")
                step = LateStep(lambda reader=reader: reader, question.text, seconds=0)  # type: ignore[misc]
                late = step.weigh(votes, lists, engine.store)
                found = [Outcome(of, tuple(given.candidates)) for of, given in lists.items()]
                read: dict[str, float] = {}
                for way, head in (("hybrid", votes.fused(HEAD)), ("late", late.fused(HEAD))):
                    named = name_candidates(head, [*found, *step.outcomes])
                    texts = [
                        as_read(titles(p.record.title, p.record.metadata), p.heading, p.text)
                        for p in read_passages(named, engine.store)
                        if p is not None
                    ]
                    fresh = [text for text in texts if text not in read]
                    read |= dict(zip(fresh, reranker.score(question.text, fresh), strict=True))
                    again = blended(head, [read[text] for text in texts], blend=BLEND)
                    ranked.setdefault(way, []).append([f.id for f in head[:SHOWN]])
                    ranked.setdefault(f"{way} + rerank", []).append([f.id for f in again[:SHOWN]])
        numbers[name] = {way: float(ndcg(dataset, of).mean()) for way, of in ranked.items()}
        rows.append((name, len(dataset.queries), *(f"{of:.4f}" for of in numbers[name].values())))
        say(f"{name}: {numbers[name]}")
    columns = ("set", "queries", "hybrid", "hybrid + rerank", "late", "late + rerank")
    return Table("Cross-encoder", columns, rows, "nDCG@10."), numbers


def measure_speed(arguments: Any, model: LateInteraction, work: Path) -> Table:
    rows = []
    with opened(datasets.read(arguments.data / "cranfield", split="test"), None) as engine:
        tables = read_rows(arguments.rows / "cranfield.npz", engine, model)
    query = model.encode_query(
        "when was the harbour crane inspected last, and by whom", expand=False
    )
    codes = write_codes(work / "speed", tables, model, 4)
    files = codes.files()
    assert files is not None
    random = np.random.default_rng(3)
    for size, most in ((200_000, 3.0), (1_000_000, 5.0)):
        place = work / f"speed-{size}"
        place.mkdir()
        grown = TokenCodes(place, model=model.model, dim=model.dim)
        repeat_codes(codes, grown, size)
        names = [digest(f"{i}") for i in range(size)]
        grown.score(query, names[:1])  # opens it
        times, walls = list[float](), list[float]()
        for _ in range(200):
            some = [names[i] for i in random.integers(0, size, 100)]
            begun, worked = time.perf_counter(), time.thread_time()
            grown.score(query, some)
            walls.append((time.perf_counter() - begun) * 1e3)
            times.append((time.thread_time() - worked) * 1e3)
        tokens = grown.figures()["tokens"] / size
        what = f"scoring 100 of {size:,} passages of {tokens:.0f} tokens, ms p50 (p95) of work"
        half = p(times, 50)
        took = f"{half:.2f} ({p(times, 95):.2f}); on the clock {p(walls, 50):.2f}"
        rows.append(figure(what, took, f"{most:.0f} ms", half <= most))
        per = grown.figures()["bytes"] / grown.figures()["tokens"]
        say(f"{what}: {took}; {per:.1f} bytes a token")
        del grown  # its pages stay while they are mapped
        cold = [score_cold(place, model, query, names, random) for _ in range(10)]
        took = f"{p(cold, 50):.1f} ({max(cold):.1f}) on the clock"
        rows.append((f"of {size:,}, none in memory, ms p50 (most)", took, "–", ""))
        shutil.rmtree(place)
    rows.append(figure("bytes a token, all files", f"{per:.1f}", "52", per <= 52))
    return Table("Speed and size", ("what", "measured", "at most", "holds"), rows)


def score_cold(
    place: Path, model: LateInteraction, query: Vectors, names: Sequence[bytes], random: Any
) -> float:
    """Milliseconds for a hundred, none of which are in the system's memory."""
    (file,) = place.glob("codes-*")
    with file.open("rb") as opened:
        os.fsync(opened.fileno())
        os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    codes = TokenCodes(place, model=model.model, dim=model.dim)
    codes.score(query, names[:1])
    some = [names[i] for i in random.integers(0, len(names), 100)]
    begun = time.perf_counter()
    codes.score(query, some)
    return (time.perf_counter() - begun) * 1e3


def repeat_codes(codes: TokenCodes, into: TokenCodes, size: int) -> None:
    """The same codes again and again, under digests of their own."""
    from clew.index.token_codes import PASSAGE

    files = codes.files()
    assert files is not None
    state = into.begin(files.codebook, trained=files.state["trained"])
    done, lengths = 0, files.passages["tokens"]
    while done < size:
        count = min(len(lengths), size - done)
        index = np.zeros(count, PASSAGE)
        index["tokens"], index["sum"] = lengths[:count], files.sums[:count]
        index["digest"] = [np.void(digest(f"{done + i}")) for i in range(count)]
        state = into.extend(state, files.codes[: int(files.ends[count - 1])], index)
        done += count
    into.save(state)


def measure_passes(arguments: Any, model: LateInteraction, work: Path) -> Table:
    """What all three passes take beside two, on some documents of one set."""
    dataset = datasets.read(arguments.data / "cranfield", split="test")
    records = (dataset.records or ())[::14]
    took = {"off": 0.0, "on": 0.0}
    for i in range(-TURN, len(records), TURN):  # by turns: others may be at work here
        some = records[max(0, i) : max(0, i) + TURN]
        for way in took:
            with clew.open(work / way, cache=False, late_interaction=way) as engine:
                begun = time.process_time()
                engine.add(some)
                engine.embed()
                took[way] += (time.process_time() - begun) * (i >= 0)  # the first of all warms up
    ratio = took["on"] / took["off"]
    rows = [figure("three passes to two", f"{ratio:.2f} ×", "2.2 ×", ratio <= 2.2)]
    rows.append(measure_memory(dataset, arguments, model))
    note = (
        f"{len(records)} documents of cranfield, {TURN} at a time: {took['off']:.1f} s of work in "
        f"two passes, {took['on']:.1f} s in three."
    )
    return Table("Index time and memory", ("what", "measured", "at most", "holds"), rows, note)


def measure_memory(dataset: Dataset, arguments: Any, model: LateInteraction) -> tuple[Any, ...]:
    """What a store's codes cost when it is opened."""
    probe = (
        "import sys, clew\n"
        "opened = clew.open(sys.argv[1], create=False, late_interaction=sys.argv[2])\n"
        "print(int(open('/proc/self/statm').read().split()[1]) * 4096 / 1e6)"
    )
    with opened(dataset, None) as engine, TemporaryDirectory(dir=arguments.work) as folder:
        place = Path(folder, "store")
        shutil.copytree(engine.store.folder, place / ".clew", dirs_exist_ok=True)
        tables = read_rows(arguments.rows / f"{dataset.name}.npz", engine, model)
        with closing(open_store("", base=place, folder=place / ".clew")) as copy:
            codes = open_token_reader(engine.config, copy, model).codes
        codes.train(np.concatenate(list(tables.values())).astype(np.float32), tokens=200_000)
        codes.add(tables)
        run = [sys.executable, "-c", probe, str(place)]
        sizes = {
            way: min(float(subprocess.check_output([*run, way], text=True)) for _ in range(3))
            for way in ("off", "on")
        }
    more = sizes["on"] - sizes["off"]
    return figure(
        "resident memory after open, MB", f"{sizes['on']:.1f}", f"{sizes['off']:.1f} + 1", more <= 1
    )


def shown(table: Table) -> Table:
    """Said at once: the whole takes long."""
    say(table.plain())
    return table


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--rows", type=Path, required=True, help="folder for token vectors")
    parser.add_argument("--sets", default=",".join(WANTED), help="of these, by name")
    parser.add_argument("--stores", type=Path, help="folder with a ready store for each set")
    parser.add_argument("--only", choices=PARTS, action="append", help="these tables alone")
    parser.add_argument("--rerank", help="the cross-encoder, on these sets")
    arguments = parser.parse_args()
    arguments.rows.mkdir(parents=True, exist_ok=True)
    parts = arguments.only or (("rerank",) if arguments.rerank else PARTS)
    tables, numbers = list[Table](), dict[str, Any]()
    with TemporaryDirectory(dir=arguments.work) as folder:
        work = Path(folder)
        model = load_late_interaction(MODEL, offline=False)
        if "quality" in parts:
            table, numbers = measure_sets(arguments)
            tables.append(shown(table))
        if "identifiers" in parts:
            table, numbers["identifiers"] = measure_identifiers(arguments, model, work)
            tables.append(shown(table))
        if "speed" in parts:
            tables.append(shown(measure_speed(arguments, model, work)))
            tables.append(shown(measure_passes(arguments, model, work)))
        if "rerank" in parts:
            table, numbers["reranked"] = measure_reranker(arguments, model, work)
            tables.append(shown(table))
    publish("Late interaction", __doc__, tables, numbers, arguments)


if __name__ == "__main__":
    main()
