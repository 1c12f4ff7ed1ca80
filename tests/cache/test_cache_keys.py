"""Keys: two searches that could have different answers never share one."""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from clew.cache import (
    canonical_query,
    fingerprint,
    group_key,
    search_keys,
    search_parameters,
)
from clew.config import Config
from clew.errors import InputError
from clew.filter import Filter
from clew.text.parse import LONGEST_QUERY, parse
from clew.types import Query

SPACES = [" ", "  ", "\t", "\n", "\0", "\u00a0", "\u2003"]
WORDS = ["Keel", "keel", "getUserName", "a/b", "-draft", "tag:", "path:", "京都", "5", "é"]
pieces = st.sampled_from(['"', "-", ":", "'", *SPACES, *WORDS])
queries = st.one_of(st.lists(pieces, max_size=12).map("".join), st.text(max_size=30))


def asked(text: str, *, syntax: bool) -> Query | str:
    """What parsing gives, apart from the words as typed; or what is wrong with them."""
    try:
        return replace(parse(text, syntax=syntax), raw="")
    except InputError as error:
        return str(error)


@given(queries, st.booleans())
@example('tag:"case  study"  x', True)
@example('a  "b  c', True)
@example(' "a "  "b', True)
@example("a  b", False)
@example(" " * (LONGEST_QUERY - 1) + "keel bolts", True)
def test_a_canonical_query_asks_for_the_same(text: str, syntax: bool) -> None:
    assert asked(canonical_query(text, syntax=syntax), syntax=syntax) == asked(text, syntax=syntax)


@given(queries, st.booleans())
def test_a_canonical_query_stays_as_it_is(text: str, syntax: bool) -> None:
    once = canonical_query(text, syntax=syntax)
    assert canonical_query(once, syntax=syntax) == once


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        ("keel bolts", "  keel \n bolts ", True),
        ("keel bolts", "Keel bolts", False),  # a cased model reads another word
        ("getUserName", "getusername", False),  # falls into other words
        ("path:Notes/ x", "path:notes/ x", False),
        ('tag:"case  study"', 'tag:"case study"', False),
        ('"keel bolts"', "keel bolts", False),
        ("keel -bolts", "keel bolts", False),
        ("keel bolts", "bolts keel", False),
        ("café", "cafe", False),
    ],
)
def test_only_white_space_that_says_nothing_is_folded(one: str, other: str, alike: bool) -> None:
    assert (canonical_query(one) == canonical_query(other)) is alike


# ---------------------------------------------------------------- parameters

plain = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(), inner)),
    max_leaves=6,
)
parameters = st.dictionaries(st.text(), plain, max_size=4)


def told_apart(value: Any) -> str:
    """Python takes True for 1 and 1.0; a search does not."""
    return json.dumps(value, sort_keys=True)


@given(parameters, parameters, st.integers(0, 9), st.integers(0, 9))
def test_other_parameters_give_other_keys(
    one: dict[str, Any], other: dict[str, Any], first: int, second: int
) -> None:
    a, b = one | {"generation": first}, other | {"generation": second}
    alike = told_apart(a) == told_apart(b)
    assert (search_keys("keel", a).exact == search_keys("keel", b).exact) is alike
    assert (group_key(a) == group_key(b)) is alike


@given(parameters, st.text(), st.text())
def test_the_words_decide_the_key_but_not_the_group(
    given: dict[str, Any], one: str, other: str
) -> None:
    given = given | {"generation": 1}
    a, b = search_keys(one, given), search_keys(other, given)
    assert (a.exact == b.exact) is (one == other)
    assert a.group == b.group == group_key(given)


@given(parameters, st.randoms())
def test_the_order_of_parameters_says_nothing(given: dict[str, Any], random: Any) -> None:
    items = list((given | {"generation": 1}).items())
    expected = search_keys("keel", dict(items)).exact
    random.shuffle(items)
    assert search_keys("keel", dict(items)).exact == expected


