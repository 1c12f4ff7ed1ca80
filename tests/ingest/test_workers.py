"""Indexing by worker processes, of this machine and of a real Dask cluster."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError
from pathlib import Path

import pytest

import clew
import postgres_server
from clew.errors import ConfigError, InputError, StoreError
from clew.ingest.workers import ProcessWorkers, map_batches, open_workers
from qdrant_server import serving, url_of

FILES = 60


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    notes = tmp_path / "notes"
    notes.mkdir()
    for i in range(FILES):
        (notes / f"{i:03}.md").write_text(f"# Note {i}\n\nBolt number {i} of the keel.\n" * 3)
    (notes / "broken.pdf").write_bytes(b"%PDF-1.7 nothing")
    return notes


def contents(folder: Path, store: str = "", **options: object) -> dict[str, tuple[str, int]]:
    """What a run makes of the folder: id → (text, passages with a vector)."""
    store = store or f"embedded:///{folder.parent / str(len(options))}"
    with clew.open(folder, store=store) as engine:
        report = engine.index(folder, **options)  # type: ignore[arg-type]
        assert [path for path, _ in report.skipped] == ["broken.pdf"]
        assert report.embedded
        assert len(report.added) == FILES
        ids = [f"notes:{i:03}.md" for i in range(FILES)]
        vectors = engine.store.vectors.of(ids)
        return {
            record.id: (record.content, vectors[record.id][1].round(5).tobytes())
            for record in engine.store.get(ids)
        }


def test_workers_make_what_one_process_makes(folder: Path) -> None:
    assert contents(folder, workers=2, force=False) == contents(folder)


def kill_self_once(mark: str) -> int:
    """Ends its process the first time."""
    if not Path(mark).exists():
        Path(mark).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return os.getpid()


def kill_self(_: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def square(number: int) -> int:
    return number * number


def fail(number: int) -> int:
    raise InputError(f"no {number}")


@pytest.fixture
def workers() -> Iterator[ProcessWorkers]:
    made = ProcessWorkers(2)
    yield made
    made.close()


def test_results_come_in_order_and_errors_through(workers: ProcessWorkers) -> None:
    assert list(map_batches(workers, square, range(20))) == [i * i for i in range(20)]
    with pytest.raises(InputError, match="no 3"):
        list(map_batches(workers, fail, [3]))


def test_the_work_of_a_killed_worker_is_done_once_more(
    workers: ProcessWorkers, tmp_path: Path
) -> None:
    marks = [str(tmp_path / f"{i}") for i in range(4)]
    pids = list(map_batches(workers, kill_self_once, marks))
    assert len(pids) == 4
    with pytest.raises(StoreError, match="died"):
        list(map_batches(workers, kill_self, [1]))
    assert list(map_batches(workers, square, [5])) == [25]


def sleep(seconds: float) -> None:
    time.sleep(seconds)


def test_closing_ends_workers_that_are_at_work() -> None:
    workers = ProcessWorkers(2)
    given = [workers.submit(sleep, 600.0) for _ in range(6)]
    while len(workers.pids) < 2:
        time.sleep(0.01)
    workers.close()
    assert not workers.pids
    with pytest.raises((StoreError, CancelledError)):
        given[0].result(timeout=60)
    assert not workers.pids  # none was begun in their place


@pytest.mark.parametrize("place", ["embedded", "postgres", "qdrant"])
def test_workers_killed_from_outside_lose_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    opened: list[ProcessWorkers] = []
    make = ProcessWorkers.__init__

    def note(self: ProcessWorkers, count: int) -> None:
        make(self, count)
        opened.append(self)

    monkeypatch.setattr(ProcessWorkers, "__init__", note)

    def kill_one() -> None:
        while not (opened and opened[0].pids):
            time.sleep(0.01)
        os.kill(opened[0].pids[0], signal.SIGKILL)

    killer = threading.Thread(target=kill_one)
    killer.start()
    with contextlib.ExitStack() as stack:
        store = ""
        if place == "postgres":
            store = postgres_server.new_url()
        elif place == "qdrant":
            store = url_of(stack.enter_context(serving()), "workers")
        found = contents(folder, store, workers=2, force=False)
    killer.join()
    assert len(found) == FILES
    assert not opened[0].pids


def test_a_dask_cluster_reads_and_embeds(folder: Path) -> None:
    from distributed import LocalCluster

    with LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, host="127.0.0.1"
    ) as cluster:
        address = cluster.scheduler_address.replace("tcp", "dask")
        workers = open_workers(address=address)
        try:
            for worker in list(cluster.workers.values())[:1]:
                os.kill(worker.pid, signal.SIGKILL)
            assert list(map_batches(workers, square, range(6))) == [i * i for i in range(6)]
            with pytest.raises(InputError, match="no 3"):
                list(map_batches(workers, fail, [3]))
        finally:
            workers.close()
        found = contents(folder, executor=address, force=False)
    assert found == contents(folder)


def test_a_cluster_that_is_not_there() -> None:
    with pytest.raises(ConfigError, match="dask://HOST:PORT"):
        open_workers(address="tcp://127.0.0.1:1")
    with pytest.raises(ConfigError, match="no Dask scheduler answers"):
        open_workers(address="dask://127.0.0.1:1")
    with pytest.raises(InputError, match="1 to 256"):
        open_workers(0)
