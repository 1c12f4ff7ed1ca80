"""Answers whose every word follows from their key, so that a wrong one is seen at once."""

from __future__ import annotations

from dataclasses import replace

from clew.cache import SearchCache
from clew.types import Hit, SearchResult


def result(name: str, *, hits: int = 3, words: int = 20) -> SearchResult:
    found = tuple(
        Hit(
            id=f"{name}-{i}",
            content=f"{name} {i} " * words,
            score=1 / (i + 1),
            source="keyword",
            rrf_score=0.5 / (i + 1),
            title=f"Title of {name}",
            path=f"notes/{name}.md",
            lines=(i + 1, i + 4),
            confidence="HIGH",
            metadata={"tags": [name, "x"], "updated_at": 1.5, "nested": {"a": [1, None]}},
            signals={"keyword": {"rank": i + 1, "score": 0.25, "contrib": 0.125}},
            snippet=name,
            highlights=((0, len(name)),),
        )
        for i in range(hits)
    )
    return SearchResult(found, suppressed=2, trace={"query": name, "stages_ms": {"parse": 0.1}})


def key(name: str, generation: int = 1) -> str:
    return f"{generation}.{name}"


def keep(cache: SearchCache, name: str, *, generation: int = 1) -> None:
    cache.put(key(name, generation), result(name))


def same(found: SearchResult | None, expected: SearchResult) -> bool:
    """Apart from what a cache adds."""
    if found is None:
        return False
    trace = {name: value for name, value in found.trace.items() if name != "cache"}
    return repr(replace(found, cache=None, trace=trace)) == repr(expected)
