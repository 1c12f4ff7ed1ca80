"""Several searches for one query: taken apart, asked at once, put together again.

    query → sub-queries (a chat model's, or by rules) → one search each, in parallel
          → one list by record, with the best of its scores → those far from the query dropped

The searches' scores are compared as they are. Adaptive fusion has scales that do not depend on the
list (parts of the way from unrelated to identical; standard deviations, bounded by what the words
could reach at most), and reciprocal ranks are the same for every list. Putting each list between 0
and 1 first lifts the head of a vague sub-query to the height of the best answer: that cost 0.01 to
0.04 nDCG@10 on pairs of questions, and up to 0.07 on single ones that the rules take apart
(docs/benchmarks/agentic.md).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol

from clew.background import begin, within
from clew.config import Config
from clew.errors import ModelError
from clew.models.chat import load_llm
from clew.protocols import LLM, Embedder, Store, batched
from clew.search.decompose import decompose, propose
from clew.text.analyser import words
from clew.text.parse import parse
from clew.text.passage import passage, titles
from clew.types import Hit, SearchResult, Vector
from clew.validate import unit_row

LEAST_COSINE = 0.25
"""Passages further from the query than this are not about it."""
SEVERAL = 1.1
"""What a record's score is worth when several sub-queries found it. Once, however many."""
AT_HAND = 0.2
"""Seconds for vectors that are known already, where the searches took all there were."""


class Searcher(Protocol):
    """What is asked of an engine here."""

    @property
    def search(self) -> Callable[..., SearchResult]: ...

    @property
    def embed_query(self) -> Callable[..., Vector]: ...

    @property
    def embedder(self) -> Embedder: ...

    @property
    def store(self) -> Store: ...

    @property
    def config(self) -> Config: ...


def search_agentic(
    engine: Searcher,
    query: str,
    limit: int,
    *,
    validate: bool = True,
    llm: LLM | None = None,
    **options: Any,
) -> dict[str, Any]:
    """What `clew.agentic_search` answers from this engine."""
    begun = time.perf_counter()
    options = {"now": time.time(), **options, "limit": limit}
    vector, explain = options.pop("vector", None), bool(options.get("explain", False))
    syntax = options.get("syntax", True)
    asked = parse(query, limit=limit, syntax=syntax)
    query = asked.raw  # as it can be written
    first = begin(partial(_ask, engine, query, {**options, "vector": vector}))
    sub_queries, by, fallback = [query], "rules", None
    if len(words(asked.text, keep_stopwords=True)) > 1:
        if (chat := llm or load_llm(engine.config)) is not None:
            try:
                seconds = engine.config.llm_seconds
                sub_queries, by = propose(chat, query, seconds=seconds, syntax=syntax), "llm"
            except ModelError as error:
                fallback = str(error)  # why the chat model had no say
        if by == "rules":
            sub_queries = decompose(query, syntax=syntax)
    others = [begin(partial(_ask, engine, text, options)) for text in sub_queries[1:]]
    answers = [first(), *(other() for other in others)]
    if answers[0].error is not None:
        raise answers[0].error  # what is wrong with the query is wrong with its parts
    found = _merge(answers)
    degraded = list(dict.fromkeys(problem for answer in answers for problem in answer.degraded))
    checked = _Checked(found[:limit])
    if validate and found and (asked.terms or vector is not None):  # else nothing to be far from
        model = str(answers[0].result.trace.get("model", ""))
        spent = max(answer.ms for answer in answers) / 1e3
        seconds = engine.config.seconds
        # Who waited for a model once does not wait again.
        try:
            checked = within(
                max(seconds - spent, AT_HAND),
                lambda: _drop_far(
                    found, engine, model, _query_vector(engine, asked.text, vector), limit
                ),
            )
        except TimeoutError:
            degraded.append(
                f"validation: no vectors within {seconds:g} s, so nothing was dropped: raise "
                "`deadline`, or leave validation out"
            )
        except ModelError as error:
            degraded.append(f"validation: {error}")
    return {
        "results": [each.to_dict() for each in checked.kept],
        "sub_queries": sub_queries,
        "decomposed": len(sub_queries) > 1,
        "meta": {
            "total_candidates": len(found),
            "returned": len(checked.kept),
            "sub_query_count": len(sub_queries),
            "decomposer": by,
            "fallback": fallback,
            "validated": checked.looked_at,
            "dropped": checked.dropped,
            "suppressed": sum(answer.result.suppressed for answer in answers),
            "degraded": degraded,
            "notes": answers[0].result.to_dict()["notes"],
            "trace": [answer.trace(explain=explain) for answer in answers],
            "total_ms": round((time.perf_counter() - begun) * 1e3, 3),
        },
    }


