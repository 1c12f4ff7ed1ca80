"""Only what is new, and several writes as one."""

from __future__ import annotations

import contextlib
import threading

import pytest

from clew.errors import InputError, StoreError
from clew.filter import Filter
from clew.protocols import Store
from clew.types import Life
from entries import MODEL, WORDS, entry, found, near

# ---------------------------------------------------------------------- what is new


def everything(store: Store) -> list[str]:
    return [record.id for record in store.select(Filter(), limit=999)]


def test_what_is_new_is_created_and_what_is_known_stays_as_it_is(store: Store) -> None:
    made = store.put_new([entry("a", "zebra", tags=("x",)), entry("b", "walrus")])
    assert made == [("created", "a"), ("created", "b")]
    before = store.changes.edition()
    again = store.put_new([entry("c", "zebra", tags=("y",)), entry("b", "walrus")])
    assert again == [("duplicate", "a"), ("duplicate", "b")]
    assert store.changes.edition() == before
    assert everything(store) == ["a", "b"]
    assert store.get(["a"])[0].tags == ("x",)


def test_twins_within_one_batch_are_one_record(store: Store) -> None:
    made = store.put_new([entry("a", "zebra"), entry("b", "zebra"), entry("a", "zebra")])
    assert made == [("created", "a"), ("duplicate", "a"), ("duplicate", "a")]
    assert everything(store) == found(store, "zebra") == ["a"]


def test_an_id_that_another_text_has_is_refused_and_nothing_is_written(store: Store) -> None:
    store.put_new([entry("a", "zebra")])
    before = store.changes.edition()
    for batch in (
        [entry("new", "walrus"), entry("a", "otter")],
        [entry("new", "walrus"), entry("new", "otter")],
        [entry("new", "walrus"), entry("a", "zebra", collection="other")],
    ):
        with pytest.raises(InputError, match="is taken by another text"):
            store.put_new(batch)
        assert everything(store) == ["a"]
    assert store.changes.edition() == before


def test_the_same_text_elsewhere_is_another_record(store: Store) -> None:
    store.put_new([entry("a", "zebra")])
    others = [
        entry("b", "zebra", collection="other"),
        entry("c", "zebra", type="code"),
        entry("d", "Zebra"),
        entry("e", "zebra "),
    ]
    assert [status for status, _ in store.put_new(others)] == ["created"] * 4


def test_what_has_ended_is_nobodys_twin(store: Store) -> None:
    store.put_new([entry("a", "zebra")])
    store.lifecycle.end(["a"], at=5.0, reason="forgotten")
    assert store.put_new([entry("b", "zebra")]) == [("created", "b")]
    assert store.put_new([entry("c", "zebra")]) == [("duplicate", "b")]
    assert store.put_new([entry("a", "zebra")]) == [("duplicate", "a")]  # by its own id it is known
    assert sorted(found(store, "zebra", active=True)) == ["b"]


def test_a_long_text_is_known_as_a_whole_not_by_a_part(store: Store) -> None:
    parts = [f"{word} " * 40 for word in WORDS]
    store.put_new([entry("a", parts, vectors=[[1, 0]] * len(parts))], model=MODEL)
    assert store.put_new([entry("b", parts)]) == [("duplicate", "a")]
    assert store.put_new([entry("c", parts[:-1])]) == [("created", "c")]
    assert store.put_new([entry("d", [*parts, "zebra"])]) == [("created", "d")]
    assert near(store, [1, 0]) == ["a"]


def test_vectors_of_what_is_new_are_kept_and_those_of_twins_are_not(store: Store) -> None:
    store.put_new([entry("a", "zebra", vectors=[[1, 0]])], model=MODEL)
    store.put_new(
        [entry("b", "zebra", vectors=[[0, 1]]), entry("c", "walrus", vectors=[[0, 1]])],
        model=MODEL,
    )
    assert near(store, [0, 1], limit=1) == ["c"]
    assert store.vectors.of(["a"])["a"][1].tolist() == [[1, 0]]


