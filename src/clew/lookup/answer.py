"""The path of one lookup: cache → backends → (more, or other words) → pool → meaning → rank."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from clew.background import within
from clew.cache import CacheKey, LookupCache, build_cache_key, fingerprint
from clew.cache.lookup_cache import CachedLookup
from clew.errors import InputError
from clew.lookup.backends import Backend
from clew.lookup.gather import Pooled, Reply, gather, pooled
from clew.lookup.meaning import Embedded, meaning_of
from clew.lookup.parts import Parts
from clew.lookup.rank import Ranked, rank, rarities, with_snippets
from clew.lookup.result import ExternalLookupResult
from clew.lookup.widen import coverage, rewrites, steps_of_k
from clew.types import Hit, SearchResult

__all__ = ["answer", "check_max_results", "pool"]

LEAST_SECONDS = 0.05
SPARED, GLANCE = 0.2, 0.2
"""The parts of the deadline kept for the vectors, and that all have to say how fresh they are."""


def check_max_results(max_results: int) -> None:
    if isinstance(max_results, bool) or not isinstance(max_results, int) or max_results < 1:
        raise InputError(f"max_results must be a whole number of at least 1, not {max_results!r}")


def answer(
    raw: str,
    canonical: str,
    max_results: int,
    parts: Parts,
    cache: LookupCache,
    embedded: Embedded,
) -> ExternalLookupResult:
    """From the cache if it can be, else anew; what is whole is kept."""
    begun = time.perf_counter()
    settings = parts.settings
    asked, idle = _asked(parts.backends, named=settings.backends is not None)
    key, stamped, silent = None, False, None
    if settings.cache:
        key, stamped, silent = _key(canonical, max_results, asked, parts)
    namespace = settings.namespace or None
    kept = None if key is None else cache.get(key, namespace=namespace, stamped=stamped)
    if key is not None and kept is None and not stamped:
        kept = _from_before(canonical, asked, cache, namespace)
    if key is not None and kept is not None:
        about = {"slot": kept.slot, "key": key.primary}
        return _restored(kept.result, raw, canonical, max_results, cache, parts, about, begun)
    run = _Run(canonical, max_results, asked, parts, begun)
    run.ask()
    ranked, late = _ranked(canonical, run, parts, embedded)
    lists = {name: _of_backend(ranked.hits, name, max_results) for name in asked}
    shown = with_snippets(canonical, (ranked.hits[:max_results], *lists.values()))
    found = tuple(shown[hit.id] for hit in ranked.hits[:max_results])
    by_backend = {name: tuple(shown[hit.id] for hit in hits) for name, hits in lists.items()}
    problems = [f"{r.backend}: {r.problem}" for r in run.replies.values() if r.problem]
    degraded = (*problems, *([late] if late else ()))
    trace: dict[str, Any] = {
        "canonical_query": run.text,
        "raw_canonical_query": canonical,
        "backends": {**{r.backend: _told(r) for r in run.replies.values()}, **idle},
        "ranking": dict(ranked.trace),
        "steps": run.steps,
    }
    if key is not None and not degraded:
        cache.put(key, _packed(found, by_backend, trace), namespace=namespace)
    trace["cache"] = {"slot": None, "key": key.primary if key else None}
    if silent:
        trace["cache"]["why_not"] = silent
    trace["total_ms"] = _ms(begun)
    return ExternalLookupResult(
        canonical, raw, found, by_backend, cache, parts.engine, degraded, trace
    )


def pool(canonical: str, parts: Parts, embedded: Embedded) -> list[Hit]:
    """All that a lookup of a few ranks, best first: what weights can be chosen on."""
    asked, _ = _asked(parts.backends, named=parts.settings.backends is not None)
    run = _Run(canonical, 1, asked, parts, time.perf_counter())
    run.ask()
    return _ranked(canonical, run, parts, embedded)[0].hits


def _ranked(
    canonical: str, run: _Run, parts: Parts, embedded: Embedded
) -> tuple[Ranked, str | None]:
    """What was found, in order; and what could not be done in time."""
    found = run.pool()
    meaning, late = meaning_of(canonical, found, parts, embedded, seconds=run.seconds_left())
    rare = None
    if parts.engine is not None:
        rare = rarities(parts.engine.store, canonical, parts.filter)
    return rank(canonical, found, meaning, parts.settings, rarities=rare), late


def _of_backend(hits: Sequence[Hit], name: str, most: int) -> list[Hit]:
    return [hit for hit in hits if name in hit.metadata["backends"]][:most]


def _asked(
    backends: Mapping[str, Backend], *, named: bool
) -> tuple[dict[str, Backend], dict[str, Any]]:
    """Those that have something to say; and why the others need not be asked."""
    asked, idle = dict(backends), {}
    for name, backend in backends.items():
        if not named and (reason := backend.idle()) is not None:
            del asked[name]
            idle[name] = {"count": 0, "ms": 0.0, "problem": None, "notes": [f"off: {reason}"]}
    return asked, idle


# ---------------------------------------------------------------------- ask


class _Run:
    """The asking of one lookup, as often as its settings allow."""

    def __init__(
        self,
        canonical: str,
        max_results: int,
        backends: Mapping[str, Backend],
        parts: Parts,
        begun: float,
    ):
        self.text = canonical
        """What was asked in the end."""
        self.replies: dict[str, Reply] = {}
        self.steps: list[dict[str, Any]] = []
        self._query, self._max, self._backends, self._parts = (
            canonical,
            max_results,
            backends,
            parts,
        )
        self._begun = begun

    def seconds_left(self) -> float:
        gone = time.perf_counter() - self._begun
        return max(LEAST_SECONDS, self._parts.settings.deadline - gone)

    def _seconds_to_ask(self) -> float:
        """What is left, but for the time it takes to compare meanings: a backend that hangs must
        not take that from what the others found."""
        settings = self._parts.settings
        spared = SPARED * settings.deadline if settings.ranking in ("hybrid", "semantic") else 0.0
        return max(LEAST_SECONDS, self.seconds_left() - spared)

    def ask(self) -> None:
        settings = self._parts.settings
        depth = max(settings.depth, self._max)
        steps = steps_of_k(self._max, depth) if settings.adaptive_k else [depth]
        for k in steps:
            self._gather(self._query, k, anew=True)
            if settings.adaptive_k:
                gap = self._gap()
                self._step("adaptive_k", k=k, gap=gap)
                if gap <= settings.coverage_gap or self._late():
                    break
        if settings.rewrite:
            self._rewrite(k)

    def _rewrite(self, k: int) -> None:
        settings = self._parts.settings
        seen = coverage(self._query, self.pool())
        for text in rewrites(self._query, seen):
            few, gap = len(self.pool()) < settings.min_results, self._gap()
            if self._late() or not (few or gap > settings.coverage_gap):
                break
            reason = "too few results" if few else "coverage gap"
            self._gather(text, k, anew=False)
            self.text = text
            self._step("rewrite", query=text, reason=reason, gap=self._gap())

    def _gather(self, text: str, k: int, *, anew: bool) -> None:
        parts = self._parts
        for reply in gather(
            parts.collector, self._backends, text, limit=k, deadline=self._seconds_to_ask()
        ):
            before = None if anew else self.replies.get(reply.backend)
            self.replies[reply.backend] = reply if before is None else _both(before, reply)

    def pool(self) -> list[Pooled]:
        """What was found, each once, and nothing that its file says no longer."""
        named = {each.file for r in self.replies.values() for each in r.found if each.file}
        now: dict[str, str] = {}
        for name, backend in self._backends.items():
            if not self.replies[name].problem:
                now |= backend.now(named)
        return pooled(self.replies.values(), now)

    def _gap(self) -> float:
        return round(coverage(self._query, self.pool()).gap, 4)

    def _late(self) -> bool:
        return self.seconds_left() <= LEAST_SECONDS

    def _step(self, step: str, **told: Any) -> None:
        self.steps.append({"step": step, **told, "pool": len(self.pool())})


def _both(first: Reply, second: Reply) -> Reply:
    return Reply(
        first.backend,
        (*first.found, *second.found),
        first.ms + second.ms,
        second.problem or first.problem,
        tuple(dict.fromkeys((*first.notes, *second.notes))),
    )


def _told(reply: Reply) -> dict[str, Any]:
    return {
        "count": len(reply.found),
        "ms": round(reply.ms, 3),
        "problem": reply.problem,
        "notes": list(reply.notes),
    }


# ---------------------------------------------------------------------- keep


def _from_before(
    canonical: str, asked: Mapping[str, Backend], cache: LookupCache, namespace: str | None
) -> CachedLookup | None:
    """An answer from an old snapshot, whose keys knew nothing of our settings."""
    bare = build_cache_key(query=canonical, backend=",".join(asked), namespace=namespace)
    return cache.get(bare, namespace=namespace)


def _key(
    canonical: str, max_results: int, asked: Mapping[str, Backend], parts: Parts
) -> tuple[CacheKey | None, bool, str | None]:
    """And whether it says how fresh any backend is. No key: one that should have said so has not,
    so nothing may be kept; and who that was."""
    settings = parts.settings
    state, silent = _state(asked, settings.deadline * GLANCE)
    if state is None:
        return None, False, silent
    flags = [f"{name}={weight:g}" for name, weight in settings.weights.items()]
    flags += [f"{name}={getattr(settings, name)}" for name in _DECIDING]
    table = fingerprint(dict(settings.credibility))
    flags += [f"max_results={max_results}", f"credibility_table={table}"]
    scope = fingerprint([parts.filter, parts.include_personal])
    model = str(parts.model.model)
    key = build_cache_key(
        query=canonical,
        backend=",".join(asked),
        namespace=settings.namespace or None,
        embedding_signature=(model,),
        embedding_state="local" if parts.local_model else "api",
        hybrid_flags=flags,
        storage_hints=[*state, f"scope:{scope}"],
    )
    return key, bool(state), None


_DECIDING = (
    *("ranking", "depth", "embed", "adaptive_k", "rewrite", "coverage_gap", "min_results"),
    *("folders", "repositories", "web", "max_file_mb", "commits"),
)


def _state(asked: Mapping[str, Backend], seconds: float) -> tuple[list[str] | None, str | None]:
    """What each backend that can says of its freshness, the storage first, which says it at once;
    and who did not, if somebody did not in this time."""
    said: dict[str, str | None] = {}

    def listen() -> None:
        for name, backend in asked.items():
            said[name] = backend.freshness()

    try:
        if all(name.startswith("storage_") for name in asked):
            listen()
        else:
            within(seconds, listen)
    except Exception:  # the backend is asked next, and says it in its own words
        silent = next(name for name in asked if name not in said)
        return None, f"{silent} did not say how fresh it is"
    return [f"{name}:{state}" for name, state in said.items() if state is not None], None


def _packed(
    found: Sequence[Hit], by_backend: Mapping[str, Sequence[Hit]], trace: Mapping[str, Any]
) -> SearchResult:
    """As one result, each hit once."""
    hits = {hit.id: hit for some in (found, *by_backend.values()) for hit in some}
    places = {name: place for place, name in enumerate(hits)}
    listed = {name: [places[hit.id] for hit in some] for name, some in by_backend.items()}
    kept = {"results": [places[hit.id] for hit in found], "by_backend": listed}
    return SearchResult(tuple(hits.values()), trace={**trace, "kept": kept})


def _restored(
    kept: SearchResult,
    raw: str,
    canonical: str,
    max_results: int,
    cache: LookupCache,
    parts: Parts,
    about: Mapping[str, Any],
    begun: float,
) -> ExternalLookupResult:
    trace = dict(kept.trace)
    places = trace.pop("kept", None)
    if places is None:  # an old snapshot has the hits alone
        found = kept.hits[:max_results]
        by_backend: dict[str, tuple[Hit, ...]] = {}
        for hit in found:
            by_backend[hit.source] = (*by_backend.get(hit.source, ()), hit)
        trace |= {"canonical_query": canonical, "raw_canonical_query": canonical}
    else:
        found = tuple(kept.hits[i] for i in places["results"])
        by_backend = {
            name: tuple(kept.hits[i] for i in some) for name, some in places["by_backend"].items()
        }
    trace |= {"cache": dict(about), "total_ms": _ms(begun)}
    return ExternalLookupResult(canonical, raw, found, by_backend, cache, parts.engine, (), trace)


def _ms(begun: float) -> float:
    return round((time.perf_counter() - begun) * 1e3, 3)
