"""The one path of every search, through an engine with made-up sources."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import clew
from clew.sources import Configured
from clew.types import Candidate, Passage, Query, Record
from entries import ids

from hashing import HashingEmbedder


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[clew.Engine]:
    with clew.open(tmp_path, model="none") as opened:
        opened.add([Record(name, f"the keel of {name}", title=name.upper()) for name in "abcd"])
        opened.sources.clear()
        yield opened


def giving(*pairs: tuple[str, float]) -> Any:
    def source(query: Query, context: Any) -> Sequence[Candidate]:
        return [Candidate(name, score) for name, score in pairs]

    return source


def test_every_source_has_a_vote_and_says_so(engine: clew.Engine) -> None:
    engine.sources.update(one=giving(("a", 3), ("b", 1)), two=giving(("b", 9), ("c", 2)))
    found = engine.search("keel")
    assert ids(found) == ["a", "b", "c"]  # 0.5, 0.5 and 0.0: the tie goes by id
    assert set(found[1].signals) == {"one", "two"}
    assert found[1].source == "two"
    assert found.trace["sources"]["one"]["count"] == 2


def test_a_record_that_is_gone_makes_room_for_the_next(engine: clew.Engine) -> None:
    engine.sources["one"] = giving(("ghost", 9), ("a", 3), ("spectre", 2), ("b", 1))
    assert ids(engine.search("keel", limit=2)) == ["a", "b"]


def test_a_source_that_repeats_itself_has_one_vote(engine: clew.Engine) -> None:
    engine.sources["one"] = giving(("a", 3), ("a", 2), ("b", 1))
    found = engine.search("keel")
    assert ids(found) == ["a", "b"]
    assert found[1].signals["one"]["rank"] == 2


def test_a_failing_source_is_in_trace_and_degraded(engine: clew.Engine) -> None:
    def broken(query: Query, context: Any) -> Sequence[Candidate]:
        raise clew.SourceError("the table is gone: name another")

    engine.sources.update(broken=broken, one=giving(("a", 3)))
    found = engine.search("keel")
    assert ids(found) == ["a"]
    assert found.degraded == ("broken: the table is gone: name another",)
    assert found.trace["sources"]["broken"]["problem"] == "the table is gone: name another"


def test_when_every_source_fails_the_answer_is_empty_and_says_why(engine: clew.Engine) -> None:
    def broken(query: Query, context: Any) -> Sequence[Candidate]:
        raise RuntimeError("boom")

    engine.sources.update(one=broken, two=broken)
    found = engine.search("keel")
    assert ids(found) == []
    assert len(found.degraded) == 2


@pytest.mark.parametrize("garbage", [["a"], [None], [("a", 1.0)], "ab"], ids=repr)
def test_a_source_that_gives_garbage_takes_nothing_down(engine: clew.Engine, garbage: Any) -> None:
    engine.sources.update(garbage=lambda query, context: garbage, one=giving(("a", 3)))
    found = engine.search("keel")
    assert ids(found) == ["a"]
    assert any(problem.startswith("garbage: ") for problem in found.degraded)


@pytest.mark.parametrize("fusion", ["convex", "dbsf", "rrf", "weighted_rrf"])
@pytest.mark.parametrize("score", [float("nan"), float("inf"), float("-inf")])
def test_a_score_that_is_no_number_spoils_no_other(
    tmp_path: Path, fusion: str, score: float
) -> None:
    # NaN has no place in an order, and no place in JSON.
    with clew.open(tmp_path, model="none", fusion=fusion) as engine:
        engine.add([Record(name, f"the keel of {name}") for name in "abcd"])
        engine.sources.clear()
        engine.sources.update(odd=giving(("c", score), ("d", 0.5)), one=giving(("a", 3), ("b", 1)))
        found = engine.search("keel")
    assert all(math.isfinite(hit.score) for hit in found)
    assert {"a", "b"} <= set(ids(found))
    assert ids(found).index("a") < ids(found).index("b")
    json.dumps(found.to_dict(), allow_nan=False)


def test_the_weights_of_a_call_win_over_the_settings(tmp_path: Path) -> None:
    with clew.open(tmp_path, model="none", weights={"tags": 5.0}) as engine:
        engine.add([Record(name, f"the keel of {name}") for name in "ab"])
        engine.sources.clear()
        engine.sources.update(tags=giving(("a", 3), ("b", 1)), filenames=giving(("b", 3), ("a", 1)))
        assert ids(engine.search("keel")) == ["a", "b"]
        assert ids(engine.search("keel", weights={"filenames": 9.0})) == ["b", "a"]
        assert ids(engine.search("keel", weights={"tags": 0.5})) == ["b", "a"]
        assert ids(engine.search("keel", sources=["filenames"])) == ["b", "a"]


def test_weighted_rrf_takes_vectors_of_an_unknown_script_for_next_to_nothing(
    tmp_path: Path,
) -> None:
    latin = HashingEmbedder(model="bge-small@test")  # by this name, a model of Latin script
    with clew.open(tmp_path, embedder=latin, profile="athena", cache=False) as engine:
        engine.add([Record(name, f"keel กระดูกงูเรือ {name}") for name in "abc"])
        engine.embed()
        engine.sources["keyword"] = Configured(giving(("a", 9), ("b", 8)), "keyword")
        engine.sources["vectors"] = Configured(giving(), "vectors")
        engine.sources["case_study"] = Configured(giving(("c", 0.9)), "vectors", weight=3.0)
        known, mixed, unknown = map(engine.search, ("keel", "keel กระดูกงู", "กระดูกงู"))
    shown = [found.trace["fusion"]["weights"] for found in (known, mixed, unknown)]
    assert [round(weights["case_study"], 4) for weights in shown][::2] == [3.0, 0.06]
    assert 0.06 < shown[1]["case_study"] < 3.0
    assert {weights["keyword"] for weights in shown} == {1.0}
    assert ids(known) == ["c", "a", "b"] and ids(unknown) == ["a", "b", "c"]
    assert known[0].signals["case_study"]["weight"] == 3.0
    assert "because" not in known.trace["fusion"]
    assert unknown.trace["fusion"]["because"] == {"known_script": 0.0}


def test_what_other_kinds_weigh_does_not_hang_on_the_script(tmp_path: Path) -> None:
    with clew.open(tmp_path, embedder=HashingEmbedder(model="bge-small@test")) as engine:
        engine.add([Record(name, f"keel กระดูกงูเรือ {name}") for name in "ab"])
        engine.embed()
        for fusion in ("rrf", "convex", "weighted_rrf"):
            engine.config = replace(engine.config, fusion=fusion)
            said = engine.search("กระดูกงู", cache=False).trace["fusion"]["weights"]
            assert said["tags"] == 0.2
            assert said["vectors"] == (0.02 if fusion == "weighted_rrf" else 1.0)


def test_what_scores_too_little_in_its_list_is_left_out_before_fusion(engine: clew.Engine) -> None:
    engine.sources.update(
        one=giving(("a", 0.9), ("b", 0.5), ("c", 0.2)), two=giving(("c", 0.3), ("b", 0.1))
    )
    found = engine.search("keel", fusion="rrf", least={"one": 0.5, "two": 0.2})
    assert ids(found) == ["a", "c", "b"]
    assert found[1].signals["two"]["rank"] == 1 and "one" not in found[1].signals
    sources = found.trace["sources"]
    assert [(sources[n]["count"], sources[n]["below"]) for n in ("one", "two")] == [(2, 1), (1, 1)]
    assert "below" not in engine.search("keel").trace["sources"]["one"]
    for wrong, said in (({"three": 1}, "no source 'three' is asked"), ({"one": "x"}, "a number")):
        with pytest.raises(clew.InputError, match=said):
            engine.search("keel", least=wrong)  # type: ignore[arg-type]


def test_a_threshold_never_answers_a_search_without_one(tmp_path: Path) -> None:
    with clew.open(tmp_path, model="none") as engine:
        engine.add([Record(name, f"the keel of {name}") for name in "ab"])
        assert ids(engine.search("keel", least={"keyword": 99.0})) == []
        assert ids(engine.search("keel")) == ["a", "b"]
        assert ids(engine.search("keel", least={"keyword": 99.0})) == []


def test_the_depth_of_a_call_wins_over_the_settings(engine: clew.Engine) -> None:
    asked: list[int] = []

    def source(query: Query, context: Any) -> Sequence[Candidate]:
        asked.append(query.depth)
        return [Candidate("a", 1.0)]

    engine.sources["one"] = source
    engine.search("keel", depth=7, limit=3)
    engine.search("keel", limit=3)
    assert asked == [7, engine.config.depth]
    for wrong in (0, True, 2.5):
        with pytest.raises(clew.InputError, match="depth must be a whole number"):
            engine.search("keel", depth=wrong)  # type: ignore[arg-type]


def test_a_source_that_does_not_look_at_filters_shows_nothing_personal(tmp_path: Path) -> None:
    mine = Record("mine", "keel", domain="personal")
    other = Passage(0, Record("far", "keel far away", domain="Personal "), "keel far away", (1, 1))
    given = [Candidate("mine", 1.0), Candidate("far", 0.9, passage=other), Candidate("a", 0.8)]
    with clew.open(tmp_path, model="none", cache=False) as engine:
        engine.sources["blind"] = Configured(lambda query, context: given, "blind")
        engine.add([mine, Record("a", "keel")])
        found = engine.search("keel", sources=["blind"])
        assert [hit.id for hit in found] == ["a"]
        found = engine.search("keel", sources=["blind"], include_personal=True)
        assert [hit.id for hit in found] == ["mine", "far", "a"]


def test_no_more_of_a_passage_is_read_than_there_is_time_for(tmp_path: Path) -> None:
    text = "keel boat rope " * 100_000
    long = Passage(0, Record("far", text), text, (1, 1))
    given = [Candidate("far", 1.0, passage=long)]
    with clew.open(tmp_path, model="none", cache=False) as engine:
        engine.sources["far"] = Configured(lambda query, context: given, "far")
        (hit,) = engine.search("keel", sources=["far"])
        assert hit.snippet and len(hit.content) == 100_000
