"""The DuckDB file itself: what is refused, who may have it open, what is left in it."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import clew
from clew.errors import ConfigError, StoreError
from clew.filter import Filter
from clew.storage.duckdb import explained
from clew.store import DuckStore
from entries import MODEL, entry, found, ill, near

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "notes.duckdb"


@pytest.fixture
def store(file: Path) -> Iterator[DuckStore]:
    with closing(DuckStore(file)) as opened:
        yield opened


# ---------------------------------------------------------------------- opening


def sqlite_file(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE theirs (x)")


@pytest.mark.parametrize(
    "make",
    [
        lambda path: path.write_text("just some notes\n" * 50, "utf-8"),
        lambda path: path.touch(),
        sqlite_file,
    ],
    ids=["text", "empty", "SQLite"],
)
def test_a_file_that_is_no_duckdb_database_is_refused_and_left_alone(
    file: Path, make: Callable[[Path], object]
) -> None:
    make(file)
    before = file.read_bytes()
    with pytest.raises(StoreError, match="is not a DuckDB database"):
        DuckStore(file)
    assert file.read_bytes() == before
    assert sorted(p.name for p in file.parent.iterdir()) == [file.name]


def test_another_programs_duckdb_database_is_refused(file: Path) -> None:
    with closing(duckdb.connect(str(file))) as db:
        db.execute("CREATE TABLE theirs (x INTEGER)")
    with pytest.raises(StoreError, match="another program's database"):
        DuckStore(file)
    with closing(duckdb.connect(str(file))) as db:
        names = [row[0] for row in db.execute("SELECT table_name FROM duckdb_tables()").fetchall()]
    assert names == ["theirs"]


def test_a_store_of_a_newer_version_asks_for_an_upgrade(file: Path) -> None:
    DuckStore(file).close()
    with closing(duckdb.connect(str(file))) as db:
        db.execute("UPDATE meta SET value = '999' WHERE key = 'format'")
    with pytest.raises(StoreError, match=r"newer Clew.*pip install -U"):
        DuckStore(file)


def test_a_folder_or_a_path_into_nowhere_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="is a folder"):
        DuckStore(tmp_path)
    with pytest.raises(StoreError, match="there is no folder"):
        DuckStore(tmp_path / "none" / "such.duckdb")
    with pytest.raises(StoreError, match="there is no store"):
        DuckStore(tmp_path / "none.duckdb", create=False)
    assert list(tmp_path.iterdir()) == []


def test_a_missing_package_is_named_with_what_to_install(file: Path) -> None:
    code = f"""
import sys, clew
sys.modules["duckdb"] = None
try:
    clew.open({str(file.parent)!r}, store="duckdb:///notes.duckdb")
except clew.ConfigError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'clew-search[duckdb]'" in done.stdout


@pytest.mark.parametrize("name", ["temp", "system", "memory", "main", "a b'c\"d", "京都"])
def test_any_name_of_a_file_will_do(tmp_path: Path, name: str) -> None:
    with closing(DuckStore(tmp_path / f"{name}.duckdb")) as store:
        store.put([entry("a", "zebra")])
        store.upkeep.vacuum()
        assert found(store, "zebra") == ["a"]


# ---------------------------------------------------------------------- processes


def holding(script: Start, file: Path) -> subprocess.Popen[str]:
    """Another process that has the store open until a line is sent to it."""
    process = script("holder.py", file)
    assert process.stdout is not None
    assert process.stdout.readline().strip() == "open"
    return process


def test_another_process_that_has_the_file_is_named_with_what_to_do(
    script: Start, file: Path
) -> None:
    process = holding(script, file)
    try:
        with pytest.raises(StoreError, match=rf"{process.pid}.*one at a time.*clew migrate"):
            DuckStore(file, busy_seconds=0.2)
    finally:
        process.communicate("\n", timeout=60)


def test_another_process_that_is_soon_done_is_waited_for(script: Start, file: Path) -> None:
    process = holding(script, file)
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()
    with closing(DuckStore(file, busy_seconds=60)) as store:
        assert found(store, "zebra") == ["theirs"]
    process.communicate(timeout=60)


def test_what_was_acknowledged_survives_a_kill(script: Start, file: Path) -> None:
    process = script("holder.py", file, "write")
    assert process.stdout is not None
    assert process.stdout.readline().strip() == "open"
    written = [process.stdout.readline().strip() for _ in range(25)]
    process.kill()
    process.communicate(timeout=60)
    with closing(DuckStore(file)) as store:
        there = {record.id: record.content for record in store.select(Filter(), limit=9999)}
        assert set(written) <= set(there)
        assert set(found(store, "zebra")) == set(near(store, [1, 0])) == set(there)
        assert ill(store) == []


