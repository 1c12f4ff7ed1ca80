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
from clew.storage import locate
from clew.storage import migrate as migrating
from clew.storage.migrate import NOTE, NOTES, Homes, migrate, pages, parts_of
from clew.store import open_store
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
    store.vectors.set(chunk_numbers(store, "half")[:1], vector("half")[None], model=MODEL)
    first, second = chunk_numbers(store, "mixed")
    store.vectors.set([first], vector("one")[None], model=MODEL)
    store.vectors.set([second], vector("two")[None][:, :3], model="other@1")
    file = FileState(size=3, mtime_ns=2**62, digest="d", indexed_ns=4)
    plain = entry("notes:a/b.md", "lynx", path="a/b.md", collection="notes", domain="work")
    store.put([Entry(plain.record, plain.chunks, file=file)])
    store.files.set_states("notes", {"empty.md": file})
    store.files.set_root("notes", "../notes")
    store.notes["groups of notes"] = "fingerprint"
    store.put([entry("r000", "zebra changed", vectors=[vector("r000", 1)])], model=MODEL)
    store.lifecycle.end(["r001"], at=9.0, reason="superseded", successor="r002")
    store.lifecycle.count_accesses({"r002": 3}, at=7.0)
    store.lifecycle.rate("r003", useful=2)
    store.lifecycle.set({"r004": Life(1, 2.0, None, 0, 1, "", None)})
    return store


def everything(store: Store) -> dict[str, Any]:
    """All of it, as far as it can be told from outside."""
    wholes = [whole for page in pages(store, size=7) for whole in page]
    return {
        "records": {whole.record.id: parts_of(whole) for whole in wholes},
        "roots": store.files.roots(),
        "files": store.files.states("notes"),
        "notes": {key: value for key, value in dict(store.notes).items() if key not in NOTES},
        "tally": store.lifecycle.tally(),
    }


@pytest.mark.parametrize(
    ("first", "second"),
    [("embedded", "duckdb"), ("duckdb", "embedded"), ("duckdb", "duckdb")],
)
def test_there_and_back_again_is_the_same(opened: Opener, first: str, second: str) -> None:
    source = lived(opened(first, "source"))
    before, edition = everything(source), source.changes.edition()
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
    assert source.changes.edition() == edition
    for store in (there, back):
        assert found(store, "zebra") == found(source, "zebra")
        assert near(store, vector("r007")) == near(source, vector("r007"))
        assert found(store, "zebra", active=True, tags="odd") == found(
            source, "zebra", active=True, tags="odd"
        )
        assert ill(store) == []


def test_a_finished_copy_is_only_compared_again(opened: Opener) -> None:
    source, target = lived(opened("embedded", "source")), opened("duckdb", "target")
    assert not migrate(source, target, origin="test").already
    generation = target.changes.generation()
    again = migrate(source, target, origin="test")
    assert (again.well, again.already, again.resumed) == (True, True, False)
    assert target.changes.generation() == generation


def forget(store: Store) -> None:
    store.delete(["r005"])


def change(store: Store) -> None:
    store.put([entry("r006", "newt", vectors=[vector("newt")])], model=MODEL)


def end(store: Store) -> None:
    store.lifecycle.end(["r007"], at=3.0, reason="forgotten")


def use(store: Store) -> None:
    store.lifecycle.count_accesses({"r008": 1}, at=4.0)


@pytest.mark.parametrize("work", [forget, change, end, use])
def test_what_a_finished_copy_made_has_its_own_life_from_then_on(
    opened: Opener, work: Callable[[Store], None]
) -> None:
    source, target = lived(opened("embedded", "source")), opened("duckdb", "target")
    assert migrate(source, target, origin="test").well
    work(target)
    before = everything(target)
    with pytest.raises(InputError, match=r"its own now.*--merge"):
        migrate(source, target, origin="test")
    assert everything(target) == before
    assert migrate(source, target, origin="test", merge=True).well
    assert everything(target) == everything(source)


def test_what_is_new_in_the_source_of_a_finished_copy_comes_with_merge(opened: Opener) -> None:
    source, target = lived(opened("embedded", "source")), opened("duckdb", "target")
    assert migrate(source, target, origin="test").well
    source.put([entry("new", "newt")])
    with pytest.raises(InputError, match="--merge"):
        migrate(source, target, origin="test")
    assert migrate(source, target, origin="test", merge=True).well
    assert found(target, "newt") == ["new"]


def test_a_target_with_records_of_its_own_is_refused_and_left_as_it_is(opened: Opener) -> None:
    source, target = lived(opened("embedded", "source")), opened("duckdb", "target")
    target.put([entry("theirs", "newt")])
    before = target.changes.edition()
    with pytest.raises(InputError, match=r"1 record already.*--merge"):
        migrate(source, target, origin="test")
    assert target.changes.edition() == before


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
        target.lifecycle.set({"r009": Life(accesses=9)})
        target.files.set_root("notes", "elsewhere")
        other.notes["late"] = "x"

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
    target.notes[NOTE] = json.dumps(state)
    assert migrate(source, target, origin="test").well


