"""Answers in memory: search results copied, as JSON and back, in a bounded table; and LookupCache,
the answers to lookups.

Every field comes back equal, or the result is refused (TypeError, ValueError, RecursionError):
JSON has no tuples, so they are written as `{"()": […]}`.
"""

from __future__ import annotations

import json
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from types import NoneType
from typing import Any, Literal, NamedTuple, TypeVar

from clew.cache.keys import DEFAULT_NAMESPACE, CacheKey, build_cache_key
from clew.errors import InputError
from clew.storage.ownership import replace_private
from clew.types import Hit, SearchResult

Name = TypeVar("Name", bound=Hashable)

_ATOMS = frozenset({str, int, float, bool, NoneType})
_HIT = tuple(Hit("", ""))
_RESULT = tuple(f.name for f in fields(SearchResult) if f.compare)
SHAPE = ",".join((*_HIT, *_RESULT)).encode()
"""Changes with the fields: what another version has written is not read."""
_TUPLE = "()"
SNAPSHOT_FORM = 3


class KeptAnswer(NamedTuple):
    """One answer with all that is needed to find it again."""

    key: str | None
    """The newest form of the key it was made for; None: an old snapshot did not say."""
    result: SearchResult
    made: float
    """Seconds since the epoch, as other processes see it too."""
    size: int = 0
    """Bytes, about."""
    forms: tuple[str, ...] = ()
    """A lookup's key in every form that is known."""


class AnswerTable(OrderedDict[Name, KeptAnswer]):
    """Answers in the order of their last use; the oldest make room. Its owner holds a lock around
    every call."""

    def __init__(self, entries: int, most_bytes: float = float("inf")):
        super().__init__()
        self._most, self._most_bytes = entries, most_bytes
        self._bytes = 0

    def use(self, name: Name) -> KeptAnswer | None:
        if (found := self.get(name)) is not None:
            self.move_to_end(name)
        return found

    def put(self, name: Name, kept: KeptAnswer) -> None:
        self.drop(name)
        if kept.size <= self._most_bytes:  # else it would push out all others first
            self[name] = kept
            self._bytes += kept.size
        while len(self) > self._most or self._bytes > self._most_bytes:
            self.drop(next(iter(self)))

    def drop(self, name: Name) -> None:
        if (gone := self.pop(name, None)) is not None:
            self._bytes -= gone.size

    def clear(self) -> None:
        super().clear()
        self._bytes = 0


# ---------------------------------------------------------------------- copies


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
    hits = [
        hit.changed(metadata=_copy(hit.metadata), signals=_copy(hit.signals), record=None)
        for hit in result.hits
    ]
    trace = _copy(result.trace)
    if cache is not None:
        trace["cache"] = about
    return SearchResult(tuple(hits), result.suppressed, result.degraded, trace, cache)


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


def check(result: SearchResult) -> None:
    """Refuse what would not come back equal: dates, sets, keys that are numbers…"""
    for hit in result.hits:
        _tagged(hit.metadata)
        _tagged(hit.signals)
    _tagged(result.trace)


def encoded(result: SearchResult) -> bytes:
    values = {name: _tagged(getattr(result, name)) for name in _RESULT[1:]}
    hits = [[_tagged(getattr(hit, name)) for name in _HIT] for hit in result.hits]
    text = json.dumps({"hits": hits, **values}, ensure_ascii=False, separators=(",", ":"))
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


# ---------------------------------------------------------------------- lookups


class CachedLookup(NamedTuple):
    """An answer, and the form of the key that had it."""

    result: SearchResult
    slot: Literal["primary", "alias", "legacy"]


