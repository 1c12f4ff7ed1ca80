"""The part of a passage that shows why it was found."""

from __future__ import annotations

from typing import NamedTuple

from clew.text import tokenise
from clew.types import Terms

__all__ = ["Snippet", "matcher", "snippet"]

ELLIPSIS = "…"


class Snippet(NamedTuple):
    text: str
    highlights: tuple[tuple[int, int], ...]
    """Character ranges of `text` that match."""
    line: int
    """How many lines below the start of the passage it begins."""


def matcher(terms: Terms) -> tokenise.Matcher:
    """Finds every word that counts as a match of the query."""
    groups = (*terms.words, *terms.phrases)
    return tokenise.Matcher(frozenset(token for group in groups for token in group))


def snippet(text: str, find: tokenise.Matcher, *, width: int = 240) -> Snippet:
    """About `width` characters around the densest spot of matches, cut at word borders."""
    matches = find(text)
    start, end = _window(text, matches, width)
    before = text[:start]
    line = before.count("\n")
    head = ELLIPSIS if before.strip() else ""
    tail = ELLIPSIS if text[end:].strip() else ""
    shift = len(head) - start
    marks: list[tuple[int, int]] = []
    for a, b, _ in matches:
        if a < start or b > end:
            continue
        if marks and a + shift <= marks[-1][1]:  # overlapping pairs of an unspaced script
            marks[-1] = (marks[-1][0], b + shift)
        else:
            marks.append((a + shift, b + shift))
    return Snippet(head + text[start:end] + tail, tuple(marks), line)


def _window(text: str, matches: list[tuple[int, int, str]], width: int) -> tuple[int, int]:
    """Where distinct matches lie closest, a little before them; the beginning when none do."""
    best, best_at = (0, 0), 0
    last = 0
    inside: dict[str, int] = {}
    for i, (start, _, token) in enumerate(matches):
        inside[token] = inside.get(token, 0) + 1
        while start - matches[last][0] > width * 3 // 4:
            gone = matches[last][2]
            inside[gone] -= 1
            if not inside[gone]:
                del inside[gone]
            last += 1
        worth = (len(inside), i - last + 1)
        if worth > best:
            best, best_at = worth, matches[last][0]
    start = max(0, best_at - width // 4) if matches else 0
    if start:
        start = next((i + 1 for i in range(start, best_at) if text[i].isspace()), start)
    else:
        start = len(text) - len(text.lstrip())
    end = min(len(text), start + width)
    if end < len(text):
        half = start + width // 2
        end = next((i for i in range(end, half, -1) if text[i].isspace()), end)
    return start, end
