"""What is said of a group by its own records."""

from __future__ import annotations

import pytest

import clew
from clew.text.snippet import strip_front_matter
from clew.tree.labels import Group, extract_texts


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("---\naliases: [x]\nauthor: me\n---\nBatteries.", "Batteries."),
        ("+++\nauthor = 1\n+++\nBatteries.", "Batteries."),
        ("---\nauthor: me\n...\nBatteries.", "Batteries."),
        ("---\n---\nBatteries.", "Batteries."),
        ("Batteries.\n---\nauthor: me\n---\n", "Batteries.\n---\nauthor: me\n---\n"),
        ("---\nnever closed", "---\nnever closed"),
        ("---\nauthor: me\n---\n", "---\nauthor: me\n---\n"),
    ],
)
def test_front_matter_is_not_part_of_what_is_told(content: str, expected: str) -> None:
    assert strip_front_matter(content) == expected


def test_a_label_has_neither_keys_nor_the_commonest_words() -> None:
    front = "---\naliases: [a]\nauthor: me\n---\n"
    notes = [
        clew.Record(id=f"n{n}", title="Akku", content=f"{front}Bei der Zelle und dem Akku lädt {n}")
        for n in range(3)
    ]
    said = extract_texts({0: Group(notes)})[0]
    assert set(said.label.split()) == {"akku", "zelle", "lädt"}


def test_a_label_and_a_summary_have_no_marks_of_restructuredtext() -> None:
    """Of records without a title, or in files that are called .txt."""
    text = "====\nKeel\n====\n\n.. _keel:\n.. versionadded:: 1.2\n\n"
    text += "See :setting:`BOLTS` and :setting:`Lead`_.\n"
    notes = [clew.Record(id=f"n{n}", content=text) for n in range(3)]
    said = extract_texts({1: Group(notes), 2: told("sail mast")})[1]
    assert set(said.label.split()) == {"keel", "bolts", "lead"}
    assert said.summary == "Keel See `BOLTS` and `Lead`_."


def told(*texts: str) -> Group:
    return Group([clew.Record(id=text, title=text.split()[0], content=text) for text in texts])


def test_a_label_names_what_the_groups_beside_it_lack() -> None:
    """Every one of them is about boats: that tells none of them from the others."""
    said = extract_texts(
        {
            1: told("boat keel bolt", "boat keel torque", "boat keel lead"),
            2: told("boat sail canvas", "boat sail batten", "boat sail jib"),
            3: told("boat engine diesel", "boat engine filter", "boat engine oil"),
        }
    )
    labels = {key: text.label.split() for key, text in said.items()}
    assert [words[0] for words in labels.values()] == ["keel", "sail", "engine"]
    assert not any("boat" in words for words in labels.values())


def test_what_is_only_counted_weighs_and_is_never_told() -> None:
    """A record beside the examples may be one that a reader must not see."""
    hidden = [clew.Record(id=f"h{n}", content="secret keel") for n in range(5)]
    group = Group(told("keel mast", "keel hull").examples, hidden)
    said = extract_texts({1: group, 2: told("sail mast", "sail hull")})
    assert said[1].label.split()[0] == "keel" and "secret" not in " ".join(said[1])


def test_forms_of_one_word_stand_in_a_label_once() -> None:
    said = extract_texts(
        {1: told("pod pods podding node", "pods pod podding node"), 2: told("oil")}
    )
    assert len({word[:3] for word in said[1].label.split()}) == len(said[1].label.split())


@pytest.mark.parametrize("texts", [("",), ("the and of",), ("12 34",), ("\ud800 \x07",), ()])
def test_records_without_a_word_have_a_label_nevertheless(texts: tuple[str, ...]) -> None:
    group = Group([clew.Record(id=f"r{n}", content=text or " ") for n, text in enumerate(texts)])
    assert extract_texts({1: group, 2: told("keel bolt")})[1].label
