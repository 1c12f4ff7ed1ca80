"""Indexing a folder: what is noticed, what is left alone, what is reported."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

import clew
from clew.engine import Engine

from hashing import HashingEmbedder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    notes = tmp_path / "notes"
    (notes / "sub").mkdir(parents=True)
    _write(notes / "a.md", "# Anchors\n\nThe spare anchor hangs in the red shed.\n")
    _write(notes / "sub" / "b.txt", "Diesel is delivered on Tuesday mornings.\n")
    _write(notes / "c.py", "def getUserName(user):\n    return user.name\n")
    return notes


def _write(path: Path, text: str, *, age: float = 60) -> None:
    """As if it had been written a while ago: a file of this very second is always hashed again."""
    path.write_text(text, "utf-8")
    os.utime(path, (time.time() - age, time.time() - age))


def _paths(engine: Engine, query: str, **options: object) -> list[str | None]:
    return [hit.path for hit in engine.search(query, mode="keyword", **options)]  # type: ignore[arg-type]


def test_a_first_run_adds_every_file_and_embeds_every_passage(engine: Engine) -> None:
    report = engine.index()
    assert sorted(report.added) == ["a.md", "c.py", "sub/b.txt"]
    assert report.embedded == report.chunks == 3
    assert _paths(engine, "anchor") == ["a.md"]
    assert engine.get("notes:sub/b.txt") is not None
    assert engine.status()["embedded"] == 1.0


def test_an_unchanged_folder_is_neither_read_nor_embedded_again(
    engine: Engine, embedder: HashingEmbedder, folder: Path
) -> None:
    engine.index()
    before, generation = len(embedder.embedded), engine.store.changes.generation()
    for path in folder.rglob("*.*"):
        if path.is_file() and ".clew" not in path.parts:
            path.chmod(0o000)  # as root this does not keep anyone out, so the report must say it
    report = engine.index()
    assert report.unchanged == 3
    assert not (report.added or report.changed or report.removed or report.skipped)
    assert len(embedder.embedded) == before
    assert engine.store.changes.generation() == generation


def test_an_edit_is_found_by_its_new_words_and_not_by_its_old_ones(
    engine: Engine, folder: Path
) -> None:
    engine.index()
    _write(folder / "a.md", "# Anchors\n\nThe spare anchor hangs in the blue barn.\n", age=30)
    report = engine.index()
    assert report.changed == ["a.md"]
    assert _paths(engine, "barn") == ["a.md"]
    assert _paths(engine, "shed") == []
    assert engine.status()["records"] == 3


def test_an_edit_of_one_section_embeds_only_that_section(
    tmp_path: Path, embedder: HashingEmbedder
) -> None:
    sections = [f"# Part {i}\n\n" + f"Sentence about topic{i}. " * 60 for i in range(6)]
    note = tmp_path / "long.md"
    _write(note, "\n\n".join(sections))
    with clew.open(tmp_path, embedder=embedder) as engine:
        engine.index()
        before = len(embedder.embedded)
        sections[3] = sections[3].replace("Sentence", "Statement")
        _write(note, "\n\n".join(sections), age=30)
        engine.index()
        again = embedder.embedded[before:]
        assert again and all("topic3" in text for text in again)


def test_a_touched_file_with_the_same_bytes_costs_a_hash_and_nothing_more(
    engine: Engine, folder: Path, embedder: HashingEmbedder
) -> None:
    engine.index()
    before = len(embedder.embedded)
    os.utime(folder / "a.md", (time.time() - 10, time.time() - 10))
    report = engine.index()
    assert report.unchanged == 3 and not report.changed
    assert len(embedder.embedded) == before


def test_a_change_within_one_clock_tick_and_of_the_same_size_is_noticed(
    engine: Engine, folder: Path
) -> None:
    note = folder / "a.md"
    note.write_text("The colour is green.\n", "utf-8")
    stamp = note.stat().st_mtime_ns
    engine.index()
    note.write_text("The colour is black.\n", "utf-8")
    os.utime(note, ns=(stamp, stamp))
    engine.index()
    assert _paths(engine, "black") == ["a.md"]


def test_a_moved_file_keeps_its_vectors(
    engine: Engine, folder: Path, embedder: HashingEmbedder
) -> None:
    engine.index()
    before = len(embedder.embedded)
    (folder / "sub" / "b.txt").rename(folder / "deliveries.txt")
    report = engine.index()
    assert report.moved == [("sub/b.txt", "deliveries.txt")]
    assert not report.added and not report.removed
    assert _paths(engine, "diesel") == ["deliveries.txt"]
    # its title is its name, so that passage is new; nothing else is
    assert len(embedder.embedded) - before <= 1
    assert engine.get("notes:sub/b.txt") is None


def test_a_deleted_file_is_gone_from_every_leg(engine: Engine, folder: Path) -> None:
    engine.index()
    (folder / "a.md").unlink()
    report = engine.index()
    assert report.removed == ["a.md"]
    assert all(hit.path != "a.md" for hit in engine.search("spare anchor red shed"))


def test_a_file_that_is_ignored_later_is_taken_out(engine: Engine, folder: Path) -> None:
    engine.index()
    (folder / ".clewignore").write_text("sub/\n")
    assert engine.index().removed == ["sub/b.txt"]


def test_only_the_named_path_is_brought_up_to_date(engine: Engine, folder: Path) -> None:
    engine.index()
    (folder / "a.md").unlink()
    _write(folder / "sub" / "b.txt", "Petrol now.\n", age=30)
    report = engine.index([folder / "sub"])
    assert report.changed == ["sub/b.txt"] and report.removed == []
    assert engine.get("notes:a.md") is not None  # known, though not shown: its file is gone


def test_a_second_folder_becomes_a_collection_of_its_own(engine: Engine, tmp_path: Path) -> None:
    other = tmp_path / "other" / "notes"
    other.mkdir(parents=True)
    _write(other / "a.md", "Another anchor altogether.\n")
    engine.index()
    engine.index([other])
    assert set(engine.status()["collections"]) == {"notes", "notes-2"}
    assert len(engine.search("anchor", mode="keyword")) == 2
    found = engine.search("anchor", mode="keyword", filter={"collection": "notes-2"})
    assert [hit.id for hit in found] == ["notes-2:a.md"]
    assert engine.remove(collection="notes-2") == 1
    assert engine.store.files.roots().keys() == {"notes"}


def test_what_cannot_be_read_is_named_with_its_reason_and_stops_nothing(
    engine: Engine, folder: Path
) -> None:
    (folder / "picture.md").write_bytes(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" * 20)
    (folder / "broken.md").write_text("---\ntags: [unclosed\n---\n\nStill about marmalade.\n")
    (folder / "latin.txt").write_bytes(b"caf\xe9 au lait in Fran\xe7ais\n")
    os.mkfifo(folder / "pipe.txt")
    (folder / "loop").symlink_to(folder / "loop")
    (folder / "outside.md").symlink_to("/etc/hostname")
    with (folder / "huge.txt").open("wb") as file:
        file.truncate(200 * 1024 * 1024)
    report = engine.index()
    reasons = dict(report.skipped)
    assert "binary" in reasons["picture.md"]
    assert "regular" in reasons["pipe.txt"]
    assert "link" in reasons["loop"] and "link" in reasons["outside.md"]
    assert "max_file_mb" in reasons["huge.txt"]
    warned = dict(report.warnings)
    assert "broken.md" in warned and "latin.txt" in warned
    assert _paths(engine, "marmalade") == ["broken.md"]
    assert _paths(engine, "lait") == ["latin.txt"]
    assert _paths(engine, "anchor") == ["a.md"]


def test_pages_that_clew_made_are_left_out(engine: Engine, folder: Path) -> None:
    """They show what other files say, and would be found before them."""
    from clew.cli.page import page
    from clew.cli.view import view_result

    engine.index()
    (folder / "why.html").write_text(page(view_result(engine.search("anchor"))))
    report = engine.index()
    assert dict(report.skipped) == {"why.html": "a page that Clew made of what is in other files"}
    assert _paths(engine, "anchor") == ["a.md"]


@pytest.mark.skipif(not Path("/proc/self/pagemap").exists(), reason="Linux has such files")
def test_a_file_of_size_0_that_goes_on_without_end_is_skipped(tmp_path: Path) -> None:
    endless = Path("/proc/self/pagemap")
    assert endless.stat().st_size == 0
    with clew.open(tmp_path, model="none", max_file_mb=0.5) as engine:
        report = engine.index(endless)
        assert [path for path, _ in report.skipped] == ["pagemap"] and not report.added
        assert "0.5 MB" in dict(report.skipped)["pagemap"]
        version = engine.index("/proc/version")  # says size 0 too, and has an end
        assert version.added == ["version"]
        assert len(engine.search("linux", mode="keyword")) == 1


def test_a_file_that_becomes_a_pipe_while_the_run_is_on_is_not_waited_for(folder: Path) -> None:
    (folder / "z.md").write_text("Last of all.\n", "utf-8")

    def swap(stage: str, done: int, total: int) -> None:
        if stage == "reading" and done == 1:
            (folder / "z.md").unlink()
            os.mkfifo(folder / "z.md")

    with clew.open(folder, embedder=HashingEmbedder()) as engine:
        report = engine.index(progress=swap)
        assert dict(report.skipped) == {"z.md": "not a regular file"}
        assert len(report.added) == 3


def test_what_was_known_of_a_file_is_kept_while_it_cannot_be_looked_at(
    engine: Engine, folder: Path
) -> None:
    engine.index()
    (folder / "a.md").unlink()
    os.mkfifo(folder / "a.md")
    report = engine.index()
    assert report.removed == [] and "a.md" in dict(report.skipped)
    assert _paths(engine, "anchor") == ["a.md"]


def test_front_matter_decides_date_domain_importance_and_metadata(
    engine: Engine, folder: Path
) -> None:
    _write(
        folder / "m.md",
        "---\ntitle: Meeting\ndate: 2025-03-01\ndomain: personal\nimportance: 0.9\n"
        "effort: 3\ntags: [Crane, safety]\n---\n\nAbout slings.\n",
    )
    _write(folder / "odd.md", "---\nimportance: enormous\n---\n\nAbout shackles.\n")
    report = engine.index()
    record = engine.get("notes:m.md")
    assert record is not None
    assert (record.title, record.domain, record.importance) == ("Meeting", "personal", 0.9)
    assert set(record.tags) == {"crane", "safety"} and record.metadata["effort"] == 3
    dated = "slings before:2025-04-01 after:2025-02-01"
    assert _paths(engine, dated, include_personal=True) == ["m.md"]
    assert _paths(engine, dated) == []
    assert _paths(engine, "slings after:2025-04-01") == []
    small = {"metadata": {"effort": {"lte": 3}}}
    assert _paths(engine, "slings", filter=small, include_personal=True) == ["m.md"]
    assert any(path == "odd.md" and "importance" in text for path, text in report.warnings)


def test_keyword_search_works_before_any_vector_is_there(folder: Path) -> None:
    with clew.open(folder, model="none") as engine:
        report = engine.index()
        assert report.embedded == 0 and report.notes
        found = engine.search("anchor")
        assert [hit.path for hit in found] == ["a.md"]
        assert found.trace["embedded"] == 0
        assert any("vectors" in problem for problem in found.degraded)


def test_an_interrupted_embedding_goes_on_where_it_stopped(folder: Path) -> None:
    for i in range(300):
        _write(folder / f"n{i:03}.md", f"Note number {i} on subject{i}.\n")

    class Failing(HashingEmbedder):
        def embed_documents(self, texts):  # type: ignore[no-untyped-def]
            if len(self.embedded) >= 128:
                raise KeyboardInterrupt
            return super().embed_documents(texts)

    with clew.open(folder, embedder=Failing()) as engine, pytest.raises(KeyboardInterrupt):
        engine.index()
    second = HashingEmbedder()
    with clew.open(folder, embedder=second) as engine:
        assert 0 < engine.search("subject7").trace["embedded"] < 1
        engine.index()
        assert len(second.embedded) == 303 - 128
        assert engine.status()["embedded"] == 1.0


def test_equal_texts_are_embedded_once(tmp_path: Path, embedder: HashingEmbedder) -> None:
    with clew.open(tmp_path, embedder=embedder) as engine:
        engine.add([clew.Record(id=f"r{i}", content="The very same words.") for i in range(5)])
        engine.embed()
        engine.add([clew.Record(id="later", content="The very same words.")])
        engine.embed()
        assert embedder.embedded == ["The very same words."]
        assert len(engine.search("same words", mode="vector")) == 6


def test_another_model_is_never_mixed_in_and_reembed_migrates(
    engine: Engine, folder: Path, embedder: HashingEmbedder
) -> None:
    engine.index()
    other = HashingEmbedder(model="hashing@2", dim=32)
    with clew.open(folder, embedder=other) as changed:
        found = changed.search("diesel tuesday", mode="vector")
        assert len(found) == 0 and found.degraded
        assert changed.status()["other_models"] == {"hashing@1": 3}
        assert changed.reembed() == 3
        assert changed.status()["other_models"] == {}
        assert changed.search("diesel tuesday", mode="vector")[0].path == "sub/b.txt"


def test_what_was_derived_from_another_models_vectors_goes_with_them(
    engine: Engine, folder: Path
) -> None:
    def kept() -> list[str]:
        return sorted(p.name for p in (folder / ".clew" / "derived").glob("vectors-*"))

    engine.index()
    assert kept() == ["vectors-hashing@1"]
    other = HashingEmbedder(model="hashing@2", dim=32)
    with clew.open(folder, embedder=other) as changed:
        changed.add([clew.Record(id="new", content="diesel")])
        changed.store.vectors.set(
            changed.store.vectors.pending("hashing@1"),
            other.embed_documents(["diesel"]),
            model="hashing@2",
        )
        changed.search("diesel", mode="vector")
        changed.optimise()  # some vectors are still of the first one: nothing may go
        assert kept() == ["vectors-hashing@1", "vectors-hashing@2"]
        changed.reembed()
        assert kept() == ["vectors-hashing@2"]
        assert changed.search("tuesday mornings", mode="vector")[0].path == "sub/b.txt"
        assert all(finding["ok"] for finding in changed.doctor())
        # the first engine still has the old index open: it goes on, and goes back if it must
        assert len(engine.search("diesel", mode="keyword")) == 2
        assert len(engine.search("diesel", mode="vector")) == 0
        assert engine.reembed() == 4
        assert engine.search("tuesday mornings", mode="vector")[0].path == "sub/b.txt"
        assert kept() == ["vectors-hashing@1"]


def test_a_missing_path_is_an_error_that_names_it(engine: Engine) -> None:
    with pytest.raises(clew.InputError, match="nowhere"):
        engine.index(["nowhere"])


def test_a_run_that_finds_nothing_to_read_says_so_and_what_it_would_read(tmp_path: Path) -> None:
    with clew.open(tmp_path, embedder=HashingEmbedder()) as engine:
        (note,) = engine.index().notes
        assert "nothing was indexed" in note
        assert {".md", ".pdf", ".py", ".txt"} <= set(note.replace(",", " ").split())
        (tmp_path / "photo.jpg").write_bytes(b"\xff\xd8")
        report = engine.index()
        assert report.unread == {".jpg": 1} and "nothing was indexed" in report.notes[0]
        (tmp_path / "garbled.md").write_bytes(b"\0" * 99)
        (note,) = engine.index().notes
        assert "skipped" in note
        (tmp_path / "garbled.md").write_text("Mended.\n", "utf-8")
        assert engine.index().notes == []
        assert engine.index().notes == []  # unchanged is not nothing


def test_one_path_may_be_given_as_it_is_and_all_are_checked_first(
    engine: Engine, folder: Path
) -> None:
    assert engine.index(str(folder / "sub")).added == ["b.txt"]
    with pytest.raises(clew.InputError, match="nowhere"):
        engine.index("/nowhere")
    with pytest.raises(clew.InputError, match="nowhere"):
        engine.index([folder, folder / "nowhere"])
    assert engine.status()["records"] == 1


def test_the_settings_file_is_not_a_note(engine: Engine, folder: Path) -> None:
    (folder / "clew.toml").write_text("depth = 50\n")
    assert "clew.toml" not in engine.index().added
