"""Phrases and exclusions of a query, held against a text."""

from __future__ import annotations

import pytest

from clew.text.analyser import fits
from clew.text.parse import parse


@pytest.mark.parametrize(
    ("query", "text", "holds"),
    [
        ("keel", "anything at all", True),
        ('"keel bolts"', "The keel bolt is tight.", True),
        ('"keel bolts"', "Bolts of the keel.", False),
        ("keel -rudder", "a keel and two rudders", False),
        ('keel -"two rudders"', "a keel and a rudder", True),
        ('"京都"', "東京都庁", True),
        ('"京"', "東京都庁", True),
        ("keel -庁", "東京都庁", False),
        ("keel -市", "東京都庁", True),
    ],
)
def test_phrases_must_be_there_and_exclusions_must_not(query: str, text: str, holds: bool) -> None:
    assert fits(parse(query).terms, text) is holds
