"""What backends give, and what a lookup answers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, overload

from clew.types import Hit, Vector

if TYPE_CHECKING:
    from clew.cache import LookupCache
    from clew.engine import Engine

__all__ = ["ExternalLookupResult", "Found", "Partial"]


@dataclass(frozen=True, slots=True)
class Found:
    """A hit, and what its backend knows of its meaning."""

    hit: Hit
    vector: Vector | None = None
    """Of the passage that is shown, by the storage's model."""
    similarity: float | None = None
    """The storage's own: the cosine of the record's best passage."""
    file: str | None = None
    """The file of this machine that it is in, from the root."""


class Partial(NamedTuple):
    """What a backend gives that could look only in part, or has something to say."""

    found: Iterable[Found | Hit | Mapping[str, Any]]
    problem: str | None = None
    """Why something is missing."""
    notes: tuple[str, ...] = ()
    """What was left aside as it always is: too large, of no known kind."""


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
