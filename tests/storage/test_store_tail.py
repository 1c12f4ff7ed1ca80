"""Writes that are not in the indexes on disk yet are found, and ranked as they will be."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import filelock
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import vector

from clew.filter import Filter
from clew.index import maintenance
from clew.index.unflushed import FEWEST, cut_ranking, merge_rankings
from clew.storage.log import Change, Changes
from clew.store import EmbeddedStore
from clew.types import Entry
from entries import MODEL, WORDS, entry, found, ill, near, terms, unit_rows

Opened = Callable[..., EmbeddedStore]
Scores = dict[str, float]

SAME_LENGTHS = 1e-4
"""How far scores from memory may be off, as a share, where all passages are equally long: what
single precision leaves open."""
OTHER_LENGTHS = 0.1
"""And where those in memory are up to half as many as on disk and twice as long on average."""


def place(folder: Path) -> list[int]:
    """How far the keyword index on disk is."""
    state = json.loads((folder / "derived" / "keyword.json").read_text())
    return list(state["place"])


def texts(count: int, *, seed: int, low: int = 12, high: int = 12) -> list[str]:
    dice = random.Random(seed)
    weights = [1 / (rank + 1) for rank in range(len(WORDS))]
    lengths = [dice.randint(low, high) for _ in range(count)]
    return [" ".join(dice.choices(WORDS, weights, k=length)) for length in lengths]


def entries(name: str, some: list[str], *, seed: int = 0) -> list[Entry]:
    rows = unit_rows(len(some), seed=seed)
    titles = ["", "keel log", "rope and mast"]
    return [
        entry(
            f"{name}{i:03}",
            text,
            vectors=[rows[i]],
            title=titles[i % 3],
            tags=("odd",) if i % 2 else ("even",),
        )
        for i, text in enumerate(some)
    ]


QUERIES = [
    "keel",
    "oar helm",
    "keel mast sail rope deck",
    "buoy tide bolt hull nowhere",
    '"keel mast" rope',
    '"helm" bow',
    "keel -bow",
    '"rope deck" -"mast sail"',
    "keel-mast",
]


def ranking(store: EmbeddedStore, query: str, **filter: object) -> Scores:
    hits = store.keyword(terms(query), Filter(**filter), limit=40)  # type: ignore[arg-type]
    return {hit.id: hit.score for hit in hits}


def both(
    opened: Opened, tmp_path: Path, old: list[Entry], new: list[Entry], gone: list[str]
) -> tuple[EmbeddedStore, EmbeddedStore]:
    """A store that has the new ones in memory, and one that has them on disk."""
    lagging, written = opened(), EmbeddedStore(tmp_path / "written")
    for store in (lagging, written):
        store.put(old, model=MODEL)
        found(store, "keel")
        near(store, vector("x"))
        store.put(new, model=MODEL)
        store.delete(gone)
    written.indexes.refresh()
    return lagging, written


@pytest.mark.parametrize("filter", [{}, {"tags": "odd"}, {"ids": ["old001", "new001", "new002"]}])
def test_what_is_in_memory_is_ranked_as_it_will_be_on_disk(
    opened: Opened, folder: Path, tmp_path: Path, filter: dict[str, object]
) -> None:
    # a third of each has either title: so the average length stays the same
    old, new = entries("old", texts(198, seed=1)), entries("new", texts(60, seed=2), seed=1)
    changed = entries("old", texts(6, seed=3), seed=2)
    gone = ["old050", "new006", "new007", "new008"]
    lagging, written = both(opened, tmp_path, old, [*new, *changed], gone)
    before = place(folder)
    for query in QUERIES:
        mine, theirs = ranking(lagging, query, **filter), ranking(written, query, **filter)
        assert mine == pytest.approx(theirs, rel=SAME_LENGTHS), query
        if len(set(theirs.values())) == len(theirs):  # else a last digit may settle a tie
            assert list(mine) == list(theirs), query
        narrow = Filter(**filter)  # type: ignore[arg-type]
        reach = (store.indexes.reach(terms(query), narrow) for store in (lagging, written))
        assert next(reach) == pytest.approx(next(reach), rel=0.02), query
    for row in unit_rows(20, seed=9):
        for limit in (5, 1000):
            assert near(lagging, row, limit=limit, **filter) == near(
                written, row, limit=limit, **filter
            )
    assert place(folder) == before  # nothing was written for that
    written.close()


def test_passages_of_other_lengths_are_ranked_nearly_as_they_will_be(
    opened: Opened, tmp_path: Path
) -> None:
    """Lengths beyond 40 tokens are rounded on disk, and so they are in memory."""
    old = entries("old", texts(200, seed=1, low=5, high=80))
    new = entries("new", texts(90, seed=2, low=20, high=150))
    lagging, written = both(opened, tmp_path, old, new, ["old003"])
    for query in QUERIES:
        mine, theirs = ranking(lagging, query), ranking(written, query)
        together = mine.keys() & theirs.keys()
        assert len(together) >= 0.8 * len(theirs), query
        for name in together:
            assert mine[name] == pytest.approx(theirs[name], rel=OTHER_LENGTHS), (query, name)
    written.close()


def test_one_character_of_an_unspaced_script_is_found_in_memory(opened: Opened) -> None:
    store = opened()
    store.put([entry("old", "北京大学")])
    assert found(store, "大") == ["old"]
    store.put([entry("new", "大海"), entry("other", "天空")])
    assert found(store, "大") == ["new", "old"]
    assert found(store, '"大"') == ["new", "old"]
    assert found(store, "空") == ["other"]


def test_a_word_that_only_new_records_have_is_found(opened: Opened) -> None:
    store = opened()
    store.put([entry("old", "zebra")])
    assert found(store, "zebra") == ["old"]
    store.put([entry("new", "walrus", title="heron")])
    assert found(store, "walrus") == found(store, "heron") == found(store, '"heron"') == ["new"]


def test_reading_and_writing_in_turns_writes_no_index(opened: Opened, folder: Path) -> None:
    store = opened()
    store.put(entries("old", texts(100, seed=1)), model=MODEL)
    assert found(store, "keel") and len(near(store, vector("x"))) == 100
    before = place(folder)
    for number in range(40):
        name = f"n{number:03}"
        store.put([entry(name, f"walrus {name}", vectors=[vector(name)])], model=MODEL)
        assert found(store, name)[0] == near(store, vector(name), limit=1)[0] == name
        assert len(found(store, "walrus")) == number + 1
    assert place(folder) == before
    assert ill(store) == []


def test_what_is_gone_is_masked_in_both_legs_and_in_phrases(opened: Opened, folder: Path) -> None:
    store = opened()
    rows = unit_rows(100)
    store.put(
        [entry(f"r{i:02}", f"zebra w{i} brown", vectors=[rows[i]]) for i in range(100)],
        model=MODEL,
    )
    assert len(found(store, "zebra")) == len(near(store, rows[0])) == 100
    before = place(folder)
    store.delete(["r01"])
    store.put([entry("r02", "zebra changed brown", vectors=[-rows[2]])], model=MODEL)
    assert "r01" not in found(store, "zebra")
    assert "r01" not in near(store, rows[1])
    assert found(store, "w2") == []
    assert found(store, '"zebra w2"') == []
    assert found(store, '"changed brown"') == ["r02"]
    assert near(store, rows[2], limit=1) != ["r02"]
    assert near(store, -rows[2], limit=1) == ["r02"]
    assert "r02" not in found(store, "zebra -changed")
    assert "r02" in found(store, "zebra -w2")  # that it had once
    assert len(near(store, rows[0], query="-changed")) == 98
    assert store.indexes.coverage(MODEL) == 1.0
    assert place(folder) == before
    assert ill(store) == []


def test_what_came_and_went_between_two_searches_leaves_no_trace(
    opened: Opened, folder: Path
) -> None:
    store = opened()
    store.put([entry(f"r{i}", "zebra", vectors=[vector("x")]) for i in range(40)], model=MODEL)
    assert len(found(store, "zebra")) == len(near(store, vector("x"))) == 40
    store.put([entry("brief", "zebra walrus", vectors=[vector("y")])], model=MODEL)
    store.delete(["brief"])
    assert len(found(store, "zebra")) == len(near(store, vector("x"))) == 40
    assert found(store, "walrus") == []
    assert store.indexes.coverage(MODEL) == 1.0
    assert store.indexes.lengths()
    assert ill(store) == []


def test_a_vector_that_comes_later_is_found_before_it_is_on_disk(
    opened: Opened, folder: Path
) -> None:
    store = opened()
    store.put([entry("old", "zebra", vectors=[vector("old")])], model=MODEL)
    assert near(store, vector("old")) == ["old"]
    found(store, "zebra")
    before = place(folder)
    store.put([entry("new", "walrus")])
    assert store.indexes.coverage(MODEL) == 0.5
    assert near(store, vector("new")) == ["old"]
    store.vectors.set(store.vectors.pending(MODEL), np.array([vector("new")]), model=MODEL)
    assert near(store, vector("new"), limit=1) == ["new"]
    assert store.indexes.coverage(MODEL) == 1.0
    assert place(folder) == before


def test_a_tail_that_outgrows_its_room_is_written_in_the_background(
    opened: Opened, folder: Path
) -> None:
    store = opened()
    store.put([entry("old", "zebra", vectors=[vector("old")])], model=MODEL)
    assert found(store, "zebra") == near(store, vector("old")) == ["old"]
    before = place(folder)
    for number in range(FEWEST + 1):
        store.put([entry(f"n{number}", "zebra", vectors=[vector("n")])], model=MODEL)
        assert len(found(store, "zebra")) == len(near(store, vector("n"))) == number + 2
    store.close()  # which waits for what was begun
    assert place(folder)[0] > before[0]
    again = opened()
    assert len(found(again, "zebra")) == len(near(again, vector("n"))) == FEWEST + 2
    assert ill(again) == []


def test_what_another_process_wrote_to_disk_is_not_found_twice(
    opened: Opened, folder: Path
) -> None:
    store, other = opened(), opened()
    store.put(entries("old", texts(60, seed=1)), model=MODEL)
    for one in (store, other):
        assert len(near(one, vector("x"))) == 60
        found(one, "keel")
    for number in range(12):
        name = f"n{number}"
        store.put([entry(name, f"walrus {name}", vectors=[vector(name)])], model=MODEL)
        for one in (store, other):
            assert len(found(one, "walrus")) == number + 1
            assert len(near(one, vector("x"))) == 61 + number
        if number % 4 == 3:
            other.indexes.refresh()  # what `store` has in memory is on disk now
            store.delete(["old000"])
            store.put([entry("old000", "zebra", vectors=[vector("z")])], model=MODEL)
        assert found(store, "walrus") == found(other, "walrus")
    store.indexes.refresh()
    assert ill(store) == ill(other) == []


def test_a_store_opened_anew_reads_a_few_changes_and_writes_many(
    opened: Opened, folder: Path
) -> None:
    """So that a command that asks one thing and ends does not read the same again each time."""
    alone = 1_000_000  # no inverted lists are made, in the background, by whoever is open
    store = opened(ivf_threshold=alone)
    store.put(entries("old", texts(300, seed=1)), model=MODEL)
    found(store, "keel")
    near(store, vector("x"))
    for count, kept in ((maintenance.AT_FIRST // 2, True), (maintenance.AT_FIRST + 1, False)):
        before = place(folder)
        store.put(entries(f"n{count}x", texts(count, seed=2)), model=MODEL)
        passer_by = opened(ivf_threshold=alone)
        assert len(found(passer_by, "log mast keel", limit=999)) > count / 2
        assert (place(folder) == before) is kept


def test_a_store_that_others_hold_is_searched_as_soon_as_it_is_opened(
    opened: Opened, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "LOCK_SECONDS", 0.0)
    store = opened()
    store.put(entries("old", texts(300, seed=1)), model=MODEL)
    found(store, "keel")
    near(store, vector("x"))
    many = maintenance.AT_FIRST + 10
    store.put([entry(f"n{i}", "walrus", vectors=[vector("n")]) for i in range(many)], model=MODEL)
    with filelock.FileLock(folder / "derived.lock"):
        newcomer = opened()
        assert len(found(newcomer, "walrus")) == many
        assert len(near(newcomer, vector("n"))) == 300 + many
        assert newcomer.indexes.behind == 0


# ---------------------------------------------------------------------- the parts by themselves

mentions = st.lists(
    st.tuples(
        st.sampled_from(["chunk", "gone", "vector", "record"]),
        st.integers(1, 50),
        st.integers(0, 3),
    ),
    max_size=30,
).map(lambda rows: [Change(i, 7 * i, k, f, f + n) for i, (k, f, n) in enumerate(rows, start=1)])


@given(mentions, st.integers(0, 40))
def test_a_lag_that_is_rebased_says_what_is_left_and_loses_no_place(
    rows: list[Change], number: int
) -> None:
    lag = Changes((0, 0), (0, 0)).extended(rows)
    base = (number, 7 * number)
    left = lag.rebased(base)
    assert left.place == max(base, lag.place)
    after = Changes(base, base).extended(row for row in rows if row.number > number)
    for kind in ("chunk", "gone", "vector"):
        assert left.numbers(kind) == after.numbers(kind)
        assert left.size(kind) == after.size(kind)


def test_a_lag_of_another_history_is_given_up() -> None:
    lag = Changes((0, 0), (0, 0)).extended(
        [Change(1, 5, "chunk", 1, 1), Change(2, 6, "chunk", 2, 2)]
    )
    assert lag.rebased((1, 99)) == Changes((1, 99), (1, 99))


scored = st.lists(
    st.tuples(st.integers(0, 12), st.integers(0, 40), st.integers(0, 6).map(float)), max_size=20
)


@given(scored, scored, st.integers(1, 10))
def test_two_lists_are_merged_with_one_vote_each_and_nothing_lost_at_the_cut(
    some: list[tuple[int, int, float]], more: list[tuple[int, int, float]], limit: int
) -> None:
    def ranked(hits: list[tuple[int, int, float]]) -> list[tuple[int, int, float]]:
        return cut_ranking(sorted(hits, key=lambda hit: (-hit[2], hit[0], hit[1])), limit)

    together = merge_rankings(ranked(some), ranked(more), limit)
    assert len({hit[0] for hit in together}) == len(together)
    highest: dict[int, float] = {}
    for rid, _, score in (*some, *more):
        highest[rid] = max(score, highest.get(rid, 0.0))
    wanted = sorted(highest.values(), reverse=True)
    cut = wanted[min(limit, len(wanted)) - 1] if wanted else 0.0
    assert {hit[0] for hit in together} == {rid for rid, score in highest.items() if score >= cut}
    assert [hit[2] for hit in together] == sorted((hit[2] for hit in together), reverse=True)
