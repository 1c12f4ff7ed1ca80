"""Folders that are collections and domains."""

from __future__ import annotations

from pathlib import Path

import pytest

import clew
from clew.ingest.sync import Groups


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    for path in ("a.md", "cases/one.md", "cases/old/two.md", "cases-not/three.md"):
        (tmp_path / path).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / path).write_text(f"keel {path}")
    return tmp_path


def collections(engine: clew.Engine) -> dict[str, str]:
    found = engine.search("keel", limit=50, mode="keyword")
    return {str(hit.path): hit.metadata["collection"] for hit in found}


def test_the_innermost_folder_decides() -> None:
    groups = Groups({"case": ("cases/",), "old": ("cases/old/",)}, {})
    assert groups.collection("cases/one.md") == "case"
    assert groups.collection("cases/old/two.md") == "old"
    assert groups.collection("cases-not/three.md") is None
    assert groups.collection("cases") is None


def test_files_get_the_collection_of_their_folder_and_keep_their_id(notes: Path) -> None:
    mapped = {"case": ["cases"], "old": "cases/old"}
    with clew.open(notes, model="none", collections=mapped) as engine:
        engine.index(notes)
        own = notes.name.casefold()
        assert collections(engine) == {
            "a.md": own,
            "cases/one.md": "case",
            "cases/old/two.md": "old",
            "cases-not/three.md": own,
        }
        assert engine.get(f"{own}:cases/one.md") is not None
        assert {hit.path for hit in engine.search("keel collection:case")} == {"cases/one.md"}
        (notes / "cases/one.md").unlink()
        assert engine.index().removed == ["cases/one.md"]
        assert engine.index().unchanged == 3
        assert engine.remove(collection=own) == 3
        assert collections(engine) == {}


def test_another_mapping_moves_files_that_have_not_changed(notes: Path) -> None:
    with clew.open(notes, model="none") as engine:
        engine.index(notes)
        assert len(set(collections(engine).values())) == 1
    with clew.open(notes, model="none", collections={"case": ["cases"]}) as engine:
        engine.index()
        assert collections(engine)["cases/old/two.md"] == "case"
        assert engine.index().unchanged == 4  # once
    with clew.open(notes, model="none") as engine:
        engine.index()
        assert len(set(collections(engine).values())) == 1


def test_the_front_matters_domain_wins_over_the_folders(notes: Path) -> None:
    (notes / "cases/one.md").write_text("---\ndomain: work\n---\nkeel")
    with clew.open(notes, model="none", domains={"boats": ["cases"]}) as engine:
        engine.index(notes)
        found = engine.search("keel", limit=50, filter={"domain": "boats"})
    assert {hit.path for hit in found} == {"cases/old/two.md"}


def test_but_what_lies_in_a_personal_folder_is_personal_whatever_else_it_is_called(
    notes: Path,
) -> None:
    (notes / "cases/one.md").write_text("---\ndomain: work\n---\nkeel")
    mapped = {"Personal ": ["cases"], "work": ["cases/old"]}
    with clew.open(notes, model="none", domains=mapped) as engine:
        engine.index(notes)
        assert engine.search("keel", limit=50, filter={"domain": "work"}).hits == ()
        found = {hit.path for hit in engine.search("keel", limit=50)}
    assert found == {"a.md", "cases-not/three.md"}


def test_files_that_were_read_under_another_rule_of_domains_are_read_again(notes: Path) -> None:
    (notes / "a.md").write_text("---\ndomain: Personal\n---\nkeel")
    with clew.open(notes, model="none") as engine:
        engine.index(notes)
        own = notes.name.casefold()
        assert engine.index().unchanged == 4
        engine.store.notes[f"groups of {own}"] = repr(([], []))  # as before 0.8
        assert len(engine.index().changed) == 4
        assert engine.index().unchanged == 4
