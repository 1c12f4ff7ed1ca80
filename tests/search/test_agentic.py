"""agentic_search on real stores, by rules and with a chat model that answers well or badly."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import clew
from clew.search.decompose import decompose
from clew.types import Candidate, Passage, Query, Record, Vector, Vectors
from endpoint import Endpoint, Reply, body, break_off, close, message, status
from servers import drip, hang

from hashing import Hanging, HashingEmbedder

TEXTS = {
    "fuse": "The fuse in the hallway blows whenever the sauna is on.",
    "keel": "Keel bolts of the Kestrel are tightened to 120 Nm.",
    "crane": "The crane lifts boats on Saturday from eight to noon.",
    "paint": "Antifouling paint goes on in two coats before Easter.",
    "bread": "Rye bread rests for sixteen hours in a cool larder.",
    "roaster": "The roaster drum turns at fifty rounds a minute.",
}
QUERY = "keel bolts kestrel and crane saturday"


def records() -> list[Record]:
    return [Record(id=name, content=text, tags=(name[0],)) for name, text in TEXTS.items()]


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[clew.Engine]:
    with clew.open(tmp_path, embedder=HashingEmbedder(dim=256)) as opened:
        opened.add(records())
        opened.embed()
        yield opened


@pytest.fixture
def with_llm(tmp_path: Path, endpoint: Endpoint) -> Iterator[clew.Engine]:
    """Its chat model is the test's endpoint."""
    with clew.open(
        tmp_path, embedder=HashingEmbedder(dim=256), llm="m", llm_url=endpoint.url, llm_seconds=5
    ) as opened:
        opened.add(records())
        opened.embed()
        yield opened


def ids(found: dict[str, Any]) -> list[str]:
    return [hit["id"] for hit in found["results"]]


# ---------------------------------------------------------------- the answer


def test_every_part_is_answered_and_every_hit_says_by_which(engine: clew.Engine) -> None:
    found = clew.agentic_search(QUERY, 2, engine=engine)
    assert found["sub_queries"] == [QUERY, "keel bolts kestrel", "crane saturday"]
    assert found["decomposed"] is True
    by = {hit["id"]: hit["found_by"] for hit in found["results"]}
    assert by == {"keel": [QUERY, "keel bolts kestrel"], "crane": [QUERY, "crane saturday"]}
    meta = found["meta"]
    assert (meta["returned"], meta["sub_query_count"]) == (2, 3)
    assert meta["total_candidates"] >= 2
    assert meta["decomposer"] == "rules" and meta["fallback"] is None


def test_a_query_that_asks_one_thing_is_one_search(engine: clew.Engine) -> None:
    found = clew.agentic_search("crane saturday", validate=False, engine=engine)
    plain = engine.search("crane saturday")
    assert found["decomposed"] is False and found["sub_queries"] == ["crane saturday"]
    assert ids(found) == [hit.id for hit in plain]
    assert [hit["score"] for hit in found["results"]] == [hit.score for hit in plain]
    assert all(hit["found_by"] == ["crane saturday"] for hit in found["results"])


def test_the_best_score_counts_and_a_tenth_more_for_several_finders(engine: clew.Engine) -> None:
    found = clew.agentic_search(QUERY, 3, validate=False, engine=engine, now=0)
    searches = {
        text: {hit.id: hit.score for hit in engine.search(text, limit=3, now=0)}
        for text in found["sub_queries"]
    }
    expected: dict[str, float] = {}
    for name in {name for hits in searches.values() for name in hits}:
        scores = [hits[name] for hits in searches.values() if name in hits]
        expected[name] = max(scores) * (1.1 if len(scores) > 1 else 1)
    order = sorted(expected, key=lambda name: (-expected[name], name))
    assert ids(found) == order[:3]
    for hit in found["results"]:
        assert hit["score"] == pytest.approx(expected[hit["id"]])
        assert hit["found_by"] == [t for t, hits in searches.items() if hit["id"] in hits]
    assert found["meta"]["total_candidates"] == len(expected)


def test_a_hit_is_shown_as_its_best_finder_has_it(engine: clew.Engine) -> None:
    (first, *_) = clew.agentic_search("bread, crane saturday", engine=engine)["results"]
    marked = [first["snippet"][start:end] for start, end in first["highlights"]]
    assert first["id"] == "crane" and marked == ["crane", "Saturday"]
    assert set(first["signals"]) == {"keyword", "vectors"}


