"""Roots, files, generation, coverage, figures, examination, rebuilding and closing."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from clew.errors import StoreError
from clew.filter import Filter
from clew.protocols import Store
from clew.types import Entry, FileState
from entries import MODEL, chunk_numbers, entry, found, ill, near, unit_rows

OTHER = "other@1"

# ---------------------------------------------------------------------- roots and files


def test_roots_are_kept_replaced_and_removed(open_store: Callable[[], Store]) -> None:
    store = open_store()
    assert store.files.roots() == {}
    store.files.set_root("notes", ".")
    store.files.set_root("code", "/somewhere/else")
    store.files.set_root("notes", "../moved")
    assert open_store().files.roots() == {"notes": "../moved", "code": "/somewhere/else"}
    store.files.remove_root("notes")
    store.files.remove_root("never there")
    assert open_store().files.roots() == {"code": "/somewhere/else"}


def state(number: int) -> FileState:
    return FileState(size=number, mtime_ns=2**62 + number, digest=f"d{number}", indexed_ns=number)


def with_file(id: str, path: str, number: int, *, collection: str = "notes") -> Entry:
    plain = entry(id, f"zebra {number}", path=path, collection=collection)
    return Entry(plain.record, plain.chunks, file=state(number))


def test_file_states_are_written_with_their_records(store: Store) -> None:
    store.put([with_file("notes:a.md", "a.md", 1), with_file("notes:b.md", "b.md", 2)])
    store.put([with_file("code:a.md", "a.md", 3, collection="code")])
    assert store.files.states("notes") == {"a.md": state(1), "b.md": state(2)}
    assert store.files.states("code") == {"a.md": state(3)}
    assert store.files.states("none such") == {}
    assert store.files.states("notes", ["b.md", "c.md"]) == {"b.md": state(2)}
    assert store.files.states("notes", []) == store.files.states("none such", ["a.md"]) == {}
    store.put([with_file("notes:a.md", "a.md", 4)])
    assert store.files.states("notes") == {"a.md": state(4), "b.md": state(2)}


def test_a_file_that_was_touched_but_not_changed_gets_its_new_state(store: Store) -> None:
    store.put([with_file("notes:a.md", "a.md", 1)])
    touched = FileState(size=1, mtime_ns=99, digest="d1", indexed_ns=99)
    plain = entry("notes:a.md", "zebra 1", path="a.md", collection="notes")
    assert store.put([Entry(plain.record, plain.chunks, file=touched)]) == ["unchanged"]
    assert store.files.states("notes") == {"a.md": touched}


def test_file_states_can_be_noted_without_a_record(store: Store) -> None:
    store.put([with_file("notes:a.md", "a.md", 1)])
    store.files.set_states("notes", {"a.md": state(5), "empty.md": state(6)})
    assert store.files.states("notes") == {"a.md": state(5), "empty.md": state(6)}


def test_a_deleted_record_takes_its_file_state_along(store: Store) -> None:
    store.put([with_file("notes:a.md", "a.md", 1), with_file("notes:b.md", "b.md", 2)])
    store.put([with_file("code:a.md", "a.md", 3, collection="code")])
    store.delete(["notes:a.md"])
    assert store.files.states("notes") == {"b.md": state(2)}
    assert store.files.states("code") == {"a.md": state(3)}


def test_a_deleted_row_leaves_its_table_to_be_read_again(store: Store) -> None:
    row = entry("notes:a.csv#7", "zebra", path="a.csv", collection="notes")
    store.put([with_file("notes:a.csv", "a.csv", 1), row])
    store.delete(["notes:a.csv#7"])
    (left,) = store.files.states("notes").values()
    assert (left.size, left.digest, left.indexed_ns) == (1, "", 0)
    store.put([row])
    store.delete(["notes:a.csv#7", "notes:a.csv"])
    assert store.files.states("notes") == {}


def test_a_removed_root_takes_its_file_states_along(store: Store) -> None:
    store.files.set_root("notes", ".")
    store.put([with_file("notes:a.md", "a.md", 1)])
    store.put([with_file("code:a.md", "a.md", 3, collection="code")])
    store.files.remove_root("notes")
    assert store.files.states("notes") == {}
    assert store.files.states("code") == {"a.md": state(3)}


def test_notes_are_kept_replaced_and_listed(open_store: Callable[[], Store]) -> None:
    store = open_store()
    assert (store.notes.get("a"), dict(store.notes)) == (None, {})
    store.notes["a"] = "1"
    store.notes["b:c"] = "x\n\0 京"
    store.notes["a"] = "2"
    assert dict(open_store().notes) == {"a": "2", "b:c": "x\n\0 京"}
    assert open_store().notes.get("b:c") == "x\n\0 京"


# ---------------------------------------------------------------------- generation


def test_the_generation_grows_with_every_write_and_with_nothing_else(
    open_store: Callable[[], Store],
) -> None:
    store, other = open_store(), open_store()
    seen = [store.changes.generation()]

    def grew() -> bool:
        seen.append(store.changes.generation())
        assert other.changes.generation() == seen[-1]
        return seen[-1] > seen[-2]

    store.put([entry("a", "zebra"), entry("b", "walrus")])
    assert grew()
    other.put([entry("a", "heron")])
    assert grew()
    store.vectors.set(chunk_numbers(store, "a"), unit_rows(1), model=MODEL)
    assert grew()
    store.rename("b", entry("c", "walrus", path="c.md"))
    assert grew()
    store.delete(["c"])
    assert grew()

    found(store, "heron", tags="x")
    near(store, unit_rows(1)[0])
    store.get(["a"])
    store.select(Filter(), limit=3)
    store.delete(["nobody"])
    store.put([entry("a", "heron")])
    store.indexes.refresh(optimise=True)
    store.indexes.rebuild()
    store.upkeep.vacuum()
    store.stats(model=MODEL)
    assert list(store.upkeep.check())
    assert not grew()


# ---------------------------------------------------------------------- coverage and figures


def test_coverage_is_the_share_of_chunks_with_a_vector_at_once_after_a_write(
    open_store: Callable[[], Store],
) -> None:
    store = open_store()
    assert store.indexes.coverage(MODEL) == 0.0
    store.put([entry("a", ["zebra", "walrus"]), entry("b", ["heron", "otter"])])
    assert store.indexes.coverage(MODEL) == 0.0
    waiting = store.vectors.pending(MODEL)
    store.vectors.set(waiting[:1], unit_rows(1), model=MODEL)
    assert store.indexes.coverage(MODEL) == 0.25
    store.vectors.set(waiting[1:], unit_rows(3), model=MODEL)
    assert store.indexes.coverage(MODEL) == open_store().indexes.coverage(MODEL) == 1.0
    assert store.indexes.coverage(OTHER) == 0.0
    store.put([entry("c", ["lynx", "owl", "newt", "eel"])])
    assert store.indexes.coverage(MODEL) == 0.5
    store.delete(["c"])
    assert store.indexes.coverage(MODEL) == 1.0


def test_stats_count_what_is_there(store: Store) -> None:
    store.put(
        [
            entry("a", ["zebra", "walrus"], vectors=[[1, 0], [0, 1]], tags=("t", "u")),
            entry("b", "heron", vectors=[[1, 0]], collection="notes", type="markdown", tags=("t",)),
        ],
        model=MODEL,
    )
    store.put([entry("c", "otter", vectors=[[1, 0, 0]], links=("a", "b"))], model=OTHER)
    figures = store.stats(model=MODEL)
    assert (figures["records"], figures["chunks"]) == (3, 4)
    assert (figures["tags"], figures["links"]) == (2, 2)
    assert figures["collections"] == {"default": 2, "notes": 1}
    assert figures["types"] == {"markdown": 1, "text": 2}
    assert figures["models"] == {MODEL: 3, OTHER: 1}
    assert figures["generation"] == store.changes.generation()
    assert figures["embedded"] == 0.75
    assert figures["vectors"]["rows"] == 3
    assert figures["behind"] == store.indexes.behind == 0
    assert sum(figures["bytes"].values()) > 0


def test_stats_are_about_the_model_asked_for(store: Store) -> None:
    store.put([entry("a", "zebra", vectors=[[1, 0]])], model=MODEL)
    assert near(store, [1, 0]) == ["a"]
    figures = store.stats(model=OTHER)
    assert (figures["embedded"], figures["vectors"]["rows"]) == (0.0, 0)
    figures = store.stats(model=MODEL)
    assert (figures["embedded"], figures["vectors"]["rows"]) == (1.0, 1)


def test_stats_follow_deletions(store: Store) -> None:
    store.put([entry(n, "zebra", vectors=[[1, 0]], tags=(n,)) for n in "abc"], model=MODEL)
    assert store.stats(model=MODEL)["vectors"]["rows"] == 3
    store.delete(["a", "b"])
    figures = store.stats(model=MODEL)
    assert (figures["records"], figures["chunks"], figures["tags"]) == (1, 1, 1)
    assert (figures["models"], figures["vectors"]["rows"]) == ({MODEL: 1}, 1)


def test_prepare_gives_the_dimension_of_a_model(store: Store) -> None:
    assert store.indexes.prepare(MODEL) == 0
    store.put([entry("a", "zebra", vectors=[[1, 0, 0]])], model=MODEL)
    assert store.indexes.prepare(MODEL) == 3
    store.delete(["a"])
    assert store.indexes.prepare(MODEL) == 0


def test_a_model_whose_vectors_all_went_may_come_back_with_another_dimension(store: Store) -> None:
    store.put([entry("a", "zebra", vectors=[[1, 0]])], model=MODEL)
    assert near(store, [1, 0]) == ["a"]
    store.delete(["a"])
    store.put([entry("b", "zebra", vectors=[[0, 0, 1]])], model=MODEL)
    assert near(store, [0, 0, 1]) == ["b"]


# ---------------------------------------------------------------------- upkeep


def some_life(store: Store) -> None:
    store.put(
        [entry(f"r{i}", f"zebra {i}", vectors=unit_rows(1, seed=i)) for i in range(40)], model=MODEL
    )
    found(store, "zebra")
    store.put(
        [entry(f"r{i}", f"walrus {i}", vectors=unit_rows(1, seed=99 + i)) for i in range(9)],
        model=MODEL,
    )
    near(store, unit_rows(1)[0])
    store.delete(["r9", "r10"])
    store.rename("r11", entry("renamed", "zebra 11"))


def answers(store: Store) -> list[list[str]]:
    return [
        found(store, "zebra"),
        found(store, "walrus"),
        found(store, '"walrus 3"'),
        near(store, unit_rows(1, seed=3)[0]),
        near(store, unit_rows(1, seed=3)[0], query="zebra -walrus", ids=["r1", "r20", "renamed"]),
    ]


def test_a_store_in_use_is_well(store: Store) -> None:
    some_life(store)
    answers(store)
    assert list(store.upkeep.check())  # it does look at something
    assert ill(store) == []


def test_rebuilding_changes_no_answer(store: Store) -> None:
    some_life(store)
    before = answers(store)
    assert [len(names) for names in before] == [29, 9, 1, 38, 2]
    told: list[str] = []
    store.indexes.rebuild(progress=lambda stage, done, total: told.append(stage))
    assert answers(store) == before
    assert ill(store) == []
    assert told


def test_rebuilding_in_one_place_is_noticed_in_another(open_store: Callable[[], Store]) -> None:
    store, other = open_store(), open_store()
    some_life(store)
    before = answers(other)
    store.indexes.rebuild()
    assert answers(other) == before
    other.put([entry("new", "zebra", vectors=unit_rows(1))], model=MODEL)
    assert "new" in found(store, "zebra")
    assert "new" in near(store, unit_rows(1)[0])


def test_refresh_and_vacuum_change_no_answer(store: Store) -> None:
    some_life(store)
    before = answers(store)
    store.indexes.refresh()
    store.indexes.refresh(optimise=True)
    assert answers(store) == before
    store.upkeep.vacuum()
    assert answers(store) == before
    store.put([entry("later", "otter")])
    assert found(store, "otter") == ["later"]


def test_a_closed_store_says_so(store: Store) -> None:
    store.put([entry("a", "zebra", vectors=[[1, 0]])], model=MODEL)
    assert found(store, "zebra") == ["a"]
    store.close()
    store.close()  # twice does no harm
    for use in (
        lambda: store.put([entry("b", "walrus")]),
        lambda: store.get(["a"]),
        lambda: found(store, "zebra"),
        lambda: near(store, [1, 0]),
        lambda: store.changes.generation(),
        lambda: store.delete(["a"]),
        lambda: store.upkeep.vacuum(),
        lambda: list(store.upkeep.check()),
    ):
        with pytest.raises(StoreError, match="closed"):
            use()


# ---------------------------------------------------------------------- what was written since


def test_touched_are_the_records_that_were_written_since(store: Store) -> None:
    store.put([entry(name, f"zebra {name}") for name in ("a", "b", "c")])
    place = store.changes.edition()
    assert store.changes.touched(place) == []
    store.put([entry("b", "zebra crossing"), entry("d", "zebra d")])
    assert store.changes.touched(place) == ["b", "d"]
    later = store.changes.edition()
    store.vectors.set(chunk_numbers(store, "a"), unit_rows(1), model=MODEL)
    assert store.changes.touched(later) == ["a"] and store.changes.touched(place) == ["a", "b", "d"]
    store.delete(["d"])
    assert store.changes.touched(place) == ["a", "b"]


def test_a_record_that_is_renamed_is_touched_by_its_new_name(store: Store) -> None:
    store.put([entry("notes:old.md", "zebra", path="old.md", collection="notes")])
    place = store.changes.edition()
    store.rename("notes:old.md", entry("notes:new.md", "zebra", path="new.md", collection="notes"))
    assert store.changes.touched(place) == ["notes:new.md"]


def test_an_edition_of_another_store_is_not_known(
    store: Store, fresh: Callable[[], Callable[[], Store]]
) -> None:
    store.put([entry("a", "zebra")])
    other = fresh()()
    other.put([entry("a", "zebra")])
    assert store.changes.touched(other.changes.edition()) is None
    number, token = store.changes.edition()
    assert store.changes.touched((number + 1, token)) is None
    other.close()
