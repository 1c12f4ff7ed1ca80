"""Links that somebody puts in the place of files and folders: nothing from outside is read."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

import clew
from clew.cli import run
from clew.engine import Engine
from clew.filter import Filter
from clew.ingest import sync
from clew.ingest.walk import HeldFolder

from hashing import HashingEmbedder

SECRET = "the password is swordfish\n"

pytestmark = pytest.mark.skipif(os.open not in os.supports_dir_fd, reason="needs openat")


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    place = tmp_path / "outside"
    place.mkdir()
    (place / "a.md").write_text(SECRET, "utf-8")
    return place


@pytest.fixture
def engine(tmp_path: Path):
    (tmp_path / "notes" / "sub").mkdir(parents=True)
    for path in ("a.md", "sub/a.md", "b.md"):
        (tmp_path / "notes" / path).write_text("An anchor.\n", "utf-8")
    with clew.open(tmp_path / "notes", embedder=HashingEmbedder()) as opened:
        yield opened


def contents(engine: Engine) -> str:
    return "".join(record.content for record in engine.store.select(Filter(), limit=100))


@pytest.mark.parametrize("place", ["a.md", "sub"])
def test_what_becomes_a_link_after_the_walk_is_not_read(
    engine: Engine, tmp_path: Path, outside: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    notes = tmp_path / "notes"
    read = HeldFolder.read

    def swapped(self: HeldFolder, path: str, *, max_bytes: int) -> bytes:
        if path.endswith(place) or path.startswith(place):
            (notes / place).rename(tmp_path / "away")
            (notes / place).symlink_to(outside / place if place == "a.md" else outside)
        return read(self, path, max_bytes=max_bytes)

    monkeypatch.setattr(sync.HeldFolder, "read", swapped)
    report = engine.index()
    assert [path for path, _ in report.skipped] == ["a.md" if place == "a.md" else "sub/a.md"]
    assert "swordfish" not in contents(engine)


def test_a_race_of_links_puts_nothing_from_outside_into_the_index(
    engine: Engine, tmp_path: Path, outside: Path
) -> None:
    notes, over = tmp_path / "notes", threading.Event()
    for number in range(30):
        (notes / f"{number}.md").write_text("An anchor.\n", "utf-8")

    def swap() -> None:
        while not over.is_set():
            for number in range(30):
                for target in (outside / "a.md", None):
                    fresh = tmp_path / "fresh"
                    if target is None:
                        fresh.write_text("An anchor.\n", "utf-8")
                    else:
                        fresh.symlink_to(target)
                    fresh.replace(notes / f"{number}.md")

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        for _ in range(10):
            engine.index(embed=False, force=True)
            assert "swordfish" not in contents(engine)
    finally:
        over.set()
        thread.join()


def test_patterns_are_not_read_through_a_link(engine: Engine, tmp_path: Path) -> None:
    (tmp_path / "patterns").write_text("b.md\n", "utf-8")
    (tmp_path / "notes" / ".gitignore").symlink_to(tmp_path / "patterns")
    report = engine.index()
    assert "b.md" in report.added
    assert "links are not followed" in dict(report.skipped)[".gitignore"]


def test_a_link_that_leads_nowhere_does_not_make_what_it_names(tmp_path: Path) -> None:
    notes, target = tmp_path / "notes", tmp_path / "target"
    notes.mkdir()
    (notes / "a.md").write_text("An anchor.\n", "utf-8")
    assert run(["init", str(notes)]) == 0
    for place in (notes / ".gitignore", notes / ".clew" / ".gitignore"):
        place.unlink(missing_ok=True)
        place.symlink_to(target)
    run(["index", str(notes), "--no-embed"])
    run(["init", str(notes)])
    assert not target.exists()


@pytest.mark.parametrize("command", [["init"], ["init", "--profile", "athena"]], ids=str)
def test_init_does_not_write_through_a_link(tmp_path: Path, command: list[str]) -> None:
    notes, target = tmp_path / "notes", tmp_path / "target.toml"
    notes.mkdir()
    (notes / "clew.toml").symlink_to(target)
    assert run([*command, str(notes)]) != 0
    assert not target.exists()


def test_a_setting_is_not_written_through_a_link(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    notes, target = tmp_path / "notes", tmp_path / "target.toml"
    notes.mkdir()
    target.write_text("rrf_k = 7\n", "utf-8")
    (notes / "clew.toml").symlink_to(target)
    assert run(["config", "rrf_k", "-C", str(notes)]) == 0  # to read it is fine
    assert run(["config", "rrf_k", "33", "-C", str(notes)]) != 0
    assert run(["config", "rrf_k", "--unset", "-C", str(notes)]) != 0
    assert target.read_text("utf-8") == "rrf_k = 7\n"
    assert "is a link" in capsys.readouterr().err