def test_what_was_killed_in_the_middle_goes_on_from_there(
    script: Callable[..., Any], tmp_path: Path
) -> None:
    source_url, target_url = (KINDS[kind].format(kind) for kind in ("embedded", "duckdb"))
    with closing(open_store(source_url, base=tmp_path)) as source:  # type: ignore[type-var]
        source.put(
            [record(f"m{i:04}") for i in range(2_000)],
            model=MODEL,
        )
        before = everything(source)
    process = script("mover.py", tmp_path, source_url, target_url)
    lines = [process.stdout.readline().split() for _ in range(6)]
    process.kill()
    process.communicate(timeout=60)
    assert lines[-1][0] == "copying" and int(lines[-1][1]) < 2_000
    with (
        closing(open_store(source_url, base=tmp_path)) as source,  # type: ignore[type-var]
        closing(open_store(target_url, base=tmp_path)) as target,  # type: ignore[type-var]
    ):
        there = target.count(EVERYTHING)
        assert int(lines[-1][1]) <= there < 2_000
        told: list[int] = []
        report = migrate(
            source,
            target,
            origin=locate(source_url, tmp_path).url,
            progress=lambda stage, done, _: told.append(done) if stage == "copying" else None,
        )
        assert report.well and report.resumed
        assert told[0] > there  # what was there is not copied again
        assert everything(target) == before


class StoppedError(Exception):
    """Stands for whatever ends a run in the middle."""


def interrupted(monkeypatch: pytest.MonkeyPatch, source: Store, target: Store, **how: Any) -> None:
    """A run that ends after twenty records."""

    def stop(stage: str, done: int, total: int) -> None:
        if done >= 20:
            raise StoppedError

    with monkeypatch.context() as patch:
        patch.setattr(migrating, "BATCH", 10)
        with pytest.raises(StoppedError):
            migrate(source, target, origin="test", progress=stop, **how)


@pytest.mark.parametrize("kind", ["embedded", "duckdb"])
def test_what_the_source_has_forgotten_since_a_copy_was_interrupted_is_taken_out_again(
    opened: Opener, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    source, target = lived(opened("embedded", "source")), opened(kind, "target")
    interrupted(monkeypatch, source, target)
    first = next(iter(target.select(EVERYTHING, limit=1))).id
    source.delete([first])
    report = migrate(source, target, origin="test")
    assert report.well and report.resumed, report
    assert everything(target) == everything(source)


def test_a_merge_that_goes_on_takes_out_only_what_it_brought(
    opened: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = lived(opened("embedded", "source")), opened("duckdb", "target")
    target.put([entry("a theirs", "newt"), entry("r003", "eel")])
    interrupted(monkeypatch, source, target, merge=True)
    source.delete(["r002", "r003"])
    with pytest.raises(InputError, match="say --merge again"):
        migrate(source, target, origin="test")
    assert migrate(source, target, origin="test", merge=True).well
    assert [r.id for r in target.get(["a theirs", "r002", "r003"])] == ["a theirs", "r003"]


def test_a_target_that_was_written_to_since_the_interruption_is_not_written_over(
    opened: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = lived(opened("embedded", "source")), opened("duckdb", "target")
    interrupted(monkeypatch, source, target)
    target.put([entry("theirs", "newt"), entry("r000", "eel")])
    with pytest.raises(InputError, match="written to since the copy into it was interrupted"):
        migrate(source, target, origin="test")
    assert found(target, "eel") == ["r000"]
    source.delete(["r001"])
    assert migrate(source, target, origin="test", merge=True).well
    assert found(target, "newt") == ["theirs"]


def test_an_access_during_a_copy_does_not_keep_it_from_ever_being_finished(
    opened: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = lived(opened("embedded", "source")), opened("duckdb", "target")
    interrupted(monkeypatch, source, target)
    source.lifecycle.count_accesses({r.id: 1 for r in source.select(EVERYTHING, limit=5)}, at=9.0)
    assert not migrate(source, target, origin="test").well
    assert migrate(source, target, origin="test").well


def test_merged_over_one_that_had_ended_a_record_is_active_with_the_sources_life(
    opened: Opener,
) -> None:
    source, target = opened("embedded", "source"), opened("duckdb", "target")
    source.put([entry("a", "zebra")])
    target.put([entry("a", "zebra")])
    target.lifecycle.end(["a"], at=5.0, reason="forgotten")
    assert migrate(source, target, origin="test", merge=True).well
    assert (target.get(["a"])[0].ended_at, target.lifecycle.get(["a"])) == (None, {"a": Life()})


def test_indexed_folders_are_told_from_where_the_target_is(opened: Opener, tmp_path: Path) -> None:
    source, target = opened("embedded", "source"), opened("duckdb", "target")
    source.files.set_root("own", ".")
    source.files.set_root("beside", "../other")
    source.files.set_root("far", "/far")
    homes = Homes(tmp_path / "here", tmp_path / "other")
    assert migrate(source, target, origin="test", homes=homes).well
    assert target.files.roots() == {"own": str(tmp_path / "here"), "beside": ".", "far": "/far"}


def test_two_folders_of_one_name_are_not_mixed(opened: Opener, tmp_path: Path) -> None:
    source, target = opened("embedded", "source"), opened("duckdb", "target")
    source.files.set_root("notes", ".")
    target.files.set_root("notes", ".")
    homes = Homes(tmp_path / "a" / "notes", tmp_path / "b" / "notes")
    with pytest.raises(InputError, match=r"'notes'.*a/notes.*b/notes.*clew index"):
        migrate(source, target, origin="test", merge=True, homes=homes)
    same = Homes(tmp_path / "a" / "notes", tmp_path / "a" / "notes")
    assert migrate(source, target, origin="test", merge=True, homes=same).well
