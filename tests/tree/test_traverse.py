"""The walk, on ground that is known."""

from __future__ import annotations

import itertools

import pytest
from grounds import Ground, Says
from hypothesis import given
from hypothesis import strategies as st

from clew.errors import InputError
from clew.tree import Walk
from clew.tree.traverse import GIVE_UP, Traversal, choose_others, sample_leaves, traverse


def walked(ground: Ground, scorer: Says | None = None, **how: object) -> Traversal:
    return traverse(ground, scorer or Says(ground), Walk(**how))  # type: ignore[arg-type]


def leaves(found: Traversal) -> list[int]:
    return [~key for key, _ in found.leaves]


def test_the_best_leaf_is_found_first_without_looking_at_all() -> None:
    ground = Ground(fan=6, levels=4, worth=lambda n: 1.0 if n == 777 else 0.2 + (n % 7) / 100)
    found = walked(ground)
    assert leaves(found)[0] == 777
    assert found.scored < ground.leaves / 4


def test_each_iteration_expands_so_many_nodes_and_there_are_so_many() -> None:
    found = walked(Ground(fan=5, levels=5), iterations=7, beam=3)
    by_iteration = [
        len(list(some)) for _, some in itertools.groupby(found.steps, key=lambda s: s.iteration)
    ]
    assert by_iteration == [1] + [3] * 6
    assert found.iterations == 7 and found.telemetry()["slates"] == 19
    assert found.ended == "all 7 iterations are done"


def test_path_relevance_is_half_the_parents_and_half_ones_own() -> None:
    found = walked(Ground(), iterations=3)
    tree = Ground()
    for step in found.steps:
        for key in tree.children(step.node):
            own = found.calibration.scores[key]
            above = found.relevance[step.node]
            assert found.relevance[key] == pytest.approx(0.5 * above + 0.5 * own)
    assert found.relevance[0] == 1.0


def test_inner_slates_have_the_best_sibling_and_leaf_slates_have_leaves_found_before() -> None:
    ground = Ground(fan=6, levels=3)
    found = walked(ground)
    inner = [step for step in found.steps if step.node and step.children[0] >= 0]
    assert inner and all(len(step.others) == 1 for step in inner)
    for step in inner:
        (sibling,) = step.others
        assert sibling in ground.children(0) and sibling != step.node
    late = [step for step in found.steps[8:] if step.children[0] < 0]
    assert late and all(len(step.others) == 10 for step in late)
    assert all(key < 0 for step in late for key in step.others)


def test_the_best_sibling_is_the_one_that_scores_best() -> None:
    assert choose_others(
        3, [10, 11], siblings={1: 0.2, 2: 0.9, 3: 1.0}, found={}, samples=10, seed=(0,)
    ) == (2,)


def test_better_leaves_are_sampled_more_often_and_each_at_most_once() -> None:
    found = {~n: (3.0 if n < 3 else 0.0) for n in range(12)}
    drawn = [sample_leaves(found, 4, (0, i)) for i in range(400)]
    assert all(len(set(some)) == 4 for some in drawn)
    good = sum(key in (~0, ~1, ~2) for some in drawn for key in some)
    assert good / len(drawn) > 2.0  # one by chance alone
    assert sample_leaves(found, 4, (0, 1)) == drawn[1]


def test_an_absolute_scorer_is_asked_about_a_node_once() -> None:
    ground = Ground(fan=6, levels=3)
    scorer = Says(ground)
    found = walked(ground, scorer)
    asked = [key for slate in scorer.slates for key in slate]
    assert len(asked) == len(set(asked)) == found.scored


def test_any_other_scorer_is_asked_about_whole_slates() -> None:
    ground = Ground(fan=6, levels=3)
    scorer = Says(ground, absolute=False)
    found = walked(ground, scorer)
    assert [step.keys for step in found.steps] == scorer.slates
    assert found.scored == sum(map(len, scorer.slates))


def test_no_more_nodes_are_scored_than_may_be() -> None:
    found = walked(Ground(fan=8, levels=4), nodes=100, iterations=100)
    assert 90 < found.scored <= 100 and "100 scorings" in found.ended


def test_biases_of_slates_do_not_mislead_the_walk() -> None:
    ground = Ground(fan=8, levels=3, worth=lambda n: 1.0 if n == 400 else (n * 37 % 101) / 150)
    moody = [60.0, -35.0, 20.0, 0.0, -50.0, 45.0, -10.0]
    scorer = Says(
        ground, absolute=False, say=lambda worth, slate: 100 * worth + moody[slate % len(moody)]
    )
    assert leaves(walked(ground, scorer))[0] == 400


def test_the_same_walk_twice_is_the_same() -> None:
    ground = Ground(fan=7, levels=3)
    assert walked(ground).leaves == walked(ground).leaves


def test_a_scorer_that_always_says_the_same_ends_in_time_and_nearness_decides() -> None:
    ground = Ground(fan=6, levels=3)
    scorer = Says(ground, absolute=False, say=lambda worth, slate: 70.0)
    found = walked(ground, scorer)
    assert len(scorer.slates) <= 40 and leaves(found)[0] == 0
    assert found.calibration.scale == 0