# ---------------------------------------------------------------------- ask


@dataclass(frozen=True, slots=True)
class _PartAnswer:
    """What one sub-query found."""

    text: str
    result: SearchResult
    ms: float
    error: Exception | None = None

    @property
    def degraded(self) -> tuple[str, ...]:
        failed = (f"sub-query {self.text!r}: {self.error}",) if self.error else ()
        return (*failed, *self.result.degraded)

    def trace(self, *, explain: bool) -> dict[str, Any]:
        told = {
            "query": self.text,
            "hits": len(self.result),
            "ms": round(self.ms, 3),
            "degraded": list(self.degraded),
        }
        return {**told, "search": dict(self.result.trace)} if explain else told


def _ask(engine: Searcher, text: str, options: Mapping[str, Any]) -> _PartAnswer:
    begun = time.perf_counter()
    error: Exception | None = None
    try:  # a record is one hit, whoever found it
        result = engine.search(text, **{**options, "group_by": "record"})
    except Exception as failed:  # one sub-query must not take the others down
        result, error = SearchResult(), failed
    return _PartAnswer(text, result, (time.perf_counter() - begun) * 1e3, error)


# ---------------------------------------------------------------------- put together


@dataclass(frozen=True, slots=True)
class _MergedHit:
    """One record, as the sub-query that scored it highest has it."""

    hit: Hit
    score: float
    found_by: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        return {**self.hit.to_dict(), "score": self.score, "found_by": list(self.found_by)}


def _merge(answers: Sequence[_PartAnswer]) -> list[_MergedHit]:
    """Every record of any answer, best first, then by id."""
    by_record: dict[str, list[tuple[str, Hit]]] = {}
    for answer in answers:
        for hit in answer.result:
            by_record.setdefault(hit.id, []).append((answer.text, hit))
    merged = []
    for finds in by_record.values():
        _, hit = max(finds, key=lambda find: find[1].score)  # the first of equals
        score = hit.score
        if len(finds) > 1:
            score = score * SEVERAL if score > 0 else score / SEVERAL
        merged.append(_MergedHit(hit, score, tuple(text for text, _ in finds)))
    return sorted(merged, key=lambda each: (-each.score, each.hit.id))


# ---------------------------------------------------------------------- validate


class _Checked(NamedTuple):
    kept: list[_MergedHit]
    looked_at: int = 0
    """As many as it took to fill the list, without those that have no vector."""
    dropped: int = 0


def _drop_far(
    found: Sequence[_MergedHit], engine: Searcher, model: str, query: Vector, limit: int
) -> _Checked:
    """Drop those whose passage is far from the query; one without a vector is kept."""
    kept: list[_MergedHit] = []
    looked_at = dropped = 0
    for some in batched(found, limit):
        near = [
            None
            if vector is None or vector.shape != query.shape  # the caller's may be another model's
            else float(query @ vector) >= LEAST_COSINE
            for vector in _passage_vectors([each.hit for each in some], engine, model)
        ]
        looked_at += len(near) - near.count(None)
        dropped += near.count(False)
        kept += [each for each, is_near in zip(some, near, strict=True) if is_near is not False]
        if len(kept) >= limit:
            break
    return _Checked(kept[:limit], looked_at, dropped)


def _query_vector(engine: Searcher, text: str, given: Any) -> Vector:
    """The caller's, at length 1, or the engine's own; a ModelError where there is neither."""
    return engine.embed_query(text) if given is None else unit_row(given)


def _passage_vectors(hits: Sequence[Hit], engine: Searcher, model: str) -> list[Vector | None]:
    """The vector of each hit's passage: the store's, else one made now, else None."""
    chunks = [hit.chunk for hit in hits if hit.chunk is not None]
    known = engine.store.vectors.known(chunks, model=model)
    vectors = [None if hit.chunk is None else known.get(hit.chunk) for hit in hits]
    missing = [i for i, vector in enumerate(vectors) if vector is None]
    if missing:
        texts = [
            passage(titles(h.title, h.metadata), str(h.metadata.get("heading") or ""), h.content)
            for h in (hits[i] for i in missing)
        ]
        try:
            made = engine.embedder.embed_documents(texts)
        except ModelError:
            return vectors
        for i, vector in zip(missing, made, strict=True):
            vectors[i] = vector
    return vectors
