"""The cache as a step of a search: an answer kept, a list lent, and what is kept of the answer."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from operator import attrgetter
from typing import Any

from clew.cache import SearchCache, SearchKeys
from clew.cache.keys import canonical_query, fingerprint, search_keys, search_parameters
from clew.cache.search_cache import LentList
from clew.config import Config
from clew.filter import Filter
from clew.protocols import Context, Store
from clew.search.context import QueryContext
from clew.search.plan import PlannedSource
from clew.sources import Configured, FunctionSource, has_own_sources
from clew.types import Answer, Candidate, Query, SearchRequest

_PRINTED: tuple[Config | None, str] = None, ""
"""The settings of the last search, and their fingerprint."""


_USUAL_FIELDS = (
    *("query", "limit", "filter", "mode", "explain", "rerank", "strict", "include_personal"),
    *("skills_only", "group_by", "max_per_file"),
)
_usual = attrgetter(*_USUAL_FIELDS)
_RARE_FIELDS = tuple(
    (number, SearchRequest._field_defaults[name])
    for number, name in enumerate(SearchRequest._fields)
    if name not in (*_USUAL_FIELDS, "cache")
)


def name_request(request: SearchRequest) -> Hashable | None:
    """What tells a request from all others that may have another key. None: it has something rare
    in it, or something that Python takes for equal to what it is not (1 and True)."""
    wanted, limit, most = request.filter, request.limit, request.max_per_file
    plain = wanted is None or (type(wanted) is Filter and not wanted.metadata)
    if not plain or type(limit) is not int or not (most is None or type(most) is int):
        return None
    if any(request[number] is not default for number, default in _RARE_FIELDS):
        return None
    told: tuple[Hashable, ...] = _usual(request)
    return told


def read_stamp(
    store: Store, config: Config, model: str, sources: Mapping[str, Configured]
) -> Hashable | None:
    """All that decides the key of a search beside its request. The state of the store comes first,
    so that no write falls between it and what is read outside. None: a source has too much to look
    at outside to be asked for this alone."""
    if not has_own_sources(sources):
        return None
    edition = store.changes.edition()
    of_sources = tuple(
        (name, one, one.source.idle(store), one.source.freshness(store))
        for name, one in sources.items()
        if one.enabled
    )
    return edition, config, model, of_sources


def make_keys(
    request: SearchRequest,
    planned: Sequence[PlannedSource],
    context: QueryContext,
    config: Config,
    **others: Any,
) -> SearchKeys | None:
    """The keys of everything that decides the answer: what may be seen is in the query's filter.
    None: a source cannot tell how fresh it is, so nothing may be kept."""
    query, store = context.query, context.store
    canonical = canonical_query(query.raw, syntax=request.syntax)
    edition = store.changes.edition()  # before what is read outside, so that no write falls between
    sources = tuple((one.name, one.weight, one.source.freshness(store)) for one in planned)
    if any(fresh is None for _, _, fresh in sources):
        return None
    parameters = search_parameters(
        query,
        generation=tuple(edition),
        sources=sources,
        settings=_print(config),
        model=context.model,
        syntax=request.syntax,
        strict=request.strict,
        explain=request.explain,
        alone=request.sources is not None and len(planned) == 1,  # then it has no floor
        **others,
    )
    return search_keys(canonical, parameters, vector=request.vector)


def _print(config: Config) -> str:
    global _PRINTED
    if _PRINTED[0] is not config:
        _PRINTED = config, fingerprint(config)
    return _PRINTED[1]


class Lending:
    """The sources' lists that a query may use of another that is much like it, by the cosine of
    their vectors. A source lends a list only where both queries are the same to it (its `reads`),
    and everything else is asked and ranked anew: so the answer is that of a search of its own."""

    def __init__(
        self,
        cache: SearchCache,
        group: str,
        planned: Sequence[PlannedSource],
        context: QueryContext,
    ):
        self._cache, self._context = cache, context
        self._places = {
            one.name: (group, one.name, read)
            for one in planned
            if (read := one.source.reads(one.query)) is not None
        }
        self._lent: dict[str, LentList] = {}
        self._made: dict[str, tuple[Candidate, ...]] = {}

    def borrow(self, least: float, *, seconds: float) -> None:
        """Look for lists of queries that are at least so near. The query's own vector is made for
        that, if there are any."""
        found = {
            n: lent for n, place in self._places.items() if (lent := self._cache.borrow(place))
        }
        vector = None
        if found:
            with suppress(Exception):  # whatever the model throws: the sources meet it and name it
                vector = self._context.query_vector(seconds=seconds)
        if vector is not None:
            near = (name for name in found if float(found[name].vector @ vector) >= least)
            self._lent = {name: found[name] for name in near}
            if self._lent:
                self._cache.note_lent()

    def wrap(self, planned: Sequence[PlannedSource]) -> list[PlannedSource]:
        """The sources with what is lent in the place of those who lend it; what the others give is
        noted."""
        return [
            one._replace(source=FunctionSource(partial(self._ask, one)))
            if one.name in self._places
            else one
            for one in planned
        ]

    def _ask(
        self, one: PlannedSource, query: Query, context: Context
    ) -> Sequence[Candidate] | Answer:
        if (lent := self._lent.get(one.name)) is not None:
            return lent.candidates
        given = one.source(query, context)
        if not isinstance(given, Answer):
            self._made[one.name] = given = tuple(given)
        return given

    def lend(self, text: str) -> None:
        """Keep for others what was made for this query."""
        if (vector := self._context.vector_at_hand) is not None:
            self._cache.lend(
                (self._places[name], LentList(text, vector, made))
                for name, made in self._made.items()
            )

    def told(self) -> Mapping[str, Any] | None:
        """Whose lists are in the answer; None: nobody's."""
        vector = self._context.vector_at_hand
        if not self._lent or vector is None:
            return None
        lent = next(iter(self._lent.values()))
        return {
            "answered": "semantic",
            "query": lent.text,
            "cosine": round(float(lent.vector @ vector), 4),
            "lent": sorted(self._lent),
        }
