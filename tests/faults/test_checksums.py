"""A bit flips on the disk: what it hit is never shown, is named, and is made anew where it can."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

import clew
from clew.errors import ClewError, StoreError
from clew.filter import Filter
from clew.storage import sqlite as schema
from clew.store import DuckStore, EmbeddedStore
from entries import MODEL, entry, found, ill, unit_rows

from hashing import HashingEmbedder

WORDS = "the harbour crane lifts containers from the quay at dawn"
CHANGES = {
    "content": "UPDATE texts SET content = replace(content, 'crane', 'drone')",
    "title": "UPDATE records SET title = 'Another'",
    "metadata": """UPDATE records SET metadata = '{"a": 2}'""",
    "garbled metadata": """UPDATE records SET metadata = '{"a": 2'""",
    "time": "UPDATE records SET updated_at = updated_at + 1",
    "end": "UPDATE records SET ended_at = 7e9",
    "importance": "UPDATE records SET importance = 0.9",
    "path": "UPDATE records SET path = 'other.md'",
    "tag": "UPDATE tags SET tag = 'seb'",
    "no UTF-8": "UPDATE records SET title = CAST(x'41ff42' AS TEXT)",
}
PASSAGES = {
    "heading": "UPDATE chunks SET heading = 'Roof'",
    "line": "UPDATE chunks SET first_line = 2, last_line = 9",
    "cut": 'UPDATE chunks SET "end" = "end" - 5',
}


def notes(tmp_path: Path) -> Path:
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "crane.md").write_text(
        f"---\ntitle: Crane\ntags: [sea]\na: 1\n---\n# Port\n\n{WORDS}\n"
    )
    (folder / "other.md").write_text("# Other\n\nthe harbour is closed today\n")
    with clew.open(folder) as engine:
        engine.index(embed=False)
        assert len(engine.search("harbour")) == 2
    return folder


def change(folder: Path, statement: str) -> None:
    with closing(sqlite3.connect(folder / ".clew" / "clew.db")) as db, db:
        rid = db.execute("SELECT rid FROM records WHERE id LIKE '%crane.md'").fetchone()[0]
        assert db.execute(f"{statement} WHERE rid = {rid}").rowcount


@pytest.mark.parametrize("what", CHANGES)
def test_a_damaged_record_is_left_out_named_and_read_from_its_file_again(
    tmp_path: Path, what: str
) -> None:
    folder = notes(tmp_path)
    change(folder, CHANGES[what])
    with clew.open(folder) as engine:
        result = engine.search("harbour", cache=False)
        if what != "end":
            assert [hit.path for hit in result] == ["other.md"]
            assert any("crane.md" in said and "clew doctor" in said for said in result.degraded)
        with pytest.raises(StoreError, match=r"crane\.md.*clew doctor"):
            engine.get("notes:crane.md")
        advice = [row["advice"] for row in engine.doctor() if not row["ok"]]
        assert any("crane.md" in said for said in advice)
        engine.doctor(mend=True)
        assert all(row["ok"] for row in engine.doctor())
        record = engine.get("notes:crane.md")
        assert record is not None
        assert (record.title, record.tags, record.metadata["a"]) == ("Crane", ("sea",), 1)
        assert WORDS in record.content
        assert not engine.search("harbour", cache=False).degraded[1:]


@pytest.mark.parametrize("what", PASSAGES)
def test_a_damaged_passage_is_left_out_named_and_cut_again(tmp_path: Path, what: str) -> None:
    folder = notes(tmp_path)
    change(folder, PASSAGES[what])
    with clew.open(folder) as engine:
        result = engine.search("harbour", cache=False)
        assert [hit.path for hit in result] == ["other.md"]
        assert any("crane.md" in said for said in result.degraded)
        assert any("crane.md" in row["advice"] for row in engine.doctor())
        engine.doctor(mend=True)
        assert all(row["ok"] for row in engine.doctor())
        hits = engine.search("crane", cache=False).hits
        assert [hit.path for hit in hits] == ["crane.md"]
        assert hits[0].metadata["heading"] == "Port"


def test_a_damaged_record_without_a_file_stays_named_until_it_is_written_again(
    tmp_path: Path,
) -> None:
    with clew.open(tmp_path) as engine:
        engine.add([{"id": "one", "content": WORDS}, {"id": "two", "content": "harbour wall"}])
    with closing(sqlite3.connect(tmp_path / ".clew" / "clew.db")) as db, db:
        db.execute("UPDATE texts SET content = content || '!' WHERE rid = 1")
    with clew.open(tmp_path) as engine:
        engine.doctor(mend=True)
        assert any("one" in row["advice"] for row in engine.doctor() if not row["ok"])
        assert engine.add([{"id": "one", "content": WORDS}]) == ["updated"]
        assert all(row["ok"] for row in engine.doctor())
        found = engine.get("one")
        assert found is not None
        assert found.content == WORDS


@pytest.mark.parametrize("kind", [EmbeddedStore, DuckStore])
def test_a_damaged_vector_is_not_searched(tmp_path: Path, kind: type[EmbeddedStore]) -> None:
    place = tmp_path / ("store" if kind is EmbeddedStore else "store.duckdb")
    rows = unit_rows(3)
    store = kind(place)
    store.put([entry(f"r{i}", f"word{i}", vectors=rows[i : i + 1]) for i in range(3)], model=MODEL)
    store.indexes.refresh()
    assert ill(store) == []
    with store._db.transaction() as db:
        db.execute("UPDATE vectors SET checksum = checksum + 1 WHERE cid = 2")
    assert set(store.vectors.of(["r0", "r1", "r2"])) == {"r0", "r2"}
    assert any("vectors are as they were written" in said for said in ill(store))
    store.upkeep.mend()
    store.indexes.rebuild()
    assert ill(store) == []
    assert len(store.vectors.pending(MODEL)) == 1
    store.close()


def test_a_damaged_vector_is_known_by_that_of_an_equal_text(tmp_path: Path) -> None:
    store = EmbeddedStore(tmp_path / "store")
    rows = unit_rows(1)
    store.put([entry(name, "word", vectors=rows) for name in ("a", "b")], model=MODEL)
    with store._db.transaction() as db:
        db.execute("UPDATE vectors SET checksum = checksum + 1 WHERE cid = 1")
    known = store.vectors.known([1, 2], model=MODEL)
    assert {cid: row.tolist() for cid, row in known.items()} == dict.fromkeys(
        (1, 2), rows[0].tolist()
    )
    store.close()


def test_what_ends_or_is_renamed_keeps_a_true_checksum(tmp_path: Path) -> None:
    with clew.open(tmp_path) as engine:
        engine.add([{"id": "one", "content": WORDS, "links": ["b", "a"], "created_at": -0.0}])
        engine.store.lifecycle.end(["one"], at=7.0, reason="superseded")
        assert engine.get("one").ended_at == 7.0  # type: ignore[union-attr]
        engine.store.lifecycle.revive(["one"])
        engine.store.rename("one", entry("other", WORDS))
        assert engine.get("other").content == WORDS  # type: ignore[union-attr]
        engine.optimise()
        assert all(row["ok"] for row in engine.doctor())


def take_checksums(folder: Path) -> None:
    """Bring a store back to the format that had none."""
    with closing(sqlite3.connect(folder / "clew.db")) as db, db:
        for table in ("records", "chunks", "vectors"):
            db.execute(f"ALTER TABLE {table} DROP COLUMN checksum")
        db.execute(f"PRAGMA user_version = {schema.MIGRATIONS.index(schema._CHECKSUMS)}")


def test_a_store_of_the_format_before_opens_and_gets_its_checksums(
    tmp_path: Path,
) -> None:
    store = EmbeddedStore(tmp_path / "store")
    store.put([entry("r", WORDS, vectors=unit_rows(1))], model=MODEL)
    store.close()
    take_checksums(tmp_path / "store")
    store = EmbeddedStore(tmp_path / "store")
    assert found(store, "crane") == ["r"]
    assert store.get(["r"])[0].content == WORDS
    store.indexes.refresh(optimise=True)
    for table in ("records", "chunks", "vectors"):
        query = f"SELECT COUNT(*) FROM {table} WHERE checksum IS NULL"
        assert store._db.reader.execute(query).fetchone()[0] == 0
    assert ill(store) == []
    store.close()


def test_a_store_of_the_format_before_opens_on_a_read_only_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = EmbeddedStore(tmp_path / "store")
    store.put([entry("r", WORDS, vectors=unit_rows(1))], model=MODEL)
    store.indexes.prepare(MODEL)
    store.indexes.refresh()
    store.close()
    take_checksums(tmp_path / "store")
    real = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK and real(path, mode))
    store = EmbeddedStore(tmp_path / "store", create=False)
    assert found(store, "crane") == ["r"]
    assert store.get(["r"])[0].content == WORDS
    assert store.vectors.missing(Filter(), model="another")
    store.close()


@pytest.mark.parametrize("seed", range(3))
def test_flipped_bits_are_never_served_as_truth(tmp_path: Path, seed: int) -> None:
    """Of each: the true answer, one that says what is missing, or a ClewError."""
    rng = random.Random(seed)
    whole = tmp_path / "whole"
    with clew.open(whole) as engine:
        engine.add(
            {"id": f"r{i}", "content": f"harbour {i} {rng.random()}", "tags": [f"t{i % 3}"]}
            for i in range(60)
        )
        truth = {f"r{i}": engine.get(f"r{i}") for i in range(60)}
    for number in range(8):
        folder = tmp_path / f"copy{number}"
        shutil.copytree(whole, folder)
        file = folder / ".clew" / "clew.db"
        data = bytearray(file.read_bytes())
        data[rng.randrange(100, len(data))] ^= 1 << rng.randrange(8)
        file.write_bytes(bytes(data))
        try:
            with clew.open(folder) as engine:
                result = engine.search("harbour", limit=60, cache=False)
                for hit in result:
                    assert hit.content == truth[hit.id].content  # type: ignore[union-attr]
                    assert hit.metadata["tags"] == list(truth[hit.id].tags)  # type: ignore[union-attr]
                told = result.degraded[1:] or not all(row["ok"] for row in engine.doctor())
                assert len(result) == 60 or told
                for name, record in truth.items():
                    try:
                        got = engine.get(name)
                    except ClewError:
                        continue
                    assert got == record or (got is None and told)
        except ClewError:
            continue


@pytest.mark.parametrize("kind", ["term", "idx", "pos", "fast", "fieldnorm"])
def test_a_damaged_file_of_the_keyword_index_is_noticed_and_made_anew(
    tmp_path: Path, kind: str
) -> None:
    store = EmbeddedStore(tmp_path / "store")
    store.put([entry(f"r{i}", f"harbour crane {i}") for i in range(100)])
    store.indexes.refresh()
    truth = found(store, "harbour crane")
    store.close()
    for file in (tmp_path / "store" / "derived").glob(f"keyword-*/*.{kind}"):
        data = bytearray(file.read_bytes())
        data[len(data) // 4] ^= 4
        file.write_bytes(bytes(data))
    store = EmbeddedStore(tmp_path / "store")
    assert any("keyword index is undamaged" in said for said in ill(store))
    assert found(store, "harbour crane") == truth
    assert ill(store) == []
    store.close()


def broken_leaf(folder: Path, words: str) -> None:
    """64 bytes of a page of the table of texts are others."""
    file = folder / ".clew" / "clew.db"
    data = bytearray(file.read_bytes())
    at = data.find(words.encode())
    assert at > 0
    data[at : at + 64] = bytes(range(1, 65))
    file.write_bytes(data)


def many_notes(folder: Path) -> Path:
    for i in range(40):
        text = f"# Note {i}\n\nThe kestrel was seen at Lisbon Station {i}.\nunique{i}\n"
        (folder / f"n{i}.md").write_text(text)
    with clew.open(folder) as engine:
        engine.index()
    return folder


@pytest.mark.parametrize("number", [3, 20, 39])
def test_a_damaged_page_is_named_and_all_is_read_from_the_files_again(
    tmp_path: Path, number: int
) -> None:
    folder = many_notes(tmp_path)
    broken_leaf(folder, f"at Lisbon Station {number}.\nunique{number}\n")
    with clew.open(folder) as engine:
        try:
            result = engine.search("kestrel", limit=50, cache=False)
            assert len({hit.path for hit in result}) == 40 or "clew doctor" in str(result.degraded)
        except StoreError as error:
            assert "clew doctor" in str(error)
        assert not all(row["ok"] for row in engine.doctor())
        engine.doctor(mend=True)
        assert [row for row in engine.doctor() if not row["ok"]] == []
        result = engine.search("kestrel", limit=50, cache=False)
        assert len({hit.path for hit in result}) == 40
        assert engine.search(f"unique{number}", cache=False)[0].path == f"n{number}.md"


@pytest.mark.parametrize("damage", ["record", "page"])
def test_what_a_killed_mending_took_out_is_read_again_by_the_next_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    folder = many_notes(tmp_path)
    if damage == "page":
        broken_leaf(folder, "at Lisbon Station 20.\nunique20\n")
    else:
        with closing(sqlite3.connect(folder / ".clew" / "clew.db")) as db, db:
            db.execute("UPDATE texts SET content = replace(content, 'unique20', 'unique99')")

    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with clew.open(folder) as engine:
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(engine, "index", stop)
            engine.doctor(mend=True)
        engine.index()
        assert engine.search("unique20", cache=False)[0].path == "n20.md"
        assert engine.index().unchanged == 40
        engine.doctor(mend=True)
        assert [row for row in engine.doctor() if not row["ok"]] == []


def test_a_memory_is_mended_without_the_files_of_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(notes(tmp_path))
    with clew.Memory(tmp_path / "memory.db", embedder=HashingEmbedder()) as memory:
        memory.remember("The harbour crane was painted.", id="crane")
    with closing(sqlite3.connect(tmp_path / "memory.db")) as db, db:
        db.execute("UPDATE chunks SET heading = 'Roof'")
    with clew.Memory(tmp_path / "memory.db", embedder=HashingEmbedder()) as memory:
        memory.engine.doctor(mend=True)
        assert [row for row in memory.engine.doctor() if not row["ok"]] == []
        assert memory.stats()["memories"] == 1
        assert memory.recall("crane painted")[0].id == "crane"
        assert memory.engine.store.files.roots() == {}


def test_what_a_killed_mending_left_beside_the_store_goes_with_the_next(tmp_path: Path) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    with clew.open(notes(tmp_path)) as engine:
        left = tmp_path / "notes" / ".clew" / f".clew.db.{gone.pid}.x.part"
        left.mkdir()
        (left / "clew.db").write_bytes(b"half")
        engine.doctor(mend=True)
        assert [file.name for file in left.parent.glob(".*")] == []


def test_an_emptied_database_is_no_new_store(tmp_path: Path) -> None:
    folder = many_notes(tmp_path)
    for ending in ("-wal", "-shm"):
        (folder / ".clew" / f"clew.db{ending}").unlink(missing_ok=True)
    (folder / ".clew" / "clew.db").write_bytes(b"")
    with pytest.raises(StoreError, match=r"damaged.*clew restore"):
        clew.open(folder)


def test_passages_whose_record_is_gone_are_dropped_and_missing_vectors_are_named(
    tmp_path: Path,
) -> None:
    """As where a page of the database is lost that had the record, and not its passages."""
    with clew.open(tmp_path, embedder=HashingEmbedder()) as engine:
        engine.add([{"id": name, "content": f"{name} harbour"} for name in ("one", "two", "three")])
        engine.embed()
        engine.add([{"id": "four", "content": "four harbour"}])
    with closing(sqlite3.connect(tmp_path / ".clew" / "clew.db")) as db, db:
        db.execute("DELETE FROM records WHERE id = 'two'")
    with clew.open(tmp_path, embedder=HashingEmbedder()) as engine:
        ill = [row for row in engine.doctor(mend=True) if not row["ok"]]
        assert [row["check"] for row in ill] == ["every passage has a vector"]
        assert "33.33% of the passages have none: run `clew index`" in ill[0]["advice"]
        engine.embed()
        assert all(row["ok"] for row in engine.doctor(mend=True))
        assert {hit.id for hit in engine.search("harbour", mode="vector")} == {
            *("one", "three", "four")
        }
