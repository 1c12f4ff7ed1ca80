"""Backups that somebody else made up: what they name is not obeyed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import clew
from backups import forge
from clew.cli import run
from clew.errors import InputError

from hashing import HashingEmbedder


@pytest.fixture
def backup(tmp_path: Path) -> Path:
    notes, file = tmp_path / "notes", tmp_path / "notes.clew"
    notes.mkdir()
    (notes / "a.md").write_text("An anchor.\n", "utf-8")
    with clew.open(notes, embedder=HashingEmbedder()) as engine:
        engine.index()
        engine.backup(file)
    return file


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize(
    "place",
    ["clew.toml", ".clew/derived.lock", ".clew/cache.db", ".clew/derived/x.db", "sub/.clew/clew.db",
     "notes.txt", "Makefile", ".clew"],
)  # fmt: skip
def test_a_backup_makes_nothing_but_a_database(
    backup: Path, tmp_path: Path, place: str, force: bool
) -> None:
    forge(backup, place=place)
    home = tmp_path / "home"
    home.mkdir()
    with pytest.raises(InputError, match="--db"):
        clew.restore_backup(backup, home, force=force)
    assert list(home.iterdir()) == []


def test_a_backup_replaces_no_file_that_is_no_database(backup: Path, tmp_path: Path) -> None:
    forge(backup, place="n.db")
    mine = tmp_path / "home" / "n.db"
    mine.parent.mkdir()
    mine.write_text("Not a database.\n")
    with pytest.raises(InputError, match="no database"):
        clew.restore_backup(backup, mine.parent, force=True)
    assert mine.read_text() == "Not a database.\n"
    assert list(mine.parent.iterdir()) == [mine]


def test_settings_are_not_restored_through_a_link(backup: Path, tmp_path: Path) -> None:
    notes, home, target = tmp_path / "notes", tmp_path / "home", tmp_path / "target"
    (notes / "clew.toml").write_text("rrf_k = 7\n")
    with clew.open(notes, embedder=HashingEmbedder()) as engine:
        engine.backup(backup, force=True)
    home.mkdir()
    for name in ("clew.toml", f".clew.toml.{os.getpid()}.part"):
        (home / name).symlink_to(target)
    clew.restore_backup(backup, home, force=True)
    assert not target.exists()
    assert (home / "clew.toml").read_text() == "rrf_k = 7\n"


@pytest.mark.parametrize("kind", ["empty", "pipe", "device"])
def test_what_is_no_backup_is_called_so(
    tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "file"
    if kind == "empty":
        file.touch()
    elif kind == "pipe":
        os.mkfifo(file)
    else:
        file.symlink_to("/dev/zero")
    for options in (["-C", str(tmp_path)], ["--force"]):
        assert run(["restore", str(file), *options]) != 0
        said = capsys.readouterr().err
        assert "is no backup" in said
        assert "there is no" not in said
    with pytest.raises(clew.ClewError, match="no backup"):
        clew.verify_backup(file)
