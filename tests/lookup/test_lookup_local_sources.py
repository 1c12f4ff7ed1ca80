"""Scenario: local sources. A lookup finds files that are in no store, by their words."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from handles import look_up

import clew
from clew import Search
from documents import pdf

PATIENT = 60.0
"""Seconds: whether reading is done in time is no matter of these tests."""


@pytest.fixture
def papers(tmp_path: Path) -> Path:
    folder = tmp_path / "papers"
    (folder / "deep" / "er").mkdir(parents=True)
    (folder / "keel.md").write_text("# Keel\n\nKeel bolts take forty newton metres.\n", "utf-8")
    (folder / "deep" / "er" / "mast.txt").write_text("first\nsecond\nThe mast is of spruce.\n")
    (folder / "boat.py").write_text("class Boat:\n    def reef(self):\n        pass\n")
    return folder


def test_a_word_finds_the_local_file_that_has_it(papers: Path) -> None:
    # Given a folder of files and no store, when a word of one is looked up
    with Search(folders=[papers], deadline=PATIENT) as search:
        (hit,) = search.external_lookup("spruce")
    # Then that file is found, with the place where it can be opened and the line
    assert hit.path == str(papers / "deep" / "er" / "mast.txt")
    assert Path(hit.path).exists() and hit.lines == (1, 3)
    assert hit.source == "local_files" and "spruce" in hit.snippet
    # And nothing was written into the folder
    assert not list(papers.rglob(".clew"))


def test_a_pdf_and_a_docx_are_read(tmp_path: Path) -> None:
    import docx

    folder = tmp_path / "documents"
    folder.mkdir()
    document = docx.Document()
    document.add_paragraph("The galley has a gimballed stove.")
    document.save(str(folder / "galley.docx"))
    (folder / "anchor.pdf").write_bytes(pdf("The anchor weighs twenty kilos"))
    with Search(folders=[folder], deadline=PATIENT) as search:
        assert Path(search.external_lookup("gimballed stove")[0].path or "").name == "galley.docx"
        (anchor,) = search.external_lookup("anchor weighs")
        assert Path(anchor.path or "").name == "anchor.pdf"


def test_what_changes_in_the_folder_is_seen_by_the_next_lookup(papers: Path) -> None:
    with Search(folders=[papers], deadline=PATIENT) as search:
        assert search.external_lookup("spruce")
        file = papers / "deep" / "er" / "mast.txt"
        file.write_text("The mast is of carbon.\n")
        os.utime(file, (time.time() + 5, time.time() + 5))
        assert search.external_lookup("spruce") == []
        assert search.external_lookup("carbon")[0].path == str(file)
        (papers / "new.md").write_text("A new word: bilge.\n")
        assert search.external_lookup("bilge")[0].path == str(papers / "new.md")
        (papers / "new.md").unlink()
        assert search.external_lookup("bilge") == []


def test_a_definition_is_named_with_its_lines(papers: Path) -> None:
    with Search(folders=[papers], deadline=PATIENT) as search:
        (hit,) = search.external_lookup("def reef")
    assert hit.path == str(papers / "boat.py")
    assert "Boat" in hit.metadata["heading"] and hit.lines == (1, 3)


def test_two_folders_are_two_and_the_same_text_is_found_once(papers: Path, tmp_path: Path) -> None:
    other = tmp_path / "other" / "papers"
    other.mkdir(parents=True)
    (other / "oar.md").write_text("Oars of ash.\n")
    with Search(folders=[papers, other], deadline=PATIENT) as search:
        assert search.external_lookup("ash")[0].path == str(other / "oar.md")
        assert search.external_lookup("spruce")
    storage = tmp_path / "store"
    with clew.open(storage, model="none") as engine:
        engine.add([{"id": "copy", "content": "Oars of ash."}])
        with Search(engine, folders=[other], deadline=PATIENT) as search:
            (hit,) = search.external_lookup("ash oars")
            assert hit.metadata["backends"] == ["storage_keyword", "local_files"]
            assert hit.id == "copy" and hit.metadata["also"] == [f"file:{other / 'oar.md'}"]


def test_a_folder_that_is_missing_is_named_beside_what_the_others_have(
    papers: Path, tmp_path: Path
) -> None:
    with Search(folders=[tmp_path / "gone", papers], deadline=PATIENT) as search:
        found = look_up(search, "spruce")
        assert len(found) == 1
        (problem,) = found.degraded
        assert problem.startswith("local_files: ") and "gone" in problem


def test_files_that_are_too_large_or_broken_are_noted(papers: Path) -> None:
    (papers / "large.txt").write_bytes(b"spruce " * 40_000)
    (papers / "broken.pdf").write_bytes(b"%PDF-1.4 no")
    with Search(folders=[papers], max_file_mb=0.1, deadline=PATIENT) as search:
        found = look_up(search, "spruce")
    assert [Path(hit.path or "").name for hit in found] == ["mast.txt"]
    notes = found.trace["backends"]["local_files"]["notes"]
    assert any("large.txt" in note for note in notes)
    assert any("broken.pdf" in note for note in notes) and not found.degraded


def test_a_lookup_beside_one_that_still_reads_the_folder_takes_what_there_is(papers: Path) -> None:
    with Search(folders=[papers], deadline=1.0) as search:
        assert search.external_lookup("spruce")
        with search._resources.use() as parts:
            files = parts.sources["local_files"]
        with files.scratch.reading:  # type: ignore[attr-defined]  # another is in the midst of it
            found = look_up(search, "spruce")
        assert len(found) == 1 and "still being read" in found.degraded[0]
        assert not look_up(search, "spruce").degraded


def test_the_folder_of_its_own_is_gone_afterwards(
    papers: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import tempfile

    aside = tmp_path / "aside"
    aside.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(aside))
    with Search(folders=[papers], deadline=PATIENT, keep=False) as search:
        search.external_lookup("spruce")
        assert list(aside.iterdir())
    assert list(aside.iterdir()) == []


def test_what_is_personal_in_a_folder_is_found_only_if_asked_for(tmp_path: Path) -> None:
    # Given a folder whose own settings and front matter say what is personal
    folder = tmp_path / "home"
    (folder / "diary").mkdir(parents=True)
    (folder / "diary" / "monday.md").write_text("A walnut fell on my head.\n")
    (folder / "secret.md").write_text("---\ndomain: personal\n---\nThe walnut safe.\n")
    (folder / "tree.md").write_text("The walnut tree.\n")
    (folder / "clew.toml").write_text('[domains]\npersonal = ["diary/"]\n')
    # When it is looked through, then personal files are found only by who asks for them
    with Search(folders=[folder], deadline=PATIENT) as search:
        assert [Path(h.path or "").name for h in search.external_lookup("walnut")] == ["tree.md"]
    with Search(folders=[folder], include_personal=True, deadline=PATIENT) as search:
        assert len(search.external_lookup("walnut")) == 3
    # And the settings hold below where they are, too, and when they are edited
    with Search(folders=[folder / "diary"], deadline=PATIENT) as search:
        assert search.external_lookup("walnut") == []
        (folder / "clew.toml").write_text("")
        assert len(search.external_lookup("walnut")) == 1


def test_a_file_and_a_record_of_the_same_name_are_two(tmp_path: Path) -> None:
    work, home = tmp_path / "work" / "notes", tmp_path / "home" / "notes"
    for folder, text in ((work, "Walnut order for the workshop."), (home, "Walnut cake recipe.")):
        folder.mkdir(parents=True)
        (folder / "todo.md").write_text(text)
    with clew.open(work, model="none") as engine:
        engine.index()
        with Search(engine, folders=[home], deadline=PATIENT) as search:
            found = look_up(search, "walnut cake recipe")
    assert [hit.content for hit in found] == [
        "Walnut cake recipe.",
        "Walnut order for the workshop.",
    ]
    (own,) = found.by_backend["local_files"]
    assert own.content == "Walnut cake recipe." and own.path == str(home / "todo.md")


def test_a_file_that_is_also_in_the_storage_is_found_as_it_is_now(papers: Path) -> None:
    with clew.open(papers, model="none") as engine:
        engine.index()
        with Search(engine, folders=[papers], deadline=PATIENT) as search:
            # Unchanged, it is one
            (hit,) = search.external_lookup("keel bolts")
            assert set(hit.metadata["backends"]) == {"storage_keyword", "local_files"}
            # Edited and not indexed again, it is found by what it says now and not by what it said
            (papers / "keel.md").write_text("# Keel\n\nThe ballast is of lead.\n")
            (hit,) = search.external_lookup("ballast of lead")
            assert "lead" in hit.content and hit.metadata["backends"] == ["local_files"]
            assert search.external_lookup("newton metres") == []
            # Deleted, it is gone
            (papers / "boat.py").unlink()
            assert search.external_lookup("reef boat") == []


def test_answers_about_a_folder_that_has_not_changed_are_kept_for_the_next_process(
    papers: Path, tmp_path: Path
) -> None:
    slots = []
    for _ in range(2):
        file = tmp_path / "kept.json"
        with Search(folders=[papers], cache_file=str(file), deadline=PATIENT) as search:
            slots.append(look_up(search, "spruce").trace["cache"]["slot"])
    assert slots == [None, "primary"]
