"""The knowledge graph's seat: entities and communities of the built graph will answer here."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from clew.protocols import Context, Source
from clew.types import Candidate, Query

__all__ = ["graph"]


def graph(root: Path) -> Source:
    """No graph is built yet, so nothing is found, and nothing is made up."""

    def source(query: Query, context: Context) -> Sequence[Candidate]:
        return ()

    return source
