"""What a lookup does when it has found too little: more candidates, or other words. Both opt-in."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from clew.lookup.gather import Pooled
from clew.lookup.rank import words_of
from clew.search.decompose import decompose
from clew.text import analyser

__all__ = ["Coverage", "coverage", "rewrites", "steps_of_k"]

LEAST_K = 5
AT_MOST = 2
"""Rewritten queries that are asked."""


class Coverage(NamedTuple):
    """Which words of the query some text that was found has."""

    found: tuple[str, ...]
    missing: tuple[str, ...]

    @property
    def gap(self) -> float:
        """The share of the words that nothing has."""
        total = len(self.found) + len(self.missing)
        return len(self.missing) / total if total else 0.0


def coverage(query: str, pool: Iterable[Pooled]) -> Coverage:
    groups = {
        analyser.words(word)[0]: word for word in analyser.spelt(query) if analyser.words(word)
    }
    wanted = {group: groups[group] for group in analyser.words(query) if group in groups}
    held: set[str] = set()
    for each in pool:
        held.update(analyser.tokens(words_of(each.found.hit)))
    has = {group: group[0] in held or held.issuperset(group[1:] or group) for group in wanted}
    return Coverage(
        tuple(word for group, word in wanted.items() if has[group]),
        tuple(word for group, word in wanted.items() if not has[group]),
    )


def steps_of_k(max_results: int, depth: int) -> list[int]:
    """How many candidates to ask for, doubling until as many as may be."""
    steps = [max(LEAST_K, max_results)]
    while steps[-1] < depth:
        steps.append(min(2 * steps[-1], depth))
    return steps


def rewrites(query: str, seen: Coverage) -> list[str]:
    """The query in other words: without those that nothing has, without those that say nothing,
    and in its parts. None that is the query itself."""
    proposals: list[Sequence[str]] = []
    if seen.missing:
        proposals.append(seen.found)
    proposals.append([*seen.found, *seen.missing])
    made = [" ".join(words) for words in proposals if words]
    made += decompose(query, syntax=False)[1:]
    folded = {" ".join(query.split()).lower()}
    return [text for text in dict.fromkeys(made) if text not in folded and analyser.words(text)][
        :AT_MOST
    ]
