"""Bounded adjustments: what they add, how far they can reach, and variety against a plain MMR."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clew.errors import InputError
from clew.ranking.adjust import MOST_VARIED, adjusted, diversified
from clew.ranking.fusion import Fused
from clew.types import Adjust, Record, Vector

DAY = 86_400.0
NOW = 1_800_000_000.0

shares = st.floats(0, 1)
scores = st.floats(0, 10)


def fused(*pairs: tuple[str, float]) -> list[Fused]:
    ranked = sorted(pairs, key=lambda pair: (-pair[1], pair[0]))
    return [Fused(name, score, "keyword", {}) for name, score in ranked]


def record(name: str, *, days: float = 0.0, importance: float = 0.5) -> Record:
    return Record(name, "x", created_at=NOW - days * DAY, importance=importance)


@st.composite
def lists(draw: st.DrawFn) -> tuple[list[Fused], dict[str, Record]]:
    names = draw(st.lists(st.sampled_from("abcdefghij"), min_size=1, unique=True))
    hits = fused(*((name, draw(scores)) for name in names))
    days = st.floats(-10, 5000)
    records = {n: record(n, days=draw(days), importance=draw(shares)) for n in names}
    return hits, records


# ---------------------------------------------------------------- newer, more important


@pytest.mark.parametrize(
    ("days", "half_life", "expected"), [(0, 30, 0.2), (30, 30, 0.1), (90, 30, 0.025), (7, 7, 0.1)]
)
def test_recency_adds_its_share_of_the_best_score_halved_at_each_half_life(
    days: float, half_life: float, expected: float
) -> None:
    hits = fused(("best", 2.0), ("other", 1.0))
    records = {"best": record("best", days=1e6), "other": record("other", days=days)}
    adjust = Adjust(recency=0.1, half_life_days=half_life)
    made = {hit.id: hit for hit in adjusted(hits, records, adjust, now=NOW)}
    assert made["other"].score == pytest.approx(1.0 + expected)
    assert made["other"].signals["recency"]["contrib"] == pytest.approx(expected)
    assert made["best"].score == pytest.approx(2.0)


def test_importance_adds_its_share_of_the_best_score_times_itself() -> None:
    hits = fused(("best", 2.0), ("other", 1.0))
    records = {"best": record("best", importance=0.0), "other": record("other", importance=0.75)}
    made = adjusted(hits, records, Adjust(importance=0.8), now=NOW)
    assert [(hit.id, hit.score) for hit in made] == [
        ("other", pytest.approx(1.0 + 2.0 * 0.8 * 0.75)),
        ("best", 2.0),
    ]


@given(lists(), shares, shares)
def test_nothing_passes_what_is_better_by_more_than_the_share(
    case: tuple[list[Fused], dict[str, Record]], recency: float, importance: float
) -> None:
    hits, records = case
    top = hits[0].score
    made = adjusted(hits, records, Adjust(recency=recency, importance=importance), now=NOW)
    before = {hit.id: hit.score for hit in hits}
    for place, hit in enumerate(made):
        added = hit.score - before[hit.id]
        assert -1e-9 <= added <= top * (recency + importance) + 1e-9
        for later in made[place + 1 :]:
            assert before[later.id] - before[hit.id] <= top * (recency + importance) + 1e-9


@given(lists(), shares, shares)
def test_the_order_is_by_score_then_id_and_the_same_whatever_order_they_come_in(
    case: tuple[list[Fused], dict[str, Record]], recency: float, importance: float
) -> None:
    hits, records = case
    adjust = Adjust(recency=recency, importance=importance)
    made = adjusted(hits, records, adjust, now=NOW)
    assert made == sorted(made, key=lambda hit: (-hit.score, hit.id))
    assert adjusted(hits[::-1], records, adjust, now=NOW) == made
    assert {hit.id for hit in made} == {hit.id for hit in hits}


@given(lists())
def test_no_share_changes_nothing(case: tuple[list[Fused], dict[str, Record]]) -> None:
    hits, records = case
    assert adjusted(hits, records, Adjust(), now=NOW) == hits
    assert not Adjust()


def test_what_was_deleted_since_keeps_its_score() -> None:
    hits = fused(("a", 1.0), ("gone", 0.5))
    made = adjusted(hits, {"a": record("a")}, Adjust(recency=1.0), now=NOW)
    assert made[-1] == hits[-1]


def test_nothing_to_adjust_is_nothing() -> None:
    assert adjusted([], {}, Adjust(recency=1.0), now=NOW) == []
    assert diversified([], {}, diversity=1.0, limit=5) == []


@pytest.mark.parametrize("name", ["recency", "importance", "diversity"])
@pytest.mark.parametrize("wrong", [-0.1, 1.1, float("nan"), True, "1", None])
def test_a_share_is_a_number_from_0_to_1(name: str, wrong: Any) -> None:
    with pytest.raises(InputError, match=f"{name} must be"):
        Adjust(**{name: wrong})


@pytest.mark.parametrize("wrong", [0, -1, float("nan")])
def test_a_half_life_is_above_0(wrong: float) -> None:
    with pytest.raises(InputError, match="half_life_days"):
        Adjust(half_life_days=wrong)


# ---------------------------------------------------------------- variety


def plain_mmr(
    scored: Mapping[str, float], vectors: Mapping[str, Vector], share: float, limit: int
) -> list[str]:
    """Carbonell and Goldstein's formula, written down once more: all pairs, nothing kept."""
    top = max(scored.values(), default=0.0) or 1.0
    chosen: list[str] = []

    def alike(one: str) -> float:
        near = [
            float(vectors[one] @ vectors[other])
            for other in chosen
            if one in vectors and other in vectors
        ]
        return max([0.0, *near])

    while len(chosen) < min(limit, len(scored)):
        left = sorted(set(scored) - set(chosen), key=lambda name: (-scored[name], name))
        gains = [(1 - share) * scored[name] / top - share * alike(name) for name in left]
        chosen.append(left[gains.index(max(gains))])
    rest = sorted(set(scored) - set(chosen), key=lambda name: (-scored[name], name))
    return chosen + rest


