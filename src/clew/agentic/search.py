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
from functools import cached_property, partial
from typing import Any, NamedTuple

from clew.agentic.decompose import decompose
from clew.agentic.passages import passage_vectors, query_vector
from clew.agentic.propose import propose
from clew.background import begin, within
from clew.config import Config
from clew.engine import Engine, find_root, open_engine
from clew.errors import ModelError, StoreError
from clew.models.llm import load_llm
from clew.protocols import LLM
from clew.text.analyser import words
from clew.text.parse import parse
from clew.types import Hit, SearchResult, Vector

__all__ = ["LEAST_COSINE", "SEVERAL", "agentic_search"]

LEAST_COSINE = 0.25
"""Passages further from the query than this are not about it."""
SEVERAL = 1.1
"""What a record's score is worth when several sub-queries found it. Once, however many."""


AT_HAND = 0.2
"""Seconds for vectors that are known already, where the searches took all there were."""


def agentic_search(
    query: str,
    limit: int = 10,
    validate: bool = True,
    *,
    engine: Engine | None = None,
    llm: LLM | None = None,
    **search_options: Any,
) -> dict[str, Any]:
    """The best `limit` records for all that `query` asks, each with the sub-queries it answers.

    Without `engine` the nearest store at or above the current folder is opened for this call. `llm`
    takes the place of the configured chat model. `search_options` are those of `Engine.search`; a
    `vector` is the query's own, so that its parts are embedded as usual.

    Gives plain data: "results" (hits with "found_by"), "sub_queries" (the query itself first),
    "decomposed" (whether there is more than that), and "meta": how it came about.
    """
    if engine is None:
        root = find_root()
        if root is None:
            raise StoreError(
                "no Clew store here or above: run `clew index` in the folder to search, or give "
                "an engine"
            )
        with open_engine(root, create=False) as opened:
            return agentic_search(query, limit, validate, engine=opened, llm=llm, **search_options)
    begun = time.perf_counter()
    options = {"now": time.time(), **search_options, "limit": limit}
    vector, explain = options.pop("vector", None), options.pop("explain", False)
    syntax = options.get("syntax", True)
    asked = parse(query, limit=limit, syntax=syntax)
    query = asked.raw  # as it can be written
    first = begin(partial(_ask, engine, query, {**options, "vector": vector}))
    plan = _Plan([query])
    if len(words(asked.text, keep_stopwords=True)) > 1:
        plan = _take_apart(query, llm or load_llm(engine.config), engine.config, syntax=syntax)
    others = [begin(partial(_ask, engine, text, options)) for text in plan.sub_queries[1:]]
    answers = [first(), *(other() for other in others)]
    if answers[0].error is not None:
        raise answers[0].error  # what is wrong with the query is wrong with its parts
    found = _merged(answers)
    degraded = list(dict.fromkeys(problem for answer in answers for problem in answer.degraded))
    checked = _Checked(found[:limit])
    if validate and found and (asked.terms or vector is not None):  # else nothing to be far from
        meant = partial(query_vector, engine, asked.text, vector)
        try:
            spent = max(answer.ms for answer in answers) / 1e3
            checked = _validated(found, engine, answers[0].model, meant, limit, spent=spent)
        except ModelError as error:
            degraded.append(f"validation: {error}")
    return {
        "results": [each.to_dict() for each in checked.kept],
        "sub_queries": plan.sub_queries,
        "decomposed": len(plan.sub_queries) > 1,
        "meta": {
            "total_candidates": len(found),
            "returned": len(checked.kept),
            "sub_query_count": len(plan.sub_queries),
            "decomposer": plan.by,
            "fallback": plan.fallback,
            "validated": checked.looked_at,
            "dropped": checked.dropped,
            "suppressed": sum(answer.result.suppressed for answer in answers),
            "degraded": degraded,
            "notes": answers[0].result.to_dict()["notes"],
            "trace": [answer.trace(explain=explain) for answer in answers],
            "total_ms": round((time.perf_counter() - begun) * 1e3, 3),
        },
    }


# ---------------------------------------------------------------------- take apart


class _Plan(NamedTuple):
    sub_queries: list[str]
    by: str = "rules"
    fallback: str | None = None
    """Why the chat model had no say."""


def _take_apart(query: str, llm: LLM | None, config: Config, *, syntax: bool) -> _Plan:
    if llm is None:
        return _Plan(decompose(query, syntax=syntax))
    try:
        return _Plan(propose(llm, query, seconds=config.llm_seconds, syntax=syntax), "llm")
    except ModelError as error:
        return _Plan(decompose(query, syntax=syntax), fallback=str(error))


