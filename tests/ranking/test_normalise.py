from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clew.ranking.fusion import min_max, three_sigma

Normalise = Callable[[Sequence[float]], list[float]]
unhurried = settings(deadline=None)
scores = st.lists(st.floats(-1e6, 1e6), max_size=30)
both = pytest.mark.parametrize("normalise", [min_max, three_sigma])


@both
@pytest.mark.parametrize(
    ("given_scores", "expected"),
    [([], []), ([0.0], [1.0]), ([-3.0], [1.0]), ([0.1] * 3, [1.0] * 3), ([0, 0], [1.0, 1.0])],
)
def test_one_score_or_equal_ones_are_as_good_as_it_gets(
    normalise: Normalise, given_scores: list[float], expected: list[float]
) -> None:
    assert normalise(given_scores) == expected


def test_min_max_stretches_from_nought_to_one() -> None:
    assert min_max([2.0, 4.0, 3.0]) == [0.0, 1.0, 0.5]
    assert min_max([-1.0, 1.0]) == [0.0, 1.0]


def test_three_sigma_puts_the_mean_in_the_middle() -> None:
    low, middle, high = three_sigma([1.0, 2.0, 3.0])
    assert middle == pytest.approx(0.5)
    assert high - middle == pytest.approx(middle - low)
    # One standard deviation is a sixth of the scale: σ of 1, 2, 3 is √(2/3).
    assert high - middle == pytest.approx(1 / (6 * (2 / 3) ** 0.5))


def test_three_sigma_does_not_let_one_outlier_flatten_the_rest() -> None:
    crowd = [0.50, 0.52, 0.54, 0.56] * 5
    spread = three_sigma([*crowd, 100.0])
    assert spread[-1] == 1.0
    assert min(spread[:-1]) > 0.4


@both
@unhurried
@given(given_scores=scores)
def test_normalised_scores_lie_between_nought_and_one(
    normalise: Normalise, given_scores: list[float]
) -> None:
    result = normalise(given_scores)
    assert len(result) == len(given_scores)
    assert all(0.0 <= score <= 1.0 for score in result)


@both
@unhurried
@given(given_scores=scores)
def test_normalising_never_turns_the_order_around(
    normalise: Normalise, given_scores: list[float]
) -> None:
    result = normalise(given_scores)
    paired = sorted(zip(given_scores, result, strict=True))
    assert [new for _, new in paired] == sorted(result)


@both
@unhurried
@given(st.lists(st.integers(-50, 50), max_size=20), st.integers(1, 9), st.integers(-9, 9))
def test_the_unit_of_a_score_does_not_matter(
    normalise: Normalise, given_scores: list[float], scale: int, shift: int
) -> None:
    moved = normalise([scale * score + shift for score in given_scores])
    assert moved == pytest.approx(normalise(given_scores))


@both
def test_the_scores_given_are_untouched(normalise: Normalise) -> None:
    mine = [3.0, 1.0, 2.0]
    normalise(mine)
    assert mine == [3.0, 1.0, 2.0]


def test_scores_that_are_further_apart_than_a_float_can_say_are_still_in_order() -> None:
    assert min_max([-1.7e308, 0.0, 1.7e308]) == [0.0, 0.5, 1.0]
