"""Which sources a query asks, how deep, and for how long."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from clew.config import Config
from clew.errors import InputError, check_known, nearest
from clew.protocols import Source, Store
from clew.sources import Configured
from clew.types import Query
from clew.validate import is_number

_MODES: dict[str, str | None] = {"hybrid": None, "keyword": "keyword", "vector": "vectors"}
"""The kind of source a mode asks; None: all."""
FEW, FEWER = 5, 3
"""Candidates of a source that is not of the highest tier; in fast mode."""
SHORT = 5
MARKS = ("protocol", "session", "case study", "cs-")
"""Words that make even a short query a deep one."""


class PlannedSource(NamedTuple):
    """One source as a query asks it."""

    name: str
    source: Source
    query: Query
    kind: str
    weight: float = 1.0
    deadline: float | None = None
    quick: bool = False
    part: bool = False


def plan_sources(
    sources: Mapping[str, Configured],
    query: Query,
    config: Config,
    store: Store,
    *,
    only: Iterable[str] | None = None,
) -> list[PlannedSource]:
    """The sources of the query's mode that are switched on, or those that the caller names. One
    with nothing to look in yet is asked only by name: a thread saved."""
    check_known("unknown mode", _MODES, query.mode)
    if only is None:
        kind = _MODES[query.mode]
        names = [
            name
            for name, one in sources.items()
            if one.enabled and kind in (None, one.kind) and not one.source.idle(store)
        ]
        if config.low_entropy == "skip" and query.mode == "hybrid" and is_low_entropy(query.text):
            names = [n for n in names if sources[n].kind != "vectors"] or names
    else:
        names = [only] if isinstance(only, str) else list(only)
        if not names:
            raise InputError("no source is named: leave `sources` out to ask all of them")
        for name in names:
            check_known("unknown source", sources, name)
            if not sources[name].enabled:
                raise InputError(f"the source {name!r} is off: see [sources.{name}] in clew.toml")
    few = min(FEWER if config.god_mode else FEW, query.depth)
    single = only is not None and len(names) == 1
    queries = {(query.depth, query.floor): query}
    planned = []
    for name in dict.fromkeys(names):
        chosen = sources[name]
        depth = query.depth if chosen.tier == "high" else few
        floor = 0.0 if single else chosen.floor
        if (depth, floor) not in queries:
            queries[depth, floor] = replace(query, depth=depth, floor=floor)
        planned.append(
            PlannedSource(
                name=name,
                source=chosen.source.alone() if single else chosen.source,
                query=queries[depth, floor],
                kind=chosen.kind,
                weight=config.weights.get(name, chosen.weight),
                deadline=chosen.deadline,
                quick=chosen.quick,
                part=chosen.part,
            )
        )
    return planned


def is_low_entropy(text: str) -> bool:
    """Whether it is short, and of no kind that is known to need depth (Athena's rule)."""
    lower = text.lower()
    return len(lower.split()) < SHORT and not any(mark in lower for mark in MARKS)


def check_least(least: Mapping[str, float] | None, planned: Sequence[PlannedSource]) -> None:
    """An InputError for a score that no source which is asked could reach or miss."""
    names = [one.name for one in planned]
    for name, score in (least or {}).items():
        if name not in names:
            raise InputError(f"least: no source {name!r} is asked: {nearest(str(name), names)}")
        if not is_number(score) and score not in (float("inf"), float("-inf")):
            raise InputError(f"least: the score for {name!r} must be a number, not {score!r}")
