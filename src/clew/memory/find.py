"""Memories on their way out of the store."""

from __future__ import annotations

import logging
from typing import Any

from clew.engine import Engine
from clew.errors import InputError, ModelError
from clew.filter import Filter
from clew.memory.results import Recalled, Recollection
from clew.types import SearchResult, Vector

__all__ = ["check_query", "embedded_query", "recalled", "search"]

log = logging.getLogger("clew")
CURE = "run `clew index` or call `embed()`", "call `reembed()` (`clew reembed --db FILE`)"
"""What an engine advises where vectors are missing, and what helps a memory."""


def check_query(query: Any) -> None:
    if not isinstance(query, str):
        raise InputError(f"a query is text, not {type(query).__name__}")
    if not query.strip():
        raise InputError("the query is empty: say what to look for, or ask for the latest")


def embedded_query(engine: Engine, query: str) -> tuple[Vector | None, str | None]:
    """The query's vector, or why there is none; neither where nothing could be near to it."""
    if not engine.store.prepare(engine.model):
        return None, None
    try:
        return engine.embed_query(query, seconds=engine.config.seconds), None
    except ModelError as error:
        log.warning("recall by words only: %s", error)
        return None, f"vectors: {error}"


def search(engine: Engine, query: str, scope: Filter, k: int, **options: Any) -> SearchResult:
    """A search of words as they are: what an agent asks is no query syntax."""
    return engine.search(
        query,
        filter=scope,
        limit=k,
        syntax=False,
        cache=False,
        snippets=False,
        include_personal=True,
        group_by="record",
        **options,
    )


def recalled(
    engine: Engine,
    result: SearchResult,
    scope: Filter,
    search_type: str,
    *,
    leg: str = "",
    problem: str | None = None,
) -> Recollection:
    """The memories of these hits, whole. With `leg`, the score is that of this one list; a
    `problem` with the query's vector is the first of what degraded the answer."""
    problems = (*((problem,) if problem else ()), *result.degraded)
    lives = engine.store.lives([hit.id for hit in result])
    return Recollection(
        (
            Recalled.of(
                hit.record,
                lives.get(hit.id),
                score=hit.signals[leg]["score"] if leg else hit.score,
                search_type=search_type,
                signals=hit.signals,
            )
            for hit in result
            # a query without words lists what the filter allows, and has found nothing; another
            # thread may have changed a memory since it was ranked
            if hit.signals and hit.record is not None and scope.allows(hit.record)
        ),
        search_type=search_type,
        suppressed=result.suppressed,
        degraded=tuple(each.replace(*CURE) for each in problems),
        trace=result.trace,
    )