def test_the_same_search_gives_the_same_list(engine: clew.Engine) -> None:
    runs = [clew.agentic_search("the keel, the crane, the paint", engine=engine) for _ in range(5)]
    assert all(run["results"] == runs[0]["results"] for run in runs)


def test_the_answer_is_plain_data(engine: clew.Engine) -> None:
    found = clew.agentic_search(QUERY, engine=engine, explain=True)
    assert json.loads(json.dumps(found, allow_nan=False)) == found


def test_the_trace_tells_of_every_sub_query(engine: clew.Engine) -> None:
    trace = clew.agentic_search(QUERY, 2, engine=engine)["meta"]["trace"]
    assert [asked["query"] for asked in trace] == decompose(QUERY)
    assert [asked["hits"] for asked in trace] == [2, 2, 2]
    assert all(asked["ms"] >= 0 and asked["degraded"] == [] for asked in trace)
    assert "search" not in trace[0]
    explained = clew.agentic_search(QUERY, engine=engine, explain=True)["meta"]["trace"]
    assert explained[1]["search"]["canonical"] == "keel bolts kestrel"


# ---------------------------------------------------------------- options


def test_options_and_conditions_hold_for_every_part(engine: clew.Engine) -> None:
    assert set(ids(clew.agentic_search(QUERY, engine=engine, filter={"tags": ["c"]}))) == {"crane"}
    by_syntax = clew.agentic_search(f"{QUERY} -tag:k", validate=False, engine=engine)
    assert "crane" in ids(by_syntax) and "keel" not in ids(by_syntax)
    words = clew.agentic_search(QUERY, engine=engine, mode="keyword")
    assert set(ids(words)) == {"keel", "crane"}


def test_what_may_not_be_seen_is_seen_by_no_part(engine: clew.Engine) -> None:
    engine.add([Record("diary", "Keel bolts and the crane on Saturday.", domain="personal")])
    assert "diary" not in ids(clew.agentic_search(QUERY, engine=engine))
    assert "diary" in ids(clew.agentic_search(QUERY, engine=engine, include_personal=True))
    assert ids(clew.agentic_search(QUERY, engine=engine, skills_only=True)) == []


def test_what_strictness_holds_back_is_counted(engine: clew.Engine) -> None:
    lax = clew.agentic_search(QUERY, 3, validate=False, engine=engine)
    strict = clew.agentic_search(QUERY, 3, validate=False, engine=engine, strict=True)
    held = sum(engine.search(q, limit=3, strict=True).suppressed for q in strict["sub_queries"])
    assert strict["meta"]["suppressed"] == held > 0
    assert lax["meta"]["suppressed"] == 0
    assert all(hit["confidence"] != "LOW" for hit in strict["results"])


def test_a_given_vector_is_the_query_s_own_and_not_its_parts(engine: clew.Engine) -> None:
    bread = engine.embed_query("rye bread larder")
    found = clew.agentic_search(
        QUERY, 1, validate=False, engine=engine, mode="vector", vector=bread, explain=True
    )
    lists = [asked["search"]["lists"]["vectors"] for asked in found["meta"]["trace"]]
    assert [rows[0]["id"] for rows in lists] == ["bread", "keel", "crane"]


@pytest.mark.parametrize(
    ("query", "options", "says"),
    [
        ("", {}, "empty"),
        ("keel and crane", {"limit": 0}, "limit"),
        ("keel after:soon", {}, "2026-03-14"),
        ("keel and crane", {"sources": ["keywrd"]}, "keyword"),
        (7, {}, "text"),
    ],
)
def test_what_makes_no_sense_is_said_as_in_any_search(
    engine: clew.Engine, query: Any, options: dict[str, Any], says: str
) -> None:
    with pytest.raises(clew.InputError, match=says):
        clew.agentic_search(query, engine=engine, **options)


def test_filters_alone_list_what_matches(engine: clew.Engine) -> None:
    assert ids(clew.agentic_search("tag:k", engine=engine)) == ["keel"]


