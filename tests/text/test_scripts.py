"""Which script a text is written in."""

from __future__ import annotations

import pytest

from clew.text.analyser import SCRIPTS, known_share


@pytest.mark.parametrize(
    ("text", "scripts", "share"),
    [
        ("electric fuse", ["latin"], 1.0),
        ("Über Ångström, naïve", ["latin"], 1.0),
        ("предохранитель", ["latin"], 0.0),
        ("предохранитель", ["latin", "cyrillic"], 1.0),
        ("京都タワー", ["latin"], 0.0),
        ("京都 abc", ["latin"], 0.6),
        ("ฟิวส์", [], 1.0),
        ("1234 …!", ["latin"], 1.0),
        ("", ["latin"], 1.0),
        ("１２３ 京", ["latin"], 0.0),
    ],
)
def test_the_share_of_letters_a_model_knows(text: str, scripts: list[str], share: float) -> None:
    assert known_share(text, scripts) == pytest.approx(share)


def test_every_script_has_letters() -> None:
    letters = "aλжשعकก한か字"
    samples = dict(zip(SCRIPTS, letters, strict=True))
    for name, letter in samples.items():
        assert [s for s in SCRIPTS if known_share(letter, [s])] == [name]
