from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import clew
from clew.errors import ClewError, ConfigError, InputError
from clew.ranking.fusion import (
    ATHENA_WEIGHTS,
    STRATEGIES,
    adaptive,
    convex,
    dbsf,
    fuse,
    rrf,
    weighted_rrf,
)
from clew.types import Candidate, Hit
from entries import ids

Strategy = Callable[..., list[Hit]]
Lists = dict[str, list[Hit]]
unhurried = settings(deadline=None, max_examples=50)  # times five strategies
FUNCTIONS: list[Strategy] = [rrf, weighted_rrf, convex, dbsf, adaptive]
every_strategy = pytest.mark.parametrize("strategy", FUNCTIONS, ids=lambda f: f.__name__)

IDS = list("abcdefgh")
SOURCES = ["keyword", "vectors", "tags", "canonical"]


def hit(name: str, score: float = 1.0, **more: Any) -> Hit:
    return Hit(name, f"words of {name}", score=score, **more)


def hits(names: str) -> list[Hit]:
    return [hit(name, 1.0 - 0.1 * i) for i, name in enumerate(names)]


@st.composite
def one_list(draw: st.DrawFn) -> list[Hit]:
    """A source's list: each record once, scores falling and often equal."""
    names = draw(st.permutations(IDS))
    scores = sorted(draw(st.lists(st.integers(0, 8), max_size=len(IDS))), reverse=True)
    return [hit(name, score / 8) for name, score in zip(names, scores, strict=False)]


ranked_lists = st.dictionaries(st.sampled_from(SOURCES), one_list(), max_size=len(SOURCES))
some_weights = st.none() | st.dictionaries(
    st.sampled_from(SOURCES), st.sampled_from([0.0, 0.5, 1.0, 2.0, 3]), max_size=len(SOURCES)
)


# ---------------------------------------------------------------- the formulas


def test_rrf_is_the_sum_of_one_over_sixty_plus_rank() -> None:
    fused = {h.id: h.rrf_score for h in clew.rrf({"one": hits("abc"), "two": hits("ca")})}
    assert fused == {
        "a": pytest.approx(1 / 61 + 1 / 62),
        "b": pytest.approx(1 / 62),
        "c": pytest.approx(1 / 63 + 1 / 61),
    }


def test_rrf_takes_k_and_weights() -> None:
    fused = {
        h.id: h.rrf_score
        for h in clew.rrf({"one": hits("ab"), "two": hits("b")}, k=10, weights={"two": 3})
    }
    assert fused == {"a": pytest.approx(1 / 11), "b": pytest.approx(1 / 12 + 3 / 11)}


def test_rrf_looks_at_ranks_and_not_at_scores() -> None:
    one = clew.rrf({"s": [hit("a", 0.9), hit("b", 0.1)]})
    other = clew.rrf({"s": [hit("a", 0.5), hit("b", 0.4)]})
    assert [h.rrf_score for h in one] == [h.rrf_score for h in other]


def test_weighted_rrf_counts_a_source_s_own_score() -> None:
    lists = {"mine": [hit("a", 0.9), hit("b", 0.4)], "yours": [hit("b", 0.8)]}
    fused = clew.weighted_rrf(lists, k=60, weights={"mine": 2.0, "yours": 0.5})
    assert {h.id: h.rrf_score for h in fused} == {
        "a": pytest.approx(2.0 * (0.5 + 0.9) / 61),
        "b": pytest.approx(2.0 * (0.5 + 0.4) / 62 + 0.5 * (0.5 + 0.8) / 61),
    }


CONTRACT_WEIGHTS = {
    "case_study": 3.0,
    "session": 3.0,
    "protocol": 2.8,
    **dict.fromkeys(["graphrag", "framework_docs", "user_profile"], 2.5),
    "framework": 2.3,
    "tags": 2.2,
    **dict.fromkeys(["canonical", "filenames"], 2.0),
    **dict.fromkeys(["capability", "playbook", "workflow"], 1.8),
    **dict.fromkeys(["entity", "reference", "system_doc"], 1.8),
    **dict.fromkeys(["sqlite", "exocortex"], 1.5),
}


@pytest.mark.parametrize(
    ("source", "weight"), [*CONTRACT_WEIGHTS.items(), ("anything else", 1.0), ("keyword", 1.0)]
)
def test_weighted_rrf_has_default_weights(source: str, weight: float) -> None:
    (fused,) = clew.weighted_rrf({source: [hit("a", 0.7)]})
    assert fused.rrf_score == pytest.approx(weight * 1.2 / 61)