def test_without_an_engine_the_nearest_store_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLEW_MODEL", "none")
    below = tmp_path / "store" / "below"
    below.mkdir(parents=True)
    with clew.open(tmp_path / "store") as engine:
        engine.add(records())
    monkeypatch.chdir(below)
    assert set(ids(clew.agentic_search(QUERY))) == {"keel", "crane"}
    monkeypatch.chdir(tmp_path)
    with pytest.raises(clew.StoreError, match="clew index"):
        clew.agentic_search(QUERY)


# ---------------------------------------------------------------- validation


def test_what_is_far_from_the_query_is_dropped_and_counted(engine: clew.Engine) -> None:
    everything = clew.agentic_search(QUERY, validate=False, engine=engine)
    near = clew.agentic_search(QUERY, engine=engine)
    assert set(ids(everything)) == set(TEXTS)
    query = engine.embed_query(QUERY)
    cosines = {
        name: float(query @ HashingEmbedder(dim=256)._vector(t)) for name, t in TEXTS.items()
    }
    assert set(ids(near)) == {name for name, cosine in cosines.items() if cosine >= 0.25}
    assert set(ids(near)) == {"keel", "crane"}
    assert near["meta"]["dropped"] == 4 and near["meta"]["validated"] == 6
    assert everything["meta"]["dropped"] == everything["meta"]["validated"] == 0


def test_the_store_s_vectors_are_used_where_it_has_them(tmp_path: Path) -> None:
    embedder = HashingEmbedder(dim=256)
    with clew.open(tmp_path, embedder=embedder) as engine:
        engine.add(records())
        engine.embed()
        embedder.embedded.clear()
        before = clew.agentic_search(QUERY, engine=engine)
        assert embedder.embedded == []
        engine.add([Record("new", "Keel bolts and the crane, on Saturday.", title="News")])
        after = clew.agentic_search(QUERY, engine=engine)
    assert embedder.embedded == ["News\nKeel bolts and the crane, on Saturday."]
    assert set(ids(after)) == {*ids(before), "new"}


def test_a_source_that_names_no_passage_costs_no_embedding(tmp_path: Path) -> None:
    def by_name(query: Query, context: Any) -> Sequence[Candidate]:
        return [Candidate(word, 1.0) for word in query.text.split() if word in TEXTS]

    embedder = HashingEmbedder(dim=256)
    with clew.open(tmp_path, embedder=embedder) as engine:
        engine.add(records())
        engine.embed()
        engine.sources["names"] = by_name
        embedder.embedded.clear()
        found = clew.agentic_search("bread, keel, roaster", engine=engine, sources=["names"])
    assert found["meta"]["total_candidates"] == found["meta"]["validated"] == 3
    assert embedder.embedded == []


def test_what_a_source_brings_from_outside_is_embedded(engine: clew.Engine) -> None:
    def outside(query: Query, context: Any) -> Sequence[Candidate]:
        near = Record("o:near", "The crane works on Saturday, keel bolts too.")
        far = Record("o:far", "Sixteen tons, and what do you get?")
        return [Candidate(r.id, 1.0, passage=Passage(0, r, r.content, (1, 1))) for r in (near, far)]

    engine.sources["outside"] = outside
    found = clew.agentic_search(QUERY, engine=engine)
    assert "o:near" in ids(found) and "o:far" not in ids(found)


def test_the_list_is_filled_from_behind_what_was_dropped(engine: clew.Engine) -> None:
    def keen(query: Query, context: Any) -> Sequence[Candidate]:
        return [
            Candidate(name, score) for name, score in (("bread", 9), ("roaster", 8), ("keel", 1))
        ]

    engine.sources["keen"] = keen
    options = {"engine": engine, "sources": ["keen"]}
    assert ids(clew.agentic_search(QUERY, 2, validate=False, **options)) == ["bread", "roaster"]
    found = clew.agentic_search(QUERY, 3, **options)
    assert ids(found) == ["keel"] and found["meta"]["dropped"] == 2


def test_without_a_model_everything_is_kept_and_said(tmp_path: Path) -> None:
    with clew.open(tmp_path, model="none") as engine:
        engine.add(records())
        found = clew.agentic_search(QUERY, engine=engine)
    assert set(ids(found)) == {"keel", "crane"}
    assert found["meta"]["dropped"] == found["meta"]["validated"] == 0
    assert any(problem.startswith("validation: ") for problem in found["meta"]["degraded"])


