"""Lists on scales, weighed, and heard on what they may be heard on."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from clew.ranking.adaptive import Facts
from clew.ranking.fusion import RankedList, weigh_lists
from clew.types import Candidate

FACTS = Facts(reach=20.0, unrelated=0.5, words=4)


def ranked(
    kind: str, *pairs: tuple[str, float], weight: float = 1.0, part: bool = False
) -> RankedList:
    return RankedList([Candidate(*pair) for pair in pairs], kind, weight, part)


def ids(
    lists: dict[str, RankedList], strategy: str = "weighted_rrf", facts: Facts = FACTS
) -> list[str]:
    return [each.id for each in weigh_lists(lists, facts, strategy=strategy).fused()]


WHOLE = {
    "keyword": ranked("keyword", ("right", 18.0), ("other", 8.0), ("far", 2.0)),
    "vectors": ranked("vectors", ("right", 0.9), ("other", 0.7), ("far", 0.6)),
}


def test_scores_are_on_one_scale_that_the_formula_takes() -> None:
    fused = weigh_lists(WHOLE, FACTS, strategy="weighted_rrf").fused(1)[0]
    assert fused.signals["keyword"]["score"] == pytest.approx(0.9)  # 18 of 20
    assert fused.signals["vectors"]["score"] == pytest.approx(0.8)  # 0.9 between 0.5 and 1
    assert fused.score == pytest.approx((0.5 + 0.9) / 61 + (0.5 + 0.8) / 61)
    below = {"vectors": ranked("vectors", ("a", 0.2))}
    assert weigh_lists(below, FACTS, strategy="weighted_rrf").lists["vectors"][0].score == 0


@pytest.mark.parametrize("strategy", ["weighted_rrf", "rrf", "adaptive", "convex"])
def test_a_part_of_the_store_is_heard_on_contenders_only(strategy: str) -> None:
    session = ranked("vectors", ("far", 0.6), ("right", 0.55), weight=3.0, part=True)
    lists = {**WHOLE, "session": session}
    assert ids(lists, strategy)[0] == "right"
    votes = weigh_lists(lists, FACTS, strategy=strategy)
    assert [c.id for c in votes.lists["session"]] == ["right"] and votes.weights["session"] == 3.0
    whole = {**WHOLE, "session": session._replace(part=False)}
    assert [c.id for c in weigh_lists(whole, FACTS, strategy=strategy).lists["session"]] == [
        "far",
        "right",
    ]


def test_weights_settle_what_is_close() -> None:
    close = {
        "keyword": ranked("keyword", ("a", 18.0), ("b", 17.9)),
        "vectors": ranked("vectors", ("b", 0.9), ("a", 0.899)),
        "session": ranked("vectors", ("a", 0.899), weight=3.0, part=True),
        "reference": ranked("vectors", ("b", 0.9), weight=1.8, part=True),
    }
    assert ids(close) == ["a", "b"]


def test_parts_alone_are_heard_on_all_they_have() -> None:
    alone = {"session": ranked("vectors", ("far", 0.6), weight=3.0, part=True)}
    assert ids(alone) == ["far"]
    assert ids({**alone, "keyword": ranked("keyword")}) == ["far"]  # nobody found anything else


@pytest.mark.parametrize(("words", "first"), [(4, "canon"), (3, "page")])
def test_a_line_of_canon_that_is_what_was_asked_comes_before_any_collection(
    words: int, first: str
) -> None:
    lists = {
        "keyword": ranked("keyword", ("page", 18.0), ("canon", 17.0)),
        "vectors": ranked("vectors", ("page", 0.9), ("canon", 0.7)),
        "canonical": ranked("canonical", ("canon", 1.0), weight=2.0),
        "session": ranked("vectors", ("page", 0.9), weight=3.0, part=True),
    }
    assert ids(lists, facts=FACTS._replace(words=words))[0] == first


def near(*scores: float) -> Sequence[tuple[str, float]]:
    return [(f"e{i}", score) for i, score in enumerate(scores)]


@pytest.mark.parametrize("strategy", ["adaptive", "convex", "dbsf", "rrf", "weighted_rrf"])
def test_what_has_no_vector_yet_counts_where_its_words_would_put_it(strategy: str) -> None:
    words = ranked("keyword", ("new", 18.0), *((f"e{i}", 9.0 - i) for i in range(5)))
    vectors = ranked("vectors", *near(0.9, 0.8, 0.7, 0.6, 0.55))
    facts = FACTS._replace(embedded=0.5)
    lists = {"keyword": words, "vectors": vectors._replace(places={"new": 0})}
    fused = {each.id: each for each in weigh_lists(lists, facts, strategy=strategy).fused()}
    assert next(iter(fused)) == "new"
    gained = fused["new"].signals["keyword"]["contrib"] - sum(
        each.signals["keyword"]["contrib"]
        for each in weigh_lists(
            {"keyword": words, "vectors": vectors}, facts, strategy=strategy
        ).fused()
        if each.id == "new"
    )
    assert gained == pytest.approx(fused["e0"].signals["vectors"]["contrib"])
    assert "vectors" not in fused["new"].signals  # nothing is made up
