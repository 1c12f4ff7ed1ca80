"""Several processes on one store, and how each of them leaves."""

from __future__ import annotations

import _thread
import signal
import sqlite3
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import filelock
import pytest
from samples import record, vector, word
from test_store_killed import Acknowledged, assert_whole, lines

from clew.errors import StoreError
from clew.filter import Filter
from clew.index import maintenance
from clew.storage.sqlite import SqliteTables
from clew.store import EmbeddedStore
from entries import MODEL, entry, found, ill, near, unit_rows

Opened = Callable[..., EmbeddedStore]
Script = Callable[..., "subprocess.Popen[str]"]

MANY = [record(f"b{i:03}") for i in range(900)]
"""More than are kept in memory beside a small index."""


def finished(process: subprocess.Popen[str]) -> list[str]:
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return out.splitlines()


def test_two_processes_write_and_search_at_once_and_no_write_is_lost(
    folder: Path, opened: Opened, script: Script
) -> None:
    """Each checks after its writes that its own are found; here, that all are."""
    writers = [script("writer.py", folder, name, "--seal", "--rounds", 15) for name in "pq"]
    acknowledged = Acknowledged()
    for writer in writers:
        *said, last = finished(writer)
        assert last == "done"
        acknowledged.read(said)
    store = opened()
    assert sorted(record.id for record in store.select(Filter(), limit=10_000)) == sorted(
        acknowledged.versions
    )
    assert_whole(store, acknowledged)


def test_a_store_is_searched_while_another_process_writes_to_it(
    folder: Path, opened: Opened, script: Script
) -> None:
    store = opened()
    store.put([record("always")], model=MODEL)
    writer = script("writer.py", folder, "w", "--rounds", 15)
    acknowledged, asked = Acknowledged(), 0
    for line in lines(writer.stdout):
        if not line.startswith("put"):
            acknowledged.read([line] if line.startswith("deleted") else [])
            continue
        acknowledged.read([line])
        _, name, version = line.split()
        hits = found(store, word(name, int(version)))
        # it may have been replaced or deleted by now, but not doubled, and never by another
        assert hits in ([name], [])
        assert found(store, word("always")) == near(store, vector("always"), limit=1) == ["always"]
        asked += 1
    assert writer.wait() == 0
    assert asked > 100
    acknowledged.versions["always"] = 0
    assert_whole(store, acknowledged)


def test_processes_that_open_a_new_store_at_the_same_moment_share_it(
    folder: Path, opened: Opened, script: Script
) -> None:
    names = [f"p{i}" for i in range(6)]
    processes = [script("newcomer.py", folder, name) for name in names]
    for process in processes:  # imports done, all of them wait for this line
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    for process, name in zip(processes, names, strict=True):
        assert finished(process) == [name]
    store = opened()
    assert sorted(found(store, "zebra")) == sorted(near(store, vector("x"))) == names


@pytest.mark.parametrize("how", ["closed", "left open"])
def test_a_process_may_leave_while_its_inverted_lists_are_being_built(
    folder: Path, opened: Opened, script: Script, how: str
) -> None:
    """`clew search` is such a process: it has its answer and goes."""
    store = opened(ivf_threshold=1_000_000)
    rows = unit_rows(20_000, 64)
    store.put([entry(f"r{i}", "x", vectors=rows[i : i + 1]) for i in range(20_000)], model=MODEL)
    assert near(store, rows[7], limit=1) == ["r7"]
    store.close()
    for delay in (0.2, 0.25, 0.3, 0.35):  # somewhere in the middle of it
        assert finished(script("passer_by.py", folder, how, delay)) == ["5"]
    store = opened(ivf_threshold=1_000_000)
    assert near(store, rows[7], limit=1) == ["r7"]
    assert ill(store) == []


