"""The sources: each gives one ranked list. One file and one line here per source."""

from __future__ import annotations

from clew.protocols import Source
from clew.sources.keyword import keyword
from clew.sources.vectors import vectors

__all__ = ["QUICK", "SOURCES"]

SOURCES: dict[str, Source] = {
    "keyword": keyword,
    "vectors": vectors,
}

QUICK: tuple[Source, ...] = (keyword, vectors)
"""Answer from this machine's own indexes, in less time than a thread takes to wake: see
query/collect.py."""