class LookupCache:
    """Thread-safe; bounded in number and in age.

    The older forms of a key say less: the oldest knows neither the namespace nor the state of what
    was searched. So namespaces are kept apart, and each answer stands under the newest form of its
    key. One from an old snapshot has none, and stands under an older form until it is first found;
    whether that will do is for the caller to say.
    """

    def __init__(
        self,
        *,
        entries: int = 1000,
        seconds: float = 86_400.0,
        clock: Callable[[], float] = time.time,
    ):
        self._seconds, self._clock = seconds, clock
        self._table: AnswerTable[tuple[str, str]] = AnswerTable(max(0, entries))
        self._lock = threading.Lock()

    def __len__(self) -> int:
        with self._lock:
            return len(self._table)

    def get(
        self, key: CacheKey, *, namespace: str | None = None, stamped: bool = False
    ) -> CachedLookup | None:
        """The answer to this lookup and the form of the key that had it. One found under an older
        form moves up to the newest. With `stamped`, which says that the key tells how fresh what
        was searched is, not what an old snapshot has under a legacy key: that knows nothing of
        it."""
        with self._lock:
            for form in key.candidates():
                name = _name(namespace, form)
                kept = self._table.use(name)
                if kept is None:
                    continue
                if not self._is_alive(kept):
                    self._table.drop(name)
                elif kept.key == key.primary or (
                    kept.key is None and not (stamped and form == key.legacy)
                ):
                    self._put(key, kept, namespace)
                    result = copied(kept.result)
                    if form == key.primary:
                        return CachedLookup(result, "primary")
                    return CachedLookup(result, "alias" if form in key.aliases else "legacy")
        return None

    def put(self, key: CacheKey, result: SearchResult, *, namespace: str | None = None) -> None:
        """Keep an answer for every form of its key; not one whose values could not be copied."""
        try:
            check(result)
        except TypeError:
            return
        with self._lock:
            self._put(key, KeptAnswer(None, copied(result), self._clock()), namespace)

    def clear(self, *, namespace: str | None = None) -> None:
        """Forget the answers of a namespace, or all."""
        with self._lock:
            for name in list(self._table):
                if namespace in (None, name[0]):
                    self._table.drop(name)

    def save(self, file: str | Path) -> int:
        """Write a snapshot; how many answers it has. What has no form in JSON is left out. The file
        is replaced at once, so that nobody reads half of it."""
        answers = []
        with self._lock:
            alive = [item for item in self._table.items() if self._is_alive(item[1])]
        for (namespace, _), kept in alive:
            try:
                answer = encoded(kept.result).decode("utf-8", "surrogatepass")
            except (TypeError, ValueError, RecursionError):
                continue
            told = {"namespace": namespace, "made": kept.made, "stamp": kept.key}
            answers.append({**told, "keys": list(kept.forms), "answer": answer})
        file = Path(file)
        replace_private(file, json.dumps({"clew": SNAPSHOT_FORM, "answers": answers}))
        return len(answers)

    def load(self, file: str | Path) -> int:
        """Take in a snapshot of this or an older form; how many answers came of it. What is here
        already stays, for every form of its key: it is newer."""
        taken = 0
        with self._lock:
            known = {(n, form) for (n, _), kept in self._table.items() for form in kept.forms}
            for namespace, kept in _read_snapshot(Path(file)):
                name = namespace, kept.key or kept.forms[0]
                if name not in known and self._is_alive(kept):
                    self._table.put(name, kept)
                    known |= {(namespace, form) for form in kept.forms}
                    taken += 1
        return taken

    def _put(self, key: CacheKey, kept: KeptAnswer, namespace: str | None) -> None:
        """Keep it under the newest form, in the place of what an old snapshot has under others."""
        for form in key.candidates():
            self._table.drop(_name(namespace, form))
        kept = kept._replace(key=key.primary, forms=key.candidates())
        self._table.put(_name(namespace, key.primary), kept)

    def _is_alive(self, kept: KeptAnswer) -> bool:
        return 0 <= self._clock() - kept.made < self._seconds


def _name(namespace: object, form: str) -> tuple[str, str]:
    return str(namespace or DEFAULT_NAMESPACE), form


def _read_snapshot(file: Path) -> Iterator[tuple[str, KeptAnswer]]:
    """All answers of a snapshot with their namespaces. An InputError where it is none; single rows
    that make no sense are passed over. It is in one of these forms:

        {"clew": 3, "answers": [{"namespace", "keys", "made", "stamp", "answer"}]}
        {"_default": {"1": {"namespace", "query", "backend", "results"}}}       tables of TinyDB

    In the second, `query` is a key or, older still, the query as it was typed, and the answers
    count as made when the file was written.
    """
    try:
        told = json.loads(file.read_text("utf-8"))
        made = file.stat().st_mtime
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{file}: no snapshot of lookups: {error}; delete it") from error
    read: Callable[[Any, float], KeptAnswer] = _read_old_row
    tables = [t for t in told.values() if isinstance(t, dict)] if isinstance(told, dict) else []
    rows = [row for table in tables for row in table.values()]
    if isinstance(told, dict) and "clew" in told:
        answers = told.get("answers")
        rows, read = answers if isinstance(answers, list) else [], _read_row
    elif told != {} and not tables:
        raise InputError(f"{file}: no snapshot of lookups; delete it")
    for row in rows:
        try:
            yield str(row.get("namespace") or DEFAULT_NAMESPACE), read(row, made)
        except (AttributeError, LookupError, TypeError, ValueError, RecursionError):
            continue


def _read_row(row: Any, _: float) -> KeptAnswer:
    result = decoded(row["answer"].encode("utf-8", "surrogatepass"))
    stamp, forms = row["stamp"], tuple(map(str, row["keys"]))
    if not forms:
        raise ValueError("an answer without a key")
    return KeptAnswer(stamp and str(stamp), result, float(row["made"]), forms=forms)


def _read_old_row(row: Any, made: float) -> KeptAnswer:
    query, backend = row["query"], row["backend"]
    if not isinstance(backend, str) or not isinstance(row["results"], list):
        raise TypeError("not an answer")
    form = query.replace("|emb_backends=__none__|", "|emb_backends=|")
    if not form.startswith(("v2:", "v3:", "backend=")):
        form = build_cache_key(query=query, backend=backend).legacy
    hits = tuple(filter(None, (_read_old_hit(each, backend) for each in row["results"])))
    return KeptAnswer(None, SearchResult(hits), made, forms=(form,))


def _read_old_hit(found: Any, backend: str) -> Hit | None:
    if not isinstance(found, Mapping):
        return None
    address, words = found.get("url"), found.get("content") or found.get("snippet") or ""
    name = found.get("id") or address
    if not isinstance(name, str) or not isinstance(words, str):
        return None
    score = found.get("relevance_score", found.get("score", 0.0))
    return Hit(
        id=name,
        content=words,
        score=float(score) if isinstance(score, (int, float)) else 0.0,
        source=backend,
        title=str(found.get("title") or ""),
        path=address if isinstance(address, str) else None,
        metadata={key: value for key, value in found.items() if isinstance(key, str)},
    )
