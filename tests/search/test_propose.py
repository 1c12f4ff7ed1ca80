"""What a chat model proposes, read with care."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clew.errors import ModelError
from clew.search.decompose import LONGEST_PROPOSAL, MOST, propose, read_list
from clew.text.parse import parse


class Says:
    """A chat model that says one thing."""

    model = "parrot"

    def __init__(self, answer: str):
        self.answer = answer
        self.asked: list[str] = []

    def complete(self, system: str, prompt: str, *, seconds: float) -> str:
        self.asked.append(prompt)
        return self.answer


def proposed(answer: str, query: str = "keel and crane tag:boats -rust") -> list[str]:
    return propose(Says(answer), query, seconds=1)


@pytest.mark.parametrize(
    "answer",
    [
        '["a", "b"]',
        '  ["a", "b"]\n',
        '```json\n["a", "b"]\n```',
        'Sure! Here they are:\n["a", "b"]\nAnything else?',
        '{"sub_queries": ["a", "b"]}',
        '{"result": {"queries": ["a", "b"]}, "count": 2}',
        '[{"query": "a"}, {"query": "b"}]',
        '<think>[maybe "x"] or ["y"]</think>["a", "b"]',
        'As [1] says: ["a", "b"]',
        '["a", 3, null, " ", "b"]',
    ],
)
def test_a_list_is_found_wherever_it_stands(answer: str) -> None:
    assert read_list(answer) == ["a", "b"]


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "I'm sorry, but I cannot help with that.",
        '["a", "b"',
        "[1, 2]",
        "{}",
        "null",
        '"a"',
        "[" * 9999,
    ],
)
def test_where_there_is_no_list_of_texts_there_is_none(answer: str) -> None:
    assert read_list(answer) is None


@given(st.text())
def test_any_answer_can_be_read(answer: str) -> None:
    found = read_list(answer)
    assert found is None or all(text.strip() for text in found)


def test_an_empty_list_says_that_the_query_asks_one_thing() -> None:
    assert proposed("[]") == ["keel and crane tag:boats -rust"]


def test_prose_is_an_error_that_quotes_its_beginning() -> None:
    with pytest.raises(ModelError, match=r"parrot answered with .*\('I cannot help with that'\)"):
        proposed("I cannot\nhelp with that")


def test_the_model_sees_words_and_its_proposals_get_the_conditions() -> None:
    llm = Says('["keel bolts", "crane hours"]')
    query = "keel and crane tag:boats -rust"
    assert propose(llm, query, seconds=1) == [
        query,
        "keel bolts tag:boats -rust",
        "crane hours tag:boats -rust",
    ]
    assert json.loads(llm.asked[0]) == {"query": "keel and crane"}


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ("keel tag:secret", "keel"),
        ("keel -crane", "keel"),
        ('"keel bolts" torque', "keel bolts torque"),
        ('"tag:secret" keel', "keel"),
        ('"-crane" keel', "keel"),
        ("keel\x1b[31m\nbolts\0", "keel [31m bolts"),
        ("keel \ud800", "keel"),
    ],
)
def test_a_proposal_is_words_and_nothing_but(answer: str, words: str) -> None:
    found = propose(Says(json.dumps([answer])), "boats crane", seconds=1)
    assert found == ["boats crane", words]


def test_proposals_are_few_short_and_different() -> None:
    many = ["Keel", "keel", "the", "crane?", "hull", "paint", "x" * 400, "word " * 100]
    assert proposed(json.dumps(many), "keel") == ["keel", "crane?", "hull", "paint"]
    _, one, two = proposed(json.dumps(many[-2:]), "keel")
    assert len(one) == LONGEST_PROPOSAL
    assert len(two) <= LONGEST_PROPOSAL and two.endswith(" word")


@given(st.lists(st.text(max_size=40), max_size=6), st.text(max_size=20))
def test_no_proposal_changes_what_may_be_found(texts: list[str], more: str) -> None:
    query = f'"x" {more.replace(chr(34), "")} tag:boats -rust'
    answer = json.dumps([*texts, 'keel tag:secret -boats "phrase"'])
    try:
        asked = parse(query)
    except ValueError:
        return
    found = propose(Says(answer), query, seconds=1)
    assert found[0] == query and 2 <= len(found) <= 1 + MOST
    for each in found[1:]:
        again = parse(each)
        assert again.filter == asked.filter and again.terms.excluded == asked.terms.excluded
        assert again.terms.phrases == ()
