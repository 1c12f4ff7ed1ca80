"""What a turn of a conversation is reminded of: the recipe of CONTRACT C as one call.

    message ─┬─ token recall ≥ 0.33 ── 20 ─┐
             └─ cosine ≥ the model's ─ 20 ─┴─ 1 / (60 + rank) ─┬─ 5 facts that hold
                                                               └─ 2 episodes of the last 30 days
    a new conversation: the latest episode first, however old

Whatever happens to the embedding provider, the turn goes on: `diagnostics` says by which path.
"""

from __future__ import annotations

import datetime as dt
import logging
import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from clew.engine import Engine
from clew.errors import ClewError, InputError
from clew.filter import Filter
from clew.memory.recall import Recipe, search_memories
from clew.memory.record import Recalled, Recollection, WorkingMemory
from clew.models import NullEmbeddingProvider, least_cosine
from clew.protocols import Store
from clew.search.context import describe_damage
from clew.sources.tokens import LEAST_RECALL
from clew.text.parse import LONGEST_QUERY
from clew.timestamps import timestamp
from clew.types import Record, Vector
from clew.validate import as_row, check_number, check_whole

_RRF_K = 60
_DAY, _MINUTE = 86_400.0, 60.0
_DATE = "date"
"""The metadata key of an episode's own date, where that is not the day it was remembered."""
_COUNTS = {
    "by_tokens": ("tokens", "count"),
    "by_cosine": ("vectors", "count"),
    "below_recall": ("tokens", "below"),
    "below_cosine": ("vectors", "below"),
}
"""What is counted of each list, and where a trace has it."""

_log = logging.getLogger("clew")


_USUAL: Recipe = {
    "new_conversation": False,
    "semantic": 5,
    "episodic": 2,
    "candidates": 20,
    "max_age_days": 30,
    "procedural": True,
    "least_recall": LEAST_RECALL,
    "least_cosine": None,
}


def _check_recipe(recipe: Recipe) -> None:
    check_whole("semantic", recipe["semantic"], least=0)
    check_whole("episodic", recipe["episodic"], least=0)
    check_whole("candidates", recipe["candidates"])
    check_number("least_recall", recipe["least_recall"])
    if recipe["max_age_days"] is not None:
        check_number("max_age_days", recipe["max_age_days"], 0, math.inf)
    if recipe["least_cosine"] is not None:
        check_number("least_cosine", recipe["least_cosine"], -1, 1)


@dataclass(frozen=True, slots=True)
class _Message:
    text: str
    path: str
    model: str
    vector: Vector | None = None
    dim: int = 0
    """Of vectors it can be compared with; 0: not known."""
    problem: str | None = None


