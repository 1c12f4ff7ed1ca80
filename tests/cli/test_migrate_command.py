"""clew migrate: one store copied into another, and used from then on."""

from __future__ import annotations

from pathlib import Path

import pytest

from clew.store import open_store
from commands import Command
from entries import entry


@pytest.fixture
def notes(tmp_path: Path, command: Command) -> Command:
    (tmp_path / "a.md").write_text("# Anchors\n\nAbout anchors.\n", "utf-8")
    (tmp_path / "b.md").write_text("About boats.\n", "utf-8")
    assert command("index", "--quiet").code == 0
    return command


def test_a_store_is_copied_compared_and_used_from_then_on(
    notes: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = notes("migrate", "--to", "duckdb:///notes.duckdb")
    assert done.code == 0, done.err
    assert "2 records with 2 passages and 0 vectors copied and compared" in done.out
    assert "clew config store duckdb:///notes.duckdb" in done.out
    assert notes("config", "store", "duckdb:///notes.duckdb").code == 0
    (tmp_path / ".clew" / "clew.db").unlink()  # it is not needed any more
    found = notes("search", "anchors", "--json").data["results"]
    assert [hit["path"] for hit in found] == ["a.md"]
    assert notes("status", "--json").data["records"] == 2
    (tmp_path / "c.md").write_text("About chains.\n", "utf-8")
    report = notes("index", "--json").data
    assert (report["added"], report["unchanged"]) == (["c.md"], 2)  # it knows what files were
    assert notes("doctor", "--json").data["ok"]
    inner = tmp_path / "deep" / "er"
    inner.mkdir(parents=True)
    monkeypatch.chdir(inner)
    assert notes("search", "chains", "--json").data["results"][0]["path"] == "c.md"


def test_a_copy_may_be_asked_for_as_json_and_again(notes: Command) -> None:
    for _ in range(2):
        report = notes("migrate", "--to", "duckdb:///notes.duckdb", "--json").data
        assert (report["records"], report["ok"], report["differences"]) == (2, True, {})


def test_another_store_may_be_the_source(notes: Command, tmp_path: Path) -> None:
    other = open_store("embedded:///memory.db", base=tmp_path)
    other.put([entry("m", "walrus")])
    other.close()
    arguments = ("--from", "embedded:///memory.db", "--to", "duckdb:///memory.duckdb")
    assert notes("migrate", *arguments, "--json").data["records"] == 1
    refused = notes("migrate", "--to", "duckdb:///memory.duckdb")
    assert refused.code == 1 and "--merge" in refused.err
    merged = notes("migrate", "--to", "duckdb:///memory.duckdb", "--merge", "--json").data
    assert (merged["records"], merged["ok"]) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--to", "embedded:///"), "the same store"),
        (("--to", "notes.duckdb"), "duckdb:///notes.duckdb"),
        (("--to", "redis:///x"), "no kind of store"),
        (("--to", "duckdb:///none/such.duckdb"), "there is no folder"),
        (("--to", "duckdb:///a.md"), "not a DuckDB database"),
        (("--from", "duckdb:///none.duckdb", "--to", "duckdb:///x.duckdb"), "there is no store"),
    ],
)
def test_what_cannot_be_done_is_said(
    notes: Command, tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    before = sorted(p.name for p in tmp_path.iterdir())
    done = notes("migrate", *arguments)
    assert done.code == 1 and said in done.err
    assert sorted(p.name for p in tmp_path.iterdir()) == before


def test_without_a_store_here_the_source_has_to_be_named(command: Command) -> None:
    done = command("migrate", "--to", "duckdb:///x.duckdb")
    assert done.code == 1 and "--from" in done.err
