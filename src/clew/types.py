"""The values that travel through Clew. All of them are frozen and slotted: steps make new ones."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Literal, overload

from clew.errors import InputError, nearest

__all__ = [
    "Candidate",
    "Chunk",
    "Document",
    "Entry",
    "FileState",
    "Filter",
    "Hit",
    "Mode",
    "Passage",
    "Query",
    "Record",
    "SearchResult",
    "Terms",
    "Vector",
    "Vectors",
    "timestamp",
]

if TYPE_CHECKING:  # numpy costs most of what importing clew may take, and types need none of it
    import numpy as np
    import numpy.typing as npt

    Vector = npt.NDArray[np.float32]
    """One embedding, shape (dim,), length 1."""
    Vectors = npt.NDArray[np.float32]
    """Several embeddings, shape (n, dim)."""
else:
    Vector = Vectors = Any

Mode = Literal["hybrid", "keyword", "vector"]
Moment = float | int | str | dt.date | dt.datetime


# ---------------------------------------------------------------- index time


@dataclass(frozen=True, slots=True)
class Record:
    """One thing that can be found: a file, a memory, a row. `id` is stable across re-indexing."""

    id: str
    content: str
    title: str = ""
    path: str | None = None
    collection: str = "default"
    type: str = "text"
    domain: str = ""
    tags: tuple[str, ...] = ()
    links: tuple[str, ...] = ()
    importance: float = 0.5
    created_at: float | None = None
    """Seconds since the epoch. None: the time of the first write."""
    updated_at: float | None = None
    """When the content was last changed (a file's mtime). None: the time of the write."""
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Chunk:
    """A passage of a record: `content[start:end]`, with its place in the source file."""

    start: int
    end: int
    lines: tuple[int, int] = (1, 1)
    heading: str = ""
    """The trail of headings (or enclosing definitions) above it: "Setup › Linux"."""


@dataclass(frozen=True, slots=True)
class Document:
    """What a reader makes of one file, before it is cut into chunks."""

    text: str
    kind: str
    """The record's type: markdown, text, rst, html, code, table, document."""
    title: str = ""
    tags: tuple[str, ...] = ()
    links: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    body: int = 0
    """Where the text to be searched begins (past the front matter)."""
    headings: tuple[tuple[int, int, str], ...] = ()
    """(offset in text, level from 1, words) in reading order; for code: definitions."""
    line_numbers: tuple[int, ...] | None = None
    """For text extracted from another format: the source line (or page) of each of its lines."""
    warnings: tuple[str, ...] = ()
    """What the reader had to work around; shown in the index report."""


@dataclass(frozen=True, slots=True)
class FileState:
    """What tells whether a file has changed since it was indexed."""

    size: int
    mtime_ns: int
    digest: str
    indexed_ns: int


@dataclass(frozen=True, slots=True)
class Entry:
    """One record as it goes into a store, with its chunks and, where known, their vectors."""

    record: Record
    chunks: tuple[Chunk, ...]
    vectors: Vectors | None = None
    """One row per chunk, of the model `Store.put` is told; None: to be embedded later."""
    file: FileState | None = None
    root: str | None = None


# ---------------------------------------------------------------- query time


def timestamp(value: Moment, *, name: str = "time") -> float:
    """Seconds since the epoch from a number, an ISO date or a datetime (naive: local time)."""
    if isinstance(value, bool):
        raise InputError(f"{name} must be a date or a number of seconds, not {value!r}")
    given = value
    try:
        if isinstance(value, (int, float)):
            seconds = float(value)
            if not math.isfinite(seconds):
                raise ValueError
            return seconds
        if isinstance(value, str):
            value = dt.datetime.fromisoformat(value.strip())
        if isinstance(value, dt.datetime):
            return value.timestamp()
        if isinstance(value, dt.date):
            return dt.datetime(value.year, value.month, value.day).timestamp()
    except (ValueError, OverflowError, OSError):
        raise InputError(
            f"{name} {given!r} is not a date: write it as 2026-03-14 or 2026-03-14T09:30"
        ) from None
    raise InputError(f"{name} must be a date or a number of seconds, not {type(value).__name__}")


_RANGE_OPERATORS = frozenset({"gt", "gte", "lt", "lte"})
Scalar = str | int | float | bool | None


@dataclass(frozen=True, slots=True, init=False)
class Filter:
    """Which records may be found. Every field narrows; fields left out, or empty, do not.

    >>> Filter(collection="notes", tags=["risk", "trading"], after="2026-01-01")
    >>> Filter(path="projects/**/*.md", metadata={"status": "open", "effort": {"lte": 3}})
    """

    collection: tuple[str, ...] = ()
    type: tuple[str, ...] = ()
    domain: tuple[str, ...] = ()
    not_domain: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    """Any of these."""
    tags_all: tuple[str, ...] = ()
    """All of these."""
    not_tags: tuple[str, ...] = ()
    """None of these."""
    path: tuple[str, ...] = ()
    """Any of these: a prefix (`projects/`), or a glob where it has `*`, `?` or `[`."""
    importance_min: float | None = None
    importance_max: float | None = None
    after: float | None = None
    """updated_at at or after."""
    before: float | None = None
    """updated_at strictly before."""
    ids: tuple[str, ...] = ()
    metadata: tuple[tuple[str, Any], ...] = ()
    """Sorted (key, value) pairs; a value is a scalar or a sorted tuple of (operator, bound)."""

    def __init__(
        self,
        *,
        collection: str | Sequence[str] = (),
        type: str | Sequence[str] = (),
        domain: str | Sequence[str] = (),
        not_domain: str | Sequence[str] = (),
        tags: str | Sequence[str] = (),
        tags_all: str | Sequence[str] = (),
        not_tags: str | Sequence[str] = (),
        path: str | Sequence[str] = (),
        importance_min: float | None = None,
        importance_max: float | None = None,
        after: Moment | None = None,
        before: Moment | None = None,
        ids: str | Sequence[str] = (),
        metadata: Mapping[str, Any] | None = None,
        **unknown: Any,
    ) -> None:
        for name in unknown:
            known = (f.name for f in fields(Filter))
            raise InputError(f"unknown filter field {name!r}: {nearest(name, known)}")
        put = object.__setattr__
        put(self, "collection", _names("collection", collection))
        put(self, "type", _names("type", type))
        put(self, "domain", _names("domain", domain))
        put(self, "not_domain", _names("not_domain", not_domain))
        put(self, "tags", _names("tags", tags, fold=True))
        put(self, "tags_all", _names("tags_all", tags_all, fold=True))
        put(self, "not_tags", _names("not_tags", not_tags, fold=True))
        put(self, "path", _names("path", path))
        put(self, "importance_min", _bound("importance_min", importance_min))
        put(self, "importance_max", _bound("importance_max", importance_max))
        put(self, "after", None if after is None else timestamp(after, name="after"))
        put(self, "before", None if before is None else timestamp(before, name="before"))
        put(self, "ids", _names("ids", ids))
        put(self, "metadata", _conditions(metadata or {}))
        self._check_ranges()

    def _check_ranges(self) -> None:
        if self.after is not None and self.before is not None and self.after >= self.before:
            raise InputError("this time range is empty: `after` must be earlier than `before`")
        low, high = self.importance_min, self.importance_max
        if low is not None and high is not None and low > high:
            raise InputError("this range is empty: importance_min is above importance_max")

    @classmethod
    def of(cls, value: Filter | Mapping[str, Any] | None) -> Filter:
        """A Filter from what a caller may give: one already, a mapping of its fields, or None."""
        if value is None:
            return EVERYTHING
        if isinstance(value, Filter):
            return value
        if isinstance(value, Mapping):
            return cls(**{str(name): bound for name, bound in value.items()})
        raise InputError(f"a filter is a Filter or a mapping, not {value.__class__.__name__}")

    def __bool__(self) -> bool:
        return self is not EVERYTHING and self != EVERYTHING

    def __and__(self, other: Filter) -> Filter:
        """Both: used for what the query text adds (`tag:`, `path:`…) to what the caller gave."""
        if not self or not other:
            return self or other
        merged: dict[str, Any] = {}
        required: tuple[str, ...] = ()
        for f in fields(Filter):
            mine, theirs = getattr(self, f.name), getattr(other, f.name)
            merged[f.name] = theirs if mine in ((), None) else mine
            if mine in ((), None) or theirs in ((), None) or mine == theirs:
                continue
            if f.name in ("after", "importance_min"):
                merged[f.name] = max(mine, theirs)
            elif f.name in ("before", "importance_max"):
                merged[f.name] = min(mine, theirs)
            elif f.name in ("not_domain", "not_tags", "tags_all"):
                merged[f.name] = (*mine, *theirs)
            elif f.name == "tags" and 1 in (len(mine), len(theirs)):
                # any of one tag is all of it, so both wishes fit into one filter
                alone, several = (mine, theirs) if len(mine) == 1 else (theirs, mine)
                merged["tags"] = several if len(several) > 1 else ()
                required = alone if len(several) > 1 else (*alone, *several)
            elif f.name in ("collection", "type", "domain", "ids"):
                common = tuple(v for v in mine if v in theirs)
                if not common:
                    raise InputError(
                        f"no record can match: {f.name} is asked to be {mine} and {theirs} at once"
                    )
                merged[f.name] = common
            elif f.name == "metadata":
                merged[f.name] = tuple(sorted({*mine, *theirs}, key=repr))  # each holds
            else:
                raise InputError(f"{f.name} is given twice, in the filter and in the query text")
        merged["tags_all"] = tuple(dict.fromkeys((*merged["tags_all"], *required)))
        combined = object.__new__(Filter)
        for name, value in merged.items():
            object.__setattr__(combined, name, value)
        combined._check_ranges()
        return combined


def _names(name: str, value: str | Sequence[str], *, fold: bool = False) -> tuple[str, ...]:
    if not isinstance(value, (str, Sequence, set, frozenset)) or isinstance(value, bytes):
        raise InputError(f"filter field {name!r} takes a string or several, not {value!r}")
    values = (value,) if isinstance(value, str) else tuple(value)
    for v in values:
        if not isinstance(v, str):
            raise InputError(f"filter field {name!r} takes strings, not {v!r}")
    return tuple(v.lstrip("#").casefold() if fold else v for v in values)


def _bound(name: str, value: float | None) -> float | None:
    if value is None:
        return None
    if _number_kind(value) is None:
        raise InputError(f"filter field {name!r} takes a finite number, not {value!r}")
    return float(value)


def _number_kind(value: Any) -> type | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        return float if math.isfinite(float(value)) else None
    except OverflowError:
        return None


def _conditions(metadata: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    if not isinstance(metadata, Mapping):
        raise InputError(f"filter field 'metadata' takes a mapping, not {metadata!r}")
    conditions: list[tuple[str, Any]] = []
    for key, value in metadata.items():
        if not isinstance(key, str):
            raise InputError(f"a metadata key is a string, not {key!r}")
        if isinstance(value, Mapping):
            kinds = {
                str if isinstance(bound, str) else _number_kind(bound) for bound in value.values()
            }
            if len(kinds) != 1 or None in kinds:
                raise InputError(
                    f"a range on metadata {key!r} has numbers or strings as bounds, not {value!r}"
                )
            for operator in value:
                if operator not in _RANGE_OPERATORS:
                    hint = nearest(str(operator), _RANGE_OPERATORS)
                    raise InputError(f"unknown range {operator!r} on metadata {key!r}: {hint}")
            conditions.append((key, tuple(sorted(value.items()))))
        elif value is None or isinstance(value, (str, int, float, bool)):
            conditions.append((key, value))
        else:
            raise InputError(
                f"metadata {key!r} can be compared with a string, a number, a boolean, None or "
                f"a range such as {{'gte': 3}}, not with {type(value).__name__}"
            )
    return tuple(sorted(conditions, key=lambda c: c[0]))


@dataclass(frozen=True, slots=True)
class Terms:
    """A query's words after analysis, as a keyword leg needs them."""

    words: tuple[tuple[str, ...], ...] = ()
    """Per word: its whole token first, then its parts (`getUserName` → whole, get, user, name)."""
    phrases: tuple[tuple[str, ...], ...] = ()
    """Token sequences a record must contain."""
    excluded: tuple[tuple[str, ...], ...] = ()
    """Token sequences a record must not contain."""

    def __bool__(self) -> bool:
        return bool(self.words or self.phrases)


@dataclass(frozen=True, slots=True)
class Query:
    """One search, fully spelt out: everything that decides the answer is in here."""

    text: str
    """The words to look for, with the query syntax taken out."""
    raw: str
    """What the user typed."""
    terms: Terms = field(default_factory=Terms)
    filter: Filter = field(default_factory=Filter)
    mode: Mode = "hybrid"
    limit: int = 10
    depth: int = 100
    """How many candidates each source gives."""
    now: float = 0.0


@dataclass(frozen=True, slots=True)
class Candidate:
    """One vote of one source. `chunk` is the store's number of the best passage."""

    id: str
    score: float
    chunk: int | None = None


@dataclass(frozen=True, slots=True)
class Passage:
    """A chunk with its words, as it is read back for a hit or for embedding."""

    chunk: int
    record: Record
    text: str
    lines: tuple[int, int]
    heading: str = ""


@dataclass(frozen=True, slots=True)
class Hit(Mapping[str, Any]):
    """One result. Also a mapping of its fields: `hit["id"]`, `dict(hit)`."""

    id: str
    content: str
    score: float = 0.0
    source: str = ""
    rrf_score: float = 0.0
    title: str = ""
    path: str | None = None
    lines: tuple[int, int] | None = None
    confidence: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    signals: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Per source that found it: rank, score, contribution."""
    snippet: str = ""
    highlights: tuple[tuple[int, int], ...] = ()
    """Character ranges of the snippet that match the query."""

    def __getitem__(self, key: str) -> Any:
        if key not in _HIT_FIELDS:
            raise KeyError(key)
        return getattr(self, key)

    def __iter__(self) -> Iterator[str]:
        return iter(_HIT_FIELDS)

    def __len__(self) -> int:
        return len(_HIT_FIELDS)

    def to_dict(self) -> dict[str, Any]:
        """As plain data, ready for JSON."""
        return {
            "id": self.id,
            "content": self.content,
            "source": self.source,
            "score": self.score,
            "rrf_score": self.rrf_score,
            "confidence": self.confidence,
            "title": self.title,
            "path": self.path,
            "lines": list(self.lines) if self.lines else None,
            "snippet": self.snippet,
            "highlights": [list(span) for span in self.highlights],
            "metadata": dict(self.metadata),
            "signals": {name: dict(signal) for name, signal in self.signals.items()},
        }


_HIT_FIELDS = tuple(f.name for f in fields(Hit))


@dataclass(frozen=True, slots=True)
class SearchResult(Sequence[Hit]):
    """The answer: a sequence of hits, and how it came about."""

    hits: tuple[Hit, ...] = ()
    suppressed: int = 0
    """Hits held back because their confidence was too low."""
    degraded: tuple[str, ...] = ()
    """What could not take part in full, and why. Empty: everything did."""
    trace: Mapping[str, Any] = field(default_factory=dict)
    cache: Literal["exact", "semantic"] | None = None

    @overload
    def __getitem__(self, index: int) -> Hit: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Hit, ...]: ...
    def __getitem__(self, index: int | slice) -> Hit | tuple[Hit, ...]:
        return self.hits[index]

    def __len__(self) -> int:
        return len(self.hits)

    def __iter__(self) -> Iterator[Hit]:
        return iter(self.hits)

    def to_dict(self) -> dict[str, Any]:
        """As plain data, ready for JSON."""
        answer: dict[str, Any] = {
            "results": [hit.to_dict() for hit in self.hits],
            "suppressed": self.suppressed,
            "degraded": list(self.degraded),
            "cache": self.cache,
            "trace": dict(self.trace),
        }
        if not self.hits:
            answer["message"] = "nothing found"
        return answer


EVERYTHING = Filter()
"""No restriction."""
