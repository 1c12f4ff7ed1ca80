"""Where a lookup looks: sources of the registry under names of its own, and users' functions.

A backend of one's own is a function of (query, limit): its best hits, as `Hit`s, as mappings of
their fields, or as `Found`s. A function with an attribute `freshness`, which gives a text that
changes with what it would find, has its answers kept until then. It may be anybody's code, so what
it gives is looked at.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from clew.errors import ConfigError, SourceError, counted
from clew.lookup_settings import LookupSettings
from clew.protocols import Context, Source, Store
from clew.sources import ExternalPassage, find_kind
from clew.types import Answer, Candidate, Hit, Query, Record, Vector

BACKENDS: Mapping[str, str] = {
    "storage_keyword": "keyword",
    "storage_vector": "vectors",
    "local_files": "files",
    "local_git": "git",
    "web": "web",
}
"""Each with its kind of source. In this order the same text found twice is told to come from the
first."""
STORAGE = ("storage_keyword", "storage_vector")
LISTS = 4
"""A backend may put so many lists of the length that was asked for into one, as git's does."""
SPARE = 10
"""Times as many entries as were asked for are looked at, for those that make no sense."""
_MISSING = {
    **dict.fromkeys(STORAGE, "give a storage, or run `clew index` in this folder"),
    "local_files": "give `folders`",
    "local_git": "give `repositories`",
    "web": "give the address of a SearXNG instance as `web`",
}
_TEXTS = ("content", "text", "snippet", "body")
_FIELDS = {"id", "title", "path", "score", "metadata", "lines", *_TEXTS}


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


Backend = Callable[[str, int], Iterable[Found | Hit | Mapping[str, Any]] | Partial]


def make_backend(name: str, settings: LookupSettings, *, storage: bool) -> Source | None:
    """The source behind one of `BACKENDS`; None where there is nothing for it to look at, which is
    an error where it is asked for by name."""
    options: dict[str, Any] = {}
    there: object = storage
    if name not in STORAGE:
        options["seconds"] = settings.deadline
    if name == "local_files":
        there = options["folders"] = settings.folders
    elif name == "local_git":
        there = options["repositories"] = settings.repositories
        options["commits"] = settings.commits
    elif name == "web":
        there = options["address"] = settings.web
    if name.startswith("local_"):
        options["max_file_mb"] = settings.max_file_mb
    if not there:
        if settings.backends is not None:
            raise ConfigError(f"the backend {name!r} has nothing to look at: {_MISSING[name]}")
        return None
    make = find_kind(BACKENDS[name])
    assert make is not None
    return make(Path(), **options)


class BackendSource(Source):
    """A function of (query, limit) as a source."""

    def __init__(self, function: Backend):
        self._function = function

    def __call__(self, query: Query, context: Context) -> Answer:
        given = self._function(query.text, query.limit)
        told = given if isinstance(given, Partial) else Partial(given)
        entries: Any = told.found
        if isinstance(entries, (str, bytes, Mapping)) or not isinstance(entries, Iterable):
            kind = type(entries).__name__
            raise SourceError(f"gave {kind}, not a list of hits: see lookup/backend.py")
        found: dict[str, Candidate] = {}
        wrong = 0
        for each in islice(entries, query.limit * SPARE):
            one = _read_entry(each)
            if one is None:
                wrong += 1
            elif len(found) < query.depth:
                found.setdefault(one.id, one)
        senseless = f"{counted(wrong, 'entry', 'entries')} made no sense" if wrong else None
        problem = "; ".join(filter(None, (told.problem, senseless)))
        return Answer(list(found.values()), problem, {"notes": list(told.notes)})

    def freshness(self, store: Store) -> str:
        """Of one that cannot tell, answers are kept for as long as the settings say."""
        tell = getattr(self._function, "freshness", None)
        told = tell() if callable(tell) else None
        return "" if told is None else str(told)


def _read_entry(given: Any) -> Candidate | None:
    if isinstance(given, Mapping) and not isinstance(given, Hit):
        given = _read_mapping(given)
    found = Found(given) if isinstance(given, Hit) else given
    if not isinstance(found, Found) or not _is_sound(found):
        return None
    hit = found.hit
    record = Record(hit.id, hit.content, hit.title, hit.path, metadata=hit.metadata)
    passage = ExternalPassage(
        chunk=0,
        record=record,
        text=hit.content,
        lines=hit.lines or (1, 1),
        hit=hit,
        vector=found.vector,
        similarity=found.similarity,
        file=found.file,
    )
    return Candidate(hit.id, hit.score, None, passage)


def _read_mapping(given: Mapping[Any, Any]) -> Hit | None:
    """A mapping as a hit: by `id` or `url`, with its words under one of the usual names."""
    name = given.get("id") or given.get("url") or given.get("path")
    words = next((given[key] for key in _TEXTS if given.get(key)), "")
    own = given.get("metadata")
    more = {
        key: value for key, value in given.items() if isinstance(key, str) and key not in _FIELDS
    }
    lines = given.get("lines")
    try:
        return Hit(
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


def _is_sound(found: Found) -> bool:
    hit = found.hit
    return (
        all(isinstance(value, str) for value in (hit.id, hit.content, hit.title))
        and isinstance(hit.path, str | None)
        and isinstance(hit.metadata, Mapping)
        and isinstance(hit.signals, Mapping)
        and all(isinstance(signal, Mapping) for signal in hit.signals.values())
        and _is_finite(hit.score)
        and _are_lines(hit.lines)
        and (found.similarity is None or _is_finite(found.similarity))
        and _is_row(found.vector)
        and bool(hit.id and (hit.content + hit.title).strip())
    )


def _is_finite(value: Any) -> bool:
    try:
        return not isinstance(value, bool) and math.isfinite(value)  # numpy's numbers too
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
