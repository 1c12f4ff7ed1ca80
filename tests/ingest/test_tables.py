"""Rows of tables are records of their own: found one by one, filtered by their columns and dates,
and brought up to date row by row."""

from __future__ import annotations

import io
import os
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

import clew
from clew import Filter
from clew.engine import Engine
from clew.types import Candidate, Entry

from hashing import HashingEmbedder

COLUMNS = "Message-ID,Date,From,Subject,Body"
MAILS = [
    '<1@x>,2026-01-05,ada@x,Mooring,"The mooring line is worn.\nReplace it."',
    "<2@x>,2026-02-06,bob@x,Crane,The crane is booked for the mooring works",
    "<3@x>,2026-03-07,ada@x,Lunch,Soup at noon",
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "mail"
    made.mkdir()
    write(made / "inbox.csv", *MAILS)
    return made


def write(path: Path, *rows: str, age: float = 60) -> None:
    path.write_text("\n".join([COLUMNS, *rows]) + "\n", "utf-8")
    os.utime(path, (time.time() - age, time.time() - age))


def ids(engine: Engine, query: str = "mooring crane soup", **options: object) -> set[str]:
    return {hit.id for hit in engine.search(query, **options)}  # type: ignore[arg-type]


def rows(engine: Engine) -> set[str]:
    return {record.id for record in engine.store.select(Filter(type="table"), limit=100)}


def test_each_row_is_a_hit_with_its_line_and_its_columns(engine: Engine) -> None:
    report = engine.index()
    assert (report.added, report.rows) == (["inbox.csv"], 3)
    found = {hit.id: hit for hit in engine.search("mooring", mode="keyword")}
    assert set(found) == {"mail:inbox.csv#<1@x>", "mail:inbox.csv#<2@x>"}
    worn = found["mail:inbox.csv#<1@x>"]
    assert (worn.path, worn.lines, worn.title) == ("inbox.csv", (2, 3), "Mooring")
    assert worn.location == "line 2"
    assert worn.metadata["From"] == "ada@x"
    record = engine.get("mail:inbox.csv#<2@x>")
    assert record is not None and record.content.endswith("booked for the mooring works")


def test_rows_are_filtered_by_their_own_dates_and_columns(engine: Engine) -> None:
    engine.index()
    crane, lunch = "mail:inbox.csv#<2@x>", "mail:inbox.csv#<3@x>"
    assert ids(engine, filter=Filter(after="2026-02-01", before="2026-03-01")) == {crane}
    assert ids(engine, filter=Filter(created_after="2026-03-01", metadata={"From": "ada@x"})) == {
        lunch
    }
    assert ids(engine, "mooring after:2026-02-01", mode="keyword") == {crane}


def test_a_changed_table_is_changed_row_by_row(
    engine: Engine, folder: Path, embedder: HashingEmbedder
) -> None:
    engine.index()
    before = len(embedder.embedded)
    write(folder / "inbox.csv", MAILS[2], MAILS[0].replace("worn", "frayed"), age=30)
    report = engine.index()
    assert report.changed == ["inbox.csv"] and not report.removed
    assert len(embedder.embedded) == before + 1  # the others have their vectors already
    assert rows(engine) == {
        "mail:inbox.csv",
        "mail:inbox.csv#<1@x>",
        "mail:inbox.csv#<3@x>",
    }
    assert not ids(engine, "worn", mode="keyword") and ids(engine, "frayed", mode="keyword")
    assert engine.index().unchanged == 1


def test_a_moved_table_takes_its_rows_along(
    engine: Engine, folder: Path, embedder: HashingEmbedder
) -> None:
    engine.index()
    before = len(embedder.embedded)
    (folder / "inbox.csv").rename(folder / "old mails.csv")
    report = engine.index()
    assert report.moved == [("inbox.csv", "old mails.csv")]
    assert len(embedder.embedded) == before + 1  # the table itself has another title now
    assert {name.partition("#")[0] for name in rows(engine)} == {"mail:old mails.csv"}
    assert len(rows(engine)) == 4


def test_a_table_that_becomes_a_text_leaves_no_row_behind(engine: Engine, folder: Path) -> None:
    engine.index()
    (folder / "inbox.csv").rename(folder / "inbox.txt")
    assert engine.index().moved == [("inbox.csv", "inbox.txt")]
    assert rows(engine) == set()
    assert ids(engine) == {"mail:inbox.txt"}
    (folder / "inbox.txt").rename(folder / "inbox.csv")
    engine.index()
    assert len(rows(engine)) == 4


@pytest.mark.parametrize("deleted", [True, False])
def test_rows_that_an_interrupted_run_has_written_go_with_their_table(
    engine: Engine, folder: Path, monkeypatch: pytest.MonkeyPatch, deleted: bool
) -> None:
    put = engine.store.put

    def stop(entries: Sequence[Entry], **options: object) -> list[str]:
        if entries[0].record.id == "mail:inbox.csv":
            raise KeyboardInterrupt
        return put(entries, **options)  # type: ignore[arg-type]

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(engine.store, "put", stop)
        engine.index()
    assert len(rows(engine)) == 3
    if deleted:
        (folder / "inbox.csv").unlink()
        engine.index()
        assert rows(engine) == set()
    else:
        write(folder / "inbox.csv", MAILS[0])
        engine.index()
        assert rows(engine) == {"mail:inbox.csv", "mail:inbox.csv#<1@x>"}
        assert engine.index().unchanged == 1


def test_a_table_whose_state_was_forgotten_with_one_row_is_brought_up_to_date(
    engine: Engine, folder: Path
) -> None:
    engine.index()
    engine.remove("mail:inbox.csv#<3@x>")
    write(folder / "inbox.csv", MAILS[0], age=30)
    engine.index()
    assert rows(engine) == {"mail:inbox.csv", "mail:inbox.csv#<1@x>"}


def test_a_removal_that_was_interrupted_is_ended_by_the_next_run(
    engine: Engine, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.index()
    (folder / "inbox.csv").unlink()
    delete, batches = engine.store.delete, iter([True])

    def stop(ids: Sequence[str]) -> int:
        if next(batches, False):
            return delete(ids)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("clew.ingest.sync.BATCH_DELETES", 2)
        patch.setattr(engine.store, "delete", stop)
        engine.index()
    assert len(rows(engine)) == 2
    assert engine.index().removed == ["inbox.csv"]
    assert rows(engine) == set()
    assert engine.store.files.states("mail") == {}


def test_a_table_that_goes_after_one_of_its_rows_takes_the_others_along(
    engine: Engine, folder: Path
) -> None:
    engine.index()
    engine.remove("mail:inbox.csv#<3@x>")
    (folder / "inbox.csv").unlink()
    assert engine.index().removed == ["inbox.csv"]
    assert rows(engine) == set()


def test_a_file_that_is_called_as_a_row_would_be_is_none(engine: Engine, folder: Path) -> None:
    write(folder / "inbox.csv#old.csv", *MAILS)
    engine.index()
    assert len(rows(engine)) == 8
    write(folder / "inbox.csv", MAILS[0], age=30)
    engine.index()
    assert len(rows(engine)) == 6
    (folder / "inbox.csv").unlink()
    engine.index()
    assert {name.rpartition("#")[0] or name for name in rows(engine)} == {
        "mail:inbox.csv",
        "mail:inbox.csv#old.csv",
    }
    assert engine.index().unchanged == 1


def test_a_deleted_table_leaves_no_row_behind(engine: Engine, folder: Path) -> None:
    write(folder / "in[1]box.csv", *MAILS)  # what a glob would read otherwise
    write(folder / "inbox.csv.tsv", *[row.replace(",", "\t") for row in MAILS])
    engine.index()
    assert len(rows(engine)) == 12
    (folder / "inbox.csv").unlink()
    assert engine.index().removed == ["inbox.csv"]
    assert {name.partition("#")[0] for name in rows(engine)} == {
        "mail:in[1]box.csv",
        "mail:inbox.csv.tsv",
    }
    (folder / "in[1]box.csv").unlink()
    engine.index()
    assert len(rows(engine)) == 4


def test_a_collection_is_removed_with_its_rows_wherever_settings_put_them(folder: Path) -> None:
    (folder / "clew.toml").write_text('[collections]\nold = ["archive/"]\n', "utf-8")
    (folder / "archive").mkdir()
    write(folder / "archive" / "a.csv", *MAILS)
    with clew.open(folder, embedder=HashingEmbedder()) as engine:
        engine.index()
        assert engine.store.count(Filter(collection="old")) == 4
        engine.remove(collection="mail")
        assert engine.store.count(Filter()) == 0


def test_a_run_that_is_killed_among_the_rows_reads_the_table_again(
    engine: Engine, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clew.ingest.sync.BATCH_ROWS", 2)
    put, calls = engine.store.put, 0

    def dies(*given: object, **options: object) -> object:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise KeyboardInterrupt
        return put(*given, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(engine.store, "put", dies)
    with pytest.raises(KeyboardInterrupt):
        engine.index()
    assert len(rows(engine)) == 2
    assert engine.index().added == ["inbox.csv"]
    assert len(rows(engine)) == 4


def test_a_table_is_found_once_by_its_name(engine: Engine) -> None:
    """And a thousand rows of it do not crowd other files out."""
    engine.index()
    found = engine.search("inbox", sources=["filenames"])
    assert [hit.id for hit in found] == ["mail:inbox.csv"]


def test_a_store_of_before_is_read_anew(engine: Engine, folder: Path) -> None:
    engine.index()
    engine.store.delete(["mail:inbox.csv#<1@x>"])
    engine.store.notes["groups of mail"] = "((), ())"  # as another version left it
    assert len(rows(engine)) == 3
    report = engine.index()
    assert report.rows == 3 and len(rows(engine)) == 4
    assert not engine.index().rows


def test_rows_of_a_sheet_are_cited_by_sheet_and_row(folder: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    book.active.title = "Stock"
    for row in (["item", "unit"], ["rope", "m"], ["anchor", "piece"]):
        book.active.append(row)
    book.save(buffer := io.BytesIO())
    (folder / "shed.xlsx").write_bytes(buffer.getvalue())
    with clew.open(folder, embedder=HashingEmbedder()) as engine:
        engine.index()
        (hit,) = engine.search("anchor", mode="keyword")
        assert (hit.id, hit.path) == ("mail:shed.xlsx#Stock!3", "shed.xlsx")
        assert hit.location == "Stock row 3" and hit.metadata["unit"] == "piece"
        assert hit.to_dict()["location"] == "Stock row 3"


def test_a_long_row_has_passages_and_all_of_them_its_line(engine: Engine, folder: Path) -> None:
    words = " ".join(f"word{i} filler" for i in range(500))
    write(folder / "inbox.csv", f"<9@x>,2026-01-05,ada@x,Long,{words}")
    engine.index()
    first, last = (engine.search(word, mode="keyword")[0] for word in ("word1", "word499"))
    assert first.id == last.id == "mail:inbox.csv#<9@x>"
    assert first.chunk != last.chunk and first.lines == last.lines == (2, 2)
    passage = engine.store.passages([Candidate(last.id, 0.0, last.chunk)])[0]
    assert passage is not None and passage.text == last.content


def test_a_row_whose_date_cannot_be_read_has_none(folder: Path) -> None:
    lines = ["note,date", "mooring,2026-01-05", "crane,some day", "soup,"]
    (folder / "inbox.csv").write_text("\n".join(lines), "utf-8")
    (folder / "plain.csv").write_text("note,place\nmooring,harbour\n", "utf-8")
    with clew.open(folder, embedder=HashingEmbedder()) as engine:
        engine.index()
        mooring, plain = "mail:inbox.csv#1", "mail:plain.csv#1"
        files = {"mail:inbox.csv", "mail:plain.csv"}
        for field in ("", "created_"):
            after = Filter(**{f"{field}after": "2026-01-01"})  # type: ignore[arg-type]
            before = Filter(**{f"{field}before": "2026-02-01"})  # type: ignore[arg-type]
            assert ids(engine, filter=after) - files == {mooring, plain}
            assert ids(engine, filter=before) == {mooring}
        (crane,) = engine.search("crane", mode="keyword")
        assert crane.metadata["updated_at"] is None
        record = engine.get(crane.id)
        assert record is not None and not Filter(before="2030-01-01").allows(record)


def test_keys_that_a_store_cannot_tell_apart_lose_no_row(folder: Path) -> None:
    source = '{"id": "\\ud800", "note": "crane"}\n{"id": "\\ud801", "note": "soup"}\n'
    (folder / "odd.jsonl").write_text(source, "utf-8")
    with clew.open(folder, embedder=HashingEmbedder()) as engine:
        engine.index()
        assert {"mail:odd.jsonl#1", "mail:odd.jsonl#2"} <= rows(engine)


def test_a_sheet_whose_table_begins_further_in_has_its_header(folder: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    book.active.title = "Stock"
    for number, row in enumerate((["item", "unit"], ["rope", "m"], ["anchor", "piece"]), start=5):
        for column, value in enumerate(row, start=3):
            book.active.cell(number, column, value)
    book.save(buffer := io.BytesIO())
    (folder / "shed.xlsx").write_bytes(buffer.getvalue())
    with clew.open(folder, embedder=HashingEmbedder()) as engine:
        engine.index()
        (hit,) = engine.search("anchor", mode="keyword")
        assert (hit.location, hit.metadata["unit"]) == ("Stock row 7", "piece")
