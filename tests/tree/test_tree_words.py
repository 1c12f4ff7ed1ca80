"""What is said of a group by its own records."""

from __future__ import annotations

import pytest

import clew
from clew.tree.labels import count_words, extract_text, strip_front_matter


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
    said = extract_text(notes, count_words(notes), len(notes))
    assert set(said.label.split()) == {"akku", "zelle", "lädt"}