def of(text: str, **others: Any) -> dict[str, Any]:
    fixed: dict[str, Any] = {
        "generation": (7, 123),
        "sources": ["keyword", "vectors"],
        "weights": {"keyword": 1.0},
        "strict": False,
        "rerank": False,
        "include_personal": False,
        "skills_only": False,
        "settings": fingerprint(Config()),
        "model": "bge-small@1",
        "freshness": {"exocortex": "17-4096"},
        "syntax": True,
        "explain": False,
    }
    query = parse(text, **{k: others.pop(k) for k in ("filter", "mode", "limit") if k in others})
    return search_parameters(query, **(fixed | others))


@pytest.mark.parametrize(
    "change",
    [
        {"generation": (8, 123)},
        {"generation": (7, 124)},  # a backup that reached the same number again
        {"sources": ["keyword"]},
        {"weights": {"keyword": 2.0}},
        {"strict": True},
        {"rerank": True},
        {"include_personal": True},
        {"skills_only": True},
        {"settings": fingerprint(Config(depth=51))},
        {"model": "bge-small@2"},
        {"freshness": {"exocortex": "18-4096"}},
        {"syntax": False},
        {"explain": True},
        {"filter": Filter(tags="risk")},
        {"filter": Filter(metadata={"open": True})},
        {"filter": Filter(metadata={"open": 1})},
        {"mode": "keyword"},
        {"limit": 11},
    ],
    ids=str,
)
def test_everything_that_decides_the_answer_is_in_both_keys(change: dict[str, Any]) -> None:
    usual = search_keys("keel", of("keel"))
    changed = search_keys("keel", of("keel", **change))
    assert usual.exact != changed.exact
    assert usual.group != changed.group


def test_true_and_one_are_different_filters() -> None:
    filters = [Filter(metadata={"open": value}) for value in (True, 1, 1.0, "1", None)]
    assert len({group_key(of("keel", filter=f)) for f in filters}) == len(filters)


@pytest.mark.parametrize(
    "text", ["keel tag:risk", 'keel "keel"', "keel -bolts", "keel after:2026-01-01", "keel path:a/"]
)
def test_what_the_syntax_asks_for_makes_another_group(text: str) -> None:
    """The vector is that of the bare words, so that only the group keeps these apart."""
    assert group_key(of(text)) != group_key(of("keel"))


def test_a_vector_that_the_caller_gave_decides_as_well() -> None:
    given = of("keel")
    one, other = [1.0, 0.0], [0.0, 1.0]
    keys = [search_keys("keel", given, vector=v) for v in (None, one, other)]
    assert len({k.exact for k in keys}) == 3
    assert keys[0].group != keys[1].group == keys[2].group  # it may not mean the words at all
    again = search_keys("keel", given, vector=np.array(one, np.float32))
    assert again == keys[1]


@pytest.mark.parametrize("generation", [None, "7", True, (), ("7",)])
def test_a_key_without_a_generation_is_refused(generation: Any) -> None:
    with pytest.raises(InputError, match="generation"):
        search_keys("keel", {"generation": generation})


@pytest.mark.parametrize("value", [{1: 2}, object(), b"x", np.zeros(2)])
def test_a_parameter_that_has_no_certain_form_is_refused(value: Any) -> None:
    with pytest.raises(TypeError):
        search_keys("keel", {"generation": 1, "odd": value})


def test_a_date_of_the_settings_is_no_text() -> None:
    values = [dt.date(2026, 1, 1), dt.datetime(2026, 1, 1), "2026-01-01", dt.time(1), "01:00:00"]
    tables = [Config(sources={"mine": {"since": value}}) for value in values]
    assert len({fingerprint(table) for table in tables}) == len(values)


def test_another_version_of_clew_has_other_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    before = search_keys("keel", of("keel")).exact
    monkeypatch.setattr("clew.__version__", "0.0.0")
    assert search_keys("keel", of("keel")).exact != before
