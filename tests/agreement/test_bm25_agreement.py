"""The keyword leg against bm25s, an independent BM25, on the paragraphs of the sample folder."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from pathlib import Path

import bm25s
import numpy as np
import pytest

import clew
from clew.text.analyser import tokens, words

SAMPLE = Path(__file__).parents[2] / "sample"
PLAIN = {".md", ".rst", ".html", ".csv", ".jsonl", ".py"}
K1, B = 1.2, 0.75
LUCENE = K1 + 1
"""Tantivy keeps the factor k1 + 1, bm25s's lucene method leaves it out: a constant, no order."""

# Tantivy keeps a length in one byte: exact up to 40 tokens, then in steps of up to an eighth.
# Measured on 318 paragraphs and 120 queries: 118 equal top tens, worst overlap 9 of 10, worst
# correlation 0.9957, worst relative difference 0.030.
SAME_TOP_TENS = 0.95
WORST_OVERLAP = 8
WORST_CORRELATION = 0.99
WORST_DIFFERENCE = 0.05


@pytest.fixture(scope="module")
def paragraphs() -> dict[str, str]:
    found: dict[str, None] = {}
    for file in sorted(SAMPLE.rglob("*")):
        if file.suffix in PLAIN:
            pieces = re.split(r"\n\s*\n", file.read_text("utf-8"))
            found |= dict.fromkeys(p.strip() for p in pieces if len(tokens(p)) >= 5)
    assert len(found) > 250
    return {f"p{i:04}": text for i, text in enumerate(found)}


@pytest.fixture(scope="module")
def engine(
    paragraphs: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[clew.Engine]:
    # Chunks as long as any paragraph, so that both sides rank the same documents.
    with clew.open(tmp_path_factory.mktemp("bm25"), model="none", chunk_size=100_000) as opened:
        opened.add(clew.Record(name, text) for name, text in paragraphs.items())
        yield opened


@pytest.fixture(scope="module")
def reference(paragraphs: dict[str, str]) -> bm25s.BM25:
    index = bm25s.BM25(method="lucene", k1=K1, b=B)
    index.index([tokens(text) for text in paragraphs.values()], show_progress=False)
    return index


@pytest.fixture(scope="module")
def queries(paragraphs: dict[str, str]) -> list[str]:
    """One to five neighbouring words of 120 paragraphs."""
    dice = random.Random(137)
    made = []
    for text in dice.sample(list(paragraphs.values()), 120):
        raw = re.findall(r"\w+", text)
        size = dice.randint(1, 5)
        start = dice.randrange(max(1, len(raw) - size))
        made.append(" ".join(raw[start : start + size]))
    return made


def _mine(engine: clew.Engine, query: str) -> dict[str, float]:
    """The whole list of the keyword leg, with its own scores."""
    found = engine.search(query, mode="keyword", limit=400)
    return {hit.id: float(hit.signals["keyword"]["score"]) for hit in found}


def _theirs(reference: bm25s.BM25, names: list[str], query: str) -> dict[str, float]:
    wanted = list(dict.fromkeys(token for group in words(query) for token in group))
    scores = reference.get_scores(wanted) * LUCENE
    return {name: float(score) for name, score in zip(names, scores, strict=True) if score > 0}


def _top(scores: dict[str, float]) -> set[str]:
    return set(sorted(scores, key=lambda name: (-scores[name], name))[:10])


def test_both_find_the_same_documents(
    engine: clew.Engine, reference: bm25s.BM25, paragraphs: dict[str, str], queries: list[str]
) -> None:
    for query in queries:
        theirs = _theirs(reference, list(paragraphs), query)
        assert _mine(engine, query).keys() == theirs.keys(), query


def test_both_give_the_same_scores(
    engine: clew.Engine, reference: bm25s.BM25, paragraphs: dict[str, str], queries: list[str]
) -> None:
    compared = 0
    for query in queries:
        mine, theirs = _mine(engine, query), _theirs(reference, list(paragraphs), query)
        for name, score in theirs.items():
            assert mine[name] == pytest.approx(score, rel=WORST_DIFFERENCE), (query, name)
        pairs = np.array([(mine[name], score) for name, score in theirs.items()])
        if len(pairs) >= 5 and pairs.std(axis=0).min() > 1e-3:
            compared += 1
            assert np.corrcoef(pairs.T)[0, 1] > WORST_CORRELATION, query
    assert compared > 60


def test_both_agree_on_the_first_ten(
    engine: clew.Engine, reference: bm25s.BM25, paragraphs: dict[str, str], queries: list[str]
) -> None:
    same = 0
    for query in queries:
        theirs = _top(_theirs(reference, list(paragraphs), query))
        mine = {hit.id for hit in engine.search(query, mode="keyword", limit=10)}
        same += mine == theirs
        assert len(mine & theirs) >= min(WORST_OVERLAP, len(theirs)), query
    assert same >= SAME_TOP_TENS * len(queries)


def test_short_documents_agree_to_the_last_digit(tmp_path: Path) -> None:
    # Up to 40 tokens no length is rounded, so nothing is left to differ.
    dice = random.Random(28)
    vocabulary = ["keel", "mast", "rudder", "anchor", "sail", "tiller", "boom", "hull"]
    texts = [" ".join(dice.choices(vocabulary, k=dice.randint(1, 40))) for _ in range(200)]
    index = bm25s.BM25(method="lucene", k1=K1, b=B)
    index.index([tokens(text) for text in texts], show_progress=False)
    names = [f"t{i:03}" for i in range(len(texts))]
    with clew.open(tmp_path, model="none") as engine:
        engine.add(clew.Record(name, text) for name, text in zip(names, texts, strict=True))
        for query in ("keel", "mast rudder", "anchor sail tiller boom"):
            theirs = _theirs(index, names, query)
            assert _mine(engine, query) == pytest.approx(theirs, rel=1e-5)
