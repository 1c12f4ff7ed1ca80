"""Reading the head again: what is read, how it is blended, and what a missing model does."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import clew
from clew.ranking.fusion import Fused
from clew.ranking.rerank import HEAD, blended, read
from clew.store import EmbeddedStore
from entries import ids


class Counting:
    """Likes passages by the number of times they say so."""

    model = "counting"

    def __init__(self, pause: float = 0.0) -> None:
        self.pause = pause
        self.seen: list[str] = []

    def score(self, query: str, passages: Sequence[str]) -> list[float]:
        self.seen += passages
        time.sleep(self.pause)
        return [float(passage.count("good")) for passage in passages]


def fused(*scores: float) -> list[Fused]:
    return [Fused(f"n{i}", score, "keyword", {}) for i, score in enumerate(scores)]


def test_the_blend_decides_whose_order_it_is() -> None:
    entries, scores = fused(3.0, 2.0, 1.0), [0.0, 1.0, 5.0]
    assert ids(blended(entries, scores, blend=0.0)) == ["n0", "n1", "n2"]
    assert ids(blended(entries, scores, blend=1.0)) == ["n2", "n1", "n0"]
    first = blended(entries, scores, blend=0.7)[0]
    assert first.id == "n2" and first.score == 1.0  # the fused score is kept
    reranker = first.signals["reranker"]
    assert (reranker["rank"], reranker["score"], reranker["weight"]) == (1, 5.0, 0.7)
    assert reranker["contrib"] == reranker["part"] == pytest.approx(0.7)


def test_what_was_not_read_stays_behind_in_its_order() -> None:
    again = blended(fused(4.0, 3.0, 2.0, 1.0), [0.0, 9.0], blend=0.9)
    assert ids(again) == ["n1", "n0", "n2", "n3"]
    assert "reranker" not in again[2].signals


@given(
    st.lists(st.floats(0, 9), max_size=12).map(lambda s: sorted(s, reverse=True)),
    st.lists(st.floats(-9, 9), max_size=12),
    st.floats(0, 1),
)
def test_nothing_is_lost_and_scores_fall(
    before: list[float], scores: list[float], blend: float
) -> None:
    entries = fused(*before)
    scores = scores[: len(entries)]
    again = blended(entries, scores, blend=blend)
    assert sorted(ids(again)) == sorted(ids(entries))
    if scores:
        values = [entry.reranked or 0.0 for entry in again]
        assert all(a >= b - 1e-9 for a, b in pairwise(values))


@given(
    st.lists(st.tuples(st.floats(0, 9), st.floats(0, 9)), min_size=1, max_size=12),
    st.lists(st.floats(-9, 9), max_size=12),
    st.floats(0, 1),
)
def test_parts_add_up_to_the_new_score_and_contributions_to_the_old(
    votes: list[tuple[float, float]], scores: list[float], blend: float
) -> None:
    entries = [
        Fused(
            f"n{i}",
            sum(vote),
            "a",
            {name: {"contrib": c} for name, c in zip("ab", vote, strict=True)},
        )
        for i, vote in enumerate(sorted(votes, key=sum, reverse=True))
    ]
    scores = scores[: len(entries)]
    for entry in blended(entries, scores, blend=blend) if scores else ():
        sources = {k: signal for k, signal in entry.signals.items() if k != "reranker"}
        assert sum(s["contrib"] for s in sources.values()) == pytest.approx(entry.score)
        parts = sum(signal["part"] for signal in entry.signals.values())
        assert parts == pytest.approx(entry.reranked, abs=1e-9)


def test_as_many_are_read_as_fit_into_the_time() -> None:
    slow = Counting(pause=0.05)
    scores = read(slow, "q", [f"p{i}" for i in range(40)], budget=0.01)
    assert 0 < len(scores) < 40
    assert len(read(Counting(), "q", ["p"] * 9, budget=60)) == 9


@pytest.fixture
def store(tmp_path: Path) -> EmbeddedStore:
    return EmbeddedStore(tmp_path / "store")


def test_a_search_reads_the_head_and_says_how_much(store: EmbeddedStore) -> None:
    counting = Counting()
    settings = clew.engine.Config(model="none", rerank_blend=1.0)
    with clew.Engine(store, config=settings, reranker=counting) as engine:
        records = [
            clew.Record(f"r{i:02}", f"keel {'good ' * i}{'keel ' * (40 - i)}") for i in range(40)
        ]
        engine.add(records)
        plain, again = engine.search("keel"), engine.search("keel", rerank=True)
        assert len(again) == len(plain) == 10
        assert [hit.id for hit in again] != [hit.id for hit in plain]
        assert again.trace["rerank"]["read"] == again.trace["rerank"]["of"] == HEAD
        assert len(counting.seen) == HEAD
        assert "rerank" in again.trace["stages_ms"] and "rerank" not in plain.trace
        assert again[0].signals["reranker"]["rank"] == 1
        assert [h.score for h in again] == sorted((h.score for h in again), reverse=True)


def test_a_vector_without_words_is_read_with_nothing(store: EmbeddedStore) -> None:
    counting, settings = Counting(), clew.engine.Config(model="none", rerank=True)
    with clew.Engine(store, config=settings, reranker=counting) as engine:
        some = [clew.Record("near", "keel"), clew.Record("far", "good keel")]
        engine.add(some, vectors=[[1.0, 0.0], [0.0, 1.0]])
        found = engine.search("", vector=[1.0, 0.1], mode="vector")
        assert [hit.id for hit in found] == ["near", "far"] and not counting.seen


def test_without_a_model_the_order_stays_and_the_answer_says_so(
    store: EmbeddedStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLEW_MODELS", str(tmp_path / "nothing here"))
    with clew.Engine(store, config=clew.engine.Config(model="none")) as engine:
        engine.add([clew.Record(name, f"keel {name}") for name in "abc"])
        plain, asked = engine.search("keel"), engine.search("keel", rerank=True)
        assert [hit.id for hit in asked] == [hit.id for hit in plain]
        assert asked.trace["rerank"]["read"] == 0
        assert any("clew models pull reranker-en" in problem for problem in asked.degraded)


def test_an_unknown_reranker_is_named(store: EmbeddedStore) -> None:
    settings = clew.engine.Config(model="none", reranker="reranker-ne", rerank=True)
    with clew.Engine(store, config=settings) as engine:
        engine.add([clew.Record("a", "keel")])
        assert "did you mean 'reranker-en'" in engine.search("keel").degraded[-1]
