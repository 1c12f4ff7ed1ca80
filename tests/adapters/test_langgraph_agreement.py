"""ClewStore against LangGraph's own InMemoryStore: the same operations, the same answers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langgraph.store.base import ListNamespacesOp, MatchCondition, PutOp, get_text_at_path
from langgraph.store.memory import InMemoryStore

import clew
from clew.adapters.langgraph import ClewStore

from hashing import HashingEmbedder

LABELS = st.sampled_from(["a", "b", "a/b", "ü", "a b", "*x"])
PLACES = st.lists(LABELS, min_size=1, max_size=3).map(tuple)
KEYS = st.sampled_from(["k", "l", "k/l", "K", "é"])
# InMemoryStore takes "5" for 5 in a comparison, so no text here looks like a number.
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.sampled_from([0.5, 1.0, -0.0, 2**53, 2**53 + 1, 2**63, 2**63 + 1, -(2**70), 1e300])
    | st.sampled_from(["red", "blue", "", "Red", "x\0y", "日本"])
)
VALUES = st.dictionaries(
    st.sampled_from(["p", "q", "r"]),
    SCALARS
    | st.lists(SCALARS, max_size=2)
    | st.dictionaries(st.sampled_from(["s", "t"]), SCALARS, max_size=2),
    max_size=3,
)
BOUNDS = st.dictionaries(
    st.sampled_from(["$eq", "$ne", "$gt", "$gte", "$lt", "$lte"]), SCALARS, min_size=1, max_size=3
)
CONDITIONS = st.dictionaries(
    st.sampled_from(["p", "q", "r"]),
    SCALARS
    | BOUNDS
    | st.lists(SCALARS, max_size=2)
    | st.dictionaries(st.sampled_from(["s", "t"]), SCALARS | BOUNDS, max_size=2)
    | st.fixed_dictionaries({"$eq": st.lists(SCALARS, max_size=2)}),
    max_size=2,
)
PUTS = st.builds(PutOp, PLACES, KEYS, VALUES, st.sampled_from([None, None, False, ["p"], ["q.s"]]))
DELETES = st.builds(PutOp, PLACES, KEYS, st.none())
WRITES = st.lists(st.lists(st.one_of(PUTS, PUTS, PUTS, DELETES), max_size=6), max_size=4)
PATHS = st.lists(LABELS | st.just("*"), min_size=1, max_size=3).map(tuple)
MATCHES = st.lists(
    st.builds(MatchCondition, st.sampled_from(["prefix", "suffix"]), PATHS), max_size=2
).map(tuple)


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClewStore]:
    path = tmp_path_factory.mktemp("agreement") / "memory.db"
    with clew.Memory(path, embedder=HashingEmbedder()) as memory:
        yield ClewStore(memory)


def embed(texts: list[str]) -> list[list[float]]:
    return HashingEmbedder().embed_documents(texts).tolist()


def both(ours: ClewStore, writes: list[list[PutOp]]) -> InMemoryStore:
    """The other store, after the same writes; ours was emptied before."""
    ours.batch([PutOp(i.namespace, i.key, None) for i in ours.search((), limit=10_000)])
    assert ours.search(()) == []
    theirs = InMemoryStore()
    for batch in writes:
        assert ours.batch(batch) == theirs.batch(batch)
    return theirs


def with_vectors(writes: list[list[PutOp]]) -> InMemoryStore:
    """The other store with what is left of the writes, put one by one: it fails on a batch that has
    a text twice, and keeps the vectors of values that were replaced."""
    store = InMemoryStore(index={"dims": 64, "embed": embed})
    left = {(op.namespace, op.key): op for batch in writes for op in batch}
    for op in left.values():
        if op.value is not None:
            # an empty text has no meaning to be found by, and no passage with us
            blank = op.index == ["p"] and op.value.get("p") == ""
            blank |= op.index == ["q.s"] and get_text_at_path(op.value, "q.s") == [""]
            store.put(op.namespace, op.key, op.value, index=False if blank else op.index)
    return store


def told(items: list[Any]) -> list[str]:
    return sorted(repr((i.namespace, i.key, i.value)) for i in items)


@settings(max_examples=150)
@given(writes=WRITES)
def test_every_item_is_the_same(ours: ClewStore, writes: list[list[PutOp]]) -> None:
    theirs = both(ours, writes)
    assert told(ours.search((), limit=1000)) == told(theirs.search((), limit=1000))
    for op in (op for batch in writes for op in batch):
        mine, their = ours.get(op.namespace, op.key), theirs.get(op.namespace, op.key)
        assert (mine and repr(mine.value)) == (their and repr(their.value))


@settings(max_examples=300)
@given(
    writes=WRITES,
    prefix=st.just(()) | PLACES,
    conditions=CONDITIONS,
    query=st.sampled_from([None, "red", "blue p"]),
    limit=st.integers(0, 6),
    offset=st.integers(0, 3),
)
def test_every_search_has_the_same_items_and_as_many(
    ours: ClewStore,
    writes: list[list[PutOp]],
    prefix: tuple[str, ...],
    conditions: dict[str, Any],
    query: str | None,
    limit: int,
    offset: int,
) -> None:
    theirs = both(ours, writes)
    try:
        expected = theirs.search(prefix, filter=conditions, limit=1000)
    except (TypeError, ValueError):  # it cannot compare what has no order: ours finds it unfit
        ours.search(prefix, filter=conditions, query=query)
        return
    whole = ours.search(prefix, filter=conditions, query=query, limit=1000)
    assert told(whole) == told(expected)
    page = ours.search(prefix, filter=conditions, query=query, limit=limit, offset=offset)
    assert [(i.namespace, i.key) for i in page] == [
        (i.namespace, i.key) for i in whole[offset : offset + limit]
    ]
    if query:  # the same items can be ranked, and they come before those that cannot
        by_them = with_vectors(writes).search(prefix, filter=conditions, query=query, limit=1000)
        assert told([i for i in whole if i.score is not None]) == told(
            [i for i in by_them if i.score is not None]
        )
        scores = [-2.0 if i.score is None else i.score for i in whole]
        assert scores == sorted(scores, reverse=True)


@settings(max_examples=150)
@given(
    writes=WRITES,
    matches=MATCHES,
    max_depth=st.none() | st.integers(1, 3),
    limit=st.integers(0, 5),
    offset=st.integers(0, 3),
)
def test_every_list_of_namespaces_is_the_same(
    ours: ClewStore,
    writes: list[list[PutOp]],
    matches: tuple[MatchCondition, ...],
    max_depth: int | None,
    limit: int,
    offset: int,
) -> None:
    theirs = both(ours, writes)
    fresh = InMemoryStore()  # the other one also lists namespaces whose items are all deleted
    for item in theirs.search((), limit=1000):
        fresh.put(item.namespace, item.key, item.value)
    op = ListNamespacesOp(matches, max_depth, limit, offset)
    assert ours.batch([op]) == fresh.batch([op])
