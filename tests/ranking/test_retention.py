"""How a memory fades and which is given up first: CONTRACT D, to the digit."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clew.ranking.adjust import STRONGEST, priority, retention
from clew.types import Life

DAY = 86_400.0
NOW = 1_800_000_000.0

moments = st.floats(0, NOW)
shares = st.floats(0, 1)
lives = st.builds(
    Life,
    accesses=st.integers(0, 10_000),
    strength=st.floats(1, STRONGEST),
    accessed_at=st.none() | moments,
)


@pytest.mark.parametrize(
    ("importance", "strength", "days", "expected"),
    [
        (1.0, 1.0, 0, 1.0),
        (1.0, 1.0, 1, math.exp(-1)),
        (0.5, 1.0, 1, math.exp(-2)),
        (0.5, 1.5, 3, math.exp(-4)),
        (1.0, 100.0, 100, math.exp(-1)),
        (0.25, 4.0, 2, math.exp(-2)),
    ],
)
def test_retention_is_e_to_the_minus_t_over_s(
    importance: float, strength: float, days: float, expected: float
) -> None:
    life = Life(strength=strength, accessed_at=NOW - days * DAY)
    assert retention(life, importance=importance, created_at=0.0, now=NOW) == pytest.approx(
        expected, rel=1e-12
    )


def test_what_was_never_accessed_fades_from_its_creation_on() -> None:
    never = retention(Life(), importance=1.0, created_at=NOW - DAY, now=NOW)
    assert never == pytest.approx(math.exp(-1))
    lately = Life(accessed_at=NOW)
    assert retention(lately, importance=1.0, created_at=NOW - 99 * DAY, now=NOW) == 1.0


def test_what_has_no_importance_is_forgotten_at_once() -> None:
    assert retention(Life(), importance=0.0, created_at=NOW, now=NOW) == 1.0
    assert retention(Life(), importance=0.0, created_at=NOW - 1, now=NOW) == 0.0


@pytest.mark.parametrize(
    ("importance", "days", "accesses", "expected"),
    [
        (1.0, 0, 0, 0.4 + 0.3 + 0.0 + 0.1),
        (0.0, 0, 0, 0.0 + 0.3 + 0.0 + 0.1),
        (0.5, 1, 50, 0.2 + 0.15 + 0.1 + 0.1 * math.exp(-2)),
        (1.0, 9, 100, 0.4 + 0.03 + 0.2 + 0.1 * math.exp(-9)),
        (1.0, 9, 1000, 0.4 + 0.03 + 0.2 + 0.1 * math.exp(-9)),
        (0.0, 2, 0, 0.1),
    ],
)
def test_priority_is_the_weighted_sum(
    importance: float, days: float, accesses: int, expected: float
) -> None:
    made = priority(
        Life(accesses=accesses), importance=importance, created_at=NOW - days * DAY, now=NOW
    )
    assert made == pytest.approx(expected, rel=1e-12)


@given(lives, shares, moments)
def test_both_stay_between_nothing_and_one(life: Life, importance: float, created: float) -> None:
    faded = retention(life, importance=importance, created_at=created, now=NOW)
    assert 0.0 <= faded <= 1.0
    kept = priority(life, importance=importance, created_at=created, now=NOW)
    assert 0.4 * importance <= kept <= 1.0 + 1e-12


@given(lives, st.floats(0.01, 1), moments, st.floats(0, 100 * DAY))
def test_time_alone_never_makes_anything_dearer(
    life: Life, importance: float, created: float, later: float
) -> None:
    said = {"importance": importance, "created_at": created}
    assert priority(life, **said, now=NOW + later) <= priority(life, **said, now=NOW) + 1e-12
    assert retention(life, **said, now=NOW + later) <= retention(life, **said, now=NOW)


@given(lives, shares, moments)
def test_a_clock_that_was_set_back_makes_nothing_worth_more_than_new(
    life: Life, importance: float, created: float
) -> None:
    """A memory from tomorrow is as good as one from now."""
    ahead = priority(life, importance=importance, created_at=NOW, now=created)
    assert ahead <= 1.0 + 1e-12
    assert retention(Life(), importance=importance, created_at=NOW, now=created) == 1.0
