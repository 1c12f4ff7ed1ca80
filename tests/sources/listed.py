"""What one source found, for tests of sources."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import clew

Folder = Callable[..., clew.Engine]
"""Writes files (path → text), indexes them and gives the engine: the fixture `folder`."""


def by(source: str, engine: clew.Engine, query: str, **options: Any) -> dict[str, float]:
    """What one source found: path (or id), with its line where one is meant, and its score, in its
    order."""
    result = engine.search(query, sources=[source], explain=True, limit=50, **options)
    assert not result.degraded, result.degraded
    listed = result.trace["lists"][source]
    lines = [f"#L{hit['lines'][0]}" if "lines" in hit else "" for hit in listed]
    return {
        hit["id"].partition(":")[2] + line: round(hit["score"], 4)
        for hit, line in zip(listed, lines, strict=True)
    }
