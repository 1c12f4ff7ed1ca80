"""Opening an Ariadne database: also while it is in use, and never leaving a trace."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from ariadne_made import ariadne, edited

import clew
from clew import InputError, StoreError
from clew.memory.ariadne import read_ariadne


def _database(path: Path, *texts: str) -> Path:
    with ariadne(path) as memory:
        for text in texts or ("The harbour closes at nine.", "Ice is sold on the pier."):
            memory.remember(text)
    return path


def _state(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(folder.iterdir())}


def test_a_database_at_rest_is_left_as_it_was(tmp_path: Path) -> None:
    path = _database(tmp_path / "memory.db")
    before = _state(tmp_path)
    assert len(list(read_ariadne(path))) == 2
    assert _state(tmp_path) == before and list(before) == ["memory.db"]


def test_a_database_in_a_folder_that_cannot_be_written_is_read(tmp_path: Path) -> None:
    folder = tmp_path / "archive"
    folder.mkdir()
    path = _database(folder / "memory.db")
    path.chmod(0o400)
    folder.chmod(0o500)
    try:
        assert len(list(read_ariadne(path))) == 2
    finally:
        folder.chmod(0o700)


def test_what_ariadne_has_written_a_moment_ago_is_read_while_it_is_open(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    with ariadne(path) as memory:
        memory.remember("The harbour closes at nine.")
        assert (tmp_path / "memory.db-wal").stat().st_size > 0
        before = _state(tmp_path)
        assert [each["content"] for each in read_ariadne(path)] == ["The harbour closes at nine."]
        after = _state(tmp_path)
        assert set(after) == set(before)
        assert after["memory.db"] == before["memory.db"]
        assert after["memory.db-wal"] == before["memory.db-wal"]
        memory.remember("Ice is sold on the pier.")
        assert len(list(read_ariadne(path))) == 2


def test_memories_added_while_reading_wait_for_the_next_time(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    with ariadne(path) as memory:
        memory.remember_many([{"content": f"number {i}"} for i in range(800)])
        reading = read_ariadne(path)
        next(reading)
        memory.remember("One more, which came too late.")
        assert sum(1 for _ in reading) == 799
        assert sum(1 for _ in read_ariadne(path)) == 801


def test_a_log_that_a_stopped_process_left_is_read(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    code = (
        "import os, sys; from arriadne import AriadneMemory\n"
        "memory = AriadneMemory(db_path=sys.argv[1], embedding_dim=8)\n"
        "memory.remember('Written just before the power went.')\n"
        "os._exit(1)\n"
    )
    subprocess.run([sys.executable, "-c", code, str(path)], check=False)
    assert (tmp_path / "memory.db-wal").stat().st_size > 0
    (tmp_path / "memory.db-shm").unlink()
    assert [each["content"] for each in read_ariadne(path)] == [
        "Written just before the power went."
    ]


def test_a_writer_who_begins_in_the_middle_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    with ariadne(path) as memory:
        memory.remember_many([{"content": f"number {i}"} for i in range(800)])
    reading = read_ariadne(path)
    next(reading)
    with ariadne(path) as memory:
        memory.remember("One more, which was not expected.")
        with pytest.raises(StoreError, match="was changed while it was read: do the same again"):
            list(reading)
        assert sum(1 for _ in read_ariadne(path)) == 801


def test_a_database_without_memories_gives_none(tmp_path: Path) -> None:
    with ariadne(tmp_path / "memory.db"):
        pass
    assert list(read_ariadne(tmp_path / "memory.db")) == []


def test_names_with_odd_characters_are_files_like_others(tmp_path: Path) -> None:
    path = _database(tmp_path / "a?b#c %41 ü.db")
    assert len(list(read_ariadne(str(path)))) == 2


def test_what_is_wrong_is_said_before_the_first_memory_is_asked_for(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not there: give the file of an Ariadne database"):
        read_ariadne(tmp_path / "nowhere.db")
    assert not list(tmp_path.iterdir())


def test_a_folder_is_no_database(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is a folder"):
        read_ariadne(tmp_path)


def test_an_empty_file_is_no_database(tmp_path: Path) -> None:
    (tmp_path / "memory.db").touch()
    with pytest.raises(InputError, match="is empty"):
        read_ariadne(tmp_path / "memory.db")


@pytest.mark.parametrize("content", [b"# Notes\n\nNot a database.\n", os.urandom(4096)])
def test_a_file_that_is_no_database_or_encrypted_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "memory.db").write_bytes(content)
    with pytest.raises(InputError, match="not an SQLite database, or an encrypted one"):
        read_ariadne(tmp_path / "memory.db")


def test_a_file_with_only_the_head_of_a_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "memory.db").write_bytes(b"SQLite format 3\0" + os.urandom(4080))
    with pytest.raises((InputError, StoreError), match=r"memory\.db"):
        read_ariadne(tmp_path / "memory.db")


def test_a_database_of_another_program_is_refused_by_its_tables(tmp_path: Path) -> None:
    path = edited(tmp_path / "shop.db", "CREATE TABLE orders (id INTEGER PRIMARY KEY, memories)")
    with pytest.raises(
        InputError, match=r"not an Ariadne database .*missing; tables there: orders"
    ):
        read_ariadne(path)


def test_a_table_of_the_same_name_is_not_enough(tmp_path: Path) -> None:
    path = edited(tmp_path / "diary.db", "CREATE TABLE memories (id INTEGER PRIMARY KEY, content)")
    with pytest.raises(InputError, match=r"without content_hash, created_at, memory_type"):
        read_ariadne(path)


def test_a_store_of_clew_is_refused(tmp_path: Path) -> None:
    clew.open(tmp_path).close()
    with pytest.raises(InputError, match="not an Ariadne database"):
        read_ariadne(tmp_path / ".clew" / "clew.db")


def test_a_damaged_database_is_an_error_and_not_a_shorter_list(tmp_path: Path) -> None:
    path = _database(tmp_path / "memory.db", *(f"{i} {chr(97 + i) * 900}" for i in range(26)))
    content = bytearray(path.read_bytes())
    rows = sqlite3.connect(path)
    (root,) = rows.execute("SELECT rootpage FROM sqlite_master WHERE name = 'memories'").fetchone()
    rows.close()
    start = (root - 1) * 4096
    content[start : start + 4096] = b"\xa5" * 4096
    path.write_bytes(content)
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    with pytest.raises(StoreError, match="is damaged"):
        list(read_ariadne(path))


def test_a_database_that_another_program_holds_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from clew.memory import ariadne

    monkeypatch.setattr(ariadne, "BUSY_SECONDS", 0.05)
    path = edited(_database(tmp_path / "memory.db"), "PRAGMA journal_mode=DELETE")
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    try:
        with pytest.raises(StoreError, match="is locked by another program"):
            read_ariadne(path)
    finally:
        holder.close()
    assert len(list(read_ariadne(path))) == 2


def test_a_copy_without_its_log_is_still_a_database(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    with ariadne(path) as memory:
        memory.remember("The harbour closes at nine.")
        memory._db.conn.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        shutil.copy(path, tmp_path / "copy.db")
    assert len(list(read_ariadne(tmp_path / "copy.db"))) == 1
    assert not (tmp_path / "copy.db-wal").exists()
