"""The path of a lookup: cache → sources → (more, or other words) → pool → meaning → rank → answer.

The threads, the deadline and what happens to whoever misses it are those of every search: see
search/collect.py.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, overload

from clew.background import within
from clew.cache import CacheKey, LookupCache, build_cache_key, fingerprint
from clew.errors import ModelError
from clew.filter import visible
from clew.lookup.backend import BACKENDS, LISTS, STORAGE, BackendSource, LookupParts
from clew.lookup.pool import (
    PoolEntry,
    TextVectors,
    measure_coverage,
    pool_outcomes,
    rewrite_query,
    steps_of_k,
)
from clew.models import traits
from clew.protocols import Context, Store
from clew.ranking.adaptive import Facts
from clew.ranking.confidence import Judge
from clew.ranking.lookup_score import bm25, ordered, score_pool, semantic
from clew.search.collect import Outcome
from clew.search.context import IndexedFiles, QueryContext
from clew.search.hits import label_text
from clew.search.plan import PlannedSource
from clew.sources import ExternalPassage
from clew.text import analyser
from clew.text.analyser import known_share
from clew.text.parse import parse
from clew.text.passage import digest
from clew.text.snippet import matcher
from clew.types import Candidate, Hit, Passage, Query, SearchResult, Terms, Vector
from clew.validate import guarded

if TYPE_CHECKING:
    from clew.engine import Engine


LEAST_SECONDS = 0.05
SPARED, GLANCE = 0.2, 0.2
"""The parts of the deadline kept for the vectors, and that all have to say how fresh they are."""
KNOWN_SCRIPT = 0.5
"""The share of the query's letters that must be of a script which the model knows."""
_DECIDING = (
    *("ranking", "depth", "embed", "adaptive_k", "rewrite", "coverage_gap", "min_results"),
    *("folders", "repositories", "web", "max_file_mb", "commits"),
)
_ONE_LIST = (*STORAGE, "local_files", "web")


@dataclass(frozen=True, slots=True)
@guarded
class ExternalLookupResult(Sequence[Hit]):
    """The answer of a lookup, with what it was made from. A sequence of the ranked hits."""

    query: str
    """Canonical: what was looked up."""
    raw_query: str
    """What the caller gave."""
    results: tuple[Hit, ...]
    by_backend: Mapping[str, tuple[Hit, ...]]
    """What each backend that was asked has found, best first."""
    cache: LookupCache | None = field(default=None, repr=False)
    """The cache that lookups share."""
    storage: Engine | None = field(default=None, repr=False)
    """The engine whose store was searched."""
    degraded: tuple[str, ...] = ()
    """Backends that failed or were late, and why. Empty: all answered."""
    trace: Mapping[str, Any] = field(default_factory=dict)

    @overload
    def __getitem__(self, index: int) -> Hit: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Hit, ...]: ...
    def __getitem__(self, index: int | slice) -> Hit | tuple[Hit, ...]:
        return self.results[index]

    def __len__(self) -> int:
        return len(self.results)

    def to_dict(self) -> dict[str, Any]:
        """Give it as plain data, ready for JSON: without the handles."""
        return {
            "query": self.query,
            "raw_query": self.raw_query,
            "results": [hit.to_dict() for hit in self.results],
            "by_backend": {
                name: [hit.to_dict() for hit in hits] for name, hits in self.by_backend.items()
            },
            "degraded": list(self.degraded),
            "trace": dict(self.trace),
        }


def pack_hits(
    results: Sequence[Hit], by_backend: Mapping[str, Sequence[Hit]], trace: Mapping[str, Any]
) -> SearchResult:
    """Make one result for a cache of it, each hit once."""
    hits = {hit.id: hit for some in (results, *by_backend.values()) for hit in some}
    places = {name: place for place, name in enumerate(hits)}
    kept = {
        "results": [places[hit.id] for hit in results],
        "by_backend": {name: [places[h.id] for h in some] for name, some in by_backend.items()},
    }
    return SearchResult(tuple(hits.values()), trace={**trace, "kept": kept})


