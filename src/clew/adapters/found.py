"""What the retrievers have in common: one question to an engine or a memory, answered as text with
metadata that is plain JSON."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, NamedTuple

from clew.engine import Engine
from clew.errors import InputError, nearest
from clew.memory import AsyncMemory, Memory, Recalled
from clew.types import Hit

__all__ = ["Found", "check_k", "check_options", "check_source", "find"]

OURS = ("self", "query", "k", "limit")
"""Parameters of a search that the adapter sets itself."""


class Found(NamedTuple):
    """A passage of a file, or a memory."""

    id: str
    text: str
    score: float
    metadata: dict[str, Any]


def check_source(given: Any) -> Engine | Memory:
    """What can be asked. Of an AsyncMemory it is the memory behind it: frameworks have their own
    way of not blocking the loop."""
    if isinstance(given, AsyncMemory):
        return given.memory
    if isinstance(given, (Engine, Memory)):
        return given
    raise InputError(
        f"a retriever searches an Engine or a Memory, not {given!r:.100}: use clew.open(folder) or "
        "clew.Memory(file)"
    )


def check_k(given: Any) -> int:
    if isinstance(given, bool) or not isinstance(given, int) or given < 1:
        raise InputError(f"k must be a whole number from 1 on, not {given!r:.100}")
    return given


def check_options(source: Engine | Memory, options: Mapping[str, Any]) -> dict[str, Any]:
    """Refuse a wrong name when the retriever is made, rather than in the middle of a chain."""
    asked = source.recall if isinstance(source, Memory) else source.search
    known = [name for name in inspect.signature(asked).parameters if name not in OURS]
    for name in options:
        if name not in known:
            where = f"{type(source).__name__}.{asked.__name__}"
            raise InputError(f"{where} has no option {name!r}: {nearest(str(name), known)}")
    return dict(options)


def find(source: Engine | Memory, query: str, *, k: int, options: Mapping[str, Any]) -> list[Found]:
    """The best `k`. A question of a chain was not typed as a query, so quotes and hyphens in it are
    no syntax unless the options say so."""
    if isinstance(source, Memory):
        return [_memory(one) for one in source.recall(query, k=k, **options)]
    hits = source.search(query, limit=k, **{"syntax": False, **options})
    return [_passage(hit) for hit in hits]


def _passage(hit: Hit) -> Found:
    first, last = hit.lines or (None, None)
    return Found(
        hit.id,
        hit.content,
        float(hit.score),
        {
            **hit.metadata,
            "id": hit.id,
            "score": float(hit.score),
            "title": hit.title,
            "path": hit.path,
            "start_line": first,
            "end_line": last,
            "source": hit.source,
            "confidence": hit.confidence,
            "chance": hit.chance,
            "snippet": hit.snippet,
            "signals": _signals(hit.signals),
        },
    )


def _memory(one: Recalled) -> Found:
    return Found(
        one.id,
        one.content,
        float(one.score),
        {
            **one.metadata,
            "id": one.id,
            "score": float(one.score),
            "namespace": one.namespace,
            "type": one.type,
            "tags": list(one.tags),
            "importance": one.importance,
            "created_at": one.created_at,
            "updated_at": one.updated_at,
            "source": one.search_type,
            "signals": _signals(one.signals),
        },
    )


def _signals(given: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    return {source: dict(signal) for source, signal in given.items()}
