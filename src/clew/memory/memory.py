"""Memory: what an agent keeps. Remember, recall, forget, and what happens in between."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import replace
from pathlib import Path
from typing import Any

from clew import config as settings
from clew.engine import Engine
from clew.errors import InputError, ModelError
from clew.filter import Filter
from clew.memory import given, lifecycle
from clew.memory.accesses import Accesses
from clew.memory.conversation import Recipe, WorkingMemory, working_memory
from clew.memory.find import check_query, embedded_query, recalled, search
from clew.memory.given import TimeRange
from clew.memory.keep import check_ids, embedded, entry_of, prepared, rewrite, written
from clew.memory.opening import as_embedder, open_store
from clew.memory.pack import packed
from clew.memory.results import Recalled, Recollection, Remembered
from clew.models.current import EXTERNAL, CurrentModel
from clew.moments import Moment
from clew.protocols import Embedder, Progress
from clew.ranking.adjust import Adjust
from clew.sources.all_words import all_words
from clew.sources.configure import Configured
from clew.sources.keyword import keyword
from clew.sources.tokens import tokens
from clew.sources.vectors import vectors
from clew.text import tokenise
from clew.text.recall import LEAST_RECALL
from clew.types import Record, Vector

__all__ = ["Memory"]

Embedding = Vector | Sequence[float]
DIM = 384
BATCH = 1_000
"""Memories of one transaction."""
FAR_APART = 0.5
"""A cosine below which vectors object to two memories becoming one. How near is near depends on the
model, so this is far."""


class Memory:
    """One file of memories. Thread-safe, shared with other processes; a context manager.

    >>> with clew.Memory("memory.db") as memory:
    ...     memory.remember("Ana is allergic to walnuts", importance=0.9, tags=["health"])
    ...     memory.recall("which nuts must be avoided?")

    Namespaces never see each other. `embedder` makes the vectors: an embedder, or a function from
    a text to a vector of `embedding_dim` numbers. Without one it is the configured model if its
    weights are here; `embedding_dim` other than its own says that vectors are given. What has no
    vector is found by its words.
    """

    def __init__(
        self,
        db_path: str | Path = "memory.db",
        embedding_dim: int = DIM,
        embedder: Any = None,
        *,
        max_memories: int = 100_000,
        create: bool = True,
        first_query: str | None = None,
        **overrides: Any,
    ):
        """`max_memories` is what `evict` keeps at most, `first_query` what will be asked next: it
        is embedded while the file is opened. Other names are settings of Clew."""
        embedding_dim = given.check_count("embedding_dim", embedding_dim)
        if not isinstance(db_path, (str, Path)):
            raise InputError(f"db_path is the path of a file, not {db_path!r:.100}")
        self.path = Path(db_path)
        self.max_memories = given.check_count("max_memories", max_memories)
        self._create, self._first_query = create, first_query
        self._embedder: Embedder | None = None
        if embedder is not None:
            self._embedder = as_embedder(embedder, dim=embedding_dim)
            with contextlib.suppress(ModelError):  # an API that cannot be asked now
                embedding_dim = self._embedder.dim or embedding_dim
        elif embedding_dim != DIM:
            overrides = {"model": "none", **overrides}
        self.embedding_dim = embedding_dim
        self._config = settings.load(None, overrides)
        self._open, self._opening = False, threading.Lock()
        self.open()

    # ------------------------------------------------------------------ opening

    def open(self) -> Memory:
        """Again, after `close`."""
        with self._opening:
            if not self._open:
                self._open_file()
                self._open = True
        return self

    def _open_file(self) -> None:
        config, model = self._config, CurrentModel(self._config, self._embedder)
        if self._first_query:
            model.expect(self._first_query)
        store = open_store(
            self.path,
            create=self._create,
            ivf_threshold=config.ivf_threshold,
            busy_seconds=config.busy_seconds,
            synchronous=config.synchronous,
        )
        if self._first_query:
            tokenise.prepare()  # while the model loads
            self._first_query = None
        here = Path()
        legs = {
            "keyword": keyword(here),
            "all_words": all_words(here),
            "vectors": vectors(here),
            "tokens": tokens(here, least=0.0),  # what is too little, a call decides
        }
        self.engine = Engine(
            store,
            config=config,
            embedder=model,
            sources={name: Configured(source, kind=name) for name, source in legs.items()},
        )
        self.store = store
        self._accesses = Accesses(store)

    def close(self) -> None:
        with self._opening:
            if self._open:
                self._open = False
                self._accesses.close()
                self.engine.close()

    def __enter__(self) -> Memory:
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

    # ------------------------------------------------------------------ remembering

    def remember(
        self,
        content: str,
        type: str = "semantic",
        importance: float = 0.5,
        tags: str | Sequence[str] = (),
        metadata: Mapping[str, Any] | None = None,
        embedding: Embedding | None = None,
        namespace: str = "default",
        *,
        id: str | None = None,
        created_at: Moment | None = None,
    ) -> Remembered:
        """Keep it. What is known word for word is not kept twice: then its id comes back."""
        item = {
            "content": content,
            "type": type,
            "importance": importance,
            "tags": tags,
            "metadata": metadata,
            "embedding": embedding,
            "namespace": namespace,
            "id": id,
            "created_at": created_at,
        }
        return self.remember_many([item])[0]

    def remember_many(
        self, items: Iterable[Mapping[str, Any]], *, progress: Progress | None = None
    ) -> list[Remembered]:
        """Several at once, much faster than one by one. All are checked before any is written; they
        are written in batches, each whole or not at all."""
        items, now = list(items), time.time()
        for item in items:
            if not isinstance(item, Mapping):
                raise InputError(f"a memory is a mapping of its fields, not {item!r:.100}")
        records = [given.record_of(item, now=now) for item in items]
        rows = [
            None
            if item.get("embedding") is None
            else given.vector_of(item["embedding"], dim=self.embedding_dim)
            for item in items
        ]
        if len(records) > BATCH:  # else the store says it, and writes nothing
            named = (
                r for r, item in zip(records, items, strict=True) if item.get("id") is not None
            )
            check_ids(self.store, named)
        done: list[Remembered] = []
        for i in range(0, len(records), BATCH):
            ready = prepared(self.engine, records[i : i + BATCH], rows[i : i + BATCH])
            done += written(self.engine, ready, given_model=self._given_model)
            if progress:
                progress("remembering", len(done), len(records))
        if len(done) >= BATCH:
            for model in {self.model, self._given_model}:
                self.store.prepare(model)
            self.store.refresh(bulk=True)
        return done

    def update(
        self,
        id: str,
        content: str | None = None,
        type: str | None = None,
        importance: float | None = None,
        tags: str | Sequence[str] | None = None,
        metadata: Mapping[str, Any] | None = None,
        embedding: Embedding | None = None,
        *,
        namespace: str | None = None,
    ) -> Remembered:
        """Change it in place, for what was wrong all along; `supersede` keeps what was true."""
        row = None if embedding is None else given.vector_of(embedding, dim=self.embedding_dim)
        told = {
            "content": content,
            "type": type,
            "importance": importance,
            "tags": tags,
            "metadata": metadata,
        }
        while True:
            old = self._record(id, namespace)
            new, made = given.changed(old, told, now=time.time()), None
            if row is not None or new.content != old.content:
                made = entry_of(self.engine, new, row)
                if row is None:
                    (made,) = embedded(self.engine, [made])
            with self.store.atomic():
                if self._record(id, namespace) != old:
                    continue  # somebody was quicker: what they said stays
                if made is None:
                    rewrite(self.engine, new)
                else:
                    self.store.put([made], model=self.model if row is None else self._given_model)
                return Remembered(id, "updated", id in self.store.vectors_of([id]))

    def supersede(
        self, id: str, content: str, *, new_id: str | None = None, **fields: Any
    ) -> Remembered:
        """What was true till now is no longer: `content` takes its place, with its type, tags,
        importance and metadata unless `fields` (as for `remember`) say otherwise. The old one is
        found by `as_of` and in `history`."""
        old = self._record(id, fields.pop("namespace", None))
        item = {
            "type": old.type,
            "importance": old.importance,
            "tags": old.tags,
            "metadata": old.metadata,
            **fields,
            "id": new_id,
            "content": content,
            "namespace": old.collection,
        }
        record, row = given.record_of(item, now=time.time()), item.get("embedding")
        if row is not None:
            row = given.vector_of(row, dim=self.embedding_dim)
        ready = prepared(self.engine, [record], [row])
        at = max(moment for moment in (record.created_at, old.created_at) if moment is not None)
        with self.store.atomic():
            # ended first: else the very same text would count as known
            if not self.store.end([id], at=at, reason="superseded", successor=record.id):
                raise InputError(f"the memory {id!r} has ended already: restore() it first")
            (made,) = written(self.engine, ready, given_model=self._given_model)
            if made.id != record.id:  # known already, as another memory
                life = self.store.lives([id])[id]
                self.store.set_lives({id: replace(life, successor=made.id)})
        return made

    def history(self, id: str, *, namespace: str | None = None) -> list[Recalled]:
        """A memory and those it took the place of, newest first."""
        self._record(id, namespace)
        return self._recalled(self.store.get(lifecycle.chain(self.store, id)))

    # ------------------------------------------------------------------ recalling

    def recall(
        self,
        query: str,
        embedding: Embedding | None = None,
        k: int = 5,
        type_filter: str | Sequence[str] | None = None,
        importance_min: float | None = None,
        time_range: TimeRange | None = None,
        *,
        namespace: str = "default",
        tags: str | Sequence[str] | None = None,
        metadata: Mapping[str, Any] | None = None,
        as_of: Moment | None = None,
        fusion: str | None = None,
        recency_boost: float = 0.0,
        importance_boost: float = 0.0,
        mmr: float = 0.0,
        rerank: bool = False,
        record_access: bool = True,
        now: Moment | None = None,
    ) -> Recollection:
        """The best `k` for `query`, by words and by meaning.

        Filters hold before anything is cut off: `time_range` is (from, to) of `created_at`, `as_of`
        asks what held at a moment. `fusion="rrf"` is the plain one. `recency_boost` and
        `importance_boost` (0 to 1) add at most that share of the best score, `mmr` is for variety.
        Each memory that comes back has been accessed once more.
        """
        scope = given.scope(
            given.check_namespace(namespace),
            type_filter=type_filter,
            importance_min=importance_min,
            time_range=time_range,
            tags=tags,
            metadata=metadata,
            as_of=as_of,
        )
        check_query(query)
        k = given.check_count("k", k)
        vector, model, problem = self._query_vector(query, embedding)
        adjust = Adjust(recency=recency_boost, importance=importance_boost, diversity=mmr)
        found = search(
            self.engine,
            query,
            scope,
            k,
            sources=("all_words",) if vector is None else ("keyword", "vectors"),
            vector=vector,
            model=model,
            fusion=fusion,
            adjust=adjust,
            rerank=rerank,
            now=None if now is None else given.moment(now, "now"),
        )
        memories = recalled(self.engine, found, scope, "fts" if vector is None else "hybrid")
        if problem:
            memories.diagnostics["degraded"] = (problem, *memories.diagnostics["degraded"])
        if record_access:
            self._accesses.note(memory.id for memory in memories)
        return memories

    def working_memory(
        self,
        query: str,
        embedding: Embedding | None = None,
        *,
        namespace: str = "default",
        new_conversation: bool = False,
        max_age_days: float | None = 30,
        semantic: int = 5,
        episodic: int = 2,
        candidates: int = 20,
        procedural: bool = True,
        least_recall: float = LEAST_RECALL,
        least_cosine: float | None = None,
        importance_min: float | None = None,
        tags: str | Sequence[str] | None = None,
        metadata: Mapping[str, Any] | None = None,
        record_access: bool = True,
        now: Moment | None = None,
    ) -> WorkingMemory:
        """What this message of a conversation calls to mind, as plain dicts for a prompt: facts,
        then episodes of the last `max_age_days`, the latest of all first where the conversation is
        new. By token recall and cosine, each cut at its threshold (`least_cosine`: by default what
        suits the model), and reciprocal ranks. `procedural` ones stand among the facts. A provider
        that fails does not stop the turn: `diagnostics` has the path, and counts of what could not
        take part. An episode's date is `metadata["date"]` (ISO) or when it was remembered."""
        recipe = Recipe(
            semantic=semantic,
            episodic=episodic,
            candidates=candidates,
            max_age_days=max_age_days,
            procedural=procedural,
            new_conversation=new_conversation,
            least_recall=least_recall,
            least_cosine=least_cosine,
        )
        scope = given.scope(namespace, importance_min=importance_min, tags=tags, metadata=metadata)
        vector = None
        if embedding is not None:
            vector = given.vector_of(embedding, dim=self.embedding_dim), self._given_model
        moment = time.time() if now is None else given.moment(now, "now")
        found = working_memory(self.engine, query, scope, recipe, now=moment, given=vector)
        if record_access and found:
            self._accesses.note(entry["id"] for entry in found)
        return found

    def fts_search(self, query: str, k: int = 5, **filters: Any) -> Recollection:
        """By words alone (BM25): those with all of them, and with any only when none has all."""
        check_query(query)
        scope, k = _scope(filters), given.check_count("k", k)
        found = search(self.engine, query, scope, k, sources=("all_words",), fusion="rrf")
        return recalled(self.engine, found, scope, "fts", leg="all_words")

    def vector_search(self, embedding: Embedding, k: int = 5, **filters: Any) -> Recollection:
        """By meaning alone: the inner product of vectors of length 1."""
        scope, k = _scope(filters), given.check_count("k", k)
        vector = given.vector_of(embedding, dim=self.embedding_dim)
        found = search(
            self.engine,
            "",
            scope,
            k,
            sources=("vectors",),
            vector=vector,
            model=self._given_model,
            fusion="rrf",
        )
        return recalled(self.engine, found, scope, "vector", leg="vectors")

    def hybrid_search(
        self,
        query: str,
        embedding: Embedding | None = None,
        k: int = 5,
        rrf_k: int = 60,
        **filters: Any,
    ) -> Recollection:
        """Plain reciprocal rank fusion of both: Σ 1 / (rrf_k + rank)."""
        check_query(query)
        scope, k = _scope(filters), given.check_count("k", k)
        vector, model, _ = self._query_vector(query, embedding)
        found = search(
            self.engine,
            query,
            scope,
            k,
            sources=("all_words",) if vector is None else ("all_words", "vectors"),
            vector=vector,
            model=model,
            fusion="rrf",
            rrf_k=rrf_k,
        )
        return recalled(self.engine, found, scope, "fts" if vector is None else "hybrid")

    def latest(
        self,
        k: int = 5,
        type_filter: str | Sequence[str] | None = None,
        *,
        namespace: str = "default",
        tags: str | Sequence[str] | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> list[Recalled]:
        """The newest, however old they are: what a new conversation begins with."""
        scope = given.scope(
            given.check_namespace(namespace), type_filter=type_filter, tags=tags, metadata=metadata
        )
        return self._recalled(
            self.store.select(scope, limit=given.check_count("k", k), newest=True)
        )

    def get(self, id: str, *, namespace: str | None = None) -> Recalled | None:
        """One memory, whole, whether it has ended or not."""
        self._accesses.flush()
        return next(iter(self._recalled(self._known([id], namespace))), None)

    def context_pack(self, query: str, token_budget: int = 2000, **options: Any) -> str:
        """What `recall` (with these options) finds, as lines for a prompt, within a budget."""
        budget = given.check_count("token_budget", token_budget)
        return packed(self.recall(query, **{"k": 20, **options}), budget=budget)

    def _query_vector(
        self, query: str, embedding: Embedding | None
    ) -> tuple[Vector | None, str, str | None]:
        """The query's vector, its model, and what was in the way."""
        if embedding is not None:
            return given.vector_of(embedding, dim=self.embedding_dim), self._given_model, None
        vector, problem = embedded_query(self.engine, query)
        return vector, self.model, problem

    # ------------------------------------------------------------------ forgetting and keeping

    def forget(self, id: str, hard: bool = False, *, namespace: str | None = None) -> bool:
        """Softly: it is no longer found, and `restore` brings it back. `hard`: it is gone for good,
        and `vacuum` leaves no trace of it. Whether there was one to forget."""
        if not self._known([id], namespace):
            return False
        if hard:
            return lifecycle.buried(self.store, id)
        return bool(self.store.end([id], at=time.time(), reason="forgotten"))

    def restore(self, id: str | Sequence[str], *, namespace: str | None = None) -> int:
        """Bring back what was forgotten, evicted, superseded or consolidated; how many."""
        ids = list(id) if isinstance(id, (Sequence, Set)) and not isinstance(id, str) else [id]
        return len(self.store.revive([record.id for record in self._known(ids, namespace)]))

    def feedback(
        self, id: str, useful: bool = True, *, namespace: str | None = None
    ) -> dict[str, Any]:
        """Say whether it helped: its importance moves a little, so its place in the queue of what
        is given up first does too."""
        if not isinstance(useful, bool):
            raise InputError(f"useful is True or False, not {useful!r:.100}")
        with self.store.atomic():
            record = self._record(id, namespace)
            self.store.rated(id, useful=int(useful), useless=int(not useful))
            importance = lifecycle.after_feedback(record.importance, useful=useful)
            if importance != record.importance:
                rewrite(self.engine, replace(record, importance=importance))
            life = self.store.lives([id])[id]
        return {
            "id": id,
            "useful": life.useful,
            "useless": life.useless,
            "importance": importance,
        }

    def evict(
        self,
        max_memories: int | None = None,
        *,
        namespace: str | None = None,
        dry_run: bool = False,
    ) -> list[dict[str, Any]]:
        """End what is above `max_memories`, lowest priority first; `restore` brings it back."""
        self._accesses.flush()
        keep = self.max_memories if max_memories is None else max_memories
        keep = given.check_count("max_memories", keep, least=0)
        now = time.time()
        least = lifecycle.least(self.store.ledger(given.scope(namespace)), keep=keep, now=now)
        if not dry_run:
            ended = set(self.store.end([name for name, _ in least], at=now, reason="evicted"))
            least = [one for one in least if one[0] in ended]
        texts = {record.id: record.content for record in self.store.get([n for n, _ in least])}
        return [{"id": n, "priority": p, "content": texts.get(n, "")} for n, p in least]

    def consolidate(
        self,
        namespace: str | None = None,
        *,
        threshold: float = FAR_APART,
        ignore: str | Sequence[str] = (),
        dry_run: bool = False,
    ) -> list[dict[str, Any]]:
        """Make one of memories of one namespace and type that say the same: the most important is
        kept, else the oldest, with the others' tags, metadata and accesses; those end, and
        `restore` brings them back. What differs in a number, a name, a date or a negation stays
        apart, and so do two values of one metadata key unless `ignore` names it, episodes of
        different days, and vectors with a cosine below `threshold`."""
        from clew.memory.consolidate import consolidate

        scope, threshold = given.scope(namespace), given.check_share("threshold", threshold)
        keys = (ignore,) if isinstance(ignore, str) else tuple(ignore)
        self._accesses.flush()
        now = time.time()
        return consolidate(
            self.engine, scope, threshold=threshold, ignore=keys, now=now, dry_run=dry_run
        )

    def stats(self) -> dict[str, Any]:
        """Counts by namespace, type and state; vectors by model; sizes."""
        self._accesses.flush()
        return {
            "path": str(self.path),
            "max_memories": self.max_memories,
            **lifecycle.counts(self.store.tally()),
            "model": self.model,
            "embedding_dim": self.embedding_dim,
            **{
                key: value
                for key, value in self.store.stats(model=self.model).items()
                if key in ("models", "vectors", "embedded", "generation", "bytes")
            },
        }

    # ------------------------------------------------------------------ out and in

    def export_json(
        self,
        path: str | Path | None = None,
        *,
        namespace: str | None = None,
        ended: bool = True,
        embeddings: bool = True,
    ) -> dict[str, Any] | int:
        """Everything there is to know of the memories: as plain data, or written to a file (one
        memory a line where that ends in .jsonl; also .gz) that is whole or not there; then the
        answer is how many. Without `ended`, only what can be found."""
        from clew.memory import portable

        self._accesses.flush()
        scope = given.scope(namespace, active=None if ended else True)
        memories = portable.exported(self.engine, scope, embeddings=embeddings)
        if path is None:
            named = {"format": portable.FORMAT, "version": portable.VERSION}
            return {**named, "memories": list(memories)}
        file = Path(path).expanduser()
        if file.exists() and file.samefile(self.path.expanduser()):
            raise InputError(f"{file} is the memory itself: export to another file")
        return portable.write(memories, file)

    def import_json(
        self,
        source: str | Path | Mapping[str, Any] | Iterable[Mapping[str, Any]],
        *,
        embed: bool = True,
        progress: Progress | None = None,
    ) -> dict[str, int]:
        """Bring memories back as they were exported, from a file, from what `export_json` gave, or
        from mappings with those names; how many were created, updated and unchanged. What has the
        id of one that is here takes its place. Twice is the same as once. What comes without a
        vector gets one, unless `embed` is False."""
        from clew.memory.portable import imported

        self._accesses.flush()
        return imported(
            self.engine,
            source,
            model=self._given_model,
            dim=self.embedding_dim,
            embed=embed,
            progress=progress,
        )

    def reembed(self, *, progress: Progress | None = None) -> int:
        """Give every memory a vector of this model, those with another's too; how many got one."""
        return self.engine.reembed(progress=progress)

    def optimise(self, *, progress: Progress | None = None) -> None:
        """Bring the indexes into their best shape now, after many were remembered at once.
        Otherwise a later recall starts that in the background."""
        for model in {self.model, self._given_model}:
            self.store.prepare(model)
        self.store.refresh(progress=progress, optimise=True)

    def vacuum(self) -> None:
        """Give back the space of what is gone for good, and leave no trace of it."""
        self._accesses.flush()
        self.engine.vacuum()

    def _known(self, ids: Sequence[Any], namespace: str | None) -> list[Record]:
        """Those that there are, of this namespace if one is named."""
        wanted = None if namespace is None else given.check_namespace(namespace)
        found = self.store.get([given.check_id(each) for each in ids])
        return [record for record in found if wanted in (None, record.collection)]

    def _record(self, id: str, namespace: str | None) -> Record:
        if not (found := self._known([id], namespace)):
            where = "" if namespace is None else f" in {namespace!r}"
            raise InputError(f"there is no memory {id!r}{where}: see `recall` or `clew memories`")
        return found[0]

    def _recalled(self, records: Sequence[Record]) -> list[Recalled]:
        lives = self.store.lives([record.id for record in records])
        return [Recalled.of(record, lives.get(record.id)) for record in records]


def _scope(filters: dict[str, Any]) -> Filter:
    """Of the searches that take the same filters as `recall`, and always one namespace."""
    return given.scope(given.check_namespace(filters.pop("namespace", "default")), **filters)
