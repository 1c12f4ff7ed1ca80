"""What a turn of a conversation is reminded of: the recipe of CONTRACT C as one call.

    message ─┬─ token recall ≥ 0.33 ── 20 ─┐
             └─ cosine ≥ the model's ─ 20 ─┴─ 1 / (60 + rank) ─┬─ 5 facts that hold
                                                               └─ 2 episodes of the last 30 days
    a new conversation: the latest episode first, however old

Whatever happens to the embedding provider, the turn goes on: `diagnostics` says by which path.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from clew.engine import Engine
from clew.errors import ClewError, InputError
from clew.filter import Filter
from clew.memory.episodes import day_of, window
from clew.memory.find import recalled, search
from clew.memory.results import Recalled
from clew.models import NullEmbeddingProvider, least_cosine
from clew.protocols import Store
from clew.text.parse import LONGEST_QUERY
from clew.text.token_recall import LEAST_RECALL
from clew.types import SearchResult, Vector

__all__ = ["Recipe", "WorkingMemory", "working_memory"]

K = 60
FACTS = ("semantic", "procedural")
LATEST, FOUND = "latest", "query"

log = logging.getLogger("clew")


class WorkingMemory(list[dict[str, Any]]):
    """Memories as plain dicts, ready for a prompt. `diagnostics` says how they were found and what
    could not take part."""

    def __init__(self, entries: Iterable[dict[str, Any]] = (), **diagnostics: Any) -> None:
        super().__init__(entries)
        self.diagnostics: dict[str, Any] = diagnostics


@dataclass(frozen=True, slots=True)
class Recipe:
    """How many of what."""

    semantic: int = 5
    episodic: int = 2
    candidates: int = 20
    max_age_days: float | None = 30
    """Of episodes that are found by what they say; None: any age."""
    procedural: bool = True
    """Whether what says how to do something may take the place of a fact."""
    new_conversation: bool = False
    least_recall: float = LEAST_RECALL
    least_cosine: float | None = None
    """None: what is right for the model."""

    def __post_init__(self) -> None:
        for name, least in (("semantic", 0), ("episodic", 0), ("candidates", 1)):
            count = getattr(self, name)
            if isinstance(count, bool) or not isinstance(count, int) or count < least:
                raise InputError(f"{name} must be a whole number from {least} on, not {count!r}")
        for name, low, high in (
            ("max_age_days", 0.0, math.inf),
            ("least_recall", 0.0, 1.0),
            ("least_cosine", -1.0, 1.0),
        ):
            value = getattr(self, name)
            number = isinstance(value, (int, float)) and not isinstance(value, bool)
            optional = value is None and name != "least_recall"
            if not optional and not (number and low <= value <= high):
                raise InputError(f"{name} must be a number from {low:g} to {high:g}, not {value!r}")

    @property
    def facts(self) -> tuple[str, ...]:
        return FACTS if self.procedural else FACTS[:1]


@dataclass(frozen=True, slots=True)
class _Asked:
    """A message with its vector, and by which path it is answered."""

    text: str
    path: str
    model: str
    vector: Vector | None = None
    dim: int = 0
    """Of vectors it can be compared with; 0: not known."""
    problem: str | None = None


def working_memory(
    engine: Engine,
    query: str,
    scope: Filter,
    recipe: Recipe,
    *,
    now: float,
    given: tuple[Vector, str] | None = None,
) -> WorkingMemory:
    """What the recipe finds among the active memories of `scope`. `given` is the message's vector
    and the model that made it, where the caller has them."""
    store, config = engine.store, engine.config
    everything = scope & Filter(type=(*recipe.facts, "episodic"))
    facts, episodes = scope & Filter(type=recipe.facts), scope & Filter(type="episodic")
    latest = store.select(episodes, limit=1, newest=True) if recipe.new_conversation else []
    asked = _asked(engine, query, everything, given)
    least = recipe.least_cosine
    if least is None:
        least = least_cosine(asked.model, config.least_cosine)
    ask = partial(_ask, engine, asked, recipe=recipe, least_cosine=least, now=now)
    recent, dated = window(store, episodes, recipe.max_age_days, now=now)
    semantic, about_facts, problems = ask(facts, recipe.semantic)
    episodic, about_episodes, more = ask(recent, recipe.episodic, beside=len(latest))
    first = [_entry(Recalled.of(record), LATEST) for record in latest]
    for entry in first:  # what it also was found by
        entry |= next((e for e in episodic if e["id"] == entry["id"]), {}) | {"via": LATEST}
    known = {entry["id"] for entry in first}
    later = [e for e in episodic if e["id"] not in known][: recipe.episodic]
    entries = [*first, *semantic, *later]
    counts = {
        name: about_facts[name] + about_episodes[name]
        for name in ("by_tokens", "by_cosine", "below_recall", "below_cosine")
    }
    return WorkingMemory(
        entries,
        retrieval_path=asked.path,
        problem=asked.problem,
        model=asked.model,
        least_recall=recipe.least_recall,
        least_cosine=least,
        latest=first[0]["id"] if first else None,
        counts={**counts, **_skipped(store, everything, asked), **dated, "returned": len(entries)},
        semantic={**about_facts, "returned": len(semantic)},
        episodic={**about_episodes, **dated, "returned": len(later)},
        degraded=tuple(dict.fromkeys((*problems, *more))),
    )


# ---------------------------------------------------------------- the message


def _asked(engine: Engine, query: str, scope: Filter, given: tuple[Vector, str] | None) -> _Asked:
    if not isinstance(query, str):
        raise InputError(f"a message is text, not {type(query).__name__}")
    text, store = query.strip()[:LONGEST_QUERY], engine.store
    model = engine.model if given is None else given[1]
    if not store.count(scope):
        return _Asked("", "skipped_empty_store", model)
    if not text:
        return _Asked("", "skipped_empty_query", model)
    kept = store.prepare(model)
    if given is not None:
        return _fitting(_Asked(text, "hybrid_rrf", model, given[0], dim=len(given[0])), kept)
    embedder = engine.embedder
    if isinstance(embedder, NullEmbeddingProvider):
        return _Asked(text, "token_recall", model, dim=kept, problem=embedder.reason)
    if not kept:  # nothing to compare with
        dim = 0
        with suppress(Exception):  # it may have to ask the provider
            dim = embedder.dim
        return _Asked(text, "hybrid_rrf", model, dim=dim)
    try:
        vector = _checked(engine.embed_query(text, seconds=engine.config.seconds))
    except Exception as error:  # anybody's code, and often somebody else's machine
        said = str(error) if isinstance(error, ClewError) else f"{type(error).__name__}: {error}"
        log.warning("this turn is answered by words alone: %s", said)
        return _Asked(text, "token_recall_after_embed_error", model, dim=kept, problem=said)
    return _fitting(_Asked(text, "hybrid_rrf", model, vector, dim=len(vector)), kept)


def _fitting(asked: _Asked, kept: int) -> _Asked:
    """Without its vector where those in the store are of another size: they are skipped."""
    if asked.dim == kept:
        return asked
    problem = (
        f"vectors of {asked.model} have {kept} dimensions here, the message's has {asked.dim}: "
        "give the embedder a name of its own, and reembed"
    )
    return replace(asked, vector=None, problem=problem if kept else None)


def _checked(vector: Any) -> Vector:
    import numpy as np

    row: Vector = np.asarray(vector, np.float32)
    if row.ndim != 1 or not np.isfinite(row).all() or not row.any():
        raise ValueError("the vector is not one row of finite numbers with a direction")
    return row


def _skipped(store: Store, scope: Filter, asked: _Asked) -> dict[str, int]:
    """Memories that could not take part by meaning. One may be of another model and of another
    dimension at once."""
    others: Mapping[tuple[str, int] | None, int] = {}
    if store.coverage(asked.model) < 1:
        others = store.unembedded(scope, model=asked.model)
    models = {kind: count for kind, count in others.items() if kind is not None}
    sizes = {kind: count for kind, count in models.items() if asked.dim not in (0, kind[1])}
    unlike = sum(sizes.values())
    if asked.dim and store.prepare(asked.model) not in (0, asked.dim):
        unlike += store.count(scope) - sum(others.values())  # those of its own name as well
    return {
        "without_vector": others.get(None, 0),
        "other_model": sum(models.values()),
        "other_dimension": unlike,
    }


# ---------------------------------------------------------------- what is found


def _ask(
    engine: Engine,
    asked: _Asked,
    scope: Filter | None,
    wanted: int,
    *,
    recipe: Recipe,
    least_cosine: float,
    now: float,
    beside: int = 0,
) -> tuple[list[dict[str, Any]], dict[str, int], tuple[str, ...]]:
    """So many, and some to spare for those that are there anyway; counts; what was in the way."""
    found = SearchResult()
    entries: list[dict[str, Any]] = []
    if asked.text and scope is not None and wanted:
        least = {"tokens": recipe.least_recall, "vectors": least_cosine}
        legs = ("tokens",) if asked.vector is None else ("tokens", "vectors")
        found = search(
            engine,
            asked.text,
            scope,
            wanted + beside,
            sources=legs,
            vector=asked.vector,
            model=asked.model,
            fusion="rrf",
            rrf_k=K,
            depth=recipe.candidates,
            least={name: least[name] for name in legs},
            now=now,
        )
        whole = recalled(engine, found, scope, "hybrid")
        entries = [_entry(memory, FOUND) for memory in whole]
    legs_found = found.trace.get("sources", {})
    tokens, vectors = legs_found.get("tokens", {}), legs_found.get("vectors", {})
    counts = {
        "active": 0 if scope is None else engine.store.count(scope),
        "by_tokens": tokens.get("count", 0),
        "by_cosine": vectors.get("count", 0),
        "below_recall": tokens.get("below", 0),
        "below_cosine": vectors.get("below", 0),
    }
    return entries, counts, found.degraded


def _entry(memory: Recalled, via: str) -> dict[str, Any]:
    tokens, vectors = memory.signals.get("tokens", {}), memory.signals.get("vectors", {})
    return {
        "id": memory.id,
        "content": memory.content,
        "type": memory.type,
        "importance": memory.importance,
        "created_at": memory.created_at,
        "date": day_of(memory),
        "tags": list(memory.tags),
        "metadata": dict(memory.metadata),
        "via": via,
        "score": memory.score,
        "token_recall": tokens.get("score"),
        "token_rank": tokens.get("rank"),
        "cosine": vectors.get("score"),
        "cosine_rank": vectors.get("rank"),
    }
