"""Search: one question to several places, from an instance or from the class."""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from clew.cache import LookupCache, build_cache_key, canonicalize_query_text, fingerprint
from clew.errors import ClewError, InputError
from clew.filter import Filter
from clew.lookup.answer import answer, check_max_results, pool
from clew.lookup.backends import Backend, Listing
from clew.lookup.descriptor import hybridmethod
from clew.lookup.meaning import Embedded
from clew.lookup.parts import Resources
from clew.lookup.rank import words_of
from clew.lookup.result import ExternalLookupResult
from clew.lookup.settings import Settings
from clew.types import Hit, SearchResult, Vector

if TYPE_CHECKING:
    from clew.engine import Engine
    from clew.protocols import Embedder

__all__ = ["Search"]

log = logging.getLogger("clew")


class Search:
    """Looks into a storage, folders, repositories, the web, and whatever else is registered.

    >>> import clew
    >>> search = clew.Search(folders=["papers"])
    >>> [hit.path for hit in search.external_lookup("keel bolt torque")]

    Every method but those that make or end a `Search` works on the class as well, which has one
    instance for that: `clew.Search.configure(...)`, then `clew.Search.external_lookup(...)` from
    anywhere. Thread-safe; a context manager.
    """

    _shared: ClassVar[dict[type, Search]] = {}
    _sharing: ClassVar[threading.RLock] = threading.RLock()

    def __init__(
        self,
        storage: Engine | str | Path | None = None,
        *,
        backends: Mapping[str, Backend | Listing] | Sequence[str] | None = None,
        filter: Filter | Mapping[str, Any] | None = None,
        include_personal: bool = False,
        embedder: Embedder | None = None,
        **settings: Any,
    ):
        """`storage` is an engine, which stays the caller's, or a folder with a store; without it,
        the nearest store at or above the current folder, if there is one. `backends` are names, or
        functions by name, which are asked beside the usual ones. `filter` and `include_personal`
        say what may be found in storage, folders and repositories. All other arguments are those of
        lookup/settings.py, over the table [lookup] of the storage's clew.toml."""
        own: Mapping[str, Backend | Listing] = {}
        if isinstance(backends, Mapping):
            own = backends
        elif backends is not None:
            settings["backends"] = backends
        self._resources = Resources(
            storage,
            {},
            settings,
            filter=Filter.of(filter),
            include_personal=include_personal,
            embedder=embedder,
        )
        for name, backend in own.items():
            self._resources.register(name, backend)
        chosen = Settings.of(settings)
        self.cache = LookupCache(entries=chosen.cache_entries, seconds=chosen.cache_seconds)
        """Answers that are kept."""
        self._file = Path(chosen.cache_file).expanduser() if chosen.cache_file else None
        self._embedded = Embedded()
        weakref.finalize(self, self._resources.retire).atexit = False  # where nobody closed it
        if self._file is not None and self._file.exists():
            try:
                self.cache.load(self._file)
            except ClewError as error:
                log.warning("lookups begin with nothing kept: %s", error)

    # ------------------------------------------------------------------ the shared instance

    @classmethod
    def shared(cls) -> Search:
        """The instance that the class uses; made when first asked for."""
        with cls._sharing:
            if cls not in cls._shared:
                cls._shared[cls] = cls()
            return cls._shared[cls]

    @classmethod
    def configure(cls, *arguments: Any, **settings: Any) -> Search:
        """Make the class use an instance with these arguments. Lookups that are under way end with
        the one before."""
        made = cls(*arguments, **settings)
        with cls._sharing:
            before, cls._shared[cls] = cls._shared.get(cls), made
        if before is not None:
            before._end(before._resources.retire)
        return made

    @classmethod
    def reset(cls) -> None:
        """Close what the class used; the next lookup begins anew, with the defaults."""
        with cls._sharing:
            before = cls._shared.pop(cls, None)
        if before is not None:
            before._end(before._resources.retire)

    def __enter__(self) -> Search:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """An engine that was given stays open."""
        self._end(self._resources.close)

    def _end(self, let_go: Callable[[], None]) -> None:
        let_go()
        if self._file is not None:
            try:
                self.cache.save(self._file)
            except OSError as error:
                log.warning("lookups were not kept in %s: %s", self._file, error)

    # ------------------------------------------------------------------ lookups

    @hybridmethod
    def external_lookup(
        self: Search, query: str, max_results: int = 5, *, return_handles: bool = False
    ) -> list[Hit] | ExternalLookupResult:
        """The best `max_results` of what all backends find, ranked together.

        A backend that fails or is late is left out: the log says so, and with `return_handles` the
        answer does, which then has each backend's own hits, the cache, the storage and the trace.
        """
        canonical = canonicalize_query_text(query)
        if not canonical:
            raise InputError("the query is empty: say what to look for")
        check_max_results(max_results)
        with self._resources.use() as parts:
            found = answer(query, canonical, max_results, parts, self.cache, self._embedded)
        if return_handles:
            return found
        for problem in found.degraded:
            log.warning("lookup without %s", problem)
        return list(found.results)

    def pool(self, query: str) -> list[Hit]:
        """All that a lookup of a few results would rank, best first, with every component: what
        weights can be chosen on."""
        with self._resources.use() as parts:
            return pool(canonicalize_query_text(query), parts, self._embedded)

    @hybridmethod
    def embedding_lookup(
        self: Search, query_embedding: Vector | Sequence[float], max_results: int = 5
    ) -> list[Hit]:
        """The records of the storage that are nearest to a vector of its model, nearest first."""
        check_max_results(max_results)
        with self._resources.use() as parts:
            engine, settings = parts.engine, parts.settings
            if engine is None:
                raise InputError("there is no storage to compare vectors with: give one")
            scope = fingerprint([parts.filter, parts.include_personal])
            key = build_cache_key(
                query=_named(query_embedding),
                backend="storage_vector",
                namespace=settings.namespace or None,
                embedding_signature=(engine.model,),
                embedding_state="given",
                hybrid_flags=(f"max_results={max_results}",),
                storage_hints=(
                    ".".join(map(str, engine.store.changes.edition())),
                    f"scope:{scope}",
                ),
            )
            namespace = settings.namespace or None
            if settings.cache and (kept := self.cache.get(key, namespace=namespace, stamped=True)):
                return list(kept.result.hits)
            found = engine.search(
                "",
                vector=query_embedding,
                mode="vector",
                group_by="record",
                limit=max_results,
                filter=parts.filter,
                include_personal=parts.include_personal,
                cache=False,
            )
            hits = [_near(hit) for hit in found]
            for problem in found.degraded:
                log.warning("lookup by vector: %s", problem)
            if settings.cache and not found.degraded:
                self.cache.put(key, SearchResult(tuple(hits)), namespace=namespace)
            return hits

    @hybridmethod
    def add_embeddings(
        self: Search,
        documents: Sequence[Hit | MutableMapping[str, Any]],
        query_embedding: Vector | Sequence[float] | None = None,
    ) -> list[dict[str, Any]]:
        """The documents with their vectors as "embedding"; with `query_embedding`, also their
        cosine to it as "similarity".

        A dict is given both in place and comes back; of anything else a dict is made. One that has
        an embedding keeps it. Nothing is written to the storage.
        """
        import numpy as np

        from clew.models.vectors import unit

        given = [_table(one) for one in documents] if isinstance(documents, Iterable) else None
        if given is None:
            raise InputError("documents are a list of hits or mappings")
        missing = [one for one in given if one.get("embedding") is None]
        if missing:
            with self._resources.use() as parts:
                made = parts.model.embedder.embed_documents([_words(one) for one in missing])
            for one, row in zip(missing, made, strict=True):
                one["embedding"] = [float(value) for value in row]
        if query_embedding is not None:
            asked = unit(_row(query_embedding))[0]
            for one in given:
                row = unit(_row(one["embedding"]))[0]
                if row.shape != asked.shape:
                    raise InputError(
                        f"a document's vector has {len(row)} dimensions, the query's {len(asked)}: "
                        "embed both with the same model"
                    )
                one["similarity"] = float(np.clip(row @ asked, -1.0, 1.0))
        return given

    @hybridmethod
    def register(self: Search, name: str, backend: Backend | Listing) -> None:
        """Ask this function as well, or in place of the backend that has the name, whose answers
        are forgotten."""
        self._resources.register(name, backend)
        self.cache.clear()


