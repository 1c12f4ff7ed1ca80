"""The one path every search takes: plan → collect → fuse → adjust → rerank → confidence → snippet.

Front ends differ in words only; whatever they are, they end up here with a `Query`.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

from clew.config import Config, is_calibrated
from clew.errors import ConfigError, ModelError, counted
from clew.models import traits
from clew.protocols import Context, Reranker, Store
from clew.ranking.adaptive import Facts
from clew.ranking.adjust import Adjust, adjusted, diversified
from clew.ranking.confidence import Chance, Judge, confidence
from clew.ranking.fusion import Fused
from clew.ranking.rerank import HEAD, blended, read
from clew.search.collect import Collector, Outcome
from clew.search.files import IndexedFiles, State
from clew.search.fusion import RankedList, weigh_lists
from clew.search.plan import Asked
from clew.text import parse as parsing
from clew.text.analyser import Matcher
from clew.text.passage import HEADINGS, titles
from clew.text.passage import passage as as_read
from clew.text.snippet import NO_SNIPPET, matcher, snippet
from clew.timestamps import UNDATED
from clew.types import LOCATION_UNIT, Candidate, Hit, Passage, Query, Record, SearchResult, Vector
from clew.visibility import may_be_seen, wanted_beside

__all__ = ["Clock", "SearchContext", "run"]

FURTHER = 0.6
"""What a further passage of a record keeps of its score: others come first where it is close."""
USUAL = 3
"""Passages of one record that are shown while anything else is found."""


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

    @property
    def files(self) -> IndexedFiles:
        """Whether what is found is still there."""
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
    def seconds(self) -> float:
        """Since the search began."""
        return time.perf_counter() - self._begun

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
    seconds = config.seconds
    collected = collector.collect(asked, context, deadline=seconds, spent=clock.seconds)
    outcomes = [_from(outcome, (least or {}).get(outcome.source)) for outcome in collected]
    clock.lap("collect")
    facts = context.facts()
    given = {
        one.name: RankedList(o.candidates, one.kind, one.weight, one.part, o.places)
        for one, o in zip(asked, outcomes, strict=True)
    }
    votes = weigh_lists(given, facts, strategy=config.fusion, k=config.rrf_k)
    fusing = partial(
        votes.fused,
        further=0.0 if query.passages == 1 else 1.0 if config.max_per_file else FURTHER,
        usual=0 if config.max_per_file else USUAL,
    )
    head = max(query.limit, HEAD) if reranker else query.limit
    fused = fusing(None if adjust or config.max_per_file else head)
    clock.lap("fuse")
    if adjust:
        fused = _adjusted(fused, outcomes, query, context, adjust)[:head]
        clock.lap("adjust")
    said: dict[str, Any] = {}
    if reranker:
        fused, said = _reranked(fused, outcomes, query, context, reranker, config)
        clock.lap("rerank")
    find = matcher(query.terms)
    shown = partial(
        _hits,
        outcomes=outcomes,
        query=query,
        context=context,
        find=find if snippets else None,
        most=config.max_per_file,
    )
    hits = shown(fused)
    # Deleted since they were ranked: others move up.
    if not reranker and not adjust and len(hits) < len(fused) == query.limit:
        hits = shown(fusing())
    clock.lap("snippet")
    judge = Judge(
        query.terms,
        facts,
        find,
        keyword=_scores(("all_words", "keyword"), asked, outcomes),
        cosines=_scores(("vectors",), asked, outcomes),
    )
    names = _names(hits)
    cosines = _cosines(hits, [name in judge.near for name in names], asked, outcomes, context)
    chances = [
        judge(name, hit.content, label_text(hit), cosine)
        for name, hit, cosine in zip(names, hits, cosines, strict=True)
    ]
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
    trace["fusion"] = votes.trace()
    for name in least or ():
        whole = next(len(o.candidates) for o in collected if o.source == name)
        trace["sources"][name]["below"] = whole - trace["sources"][name]["count"]
    trace["confidence"] = {
        "by": "chance" if is_calibrated(config) else "rrf_score",
        "high": config.confidence_high,
        "med": config.confidence_med,
        "floor": floor,
        "because": {name: _rounded(chance) for name, chance in zip(names, chances, strict=True)},
    }
    if reranker:
        trace["rerank"] = said
    if explain:
        trace["terms"] = [list(group) for group in query.terms.words]
        trace["lists"] = {o.source: [_row(c) for c in o.candidates] for o in outcomes}
        trace["fusion"]["facts"] = facts._asdict()  # with the lists: see `traced`
        for outcome in outcomes:
            trace["sources"][outcome.source]["places"] = dict(outcome.places)
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


def _names(hits: Sequence[Hit]) -> list[str]:
    """What each is judged as: the first of a record as that, a further passage by itself."""
    seen: set[str] = set()
    names = []
    for hit in hits:
        names.append(f"{hit.id}, {hit.location}" if hit.id in seen else hit.id)
        seen.add(hit.id)
    return names


def _cosines(
    hits: Sequence[Hit],
    listed: Sequence[bool],
    asked: Sequence[Asked],
    outcomes: Sequence[Outcome],
    context: SearchContext,
) -> list[float | None]:
    """How near the passages are that no list by meaning has. A search that asks for words alone
    embeds nothing for this."""
    vector = context.vector_at_hand
    if vector is None or all(listed) or not any(o.kind in ("tree", "vectors") for o in asked):
        return [None] * len(hits)
    others = {c.id: c.chunk for o in outcomes for c in o.candidates if c.chunk is not None}
    chunks = [
        None if there else others.get(hit.id) if hit.chunk is None else hit.chunk
        for hit, there in zip(hits, listed, strict=True)
    ]
    wanted = [chunk for chunk in chunks if chunk is not None]
    known = context.store.vectors.known(wanted, model=context.model)
    return [float(known[chunk] @ vector) if chunk in known else None for chunk in chunks]


def label_text(hit: Hit) -> str:
    """What stands above and beside a passage."""
    file = (hit.path or "").rpartition("/")[2]
    names = titles(hit.title, hit.metadata)
    return "\n".join((names, hit.metadata["heading"], *hit.metadata["tags"], file))


def _marked(hit: Hit, chance: Chance, config: Config) -> Hit:
    score = chance.value if is_calibrated(config) else hit.rrf_score
    badge = confidence(score, high=config.confidence_high, med=config.confidence_med)
    return replace(hit, confidence=badge, chance=chance.value)


def _row(candidate: Candidate) -> dict[str, Any]:
    of = {"id": candidate.id, "score": candidate.score, "chunk": candidate.chunk}
    return of if candidate.passage is None else {**of, "lines": list(candidate.passage.lines)}


def _rounded(chance: Chance) -> dict[str, Any]:
    said = chance._asdict()
    return {name: round(of, 4) if isinstance(of, float) else of for name, of in said.items()}


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
    known = context.store.vectors.known(list(chunks.values()), model=context.model)
    vectors = {name: known[chunk] for name, chunk in chunks.items() if chunk in known}
    return diversified(
        again,
        vectors,
        diversity=adjust.diversity,
        limit=query.limit,
        unrelated=traits(context.model).unrelated,
    )


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
    texts = [
        as_read(titles(p.record.title, p.record.metadata), p.heading, p.text)
        for p in passages
        if p is not None
    ]
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
    narrowed = bool(wanted_beside(query.filter))
    if narrowed and not query.text and not query.terms.excluded:
        for limit in (query.limit, 2 * query.limit):  # again, should files of the first be gone
            records = context.store.select(query.filter, limit=limit)
            ranked = [Fused(record.id, 0.0, "filter", {}) for record in records]
            hits = _hits(ranked, [], query, context, matcher(query.terms))
            if len(hits) == query.limit or len(records) < limit:
                break
    clock.lap("list")
    degraded = () if hits or narrowed else ("the query has no words to look for",)
    degraded = (*degraded, *context.files.problems)
    return SearchResult(hits, degraded=degraded, trace=_trace(query, (), [], context, clock))


def _hits(
    ranked: Sequence[Fused],
    outcomes: Sequence[Outcome],
    query: Query,
    context: SearchContext,
    find: Matcher | None,
    *,
    most: int = 0,
) -> tuple[Hit, ...]:
    """The first `limit` as they are shown, at most so many of one file (0: any number). One deleted
    since it was ranked makes room, as does one whose file was deleted since it was indexed."""
    shown: list[Hit] = []
    of_file: Counter[tuple[str, str | None]] = Counter()
    candidates = _candidates(ranked, outcomes)
    for i in range(0, len(ranked), query.limit):
        some = slice(i, i + query.limit)
        passages = _passages(candidates[some], context.store)
        there = [(h, p) for h, p in zip(ranked[some], passages, strict=True) if p is not None]
        states = context.files.states([(p.record.id, p.record.path) for _, p in there])
        for (hit, passage), state in zip(there, states, strict=True):
            if state == "gone" or len(shown) == query.limit:
                continue
            if not may_be_seen(passage.record, query.filter):  # its source does not look
                continue
            mine = make_hit(hit, passage, find, state)
            if any(_same_place(mine, other) for other in shown if other.id == mine.id):
                continue
            of_file[file := _file_of(passage.record)] += 1
            if not most or of_file[file] <= most:
                shown.append(mine)
        if len(shown) == query.limit:
            break
    return tuple(shown)


def _same_place(hit: Hit, other: Hit) -> bool:
    """Whether one is a line, or a few, of the other. Passages as they were cut never are."""
    if (hit.chunk is None) == (other.chunk is None) or hit.lines is None or other.lines is None:
        return False
    outer, inner = (other, hit) if hit.chunk is None else (hit, other)
    assert outer.lines and inner.lines
    return outer.lines[0] <= inner.lines[0] and inner.lines[1] <= outer.lines[1]


def _candidates(some: Sequence[Fused], outcomes: Sequence[Outcome]) -> list[Candidate]:
    """Each as its strongest source found it."""
    found = {o.source: {c.id: c for c in reversed(o.candidates)} for o in outcomes}
    return [f.passage or found.get(f.source, {}).get(f.id) or Candidate(f.id, 0.0) for f in some]


def _passages(candidates: Sequence[Candidate], store: Store) -> list[Passage | None]:
    """What each brought along, or else what the store has of it."""
    read = iter(store.passages([c for c in candidates if c.passage is None]))
    return [next(read) if c.passage is None else c.passage for c in candidates]


def make_hit(hit: Fused, passage: Passage, find: Matcher | None, file: State | None) -> Hit:
    """A passage as it is shown, with a snippet where there are words to `find`."""
    record = passage.record
    known = (record.title, *passage.heading.split(HEADINGS))
    words = snippet(passage.text, find, kind=record.type, known=known) if find else NO_SNIPPET
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
            "updated_at": None if record.updated_at == UNDATED else record.updated_at,
            "snippet_line": passage.lines[0] + (words.line if _line_by_line(passage) else 0),
            **({} if file is None else {file: True}),
        },
        signals=hit.signals,
        snippet=words.text,
        highlights=words.highlights,
        chunk=passage.chunk or None,
        record=record if find is None else None,
    )


def _file_of(record: Record) -> tuple[str, str | None]:
    """What rows of one table share, and passages of one text."""
    path = record.path
    return (record.collection, path) if path is not None else (record.id, None)


def _line_by_line(passage: Passage) -> bool:
    """Whether a line of its text is a line of the file: not so of what was extracted from it."""
    first, last = passage.lines
    counted = LOCATION_UNIT not in passage.record.metadata
    return counted and last - first == passage.text.count("\n")


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
    if behind := context.store.indexes.behind:
        reason = context.store.indexes.behind_because
        problems.append(f"{counted(behind, 'change')} not searchable yet: {reason}")
    return (*problems, *context.files.problems)


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
                "part": one.part,
                "count": len(o.candidates),
                "ms": round(o.ms, 3),
                "start_ms": round(o.start, 3),
                "problem": o.problem,
            }
            for one, o in zip(asked, outcomes, strict=True)
        },
        "stages_ms": clock.laps,
        "total_ms": clock.total,
        "generation": context.store.changes.generation(),
        "model": context.model,
        "embedded": round(context.store.indexes.coverage(context.model), 4),
        "truncated": len(query.raw) > parsing.LONGEST_QUERY,
    }
