"""A memory's file while it is open, and what it answers: by words and by meaning, by time, for a
prompt, for a conversation."""

from __future__ import annotations

import contextlib
import datetime as dt
import logging
import math
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self, TypedDict, Unpack

from clew import config as settings
from clew.engine import Engine
from clew.errors import ArgumentError, InputError, ModelError, StoreError, check_known
from clew.filter import Filter
from clew.memory.lifecycle import AccessCounter, find_chain
from clew.memory.record import (
    DEFAULT_NAMESPACE,
    LAST_MOMENT,
    Embedding,
    Recalled,
    Recollection,
    TimeRange,
    WorkingMemory,
    check_id,
    check_moment,
    check_namespace,
    check_namespaces,
    check_vector,
    find_records,
    make_scope,
    unknown_id,
)
from clew.models import EXTERNAL, CurrentModel, NullEmbeddingProvider, as_embedder
from clew.protocols import Embedder, Store
from clew.sources import Configured
from clew.sources.store import all_words, keyword, vectors
from clew.sources.tokens import tokens
from clew.storage import is_url, locate
from clew.text.passage import estimate_tokens, fit
from clew.timestamps import Moment
from clew.trust import hide_password
from clew.types import Adjust, Record, Vector
from clew.validate import check_number, check_whole, guarded

_DEFAULT_DIM = 384
_BESIDE = ".clew"
"""Ending of the folder beside the file that has the derived indexes."""
_log = logging.getLogger("clew")
_CURE = "run `clew index` or call `embed()`", "call `reembed()` (`clew reembed --db FILE`)"
"""What an engine advises where vectors are missing, and what helps a memory."""


class RecallOptions(TypedDict, total=False):
    """What `recall` can be told beside its first arguments."""

    namespace: str | Sequence[str]
    tags: str | Sequence[str] | None
    metadata: Mapping[str, Any] | None
    as_of: Moment | None
    """Find what was true then, as far as is known today; without it, what is true now."""
    now: Moment | None
    fusion: str | None
    """`rrf` is the plain one."""
    recency_boost: float
    """0 to 1: the share of the best score that is added at most. So is `importance_boost`."""
    importance_boost: float
    mmr: float
    """0 to 1: for variety."""
    rerank: bool
    floor: float | None
    """The chance of being relevant that a memory must have; by default that of the settings, and
    with 0 none is left out."""
    record_access: bool


_FILTERS = ("namespace", "now", "tags", "metadata", "as_of")
"""Those that say which memories may be found."""


class Recipe(TypedDict, total=False):
    """How many of what `working_memory` gives."""

    new_conversation: bool
    semantic: int
    episodic: int
    candidates: int
    max_age_days: float | None
    """Of episodes that are found by what they say; None: any age."""
    procedural: bool
    """Whether what says how to do something may take the place of a fact."""
    least_recall: float
    least_cosine: float | None
    """None: what suits the model."""


def embed_query(engine: Engine, query: str) -> tuple[Vector | None, str | None]:
    """The query's vector, or why there is none; neither where nothing could be near to it."""
    if not engine.store.indexes.prepare(engine.model):
        return None, None
    try:
        return engine.embed_query(query, seconds=engine.config.seconds), None
    except ModelError as error:
        if not isinstance(engine.embedder, NullEmbeddingProvider):  # the answer says why
            _log.warning("recall by words only: %s", error)
        return None, f"vectors: {error}"


def search_memories(
    engine: Engine,
    query: str,
    scope: Filter,
    k: int,
    *,
    sources: Sequence[str],
    search_type: str = "",
    scores_of: str = "",
    problem: str | None = None,
    **options: Any,
) -> Recollection:
    """Find whole memories, by words as they are: what an agent asks is no query syntax. The scores
    are those of the source `scores_of`, if one is named. A `problem` with the query's vector is
    the first of what degraded the answer."""
    found = engine.search(
        query,
        filter=scope,
        limit=k,
        sources=sources,
        syntax=False,
        cache=False,
        snippets=False,
        include_personal=True,
        group_by="record",
        **{"rerank": False, **options},  # what the settings say is of searches
    )
    problems = (problem, *found.degraded) if problem else found.degraded
    lives = engine.store.lifecycle.get([hit.id for hit in found])
    return Recollection(
        (
            Recalled.of(
                hit.record,
                lives.get(hit.id),
                score=hit.signals[scores_of]["score"] if scores_of else hit.score,
                search_type=search_type,
                signals=hit.signals,
            )
            for hit in found
            # a query without words lists what the filter allows, and has found nothing; another
            # thread may have changed a memory since it was ranked
            if hit.signals and hit.record is not None and scope.allows(hit.record)
        ),
        search_type=search_type,
        suppressed=found.suppressed,
        degraded=tuple(each.replace(*_CURE) for each in problems),
        trace=found.trace,
    )