def unpack_hits(
    kept: SearchResult, canonical: str, max_results: int
) -> tuple[tuple[Hit, ...], dict[str, tuple[Hit, ...]], dict[str, Any]]:
    """The results, those of each backend, and the trace. An old snapshot has the hits alone."""
    trace = dict(kept.trace)
    places = trace.pop("kept", None)
    if places is not None:
        lists = places["by_backend"].items()
        return (
            tuple(kept.hits[i] for i in places["results"]),
            {name: tuple(kept.hits[i] for i in some) for name, some in lists},
            trace,
        )
    results = kept.hits[:max_results]
    by_backend: dict[str, tuple[Hit, ...]] = {}
    for hit in results:
        by_backend[hit.source] = (*by_backend.get(hit.source, ()), hit)
    trace |= {"canonical_query": canonical, "raw_canonical_query": canonical}
    return results, by_backend, trace


class Lookup:
    """One lookup. `canonical` is the query as it is asked and kept, `text_vectors` what was made
    lately of passages that are in no store, by model and text."""

    def __init__(
        self,
        canonical: str,
        max_results: int,
        parts: LookupParts,
        text_vectors: TextVectors,
    ):
        self._begun = time.perf_counter()
        self._query, self._max_results, self._parts = canonical, max_results, parts
        self._text_vectors = text_vectors
        self._asked_text = canonical
        """What was asked in the end."""
        self._outcomes: dict[str, list[Outcome]] = {}
        self._steps: list[dict[str, Any]] = []
        self._idle: dict[str, Any] = {}
        self._sources = dict(parts.sources)
        self._store = None if parts.engine is None else parts.engine.store.view()
        """The storage as this lookup sees it."""
        named = parts.settings.backends is not None
        has_vectors = self._store and self._store.indexes.prepare(parts.model.name)
        if not named and not has_vectors and self._is_storage("storage_vector"):
            del self._sources["storage_vector"]
            self._idle["storage_vector"] = _trace_backend([], ["off: the storage has no vectors"])

    def answer(self, raw: str, cache: LookupCache) -> ExternalLookupResult:
        """Answer from the cache if it can be, else anew; what is whole is kept."""
        settings = self._parts.settings
        key, stamped, silent = self._key() if settings.cache else (None, (), None)
        namespace = settings.namespace or None
        make = partial(
            ExternalLookupResult, self._query, raw, cache=cache, storage=self._parts.engine
        )
        slots: dict[str, str] = {}
        if key is not None:
            kept = cache.get(key, namespace=namespace, stamped=bool(stamped))
            if kept is None and not stamped:  # old snapshots' keys knew nothing of our settings
                kept = cache.get(self._bare_key(*self._sources), namespace=namespace)
            if kept is not None and self._are_as_shown(kept.result.hits):
                results, by_backend, trace = unpack_hits(
                    kept.result, self._query, self._max_results
                )
                trace |= {"cache": {"slot": kept.slot, "key": key.primary}, "total_ms": self._ms()}
                return make(results, by_backend, trace=trace)
            slots = self._take_old_answers(cache, [n for n in self._sources if n not in stamped])
        ranked, ranking, late = self._rank()
        results, by_backend = self._show(ranked)
        outcomes = self._outcomes.items()
        problems = [f"{name}: {told}" for name, some in outcomes if (told := _problem(some))]
        degraded = (*problems, *([late] if late else ()))
        trace = {
            "canonical_query": self._asked_text,
            "raw_canonical_query": self._query,
            "backends": {name: _trace_backend(some) for name, some in outcomes} | self._idle,
            "ranking": ranking,
            "steps": self._steps,
        }
        if key is not None and not degraded and not slots:  # which are as old as they were
            cache.put(key, pack_hits(results, by_backend, trace), namespace=namespace)
        trace["cache"] = {"slot": None, "key": key.primary if key else None}
        if silent:
            trace["cache"]["why_not"] = silent
        if slots:
            trace["cache"]["backends"] = slots
        trace["total_ms"] = self._ms()
        return make(results, by_backend, degraded=degraded, trace=trace)

    def pool(self) -> list[Hit]:
        """All that is ranked, best first."""
        return [entry.hit() for entry in self._rank()[0]]

    def _show(
        self, ranked: Sequence[PoolEntry]
    ) -> tuple[tuple[Hit, ...], dict[str, tuple[Hit, ...]]]:
        """The best of all and of each backend: nothing else needs a snippet."""
        find, most = matcher(parse(self._query, syntax=False).terms), self._max_results
        lists = {
            name: [entry for entry in ranked if name in entry.backends][:most]
            for name in self._sources
        }
        shown = {entry.id: entry for some in (ranked[:most], *lists.values()) for entry in some}
        hits = {name: entry.hit(find) for name, entry in shown.items()}
        by_backend = {name: tuple(hits[e.id] for e in some) for name, some in lists.items()}
        return tuple(hits[entry.id] for entry in ranked[:most]), by_backend

    # ------------------------------------------------------------------ the cache

    def _bare_key(self, *backends: str) -> CacheKey:
        """The key that a snapshot from before has for these."""
        namespace = self._parts.settings.namespace or None
        return build_cache_key(query=self._query, backend=",".join(backends), namespace=namespace)

    def _take_old_answers(self, cache: LookupCache, names: Sequence[str]) -> dict[str, str]:
        """Among those that cannot say how fresh they are, find backends that a snapshot from before
        has an answer of: such caches kept each backend's by itself. They are not asked then. And
        under which form of the key it stood."""
        slots: dict[str, str] = {}
        for name in names:
            namespace = self._parts.settings.namespace or None
            if (kept := cache.get(self._bare_key(name), namespace=namespace)) is not None:
                hits = kept.result.hits
                self._sources[name] = BackendSource(lambda query, limit, hits=hits: hits)  # type: ignore[misc]
                slots[name] = kept.slot
        return slots

    def _key(self) -> tuple[CacheKey | None, Sequence[str], str | None]:
        """The key, and which backends it tells the freshness of. No key: one that should have said
        so has not, so nothing may be kept; and who that was."""
        parts, settings = self._parts, self._parts.settings
        said: dict[str, str | None] = {}

        def listen() -> None:
            for name, source in self._sources.items():
                if self._store is not None and self._is_storage(name):
                    said[name] = ".".join(map(str, self._store.changes.edition()))
                else:
                    said[name] = source.freshness(cast(Store, self._store))

        try:
            if all(map(self._is_storage, self._sources)):
                listen()  # the storage says it at once
            else:
                within(settings.deadline * GLANCE, listen)
        except Exception:  # the source is asked next, and says it in its own words
            said = {**said, next(name for name in self._sources if name not in said): None}
        silent = [name for name, state in said.items() if state is None]
        if silent:
            return None, (), f"{silent[0]} did not say how fresh it is"
        flags = [f"{name}={weight:g}" for name, weight in settings.weights.items()]
        flags += [f"{name}={getattr(settings, name)}" for name in _DECIDING]
        table = fingerprint(dict(settings.credibility))
        flags += [f"max_results={self._max_results}", f"credibility_table={table}"]
        own = None if parts.engine is None else parts.engine.config
        told = (own.personal, own.floor) if own is not None else ()
        scope = fingerprint([parts.filter, parts.include_personal, *told])
        state = [f"{name}:{of}" for name, of in said.items() if of]
        key = build_cache_key(
            query=self._query,
            backend=",".join(self._sources),
            namespace=settings.namespace or None,
            embedding_signature=(parts.model.name,),
            embedding_state="local" if parts.model.local else "api",
            hybrid_flags=flags,
            storage_hints=[*state, f"scope:{scope}"],
        )
        return key, [name for name, of in said.items() if of], None

    def _are_as_shown(self, hits: Sequence[Hit]) -> bool:
        """Whether the files of the storage's are still as a kept answer shows them."""
        engine, store = self._parts.engine, self._store
        if engine is None or store is None:
            return True
        home = None if engine.root is None else engine.root.absolute()
        return IndexedFiles(store, home).as_shown(hits)

    def _is_storage(self, name: str) -> bool:
        """Whether it is the storage's own list, and not a backend that has taken its place."""
        own = name in self._parts.registered
        return name in STORAGE and name in self._parts.sources and not own

    # ------------------------------------------------------------------ asking

    def _ask(self) -> list[PoolEntry]:
        """What all sources found, each thing once; asked as often as the settings allow."""
        settings, pool = self._parts.settings, list[PoolEntry]()
        depth = max(settings.depth, self._max_results)
        for k in steps_of_k(self._max_results, depth) if settings.adaptive_k else [depth]:
            self._outcomes = {n: [one] for n, one in self._collect(self._query, k).items()}
            pool = self._pool()
            if settings.adaptive_k:
                gap = self._note_step(pool, {"step": "adaptive_k", "k": k})
                if gap <= settings.coverage_gap or self._is_late():
                    break
        if not settings.rewrite:
            return pool
        seen = measure_coverage(self._query, (entry.text for entry in pool))
        gap = round(seen.gap, 4)
        for text in rewrite_query(self._query, seen):
            few = len(pool) < settings.min_results
            if self._is_late() or not (few or gap > settings.coverage_gap):
                break
            for name, more in self._collect(text, k).items():
                self._outcomes[name].append(more)
            self._asked_text, pool = text, self._pool()
            reason = "too few results" if few else "coverage gap"
            gap = self._note_step(pool, {"step": "rewrite", "query": text, "reason": reason})
        return pool

    def _note_step(self, pool: Sequence[PoolEntry], step: dict[str, Any]) -> float:
        """Note a step; the share of the query's words that nothing has."""
        seen = measure_coverage(self._query, (entry.text for entry in pool))
        gap = round(seen.gap, 4)
        self._steps.append({**step, "gap": gap, "pool": len(pool)})
        return gap

    def _collect(self, text: str, k: int) -> dict[str, Outcome]:
        """What each source has to say, `k` candidates deep; each candidate with its passage."""
        parts, engine, settings = self._parts, self._parts.engine, self._parts.settings
        see = partial(
            visible, parts.filter, include_personal=parts.include_personal, skills_only=False
        )
        outside = parse(text, syntax=False, filter=see(personal=()), limit=k, depth=k)
        context: QueryContext | None = None
        if engine is not None and self._store is not None:
            inside = replace(outside, filter=see(personal=engine.config.personal))
            home = None if engine.root is None else engine.root.absolute()
            context = QueryContext(self._store, parts.model, inside, home=home)
        asked = []
        for name, source in self._sources.items():
            kind, query, quick = "backend", outside, False
            if context is not None and self._is_storage(name):
                kind, query, quick = BACKENDS[name], context.query, True
            elif name not in _ONE_LIST:
                query = replace(outside, depth=k * LISTS)
            asked.append(PlannedSource(name, source, query, kind=kind, quick=quick))
        # A source that hangs must not take the time to compare meanings from what others found.
        spared = SPARED * settings.deadline if settings.ranking in ("hybrid", "semantic") else 0.0
        seconds = max(LEAST_SECONDS, self._seconds_left() - spared)
        outcomes = parts.collector.collect(asked, cast(Context, context), deadline=seconds)
        return {
            one.name: self._read_storage(one, outcome, context)
            if context and one.quick
            else outcome
            for one, outcome in zip(asked, outcomes, strict=True)
        }

    def _read_storage(
        self, asked: PlannedSource, outcome: Outcome, context: QueryContext | None
    ) -> Outcome:
        """A list of the storage's with its passages; and what is missing of it."""
        engine = self._parts.engine
        assert engine is not None and context is not None
        store = context.store
        candidates, facts = outcome.candidates, context.facts()
        there = [
            (candidate, passage)
            for candidate, passage in zip(candidates, store.passages(candidates), strict=True)
            if passage is not None
        ]
        if asked.kind == "vectors" and engine.config.floor and there:
            there = _likely(there, asked.query, facts, engine.config.floor)
        states = context.files.states([(p.record.id, p.record.path) for _, p in there])
        chunks = [p.chunk for _, p in there if p.chunk]
        known = store.vectors.known(chunks, model=context.model) if chunks else {}
        roots = store.files.roots() if there else {}
        found = []
        for rank, ((candidate, passage), state) in enumerate(zip(there, states, strict=True), 1):
            if state == "gone":
                continue
            record, file = passage.record, None
            folder = roots.get(record.id.partition(":")[0])
            if folder is not None and record.path:
                file = str(Path(engine.root or "", folder, record.path).resolve())
            if state is not None:
                record = replace(record, metadata={**record.metadata, state: True})
            made = ExternalPassage(
                *(passage.chunk, record, passage.text, passage.lines, passage.heading),
                vector=known.get(passage.chunk),
                similarity=candidate.score if asked.kind == "vectors" else None,
                file=file,
                signals={asked.kind: {"rank": rank, "score": candidate.score}},
            )
            found.append(candidate._replace(passage=made))
        own = [f"{asked.kind}: {outcome.problem}"] if outcome.problem else []
        problem = "; ".join((*own, *context.degraded([asked], facts))) or None
        return outcome._replace(candidates=tuple(found), problem=problem)

    def _pool(self) -> list[PoolEntry]:
        """What was found, each once, and nothing that its file says no longer."""
        files = {
            candidate.passage.file
            for some in self._outcomes.values()
            for outcome in some
            for candidate in outcome.candidates
            if isinstance(candidate.passage, ExternalPassage) and candidate.passage.file
        }
        now: dict[str, str] = {}
        for name, source in self._sources.items():
            if not _problem(self._outcomes[name]):
                now |= source.read_files(list(files))
        return pool_outcomes(self._outcomes, now)

    def _seconds_left(self) -> float:
        gone = time.perf_counter() - self._begun
        return max(LEAST_SECONDS, self._parts.settings.deadline - gone)

    def _is_late(self) -> bool:
        return self._seconds_left() <= LEAST_SECONDS

    def _ms(self) -> float:
        return round((time.perf_counter() - self._begun) * 1e3, 3)

    # ------------------------------------------------------------------ ranking

    def _rank(self) -> tuple[list[PoolEntry], dict[str, Any], str | None]:
        """What was found, best first, how it was ranked, and what could not be done in time."""
        settings, pool = self._parts.settings, self._ask()
        texts = [entry.text for entry in pool]
        near, why_not, late = self._compare(pool, texts)
        scored = score_pool(
            self._query,
            texts,
            [entry.address for entry in pool],
            near,
            ranking=settings.ranking,
            weights=settings.weights,
            table=settings.credibility,
            rarities=self._rarities(),
        )
        ranking: dict[str, Any] = {"by": scored.by, "weights": scored.weights, "pool": len(pool)}
        if near is None or not any(score is not None for score in near):
            ranking["semantic"] = why_not or "no text has a vector"
        for entry, score, signals in zip(pool, scored.scores, scored.signals, strict=True):
            entry.score, entry.signals = score, {**entry.signals, **signals}
        return ordered(pool, scored.scores, [entry.id for entry in pool]), ranking, late

    def _rarities(self) -> list[float] | None:
        """How rare each word of the query is among all that the storage holds; None: nothing."""
        if self._store is None:
            return None
        reach, allowed = self._store.indexes.reach, self._parts.filter
        groups = dict.fromkeys(analyser.words(self._query))
        found = [reach(Terms((group,)), allowed) for group in groups]
        return found if any(found) else None

    def _compare(
        self, pool: Sequence[PoolEntry], texts: Sequence[str]
    ) -> tuple[list[float | None] | None, str | None, str | None]:
        """How near each text is in meaning; why that is not known; what is missing because time ran
        out: then it may be there the next time."""
        model, settings, seconds = self._parts.model, self._parts.settings, self._seconds_left()
        if settings.ranking not in ("hybrid", "semantic"):
            return None, "not asked for", None
        name = model.name
        if known_share(self._query, traits(name).scripts) < KNOWN_SCRIPT:
            return None, f"{name} does not know the script of the query", None
        vectors = [entry.vector for entry in pool]
        keys = [(name, _digest(text)) for text in texts]
        if settings.embed:  # with 0, texts that are in no store are not compared
            self._text_vectors.load()
            for i, key in enumerate(keys):
                if vectors[i] is None:
                    vectors[i] = self._text_vectors.get(key)
        missing = [i for i, entry in enumerate(pool) if entry.vector is None]
        wanted = self._most_promising(missing, texts) if model.local else []
        made: list[Vector] = []

        def embed() -> None:
            made.append(model.embed_query(self._query))
            embedder = model.load()
            for i in wanted:
                if vectors[i] is None:
                    row = vectors[i] = embedder.embed_documents([texts[i]])[0]
                    self._text_vectors.add(keys[i], row)

        late = None
        try:
            within(seconds, embed)
        except ModelError as error:
            return None, str(error), None
        except TimeoutError:
            late = f"semantic: no vectors within {seconds:.3g} s for some of the texts"
        except Exception as error:  # a model may be anybody's code
            return None, f"{type(error).__name__}: {error}", f"semantic: {error}"
        if not made:
            return None, late, late
        similarities = [entry.similarity for entry in pool]
        return semantic(made[0], list(vectors), similarities=similarities), None, late

    def _most_promising(self, missing: Sequence[int], texts: Sequence[str]) -> Sequence[int]:
        """Texts with most of the query's words: not all can be embedded while somebody waits."""
        most = self._parts.settings.embed
        if len(missing) <= most:
            return missing
        scores = dict(zip(missing, bm25(self._query, [texts[i] for i in missing]), strict=True))
        return sorted(missing, key=lambda i: (-scores[i], i))[:most]