def test_a_check_is_of_one_moment_whoever_writes_meanwhile(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else what another process deletes or rewrites between two of its questions looks damaged."""
    store, other = opened(), opened()
    names = [f"r{i}" for i in range(9)]
    rest = iter(names)
    store.put([record(name) for name in names], model=MODEL)
    store.indexes.prepare(MODEL)
    store.indexes.refresh()
    among = SqliteTables.among

    def interrupted(self: SqliteTables, query: str, *more: Any, **options: Any) -> Any:
        monkeypatch.setattr(SqliteTables, "among", among)
        if one := next(rest, None):
            other.delete([one])
        monkeypatch.setattr(SqliteTables, "among", interrupted)
        return among(self, query, *more, **options)

    monkeypatch.setattr(SqliteTables, "among", interrupted)
    assert ill(store) == []
    assert next(rest) > "r2"  # it was interrupted


def test_an_interrupted_wait_for_another_writer_leaves_nothing_begun(
    opened: Opened, folder: Path, request: pytest.FixtureRequest
) -> None:
    """Ctrl-C is heard when the wait is over, and it may be over since it is one's turn."""
    # a process that was begun in the background of a shell does not hear it
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    request.addfinalizer(lambda: signal.signal(signal.SIGINT, before))
    store = opened()
    store.put([entry("a", "zebra")])
    with closing(
        sqlite3.connect(folder / "clew.db", isolation_level=None, check_same_thread=False)
    ) as other:
        other.execute("BEGIN IMMEDIATE")

        def interrupt() -> None:
            _thread.interrupt_main()
            other.execute("COMMIT")

        timer = threading.Timer(0.3, interrupt)
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            store.put([entry("b", "zebra")])
        timer.join()
    store.put([entry("c", "zebra")])
    assert sorted(record.id for record in opened().select(Filter(), limit=9)) == ["a", "c"]


# ---------------------------------------------------------------------- who holds the indexes


@pytest.fixture
def lock(folder: Path, monkeypatch: pytest.MonkeyPatch) -> filelock.FileLock:
    """That of who writes the indexes, for which nobody waits long."""
    monkeypatch.setattr(maintenance, "LOCK_SECONDS", 0.05)
    return filelock.FileLock(folder / "derived.lock")


def test_a_search_does_not_wait_for_ever_for_another_process(
    opened: Opened, lock: filelock.FileLock
) -> None:
    store, other = opened(), opened()
    store.put([record("a")], model=MODEL)
    assert found(store, "zebra") == near(store, vector("a")) == ["a"]
    with lock:
        store.put(MANY, model=MODEL)
        assert found(store, "zebra") == near(store, vector("a")) == ["a"]
        assert store.indexes.behind > 0
        assert store.indexes.behind_because
        assert found(other, "zebra") == ["a"]  # nothing loaded yet, but what is there is served
    assert len(found(store, "zebra")) == len(MANY) + 1
    assert (store.indexes.behind, store.indexes.behind_because) == (0, "")


def test_what_is_written_while_another_process_holds_the_indexes_is_found(
    opened: Opened, lock: filelock.FileLock
) -> None:
    store, other = opened(), opened()
    store.put([record("a")], model=MODEL)
    assert found(store, "zebra") == near(store, vector("a")) == ["a"]
    with lock:
        store.put([record("b")], model=MODEL)
        for one in (store, other):
            assert found(one, "zebra") == ["a", "b"]
            assert near(one, vector("b"), limit=1) == ["b"]
            assert (one.indexes.behind, one.indexes.behind_because) == (0, "")


def test_a_search_that_could_not_look_at_anything_does_not_say_there_is_nothing(
    opened: Opened, lock: filelock.FileLock
) -> None:
    store = opened()
    store.put([record("a")], model=MODEL)
    with lock:
        assert found(store, "zebra") == []
        assert store.indexes.behind > 0
    assert found(store, "zebra") == ["a"]
    assert store.indexes.behind == 0


def test_work_done_by_another_process_ends_being_behind(
    opened: Opened, lock: filelock.FileLock
) -> None:
    store, other = opened(), opened()
    store.put([record("a")], model=MODEL)
    found(store, "zebra")
    with lock:
        store.put(MANY, model=MODEL)
        found(store, "zebra")
        assert store.indexes.behind > 0
    assert len(found(other, "zebra")) == len(MANY) + 1  # this one catches up
    assert len(found(store, "zebra")) == len(MANY) + 1
    assert (store.indexes.behind, store.indexes.behind_because) == (0, "")


def test_threads_that_end_take_their_open_files_along(opened: Opened) -> None:
    store = opened()
    store.put([record("a")], model=MODEL)

    def search() -> None:
        assert found(store, "zebra") == ["a"]

    def open_files() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    before = open_files()  # other tests of this process may have left some
    for _ in range(250):
        thread = threading.Thread(target=search)
        thread.start()
        thread.join()
    # Python and SQLite may keep some for a while; a file for every thread there ever was is a leak
    assert open_files() - before < 150


def test_a_store_can_be_closed_under_the_threads_that_read_it(folder: Path) -> None:
    """Else one that SQLite is still busy with takes the whole process down."""
    said: list[str] = []

    def read(store: EmbeddedStore, go: threading.Event) -> None:
        go.wait()
        try:
            while True:
                assert found(store, "zebra")
        except StoreError as error:
            said.append(str(error))

    for number in range(30):
        store = EmbeddedStore(folder / str(number))
        store.put([record("a")], model=MODEL)
        go = threading.Event()
        thread = threading.Thread(target=read, args=(store, go))
        thread.start()
        go.set()
        time.sleep(number * 1e-4)  # anywhere between its opening a connection and its answer
        store.close()
        thread.join()
    assert len(said) == 30
    assert all("this store is closed" in one for one in said), said
