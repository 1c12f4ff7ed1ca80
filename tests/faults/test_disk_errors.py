"""What a failing disk made the library say in others' words, or not at all, once it was found."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import filelock
import numpy as np
import pytest

import clew
from clew.index import maintenance
from clew.index.maintenance import DerivedIndexes

from hashing import HashingEmbedder


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[clew.Engine]:
    with clew.open(tmp_path, embedder=HashingEmbedder()) as opened:
        opened.add([{"id": f"r{i}", "content": f"Keel Harbour {i} zebra"} for i in range(30)])
        opened.embed()
        yield opened


def test_a_lock_that_cannot_be_opened_is_a_store_error(
    engine: clew.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = os.open

    def fail(path: object, *args: int, **options: int) -> int:
        if str(path).endswith("derived.lock"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return opened(path, *args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", fail)
    with pytest.raises(clew.StoreError, match=r"derived\.lock cannot be opened: No space left"):
        engine.doctor(mend=True)


def test_a_lock_that_another_process_keeps_is_a_store_error(
    engine: clew.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "ALONE_SECONDS", 0.1)
    with (
        filelock.FileLock(tmp_path / ".clew" / "derived.lock"),
        pytest.raises(clew.StoreError, match="another process is writing the indexes"),
    ):
        engine.doctor(mend=True)


def test_a_file_of_the_graph_that_cannot_be_read_is_named_by_the_doctor(
    engine: clew.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.graph.build(llm=False)
    opened = Path.open

    def fail(self: Path, *args: object, **options: object) -> object:
        if self.name == "begins.npy" and "rb" in args:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return opened(self, *args, **options)  # type: ignore[call-overload]

    monkeypatch.setattr(Path, "open", fail)
    ill = [finding["advice"] for finding in engine.doctor() if not finding["ok"]]
    assert len(ill) == 1 and "clew graph build" in ill[0]


def test_a_tree_that_the_disk_has_no_room_for_is_not_taken_for_written(
    engine: clew.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Arrays are written by Python: of what C's buffers could not write, nobody heard."""
    written: list[str] = []
    write = Path.write_bytes

    def fail(self: Path, data: bytes) -> int:
        if self.suffix == ".npy":
            written.append(self.name)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(self, data)

    monkeypatch.setattr(Path, "write_bytes", fail)
    with pytest.raises(clew.StoreError, match="the tree cannot be written"):
        engine.tree.build(llm=False)
    with pytest.raises(clew.StoreError, match="the graph cannot be written"):
        engine.graph.build(llm=False)
    assert len(written) == 2


def test_a_duckdb_file_that_was_only_begun_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kill at that moment left a file that nobody could open, and the copy could not go on."""

    def stop(*paths: object) -> None:
        raise KeyboardInterrupt

    url = f"duckdb:///{tmp_path}/store.duckdb"
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(os, "link", stop)
        clew.open(tmp_path, embedder=HashingEmbedder(), store=url)
    assert list(tmp_path.glob("store.duckdb*")) == []
    with clew.open(tmp_path, embedder=HashingEmbedder(), store=url) as engine:
        engine.add([{"id": "a", "content": "zebra"}])
        assert engine.get("a") is not None


def test_a_database_that_cannot_be_read_is_not_replaced_by_a_backup(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "clew.toml").write_text('store = "duckdb:///notes.duckdb"\n')
    with clew.open(tmp_path, embedder=HashingEmbedder()) as engine:
        engine.add([{"id": "one", "content": "Keel Harbour"}])
        engine.backup(tmp_path / "copy.zip")
    opened, before = Path.open, (tmp_path / "notes.duckdb").read_bytes()

    def fail(self: Path, *args: object, **options: object) -> object:
        if self.name == "notes.duckdb" and "rb" in args:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return opened(self, *args, **options)  # type: ignore[call-overload]

    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", fail)
        with pytest.raises(clew.StoreError, match=r"cannot be read.*Nothing was replaced"):
            clew.restore_backup(tmp_path / "copy.zip", tmp_path, force=True)
    assert (tmp_path / "notes.duckdb").read_bytes() == before


def test_lists_that_another_process_has_renewed_are_not_built_upon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each opens the folder by itself, as two processes do; the second is quicker."""
    rng = np.random.default_rng(0)
    number = iter(range(10**6))

    def add(engine: clew.Engine) -> None:
        rows = rng.standard_normal((600, 16)).astype(np.float32)
        engine.add(
            [{"id": f"r{next(number)}", "content": "zebra"} for _ in rows],
            vectors=rows / np.linalg.norm(rows, axis=1, keepdims=True),
        )

    model = HashingEmbedder(dim=16)
    with (
        clew.open(tmp_path, embedder=model, ivf_threshold=500) as one,
        clew.open(tmp_path, embedder=model, ivf_threshold=500) as two,
    ):
        add(one)
        one.optimise()
        add(one)
        locked, waiting = DerivedIndexes._locked, [two]

        def wait(self: DerivedIndexes, name: str = "derived.lock", seconds: float = 60.0) -> Any:
            while name == "seal.lock" and waiting:
                other = waiting.pop()
                add(other)
                other.optimise()
            return locked(self, name, seconds)

        monkeypatch.setattr(DerivedIndexes, "_locked", wait)
        one.optimise()
        assert not waiting
        assert one.status()["vectors"]["tail"] == 0
