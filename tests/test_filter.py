from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from clew.errors import InputError
from clew.filter import Filter, exact_glob, on_path
from clew.types import Record

unhurried = settings(deadline=None)


# ---------------------------------------------------------------- Filter: making one


def test_a_string_is_a_list_of_one() -> None:
    for name in ("collection", "type", "domain", "not_domain", "path", "ids", "tags", "tags_all"):
        assert Filter(**{name: "x"}) == Filter(**{name: ["x"]}) == Filter(**{name: ("x",)})
        assert getattr(Filter(**{name: "x"}), name) == ("x",)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("colection", "did you mean 'collection'"),
        ("tag", "did you mean 'tags'"),
        ("importance", "did you mean 'importance_min'|did you mean 'importance_max'"),
        ("zzz", "valid: active, after, as_of, before, collection"),
    ],
)
def test_an_unknown_field_gets_the_nearest(name: str, hint: str) -> None:
    with pytest.raises(InputError, match=f"unknown filter field '{name}'") as caught:
        Filter(**{name: "x"})
    assert any(part in str(caught.value) for part in hint.split("|"))
    with pytest.raises(InputError, match="unknown filter field"):
        Filter.of({name: "x"})


def test_tags_are_folded_and_lose_their_hash() -> None:
    assert Filter(tags=["#Risk", "STRASSE"]).tags == ("risk", "strasse")
    assert Filter(tags_all="#Risk").tags_all == ("risk",)
    assert Filter(collection="Notes").collection == ("Notes",)