def _check_query(query: Any) -> None:
    if not isinstance(query, str):
        raise InputError(f"a query is text, not {type(query).__name__}")
    if not query.strip():
        raise InputError("the query is empty: say what to look for, or ask for the latest")


@guarded
class MemoryReader:
    """The part of `Memory` that opens its file and reads: all it ever writes is that a memory was
    accessed."""

    def __init__(
        self,
        db_path: str | Path = "memory.db",
        embedding_dim: int = _DEFAULT_DIM,
        embedder: Any = None,
        *,
        max_memories: int = 100_000,
        create: bool = True,
        first_query: str | None = None,
        **overrides: Any,
    ):
        """`max_memories` is what `evict` keeps at most, `first_query` what will be asked next: it
        is embedded while the file is opened. Other names are settings of Clew."""
        embedding_dim = check_whole("embedding_dim", embedding_dim)
        if not isinstance(db_path, (str, Path)):
            raise InputError(f"db_path is the path of a file, not {db_path!r:.100}")
        self.path, self.name, self._db_path = Path(db_path), str(db_path), db_path
        if is_url(db_path):
            place = locate(str(db_path), Path())
            self.path, self.name = place.path, place.name
        self.max_memories = check_whole("max_memories", max_memories)
        self._create, self._first_query = create, first_query
        self._embedder: Embedder | None = None
        if embedder is not None:
            self._embedder = as_embedder(embedder, dim=embedding_dim)
            with contextlib.suppress(ModelError):  # an API that cannot be asked now
                embedding_dim = self._embedder.dim or embedding_dim
        elif embedding_dim != _DEFAULT_DIM:
            overrides = {"model": "none", **overrides}
        self.embedding_dim = embedding_dim
        self._config = settings.load(None, overrides)
        self._is_open, self._opening = False, threading.Lock()
        self.open()

    def open(self) -> Self:
        """Open it again, after `close`."""
        with self._opening:
            if not self._is_open:
                self._open_engine()
                self._is_open = True
        return self

    def _open_engine(self) -> None:
        config, model = self._config, CurrentModel(self._config, self._embedder)
        if self._first_query:
            model.expect(self._first_query)
        self.store = _open_store(
            self._db_path,
            create=self._create,
            ivf_threshold=config.ivf_threshold,
            busy_seconds=config.busy_seconds,
            synchronous=config.synchronous,
        )
        self._first_query = None
        here = Path()
        sources = {
            "keyword": keyword(here),
            "all_words": all_words(here),
            "vectors": vectors(here),
            "tokens": tokens(here, least=0.0),  # what is too little, a call decides
        }
        configured = {name: Configured(source, kind=name) for name, source in sources.items()}
        self.engine = Engine(self.store, config=config, embedder=model, sources=configured)
        self._accesses = AccessCounter(self.store)

    def close(self) -> None:
        with self._opening:
            if self._is_open:
                self._is_open = False
                self._accesses.close()
                self.engine.close()

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def model(self) -> str:
        """The model whose vectors are made here."""
        return self.engine.model

    @property
    def _given_model(self) -> str:
        """The model of vectors that callers give."""
        return EXTERNAL if self._embedder is None else self._embedder.model

    # ------------------------------------------------------------------ recalling

    def recall(
        self,
        query: str,
        embedding: Embedding | None = None,
        k: int = 5,
        type_filter: str | Sequence[str] | None = None,
        importance_min: float | None = None,
        time_range: TimeRange | None = None,
        **options: Unpack[RecallOptions],
    ) -> Recollection:
        """The best `k` for `query`, by words and by meaning, without those that are off its topic.

        Of one namespace, or of several that are named. Filters hold before anything is cut off:
        `time_range` is (from, to) of `created_at`. With an embedder whose cosines nobody has
        measured, none is left out for them. Each memory that comes back has been accessed once
        more.
        """
        known = RecallOptions.__annotations__
        check_known("Memory.recall has no option", known, *options, kind=ArgumentError)
        filters: Mapping[str, Any] = options
        floor, now = options.get("floor"), options.get("now")
        scope = self._scope(
            type_filter=type_filter,
            importance_min=importance_min,
            time_range=time_range,
            **{name: filters[name] for name in _FILTERS if name in filters},
        )
        memories = self._search(
            query,
            embedding,
            k,
            scope,
            words="keyword",
            fusion=options.get("fusion"),
            adjust=Adjust(
                recency=options.get("recency_boost", 0.0),
                importance=check_number("importance_boost", options.get("importance_boost", 0.0)),
                diversity=check_number("mmr", options.get("mmr", 0.0)),
            ),
            rerank=options.get("rerank", False),
            floor=self._config.floor if floor is None else floor,
            now=None if now is None else check_moment(now, "now"),
        )
        if options.get("record_access", True):
            self._accesses.add(memories)
        return memories

    def explain_absence(
        self,
        namespace: str | Sequence[str] | None = (),
        tags: str | Sequence[str] | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> list[str]:
        """What to say where nothing was recalled: namespaces, tags and metadata that no memory in
        use has, and what there is instead. Of the default namespace; None: of all."""
        from clew.search.advice import unknown_namespaces

        named = (namespace,) if isinstance(namespace, str) else namespace or ()
        if said := unknown_namespaces(named, self.store):
            return [note.text for note in said]
        of = None if namespace is None else named or DEFAULT_NAMESPACE
        return self._explain_filter(make_scope(of), tags, metadata)

    def _explain_filter(
        self, scope: Filter, tags: str | Sequence[str] | None, metadata: Mapping[str, Any] | None
    ) -> list[str]:
        from clew.search.advice import unmet

        if not tags and not metadata:
            return []
        wanted = make_scope(None, tags=tags, metadata=metadata, active=None)
        return [note.text for note in unmet(wanted, scope, self.store, typed=False)]

    def working_memory(
        self,
        query: str,
        embedding: Embedding | None = None,
        *,
        namespace: str = "default",
        importance_min: float | None = None,
        tags: str | Sequence[str] | None = None,
        metadata: Mapping[str, Any] | None = None,
        record_access: bool = True,
        now: Moment | None = None,
        **recipe: Unpack[Recipe],
    ) -> WorkingMemory:
        """What this message of a conversation calls to mind, as plain dicts for a prompt: facts,
        then episodes of the last `max_age_days`, the latest of all first where the conversation is
        new. By token recall and cosine, each cut at its threshold, and reciprocal ranks. A provider
        that fails does not stop the turn: `diagnostics` has the path, and counts of what could not
        take part. An episode's date is `metadata["date"]` (ISO) or when it was remembered."""
        from clew.memory.conversation import make_working_memory

        known = Recipe.__annotations__
        check_known("Memory.working_memory has no option", known, *recipe, kind=ArgumentError)
        namespace = check_namespace(namespace)
        scope = self._scope(
            namespace, now, importance_min=importance_min, tags=tags, metadata=metadata
        )
        row = self._check_vector(embedding)
        given = None if row is None else (row, self._given_model)
        moment = time.time() if now is None else check_moment(now, "now")
        found = make_working_memory(self.engine, query, scope, recipe, now=moment, given=given)
        if record_access and found:
            self._accesses.add({**entry, "namespace": namespace} for entry in found)
        return found

    def fts_search(self, query: str, k: int = 5, **filters: Any) -> Recollection:
        """Find by words alone (BM25): those with all of them; with any only when none has all."""
        _check_query(query)
        return self._search_by("all_words", query, k, filters, search_type="fts")

    def vector_search(self, embedding: Embedding, k: int = 5, **filters: Any) -> Recollection:
        """Find by meaning alone: the inner product of vectors of length 1."""
        vector = check_vector(embedding, dim=self.embedding_dim)
        of = {"vector": vector, "model": self._given_model}
        return self._search_by("vectors", "", k, filters, search_type="vector", **of)

    def _search_by(
        self, source: str, query: str, k: int, filters: Mapping[str, Any], **options: Any
    ) -> Recollection:
        scope, k = self._scope(**filters), check_whole("k", k)
        options |= {"sources": (source,), "scores_of": source, "fusion": "rrf"}
        return search_memories(self.engine, query, scope, k, **options)

    def hybrid_search(
        self,
        query: str,
        embedding: Embedding | None = None,
        k: int = 5,
        rrf_k: int = 60,
        **filters: Any,
    ) -> Recollection:
        """Fuse both by plain reciprocal ranks: Σ 1 / (rrf_k + rank)."""
        scope, plain = self._scope(**filters), {"all_words": 1.0, "vectors": 1.0}
        return self._search(
            query,
            embedding,
            k,
            scope,
            words="all_words",
            fusion="rrf",
            rrf_k=rrf_k,
            weights=plain,
        )

    def _search(
        self,
        query: str,
        embedding: Embedding | None,
        k: int,
        scope: Filter,
        *,
        words: str,
        **options: Any,
    ) -> Recollection:
        """Find by words and by meaning; by words alone where there is no vector."""
        _check_query(query)
        k, problem = check_whole("k", k), None
        vector, model = self._check_vector(embedding), self._given_model
        if vector is None:
            model = self.model
            vector, problem = embed_query(self.engine, query)
        return search_memories(
            self.engine,
            query,
            scope,
            k,
            sources=("all_words",) if vector is None else (words, "vectors"),
            search_type="fts" if vector is None else "hybrid",
            vector=vector,
            model=model,
            problem=problem,
            **options,
        )

    def latest(
        self,
        k: int = 5,
        type_filter: str | Sequence[str] | None = None,
        *,
        namespace: str | Sequence[str] = "default",
        tags: str | Sequence[str] | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> list[Recalled]:
        """The newest, however old they are: what a new conversation begins with."""
        scope = self._scope(namespace, type_filter=type_filter, tags=tags, metadata=metadata)
        return self._recalled(self.store.select(scope, limit=check_whole("k", k), newest=True))

    def list_newest(
        self, scope: Filter, *, limit: int, offset: int = 0
    ) -> tuple[list[Recalled], bool]:
        """The newest that a scope (`make_scope`) allows, from the one at `offset` on, and whether
        there are more."""
        last = offset + check_whole("limit", limit)
        records = self.store.select(scope, limit=min(last + 1, sys.maxsize), newest=True)
        return self._recalled(records[offset:last]), len(records) > last

    def get(self, id: str, *, namespace: str | None = None) -> Recalled | None:
        """One memory, whole, whether it has ended or not."""
        self._accesses.flush()
        return next(iter(self._recalled(self._find([id], namespace))), None)

    def history(self, id: str, *, namespace: str | None = None) -> list[Recalled]:
        """A memory and those it took the place of, newest first."""
        return self._recalled(find_chain(self.store, self._find_one(id, namespace)))

    def context_pack(self, query: str, token_budget: int = 2000, **options: Any) -> str:
        """What `recall` (with these options) finds, as lines for a prompt, within a budget. One
        that does not fit is left out whole, and the next is tried."""
        left = check_whole("token_budget", token_budget)
        lines = (
            f"- [{dt.datetime.fromtimestamp(memory.created_at, dt.UTC).date()}] "
            f"{' '.join(memory.content.split())}"
            for memory in self.recall(query, **{"k": 20, **options})
        )
        return "\n".join(fit(lines, left, lambda line: estimate_tokens(line + "\n")))

    def _scope(
        self,
        namespace: str | Sequence[str] = DEFAULT_NAMESPACE,
        now: Moment | None = None,
        **filters: Any,
    ) -> Filter:
        """What may be found: in use, and true now. Till the next change of that, the filter is the
        same one, so that what is known of it helps."""
        moment = time.time() if now is None else check_moment(now, "now")
        change = self.store.lifecycle.next_change(moment)
        still = LAST_MOMENT if change is None else math.nextafter(change, -math.inf)
        return make_scope(check_namespaces(namespace), valid_at=still, **filters)

    def _check_vector(self, given: Any) -> Vector | None:
        return None if given is None else check_vector(given, dim=self.embedding_dim)

    def _find(self, ids: Sequence[Any], namespace: str | None) -> list[Record]:
        wanted = None if namespace is None else check_namespace(namespace)
        return find_records(self.store, [check_id(each) for each in ids], wanted)

    def _find_one(self, id: str, namespace: str | None) -> Record:
        if not (found := self._find([id], namespace)):
            raise unknown_id(self.store, id, namespace)
        return found[0]

    def _recalled(self, records: Sequence[Record]) -> list[Recalled]:
        lives = self.store.lifecycle.get([record.id for record in records])
        return [Recalled.of(record, lives.get(record.id)) for record in records]


def _open_store(db_path: str | Path, *, create: bool, **options: Any) -> Store:
    """The store in this one file; its indexes are beside it and can be deleted at any time."""
    from clew import store as stores

    if is_url(db_path):
        return stores.open_store(str(db_path), base=Path(), create=create, **options)
    if str(db_path) == ":memory:":
        raise StoreError("a memory is a file, so that it lasts: give a path, in a temporary folder")
    path = Path(db_path).expanduser()
    try:
        path.stat()
    except FileNotFoundError:
        pass
    except (OSError, ValueError) as error:  # a name that cannot be one
        raise StoreError(f"{str(path)!r:.200} is no path of a file: {error}") from None
    if path.is_dir():
        raise StoreError(
            f"{path} is a folder: give the file of the memory, such as {path}/memory.db"
        )
    if not path.parent.is_dir():
        said = hide_password(str(path.parent))  # it may be an address that lacks its scheme
        raise StoreError(f"there is no folder {said}: make it first, or check the path")
    if not create and not path.exists():
        raise StoreError(f"there is no memory in {path}: check the path, or remember something")
    beside = path.with_name(path.name + _BESIDE)
    return stores.EmbeddedStore(beside, database=path, create=create, **options)
