"""Several threads and processes with one file, some of which are killed."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO

import pytest

import clew
from clew.filter import Filter
from clew.memory.record import public_id
from clew.protocols import read_pages
from clew.types import Record
from entries import ill

from hashing import HashingEmbedder

Script = Callable[..., "subprocess.Popen[str]"]


def lines(pipe: IO[str] | None) -> Iterator[list[str]]:
    assert pipe is not None
    return (line.split() for line in pipe if line.endswith("\n"))


def everything(memory: clew.Memory, **wanted: object) -> list[Record]:
    pages = read_pages(memory.store, Filter(**wanted), 1000)  # type: ignore[arg-type]
    return [record for page in pages for record in page]


def test_a_writer_killed_at_any_moment_leaves_nothing_half(tmp_path: Path, script: Script) -> None:
    file, said = tmp_path / "m.db", []
    for number in range(6):
        process = script("memory_writer.py", file, f"w{number}", "kill")
        said.append(next(lines(process.stdout)))
        time.sleep(0.1 * number)
        os.kill(process.pid, signal.SIGKILL)
        said += lines(process.stdout)
        process.wait()
    with clew.Memory(file, embedder=HashingEmbedder(), create=False) as memory:
        records = everything(memory)
        batches = Counter(r.metadata["batch"] for r in records if "batch" in r.metadata)
        assert set(batches.values()) == {40}  # whole, or not there
        assert {line[1] for line in said if line[0] == "batch"} <= set(batches)
        at = {line[1]: int(line[2]) for line in said if line[0] == "chain"}
        for name, number in at.items():
            (holds,) = [
                r for r in records if r.content.startswith(f"chain {name} ") and not r.ended_at
            ]
            reached = int(holds.content.split()[-1])
            assert reached in (number, number + 1)  # the last may have been whole, unsaid
            assert len(memory.history(holds.id)) == reached + 1
        one = {(line[1], line[2]) for line in said if line[0] == "twins"}
        twins = [r for r in records if r.collection == "twins"]
        for name, step in one:
            both = [r for r in twins if f"win {name} {step} was" in r.content]
            assert sorted(r.ended_at is None for r in both) == [False, True]
        # what ended by consolidation is part of what is kept, and is told of
        lives = memory.store.lifecycle.get([r.id for r in twins])
        assert {(r.ended_at is None, lives[r.id].reason) for r in twins} <= {
            (True, ""),
            (False, "consolidated"),
        }
        active = sorted(r.id for r in records if r.ended_at is None and r.collection == "default")
        found = memory.fts_search("batch chain", k=100_000)
        assert sorted(m.id for m in found) == active
        assert ill(memory.store) == []


def test_threads_of_two_processes_share_a_file(tmp_path: Path, script: Script) -> None:
    """No write is lost, no text is there twice, and nobody is given another's memory."""
    file = tmp_path / "m.db"
    writers = [script("memory_writer.py", file, name, "share", 3) for name in ("a", "b")]
    said: list[list[str]] = []
    for writer in writers:
        out, err = writer.communicate(timeout=300)
        assert writer.returncode == 0, err
        said += [line.split() for line in out.splitlines()]
    assert [" ".join(line) for line in said if line[0] == "wrong"] == []
    with clew.Memory(file, embedder=HashingEmbedder(), create=False) as memory:
        kept = {line[1] for line in said if line[0] == "kept"}
        assert kept
        active = everything(memory, active=True)
        procedural = {public_id(r.id, r.collection) for r in active if r.type == "procedural"}
        assert procedural == kept
        twice = Counter((r.collection, r.type, r.content) for r in active)
        assert [text for text, count in twice.items() if count > 1] == []
        for record in everything(memory, active=False):
            life = memory.store.lifecycle.get([record.id])[record.id]
            assert life.reason in ("forgotten", "superseded")
        for namespace in ("ana", "ben", "default"):
            mine = sorted(public_id(r.id, namespace) for r in active if r.collection == namespace)
            found = memory.fts_search(namespace, k=100_000, namespace=namespace)
            assert sorted(m.id for m in found) == mine
        assert ill(memory.store) == []


def test_a_forked_child_is_told_to_open_the_file_again(tmp_path: Path, script: Script) -> None:
    process = script("memory_writer.py", tmp_path / "m.db", "f", "fork")
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert out.split("\n") == [
        *["refused"] * 4,
        "reopened 1 created",
        "parent 2 created",
        "done",
        "",
    ]


@pytest.mark.parametrize("after", [0.0, 0.01, 0.03, 0.1, 0.3])
def test_closing_while_others_recall_is_an_answer_or_an_error_of_ours(
    memory: clew.Memory, after: float
) -> None:
    memory.remember("the boat has a keel")
    begun = threading.Barrier(5)

    def ask() -> None:
        begun.wait()
        with pytest.raises(clew.StoreError, match="closed"):
            while True:
                assert len(memory.recall("keel")) in (1, 2)
                memory.get(memory.remember("the boat has a mast").id)

    with ThreadPoolExecutor(4) as threads:
        asked = [threads.submit(ask) for _ in range(4)]
        begun.wait()
        time.sleep(after)
        memory.close()
    for each in asked:
        each.result()


def test_after_closing_everything_says_so_and_closing_twice_is_fine(memory: clew.Memory) -> None:
    made = memory.remember("the boat has a keel")
    memory.recall("keel")  # an access is still to be written
    memory.close()
    memory.close()
    for ask in (
        lambda: memory.recall("keel"),
        lambda: memory.fts_search("keel"),
        lambda: memory.vector_search([1.0] * 64),
        lambda: memory.remember("x"),
        lambda: memory.update(made.id, "x"),
        lambda: memory.supersede(made.id, "x"),
        lambda: memory.forget(made.id),
        lambda: memory.forget(made.id, hard=True),
        lambda: memory.restore(made.id),
        lambda: memory.feedback(made.id),
        lambda: memory.get(made.id),
        lambda: memory.history(made.id),
        memory.latest,
        memory.evict,
        memory.stats,
        memory.consolidate,
        memory.reembed,
        memory.vacuum,
    ):
        with pytest.raises(clew.StoreError, match="closed"):
            ask()
    with memory.open():
        found = memory.get(made.id)
        assert found is not None
        assert found.accesses == 1
    assert memory.open() is memory.open()


def test_threads_that_open_at_once_open_once(tmp_path: Path) -> None:
    memory = clew.Memory(tmp_path / "m.db", embedder=HashingEmbedder())
    memory.close()
    with ThreadPoolExecutor(8) as threads:
        opened = threads.map(lambda _: memory.open().engine, range(8))
        assert len({id(engine) for engine in opened}) == 1
    memory.close()
