"""Files that cannot be read, or not as expected: each is a SourceError that says what to do."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from clew.errors import SourceError
from clew.sources.sqlite import TableSource, sqlite
from clew.text.parse import parse
from clew.types import Answer

CONTEXT: Any = None
STORE: Any = None


def make(file: Path, *statements: str) -> Path:
    with closing(sqlite3.connect(file)) as db:
        for statement in statements:
            db.execute(statement)
        db.commit()
    return file


def source(file: Path, table: str = "t", **options: Any) -> TableSource:
    made = sqlite(file.parent, file=file.name, table=table, **{"text": "x", **options})
    assert isinstance(made, TableSource)
    return made


def problem(file: Path, table: str = "t", **options: Any) -> str:
    with pytest.raises(SourceError) as raised:
        source(file, table, **options)(parse("keel bolts"), CONTEXT)
    return str(raised.value)


PLAIN = ("CREATE TABLE t (x TEXT)", "INSERT INTO t VALUES ('keel bolts')")


def test_a_missing_file_is_named_and_not_made(tmp_path: Path) -> None:
    assert "is not there: check `file`" in problem(tmp_path / "gone.db")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_is_no_database(tmp_path: Path) -> None:
    (tmp_path / "folder.db").mkdir()
    assert "is not a file" in problem(tmp_path / "folder.db")


def test_a_file_of_something_else_is_no_database(tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text("# Keel bolts\n" * 100, "utf-8")
    assert "not an SQLite database" in problem(tmp_path / "notes.md")


def test_an_empty_file_has_no_table(tmp_path: Path) -> None:
    (tmp_path / "empty.db").touch()
    assert "no table 't'" in problem(tmp_path / "empty.db")
    assert (tmp_path / "empty.db").stat().st_size == 0


def test_a_damaged_file_is_said_to_be(tmp_path: Path) -> None:
    rows = [f"INSERT INTO t VALUES ('keel {'x' * 500} {i}')" for i in range(200)]
    file = make(tmp_path / "d.db", PLAIN[0], *rows)
    data = bytearray(file.read_bytes())
    data[4096:] = b"\xa5" * (len(data) - 4096)
    file.write_bytes(data)
    assert "damaged" in problem(file) and "backup" in problem(file)


def test_a_file_that_is_cut_short_is_said_to_be_damaged(tmp_path: Path) -> None:
    rows = [f"INSERT INTO t VALUES ('keel {'x' * 500} {i}')" for i in range(200)]
    file = make(tmp_path / "d.db", PLAIN[0], *rows)
    file.write_bytes(file.read_bytes()[: 3 * 4096])
    assert "damaged" in problem(file)


def test_a_damaged_fts5_index_is_said_to_be(tmp_path: Path) -> None:
    file = make(
        tmp_path / "d.db",
        "CREATE VIRTUAL TABLE t USING fts5 (x)",
        "INSERT INTO t VALUES ('keel bolts')",
    )
    make(file, "DELETE FROM t_data WHERE id > 10")
    assert "damaged" in problem(file)


def test_a_locked_file_is_said_to_be(tmp_path: Path) -> None:
    file = make(tmp_path / "d.db", *PLAIN)
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        assert "locked by another program" in problem(file)
        other.execute("COMMIT")
    assert source(file)(parse("keel"), CONTEXT)


def test_a_file_whose_writer_was_killed_is_said_to_need_it(tmp_path: Path) -> None:
    file = tmp_path / "d.db"
    code = (
        "import os, sqlite3, sys\n"
        "db = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        "db.execute('CREATE TABLE t (x TEXT)')\n"
        "db.execute('PRAGMA cache_size = 5'); db.execute('BEGIN')\n"
        "for i in range(2000): db.execute('INSERT INTO t VALUES (?)', ('keel' * 100,))\n"
        "os._exit(0)\n"
    )
    subprocess.run([sys.executable, "-c", code, str(file)], check=True)
    before = file.read_bytes()
    assert file.with_name("d.db-journal").exists()
    assert "open it once with that program" in problem(file)
    assert file.read_bytes() == before


# ---------------------------------------------------------------- tables and columns


def test_a_missing_table_is_named_with_the_nearest(tmp_path: Path) -> None:
    file = make(
        tmp_path / "d.db",
        "CREATE TABLE notes (x)",
        "CREATE VIRTUAL TABLE f USING fts5 (x)",
    )
    assert "no table 'note': did you mean 'notes'?" in problem(file, "note")
    said = problem(file, "zzz")
    assert "f, notes" in said and "f_data" not in said


def test_a_missing_column_is_named_with_the_nearest(tmp_path: Path) -> None:
    file = make(tmp_path / "d.db", "CREATE TABLE t (text TEXT, title TEXT)")
    assert "no column 'txet': did you mean 'text'?" in problem(file, text="txet")
    assert "no column 'titel'" in problem(file, text="text", title="titel")
    assert "no column 'key'" in problem(file, text="text", id="key")
    assert "no column 'where'" in problem(file, text="text", path="where")


@pytest.mark.parametrize(
    "made", ["CREATE TABLE t (k PRIMARY KEY, x) WITHOUT ROWID", "CREATE VIEW t AS SELECT 1 AS x"]
)
def test_a_table_without_row_numbers_needs_an_id(tmp_path: Path, made: str) -> None:
    assert "name the column of its `id`" in problem(make(tmp_path / "d.db", made))


@pytest.mark.parametrize("module", ["fts3", "fts4"])
def test_the_older_full_text_tables_are_refused(tmp_path: Path, module: str) -> None:
    file = make(tmp_path / "d.db", f"CREATE VIRTUAL TABLE t USING {module} (x)")
    assert f"older {module.upper()}" in problem(file)


def test_an_fts5_table_without_texts_is_refused(tmp_path: Path) -> None:
    file = make(tmp_path / "d.db", "CREATE VIRTUAL TABLE t USING fts5 (x, content = '')")
    assert "keeps no texts" in problem(file)


@pytest.mark.parametrize("version", [1, 99])
def test_an_fts5_table_of_another_format_is_refused(tmp_path: Path, version: int) -> None:
    file = make(
        tmp_path / "d.db",
        "CREATE VIRTUAL TABLE t USING fts5 (x)",
        f"UPDATE t_config SET v = {version} WHERE k = 'version'",
    )
    said = problem(file)
    assert f"found {version}" in said and "rebuild" in said


@pytest.mark.parametrize(
    ("made", "says"),
    [
        ("CREATE VIRTUAL TABLE t USING nowhere (x)", "no such module: nowhere"),
        ("CREATE VIRTUAL TABLE t USING fts5 (x, tokenize = 'nobody')", "nobody"),
    ],
)
def test_a_table_that_needs_an_extension_is_refused(tmp_path: Path, made: str, says: str) -> None:
    file = make(tmp_path / "d.db", "CREATE TABLE unrelated (x)")
    with closing(sqlite3.connect(file)) as db:
        db.execute("PRAGMA writable_schema = ON")
        db.execute(
            "INSERT INTO sqlite_master (type, name, tbl_name, rootpage, sql) "
            "VALUES ('table', 't', 't', 0, ?)",
            (made,),
        )
        db.commit()
    assert says in problem(file)


def test_an_index_whose_table_is_gone_is_an_error_that_names_it(tmp_path: Path) -> None:
    file = make(
        tmp_path / "d.db",
        "CREATE TABLE texts (x)",
        "INSERT INTO texts VALUES ('keel bolts')",
        "CREATE VIRTUAL TABLE t USING fts5 (x, content = 'texts')",
        "INSERT INTO t (t) VALUES ('rebuild')",
        "DROP TABLE texts",
    )
    assert "texts" in problem(file)


# ---------------------------------------------------------------- time


ENDLESS = (
    "CREATE VIEW t AS WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) "
    "SELECT i AS id, '{} ' || i AS x FROM n"
)


def test_a_look_without_end_is_stopped_and_gives_what_it_has(tmp_path: Path) -> None:
    file = make(tmp_path / "d.db", ENDLESS.format("keel"))
    found = source(file, id="id", seconds=0.3)(parse("keel", limit=5, depth=5), CONTEXT)
    assert isinstance(found, Answer)
    assert len(found.candidates) == 5 and "in time" in found.problem


def test_a_look_without_end_that_finds_nothing_says_so(tmp_path: Path) -> None:
    file = make(tmp_path / "d.db", ENDLESS.format("rudder"))
    assert "no answer within 0.3 s" in problem(file, id="id", seconds=0.3)


def test_an_fts5_table_is_stopped_as_well(tmp_path: Path) -> None:
    file = make(
        tmp_path / "d.db",
        "CREATE VIRTUAL TABLE t USING fts5 (x)",
        "INSERT INTO t WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 5000) "
        "SELECT 'keel ' || i FROM n",
    )
    assert "no answer within" in problem(file, seconds=1e-9)


# ---------------------------------------------------------------- write-ahead logs


def test_reading_leaves_no_file_beside_a_database_at_rest(tmp_path: Path) -> None:
    file = make(tmp_path / "d.db", "PRAGMA journal_mode = WAL", *PLAIN)
    assert [each.name for each in tmp_path.iterdir()] == ["d.db"]
    before = file.read_bytes()
    assert source(file)(parse("keel"), CONTEXT)
    assert [each.name for each in tmp_path.iterdir()] == ["d.db"]
    assert file.read_bytes() == before


def test_what_a_program_has_just_written_is_found(tmp_path: Path) -> None:
    file = make(tmp_path / "d.db", "PRAGMA journal_mode = WAL", *PLAIN)
    asked = source(file)
    with closing(sqlite3.connect(file)) as writer:
        first = asked.freshness(STORE)
        writer.execute("INSERT INTO t VALUES ('a rudder')")
        writer.commit()
        assert file.with_name("d.db-wal").stat().st_size
        assert asked(parse("rudder"), CONTEXT)
        assert asked.freshness(STORE) != first
        writer.execute("BEGIN IMMEDIATE")  # a writer at work does not keep readers out
        writer.execute("INSERT INTO t VALUES ('a tiller')")
        assert asked(parse("rudder"), CONTEXT) and not asked(parse("tiller"), CONTEXT)


def test_freshness_is_the_same_until_the_file_changes(tmp_path: Path) -> None:
    file = tmp_path / "d.db"
    missing = source(file).freshness(STORE)
    make(file, *PLAIN)
    there = source(file).freshness(STORE)
    assert missing != there == source(file).freshness(STORE)
    make(file, *[f"INSERT INTO t VALUES ('{'keel ' * 2000}')"])
    assert source(file).freshness(STORE) != there
