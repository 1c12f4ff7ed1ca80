"""clew migrate: one store copied into another, and used from then on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from clew.store import open_store
from commands import Command
from entries import entry
from postgres_server import new_url


@pytest.fixture
def notes(indexed: Callable[..., Command]) -> Command:
    return indexed(a="# Anchors\n\nAbout anchors.", b="About boats.")


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


def test_a_memory_is_used_from_then_on_by_its_url(command: Command) -> None:
    command("remember", "Ana is allergic to walnuts", "--id", "nuts")
    done = command("migrate", "--from", "embedded:///memory.db", "--to", "duckdb:///m.duckdb")
    assert "CLEW_MEMORY=duckdb:///m.duckdb" in done.out and "clew config" not in done.out
    assert command("forget", "nuts", "--hard", "--yes", "--db", "duckdb:///m.duckdb").code == 0
    again = command("migrate", "--from", "embedded:///memory.db", "--to", "duckdb:///m.duckdb")
    assert again.code == 1 and "its own now" in again.err
    assert command("memories", "--db", "duckdb:///m.duckdb", "--json").data["memories"] == []


def test_a_finished_copy_is_only_compared_again(notes: Command) -> None:
    notes("migrate", "--to", "duckdb:///notes.duckdb")
    again = notes("migrate", "--to", "duckdb:///notes.duckdb")
    assert again.code == 0 and "copied before, and compared again: the same in both" in again.out


def test_a_copy_on_a_server_is_known_again_once_the_folder_uses_it(notes: Command) -> None:
    first, second = new_url(), new_url()
    assert notes("migrate", "--to", first).code == 0
    assert notes("config", "store", first).code == 0
    for expected in ("2 records with 2 passages", "copied before, and compared again"):
        done = notes("migrate", "--from", first, "--to", second)
        assert done.code == 0 and expected in done.out, done.err
        assert notes("config", "store", second).code == 0
    assert notes("index", "--json").data["unchanged"] == 2


@pytest.fixture
def two(tmp_path: Path, command: Command) -> Command:
    """Two folders of files, each with its own store."""
    for name, file in (("a/x", "anchor.md"), ("b/y", "boat.md")):
        folder = tmp_path / name
        folder.mkdir(parents=True)
        (folder / file).write_text(f"About {file}.\n", "utf-8")
        assert command("index", folder, "--quiet").code == 0
    return command


def test_the_files_of_a_store_that_moved_to_another_folder_are_still_known(
    two: Command, tmp_path: Path
) -> None:
    (tmp_path / "c").mkdir()
    assert two("migrate", "-C", "a/x", "--to", f"embedded:///{tmp_path}/c").code == 0
    report = two("index", "-C", "c", "--json").data
    assert (report["removed"], report["unchanged"]) == ([], 1)
    assert two("search", "anchor", "-C", "c", "--json").data["results"][0]["path"] == "anchor.md"


@pytest.mark.parametrize("scheme", ["embedded", "duckdb"])
def test_merged_stores_have_the_files_of_both_folders(
    two: Command, tmp_path: Path, scheme: str
) -> None:
    to = f"embedded:///{tmp_path}/b/y"
    if scheme == "duckdb":
        to = f"duckdb:///{tmp_path}/b/y/.clew/y.duckdb"
        assert two("migrate", "-C", "b/y", "--to", to).code == 0
        assert two("config", "store", "duckdb:///.clew/y.duckdb", "-C", "b/y").code == 0
    done = two("migrate", "-C", "a/x", "--to", to, "--merge")
    assert done.code == 0, done.err
    report = two("index", "-C", "b/y", "--json").data
    assert (report["removed"], report["added"], report["unchanged"]) == ([], [], 2)
    roots = two("status", "-C", "b/y", "--json").data["roots"]
    assert roots == {"x": str(tmp_path / "a" / "x"), "y": "."}


def test_a_folder_may_use_the_store_in_another_one(two: Command, tmp_path: Path) -> None:
    (tmp_path / "c").mkdir()
    to = f"embedded:///{tmp_path}/c"
    assert two("migrate", "-C", "a/x", "--to", to).code == 0
    assert two("config", "store", to, "-C", "a/x").code == 0
    (tmp_path / "a" / "x" / "chain.md").write_text("About chains.\n", "utf-8")
    assert two("index", "-C", "a/x", "--json").data["added"] == ["chain.md"]
    assert two("status", "-C", "c", "--json").data["records"] == 2


def test_nothing_is_left_beside_the_source(notes: Command, tmp_path: Path) -> None:
    notes("migrate", "--to", "duckdb:///notes.duckdb")
    notes("config", "store", "duckdb:///notes.duckdb")
    before = {path.name for path in tmp_path.iterdir()}
    assert notes("migrate", "--to", "embedded:///copy").code == 0
    assert {path.name for path in tmp_path.iterdir()} - before == {"copy"}


@pytest.mark.parametrize("link", ["symbolic", "hard", "dots"])
def test_a_store_is_known_by_another_name_too(notes: Command, tmp_path: Path, link: str) -> None:
    other = tmp_path / "other"
    file = tmp_path / ".clew" / "clew.db"
    if link == "symbolic":
        other.symlink_to(tmp_path)
        to = "embedded:///other"
    elif link == "hard":
        (tmp_path / "other.db").hardlink_to(file)
        to = "embedded:///other.db"
    else:
        to = f"embedded:///../{tmp_path.name}"
    done = notes("migrate", "--to", to, "--merge")
    assert done.code == 1 and "the same store" in done.err
    assert notes("status", "--json").data["records"] == 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--to", "embedded:///"), "the same store"),
        (("--to", "notes.duckdb"), "duckdb:///notes.duckdb"),
        (("--to", "redis:///x"), "no kind of store"),
        (("--to", "duckdb:///none/such.duckdb"), "there is no folder"),
        (("--to", "embedded:///none/deep/such"), "there is no folder"),
        (("--to", "embedded:///none/such.db"), "there is no folder"),
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
