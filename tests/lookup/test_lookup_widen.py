"""Adaptive k and rewriting: opt-in, and each step is told."""

from __future__ import annotations

from typing import Any

import pytest
from handles import look_up

from clew import ExternalLookupResult, Search
from clew.lookup.pool import measure_coverage, rewrite_query, steps_of_k

DEEP = [{"id": f"p{i:02}", "text": "keel" if i < 12 else "keel and gasket"} for i in range(30)]


def lookup(backend: Any, query: str, **settings: Any) -> ExternalLookupResult:
    with Search(backends={"mine": backend}, **settings) as search:
        return look_up(search, query, 3)


class Listed:
    """A backend that gives the first of a list, and remembers what it was asked."""

    def __init__(self, rows: list[dict[str, str]], *, by_words: bool = False) -> None:
        self.rows, self.by_words = rows, by_words
        self.asked: list[tuple[str, int]] = []

    def __call__(self, query: str, limit: int) -> list[dict[str, str]]:
        self.asked.append((query, limit))
        if not self.by_words:
            return self.rows[:limit]
        wanted = set(query.split())
        return [row for row in self.rows if wanted <= set(row["text"].split())][:limit]


def test_coverage_says_which_words_nothing_has() -> None:
    seen = measure_coverage("Keel bolts and a gasket", ["keels everywhere", "the bolt"])
    assert seen.found == ("Keel", "bolts") and seen.missing == ("gasket",)
    assert seen.gap == pytest.approx(1 / 3)
    assert measure_coverage("keel", []).gap == 1.0


def test_k_doubles_up_to_the_depth() -> None:
    assert steps_of_k(3, 50) == [5, 10, 20, 40, 50]
    assert steps_of_k(80, 50) == [80]


def test_without_being_asked_nothing_is_widened() -> None:
    backend = Listed(DEEP)
    found = lookup(backend, "keel gasket zebra", depth=10)
    assert backend.asked == [("keel gasket zebra", 10)] and found.trace["steps"] == []


def test_adaptive_k_asks_for_more_until_the_words_are_covered() -> None:
    backend = Listed(DEEP)
    found = lookup(backend, "keel gasket", adaptive_k=True, coverage_gap=0.0)
    assert [k for _, k in backend.asked] == [5, 10, 20]
    steps = found.trace["steps"]
    assert [(step["step"], step["k"], step["gap"]) for step in steps] == [
        ("adaptive_k", 5, 0.5),
        ("adaptive_k", 10, 0.5),
        ("adaptive_k", 20, 0.0),
    ]
    assert len(found) == 3 and "gasket" in found[0].content


def test_adaptive_k_stops_at_the_depth() -> None:
    backend = Listed(DEEP)
    lookup(backend, "zebra", adaptive_k=True, depth=20)
    assert [k for _, k in backend.asked] == [5, 10, 20]


def test_too_few_results_are_asked_for_in_other_words() -> None:
    backend = Listed([{"id": "a", "text": "keel torque"}], by_words=True)
    found = lookup(backend, "what is the keel torque", rewrite=True)
    assert [hit.id for hit in found] == ["a"]
    (step, *_) = found.trace["steps"]
    assert step["step"] == "rewrite" and step["reason"] == "too few results"
    assert step["query"] == "keel torque" and step["gap"] == 0.0
    assert found.trace["raw_canonical_query"] == found.query == "what is the keel torque"
    assert found.trace["canonical_query"] == backend.asked[-1][0]


def test_a_word_that_nothing_has_is_left_out() -> None:
    rows = [{"id": f"r{i}", "text": f"keel torque {i}"} for i in range(5)]
    backend = Listed(rows)
    found = lookup(backend, "keel torque zebra", rewrite=True, coverage_gap=0.2)
    assert backend.asked[1][0] == "keel torque"
    assert found.trace["steps"][0]["reason"] == "coverage gap"


def test_enough_is_enough() -> None:
    rows = [{"id": f"r{i}", "text": f"keel torque {i}"} for i in range(5)]
    found = lookup(Listed(rows), "keel torque", rewrite=True)
    assert found.trace["steps"] == []


def test_rewriting_never_proposes_the_query_itself_and_only_a_few() -> None:
    seen = measure_coverage("keel and mast", [])
    for text in rewrite_query("keel and mast", seen):
        assert text != "keel and mast"
    several = "a b, c and d, e plus f"
    assert len(rewrite_query(several, measure_coverage(several, []))) <= 2


def test_settings_that_widen_are_part_of_the_key() -> None:
    backend = Listed(DEEP)
    with (
        Search(backends={"mine": backend}) as plain,
        Search(backends={"mine": backend}, adaptive_k=True) as wide,
    ):
        wide.cache = plain.cache
        plain.external_lookup("keel")
        wide.external_lookup("keel")
    assert len(backend.asked) == 2