@st.composite
def pictures(draw: st.DrawFn) -> tuple[list[Fused], dict[str, Vector]]:
    names = draw(st.lists(st.sampled_from("abcdefgh"), min_size=1, unique=True))
    hits = fused(*((name, draw(st.integers(0, 8)) / 4) for name in names))
    vectors: dict[str, Vector] = {}
    for name in draw(st.lists(st.sampled_from(names), unique=True)):
        # quarter turns and such: cosines that floats have exactly
        row = draw(st.sampled_from([(1, 0), (0, 1), (-1, 0), (0.6, 0.8), (0.8, -0.6)]))
        vectors[name] = np.array(row, np.float32)
    return hits, vectors


@given(pictures(), st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0]), st.integers(1, 10))
def test_variety_is_maximal_marginal_relevance(
    case: tuple[list[Fused], dict[str, Vector]], share: float, limit: int
) -> None:
    hits, vectors = case
    made = diversified(hits, vectors, diversity=share, limit=limit)
    expected = plain_mmr({hit.id: hit.score for hit in hits}, vectors, share, limit)
    assert [hit.id for hit in made] == expected
    assert sorted(made) == sorted(hits)  # nothing lost, no score touched


def test_without_variety_the_order_stays() -> None:
    hits = fused(("a", 1.0), ("b", 1.0), ("c", 0.5))
    same = np.array([1, 0], np.float32)
    vectors: dict[str, Vector] = dict.fromkeys("abc", same)
    assert diversified(hits, vectors, diversity=0.0, limit=3) == hits


def test_only_variety_still_begins_with_the_best() -> None:
    hits = fused(("a", 0.5), ("b", 1.0), ("c", 0.1))
    vectors = {
        "a": np.array([1, 0], np.float32),
        "b": np.array([1, 0], np.float32),
        "c": np.array([0, 1], np.float32),
    }
    order: Sequence[Fused] = diversified(hits, vectors, diversity=1.0, limit=3)
    assert [hit.id for hit in order] == ["b", "c", "a"]


def test_variety_of_very_many_takes_no_square_of_their_number() -> None:
    hits = fused(*((f"{n:05}", 1.0 - n / 20_000) for n in range(20_000)))
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(len(hits), 16)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    vectors = {hit.id: row for hit, row in zip(hits, rows, strict=True)}
    made = diversified(hits, vectors, diversity=0.5, limit=len(hits))
    assert made[:MOST_VARIED] != hits[:MOST_VARIED] and made[MOST_VARIED:] == hits[MOST_VARIED:]
    assert sorted(made) == sorted(hits)
