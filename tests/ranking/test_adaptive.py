"""The share of vectors follows from what the lists look like; scales do not depend on depth."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clew.ranking.adaptive import (
    DEPTH,
    FOREIGN,
    Facts,
    keyword_scale,
    share_of_late,
    share_of_vectors,
    signs,
    vector_scale,
)
from clew.ranking.fusion import fuse
from clew.types import Candidate

BGE = Facts(reach=20.0, unrelated=0.57)
falling = st.lists(st.floats(0.01, 30), min_size=1, max_size=120).map(
    lambda scores: sorted(scores, reverse=True)
)


def listed(prefix: str, *scores: float) -> list[Candidate]:
    return [Candidate(f"{prefix}{i}", score) for i, score in enumerate(scores)]


def share(keyword: list[Candidate], vectors: list[Candidate], facts: Facts = BGE) -> float:
    return share_of_vectors(signs(keyword, vectors, facts), facts)


FLAT = listed("a", *[5.0 - 0.01 * i for i in range(50)])
STEEP = listed("a", 15.0, *[3.0 - 0.01 * i for i in range(49)])
NEAR = listed("b", *[0.85 - 0.003 * i for i in range(50)])
FAR = listed("b", *[0.65 - 0.001 * i for i in range(50)])


def test_a_clear_keyword_match_takes_share_from_the_vectors() -> None:
    assert share(STEEP, NEAR) < share(FLAT, NEAR)


def test_a_near_passage_gives_the_vectors_more() -> None:
    assert share(FLAT, FAR) < share(FLAT, NEAR)


def test_a_script_the_model_does_not_know_leaves_it_next_to_nothing() -> None:
    assert share(FLAT, NEAR, BGE._replace(known=0.0)) == FOREIGN
    assert FOREIGN < share(FLAT, NEAR, BGE._replace(known=0.5)) < share(FLAT, NEAR)


def test_an_identifier_that_is_written_somewhere_is_left_to_the_words() -> None:
    asked = BGE._replace(identifier=True)
    seen = {"confidence": 0.4, "contrast": 0.3, "agreement": 0.3, "lead": 1.0, "accord": 1.0}
    seen |= {"length": 0.0, "code": 0.0, "coverage": 1.0}
    assert share_of_vectors(seen, asked) == FOREIGN < share_of_vectors(seen, BGE)
    assert share_of_late(seen, asked) == 0 < share_of_late(seen, BGE)
    parts = {**seen, "coverage": 0.3}  # user name, for getUserName
    assert share_of_vectors(parts, asked) == share_of_vectors(parts, BGE)


def test_vectors_have_a_say_only_on_what_the_model_has_read() -> None:
    whole = share(FLAT, NEAR)
    assert share(FLAT, NEAR, BGE._replace(read=0.5)) == pytest.approx(whole / 2)


def test_one_list_alone_keeps_its_order() -> None:
    for source, scores in (("keyword", STEEP), ("vectors", NEAR)):
        both = {"keyword": [], "vectors": [], source: scores}
        assert [f.id for f in fuse("adaptive", both, facts=BGE)][:3] == [c.id for c in scores[:3]]


def test_a_match_of_some_words_counts_more_than_none() -> None:
    """A short list ends where nothing matches any more: its last is not worth as little as that."""
    scaled = keyword_scale([9.0, 4.0], BGE)
    assert scaled[0] > scaled[1] > 0


def test_another_source_has_its_say_beside_the_two() -> None:
    lists = {"keyword": STEEP, "vectors": NEAR, "tags": listed("t", 1.0)}
    fused = fuse("adaptive", lists, weights={"tags": 30.0}, facts=BGE)
    assert fused[0].id == "t0" and fused[0].source == "tags"


@given(falling)
def test_scales_do_not_depend_on_how_deep_the_list_is(scores: list[float]) -> None:
    for scale in (keyword_scale, vector_scale):
        whole, head = scale(scores, BGE), scale(scores[: max(DEPTH, 1)], BGE)
        assert whole[: len(head)] == pytest.approx(head)
        assert whole == sorted(whole, reverse=True) and min(whole) > 0
        for a, b in pairwise(zip(scores, whole, strict=True)):
            assert (a[0] > b[0] + 1e-3) <= (a[1] > b[1])


@given(falling, falling, st.floats(0, 1), st.floats(0, 60))
def test_the_share_is_one(
    keyword: list[float], vectors: list[float], known: float, reach: float
) -> None:
    facts = Facts(reach=reach, unrelated=0.3, known=known)
    assert 0 <= share(listed("a", *keyword), listed("a", *vectors), facts) <= 1


def test_one_chance_word_in_a_small_store_does_not_beat_the_right_meaning() -> None:
    """Two records, one of which has one common word of the query."""
    facts = Facts(reach=13.0, unrelated=0.57)
    lists = {
        "keyword": [Candidate("bees", 0.5)],
        "vectors": [Candidate("breaker", 0.66), Candidate("bees", 0.58)],
    }
    assert fuse("adaptive", lists, facts=facts)[0].id == "breaker"
    lists["keyword"] = [Candidate("bees", 9.0)]  # nearly all of the query's words
    assert fuse("adaptive", lists, facts=facts)[0].id == "bees"


def test_a_single_record_is_worth_its_nearness() -> None:
    facts = Facts(reach=0.0, unrelated=0.57)
    near, far = (
        fuse("adaptive", {"keyword": [], "vectors": [Candidate("a", cosine)]}, facts=facts)[0].score
        for cosine in (0.8, 0.6)
    )
    assert near > far > 0.1
