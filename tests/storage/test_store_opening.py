"""Opening: what is no store, what is too new, what is locked; and the numbered migrations."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from samples import Lived, answers, record, vector, word

from clew.errors import StoreError
from clew.filter import Filter
from clew.storage import sqlite
from clew.storage.tables import run_script
from clew.store import EmbeddedStore
from clew.types import Life
from entries import MODEL, entry, found, ill, near

Opened = Callable[..., EmbeddedStore]


def version(folder: Path) -> int:
    with closing(sqlite3.connect(folder / "clew.db")) as db:
        return int(db.execute("PRAGMA user_version").fetchone()[0])


def test_an_empty_file_is_taken_through_every_migration(folder: Path, opened: Opened) -> None:
    folder.mkdir()
    (folder / "clew.db").touch()
    assert version(folder) == 0
    store = opened()
    assert version(folder) == len(sqlite.MIGRATIONS) > 0
    store.put([record("a")], model=MODEL)
    assert found(store, "zebra") == near(store, vector("a")) == ["a"]


def test_migrations_run_in_order_and_once(
    folder: Path, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened()
    store.put([record("a")], model=MODEL)
    store.close()
    more = ["CREATE TABLE ran (n); INSERT INTO ran VALUES (1)", "INSERT INTO ran VALUES (2)"]
    monkeypatch.setattr(sqlite, "MIGRATIONS", [*sqlite.MIGRATIONS, *more])
    store = opened()
    assert version(folder) == len(sqlite.MIGRATIONS)
    assert found(store, "zebra") == ["a"]
    opened()
    with closing(sqlite3.connect(folder / "clew.db")) as db:
        assert db.execute("SELECT n FROM ran ORDER BY rowid").fetchall() == [(1,), (2,)]


def test_a_migration_that_fails_leaves_the_store_as_it_was(
    folder: Path, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened()
    store.put([record("a")], model=MODEL)
    store.close()
    before = list(sqlite.MIGRATIONS)
    half = "CREATE TABLE half_done (x); CREATE TABLE records (x)"
    monkeypatch.setattr(sqlite, "MIGRATIONS", [*before, half])
    with pytest.raises(StoreError, match="already exists"):
        opened()
    assert version(folder) == len(before)
    monkeypatch.setattr(sqlite, "MIGRATIONS", before)
    store = opened()
    assert found(store, "zebra") == ["a"]
    with closing(sqlite3.connect(folder / "clew.db")) as db:
        tables = {row[0] for row in db.execute("SELECT name FROM sqlite_master")}
    assert "half_done" not in tables


def test_a_store_of_the_format_before_lives_opens_and_keeps_everything(
    lived: Lived, opened: Opened
) -> None:
    as_of_format(lived.folder / "clew.db", 2)
    assert version(lived.folder) == 2
    store = opened()
    assert version(lived.folder) == len(sqlite.MIGRATIONS)
    assert answers(store) == lived.answers
    assert ill(store) == []
    everything = [record.id for record in store.select(Filter(), limit=999)]
    assert [r.id for r in store.select(Filter(active=True), limit=999)] == everything
    assert set(store.lifecycle.get(everything).values()) == {Life()}
    assert store.lifecycle.end(["r100"], at=1.0, reason="forgotten") == ["r100"]
    assert "r100" not in found(store, "zebra", active=True)


def test_a_store_of_the_format_before_slim_tables_is_filtered_as_ever(
    folder: Path, opened: Opened
) -> None:
    given = {"a": {"n": 2, "of": ["x", 2.5]}, "b": {"n": 2.5, "none": {}}, "c": {"none": []}}
    store = opened()
    store.put([entry(name, "zebra", metadata=of) for name, of in given.items()], model=MODEL)
    store.close()
    as_of_format(folder / "clew.db", 5)
    with closing(sqlite3.connect(folder / "clew.db")) as db, db:
        db.execute("UPDATE attributes SET value = NULL WHERE key = 'none'")  # as it was kept then
    asked: list[tuple[str, object, list[str]]] = [
        ("n", 2, ["a"]),
        ("n", {"gt": 2}, ["b"]),
        ("of", "x", ["a"]),
        ("n", None, ["c"]),
        ("none", None, ["a"]),
        ("none", {"lt": "~"}, []),
    ]
    store = opened()
    assert version(folder) == len(sqlite.MIGRATIONS)
    for _ in range(2):
        for key, condition, names in asked:
            some = store.select(Filter(metadata={key: condition}), limit=9)
            assert [one.id for one in some] == names, (key, condition)
        assert store.counts("key", Filter()) == {"n": 2, "none": 2, "of": 1}
        store.delete(["a", "b", "c"])  # and again, as this version writes them
        assert store.counts("key", Filter()) == {}
        store.put([entry(name, "zebra", metadata=of) for name, of in given.items()], model=MODEL)
    store.indexes.refresh()
    assert ill(store) == []


@pytest.mark.parametrize("number", [4, 5])
@pytest.mark.parametrize("part", ["sqlite_autoindex_attributes_1", "attributes_rid"])
def test_a_damaged_store_of_an_older_format_opens_and_is_mended(
    folder: Path, opened: Opened, number: int, part: str
) -> None:
    """What keeps it from being brought up to date can be made from what is sound."""
    file, given = folder / "clew.db", {"a": {"n": 1}, "b": {"n": 2, "none": {}}}
    store = opened()
    store.put([entry(name, "zebra", metadata=of) for name, of in given.items()], model=MODEL)
    store.close()
    as_of_format(file, number)
    with closing(sqlite3.connect(file)) as db, db:
        db.execute("UPDATE attributes SET value = NULL WHERE key = 'none'")
        page = db.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (part,)).fetchone()
        size = db.execute("PRAGMA page_size").fetchone()
    with file.open("r+b") as damaged:
        damaged.seek((page[0] - 1) * size[0])
        damaged.write(b"\xff" * size[0])
    store = opened()
    assert version(folder) == 5
    assert found(store, "zebra") == ["a", "b"]
    assert ill(store) != []
    store.upkeep.mend()
    assert ill(store) == []
    store.put([entry("c", "zebra", metadata={"n": 2})], model=MODEL)
    store.close()
    store = opened()
    assert version(folder) == len(sqlite.MIGRATIONS)
    assert [r.id for r in store.select(Filter(metadata={"n": 2}), limit=9)] == ["b", "c"]
    assert [r.id for r in store.select(Filter(metadata={"none": None}), limit=9)] == ["a", "c"]


@pytest.mark.parametrize("number", [4, 5])
def test_a_store_of_an_older_format_is_read_where_nobody_can_write(
    lived: Lived, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    as_of_format(lived.folder / "clew.db", number)
    real = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK and real(path, mode))
    store = EmbeddedStore(lived.folder, create=False)
    assert found(store, "zebra") == lived.answers["everything"]
    assert len(store.select(Filter(metadata={"version": 1}), limit=99)) == 20
    store.close()
    assert version(lived.folder) == number


def test_what_is_written_after_the_log_was_emptied_is_read_where_nobody_can_write(
    folder: Path, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened()
    store.put([record("a")], model=MODEL)
    store.indexes.refresh(optimise=True)
    assert (folder / "clew.db-wal").stat().st_size == 0
    real = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK and real(path, mode))
    reader = EmbeddedStore(folder, create=False)
    assert found(reader, "zebra") == ["a"]
    store.put([record("b")], model=MODEL)
    assert found(reader, "zebra") == ["a", "b"]
    reader.close()


def test_the_log_beside_the_file_is_emptied_and_no_reader_is_waited_for(
    folder: Path, opened: Opened
) -> None:
    store, log = opened(), folder / "clew.db-wal"
    store.put([record("a")], model=MODEL)
    with closing(sqlite3.connect(folder / "clew.db", isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT COUNT(*) FROM records").fetchone()
        store.put([record("b")], model=MODEL)
        begun = time.monotonic()
        store.indexes.refresh(optimise=True)
        assert time.monotonic() - begun < 9  # seconds, of the ten that a writer waits
        assert log.stat().st_size > 0
        assert reader.execute("SELECT COUNT(*) FROM records").fetchone() == (1,)
        reader.execute("COMMIT")
    store.indexes.refresh(optimise=True)
    assert log.stat().st_size == 0
    assert found(store, "zebra") == ["a", "b"]


def as_of_format(file: Path, number: int) -> None:
    """The same store as an older Clew would have written it: its migrations, and what they know."""
    old = file.with_name("old.db")
    with closing(sqlite3.connect(old, isolation_level=None)) as db:
        db.execute("PRAGMA page_size = 8192")
        db.execute("ATTACH ? AS now", (str(file),))
        db.execute("BEGIN")
        for script in sqlite.MIGRATIONS[:number]:
            run_script(db, script)  # type: ignore[arg-type]
        names = "SELECT name FROM main.sqlite_master WHERE type = 'table' ORDER BY name"
        for (table,) in db.execute(names).fetchall():
            columns = ", ".join(f'"{row[1]}"' for row in db.execute(f"PRAGMA table_info({table})"))
            db.execute(f"DELETE FROM main.{table}")
            db.execute(f"INSERT INTO main.{table} SELECT {columns} FROM now.{table}")
        db.execute(f"PRAGMA main.application_id = {sqlite.APPLICATION_ID}")
        db.execute(f"PRAGMA main.user_version = {number}")
        db.execute("COMMIT")
    old.replace(file)


def test_a_store_of_a_newer_version_asks_for_an_upgrade(lived: Lived, opened: Opened) -> None:
    with closing(sqlite3.connect(lived.folder / "clew.db")) as db:
        db.execute("PRAGMA user_version = 999")
    before = (lived.folder / "clew.db").read_bytes()
    with pytest.raises(StoreError, match=r"newer .*999.*upgrade.*pip install"):
        opened()
    assert (lived.folder / "clew.db").read_bytes() == before


@pytest.mark.parametrize(
    "content", [b"this is no database", b"\0" * 8192, b"SQLite format 3\0" + b"x" * 4096]
)
def test_a_file_that_is_no_database_is_refused_and_left_alone(
    folder: Path, opened: Opened, content: bytes
) -> None:
    folder.mkdir()
    (folder / "clew.db").write_bytes(content)
    with pytest.raises(StoreError, match="not a Clew store"):
        opened()
    assert (folder / "clew.db").read_bytes() == content


@pytest.mark.parametrize("table", ["records", "photographs"])
def test_the_database_of_another_program_is_refused_and_left_alone(
    folder: Path, opened: Opened, table: str
) -> None:
    folder.mkdir()
    with closing(sqlite3.connect(folder / "clew.db")) as db:
        db.execute(f"CREATE TABLE {table} (id TEXT)")
        db.commit()
    before = (folder / "clew.db").read_bytes()
    with pytest.raises(StoreError, match="not a Clew store"):
        opened()
    assert (folder / "clew.db").read_bytes() == before
    assert [path.name for path in folder.iterdir()] == ["clew.db"]


def test_the_database_that_another_program_has_open_is_refused_and_left_alone(
    folder: Path, opened: Opened
) -> None:
    """Its tables are in the log beside the file, and the file's own header does not tell yet."""
    folder.mkdir()
    with closing(sqlite3.connect(folder / "clew.db")) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("CREATE TABLE photographs (id TEXT)")
        db.commit()
        with pytest.raises(StoreError, match="not a Clew store"):
            opened()
        assert db.execute("SELECT name FROM sqlite_master").fetchall() == [("photographs",)]


