"""The one path every search takes: plan → collect → fuse → adjust → rerank → confidence → snippet.

Front ends differ in words only; whatever they are, they end up here with a `Query`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

from clew.config import Config, is_calibrated
from clew.errors import ConfigError, ModelError
from clew.protocols import Context, Reranker, Store
from clew.query import parse as parsing
from clew.query.collect import Collector, Outcome
from clew.query.plan import Asked
from clew.ranking.adaptive import Facts, share_of_vectors, signs, trust_in_vectors
from clew.ranking.adjust import Adjust, adjusted, diversified
from clew.ranking.confidence import Chance, Judge, confidence
from clew.ranking.fuse import Fused, fuse
from clew.ranking.rerank import HEAD, blended, read
from clew.text.counted import counted
from clew.text.passage import passage as as_read
from clew.text.snippet import Snippet, matcher, snippet
from clew.text.tokenise import Matcher
from clew.types import Candidate, Hit, Passage, Query, SearchResult, Vector

__all__ = ["Clock", "SearchContext", "run"]


class SearchContext(Context, Protocol):
    """What the sources of one search share, and what the trace says of it."""

    @property
    def has_vector(self) -> bool:
        """Whether the caller gave the query's vector, so that words are not needed."""
        ...

    @property
    def vector_at_hand(self) -> Vector | None:
        """The query's vector, if it is given or was made."""
        ...

    @property
    def why_no_vector(self) -> str | None: ...

    def facts(self) -> Facts:
        """What fusion may know of the query beside the lists."""
        ...

    @property
    def embeds(self) -> bool:
        """Whether there is a model that could give vectors to what has none."""
        ...


class Clock:
    """Times of the stages of one search, in milliseconds."""

    def __init__(self) -> None:
        self._begun = self._last = time.perf_counter()
        self.laps: dict[str, float] = {}

    def lap(self, stage: str) -> None:
        now = time.perf_counter()
        self.laps[stage] = round((now - self._last) * 1e3, 3)
        self._last = now

    @property
    def total(self) -> float:
        return round((self._last - self._begun) * 1e3, 3)


