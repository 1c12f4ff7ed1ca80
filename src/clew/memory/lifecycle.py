"""What becomes of memories over time, as functions over values and a store."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from clew.protocols import Store
from clew.ranking.retention import priority
from clew.types import Life, Record

__all__ = ["after_feedback", "buried", "chain", "counts", "least", "with_details"]

PRAISE, BLAME = 0.05, 0.1
"""What feedback moves the importance by. Blame weighs more: what misleads does harm."""


def with_details(known: Record, told: Record) -> Record:
    """A memory that was told again, with what is new beside its text."""
    return replace(
        known,
        importance=max(known.importance, told.importance),
        tags=tuple(dict.fromkeys((*known.tags, *(t.lstrip("#").casefold() for t in told.tags)))),
        metadata={**known.metadata, **told.metadata},
    )


def buried(store: Store, id: str) -> bool:
    """Gone for good; what it had taken the place of is then followed by what took its own, so that
    a history has no hole. Whether there was one."""
    with store.atomic():
        heir = store.lives([id]).get(id, Life()).successor
        earlier = store.lives(store.predecessors(id))
        heir = None if heir == id else heir
        store.set_lives({name: replace(life, successor=heir) for name, life in earlier.items()})
        return store.delete([id]) > 0


def after_feedback(importance: float, *, useful: bool) -> float:
    moved = importance + PRAISE if useful else importance - BLAME
    return round(min(1.0, max(0.0, moved)), 6)


def least(
    ledger: Sequence[tuple[str, float, float, Life]], *, keep: int, now: float
) -> list[tuple[str, float]]:
    """(id, priority) of those to give up so that `keep` are left, lowest first."""
    ranked = (
        (priority(life, importance=importance, created_at=created, now=now), name)
        for name, importance, created, life in ledger
    )
    return [(name, value) for value, name in heapq.nsmallest(max(0, len(ledger) - keep), ranked)]


def chain(store: Store, id: str) -> list[str]:
    """A memory and, however far back, what it took the place of. It ends even in a circle."""
    found = {id: None}
    waiting = [id]
    while waiting:
        for earlier in store.predecessors(waiting.pop(0)):
            if earlier not in found:
                found[earlier] = None
                waiting.append(earlier)
    return list(found)


def counts(tally: Iterable[tuple[str, str, str, int]]) -> dict[str, Any]:
    """Active memories by namespace and by type, ended ones by reason."""
    namespaces: dict[str, int] = {}
    types: dict[str, int] = {}
    ended: dict[str, int] = {}
    for namespace, kind, reason, count in tally:
        if reason:
            ended[reason] = ended.get(reason, 0) + count
        else:
            namespaces[namespace] = namespaces.get(namespace, 0) + count
            types[kind] = types.get(kind, 0) + count
    return {
        "memories": sum(namespaces.values()),
        "namespaces": namespaces,
        "types": types,
        "ended": ended,
    }