def test_a_forked_child_is_told_to_open_the_store_again(file: Path) -> None:
    code = f"""
import os
from pathlib import Path
from clew.errors import StoreError
from clew.store import DuckStore
from clew.storage.duckdb import explained
store = DuckStore(Path({str(file)!r}))
if not (child := os.fork()):
    try:
        store.get(["a"])
    except StoreError as error:
        print(error, flush=True)
    os._exit(0)
os.waitpid(child, 0)
store.close()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "open it again in the child" in done.stdout


def test_nothing_is_written_to_a_file_that_was_deleted_or_replaced(
    file: Path, tmp_path: Path
) -> None:
    store = DuckStore(file)
    store.put([entry("a", "zebra")])
    assert store.in_place()
    file.rename(tmp_path / "moved.duckdb")
    assert not store.in_place()
    with pytest.raises(StoreError, match="open the store again"):
        store.put([entry("b", "zebra")])
    with closing(DuckStore(file)) as other:
        other.put([entry("c", "zebra")])
        with pytest.raises(StoreError, match="open"):
            store.put([entry("b", "zebra")])
        store.close()
        other.put([entry("d", "zebra")])
        other.upkeep.vacuum()
        assert other.in_place()
        assert found(other, "zebra") == ["c", "d"]


def test_a_store_whose_settings_are_refused_is_not_kept_open(file: Path, tmp_path: Path) -> None:
    (tmp_path / "clew.toml").write_text("[sources.nobody]\nkind = 'nonsense'\n", "utf-8")
    with pytest.raises(ConfigError, match="nonsense"):
        clew.open(tmp_path, store=f"duckdb:///{file}")
    ask = f"import duckdb; duckdb.connect({str(file)!r})"
    subprocess.run([sys.executable, "-c", ask], check=True, timeout=60)


def test_openings_of_one_file_are_independent_until_the_last_is_closed(
    script: Start, file: Path
) -> None:
    one, other = DuckStore(file), DuckStore(file)
    one.put([entry("a", "zebra")])
    one.close()
    with pytest.raises(StoreError, match="closed"):
        one.get(["a"])
    assert found(other, "zebra") == ["a"]
    other.close()
    process = holding(script, file)  # nobody has it any more
    process.communicate("\n", timeout=60)


# ---------------------------------------------------------------------- contents


def test_a_life_behind_it_changes_no_answer_when_everything_derived_is_lost(
    store: DuckStore, file: Path
) -> None:
    live_quickly(store)
    before = answers_of(store)
    store.indexes.rebuild()
    assert answers_of(store) == before
    store.close()
    import shutil

    shutil.rmtree(store.folder)
    with closing(DuckStore(file)) as again:
        assert answers_of(again) == before
        assert ill(again) == []


def live_quickly(store: DuckStore) -> None:
    rows = [entry(f"r{i:02}", f"zebra word{i}", vectors=[[1, i]], tags=("t",)) for i in range(30)]
    store.put(rows, model=MODEL)
    store.delete(["r03", "r04"])
    store.put([entry("r05", "walrus", vectors=[[0, 1]])], model=MODEL)
    store.rename("r06", entry("renamed", "zebra word6"))


def answers_of(store: DuckStore) -> list[list[str]]:
    return [
        found(store, "zebra"),
        found(store, "zebra", tags="t"),
        near(store, [1, 0]),
        near(store, [0, 1], query='"zebra" -word7'),
    ]


SECRET = "xylophonist"


def test_after_a_vacuum_nothing_of_what_was_deleted_is_in_any_file(
    store: DuckStore, file: Path
) -> None:
    row = [0.123456, 0.654321]
    store.put(
        [
            entry(f"{SECRET}{i}", f"{SECRET} {i}", title=SECRET, tags=(SECRET,), vectors=[row])
            for i in range(50)
        ],
        model=MODEL,
    )
    store.put([entry("stays", "zebra", vectors=[[1, 0]])], model=MODEL)
    assert len(found(store, SECRET)) == 50
    store.delete([f"{SECRET}{i}" for i in range(50)])
    store.upkeep.vacuum()
    assert found(store, "zebra") == near(store, [1, 0]) == ["stays"]
    store.close()
    import numpy as np

    traces = [SECRET.encode(), np.array(row, "<f4").tobytes()]
    files = [path for path in file.parent.rglob("*") if path.is_file()]
    assert file in files
    for path in files:
        assert [trace for trace in traces if trace in path.read_bytes()] == [], path


def test_the_file_shrinks_when_most_of_it_was_deleted(store: DuckStore, file: Path) -> None:
    words = "zebra walrus heron otter " * 400
    store.put([entry(f"r{i:03}", f"{i} {words}{i}") for i in range(300)])
    store.delete([f"r{i:03}" for i in range(5, 300)])
    store.upkeep.vacuum()
    store.put([entry("after", "newt")])
    assert len(found(store, "zebra")) == 5
    assert found(store, "newt") == ["after"]
    assert not list(file.parent.glob("*.new"))
    assert ill(store) == []


def test_what_is_in_it_can_be_asked_in_duckdbs_own_sql(store: DuckStore, file: Path) -> None:
    store.put(
        [
            entry("a", "zebra", vectors=[[1, 0]], tags=("Striped",), links=("b",)),
            entry("b", "walrus", vectors=[[0, 1]]),
        ],
        model=MODEL,
    )
    store.close()
    with closing(duckdb.connect(str(file), read_only=True)) as db:
        nearest = """SELECT r.id FROM vectors JOIN chunks USING (cid) JOIN records AS r USING (rid)
                     ORDER BY array_cosine_distance(embedding::FLOAT[2], [0.9, 0.1]::FLOAT[2])"""
        assert db.execute(nearest).fetchall() == [("a",), ("b",)]
        assert db.execute("SELECT id, tags, links FROM records ORDER BY id").fetchall() == [
            ("a", ["striped"], ["b"]),
            ("b", [], []),
        ]
        assert db.execute("SELECT tag FROM tags").fetchall() == [("striped",)]


# ---------------------------------------------------------------------- damage


@pytest.fixture(scope="module")
def unclosed(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, bytes]:
    """A file and its log, as a process leaves them that is killed after ten writes."""
    file = tmp_path_factory.mktemp("unclosed") / "notes.duckdb"
    code = f"""
