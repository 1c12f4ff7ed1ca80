"""The DuckDB store against the embedded one: the same corpus gives the same lists."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from clew.filter import Filter
from clew.protocols import Store
from clew.store import DuckStore, EmbeddedStore
from entries import MODEL, entry, terms, unit_rows

VOCABULARY = [f"{a}{b}{c}" for a in "bdfg" for b in "aeiou" for c in "klmn"]
COUNT = 600
FILTERS = [
    Filter(),
    Filter(collection="two"),
    Filter(tags=["t1", "t3"], importance_min=0.3),
    Filter(path="folder1/**/*.md"),
    Filter(metadata={"n": {"gte": 300}}, not_tags="t2"),
    Filter(active=True, not_domain="personal"),
    Filter(ids=[f"r{i:03}" for i in range(0, COUNT, 7)]),
]


def corpus(store: Store) -> None:
    draw = random.Random(1)
    rows = unit_rows(COUNT, seed=1)
    weights = [1 / (i + 3) for i in range(len(VOCABULARY))]
    entries = [
        entry(
            f"r{i:03}",
            " ".join(draw.choices(VOCABULARY, weights, k=30)),
            title=" ".join(draw.choices(VOCABULARY, weights, k=3)),
            vectors=rows[i : i + 1],
            collection=draw.choice(["one", "two"]),
            domain=draw.choice(["", "", "personal"]),
            tags=tuple(draw.sample(["t1", "t2", "t3"], k=draw.randrange(3))),
            path=f"folder{i % 3}/{draw.choice(VOCABULARY)}.md",
            importance=draw.random(),
            created_at=float(i),
            updated_at=float(i),
            metadata={"n": i},
        )
        for i in range(COUNT)
    ]
    for i in range(0, COUNT, 100):
        store.put(entries[i : i + 100], model=MODEL)
    store.lifecycle.end([f"r{i:03}" for i in range(0, COUNT, 11)], at=5.0, reason="forgotten")
    store.delete([f"r{i:03}" for i in range(0, COUNT, 13)])
    store.indexes.refresh(optimise=True)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Store, Store]]:
    folder: Path = tmp_path_factory.mktemp("both")
    with (
        closing(EmbeddedStore(folder / "embedded")) as one,
        closing(DuckStore(folder / "other.duckdb")) as other,
    ):
        corpus(one)
        corpus(other)
        yield one, other


@pytest.mark.parametrize("filter", FILTERS, ids=str)
def test_both_legs_give_the_same_records_with_the_same_scores(
    both: tuple[Store, Store], filter: Filter
) -> None:
    draw = random.Random(2)
    queries = unit_rows(12, seed=2)
    for query in queries:
        words = terms(" ".join(draw.choices(VOCABULARY, k=4)))
        lists = [
            (
                [(c.id, c.score) for c in store.keyword(words, filter, limit=20)],
                [(c.id, c.score) for c in store.nearest(query, filter, model=MODEL, limit=20)],
                store.count(filter),
                store.vectors.missing(filter, model=MODEL),
                np.round(store.indexes.reach(words, filter), 6),
            )
            for store in both
        ]
        assert lists[0][1:3] == lists[1][1:3]
        assert lists[0] == lists[1]
        assert len(lists[0][1]) == min(20, lists[0][2])


@pytest.mark.parametrize("filter", FILTERS, ids=str)
def test_labels_give_the_same_records_with_the_same_scores(
    both: tuple[Store, Store], filter: Filter
) -> None:
    groups = [(1.0, ["t1"]), (0.5, ["folder1", "t3"]), (0.25, VOCABULARY[:20])]
    for kinds in (["tag"], ["folder", "name"], ["tag", "folder", "name"]):
        one, other = (s.labelled(kinds, groups, filter, limit=40) for s in both)
        assert one == other
        assert one


def test_what_is_read_of_records_is_the_same(both: tuple[Store, Store]) -> None:
    one, other = (store.select(Filter(), limit=999) for store in both)
    assert [(r.id, r.content, sorted(r.tags)) for r in one] == [
        (r.id, r.content, sorted(r.tags)) for r in other
    ]
    for store in both:
        assert len(store.indexes.lengths()) > 0
    ended = Filter(active=False)
    assert both[0].lifecycle.ledger(ended) == both[1].lifecycle.ledger(ended)
    assert both[0].vectors.pending("another") == both[1].vectors.pending("another")
