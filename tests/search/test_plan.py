from __future__ import annotations

from typing import Any

import pytest

from clew.config import Config
from clew.errors import InputError
from clew.search.plan import PlannedSource, is_low_entropy, plan_sources
from clew.sources import Configured
from clew.types import Query

NO_STORE: Any = None


def empty(query: Any, context: Any) -> list[Any]:
    return []


SOURCES = {
    "keyword": Configured(empty, "keyword"),
    "vectors": Configured(empty, "vectors", weight=2.0),
    "case_study": Configured(empty, "vectors", weight=3.0),
    "tags": Configured(empty, "tags", deadline=1.5),
    "sqlite": Configured(empty, "sqlite", tier="low"),
    "off": Configured(empty, "sqlite", enabled=False),
}


def planned(
    mode: Any = "hybrid", text: str = "keel", only: Any = None, **set: Any
) -> list[PlannedSource]:
    query = Query(text, text, mode=mode, depth=50)
    return plan_sources(SOURCES, query, Config(**set), NO_STORE, only=only)


def names(asked: list[PlannedSource]) -> list[str]:
    return [one.name for one in asked]


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("hybrid", ["keyword", "vectors", "case_study", "tags", "sqlite"]),
        ("keyword", ["keyword"]),
        ("vector", ["vectors", "case_study"]),
    ],
)
def test_a_mode_decides_the_sources(mode: Any, expected: list[str]) -> None:
    assert names(planned(mode)) == expected


def test_named_sources_are_asked_in_the_given_order_once_each() -> None:
    assert names(planned(only=["tags", "keyword", "tags"])) == ["tags", "keyword"]
    assert names(planned(only="tags")) == ["tags"]


@pytest.mark.parametrize(
    ("only", "message"),
    [
        (["tag"], "unknown source 'tag': did you mean 'tags'"),
        (["off"], "the source 'off' is off"),
        ([], "no source is named"),
    ],
)
def test_what_cannot_be_asked_is_an_error(only: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        planned(only=only)


def test_an_unknown_mode_gets_the_nearest() -> None:
    with pytest.raises(InputError, match="unknown mode 'keywords': did you mean 'keyword'"):
        planned("keywords")


@pytest.mark.parametrize(("fast", "few"), [(True, 3), (False, 5)])
def test_fast_mode_asks_lesser_sources_for_three_candidates_instead_of_five(
    fast: bool, few: int
) -> None:
    depths = {one.name: one.query.depth for one in planned(god_mode=fast)}
    assert depths["sqlite"] == few
    assert depths["keyword"] == depths["tags"] == 50


def test_fast_mode_gives_the_sources_five_seconds_instead_of_eight() -> None:
    assert Config().seconds == Config(god_mode=True).seconds == 5.0
    assert Config(god_mode=False).seconds == 8.0
    assert Config(god_mode=False, deadline=0.5).seconds == 0.5


def test_weight_and_deadline_come_along_and_the_settings_weights_win() -> None:
    asked = {one.name: one for one in planned(weights={"tags": 0.25})}
    assert (asked["case_study"].weight, asked["tags"].weight) == (3.0, 0.25)
    assert (asked["tags"].deadline, asked["keyword"].deadline) == (1.5, None)


@pytest.mark.parametrize(
    ("text", "low"),
    [
        ("risk", True),
        ("four short little words", True),
        ("five words are quite enough", False),
        ("protocol 137", False),
        ("Case Study", False),
        ("last Session notes", False),
        ("cs-002", False),
        ("", True),
    ],
)
def test_low_entropy_is_few_words_and_no_mark(text: str, low: bool) -> None:
    assert is_low_entropy(text) is low


def test_a_query_of_low_entropy_skips_the_vectors_only_where_the_settings_say_so() -> None:
    assert "vectors" in names(planned(text="risk"))
    assert names(planned(text="risk", low_entropy="skip")) == ["keyword", "tags", "sqlite"]
    assert "vectors" in names(planned(text="protocol 137", low_entropy="skip"))
    assert names(planned("vector", text="risk", low_entropy="skip")) == ["vectors", "case_study"]
    assert names(planned(text="risk", only=["vectors"], low_entropy="skip")) == ["vectors"]
