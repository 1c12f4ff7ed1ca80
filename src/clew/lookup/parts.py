"""What a `Search` works with: the storage, the backends, the model, and when they are closed."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clew.errors import ConfigError, nearest
from clew.filter import Filter
from clew.lookup.backends import BACKENDS, Backend, FunctionBackend, Listing, Setup, made
from clew.lookup.settings import Settings
from clew.search.collect import Collector

if TYPE_CHECKING:
    from clew.config import Config
    from clew.engine import Engine
    from clew.protocols import Embedder

__all__ = ["Parts", "Resources"]

NOTHING = (
    "there is nothing to look in: run `clew index` in this folder, or name a storage, folders, "
    "repositories, the address of a web search or a backend"
)


@dataclass(frozen=True, slots=True)
class Parts:
    """As they are for one lookup."""

    settings: Settings
    engine: Engine | None
    backends: Mapping[str, Backend]
    filter: Filter
    include_personal: bool
    model: Engine | Any
    """What embeds: `embedder`, `embed_query(text)`, `model`."""
    local_model: bool
    collector: Collector


class Resources:
    """Opened when first needed, closed when the last lookup that uses them has ended."""

    def __init__(
        self,
        storage: Engine | str | Path | None,
        own: Mapping[str, Backend | Listing],
        given: Mapping[str, Any],
        *,
        filter: Filter,
        include_personal: bool,
        embedder: Embedder | None,
    ):
        self._storage, self._given = storage, dict(given)
        self._own = {name: FunctionBackend.of(backend) for name, backend in own.items()}
        self._filter, self._include_personal, self._embedder = filter, include_personal, embedder
        self._lock = threading.RLock()
        self._engine: Engine | None = None
        self._opened = self._closed = self._retired = False
        self._running = 0
        self._seen: Config | None = None
        self._parts: Parts | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._collector = Collector()
        Settings.of(given)  # what is wrong with it is said now

    @contextmanager
    def use(self) -> Iterator[Parts]:
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

    def register(self, name: str, backend: Backend | Listing) -> None:
        if not isinstance(name, str) or not name.strip() or not callable(backend):
            raise ConfigError("a backend is a name and a function of (query, limit)")
        with self._lock:
            self._own[name] = FunctionBackend.of(backend)
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

    # ------------------------------------------------------------------

    def _current(self) -> Parts:
        """Made anew when clew.toml was edited."""
        if not self._opened:
            self._engine, self._opened = self._open(), True
        config = self._engine.current_config() if self._engine is not None else None
        if self._parts is None or config is not self._seen:
            settings = Settings.of(self._table(config), self._given)
            if self._parts is None or settings != self._parts.settings:
                self._parts = self._made(settings)
            self._seen = config
        return self._parts

    def _table(self, config: Config | None) -> dict[str, Any]:
        """That of clew.toml; its folders are seen from where the file lies."""
        if config is None:
            return {}
        table = dict(config.lookup)
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

    def _made(self, settings: Settings) -> Parts:
        setup = Setup(settings, self._engine, self._aside, self._filter, self._include_personal)
        backends: dict[str, Backend] = {}
        for name in self._names(settings):
            backend = self._own[name] if name in self._own else made(name, setup)
            if backend is not None:
                backends[name] = backend
            elif settings.backends is not None:
                raise ConfigError(f"the backend {name!r} has nothing to look at: {_MISSING[name]}")
        if not backends:
            raise ConfigError(NOTHING)
        self._drop()
        model = self._engine or self._standalone()
        return Parts(
            settings=settings,
            engine=self._engine,
            backends=backends,
            filter=self._filter,
            include_personal=self._include_personal,
            model=model,
            local_model=self._is_local(),
            collector=self._collector,
        )

    def _names(self, settings: Settings) -> list[str]:
        known = dict.fromkeys((*BACKENDS, *self._own))
        if settings.backends is None:
            return list(known)
        for name in settings.backends:
            if name not in known:
                raise ConfigError(f"no backend {name!r}: {nearest(name, known)}")
        return [name for name in known if name in settings.backends]

    def _standalone(self) -> Any:
        """A model for lookups without a storage."""
        from clew import config
        from clew.models.current import CurrentModel

        return _Model(CurrentModel(config.load(), self._embedder))

    def _is_local(self) -> bool:
        from clew import config
        from clew.models import is_local

        of = self._engine.config if self._engine is not None else config.load()
        return self._embedder is not None or is_local(of.model)

    def _aside(self, name: str) -> Path:
        with self._lock:
            if self._folder is None:
                self._folder = tempfile.TemporaryDirectory(
                    prefix="clew-lookup-", ignore_cleanup_errors=True
                )
            # a folder is not used twice: what a backend before had may still be written
            return Path(tempfile.mkdtemp(prefix=f"{name}-", dir=self._folder.name))

    def _drop(self) -> None:
        """Close the backends made here."""
        for name, backend in (self._parts.backends if self._parts else {}).items():
            if name not in self._own:
                backend.close()

    def _release(self) -> None:
        self._drop()
        self._parts = None
        self._collector.close()
        if self._engine is not None and self._engine is not self._storage:
            self._engine.close()
        self._engine, self._opened = None, False
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None


class _Model:
    """As an engine has it."""

    def __init__(self, current: Any):
        self._current = current

    @property
    def model(self) -> str:
        return str(self._current.name)

    @property
    def embedder(self) -> Embedder:
        loaded: Embedder = self._current.load()
        return loaded

    def embed_query(self, text: str) -> Any:
        return self._current.embed_query(text)


_MISSING = {
    "storage_keyword": "give a storage, or run `clew index` in this folder",
    "storage_vector": "give a storage, or run `clew index` in this folder",
    "local_files": "give `folders`",
    "local_git": "give `repositories`",
    "web": "give the address of a SearXNG instance as `web`",
}