class Failing(HashingEmbedder):
    """Its endpoint has gone away since the store was made."""

    def embed_query(self, text: str) -> Vector:
        raise clew.ModelError("no route: try later")


class Mute(HashingEmbedder):
    """Embeds a query, but no passage."""

    def embed_documents(self, texts: Sequence[str]) -> Vectors:
        raise clew.ModelError("too much to read")


def test_a_model_that_fails_leaves_the_list_alone(tmp_path: Path) -> None:
    with clew.open(tmp_path, embedder=Failing()) as engine:
        engine.add(records())
        engine.embed()
        found = clew.agentic_search(QUERY, engine=engine)
    assert set(ids(found)) == {"keel", "crane"}
    assert "validation: no route: try later" in found["meta"]["degraded"]


def test_a_passage_that_cannot_be_embedded_is_kept(tmp_path: Path) -> None:
    with clew.open(tmp_path, embedder=Mute()) as engine:
        engine.add(records())
        found = clew.agentic_search(QUERY, engine=engine)
    assert set(ids(found)) == {"keel", "crane"}
    assert found["meta"]["validated"] == found["meta"]["dropped"] == 0


def test_vectors_of_one_s_own_are_compared_with_one_s_own(tmp_path: Path) -> None:
    with clew.open(tmp_path, model="none") as engine:
        engine.add(records()[:3], vectors=np.eye(3))
        found = clew.agentic_search(
            "fuse keel crane bolts", engine=engine, vector=[1.0, 1.0, 0.0], mode="vector"
        )
        odd = clew.agentic_search("fuse and keel", engine=engine, mode="keyword", validate=True)
    assert set(ids(found)) == {"fuse", "keel"} and found["meta"]["dropped"] == 1
    assert set(ids(odd)) == {"fuse", "keel"}


# ---------------------------------------------------------------- faults of a part


def test_a_source_that_fails_is_named_once(engine: clew.Engine) -> None:
    def broken(query: Query, context: Any) -> Sequence[Candidate]:
        raise clew.SourceError("the table is gone: name another")

    engine.sources["broken"] = broken
    found = clew.agentic_search(QUERY, engine=engine)
    assert set(ids(found)) == {"keel", "crane"}
    assert found["meta"]["degraded"] == ["broken: the table is gone: name another"]
    assert all(len(asked["degraded"]) == 1 for asked in found["meta"]["trace"])


def test_a_source_that_sleeps_delays_nothing_and_is_named(tmp_path: Path) -> None:
    over = threading.Event()

    def asleep(query: Query, context: Any) -> Sequence[Candidate]:
        over.wait()
        return []

    with clew.open(tmp_path, model="none", deadline=2) as engine:
        engine.add(records())
        engine.sources["asleep"] = asleep
        found = clew.agentic_search(QUERY, engine=engine)
        over.set()
    assert set(ids(found)) == {"keel", "crane"}
    assert "asleep: no answer within 2 s" in found["meta"]["degraded"]


def test_a_model_that_hangs_delays_validation_no_longer_than_a_search(tmp_path: Path) -> None:
    embedder = Hanging()
    with clew.open(tmp_path, embedder=embedder, deadline=4) as engine:
        engine.add(records())
        engine.embed()
        begun = time.perf_counter()
        found = clew.agentic_search(QUERY, engine=engine)
        waited = time.perf_counter() - begun
        embedder.free.set()
    assert waited < 7.5  # one deadline, not one for each
    assert set(ids(found)) == {"keel", "crane"}
    assert any("validation: no vectors within 4 s" in p for p in found["meta"]["degraded"])


def test_a_sub_query_that_cannot_be_asked_is_named(engine: clew.Engine) -> None:
    class Fussy(clew.Engine):
        def search(self, query: str, **options: Any) -> clew.SearchResult:
            if query == "crane saturday":
                raise clew.StoreError("the disk is gone: mount it")
            return super().search(query, **options)

    fussy = Fussy(engine.store, config=engine.config, embedder=HashingEmbedder(dim=256))
    found = clew.agentic_search(QUERY, engine=fussy)
    assert set(ids(found)) == {"keel", "crane"}  # the whole query finds it as well
    said = "sub-query 'crane saturday': the disk is gone: mount it"
    assert found["meta"]["degraded"] == [said]
    assert found["meta"]["trace"][2]["degraded"] == [said]


