"""Names in running text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clew.graph.communities import split_sentences
from clew.graph.extract import expansions, extract, key, names, symbols
from clew.types import Chunk, Record


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Pod Disruption Budgets", "PodDisruptionBudget"),
        ("pod-disruption-budget", "pod_disruption_budget"),
        ("Keel bolts, Kestrel 28", "keel-bolts-kestrel-28"),
        ("Łukasz Brandt", "lukasz-brandt"),
        ("Zoë’s", "zoe"),
        ("APIs", "API"),
        ("Policies", "policy"),
        ("味噌汁", "味噌汁"),
    ],
)
def test_spellings_of_one_name_have_one_key(one: str, other: str) -> None:
    assert key(one) == key(other) != ""


@pytest.mark.parametrize(
    ("one", "other"), [("class", "clas"), ("Kestrel 28", "Kestrel 32"), ("status", "statu")]
)
def test_different_names_keep_different_keys(one: str, other: str) -> None:
    assert key(one) != key(other)


def found(text: str) -> set[tuple[str, str]]:
    return {(named.text, named.kind) for named in names(text)}


def test_capitalised_phrases_acronyms_code_and_titles_are_names() -> None:
    text = (
        "We met Ada Lovelace at the Bank of England about the PDB, ran `kube-proxy` with "
        "getUserName and read “The Old Man and the Sea”."
    )
    assert found(text) >= {
        ("Ada Lovelace", "name"),
        ("Bank of England", "name"),
        ("PDB", "acronym"),
        ("kube-proxy", "code"),
        ("getUserName", "symbol"),
        ("The Old Man and the Sea", "title"),
    }


def test_a_word_that_only_begins_a_sentence_is_no_name() -> None:
    assert found("Tighten the nuts. Never leave two loose. When it rains, wait.") == set()


def test_a_filling_word_behind_a_name_is_no_part_of_it() -> None:
    text = "We read OBJECTIVE To define how Brandt Here works, and Ada Lovelace The first."
    assert {name for name, _ in found(text)} == {"OBJECTIVE", "Brandt Here", "Ada Lovelace"}


def test_a_possessive_that_begins_a_sentence_is_no_surer_than_the_name() -> None:
    assert found("It rains. Yesterday's wind was worse.") == set()


def test_a_name_that_begins_a_sentence_counts_where_the_text_has_it_elsewhere() -> None:
    text = "Greta set it down. We thank Greta."
    assert sum(named.text == "Greta" for named in names(text)) == 2


def test_what_stands_in_fenced_code_and_links_is_not_prose() -> None:
    text = "See it.\n\n```\nSome Other Thing\n```\n\n[here](Some/Path.md) <Tag Name='X Y'>"
    assert not {text for text, _ in found(text)} & {"Some Other Thing", "Some", "Tag Name"}


def test_signs_between_colons_are_no_names_and_what_they_mark_is() -> None:
    text = "It works :white_check_mark: with :py:class:`~django.core.FileField` and time_out: 5."
    assert [n.text for n in names(text)] == ["django.core.FileField", "time_out"]


def test_scripts_without_capitals_give_what_they_quote() -> None:
    assert ("港のエスプレッソ", "title") in found("配合は「港のエスプレッソ」を見る。")


@pytest.mark.parametrize(
    ("text", "pair"),
    [
        ("a Pod Disruption Budget (PDB) limits", ("PDB", "Pod Disruption Budget")),
        ("the HPA (horizontal pod autoscaler) adds", ("HPA", "horizontal pod autoscaler")),
        ("the Ministry of Defence (MD) said", ("MD", "Ministry of Defence")),
    ],
)
def test_an_acronym_is_found_with_what_it_stands_for(text: str, pair: tuple[str, str]) -> None:
    assert list(expansions(text)) == [pair]


def test_brackets_whose_letters_do_not_fit_expand_nothing() -> None:
    assert list(expansions("a very long walk (PDB) and then (NASA)")) == []


def test_symbols_are_names_of_several_words() -> None:
    code = "def read_depth(self, raw): return RawDepth(raw).value"
    assert {named.text for named in symbols(code)} == {"read_depth", "RawDepth"}


@given(st.text())
def test_any_text_can_be_read(text: str) -> None:
    for named in (*names(text), *symbols(text)):
        assert named.text.strip() and 0 <= named.at < len(text)
    assert all(short and long for short, long in expansions(text))


@given(st.text())
def test_a_key_does_not_depend_on_case_or_white_space(text: str) -> None:
    assert key(" ".join(key(text).split())) == key(key(text))
    assert key(f"  {text}\n") == key(text)


def test_a_definition_is_known_by_its_name() -> None:
    code = (
        '"""Reads the depth of the hull, metre by metre, from the sensor."""\n\ndef read_depth():\n'
    )
    record = Record(id="a", content=code, title="depth.py", path="depth.py", type="code")
    chunks = [
        Chunk(0, 40, heading="class RawDepth › async def read_depth"),
        Chunk(40, len(code), heading="def main"),
    ]
    found = extract(record, chunks)
    assert {"raw depth", "read depth", "main"} <= set(found.mentions)
    assert ("", "defines", "read depth") in found.relations
    assert list(split_sentences(record)) == [
        "Reads the depth of the hull, metre by metre, from the sensor."
    ]
