"""Disks that are read-only or full."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator

import pytest
from samples import SEAL, Lived, answers, record, seal, vector, word

from clew.errors import StoreError
from clew.filter import Filter
from clew.index import vectors
from clew.store import EmbeddedStore
from disks import Disk
from entries import MODEL, chunk_numbers, entry, found, ill, near, unit_rows

Script = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture(autouse=True)
def _small_tail(small_tail: None) -> None: ...


@pytest.fixture
def opened_on(disk: Disk) -> Iterator[Callable[[], EmbeddedStore]]:
    stores: list[EmbeddedStore] = []

    def open_store() -> EmbeddedStore:
        stores.append(EmbeddedStore(disk.place / "store", ivf_threshold=SEAL["threshold"]))
        return stores[-1]

    yield open_store
    for store in stores:
        store.close()


Opened = Callable[[], EmbeddedStore]

# ---------------------------------------------------------------------- read-only


def test_a_store_on_a_read_only_disk_is_searched_as_ever(
    disk: Disk, opened_on: Opened, lived: Lived
) -> None:
    shutil.copytree(lived.folder, disk.place / "store")
    disk.read_only()
    store = opened_on()
    assert answers(store) == lived.answers
    assert (store.indexes.behind, store.indexes.behind_because) == (0, "")
    assert ill(store) == []
    assert store.stats(model=MODEL)["vectors"]["stage"] == "inverted lists"
    assert store.get(["r100"])[0].tags == ("even",)
    assert store.indexes.coverage(MODEL) == 1.0
    store.indexes.refresh()
    store.indexes.refresh(optimise=True)


def test_writing_to_a_read_only_disk_says_so(disk: Disk, opened_on: Opened, lived: Lived) -> None:
    shutil.copytree(lived.folder, disk.place / "store")
    disk.read_only()
    store = opened_on()
    number = chunk_numbers(store, "r100")
    for write in (
        lambda: store.put([record("new")], model=MODEL),
        lambda: store.delete(["r100"]),
        lambda: store.rename("r100", record("new")),
        lambda: store.vectors.set(number, unit_rows(1), model=MODEL),
        lambda: store.files.set_root("notes", "."),
        lambda: store.upkeep.vacuum(),
        lambda: store.indexes.rebuild(),
    ):
        with pytest.raises(StoreError, match="read-only"):
            write()
    assert answers(store) == lived.answers


def test_no_store_is_made_on_a_read_only_disk(disk: Disk, opened_on: Opened) -> None:
    disk.read_only()
    with pytest.raises(StoreError, match=r"cannot make|read-only|may you write"):
        opened_on()


def test_an_index_that_a_read_only_disk_keeps_behind_is_not_served_as_if_it_were_whole(
    disk: Disk, opened_on: Opened
) -> None:
    store = opened_on()
    store.put([record("old")], model=MODEL)
    assert found(store, "zebra") == near(store, vector("old")) == ["old"]
    store.put([record(f"new{i}") for i in range(1000)], model=MODEL)  # too many for the memory
    store.close()
    disk.read_only()
    store = opened_on()
    assert len(store.select(Filter(), limit=2000)) == 1001
    assert found(store, "zebra") == near(store, vector("old")) == ["old"]
    assert store.indexes.behind > 0
    assert "read-only" in store.indexes.behind_because
    store.close()
    disk.writable()
    store = opened_on()
    assert len(found(store, "zebra", limit=2000)) == 1001
    assert (store.indexes.behind, store.indexes.behind_because) == (0, "")


def test_a_few_writes_that_no_index_has_are_found_on_a_read_only_disk(
    disk: Disk, opened_on: Opened
) -> None:
    store = opened_on()
    store.put([record("old")], model=MODEL)
    assert found(store, "zebra") == near(store, vector("old")) == ["old"]
    store.put([record("new")], model=MODEL)
    store.close()
    disk.read_only()
    store = opened_on()
    assert found(store, "zebra") == ["new", "old"]
    assert near(store, vector("new"), limit=1) == ["new"]
    assert (store.indexes.behind, store.indexes.behind_because) == (0, "")


def test_indexes_of_another_version_are_said_to_be_what_is_in_the_way(
    disk: Disk, opened_on: Opened, lived: Lived
) -> None:
    shutil.copytree(lived.folder, disk.place / "store")
    (state,) = disk.place.glob("store/derived/vectors-*/state.json")
    state.write_text(state.read_text().replace('"format": ', '"format": 9'))
    disk.read_only()
    store = opened_on()
    assert near(store, vector("r100")) == []
    assert "another version (then copy it)" in store.indexes.behind_because


def test_an_index_missing_on_a_read_only_disk_does_not_mean_that_nothing_was_found(
    disk: Disk, opened_on: Opened, lived: Lived
) -> None:
    shutil.copytree(lived.folder, disk.place / "store")
    shutil.rmtree(disk.place / "store" / "derived")
    disk.read_only()
    store = opened_on()
    for leg in (lambda: found(store, "zebra"), lambda: near(store, vector("r100"))):
        try:
            assert leg() == []
        except StoreError:
            continue
        assert store.indexes.behind > 0
        assert "read-only" in store.indexes.behind_because


def test_what_a_killed_writer_acknowledged_is_there_on_a_disk_made_read_only_since(
    disk: Disk, opened_on: Opened, script: Script
) -> None:
    """The newest writes are in SQLite's log beside the database, not yet in it."""
    process = script("writer.py", disk.place / "store", "w", "--rounds", 4)
    out, _ = process.communicate(timeout=60)  # it leaves without closing
    names = {line.split()[1] for line in out.splitlines() if line.startswith("put")}
    gone = {line.split()[1] for line in out.splitlines() if line.startswith("deleted")}
    assert (disk.place / "store" / "clew.db-wal").stat().st_size > 0
    disk.read_only()
    store = opened_on()
    assert {r.id for r in store.select(Filter(), limit=1000)} == names - gone
    assert set(found(store, "zebra")) == set(near(store, vector("x"))) == names - gone


