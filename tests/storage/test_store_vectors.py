"""The vector index in stages: exact, then inverted lists with a tail, renewed as it grows."""

from __future__ import annotations

import gc
import json
import shutil
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from samples import seal

from clew.errors import StoreError
from clew.filter import Filter
from clew.index import inverted_lists, vectors
from clew.store import EmbeddedStore
from clew.types import Entry, Vectors
from entries import MODEL, entry, ill, near, unit_rows

Opened = Callable[..., EmbeddedStore]

ROWS, DIM = 3_000, 256
THRESHOLD = 2_000


@pytest.fixture(autouse=True)
def _stages(monkeypatch: pytest.MonkeyPatch, small_tail: None) -> None:
    monkeypatch.setattr(vectors, "TAIL_ROWS", 500)
    # a filter that leaves a hundred rows is narrow, one that leaves more is broad
    monkeypatch.setattr(vectors, "EXACT_ROWS", 100)


def corpus(
    count: int = ROWS, *, seed: int = 1, themes: int = 100, noise: float = 0.6, dim: int = DIM
) -> Vectors:
    """Clustered, as embeddings are: variations on themes, which are the same for every seed."""
    centres = np.random.default_rng(0).standard_normal((themes, dim))
    rng = np.random.default_rng(seed)
    rows = centres[rng.integers(0, themes, count)] + noise * rng.standard_normal((count, dim))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def name(i: int) -> str:
    return f"r{i:05}"


def fields(i: int) -> dict[str, Any]:
    return {
        "collection": "even" if i % 2 == 0 else "odd",
        "tags": ("rare",) if i % 50 == 7 else (),
        "importance": (i % 10) / 10,
    }


def entries(rows: Vectors, *, first: int = 0) -> list[Entry]:
    return [
        entry(name(first + i), "x", vectors=rows[i : i + 1], **fields(first + i))
        for i in range(len(rows))
    ]


class Truth:
    """Every row by name; the exact answer to anything."""

    def __init__(self, rows: Vectors):
        self.rows = {name(i): row for i, row in enumerate(rows)}

    def best(
        self, query: Vectors, limit: int, keep: Callable[[int], bool] = lambda i: True
    ) -> list[str]:
        names = sorted(n for n in self.rows if keep(int(n[1:])))
        scores = np.array([self.rows[n] for n in names]) @ query
        return [names[i] for i in np.argsort(-scores, kind="stable")[:limit]]


def recall(
    store: EmbeddedStore, truth: Truth, queries: Vectors, keep: Any = None, **narrowing: Any
) -> float:
    """The share of the true ten best that come back."""
    keep = keep or (lambda i: True)
    shared = 0
    for query in queries:
        hits = near(store, query, limit=10, **narrowing)
        assert len(hits) == len(set(hits)) == 10
        shared += len(set(hits) & set(truth.best(query, 10, keep)))
    return shared / (10 * len(queries))


def queries(count: int = 40) -> Vectors:
    return beside(corpus(count))


def beside(rows: Vectors) -> Vectors:
    """Moved a little off their places: a row's own self is found by any index."""
    moved = rows + 0.1 * np.random.default_rng(7).standard_normal(rows.shape)
    return (moved / np.linalg.norm(moved, axis=1, keepdims=True)).astype(np.float32)


@pytest.fixture
def truth() -> Truth:
    return Truth(corpus())


