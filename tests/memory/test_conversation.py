"""The recipe of conversation memory, through `working_memory`."""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import logging
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import clew
from clew.eval import cases
from clew.memory import WorkingMemory
from clew.types import Vector, Vectors

from hashing import HashingEmbedder

DAY = 86_400.0
NOW = dt.datetime(2026, 6, 15, 12, tzinfo=dt.UTC).timestamp()


class Provider(HashingEmbedder):
    """A provider that can fail, as one on another machine does."""

    failure: BaseException | None = None
    asked = 0

    def embed_query(self, text: str) -> Vector:
        self.asked += 1
        if self.failure is not None:
            raise self.failure
        return super().embed_query(text)

    def embed_documents(self, texts: Sequence[str]) -> Vectors:
        if self.failure is not None:
            raise self.failure
        return super().embed_documents(texts)


@pytest.fixture
def provider() -> Provider:
    return Provider(dim=256)


@pytest.fixture
def memory(tmp_path: Path, provider: Provider) -> Iterator[clew.Memory]:
    with clew.Memory(tmp_path / "memory.db", embedder=provider) as opened:
        yield opened


@pytest.fixture
def words(tmp_path: Path) -> Iterator[clew.Memory]:
    """Without a provider."""
    null = clew.NullEmbeddingProvider("there is no key")
    with clew.Memory(tmp_path / "words.db", embedder=null) as opened:
        yield opened


def ids(found: WorkingMemory) -> list[str]:
    return [entry["id"] for entry in found]


def path(found: WorkingMemory) -> str:
    said: str = found.diagnostics["retrieval_path"]
    return said


def counts(found: WorkingMemory, *names: str) -> tuple[int, ...]:
    return tuple(found.diagnostics["counts"][name] for name in names)


def episode(memory: clew.Memory, id: str, text: str, *, days: float, **more: Any) -> None:
    memory.remember(text, type="episodic", id=id, created_at=NOW - days * DAY, **more)


# ---------------------------------------------------------------- what comes back


def test_entries_are_plain_dicts_ready_for_a_prompt(memory: clew.Memory) -> None:
    memory.remember(
        "Ana is allergic to walnuts",
        importance=0.9,
        tags=["health"],
        metadata={"turn": 7},
        id="nuts",
        created_at=NOW,
    )
    found = memory.working_memory("is Ana allergic to walnuts?", now=NOW)
    assert type(found[0]) is dict
    assert json.loads(json.dumps(found)) == found
    assert found[0] == {
        "id": "nuts",
        "content": "Ana is allergic to walnuts",
        "type": "semantic",
        "importance": 0.9,
        "created_at": NOW,
        "date": "2026-06-15",
        "tags": ["health"],
        "metadata": {"turn": 7},
        "via": "query",
        "score": pytest.approx(2 / 61),
        "token_recall": 1.0,
        "token_rank": 1,
        "cosine": pytest.approx(1.0, abs=0.01),
        "cosine_rank": 1,
    }
    assert path(found) == "hybrid_rrf"


def test_five_facts_of_twenty_candidates_a_list_come_back(memory: clew.Memory) -> None:
    for i in range(60):
        memory.remember(f"the boat has a keel of size {i}", id=f"f{i:02}")
    found = memory.working_memory("boat keel size", least_cosine=0.1)
    assert len(found) == 5
    assert counts(found, "by_tokens", "by_cosine", "returned") == (20, 20, 5)
    assert found.diagnostics["semantic"]["active"] == 60
    more = memory.working_memory("boat keel size", least_cosine=0.1, semantic=25, candidates=30)
    assert len(more) == 25
    assert counts(more, "by_tokens", "by_cosine") == (30, 30)
    assert memory.working_memory("boat keel size", semantic=0) == []


def test_only_active_memories_of_the_namespace_are_called_to_mind(memory: clew.Memory) -> None:
    old = memory.remember("the keel is red")
    new = memory.supersede(old.id, "the keel is blue")
    gone = memory.remember("the keel is long")
    memory.forget(gone.id)
    memory.remember("the keel is Ben's", namespace="ben", id="bens")
    assert ids(memory.working_memory("keel")) == [new.id]
    assert ids(memory.working_memory("keel", namespace="ben")) == ["bens"]


