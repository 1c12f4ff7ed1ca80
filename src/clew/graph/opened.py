"""Where a store's graph is, the graph itself if it is this store's, and what of it is outdated."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from clew.errors import SourceError
from clew.filter import Filter
from clew.protocols import Store

if TYPE_CHECKING:
    from clew.graph.snapshot import Snapshot

__all__ = ["NOTE", "changed", "opened", "place_of", "seen", "serving", "token_of"]

NOTE = "graph"
"""The store's note that tells its graph from that of another store."""
COMPARED = 2_000
"""Records written since the build that are compared with what was read of them; where there are
more, all of them count as changed."""
WHOLE = 5_000
"""Ids from which on it is cheaper to ask for all that match than for these."""


def place_of(store: Store) -> Path:
    """Among the other derived indexes."""
    return store.folder / "derived" / "graph"


def token_of(store: Store) -> str:
    return store.note(NOTE) or ""


def opened(store: Store) -> Snapshot | None:
    """None where none is built; a SourceError where what is there cannot serve."""
    from clew.graph.snapshot import current

    snapshot = current(place_of(store))
    if snapshot is not None and snapshot.state["token"] != token_of(store):
        raise SourceError("the graph is that of another store: run `clew graph build`")
    return snapshot


def serving(store: Store) -> Snapshot | None:
    """The same for those who ask it: a SourceError as well where it cannot be told which of its
    records have changed since it was built."""
    snapshot = opened(store)
    if snapshot is not None:
        changed(snapshot, store)
    return snapshot


def changed(snapshot: Snapshot, store: Store) -> frozenset[str]:
    """The records that are no longer as the graph has them. Found once per edition of the store.

    Whatever the graph says of them is old: until it is built again, they are not in it.
    """
    now = store.edition()
    known = snapshot.changed
    if known is None or known[0] != now:
        known = now, _changed(snapshot, store, now)
        snapshot.changed = known
    if known[1] is None:
        raise SourceError(
            "the graph is too far behind to tell what has changed since: run `clew graph build`"
        )
    return known[1]


def _changed(snapshot: Snapshot, store: Store, now: tuple[int, int]) -> frozenset[str] | None:
    from clew.graph.extract import digest

    first, second = snapshot.state["edition"]
    if (first, second) == now:
        return frozenset()
    if (touched := store.touched((first, second))) is None:
        return None
    if len(touched) > COMPARED:
        return frozenset(touched)
    # a vector, or a field that the graph does not go by, makes no other version
    model, read = snapshot.state["model"], snapshot.digests(touched)
    same = {
        record.id
        for record in store.get(list(read))
        if read[record.id].removesuffix(" by rules") == digest(record, llm=model)
    }
    return frozenset(touched) - same


def seen(snapshot: Snapshot, store: Store, filter: Filter, ids: Sequence[str]) -> set[str]:
    """Those of these records that exist, match, and are as the graph has them."""
    found: set[str] = set()
    if len(ids) > WHOLE:
        found.update(row[0] for row in store.ledger(filter))
        found.intersection_update(ids)
    else:
        for i in range(0, len(ids), 900):
            if (wanted := filter.narrowed(Filter(ids=tuple(ids[i : i + 900])))) is not None:
                found.update(row[0] for row in store.ledger(wanted))
    return found - changed(snapshot, store)