def run(
    query: Query,
    asked: Sequence[Asked],
    context: SearchContext,
    collector: Collector,
    config: Config,
    clock: Clock,
    *,
    least: Mapping[str, float] | None = None,
    adjust: Adjust | None = None,
    reranker: Callable[[], Reranker] | None = None,
    strict: bool = False,
    floor: float = 0.0,
    explain: bool = False,
    snippets: bool = True,
) -> SearchResult:
    """Answer a parsed query from the planned sources.

    `least` are scores below which a source's candidates are left out before anything is fused, by
    source. `adjust` says what counts beside relevance. `reranker` gives the cross-encoder that
    reads the head again, or raises why there is none. `strict` holds back what is of low
    confidence, `floor` what is less likely than that to be relevant.
    """
    if not query.terms and not context.has_vector:
        return _listing(query, context, clock)
    collected = collector.collect(asked, context, deadline=config.seconds)
    outcomes = [_from(outcome, (least or {}).get(outcome.source)) for outcome in collected]
    clock.lap("collect")
    facts = context.facts()
    lists = {outcome.source: outcome.candidates for outcome in outcomes}
    weights = {one.name: one.weight for one in asked}
    if config.fusion == "weighted_rrf":
        lists = {one.name: _shares(lists[one.name], one.kind, facts) for one in asked}
        trust = trust_in_vectors(facts)
        weights = {o.name: o.weight * (trust if o.kind == "vectors" else 1.0) for o in asked}
    fusing = partial(fuse, config.fusion, lists, k=config.rrf_k, weights=weights, facts=facts)
    head = max(query.limit, HEAD) if reranker else query.limit
    fused = fusing(head=None if adjust else head)
    clock.lap("fuse")
    if adjust:
        fused = _adjusted(fused, outcomes, query, context, adjust)[:head]
        clock.lap("adjust")
    said: dict[str, Any] = {}
    if reranker:
        fused, said = _reranked(fused, outcomes, query, context, reranker, config)
        clock.lap("rerank")
    find = matcher(query.terms)
    hits = _hits(fused, outcomes, query, context, find if snippets else None)
    # Deleted since they were ranked: others move up.
    if not reranker and not adjust and len(hits) < len(fused) == query.limit:
        hits = _hits(fusing(), outcomes, query, context, find if snippets else None)
    clock.lap("snippet")
    near = _scores(("vectors",), asked, outcomes)
    words = _scores(("all_words", "keyword"), asked, outcomes)
    judge = Judge(query.terms, facts, find, keyword=words, cosines=near)
    unknown = [hit.id for hit in hits if hit.id not in (near or ())]
    more = _cosines(unknown, asked, outcomes, context)
    chances = [judge(hit.id, hit.content, _labels(hit), more.get(hit.id)) for hit in hits]
    marked = [_marked(hit, chance, config) for hit, chance in zip(hits, chances, strict=True)]
    sure = tuple(
        hit
        for hit, chance in zip(marked, chances, strict=True)
        if not (strict and hit.confidence == "LOW") and not judge.is_below(chance, floor)
    )
    clock.lap("confidence")
    trace = _trace(query, asked, outcomes, context, clock)
    for outcome in outcomes:
        if outcome.trace is not None:
            trace["sources"][outcome.source]["how"] = dict(outcome.trace)
    trace["fusion"] = _fusion(config, weights, lists, facts)
    for name in least or ():
        whole = next(len(o.candidates) for o in collected if o.source == name)
        trace["sources"][name]["below"] = whole - trace["sources"][name]["count"]
    trace["confidence"] = {
        "by": "chance" if is_calibrated(config) else "rrf_score",
        "high": config.confidence_high,
        "med": config.confidence_med,
        "floor": floor,
        "because": {h.id: _rounded(chance) for h, chance in zip(hits, chances, strict=True)},
    }
    if reranker:
        trace["rerank"] = said
    if explain:
        trace["terms"] = [list(group) for group in query.terms.words]
        trace["lists"] = {
            o.source: [{"id": c.id, "score": c.score, "chunk": c.chunk} for c in o.candidates]
            for o in outcomes
        }
        trace["fusion"]["facts"] = facts._asdict()  # with the lists: all it takes to fuse again
    degraded = _degraded(asked, outcomes, context, embedded=trace["embedded"])
    if said.get("problem"):
        degraded = (*degraded, f"reranker: {said['problem']}")
    return SearchResult(sure, suppressed=len(hits) - len(sure), degraded=degraded, trace=trace)


def _from(outcome: Outcome, least: float | None) -> Outcome:
    """What scores that much or more."""
    if least is None:
        return outcome
    return replace(outcome, candidates=tuple(c for c in outcome.candidates if c.score >= least))


def _scores(
    kinds: Sequence[str], asked: Sequence[Asked], outcomes: Sequence[Outcome]
) -> dict[str, float] | None:
    """The best that each record has in the lists of these kinds; None: none was asked for."""
    lists = [o for one, o in zip(asked, outcomes, strict=True) if one.kind in kinds]
    found: dict[str, float] = {}
    for each in (candidate for outcome in lists for candidate in outcome.candidates):
        found[each.id] = max(each.score, found.get(each.id, -math.inf))
    return found if lists else None


def _cosines(
    ids: Sequence[str],
    asked: Sequence[Asked],
    outcomes: Sequence[Outcome],
    context: SearchContext,
) -> dict[str, float]:
    """How near the passages of these records are, which no list by meaning has. A search that asks
    for words alone embeds nothing for this."""
    chunks = {c.id: c.chunk for o in outcomes for c in o.candidates if c.chunk is not None}
    wanted = {name: chunks[name] for name in ids if name in chunks}
    vector = context.vector_at_hand
    if vector is None or not wanted or not any(o.kind in ("tree", "vectors") for o in asked):
        return {}
    known = context.store.known_vectors(list(wanted.values()), model=context.model)
    return {name: float(known[chunk] @ vector) for name, chunk in wanted.items() if chunk in known}


def _labels(hit: Hit) -> str:
    """What stands above and beside a passage."""
    file = (hit.path or "").rpartition("/")[2]
    return "\n".join((hit.title, hit.metadata["heading"], *hit.metadata["tags"], file))


