"""What a chat model has said, read with care: JSON that stands among other words."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

__all__ = ["values_in", "without_thoughts"]

LONGEST = 40_000
"""Characters of an answer that are looked at."""
MOST_TRIES = 50
"""Brackets of an answer that may be the beginning of a value."""
_THOUGHT = re.compile(r"<think>.*?</think>", re.DOTALL | re.IGNORECASE)
_OPENING = re.compile(r"[\[{]")


def without_thoughts(answer: str) -> str:
    """What is meant for the reader."""
    return _THOUGHT.sub("", answer[:LONGEST])


def values_in(answer: str) -> Iterator[Any]:
    """The JSON lists and objects that stand in an answer (bare, fenced, among other words), the
    outermost first."""
    text, at = without_thoughts(answer), 0
    for _ in range(MOST_TRIES):
        if (match := _OPENING.search(text, at)) is None:
            return
        try:
            value, at = json.JSONDecoder().raw_decode(text, match.start())
        except (ValueError, RecursionError):
            at = match.end()
        else:
            yield value
