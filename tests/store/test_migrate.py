"""One store copied into another: nothing lost, nothing mixed, nothing pretended."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
from samples import record, vector

from clew.errors import InputError
from clew.filter import EVERYTHING
from clew.protocols import Store
from clew.store import located, open_store
from clew.store.compare import pages, sums
from clew.store.migrate import NOTE, migrate
from clew.types import Entry, FileState, Life
from entries import MODEL, chunk_numbers, entry, found, ill, near

KINDS = {"embedded": "embedded:///{}.db", "duckdb": "duckdb:///{}.duckdb"}
Opener = Callable[[str, str], Store]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Opener]:
    """Opens the store of a kind and name; closes it in the end."""
    with ExitStack() as stack:

        def open_one(kind: str, name: str) -> Store:
            store = open_store(KINDS[kind].format(name), base=tmp_path)
            return stack.enter_context(closing(store))  # type: ignore[type-var]

        yield open_one


def lived(store: Store) -> Store:
    """Everything that a store can hold, in odd states as well."""
    rows = [record(f"r{i:03}", tags=("even", "odd")[i % 2 : i % 2 + 1]) for i in range(40)]
    store.put(rows, model=MODEL)
    store.put(
        [
            entry("two chunks", ["zebra one", "zebra two"], title="T", headings=["", "H › I"]),
            entry("half", ["walrus one", "walrus two"], links=("r001", "r000"), tags=("B", "#a")),
            entry("mixed", ["heron one", "heron two"], metadata={"n": 2**60, "l": [1, "x", None]}),
            entry("nul\0 and 京都", "otter\0 with 🦊", importance=0.25, created_at=5.0),
            Entry(entry("none", "no passages").record, ()),
        ]
    )
    store.set_vectors(chunk_numbers(store, "half")[:1], vector("half")[None], model=MODEL)
    first, second = chunk_numbers(store, "mixed")
    store.set_vectors([first], vector("one")[None], model=MODEL)
    store.set_vectors([second], vector("two")[None][:, :3], model="other@1")
    file = FileState(size=3, mtime_ns=2**62, digest="d", indexed_ns=4)
    plain = entry("notes:a/b.md", "lynx", path="a/b.md", collection="notes", domain="work")
    store.put([Entry(plain.record, plain.chunks, file=file)])
    store.set_files("notes", {"empty.md": file})
    store.set_root("notes", "../notes")
    store.set_note("groups of notes", "fingerprint")
    store.put([entry("r000", "zebra changed", vectors=[vector("r000", 1)])], model=MODEL)
    store.end(["r001"], at=9.0, reason="superseded", successor="r002")
    store.accessed({"r002": 3}, at=7.0)
    store.rated("r003", useful=2)
    store.set_lives({"r004": Life(1, 2.0, None, 0, 1, "", None)})
    return store


def everything(store: Store) -> dict[str, Any]:
    """All of it, as far as it can be told from outside."""
    wholes = [whole for page in pages(store, size=7) for whole in page]
    return {
        "records": {whole.record.id: sums(whole) for whole in wholes},
        "roots": store.roots(),
        "files": store.files("notes"),
        "notes": {key: value for key, value in store.notes().items() if key != NOTE},
        "tally": store.tally(),
    }


@pytest.mark.parametrize(
    ("first", "second"),
    [("embedded", "duckdb"), ("duckdb", "embedded"), ("duckdb", "duckdb")],
)
def test_there_and_back_again_is_the_same(opened: Opener, first: str, second: str) -> None:
    source = lived(opened(first, "source"))
    before, edition = everything(source), source.edition()
    there, back = opened(second, "there"), opened(first, "back")
    for origin, target in ((source, there), (there, back)):
        told: list[tuple[str, int, int]] = []
        report = migrate(
            origin, target, origin="test", progress=lambda *at, told=told: told.append(at)
        )
        assert (report.well, report.records, report.resumed) == (True, 46, False)
        assert (report.passages, report.vectors) == (48, 43)
        assert told[-1] == ("comparing", 46, 46)
        assert everything(target) == before
    assert source.edition() == edition
    for store in (there, back):
        assert found(store, "zebra") == found(source, "zebra")
        assert near(store, vector("r007")) == near(source, vector("r007"))
        assert found(store, "zebra", active=True, tags="odd") == found(
            source, "zebra", active=True, tags="odd"
        )
        assert ill(store) == []


def test_doing_it_twice_is_the_same_as_once_and_brings_what_is_new(opened: Opener) -> None:
    source, target = lived(opened("embedded", "source")), opened("duckdb", "target")
    assert migrate(source, target, origin="test").well
    generation = target.generation()
    again = migrate(source, target, origin="test")
    assert (again.well, again.resumed) == (True, False)
    assert target.generation() == generation  # all of it was there
    source.put([entry("new", "newt")])
    assert migrate(source, target, origin="test").well
    assert found(target, "newt") == ["new"]


def test_a_target_with_records_of_its_own_is_refused_and_left_as_it_is(opened: Opener) -> None:
    source, target = lived(opened("embedded", "source")), opened("duckdb", "target")
    target.put([entry("theirs", "newt")])
    before = target.edition()
    with pytest.raises(InputError, match=r"1 record already.*--merge"):
        migrate(source, target, origin="test")
    assert target.edition() == before


def test_with_merge_both_are_there_and_the_source_wins(opened: Opener) -> None:
    source, target = lived(opened("embedded", "source")), opened("duckdb", "target")
    target.put(
        [
            entry("theirs", "newt"),
            entry("r005", "eel", vectors=[vector("eel")]),
            entry("two chunks", ["zebra one", "zebra two"], vectors=[vector("a"), vector("b")]),
        ],
        model=MODEL,
    )
    report = migrate(source, target, origin="test", merge=True)
    assert report.well, report
    assert found(target, "newt") == ["theirs"]
    assert found(target, "eel") == []
    assert target.count(EVERYTHING) == 47


def test_what_differs_in_the_end_is_said(opened: Opener) -> None:
    source, target = lived(opened("embedded", "source")), opened("duckdb", "target")
    other = opened("embedded", "source")

    def meddle(stage: str, done: int, total: int) -> None:
        if stage == "comparing":
            return
        target.put([entry("r007", "changed", vectors=[vector("x")])], model=MODEL)
        target.delete(["r008"])
        target.put([entry("stray", "newt")])
        target.set_lives({"r009": Life(accesses=9)})
        target.set_root("notes", "elsewhere")
        other.set_note("late", "x")

    report = migrate(source, target, origin="test", progress=meddle)
    assert not report.well
    assert report.differences == {
        "r007": ["content", "metadata", "passages", "vectors"],
        "r008": ["missing"],
        "r009": ["life"],
    }
    assert report.unlike == 3
    assert report.extra == 0  # one is missing, one is too many: the number is what it should be
    assert report.rest == []  # roots and notes are written after the records


def test_a_source_that_was_written_to_meanwhile_is_copied_from_the_beginning(
    opened: Opener, script: Callable[..., Any], tmp_path: Path
) -> None:
    source, target = lived(opened("embedded", "source")), opened("duckdb", "target")
    state = {"from": "test", "edition": [1, 1], "after": "r030", "done": 30}
    target.set_note(NOTE, json.dumps(state))
    assert migrate(source, target, origin="test").well


def test_what_was_killed_in_the_middle_goes_on_from_there(
    script: Callable[..., Any], tmp_path: Path
) -> None:
    source_url, target_url = (KINDS[kind].format(kind) for kind in ("embedded", "duckdb"))
    with closing(open_store(source_url, base=tmp_path)) as source:  # type: ignore[type-var]
        source.put(
            [record(f"m{i:04}") for i in range(3_000)],
            model=MODEL,
        )
        before = everything(source)
    process = script("mover.py", tmp_path, source_url, target_url)
    lines = [process.stdout.readline().split() for _ in range(6)]
    process.kill()
    process.communicate(timeout=60)
    assert lines[-1][0] == "copying" and int(lines[-1][1]) < 3_000
    with (
        closing(open_store(source_url, base=tmp_path)) as source,  # type: ignore[type-var]
        closing(open_store(target_url, base=tmp_path)) as target,  # type: ignore[type-var]
    ):
        there = target.count(EVERYTHING)
        assert int(lines[-1][1]) <= there < 3_000
        told: list[int] = []
        report = migrate(
            source,
            target,
            origin=located(source_url, tmp_path).url,
            progress=lambda stage, done, _: told.append(done) if stage == "copying" else None,
        )
        assert report.well and report.resumed
        assert told[0] > there  # what was there is not copied again
        assert everything(target) == before
