"""ExternalLookupResult: what a lookup answers, also as it is kept in a cache."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, overload

from clew.types import Hit, SearchResult

if TYPE_CHECKING:
    from clew.cache import LookupCache
    from clew.engine import Engine


@dataclass(frozen=True, slots=True)
class ExternalLookupResult(Sequence[Hit]):
    """The answer of a lookup, with what it was made from. A sequence of the ranked hits."""

    query: str
    """Canonical: what was looked up."""
    raw_query: str
    """What the caller gave."""
    results: tuple[Hit, ...]
    by_backend: Mapping[str, tuple[Hit, ...]]
    """What each backend that was asked has found, best first."""
    cache: LookupCache | None = field(default=None, repr=False)
    """The cache that lookups share."""
    storage: Engine | None = field(default=None, repr=False)
    """The engine whose store was searched."""
    degraded: tuple[str, ...] = ()
    """Backends that failed or were late, and why. Empty: all answered."""
    trace: Mapping[str, Any] = field(default_factory=dict)

    @overload
    def __getitem__(self, index: int) -> Hit: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Hit, ...]: ...
    def __getitem__(self, index: int | slice) -> Hit | tuple[Hit, ...]:
        return self.results[index]

    def __len__(self) -> int:
        return len(self.results)

    def __iter__(self) -> Iterator[Hit]:
        return iter(self.results)

    def to_dict(self) -> dict[str, Any]:
        """As plain data, ready for JSON: without the handles."""
        return {
            "query": self.query,
            "raw_query": self.raw_query,
            "results": [hit.to_dict() for hit in self.results],
            "by_backend": {
                name: [hit.to_dict() for hit in hits] for name, hits in self.by_backend.items()
            },
            "degraded": list(self.degraded),
            "trace": dict(self.trace),
        }


def pack_hits(
    results: Sequence[Hit], by_backend: Mapping[str, Sequence[Hit]], trace: Mapping[str, Any]
) -> SearchResult:
    """As one result for a cache, each hit once."""
    hits = {hit.id: hit for some in (results, *by_backend.values()) for hit in some}
    places = {name: place for place, name in enumerate(hits)}
    kept = {
        "results": [places[hit.id] for hit in results],
        "by_backend": {name: [places[h.id] for h in some] for name, some in by_backend.items()},
    }
    return SearchResult(tuple(hits.values()), trace={**trace, "kept": kept})


def unpack_hits(
    kept: SearchResult, canonical: str, max_results: int
) -> tuple[tuple[Hit, ...], dict[str, tuple[Hit, ...]], dict[str, Any]]:
    """The results, those of each backend, and the trace. An old snapshot has the hits alone."""
    trace = dict(kept.trace)
    places = trace.pop("kept", None)
    if places is not None:
        lists = places["by_backend"].items()
        return (
            tuple(kept.hits[i] for i in places["results"]),
            {name: tuple(kept.hits[i] for i in some) for name, some in lists},
            trace,
        )
    results = kept.hits[:max_results]
    by_backend: dict[str, tuple[Hit, ...]] = {}
    for hit in results:
        by_backend[hit.source] = (*by_backend.get(hit.source, ()), hit)
    trace |= {"canonical_query": canonical, "raw_canonical_query": canonical}
    return results, by_backend, trace
