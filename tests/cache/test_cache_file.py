"""Whatever becomes of the cache's file, no search fails and no answer is wrong."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cached import keep, key, result, same

from clew.cache import SearchCache, search_cache
from clew.cache import file as cache_file
from clew.errors import StoreError
from disks import Disk, mounted

NAMES = [f"n{i}" for i in range(12)]
Script = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "cache.db"


@pytest.fixture
def opened(file: Path) -> Iterator[Callable[[], SearchCache]]:
    caches: list[SearchCache] = []

    def open_cache() -> SearchCache:
        caches.append(SearchCache(file))
        return caches[-1]

    yield open_cache
    for cache in caches:
        cache.close()


Opened = Callable[[], SearchCache]


@pytest.fixture(autouse=True)
def _no_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that failed is tried again at once."""
    monkeypatch.setattr(cache_file, "RETRY", 0.0)


def fill(file: Path) -> None:
    cache = SearchCache(file)
    for name in NAMES:
        keep(cache, name)
    cache.close()
    assert file.exists()


def ask(cache: SearchCache) -> list[str]:
    """What it has. Every answer must be the right one."""
    found = []
    for name in NAMES:
        answer = cache.get(key(name))
        assert answer is None or same(answer, result(name))
        if answer is not None:
            found.append(name)
    return found


def works(cache: SearchCache) -> bool:
    """Whether it keeps and finds, if only in memory."""
    keep(cache, "another")
    cache.flush(10)
    return same(cache.get(key("another")), result("another"))


# ---------------------------------------------------------------- damage


@pytest.mark.parametrize(
    "content",
    [b"", b"x", b"no database at all " * 500, b"SQLite format 3\0" + b"\xff" * 5000],
    ids=["empty", "a byte", "text", "a header"],
)
def test_a_file_that_is_no_database_is_made_anew(
    file: Path, opened: Opened, content: bytes
) -> None:
    file.write_bytes(content)
    cache = opened()
    assert ask(cache) == []
    for _ in range(2):  # the first may only find out
        assert works(cache)
    assert cache.stats()["problem"] is None
    cache.close()
    assert same(opened().get(key("another")), result("another"))


def test_damage_anywhere_in_the_file_never_gives_a_wrong_answer(tmp_path: Path) -> None:
    """As after a power cut: pages with nonsense, old pages, pages of zeros."""
    whole = tmp_path / "whole.db"
    fill(whole)
    data, kept = whole.read_bytes(), 0
    for seed in range(60):
        rng = random.Random(seed)
        spoilt = bytearray(data)
        for _ in range(rng.choice([1, 3, 10])):
            at = rng.randrange(len(data))
            length = rng.choice([1, 8, 4096])
            other = rng.randrange(len(data))
            nonsense = rng.choice([bytes(length), data[other:][:length], rng.randbytes(length)])
            spoilt[at : at + length] = nonsense
        file = tmp_path / f"{seed}.db"
        file.write_bytes(spoilt[: rng.choice([len(spoilt), rng.randrange(len(spoilt))])])
        cache = SearchCache(file)
        kept += len(ask(cache))
        cache.sources(), cache.stats()
        assert works(cache)
        ask(cache)
        cache.close()
    assert kept > 60  # most of the damage was where it left something to find


@pytest.mark.parametrize(
    "change",
    [
        "key = CASE key WHEN '1.n0' THEN '1.nx' WHEN '1.n1' THEN '1.n0' ELSE key END",
        "made = made + 1",
        "answer = (SELECT answer FROM answers WHERE key = '1.n2')",
        "answer = replace(answer, 'n0', 'n5')",
        "digest = x''",
    ],
)
def test_a_row_in_which_anything_was_changed_is_not_there(
    file: Path, opened: Opened, change: str
) -> None:
    fill(file)
    with contextlib.closing(sqlite3.connect(file)) as db:
        db.execute(f"UPDATE answers SET {change} WHERE key IN ('1.n0', '1.n1')")
        db.commit()
    cache = opened()
    assert "n0" not in ask(cache)
    assert works(cache)