# ---------------------------------------------------------------------- failures


def test_a_slate_that_fails_is_scored_by_the_spare_and_says_so() -> None:
    ground = Ground(fan=6, levels=3)
    scorer = Says(
        ground, absolute=False, say=lambda worth, slate: 100 * worth, fails=lambda n: n in (1, 4)
    )
    spare = Says(ground, name="spare")
    found = traverse(ground, scorer, Walk(), spare=spare)
    failed = [step for step in found.steps if step.spare]
    assert [step.scorer for step in failed] == ["spare", "spare"]
    assert all(step.problem == "no answer this time" for step in failed)
    assert leaves(found)[0] == 0


def test_a_scorer_that_keeps_failing_is_not_asked_again() -> None:
    ground = Ground(fan=6, levels=3)
    scorer = Says(ground, absolute=False, fails=lambda n: True)
    found = traverse(ground, scorer, Walk(), spare=Says(ground, name="spare"))
    assert len(scorer.slates) == GIVE_UP
    assert all(step.spare for step in found.steps) and leaves(found)[0] == 0


def test_the_walk_ends_when_its_time_is_over() -> None:
    ticks = itertools.count()
    found = traverse(
        Ground(fan=6, levels=4),
        Says(Ground(fan=6, levels=4)),
        Walk(seconds=5.0),
        clock=lambda: float(next(ticks)),
    )
    assert len(found.steps) == 5 and "out of time" in found.ended


# ---------------------------------------------------------------------- masks


@given(st.sets(st.integers(0, 63), max_size=64))
def test_what_is_masked_is_never_found_nor_scored(masked: set[int]) -> None:
    ground = Ground(masked=masked)
    scorer = Says(ground)
    found = traverse(ground, scorer, Walk(abort=False))
    asked = {~key for slate in scorer.slates for key in slate if key < 0}
    assert not asked & masked and not set(leaves(found)) & masked
    assert set(leaves(found)) == set(range(64)) - masked  # so small a tree is walked whole
    assert found.telemetry()["aborted"] is False


def test_many_masked_leaves_in_three_iterations_end_the_walk() -> None:
    ground = Ground(fan=8, levels=3, masked=set(range(0, 512, 4)))
    found = walked(ground)
    assert found.aborted and found.masked[-3:] == [0.25] * 3 and "15%" in found.ended
    assert not walked(ground, abort=False).aborted


def test_two_bad_iterations_and_a_good_one_do_not() -> None:
    # The best leaves are in nodes that come to an iteration of their own, one after the other.
    worth = {n: 2.0 - i / 10 for i, n in enumerate((0, 100, 200, 300, 400))}
    ground = Ground(
        fan=8,
        levels=3,
        worth=lambda n: worth.get(n, 0.0),
        masked={1, 2, 101, 102, 301, 302, 401, 402},
    )
    found = walked(ground, beam=1, iterations=11)
    assert sum(share > 0.15 for share in found.masked) >= 4
    assert not found.aborted


def test_a_node_that_has_lost_most_of_its_leaves_waits() -> None:
    worth = {5: 0.9, 30: 0.85}
    whole = Ground(fan=6, levels=2, worth=lambda n: worth.get(n, 0.1))
    thin = Ground(fan=6, levels=2, worth=whole.worth, masked={0, 1, 2, 3, 4})
    first = [step.node for step in walked(whole, beam=1, iterations=2).steps][1]
    then = [step.node for step in walked(thin, beam=1, iterations=2).steps][1]
    assert (first, then) == (1, 6)


def test_nothing_to_be_found_is_an_empty_walk() -> None:
    found = walked(Ground(masked=set(range(64))))
    assert found.leaves == [] and found.steps == [] and found.iterations == 0


# ---------------------------------------------------------------------- settings


def test_no_more_children_are_looked_at_than_the_tree_has() -> None:
    ground = Ground(fan=12, levels=2, branching=12)
    assert len(walked(ground, branching=19).steps[0].children) == 12
    found = walked(ground, branching=5)
    assert {len(step.children) for step in found.steps} == {5}
    assert leaves(found)[0] == 0  # the nearest stay


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"scorer": "embeding"}, "embedding"),
        ({"iterations": 0}, "iterations"),
        ({"beam": 1.5}, "beam"),
        ({"alpha": 2}, "from 0 to 1"),
        ({"alpha": float("nan")}, "alpha"),
        ({"seconds": -1}, "seconds"),
        ({"branching": 1}, "branching"),
        ({"nodes": True}, "nodes"),
    ],
)
def test_settings_that_make_no_sense_are_named(given: dict[str, object], said: str) -> None:
    with pytest.raises(InputError, match=said):
        Walk(**given)  # type: ignore[arg-type]


def test_seeds_are_expanded_with_the_root() -> None:
    ground = Ground(fan=6, levels=3)
    found = traverse(ground, Says(ground), Walk(), seeds=[40])
    assert [step.node for step in found.steps[:2]] == [0, 40]
    asked = [step.node for step in found.steps]
    assert len(asked) == len(set(asked))
