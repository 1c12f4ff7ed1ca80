"""Records for measuring speed: real sentences, real queries, as many as are asked for.

A million real texts with vectors do not fit beside a project, so records are put together:

- Documents of the English test collections are cut into sentences; a fixed sample of them
  (12,000, drawn document by document, a set at a time) is embedded with Clew's default model and
  kept in benchmarks/.cache/.
- A record is three of these sentences: a random one, and two more from its own document or from
  the 48 nearest to it in meaning, so that a record is about something.
- Its vector is the mean of its sentences' vectors with a little noise (a tenth of its length), at
  length 1. That keeps the model's own distribution: the clusters, the narrow cone, the hubs.
- Queries are the sets' own, embedded as queries with the same model.

So words and vectors are real, and repeat: at a million records each sentence occurs 250 times, and
a record has near-duplicates. What is measured on them is speed and recall against exact search;
they say nothing about the quality of answers. Everything is seeded: record 7 is always the same.

Run as a command it prepares the cache and prints a few records.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from clew import Record
from clew.models import load_embedder
from clew.protocols import Embedder
from clew.text.parse import parse

from report import options, say

SETS = (
    "scifact",
    "cranfield",
    "cisi",
    "cacm",
    "medline1033",
    "vaswani",
    "nq_utd",
    "k8s_docs",
    "locomo",
    "cosqa",
)
VERSION = 2
CACHE = Path(__file__).parent / ".cache"
MATES, NEAR = 8, 48
"""How many sentences of the same document, and how many near ones, a record may draw from."""
PER_DOCUMENT = 12
"""Sentences taken from one document: some of k8s_docs have hundreds."""
NOISE = 0.1
BLOCK = 10_000
"""Records are made in blocks of this many, each with a seed of its own."""

Floats = npt.NDArray[np.float32]
Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Corpus:
    """What records and queries are made from."""

    sentences: list[str]
    vectors: Floats
    pool: Numbers
    """Per sentence: those it may share a record with."""
    queries: list[str]
    query_vectors: Floats


def load(data: Path, *, sentences: int = 12_000, queries: int = 1_200) -> Corpus:
    """From the cache, or made now (a minute or two of embedding)."""
    embedder = load_embedder("bge-small")
    if not embedder.dim:
        raise SystemExit("benchmarks need the default model: run `clew models pull bge-small`")
    named = f"{VERSION} {SETS} {PER_DOCUMENT} {sentences} {queries} {embedder.model}"
    base = CACHE / f"corpus-{hashlib.sha256(named.encode()).hexdigest()[:12]}"
    if not base.with_suffix(".npz").exists():
        _make(base, data, embedder, sentences, queries)
    words = json.loads(base.with_suffix(".json").read_text("utf-8"))
    with np.load(base.with_suffix(".npz")) as arrays:
        vectors, query_vectors = arrays["vectors"], arrays["query_vectors"]
    documents = np.array(words["documents"])
    pool = _pool(vectors, documents)
    return Corpus(words["sentences"], vectors, pool, words["queries"], query_vectors)


def _make(base: Path, data: Path, embedder: Embedder, sentences: int, queries: int) -> None:
    if not data.is_dir():
        raise SystemExit(f"there is no {data}: say where the test collections are with --data")
    texts, documents = _sentences(data, sentences)
    asked = _queries(data, queries)
    say(f"embedding {len(texts):,} sentences and {len(asked):,} queries, once…")
    vectors = embed(embedder, texts)
    base.parent.mkdir(exist_ok=True)
    words = {"sentences": texts, "documents": documents, "queries": asked}
    base.with_suffix(".json").write_text(json.dumps(words), "utf-8")
    draft = base.with_suffix(".tmp.npz")
    query_vectors = np.stack([embedder.embed_query(text) for text in asked])
    np.savez(draft, vectors=vectors, query_vectors=query_vectors)
    draft.replace(base.with_suffix(".npz"))


def embed(embedder: Embedder, texts: list[str]) -> Floats:
    """The vectors of many texts, and how far it is."""
    rows = []
    for i in range(0, len(texts), 500):
        rows.append(embedder.embed_documents(texts[i : i + 500]))
        say(f"  {min(i + 500, len(texts)):,} of {len(texts):,}")
    return np.concatenate(rows)


def _sentences(data: Path, wanted: int) -> tuple[list[str], list[int]]:
    """Distinct sentences with the number of their document: a document of each set in turn."""
    piles = [
        _shuffled(list(read_gzipped(data / name / "corpus.jsonl.gz")), seed=1) for name in SETS
    ]
    found: dict[str, int] = {}
    number = 0
    while len(found) < wanted and any(piles):
        for pile in piles:
            if pile:
                number += 1
                document = pile.pop()
                for sentence in _split(f"{document['title']}\n\n{document['text']}")[:PER_DOCUMENT]:
                    found.setdefault(sentence, number)
    return list(found)[:wanted], list(found.values())[:wanted]


_END = re.compile(r"(?<=[.!?])\s+|\n\s*\n")


def _split(text: str) -> list[str]:
    pieces = (" ".join(piece.split())[:400] for piece in _END.split(text))
    return [piece for piece in pieces if len(piece) >= 30]


def _queries(data: Path, wanted: int) -> list[str]:
    texts = [
        query["text"]
        for name in SETS
        for file in sorted((data / name).glob("queries*.jsonl.gz"))
        for query in read_gzipped(file)
    ]
    plain = [text for text in dict.fromkeys(texts) if _is_plain(text)]
    return _shuffled(plain, seed=2)[:wanted]


def _is_plain(text: str) -> bool:
    """Whether Clew reads it as words only: a quoted phrase or -word filters, the floor does not."""
    query = parse(text)
    return bool(query.terms.words) and not (
        query.terms.phrases or query.terms.excluded or query.filter
    )


def read_gzipped(file: Path) -> Iterator[dict[str, Any]]:
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def _shuffled(items: list[Any], *, seed: int) -> list[Any]:
    return [items[i] for i in np.random.default_rng(seed).permutation(len(items))]


def _pool(vectors: Floats, documents: npt.NDArray[np.int64]) -> Numbers:
    """Per sentence: up to MATES of its document, then near ones up to MATES + NEAR in all."""
    import faiss

    width = MATES + NEAR
    near = faiss.knn(vectors, vectors, width + 1, metric=faiss.METRIC_INNER_PRODUCT)[1]
    pool = np.empty((len(vectors), width), np.int64)
    firsts = np.searchsorted(documents, documents, "left")
    lasts = np.searchsorted(documents, documents, "right")
    for i, neighbours in enumerate(near):
        mates = [j for j in range(firsts[i], lasts[i]) if j != i][:MATES]
        taken = {i, *mates}
        pool[i] = (mates + [j for j in neighbours if j not in taken])[:width]
    return pool


def records(corpus: Corpus, first: int, last: int) -> tuple[list[Record], Floats]:
    """Records `first`..`last` - 1 (whole blocks) and their vectors.

    `bucket` keeps 1 % of them when filtered by, `rare` 0.01 %.
    """
    if first % BLOCK or last % BLOCK:
        raise SystemExit(f"records come in blocks of {BLOCK:,}: give a multiple of it")
    made: list[Record] = []
    vectors = np.empty((last - first, corpus.vectors.shape[1]), np.float32)
    for start in range(first, last, BLOCK):
        rng = np.random.default_rng((3, start))
        anchors = rng.integers(len(corpus.sentences), size=BLOCK)
        # A random place and a random step on the circle give two different ones of the pool.
        width = corpus.pool.shape[1]
        one = rng.integers(width, size=BLOCK)
        two = (one + rng.integers(1, width, size=BLOCK)) % width
        b, c = corpus.pool[anchors, one], corpus.pool[anchors, two]
        rows = corpus.vectors[anchors] + corpus.vectors[b] + corpus.vectors[c]
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        noise = rng.standard_normal(rows.shape, dtype=np.float32)
        rows += noise * np.float32(NOISE / np.sqrt(rows.shape[1]))
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        vectors[start - first : start - first + BLOCK] = rows
        text = corpus.sentences
        for i, (x, y, z) in enumerate(zip(anchors, b, c, strict=True), start):
            made.append(
                Record(
                    id=f"r{i:07d}",
                    content=f"{text[x]} {text[y]} {text[z]}",
                    metadata={"bucket": i % 100, "rare": i % 10_000},
                )
            )
    return made, vectors


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--records", type=int, default=BLOCK, help="how many to make (and time)")
    arguments = parser.parse_args()
    corpus = load(arguments.data)
    begun = time.perf_counter()
    for first in range(0, arguments.records, BLOCK):
        made, vectors = records(corpus, first, first + BLOCK)
    taken = time.perf_counter() - begun
    if arguments.json:
        print(json.dumps({"records": arguments.records, "seconds": taken}))
        return
    print(f"{arguments.records:,} records made in {taken:.1f} s; the last ones:")
    for record, vector in zip(made[-3:], vectors[-3:], strict=True):
        print(f"- {record.content}\n  {vector[:4]}…")
    print("queries:", *corpus.queries[:5], sep="\n- ")


if __name__ == "__main__":
    main()
