"""Memories as a block of text for a prompt, within a budget of tokens."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable

from clew.memory.results import Recalled

__all__ = ["estimated_tokens", "packed"]


def estimated_tokens(text: str) -> int:
    """About what any model's tokeniser makes of it, on the high side: four letters of the Latin
    script are a token, and so is each character of most others."""
    plain = sum(character < "\u0250" for character in text)
    return -(-plain // 4) + len(text) - plain


def packed(
    found: Iterable[Recalled], *, budget: int, count: Callable[[str], int] = estimated_tokens
) -> str:
    """One line each, best first. One that does not fit is left out whole, and the next is tried:
    half a memory can say the opposite."""
    lines: list[str] = []
    left = budget
    for memory in found:
        day = dt.datetime.fromtimestamp(memory.created_at, dt.UTC).date().isoformat()
        line = f"- [{day}] {' '.join(memory.content.split())}"
        cost = count(line + "\n")
        if cost <= left:
            lines.append(line)
            left -= cost
    return "\n".join(lines)
