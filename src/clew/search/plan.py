"""Which sources a query asks, how deep, and for how long."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from clew.config import Config
from clew.errors import InputError, nearest
from clew.protocols import Source, Store
from clew.sources.configure import Configured
from clew.types import Query

__all__ = ["Asked", "check_least", "idle", "low_entropy", "plan"]

_MODES: dict[str, str | None] = {"hybrid": None, "keyword": "keyword", "vector": "vectors"}
"""The kind of source a mode asks; None: all."""
FEW, FEWER = 5, 3
"""Candidates of a source that is not of the highest tier; in fast mode."""
SHORT = 5
MARKS = ("protocol", "session", "case study", "cs-")
"""Words that make even a short query a deep one."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One source as this query asks it."""

    name: str
    source: Source
    query: Query
    kind: str
    weight: float = 1.0
    deadline: float | None = None
    quick: bool = False
    part: bool = False


def plan(
    sources: Mapping[str, Configured],
    query: Query,
    config: Config,
    *,
    only: Iterable[str] | None = None,
    idle: Collection[str] = (),
) -> list[Asked]:
    """The sources of the query's mode that are switched on, or those that the caller names. `idle`
    are those with nothing to look in yet: they are asked only by name."""
    if query.mode not in _MODES:
        raise InputError(f"unknown mode {query.mode!r}: {nearest(str(query.mode), _MODES)}")
    if only is None:
        kind = _MODES[query.mode]
        names = [
            n for n, s in sources.items() if s.enabled and kind in (None, s.kind) and n not in idle
        ]
        if config.low_entropy == "skip" and query.mode == "hybrid" and low_entropy(query.text):
            names = [n for n in names if sources[n].kind != "vectors"] or names
    else:
        names = [only] if isinstance(only, str) else list(only)
        if not names:
            raise InputError("no source is named: leave `sources` out to ask all of them")
        for name in names:
            if name not in sources:
                raise InputError(f"unknown source {name!r}: {nearest(str(name), sources)}")
            if not sources[name].enabled:
                raise InputError(f"the source {name!r} is off: see [sources.{name}] in clew.toml")
    few = FEWER if config.god_mode else FEW
    single = only is not None and len(names) == 1
    return [
        Asked(
            name=name,
            source=sources[name].source.alone() if single else sources[name].source,
            query=replace(
                query,
                depth=query.depth if chosen.tier == "high" else min(few, query.depth),
                floor=0.0 if single else chosen.floor,
            ),
            kind=chosen.kind,
            weight=config.weights.get(name, chosen.weight),
            deadline=chosen.deadline,
            quick=chosen.quick,
            part=chosen.part,
        )
        for name in dict.fromkeys(names)
        for chosen in (sources[name],)
    ]


def low_entropy(text: str) -> bool:
    """Short, and of no kind that is known to need depth (Athena's rule)."""
    lower = text.lower()
    return len(lower.split()) < SHORT and not any(mark in lower for mark in MARKS)


def idle(sources: Mapping[str, Configured], store: Store) -> list[str]:
    """Those that say themselves that there is nothing to ask them yet: a thread each saved."""
    return [name for name, one in sources.items() if one.source.idle(store)]


def check_least(least: Mapping[str, float] | None, chosen: Sequence[Asked]) -> None:
    """An InputError for a score that no source which is asked could reach or miss."""
    names = [one.name for one in chosen]
    for name, score in (least or {}).items():
        if name not in names:
            raise InputError(f"least: no source {name!r} is asked: {nearest(str(name), names)}")
        if isinstance(score, bool) or not isinstance(score, (int, float)) or score != score:
            raise InputError(f"least: the score for {name!r} must be a number, not {score!r}")
