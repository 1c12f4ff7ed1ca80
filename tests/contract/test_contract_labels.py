"""Records by tag, by folder and by the words of their file's name; and notes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from clew.filter import Filter
from clew.protocols import Store
from clew.types import Terms
from entries import entry

PATHS = {
    "a": "projects/Alpha/budget-2024.xlsx",
    "b": "projects/alpha/deep/budgetPlan_final.md",
    "c": ".agent/skills/risk.md",
    "d": None,
}


@pytest.fixture
def shelf(store: Store) -> Store:
    tags = {"a": ("Risk", "money"), "b": ("risk",), "c": (), "d": ("money",)}
    store.put([entry(name, "zebra", path=path, tags=tags[name]) for name, path in PATHS.items()])
    return store


@pytest.mark.parametrize(
    ("kind", "labels", "expected"),
    [
        ("tag", ["risk"], {"a": {"risk"}, "b": {"risk"}}),
        ("tag", ["risk", "money"], {"a": {"risk", "money"}, "b": {"risk"}, "d": {"money"}}),
        ("tag", ["ris", "#risk", "%", "' OR 1=1 --"], {}),
        ("folder", ["alpha"], {"a": {"alpha"}, "b": {"alpha"}}),
        ("folder", ["agent", "deep"], {"c": {"agent"}, "b": {"deep"}}),
        ("folder", ["risk"], {}),
        ("name", ["budget"], {"a": {"budget"}, "b": {"budget"}}),
        ("name", ["2024", "final", "plan"], {"a": {"2024"}, "b": {"final", "plan"}}),
        ("name", ["xlsx", "md", "alpha"], {}),
        ("name", [], {}),
    ],
)
def test_labels_are_matched_whole(
    shelf: Store, kind: Any, labels: list[str], expected: dict[str, set[str]]
) -> None:
    assert shelf.labelled(kind, labels, Filter()) == expected


def test_a_filter_holds_for_labels_too(shelf: Store) -> None:
    assert shelf.labelled("tag", ["risk"], Filter(path="projects/alpha/")) == {"b": {"risk"}}
    assert shelf.labelled("name", ["budget"], Filter(ids="a")) == {"a": {"budget"}}
    assert shelf.labelled("folder", ["alpha"], Filter(tags="money")) == {"a": {"alpha"}}


def test_labels_follow_their_record(shelf: Store) -> None:
    shelf.put([entry("a", "zebra", path="elsewhere/keel.md", tags=("boats",))])
    shelf.delete(["b"])
    assert shelf.labelled("tag", ["risk", "boats"], Filter()) == {"a": {"boats"}}
    assert shelf.labelled("folder", ["alpha", "elsewhere"], Filter()) == {"a": {"elsewhere"}}
    assert shelf.labelled("name", ["budget", "keel"], Filter()) == {"a": {"keel"}}


def test_a_label_that_very_many_have_hides_no_rarer_one(store: Store) -> None:
    store.put([entry("rare", "zebra", path="notes/report-q7.md")])
    some = range(1500)
    store.put([entry(f"r{i:04}", "zebra", path=f"notes/report-{i}.md") for i in some])
    found = store.labelled("name", ["report", "q7"], Filter())
    assert found["rare"] == {"report", "q7"}
    assert len(found) > 500


def test_lengths_are_those_of_passages(store: Store) -> None:
    assert list(store.lengths()) == []
    store.put([entry("a", ["x" * 10, "y" * 30])])
    store.keyword(Terms(words=(("x",),)), Filter(), limit=1)
    assert sorted(store.lengths()) == [10, 30]
    store.put([entry(f"r{i}", "z" * 500) for i in range(300)])
    store.keyword(Terms(words=(("x",),)), Filter(), limit=1)
    assert sum(length == 500 for length in store.lengths()) > 0.9 * len(store.lengths()) > 10


def test_notes_are_kept_and_replaced(open_store: Callable[[], Store]) -> None:
    store = open_store()
    assert store.note("groups") is None
    store.set_note("groups", "one")
    store.set_note("groups", "two")
    assert open_store().note("groups") == "two"
    assert store.note("other") is None
