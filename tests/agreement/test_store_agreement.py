"""Other stores against the embedded one: the same corpus gives the same lists."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from clew.filter import Filter
from clew.protocols import Store
from clew.store import DuckStore, EmbeddedStore, open_store
from entries import MODEL, entry, terms, unit_rows
from postgres_server import new_url

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
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with closing(EmbeddedStore(tmp_path_factory.mktemp("one"))) as store:
        corpus(store)
        yield store


@pytest.fixture(scope="module", params=["duckdb", "postgres"])
def both(
    embedded: Store, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Store, Store]]:
    folder: Path = tmp_path_factory.mktemp("other")
    other: Store = (
        DuckStore(folder / "other.duckdb")
        if request.param == "duckdb"
        else open_store(new_url(), base=folder, folder=folder)
    )
    with closing(other):
        corpus(other)
        yield embedded, other


@pytest.mark.parametrize("filter", FILTERS, ids=str)
def test_both_legs_give_the_same_records_with_the_same_scores(
    both: tuple[Store, Store], filter: Filter
) -> None:
    draw = random.Random(2)
    queries = unit_rows(12, seed=2)
    for query in queries:
        words = terms(" ".join(draw.choices(VOCABULARY, k=4)))
        for leg in (
            lambda store, words=words: store.keyword(words, filter, limit=20),
            lambda store, query=query: store.nearest(query, filter, model=MODEL, limit=20),
        ):
            one, other = (leg(store) for store in both)
            assert [c.id for c in one] == [c.id for c in other]
            # as near as two ways to add up come
            assert [c.score for c in one] == pytest.approx([c.score for c in other], rel=2e-5)
        figures = [
            (
                store.count(filter),
                store.vectors.missing(filter, model=MODEL),
                np.round(store.indexes.reach(words, filter), 6),
            )
            for store in both
        ]
        assert figures[0] == figures[1]
        assert len(one) == min(20, figures[0][0])


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
    for field in ("collection", "type", "tag", "path", "key"):
        assert both[0].counts(field, Filter()) == both[1].counts(field, Filter())
