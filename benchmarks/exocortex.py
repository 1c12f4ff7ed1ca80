"""An exocortex of made-up abstracts: how fast it is built, how large it is, how fast it is asked.

    python benchmarks/exocortex.py --articles 1000000 --out docs/benchmarks/exocortex.md

The dump is gzipped XML as Wikimedia wrote it, made and written as a stream. Its words are made up,
their frequencies are not: 300,000 words as Zipf and Mandelbrot would have them, English stopwords
for two words in five, and 3,000 topics with 150 words each, so that the words of an article keep
company. An article has 15 to 75 words and the links that real dumps have.

Building is `clew exocortex build`, a process of its own. Queries are words of random articles
without stopwords, so that frequent words are asked often. They go through the source, passages
included, ten results wanted, a connection for each as in a search. `frequent` are the hundred
words that most articles have, one by one: the hardest case. `plain FTS5` is what asking for any of
the words and sorting by bm25 takes, without reading the texts.

CPU times are given beside those of the clock: they say more when others use the machine as well.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import resource
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from clew.sources.sqlite import exocortex
from clew.text.analyser import STOPWORDS, fts_escape
from clew.text.parse import parse
from clew.types import Answer
from startup import command

from report import Table, options, p, publish, say

BLOCK = 10_000
WORDS, TOPICS, PER_TOPIC = 300_000, 3_000, 150
STOP_SHARE, TOPIC_SHARE = 0.38, 0.24
CONSONANTS = [*"bcdfghjklmnprstvwz", "st", "tr", "pl", "gr", "ch", "sh"]
VOWELS = [*"aeiou", "ai", "ou", "er", "an", "en", "or", "il"]
LENGTHS = (1, 3, 6)
MOST_FREQUENT = 100
SHOWN = (("", "p50"), ("", "p95"), ("CPU", "p50"), ("CPU", "p95"))


class Language:
    """Words by rank, and topics."""

    def __init__(self) -> None:
        rng = np.random.default_rng(1)
        syllables = [c + v for c in CONSONANTS for v in VOWELS]
        made: dict[str, None] = {}
        while len(made) < WORDS:
            for length in rng.integers(2, 5, size=WORDS).tolist():
                made["".join(syllables[i] for i in rng.integers(len(syllables), size=length))] = (
                    None
                )
        self.words = np.array([w for w in made if w not in STOPWORDS][:WORDS], dtype=object)
        self._stop = np.array(sorted(STOPWORDS), dtype=object)
        self._by_rank = _cumulated(len(self.words), offset=40)
        self._by_stop = _cumulated(len(self._stop), offset=2.7)
        ranks = 30 * (len(self.words) / 30) ** rng.random((TOPICS, PER_TOPIC))
        self._topics = ranks.astype(np.int64)

    def articles(self, block: int) -> Iterator[tuple[str, list[str]]]:
        """(title, words) of one block. Seeded: article 7 is always the same."""
        rng = np.random.default_rng((2, block))
        lengths = rng.integers(15, 75, size=BLOCK)
        total = int(lengths.sum())
        topics = np.repeat(rng.integers(TOPICS, size=BLOCK), lengths)
        places = (PER_TOPIC * rng.random(total) ** 2).astype(np.int64)
        kinds = rng.random(total)
        common = self.words[np.searchsorted(self._by_rank, rng.random(total))]
        topical = self.words[self._topics[topics, places]]
        stop = self._stop[np.searchsorted(self._by_stop, rng.random(total))]
        mixed = np.where(kinds < STOP_SHARE + TOPIC_SHARE, topical, common)
        words = np.where(kinds < STOP_SHARE, stop, mixed).tolist()
        named = rng.integers(1, 4, size=BLOCK).tolist()
        start = 0
        for number, length in enumerate(lengths.tolist()):
            some = words[start : start + length]
            start += length
            title = " ".join(content(some)[: named[number]]).title()
            yield f"{title} ({block * BLOCK + number})", some


def _cumulated(count: int, *, offset: float) -> np.ndarray[Any, np.dtype[np.float64]]:
    weights = 1 / (np.arange(count) + offset)
    cumulated: np.ndarray[Any, np.dtype[np.float64]] = (weights / weights.sum()).cumsum()
    return cumulated


def content(words: list[str]) -> list[str]:
    return [word for word in words if word not in STOPWORDS]


def write_dump(file: Path, language: Language, count: int) -> int:
    """How many bytes it has before it is packed."""
    size = 0
    with gzip.open(file, "wb", compresslevel=1) as out:

        def write(text: str) -> None:
            nonlocal size
            data = text.encode()
            size += len(data)
            out.write(data)

        write("<feed>\n")
        for block in range(count // BLOCK):
            write("".join(_doc(title, words) for title, words in language.articles(block)))
            if block % 10 == 9:
                say(f"  {(block + 1) * BLOCK:,} of {count:,} articles written")
        write("</feed>\n")
    return size


def _doc(title: str, words: list[str]) -> str:
    url = f"https://en.wikipedia.org/wiki/{title.replace(' ', '_')}"
    links = "".join(
        f'<sublink linktype="nav"><anchor>{name}</anchor><link>{url}#{name}</link></sublink>\n'
        for name in ("History", "Geography", "References", "External_links")
    )
    return (
        f"<doc>\n<title>Wikipedia: {title}</title>\n<url>{url}</url>\n"
        f"<abstract>{title} is {' '.join(words)}.</abstract>\n<links>\n{links}</links>\n</doc>\n"
    )


def build(dump: Path, out: Path) -> dict[str, Any]:
    """The command's report, with the most memory that its process had."""
    done = subprocess.run(
        [*command(), "exocortex", "build", str(dump), "--out", str(out), "--json"],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu, peak = used.ru_utime + used.ru_stime, used.ru_maxrss / 1024
    return {**json.loads(done.stdout), "cpu": cpu, "peak_mb": peak}


def questions(language: Language, articles: int, count: int) -> dict[str, list[str]]:
    """By what they are called in the table."""
    rng = np.random.default_rng(3)
    asked: dict[str, list[str]] = {f"{length} words": [] for length in LENGTHS}
    blocks = rng.integers(articles // BLOCK, size=10).tolist()
    drawn = [words for block in blocks for _, words in language.articles(block)]
    for length in LENGTHS:
        while len(asked[f"{length} words"]) < count:
            words = content(drawn[int(rng.integers(len(drawn)))])
            if len(words) >= length:
                asked[f"{length} words"].append(" ".join(rng.permutation(words)[:length]))
    return {**asked, "frequent": language.words[:MOST_FREQUENT].tolist()}


class Times:
    """Milliseconds of each query, by the clock and of CPU."""

    def __init__(self) -> None:
        self.clock: list[float] = []
        self.cpu: list[float] = []

    @contextlib.contextmanager
    def taken(self) -> Iterator[None]:
        clock, cpu = time.perf_counter(), time.thread_time()
        yield
        self.clock.append((time.perf_counter() - clock) * 1e3)
        self.cpu.append((time.thread_time() - cpu) * 1e3)

    def row(self) -> tuple[float, float, float, float]:
        return p(self.clock, 50), p(self.clock, 95), p(self.cpu, 50), p(self.cpu, 95)


def ask(file: Path, queries: list[str]) -> tuple[Times, float]:
    """How long the source takes, and the share of queries that find ten."""
    source = exocortex(file.parent, file=file.name, seconds=60)
    times, full = Times(), 0
    for text in queries:
        query = parse(text, limit=10)
        with times.taken():
            found = source(query, None)  # type: ignore[arg-type]
        full += not isinstance(found, Answer) and len(found) >= 10
    return times, full / len(queries)


def ask_plainly(file: Path, queries: list[str]) -> Times:
    times = Times()
    for text in queries:
        with times.taken(), contextlib.closing(sqlite3.connect(file)) as db:
            db.execute(
                "SELECT rowid FROM abstracts WHERE abstracts MATCH ? "
                "ORDER BY bm25(abstracts, 2.0, 1.0, 1.0), rowid LIMIT 50",
                (fts_escape(text, op="OR"),),
            ).fetchall()
    return times


def main() -> None:
    parser = options(__doc__, data=False)
    parser.add_argument("--articles", type=int, default=1_000_000, help="how many (1,000,000)")
    parser.add_argument("--queries", type=int, default=300, help="of each length (300)")
    arguments = parser.parse_args()
    if arguments.articles < BLOCK or arguments.articles % BLOCK:
        raise SystemExit(f"articles come in blocks of {BLOCK:,}: give a multiple of it")
    language = Language()
    with TemporaryDirectory(dir=arguments.work, ignore_cleanup_errors=True) as work:
        dump, file = Path(work, "abstracts.xml.gz"), Path(work, "exocortex.db")
        size = write_dump(dump, language, arguments.articles)
        say(f"building from {size / 1e6:,.0f} MB of XML…")
        built = build(dump, file)
        say(f"  {built['articles']:,} articles in {built['seconds']:.0f} s")
        asked = questions(language, arguments.articles, arguments.queries)
        rows: list[tuple[Any, ...]] = []
        for name, queries in asked.items():
            ask(file, queries[:20])  # so that the file's pages are in the system's cache
            times, full = ask(file, queries)
            plain = ask_plainly(file, queries[:100])
            rows.append((name, *times.row(), *plain.row(), f"{full:.0%}"))
            say(f"  {name}: p50 {p(times.clock, 50):.1f} ms, p95 {p(times.clock, 95):.1f} ms")
    columns = ("articles", "XML MB", "s", "articles/s", "CPU s", "peak memory MB", "file MB")
    made = built["articles"], size / 1e6, built["seconds"], built["articles"] / built["seconds"]
    kinds = [
        " ".join(f"{who} {what} {share}".split()) for who in ("", "plain") for what, share in SHOWN
    ]
    note = f"{arguments.queries} queries of each length; the first 100 of each also to plain FTS5."
    tables = [
        Table(
            "Building",
            columns,
            [(*made, built["cpu"], built["peak_mb"], built["bytes"] / 1e6)],
        ),
        Table("Asking, milliseconds", ("query", *kinds, "found ten"), rows, note),
    ]
    publish("Exocortex", __doc__, tables, {"built": built, "queries": rows}, arguments)


if __name__ == "__main__":
    main()
