"""Files that are gone or have changed since they were indexed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import clew
from clew.search.context import IndexedFiles

from hashing import HashingEmbedder


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    folder = tmp_path / "notes"
    folder.mkdir()
    for name in ("a", "b", "c", "d"):
        (folder / f"{name}.md").write_text(f"The keel of {name}.\n")
    return folder


@pytest.fixture
def engine(notes: Path) -> Iterator[clew.Engine]:
    with clew.open(notes, embedder=HashingEmbedder()) as opened:
        opened.index()
        yield opened


def paths(result: clew.SearchResult) -> list[str | None]:
    return [hit.path for hit in result]


GONE = "1 file is gone since the last `clew index`"


def test_a_file_that_was_deleted_is_left_out_and_another_moves_up(
    notes: Path, engine: clew.Engine
) -> None:
    before = engine.search("keel", limit=3)
    first = str(before[0].path)
    (notes / first).unlink()
    after = engine.search("keel", limit=3)
    assert first not in paths(after) and len(after) == 3
    assert GONE in after.degraded
    again = engine.search("keel", limit=3, cache=False)
    assert (again.hits, again.degraded) == (after.hits, after.degraded)
    engine.index()
    assert not engine.search("keel", limit=3).degraded


def test_it_is_left_out_also_where_the_cache_answers(notes: Path, engine: clew.Engine) -> None:
    engine.search("keel")
    assert engine.search("keel").cache == "exact"
    (notes / "b.md").unlink()
    (notes / "c.md").unlink()
    found = engine.search("keel")
    assert sorted(map(str, paths(found))) == ["a.md", "d.md"]
    assert found.degraded == ("2 files are gone since the last `clew index`",)


def test_a_listing_by_filters_leaves_it_out_too(notes: Path, engine: clew.Engine) -> None:
    (notes / "a.md").unlink()
    found = engine.search("type:markdown", limit=3)
    assert sorted(map(str, paths(found))) == ["b.md", "c.md", "d.md"]
    assert GONE in found.degraded


def test_a_file_that_has_changed_is_marked(notes: Path, engine: clew.Engine) -> None:
    assert not any("stale" in hit.metadata for hit in engine.search("keel"))
    (notes / "b.md").write_text("Something else by now.\n")
    for _ in range(3):
        found = engine.search("keel")
        assert [hit.path for hit in found if hit.metadata.get("stale")] == ["b.md"]
    os.utime(notes / "c.md", ns=(1, 1))
    stale = {hit.path for hit in engine.search("keel") if hit.metadata.get("stale")}
    assert stale == {"b.md", "c.md"}
    engine.index()
    assert not any("stale" in hit.metadata for hit in engine.search("keel"))


def test_a_folder_that_is_not_there_as_a_whole_is_said_once_and_its_hits_are_marked(
    tmp_path: Path, notes: Path
) -> None:
    with clew.open(tmp_path / "home", embedder=HashingEmbedder()) as engine:
        engine.index(notes)
        notes.rename(tmp_path / "unmounted")
        for _ in range(2):
            found = engine.search("keel")
            assert len(found) == 4 and all(hit.metadata["missing"] for hit in found)
            (said,) = found.degraded
            assert str(notes) in said and "is not there" in said
        (tmp_path / "unmounted").rename(notes)
        assert not engine.search("keel").degraded


def test_a_store_that_was_taken_elsewhere_without_its_files_still_shows_them(
    tmp_path: Path, notes: Path, engine: clew.Engine
) -> None:
    engine.close()
    shutil.copytree(notes / ".clew", tmp_path / "elsewhere" / ".clew")
    with clew.open(tmp_path / "elsewhere", embedder=HashingEmbedder()) as other:
        found = other.search("keel")
        assert len(found) == 4 and all(hit.metadata["missing"] for hit in found)
        assert len(found.degraded) == 1


def test_a_folder_may_be_named_from_where_the_process_stands(
    notes: Path, engine: clew.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(notes.parent)
    (notes / "a.md").unlink()
    with clew.open("notes", embedder=HashingEmbedder()) as relative:
        assert GONE in relative.search("keel").degraded


def test_records_that_were_given_have_no_file(notes: Path, engine: clew.Engine) -> None:
    engine.add(
        [
            clew.Record("notes:given", "a keel that was given", path="given.md"),
            clew.Record("elsewhere", "another keel", path="nowhere/at/all.md"),
        ]
    )
    engine.embed()
    found = engine.search("keel")
    assert {"notes:given", "elsewhere"} <= {hit.id for hit in found}
    assert not found.degraded


def test_lines_and_rows_have_the_file_that_they_are_in(notes: Path, engine: clew.Engine) -> None:
    files = IndexedFiles(engine.store, engine.root)
    named = [("notes:a.md#L00003", "a.md"), ("notes:gone.md", "gone.md"), ("x", None)]
    assert files.states(named) == [None, None, None]
    (notes / "a.md").unlink()
    assert files.states(named) == ["gone", None, None]
    assert files.problems == (GONE,)
