"""Many threads on one store: nothing lost, nothing half, nobody in another's way."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from clew.filter import Filter
from clew.protocols import Store
from clew.types import Candidate, Entry
from entries import MODEL, entry, found, ill, near, unit_rows

THREADS = 8
ROUNDS = 12


def at_once(*tasks: Callable[[], Any]) -> list[Any]:
    """Run the tasks side by side, beginning together; what they give, or the first error."""
    gate = threading.Barrier(len(tasks))

    def begin(task: Callable[[], Any]) -> Any:
        gate.wait()
        return task()

    with ThreadPoolExecutor(len(tasks)) as pool:
        return [future.result() for future in [pool.submit(begin, task) for task in tasks]]


def test_eight_threads_read_and_write_and_each_sees_its_own_writes(store: Store) -> None:
    *rows, last = unit_rows(THREADS * ROUNDS + 1, seed=1)
    store.put([entry("always", "zebra", vectors=[last], tags=("t",))], model=MODEL)

    def work(number: int) -> None:
        mine: list[str] = []
        for i in range(ROUNDS):
            name = f"r{number}-{i:02}"
            row = rows[number * ROUNDS + i]
            store.put(
                [entry(name, f"zebra word{number}x{i}", vectors=[row], tags=(f"t{number}",))],
                model=MODEL,
            )
            mine.append(name)
            assert found(store, f"word{number}x{i}") == [name]
            assert near(store, row, limit=1) == [name]
            assert sorted(found(store, "zebra", tags=f"t{number}")) == mine
            assert sorted(near(store, row, tags=f"t{number}")) == mine
            assert "always" in found(store, "zebra")
            assert near(store, last, tags="t") == ["always"]
            if i % 4 == 3:
                store.delete([mine.pop(0)])
                assert sorted(found(store, "zebra", tags=f"t{number}")) == mine

    at_once(*(lambda n=n: work(n) for n in range(THREADS)))
    left = THREADS * (ROUNDS - ROUNDS // 4) + 1
    assert len(found(store, "zebra")) == len(near(store, rows[0])) == left
    assert len(store.select(Filter(), limit=1000)) == left
    assert ill(store) == []


def test_a_record_is_never_read_half_old_and_half_new(store: Store) -> None:
    """Whoever reads while it is replaced, deleted and put anew gets one version or none."""
    names = [f"r{i}" for i in range(5)]
    done = threading.Event()

    def version(n: int) -> list[Entry]:
        word = f"version{n}"
        return [entry(name, word, title=word, tags=(word,), links=(word,)) for name in names]

    store.put(version(0))

    def write() -> None:
        try:
            for n in range(1, 100):
                if n % 5 == 0:
                    store.delete(names)
                store.put(version(n))
        finally:
            done.set()

    def read() -> int:
        seen = 0
        while not done.is_set():
            for record in [*store.get(names), *store.select(Filter(), limit=10)]:
                assert {record.content, *record.tags, *record.links} == {record.title}
                seen += 1
        return seen

    def read_passages() -> int:
        seen = 0
        while not done.is_set():
            for passage in store.passages([Candidate(name, 1.0) for name in names]):
                if passage is not None:
                    assert {passage.text, *passage.record.tags} == {passage.record.title}
                    seen += 1
        return seen

    _, *seen = at_once(write, read, read, read_passages)
    assert all(seen)
    assert [record.content for record in store.get(names)] == ["version99"] * 5


def test_searches_of_two_models_at_once_do_not_disturb_each_other(store: Store) -> None:
    store.put([entry(f"a{i}", "zebra", vectors=[[1, 0]]) for i in range(5)], model="a")
    store.put([entry(f"b{i}", "zebra", vectors=[[1, 0, 0]]) for i in range(5)], model="b")

    def ask(model: str, vector: list[float]) -> None:
        for _ in range(60):
            assert near(store, vector, model=model) == [f"{model}{i}" for i in range(5)]

    at_once(*[lambda: ask("a", [1, 0]), lambda: ask("b", [1, 0, 0])] * 2)


def test_searches_go_on_while_the_store_is_rebuilt_and_optimised(store: Store) -> None:
    rows = unit_rows(50, seed=2)
    store.put([entry(f"r{i:02}", "zebra", vectors=[rows[i]]) for i in range(50)], model=MODEL)
    expected = near(store, rows[0])
    assert len(expected) == 50
    done = threading.Event()

    def upkeep() -> None:
        try:
            for _ in range(10):
                store.indexes.rebuild()
                store.indexes.refresh(optimise=True)
                store.upkeep.vacuum()
        finally:
            done.set()

    def search() -> int:
        asked = 0
        while not done.is_set():
            assert len(found(store, "zebra")) == 50
            assert near(store, rows[0]) == expected
            assert len(found(store, 'zebra -walrus "zebra"')) == 50
            asked += 1
        return asked

    _, *asked = at_once(upkeep, *[search] * 3)
    assert all(asked)


# Words with nothing in common: parts of `round1` would be found in `round2` as well.
WORDS = ["heron", "otter", "lynx", "owl", "newt", "eel", "crane", "badger", "stoat", "mole"]


@pytest.mark.parametrize("openings", [1, 2])
def test_writes_to_one_record_from_everywhere_leave_one_of_them(
    open_store: Callable[[], Store], openings: int
) -> None:
    stores = [open_store() for _ in range(openings)]

    def work(number: int) -> None:
        store = stores[number % openings]
        for i in range(10):
            store.put(
                [entry("one", f"zebra from{number} {WORDS[i]}", vectors=[[1, number]])],
                model=MODEL,
            )
            assert found(store, "zebra") == near(store, [1, 0]) == ["one"]

    at_once(*(lambda n=n: work(n) for n in range(THREADS)))
    for store in stores:
        (record,) = store.select(Filter(), limit=9)
        assert record.content.endswith(WORDS[-1])
        assert found(store, record.content.split()[1]) == ["one"]
        for word in WORDS[:-1]:
            assert found(store, word) == []
        assert near(store, [1, 0]) == ["one"]
