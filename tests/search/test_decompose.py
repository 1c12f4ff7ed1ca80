"""Queries taken apart by rules."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clew.errors import InputError
from clew.search.decompose import LONG, MOST, decompose, has_content, parts
from clew.text.parse import LONGEST_QUERY, parse


@pytest.mark.parametrize(
    ("query", "others"),
    [
        ("epoxy cure time and hull paint", ["epoxy cure time", "hull paint"]),
        ("boat with keel bolts plus crane", ["boat", "keel bolts", "crane"]),
        ("sauna heater as well as fuse box", ["sauna heater", "fuse box"]),
        ("crane hours along with lift prices", ["crane hours", "lift prices"]),
        ("crane hours & lift prices", ["crane hours", "lift prices"]),
        ("Epoxy AND paint", ["Epoxy", "paint"]),
        ("epoxy, paint, and crane", ["epoxy", "paint", "crane"]),
        ("epoxy; paint", ["epoxy", "paint"]),
        ("what is a clew and how is it spliced", ["what is a clew", "how is it spliced"]),
        ("What is a clew? How is it spliced?", ["What is a clew", "How is it spliced"]),
        (
            "when did the crane fail, who saw it, and what was decided?",
            ["when did the crane fail", "who saw it", "what was decided"],
        ),
        ("The crane failed. Find the report", ["The crane failed", "Find the report"]),
        ("昆布の出汁、味噌汁", ["昆布の出汁", "味噌汁"]),
        ("C++ and C#", ["C++", "C#"]),
    ],
)
def test_a_query_is_split_at_conjunctions_commas_and_question_parts(
    query: str, others: list[str]
) -> None:
    assert decompose(query) == [query, *others]


@pytest.mark.parametrize(
    "query",
    [
        "epoxy vs polyester and their price",
        "epoxy vs. polyester, strength",
        "epoxy versus polyester with glass",
        "difference between epoxy and polyester",
        "what are the differences between RRF and DBSF",
        "compare epoxy and polyester",
        "Kestrel 28 compared with Kestrel 32",
        "distance between Kiel and Lübeck",
        "crane repairs between 2020 and 2024",
        "pros and cons of epoxy",
        "epoxy versus polyester for the keel of a boat that lies in the harbour all winter long",
    ],
)
def test_a_comparison_stays_whole(query: str) -> None:
    assert decompose(query) == [query]


@pytest.mark.parametrize(
    ("query", "others"),
    [
        (
            "what is the difference between epoxy and polyester and how do I store them",
            ["what is the difference between epoxy and polyester", "how do I store them"],
        ),
        (
            "compare Kestrel 28 with Kestrel 32; crane hours and prices",
            ["compare Kestrel 28 with Kestrel 32", "crane hours", "prices"],
        ),
    ],
)
def test_beside_a_comparison_there_may_be_another_question(query: str, others: list[str]) -> None:
    assert decompose(query) == [query, *others]


@pytest.mark.parametrize(
    "query",
    [
        '"search and rescue" drill',
        '"keel bolts, crane"',
        'tag:"black and white" photos',
        "“search and rescue” drill",
        "calls of merge(left, right)",
        "`a and b` in Python",
        "plug-and-play devices",
        "R&D budget",
        "a dose of 1,000 mg",
        "-polyester epoxy",
    ],
)
def test_nothing_is_cut_inside_quotes_brackets_words_and_numbers(query: str) -> None:
    assert decompose(query) == [query]


@pytest.mark.parametrize("query", ["foo,-bar", "foo,tag:x", 'foo,path:"a b"', 'foo, bar "-baz'])
def test_no_cut_makes_a_condition_of_a_word(query: str) -> None:
    assert decompose(query) == [query]


def test_conditions_stay_with_every_part() -> None:
    query = 'epoxy -polyester and hull paint tag:"case study" after:2026-01-01 -tag:draft'
    under = '-polyester tag:"case study" after:2026-01-01 -tag:draft'
    assert decompose(query) == [query, f"epoxy {under}", f"hull paint {under}"]
    assert parts(query).conditions == (
        "-polyester",
        'tag:"case study"',
        "after:2026-01-01",
        "-tag:draft",
    )


def test_without_syntax_a_hyphen_is_just_a_hyphen() -> None:
    query = "epoxy -polyester and tag:x paint"
    assert decompose(query, syntax=False) == [query, "epoxy -polyester", "tag:x paint"]


def test_a_phrase_stays_with_its_part() -> None:
    query = '"keel bolts" torque and "crane hours"'
    assert decompose(query) == [query, '"keel bolts" torque', '"crane hours"']


@pytest.mark.parametrize(
    "query", ["what to do with epoxy", "the and of", "python and R", "and", "", "  ", "?!", "keel"]
)
def test_parts_that_say_nothing_are_no_parts(query: str) -> None:
    assert decompose(query) == [query]


def test_the_same_part_twice_is_one() -> None:
    assert decompose("keel and Keel") == ["keel and Keel"]
    assert decompose("keel, crane, keel") == ["keel, crane, keel", "keel", "crane"]


def test_neighbours_go_together_when_there_are_too_many() -> None:
    query = "bolts, crane, paint, epoxy and solar"
    assert decompose(query) == [query, "bolts, crane", "paint, epoxy", "solar"]


def test_a_long_query_without_a_splitter_falls_into_halves() -> None:
    words = [f"word{i}" for i in range(LONG)]
    query = " ".join(words)
    assert decompose(query) == [query, " ".join(words[:6]), " ".join(words[6:])]
    short = " ".join(words[1:])
    assert decompose(short) == [short]


def test_halves_cut_no_phrase() -> None:
    words = [f"word{i}" for i in range(LONG)]
    words[5:7] = ['"six seven eight"', "nine", "ten"]
    halves = decompose(" ".join(words))[1:]
    assert halves == [" ".join(words[:6]), " ".join(words[6:])]
    assert '"six seven eight"' in halves[0]


def test_of_a_pasted_document_only_the_beginning_is_taken_apart() -> None:
    found = decompose("keel bolts " * 10_000 + "and crane")
    assert len(found) == 3 and all(len(piece) <= LONGEST_QUERY for piece in found[1:])


# ---------------------------------------------------------------- whatever is typed

WORDS = st.sampled_from(
    [
        *("keel", "bolts", "crane", "the", "R", "C++", "1,000", "don't", "昆布"),
        *("and", "with", "plus", "vs", "between", "compare", "how", "what"),
        *(",", ";", "?", "&", "+", ".", "、", "\n", "\0", '"', "(", ")", "-"),
        *("tag:a", "-rust", 'path:"a b"', "after:2026-01-01", '"dry dock"', "foo,-bar"),
    ]
)
QUERIES = st.one_of(
    st.text(max_size=80),
    st.lists(WORDS, max_size=25).map(" ".join),
    st.lists(WORDS, max_size=25).map("".join),
)


def content(text: str) -> set[str]:
    """Its words that say something, without those that join others."""
    joining = {"plus", "also", "well", "along", "together", "addition"}
    return {w.lower() for w in re.findall(r"\w+", text) if has_content(w)} - joining


@given(QUERIES, st.booleans())
def test_the_query_comes_first_and_few_follow(query: str, syntax: bool) -> None:
    found = decompose(query, syntax=syntax)
    assert found[0] == query
    assert len(found) <= 1 + MOST and len(found) != 2
    assert len(set(found)) == len(found)
    assert all(has_content(piece) for piece in found[1:])
    assert decompose(query, syntax=syntax) == found


@given(QUERIES)
def test_no_word_is_lost_and_none_is_made_up(query: str) -> None:
    found = decompose(query)
    assert content(" ".join(found[1:] or found)) == content(query)


@given(QUERIES)
def test_every_part_is_under_the_same_conditions(query: str) -> None:
    try:
        asked = parse(query)
    except InputError:  # after: without a date
        return
    for piece in decompose(query):
        again = parse(piece)
        assert again.filter == asked.filter
        assert again.terms.excluded == asked.terms.excluded
        assert set(again.terms.phrases) <= set(asked.terms.phrases)
