"""Scenario: hybrid search. Keyword and vector results appear together, ranked as one."""

from __future__ import annotations

import pytest
from handles import look_up

import clew
from clew import Search
from clew.lookup_settings import WEIGHTS
from clew.ranking.lookup_score import hybrid, ordered


def test_keyword_and_vector_results_appear_together(search: Search) -> None:
    # Given a storage with claims and vectors, when a query is looked up
    found = look_up(search, "torque wrench")
    # Then both legs were asked, each has its hits, and one list has them all
    assert set(found.by_backend) == {"storage_keyword", "storage_vector"}
    assert all(found.by_backend.values())
    ids = {hit.id for hits in found.by_backend.values() for hit in hits}
    assert {hit.id for hit in found} == ids
    # And what both found is there once, and says so
    (shed,) = [hit for hit in found if hit.id == "shed"]
    assert shed.metadata["backends"] == ["storage_keyword", "storage_vector"]
    assert found[0] is shed


def test_the_result_is_a_sequence_with_lookup(search: Search, storage: clew.Engine) -> None:
    found = look_up(search, "  Keel   BOLTS ", 2)
    assert (found.query, found.raw_query) == ("keel bolts", "  Keel   BOLTS ")
    assert len(found) == len(list(found)) == len(found.results) == 2
    assert found[0] == found.results[0] and found[:1] == found.results[:1]
    assert found.cache is search.cache and found.storage is storage
    assert search.external_lookup("keel bolts", 2) == list(found)
    assert found.to_dict()["results"][0]["id"] == "keel"


def test_every_component_is_in_the_result_and_gives_the_score(search: Search) -> None:
    found = look_up(search, "keel bolts torque", 10)
    table = {
        name: [hit.signals[name]["score"] for hit in found]
        for name in ("bm25", "semantic", "credibility")
    }
    scores = hybrid(table, weights=WEIGHTS)
    assert [hit.score for hit in found] == pytest.approx(scores)
    assert [hit.score for hit in found] == sorted(scores, reverse=True)
    assert found[0].score == 1.0 and found[-1].score == 0.0
    for hit in found:
        parts = [hit.signals[name]["contrib"] for name in table]
        assert 0 <= sum(parts) <= 1.001
        assert hit.signals["hybrid"]["score"] == hit.score


@pytest.mark.parametrize("ranking", ["bm25", "semantic", "credibility"])
def test_one_component_alone_can_decide(storage: clew.Engine, ranking: str) -> None:
    with Search(storage, ranking=ranking) as search:
        found = look_up(search, "keel bolts torque", 10)
    own = [hit.signals[ranking]["score"] for hit in found]
    ids = [hit.id for hit in found]
    assert ids == ordered(ids, own, ids)
    assert found.trace["ranking"]["weights"] == {ranking: 1.0}


def test_credible_sources_come_first_where_all_else_is_equal() -> None:
    pages = [
        {"url": "https://example.org/a", "text": "keel torque"},
        {"url": "https://www.nature.com/a", "text": "keel torque"},
        {"url": "https://medium.com/a", "text": "keel torque"},
    ]
    with Search(backends={"pages": lambda query, limit: pages}) as search:
        found = look_up(search, "keel torque")
        assert [hit.path for hit in found] == [pages[1]["url"], pages[2]["url"], pages[0]["url"]]
    with Search(
        backends={"pages": lambda query, limit: pages}, credibility={"example.org": 1.0}
    ) as search:
        assert look_up(search, "keel torque")[0].path == pages[0]["url"]


def test_without_vectors_words_decide_and_the_trace_says_so(tmp_path: object) -> None:
    with clew.open(str(tmp_path), model="none") as engine, Search(engine) as search:
        engine.add([{"id": "a", "content": "keel bolts"}, {"id": "b", "content": "bolts"}])
        found = look_up(search, "keel bolts")
        assert [hit.id for hit in found] == ["a", "b"]
        assert set(found.by_backend) == {"storage_keyword"} and not found.degraded
        assert "no vectors" in found.trace["backends"]["storage_vector"]["notes"][0]
        assert "semantic" not in found[0].signals and found.trace["ranking"]["semantic"]


def test_a_script_that_the_model_does_not_know_is_left_to_words(
    storage: clew.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    from clew import models

    known = models.Traits(scripts=("latin",))
    monkeypatch.setattr("clew.lookup.answer.traits", lambda model: known)
    storage.add([{"id": "zh", "content": "龙骨螺栓的扭矩是四十牛米"}])
    storage.embed()
    with Search(storage) as search:
        found = look_up(search, "龙骨螺栓")
        assert found[0].id == "zh" and "script" in found.trace["ranking"]["semantic"]
        assert "semantic" not in found[0].signals
        assert "semantic" in look_up(search, "keel")[0].signals
