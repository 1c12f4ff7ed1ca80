"""The store in Qdrant against the embedded one: the same corpus gives the same lists, whatever the
number of shards."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from test_store_agreement import (
    FILTERS,
    VOCABULARY,
    corpus,
    test_what_is_read_of_records_is_the_same,  # noqa: F401 - with the stores of this file
)

from clew.filter import Filter
from clew.protocols import Store
from clew.store import EmbeddedStore, open_store
from entries import MODEL, terms, unit_rows
from qdrant_server import serving, url_of


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Store, Store]]:
    folder: Path = tmp_path_factory.mktemp("both")
    with ExitStack() as stack:
        nodes = stack.enter_context(serving())
        url = url_of(nodes, "agreement", shards=4)
        one = stack.enter_context(closing(EmbeddedStore(folder / "embedded")))
        other = stack.enter_context(closing(open_store(url, base=folder, folder=folder)))  # type: ignore[type-var]
        corpus(one)
        corpus(other)
        yield one, other


@pytest.mark.parametrize("filter", FILTERS, ids=str)
def test_both_legs_give_the_same_records_with_the_same_scores(
    both: tuple[Store, Store], filter: Filter
) -> None:
    draw = random.Random(2)
    for query in unit_rows(8, seed=2):
        words = terms(" ".join(draw.choices(VOCABULARY, k=4)))
        near = [store.nearest(query, filter, model=MODEL, limit=20) for store in both]
        assert [c.id for c in near[0]] == [c.id for c in near[1]]
        assert [c.score for c in near[0]] == pytest.approx([c.score for c in near[1]], abs=1e-5)
        assert [c.chunk for c in near[0]] == [c.chunk for c in near[1]]
        keyword = [store.keyword(words, filter, limit=20) for store in both]
        ours, theirs = ({c.id: c.score for c in found} for found in keyword)
        assert theirs == pytest.approx(ours, rel=1e-4)
        assert both[0].count(filter) == both[1].count(filter)
        reach = [store.indexes.reach(words, filter) for store in both]
        assert reach[0] == pytest.approx(reach[1], rel=1e-4)


@pytest.mark.parametrize("filter", FILTERS, ids=str)
def test_labels_give_the_same_records_with_the_same_scores(
    both: tuple[Store, Store], filter: Filter
) -> None:
    groups = [(1.0, ["t1"]), (0.5, ["folder1", "t3"]), (0.25, VOCABULARY[:20])]
    for kinds in (["tag"], ["folder", "name"], ["tag", "folder", "name"]):
        one, other = (s.labelled(kinds, groups, filter, limit=40) for s in both)  # type: ignore[arg-type]
        assert {c.id: c.score for c in one} == {c.id: c.score for c in other}