# ---------------------------------------------------------------- the chat model


def test_the_chat_model_takes_the_query_apart(with_llm: clew.Engine, endpoint: Endpoint) -> None:
    endpoint.words = '```json\n["fuse hallway", "rye bread", "crane saturday", "and more"]\n```'
    found = clew.agentic_search("what about my house -roaster", validate=False, engine=with_llm)
    assert found["sub_queries"] == [
        "what about my house -roaster",
        "fuse hallway -roaster",
        "rye bread -roaster",
        "crane saturday -roaster",
    ]
    assert found["decomposed"] and found["meta"]["decomposer"] == "llm"
    assert found["meta"]["fallback"] is None
    assert {"fuse", "bread", "crane"} <= set(ids(found)) and "roaster" not in ids(found)


def test_the_chat_model_may_see_nothing_to_take_apart(with_llm: clew.Engine) -> None:
    found = clew.agentic_search(QUERY, engine=with_llm)
    assert found["sub_queries"] == [QUERY] and not found["decomposed"]
    assert found["meta"]["decomposer"] == "llm"


def test_for_a_single_word_nobody_is_asked(with_llm: clew.Engine, endpoint: Endpoint) -> None:
    assert clew.agentic_search("keel -the", engine=with_llm)["meta"]["decomposer"] == "rules"
    assert endpoint.requests == []


@pytest.mark.parametrize(
    ("replies", "says"),
    [
        ([hang], r"gave no answer within 0\.5 s"),
        ([drip], r"gave no answer within 0\.5 s"),
        ([status(429), status(429)], "answered 429"),
        ([status(429, retry_after="3600")], "answered 429"),
        ([status(500)], "answered 500"),
        ([close], "cannot be reached"),
        ([break_off], "cannot be reached"),
        ([body(b'{"choices": [')], "cannot be read"),
        ([body(b'{"error": "busy"}')], "other than a chat completion"),
        ([message(content=None, refusal="I will not")], "refused .'I will not'"),
        ([message(content="I'm sorry, but I cannot help with that.")], "other than a list"),
        ([message(content='["half a list", "of')], "other than a list"),
        ([message(content="")], "empty answer"),
    ],
)
def test_whatever_goes_wrong_the_rules_do_it_and_say_why(
    tmp_path: Path, endpoint: Endpoint, replies: list[Reply], says: str
) -> None:
    endpoint.script = list(replies)
    with clew.open(
        tmp_path,
        embedder=HashingEmbedder(dim=256),
        llm="m",
        llm_url=endpoint.url,
        llm_seconds=0.5 if replies[0] in (hang, drip) else 20,
    ) as engine:
        engine.add(records())
        engine.embed()
        found = clew.agentic_search(QUERY, engine=engine)
    assert found["sub_queries"] == decompose(QUERY)
    assert set(ids(found)) == {"keel", "crane"}
    assert found["meta"]["decomposer"] == "rules"
    assert re.search(says, found["meta"]["fallback"])


def test_a_rate_limit_that_passes_is_no_fault(with_llm: clew.Engine, endpoint: Endpoint) -> None:
    endpoint.script = [status(429, retry_after="0.01")]
    endpoint.words = '["keel", "crane"]'
    found = clew.agentic_search(QUERY, engine=with_llm)
    assert found["meta"]["decomposer"] == "llm" and len(found["sub_queries"]) == 3


def test_no_endpoint_at_all(tmp_path: Path, endpoint: Endpoint) -> None:
    nowhere = "http://127.0.0.1:1/v1"
    with clew.open(tmp_path, model="none", llm="m", llm_url=nowhere) as engine:
        engine.add(records())
        found = clew.agentic_search(QUERY, engine=engine)
    assert set(ids(found)) == {"keel", "crane"}
    assert f"m at {nowhere} cannot be reached" in found["meta"]["fallback"]


def test_a_chat_model_of_one_s_own_takes_the_place_of_the_configured(engine: clew.Engine) -> None:
    class Mine:
        model = "mine"

        def complete(self, system: str, prompt: str, *, seconds: float) -> str:
            return json.dumps(["rye bread"])

    found = clew.agentic_search("what is for breakfast", engine=engine, llm=Mine())
    assert found["sub_queries"] == ["what is for breakfast", "rye bread"]