def make_working_memory(
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
    recipe, store = {**_USUAL, **recipe}, engine.store.view()
    _check_recipe(recipe)
    kinds = ("semantic", "procedural") if recipe["procedural"] else ("semantic",)
    everything = scope & Filter(type=(*kinds, "episodic"))
    facts, episodes = scope & Filter(type=kinds), scope & Filter(type="episodic")
    latest = store.select(episodes, limit=1, newest=True) if recipe["new_conversation"] else []
    message = _read_message(engine, store, query, everything, given)
    least = recipe["least_cosine"]
    if least is None:
        least = least_cosine(message.model, engine.config.least_cosine)
    find = partial(_find, engine, store, message, recipe=recipe, least_cosine=least, now=now)
    recent, dated = _recent_episodes(store, episodes, recipe["max_age_days"], now=now)
    semantic, about_facts, problems = find(facts, recipe["semantic"])
    episodic, about_episodes, more = find(recent, recipe["episodic"], spare=len(latest))
    first = [_make_prompt_entry(Recalled.of(record)) for record in latest]
    for entry in first:  # what it also was found by
        entry |= next((e for e in episodic if e["id"] == entry["id"]), {})
        entry["via"] = "latest"
    known = {entry["id"] for entry in first}
    later = [e for e in episodic if e["id"] not in known][: recipe["episodic"]]
    entries = [*first, *semantic, *later]
    counts = {name: about_facts[name] + about_episodes[name] for name in _COUNTS}
    skipped = _count_skipped(store, everything, message)
    return WorkingMemory(
        entries,
        retrieval_path=message.path,
        problem=message.problem,
        model=message.model,
        least_recall=recipe["least_recall"],
        least_cosine=least,
        latest=first[0]["id"] if first else None,
        counts={**counts, **skipped, **dated, "returned": len(entries)},
        semantic={**about_facts, "returned": len(semantic)},
        episodic={**about_episodes, **dated, "returned": len(later)},
        degraded=tuple(dict.fromkeys((*problems, *more, *describe_damage(store)))),
    )


# ---------------------------------------------------------------- the message


def _read_message(
    engine: Engine, store: Store, query: str, scope: Filter, given: tuple[Vector, str] | None
) -> _Message:
    if not isinstance(query, str):
        raise InputError(f"a message is text, not {type(query).__name__}")
    text = query.strip()[:LONGEST_QUERY]
    model = engine.model if given is None else given[1]
    if not store.count(scope):
        return _Message("", "skipped_empty_store", model)
    if not text:
        return _Message("", "skipped_empty_query", model)
    kept, embedder = store.indexes.prepare(model), engine.embedder
    message = _Message(text, "hybrid_rrf", model, dim=kept)
    if given is not None:
        vector = given[0]
    elif isinstance(embedder, NullEmbeddingProvider):
        return replace(message, path="token_recall", problem=embedder.reason)
    elif not kept:  # nothing to compare with
        with suppress(Exception):  # it may have to ask the provider
            message = replace(message, dim=embedder.dim)
        return message
    else:
        try:
            row = as_row(engine.embed_query(text, seconds=engine.config.seconds))
            if row is None or not row.any():
                raise ValueError("the vector is not one row of finite numbers with a direction")
            vector = row
        except Exception as error:  # anybody's code, and often somebody else's machine
            kind = "" if isinstance(error, ClewError) else f"{type(error).__name__}: "
            _log.warning("this turn is answered by words alone: %s%s", kind, error)
            path = "token_recall_after_embed_error"
            return replace(message, path=path, problem=f"{kind}{error}")
    if len(vector) == kept:
        return replace(message, vector=vector)
    problem = (
        f"vectors of {model} have {kept} dimensions here, the message's has {len(vector)}: "
        "give the embedder a name of its own, and reembed"
    )
    return replace(message, dim=len(vector), problem=problem if kept else None)


def _count_skipped(store: Store, scope: Filter, message: _Message) -> dict[str, int]:
    """Memories that could not take part by meaning. One may be of another model and of another
    dimension at once."""
    others: Mapping[tuple[str, int] | None, int] = {}
    if store.indexes.coverage(message.model) < 1:
        others = store.vectors.missing(scope, model=message.model)
    models = {kind: count for kind, count in others.items() if kind is not None}
    unlike = sum(count for (_, dim), count in models.items() if message.dim not in (0, dim))
    if message.dim and store.indexes.prepare(message.model) not in (0, message.dim):
        unlike += store.count(scope) - sum(others.values())  # those of its own name as well
    return {
        "without_vector": others.get(None, 0),
        "other_model": sum(models.values()),
        "other_dimension": unlike,
    }


# ---------------------------------------------------------------- what is found


def _find(
    engine: Engine,
    store: Store,
    message: _Message,
    scope: Filter | None,
    wanted: int,
    *,
    recipe: Recipe,
    least_cosine: float,
    now: float,
    spare: int = 0,
) -> tuple[list[dict[str, Any]], dict[str, int], tuple[str, ...]]:
    """Entries, as many as are `wanted` and some to spare for those there anyway; counts; what was
    in the way."""
    found = Recollection(trace={}, degraded=())
    if message.text and scope is not None and wanted:
        least = {"tokens": recipe["least_recall"], "vectors": least_cosine}
        if message.vector is None:
            del least["vectors"]
        found = search_memories(
            engine,
            message.text,
            scope,
            wanted + spare,
            sources=tuple(least),
            search_type="hybrid",
            vector=message.vector,
            model=message.model,
            fusion="rrf",
            rrf_k=_RRF_K,
            weights=dict.fromkeys(least, 1.0),
            depth=recipe["candidates"],
            least=least,
            now=now,
        )
    lists = found.diagnostics["trace"].get("sources", {})
    counts = {"active": 0 if scope is None else store.count(scope)}
    for name, (source, key) in _COUNTS.items():
        counts[name] = lists.get(source, {}).get(key, 0)
    return [_make_prompt_entry(memory) for memory in found], counts, found.diagnostics["degraded"]


def _make_prompt_entry(memory: Recalled) -> dict[str, Any]:
    tokens, vectors = memory.signals.get("tokens", {}), memory.signals.get("vectors", {})
    return {
        **{name: memory[name] for name in ("id", "content", "type", "importance", "created_at")},
        "date": _day_of(memory),
        "tags": list(memory.tags),
        "metadata": dict(memory.metadata),
        "via": "query",
        "score": memory.score,
        "token_recall": tokens.get("score"),
        "token_rank": tokens.get("rank"),
        "cosine": vectors.get("score"),
        "cosine_rank": vectors.get("rank"),
    }


# ---------------------------------------------------------------- episodes and their dates


def _recent_episodes(
    store: Store, scope: Filter, days: float | None, *, now: float
) -> tuple[Filter | None, dict[str, int]]:
    """The episodes that are young enough, None where there are none; how many are not, and of how
    many the date cannot be read. The date is the episode's own, else when it was remembered."""
    every = store.count(scope)
    if days is None or days == math.inf:
        return scope if every else None, {"excluded_by_date": 0, "unreadable_dates": 0}
    # To the minute, so that the turns of a minute ask the same, and what is known of it helps.
    since = (now - days * _DAY) // _MINUTE * _MINUTE
    undated = scope & Filter(metadata={_DATE: None})
    dated = every - store.count(undated)
    if not dated:
        recent = scope & Filter(created_after=since)
        count, unreadable = store.count(recent), 0
    else:  # a filter cannot say "its own date, or else": so those within are named
        own = {
            record.id: until
            for some in ({"gte": ""}, {"gte": -1e300})
            for record in store.select(scope & Filter(metadata={_DATE: some}), limit=dated)
            if (until := _own_date(record)) is not None
        }
        names = [name for name, until in own.items() if until >= since]
        names += [
            name for name, *_ in store.lifecycle.ledger(undated & Filter(created_after=since))
        ]
        recent = scope & Filter(ids=sorted(names))
        count, unreadable = len(names), dated - len(own)
    excluded = {"excluded_by_date": every - unreadable - count, "unreadable_dates": unreadable}
    return recent if count else None, excluded


def _own_date(record: Record | Recalled) -> float | None:
    """The end of the moment its metadata names (a day lasts till midnight), if it can be read."""
    given = record.metadata.get(_DATE)
    if given is None:
        return None
    try:
        moment = timestamp(given, name=_DATE)
    except InputError:
        return None
    return moment + _DAY if isinstance(given, str) and ":" not in given else moment


def _day_of(memory: Recalled) -> str:
    own = _own_date(memory)
    if own is not None and isinstance(given := memory.metadata[_DATE], str):
        return dt.datetime.fromisoformat(given.strip()).date().isoformat()
    moment = memory.created_at if own is None else own
    with suppress(OverflowError, OSError, ValueError):  # a number may be any year
        return dt.datetime.fromtimestamp(moment, dt.UTC).date().isoformat()
    return ""