@pytest.mark.parametrize(
    "wrong",
    [
        {"collection": 5},
        {"collection": [5]},
        {"tags": [None]},
        {"ids": 7},
        {"path": b"notes"},
        {"importance_min": "high"},
        {"importance_max": True},
        {"importance_min": float("nan")},
        pytest.param({"importance_min": 10**400}, id="huge importance"),
        pytest.param({"metadata": {"effort": {"lt": 10**400}}}, id="huge bound"),
        {"after": "soon"},
        {"before": [1]},
        {"metadata": ["status"]},
        {"metadata": "status"},
        {"metadata": {"status": []}},
        {"metadata": {"status": ["open", None]}},
        {"metadata": {"status": b"open"}},
        {"metadata": {1: "a", "b": 2}},
        {"metadata": {"effort": {"gte": [1]}}},
        {"metadata": {"effort": {"gte": None}}},
        {"metadata": {"effort": {}}},
    ],
    ids=str,
)
def test_a_value_of_the_wrong_kind_is_an_input_error(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        Filter(**wrong)


def test_an_unknown_range_gets_the_nearest() -> None:
    with pytest.raises(InputError, match="unknown range 'gt3' on metadata 'effort': did you mean"):
        Filter(metadata={"effort": {"gt3": 1}})


@pytest.mark.parametrize(
    "wrong",
    [
        {"after": "2026-07-01", "before": "2026-01-01"},
        {"after": "2026-07-01", "before": "2026-07-01"},
        {"importance_min": 0.8, "importance_max": 0.2},
    ],
    ids=str,
)
def test_an_empty_range_is_an_input_error(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="range is empty"):
        Filter(**wrong)


def test_a_range_of_one_value_is_not_empty() -> None:
    assert Filter(importance_min=0.5, importance_max=0.5)


def test_of_takes_what_a_caller_may_give() -> None:
    mine = Filter(collection="notes")
    assert Filter.of(None) == Filter()
    assert Filter.of(mine) is mine
    assert Filter.of({"collection": "notes"}) == mine


@pytest.mark.parametrize("wrong", ["notes", 5, ["notes"], {1: 2}], ids=str)
def test_of_refuses_anything_else(wrong: Any) -> None:
    with pytest.raises(InputError):
        Filter.of(wrong)


@pytest.mark.parametrize(
    "narrowing",
    [
        {"collection": "notes"},
        {"tags": "a"},
        {"tags_all": "a"},
        {"not_domain": "personal"},
        {"importance_min": 0},
        {"importance_max": 0.0},
        {"after": 0},
        {"before": 0},
        {"metadata": {"reviewer": None}},
        {"metadata": {"done": False}},
    ],
    ids=str,
)
def test_a_filter_is_true_when_it_narrows(narrowing: dict[str, Any]) -> None:
    # Nought is a bound and False is a value: neither means "left out".
    assert Filter(**narrowing)
    assert not Filter()


def test_filters_are_values() -> None:
    one = Filter(tags=["a"], metadata={"x": 1, "y": {"lt": 3, "gte": 1}}, after="2026-01-01")
    other = Filter(after="2026-01-01", metadata={"y": {"gte": 1, "lt": 3}, "x": 1}, tags="A")
    assert one == other
    assert hash(one) == hash(other)
    assert {one: "kept"}[other] == "kept"
    assert one != Filter(tags=["a"])
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.tags = ()  # type: ignore[misc]


def test_a_filter_does_not_change_with_what_it_was_made_from() -> None:
    tags, bounds = ["a"], {"gte": 1}
    mine = Filter(tags=tags, metadata={"x": bounds})
    tags.append("b")
    bounds["gte"] = 9
    assert mine == Filter(tags=["a"], metadata={"x": {"gte": 1}})


# ---------------------------------------------------------------- Filter: both


def test_both_keeps_what_only_one_says() -> None:
    mine, theirs = Filter(collection="notes", after=10), Filter(tags="a", importance_min=0.5)
    both = Filter(collection="notes", after=10, tags="a", importance_min=0.5)
    assert mine & theirs == theirs & mine == both
    assert mine & Filter() == Filter() & mine == mine


@pytest.mark.parametrize(
    ("mine", "theirs", "both"),
    [
        ({"after": 10}, {"after": 20}, {"after": 20}),
        ({"before": 10}, {"before": 20}, {"before": 10}),
        ({"importance_min": 0.2}, {"importance_min": 0.4}, {"importance_min": 0.4}),
        ({"importance_max": 0.2}, {"importance_max": 0.4}, {"importance_max": 0.2}),
        ({"collection": ["a", "b"]}, {"collection": ["b", "c"]}, {"collection": "b"}),
        ({"type": ["a", "b"]}, {"type": "b"}, {"type": "b"}),
        ({"domain": ["a", "b"]}, {"domain": "a"}, {"domain": "a"}),
        ({"ids": ["a", "b"]}, {"ids": "b"}, {"ids": "b"}),
        ({"tags": "a"}, {"tags": "a"}, {"tags": "a"}),
        ({"path": "a/"}, {"path": "a/"}, {"path": "a/"}),
        ({"metadata": {"x": 1}}, {"metadata": {"y": 2}}, {"metadata": {"x": 1, "y": 2}}),
    ],
    ids=str,
)
def test_both_narrows_field_by_field(
    mine: dict[str, Any], theirs: dict[str, Any], both: dict[str, Any]
) -> None:
    assert Filter(**mine) & Filter(**theirs) == Filter(**both)
    assert Filter(**theirs) & Filter(**mine) == Filter(**both)


def test_both_adds_up_what_must_all_hold() -> None:
    both = Filter(tags_all="a", not_domain="x") & Filter(tags_all="b", not_domain="y")
    assert set(both.tags_all) == {"a", "b"}
    assert set(both.not_domain) == {"x", "y"}


def test_one_tag_and_another_means_both_tags() -> None:
    both = Filter(tags="a") & Filter(tags="b")
    assert set(both.tags_all) == {"a", "b"}
    several = Filter(tags=["a", "b"]) & Filter(tags="c", tags_all="d")
    assert several.tags == ("a", "b")
    assert set(several.tags_all) == {"c", "d"}


@pytest.mark.parametrize("name", ["collection", "type", "domain", "ids"])
def test_both_of_what_excludes_each_other_says_so(name: str) -> None:
    with pytest.raises(InputError, match=f"no record can match: {name}"):
        Filter(**{name: "a"}) & Filter(**{name: "b"})


@pytest.mark.parametrize(
    ("mine", "theirs"),
    [
        ({"after": 20}, {"before": 10}),
        ({"importance_min": 0.8}, {"importance_max": 0.2}),
    ],
    ids=str,
)
def test_both_of_what_no_record_has_is_an_input_error(
    mine: dict[str, Any], theirs: dict[str, Any]
) -> None:
    with pytest.raises(InputError):
        Filter(**mine) & Filter(**theirs)


NAMES = st.lists(st.sampled_from("abc"), unique=True, max_size=2)
SHARES = st.sampled_from([0.0, 0.25, 0.5, 1.0])
CONDITION = (
    st.none()
    | st.integers(0, 2)
    | st.dictionaries(st.sampled_from(["gt", "gte", "lt", "lte"]), st.integers(0, 2), min_size=1)
)


@st.composite
def filters(draw: st.DrawFn) -> Filter:
    low, high = sorted([draw(SHARES), draw(SHARES)])
    after, before = draw(st.integers(0, 2)), draw(st.integers(3, 4))
    fields: dict[str, Any] = {
        name: draw(NAMES)
        for name in ("collection", "type", "domain", "not_domain", "tags", "tags_all", "ids")
    }
    fields["metadata"] = draw(st.dictionaries(st.sampled_from("xy"), CONDITION, max_size=2))
    fields |= {"importance_min": low, "importance_max": high, "after": after, "before": before}
    # Most filters say little: each field is left out more often than not.
    kept = draw(st.sets(st.sampled_from(sorted(fields)), max_size=4))
    return Filter(**{name: value for name, value in fields.items() if name in kept})


records = st.builds(
    Record,
    id=st.sampled_from("abc"),
    content=st.just("words"),
    collection=st.sampled_from("abc"),
    type=st.sampled_from("abc"),
    domain=st.sampled_from("abc"),
    tags=st.lists(st.sampled_from("abc"), unique=True).map(tuple),
    importance=SHARES,
    updated_at=st.integers(0, 4),
    metadata=st.dictionaries(st.sampled_from("xy"), st.integers(0, 2), max_size=2),
)


def _holds(value: Any, condition: Any) -> bool:
    if not isinstance(condition, tuple):
        return bool(value == condition)
    tests = {
        "gt": lambda bound: value > bound,
        "gte": lambda bound: value >= bound,
        "lt": lambda bound: value < bound,
        "lte": lambda bound: value <= bound,
    }
    return value is not None and all(tests[name](bound) for name, bound in condition)


def matches(filter: Filter, record: Record) -> bool:
    """What docs/search.md says of each field, written plainly."""
    assert record.updated_at is not None
    return (
        all(
            not wanted or getattr(record, name) in wanted
            for name, wanted in (
                ("collection", filter.collection),
                ("type", filter.type),
                ("domain", filter.domain),
                ("id", filter.ids),
            )
        )
        and record.domain not in filter.not_domain
        and (not filter.tags or bool(set(filter.tags) & set(record.tags)))
        and set(filter.tags_all) <= set(record.tags)
        and (filter.importance_min is None or record.importance >= filter.importance_min)
        and (filter.importance_max is None or record.importance <= filter.importance_max)
        and (filter.after is None or record.updated_at >= filter.after)
        and (filter.before is None or record.updated_at < filter.before)
        and all(_holds(record.metadata.get(key), wanted) for key, wanted in filter.metadata)
    )


def check_both(one: Filter, other: Filter, record: Record) -> None:
    """A record passes both when it passes each."""
    each = matches(one, record) and matches(other, record)
    try:
        both = one & other
    except InputError as error:
        # Refusing is right where nothing can match, and allowed where it cannot be said.
        assert not each or "given twice" in str(error)
    else:
        assert matches(both, record) == each
        assert hash(both) == hash(one & other)


@settings(deadline=None, max_examples=300)
@given(filters(), filters(), records)
@example(Filter(tags="a"), Filter(tags="b"), Record("a", "words", updated_at=0))
def test_a_record_passes_both_when_it_passes_each(
    one: Filter, other: Filter, record: Record
) -> None:
    check_both(one, other, record)


@unhurried
@given(CONDITION, CONDITION, st.integers(0, 2))
@example(1, 2, 2)
@example({"gte": 1}, {"lt": 2}, 0)
def test_a_condition_on_metadata_is_not_lost_to_another(one: Any, other: Any, value: int) -> None:
    record = Record("a", "words", updated_at=0, metadata={"x": value})
    check_both(Filter(metadata={"x": one}), Filter(metadata={"x": other}), record)


@pytest.mark.parametrize(
    "fields",
    [
        {"metadata": {f"k{i}": i for i in range(1_001)}},
        {"metadata": {"k": list(range(1_001))}},
        {"tags_all": [f"t{i}" for i in range(1_001)]},
        {"path": [f"p{i}/*.md" for i in range(1_001)]},
        {"within": [f"p{i}" for i in range(1_001)]},
        {"not_within": [f"p{i}" for i in range(1_001)]},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_more_conditions_than_a_database_takes_are_an_input_error(fields: Any) -> None:
    with pytest.raises(InputError, match=r"at most 400 .*, not 1,001"):
        Filter(**fields)


def test_nor_may_two_filters_together_have_more() -> None:
    one, other = (Filter(metadata={f"{n}{i}": i for i in range(300)}) for n in "ab")
    with pytest.raises(InputError, match="at most 400"):
        _ = one & other


@unhurried
@given(st.text(r"ab.-!^]\\/*?[ é", min_size=1), st.text("ab.[*?/", max_size=2))
@example("in[1]box.csv", "")
@example("notes/a.md", "x")
def test_the_glob_of_one_path_fits_no_other(path: str, more: str) -> None:
    if exact_glob(path) != path:  # what has neither letter nor sign of a glob has none
        assert on_path(exact_glob(path), path)
        assert on_path(exact_glob(path), path + more) == (not more)
        assert not on_path(exact_glob(path), more + path) or not more