@pytest.fixture(params=["rows in the database", "rows in the file"])
def sealed(
    opened: Opened, truth: Truth, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> EmbeddedStore:
    if request.param == "rows in the file":  # as before there was time to drop them
        monkeypatch.setattr(vectors.VectorIndex, "drop_sealed", lambda self: None)
    store = opened(ivf_threshold=THRESHOLD)
    store.put(entries(corpus()), model=MODEL)
    seal(store)
    return store


# ---------------------------------------------------------------------- stages


def test_below_the_threshold_every_answer_is_exact(opened: Opened) -> None:
    store = opened(ivf_threshold=THRESHOLD)
    rows = corpus(THRESHOLD - 1)
    store.put(entries(rows), model=MODEL)
    store.indexes.prepare(MODEL)
    store.indexes.refresh(optimise=True)
    stage = store.stats(model=MODEL)["vectors"]
    assert (stage["stage"], stage["rows"], stage["recall"]) == ("exact", THRESHOLD - 1, 1.0)
    truth = Truth(rows)
    for query in queries(10):
        assert near(store, query, limit=20) == truth.best(query, 20)


def test_above_the_threshold_inverted_lists_keep_the_promised_recall(
    sealed: EmbeddedStore, truth: Truth
) -> None:
    stage = sealed.stats(model=MODEL)["vectors"]
    assert stage["stage"] == "inverted lists"
    assert (stage["rows"], stage["sealed"], stage["tail"]) == (ROWS, ROWS, 0)
    assert 0.95 <= stage["recall"] <= 1.0
    assert 1 <= stage["probes"] < stage["lists"]  # it does not look everywhere
    assert recall(sealed, truth, queries()) >= 0.95


def test_short_vectors_keep_the_promised_recall_too(opened: Opened) -> None:
    rows = corpus(dim=32)
    store = opened(ivf_threshold=THRESHOLD)
    store.put(entries(rows), model=MODEL)
    seal(store)
    stage = store.stats(model=MODEL)["vectors"]
    assert stage["stage"] == "inverted lists"
    assert stage["probes"] < stage["lists"]
    assert recall(store, Truth(rows), beside(rows[:40])) >= 0.95


def test_questions_unlike_any_row_get_the_recall_that_is_reported(opened: Opened) -> None:
    """Many near-copies of a few texts, and questions that lie between several of them."""
    few = corpus(30, themes=30, noise=0.0)
    rng = np.random.default_rng(3)
    rows = few[rng.integers(0, len(few), 6_000)]
    rows = rows + 0.1 / np.sqrt(DIM) * rng.standard_normal(rows.shape)
    rows = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    store = opened(ivf_threshold=THRESHOLD)
    store.put(entries(rows), model=MODEL)
    seal(store)
    asked = rng.dirichlet(np.ones(len(few)), 60) @ few + 0.5 * corpus(60, seed=9)
    asked = (asked / np.linalg.norm(asked, axis=1, keepdims=True)).astype(np.float32)
    real = recall(store, Truth(rows), asked)
    assert real >= 0.98
    assert store.stats(model=MODEL)["vectors"]["recall"] <= real + 0.01


def test_scores_from_inverted_lists_are_exact_inner_products(
    sealed: EmbeddedStore, truth: Truth
) -> None:
    for query in queries(10):
        hits = sealed.nearest(query, Filter(), model=MODEL, limit=10)
        exact = [float(truth.rows[hit.id] @ query) for hit in hits]
        assert [hit.score for hit in hits] == pytest.approx(exact, abs=1e-5)
        assert exact == sorted(exact, reverse=True)


def test_as_many_come_back_as_asked_for_whatever_the_lists_probed(
    sealed: EmbeddedStore, truth: Truth
) -> None:
    for limit in (1, 100, 1_000, ROWS, ROWS + 1):
        assert len(near(sealed, queries(1)[0], limit=limit)) == min(limit, ROWS)
    everything = near(sealed, queries(1)[0], limit=ROWS)
    assert set(everything) == set(truth.rows)
    assert everything[:50] == truth.best(queries(1)[0], 50)


def test_the_same_question_gets_the_same_answer_from_lists(
    sealed: EmbeddedStore, opened: Opened
) -> None:
    first = [near(sealed, query, limit=10) for query in queries(10)]
    again = opened(ivf_threshold=THRESHOLD)
    assert [near(again, query, limit=10) for query in queries(10)] == first
    assert again.stats(model=MODEL)["vectors"]["stage"] == "inverted lists"


# ---------------------------------------------------------------------- after sealing


def test_rows_added_after_sealing_are_found_exactly(sealed: EmbeddedStore, truth: Truth) -> None:
    more = corpus(300, seed=2)
    sealed.put(entries(more, first=ROWS), model=MODEL)
    truth.rows |= {name(ROWS + i): row for i, row in enumerate(more)}
    for i in range(0, 300, 10):
        assert near(sealed, more[i], limit=1) == [name(ROWS + i)]
    stage = sealed.stats(model=MODEL)["vectors"]
    assert (stage["sealed"], stage["tail"], stage["rows"]) == (ROWS, 300, ROWS + 300)
    assert recall(sealed, truth, np.concatenate([queries(20), more[:20]])) >= 0.95


def test_deleted_rows_vanish_from_the_sealed_part(sealed: EmbeddedStore, truth: Truth) -> None:
    best = {n for query in queries(10) for n in truth.best(query, 5)}
    sealed.delete(sorted(best))
    for gone in best:
        del truth.rows[gone]
    for query in queries(10):
        assert not best & set(near(sealed, query, limit=50))
    assert recall(sealed, truth, queries()) >= 0.95
    assert len(near(sealed, queries(1)[0], limit=ROWS)) == ROWS - len(best)
    assert sealed.stats(model=MODEL)["vectors"]["rows"] == ROWS - len(best)


def test_most_rows_may_be_deleted(sealed: EmbeddedStore, truth: Truth) -> None:
    gone = [name(i) for i in range(ROWS) if i % 20]
    sealed.delete(gone)
    for one in gone:
        del truth.rows[one]
    assert recall(sealed, truth, queries(20)) >= 0.95
    assert set(near(sealed, queries(1)[0], limit=ROWS)) == set(truth.rows)


def test_a_changed_vector_is_found_in_its_new_place_only(
    sealed: EmbeddedStore, truth: Truth
) -> None:
    places = range(0, ROWS, 60)
    new = unit_rows(len(places), DIM, seed=9)
    changed = [
        entry(name(i), "x", vectors=new[n : n + 1], **fields(i)) for n, i in enumerate(places)
    ]
    sealed.put(changed, model=MODEL)
    old = dict(truth.rows)
    truth.rows |= {name(i): new[n] for n, i in enumerate(places)}
    for n, i in enumerate(places):
        (hit,) = sealed.nearest(new[n], Filter(), model=MODEL, limit=1)
        assert (hit.id, round(hit.score, 4)) == (name(i), 1.0)
        (hit,) = sealed.nearest(old[name(i)], Filter(ids=name(i)), model=MODEL, limit=1)
        assert hit.score == pytest.approx(float(old[name(i)] @ new[n]), abs=1e-5)
    assert recall(sealed, truth, queries()) >= 0.95
    assert len(near(sealed, queries(1)[0], limit=ROWS + 99)) == ROWS


def test_a_record_that_another_process_rewrites_meanwhile_is_found(
    sealed: EmbeddedStore, opened: Opened, truth: Truth, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its row may be gone from the database when it is asked for: then it has another."""
    other, row = opened(), truth.rows[name(5)]
    follow = sealed._derived.refresh_to_search
    words = iter(["first", "second"])

    def overtaken(*head: Any) -> None:
        follow(*head)
        if word := next(words, None):
            other.put([entry(name(5), word, vectors=[row], **fields(5))], model=MODEL)

    monkeypatch.setattr(sealed._derived, "refresh_to_search", overtaken)
    assert near(sealed, row, limit=1) == [name(5)]
    assert near(sealed.view(), row, limit=1) == [name(5)]


# ---------------------------------------------------------------------- filters


NARROW: list[tuple[dict[str, Any], Callable[[int], bool]]] = [
    ({"tags": "rare"}, lambda i: i % 50 == 7),
    ({"ids": [name(i) for i in range(90)]}, lambda i: i < 90),
    ({"tags": "rare", "collection": "odd"}, lambda i: i % 50 == 7),
    ({"ids": [name(5), name(2_999)]}, lambda i: i in (5, 2_999)),
]
BROAD: list[tuple[dict[str, Any], Callable[[int], bool]]] = [
    ({"collection": "even"}, lambda i: i % 2 == 0),
    ({"importance_min": 0.85}, lambda i: i % 10 == 9),
    ({"importance_max": 0.75}, lambda i: i % 10 < 8),
    ({"collection": "odd", "importance_min": 0.45}, lambda i: i % 2 == 1 and i % 10 >= 5),
]


def life_after_sealing(store: EmbeddedStore, truth: Truth) -> None:
    more = corpus(200, seed=3)
    store.put(entries(more, first=ROWS), model=MODEL)
    truth.rows |= {name(ROWS + i): row for i, row in enumerate(more)}
    gone = [name(i) for i in range(100, 200)]
    store.delete(gone)
    for one in gone:
        del truth.rows[one]


@pytest.mark.parametrize(("narrowing", "keep"), NARROW, ids=[str(n[0])[:40] for n in NARROW])
def test_a_narrow_filter_is_answered_exactly(
    sealed: EmbeddedStore, truth: Truth, narrowing: dict[str, Any], keep: Callable[[int], bool]
) -> None:
    life_after_sealing(sealed, truth)
    for query in queries(15):
        assert near(sealed, query, limit=10, **narrowing) == truth.best(query, 10, keep)
        everything = near(sealed, query, limit=9_999, **narrowing)
        assert set(everything) == set(truth.best(query, 9_999, keep))


@pytest.mark.parametrize(("narrowing", "keep"), BROAD, ids=[str(n[0])[:40] for n in BROAD])
def test_a_broad_filter_keeps_the_promised_recall(
    sealed: EmbeddedStore, truth: Truth, narrowing: dict[str, Any], keep: Callable[[int], bool]
) -> None:
    life_after_sealing(sealed, truth)
    assert recall(sealed, truth, queries(), keep, **narrowing) >= 0.95
    allowed = {n for n in truth.rows if keep(int(n[1:]))}
    assert set(near(sealed, queries(1)[0], limit=9_999, **narrowing)) == allowed


def test_positions_of_few_filters_are_kept_where_they_are_many(
    sealed: EmbeddedStore, truth: Truth, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vectors, "POSITIONS", ROWS)
    for least in (*range(10), *range(10)):
        found = recall(
            sealed,
            truth,
            queries(2),
            lambda number, least=least: number % 10 >= least,
            importance_min=least / 10,
        )
        assert found > 0.8
    held = [len(o._filtered) for o in gc.get_objects() if isinstance(o, vectors.VectorFiles)]
    assert 1 <= max(held) < 5


def test_a_filter_in_between_keeps_the_promised_recall(opened: Opened) -> None:
    """Too many rows to be narrow, and yet one in twenty-five: the best ten lie in many lists,
    though a probe or two are enough to find the best ten of all rows."""
    store = opened(ivf_threshold=THRESHOLD)
    rows = corpus(40_000, themes=400, noise=0.7, dim=64)
    some = [
        entry(name(i), "x", vectors=rows[i : i + 1], tags=("some",) if i % 25 == 3 else ())
        for i in range(len(rows))
    ]
    store.put(some, model=MODEL)
    seal(store, rows=len(rows))
    asked = beside(rows[::1000])
    assert recall(store, Truth(rows), asked, lambda i: i % 25 == 3, tags="some") >= 0.95


def test_a_filter_that_leaves_only_what_is_far_away_still_gets_its_ten(
    opened: Opened, truth: Truth
) -> None:
    """The lists near the query hold nothing that is allowed."""
    store = opened(ivf_threshold=THRESHOLD)
    rows = corpus()
    query = rows[0]
    near_half = set(truth.best(query, ROWS // 2))
    store.put(
        [
            entry(
                name(i), "x", vectors=rows[i : i + 1], domain="near" if name(i) in near_half else ""
            )
            for i in range(ROWS)
        ],
        model=MODEL,
    )
    seal(store)
    far = [n for n in truth.best(query, ROWS) if n not in near_half]
    found = near(store, query, limit=10, not_domain="near")
    assert len(found) == 10 and len({*found, *far[:10]}) <= 11  # all of them, or all but one


def test_exclusions_hold_in_inverted_lists(opened: Opened) -> None:
    store = opened(ivf_threshold=THRESHOLD)
    rows = corpus()
    texts = ["zebra" if i % 3 else "walrus" for i in range(ROWS)]
    some = [entry(name(i), texts[i], vectors=rows[i : i + 1]) for i in range(ROWS)]
    store.put(some, model=MODEL)
    seal(store)
    truth = Truth(rows)
    shared = 0
    for query in queries(20):
        hits = near(store, query, limit=10, query="-walrus")
        assert len(hits) == 10
        assert all(int(n[1:]) % 3 for n in hits)
        shared += len(set(hits) & set(truth.best(query, 10, lambda i: i % 3 != 0)))
    assert shared / 200 >= 0.95


def test_one_vote_per_record_in_inverted_lists(opened: Opened) -> None:
    store = opened(ivf_threshold=THRESHOLD)
    rows = corpus()
    crowd = [np.concatenate([rows[:1]] * 300)]
    store.put([entry("crowd", ["x"] * 300, vectors=crowd[0])], model=MODEL)
    store.put(entries(rows), model=MODEL)
    seal(store)
    hits = near(store, rows[0], limit=10)
    assert len(set(hits)) == len(hits) == 10
    assert set(hits[:2]) == {"crowd", name(0)}


# ---------------------------------------------------------------------- rows in the database


def rows_in_file(folder: Path) -> int:
    (file,) = folder.glob("derived/vectors-*/rows-*.f32")
    return file.stat().st_size // (4 * DIM)


def fill(store: EmbeddedStore) -> None:
    store.put(entries(corpus()), model=MODEL)
    store.indexes.prepare(MODEL)


def test_optimising_drops_the_copies_of_rows_that_are_in_lists(
    opened: Opened, truth: Truth, folder: Path
) -> None:
    store = opened(ivf_threshold=THRESHOLD)
    fill(store)
    store.indexes.refresh(bulk=True)
    assert rows_in_file(folder) == ROWS
    seal(store)
    assert rows_in_file(folder) == 0
    other = opened(ivf_threshold=THRESHOLD)
    more = corpus(50, seed=2)
    store.put(entries(more, first=ROWS), model=MODEL)
    store.indexes.refresh()
    assert rows_in_file(folder) == 50
    truth.rows |= {name(ROWS + i): row for i, row in enumerate(more)}
    asked = np.concatenate([queries(20), more[:20]])
    assert recall(other, truth, asked) >= 0.95  # which has followed
    assert recall(store, truth, asked) >= 0.95
    assert ill(store) == []


def test_who_has_the_copies_open_while_they_are_dropped_goes_on(
    opened: Opened, truth: Truth, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened(ivf_threshold=THRESHOLD)
    fill(store)
    with monkeypatch.context() as patch:
        patch.setattr(vectors.VectorIndex, "drop_sealed", lambda self: None)
        seal(store)
    other = opened(ivf_threshold=THRESHOLD)
    before = [near(other, query, limit=10) for query in queries(5)]
    store.indexes.refresh(optimise=True)
    assert rows_in_file(folder) == 0
    assert [near(other, query, limit=10) for query in queries(5)] == before
    assert [near(store, query, limit=10) for query in queries(5)] == before


def test_a_full_disk_while_copies_are_dropped_leaves_all_as_it_was(
    opened: Opened, truth: Truth, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened(ivf_threshold=THRESHOLD)
    fill(store)

    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(vectors.VectorIndex, "_sweep", refuse)
        patch.setattr(vectors.DerivedFolder, "save", refuse)
        with pytest.raises(StoreError, match="No space left"):
            seal(store)
    seal(store)
    assert rows_in_file(folder) == 0
    assert recall(store, truth, queries(10)) >= 0.95
    assert ill(store) == []


def test_a_damaged_vector_of_a_row_in_lists_is_left_out_and_named(
    opened: Opened, truth: Truth, folder: Path
) -> None:
    store = opened(ivf_threshold=THRESHOLD)
    fill(store)
    seal(store)
    store.close()
    with sqlite3.connect(folder / "clew.db") as db:
        db.execute("UPDATE vectors SET embedding = zeroblob(length(embedding)) WHERE cid = 8")
    again = opened(ivf_threshold=THRESHOLD)
    assert name(7) not in near(again, truth.rows[name(7)], limit=ROWS)
    assert len(near(again, truth.rows[name(7)], limit=10)) == 10
    assert any("vectors" in problem for problem in ill(again))


# ---------------------------------------------------------------------- renewal


def test_the_sealed_part_is_renewed_when_the_tail_outgrows_its_share(
    sealed: EmbeddedStore, truth: Truth, folder: Path
) -> None:
    (before,) = folder.glob("derived/vectors-*/ivf-*.faiss")
    more = corpus(500, seed=4)
    sealed.put(entries(more, first=ROWS), model=MODEL)
    sealed.indexes.refresh()
    assert sealed.stats(model=MODEL)["vectors"]["tail"] == 500  # not yet
    sealed.put(entries(more[:1] * -1, first=ROWS + 500), model=MODEL)
    stage = seal(sealed, rows=ROWS + 501)
    assert (stage["sealed"], stage["tail"]) == (ROWS + 501, 0)
    assert stage["recall"] >= 0.95
    (after,) = folder.glob("derived/vectors-*/ivf-*.faiss")
    assert after != before
    truth.rows |= {name(ROWS + i): row for i, row in enumerate([*more, -more[0]])}
    assert recall(sealed, truth, np.concatenate([queries(20), more[:20]])) >= 0.95
    assert ill(sealed) == []


def test_the_sealed_part_is_renewed_in_the_background_of_searches(
    sealed: EmbeddedStore, truth: Truth
) -> None:
    more = corpus(900, seed=5)
    sealed.put(entries(more, first=ROWS), model=MODEL)
    for _ in range(3_000):
        assert near(sealed, more[3], limit=1) == [name(ROWS + 3)]
        if sealed.stats(model=MODEL)["vectors"]["sealed"] == ROWS + 900:
            break
    else:
        pytest.fail("searches alone never had it renewed")
    assert near(sealed, more[3], limit=1) == [name(ROWS + 3)]


def test_lists_that_a_full_disk_refuses_leave_nothing_and_are_not_tried_by_every_search(
    opened: Opened, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import faiss

    tried: list[str] = []

    def refuse(_: object, file: str) -> None:
        tried.append(file)
        Path(file).write_bytes(bytes(100))
        raise RuntimeError("could not write: No space left on device")

    store = opened(ivf_threshold=THRESHOLD)
    fill(store)
    with monkeypatch.context() as patch:
        patch.setattr(faiss, "write_index", refuse)
        with pytest.raises(StoreError, match="No space left"):
            seal(store)
        assert len(tried) == 1
        end = time.monotonic() + 3
        while time.monotonic() < end and len(tried) < 3:
            near(store, corpus(1)[0], limit=1)
            time.sleep(0.02)
        assert len(tried) == 2
    assert list(folder.glob("derived/vectors-*/ivf-*")) == []


def test_growing_far_beyond_what_the_lists_were_learnt_from_keeps_recall(
    sealed: EmbeddedStore, truth: Truth
) -> None:
    """Other themes, and four times as many rows: old centroids would serve them badly."""
    rng = np.random.default_rng(11)
    rows = 3 + rng.standard_normal((9_500, DIM))
    rows = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    first = ROWS
    for part in np.array_split(rows, 4):
        sealed.put(entries(part, first=first), model=MODEL)
        first += len(part)
        stage = seal(sealed, rows=first)
        assert stage["recall"] >= 0.95
    truth.rows |= {name(ROWS + i): row for i, row in enumerate(rows)}
    asked = np.concatenate([queries(15), rows[:: len(rows) // 15]])
    assert recall(sealed, truth, asked) >= 0.95


def test_another_opening_takes_over_lists_renewed_under_it(
    sealed: EmbeddedStore, opened: Opened, truth: Truth
) -> None:
    other = opened(ivf_threshold=THRESHOLD)
    assert recall(other, truth, queries(10)) >= 0.9
    more = corpus(700, seed=6)
    sealed.put(entries(more, first=ROWS), model=MODEL)
    seal(sealed, rows=ROWS + 700)
    truth.rows |= {name(ROWS + i): row for i, row in enumerate(more)}
    assert recall(other, truth, np.concatenate([queries(10), more[:10]])) >= 0.95
    other.put([entry("one more", "x", vectors=unit_rows(1, DIM, seed=20))], model=MODEL)
    assert near(sealed, unit_rows(1, DIM, seed=20)[0], limit=1) == ["one more"]
    assert near(other, unit_rows(1, DIM, seed=20)[0], limit=1) == ["one more"]
    assert other.stats(model=MODEL)["vectors"]["sealed"] == ROWS + 700
    assert ill(other) == []


def test_lists_built_while_the_rows_were_started_over_are_not_taken(
    opened: Opened, truth: Truth, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Someone mends the store during a long build: positions no longer mean the same rows."""
    monkeypatch.setattr(vectors, "TAIL_ROWS", 10**9)  # not in the background, not yet
    store, other = opened(ivf_threshold=THRESHOLD), opened(ivf_threshold=10**9)
    rows = corpus()
    store.put(entries(unit_rows(400, DIM, seed=30), first=50_000), model=MODEL)
    store.put(entries(rows), model=MODEL)
    store.indexes.prepare(MODEL)
    store.indexes.refresh()
    store.delete([name(50_000 + i) for i in range(400)])  # dead rows, at the front
    more = corpus(600, seed=8)
    mended = False

    def progress(stage: str, done: int, total: int) -> None:
        nonlocal mended
        if stage == "sealing vectors" and done == total and not mended:
            mended = True
            other.put(entries(more, first=ROWS), model=MODEL)
            other.indexes.rebuild()

    monkeypatch.setattr(vectors, "TAIL_ROWS", 500)
    store.indexes.refresh(progress=progress, optimise=True)
    assert mended
    truth.rows |= {name(ROWS + i): row for i, row in enumerate(more)}
    assert recall(store, truth, np.concatenate([queries(20), more[:20]])) >= 0.95
    assert ill(store) == []
    store.close()
    again = opened(ivf_threshold=THRESHOLD)
    assert recall(again, truth, np.concatenate([queries(20), more[:20]])) >= 0.95


def test_space_of_replaced_rows_is_taken_back_in_the_end(opened: Opened, folder: Path) -> None:
    """A store whose records are edited every day must not grow for ever."""
    store = opened(ivf_threshold=THRESHOLD)
    rows = unit_rows(600, DIM)
    for round_number in range(12):
        moved = np.roll(rows, round_number, axis=0)
        store.put(entries(moved), model=MODEL)
        store.indexes.prepare(MODEL)
        store.indexes.refresh(optimise=True)
    (file,) = folder.glob("derived/vectors-*/rows-*.f32")
    assert file.stat().st_size <= 4 * 600 * DIM * 4
    assert near(store, moved[17], limit=1) == [name(17)]
    assert ill(store) == []


def test_closing_ends_what_goes_on_in_the_background(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of a closed store may run on, nor complain on the terminal of whoever used it."""
    complaints: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", complaints.append)
    before = set(threading.enumerate())
    for _ in range(4):
        store = opened(ivf_threshold=THRESHOLD)
        store.put(entries(corpus()), model=MODEL)
        shutil.rmtree(store.folder / "derived", ignore_errors=True)
        near(store, queries(1)[0], limit=1)  # has inverted lists built
        store.close()
        assert set(threading.enumerate()) <= before
    assert complaints == []


# ---------------------------------------------------------------------- oddities


def test_equal_vectors_and_a_zero_vector_do_no_harm(opened: Opened) -> None:
    store = opened(ivf_threshold=THRESHOLD)
    same = np.tile(unit_rows(1, DIM), (2_600, 1))
    same[-1] = 0
    store.put(entries(same), model=MODEL)
    stage = seal(store)
    assert stage["recall"] >= 0
    hits = store.nearest(same[0], Filter(), model=MODEL, limit=10)
    assert [hit.score for hit in hits] == [1.0] * 10
    assert len(near(store, same[0], limit=9_999)) == 2_600


def test_a_state_from_an_older_format_is_built_anew(
    sealed: EmbeddedStore, opened: Opened, folder: Path, truth: Truth
) -> None:
    sealed.close()
    (path,) = folder.glob("derived/vectors-*/state.json")
    state = json.loads(path.read_text())
    path.write_text(json.dumps({**state, "format": -1}))
    store = opened(ivf_threshold=THRESHOLD)
    assert near(store, truth.rows[name(8)], limit=1) == [name(8)]
    assert json.loads(path.read_text())["format"] == state["format"]


def test_models_whose_names_differ_in_signs_alone_have_an_index_each(
    opened: Opened, folder: Path
) -> None:
    store = opened()
    store.put([entry("a", "zebra", vectors=[[1, 0]])], model="m:1")
    store.put([entry("b", "zebra", vectors=[[0, 1]])], model="m/1")
    for _ in range(2):
        assert near(store, [1, 0], model="m:1") == ["a"]
        assert near(store, [0, 1], model="m/1") == ["b"]
    store.indexes.refresh()
    places = sorted(folder.glob("derived/vectors-*"))
    assert len(places) == 2
    shutil.copytree(places[0], folder / "derived" / "vectors-m_1")  # as it was called before
    store.indexes.refresh(optimise=True)
    assert sorted(folder.glob("derived/vectors-*")) == places
    assert near(store, [1, 0], model="m:1") == ["a"]


def test_a_copied_store_finds_the_same(sealed: EmbeddedStore, tmp_path: Path, folder: Path) -> None:
    before = [near(sealed, query, limit=10) for query in queries(5)]
    sealed.close()
    shutil.copytree(folder, tmp_path / "copy")
    copy = EmbeddedStore(tmp_path / "copy", ivf_threshold=THRESHOLD)
    assert [near(copy, query, limit=10) for query in queries(5)] == before
    copy.close()


def test_a_bulk_load_keeps_most_rows_in_lists_and_seldom_measures_them(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vectors, "TAIL_ROWS", 10)
    measured: list[int] = []

    def measure(index: Any, rows: Any, *more: Any) -> tuple[int, float]:
        measured.append(len(rows))
        return measured_before(index, rows, *more)

    measured_before = inverted_lists._measure
    monkeypatch.setattr(inverted_lists, "_measure", measure)
    store = opened(ivf_threshold=200)
    rows = corpus(1_000)
    for first in range(0, len(rows), 100):
        batch = [entry(f"n{i}", "w", vectors=rows[i : i + 1]) for i in range(first, first + 100)]
        store.put(batch, model=MODEL)
        store.indexes.prepare(MODEL)
        store.indexes.refresh(bulk=True)
        stage = store.stats(model=MODEL)["vectors"]
        assert first < 100 or 2 * stage["tail"] <= stage["rows"] == first + 100
    store.indexes.refresh(optimise=True)  # which waits for what is being built
    stage = store.stats(model=MODEL)["vectors"]
    assert (stage["rows"], stage["sealed"], stage["tail"]) == (1_000, 1_000, 0)
    assert measured[0] == 200 and 2 <= len(measured) <= 6  # grown to twice as many, or made anew


def test_an_index_begins_anew_where_its_folder_is_being_written_to(
    sealed: EmbeddedStore, truth: Truth, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever makes lists needs no lock for it, and a folder with a new file in it stays."""
    monkeypatch.setattr(vectors.shutil, "rmtree", lambda *where, **how: None)
    sealed.indexes.rebuild()
    assert recall(sealed, truth, queries(10)) >= 0.95
    assert ill(sealed) == []


def test_lists_that_were_taken_away_are_made_anew(
    sealed: EmbeddedStore, truth: Truth, folder: Path
) -> None:
    (lists,) = folder.glob("derived/vectors-*/ivf-*")
    lists.unlink()
    more = corpus(600, seed=2)
    sealed.put(entries(more, first=ROWS), model=MODEL)
    truth.rows |= {name(ROWS + i): row for i, row in enumerate(more)}
    seal(sealed, rows=ROWS + 600)
    assert recall(sealed, truth, queries(10)) >= 0.95
    assert ill(sealed) == []
