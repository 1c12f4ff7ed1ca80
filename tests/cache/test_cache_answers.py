"""Results as JSON and back: every field comes back equal, or is refused."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from cached import result
from hypothesis import example, given
from hypothesis import strategies as st

from clew.cache.answers import check, copied, decoded, encoded
from clew.types import Hit, SearchResult

anything = st.text(st.characters(exclude_categories=()), max_size=20)  # lone surrogates, too
numbers = st.one_of(st.integers(), st.floats(allow_nan=False))
values = st.recursive(
    st.one_of(st.none(), st.booleans(), numbers, anything),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.one_of(anything, st.just("()")), inner, max_size=3),
    ),
    max_leaves=8,
)
tables = st.dictionaries(st.one_of(anything, st.just("()")), values, max_size=4)
spans = st.tuples(st.integers(0, 99), st.integers(0, 99))
hits = st.builds(
    Hit,
    id=anything,
    content=anything,
    score=numbers,
    source=anything,
    rrf_score=numbers,
    title=anything,
    path=st.none() | anything,
    lines=st.none() | spans,
    confidence=st.sampled_from([None, "HIGH", "MED", "LOW"]),
    metadata=tables,
    signals=st.dictionaries(anything, tables, max_size=3),
    snippet=anything,
    highlights=st.lists(spans, max_size=3).map(tuple),
)
results = st.builds(
    SearchResult,
    st.lists(hits, max_size=3).map(tuple),
    suppressed=st.integers(0, 9),
    degraded=st.lists(anything, max_size=2).map(tuple),
    trace=tables,
    cache=st.sampled_from([None, "exact", "semantic"]),
)


@given(results)
@example(SearchResult((Hit("a", "b", metadata={"()": {"()": [1]}, "x": ({"()": ()},)}),)))
@example(SearchResult((Hit("a", "b", score=-0.0, rrf_score=float("inf")),)))
def test_every_field_comes_back_equal(given: SearchResult) -> None:
    check(given)
    back = decoded(encoded(given))
    assert back == given
    assert repr(back) == repr(given)  # also True and 1, a list and a tuple


@given(results)
def test_a_copy_is_equal_and_shares_nothing_that_can_change(given: SearchResult) -> None:
    before = repr(given)
    copy = copied(given)
    assert repr(replace(copy, cache=given.cache)) == before
    _spoil(copy.trace)
    for hit in copy:
        _spoil(hit.metadata)
        _spoil(hit.signals)
    assert repr(given) == before


def _spoil(value: Any) -> None:
    if isinstance(value, dict):
        for each in value.values():
            _spoil(each)
        value["spoilt"] = True
    elif isinstance(value, (list, tuple)):
        for each in value:
            _spoil(each)
        if isinstance(value, list):
            value.append("spoilt")


@pytest.mark.parametrize(
    "value",
    [dt.date(2026, 1, 1), {1, 2}, b"bytes", np.float32(1), {3: "a number as a key"}, object()],
    ids=lambda value: type(value).__name__,
)
def test_what_json_cannot_give_back_is_refused(value: Any) -> None:
    for odd in (value, [value], {"in": {"here": (value,)}}):
        given = SearchResult((Hit("a", "b", metadata={"odd": odd}),))
        with pytest.raises(TypeError):
            check(given)
        with pytest.raises(TypeError):
            encoded(given)


def test_any_mapping_will_do() -> None:
    given = SearchResult((Hit("a", "b", metadata=MappingProxyType({"x": [1]})),))
    check(given)
    assert decoded(encoded(given)) == copied(given) == given


def test_it_is_json_that_others_can_read() -> None:
    import json

    data = json.loads(encoded(result("keel")))
    assert data["suppressed"] == 2
    assert data["hits"][0][0] == "keel-0"
