"""Scenario: stable results. The same question has the same answer, in the same order."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import clew
from clew import ExternalLookupResult, Search
from clew.types import Hit

words = st.lists(st.sampled_from(["keel", "bolt", "sail", "mast"]), min_size=1, max_size=6)


def pages(count: int) -> list[dict[str, object]]:
    return [{"id": f"p{i}", "text": f"keel {'bolt ' * (i % 3)}{i % 4}"} for i in range(count)]


def test_search_results_stable(storage: clew.Engine) -> None:
    # Given backends that answer in any order they like
    def shuffled(query: str, limit: int) -> list[dict[str, object]]:
        some = pages(12)
        random.shuffle(some)
        return some

    # When the same question is asked again and again, anew each time
    with Search(storage, backends={"pages": shuffled}, cache=False) as search:
        answers = [search.external_lookup("keel bolt", 20) for _ in range(5)]
    # Then the answers are the same, scores and all
    assert all(answer == answers[0] for answer in answers)
    scores = [hit.score for hit in answers[0]]
    assert scores == sorted(scores, reverse=True)
    keys = [(-round(hit.score, 6), hit.id) for hit in answers[0]]
    assert keys == sorted(keys)


def test_spellings_of_one_canonical_query_have_one_answer(search: Search) -> None:
    found = [
        search.external_lookup(text, return_handles=True)
        for text in ("keel bolts", "  KEEL\tBolts", "Keel bolts\n")
    ]
    assert len({tuple(hit.id for hit in each) for each in found}) == 1
    for each in found:
        assert isinstance(each, ExternalLookupResult)
        assert each.trace["canonical_query"] == each.trace["raw_canonical_query"] == "keel bolts"
    assert found[1].trace["cache"]["slot"] == "primary"  # type: ignore[union-attr]


def test_a_kept_answer_is_the_one_that_was_made(search: Search) -> None:
    first = search.external_lookup("torque wrench", return_handles=True)
    second = search.external_lookup("torque wrench", return_handles=True)
    assert isinstance(first, ExternalLookupResult) and isinstance(second, ExternalLookupResult)
    assert first.results == second.results and first.by_backend == second.by_backend
    second.results[0].metadata["backends"].append("mine")
    assert search.external_lookup("torque wrench") == list(first.results)


def test_threads_get_the_same_answer(search: Search) -> None:
    expected = search.external_lookup("torque wrench", 10)
    with ThreadPoolExecutor(8) as threads:
        answers = threads.map(search.external_lookup, ["torque wrench"] * 8, [10] * 8)
        assert list(answers) == [expected] * 8


@pytest.mark.parametrize("namespace", ["", "team"])
def test_namespaces_answer_alike_and_keep_apart(storage: clew.Engine, namespace: str) -> None:
    with Search(storage, namespace=namespace) as search:
        assert search.external_lookup("keel")[0].id == "keel"
        assert len(search.cache) == 1
        search.cache.clear(namespace=namespace or "__default__")
        assert len(search.cache) == 0


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(words, min_size=1, max_size=12), st.randoms())
def test_ranking_a_list_again_gives_the_same_list(texts: list[list[str]], shuffle: object) -> None:
    hits = [Hit(f"h{i}", " ".join(some)) for i, some in enumerate(texts)]

    def ranked(some: list[Hit]) -> list[Hit]:
        with Search(backends={"own": lambda query, limit: some}, embed=0) as search:
            return search.pool("keel bolt")

    first = ranked(hits)
    shuffle.shuffle(hits)  # type: ignore[attr-defined]
    assert ranked(hits) == first
    assert ranked(first) == first
    assert all(0.0 <= hit.score <= 1.0 for hit in first)


def test_the_pool_is_all_that_a_lookup_ranks_and_begins_with_its_results(
    storage: clew.Engine,
) -> None:
    with Search(storage, backends={"pages": lambda query, limit: pages(12)}) as search:
        pool = search.pool(" Keel  bolt")
        found = search.external_lookup("keel bolt", 3)
    assert [(hit.id, hit.score) for hit in found] == [(hit.id, hit.score) for hit in pool[:3]]
    assert len(pool) > 12 and all("bm25" in hit.signals for hit in pool)
