"""What is gone for good leaves no trace: not of its words, its tags, its metadata, its vector."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import clew

from hashing import HashingEmbedder

SECRET, FRIEND, MARK = "xylophonequartz", "jabberwockyzinc", "zyzzyvamarker"
Script = Callable[..., "subprocess.Popen[str]"]


def traces(folder: Path, *secrets: bytes) -> list[str]:
    """Files that have any of these in them, whatever the case of the letters."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert files
    return [
        f"{path.name}: {secret[:20]!r}"
        for path in files
        for secret in secrets
        if secret.lower() in path.read_bytes().lower()
    ]


def pieces(vector: np.ndarray) -> list[bytes]:
    """A vector as it is kept, and its beginning: half a row is a trace as well."""
    row = vector.astype("<f4").tobytes()
    return [row, row[:32], row[-32:]]


def test_nothing_of_a_hard_deleted_memory_is_left_in_any_file(tmp_path: Path) -> None:
    text = f"{SECRET} is the password"
    gone = (SECRET.encode(), FRIEND.encode(), MARK.encode())
    long = f"{SECRET} again. " + "a long text about boats. " * 500
    with clew.Memory(tmp_path / "m.db", embedder=HashingEmbedder()) as memory:
        memory.remember_many([{"content": f"boat number {i} has a keel"} for i in range(50)])
        made = memory.remember(
            text, tags=[FRIEND], metadata={"k": MARK, MARK: 1}, id=f"id-{SECRET}", namespace=FRIEND
        )
        memory.remember(long, namespace=FRIEND, id="long")
        memory.recall(f"{SECRET} password", namespace=FRIEND)
        memory.feedback(made.id)
        memory.update(made.id, metadata={"was": f"{MARK} two"})
        memory.store.indexes.refresh(optimise=True)
        after = memory.supersede(made.id, f"{SECRET} is no password any more")
        memory.forget("long")
        memory.stats()
        assert traces(tmp_path, *gone)
        for name in (made.id, after.id, "long"):
            assert memory.forget(name, hard=True)
        memory.vacuum()
        assert traces(tmp_path, *gone) == []
        assert len(memory.recall("boat keel", k=100)) == 50
        assert memory.recall(SECRET, namespace=FRIEND) == []
    assert traces(tmp_path, *gone) == []


def test_a_given_vector_goes_with_its_memory(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    rows = rng.standard_normal((20, 32))
    with clew.Memory(tmp_path / "m.db", embedding_dim=32) as memory:
        for i, row in enumerate(rows):
            memory.remember(f"boat {i}", embedding=row, id=f"b{i}")
        memory.vector_search(rows[3])
        first = memory.store.vectors.of(["b3"])["b3"][1][0]
        memory.update("b3", embedding=rows[3] + 1)
        memory.vector_search(rows[3])
        second = memory.store.vectors.of(["b3"])["b3"][1][0]
        for vector in (first, second):
            assert traces(tmp_path, *pieces(vector))
        memory.forget("b3", hard=True)
        memory.vacuum()
        assert traces(tmp_path, *pieces(first), *pieces(second)) == []
        assert len(memory.vector_search(rows[4], k=50)) == 19


def test_nothing_is_left_either_when_the_process_was_killed_before_the_vacuum(
    tmp_path: Path, script: Script
) -> None:
    """It had deleted, and searched; another process comes and vacuums."""
    process = script("memory_victim.py", tmp_path / "m.db", SECRET)
    assert process.stdout is not None
    assert process.stdout.readline().strip() == "deleted"
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert traces(tmp_path, SECRET.encode())
    with clew.Memory(tmp_path / "m.db", embedder=HashingEmbedder()) as memory:
        memory.vacuum()
        assert traces(tmp_path, SECRET.encode()) == []
        assert len(memory.latest()) == 1
    assert traces(tmp_path, SECRET.encode()) == []


@pytest.mark.parametrize("how", ["forget", "evict", "supersede"])
def test_what_ended_softly_is_still_there_after_a_vacuum(memory: clew.Memory, how: str) -> None:
    made = memory.remember(f"{SECRET} is the password")
    if how == "forget":
        memory.forget(made.id)
    elif how == "evict":
        memory.evict(0)
    else:
        memory.supersede(made.id, "nothing is the password")
    memory.vacuum()
    assert memory.restore(made.id) == 1
    assert SECRET in memory.recall(SECRET)[0].content