# ---------------------------------------------------------------------- full


def test_a_disk_that_fills_up_while_putting_loses_nothing_acknowledged(
    disk: Disk, opened_on: Opened
) -> None:
    store = opened_on()
    text = "zebra " + "some more words " * 200
    acknowledged: list[str] = []
    disk.fill(leave=6_000_000)
    with pytest.raises(StoreError, match=r"full|space"):
        for number in range(10_000):
            names = [f"r{number:04}-{i:02}" for i in range(20)]
            store.put(
                [entry(name, text + name, vectors=[vector(name)]) for name in names], model=MODEL
            )
            acknowledged += names
    assert len(acknowledged) > 100
    assert [r.id for r in store.select(Filter(), limit=10_000)] == acknowledged
    disk.empty()
    assert sorted(found(store, "zebra", limit=10_000)) == acknowledged
    assert sorted(near(store, vector("x"), limit=10_000)) == acknowledged
    store.put([record("later")], model=MODEL)
    assert found(store, word("later")) == near(store, vector("later"), limit=1) == ["later"]
    assert ill(store) == []
    store.close()
    store = opened_on()
    assert len(found(store, "zebra", limit=10_000)) == len(acknowledged) + 1
    assert ill(store) == []


def test_a_disk_too_full_for_the_indexes_is_searched_as_far_as_they_go(
    disk: Disk, opened_on: Opened
) -> None:
    store = opened_on()
    store.put([record(f"a{i:03}") for i in range(50)], model=MODEL)
    assert len(found(store, "zebra")) == len(near(store, vector("x"))) == 50
    store.put([record(f"b{i:03}") for i in range(30)], model=MODEL)
    disk.fill()
    with pytest.raises(StoreError, match="full") as caught:
        store.indexes.refresh()
    assert len(found(store, "zebra")) == len(near(store, vector("x"))) == 80  # from memory
    assert store.indexes.behind == 0
    disk.empty()
    store.put([record(f"b{i:03}") for i in range(30, 900)], model=MODEL)
    disk.fill()
    with pytest.raises(StoreError, match="full") as caught:
        store.indexes.refresh()
    assert len(found(store, "zebra")) == len(near(store, vector("x"))) == 80
    assert store.indexes.behind > 0
    assert "full" in store.indexes.behind_because
    disk.empty()
    # Whoever keeps the error (a notebook does) keeps nothing locked by it.
    assert caught.value
    assert len(found(store, "zebra")) == len(near(store, vector("x"))) == 950
    assert (store.indexes.behind, store.indexes.behind_because) == (0, "")
    assert found(store, word("b007")) == near(store, vector("b007"), limit=1) == ["b007"]
    assert ill(store) == []
    store.close()
    assert len(found(opened_on(), "zebra")) == 950


