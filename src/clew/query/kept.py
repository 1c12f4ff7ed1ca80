"""A search answered from what was kept, and what is kept of it: the step before the plan is run."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from clew.cache import SearchCache, SearchKeys
from clew.cache.keys import canonical_query, keys_in, search_keys, search_parameters
from clew.config import Config
from clew.query.context import QueryContext
from clew.query.pipeline import Clock
from clew.query.plan import Asked
from clew.types import Query, SearchResult, Vector

__all__ = ["keep", "keys_of", "look_up"]


def keys_of(
    query: Query,
    asked: Sequence[Asked],
    edition: Sequence[int],
    *,
    vector: Vector | Sequence[float] | None,
    settings: str,
    syntax: bool,
    **others: Any,
) -> SearchKeys:
    """Of everything that decides the answer: what may be seen is in the query's filter. `settings`
    is a fingerprint of them."""
    canonical = canonical_query(query.raw, syntax=syntax)
    sources = tuple((one.name, one.weight, _freshness(one)) for one in asked)
    rest = {"generation": tuple(edition), "settings": settings, "syntax": syntax, **others}
    if query.filter.metadata:  # in which 1 and True are one to a dictionary, and two to a key
        parameters = search_parameters(query, sources=sources, **rest)
        return search_keys(canonical, parameters, vector=vector)
    terms = query.terms
    same = (query.filter, terms.phrases, terms.excluded, query.mode)
    counts = (query.limit, query.depth, query.passages)
    group = (*same, *counts, sources, tuple(rest.items()), vector is None)
    if (known := _GROUPS.get(group)) is None:
        parameters = search_parameters(query, sources=sources, **rest)
        known = search_keys(canonical, parameters, vector=vector).group
        if len(_GROUPS) >= GROUPS:
            _GROUPS.clear()
        _GROUPS[group] = known
    return keys_in(known, canonical, vector=vector)


GROUPS = 256
_GROUPS: dict[tuple[Any, ...], str] = {}
"""Keys of groups made lately: most searches differ in their words only."""


def _freshness(one: Asked) -> str:
    """Of what a source reads outside the store."""
    tell = getattr(one.source, "freshness", None)
    return "" if tell is None else str(tell())


def look_up(
    cache: SearchCache, keys: SearchKeys, context: QueryContext, config: Config, clock: Clock
) -> SearchResult | None:
    """The same search's answer, or that of one that means the same; not where the caller gave a
    vector, since who gives one means that one."""
    found = cache.get(keys.exact)
    if found is None and config.semantic_cache and context.may_embed and cache.has_near(keys.group):
        vector = None
        with suppress(Exception):  # whatever the model throws: the sources meet it too and name it
            vector = context.query_vector()
        if vector is not None:
            text, least = context.query.text, config.semantic_cosine
            found = cache.nearest(keys.group, text, vector, least=least)
    clock.lap("cache")
    if found is None:
        return None
    trace = {**found.trace, "query": context.query.raw}
    return replace(found, trace={**trace, "stages_ms": clock.laps, "total_ms": clock.total})


def keep(
    cache: SearchCache, keys: SearchKeys | None, context: QueryContext, result: SearchResult
) -> None:
    """How each source did; and the answer, unless something was missing or a reranker ran out of
    time: it may go better next time."""
    sources = result.trace.get("sources", {})
    if sources:
        cache.note_sources({n: (said["ms"], said["problem"]) for n, said in sources.items()})
    reread = result.trace.get("rerank", {})
    if keys is None or result.degraded or reread.get("read", 0) < reread.get("of", 0):
        return
    cache.put(keys.exact, keys.group, context.query.text, context.vector_at_hand, result)
