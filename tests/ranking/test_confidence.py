"""Badges: by Athena's thresholds on a reciprocal score, else by the chance of being relevant."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import clew
from clew.ranking.adaptive import Facts
from clew.ranking.confidence import Chance, chances, confidence
from clew.types import Candidate, Query

from hashing import HashingEmbedder

BGE = Facts(reach=20.0, unrelated=0.57)
HIGH, MED = 0.7, 0.4


def listed(*pairs: tuple[str, float]) -> list[Candidate]:
    return [Candidate(name, score) for name, score in pairs]


def falling(
    first: float, last: float, *, head: Sequence[tuple[str, float]] = ()
) -> list[Candidate]:
    """Fifty, those of the head first."""
    rest = 50 - len(head)
    step = (first - last) / rest
    return listed(*head, *((f"other{i:02}", first - step * i) for i in range(rest)))


def both(
    words: Sequence[tuple[str, float]], near: Sequence[tuple[str, float]], facts: Facts = BGE
) -> Callable[[str], Chance]:
    """Lists of fifty with these at their head, above a crowd that hardly differs."""
    keyword, vectors = falling(8, 6, head=words), falling(0.70, 0.66, head=near)
    return chances({"keyword": keyword, "vectors": vectors}, facts)


# ---------------------------------------------------------------- thresholds


@pytest.mark.parametrize(
    ("score", "badge"),
    [
        (0.03, "HIGH"),
        (math.nextafter(0.03, 0), "MED"),
        (0.02, "MED"),
        (math.nextafter(0.02, 0), "LOW"),
        (0.0, "LOW"),
        (2.5, "HIGH"),
    ],
)
def test_a_threshold_is_the_first_score_that_passes(score: float, badge: str) -> None:
    assert confidence(score, high=0.03, med=0.02) == badge


@given(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1), st.floats(0, 1))
def test_a_better_score_never_has_a_worse_badge(a: float, b: float, c: float, d: float) -> None:
    med, high = sorted((a, b))
    worse, better = sorted((c, d))
    order = ("LOW", "MED", "HIGH")
    badges = [confidence(score, high=high, med=med) for score in (worse, better)]
    assert order.index(badges[0]) <= order.index(badges[1])


# ---------------------------------------------------------------- the chance


def test_what_stands_out_in_both_legs_and_is_near_is_high() -> None:
    chance = both([("it", 18.0)], [("it", 0.88)])("it")
    assert chance.value >= HIGH
    assert chance.by == "both"


def test_the_first_of_two_flat_lists_is_not_high() -> None:
    # The best hit of a question that nothing answers: first in both legs, by a hair.
    assert both([("it", 8.01)], [("it", 0.701)])("it").value < MED


def test_standing_out_in_one_leg_only_is_not_enough() -> None:
    in_both = both([("it", 18.0)], [("it", 0.88)])("it").value
    by_words = both([("it", 18.0)], [("another", 0.88)])("it").value
    by_vectors = both([("another", 18.0)], [("it", 0.88)])("it").value
    assert max(by_words, by_vectors) < MED < in_both


def test_the_nearer_of_two_answers_that_stand_out_alike_is_surer() -> None:
    keyword = falling(8, 6, head=[("it", 9.0)])
    distant = {"keyword": keyword, "vectors": falling(0.60, 0.59, head=[("it", 0.61)])}
    close = {"keyword": keyword, "vectors": falling(0.80, 0.79, head=[("it", 0.81)])}
    far, near = chances(distant, BGE)("it"), chances(close, BGE)("it")
    assert far.by == near.by == "both"
    assert far.lead == pytest.approx(near.lead)
    assert far.value < near.value


def test_an_identifier_that_one_record_has_is_judged_by_words() -> None:
    keyword = listed(("it", 9.0), ("other00", 0.9))
    chance = chances({"keyword": keyword, "vectors": falling(0.60, 0.56)}, Facts(9.0, 0.57))("it")
    assert chance.by == "words"
    assert chance.value >= HIGH


def test_in_a_script_that_the_model_does_not_know_words_decide() -> None:
    foreign = BGE._replace(known=0.0)
    chance = both([("it", 18.0)], [("another", 0.88)], foreign)
    assert chance("it").by == "words"
    assert (
        chance("it").value
        == chances({"keyword": falling(8, 6, head=[("it", 18.0)])}, BGE)("it").value
    )
    assert chance("another").value < chance("it").value


def test_one_leg_alone_is_judged_by_itself() -> None:
    keyword, vectors = falling(8, 6, head=[("it", 18.0)]), falling(0.7, 0.66, head=[("it", 0.9)])
    assert chances({"keyword": keyword}, BGE)("it").by == "words"
    assert chances({"vectors": vectors}, BGE)("it").by == "vectors"
    assert chances({"keyword": keyword, "vectors": []}, BGE)("it").by == "words"  # no vectors yet
    wordless = BGE._replace(reach=0.0)
    assert chances({"keyword": [], "vectors": vectors}, wordless)("it").by == "vectors"


def test_words_that_stand_nowhere_count_against_what_vectors_find() -> None:
    vectors = falling(0.7, 0.66, head=[("it", 0.9)])
    nowhere = chances({"keyword": [], "vectors": vectors}, BGE)("it")
    assert (nowhere.by, nowhere.lead) == ("both", 0.0)


def test_one_chance_word_in_a_small_store_is_not_high() -> None:
    # One of five words, in the only record that has any of them.
    found = chances({"keyword": listed(("it", 3.0))}, Facts(reach=15.0))("it")
    assert found.value < HIGH


def test_what_only_another_source_names_is_medium_at_most() -> None:
    table = listed(("row", 1.0), ("half", 0.5), ("same", 0.5))
    lists = {"keyword": falling(8, 6), "vectors": falling(0.7, 0.66), "table": table}
    chance = chances(lists, BGE)
    assert chance("row").by == "table"
    assert MED <= chance("row").value < HIGH
    assert chance("half").value == chance("same").value < MED
    assert chances({**lists, "table": table[:1]}, BGE)("row").value < HIGH  # nothing else is there


@given(st.floats(0, 100), st.floats(0.1, 1))
def test_being_named_by_one_more_source_never_makes_a_hit_less_sure(
    words: float, share: float
) -> None:
    lists = {"keyword": falling(8, 6, head=[("it", words)]), "vectors": falling(0.7, 0.66)}
    more = {**lists, "filenames": listed(("it", share), ("other", share / 2))}
    assert chances(more, BGE)("it").value >= chances(lists, BGE)("it").value


cosines = st.lists(st.floats(-1, 1), min_size=1, max_size=80)
scores = st.lists(st.floats(0, 40), min_size=0, max_size=80)


@given(scores, cosines, st.floats(0, 60), st.floats(0, 1), st.floats(0, 1))
def test_within_a_query_what_is_better_in_both_legs_is_at_least_as_sure(
    words: list[float], near: list[float], reach: float, known: float, read: float
) -> None:
    facts = Facts(reach, 0.57, known, read)
    keyword = [Candidate(f"r{i}", s) for i, s in enumerate(sorted(words, reverse=True))]
    vectors = [Candidate(f"r{i}", s) for i, s in enumerate(sorted(near, reverse=True))]
    chance = chances({"keyword": keyword, "vectors": vectors}, facts)
    values = [chance(f"r{i}").value for i in range(max(len(words), len(near)) + 1)]
    assert all(0.0 <= value <= 1.0 for value in values)
    assert values == sorted(values, reverse=True)


def test_without_any_list_nothing_is_likely() -> None:
    assert chances({}, Facts())("it").value == 0.0
    assert chances({"keyword": [], "vectors": []}, BGE)("it").value < MED


# ---------------------------------------------------------------- through the engine

Giving = Callable[[Query, Any], Sequence[Candidate]]


def giving(*pairs: tuple[str, float]) -> Giving:
    return lambda query, context: listed(*pairs)


def only(tmp_path: Path, pairs: Sequence[tuple[str, float]], **set: Any) -> clew.Engine:
    """An engine with one made-up source, of weight 1.22: its first hit of score 1 has 0.03."""
    engine = clew.open(tmp_path, model="none", cache=False, **set)
    engine.add([clew.Record(name, f"the keel of {name}") for name in "abcd"])
    engine.sources.clear()
    engine.sources["one"] = giving(*pairs)
    return engine


@pytest.mark.parametrize(
    ("own", "rrf_score", "badge"),
    [
        (1.0, 0.03, "HIGH"),
        (1.0 - 1e-12, None, "MED"),
        (0.5, 0.02, "MED"),
        (0.5 - 1e-12, None, "LOW"),
    ],
)
def test_weighted_rrf_has_athenas_thresholds_to_the_last_digit(
    tmp_path: Path, own: float, rrf_score: float | None, badge: str
) -> None:
    with only(tmp_path, [("a", own)], fusion="weighted_rrf") as engine:
        found = engine.search("keel", weights={"one": 1.22})
    assert found[0].confidence == badge
    assert rrf_score is None or found[0].rrf_score == rrf_score
    assert found.trace["confidence"] == {"by": "rrf_score", "high": 0.03, "med": 0.02}
    assert "chance" not in found[0].metadata


def test_strict_drops_what_is_below_medium_and_counts_it(tmp_path: Path) -> None:
    pairs = [("a", 1.0), ("b", 0.6), ("c", 0.4), ("d", 0.1)]
    with only(tmp_path, pairs, fusion="weighted_rrf") as engine:
        usual = engine.search("keel", weights={"one": 1.22})
        strict = engine.search("keel", weights={"one": 1.22}, strict=True)
    assert [hit.confidence for hit in usual] == ["HIGH", "MED", "LOW", "LOW"]
    assert usual.suppressed == 0
    assert [hit.id for hit in strict] == ["a", "b"]
    assert strict.suppressed == 2
    assert strict.to_dict()["suppressed"] == 2


def test_strict_may_leave_nothing_and_says_how_much_there_was(tmp_path: Path) -> None:
    with only(tmp_path, [("a", 0.1), ("b", 0.1)], fusion="rrf") as engine:
        found = engine.search("keel", strict=True)
    assert (len(found), found.suppressed) == (0, 2)
    assert found.to_dict()["message"]


def test_thresholds_are_settings(tmp_path: Path) -> None:
    own = {"fusion": "rrf", "confidence_high": 1 / 61, "confidence_med": 1 / 62}
    with only(tmp_path, [("a", 3), ("b", 2), ("c", 1)], **own) as engine:
        assert [hit.confidence for hit in engine.search("keel")] == ["HIGH", "MED", "LOW"]


WORDS = ("mast", "rope", "anchor", "harbour", "lamp", "coffee", "kettle", "saw", "paint", "glue")


@pytest.fixture
def folder(tmp_path: Path) -> clew.Engine:
    """Sixty notes of the same few words, and one that is like no other."""
    engine = clew.open(tmp_path, embedder=HashingEmbedder(), cache=False)
    notes = [
        clew.Record(f"note{i:02}", " ".join(WORDS[(i * k) % 10] for k in (1, 3, 7)))
        for i in range(60)
    ]
    engine.add([*notes, clew.Record("it", "zinc anode replaced before winter")])
    engine.embed()
    return engine


def test_by_default_the_chance_decides_and_is_shown(folder: clew.Engine) -> None:
    with folder as engine:
        found = engine.search("zinc anode replaced", explain=True)
    first = found[0]
    assert (first.id, first.confidence) == ("it", "HIGH")
    assert {"by": "chance", "high": 0.7, "med": 0.4}.items() <= found.trace["confidence"].items()
    because = found.trace["confidence"]["because"][first.id]
    assert because["value"] == first.metadata["chance"] >= 0.7
    assert because["lead"] > 0
    for hit in found:
        expected = confidence(hit.metadata["chance"], high=0.7, med=0.4)
        assert hit.confidence == expected


def test_what_nothing_answers_gets_no_high(folder: clew.Engine) -> None:
    with folder as engine:
        found = engine.search("quarterly payroll deadline rope")
    assert len(found) == 10
    assert "HIGH" not in {hit.confidence for hit in found}


@pytest.mark.parametrize("mode", ["hybrid", "keyword", "vector"])
@pytest.mark.parametrize("query", ["zinc anode", "anchor rope", "coffee", "payroll"])
def test_strict_is_the_same_answer_without_what_is_low(
    folder: clew.Engine, query: str, mode: Any
) -> None:
    with folder as engine:
        usual = engine.search(query, mode=mode)
        strict = engine.search(query, mode=mode, strict=True)
    assert [hit.id for hit in strict] == [hit.id for hit in usual if hit.confidence != "LOW"]
    assert strict.suppressed == len(usual) - len(strict)


class Backwards:
    """A cross-encoder that likes best what came last."""

    model = "backwards@1"

    def __init__(self) -> None:
        self.read = 0

    def score(self, query: str, passages: Sequence[str]) -> list[float]:
        self.read += len(passages)
        return [float(self.read + i) for i in range(len(passages))]


def test_reranking_changes_the_order_and_no_badge(tmp_path: Path, folder: clew.Engine) -> None:
    with folder as plain:
        engine = clew.Engine(
            plain.store,
            config=clew.config.load(None, {"cache": False, "rerank_blend": 1.0}),
            embedder=HashingEmbedder(),
            reranker=Backwards(),
        )
        usual = plain.search("zinc anode rope", limit=25)
        again = engine.search("zinc anode rope", limit=25, rerank=True)
    assert [hit.id for hit in again] != [hit.id for hit in usual]
    badges = {hit.id: (hit.confidence, hit.metadata["chance"]) for hit in usual}
    assert {hit.id: (hit.confidence, hit.metadata["chance"]) for hit in again} == badges


def test_a_list_of_what_matches_a_filter_has_no_badges(folder: clew.Engine) -> None:
    with folder as engine:
        found = engine.search("collection:default", strict=True)
    assert len(found) == 10
    assert {hit.confidence for hit in found} == {None}
    assert found.suppressed == 0