@pytest.mark.parametrize("leave", [0, 20_000, 60_000, 120_000, 250_000, 400_000])
def test_a_disk_that_fills_up_anywhere_in_a_refresh_is_caught_up_with_later(
    disk: Disk, opened_on: Opened, leave: int
) -> None:
    """Somewhere between the first file of an index and its state."""
    store = opened_on()
    store.put([record(f"a{i:03}") for i in range(50)], model=MODEL)
    assert len(found(store, "zebra")) == len(near(store, vector("x"))) == 50
    store.put([record(f"a{i:03}", 1) for i in range(50)], model=MODEL)
    rows = unit_rows(4_000, 16)
    many = [
        entry(f"b{i:04}", f"zebra w{i} {'word ' * 9}", vectors=rows[i : i + 1])
        for i in range(4_000)
    ]
    store.put(many, model=MODEL)
    disk.fill(leave=leave)
    with pytest.raises(StoreError, match="full"):
        store.indexes.refresh()
    disk.empty()
    assert len(found(store, "zebra", limit=10_000)) == 4_050
    assert len(near(store, vector("x"), limit=10_000)) == 4_050
    assert found(store, word("a007")) == []
    assert found(store, word("a007", 1)) == near(store, vector("a007", 1), limit=1) == ["a007"]
    assert ill(store) == []


def test_a_disk_too_full_for_a_first_index_is_said_to_be_so(disk: Disk, opened_on: Opened) -> None:
    store = opened_on()
    store.put([record(f"a{i:03}") for i in range(50)], model=MODEL)
    disk.fill()
    with pytest.raises(StoreError, match="full"):
        found(store, "zebra")
    with pytest.raises(StoreError, match="full"):
        near(store, vector("a001"))
    disk.empty()
    assert len(found(store, "zebra")) == len(near(store, vector("x"))) == 50


def test_a_disk_too_full_for_inverted_lists_is_searched_without(
    disk: Disk, opened_on: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vectors, "TAIL_SHARE", 2.0)  # not yet
    store = opened_on()
    rows = unit_rows(5_000, 64)
    some = [entry(f"r{i:04}", "zebra", vectors=rows[i : i + 1]) for i in range(5_000)]
    store.put(some, model=MODEL)
    expected = near(store, rows[0], limit=10)
    found(store, "zebra")
    store.indexes.refresh(optimise=True)
    monkeypatch.setattr(vectors, "TAIL_SHARE", 0.05)
    disk.fill(leave=100_000)
    with pytest.raises(StoreError):
        store.indexes.refresh(optimise=True)
    assert near(store, rows[0], limit=10) == expected
    disk.empty()
    seal(store)
    assert near(store, rows[17], limit=1) == ["r0017"]
    assert len(list(disk.place.glob("store/derived/vectors-*/ivf-*"))) == 1
    assert ill(store) == []


def test_a_full_disk_does_not_keep_a_store_from_being_opened_and_searched(
    disk: Disk, opened_on: Opened, lived: Lived
) -> None:
    shutil.copytree(lived.folder, disk.place / "store")
    disk.fill(leave=100_000)  # SQLite needs a little beside the database
    store = opened_on()
    assert answers(store) == lived.answers
    store.close()
    disk.fill()
    try:
        store = opened_on()
    except StoreError as error:
        assert "full" in str(error) or "space" in str(error)  # or it opens, and then it works
    else:
        assert answers(store) == lived.answers
