"""Answers in memory: search results copied, as JSON and back, and a bounded table of them.

Every field comes back equal, or the result is refused (TypeError, ValueError, RecursionError):
JSON has no tuples, so they are written as `{"()": […]}`.
"""

from __future__ import annotations

import json
from collections import Counter, OrderedDict
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import fields
from types import NoneType
from typing import Any, Generic, Literal, NamedTuple, TypeVar

from clew.types import Hit, SearchResult

Name = TypeVar("Name", bound=Hashable)

_ATOMS = frozenset({str, int, float, bool, NoneType})
_HIT = tuple(Hit("", ""))
_RESULT = tuple(f.name for f in fields(SearchResult))
SHAPE = ",".join((*_HIT, *_RESULT)).encode()
"""Changes with the fields: what another version has written is not read."""
_TUPLE = "()"


class KeptAnswer(NamedTuple):
    """One answer with all that is needed to find it again."""

    key: str | None
    """The newest form of the key it was made for; None: an old snapshot did not say."""
    result: SearchResult
    made: float
    """Seconds since the epoch, as other processes see it too."""
    size: int = 0
    """Bytes, about."""


class AnswerTable(Generic[Name]):
    """Answers under one name or several, in the order of their last use; the oldest make room.
    Its owner holds a lock around every call."""

    def __init__(self, *, entries: int, bytes: float = float("inf")):
        self._most, self._most_bytes = entries, bytes
        self._kept: OrderedDict[Name, KeptAnswer] = OrderedDict()
        self._names: Counter[int] = Counter()
        """Answer (its identity) → under how many names it is kept."""
        self.bytes = 0

    def __len__(self) -> int:
        """How many answers there are, under however many names."""
        return len(self._names)

    def __contains__(self, name: Name) -> bool:
        return name in self._kept

    def items(self) -> Iterator[tuple[Name, KeptAnswer]]:
        return iter(list(self._kept.items()))

    def get(self, name: Name) -> KeptAnswer | None:
        if (found := self._kept.get(name)) is not None:
            self._kept.move_to_end(name)
        return found

    def put(self, names: Iterable[Name], kept: KeptAnswer) -> None:
        for name in names:
            self.drop(name)
            if kept.size > self._most_bytes:
                continue  # it would push out all others first
            self._kept[name] = kept
            self.bytes += 0 if self._names[id(kept)] else kept.size
            self._names[id(kept)] += 1
        while len(self._names) > self._most or self.bytes > self._most_bytes:
            self.drop(next(iter(self._kept)))

    def drop(self, name: Name) -> None:
        if (gone := self._kept.pop(name, None)) is not None:
            self._names[id(gone)] -= 1
            if not self._names[id(gone)]:
                del self._names[id(gone)]
                self.bytes -= gone.size

    def clear(self) -> None:
        self._kept.clear()
        self._names.clear()
        self.bytes = 0


# ---------------------------------------------------------------------- copies


def check(result: SearchResult) -> None:
    """Refuse what would not come back equal: dates, sets, keys that are numbers…"""
    for hit in result.hits:
        _check(hit.metadata)
        _check(hit.signals)
    _check(result.trace)


def _check(value: Any) -> None:
    if isinstance(value, Mapping):
        if not {str}.issuperset(map(type, value)):
            raise TypeError("a key that is not text would come back as text")
        inner: Iterable[Any] = value.values()
    elif type(value) in (list, tuple):
        inner = value
    else:
        raise TypeError(f"{type(value).__name__} has no form in JSON that comes back equal")
    for each in inner:
        if type(each) not in _ATOMS:
            _check(each)


def copied(
    result: SearchResult,
    *,
    cache: Literal["exact", "semantic"] | None = None,
    about: Mapping[str, Any] | None = None,
) -> SearchResult:
    """The same with dictionaries and lists of its own: what one caller does to them, no other sees.

    `cache` says which one answers, `about` more of it, for the trace. Nothing is checked here: this
    is most of what an exact hit costs.
    """
    hits = tuple(
        [
            hit.changed(metadata=_copy(hit.metadata), signals=_copy(hit.signals), record=None)
            for hit in result.hits
        ]
    )
    trace = _copy(result.trace)
    if cache is not None:
        trace["cache"] = about
    return SearchResult(hits, result.suppressed, result.degraded, trace, cache)


def _copy(value: Any) -> Any:
    kind = type(value)
    if kind is list:
        return [v if type(v) in _ATOMS else _copy(v) for v in value]
    if kind is tuple:
        return tuple([v if type(v) in _ATOMS else _copy(v) for v in value])
    return {key: v if type(v) in _ATOMS else _copy(v) for key, v in value.items()}


def weight(result: SearchResult) -> int:
    """About how many bytes it takes, without writing it."""
    return 1000 + sum(1000 + len(hit.content) + len(hit.snippet) for hit in result.hits)


# ---------------------------------------------------------------------- JSON


def encoded(result: SearchResult) -> bytes:
    values = {name: getattr(result, name) for name in _RESULT}
    values["hits"] = [[_tagged(getattr(hit, name)) for name in _HIT] for hit in result.hits]
    for name in _RESULT[1:]:
        values[name] = _tagged(values[name])
    text = json.dumps(values, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "surrogatepass")


def decoded(data: bytes) -> SearchResult:
    values = json.loads(data.decode("utf-8", "surrogatepass"))
    hits = tuple(Hit(*map(_untagged, row)) for row in values.pop("hits"))
    return SearchResult(hits, **{name: _untagged(value) for name, value in values.items()})


def _tagged(value: Any) -> Any:
    kind = type(value)
    if kind in _ATOMS:
        return value
    if kind is list:
        return [_tagged(v) for v in value]
    if kind is tuple:
        return {_TUPLE: [_tagged(v) for v in value]}
    if not isinstance(value, Mapping) or not {str}.issuperset(map(type, value)):
        raise TypeError(f"{kind.__name__} has no form in JSON that comes back equal")
    plain = {key: _tagged(v) for key, v in value.items()}
    return {_TUPLE: plain} if plain.keys() == {_TUPLE} else plain  # a dictionary, after all


def _untagged(value: Any) -> Any:
    kind = type(value)
    if kind is list:
        return [_untagged(v) for v in value]
    if kind is not dict:
        return value
    if value.keys() == {_TUPLE}:
        inner = value[_TUPLE]
        if type(inner) is list:
            return tuple(map(_untagged, inner))
        value = inner
    return {key: _untagged(v) for key, v in value.items()}