def _named(vector: Any) -> str:
    """A vector's own name in a key."""
    from clew.cache.keys import digest

    return digest(_row(vector).astype("<f4").tobytes()).hex()


def _row(vector: Any) -> Any:
    import numpy as np

    try:
        row = np.asarray(vector, dtype=np.float32)
    except (TypeError, ValueError, OverflowError):
        row = np.empty((0, 0), np.float32)
    if row.ndim != 1 or not len(row) or not np.isfinite(row).all():
        raise InputError("a vector is one row of finite numbers")
    return row.reshape(1, -1)


def _near(hit: Hit) -> Hit:
    """Scored by its cosine, whatever fusion made of it."""
    from dataclasses import replace

    near = hit.signals.get("vectors", {}).get("score", hit.score)
    return replace(hit, score=near, rrf_score=0.0, confidence=None, source="storage_vector")


def _table(document: Any) -> dict[str, Any]:
    if isinstance(document, dict):
        return document
    try:
        return dict(document)
    except (TypeError, ValueError):
        raise InputError(f"a document is a hit or a mapping, not {document!r:.60}") from None


def _words(document: Mapping[str, Any]) -> str:
    words = next((document[k] for k in ("content", "text", "snippet") if document.get(k)), "")
    title = document.get("title") or ""
    if not isinstance(words, str) or not isinstance(title, str) or not (words or title):
        raise InputError("a document to embed needs text under content, text or snippet")
    return words_of(Hit(id="", content=words, title=title))
