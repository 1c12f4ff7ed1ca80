"""Records go in, come back whole, change in place and go away."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from clew.errors import InputError
from clew.filter import Filter
from clew.protocols import Store
from clew.types import Candidate, Chunk, Entry, FileState, Record
from entries import MODEL, chunk_numbers, entry, found, near, terms


def test_a_record_comes_back_as_it_was_put(store: Store) -> None:
    record = Record(
        id="notes:a.md",
        content="First line\nzweite Zeile 京都 🦊",
        title="A title",
        path="a.md",
        collection="notes",
        type="markdown",
        domain="work",
        tags=("risk", "trading"),
        links=("b.md", "c.md"),
        importance=0.75,
        created_at=1_000.5,
        updated_at=2_000.25,
        metadata={"n": 3, "f": 0.5, "s": "x", "none": None, "yes": True, "l": [1, "b"], "d": {}},
    )
    assert store.put([Entry(record, (Chunk(0, len(record.content)),))]) == ["created"]
    (back,) = store.get(["notes:a.md"])
    assert (set(back.tags), set(back.links)) == ({"risk", "trading"}, {"b.md", "c.md"})
    for name in ("id", "content", "title", "path", "collection", "type", "domain", "importance"):
        assert getattr(back, name) == getattr(record, name), name
    assert (back.created_at, back.updated_at) == (1_000.5, 2_000.25)
    assert dict(back.metadata) == dict(record.metadata)


def test_a_record_without_times_gets_the_time_of_its_write(store: Store) -> None:
    store.put([entry("a", "one")])
    (first,) = store.get(["a"])
    assert first.created_at is not None
    assert first.created_at == first.updated_at
    store.put([entry("a", "two")])
    (second,) = store.get(["a"])
    assert second.created_at == first.created_at
    assert second.updated_at is not None
    assert second.updated_at >= first.updated_at


def test_get_keeps_the_order_asked_for_and_leaves_out_the_unknown(store: Store) -> None:
    store.put([entry(name, name) for name in "abc"])
    assert [record.id for record in store.get(["c", "nobody", "a"])] == ["c", "a"]
    assert store.get([]) == []


def test_get_takes_thousands_of_ids_at_once(store: Store) -> None:
    names = [f"r{i:05}" for i in range(2_500)]
    store.put([entry(name, "same words") for name in names])
    assert [record.id for record in store.get(names[::-1])] == names[::-1]
    assert store.delete(names[:2_000]) == 2_000
    assert [record.id for record in store.get(names)] == names[2_000:]


def test_statuses_tell_created_updated_and_unchanged(store: Store) -> None:
    assert store.put([entry("a", "one"), entry("b", "two")]) == ["created", "created"]
    again = [entry("a", "one"), entry("b", "two, changed"), entry("c", "three")]
    assert store.put(again) == ["unchanged", "updated", "created"]


@pytest.fixture(scope="module")
def shelf(shared: Callable[[Sequence[Entry]], Store]) -> Store:
    return shared([entry("other", "zebra")])


@pytest.mark.parametrize(
    "change",
    [
        {"title": "new"},
        {"path": "new.md"},
        {"collection": "new"},
        {"type": "new"},
        {"domain": "new"},
        {"tags": ("new",)},
        {"links": ("new",)},
        {"importance": 0.9},
        {"created_at": 9.0},
        {"updated_at": 9.0},
        {"metadata": {"k": 2}},
        {"metadata": {"k": True}},
        {"metadata": {}},
    ],
    ids=str,
)
def test_a_change_of_any_field_is_an_update_that_can_be_read_back(
    shelf: Store, change: dict[str, object]
) -> None:
    plain = {"title": "t", "metadata": {"k": 1}, "created_at": 1.0, "updated_at": 1.0}
    shelf.put([entry("a", "words", **plain)])
    before = shelf.changes.generation()
    assert shelf.put([entry("a", "words", **plain | change)]) == ["updated"]
    assert shelf.changes.generation() > before
    (back,) = shelf.get(["a"])
    for name, value in change.items():
        assert getattr(back, name) == value
        assert type(getattr(back, name)) is type(value)


def test_tags_are_known_by_their_name_without_hash_and_case(store: Store) -> None:
    store.put([entry("a", "words", tags=("#Risk", "risk", "STRASSE"))])
    (back,) = store.get(["a"])
    assert sorted(back.tags) == ["risk", "strasse"]
    assert store.put([entry("a", "words", tags=("Strasse", "RISK"))]) == ["unchanged"]
    assert found(store, "words", tags="#RISK") == ["a"]


def test_putting_the_same_id_again_replaces_the_record(store: Store) -> None:
    store.put([entry("a", "the quick zebra", vectors=[[1, 0]])], model=MODEL)
    assert found(store, "zebra") == ["a"]
    status = store.put([entry("a", "the slow walrus", vectors=[[0, 1]])], model=MODEL)
    assert status == ["updated"]
    assert found(store, "zebra") == []
    assert found(store, "walrus") == ["a"]
    assert near(store, [1, 0]) == ["a"]  # once, not once per version
    (hit,) = store.nearest(np.array([0, 1], np.float32), Filter(), model=MODEL, limit=5)
    assert hit.score == pytest.approx(1.0)
    assert [record.content for record in store.get(["a"])] == ["the slow walrus"]
    assert [record.id for record in store.select(Filter(), limit=10)] == ["a"]


def test_of_an_id_given_twice_in_one_batch_the_last_counts(store: Store) -> None:
    store.put([entry("a", "zebra"), entry("b", "heron"), entry("a", "walrus")])
    assert found(store, "zebra") == []
    assert found(store, "walrus") == ["a"]
    assert [r.content for r in store.select(Filter(), limit=9)] == ["walrus", "heron"]
    store.put([entry("b", "otter"), entry("b", "lynx")])
    assert (found(store, "heron"), found(store, "otter")) == ([], [])
    assert found(store, "lynx") == ["b"]


def test_a_batch_is_written_whole_or_not_at_all(store: Store) -> None:
    store.put([entry("old", "zebra")])
    before = store.changes.generation()
    bad = entry("bad", "walrus", metadata={"share": float("nan")})
    with pytest.raises(InputError, match="bad"):
        store.put([entry("new", "heron"), entry("old", "otter"), bad])
    assert [r.content for r in store.select(Filter(), limit=9)] == ["zebra"]
    assert found(store, "heron otter walrus zebra") == ["old"]
    assert store.changes.generation() == before


@pytest.mark.parametrize(
    "fields",
    [
        {"importance": -0.1},
        {"importance": float("nan")},
        {"metadata": {"k": float("nan")}},
        {"metadata": {"k": {1, 2}}},
        {"created_at": float("nan")},
        {"updated_at": float("nan")},
    ],
    ids=str,
)
def test_a_record_that_makes_no_sense_is_an_input_error(
    shelf: Store, fields: dict[str, object]
) -> None:
    with pytest.raises(InputError):
        shelf.put([entry("bad", "words", **fields)])
    assert shelf.get(["bad"]) == []


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1, 10**40])
def test_metadata_numbers_of_any_size_are_kept_or_refused_by_name(
    store: Store, number: int
) -> None:
    try:
        store.put([entry("a", "words", metadata={"n": number})])
    except InputError as error:
        assert "'a'" in str(error)  # refusing is fine, falling over is not
        assert store.get(["a"]) == []
    else:
        assert store.get(["a"])[0].metadata == {"n": number}
        assert found(store, "words", metadata={"n": number}) == ["a"]


def test_half_a_character_in_a_text_is_kept_or_refused_by_name(store: Store) -> None:
    # What json.loads makes of "\ud83d": tools hand such strings on without noticing.
    try:
        store.put([entry("a", "zebra \ud83d walrus")])
    except InputError as error:
        assert "'a'" in str(error)  # refusing is fine, falling over is not
        assert store.get(["a"]) == []
    else:
        assert found(store, "walrus") == ["a"]


def test_words_after_a_nul_character_are_found_and_read(store: Store) -> None:
    store.put([entry("a", "zebra\0walrus heron")])
    assert store.get(["a"])[0].content == "zebra\0walrus heron"
    assert found(store, "heron") == ["a"]
    (passage,) = store.passages([Candidate("a", 1.0)])
    assert passage is not None
    assert passage.text.endswith("heron")


def test_delete_says_how_many_went_and_forgets_them_in_both_legs_at_once(store: Store) -> None:
    store.put([entry(n, "zebra", vectors=[[1, 0]], tags=("t",)) for n in "abc"], model=MODEL)
    assert found(store, "zebra", tags="t") == near(store, [1, 0], tags="t") == ["a", "b", "c"]
    assert store.delete(["a", "nobody", "b", "a"]) == 2
    assert found(store, "zebra") == near(store, [1, 0]) == ["c"]
    assert found(store, "zebra", tags="t") == near(store, [1, 0], tags="t") == ["c"]
    assert store.get(["a", "b"]) == []
    assert store.delete(["a"]) == 0
    assert store.delete([]) == 0


def test_a_deleted_id_can_be_used_again(store: Store) -> None:
    store.put([entry("a", "zebra", vectors=[[1, 0]], tags=("old",))], model=MODEL)
    assert found(store, "zebra") == ["a"]
    store.delete(["a"])
    assert store.put([entry("a", "walrus")]) == ["created"]
    assert (found(store, "zebra"), found(store, "walrus")) == ([], ["a"])
    assert near(store, [1, 0]) == []  # its vector went with it
    assert store.get(["a"])[0].tags == ()


# ---------------------------------------------------------------------- rename


def test_a_renamed_record_keeps_its_chunks_and_vectors(store: Store) -> None:
    old = entry("c:old.md", ["zebra one", "zebra two"], path="old.md", vectors=[[1, 0], [0, 1]])
    store.put([old], model=MODEL)
    assert found(store, "zebra") == ["c:old.md"]
    numbers = chunk_numbers(store, "c:old.md")
    store.rename("c:old.md", entry("c:new.md", ["zebra one", "zebra two"], path="new.md"))
    assert store.get(["c:old.md"]) == []
    assert store.get(["c:new.md"])[0].path == "new.md"
    assert found(store, "zebra") == near(store, [1, 0]) == ["c:new.md"]
    assert found(store, "zebra", path="new.md") == near(store, [1, 0], path="new.md")
    assert found(store, "zebra", path="old.md") == []
    assert chunk_numbers(store, "c:new.md") == numbers
    assert store.vectors.pending(MODEL) == []


def test_a_rename_that_changes_nothing_but_the_id_is_seen_by_filters(store: Store) -> None:
    store.put([entry("old", "zebra", vectors=[[1, 0]])], model=MODEL)
    assert found(store, "zebra", ids="new") == near(store, [1, 0], ids="new") == []
    before = store.changes.generation()
    store.rename("old", entry("new", "zebra"))
    assert store.changes.generation() > before
    assert found(store, "zebra", ids="new") == near(store, [1, 0], ids="new") == ["new"]
    assert found(store, "zebra", ids="old") == near(store, [1, 0], ids="old") == []


def test_a_rename_also_writes_what_the_entry_changes(store: Store) -> None:
    store.put([entry("old", ["zebra", "walrus"], tags=("a",))])
    store.rename("old", entry("new", ["zebra", "heron"], tags=("b",)))
    assert found(store, "walrus") == []
    assert found(store, "heron", tags="b") == ["new"]
    assert [r.id for r in store.select(Filter(), limit=9)] == ["new"]


def test_a_rename_onto_another_record_takes_its_place(store: Store) -> None:
    store.put([entry("a", "zebra"), entry("b", "walrus")])
    assert found(store, "walrus") == ["b"]
    store.rename("a", entry("b", "zebra"))
    assert [r.content for r in store.select(Filter(), limit=9)] == ["zebra"]
    assert (found(store, "zebra"), found(store, "walrus")) == (["b"], [])


def test_a_rename_of_an_unknown_record_puts_the_entry(store: Store) -> None:
    store.rename("nobody", entry("a", "zebra"))
    assert found(store, "zebra") == ["a"]


def test_a_rename_to_the_same_id_keeps_the_vectors(store: Store) -> None:
    store.put([entry("a", "zebra", path="a.md", vectors=[[1, 0]])], model=MODEL)
    store.rename("a", entry("a", "zebra", path="b.md"))
    assert store.get(["a"])[0].path == "b.md"
    assert near(store, [1, 0]) == found(store, "zebra") == ["a"]


def test_a_rename_moves_the_state_of_the_file(store: Store) -> None:
    state = FileState(size=5, mtime_ns=7, digest="d", indexed_ns=9)
    moved = FileState(size=5, mtime_ns=7, digest="d", indexed_ns=10)
    first = entry("c:old.md", "zebra", path="old.md", collection="c")
    store.put([Entry(first.record, first.chunks, file=state)])
    second = entry("c:new.md", "zebra", path="new.md", collection="c")
    store.rename("c:old.md", Entry(second.record, second.chunks, file=moved))
    assert store.files.states("c") == {"new.md": moved}


# ---------------------------------------------------------------------- select


def test_select_pages_through_matching_records_by_id(store: Store) -> None:
    names = ["b", "a", "Z", "é", "a1", "京", "c"]
    store.put([entry(n, "words", tags=("odd",) if i % 2 else ()) for i, n in enumerate(names)])
    pages: list[list[str]] = []
    after = ""
    while page := store.select(Filter(), limit=3, after=after):
        pages.append([record.id for record in page])
        after = page[-1].id
    assert pages == [["Z", "a", "a1"], ["b", "c", "é"], ["京"]]
    odd = store.select(Filter(tags="odd"), limit=10)
    assert [(r.id, r.content, r.tags) for r in odd] == [
        ("a", "words", ("odd",)),
        ("é", "words", ("odd",)),
        ("京", "words", ("odd",)),
    ]


# ---------------------------------------------------------------------- passages


def test_count_says_how_many_records_match_and_sees_every_write(store: Store) -> None:
    assert store.count(Filter()) == store.count(Filter(tags="odd")) == 0
    store.put([entry(f"r{i}", ["one", "two"], tags=("odd",) * (i % 2)) for i in range(9)])
    assert store.count(Filter()) == 9
    assert store.count(Filter(tags="odd")) == 4
    assert store.count(Filter(not_domain="personal")) == 9
    store.put([entry("r0", "three", tags=("odd",))])
    store.lifecycle.end(["r1"], at=1.0, reason="forgotten")
    assert store.count(Filter(tags="odd")) == 5
    assert store.count(Filter(tags="odd", active=True)) == 4
    store.delete(["r1", "r2"])
    assert store.count(Filter()) == 7


def test_passages_are_the_words_of_the_chunks_found(store: Store) -> None:
    parts = ["intro 🦊🦊", "the zebra\nruns", "end"]
    store.put(
        [
            entry("a", parts, headings=["", "Animals › Striped", ""], title="T", tags=("x",)),
            entry("b", "walrus", path="b.md"),
        ]
    )
    hits = store.keyword(terms("zebra walrus"), Filter(), limit=10)
    by_id = {
        hit.id: passage for hit, passage in zip(hits, store.passages(hits), strict=True) if passage
    }
    a, b = by_id["a"], by_id["b"]
    assert (a.text, a.lines, a.heading) == ("the zebra\nruns", (2, 3), "Animals › Striped")
    assert (a.record.id, a.record.title, a.record.tags) == ("a", "T", ("x",))
    assert (b.text, b.record.path) == ("walrus", "b.md")


def test_a_candidate_without_a_chunk_gets_its_first_passage(store: Store) -> None:
    store.put([entry("a", ["first", "second"])])
    (passage,) = store.passages([Candidate("a", 1.0)])
    assert passage is not None
    assert passage.text == "first"


def test_a_candidate_whose_chunk_was_replaced_gets_what_the_record_has_now(store: Store) -> None:
    store.put([entry("a", "zebra"), entry("b", "zebra too")])
    hits = store.keyword(terms("zebra"), Filter(), limit=10)
    store.put([entry("a", "walrus")])
    store.delete(["b"])
    passages = dict(zip([hit.id for hit in hits], store.passages(hits), strict=True))
    assert passages["a"] is not None
    assert passages["a"].text == "walrus"
    assert passages["b"] is None


def test_a_passage_never_belongs_to_another_record(store: Store) -> None:
    store.put([entry("a", "zebra"), entry("b", "walrus")])
    (hit,) = store.keyword(terms("zebra"), Filter(), limit=10)
    (passage,) = store.passages([Candidate("b", 1.0, hit.chunk)])
    assert passage is not None
    assert (passage.record.id, passage.text) == ("b", "walrus")


def test_a_record_without_chunks_is_kept_though_nothing_of_it_can_be_found(store: Store) -> None:
    assert store.put([Entry(Record("a", "zebra"), ())]) == ["created"]
    assert store.get(["a"])[0].content == "zebra"
    assert found(store, "zebra") == []
    assert store.passages([Candidate("a", 1.0)]) == [None]


# ---------------------------------------------------------------------- whole


def test_the_chunks_of_a_record_come_in_reading_order_with_the_vectors_they_have(
    store: Store,
) -> None:
    store.put([entry("a", ["one", "two"], headings=["", "H"], vectors=[[1, 0], [0, 1]])], model="m")
    store.put([entry("a", ["zero", "one", "two"], headings=["", "", "H"])])
    store.put([entry("b", "walrus"), Entry(Record("none", "zebra"), ())])
    held = store.vectors.chunks(["b", "a", "none", "nobody"])
    assert sorted(held) == ["a", "b"]
    content = store.get(["a"])[0].content
    assert [content[one.chunk.start : one.chunk.end] for one in held["a"]] == ["zero", "one", "two"]
    assert [(one.chunk.lines, one.chunk.heading) for one in held["a"]] == [
        ((1, 1), ""),
        ((2, 2), ""),
        ((3, 3), "H"),
    ]
    assert [one.model for one in held["a"]] == [None, "m", "m"]
    rows = [one.vector for one in held["a"]]
    assert rows[0] is None
    assert [row.tolist() for row in rows[1:] if row is not None] == [[1, 0], [0, 1]]
    assert [one.number for one in held["b"]] == chunk_numbers(store, "b")


def test_names_are_counted_among_the_records_that_match(store: Store) -> None:
    store.put(
        [
            entry("a", "x", type="code", tags=("risk", "small"), path="p/a.py", collection="k"),
            entry("b", "x", type="code", tags=("risk",)),
            entry("c", "x", type="note"),
        ]
    )
    assert store.counts("type", Filter()) == {"code": 2, "note": 1}
    assert store.counts("tag", Filter()) == {"risk": 2, "small": 1}
    assert store.counts("collection", Filter()) == {"k": 1, "default": 2}
    assert store.counts("path", Filter()) == {"p/a.py": 1}
    assert store.counts("key", Filter()) == {}
    assert store.counts("tag", Filter(type="note")) == {}
    assert store.counts("type", Filter(tags="small")) == {"code": 1}


def test_no_record_has_half_a_character_in_its_id(store: Store) -> None:
    store.put([entry("a", "zebra")])
    assert store.get(["\ud800"]) == []
    assert store.delete(["\ud800"]) == 0
    assert [record.id for record in store.get(["q\udcff", "a"])] == ["a"]
    assert store.delete(["\udfff", "a"]) == 1


def test_keys_of_metadata_are_counted_by_record(store: Store) -> None:
    store.put([entry("a", "one", metadata={"n": [1, 2], "s": "x"}), entry("b", "two")])
    store.put([entry("c", "three", metadata={"n": 3})])
    assert store.counts("key", Filter()) == {"n": 2, "s": 1}
    assert store.counts("key", Filter(ids="c")) == {"n": 1}