def test_a_folder_in_place_of_the_database_is_refused(folder: Path, opened: Opened) -> None:
    (folder / "clew.db").mkdir(parents=True)
    with pytest.raises(StoreError, match=r"clew\.db"):
        opened()


def test_a_file_in_place_of_the_folder_is_refused(folder: Path, opened: Opened) -> None:
    folder.write_text("not a folder")
    with pytest.raises(StoreError, match="cannot make"):
        opened()


def test_opening_without_making_needs_a_store(folder: Path, opened: Opened) -> None:
    with pytest.raises(StoreError, match="clew index"):
        opened(create=False)
    assert not folder.exists()


def test_a_store_stays_where_it_was_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The current folder may be another one by then."""
    monkeypatch.chdir(tmp_path)
    store = EmbeddedStore(Path("store"))
    try:
        store.put([record("a")], model=MODEL)
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path / "elsewhere")
        store.put([record("b")], model=MODEL)
        assert found(store, "zebra") == ["a", "b"]
        store.indexes.refresh()
        assert ill(store) == []
    finally:
        store.close()
    assert list(Path().iterdir()) == []


# ---------------------------------------------------------------------- locked


def test_a_locked_database_says_what_to_do_and_works_again_afterwards(
    lived: Lived, opened: Opened
) -> None:
    store = opened(busy_seconds=0.2)
    with closing(sqlite3.connect(lived.folder / "clew.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        for write in (
            lambda: store.put([record("new")], model=MODEL),
            lambda: store.delete(["r100"]),
            lambda: store.files.set_root("a", "b"),
            lambda: store.upkeep.vacuum(),
        ):
            with pytest.raises(StoreError, match=r"another process .*try again"):
                write()
        assert answers(store) == lived.answers  # reading does not wait
        assert answers(opened(busy_seconds=0.2)) == lived.answers  # nor does opening
        other.execute("ROLLBACK")
    assert store.get(["new"]) == []
    store.put([record("new")], model=MODEL)
    assert found(store, word("new")) == near(store, vector("new"), limit=1) == ["new"]
    store.delete(["new"])
    assert answers(store) == lived.answers


def test_a_write_waits_for_another_process_to_finish(lived: Lived, opened: Opened) -> None:
    store = opened(busy_seconds=30)
    with closing(
        sqlite3.connect(lived.folder / "clew.db", isolation_level=None, check_same_thread=False)
    ) as other:
        other.execute("BEGIN IMMEDIATE")
        timer = threading.Timer(0.3, lambda: other.execute("ROLLBACK"))
        timer.start()
        assert store.put([record("new")], model=MODEL) == ["created"]
        timer.join()


# ---------------------------------------------------------------------- damaged


def test_a_damaged_database_is_reported_and_never_answers_as_if_it_were_whole(
    folder: Path, opened: Opened
) -> None:
    store = opened()
    store.put([entry(f"r{i:04}", f"zebra {i} " + "word " * 300) for i in range(300)])
    assert len(found(store, "zebra")) == 300
    store.close()
    path = folder / "clew.db"
    data = bytearray(path.read_bytes())
    middle = len(data) // 2
    data[middle : middle + 64 * 1024] = b"\xa5" * 64 * 1024
    path.write_bytes(bytes(data))
    try:
        store = opened()
        problems = ill(store)
    except StoreError as error:
        assert "backup" in str(error)  # said on opening: as good
        return
    assert any("backup" in problem for problem in problems)
    with pytest.raises(StoreError, match="backup"):
        store.get([f"r{i:04}" for i in range(300)])
    with pytest.raises(StoreError, match="backup"):
        store.select(Filter(), limit=1000)


# ---------------------------------------------------------------------- forgetting


def test_vacuum_leaves_no_trace_of_what_was_deleted(folder: Path, opened: Opened) -> None:
    secret, old = "xylophonequartz", "jabberwockyzinc"
    store = opened()
    store.put([record(f"r{i}") for i in range(50)], model=MODEL)
    store.put([entry("secret", f"the word is {secret}", title=secret, tags=(secret,))])
    store.put([entry("edited", f"once {old}", metadata={"was": old})])
    assert found(store, secret) == ["secret"]
    store.delete(["secret"])
    store.put([entry("edited", "now something else")])
    assert any(secret.encode() in p.read_bytes() for p in folder.glob("clew.db*"))
    store.upkeep.vacuum()
    for path in folder.glob("clew.db*"):
        data = path.read_bytes()
        assert secret.encode() not in data
        assert old.encode() not in data
    assert len(found(store, "zebra")) == 50
    assert ill(store) == []


def test_vacuum_leaves_no_trace_in_what_is_derived_either(folder: Path, opened: Opened) -> None:
    store = opened()
    store.put([record(f"r{i}") for i in range(50)], model=MODEL)
    secret = "xylophonequartz"
    store.put([entry("secret", secret, vectors=[vector("secret")])], model=MODEL)
    assert found(store, secret) == near(store, vector("secret"), limit=1) == ["secret"]
    store.delete(["secret"])
    found(store, "zebra")
    store.upkeep.vacuum()
    # the stem is what the keyword index has; a vector gives away what it was about as well
    traces = [secret[:10].encode(), vector("secret").astype("<f4").tobytes()]
    files = [path for path in folder.rglob("*") if path.is_file()]
    left = [path.name for path in files if any(trace in path.read_bytes() for trace in traces)]
    assert left == []
    assert len(found(store, "zebra")) == len(near(store, vector("x"))) == 50


def test_vacuum_that_could_not_clear_everything_says_so(folder: Path, opened: Opened) -> None:
    """Another process reads an old state: what was deleted is still in the log beside the file."""
    store = opened(busy_seconds=0.2)
    store.put([entry("secret", "xylophonequartz")])
    with closing(sqlite3.connect(folder / "clew.db", isolation_level=None)) as other:
        other.execute("BEGIN")
        other.execute("SELECT COUNT(*) FROM records").fetchone()
        store.delete(["secret"])
        with pytest.raises(StoreError, match="another process"):
            store.upkeep.vacuum()
        other.execute("COMMIT")
    store.upkeep.vacuum()
    assert not any(b"xylophonequartz" in p.read_bytes() for p in folder.glob("clew.db*"))


def test_vacuum_gives_space_back(folder: Path, opened: Opened) -> None:
    store = opened()
    store.put([entry(f"r{i}", "words " * 2_000) for i in range(200)])
    store.delete([f"r{i}" for i in range(190)])
    store.upkeep.vacuum()
    assert (folder / "clew.db").stat().st_size < 1_000_000


def test_opening_waits_for_another_process_that_is_making_the_same_store(folder: Path) -> None:
    """SQLite does not wait by itself here: it says "locked" at once."""
    folder.mkdir(parents=True)
    other = sqlite3.connect(folder / "clew.db", isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    other.execute("CREATE TABLE half_made (x)")
    timer = threading.Timer(0.3, lambda: other.execute("ROLLBACK"))
    timer.start()
    with closing(EmbeddedStore(folder)) as store:
        assert store.changes.generation() == 0
    timer.join()
    other.close()


def test_nothing_is_written_to_a_database_that_was_deleted(folder: Path, opened: Opened) -> None:
    store = opened()
    store.put([record("a")], model=MODEL)
    assert store.in_place()
    for file in folder.glob("clew.db*"):
        file.unlink()
    assert not store.in_place()
    with pytest.raises(StoreError, match="open the store again"):
        store.put([record("b")], model=MODEL)
    assert not (folder / "clew.db").exists()
    other = EmbeddedStore(folder)
    other.put([record("c")], model=MODEL)
    with pytest.raises(StoreError, match="replaced"):
        store.put([record("b")], model=MODEL)
    said: list[object] = []

    def read() -> None:  # another thread would read the other database
        try:
            store.get(["c"])
        except StoreError as error:
            said.append(error)

    thread = threading.Thread(target=read)
    thread.start()
    thread.join()
    assert "replaced" in str(said[0])
    other.close()