def test_nothing_is_new_in_nothing(store: Store) -> None:
    before = store.changes.edition()
    assert store.put_new([]) == []
    assert store.changes.edition() == before


# ---------------------------------------------------------------------- all or none


class _StopError(Exception):
    pass


def test_writes_of_a_block_are_there_together_when_it_has_ended(store: Store) -> None:
    with store.atomic():
        store.put([entry("a", "zebra")])
        store.put_new([entry("b", "zebra walrus")])
        store.delete(["a"])
    assert everything(store) == found(store, "zebra") == ["b"]


def test_an_exception_leaves_nothing_of_a_block(store: Store) -> None:
    store.put([entry("a", "zebra", vectors=[[1, 0]])], model=MODEL)
    found(store, "zebra")
    before, lives = store.changes.edition(), store.lifecycle.get(["a"])
    with pytest.raises(_StopError), store.atomic():
        store.put([entry("b", "zebra"), entry("a", "otter")])
        store.lifecycle.end(["a"], at=5.0, reason="forgotten")
        store.lifecycle.count_accesses({"a": 3}, at=5.0)
        store.lifecycle.set({"b": Life(accesses=9)})
        store.delete(["a"])
        raise _StopError
    assert store.changes.edition() == before
    assert everything(store) == found(store, "zebra") == near(store, [1, 0]) == ["a"]
    assert store.lifecycle.get(["a"]) == lives
    assert store.get(["a"])[0].ended_at is None
    store.put([entry("c", "zebra")])  # and the next write goes on from there
    assert found(store, "zebra") == ["a", "c"]


def test_reads_within_a_block_see_its_writes_and_other_threads_do_not(store: Store) -> None:
    store.put([entry("a", "zebra")])
    seen: dict[str, list[str]] = {}

    def look() -> None:
        seen["get"] = [record.id for record in store.get(["a", "b"])]
        seen["select"] = everything(store)
        seen["keyword"] = found(store, "zebra")
        seen["active"] = found(store, "zebra", active=True)

    with store.atomic():
        store.put([entry("b", "zebra")])
        store.lifecycle.end(["a"], at=5.0, reason="forgotten")
        assert everything(store) == ["a", "b"]
        assert [r.id for r in store.select(Filter(active=True), limit=9)] == ["b"]
        assert store.lifecycle.get(["a"])["a"].reason == "forgotten"
        thread = threading.Thread(target=look)
        thread.start()
        thread.join(timeout=20)
        assert not thread.is_alive()
    assert seen == {"get": ["a"], "select": ["a"], "keyword": ["a"], "active": ["a"]}
    look()
    assert seen == {"get": ["a", "b"], "select": ["a", "b"], "keyword": ["a", "b"], "active": ["b"]}


def test_a_word_that_nobody_else_has_is_found_within_the_block_that_writes_it(
    store: Store,
) -> None:
    store.put([entry("a", "zebra")])
    with store.atomic():
        store.put([entry("b", "otter walrus")])
        assert found(store, "walrus") == found(store, '"otter walrus"') == ["b"]
    assert found(store, "walrus") == ["b"]


def test_a_search_within_a_block_that_fails_leaves_no_trace_of_what_it_saw(store: Store) -> None:
    store.put([entry("a", "zebra", vectors=[[1, 0]])], model=MODEL)
    with pytest.raises(_StopError), store.atomic():
        store.put([entry("b", "zebra", vectors=[[1, 0]])], model=MODEL)
        store.indexes.refresh()
        found(store, "zebra", collection="default")
        near(store, [1, 0], collection="default")
        raise _StopError
    assert found(store, "zebra", collection="default") == ["a"]
    store.put([entry("c", "zebra", collection="other", vectors=[[1, 0]])], model=MODEL)
    assert found(store, "zebra", collection="default") == ["a"]
    assert near(store, [1, 0], collection="default") == ["a"]
    assert found(store, "zebra", collection="other") == ["c"]


