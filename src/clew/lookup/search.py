"""Search: one question to several places, from an instance or from the class."""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import replace
from functools import update_wrapper
from pathlib import Path
from types import MethodType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar

from clew.cache import LookupCache, canonicalize_query_text
from clew.errors import ClewError, InputError
from clew.filter import Filter
from clew.lookup.answer import ExternalLookupResult, Lookup
from clew.lookup.backend import Backend, Resources
from clew.lookup.pool import LONGEST, TextVectors
from clew.lookup_settings import LookupSettings
from clew.protocols import Source
from clew.sources.files import kept_home
from clew.text.passage import passage
from clew.types import Hit, Vector
from clew.validate import check_row, check_whole, guarded, unit_row

if TYPE_CHECKING:
    from clew.engine import Engine
    from clew.protocols import Embedder

P = ParamSpec("P")
R = TypeVar("R")

log = logging.getLogger("clew")
_shared_instances: weakref.WeakKeyDictionary[type, Any] = weakref.WeakKeyDictionary()
_sharing = threading.RLock()


class hybridmethod(Generic[P, R]):  # noqa: N801 - used like `classmethod`
    """`Class.method()` is `Class.shared().method()`; a class without `shared` gets one instance,
    made by calling it without arguments.

    The function takes the instance first, on both paths. A stub that is wrapped in this can take
    the method's place on the class or on one instance (also on the shared one, and then the class
    uses it too).
    """

    def __init__(self, function: Callable[Concatenate[Any, P], R]):
        self._function = function
        self._name = getattr(function, "__name__", "")
        update_wrapper(self, function)  # type: ignore[arg-type]

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: Any, owner: type | None = None) -> Callable[P, R]:
        target = instance
        if instance is None and owner is not None:
            shared = getattr(owner, "shared", None)
            target = _shared_instance(owner) if shared is None else shared()
        own = vars(target).get(self._name_on(type(target)))
        if own is None:
            return MethodType(self._function, target)
        if isinstance(own, hybridmethod):
            return MethodType(own._function, target)
        found: Callable[P, R] = own
        return found

    def __set__(self, instance: Any, value: Any) -> None:
        """Put something in its place on this instance."""
        vars(instance)[self._name_on(type(instance))] = value

    def __delete__(self, instance: Any) -> None:
        try:
            del vars(instance)[self._name_on(type(instance))]
        except KeyError:
            raise AttributeError(self._name_on(type(instance))) from None

    def _name_on(self, owner: type) -> str:
        """What the class calls it: a stub that was put there later has another name of its own."""
        named = (name for each in owner.__mro__ for name, of in vars(each).items() if of is self)
        return next(named, self._name)


def _shared_instance(owner: type) -> Any:
    """The instance that a class uses; made when first asked for."""
    with _sharing:
        if owner not in _shared_instances:
            _shared_instances[owner] = owner()
        return _shared_instances[owner]