def test_other_filters_hold_before_the_cut(memory: clew.Memory) -> None:
    for i in range(50):
        memory.remember(
            f"keel {i}",
            id=f"k{i:02}",
            importance=i / 50,
            tags=["odd"] if i % 2 else [],
            metadata={"n": i},
        )
    found = memory.working_memory("keel", importance_min=0.94)
    assert sorted(ids(found)) == ["k47", "k48", "k49"]
    assert len(memory.working_memory("keel", tags="odd", metadata={"n": {"gte": 44}})) == 3


def test_what_says_how_to_do_it_stands_among_the_facts(memory: clew.Memory) -> None:
    memory.remember("to reef the sail, ease the halyard", type="procedural", id="how")
    memory.remember("the sail is torn at the reef", id="what")
    assert set(ids(memory.working_memory("reef the sail"))) == {"how", "what"}
    assert ids(memory.working_memory("reef the sail", procedural=False)) == ["what"]


def test_a_call_to_mind_is_an_access_unless_it_is_not_to_be(memory: clew.Memory) -> None:
    made = memory.remember("the boat has a keel")
    memory.working_memory("keel")
    memory.working_memory("keel", record_access=False)
    found = memory.get(made.id)
    assert found is not None and found.accesses == 1


# ---------------------------------------------------------------- agreement with the scorers


def test_it_finds_what_the_scorers_of_the_cases_find(tmp_path: Path) -> None:
    """Every bundled case, asked of a file: the same ids in the same order, by each scorer."""
    embedder = HashingEmbedder(dim=256)
    least, everything = 0.2, 200
    stores = {id(case.texts): case.texts for case in cases.read_cases()}
    found_something = 0
    with (
        clew.Memory(tmp_path / "both.db", embedder=embedder) as both,
        clew.Memory(tmp_path / "words.db", embedder=clew.NullEmbeddingProvider()) as words,
    ):
        names = {key: f"store{i}" for i, key in enumerate(stores)}
        for key, texts in stores.items():
            for memory in (both, words):
                memory.remember_many(
                    {"content": text, "id": f"{names[key]}:{name}", "namespace": names[key]}
                    for name, text in texts.items()
                )
        for case in cases.read_cases():
            namespace = names[id(case.texts)]
            texts = {f"{namespace}:{name}": text for name, text in case.texts.items()}
            vectors = {name: embedder.embed_documents([t])[0] for name, t in texts.items()}
            vector = embedder.embed_query(case.query)
            by_tokens = cases.score_tokens(case.query, texts)
            by_cosine = cases.score_cosine(vector, vectors, least=least)
            options: dict[str, Any] = {
                "namespace": namespace,
                "semantic": everything,
                "candidates": everything,
            }
            plain = words.working_memory(case.query, **options)
            assert ids(plain) == [name for name, _ in by_tokens]
            assert [e["token_recall"] for e in plain] == [score for _, score in by_tokens]
            near = both.vector_search(vector, everything, namespace=namespace)
            assert [m.id for m in near if m.score >= least] == [name for name, _ in by_cosine]
            hybrid = cases.fuse_scores(by_tokens, by_cosine)
            found = both.working_memory(case.query, least_cosine=least, **options)
            assert ids(found) == [name for name, _ in hybrid]
            assert [e["score"] for e in found] == pytest.approx([score for _, score in hybrid])
            assert counts(found, "by_tokens", "by_cosine") == (len(by_tokens), len(by_cosine))
            first = both.working_memory(case.query, least_cosine=least, namespace=namespace)
            short = cases.fuse_scores(by_tokens[:20], by_cosine[:20])
            assert ids(first) == [name for name, _ in short][:5]
            found_something += bool(hybrid)
    assert found_something > 50


# ---------------------------------------------------------------- episodes


def test_two_episodes_of_the_last_thirty_days_come_after_the_facts(memory: clew.Memory) -> None:
    memory.remember("the keel is red", id="fact")
    for days in (1, 10, 29.9, 30.1, 400):
        episode(memory, f"e{days:g}", f"we talked about the keel on day {days:g}", days=days)
    found = memory.working_memory("keel", now=NOW)
    assert ids(found)[0] == "fact"
    assert len(found) == 3 and set(ids(found)[1:]) <= {"e1", "e10", "e29.9"}
    assert counts(found, "excluded_by_date", "unreadable_dates") == (2, 0)
    assert found.diagnostics["episodic"]["active"] == 3
    all_of_them = memory.working_memory("keel", now=NOW, episodic=9)
    assert set(ids(all_of_them)) == {"fact", "e1", "e10", "e29.9"}
    assert len(memory.working_memory("keel", now=NOW, episodic=9, max_age_days=None)) == 6
    assert ids(memory.working_memory("keel", now=NOW, max_age_days=0.5)) == ["fact"]


