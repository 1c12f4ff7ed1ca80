"""Where a lookup looks: sources of the registry under names of its own, and users' functions; and
what a `Search` holds open for that.

A backend of one's own is a function of (query, limit): its best hits, as `Hit`s, as mappings of
their fields, or as `Found`s. A function with an attribute `freshness`, which gives a text that
changes with what it would find, has its answers kept until then. It may be anybody's code, so what
it gives is looked at.
"""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from clew import config
from clew.errors import ConfigError, SourceError, check_known, counted
from clew.filter import Filter
from clew.lookup_settings import LookupSettings
from clew.models import CurrentModel
from clew.protocols import Context, Source, Store
from clew.search.collect import Collector
from clew.sources import ExternalPassage, find_kind
from clew.types import Answer, Candidate, Hit, Query, Record, Vector
from clew.validate import as_row

if TYPE_CHECKING:
    from clew.engine import Engine
    from clew.protocols import Embedder


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
NOTHING = (
    "there is nothing to look in: run `clew index` in this folder, or name a storage, folders, "
    "repositories, the address of a web search or a backend"
)
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
        options |= {"max_file_mb": settings.max_file_mb, "keep": settings.keep}
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
        for each in islice(entries, min(query.limit * SPARE, sys.maxsize)):
            one = _read_entry(each)
            if one is None:
                wrong += 1
            elif len(found) < query.depth:
                found.setdefault(one.id, one)
        senseless = f"{counted(wrong, 'entry', 'entries')} made no sense" if wrong else None
        problem = "; ".join(filter(None, (told.problem, senseless)))
        return Answer(list(found.values()), problem, {"notes": list(told.notes)})

    def freshness(self, store: Store) -> str:
        """What the function tells; where it cannot, answers are kept as long as the settings
        say."""
        tell = getattr(self._function, "freshness", None)
        told = tell() if callable(tell) else None
        return "" if told is None else str(told)


def _read_entry(given: Any) -> Candidate | None:
    if isinstance(given, Mapping) and not isinstance(given, Hit):
        given = _read_mapping(given)
    found = Found(given) if isinstance(given, Hit) else given
    if not isinstance(found, Found) or not _is_sound(found):
        return None
    hit, heading = found.hit, found.hit.metadata.get("heading")
    record = Record(hit.id, hit.content, hit.title, hit.path, metadata=hit.metadata)
    passage = ExternalPassage(
        chunk=0,
        record=record,
        text=hit.content,
        lines=hit.lines or (1, 1),
        heading=heading if isinstance(heading, str) else "",
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
        and (found.similarity is None or _is_finite(found.similarity))
        and (hit.lines is None or _are_lines(hit.lines))
        and (found.vector is None or as_row(found.vector) is not None)
        and bool(hit.id and (hit.content + hit.title).strip())
    )


def _is_finite(value: Any) -> bool:
    try:
        return not isinstance(value, bool) and math.isfinite(value)  # numpy's numbers too
    except (TypeError, OverflowError):
        return False


def _are_lines(value: Any) -> bool:
    pair = isinstance(value, tuple) and len(value) == 2
    return pair and all(isinstance(line, int) for line in value)


# ---------------------------------------------------------------------- what is held open


@dataclass(frozen=True, slots=True)
class LookupParts:
    """Parts as they are for one lookup."""

    settings: LookupSettings
    engine: Engine | None
    sources: Mapping[str, Source]
    registered: frozenset[str]
    """Names of those that are the user's own."""
    filter: Filter
    include_personal: bool
    collector: Collector
    own_model: CurrentModel | None = None
    """For lookups without a storage."""

    @property
    def model(self) -> CurrentModel:
        """An edit of clew.toml may give the storage another one."""
        model = self.own_model if self.engine is None else self.engine.current_model
        assert model is not None
        return model