@guarded
class Search:
    """Looks into a storage, folders, repositories, the web, and whatever else is registered.

    >>> import clew
    >>> search = clew.Search(folders=["papers"])
    >>> [hit.path for hit in search.external_lookup("keel bolt torque")]

    Every method but those that make or end a `Search` works on the class as well, which has one
    instance for that: `clew.Search.configure(...)`, then `clew.Search.external_lookup(...)` from
    anywhere. Thread-safe; a context manager.
    """

    def __init__(
        self,
        storage: Engine | str | Path | None = None,
        *,
        backends: Mapping[str, Source | Backend] | Sequence[str] | None = None,
        filter: Filter | Mapping[str, Any] | None = None,
        include_personal: bool = False,
        embedder: Embedder | None = None,
        **settings: Any,
    ):
        """`storage` is an engine, which stays the caller's, or a folder with a store; without it,
        the nearest store at or above the current folder, if there is one. `backends` are names, or
        functions by name, which are asked beside the usual ones. `filter` and `include_personal`
        say what may be found in storage, folders and repositories. All other arguments are those of
        lookup_settings.py, over the table [lookup] of the storage's clew.toml."""
        own = backends if isinstance(backends, Mapping) else {}
        if backends is not None and not isinstance(backends, Mapping):
            settings["backends"] = backends
        chosen = LookupSettings.of(settings)  # what is wrong with it is said now
        self._resources = Resources(
            storage,
            settings,
            filter=Filter.of(filter),
            include_personal=include_personal,
            embedder=embedder,
        )
        for name, backend in own.items():
            self._resources.register(name, backend)
        self.cache = LookupCache(entries=chosen.cache_entries, seconds=chosen.cache_seconds)
        """Answers that are kept."""
        self._file = Path(chosen.cache_file).expanduser() if chosen.cache_file else None
        self._text_vectors = TextVectors(kept_home() / "vectors.npz" if chosen.keep else None)
        weakref.finalize(self, self._resources.close).atexit = False  # where nobody closed it
        if self._file is not None and self._file.exists():
            try:
                self.cache.load(self._file)
            except ClewError as error:
                log.warning("lookups begin with nothing kept: %s", error)

    # ------------------------------------------------------------------ the shared instance

    @classmethod
    def shared(cls) -> Search:
        """The instance that the class uses; made when first asked for."""
        shared: Search = _shared_instance(cls)
        return shared

    @classmethod
    def configure(cls, *arguments: Any, **settings: Any) -> Search:
        """Make the class use an instance with these arguments. Lookups that are under way end with
        the one before."""
        made = cls(*arguments, **settings)
        with _sharing:
            before = _shared_instances.get(cls)
            _shared_instances[cls] = made
        if before is not None:
            before._end(for_good=False)
        return made

    @classmethod
    def reset(cls) -> None:
        """Close what the class used; the next lookup begins anew, with the defaults."""
        with _sharing:
            before = _shared_instances.pop(cls, None)
        if before is not None:
            before._end(for_good=False)

    def __enter__(self) -> Search:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """An engine that was given stays open."""
        self._end(for_good=True)

    def _end(self, *, for_good: bool) -> None:
        self._resources.close(for_good=for_good)
        self._text_vectors.save()
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
        max_results = check_whole("max_results", max_results)
        with self._resources.use() as parts:
            lookup = Lookup(canonical, max_results, parts, self._text_vectors)
            found = lookup.answer(query, self.cache)
        if return_handles:
            return found
        for problem in found.degraded:
            log.warning("lookup without %s", problem)
        return list(found.results)

    def pool(self, query: str) -> list[Hit]:
        """All that a lookup of a few results would rank, best first, with every component: what
        weights can be chosen on."""
        with self._resources.use() as parts:
            return Lookup(canonicalize_query_text(query), 1, parts, self._text_vectors).pool()

    @hybridmethod
    def embedding_lookup(
        self: Search, query_embedding: Vector | Sequence[float], max_results: int = 5
    ) -> list[Hit]:
        """The records of the storage that are nearest to a vector of its model, nearest first."""
        check_whole("max_results", max_results)
        check_row(query_embedding)
        with self._resources.use() as parts:
            if parts.engine is None:
                raise InputError("there is no storage to compare vectors with: give one")
            found = parts.engine.search(
                "",
                vector=query_embedding,
                mode="vector",
                group_by="record",
                limit=max_results,
                filter=parts.filter,
                include_personal=parts.include_personal,
                cache=None if parts.settings.cache else False,
            )
        for problem in found.degraded:
            log.warning("lookup by vector: %s", problem)
        return [
            replace(  # scored by its cosine, whatever fusion made of it
                hit,
                score=hit.signals.get("vectors", {}).get("score", hit.score),
                rrf_score=0.0,
                confidence=None,
                source="storage_vector",
            )
            for hit in found
        ]

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

        if not isinstance(documents, Iterable):
            raise InputError("documents are a list of hits or mappings")
        given = [_as_dict(one) for one in documents]
        missing = [one for one in given if one.get("embedding") is None]
        if missing:
            with self._resources.use() as parts:
                texts = [_text_to_embed(one) for one in missing]
                made = parts.model.load().embed_documents(texts)
            for one, row in zip(missing, made, strict=True):
                one["embedding"] = [float(value) for value in row]
        if query_embedding is not None:
            asked = unit_row(query_embedding)
            for one in given:
                row = unit_row(one["embedding"])
                if row.shape != asked.shape:
                    raise InputError(
                        f"a document's vector has {len(row)} dimensions, the query's {len(asked)}: "
                        "embed both with the same model"
                    )
                one["similarity"] = float(np.clip(row @ asked, -1.0, 1.0))
        return given

    @hybridmethod
    def register(self: Search, name: str, backend: Source | Backend) -> None:
        """Ask this function as well, or in place of the backend that has the name, whose answers
        are forgotten."""
        self._resources.register(name, backend)
        self.cache.clear()


def _as_dict(document: Any) -> dict[str, Any]:
    if isinstance(document, dict):
        return document
    try:
        return dict(document)
    except (TypeError, ValueError):
        raise InputError(f"a document is a hit or a mapping, not {document!r:.60}") from None


def _text_to_embed(document: Mapping[str, Any]) -> str:
    words = next((document[k] for k in ("content", "text", "snippet") if document.get(k)), "")
    title = document.get("title") or ""
    if not isinstance(words, str) or not isinstance(title, str) or not (words or title):
        raise InputError("a document to embed needs text under content, text or snippet")
    return passage(title, "", words)[:LONGEST]
