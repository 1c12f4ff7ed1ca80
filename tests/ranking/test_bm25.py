from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clew.errors import InputError
from clew.ranking.lookup_score import bm25

words = st.lists(st.sampled_from(["keel", "bolt", "sail", "mast", "rope"]), max_size=8).map(
    " ".join
)


def test_it_is_robertson_s_formula() -> None:
    texts = ["keel keel bolt", "sail mast rope"]
    rarity = math.log(1 + (2 - 1 + 0.5) / (1 + 0.5))
    expected = rarity * 2 * 2.2 / (2 + 1.2 * (0.25 + 0.75 * 3 / 3))
    assert bm25("keel", texts) == pytest.approx([expected, 0.0])


def test_a_rare_word_counts_for_more_than_a_common_one() -> None:
    texts = ["keel bolt", "keel sail", "keel mast"]
    found, other, _ = bm25("keel bolt", texts)
    assert found > other > 0


def test_who_knows_how_rare_words_are_is_believed() -> None:
    texts = ["keel one", "bolt two"]
    assert bm25("keel bolt", texts, rarities=[1.0, 3.0]) == sorted(
        bm25("keel bolt", texts, rarities=[1.0, 3.0])
    )
    with pytest.raises(InputError, match="give one for each"):
        bm25("keel bolt", texts, rarities=[1.0])


def test_a_compound_is_found_whole_or_in_its_parts() -> None:
    whole, parts, none = bm25("getUserName", ["getUserName()", "the user name to get", "user"])
    assert whole > 0 and parts > 0 and none == 0


@given(words, st.lists(words, max_size=6))
def test_only_texts_with_a_word_score_and_none_below_nought(query: str, texts: list[str]) -> None:
    scores = bm25(query, texts)
    assert len(scores) == len(texts)
    for score, text in zip(scores, texts, strict=True):
        assert (score > 0) == bool(set(query.split()) & set(text.split()))


@given(words, st.lists(words, min_size=1, max_size=6), st.randoms())
def test_the_order_of_the_texts_says_nothing(query: str, texts: list[str], random: object) -> None:
    shuffled = list(texts)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    before = dict(zip(texts, bm25(query, texts), strict=True))
    assert dict(zip(shuffled, bm25(query, shuffled), strict=True)) == before
