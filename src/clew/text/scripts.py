"""Which script a text is written in, as far as it matters for what a model has learned."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache

__all__ = ["SCRIPTS", "known_share"]

SCRIPTS = {
    "latin": "A-Za-z\u00aa\u00b5\u00ba\u00c0-\u024f\u1e00-\u1eff",
    "greek": "\u0370-\u03ff\u1f00-\u1fff",
    "cyrillic": "\u0400-\u052f",
    "hebrew": "\u0590-\u05ff",
    "arabic": "\u0600-\u06ff\u0750-\u077f",
    "devanagari": "\u0900-\u097f",
    "thai": "\u0e00-\u0e7f",
    "hangul": "\u1100-\u11ff\uac00-\ud7af",
    "kana": "\u3040-\u30ff",
    "han": "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff",
}


def known_share(text: str, scripts: Sequence[str]) -> float:
    """The share of the text's letters that are of these scripts; no scripts named: all are."""
    if not scripts or (text.isascii() and "latin" in scripts):
        return 1.0
    letters = sum(character.isalpha() for character in text)
    return len(_pattern(tuple(scripts)).findall(text)) / letters if letters else 1.0


@cache
def _pattern(scripts: tuple[str, ...]) -> re.Pattern[str]:
    # `isalpha` leaves out digits and marks, so these must as well.
    return re.compile(rf"(?=[{''.join(SCRIPTS[name] for name in scripts)}])[^\W\d_]")