def test_old_episodes_hide_no_young_one(memory: clew.Memory) -> None:
    memory.remember_many(
        {
            "content": f"we talked about keel and boat, the {i}th time",
            "type": "episodic",
            "created_at": NOW - 100 * DAY,
        }
        for i in range(100)
    )
    episode(memory, "young", "the keel, among so many other things of that day", days=3)
    assert ids(memory.working_memory("keel boat", now=NOW, least_cosine=0.1)) == ["young"]


def test_an_episode_may_have_a_date_of_its_own(memory: clew.Memory) -> None:
    for name, date in {
        "young": "2026-06-01",
        "first": "2026-05-16",  # of which the last hours are within thirty days
        "old": "2026-05-15",
        "zoned": "2026-06-01T23:30:00-05:00",
        "basic": "20260601",
        "number": NOW - DAY,
        "long ago": 86_400,
        "nonsense": "some time in May",
        "early nonsense": "12 May",
        "none": "",
        "several": ["2026-06-01", "2026-06-02"],
        "thing": {"day": 1},
        "true": True,
    }.items():
        episode(memory, name, f"keel {name}", days=1, metadata={"date": date})
    episode(memory, "undated", "keel undated", days=1)
    episode(memory, "undated old", "keel undated old", days=40)
    episode(memory, "not said", "keel not said", days=1, metadata={"date": None})
    found = memory.working_memory("keel", now=NOW, episodic=50, least_cosine=-1)
    young = {"young", "first", "zoned", "basic", "number", "undated", "not said"}
    assert set(ids(found)) == young
    assert counts(found, "excluded_by_date", "unreadable_dates") == (3, 6)
    days = {entry["id"]: entry["date"] for entry in found}
    assert days["zoned"] == days["basic"] == days["young"] == "2026-06-01"
    assert days["number"] == days["undated"] == "2026-06-14"


def test_a_new_conversation_begins_with_the_latest_episode_however_old(
    memory: clew.Memory,
) -> None:
    memory.remember("the keel is red", id="fact")
    episode(memory, "last", "we said goodbye in the harbour", days=400)
    episode(memory, "before", "we bought a boat", days=500)
    found = memory.working_memory("keel", new_conversation=True, now=NOW)
    assert ids(found) == ["last", "fact"]
    assert found.diagnostics["latest"] == "last"
    assert (found[0]["via"], found[0]["score"], found[0]["cosine"]) == ("latest", 0.0, None)
    assert ids(memory.working_memory("keel", now=NOW)) == ["fact"]
    assert memory.latest(1, "episodic")[0].id == "last"


def test_the_latest_episode_does_not_come_twice_and_takes_nobodys_place(
    memory: clew.Memory,
) -> None:
    for days in (1, 2, 3, 4):
        episode(memory, f"e{days}", f"the keel again, {days}", days=days)
    found = memory.working_memory("keel", new_conversation=True, now=NOW)
    assert ids(found)[0] == "e1" and len(found) == 3 == len(set(ids(found)))
    assert found[0]["via"] == "latest"
    assert found[0]["token_recall"] == 1.0  # it was found as well


# ---------------------------------------------------------------- paths


def test_an_empty_store_is_not_searched(memory: clew.Memory, provider: Provider) -> None:
    memory.remember("somebody else's", namespace="ben")
    for new in (False, True):
        found = memory.working_memory("keel", new_conversation=new)
        assert found == []
        assert path(found) == "skipped_empty_store"
        assert counts(found, "by_tokens", "by_cosine", "returned") == (0, 0, 0)
    assert provider.asked == 0


@pytest.mark.parametrize("message", ["", " \n\t", "\u3000"])
def test_a_blank_message_calls_nothing_to_mind_but_the_latest(
    memory: clew.Memory, provider: Provider, message: str
) -> None:
    memory.remember("the keel is red")
    episode(memory, "last", "we said goodbye", days=3)
    assert memory.working_memory(message) == []
    found = memory.working_memory(message, new_conversation=True)
    assert ids(found) == ["last"]
    assert path(found) == "skipped_empty_query"
    assert provider.asked == 0


