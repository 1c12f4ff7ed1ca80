"""Words by BM25, over texts that are at hand: Robertson and Zaragoza, 2009.

A store ranks what it holds by an index of its own. What several backends found has no such index
in common, so it is scored here, all of it alike.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from clew.errors import InputError
from clew.text import tokenise

__all__ = ["bm25"]

K1, B = 1.2, 0.75


def bm25(
    query: str, texts: Sequence[str], *, rarities: Sequence[float] | None = None
) -> list[float]:
    """How much each text has of the query's words; 0: none of them.

    How rare a word is, is counted in the texts themselves. Those were found for having the words,
    which makes the rarest look common: who knows better gives `rarities`, one for each of
    `tokenise.words(query)`.
    """
    groups = list(dict.fromkeys(tokenise.words(query)))
    if rarities is not None and len(rarities) != len(groups):
        raise InputError(f"{len(rarities)} rarities for {len(groups)} words: give one for each")
    counts = [Counter(tokenise.tokens(text)) for text in texts]
    lengths = [counted.total() for counted in counts]
    mean = sum(lengths) / len(lengths) if lengths else 0.0
    often = [[_often(group, counted) for group in groups] for counted in counts]
    if rarities is None:
        rarities = [
            _rarity(len(texts), sum(row[i] > 0 for row in often)) for i in range(len(groups))
        ]
    return [
        math.fsum(
            rarity * times * (K1 + 1) / (times + K1 * (1 - B + B * length / mean))
            for rarity, times in zip(rarities, row, strict=True)
            if times
        )
        for row, length in zip(often, lengths, strict=True)
    ]


def _often(group: tuple[str, ...], counted: Counter[str]) -> int:
    """A compound counts as its whole, or as often as the rarest of its parts."""
    whole, *parts = group
    return counted[whole] or (min(counted[part] for part in parts) if parts else 0)


def _rarity(texts: int, holders: int) -> float:
    return math.log(1 + (texts - holders + 0.5) / (holders + 0.5))
