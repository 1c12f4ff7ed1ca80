"""clew backup, and clew restore of what it wrote; the ids of memories are restored as before."""

from __future__ import annotations

from pathlib import Path

from commands import Command


def fill(command: Command, folder: Path) -> None:
    folder.mkdir()
    (folder / "boat.md").write_text("# Boat\n\nThe keel was painted in March.\n")
    (folder / "clew.toml").write_text("rrf_k = 30\n")
    assert command("index", folder).code == 0


def test_a_folder_there_and_back(command: Command, tmp_path: Path) -> None:
    fill(command, tmp_path / "notes")
    done = command("backup", "notes.clew", "-C", "notes", "--json").data
    assert done["counts"]["records"] == 1 and done["kind"] == "folder"
    assert "is whole: 1 record, 1 passage" in command("backup", "--verify", "notes.clew").out
    said = command("backup", "notes.clew", "-C", "notes")
    assert said.code == 1 and "--force" in said.err
    assert command("backup", "notes.clew", "-C", "notes", "--force").code == 0
    (tmp_path / "other").mkdir()
    assert "1 record" in command("restore", "notes.clew", "-C", "other").out
    assert "Boat" in command("search", "keel", "-C", "other").out
    assert command("doctor", "-C", "other", "--json").data["ok"]
    assert (tmp_path / "other" / "clew.toml").read_text() == "rrf_k = 30\n"
    said = command("restore", "notes.clew", "-C", "other")
    assert said.code == 1 and "--force" in said.err
    assert command("restore", "notes.clew", "-C", "other", "--force").code == 0


def test_a_damaged_backup_is_refused(command: Command, tmp_path: Path) -> None:
    fill(command, tmp_path / "notes")
    command("backup", "notes.clew", "-C", "notes")
    data = bytearray((tmp_path / "notes.clew").read_bytes())
    data[999] ^= 8
    (tmp_path / "notes.clew").write_bytes(data)
    for words in (["backup", "--verify"], ["restore", "--force", "-C", "notes"]):
        said = command(*words, "notes.clew")
        assert said.code == 1 and "damaged" in said.err and "store.sqlite" in said.err
    (tmp_path / "notes.clew").write_bytes(b"something else")
    said = command("restore", "notes.clew", "-C", "notes")
    assert said.code == 1 and "no backup" in said.err
    said = command("restore", "missing.clew", "-C", "notes")
    assert said.code == 1 and "no backup missing.clew" in said.err


def test_a_memory_and_its_ids(command: Command, tmp_path: Path) -> None:
    first = command("remember", "Ana is allergic to walnuts", "--json").data["id"]
    assert command("backup", "m.clew", "--db", "memory.db").code == 0
    command("forget", first)
    assert command("restore", first, "--json").data == {"restored": 1}
    command("forget", first, "--hard", "--yes")
    assert command("restore", first).code == 1
    assert command("restore", "m.clew").code == 1  # there is one
    assert command("restore", "m.clew", "--force").code == 0
    assert "walnuts" in command("recall", "nuts allergic").out
    assert command("restore", "m.clew", "--db", "second.db").code == 0
    assert "walnuts" in command("recall", "allergic", "--db", "second.db").out


def test_the_database_of_a_folder_alone(command: Command, tmp_path: Path) -> None:
    fill(command, tmp_path / "notes")
    command("backup", "notes.clew", "-C", "notes")
    assert command("restore", "notes.clew", "--db", "alone.db").code == 0
    assert command("status", "--db", "alone.db", "--json").data["records"] == 1
    said = command("restore", "notes.clew", "--db", "duckdb:///alone.duckdb")
    assert said.code == 1 and "clew migrate" in said.err