def test_the_default_weights_are_all_in_the_contract() -> None:
    assert dict(ATHENA_WEIGHTS) == CONTRACT_WEIGHTS


def test_plain_rrf_weighs_every_source_alike() -> None:
    first, second = clew.rrf({"canonical": hits("a"), "keyword": hits("b")})
    assert first.rrf_score == second.rrf_score


def test_convex_is_the_weighted_mean_of_stretched_scores() -> None:
    lists = {"one": [hit("a", 4), hit("b", 3), hit("c", 2)], "two": [hit("c", 9), hit("a", 1)]}
    fused = {h.id: h.rrf_score for h in convex(lists, weights={"one": 3.0})}
    assert fused == {
        "a": pytest.approx(0.75 * 1.0 + 0.25 * 0.0),
        "b": pytest.approx(0.75 * 0.5),
        "c": pytest.approx(0.75 * 0.0 + 0.25 * 1.0),
    }


@pytest.mark.parametrize("strategy", [convex, dbsf])
def test_an_empty_source_does_not_dilute_the_others(strategy: Strategy) -> None:
    alone = strategy({"one": hits("ab")})
    beside = strategy({"one": hits("ab"), "two": []})
    assert [h.rrf_score for h in alone] == [h.rrf_score for h in beside]


@pytest.mark.parametrize("strategy", [convex, dbsf])
@pytest.mark.parametrize("score", [0.0, 0.3, -2.0, 17.5])
def test_a_single_result_or_equal_ones_count_in_full(strategy: Strategy, score: float) -> None:
    assert [h.rrf_score for h in strategy({"s": [hit("a", score)]})] == [1.0]
    equal = [hit(name, score) for name in "bca"]
    assert [(h.id, h.rrf_score) for h in strategy({"s": equal})] == [(n, 1.0) for n in "abc"]


# ---------------------------------------------------------------- what every strategy keeps to


@every_strategy
@pytest.mark.parametrize("lists", [{}, {"one": []}, {"one": [], "two": []}])
def test_nothing_in_nothing_out(strategy: Strategy, lists: Lists) -> None:
    assert strategy(lists) == []


@every_strategy
@unhurried
@given(lists=ranked_lists, weights=some_weights, data=st.data())
def test_the_order_of_the_sources_does_not_matter(
    strategy: Strategy, lists: Lists, weights: Mapping[str, float] | None, data: st.DataObject
) -> None:
    shuffled = {name: lists[name] for name in data.draw(st.permutations(list(lists)))}
    assert strategy(lists, weights=weights) == strategy(shuffled, weights=weights)


@every_strategy
@unhurried
@given(lists=ranked_lists, weights=some_weights)
def test_every_record_comes_out_once_and_no_other(
    strategy: Strategy, lists: Lists, weights: Mapping[str, float] | None
) -> None:
    fused = ids(strategy(lists, weights=weights))
    assert sorted(fused) == sorted({h.id for given_hits in lists.values() for h in given_hits})


@every_strategy
@unhurried
@given(lists=ranked_lists, weights=some_weights)
def test_scores_fall_and_ties_go_by_id(
    strategy: Strategy, lists: Lists, weights: Mapping[str, float] | None
) -> None:
    fused = strategy(lists, weights=weights)
    keys = [(-h.rrf_score, h.id) for h in fused]
    assert keys == sorted(keys)


@pytest.mark.parametrize("size", range(2, 9))
def test_the_same_ranks_from_other_sources_are_a_tie(size: int) -> None:
    # abc, bca, cab: each has every rank once, so only the ids may part them.
    names = IDS[:size]
    lists = {f"s{i}": [hit(name) for name in names[i:] + names[:i]] for i in range(size)}
    fused = rrf(lists)
    assert len({h.rrf_score for h in fused}) == 1
    assert ids(fused) == names


@every_strategy
@unhurried
@given(lists=ranked_lists, weights=some_weights)
def test_contributions_add_up_to_the_score(
    strategy: Strategy, lists: Lists, weights: Mapping[str, float] | None
) -> None:
    for fused in strategy(lists, weights=weights):
        assert sum(s["contrib"] for s in fused.signals.values()) == pytest.approx(fused.rrf_score)
        for source, signal in fused.signals.items():
            rank = ids(lists[source]).index(fused.id) + 1
            assert (signal["rank"], signal["score"]) == (rank, lists[source][rank - 1].score)
        assert set(fused.signals) == {s for s in lists if fused.id in ids(lists[s])}