class Resources:
    """Opened when first needed, closed when the last lookup that uses them has ended."""

    def __init__(
        self,
        storage: Engine | str | Path | None,
        given: Mapping[str, Any],
        *,
        filter: Filter,
        include_personal: bool,
        embedder: Embedder | None,
    ):
        self._storage, self._given = storage, dict(given)
        self._filter, self._include_personal, self._embedder = filter, include_personal, embedder
        self._own: dict[str, Source] = {}
        self._lock = threading.RLock()
        self._engine: Engine | None = None
        self._closed = self._retired = False
        self._running = 0
        self._seen: config.Config | None = None
        self._parts: LookupParts | None = None
        self._collector = Collector()

    @contextmanager
    def use(self) -> Iterator[LookupParts]:
        """The parts for one lookup."""
        with self._lock:
            if self._closed:
                raise ConfigError("this Search is closed: make another one")
            parts = self._current()
            self._running += 1
        try:
            yield parts
        finally:
            with self._lock:
                self._running -= 1
                if self._retired and not self._running:
                    self._release()

    def register(self, name: str, backend: Source | Backend) -> None:
        if not isinstance(name, str) or not name.strip() or not callable(backend):
            raise ConfigError("a backend is a name and a function of (query, limit)")
        with self._lock:
            self._own[name] = backend if isinstance(backend, Source) else BackendSource(backend)
            self._parts = None

    def close(self, *, for_good: bool = True) -> None:
        """Hold nothing open between lookups. Not `for_good`: another has taken its place, and a
        thread that fetched this one a moment ago may still use it."""
        with self._lock:
            self._retired, self._closed = True, self._closed or for_good
            if not self._running:
                self._release()

    def _current(self) -> LookupParts:
        """Made anew when clew.toml was edited."""
        if self._engine is None and self._parts is None:
            self._engine = self._open()
        seen = self._engine.current_config() if self._engine is not None else None
        if self._parts is None or seen is not self._seen:
            settings = LookupSettings.of(self._table(seen), self._given)
            if self._parts is None or settings != self._parts.settings:
                self._parts = self._make(settings)
            self._seen = seen
        return self._parts

    def _table(self, seen: config.Config | None) -> dict[str, Any]:
        """That of clew.toml; its folders are seen from where the file lies."""
        if seen is None:
            return {}
        table = dict(seen.lookup)
        base = self._engine.root if self._engine is not None and self._engine.root else Path()
        for name in ("folders", "repositories"):
            if name in table:
                given = [table[name]] if isinstance(table[name], str) else table[name]
                table[name] = [str(base / Path(each).expanduser()) for each in given]
        return table

    def _open(self) -> Engine | None:
        from clew.engine import Engine, find_root, open_engine

        if isinstance(self._storage, Engine):
            return self._storage
        place = find_root() if self._storage is None else self._storage
        if place is None:
            return None
        return open_engine(place, create=False, embedder=self._embedder)

    def _make(self, settings: LookupSettings) -> LookupParts:
        known = dict.fromkeys((*BACKENDS, *self._own))
        named = known if settings.backends is None else settings.backends
        check_known("no backend", known, *named, kind=ConfigError)
        sources: dict[str, Source] = {}
        for name in (name for name in known if name in named):
            source = self._own.get(name)
            if source is None:
                source = make_backend(name, settings, storage=self._engine is not None)
            if source is not None:
                sources[name] = source
        if not sources:
            raise ConfigError(NOTHING)
        self._drop()
        return LookupParts(
            settings=settings,
            engine=self._engine,
            sources=sources,
            registered=frozenset(self._own),
            filter=self._filter,
            include_personal=self._include_personal,
            collector=self._collector,
            own_model=None if self._engine else CurrentModel(config.load(), self._embedder),
        )

    def _drop(self) -> None:
        """Close the sources made here."""
        for name, source in (self._parts.sources if self._parts else {}).items():
            if name not in self._own:
                source.close()

    def _release(self) -> None:
        self._drop()
        self._parts = None
        self._collector.close()
        if self._engine is not None and self._engine is not self._storage:
            self._engine.close()
        self._engine = None
