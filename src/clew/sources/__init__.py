"""The sources: each gives one ranked list. One file and one line here per source."""

from __future__ import annotations

from clew.protocols import Source
from clew.sources.keyword import keyword
from clew.sources.vectors import vectors

__all__ = ["SOURCES"]

SOURCES: dict[str, Source] = {
    "keyword": keyword,
    "vectors": vectors,
}
