"""Backups: what was acknowledged is in them, what is damaged is refused, and whoever is killed on
the way there or back loses nothing."""

from __future__ import annotations

import random
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import clew
from backups import forge
from clew.errors import ClewError, InputError, StoreError

from hashing import HashingEmbedder

HERE = Path(__file__).parent
STORES = {"sqlite": "", "duckdb": "duckdb:///notes.duckdb"}
WORDS = ("keel", "mast", "sail", "rope", "deck", "bolt", "hull", "tiller", "anchor", "jib")


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest) -> str:
    return STORES[request.param]


def opened(folder: Path, store: str = "") -> clew.Engine:
    return clew.open(folder, store=store, embedder=HashingEmbedder())


def records(start: int, end: int) -> Iterator[clew.Record]:
    for number in range(start, end):
        some = random.Random(number).choices(WORDS, k=8)
        yield clew.Record(
            id=f"r{number}",
            content=f"{' '.join(some)} n{number}",
            tags=(some[0],),
            metadata={"number": number},
        )


def fill(folder: Path, store: str = "", *, count: int = 40, start: int = 0) -> None:
    folder.mkdir(exist_ok=True)
    with opened(folder, store) as engine:
        engine.add(records(start, start + count))
        engine.embed()


def ids(folder: Path, store: str = "") -> set[str]:
    with opened(folder, store) as engine:
        found = {record.id for record in engine.store.select(clew.Filter(), limit=10_000)}
        engine.store.indexes.refresh()
        assert [row for row in engine.doctor() if not row["ok"]] == []
        return found


def answers(folder: Path, store: str = "") -> list[tuple[str, list[tuple[str, float, str]]]]:
    with opened(folder, store) as engine:
        return [
            (query, [(hit.id, hit.score, hit.snippet) for hit in engine.search(query, limit=10)])
            for query in ("keel mast", "anchor winch tag:sail", "n7 rope", "jib deck bolt hull")
        ]


def leftovers(folder: Path) -> list[Path]:
    return [file for file in folder.rglob("*") if file.name.endswith(".part")]


# ---------------------------------------------------------------------- there and back


def test_a_restored_store_answers_as_the_original(tmp_path: Path, store: str) -> None:
    fill(tmp_path / "notes", store)
    (tmp_path / "notes" / "clew.toml").write_text("rrf_k = 7\n")
    file = tmp_path / "notes.clew"
    with opened(tmp_path / "notes", store) as engine:
        said = engine.backup(file)
    assert said["counts"] == {"records": 40, "passages": 40, "vectors": 40}
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert clew.verify_backup(file) == said
    done = clew.restore_backup(file, tmp_path / "other")
    assert stat.S_IMODE(Path(done["into"]).stat().st_mode) == 0o600
    assert answers(tmp_path / "other", store) == answers(tmp_path / "notes", store)
    assert ids(tmp_path / "other", store) == ids(tmp_path / "notes", store)
    assert (tmp_path / "other" / "clew.toml").read_text() == "rrf_k = 7\n"
    assert leftovers(tmp_path) == []


def test_a_memory_comes_back_with_its_history(tmp_path: Path) -> None:
    with clew.Memory(tmp_path / "memory.db", embedder=HashingEmbedder()) as memory:
        first = memory.remember("Ana lives in Porto", tags=["home"])
        memory.supersede(first.id, "Ana lives in Lisbon")
        memory.engine.backup(tmp_path / "memory.clew")
        before = [dict(each) for each in memory.history(first.id)]
    clew.restore_backup(tmp_path / "memory.clew", db=tmp_path / "again.db")
    with clew.Memory(tmp_path / "again.db", embedder=HashingEmbedder()) as memory:
        assert [dict(each) for each in memory.history(first.id)] == before
        assert memory.recall("where does Ana live")[0].content == "Ana lives in Lisbon"


def test_a_restore_takes_the_place_of_a_store_that_is_open(tmp_path: Path, store: str) -> None:
    folder, file = tmp_path / "notes", tmp_path / "notes.clew"
    fill(folder, store)
    with opened(folder, store) as engine:
        engine.backup(file)
        engine.add(records(40, 80))
        engine.remove(["r7"])
        assert engine.get("r50") is not None and engine.get("r7") is None
        engine.search("keel")
        clew.restore_backup(file, folder, force=True)
        assert engine.get("r50") is None and engine.get("r7") is not None
        assert {hit.id for hit in engine.search("n7 n50", limit=5, mode="keyword")} == {"r7"}
        engine.add(records(80, 90))  # as many as before: the log has the same number again
        assert "r85" in {hit.id for hit in engine.search("n85", limit=5, mode="keyword")}
    assert ids(folder, store) == {f"r{n}" for n in (*range(40), *range(80, 90))}


