"""What becomes of memories over time, as functions over values and a store."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from clew.protocols import Store
from clew.ranking.retention import priority
from clew.types import Life, Record

__all__ = [
    "after_feedback",
    "buried",
    "chain",
    "counts",
    "followed",
    "least",
    "overtaken",
    "with_details",
]

PRAISE, BLAME = 0.05, 0.1
"""What feedback moves the importance by. Blame weighs more: what misleads does harm."""


def with_details(known: Record, told: Record) -> Record:
    """A memory that was told again, with what is new beside its text."""
    return replace(
        known,
        importance=max(known.importance, told.importance),
        tags=tuple(dict.fromkeys((*known.tags, *(t.lstrip("#").casefold() for t in told.tags)))),
        metadata={**known.metadata, **told.metadata},
        valid_from=known.valid_from if told.valid_from is None else told.valid_from,
        valid_to=known.valid_to if told.valid_to is None else told.valid_to,
    )


def overtaken(store: Store, old: Record, new: Record) -> list[Record]:
    """What stops to be true when `new` takes the place of `old`: also what that had followed, where
    the new one goes further back."""
    return chain(store, old) if _since(new) < _since(old) else [old]


def followed(old: Record, new: Record, *, now: float) -> Record:
    """What another one takes the place of: true until that begins to be, and in use no longer,
    unless that is still to come."""
    until = max(_since(new), _since(old))
    if old.valid_to is not None:
        until = min(until, old.valid_to)
    if old.ended_at is not None or (new.valid_from is not None and new.valid_from > now):
        return replace(old, valid_to=until)
    made = (now if each.created_at is None else each.created_at for each in (new, old))
    return replace(old, valid_to=until, ended_at=max(made))


def _since(record: Record) -> float:
    since = record.created_at if record.valid_from is None else record.valid_from
    return 0.0 if since is None else since


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


def chain(store: Store, last: Record) -> list[Record]:
    """A memory and, however far back, what of its namespace it took the place of. It ends even in a
    circle."""
    found = {last.id: last}
    waiting = [last.id]
    while waiting:
        for earlier in store.get(store.predecessors(waiting.pop(0))):
            if earlier.id not in found and earlier.collection == last.collection:
                found[earlier.id] = earlier
                waiting.append(earlier.id)
    return list(found.values())


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