@every_strategy
@unhurried
@given(lists=ranked_lists, weights=some_weights)
def test_the_lists_given_are_untouched(
    strategy: Strategy, lists: Lists, weights: Mapping[str, float] | None
) -> None:
    before, kept = copy.deepcopy(lists), copy.deepcopy(weights)
    first = strategy(lists, weights=weights)
    assert (lists, list(lists), weights) == (before, list(before), kept)
    assert strategy(lists, weights=weights) == first


@every_strategy
@unhurried
@given(lists=ranked_lists, weights=some_weights)
def test_a_record_counts_once_per_source_at_its_best_rank(
    strategy: Strategy, lists: Lists, weights: Mapping[str, float] | None
) -> None:
    def again(some: list[Hit]) -> list[Hit]:
        return [hit(h.id, h.score / 2) for h in reversed(some)]

    repeated = {name: [*some, *again(some)] for name, some in lists.items()}
    assert strategy(repeated, weights=weights) == strategy(lists, weights=weights)


@pytest.mark.parametrize("strategy", [convex, dbsf])
@unhurried
@given(lists=ranked_lists, weights=some_weights)
def test_score_fusion_stays_between_nought_and_one(
    strategy: Strategy, lists: Lists, weights: Mapping[str, float] | None
) -> None:
    for fused in strategy(lists, weights=weights):
        assert 0.0 <= fused.rrf_score <= 1.0 + 1e-12


@pytest.mark.parametrize("strategy", [rrf, weighted_rrf])
@unhurried
@given(lists=ranked_lists.filter(lambda ls: any(len(v) > 1 for v in ls.values())), data=st.data())
def test_a_better_rank_never_hurts(strategy: Strategy, lists: Lists, data: st.DataObject) -> None:
    source = data.draw(st.sampled_from([name for name, some in lists.items() if len(some) > 1]))
    some = lists[source]
    old = data.draw(st.integers(1, len(some) - 1))
    new = data.draw(st.integers(0, old - 1))
    moved = [*some[:new], some[old], *some[new:old], *some[old + 1 :]]
    _assert_no_worse(strategy, some[old].id, lists, {**lists, source: moved})


@unhurried
@given(lists=ranked_lists.filter(lambda ls: any(ls.values())), data=st.data())
def test_a_better_score_never_hurts(lists: Lists, data: st.DataObject) -> None:
    source = data.draw(st.sampled_from([name for name, some in lists.items() if some]))
    some = lists[source]
    place = data.draw(st.integers(0, len(some) - 1))
    better = hit(some[place].id, some[place].score + data.draw(st.integers(1, 8)) / 8)
    changed = [*some[:place], better, *some[place + 1 :]]
    _assert_no_worse(convex, better.id, lists, {**lists, source: changed})


def _assert_no_worse(strategy: Strategy, name: str, before: Lists, after: Lists) -> None:
    old = {h.id: h.rrf_score for h in strategy(before)}
    new = {h.id: h.rrf_score for h in strategy(after)}
    assert new[name] >= old[name] - 1e-12
    for other in old.keys() - {name}:
        if old[name] > old[other] + 1e-12:
            assert new[name] > new[other] - 1e-12, f"fell behind {other}"


# ---------------------------------------------------------------- identity


@every_strategy
def test_identity_is_the_id_and_not_the_title(strategy: Strategy) -> None:
    same_title = {
        "one": [hit("notes/a.md", title="Setup")],
        "two": [hit("notes/b.md", title="Setup")],
    }
    assert len(strategy(same_title)) == 2
    same_id = {"one": [hit("a", title="Setup")], "two": [hit("a", title="Set up")]}
    (fused,) = strategy(same_id)
    assert set(fused.signals) == {"one", "two"}


def test_a_hit_is_shown_as_its_strongest_source_has_it() -> None:
    weak = Hit("a", "weak passage", score=0.2, source="one", lines=(1, 2))
    strong = Hit("a", "strong passage", score=0.9, source="two", lines=(8, 9), title="T")
    (fused,) = rrf({"one": [weak], "two": [strong]}, weights={"two": 2.0})
    assert (fused.content, fused.score, fused.source) == ("strong passage", 0.9, "two")
    assert (fused.lines, fused.title) == ((8, 9), "T")


def test_of_two_passages_of_one_source_the_better_is_shown() -> None:
    (fused,) = rrf({"s": [Hit("a", "first passage", 0.9), Hit("a", "second passage", 0.1)]})
    assert fused.content == "first passage"
    assert fused.signals["s"]["rank"] == 1