def test_a_damaged_store_is_kept_aside(tmp_path: Path, store: str) -> None:
    folder, file = tmp_path / "notes", tmp_path / "notes.clew"
    fill(folder, store)
    with opened(folder, store) as engine:
        engine.backup(file)
    live = folder / ("notes.duckdb" if store else ".clew/clew.db")
    broken = bytearray(live.read_bytes())
    broken[100:8000] = b"\xff" * 7900
    broken[4096:12288] = b"\xff" * 8192
    live.write_bytes(broken)
    done = clew.restore_backup(file, folder, force=True)
    assert Path(done["aside"]).read_bytes() == bytes(broken)
    assert ids(folder, store) == {f"r{n}" for n in range(40)}


# ---------------------------------------------------------------------- while others write


def test_what_was_acknowledged_before_it_began_is_in_it(tmp_path: Path, store: str) -> None:
    folder = tmp_path / "notes"
    fill(folder, store)
    said: list[str] = []
    stop = threading.Event()
    with opened(folder, store) as engine:

        def write() -> None:
            for number in range(1_000, 100_000):
                if stop.is_set():
                    return
                engine.add(records(number, number + 1))
                said.append(f"r{number}")

        writer = threading.Thread(target=write)
        writer.start()
        try:
            for turn in range(4):
                before = set(said)
                engine.backup(tmp_path / f"{turn}.clew")
                after = {*said, *(f"r{number}" for number in range(1_000, 1_002 + len(said)))}
                clew.restore_backup(tmp_path / f"{turn}.clew", tmp_path / f"{turn}")
                there = ids(tmp_path / f"{turn}", store) - {f"r{n}" for n in range(40)}
                assert before <= there <= after
        finally:
            stop.set()
            writer.join()
    assert len(said) > 10


def test_other_processes_may_write_meanwhile(tmp_path: Path) -> None:
    folder = tmp_path / "notes"
    fill(folder, count=200)
    code = """
import sys, itertools, clew
with clew.open(sys.argv[1], model="none") as engine:
    for n in itertools.count(1000):
        engine.add([clew.Record(id=f"w{n}", content=f"keel w{n}")])
        print(f"w{n}", flush=True)
"""
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(folder)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        before = {process.stdout.readline().strip() for _ in range(20)}
        with opened(folder) as engine:
            engine.backup(tmp_path / "notes.clew")
        during = process.stdout.readline().strip()  # it was not stopped
    finally:
        process.kill()
        process.wait()
    assert during
    clew.restore_backup(tmp_path / "notes.clew", tmp_path / "other")
    assert before | {f"r{n}" for n in range(200)} <= ids(tmp_path / "other")


# ---------------------------------------------------------------------- kills


def run_victim(*arguments: object) -> int:
    """The number of its steps, or 0 when it was killed."""
    given = [sys.executable, str(HERE / "backup_victim.py"), *map(str, arguments)]
    done = subprocess.run(given, capture_output=True, text=True, check=False)
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return int(done.stdout) if done.returncode == 0 else 0


