"""What a `Search` works with: the storage, the sources, the model, and when they are closed."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clew import config
from clew.errors import ConfigError, nearest
from clew.filter import Filter
from clew.lookup.backend import BACKENDS, Backend, BackendSource, make_backend
from clew.lookup_settings import LookupSettings
from clew.models.current import CurrentModel
from clew.protocols import Source
from clew.search.collect import Collector

if TYPE_CHECKING:
    from clew.engine import Engine
    from clew.protocols import Embedder

NOTHING = (
    "there is nothing to look in: run `clew index` in this folder, or name a storage, folders, "
    "repositories, the address of a web search or a backend"
)


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
        self._opened = self._closed = self._retired = False
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
                if (self._closed or self._retired) and not self._running:
                    self._release()

    def register(self, name: str, backend: Source | Backend) -> None:
        if not isinstance(name, str) or not name.strip() or not callable(backend):
            raise ConfigError("a backend is a name and a function of (query, limit)")
        with self._lock:
            self._own[name] = backend if isinstance(backend, Source) else BackendSource(backend)
            self._parts = None

    def close(self) -> None:
        with self._lock:
            self._closed = True
            if not self._running:
                self._release()

    def retire(self) -> None:
        """Hold nothing open between lookups: another has taken its place, and a thread that fetched
        this one a moment ago may still use it."""
        with self._lock:
            self._retired = True
            if not self._running:
                self._release()

    def _current(self) -> LookupParts:
        """Made anew when clew.toml was edited."""
        if not self._opened:
            self._engine, self._opened = self._open(), True
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
        for name in named:
            if name not in known:
                raise ConfigError(f"no backend {name!r}: {nearest(name, known)}")
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
        self._engine, self._opened = None, False