def _marked(hit: Hit, chance: Chance, config: Config) -> Hit:
    score = chance.value if is_calibrated(config) else hit.rrf_score
    badge = confidence(score, high=config.confidence_high, med=config.confidence_med)
    return replace(hit, confidence=badge, chance=chance.value)


def _rounded(chance: Chance) -> dict[str, Any]:
    said = chance._asdict()
    return {name: round(of, 4) if isinstance(of, float) else of for name, of in said.items()}


def _shares(candidates: Sequence[Candidate], kind: str, facts: Facts) -> tuple[Candidate, ...]:
    """On a scale from 0 to 1, on which Athena's formula wants a source's own confidence. A keyword
    score is put as a part of what a passage with all words could reach."""
    most = facts.reach if kind == "keyword" and facts.reach > 0 else 1.0
    return tuple(c._replace(score=min(1.0, max(0.0, c.score / most))) for c in candidates)


def _fusion(
    config: Config,
    weights: Mapping[str, float],
    lists: Mapping[str, Sequence[Candidate]],
    facts: Facts,
) -> dict[str, Any]:
    """How the lists were weighed, and why."""
    said: dict[str, Any] = {"strategy": config.fusion, "weights": dict(weights)}
    if config.fusion in ("rrf", "weighted_rrf"):
        said["k"] = config.rrf_k
        if config.fusion == "weighted_rrf" and facts.known < 1:
            said["because"] = {"known_script": round(facts.known, 4)}
    elif config.fusion == "adaptive" and lists.get("keyword") and lists.get("vectors"):
        seen = signs(lists["keyword"], lists["vectors"], facts)
        said["share_of_vectors"] = round(share_of_vectors(seen, facts), 4)
        said["because"] = {name: round(value, 4) for name, value in seen.items()}
        if facts.known < 1:
            said["because"]["known_script"] = round(facts.known, 4)
    return said


def _adjusted(
    fused: list[Fused],
    outcomes: Sequence[Outcome],
    query: Query,
    context: SearchContext,
    adjust: Adjust,
) -> list[Fused]:
    """Sorted again by what counts beside relevance. What was deleted since is left out."""
    records = {record.id: record for record in context.store.get([hit.id for hit in fused])}
    again = adjusted([f for f in fused if f.id in records], records, adjust, now=query.now)
    if not adjust.diversity:
        return again
    chunks = {c.id: c.chunk for c in _candidates(again, outcomes) if c.chunk is not None}
    known = context.store.known_vectors(list(chunks.values()), model=context.model)
    vectors = {name: known[chunk] for name, chunk in chunks.items() if chunk in known}
    return diversified(again, vectors, diversity=adjust.diversity, limit=query.limit)


def _reranked(
    fused: list[Fused],
    outcomes: Sequence[Outcome],
    query: Query,
    context: SearchContext,
    reranker: Callable[[], Reranker],
    config: Config,
) -> tuple[list[Fused], dict[str, Any]]:
    """In the order that follows from reading again, and how that went."""
    passages = _passages(_candidates(fused[:HEAD], outcomes), context.store)
    there = [f for f, passage in zip(fused, passages, strict=False) if passage is not None]
    texts = [as_read(p.record.title, p.heading, p.text) for p in passages if p is not None]
    said: dict[str, Any] = {"read": 0, "of": len(texts), "blend": config.rerank_blend}
    try:
        model = reranker()
        said["model"] = model.model
        scores = read(model, query.text, texts, budget=config.rerank_seconds)
    except (ModelError, ConfigError) as error:
        said["problem"] = str(error)
        return fused, said
    said["read"] = len(scores)
    return blended([*there, *fused[HEAD:]], scores, blend=config.rerank_blend), said


