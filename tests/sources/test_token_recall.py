from __future__ import annotations

import pytest

from clew.sources.tokens import query_tokens, record_tokens, token_recall


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("Sarah's MRI, 20mg", {"sarah", "s", "mri", "20mg"}),
        ("Zażółć Škoda naïve", {"zażółć", "škoda", "naïve"}),
        ("龙井茶 tea", {"龙", "井", "茶", "tea"}),
        ("犬のハナ", {"犬", "の", "ハ", "ナ"}),
        ("무릎 x2", {"무", "릎", "x2"}),
        ("Аркадий", {"аркадий"}),
        ("𠀀𪜀𰀀𱍐", {"𠀀", "𪜀", "𰀀", "𱍐"}),  # extensions B, C, G, H
        ("tea茶time", {"tea", "茶", "time"}),
        ("…!?", set()),
    ],
)
def test_words_are_tokens_and_cjk_goes_character_by_character(text: str, tokens: set[str]) -> None:
    assert record_tokens(text) == tokens


def test_only_the_query_drops_stopwords_and_single_letters() -> None:
    assert query_tokens("What did I say about the E119 x") == {"say", "e119"}
    assert record_tokens("the x") == {"the", "x"}
    assert query_tokens("茶 7 a") == {
        "茶",
        "7",
    }  # a character of Chinese and a digit are no letters


def test_recall_is_the_share_of_the_query() -> None:
    record = record_tokens("I started fluoxetine in April")
    assert token_recall(query_tokens("fluoxetine"), record) == 1
    assert token_recall(query_tokens("fluoxetine dose"), record) == 0.5
    assert token_recall(query_tokens("the"), record) == 0
