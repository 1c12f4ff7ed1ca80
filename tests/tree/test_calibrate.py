"""Scores of many slates on one scale."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clew.tree.traverse import MIDDLE, SPREAD, Calibration, calibrate

Slates = list[dict[int, float]]


def said(
    relevance: dict[int, float], slates: list[list[int]], *, scale: float, biases: list[float]
) -> Slates:
    return [
        {node: scale * relevance[node] + bias for node in nodes}
        for nodes, bias in zip(slates, biases, strict=True)
    ]


RELEVANCE = dict(enumerate(np.random.default_rng(1).random(30).tolist()))
CHAINED = [list(range(i, i + 8)) for i in range(0, 24, 4)]
"""Each slate shares half of its nodes with the next."""


@given(
    st.floats(0.1, 100.0),
    st.lists(st.floats(-50, 50), min_size=len(CHAINED), max_size=len(CHAINED)),
)
def test_slates_without_noise_give_back_scale_biases_and_relevance(
    scale: float, biases: list[float]
) -> None:
    fitted = calibrate(said(RELEVANCE, CHAINED, scale=scale, biases=biases))
    nodes = list(fitted.scores)
    true = np.array([RELEVANCE[node] for node in nodes])
    gauge = scale * true.std() / SPREAD
    room = 0.005 * (scale + np.ptp(biases))  # the little ridge
    assert fitted.scale == pytest.approx(gauge, abs=room)
    shown = np.array(list(fitted.scores.values()))
    assert np.abs(fitted.scale * (shown - MIDDLE) - scale * (true - true.mean())).max() < 2 * room
    apart = np.diff(fitted.biases) - np.diff(biases)
    assert np.abs(apart).max() < 2 * room


def test_a_strict_slate_does_not_push_its_nodes_down() -> None:
    generous, strict = [0, 1, 2, 3, 4], [3, 4, 5, 6, 7]
    relevance = {0: 0.1, 1: 0.2, 2: 0.15, 3: 0.5, 4: 0.4, 5: 0.9, 6: 0.8, 7: 0.3}
    slates = said(relevance, [generous, strict], scale=50, biases=[60.0, -20.0])
    fitted, raw = calibrate(slates), calibrate(slates, biased=False)
    by_relevance = sorted(relevance, key=lambda node: -relevance[node])
    assert sorted(fitted.scores, key=lambda node: -fitted.scores[node]) == by_relevance
    assert sorted(raw.scores, key=lambda node: -raw.scores[node]) != by_relevance
    assert raw.biases[0] == raw.biases[1]


def test_a_scorer_that_always_says_the_same_has_no_scale() -> None:
    fitted = calibrate([{0: 70.0, 1: 70.0}, {1: 70.0, 2: 70.0}])
    assert fitted.scale == 0 and set(fitted.scores.values()) == {MIDDLE}


def test_what_was_said_is_scale_times_score_plus_bias() -> None:
    slates = said(RELEVANCE, CHAINED, scale=10, biases=[0.0, 3.0, -2.0, 1.0, 0.5, 4.0])
    fitted = calibrate(slates)
    for slate, bias in zip(slates, fitted.biases, strict=True):
        for node, score in slate.items():
            assert fitted.scale * fitted.scores[node] + bias == pytest.approx(score, abs=0.5)


def test_slates_that_share_nothing_are_taken_as_they_are() -> None:
    fitted = calibrate([{0: 1.0, 1: 2.0}, {2: 5.0, 3: 6.0}])
    assert sorted(fitted.scores, key=lambda node: fitted.scores[node]) == [0, 1, 2, 3]


@pytest.mark.parametrize("slates", [[], [{}], [{}, {}]])
def test_nothing_said_is_nothing_fitted(slates: Slates) -> None:
    assert calibrate(slates) == Calibration(biases=(0.0,) * len(slates))


@given(
    st.lists(st.dictionaries(st.integers(-20, 20), st.floats(-1e6, 1e6), max_size=12), max_size=12)
)
def test_any_history_gives_finite_numbers_and_the_same_again(slates: Slates) -> None:
    fitted = calibrate(slates)
    assert fitted == calibrate(slates)
    numbers = [fitted.scale, *fitted.biases, *fitted.scores.values()]
    assert np.isfinite(numbers).all() and fitted.scale >= 0
    assert set(fitted.scores) == {node for slate in slates for node in slate}


def test_noise_does_not_pass_for_scale() -> None:
    rng = np.random.default_rng(3)
    relevance = dict(enumerate(rng.random(300).tolist()))
    slates: Slates = []
    for _ in range(40):
        nodes = rng.choice(300, 25, replace=False).tolist()
        bias = rng.normal(0, 10)
        slates.append({n: 40 * relevance[n] + bias + rng.normal(0, 5) for n in nodes})
    fitted = calibrate(slates)
    true = 40 * np.std([relevance[n] for n in fitted.scores]) / SPREAD
    assert fitted.scale == pytest.approx(true, rel=0.1)
