"""Records by tag, by folder and by the words of their file's name; and notes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from clew.filter import Filter
from clew.protocols import Store
from clew.types import Entry, Terms
from entries import entry

PATHS = {
    "a": "projects/Alpha/budget-2024.xlsx",
    "b": "projects/alpha/deep/budgetPlan_final.md",
    "c": ".agent/skills/risk.md",
    "d": None,
}


TAGS = {"a": ("Risk", "money"), "b": ("risk",), "c": (), "d": ("money",)}
SHELF = [entry(name, "zebra", path=path, tags=TAGS[name]) for name, path in PATHS.items()]


@pytest.fixture
def shelf(store: Store) -> Store:
    store.put(SHELF)
    return store


@pytest.fixture(scope="module")
def window(shared: Callable[[Sequence[Entry]], Store]) -> Store:
    """The same, for those who only look."""
    return shared(SHELF)


def test_a_tag_is_found_by_what_it_lies_below(store: Store) -> None:
    tags = {"a": "project/Bike", "b": "project/bike/wheel", "c": "project", "d": "projects/bike"}
    tags |= {"e": "project0", "f": "project-x", "g": "bike"}
    store.put([entry(name, "zebra", tags=(tag,)) for name, tag in tags.items()])

    def by(**filter: Any) -> set[str]:
        found = store.select(Filter(**filter), limit=10)
        every = store.get(list(tags))
        assert {r.id for r in found} == {r.id for r in every if Filter(**filter).allows(r)}
        return {record.id for record in found}

    assert by(tags="Project") == {"a", "b", "c"} == by(tags_all=["project"])
    assert by(tags="project/bike") == {"a", "b"}
    assert by(tags=["project/bike/wheel", "bike"]) == {"b", "g"}
    assert by(not_tags="project") == {"d", "e", "f", "g"}
    assert by(tags="project", not_tags="project/bike") == {"c"}
    assert store.get(["a"])[0].tags == ("project/bike",)  # and no other
    assert labelled(store, "tag", "project") == {"a": 1, "b": 1, "c": 1}
    assert labelled(store, "tag", "project", "project/bike") == {"a": 2, "b": 2, "c": 1}
    assert labelled(store, "tag", "project", tags="project/bike") == {"a": 1, "b": 1}
    store.put([entry("a", "zebra", tags=("boat/keel",))])
    assert labelled(store, "tag", "boat", "project") == {"a": 1, "b": 1, "c": 1}
    store.delete(["b"])
    assert by(tags="project") == {"c"}


def labelled(
    store: Store, kinds: str, *labels: str, limit: int = 50, **filter: Any
) -> dict[str, float]:
    """Each label worth one."""
    groups = [(1.0, (label,)) for label in labels]
    found = store.labelled(kinds.split(), groups, Filter(**filter), limit=limit)  # type: ignore[arg-type]
    return {candidate.id: candidate.score for candidate in found}


@pytest.mark.parametrize(
    ("kinds", "labels", "expected"),
    [
        ("tag", ["risk"], {"a": 1, "b": 1}),
        ("tag", ["risk", "money"], {"a": 2, "b": 1, "d": 1}),
        ("tag", ["ris", "#risk", "%", "' OR 1=1 --"], {}),
        ("folder", ["alpha"], {"a": 1, "b": 1}),
        ("folder", ["agent", "deep"], {"b": 1, "c": 1}),
        ("folder", ["risk"], {}),
        ("tag folder", ["risk", "alpha"], {"a": 2, "b": 2}),
        ("name", ["budget"], {"a": 1, "b": 1}),
        ("name", ["2024", "final", "plan"], {"b": 2, "a": 1}),
        ("name", ["xlsx", "md", "alpha"], {}),
        ("name", [], {}),
    ],
)
def test_labels_are_matched_whole(
    window: Store, kinds: str, labels: list[str], expected: dict[str, float]
) -> None:
    found = labelled(window, kinds, *labels)
    assert found == expected
    assert list(found) == list(expected)  # best first, then by id


def test_a_group_counts_once_however_many_of_its_labels_are_there(shelf: Store) -> None:
    groups = [(0.5, ("budget", "2024")), (0.25, ("final",))]
    found = shelf.labelled(["name"], groups, Filter(), limit=9)
    assert [(c.id, c.score) for c in found] == [("b", 0.75), ("a", 0.5)]
    assert [c.id for c in shelf.labelled(["name"], groups, Filter(), limit=1)] == ["b"]


def test_a_filter_holds_for_labels_too(shelf: Store) -> None:
    assert labelled(shelf, "tag", "risk", path="projects/alpha/") == {"b": 1}
    assert labelled(shelf, "name", "budget", ids="a") == {"a": 1}
    assert labelled(shelf, "folder", "alpha", tags="money") == {"a": 1}
    assert labelled(shelf, "tag", "risk", not_domain="personal") == {"a": 1, "b": 1}


def test_labels_follow_their_record(shelf: Store) -> None:
    shelf.put([entry("a", "zebra", path="elsewhere/keel.md", tags=("boats",))])
    shelf.delete(["b"])
    assert labelled(shelf, "tag", "risk", "boats") == {"a": 1}
    assert labelled(shelf, "folder", "alpha", "elsewhere") == {"a": 1}
    assert labelled(shelf, "name", "budget", "keel") == {"a": 1}


def test_a_label_that_very_many_have_hides_no_rarer_one(store: Store) -> None:
    store.put([entry("rare", "zebra", path="notes/report-q7.md")])
    some = range(1500)
    store.put([entry(f"r{i:04}", "zebra", path=f"notes/report-{i}.md") for i in some])
    found = labelled(store, "name", "report", "q7", limit=10)
    assert len(found) == 10
    assert next(iter(found.items())) == ("rare", 2)


def test_lengths_are_those_of_passages(store: Store) -> None:
    assert list(store.indexes.lengths()) == []
    store.put([entry("a", ["x" * 10, "y" * 30])])
    store.keyword(Terms(words=(("x",),)), Filter(), limit=1)
    assert sorted(store.indexes.lengths()) == [10, 30]
    store.put([entry(f"r{i}", "z" * 500) for i in range(300)])
    store.keyword(Terms(words=(("x",),)), Filter(), limit=1)
    assert (
        sum(length == 500 for length in store.indexes.lengths())
        > 0.9 * len(store.indexes.lengths())
        > 10
    )
