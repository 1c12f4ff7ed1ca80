"""Searching down a tree, through `Engine.search`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from topics import TOPICS, records

import clew
from clew.errors import ConfigError, InputError, SourceError
from clew.protocols import Context
from clew.tree import Walk
from clew.types import Answer, Candidate, Query
from entries import ids

from hashing import HashingEmbedder


def how(found: clew.SearchResult) -> dict[str, Any]:
    return dict(found.trace["sources"]["tree"]["how"])


@pytest.mark.parametrize("mode", ["bottom-up", "top-down"])
@pytest.mark.parametrize("topic", list(TOPICS))
def test_a_query_finds_the_records_of_its_topic(engine: clew.Engine, mode: str, topic: str) -> None:
    engine.tree.build(mode=mode, branching=10)
    found = engine.search(TOPICS[topic], tree=True)
    assert len(found) == 10 and {hit.id.split("-")[0] for hit in found} == {topic}
    assert not found.degraded and {hit.source for hit in found} == {"tree"}


def test_the_trace_counts_what_was_done(engine: clew.Engine) -> None:
    said = how(engine.search("violin cello", tree=True))
    assert said["scorer"] == "embedding" and 0 < said["scored"] <= 500
    assert said["slates"] >= said["iterations"] >= 3
    assert said["masked_leaf_ratio"] == 0 and said["aborted"] is False
    assert said["path"][0]["name"] == "everything"
    assert "steps" not in said


def test_explained_it_names_every_node_that_was_scored(engine: clew.Engine) -> None:
    found = engine.search("violin cello", tree=True, explain=True)
    steps = how(found)["steps"]
    assert len(steps) == how(found)["slates"]
    nodes = [node for step in steps for node in step["nodes"]]
    assert {"score", "calibrated", "relevance", "name", "leaf"} <= nodes[0].keys()
    leaves = {node["id"]: node["relevance"] for node in nodes if node["leaf"]}
    assert found[0].id == max(leaves, key=lambda name: leaves[name])


def test_the_best_passage_of_a_record_is_shown(tmp_path: Path) -> None:
    with clew.open(tmp_path, embedder=HashingEmbedder(), chunk_size=200) as engine:
        long = "\n\n".join(
            [f"{TOPICS['bread']} {i} " * 3 for i in range(6)] + ["quasar comet " * 9]
        )
        engine.add([clew.Record(id="long", content=long), *records(3)])
        engine.embed()
        engine.tree.build()
        hit = next(h for h in engine.search("quasar comet", tree=True) if h.id == "long")
        assert "quasar" in hit.content and "flour" not in hit.content


def test_filters_hold_in_every_walk(engine: clew.Engine) -> None:
    engine.add([clew.Record(id="other", content=TOPICS["boats"], collection="harbour")])
    engine.embed()
    found = engine.search(TOPICS["boats"], tree=Walk(abort=False), filter={"collection": "harbour"})
    assert ids(found) == ["other"]
    assert how(found)["masked_leaf_ratio"] > 0.15


def test_phrases_and_exclusions_hold(engine: clew.Engine) -> None:
    engine.add([clew.Record(id="exact", content="the keel and the mast rudder hull, painted red")])
    engine.embed()
    assert ids(engine.search('keel "keel and the mast"', tree=True)) == ["exact"]
    assert "exact" not in ids(engine.search("keel mast rudder hull -painted", tree=True, limit=50))


def test_personal_records_are_neither_found_nor_told_of(engine: clew.Engine) -> None:
    secret = [
        clew.Record(
            id=f"diary-{n}", title=f"zebra secret {n}", content=TOPICS["boats"], domain="personal"
        )
        for n in range(3)
    ]
    engine.add(secret)
    engine.embed()
    engine.tree.build(branching=10)
    found = engine.search(TOPICS["boats"], tree=Walk(abort=False), explain=True, limit=50)
    assert "zebra" not in str(found.to_dict()) and "diary" not in str(found.to_dict())
    assert "zebra" not in str(engine.tree.show(depth=9))
    asked = engine.search(TOPICS["boats"], tree=Walk(abort=False), include_personal=True, limit=50)
    assert {"diary-0", "diary-1", "diary-2"} <= set(ids(asked))
    assert "zebra" in str(engine.tree.show(depth=9, include_personal=True))


def test_an_answer_is_kept_until_the_tree_is_another(tmp_path: Path) -> None:
    with clew.open(tmp_path, embedder=HashingEmbedder()) as engine:
        engine.add(records(5))
        engine.embed()
        engine.tree.build()
        first = engine.search("oak birch", tree=True)
        assert engine.search("oak birch", tree=True).cache == "exact"
        assert engine.search("oak birch").cache is None
        assert engine.search("oak birch", tree=Walk(iterations=3)).cache is None
        engine.tree.build(mode="top-down")
        assert engine.search("oak birch", tree=True).cache is None
        assert first.cache is None


def test_other_sources_can_be_asked_beside_the_tree(engine: clew.Engine) -> None:
    found = engine.search("violin cello", tree=True, sources=["keyword"])
    assert {"keyword", "tree"} == set(found.trace["sources"])
    assert set(found[0].signals) == {"keyword", "tree"}


def test_the_tree_can_be_one_of_the_sources_of_every_search(tmp_path: Path) -> None:
    (tmp_path / "clew.toml").write_text("[sources.tree]\nweight = 0.5\n")
    with clew.open(tmp_path, embedder=HashingEmbedder()) as engine:
        engine.add(records(5))
        engine.embed()
        said = engine.search("oak birch").degraded
        assert any("clew tree build" in each for each in said)
        engine.tree.build()
        found = engine.search("oak birch")
        assert not found.degraded and found.trace["sources"]["tree"]["count"] > 0


def test_confidence_is_judged_by_nearness(engine: clew.Engine) -> None:
    engine.add([clew.Record(id="exact", content="marimba glockenspiel timpani")])
    engine.embed()
    found = engine.search("marimba glockenspiel timpani", tree=True)
    assert found[0].id == "exact"
    by_words = {hit.id: hit.chance or 0.0 for hit in found}
    assert by_words["exact"] == max(by_words.values()) > min(by_words.values())


# ---------------------------------------------------------------------- what cannot be


def test_without_a_tree_the_error_names_the_command(tmp_path: Path) -> None:
    with clew.open(tmp_path, embedder=HashingEmbedder()) as engine:
        engine.add(records(2))
        with pytest.raises(SourceError, match="clew tree build"):
            engine.search("oak", tree=True)
        with pytest.raises(SourceError, match="clew index"):
            engine.tree.build()


def test_where_no_model_is_the_error_says_that_one_is_needed(tmp_path: Path) -> None:
    with clew.open(tmp_path, model="none") as engine:
        engine.add(records(2))
        with pytest.raises(SourceError, match="clew config model"):
            engine.tree.build()


@pytest.mark.parametrize(
    "given",
    [
        *({"seconds": x} for x in (float("inf"), float("nan"), 1e300, -1, "x", True)),
        *({"seed": x} for x in (-1, "x", 1.5, None)),
    ],
)
def test_times_and_seeds_that_make_no_sense_are_named(given: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(given))):
        Walk(**given)


@pytest.mark.parametrize("given", ["embeding", 3, None, {"scorer": "llm"}])
def test_a_walk_that_makes_no_sense_is_named(engine: clew.Engine, given: Any) -> None:
    with pytest.raises(InputError):
        engine.search("oak", tree=given)


def test_a_chat_model_must_be_configured_to_score(engine: clew.Engine) -> None:
    with pytest.raises(ConfigError, match="llm"):
        engine.search("oak", tree="llm")


def test_modes_and_branching_that_make_no_sense_are_named(engine: clew.Engine) -> None:
    with pytest.raises(InputError, match="bottom-up"):
        engine.tree.build(mode="sideways")
    with pytest.raises(InputError, match="branching"):
        engine.tree.build(branching=21)
    with pytest.raises(InputError, match="node"):
        engine.tree.show(10_000)


# ---------------------------------------------------------------------- called off


def masked(engine: clew.Engine) -> clew.Filter:
    """Leaves out a fourth of every topic."""
    names = [row[0] for row in engine.store.lifecycle.ledger(clew.Filter())]
    return clew.Filter(ids=[name for n, name in enumerate(names) if n % 4])


def with_graph(engine: clew.Engine, graph: Any) -> clew.Engine:
    return clew.Engine(
        engine.store,
        config=engine.config,
        root=engine.root,
        embedder=engine.embedder,
        sources={**engine.sources, "graph": graph},
    )


def test_where_many_leaves_are_masked_the_graph_answers(engine: clew.Engine) -> None:
    asked: list[Query] = []

    def graph(query: Query, context: Context) -> Sequence[Candidate]:
        asked.append(query)
        return [Candidate("stars-001", 0.9)]

    found = with_graph(engine, graph).search("violin", tree=True, filter=masked(engine))
    assert ids(found)[0] == "stars-001" and asked[0].filter.ids
    fallback = how(found)["fallback"]
    assert fallback["to"] == "graph" and "15%" in fallback["reason"]
    assert any("graph answers" in each for each in found.degraded)


@pytest.mark.parametrize("score", [0.9, 0.0, -3.0])
def test_what_the_graph_lacks_words_and_vectors_add_after_it(
    engine: clew.Engine, score: float
) -> None:
    def graph(query: Query, context: Context) -> Sequence[Candidate]:
        return [Candidate("stars-001", score), Candidate("stars-002", score)]

    only = masked(engine)
    found = with_graph(engine, graph).search("violin cello", tree=True, filter=only, limit=20)
    assert len(found) == 20 and ids(found)[:2] == ["stars-001", "stars-002"]
    flat = engine.search("violin cello", filter=only, sources=["keyword", "vectors"], limit=20)
    assert ids(found)[2:] == ids(flat)[:18]
    assert how(found)["fallback"]["to"] == "graph"
    assert "words and vectors add" in how(found)["fallback"]["note"]


def test_a_graph_that_has_enough_to_say_is_left_alone(engine: clew.Engine) -> None:
    only = masked(engine)
    names = [name for name in only.ids if name.startswith("stars")]

    def graph(query: Query, context: Context) -> Sequence[Candidate]:
        return [Candidate(name, 1.0 - n / 100) for n, name in enumerate(names)]

    found = with_graph(engine, graph).search("violin", tree=True, filter=only, limit=len(names))
    assert ids(found) == names and how(found)["fallback"]["note"] == ""


def says_nothing(query: Query, context: Context) -> Sequence[Candidate]:
    return ()


def says_why(query: Query, context: Context) -> Answer:
    return Answer((), "no graph is built yet")


def breaks(query: Query, context: Context) -> Sequence[Candidate]:
    raise ValueError("broken graph")


@pytest.mark.parametrize(
    ("graph", "why"),
    [(says_nothing, "no answer"), (says_why, "no graph is built"), (breaks, "broken graph")],
)
def test_and_where_the_graph_cannot_words_and_vectors_do(
    engine: clew.Engine, graph: Any, why: str
) -> None:
    only = masked(engine)
    found = with_graph(engine, graph).search("violin cello tempo", tree=True, filter=only)
    fallback = how(found)["fallback"]
    assert fallback["to"] == "flat hybrid" and why in fallback["note"]
    flat = engine.search("violin cello tempo", filter=only, sources=["keyword", "vectors"])
    assert ids(found) == ids(flat)
    assert set(ids(found)) <= set(only.ids)


def test_a_walk_may_be_told_not_to_be_called_off(engine: clew.Engine) -> None:
    only = masked(engine)
    found = engine.search("violin cello tempo", tree=Walk(abort=False), filter=only)
    assert "fallback" not in how(found) and not found.degraded
    assert set(ids(found)) <= set(only.ids) and found[0].id.startswith("music")


# ---------------------------------------------------------------------- cross-encoder


class Overlap:
    """Reads by counting shared words, backwards if told to."""

    model = "overlap"

    def __init__(self, sign: float = 1.0):
        self.sign = sign
        self.read: list[str] = []

    def score(self, query: str, passages: Sequence[str]) -> list[float]:
        self.read += passages
        return [self.sign * len(set(query.split()) & set(p.split())) for p in passages]


def reading(engine: clew.Engine, reranker: Any, **settings: Any) -> clew.Engine:
    from dataclasses import replace

    return clew.Engine(
        engine.store,
        config=replace(engine.config, **settings),
        root=engine.root,
        embedder=engine.embedder,
        reranker=reranker,
    )


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_cross_encoder_scores_slates_and_its_word_counts(
    engine: clew.Engine, sign: float
) -> None:
    reranker = Overlap(sign)
    asking = reading(engine, reranker, rerank_blend=1.0)
    walk = Walk(scorer="cross-encoder", reads=60)
    found = asking.search("keel mast rudder", tree=walk, explain=True)
    steps = how(found)["steps"]
    assert {step["scorer"] for step in steps} == {"cross-encoder"} and not found.degraded
    assert steps[0]["node"] == 0 and len(reranker.read) == how(found)["scored"] <= 60
    labels = {child["label"] for child in engine.tree.show(depth=1)["children"]}
    assert {text.partition(":")[0] for text in reranker.read} >= labels
    shared = [len({"keel", "mast", "rudder"} & set(hit.content.split())) for hit in found]
    assert shared == sorted(shared, reverse=sign > 0)


def test_who_may_hardly_read_is_answered_by_words_and_nearness(engine: clew.Engine) -> None:
    reranker = Overlap()
    walk = Walk(scorer="cross-encoder", reads=1)
    found = reading(engine, reranker).search("sonata octave", tree=walk)
    assert len(found) == 10 and found[0].id.startswith("music")
    assert len(reranker.read) == len(engine.tree.show(depth=1)["children"])  # the first slate


def test_a_walk_that_may_score_too_little_for_a_leaf_leaves_it_to_words_and_vectors(
    engine: clew.Engine,
) -> None:
    engine.tree.build(branching=4)
    found = engine.search("sonata octave", tree=Walk(nodes=1))
    flat = engine.search("sonata octave", sources=["keyword", "vectors"])
    assert ids(found) == ids(flat) and how(found)["leaves"] == 0
    assert how(found)["fallback"]["to"] == "flat hybrid"
    assert any("words and vectors answer" in each for each in found.degraded)


def test_what_a_walk_met_comes_before_what_words_and_vectors_add(engine: clew.Engine) -> None:
    engine.tree.build(branching=4)
    found = engine.search("sonata octave", tree=Walk(iterations=6, beam=1), limit=30)
    met = how(found)["leaves"]
    assert 0 < met < 30 == len(found) == len(set(ids(found)))
    assert "words and vectors add" in how(found)["fallback"]["note"]
    alone = engine.search("sonata octave", tree=Walk(iterations=6, beam=1), limit=met)
    assert ids(found)[:met] == ids(alone) and "fallback" not in how(alone)


def test_without_a_cross_encoder_the_list_stays_and_says_so(engine: clew.Engine) -> None:
    from clew.errors import ModelError

    class Absent:
        model = "absent"

        def score(self, query: str, passages: Sequence[str]) -> list[float]:
            raise ModelError("its weights are not here")

    found = reading(engine, Absent()).search("keel mast", tree="cross-encoder")
    assert found[0].id.startswith("boats")
    assert any("slates by embedding: its weights are not here" in e for e in found.degraded)


def test_a_graph_that_is_built_answers_in_place_of_a_walk_that_is_called_off(
    engine: clew.Engine,
) -> None:
    # The filter leaves six records: nearly all leaves that are met are masked.
    engine.add(
        [
            clew.Record(
                id="crane", title="Harbour crane", content="See [[greta]].", links=("greta",)
            ),
            clew.Record(
                id="greta", title="Greta", content="Her licence is KR-5582.", path="greta.md"
            ),
        ]
    )
    engine.embed()
    left = {"ids": ["crane", "greta", "boats-000", "bread-000", "trees-000", "music-000"]}
    before = engine.search("harbour crane licence", tree=True, filter=left)
    assert how(before)["fallback"]["to"] == "flat hybrid"
    assert "clew graph build" in how(before)["fallback"]["note"]
    engine.graph.build()
    found = engine.search("harbour crane licence", tree=True, filter=left)
    assert how(found)["fallback"]["to"] == "graph" and "15%" in how(found)["fallback"]["reason"]
    assert set(ids(found)[:2]) == {"crane", "greta"} and set(ids(found)) <= set(left["ids"])
    assert any("graph" in said for said in found.degraded)