def _digest(text: str) -> bytes:
    return digest(text.encode("utf-8", "replace").decode())


def _trace_backend(outcomes: Sequence[Outcome], notes: Iterable[str] = ()) -> dict[str, Any]:
    """What became of one backend, however often it was asked."""
    told = [note for outcome in outcomes for note in (outcome.trace or {}).get("notes", ())]
    return {
        "count": sum(c.passage is not None for o in outcomes for c in o.candidates),
        "ms": round(sum(outcome.ms for outcome in outcomes), 3),
        "problem": _problem(outcomes),
        "notes": list(dict.fromkeys((*told, *notes))),
    }


def _problem(outcomes: Sequence[Outcome]) -> str | None:
    return next((each.problem for each in reversed(outcomes) if each.problem), None)


def _likely(
    there: list[tuple[Candidate, Passage]], query: Query, facts: Facts, floor: float
) -> list[tuple[Candidate, Passage]]:
    """Leave out what is less likely to be relevant than the settings' floor, as in any search by
    meaning alone."""
    cosines = {candidate.id: candidate.score for candidate, _ in there}
    judge = Judge(query.terms, facts, matcher(query.terms), cosines=cosines)

    return [
        (candidate, passage)
        for candidate, passage in there
        if not judge.is_below(judge(candidate.id, passage.text, label_text(passage)), floor)
    ]
