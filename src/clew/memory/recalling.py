"""What a memory answers: by words and by meaning, by time, for a prompt, for a conversation."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

from clew.filter import Filter
from clew.memory import given, lifecycle
from clew.memory.conversation import Recipe, WorkingMemory, working_memory
from clew.memory.file import MemoryFile
from clew.memory.find import check_query, embedded_query, recalled, search
from clew.memory.given import TimeRange
from clew.memory.identity import DEFAULT
from clew.memory.pack import packed
from clew.memory.results import Recalled, Recollection
from clew.ranking.adjust import Adjust
from clew.text.token_recall import LEAST_RECALL
from clew.timestamps import Moment
from clew.types import Vector

__all__ = ["Embedding", "Recalling"]

Embedding = Vector | Sequence[float]


class Recalling(MemoryFile):
    """The part of `Memory` that reads: all it ever writes is that a memory was accessed."""

    def recall(
        self,
        query: str,
        embedding: Embedding | None = None,
        k: int = 5,
        type_filter: str | Sequence[str] | None = None,
        importance_min: float | None = None,
        time_range: TimeRange | None = None,
        *,
        namespace: str | Sequence[str] = "default",
        tags: str | Sequence[str] | None = None,
        metadata: Mapping[str, Any] | None = None,
        as_of: Moment | None = None,
        fusion: str | None = None,
        recency_boost: float = 0.0,
        importance_boost: float = 0.0,
        mmr: float = 0.0,
        rerank: bool = False,
        floor: float | None = None,
        record_access: bool = True,
        now: Moment | None = None,
    ) -> Recollection:
        """The best `k` for `query`, by words and by meaning, without those that are off its topic.

        Of one namespace, or of several that are named. Filters hold before anything is cut off:
        `time_range` is (from, to) of `created_at`, `as_of` asks what was true at a moment, as far
        as is known today; without it, what is true now is found. `fusion="rrf"` is the plain one.
        `recency_boost` and `importance_boost` (0 to 1) add at most that share of the best score,
        `mmr` is for variety. `floor` is the chance of being relevant that a memory must have (by
        default that of the settings; 0: none is left out). With an embedder whose cosines nobody
        has measured, none is left out for them. Each memory that comes back has been accessed once
        more.
        """
        scope = self._scope(
            namespace,
            now,
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
            floor=self._config.floor if floor is None else floor,
            now=None if now is None else given.moment(now, "now"),
        )
        memories = recalled(
            self.engine, found, scope, "fts" if vector is None else "hybrid", problem=problem
        )
        if record_access:
            self._accesses.note(memories)
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
        namespace = given.check_namespace(namespace)
        scope = self._scope(
            namespace, now, importance_min=importance_min, tags=tags, metadata=metadata
        )
        vector = None
        if embedding is not None:
            vector = given.vector_of(embedding, dim=self.embedding_dim), self._given_model
        moment = time.time() if now is None else given.moment(now, "now")
        found = working_memory(self.engine, query, scope, recipe, now=moment, given=vector)
        if record_access and found:
            self._accesses.note({**entry, "namespace": namespace} for entry in found)
        return found

    def fts_search(self, query: str, k: int = 5, **filters: Any) -> Recollection:
        """By words alone (BM25): those with all of them, and with any only when none has all."""
        check_query(query)
        scope, k = self._scope(**filters), given.check_count("k", k)
        found = search(self.engine, query, scope, k, sources=("all_words",), fusion="rrf")
        return recalled(self.engine, found, scope, "fts", leg="all_words")

    def vector_search(self, embedding: Embedding, k: int = 5, **filters: Any) -> Recollection:
        """By meaning alone: the inner product of vectors of length 1."""
        scope, k = self._scope(**filters), given.check_count("k", k)
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
        scope, k = self._scope(**filters), given.check_count("k", k)
        vector, model, problem = self._query_vector(query, embedding)
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
        kind = "fts" if vector is None else "hybrid"
        return recalled(self.engine, found, scope, kind, problem=problem)

    def _query_vector(
        self, query: str, embedding: Embedding | None
    ) -> tuple[Vector | None, str, str | None]:
        """The query's vector, its model, and what was in the way."""
        if embedding is not None:
            return given.vector_of(embedding, dim=self.embedding_dim), self._given_model, None
        vector, problem = embedded_query(self.engine, query)
        return vector, self.model, problem

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
        return self._recalled(
            self.store.select(scope, limit=given.check_count("k", k), newest=True)
        )

    def get(self, id: str, *, namespace: str | None = None) -> Recalled | None:
        """One memory, whole, whether it has ended or not."""
        self._accesses.flush()
        return next(iter(self._recalled(self._known([id], namespace))), None)

    def history(self, id: str, *, namespace: str | None = None) -> list[Recalled]:
        """A memory and those it took the place of, newest first."""
        return self._recalled(lifecycle.chain(self.store, self._record(id, namespace)))

    def context_pack(self, query: str, token_budget: int = 2000, **options: Any) -> str:
        """What `recall` (with these options) finds, as lines for a prompt, within a budget."""
        budget = given.check_count("token_budget", token_budget)
        return packed(self.recall(query, **{"k": 20, **options}), budget=budget)

    def _scope(
        self,
        namespace: str | Sequence[str] = DEFAULT,
        now: Moment | None = None,
        **filters: Any,
    ) -> Filter:
        """What may be found: in use, and true now. Till the next change of that, the filter is the
        same one, so that what is known of it helps."""
        moment = time.time() if now is None else given.moment(now, "now")
        change = self.store.next_change(moment)
        still = given.LAST if change is None else math.nextafter(change, -math.inf)
        return given.scope(given.check_namespaces(namespace), valid_at=still, **filters)
