"""Ask several backends at once, and make one pool of what they found.

The deadline, the threads and what happens to whoever misses it are those of every search: see
search/collect.py. What a backend gives is looked at here: it may be anybody's code.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from types import MappingProxyType
from typing import Any, cast

from clew.cache.keys import digest
from clew.errors import SourceError, counted
from clew.lookup.backends import Backend
from clew.lookup.backends.web import canonical_address
from clew.lookup.result import Found, Partial
from clew.protocols import Context, Source
from clew.search.collect import Collector
from clew.search.plan import PlannedSource
from clew.sources import FunctionSource
from clew.text.parse import parse
from clew.types import Answer, Candidate, Hit, Query

__all__ = ["Pooled", "Reply", "gather", "pooled"]

SPARE = 10
"""Times as many entries as were asked for are looked at, for those that make no sense."""
LISTS = 4
"""A backend may put so many lists of that length into one, as that of git does."""
_TEXTS = ("content", "text", "snippet", "body")
_FIELDS = {"id", "title", "path", "score", "metadata", "lines", *_TEXTS}


@dataclass(frozen=True, slots=True)
class Reply:
    """What became of one backend."""

    backend: str
    found: tuple[Found, ...] = ()
    ms: float = 0.0
    problem: str | None = None
    notes: tuple[str, ...] = ()


def gather(
    collector: Collector,
    backends: Mapping[str, Backend],
    text: str,
    *,
    limit: int,
    deadline: float,
) -> list[Reply]:
    """One reply per backend, in the given order, at most `deadline` seconds later."""
    boxes: dict[str, tuple[tuple[Found, ...], tuple[str, ...]]] = {}
    query = parse(text, syntax=False, limit=limit, depth=limit * LISTS)
    asked = [
        PlannedSource(name, _source(name, backend, limit, boxes), query, kind="backend")
        for name, backend in backends.items()
    ]
    # They have all they need: none looks at what the sources of a search share.
    outcomes = collector.collect(asked, cast(Context, None), deadline=deadline)
    replies = []
    for outcome in outcomes:
        found, notes = boxes.get(outcome.source, ((), ()))
        if not outcome.candidates:  # late: whatever it is putting there now does not count
            found = ()
        replies.append(Reply(outcome.source, found, outcome.ms, outcome.problem, notes))
    return replies


def _source(
    name: str,
    backend: Backend,
    limit: int,
    boxes: dict[str, tuple[tuple[Found, ...], tuple[str, ...]]],
) -> Source:
    def source(query: Query, context: Context) -> Answer:
        given = backend(query.text, limit)
        told = given if isinstance(given, Partial) else Partial(given)
        found, wrong = _checked(told.found, name, limit)
        boxes[name] = tuple(found), tuple(told.notes)
        problem = "; ".join(filter(None, (told.problem, wrong)))
        return Answer([Candidate(each.hit.id, each.hit.score) for each in found], problem)

    return FunctionSource(source)


def _checked(given: Any, name: str, limit: int) -> tuple[list[Found], str | None]:
    """The entries that are results, each once, and what is wrong with the others."""
    if isinstance(given, (str, bytes, Mapping)) or not isinstance(given, Iterable):
        raise SourceError(f"gave {type(given).__name__}, not a list of hits: see lookup/backends")
    found: dict[str, Found] = {}
    wrong = 0
    for each in islice(given, limit * SPARE):
        one = _found(each, name)
        if one is None:
            wrong += 1
        elif len(found) < limit * LISTS:
            found.setdefault(one.hit.id, one)
    problem = f"{counted(wrong, 'entry', 'entries')} made no sense" if wrong else None
    return list(found.values()), problem


def _found(given: Any, name: str) -> Found | None:
    if isinstance(given, Found):
        one: Found | None = given
    elif isinstance(given, Hit):
        one = Found(given)
    else:
        one = _read(given) if isinstance(given, Mapping) else None
    if one is None or not _sound(one):
        return None
    return replace(one, hit=replace(one.hit, source=name))


def _sound(found: Found) -> bool:
    hit = found.hit
    texts = all(isinstance(value, str) for value in (hit.id, hit.content, hit.title))
    tables = isinstance(hit.metadata, Mapping) and isinstance(hit.signals, Mapping)
    if not texts or not tables or not isinstance(hit.path, str | None):
        return False
    signals = all(isinstance(signal, Mapping) for signal in hit.signals.values())
    if not signals or not _is_number(hit.score) or not _are_lines(hit.lines):
        return False
    near = found.similarity is None or _is_number(found.similarity)
    return near and _is_row(found.vector) and bool(hit.id and (hit.content + hit.title).strip())


def _is_number(value: Any) -> bool:
    try:
        return not isinstance(value, bool) and math.isfinite(value)
    except (TypeError, OverflowError):
        return False


def _are_lines(value: Any) -> bool:
    pair = isinstance(value, tuple) and len(value) == 2
    return value is None or (pair and all(isinstance(line, int) for line in value))


def _is_row(value: Any) -> bool:
    if value is None:
        return True
    import numpy as np

    try:
        row = np.asarray(value, dtype=np.float32)
    except (TypeError, ValueError):
        return False
    return row.ndim == 1 and bool(np.isfinite(row).all())


def _read(given: Mapping[Any, Any]) -> Found | None:
    """A mapping as a hit: by `id` or `url`, with its words under one of the usual names."""
    name = given.get("id") or given.get("url") or given.get("path")
    words = next((given[key] for key in _TEXTS if given.get(key)), "")
    own = given.get("metadata")
    more = {
        key: value for key, value in given.items() if isinstance(key, str) and key not in _FIELDS
    }
    lines = given.get("lines")
    try:
        hit = Hit(
            id=name,  # type: ignore[arg-type]
            content=words or given.get("title", ""),
            score=given.get("score", 0.0),
            title=given.get("title", ""),
            path=given.get("path") or given.get("url"),
            lines=tuple(lines) if lines else None,
            metadata={**more, **(own if isinstance(own, Mapping) else {})},
        )
    except TypeError:
        return None
    return Found(hit)


# ---------------------------------------------------------------------- one pool


@dataclass(frozen=True, slots=True)
class Pooled:
    """One thing that was found, by whichever backends."""

    found: Found
    backends: tuple[str, ...]
    also: tuple[str, ...] = ()
    """Other ids under which it was found."""


def pooled(replies: Iterable[Reply], now: Mapping[str, str] = MappingProxyType({})) -> list[Pooled]:
    """Everything once: by id within a place, by address, by file, and the same text from elsewhere.
    In order of id. `now` has what files say by now: what a store has of them that is no longer so
    is left out."""
    pool: dict[str, Pooled] = {}
    known: dict[str, str] = {}
    texts: dict[bytes, tuple[str, str]] = {}
    said = {file: _folded(text) for file, text in now.items()}
    for reply in replies:
        for each in reply.found:
            if each.file in said and _folded(each.hit.content) not in said[each.file]:
                continue
            name = _same(each, reply.backend, known, texts)
            pool[name] = _joined(pool.get(name), each, reply.backend, name)
    return [pool[name] for name in sorted(pool)]


def _folded(text: str) -> str:
    return " ".join(text.split())


def _same(
    found: Found, backend: str, known: dict[str, str], texts: dict[bytes, tuple[str, str]]
) -> str:
    """The id of what this is another copy of; else its own, with the backend's name where another
    place has one of that id. Two records of one place that say the same are two records."""
    hit = found.hit
    place = "storage" if backend.startswith("storage_") else backend
    text = digest(_folded(hit.content).encode("utf-8", "replace"))
    address = hit.metadata.get("url")
    marks = [f"id {place} {hit.id}"]
    if isinstance(address, str):
        marks.append(f"url {canonical_address(address)}")
    if found.file is not None:
        marks.append(f"file {found.file}")
    found_at, as_name = texts.get(text, (place, ""))
    name = next((known[mark] for mark in marks if mark in known), None)
    if name is None and found_at != place:
        name = as_name
    elif name is None:
        name = hit.id if f"name {hit.id}" not in known else f"{backend}:{hit.id}"
    for mark in (*marks, f"name {name}"):
        known.setdefault(mark, name)
    texts.setdefault(text, (place, name))
    return name


def _joined(before: Pooled | None, found: Found, backend: str, name: str) -> Pooled:
    if before is None:
        return Pooled(replace(found, hit=replace(found.hit, id=name)), (backend,))
    first = before.found
    signals = {**found.hit.signals, **first.hit.signals}
    joined = Found(
        replace(first.hit, signals=signals),
        found.vector if first.vector is None else first.vector,
        found.similarity if first.similarity is None else first.similarity,
        first.file,
    )
    names = dict.fromkeys((*before.backends, backend))
    also = dict.fromkeys((*before.also, found.hit.id))
    also.pop(first.hit.id, None)
    return Pooled(joined, tuple(names), tuple(also))
