"""Vectors: who lacks one, who may share one, which are refused, and that models never mix."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from clew.errors import InputError
from clew.filter import Filter
from clew.protocols import Store
from clew.types import Entry, Vectors
from entries import MODEL, chunk_numbers, entry, found, near, unit_rows

OTHER = "other@1"
Shared = Callable[[Sequence[Entry]], Store]


def row(*numbers: float) -> Vectors:
    return np.array([numbers], np.float32)


# ---------------------------------------------------------------------- the second pass


def test_chunks_wait_for_a_vector_until_they_have_one(store: Store) -> None:
    store.put([entry("a", ["zebra", "walrus"]), entry("b", "heron")])
    waiting = store.vectors.pending(MODEL)
    assert len(waiting) == 3
    texts = store.vectors.texts(waiting)
    assert [number for number, _ in texts] == waiting
    assert sorted(text for _, text in texts) == ["heron", "walrus", "zebra"]
    assert store.vectors.set(waiting[:2], unit_rows(2), model=MODEL) == 2
    assert store.vectors.pending(MODEL) == waiting[2:]
    assert store.vectors.pending(OTHER) == waiting
    assert store.vectors.set(waiting[2:], unit_rows(1), model=MODEL) == 1
    assert store.vectors.pending(MODEL) == []
    assert sorted(near(store, unit_rows(1)[0])) == ["a", "b"]


def test_the_first_of_every_file_comes_first_then_the_newest_then_the_shortest(
    store: Store,
) -> None:
    day = 86_400.0
    store.put(
        [
            entry("old", "x" * 5, updated_at=10 * day),
            entry("new", ["y" * 50, "y" * 20], updated_at=30 * day),
            entry("also new", ["w" * 60, "w" * 10], updated_at=30 * day),
            entry("middle", "z" * 3, updated_at=20 * day),
            *(
                entry(f"c:t.csv#{i}", f"row {i}", path="t.csv", updated_at=40 * day)
                for i in (1, 2, 3)
            ),
        ]
    )
    fair = [
        *("row 1", "y" * 50, "w" * 60, "zzz", "xxxxx"),
        *("row 2", "w" * 10, "y" * 20),
        "row 3",
    ]
    waiting = store.vectors.pending(MODEL)
    assert [text for _, text in store.vectors.texts(waiting)] == fair
    store.vectors.set(waiting[:2], unit_rows(2, 4), model=MODEL)  # a run that was stopped goes on
    assert [text for _, text in store.vectors.texts(store.vectors.pending(MODEL))] == fair[2:]


def test_the_text_to_embed_has_title_and_heading_above_the_words(store: Store) -> None:
    store.put([entry("a", "zebra", title="Animals", headings=["Striped"])])
    assert [text for _, text in store.vectors.texts(store.vectors.pending(MODEL))] == [
        "Animals\nStriped\nzebra"
    ]


def test_texts_leaves_out_chunks_that_are_gone(store: Store) -> None:
    store.put([entry("a", "zebra"), entry("b", "walrus")])
    waiting = store.vectors.pending(MODEL)
    store.delete(["a"])
    assert [text for _, text in store.vectors.texts(waiting)] == ["walrus"]
    assert store.vectors.texts([]) == []


def test_a_vector_for_a_chunk_that_is_gone_is_passed_over(store: Store) -> None:
    store.put([entry("a", "zebra"), entry("b", "walrus"), entry("c", "heron")])
    numbers = [chunk_numbers(store, name)[0] for name in "abc"]
    store.delete(["a"])
    store.put([entry("b", "otter")])  # other words: another chunk
    assert store.vectors.set(numbers, unit_rows(3), model=MODEL) == 1
    assert near(store, unit_rows(3)[0]) == ["c"]
    assert [text for _, text in store.vectors.texts(store.vectors.pending(MODEL))] == ["otter"]


def test_a_vector_can_be_replaced(store: Store) -> None:
    store.put(
        [entry("a", "zebra", vectors=[[1, 0]]), entry("b", "walrus", vectors=[[0, 1]])], model=MODEL
    )
    assert near(store, [1, 0]) == ["a", "b"]
    assert store.vectors.set(chunk_numbers(store, "b"), row(1, 0), model=MODEL) == 1
    hits = store.nearest(row(1, 0)[0], Filter(), model=MODEL, limit=10)
    assert [(hit.id, hit.score) for hit in hits] == [("a", 1.0), ("b", 1.0)]


def test_equal_texts_share_their_vector_within_one_model_only(store: Store) -> None:
    store.put([entry("a", "zebra", vectors=[[1, 0]])], model=MODEL)
    store.put([entry("b", "zebra"), entry("c", "walrus"), entry("d", "zebra", title="Other")])
    waiting = store.vectors.pending(MODEL)
    known = store.vectors.known(waiting, model=MODEL)
    assert list(known) == chunk_numbers(store, "b", model=MODEL)
    assert [vector.tolist() for vector in known.values()] == [[1.0, 0.0]]
    assert store.vectors.known(waiting, model=OTHER) == {}
    assert store.vectors.known([], model=MODEL) == {}


# ---------------------------------------------------------------------- edits


def test_a_chunk_whose_words_did_not_change_keeps_its_vector(store: Store) -> None:
    vectors = [[1, 0, 0], [0, 1, 0], [0, 0, 1]]
    store.put([entry("a", ["zebra", "walrus", "heron"], vectors=vectors)], model=MODEL)
    assert store.put([entry("a", ["a new start", "zebra", "otter", "heron"])]) == ["updated"]
    assert sorted(t for _, t in store.vectors.texts(store.vectors.pending(MODEL))) == [
        "a new start",
        "otter",
    ]
    for vector, words in (([1, 0, 0], "zebra"), ([0, 0, 1], "heron")):
        (hit,) = store.nearest(np.array(vector, np.float32), Filter(), model=MODEL, limit=5)
        assert hit.score == pytest.approx(1.0)
        (passage,) = store.passages([hit])
        assert passage is not None
        assert passage.text == words  # its place in the record moved with it
    (hit,) = store.nearest(np.array([0, 1, 0], np.float32), Filter(), model=MODEL, limit=5)
    assert hit.score == pytest.approx(0.0)  # the vector of the words that went is gone


def test_equal_chunks_of_one_record_are_told_apart_when_one_goes(store: Store) -> None:
    store.put([entry("a", ["zebra", "zebra", "walrus"], vectors=[[1, 0]] * 3)], model=MODEL)
    store.put([entry("a", ["zebra", "walrus"])])
    assert store.vectors.pending(MODEL) == []
    assert len(chunk_numbers(store, "a")) == 2
    assert near(store, [1, 0]) == found(store, "zebra") == ["a"]


def test_a_change_of_tags_alone_costs_no_vector(store: Store) -> None:
    store.put([entry("a", "zebra", vectors=[[1, 0]])], model=MODEL)
    assert near(store, [1, 0], tags="new") == []
    store.put([entry("a", "zebra", tags=("new",), importance=0.9)])
    assert store.vectors.pending(MODEL) == []
    assert near(store, [1, 0], tags="new", importance_min=0.8) == ["a"]


def test_the_same_words_with_another_vector_are_an_update(store: Store) -> None:
    store.put([entry("a", "zebra", vectors=[[1, 0]])], model=MODEL)
    before = store.changes.generation()
    assert store.put([entry("a", "zebra", vectors=[[0, 1]])], model=MODEL) == ["updated"]
    assert store.changes.generation() > before
    (hit,) = store.nearest(row(0, 1)[0], Filter(), model=MODEL, limit=5)
    assert hit.score == pytest.approx(1.0)


def test_the_same_record_with_the_same_vector_is_no_write_at_all(store: Store) -> None:
    store.put([entry("a", "zebra", vectors=[[1, 0]])], model=MODEL)
    before = store.changes.generation()
    assert store.put([entry("a", "zebra", vectors=[[1, 0]])], model=MODEL) == ["unchanged"]
    assert store.changes.generation() == before  # caches keyed by it stay valid


# ---------------------------------------------------------------------- refused


def test_vectors_need_the_name_of_their_model(store: Store) -> None:
    with pytest.raises(InputError, match="model"):
        store.put([entry("a", "zebra", vectors=[[1, 0]])])
    assert store.get(["a"]) == []


BAD = {
    "NaN": row(1, float("nan")),
    "infinity": row(1, float("inf")),
    "minus infinity": row(float("-inf"), 0),
    "too long": row(1, 0, 0),
    "too short": row(1),
    "no dimension": np.empty((1, 0), np.float32),
    "one row too many": np.zeros((2, 2), np.float32),
    "no row": np.empty((0, 2), np.float32),
    "not a table": np.array([1, 0], np.float32),
    "beyond what a float32 can hold": np.array([[1e300, 0.0]], np.float64),
}


@pytest.fixture(scope="module")
def steady(shared: Shared) -> Store:
    """What is refused changes nothing in it."""
    return shared([entry("old", "zebra", vectors=[[1, 0]]), entry("bare", "owl")])


@pytest.mark.parametrize("name", BAD)
def test_a_wrong_vector_is_refused_and_nothing_of_its_batch_is_written(
    steady: Store, name: str
) -> None:
    before = steady.changes.generation()
    bad = entry("bad", "walrus")
    with pytest.raises(InputError):
        steady.put(
            [
                entry("good", "heron", vectors=[[0, 1]]),
                Entry(bad.record, bad.chunks, vectors=BAD[name]),
            ],
            model=MODEL,
        )
    assert [record.id for record in steady.select(Filter(), limit=9)] == ["bare", "old"]
    assert found(steady, "heron walrus") == []
    assert near(steady, [1, 0]) == ["old"]
    assert steady.changes.generation() == before


@pytest.mark.parametrize("name", BAD)
def test_a_wrong_vector_is_refused_for_a_chunk_and_none_is_written(
    steady: Store, name: str
) -> None:
    before = steady.changes.generation()
    with pytest.raises(InputError):
        steady.vectors.set(chunk_numbers(steady, "bare"), BAD[name], model=MODEL)
    assert steady.vectors.pending(MODEL) == chunk_numbers(steady, "bare")
    assert near(steady, [1, 0]) == ["old"]
    assert steady.changes.generation() == before


def test_a_store_without_vectors_refuses_odd_ones_as_well(store: Store) -> None:
    nothing = entry("a", "zebra")
    with pytest.raises(InputError):
        store.put([Entry(nothing.record, nothing.chunks, vectors=BAD["no dimension"])], model=MODEL)
    with pytest.raises(InputError):
        store.put(
            [entry("a", "zebra", vectors=[[1, 0]]), entry("b", "walrus", vectors=[[1, 0, 0]])],
            model=MODEL,
        )
    assert store.select(Filter(), limit=9) == []


@pytest.mark.parametrize(
    "query",
    [[1, float("nan")], [float("inf"), 0], [1, 0, 0], [1], [[1, 0]]],
    ids=["NaN", "infinity", "too long", "too short", "a table"],
)
def test_a_wrong_query_vector_is_refused(steady: Store, query: list[float]) -> None:
    with pytest.raises(InputError):
        steady.nearest(np.array(query, np.float32), Filter(), model=MODEL, limit=5)
    assert near(steady, [1, 0]) == ["old"]


# ---------------------------------------------------------------------- models


def test_vectors_of_another_model_are_never_mixed_in(store: Store) -> None:
    store.put([entry(f"m{i}", "zebra", vectors=[[1, 0]]) for i in range(3)], model=MODEL)
    store.put([entry(f"o{i}", "zebra", vectors=[[1, 0]]) for i in range(3)], model=OTHER)
    for _ in range(2):
        assert near(store, [1, 0], model=MODEL) == ["m0", "m1", "m2"]
        assert near(store, [1, 0], model=OTHER) == ["o0", "o1", "o2"]
    assert near(store, [1, 0], model="nobody's") == []
    assert found(store, "zebra") == ["m0", "m1", "m2", "o0", "o1", "o2"]


def test_models_may_differ_in_dimension(store: Store) -> None:
    store.put([entry("a", "zebra", vectors=[[1, 0]])], model=MODEL)
    store.put([entry("b", "zebra", vectors=[[1, 0, 0]])], model=OTHER)
    assert near(store, [1, 0], model=MODEL) == ["a"]
    assert near(store, [1, 0, 0], model=OTHER) == ["b"]
    assert (
        store.indexes.prepare(MODEL),
        store.indexes.prepare(OTHER),
        store.indexes.prepare("nobody's"),
    ) == (2, 3, 0)


def test_models_whose_names_differ_by_a_sign_are_different(store: Store) -> None:
    names = ["org/m", "org_m", "org:m", "ORG/m"]
    for i, name in enumerate(names):
        store.put([entry(f"r{i}", "zebra", vectors=[[1, 0]])], model=name)
    for i, name in enumerate(names):
        assert near(store, [1, 0], model=name) == [f"r{i}"]


def test_a_chunk_embedded_anew_leaves_the_old_model(store: Store) -> None:
    store.put([entry(n, "zebra", vectors=[[1, 0]]) for n in "ab"], model=MODEL)
    assert near(store, [1, 0], model=MODEL) == ["a", "b"]
    store.vectors.set(chunk_numbers(store, "b"), row(0, 1, 0), model=OTHER)
    assert near(store, [0, 1, 0], model=OTHER) == ["b"]
    # whether a store keeps the old one beside the new is its own affair; its score must not change
    hits = store.nearest(row(1, 0)[0], Filter(), model=MODEL, limit=5)
    assert hits[0].id == "a"
    assert {hit.score for hit in hits} == {1.0}
    assert set(store.vectors.pending(OTHER)) == set(chunk_numbers(store, "a"))


def test_a_chunk_without_a_vector_takes_part_by_its_words_only(store: Store) -> None:
    store.put([entry("a", "zebra", vectors=[[1, 0]])], model=MODEL)
    store.put([entry("b", "zebra crossing")])
    assert near(store, [1, 0]) == ["a"]
    assert sorted(found(store, "zebra")) == ["a", "b"]


def test_what_has_no_vector_of_a_model_is_counted_by_what_it_has_instead(store: Store) -> None:
    assert store.vectors.missing(Filter(), model=MODEL) == {}
    store.put([entry(f"m{i}", "zebra", vectors=[[1, 0]]) for i in range(3)], model=MODEL)
    store.put([entry(f"o{i}", f"walrus {i}", vectors=[[1, 0, 0]]) for i in range(2)], model=OTHER)
    store.put([entry("bare", "heron", tags=("bird",)), entry("half", ["otter", "seal"])])
    store.vectors.set(chunk_numbers(store, "half")[:1], row(0, 1), model=MODEL)
    assert store.vectors.missing(Filter(), model=MODEL) == {None: 2, (OTHER, 3): 2}
    assert store.vectors.missing(Filter(), model=OTHER) == {None: 2, (MODEL, 2): 4}
    assert store.vectors.missing(Filter(tags="bird"), model=MODEL) == {None: 1}
    assert store.vectors.missing(Filter(tags="fish"), model=MODEL) == {}
    store.vectors.set(store.vectors.pending(MODEL), unit_rows(4, 2), model=MODEL)
    assert store.vectors.missing(Filter(), model=MODEL) == {}
    store.delete(["bare"])
    assert store.vectors.missing(Filter(), model="nobody's") == {(MODEL, 2): 6}