import os, pathlib
from clew.store import DuckStore
from clew.storage.duckdb import explained
from entries import entry
store = DuckStore(pathlib.Path({str(file)!r}))
for i in range(10):
    store.put([entry(f"r{{i}}", f"zebra {{i}}")])
os._exit(0)
"""
    places = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": places}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)
    return file.read_bytes(), file.with_name("notes.duckdb.wal").read_bytes()


def left(file: Path, unclosed: tuple[bytes, bytes], log: bytes) -> Path:
    file.write_bytes(unclosed[0])
    file.with_name(f"{file.name}.wal").write_bytes(log)
    return file


def test_what_a_killed_process_had_acknowledged_is_there(
    file: Path, unclosed: tuple[bytes, bytes]
) -> None:
    with closing(DuckStore(left(file, unclosed, unclosed[1]))) as store:
        assert len(found(store, "zebra")) == 10


@given(share=st.floats(0.01, 0.999))
@settings(max_examples=15)
def test_a_log_whose_last_write_was_cut_off_is_replayed_as_far_as_it_goes(
    tmp_path_factory: pytest.TempPathFactory, unclosed: tuple[bytes, bytes], share: float
) -> None:
    file, log = tmp_path_factory.mktemp("cut") / "notes.duckdb", unclosed[1]
    with closing(DuckStore(left(file, unclosed, log[: int(share * len(log))]))) as store:
        there = [f"zebra {i}" for i in range(store.count(Filter()))]
        assert sorted(r.content for r in store.select(Filter(), limit=99)) == there


@given(st.one_of(st.integers(0, 80), st.integers(0, 10**9)), st.integers(1, 255))
@settings(max_examples=30)
def test_no_changed_byte_of_the_log_loses_what_was_acknowledged(
    tmp_path_factory: pytest.TempPathFactory, unclosed: tuple[bytes, bytes], place: int, flip: int
) -> None:
    file, log = tmp_path_factory.mktemp("flip") / "notes.duckdb", bytearray(unclosed[1])
    log[place % len(log)] ^= flip
    last = place % len(log) >= len(log) - 21  # the mark of the last commit: as if it was cut off
    try:
        with closing(DuckStore(left(file, unclosed, bytes(log)))) as store:
            assert store.count(Filter()) >= (9 if last else 10)
    except StoreError as error:
        assert "damaged" in str(error)


@pytest.mark.parametrize("log", [b"\xa5" * 999, bytes(999), b"x"], ids=["bytes", "zeros", "one"])
def test_a_log_that_is_none_is_refused_and_left_alone(
    file: Path, unclosed: tuple[bytes, bytes], log: bytes
) -> None:
    with pytest.raises(StoreError, match=r"notes\.duckdb\.wal\) is damaged.*backup"):
        DuckStore(left(file, unclosed, log))
    assert file.with_name("notes.duckdb.wal").read_bytes() == log


@given(st.integers(0, 4095), st.integers(1, 255), st.booleans())
@settings(max_examples=10)
def test_a_damaged_file_is_a_store_error_that_says_what_to_do(
    tmp_path_factory: pytest.TempPathFactory, whole: bytes, first: int, flip: int, headers: bool
) -> None:
    file, data = tmp_path_factory.mktemp("damaged") / "notes.duckdb", bytearray(whole)
    for place in range(first if headers else 3 * 4096 + first, len(data), 4096):
        data[place] ^= flip
    file.write_bytes(bytes(data))
    try:
        with closing(DuckStore(file)) as store:
            assert any("readable throughout" in finding for finding in ill(store))
            for ask in (lambda: found(store, "zebra"), lambda: store.stats(model=MODEL)):
                with contextlib.suppress(StoreError):
                    ask()
    except StoreError as error:
        assert "damaged" in str(error) or "is not a DuckDB database" in str(error)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A file that was closed, with some blocks in it."""
    file = tmp_path_factory.mktemp("whole") / "notes.duckdb"
    with closing(DuckStore(file)) as store:
        store.put([entry(f"r{i}", f"zebra {i} " * 200) for i in range(500)])
    return file.read_bytes()


