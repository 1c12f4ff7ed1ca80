"""A memory on a disk that is read-only or full."""

from __future__ import annotations

import logging
import shutil

import pytest

import clew
from disks import Disk
from entries import ill

from hashing import HashingEmbedder


def on(disk: Disk) -> clew.Memory:
    return clew.Memory(disk.place / "m.db", embedder=HashingEmbedder())


def test_a_memory_on_a_read_only_disk_is_recalled_and_not_written(
    disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    with on(disk) as memory:
        made = memory.remember("the boat has a keel")
        memory.recall("keel", record_access=False)
    disk.read_only()
    with on(disk) as memory, caplog.at_level(logging.WARNING):
        (found,) = memory.recall("keel")
        assert found.id == made.id
        assert found.search_type == "hybrid"
        assert memory.latest()[0].id == made.id
        got = memory.get(made.id)
        assert got is not None
        assert got.accesses == 0  # it could not be counted, and recall did not mind
        assert "accesses are not counted" in caplog.text
        assert memory.stats()["memories"] == 1
        assert len(memory.evict(0, dry_run=True)) == 1
        for write in (
            lambda: memory.remember("x"),
            lambda: memory.update(made.id, "x"),
            lambda: memory.supersede(made.id, "x"),
            lambda: memory.forget(made.id),
            lambda: memory.forget(made.id, hard=True),
            lambda: memory.feedback(made.id),
            lambda: memory.evict(0),
            memory.vacuum,
        ):
            with pytest.raises(clew.StoreError, match="read-only"):
                write()
    with pytest.raises(clew.StoreError):
        clew.Memory(disk.place / "new.db", embedder=HashingEmbedder())


def test_a_memory_whose_indexes_were_not_copied_says_so_on_a_read_only_disk(disk: Disk) -> None:
    with on(disk) as memory:
        memory.remember("the boat has a keel")
    shutil.rmtree(disk.place / "m.db.clew")
    disk.read_only()
    with on(disk) as memory:
        assert len(memory.latest()) == 1
        found = memory.recall("keel")
        assert found == []
        assert any("read-only" in problem for problem in found.diagnostics["degraded"])


def test_a_full_disk_loses_nothing_that_was_acknowledged_and_is_over_when_there_is_space(
    disk: Disk,
) -> None:
    with on(disk) as memory:
        kept = [memory.remember(f"the boat has keel number {i}").id for i in range(20)]
        memory.recall("keel")
        disk.fill()
        wrong = 0
        for i in range(200):
            try:
                kept.append(memory.remember(f"boat {i} " + "with a long keel " * 300).id)
            except clew.StoreError as error:
                assert "full" in str(error)
                wrong += 1
        assert wrong
        with pytest.raises(clew.StoreError, match="full"):
            memory.remember_many([{"content": f"many {i} " + "x " * 5000} for i in range(500)])
        with pytest.raises(clew.StoreError, match="full"):
            memory.supersede(kept[0], "superseded " + "by something long " * 20_000)
        assert {m.id for m in memory.latest(1000)} == set(kept)
        assert memory.recall("keel", k=5)  # what is there is found; what is behind is said
        disk.empty()
        assert memory.remember("there is space again").status == "created"
        found = memory.fts_search("keel", k=1000)
        assert {m.id for m in found} == set(kept)
        assert ill(memory.store) == []