def _listing(query: Query, context: SearchContext, clock: Clock) -> SearchResult:
    """A query of filters alone lists what matches; one of no words at all finds nothing."""
    hits: tuple[Hit, ...] = ()
    narrowed = bool(query.filter.without("not_domain"))  # by more than what may be seen
    if narrowed and not query.text and not query.terms.excluded:
        records = context.store.select(query.filter, limit=query.limit)
        ranked = [Fused(record.id, 0.0, "filter", {}) for record in records]
        hits = _hits(ranked, [], query, context, matcher(query.terms))
    clock.lap("list")
    degraded = () if hits or narrowed else ("the query has no words to look for",)
    return SearchResult(hits, degraded=degraded, trace=_trace(query, (), [], context, clock))


def _hits(
    ranked: Sequence[Fused],
    outcomes: Sequence[Outcome],
    query: Query,
    context: SearchContext,
    find: Matcher | None,
) -> tuple[Hit, ...]:
    """The first `limit` as they are shown. One deleted since it was ranked makes room."""
    shown: list[Hit] = []
    for i in range(0, len(ranked), query.limit):
        some = ranked[i : i + query.limit]
        candidates = _candidates(some, outcomes)
        for hit, passage in zip(some, _passages(candidates, context.store), strict=True):
            if passage is not None and len(shown) < query.limit:
                shown.append(_shown(hit, passage, find))
        if len(shown) == query.limit:
            break
    return tuple(shown)


def _candidates(some: Sequence[Fused], outcomes: Sequence[Outcome]) -> list[Candidate]:
    """Each as its strongest source found it."""
    found = {o.source: {c.id: c for c in o.candidates} for o in outcomes}
    return [found.get(f.source, {}).get(f.id) or Candidate(f.id, 0.0) for f in some]


def _passages(candidates: Sequence[Candidate], store: Store) -> list[Passage | None]:
    """What each brought along, or else what the store has of it."""
    read = iter(store.passages([c for c in candidates if c.passage is None]))
    return [next(read) if c.passage is None else c.passage for c in candidates]


def _shown(hit: Fused, passage: Passage, find: Matcher | None) -> Hit:
    record = passage.record
    words = Snippet("", (), 0) if find is None else snippet(passage.text, find)
    return Hit(
        id=record.id,
        content=passage.text,
        score=hit.score if hit.reranked is None else hit.reranked,
        source=hit.source,
        rrf_score=hit.score,
        title=record.title,
        path=record.path,
        lines=passage.lines,
        metadata={
            **record.metadata,
            "path": record.path,
            "type": record.type,
            "collection": record.collection,
            "heading": passage.heading,
            "tags": list(record.tags),
            "updated_at": record.updated_at,
            "snippet_line": passage.lines[0] + words.line,
        },
        signals=hit.signals,
        snippet=words.text,
        highlights=words.highlights,
    )


def _degraded(
    asked: Sequence[Asked],
    outcomes: Sequence[Outcome],
    context: SearchContext,
    *,
    embedded: float,
) -> tuple[str, ...]:
    problems = [f"{o.source}: {o.problem}" for o in outcomes if o.problem]
    if context.why_no_vector:
        problems.append(f"vectors: {context.why_no_vector}")
    elif embedded < 1 and context.embeds and any(one.kind == "vectors" for one in asked):
        share = f"{int(embedded * 100)} % of passages are embedded so far"
        problems.append(f"vectors: {share}: run `clew index` or call `embed()`")
    if behind := context.store.behind:
        reason = context.store.behind_because
        problems.append(f"{counted(behind, 'change')} not searchable yet: {reason}")
    return tuple(problems)


def _trace(
    query: Query,
    asked: Sequence[Asked],
    outcomes: Sequence[Outcome],
    context: SearchContext,
    clock: Clock,
) -> dict[str, Any]:
    return {
        "query": query.raw,
        "canonical": " ".join(query.text.split()).lower(),
        "mode": query.mode,
        "sources": {
            o.source: {
                "kind": one.kind,
                "weight": one.weight,
                "count": len(o.candidates),
                "ms": round(o.ms, 3),
                "start_ms": round(o.start, 3),
                "problem": o.problem,
            }
            for one, o in zip(asked, outcomes, strict=True)
        },
        "stages_ms": clock.laps,
        "total_ms": clock.total,
        "generation": context.store.generation(),
        "model": context.model,
        "embedded": round(context.store.coverage(context.model), 4),
        "truncated": len(query.raw) > parsing.LONGEST,
    }