@pytest.mark.parametrize(
    "error", [RuntimeError("Query interrupted"), duckdb.InterruptException("Interrupted!")]
)
def test_what_duckdb_makes_of_ctrl_c_is_a_keyboard_interrupt(
    store: DuckStore, error: Exception
) -> None:
    with pytest.raises(KeyboardInterrupt), store.atomic(), explained(Path()):
        store.put([entry("a", "zebra")])
        raise error
    assert found(store, "zebra") == []
    store.put([entry("b", "zebra")])
    assert found(store, "zebra") == ["b"]


# ---------------------------------------------------------------------- numbers

numbers = st.one_of(
    st.integers(-(2**65), 2**65),
    st.sampled_from([2**53 - 1, 2**53, 2**53 + 1, 2**53 + 2, -(2**53) - 1, 2**63 - 1, -(2**63)]),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([2.0**53, 2.0**53 + 2, 0.5, -0.0, 2.0**63, -(2.0**63)]),
)
conditions = st.one_of(
    numbers,
    st.dictionaries(st.sampled_from(["gt", "gte", "lt", "lte"]), numbers, min_size=1, max_size=2),
)


def kept(number: float) -> float:
    """As stores keep it: what 64 bits cannot hold is a float."""
    return number if isinstance(number, float) or -(2**63) <= number < 2**63 else float(number)


@pytest.fixture(scope="module")
def counting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DuckStore]:
    with closing(DuckStore(tmp_path_factory.mktemp("numbers") / "n.duckdb")) as store:
        yield store


@settings(max_examples=60)
@given(st.lists(numbers, min_size=1, max_size=8), st.lists(conditions, min_size=1, max_size=8))
def test_numbers_of_any_size_compare_exactly(
    counting: DuckStore, values: list[Any], wanted: list[Any]
) -> None:
    names = {f"r{i}": kept(value) for i, value in enumerate(values)}
    wanted = [
        {sign: kept(bound) for sign, bound in one.items()} if isinstance(one, dict) else kept(one)
        for one in wanted
    ]
    counting.delete([record.id for record in counting.select(Filter(), limit=99)])
    counting.put([entry(name, "x", metadata={"n": value}) for name, value in names.items()])
    records = counting.get(list(names))
    for condition in wanted:
        wish = Filter(metadata={"n": condition})
        chosen = [record.id for record in counting.select(wish, limit=99)]
        assert chosen == [record.id for record in records if wish.allows(record)]


def test_a_config_error_is_what_a_wrong_url_is(tmp_path: Path) -> None:
    import clew

    with pytest.raises(ConfigError, match="did you mean 'duckdb'"):
        clew.open(tmp_path, store="duckdbb:///x.duckdb")


def test_one_process_may_open_a_file_twice(tmp_path: Path) -> None:
    """DuckDB gives both the same instance, which has our functions already."""
    first = DuckStore(tmp_path / "twice.duckdb")
    second = DuckStore(tmp_path / "twice.duckdb")
    assert second.count(Filter(path="a*b")) == 0
    second.close()
    first.close()
