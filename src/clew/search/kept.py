"""A search answered from what was kept, and what is kept of it: the step before the plan is run."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from clew.cache import SearchCache, SearchKeys
from clew.cache.keys import canonical_query, keys_in, search_keys, search_parameters
from clew.cache.search_cache import LentList
from clew.protocols import Context, Store
from clew.search.context import QueryContext
from clew.search.pipeline import Clock
from clew.search.plan import Asked
from clew.sources import FunctionSource
from clew.types import Answer, Candidate, Query, SearchResult, Vector

__all__ = ["Lending", "keep", "keys_of", "look_up"]


def keys_of(
    query: Query,
    asked: Sequence[Asked],
    store: Store,
    *,
    vector: Vector | Sequence[float] | None,
    settings: str,
    syntax: bool,
    **others: Any,
) -> SearchKeys | None:
    """Of everything that decides the answer: what may be seen is in the query's filter. `settings`
    is a fingerprint of them. None: a source cannot tell how fresh it is, so nothing may be kept."""
    canonical = canonical_query(query.raw, syntax=syntax)
    edition = store.changes.edition()  # before what is read outside, so that no write falls between
    sources = tuple((one.name, one.weight, one.source.freshness(store)) for one in asked)
    if any(fresh is None for _, _, fresh in sources):
        return None
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


def look_up(cache: SearchCache, keys: SearchKeys, clock: Clock, raw: str) -> SearchResult | None:
    """The same search's answer."""
    found = cache.get(keys.exact)
    clock.lap("cache")
    if found is None:
        return None
    trace = {**found.trace, "query": raw, "stages_ms": clock.laps, "total_ms": clock.total}
    return replace(found, trace=trace)


def keep(cache: SearchCache, keys: SearchKeys | None, result: SearchResult) -> None:
    """How each source did; and the answer, unless something was missing or a reranker ran out of
    time: it may go better next time."""
    sources = result.trace.get("sources", {})
    if sources:
        cache.note_sources({n: (said["ms"], said["problem"]) for n, said in sources.items()})
    reread = result.trace.get("rerank", {})
    if keys is None or result.degraded or reread.get("read", 0) < reread.get("of", 0):
        return
    cache.put(keys.exact, replace(result, cache=None))


class Lending:
    """The sources' lists that a query may use of another that is much like it, by the cosine of
    their vectors. A source lends a list only where both queries are the same to it (its `reads`),
    and everything else is asked and ranked anew: so the answer is that of a search of its own."""

    def __init__(
        self, cache: SearchCache, group: str, asked: Sequence[Asked], context: QueryContext
    ):
        self._cache, self._group, self._context = cache, group, context
        self._read = {
            one.name: place for one in asked if (place := one.source.reads(one.query)) is not None
        }
        self._lent: dict[str, LentList] = {}
        self._made: dict[str, tuple[Candidate, ...]] = {}

    def borrow(self, least: float, *, seconds: float) -> None:
        """Look for lists of queries that are at least so near. The query's own vector is made for
        that, if there are any."""
        places = {name: (self._group, name, read) for name, read in self._read.items()}
        found = {name: lent for name in places if (lent := self._cache.borrow(places[name]))}
        vector = None
        if found:
            with suppress(Exception):  # whatever the model throws: the sources meet it and name it
                vector = self._context.query_vector(seconds=seconds)
        if vector is not None:
            near = (name for name in found if float(found[name].vector @ vector) >= least)
            self._lent = {name: found[name] for name in near}
            if self._lent:
                self._cache.note_lent()

    def sources(self, asked: Sequence[Asked]) -> list[Asked]:
        """With what is lent in the place of those who lend it; what the others give is noted."""
        return [
            replace(one, source=FunctionSource(partial(self._ask, one)))
            if one.name in self._read
            else one
            for one in asked
        ]

    def _ask(self, one: Asked, query: Query, context: Context) -> Sequence[Candidate] | Answer:
        if (lent := self._lent.get(one.name)) is not None:
            return lent.candidates
        given = one.source(query, context)
        if not isinstance(given, Answer):
            self._made[one.name] = given = tuple(given)
        return given

    def told(self, result: SearchResult) -> SearchResult:
        """The answer with whose lists are in it; what was made for it is kept for others."""
        vector = self._context.vector_at_hand
        if vector is not None and not result.degraded:
            text = self._context.query.text
            self._cache.lend(
                ((self._group, name, self._read[name]), LentList(text, vector, made))
                for name, made in self._made.items()
            )
        if not self._lent or vector is None:
            return result
        lent = next(iter(self._lent.values()))
        about = {
            "answered": "semantic",
            "query": lent.text,
            "cosine": round(float(lent.vector @ vector), 4),
            "lent": sorted(self._lent),
        }
        return replace(result, cache="semantic", trace={**result.trace, "cache": about})
