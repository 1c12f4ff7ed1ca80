"""Reciprocal rank fusion against the formula of its paper, in fractions and back to front."""

from __future__ import annotations

from collections import defaultdict
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import clew

lists_of_ids = st.lists(st.permutations("abcdefghij").map(lambda p: p[:7]), min_size=1, max_size=6)


def by_the_paper(lists: list[list[str]], k: int) -> dict[str, Fraction]:
    """Cormack et al.: each document sums 1 / (k + its rank) over the rankings that hold it."""
    votes: defaultdict[str, Fraction] = defaultdict(Fraction)
    for ranking in lists:
        for below, name in enumerate(reversed(ranking)):
            votes[name] += Fraction(1, k + len(ranking) - below)
    return votes


@settings(deadline=None)
@given(lists_of_ids, st.sampled_from([0, 1, 60, 1000]))
def test_scores_and_order_are_those_of_the_paper(lists: list[list[str]], k: int) -> None:
    expected = by_the_paper(lists, k)
    given_lists = {
        f"source {i}": [clew.Hit(name, "") for name in ranking] for i, ranking in enumerate(lists)
    }
    fused = clew.rrf(given_lists, k=k)
    assert {hit.id: hit.rrf_score for hit in fused} == pytest.approx(
        {name: float(score) for name, score in expected.items()}, rel=1e-12
    )
    for better, worse in pairwise(fused):
        assert expected[better.id] > expected[worse.id] - Fraction(1, 10**12)


@settings(deadline=None)
@given(lists_of_ids, st.lists(st.integers(0, 10), min_size=6, max_size=6), st.data())
def test_weighted_scores_are_those_of_the_contract(
    lists: list[list[str]], scores: list[int], data: st.DataObject
) -> None:
    weights = {f"source {i}": data.draw(st.integers(0, 4)) for i in range(len(lists))}
    given_lists = {
        f"source {i}": [clew.Hit(name, "", score=scores[i] / 10) for name in ranking]
        for i, ranking in enumerate(lists)
    }
    expected: dict[str, Fraction] = {}
    for i, ranking in enumerate(lists):
        confidence = Fraction(1, 2) + Fraction(scores[i], 10)
        for rank in range(len(ranking), 0, -1):
            share = weights[f"source {i}"] * confidence / (60 + rank)
            expected[ranking[rank - 1]] = expected.get(ranking[rank - 1], Fraction(0)) + share
    fused = clew.weighted_rrf(given_lists, weights=weights)
    assert {hit.id: hit.rrf_score for hit in fused} == pytest.approx(
        {name: float(score) for name, score in expected.items()}, rel=1e-12
    )