def test_one_process_does_not_throw_away_what_another_has_made_anew(
    file: Path, opened: Opened
) -> None:
    fill(file)
    slow = opened()
    assert same(slow.get(key("n0")), result("n0"))
    with file.open("r+b") as spoilt:
        spoilt.write(b"nonsense" * (file.stat().st_size // 8))
    quick = opened()
    for _ in range(2):
        assert works(quick)
    ask(slow)  # finds the damage in the old file
    assert same(opened().get(key("another")), result("another"))


def test_damage_under_a_running_process_never_gives_a_wrong_answer(
    file: Path, opened: Opened
) -> None:
    fill(file)
    cache = opened()
    assert ask(cache) == NAMES
    keep(cache, "more")
    cache.flush()
    with file.open("r+b") as spoilt:
        spoilt.seek(4096)
        spoilt.write(os.urandom(file.stat().st_size - 4096))
    ask(cache)
    other = opened()
    ask(other)
    for each in (cache, other, cache, other):
        assert works(each)
    assert other.stats()["problem"] is None


def test_another_programs_database_is_left_alone(file: Path, opened: Opened) -> None:
    with contextlib.closing(sqlite3.connect(file)) as db:
        db.execute("CREATE TABLE precious (x)")
        db.execute("INSERT INTO precious VALUES (1)")
        db.commit()
    cache = opened()
    assert works(cache)
    assert "another program" in cache.stats()["problem"]
    with pytest.raises(StoreError, match="another program"):
        cache.clear()
    with contextlib.closing(sqlite3.connect(file)) as db:
        assert db.execute("SELECT x FROM precious").fetchall() == [(1,)]


def test_what_another_version_of_the_format_wrote_is_replaced(file: Path, opened: Opened) -> None:
    fill(file)
    with contextlib.closing(sqlite3.connect(file)) as db:
        db.execute("PRAGMA user_version = 99")
    cache = opened()
    assert ask(cache) == []
    assert works(cache)
    assert cache.stats()["entries"] == 1


# ---------------------------------------------------------------- not there, not mine


def test_a_file_that_is_deleted_is_made_again(file: Path, opened: Opened) -> None:
    fill(file)
    cache = opened()
    ask(cache)
    for ending in ("", "-wal", "-shm"):
        file.with_name(file.name + ending).unlink(missing_ok=True)
    assert works(cache)
    keep(cache, "later")
    cache.flush()
    assert file.exists()
    assert same(opened().get(key("later")), result("later"))


def test_a_folder_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    cache = SearchCache(tmp_path / "no" / "cache.db")
    assert works(cache)
    assert "memory only" in cache.stats()["problem"]
    assert cache.stats()["entries"] == 1
    assert not (tmp_path / "no").exists()
    cache.close()


def test_a_folder_in_its_place_fails_no_search(file: Path, opened: Opened) -> None:
    file.mkdir()
    cache = opened()
    assert works(cache)
    assert "memory only" in cache.stats()["problem"]
    with pytest.raises(StoreError, match="could not be cleared"):
        cache.clear()
    assert file.is_dir()


@contextlib.contextmanager
def locked(file: Path, how: str) -> Iterator[None]:
    with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as db:
        if how == "for all":
            db.execute("PRAGMA locking_mode = EXCLUSIVE")
        db.execute("BEGIN IMMEDIATE")
        db.execute("DELETE FROM counts")
        yield
        db.execute("ROLLBACK")


def test_a_file_that_another_process_writes_is_read_all_the_same(
    file: Path, opened: Opened
) -> None:
    fill(file)
    with locked(file, "for writers"):
        cache = opened()
        assert ask(cache) == NAMES
        assert works(cache)
        assert "locked" in cache.stats()["problem"]
        with pytest.raises(StoreError, match="locked"):
            opened().clear()
    assert works(cache)
    assert cache.stats()["problem"] is None


def test_a_file_that_is_locked_for_all_fails_no_search(file: Path, opened: Opened) -> None:
    fill(file)
    with locked(file, "for all"):
        cache = opened()
        assert ask(cache) == []
        assert works(cache)
        assert "locked" in cache.stats()["problem"]
    assert ask(cache) == NAMES
    assert works(cache)
    assert cache.stats()["problem"] is None


def test_when_too_much_waits_to_be_written_the_rest_stays_in_memory(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_cache, "WAITING", 50)
    cache = opened()
    names = [f"w{i}" for i in range(80)]
    with monkeypatch.context() as asleep:
        asleep.setattr(cache._writer, "wake", lambda: None)
        for name in names:
            keep(cache, name)
    assert all(same(cache.get(key(name)), result(name)) for name in names)
    assert cache.stats()["dropped"] == 30
    assert cache.stats()["entries"] == 50


def test_what_could_not_be_written_stays_in_memory(file: Path, opened: Opened) -> None:
    fill(file)
    cache = opened()
    names = [f"w{i}" for i in range(50)]
    with locked(file, "for writers"):
        for name in names:
            keep(cache, name)
        assert all(same(cache.get(key(name)), result(name)) for name in names)
        assert cache.flush(10)
        assert cache.stats()["dropped"] == len(names)
    figures = cache.stats()
    assert figures["hits"]["exact"] == len(names)  # counts are not lost with them
    assert figures["problem"] is None


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Disk]:
    with mounted(tmp_path / "disk", megabytes=4) as made:
        yield made


def test_a_read_only_disk_fails_no_search(small_disk: Disk) -> None:
    file = small_disk.place / "cache.db"
    fill(file)
    small_disk.read_only()
    cache = SearchCache(file)
    ask(cache)
    assert works(cache)
    assert "memory only" in cache.stats()["problem"]
    with pytest.raises(StoreError, match="could not be cleared"):
        cache.clear()
    small_disk.writable()
    assert works(cache)
    assert cache.stats()["problem"] is None
    cache.close()


def test_a_full_disk_fails_no_search(small_disk: Disk) -> None:
    file = small_disk.place / "cache.db"
    fill(file)
    cache = SearchCache(file)
    assert ask(cache) == NAMES
    small_disk.fill()
    for i in range(30):
        cache.put(key(f"x{i}"), result(f"x{i}", hits=20, words=300))
        cache.flush(10)
    assert ask(cache) == NAMES
    assert works(cache)
    assert "memory only" in cache.stats()["problem"]
    small_disk.empty()
    assert works(cache)
    assert cache.stats()["problem"] is None
    cache.close()
    assert same(SearchCache(file).get(key("another")), result("another"))


# ---------------------------------------------------------------- processes


def test_two_processes_of_four_threads_share_a_file(file: Path, script: Script) -> None:
    processes = [script("asker.py", file, seed, "--rounds", 150, "--threads", 4) for seed in (1, 2)]
    said = [process.communicate()[0].split("\n") for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    for lines in said:
        assert not [line for line in lines if line.startswith("wrong")]
        assert int(lines[-2].removeprefix("found ")) > 100
    cache = SearchCache(file, entries=60)
    figures = cache.stats()
    assert 0 < figures["entries"] <= 60
    assert figures["problem"] is None
    assert figures["hits"]["exact"] + figures["hits"]["semantic"] > 200
    cache.close()


def test_a_process_killed_at_any_moment_leaves_a_cache_that_is_right(
    file: Path, script: Script
) -> None:
    rng = random.Random(3)
    names = [f"n{a}{b}" for a in "abcdefghij" for b in "abcdefghij"]
    whole = 0
    for seed in range(5):
        pair = [script("asker.py", file, 10 * seed + i, "--threads", 2) for i in range(2)]
        for process in pair:
            assert process.stdout is not None
            assert process.stdout.readline() == "at work\n"
        time.sleep(rng.uniform(0.0, 0.3))
        for process in pair:
            process.send_signal(signal.SIGKILL)
            assert "wrong" not in process.communicate()[0]
        cache = SearchCache(file)
        found = [name for name in names if cache.get(key(name)) is not None]
        assert all(same(cache.get(key(name)), result(name)) for name in found)
        assert cache.stats()["problem"] is None
        whole += len(found)
        cache.close()
    assert whole > 50  # what was written before the kill is there after it