# ---------------------------------------------------------------------- ask


@dataclass(frozen=True)
class _Answer:
    """What one sub-query found."""

    text: str
    result: SearchResult
    ms: float
    error: Exception | None = None

    @property
    def degraded(self) -> tuple[str, ...]:
        failed = (f"sub-query {self.text!r}: {self.error}",) if self.error else ()
        return (*failed, *self.result.degraded)

    @property
    def model(self) -> str:
        return str(self.result.trace.get("model", ""))

    @cached_property
    def chunks(self) -> dict[tuple[str, str], int | None]:
        """The store's numbers of the passages that hits show, by source and record."""
        lists = self.result.trace.get("lists", {})
        return {
            (source, row["id"]): row.get("chunk")
            for source, listed in lists.items()
            for row in reversed(listed)  # the first of each counts
        }

    def trace(self, *, explain: bool) -> dict[str, Any]:
        told = {
            "query": self.text,
            "hits": len(self.result),
            "ms": round(self.ms, 3),
            "degraded": list(self.degraded),
        }
        return {**told, "search": dict(self.result.trace)} if explain else told


def _ask(engine: Engine, text: str, options: Mapping[str, Any]) -> _Answer:
    begun = time.perf_counter()
    error: Exception | None = None
    try:
        # With explain: its lists know the passages. A record is one hit, whoever found it.
        result = engine.search(text, **{**options, "group_by": "record", "explain": True})
    except Exception as failed:  # one sub-query must not take the others down
        result, error = SearchResult(), failed
    return _Answer(text, result, (time.perf_counter() - begun) * 1e3, error)


# ---------------------------------------------------------------------- put together


@dataclass(frozen=True, slots=True)
class _Found:
    """One record, as the sub-query that scored it highest has it."""

    hit: Hit
    score: float
    answer: _Answer
    found_by: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        return {**self.hit.to_dict(), "score": self.score, "found_by": list(self.found_by)}


def _merged(answers: Sequence[_Answer]) -> list[_Found]:
    """Every record of any answer, best first, then by id."""
    by_record: dict[str, list[tuple[_Answer, Hit]]] = {}
    for answer in answers:
        for hit in answer.result:
            by_record.setdefault(hit.id, []).append((answer, hit))
    found = []
    for finds in by_record.values():
        answer, hit = max(finds, key=lambda find: find[1].score)  # the first of equals
        score = hit.score
        if len(finds) > 1:
            score = score * SEVERAL if score > 0 else score / SEVERAL
        found.append(_Found(hit, score, answer, tuple(each.text for each, _ in finds)))
    return sorted(found, key=lambda each: (-each.score, each.hit.id))


# ---------------------------------------------------------------------- validate


class _Checked(NamedTuple):
    kept: list[_Found]
    looked_at: int = 0
    """As many as it took to fill the list, without those that have no vector."""
    dropped: int = 0


def _validated(
    found: Sequence[_Found],
    engine: Engine,
    model: str,
    query: Callable[[], Vector],
    limit: int,
    *,
    spent: float,
) -> _Checked:
    """Without those whose passage is far from the query; one without a vector is kept.

    A ModelError where the query cannot be embedded, or not in what the searches, which `spent` so
    many seconds, have left of the deadline: who waited for a model once does not wait again.
    """
    seconds = engine.config.seconds
    try:
        return within(
            max(seconds - spent, AT_HAND), lambda: _near(found, engine, model, query(), limit)
        )
    except TimeoutError:
        raise ModelError(
            f"no vectors within {seconds:g} s, so nothing was dropped: raise `deadline`, or leave "
            "validation out"
        ) from None


def _near(
    found: Sequence[_Found], engine: Engine, model: str, query: Vector, limit: int
) -> _Checked:
    kept: list[_Found] = []
    looked_at = dropped = 0
    for i in range(0, len(found), limit):
        some = found[i : i + limit]
        shown = [(e.hit, e.answer.chunks.get((e.hit.source, e.hit.id))) for e in some]
        near = [
            None
            if vector is None or vector.shape != query.shape  # the caller's may be another model's
            else float(query @ vector) >= LEAST_COSINE
            for vector in passage_vectors(shown, engine, model=model)
        ]
        looked_at += len(near) - near.count(None)
        dropped += near.count(False)
        kept += [each for each, is_near in zip(some, near, strict=True) if is_near is not False]
        if len(kept) >= limit:
            break
    return _Checked(kept[:limit], looked_at, dropped)