def test_a_message_of_stopwords_is_left_to_the_vectors(
    memory: clew.Memory, words: clew.Memory
) -> None:
    for each in (memory, words):
        each.remember("how are you", id="greeting")
        each.remember("the keel is red")
    found = memory.working_memory("how are you")
    assert ids(found) == ["greeting"]
    assert counts(found, "by_tokens", "by_cosine") == (0, 1)
    for message in ("how are you", "???", "a"):
        assert words.working_memory(message) == []


def test_without_a_provider_words_alone_decide(words: clew.Memory) -> None:
    words.remember("the keel is red", id="keel")
    words.remember("sails are white", id="sails")
    found = words.working_memory("red keel bolts", now=NOW)
    assert ids(found) == ["keel"]
    assert path(found) == "token_recall"
    assert found[0]["score"] == pytest.approx(1 / 61)
    assert (found[0]["cosine"], found[0]["cosine_rank"]) == (None, None)
    assert counts(found, "by_cosine", "without_vector", "other_model") == (0, 2, 0)
    assert found.diagnostics["problem"] == "there is no key"


@pytest.mark.parametrize(
    ("failure", "said"),
    [
        (clew.ModelError("the endpoint is down"), "the endpoint is down"),
        (ConnectionError("no route"), "ConnectionError: no route"),
        (ValueError("bad json"), "ValueError: bad json"),
    ],
)
def test_a_provider_that_fails_in_mid_turn_does_not_stop_the_turn(
    memory: clew.Memory,
    provider: Provider,
    caplog: pytest.LogCaptureFixture,
    failure: Exception,
    said: str,
) -> None:
    memory.remember("the keel is red", id="keel")
    memory.remember("the hull is painted", id="hull")
    assert path(memory.working_memory("keel colour")) == "hybrid_rrf"
    provider.failure = failure
    with caplog.at_level(logging.WARNING, logger="clew"):
        found = memory.working_memory("which keel colour")
    assert ids(found) == ["keel"]
    assert path(found) == "token_recall_after_embed_error"
    assert found.diagnostics["problem"].endswith(said)
    assert said in caplog.text
    provider.failure = None
    assert path(memory.working_memory("which keel colour is it")) == "hybrid_rrf"


@pytest.mark.parametrize(
    "vector", [[float("nan"), 1.0, 0.0], [0.0, 0.0, 0.0], [[1.0, 0.0, 0.0]], "text"], ids=repr
)
def test_a_provider_that_gives_no_vector_has_failed(tmp_path: Path, vector: Any) -> None:
    class Odd(HashingEmbedder):
        def embed_query(self, text: str) -> Any:
            return vector

    with clew.Memory(tmp_path / "m.db", embedder=Odd(dim=3)) as memory:
        memory.remember("the keel is red", id="keel")
        found = memory.working_memory("keel")
        assert ids(found) == ["keel"]
        assert path(found) == "token_recall_after_embed_error"


def test_a_provider_that_hangs_is_left_behind(unheard: clew.Memory) -> None:
    found = unheard.working_memory("keel")
    assert ids(found) == ["keel"]
    assert path(found) == "token_recall_after_embed_error"
    assert "within 1 s" in found.diagnostics["problem"]


def test_the_callers_own_vector_takes_the_providers_place(tmp_path: Path) -> None:
    with clew.Memory(tmp_path / "m.db", embedding_dim=3) as memory:
        memory.remember("north", embedding=[1, 0, 0], id="n")
        memory.remember("east", embedding=[0, 1, 0], id="e")
        memory.remember("a word alone", id="w")
        found = memory.working_memory("a word", [0.9, 0.1, 0])
        assert ids(found) == ["n", "w"]
        assert path(found) == "hybrid_rrf"
        assert counts(found, "by_tokens", "by_cosine", "below_cosine") == (1, 1, 1)
        assert counts(found, "without_vector") == (1,)
        assert path(memory.working_memory("a word")) == "token_recall"
        with pytest.raises(clew.InputError, match="has 2 dimensions"):
            memory.working_memory("a word", [1, 0])


# ---------------------------------------------------------------- thresholds


