"""Filters while others write: what was added or removed since must not slip in.

A filter that leaves all records is as good as none, and taken as such. So the worst moments are
those in which that stops to be true.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from clew.filter import Filter
from clew.storage import log
from clew.storage.filters import Allowed
from clew.store import EmbeddedStore
from clew.types import Terms
from entries import MODEL, entry, found, near

Opened = Callable[..., EmbeddedStore]
ANA = Filter(collection="ana")


def put(store: EmbeddedStore, *names: str, **fields: Any) -> None:
    store.put([entry(name, "zebra", vectors=[[1, 0]], **fields) for name in names], model=MODEL)


def after_the_filter(
    store: EmbeddedStore,
    monkeypatch: pytest.MonkeyPatch,
    act: Callable[[], None],
    *,
    looks: int = 1,
) -> None:
    """Let somebody do this between a search's last look at its filter and its look into the
    index."""
    ask, left = store._filters.allowed, iter(range(looks, 0, -1))

    def asked(*arguments: Any) -> Allowed | None:
        allowed = ask(*arguments)
        if next(left) == 1:
            monkeypatch.undo()
            act()
        return allowed

    monkeypatch.setattr(store._filters, "allowed", asked)


def test_a_set_and_a_count_of_two_moments_do_not_make_a_filter_of_all(opened: Opened) -> None:
    store, other = opened(), opened()
    put(store, "a1", "a2", collection="ana")
    put(store, "b1", collection="ben")
    reader = store._db.reader

    def between(statement: str) -> None:
        if statement.startswith("SELECT COUNT(*) FROM records"):
            reader.set_trace_callback(None)
            other.delete(["a1"])  # as many are left as Ana had

    reader.set_trace_callback(between)
    found(store, "zebra", collection="ana")
    for _ in range(2):
        assert found(store, "zebra", collection="ana") == ["a2"]
        assert near(store, [1, 0], collection="ana") == ["a2"]
        put(store, "a3")  # the set is kept, and mended from the log


@pytest.mark.parametrize("wanted", [{"collection": "ana"}, {"not_domain": "personal"}])
@pytest.mark.parametrize(("leg", "looks"), [("keyword", 1), ("nearest", 1)])
def test_what_enters_the_index_after_the_filter_was_looked_at_is_left_out(
    opened: Opened, monkeypatch: pytest.MonkeyPatch, leg: str, looks: int, wanted: dict[str, str]
) -> None:
    store, other = opened(), opened()
    put(store, "a1", "a2", collection="ana")

    def ask() -> list[str]:
        if leg == "keyword":
            return found(store, "zebra", **wanted)
        return near(store, [1, 0], **wanted)

    assert ask() == ["a1", "a2"]  # all there are

    def act() -> None:
        put(other, "b1", collection="ben", domain="personal")
        store.indexes.refresh()  # as another thread's search does

    after_the_filter(store, monkeypatch, act, looks=looks)
    assert ask() == ["a1", "a2"]
    assert ask() == ["a1", "a2"]


def test_a_label_that_others_get_meanwhile_is_not_looked_up_among_theirs(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, other = opened(), opened()
    put(store, "a1", collection="ana", tags=("risk",))
    after_the_filter(store, monkeypatch, lambda: put(other, "b1", collection="ben", tags=("risk",)))
    for _ in range(2):
        hits = store.labelled(["tag"], [(1.0, ["risk"])], ANA, limit=9)
        assert [hit.id for hit in hits] == ["a1"]


def test_a_view_reads_the_end_of_the_log_and_computes_a_filter_once(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened()
    put(store, "a1", "a2", collection="ana")
    put(store, "b1", collection="ben")
    ana, zebra = ANA, Terms(words=(("zebra",),))

    def search() -> None:
        view = store.view()
        assert view.changes.edition() == view.changes.edition()
        assert view.indexes.current()
        assert view.indexes.coverage(MODEL) > 0
        assert view.count(ana) == 2
        assert len(view.keyword(zebra, ana, limit=5)) == 2
        assert len(view.nearest(np.array([1, 0], np.float32), ana, model=MODEL, limit=5)) == 2
        assert view.labelled(("tag",), [(1.0, ("none",))], ana, limit=5) == []
        assert view.indexes.reach(zebra, ana) > 0

    search()  # what a first search has to catch up with
    looks: list[object] = []
    read = log.head
    monkeypatch.setattr(log, "head", lambda db: looks.append(db) or read(db))
    search()
    assert len(looks) == 1