def test_a_killed_backup_leaves_the_one_before(tmp_path: Path, store: str) -> None:
    folder, file = tmp_path / "notes", tmp_path / "notes.clew"
    fill(folder, store)
    steps = run_victim("backup", file, folder, store, 10**9)
    first = file.read_bytes()
    file.unlink()
    run_victim("backup", file, folder, store, steps // 2)
    assert not file.exists()
    file.write_bytes(first)
    fill(folder, store, start=40, count=5)
    for last in sorted(random.Random(1).sample(range(1, steps + 1), 4)):
        run_victim("backup", file, folder, store, last)
        if file.read_bytes() != first:  # it was as far as to have its name
            assert clew.verify_backup(file)["counts"]["records"] == 45
            file.write_bytes(first)
    assert ids(folder, store) == {f"r{n}" for n in range(45)}
    assert run_victim("backup", file, folder, store, 10**9)
    assert [each for each in leftovers(tmp_path) if "notes.clew" in each.name] == []


def test_a_killed_restore_leaves_the_old_store_or_the_new_one(tmp_path: Path, store: str) -> None:
    folder, file = tmp_path / "notes", tmp_path / "notes.clew"
    fill(folder, store)
    with opened(folder, store) as engine:
        engine.backup(file)
    old, new = {f"r{n}" for n in range(50)}, {f"r{n}" for n in range(40)}
    fill(folder, store, start=40, count=10)
    assert ids(folder, store) == old
    clew.restore_backup(file, tmp_path / "elsewhere")
    steps = run_victim("restore", file, tmp_path / "elsewhere", store, 10**9)
    for last in sorted(random.Random(1).sample(range(1, steps + 1), min(5, steps))):
        run_victim("restore", file, folder, store, last)
        there = ids(folder, store)
        assert there in (old, new)
        if there == new:
            fill(folder, store, start=40, count=10)
    assert run_victim("restore", file, folder, store, 10**9)
    assert ids(folder, store) == new
    assert leftovers(folder) == []


def test_a_restore_killed_at_any_instant_leaves_one_or_the_other(tmp_path: Path) -> None:
    folder, file = tmp_path / "notes", tmp_path / "notes.clew"
    fill(folder, count=300)
    with opened(folder) as engine:
        engine.backup(file)
    fill(folder, start=300, count=10)
    rng = random.Random(3)
    victim = [sys.executable, str(HERE / "backup_victim.py"), "restore"]
    for _ in range(4):
        process = subprocess.Popen([*victim, str(file), str(folder), "", str(10**9)])
        try:
            process.wait(rng.uniform(0.2, 0.6))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        assert len(ids(folder)) in (300, 310)


# ---------------------------------------------------------------------- damage


def test_no_flipped_byte_goes_unnoticed(tmp_path: Path, store: str) -> None:
    folder, file = tmp_path / "notes", tmp_path / "notes.clew"
    fill(folder, store, count=8)
    with opened(folder, store) as engine:
        engine.backup(file)
    sound, rng = file.read_bytes(), random.Random(11)
    places = [*range(60), *range(len(sound) - 300, len(sound)), *rng.sample(range(len(sound)), 300)]
    for place in places:
        damaged = bytearray(sound)
        damaged[place] ^= 1 << rng.randrange(8)
        file.write_bytes(damaged)
        with pytest.raises(StoreError, match=r"damaged|no backup"):
            clew.verify_backup(file)
    for length in (0, 1, 50, len(sound) // 2, len(sound) - 1):
        file.write_bytes(sound[:length])
        with pytest.raises(StoreError, match=r"damaged|no backup"):
            clew.restore_backup(file, folder, force=True)
    assert ids(folder, store) == {f"r{n}" for n in range(8)}


def test_what_is_wrong_is_named(tmp_path: Path) -> None:
    fill(tmp_path / "notes", count=8)
    file = tmp_path / "notes.clew"
    with opened(tmp_path / "notes") as engine:
        engine.backup(file)
    damaged = bytearray(file.read_bytes())
    damaged[1_000] ^= 1
    file.write_bytes(damaged)
    with pytest.raises(StoreError, match=r"store\.sqlite"):
        clew.verify_backup(file)
    file.write_bytes(damaged[:-10])
    with pytest.raises(StoreError, match="its end is missing"):
        clew.verify_backup(file)


@pytest.mark.parametrize(
    "change",
    [
        {"place": "../elsewhere.db"},
        {"place": "/tmp/elsewhere.db"},
        {"place": ".ssh/config"},
        {"place": 7},
        {"format": 99},
        {"format": "x"},
        {"database": "oracle"},
        {"parts": {}},
        {"parts": {"store.sqlite": {"bytes": 1, "sha256": ""}}},
        {"parts": []},
        {"counts": {"records": 9, "passages": 8, "vectors": 8}},
        {"store": "another"},
        {"kind": None},
    ],
    ids=str,
)
def test_a_manifest_of_a_stranger_reaches_nothing(
    tmp_path: Path, change: dict[str, object]
) -> None:
    fill(tmp_path / "notes", count=8)
    file, home = tmp_path / "notes.clew", tmp_path / "home"
    with opened(tmp_path / "notes") as engine:
        engine.backup(file)
    forge(file)
    clew.verify_backup(file)
    forge(file, **change)
    with pytest.raises(ClewError):
        clew.restore_backup(file, home)
    assert not [each for each in home.rglob("*") if each.is_file()]
    assert sorted(each.name for each in tmp_path.iterdir() if each != home) == [
        "notes",
        "notes.clew",
    ]


# ---------------------------------------------------------------------- refusals


def test_nothing_is_overwritten_unasked(tmp_path: Path, store: str) -> None:
    folder, file = tmp_path / "notes", tmp_path / "notes.clew"
    fill(folder, store, count=8)
    with opened(folder, store) as engine:
        engine.backup(file)
        with pytest.raises(InputError, match="exists"):
            engine.backup(file)
        live = folder / ("notes.duckdb" if store else ".clew/clew.db")
        with pytest.raises(InputError, match="store itself"):
            engine.backup(live, force=True)
        with pytest.raises(InputError, match="folder"):
            engine.backup(tmp_path / "nowhere" / "x.clew")
        engine.backup(file, force=True)
    with pytest.raises(InputError, match="there already"):
        clew.restore_backup(file, folder)
    other = tmp_path / "other"
    other.mkdir()
    (other / "clew.toml").write_text("rrf_k = 3\n")
    (folder / "clew.toml").write_text("rrf_k = 7\n")
    with opened(folder, store) as engine:
        engine.backup(file, force=True)
    with pytest.raises(InputError, match=r"clew\.toml is there already"):
        clew.restore_backup(file, other)
    assert (other / "clew.toml").read_text() == "rrf_k = 3\n"
    clew.restore_backup(file, other, force=True)
    assert (other / "clew.toml").read_text() == "rrf_k = 7\n"


def test_a_link_does_not_lead_a_restore_out_of_its_folder(tmp_path: Path) -> None:
    fill(tmp_path / "notes", count=8)
    with opened(tmp_path / "notes") as engine:
        engine.backup(tmp_path / "notes.clew")
    (tmp_path / "outside").mkdir()
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / ".clew").symlink_to(tmp_path / "outside")
    with pytest.raises(InputError, match="leads out"):
        clew.restore_backup(tmp_path / "notes.clew", tmp_path / "home")
    assert list((tmp_path / "outside").iterdir()) == []


def test_a_damaged_store_makes_no_backup(tmp_path: Path) -> None:
    folder = tmp_path / "notes"
    fill(folder, count=200)
    live = folder / ".clew" / "clew.db"
    data = bytearray(live.read_bytes())
    data[8192 * 3 : 8192 * 9] = b"\x5a" * (8192 * 6)
    live.write_bytes(data)
    with pytest.raises(ClewError), opened(folder) as engine:
        engine.backup(tmp_path / "notes.clew")
    assert not (tmp_path / "notes.clew").exists()


@pytest.mark.parametrize("given", ["", "x" * 300, "a\0b", None, 5, b"x", "/dev/null/x"], ids=ascii)
def test_only_clew_errors_leave(tmp_path: Path, given: Any) -> None:
    fill(tmp_path / "notes", count=2)
    with opened(tmp_path / "notes") as engine:
        with pytest.raises(ClewError):
            engine.backup(given)
        engine.backup(tmp_path / "sound.clew")
    for refused in (clew.verify_backup, clew.restore_backup):
        with pytest.raises(ClewError):
            refused(given)
    with pytest.raises(ClewError):
        clew.restore_backup(tmp_path / "sound.clew", db=given or b"x")


def test_a_store_that_another_is_writing_to_is_waited_for_and_left(tmp_path: Path) -> None:
    import sqlite3

    from clew.storage.sqlite import SqliteDatabase

    fill(tmp_path / "notes", count=3)
    fill(tmp_path / "other", count=2)
    live = tmp_path / "notes" / ".clew" / "clew.db"
    other = sqlite3.connect(live, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    db = SqliteDatabase(live, busy_seconds=0.1)
    with pytest.raises(StoreError, match="another process is writing"):
        db.replace_with(tmp_path / "other" / ".clew" / "clew.db")
    other.close()
    db.close()
    assert ids(tmp_path / "notes") == {"r0", "r1", "r2"}
