"""The one path every search takes: parse → plan → cache → collect → fuse → adjust → rerank →
confidence → snippet.

Front ends differ in words only; whatever they are, they end up here with a `SearchRequest`. The
plan is made before the cache is asked, because which sources are asked is part of the key.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from clew import config as settings
from clew.config import Config, is_calibrated
from clew.errors import ConfigError, InputError, ModelError, nearest
from clew.filter import Filter, visible, wanted_beside
from clew.models import CurrentModel, traits
from clew.protocols import Reranker, Store
from clew.ranking.adaptive import Facts
from clew.ranking.adjust import adjusted, diversified
from clew.ranking.confidence import Chance, Judge, confidence
from clew.ranking.fusion import (
    Fused,
    RankedList,
    WeightedLists,
    keep_places,
    weigh_lists,
)
from clew.ranking.rerank import HEAD, blended, read
from clew.search.collect import Collector, Outcome
from clew.search.context import IndexedFiles, QueryContext, describe_damage
from clew.search.hits import (
    ShownPassage,
    choose_passages,
    label_text,
    make_hit,
    name_candidates,
    read_passages,
)
from clew.search.plan import PlannedSource, check_least, plan_sources
from clew.sources import Configured, has_own_sources
from clew.text import parse as parsing
from clew.text.analyser import fits
from clew.text.passage import passage as as_read
from clew.text.passage import titles
from clew.text.snippet import matcher
from clew.timestamps import timestamp
from clew.types import (
    Adjust,
    Candidate,
    Hit,
    Query,
    Record,
    SearchRequest,
    SearchResult,
    SourceTrace,
    Trace,
)
from clew.validate import check_whole, encodable

if TYPE_CHECKING:
    from clew.cache import SearchCache, SearchKeys
    from clew.search.cache_step import Lending
    from clew.search.token_match import LateStep, TokenReader
    from clew.tree.snapshot import SemanticTree

FURTHER = 0.6
"""What a further passage of a record keeps of its score: others come first where it is close."""
USUAL = 3
"""Passages of one record that are shown while anything else is found."""


class SearchParts(NamedTuple):
    """What the searches of one engine share."""

    store: Store
    model: CurrentModel
    config: Config
    sources: Mapping[str, Configured]
    collector: Collector
    cache: Callable[[], SearchCache]
    reranker: Callable[[], Reranker]
    """Gives the cross-encoder, or raises why there is none."""
    tree: Callable[[], SemanticTree]
    late: Callable[[], TokenReader]
    """Gives what reads token by token, or raises why there is none."""
    root: Path | None = None
    """The folder whose store it is."""
    problem: str | None = None
    """What is wrong with the settings as they are now."""


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


def search(request: SearchRequest, parts: SearchParts) -> SearchResult:
    """Answer a request."""
    if (again := find_again(request, parts)) is not None:
        return again
    run = _Run(request, parts)
    run.clock.lap("parse")
    result = run.find_kept()
    if result is None:
        result = run.keep(run.answer() if run.has_words else run.list_filtered())
    return run.note(result)


def find_again(
    request: SearchRequest, parts: SearchParts, *, shared: bool = False
) -> SearchResult | None:
    """The kept answer to a request whose key is known, since nothing that decides it has changed:
    for most of what a kept answer costs is to find out what its key is. `shared` spares the copy,
    where the caller changes nothing of it."""
    if parts.problem or not (parts.config.cache if request.cache is None else request.cache):
        return None
    cache, clock = parts.cache(), Clock()
    if not cache.known_keys:  # a process that asks one thing
        return None
    from clew.search.cache_step import name_request, read_stamp

    known = cache.known_keys.get(name_request(request))
    if known is None or known.stamp != read_stamp(
        parts.store, parts.config, parts.model.name, parts.sources
    ):
        return None
    clock.lap("parse")
    kept = cache.get(known.key, shared=shared)
    return _show_kept(kept, request, IndexedFiles(parts.store, _home(parts)), clock)


def _show_kept(
    kept: SearchResult | None, request: SearchRequest, files: IndexedFiles, clock: Clock
) -> SearchResult | None:
    """A kept answer as that to this request, if its files are still as it shows them."""
    clock.lap("cache")
    if kept is None or not files.as_shown(kept.hits):
        return None
    told = {"query": encodable(request.query), "stages_ms": clock.laps, "total_ms": clock.total}
    return replace(kept, trace={**kept.trace, **told})


def _home(parts: SearchParts) -> Path | None:
    return None if parts.root is None else parts.root.absolute()


def collect_lists(
    request: SearchRequest, parts: SearchParts
) -> tuple[dict[str, RankedList], Facts, tuple[str, ...]]:
    """All that fusion gets for a request, to fuse it often: the lists, what it may know of the
    query beside them, and what could not take part in full."""
    run = _Run(request, parts)
    if not run.has_words:
        return {}, Facts(), run.list_filtered().degraded
    outcomes = run.collect()
    facts = run.context.facts()
    return run.ranked_lists(outcomes), facts, run.degraded(outcomes, facts)


class _Run:
    """One search: the request as the settings complete it, and the steps it takes."""

    def __init__(self, request: SearchRequest, parts: SearchParts):
        self.request, self.parts, self.clock = request, parts, Clock()
        self.store = parts.store.view()  # the head of its log is read here, and not again
        self.config = _choose_settings(request, parts)
        self.scope = visible(
            Filter.of(request.filter),
            include_personal=request.include_personal,
            skills_only=request.skills_only,
            personal=parts.config.personal,
        )
        self.query = self._parse()
        self.planned = self._plan()
        self.context = QueryContext(
            self.store,
            parts.model,
            self.query,
            request.vector,
            model=request.model,
            home=_home(parts),
        )
        reranks = self.config.rerank if request.rerank is None else request.rerank
        self.reranks = reranks and bool(self.query.text)  # nobody can read with a vector alone
        floor = request.floor
        if floor is None:
            floor = self.config.floor if request.mode == "vector" else 0.0
        self.floor: float = settings.coerce("floor", floor, "arguments")
        self._keys: SearchKeys | None = None
        self._stamp: Hashable = None
        self._lending: Lending | None = None
        self._outcomes: list[Outcome] = []
        self._reread: dict[str, Any] = {}
        self._late: LateStep | None = None
        self._behind: dict[str, dict[str, list[str]]] = {}
        self._failed: dict[str, str] = {}

    @property
    def has_words(self) -> bool:
        """Whether there is anything to look for; a vector needs no words."""
        return bool(self.query.terms) or self.context.has_vector

    # ------------------------------------------------------------------ parse, plan

    def _parse(self) -> Query:
        request, config = self.request, self.config
        several = config.group_by == "passage" and config.max_per_file != 1
        query = parsing.parse(
            request.query,
            filter=self.scope,
            mode=request.mode,
            limit=request.limit,
            depth=config.depth if request.depth is None else request.depth,
            passages=check_whole("limit", request.limit) if several else 1,
            now=time.time() if request.now is None else timestamp(request.now, name="now"),
            syntax=request.syntax,
            is_type=self._is_type,
        )
        nothing = not query.raw.strip() and request.vector is None
        if nothing and not wanted_beside(query.filter):
            raise InputError("the query is empty: say what to look for, or give a filter")
        return query

    def _is_type(self, name: str) -> bool:
        """Whether records may be of this type: some are, or some source has its own."""
        own = has_own_sources(self.parts.sources)
        wanted = self.scope.narrowed(Filter(type=name))
        return not own or wanted is None or self.store.count(wanted) > 0

    def _plan(self) -> list[PlannedSource]:
        request, parts = self.request, self.parts
        sources, only = parts.sources, request.sources
        if request.tree is not False:
            from clew.sources.tree import extend_deadline, plan_tree

            walk = plan_tree(
                request.tree,  # type: ignore[arg-type]  # which says what it may be
                sources,
                parts.tree(),
                self.config,
                model=parts.model.name,
                reranker=parts.reranker,
                root=parts.root or Path(),
                explain=request.explain,
            )
            sources = {**sources, "tree": walk}
            only = [*(name for name in only or () if name != "tree"), "tree"]
            self.config = extend_deadline(self.config, walk)
        planned = plan_sources(sources, self.query, self.config, self.store, only=only)
        check_least(request.least, planned)
        return planned

    # ------------------------------------------------------------------ cache

    def find_kept(self) -> SearchResult | None:
        """The answer to the very same search, if it was kept and can still be shown; else lists of
        searches like it are looked for."""
        request, config = self.request, self.config
        # Nothing may be asked for that a key does not tell.
        plain = not (request.adjust or request.model or request.least) and request.snippets
        if not plain or not (config.cache if request.cache is None else request.cache):
            return None
        from clew.search.cache_step import Lending, make_keys, read_stamp  # while a model loads

        stamp = read_stamp(self.store, self.parts.config, self.context.model, self.parts.sources)
        others = {"rerank": self.reranks, "floor": self.floor}
        self._keys = make_keys(request, self.planned, self.context, config, **others)
        if self._keys is None:
            return None
        self._stamp, cache = stamp, self.parts.cache()
        kept = cache.get(self._keys.exact)
        kept = _show_kept(kept, request, self.context.files, self.clock)
        if kept is not None:
            return kept
        if config.semantic_cache and self.context.may_embed:
            self._lending = Lending(cache, self._keys.group, self.planned, self.context)
            self._lending.borrow(config.semantic_cosine, seconds=config.seconds / 2)
            self.planned = self._lending.wrap(self.planned)
        return None

    def keep(self, result: SearchResult) -> SearchResult:
        """The answer with whose lists are in it. It is kept unless something was missing or a
        reranker ran out of time: it may go better next time."""
        lending = self._lending
        if lending is not None:
            if not result.degraded:
                lending.lend(self.query.text)
            if (told := lending.told()) is not None:
                result = replace(result, cache="semantic", trace={**result.trace, "cache": told})
        if self.config.cache and self.request.cache is not False:
            cache = self.parts.cache()
            if self._outcomes:
                cache.note_sources({o.source: (round(o.ms, 3), o.problem) for o in self._outcomes})
            whole = self._reread.get("read", 0) >= self._reread.get("of", 0)
            if self._keys is not None and whole:
                cache.put(
                    self._keys.exact, replace(result, cache=None), lasting=self.context.lasting
                )
        return result

    # ------------------------------------------------------------------ collect … snippet

    def answer(self) -> SearchResult:
        """Collect, fuse, adjust, rerank, judge and show."""
        request, config, query, clock = self.request, self.config, self.query, self.clock
        late = self._begin_late()
        outcomes = self.collect()
        clock.lap("collect")
        facts, lists = self.context.facts(), self.ranked_lists(outcomes)
        votes = weigh_lists(lists, facts, strategy=config.fusion, k=config.rrf_k)
        every = outcomes
        if late is not None:
            votes = late.weigh(votes, lists, self.store)
            facts, every = votes.facts, [*outcomes, *late.outcomes]
            clock.lap("late")
        fusing = partial(
            votes.fused,
            further=0.0 if query.passages == 1 else 1.0 if config.max_per_file else FURTHER,
            usual=0 if config.max_per_file else USUAL,
        )
        head = max(query.limit, HEAD) if self.reranks else query.limit
        fused = fusing(None if request.adjust or config.max_per_file else head)
        clock.lap("fuse")
        if request.adjust:
            fused = self._adjust(fused, every, request.adjust)[:head]
            clock.lap("adjust")
        if self.reranks:
            fused = self._rerank(fused, every)
            clock.lap("rerank")
        fused = self._lead_on(fused)
        choose = partial(
            choose_passages,
            outcomes=every,
            query=query,
            context=self.context,
            most=config.max_per_file,
        )
        shown = choose(fused)
        # Deleted since they were ranked: others move up.
        if not self.reranks and not request.adjust and len(shown) < query.limit <= len(fused):
            shown = choose(self._lead_on(fusing()))
        find = matcher(query.terms)
        judge = Judge(
            query.terms,
            facts,
            find,
            keyword=self._best_scores(("all_words", "keyword"), outcomes),
            cosines=self._best_scores(("vectors",), outcomes),
        )
        chances = self._judge(shown, judge, outcomes)
        badges = [self._badge(each, chance) for each, chance in zip(shown, chances, strict=True)]
        clock.lap("confidence")
        hits: list[Hit] = []
        because: dict[str, dict[str, Any]] = {}
        for each, chance, badge in zip(shown, chances, badges, strict=True):
            name = each.passage.record.id
            place = f"line {each.passage.lines[0]}"
            low = request.strict and badge == "LOW"
            if not low and not judge.is_below(chance, self.floor):
                words = find if request.snippets else None
                hits.append(make_hit(each, words, confidence=badge, chance=chance.value))
                place = hits[-1].location
            # The first of a record is judged as that, a further passage by itself.
            because[f"{name}, {place}" if name in because else name] = _rounded(chance)
        clock.lap("snippet")
        trace = self._trace(outcomes, facts)
        self._explain(trace, every, facts, votes, because)
        if late is not None:
            chunks = {s.passage.record.id: s.passage.chunk for s in reversed(shown)}
            trace["late"] = late.trace(chunks if request.explain else {}, self.store)
        return SearchResult(
            tuple(hits),
            suppressed=len(shown) - len(hits),
            degraded=self.degraded(outcomes, facts),
            trace=trace,
        )

    def _begin_late(self) -> LateStep | None:
        """Late interaction, where it is asked for: the query's rows are made beside the sources."""
        config, query = self.config, self.query
        asked = config.late_interaction != "off" and config.fusion == "adaptive"
        if asked and query.mode == "hybrid" and query.text.strip():
            from clew.search.token_match import LateStep

            self._late = LateStep(self.parts.late, query.text, seconds=config.late_seconds)
        return self._late

    def collect(self) -> list[Outcome]:
        """What every source gave, without what scores less than it was to."""
        collected = self.parts.collector.collect(
            self.planned, self.context, deadline=self.config.seconds, spent=self.clock.seconds
        )
        least = self.request.least or {}
        self._outcomes = collected
        return [o if o.source not in least else o.cut_below(least[o.source]) for o in collected]

    def ranked_lists(self, outcomes: Sequence[Outcome]) -> dict[str, RankedList]:
        return {
            one.name: RankedList(o.candidates, one.kind, one.weight, one.part, o.places)
            for one, o in zip(self.planned, outcomes, strict=True)
        }

    def degraded(self, outcomes: Sequence[Outcome], facts: Facts) -> tuple[str, ...]:
        problems = [f"{o.source}: {o.problem}" for o in outcomes if o.problem]
        known = {o.source for o in outcomes if o.problem}
        problems += [f"{name}: {of}" for name, of in self._failed.items() if name not in known]
        problems += self.context.degraded(self.planned, facts)
        problems += () if self._late is None else self._late.problems
        if self._reread.get("problem"):
            problems.append(f"reranker: {self._reread['problem']}")
        return tuple(problems)

    def _lead_on(self, fused: list[Fused]) -> list[Fused]:
        """Put in what sources want right behind the first hits; one that fails is named."""
        hits = list(dict.fromkeys(each.id for each in fused[: self.query.limit]))
        for one in self.planned if hits else ():
            try:
                behind = one.source.behind(one.query, self.context, hits)
            except Exception as error:  # as of a source that fails to answer
                self._failed[one.name] = str(error)
                continue
            if any(behind.values()):
                self._behind[one.name] = {hit: [c.id for c in of] for hit, of in behind.items()}
                fused = keep_places(fused, behind, one.name)
        self.clock.lap("behind")
        return fused

    def _adjust(
        self, fused: list[Fused], outcomes: Sequence[Outcome], adjust: Adjust
    ) -> list[Fused]:
        """Sorted again by what counts beside relevance. What was deleted since is left out."""
        records = {record.id: record for record in self.store.get([hit.id for hit in fused])}
        there = [f for f in fused if f.id in records]
        again = adjusted(there, records, adjust, now=self.query.now)
        if not adjust.diversity:
            return again
        chunks = {c.id: c.chunk for c in name_candidates(again, outcomes) if c.chunk is not None}
        model = self.context.model
        known = self.store.vectors.known(list(chunks.values()), model=model)
        return diversified(
            again,
            {name: known[chunk] for name, chunk in chunks.items() if chunk in known},
            diversity=adjust.diversity,
            limit=self.query.limit,
            unrelated=traits(model).unrelated,
        )

    def _rerank(self, fused: list[Fused], outcomes: Sequence[Outcome]) -> list[Fused]:
        """Put hits in the order that follows from reading the head again."""
        config = self.config
        passages = read_passages(name_candidates(fused[:HEAD], outcomes), self.store)
        there = [f for f, passage in zip(fused, passages, strict=False) if passage is not None]
        texts = [
            as_read(titles(p.record.title, p.record.metadata), p.heading, p.text)
            for p in passages
            if p is not None
        ]
        self._reread = {"read": 0, "of": len(texts), "blend": config.rerank_blend}
        try:
            model = self.parts.reranker()
            self._reread["model"] = model.model
            scores = read(model, self.query.text, texts, budget=config.rerank_seconds)
        except (ModelError, ConfigError) as error:
            self._reread["problem"] = str(error)
            return fused
        self._reread["read"] = len(scores)
        return blended([*there, *fused[HEAD:]], scores, blend=config.rerank_blend)

    # ------------------------------------------------------------------ confidence

    def _best_scores(
        self, kinds: Sequence[str], outcomes: Sequence[Outcome]
    ) -> dict[str, float] | None:
        """The best that each record has in the lists of these kinds; None: none was asked for."""
        lists = [o for one, o in zip(self.planned, outcomes, strict=True) if one.kind in kinds]
        best: dict[str, float] = {}
        for outcome in lists:
            for each in outcome.candidates:
                if each.score > best.get(each.id, -math.inf):
                    best[each.id] = each.score
        return best if lists else None

    def _judge(
        self, shown: Sequence[ShownPassage], judge: Judge, outcomes: Sequence[Outcome]
    ) -> list[Chance]:
        seen: set[str] = set()
        names: list[str] = []
        for each in shown:
            name = each.passage.record.id
            names.append(f"{name}, {each.passage.lines}" if name in seen else name)
            seen.add(name)
        cosines = self._cosines(shown, [name in judge.near for name in names], outcomes)
        matches: list[float | None] = [None] * len(shown)
        if (late := self._late) is not None:
            matches = [late.match(n, s.passage.chunk) for n, s in zip(names, shown, strict=True)]
        return [
            judge(name, each.passage.text, label_text(each.passage), cosine, match)
            for name, each, cosine, match in zip(names, shown, cosines, matches, strict=True)
        ]

    def _cosines(
        self, shown: Sequence[ShownPassage], listed: Sequence[bool], outcomes: Sequence[Outcome]
    ) -> list[float | None]:
        """How near the passages are that no list by meaning has. A search that asks for words alone
        embeds nothing for this."""
        vector = self.context.vector_at_hand
        asked = any(one.kind in ("tree", "vectors") for one in self.planned)
        if vector is None or all(listed) or not asked:
            return [None] * len(shown)
        others: dict[str, int] | None = None
        chunks: list[int | None] = []
        for (_, passage, _), there in zip(shown, listed, strict=True):
            chunk: int | None = None if there else passage.chunk
            if chunk == 0:  # it was brought along: the passage it is a line of, then
                if others is None:
                    every = (c for o in outcomes for c in o.candidates)
                    others = {c.id: c.chunk for c in every if c.chunk is not None}
                chunk = others.get(passage.record.id)
            chunks.append(chunk)
        wanted = [chunk for chunk in chunks if chunk is not None]
        known = self.store.vectors.known(wanted, model=self.context.model)
        return [float(known[chunk] @ vector) if chunk in known else None for chunk in chunks]

    def _badge(self, shown: ShownPassage, chance: Chance) -> str:
        config = self.config
        score = chance.value if is_calibrated(config) else shown.fused.score
        return confidence(score, high=config.confidence_high, med=config.confidence_med)

    # ------------------------------------------------------------------ without words

    def list_filtered(self) -> SearchResult:
        """A query of filters alone lists what matches; one of no words at all finds nothing."""
        query, shown = self.query, list[ShownPassage]()
        narrowed, late = bool(wanted_beside(query.filter)), False
        if narrowed and not query.text:
            ranked: list[Fused] = []
            last, size, most = "", query.limit, self.config.max_per_file
            while not late:  # more, should some have what is excluded, or their files be gone
                records = self.store.select(query.filter, limit=size, after=last)
                if query.terms.excluded:
                    found = [one for one in records if fits(query.terms, _whole(one))]
                else:
                    found = records
                ranked += [Fused(record.id, 0.0, "filter", {}) for record in found]
                shown = choose_passages(ranked, [], query, self.context, most=most)
                if len(shown) == query.limit or len(records) < size:
                    break
                last, size = records[-1].id, 2 * size
                late = self.clock.seconds > self.config.seconds
        find = matcher(query.terms)
        hits = tuple(make_hit(each, find) for each in shown)
        self.clock.lap("list")
        problems = [] if hits or narrowed else ["the query has no words to look for"]
        problems += [f"not all was looked at within {self.config.seconds:g} s"] if late else []
        problems += [*describe_damage(self.context.store), *self.context.files.problems]
        return SearchResult(hits, degraded=tuple(problems), trace=self._trace((), None))

    # ------------------------------------------------------------------ what is said of it

    def _trace(self, outcomes: Sequence[Outcome], facts: Facts | None) -> Trace:
        query, context = self.query, self.context
        embedded = self.store.indexes.coverage(context.model) if facts is None else facts.embedded
        return {
            "query": query.raw,
            "canonical": " ".join(query.text.split()).lower(),
            "mode": query.mode,
            "sources": {
                o.source: self._source_trace(one, o)
                for one, o in zip(self.planned, outcomes, strict=False)
            },
            "stages_ms": self.clock.laps,
            "total_ms": self.clock.total,
            "generation": self.store.changes.generation(),
            "model": context.model,
            "embedded": round(embedded, 4),
            "truncated": len(query.raw) > parsing.LONGEST_QUERY,
        }

    def _source_trace(self, one: PlannedSource, outcome: Outcome) -> SourceTrace:
        said: SourceTrace = {
            "kind": one.kind,
            "weight": one.weight,
            "part": one.part,
            "count": len(outcome.candidates),
            "ms": round(outcome.ms, 3),
            "start_ms": round(outcome.start, 3),
            "problem": outcome.problem,
        }
        if outcome.trace is not None:
            said["how"] = dict(outcome.trace)
        if one.name in self._behind:
            said["behind"] = self._behind[one.name]
        if self.request.least and one.name in self.request.least:
            whole = next(len(o.candidates) for o in self._outcomes if o.source == one.name)
            said["below"] = whole - said["count"]
        if self.request.explain:
            said["places"] = dict(outcome.places)
        return said

    def _explain(
        self,
        trace: Trace,
        outcomes: Sequence[Outcome],
        facts: Facts,
        votes: WeightedLists,
        because: dict[str, dict[str, Any]],
    ) -> None:
        trace["fusion"] = votes.trace()
        trace["confidence"] = {
            "by": "chance" if is_calibrated(self.config) else "rrf_score",
            "high": self.config.confidence_high,
            "med": self.config.confidence_med,
            "floor": self.floor,
            "because": because,
        }
        if self.reranks:
            trace["rerank"] = self._reread
        if self.request.explain:
            trace["terms"] = [list(group) for group in self.query.terms.words]
            trace["lists"] = {o.source: [_row(c) for c in o.candidates] for o in outcomes}
            trace["fusion"]["facts"] = facts._asdict()

    def note(self, result: SearchResult) -> SearchResult:
        """Add what there is to say of conditions that the text names, and of an edit of the
        settings that makes no sense; also where the answer was kept."""
        if self.parts.problem:
            result = replace(result, degraded=(*result.degraded, self.parts.problem))
        query = self.query
        if not query.as_words and (result.hits or not query.named):
            if self._keys is not None and self._stamp is not None and not self.parts.problem:
                from clew.search.cache_step import name_request

                if (name := name_request(self.request)) is not None:
                    self.parts.cache().know_key(name, self._stamp, self._keys.exact)
            return result
        from clew.search.advice import notes

        return replace(result, notes=notes(query, self.scope, self.store, found=bool(result.hits)))


def _choose_settings(request: SearchRequest, parts: SearchParts) -> Config:
    """The settings with what the request says in their place."""
    config = parts.config
    if request.weights is not None:
        checked = settings.check_weights(request.weights)
        for name in checked:
            if name not in parts.sources:
                hint = nearest(str(name), parts.sources)
                raise InputError(f"no source {name!r} to weigh: {hint}")
        config = replace(config, weights={**config.weights, **checked})
    names = ("rrf_k", "fusion", "group_by", "max_per_file")
    return settings.override(config, **{name: getattr(request, name) for name in names})


def _whole(record: Record) -> str:
    return as_read(titles(record.title, record.metadata), "", record.content)


def _row(candidate: Candidate) -> dict[str, Any]:
    of = {"id": candidate.id, "score": candidate.score, "chunk": candidate.chunk}
    return of if candidate.passage is None else {**of, "lines": list(candidate.passage.lines)}


def _rounded(chance: Chance) -> dict[str, Any]:
    said = chance._asdict()
    if chance.match is None:
        del said["match"]
    return {name: round(of, 4) if isinstance(of, float) else of for name, of in said.items()}