def test_what_a_block_changed_that_failed_is_found_as_it_was(store: Store) -> None:
    store.put([entry("a", "zebra", vectors=[[1, 0]])], model=MODEL)
    assert found(store, "zebra") == near(store, [1, 0]) == ["a"]
    with pytest.raises(_StopError), store.atomic():
        store.put([entry("a", "walrus", vectors=[[0, 1]])], model=MODEL)
        assert found(store, "walrus") == near(store, [0, 1], limit=1) == ["a"]
        raise _StopError
    assert found(store, "zebra") == near(store, [1, 0]) == ["a"]
    assert found(store, "walrus") == []


@pytest.mark.parametrize("search_first", [True, False])
def test_what_is_written_after_a_block_that_failed_is_found_by_its_own_words(
    store: Store, search_first: bool
) -> None:
    """It may get the numbers of what the block had written."""
    store.put([entry("a", "zebra")])
    assert found(store, "zebra") == ["a"]
    with pytest.raises(_StopError), store.atomic():
        store.put([entry("b", "walrus")])
        assert found(store, "walrus") == ["b"]
        raise _StopError
    store.put([entry("c", "otter")])
    if search_first:
        assert found(store, "otter") == ["c"]
    store.indexes.refresh(optimise=True)
    assert found(store, "otter") == ["c"]
    assert found(store, "walrus") == []


def test_a_question_that_fails_within_a_block_loses_no_write_without_a_word(store: Store) -> None:
    there = ["a"]
    try:
        with store.atomic():
            store.put([entry("a", "zebra")])
            with contextlib.suppress(Exception):
                store.counts("nonsense", Filter())  # type: ignore[arg-type]
    except StoreError:
        there = []
    assert everything(store) == there


def test_a_block_within_a_block_ends_with_the_outer_one(store: Store) -> None:
    with pytest.raises(_StopError), store.atomic():
        store.put([entry("a", "zebra")])
        with store.atomic():
            store.put([entry("b", "zebra")])
        assert everything(store) == ["a", "b"]
        raise _StopError
    assert everything(store) == []


@pytest.mark.parametrize("inner", ["block", "write"])
def test_what_fails_within_a_block_is_the_end_of_it_also_where_the_error_is_caught(
    store: Store, inner: str
) -> None:
    """The first of two is half written when the second fails: that must not be kept."""
    store.put([entry("old", ["zebra", "keel"])])
    before = store.changes.edition()

    def fail() -> None:
        if inner == "write":
            store.put([entry("old", "walrus"), entry("c", "x", metadata={"n": object()})])
        with store.atomic():
            store.put([entry("b", "zebra")])
            raise _StopError

    with pytest.raises(StoreError, match="nothing was written"), store.atomic():
        store.put([entry("a", "zebra")])
        with contextlib.suppress(_StopError, InputError):
            fail()
        store.put([entry("d", "zebra")])
    assert store.changes.edition() == before
    assert everything(store) == found(store, "zebra") == found(store, "keel") == ["old"]
    store.put([entry("e", "zebra")])  # the next one is not affected
    assert found(store, "zebra") == ["e", "old"]


def test_another_store_on_the_same_data_waits_for_a_block_to_end(open_store: object) -> None:
    one, other = open_store(), open_store()  # type: ignore[operator]
    done = threading.Event()

    def write() -> None:
        other.put_new([entry("b", "zebra")])
        done.set()

    with one.atomic():
        one.put_new([entry("a", "zebra")])
        thread = threading.Thread(target=write)
        thread.start()
        assert not done.wait(0.3)
        assert [r.id for r in other.select(Filter(), limit=9)] == []
    thread.join(timeout=20)
    assert everything(one) == ["a"]  # the other saw it, and kept it once
