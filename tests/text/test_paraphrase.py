"""What says the same in other words, and the many pairs that only seem to."""

from __future__ import annotations

from itertools import combinations

import pytest
import test_same_fact as forms
from hypothesis import given
from hypothesis import strategies as st

from clew.text.equivalence import essence, gist, is_paraphrase
from statements import APART, FACTS, TYPICAL, UNSEEN

TRUE = {
    ("User is allergic to peanuts", "User has a peanut allergy"),
    ("User bought a car", "User purchased a car"),
}
"""Pairs that same_fact keeps apart since the words are others."""
OLD = [p for pairs in forms.APART.values() for p in pairs if p not in TRUE]
SENTENCES = [sentence for fact in (*FACTS, *TYPICAL, *UNSEEN) for sentence in fact]


@pytest.mark.parametrize(("one", "other"), [*APART, *OLD])
def test_what_differs_in_a_fact_stays_apart(one: str, other: str) -> None:
    assert not is_paraphrase(one, other)
    assert not is_paraphrase(other, one)


@pytest.mark.parametrize("facts", [FACTS, TYPICAL, UNSEEN], ids=["facts", "typical", "unseen"])
def test_no_two_facts_are_taken_for_one(facts: list[list[str]]) -> None:
    of: dict[tuple[str, ...], set[int]] = {}
    for number, fact in enumerate(facts):
        for sentence in fact:
            of.setdefault(gist(sentence), set()).add(number)
    assert [sorted(numbers) for numbers in of.values() if len(numbers) > 1] == []


@pytest.mark.parametrize(
    ("facts", "share", "left"),
    [(FACTS, 0.6, 104), (TYPICAL, 1.0, 7), (UNSEEN, 0.45, 42)],
    ids=["facts", "typical", "unseen"],
)
def test_of_what_says_the_same_so_much_is_found(
    facts: list[list[str]], share: float, left: int
) -> None:
    pairs = [pair for fact in facts for pair in combinations(fact, 2)]
    assert sum(is_paraphrase(one, other) for one, other in pairs) / len(pairs) >= share
    assert len({gist(sentence) for fact in facts for sentence in fact}) <= left


def test_sentences_of_the_same_form_are_paraphrases_too() -> None:
    for pairs in forms.SAME.values():
        for one, other in pairs:
            assert gist(one) == gist(other), (one, other)


@given(
    st.sampled_from([s for s in SENTENCES if len(s.split()) > 2]),
    st.sampled_from(forms.TELLING),
    st.integers(0, 12),
)
def test_a_word_that_tells_cannot_be_slipped_in(sentence: str, word: str, at: int) -> None:
    assert not is_paraphrase(sentence, forms.with_word(sentence, word, at))


@given(st.sampled_from(SENTENCES))
def test_no_name_and_no_number_can_be_changed(sentence: str) -> None:
    words = sentence.rstrip(".").split()
    for at, word in enumerate(words):
        if at and (word[0].isupper() or word[0].isdigit()):
            for put in ("Zoe", "97", word.lower() if word[0].isupper() else f"{word}1"):
                changed = " ".join([*words[:at], put, *words[at + 1 :]])
                if changed != sentence:
                    assert not is_paraphrase(sentence, changed)


@given(st.text())
def test_any_text_has_a_gist(text: str) -> None:
    assert gist(text) == gist(f" {text} ")
    assert len(essence(text)) <= 24 or gist(text) == essence(text)