def test_each_list_is_cut_at_its_threshold_before_they_are_joined(memory: clew.Memory) -> None:
    memory.remember("keel mast sail boom", id="all")
    memory.remember("keel and nothing else of it, but much more to say on other days", id="one")
    found = memory.working_memory("keel mast sail boom", least_cosine=0.9)
    assert ids(found) == ["all"]
    assert counts(found, "below_recall", "below_cosine") == (1, 1)
    both = memory.working_memory("keel mast sail boom", least_recall=0.2, least_cosine=0.9)
    assert ids(both) == ["all", "one"]
    assert (both[1]["token_recall"], both[1]["cosine"]) == (0.25, None)
    assert memory.working_memory("zebra crossing", least_cosine=0.9) == []


def test_a_model_has_a_least_cosine_and_the_settings_may_give_another(tmp_path: Path) -> None:
    def least(model: str, **settings: Any) -> float:
        file = tmp_path / f"{len(list(tmp_path.iterdir()))}.db"
        with clew.Memory(file, embedder=HashingEmbedder(model=model), **settings) as memory:
            memory.remember("keel")
            value: float = memory.working_memory("keel").diagnostics["least_cosine"]
            return value

    assert least("hashing@1") == 0.5
    assert least("bge-small@0123") == 0.57
    assert least("hashing@1", least_cosine={"hashing": 0.3}) == 0.3
    assert least("hashing@1", least_cosine={"hashing@1": 0.2, "hashing": 0.3}) == 0.2
    assert least("openai:x@256#ab", least_cosine={"openai:x": 0.25}) == 0.25
    with pytest.raises(clew.ConfigError, match="least_cosine of 'x' = 2"):
        least("x", least_cosine={"x": 2})


# ---------------------------------------------------------------- vectors of several models


def test_vectors_of_another_model_are_skipped_and_counted_until_reembed(tmp_path: Path) -> None:
    file = tmp_path / "m.db"
    with clew.Memory(file, embedder=HashingEmbedder(model="old@1", dim=32)) as memory:
        memory.remember("anxious before every audit", id="old")
        memory.remember("the keel is red", id="keel")
    with clew.Memory(file, embedder=clew.NullEmbeddingProvider()) as memory:
        memory.remember("audits make no sound", id="bare")
    new = HashingEmbedder(model="new@1", dim=64)
    with clew.Memory(file, embedder=new) as memory:
        found = memory.working_memory("audit anxious")
        assert ids(found) == ["old"]  # by its words
        assert found[0]["cosine"] is None
        assert path(found) == "hybrid_rrf"
        skipped = ("without_vector", "other_model", "other_dimension")
        assert counts(found, *skipped) == (1, 2, 2)
        memory.remember("audit examination", id="new")
        found = memory.working_memory("anxious audit", least_cosine=0.3)
        assert counts(found, *skipped) == (1, 2, 2)
        assert {e["id"] for e in found if e["cosine"] is not None} == {"new"}
        assert memory.reembed() == 3
        found = memory.working_memory("audit anxious", least_cosine=0.3)
        assert counts(found, *skipped) == (0, 0, 0)
        assert {e["id"] for e in found if e["cosine"] is not None} == {"old", "bare", "new"}


def test_another_model_of_the_same_size_is_another_model(tmp_path: Path) -> None:
    file = tmp_path / "m.db"
    with clew.Memory(file, embedder=HashingEmbedder(model="old@1")) as memory:
        memory.remember("the keel is red")
    with clew.Memory(file, embedder=HashingEmbedder(model="new@1")) as memory:
        found = memory.working_memory("keel")
        assert counts(found, "other_model", "other_dimension", "by_cosine") == (1, 0, 0)


def test_a_model_that_has_changed_its_size_is_left_out_and_said(tmp_path: Path) -> None:
    file = tmp_path / "m.db"
    with clew.Memory(file, embedder=HashingEmbedder(dim=32)) as memory:
        memory.remember("the keel is red", id="keel")
    with clew.Memory(file, embedder=HashingEmbedder(dim=64)) as memory:
        found = memory.working_memory("keel")
        assert ids(found) == ["keel"]
        assert counts(found, "other_model", "other_dimension", "by_cosine") == (0, 1, 0)
        assert "32 dimensions" in found.diagnostics["problem"]
        with pytest.raises(clew.ModelError, match="two models of one name"):
            memory.reembed()


def embed(size: int) -> Callable[[str], list[float]]:
    def embed(text: str) -> list[float]:
        row: list[float] = HashingEmbedder(dim=size).embed_query(text).tolist()
        return row

    return embed


