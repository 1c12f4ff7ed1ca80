from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clew.errors import ConfigError, InputError
from clew.lookup_settings import COMPONENTS, WEIGHTS, check_shares
from clew.ranking.lookup_score import hybrid, ordered

finite = st.floats(allow_nan=False, allow_infinity=False)
tables = st.integers(1, 8).flatmap(
    lambda n: st.fixed_dictionaries(
        {name: st.lists(finite, min_size=n, max_size=n) for name in COMPONENTS}
    )
)
shares = st.tuples(st.integers(0, 10), st.integers(0, 10), st.integers(0, 10)).filter(any)


def weights(parts: tuple[int, int, int]) -> dict[str, float]:
    return {name: part / sum(parts) for name, part in zip(COMPONENTS, parts, strict=True)}


def test_it_is_the_convex_combination_of_the_normalised_components() -> None:
    table = {"bm25": [0.0, 5.0, 10.0], "semantic": [0.9, 0.5, 0.7], "credibility": [0.5, 0.9, 0.5]}
    # normalised: 0 .5 1 | 1 0 .5 | 0 1 0 → sums .5, .35, .55 → (s - .35) / .2
    assert hybrid(table) == pytest.approx([0.75, 0.0, 1.0])
    assert dict(WEIGHTS) == {"bm25": 0.3, "semantic": 0.5, "credibility": 0.2}


@pytest.mark.parametrize("count", [1, 2, 5])
def test_a_single_result_or_equal_ones_are_one_and_not_nought(count: int) -> None:
    assert hybrid({name: [0.4] * count for name in COMPONENTS}) == [1.0] * count


def test_nothing_ranks_nothing() -> None:
    assert hybrid({name: [] for name in COMPONENTS}) == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"bm25": 0.5, "semantic": 0.3, "credibility": 0.1},
        {"bm25": 0.5, "semantic": 0.5, "credibility": 0.0011},
        {"bm25": 1.2, "semantic": -0.2, "credibility": 0.0},
        {"bm25": math.nan, "semantic": 0.5, "credibility": 0.5},
        {"bm25": math.inf, "semantic": 0.0, "credibility": 0.0},
        {"bm25": "0.3", "semantic": 0.5, "credibility": 0.2},
        {"bm25": True, "semantic": 0.0, "credibility": 0.0},
        {"bm52": 1.0},
        [0.3, 0.5, 0.2],
    ],
)
def test_weights_that_make_no_sense_are_an_error(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError):
        check_shares(wrong)
    with pytest.raises(ConfigError):
        hybrid({"bm25": [1.0]}, weights=wrong)


@pytest.mark.parametrize("total", [0.999, 1.0, 1.001])
def test_a_sum_may_miss_one_by_a_thousandth(total: float) -> None:
    assert check_shares({"bm25": total})["bm25"] == total


def test_weights_that_are_all_nought_count_the_enabled_components_alike() -> None:
    none = dict.fromkeys(COMPONENTS, 0.0)
    table = {"bm25": [0.0, 1.0, 2.0], "semantic": [2.0, 1.0, 0.0]}
    assert hybrid(table, weights=none) == [1.0, 1.0, 1.0]
    third = {**table, "credibility": [0.0, 0.0, 1.0]}
    assert hybrid(third, weights=none) == [0.0, 0.0, 1.0]


def test_a_component_that_takes_no_part_leaves_the_others_their_shares() -> None:
    table = {"bm25": [0.0, 1.0], "credibility": [1.0, 0.0]}
    assert hybrid(table, weights=WEIGHTS) == [0.0, 1.0]  # .3 against .2
    assert hybrid({"bm25": [0.0, 1.0]}, weights={"semantic": 1.0}) == [0.0, 1.0]


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_score_that_is_no_number_is_an_error(bad: float) -> None:
    with pytest.raises(InputError):
        hybrid({"bm25": [1.0, bad]})


def test_lists_of_different_lengths_and_unknown_components_are_errors() -> None:
    with pytest.raises(InputError, match="different lengths"):
        hybrid({"bm25": [1.0], "semantic": [1.0, 2.0]})
    with pytest.raises(InputError, match="no component"):
        hybrid({"vibes": [1.0]})


@given(tables, shares)
def test_scores_lie_between_nought_and_one_with_the_best_at_one(
    table: dict[str, list[float]], parts: tuple[int, int, int]
) -> None:
    scores = hybrid(table, weights=weights(parts))
    assert all(0.0 <= score <= 1.0 for score in scores)
    assert max(scores) == 1.0
    assert min(scores) in (0.0, 1.0)


@given(tables, shares, st.randoms())
def test_the_order_in_which_texts_come_says_nothing(
    table: dict[str, list[float]], parts: tuple[int, int, int], random: object
) -> None:
    count = len(table["bm25"])
    order = list(range(count))
    random.shuffle(order)  # type: ignore[attr-defined]
    moved = {name: [scores[i] for i in order] for name, scores in table.items()}
    before = hybrid(table, weights=weights(parts))
    assert hybrid(moved, weights=weights(parts)) == [before[i] for i in order]


@given(tables, shares)
def test_the_inputs_are_untouched_and_ranking_twice_gives_the_same(
    table: dict[str, list[float]], parts: tuple[int, int, int]
) -> None:
    copy = {name: list(scores) for name, scores in table.items()}
    first = hybrid(table, weights=weights(parts))
    ids = [f"r{i}" for i in range(len(first))]
    again = ordered(ids, first, ids)
    places = [ids.index(name) for name in again]
    resorted = {name: [scores[i] for i in places] for name, scores in table.items()}
    assert ordered(again, hybrid(resorted, weights=weights(parts)), again) == again
    assert table == copy


@given(st.lists(st.tuples(finite.filter(lambda x: abs(x) < 1e6), st.text(max_size=3)), max_size=12))
def test_order_is_by_score_to_six_digits_then_id(rows: list[tuple[float, str]]) -> None:
    scores, ids = [score for score, _ in rows], [name for _, name in rows]
    ranked = ordered(rows, scores, ids)
    keys = [(-round(score, 6), name) for score, name in ranked]
    assert keys == sorted(keys)


def test_scores_that_differ_beyond_the_sixth_digit_are_a_tie() -> None:
    assert ordered(["b", "a"], [0.50000009, 0.5000001], ["b", "a"]) == ["a", "b"]
    assert ordered(["b", "a"], [0.500002, 0.5], ["b", "a"]) == ["b", "a"]


def test_the_addresses_that_the_documents_had_still_answer() -> None:
    from clew.ranking.bm25 import bm25
    from clew.ranking.credibility import credibility
    from clew.ranking.semantic import semantic

    import clew
    from clew.ranking import lookup_score

    assert bm25 is lookup_score.bm25 and semantic is lookup_score.semantic
    assert credibility is lookup_score.credibility
    assert clew.ranking.hybrid.hybrid is lookup_score.hybrid