@every_strategy
@pytest.mark.parametrize("score", [float("nan"), float("inf"), -float("inf")])
def test_a_score_that_is_no_number_is_refused(strategy: Strategy, score: float) -> None:
    with pytest.raises(InputError, match="'s' has 'a' with the score"):
        strategy({"s": [Hit(id="b", content="", score=1.0), Hit(id="a", content="", score=score)]})


# ---------------------------------------------------------------- weights


@every_strategy
@pytest.mark.parametrize("weight", [-0.1, -1, float("nan"), float("inf"), True, "2", None, [1]])
def test_a_weight_that_is_no_weight_is_refused(strategy: Strategy, weight: Any) -> None:
    with pytest.raises(ConfigError, match="'s'"):
        strategy({"s": hits("a")}, weights={"s": weight})


@every_strategy
@pytest.mark.parametrize("weights", [[1.0], "s=1", 2.0])
def test_weights_must_be_a_mapping(strategy: Strategy, weights: Any) -> None:
    with pytest.raises(ConfigError):
        strategy({"s": hits("a")}, weights=weights)


@every_strategy
def test_a_weight_of_nought_silences_a_source(strategy: Strategy) -> None:
    fused = strategy({"loud": hits("ba"), "mute": hits("ca")}, weights={"mute": 0})
    scores = {h.id: h.rrf_score for h in fused}
    assert ids(fused)[0] == "b"
    assert scores["c"] == 0.0
    assert all(h.signals["mute"]["contrib"] == 0.0 for h in fused if "mute" in h.signals)


@every_strategy
def test_all_sources_silenced_leaves_the_order_of_ids(strategy: Strategy) -> None:
    fused = strategy({"one": hits("ba")}, weights={"one": 0})
    assert [(h.id, h.rrf_score) for h in fused] == [("a", 0.0), ("b", 0.0)]


@every_strategy
def test_a_weight_of_an_absent_source_changes_nothing(strategy: Strategy) -> None:
    lists = {"one": hits("ab"), "two": hits("b")}
    assert strategy(lists, weights={"absent": 9.0}) == strategy(lists, weights={})


@pytest.mark.parametrize("strategy", [rrf, weighted_rrf])
@pytest.mark.parametrize("k", [-1, -60, "60"])
def test_a_k_that_makes_no_sense_is_refused(strategy: Strategy, k: Any) -> None:
    with pytest.raises(ClewError, match="k"):
        strategy({"s": hits("a")}, k=k)


# ---------------------------------------------------------------- by name, on candidates


@every_strategy
@unhurried
@given(lists=ranked_lists, weights=some_weights)
def test_candidates_fuse_as_hits_do(
    strategy: Strategy, lists: Lists, weights: Mapping[str, float] | None
) -> None:
    weights = weights or {}
    candidates = {
        name: [Candidate(h.id, h.score, i) for i, h in enumerate(some)]
        for name, some in lists.items()
    }
    by_name = fuse(strategy.__name__, candidates, weights=weights)
    by_hits = strategy(lists, weights=weights)
    assert [(f.id, f.score, f.signals) for f in by_name] == [
        (h.id, h.rrf_score, h.signals) for h in by_hits
    ]
    for fused in by_name:
        most = max(signal["contrib"] for signal in fused.signals.values())
        assert fused.signals[fused.source]["contrib"] == most


def test_a_strategy_goes_by_the_name_of_its_function() -> None:
    assert set(STRATEGIES) == {function.__name__ for function in FUNCTIONS}


def test_an_unknown_strategy_gets_the_nearest() -> None:
    with pytest.raises(ConfigError, match="unknown fusion 'rff': did you mean 'rrf'"):
        fuse("rff", {})


# ---------------------------------------------------------------------- what cannot be judged yet


def test_a_place_makes_up_for_what_a_source_does_not_say_and_no_more() -> None:
    lists = {
        "keyword": [Candidate("a", 1.0), Candidate("b", 0.9)],
        "vectors": [Candidate("c", 0.9), Candidate("b", 0.8)],
    }
    plain = {each.id: each.score for each in fuse("rrf", lists)}
    places = {"vectors": {"a": 0, "b": 1, "c": 0, "d": 0}}
    given = {each.id: each.score for each in fuse("rrf", lists, places=places)}
    assert given["a"] == pytest.approx(plain["a"] + 1 / 61)  # as the first of the vectors
    assert given["b"] == plain["b"]  # there already, by another passage
    assert given["c"] == plain["c"] and "d" not in given  # no words, no more
    assert {e.id: e.score for e in fuse("rrf", lists, places={"vectors": {"a": 2}})} == plain