def test_a_function_with_another_dimension_is_another_model(tmp_path: Path) -> None:
    file = tmp_path / "m.db"
    with clew.Memory(file, embedding_dim=32, embedder=embed(32)) as memory:
        memory.remember("the keel is red", id="keel")
    with clew.Memory(file, embedding_dim=64, embedder=embed(64)) as memory:
        assert counts(memory.working_memory("keel"), "other_model", "other_dimension") == (1, 1)
        assert memory.reembed() == 1
        found = memory.working_memory("red keel")
        assert counts(found, "other_model", "by_cosine") == (0, 1)


# ---------------------------------------------------------------- bad input, many at once


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"semantic": -1}, "semantic must be a whole number from 0 on"),
        ({"episodic": True}, "episodic must be a whole number from 0 on"),
        ({"candidates": 0}, "candidates must be a whole number from 1 on"),
        ({"max_age_days": -1}, "max_age_days must be a number from 0"),
        ({"max_age_days": float("nan")}, "max_age_days must be a number from 0"),
        ({"least_recall": None}, "least_recall must be a number from 0 to 1"),
        ({"least_cosine": 2}, "least_cosine must be a number from -1 to 1"),
        ({"namespace": "../ana"}, "is no namespace"),
        ({"now": dt.datetime(2026, 1, 1, 9)}, "has no time zone"),
        ({"query": 7}, "a message is text, not int"),
    ],
)
def test_bad_input_is_refused(memory: clew.Memory, options: dict[str, Any], said: str) -> None:
    with pytest.raises(clew.InputError, match=said):
        memory.working_memory(**{"query": "keel", **options})


@pytest.mark.parametrize(
    "message",
    ["x" * 100_000, "keel " * 5_000, 'AND "', "keel\0", "half \ud800 keel", "京" * 3_000],
    ids=["one word", "long", "signs", "nul", "half a character", "long run"],
)
def test_any_message_is_safe(memory: clew.Memory, message: str) -> None:
    memory.remember("the keel is red", id="keel")
    assert ids(memory.working_memory(message)) in ([], ["keel"])


def test_the_asynchronous_memory_has_it_too(tmp_path: Path) -> None:
    async def talk() -> None:
        async with clew.AsyncMemory(tmp_path / "m.db", embedder=HashingEmbedder()) as memory:
            await memory.remember_many({"content": f"fact {i}", "id": f"f{i}"} for i in range(9))
            await memory.remember("we met", type="episodic", id="met")
            turns = (
                memory.working_memory(f"fact {i}", new_conversation=True, semantic=1)
                for i in range(9)
            )
            found = await asyncio.gather(*turns)
            assert [ids(turn) for turn in found] == [["met", f"f{i}"] for i in range(9)]
            assert {path(turn) for turn in found} == {"hybrid_rrf"}
            assert [m.id for m in await memory.alatest(1, "episodic")] == ["met"]

    asyncio.run(talk())


def test_an_episode_that_the_disk_has_not_kept_is_left_out_and_named(
    memory: clew.Memory, tmp_path: Path
) -> None:
    memory.remember("the keel is red", id="fact")
    for name in ("good", "bad"):
        memory.remember(f"{name} keel", "episodic", id=name, metadata={"date": "2026-06-10"})
    memory.working_memory("keel", now=NOW)
    with closing(sqlite3.connect(tmp_path / "memory.db")) as db, db:
        db.execute("UPDATE records SET importance = 0.9 WHERE id = 'bad'")
    for options in ({}, {"new_conversation": True}):
        found = memory.working_memory("keel", now=NOW, **options)
        assert set(ids(found)) == {"fact", "good"}
        assert any("1 record left out" in each for each in found.diagnostics["degraded"])


def test_turns_and_writes_at_once_are_all_answered(memory: clew.Memory) -> None:
    def converse(name: int) -> None:
        for i in range(15):
            memory.remember(f"speaker {name} said keel {i}", namespace=f"n{name}")
            found = memory.working_memory(f"keel {i}", namespace=f"n{name}", semantic=50)
            assert len(found) == i + 1, (name, i, len(found))

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(converse, range(4)))


def test_a_query_vector_is_asked_for_once_a_turn(memory: clew.Memory, provider: Provider) -> None:
    memory.remember("the keel is red")
    episode(memory, "e", "keel talk", days=1)
    memory.working_memory("keel", now=NOW)
    assert provider.asked == 1
    assert np.isclose(memory.working_memory("keel", now=NOW)[0]["cosine"], 0.5, atol=0.5)
