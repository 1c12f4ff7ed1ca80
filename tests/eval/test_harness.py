from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from clew.engine import Engine, open_engine
from clew.errors import InputError
from clew.eval import harness
from clew.eval.datasets import Dataset, Question, read
from clew.types import Record, Vectors

from hashing import HashingEmbedder


@pytest.fixture
def tiny(write: Any) -> Dataset:
    return read(write())


def indexed(dataset: Dataset, **more: Any) -> Engine:
    engine, no_vectors = harness.open_indexed(
        dataset, embedder=more.pop("embedder", HashingEmbedder()), **more
    )
    assert no_vectors is None
    return engine


def test_a_collection_is_indexed_once(tiny: Dataset, cache: Path) -> None:
    first, second = HashingEmbedder(), HashingEmbedder()
    with indexed(tiny, embedder=first) as engine:
        assert engine.root is not None and engine.root.parent == cache
        generation = engine.store.changes.generation()
    assert len(first.embedded) == 5
    with indexed(tiny, embedder=second) as engine:
        assert engine.store.changes.generation() == generation
    assert second.embedded == []


def test_the_key_names_content_model_and_passage_size(write: Any) -> None:
    from dataclasses import replace

    from clew.config import Config

    dataset = read(write())
    assert dataset.records is not None
    known = harness.key(dataset, Config())
    assert known == harness.key(read(write(gz=True, name="zipped")), Config())
    assert known != harness.key(dataset, Config(model="minilm"))
    assert known != harness.key(dataset, Config(chunk_size=700))
    assert known == harness.key(dataset, Config(fusion="rrf"))  # decides nothing at index time
    changed = (*dataset.records[:-1], replace(dataset.records[-1], content="else"))
    assert known != harness.key(replace(dataset, records=changed), Config())


def test_an_interrupted_run_goes_on_where_it_stopped(
    tiny: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clew.ingest.records.EMBED_BATCH", 2)

    class Stopped(HashingEmbedder):
        def embed_documents(self, texts: Any) -> Vectors:
            if len(self.embedded) >= 2:
                raise KeyboardInterrupt
            return super().embed_documents(texts)

    with pytest.raises(KeyboardInterrupt):
        harness.open_indexed(tiny, embedder=Stopped())
    rest = HashingEmbedder()
    with indexed(tiny, embedder=rest) as engine:
        assert engine.store.indexes.coverage(rest.model) == 1
    assert len(rest.embedded) == 3


def test_one_interrupted_while_documents_are_added_adds_the_rest(
    tiny: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    add = Engine.add

    def half(self: Engine, records: Any, **more: Any) -> None:
        add(self, list(records)[:2], **more)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Engine, "add", half)
        with pytest.raises(KeyboardInterrupt):
            harness.open_indexed(tiny, embedder=HashingEmbedder())
    with indexed(tiny) as engine:
        assert engine.status()["records"] == 5


def test_runs_find_what_is_relevant_and_time_each_stage(tiny: Dataset) -> None:
    with indexed(tiny) as engine:
        run = harness.run_mode(engine, tiny.queries, "hybrid")
    assert run.ranked["q1"][0] == "d1" and run.ranked["q3"][0] == "d3"
    for stage in ("parse", "collect", "fuse", "snippet", "source keyword", "total"):
        assert len(run.ms[stage]) == 3 and min(run.ms[stage]) >= 0
    assert run.degraded == {}


def test_a_scope_is_a_filter(tiny: Dataset) -> None:
    questions = [
        Question("in", "bread", "kitchen"),
        Question("out", "bread", "yard"),
        Question("any", "bread"),
    ]
    with indexed(tiny) as engine:
        found = harness.run_mode(engine, questions, "keyword").ranked
    assert found == {"in": ("d4",), "out": ("d 5",), "any": ("d4", "d 5")}


def test_the_head_is_that_of_a_search_for_ten_even_if_a_deeper_one_differs(write: Any) -> None:
    corpus = [
        {"_id": f"d{i:03}", "text": " ".join(["tide"] * (1 + i % 7) + ["other"] * (i % 11))}
        for i in range(150)
    ]
    queries = [{"_id": "q", "text": "tide other"}]
    dataset = read(write(corpus=corpus, queries=queries, qrels=["q\td001\t1"]))
    with indexed(dataset, overrides={"depth": 12}) as engine:
        run = harness.run_mode(engine, dataset.queries, "hybrid")
        ten = [hit.id for hit in engine.search("tide other", limit=10)]
        hundred = [hit.id for hit in engine.search("tide other", limit=100)]
    assert list(run.ranked["q"][:10]) == ten
    assert len(run.ranked["q"]) == 100 == len(set(run.ranked["q"]))
    assert set(run.ranked["q"]) <= set(ten) | set(hundred)


def test_no_mode_profits_from_query_vectors_another_has_made(tiny: Dataset) -> None:
    class Counting(HashingEmbedder):
        asked = 0

        def embed_query(self, text: str) -> Any:
            self.asked += 1
            return super().embed_query(text)

    embedder = Counting()
    with indexed(tiny, embedder=embedder) as engine:
        harness.run_mode(engine, tiny.queries, "vector")
        once = embedder.asked
        harness.run_mode(engine, tiny.queries, "hybrid")
    assert once == len(tiny.queries) + len(harness.WARM_UP)
    assert embedder.asked == 2 * once


def test_modes_that_cannot_be_run_say_why(tiny: Dataset) -> None:
    engine, why = harness.open_indexed(tiny, overrides={"model": "none"})
    with engine:
        assert why
        runs, unavailable = harness.run_modes(
            engine, tiny.queries, ["keyword", "vector", "hybrid"], no_vectors=why
        )
    assert [run.mode for run in runs] == ["keyword"]
    assert set(unavailable) == {"vector", "hybrid"} and why in unavailable["hybrid"]


def test_a_reranker_that_was_given_is_the_one_that_reads(
    tiny: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLEW_MODELS", str(tmp_path / "nothing here"))  # no other could be loaded

    class Shortest:
        model = "shortest"

        def score(self, query: str, passages: Sequence[str]) -> list[float]:
            return [-float(len(passage)) for passage in passages]

    with indexed(tiny, overrides={"rerank_blend": 1.0}) as engine:
        given = Engine(
            engine.store,
            config=engine.config,
            embedder=engine.embedder,
            reranker=Shortest(),
        )
        runs, unavailable = harness.run_modes(given, tiny.queries[:1], ["rerank"])
        plain = harness.run_mode(given, tiny.queries[:1], "hybrid")
    assert unavailable == {} and runs[0].degraded == {}
    assert set(runs[0].ranked["q1"]) == set(plain.ranked["q1"])
    assert runs[0].ranked["q1"][0] == "d3" != plain.ranked["q1"][0]


def test_reranking_without_its_weights_is_not_available(
    tiny: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLEW_MODELS", str(tmp_path / "nothing here"))
    with indexed(tiny) as engine:
        runs, unavailable = harness.run_modes(engine, tiny.queries, ["rerank"])
    assert runs == [] and "clew models pull reranker-en" in unavailable["rerank"]


def test_unknown_modes_are_named() -> None:
    assert harness.check_modes(["keyword", " hybrid", "keyword"]) == ["keyword", "hybrid"]
    with pytest.raises(InputError, match="did you mean 'hybrid'"):
        harness.check_modes(["hybird"])
    with pytest.raises(InputError, match="at least one"):
        harness.check_modes([""])


def test_a_bad_query_is_named(tiny: Dataset) -> None:
    with indexed(tiny) as engine, pytest.raises(InputError, match="query 'odd'"):
        harness.run_mode(engine, [Question("odd", "x after:soon")], "keyword", syntax=True)


def test_judgements_about_a_store_must_name_its_records(write: Any, tmp_path: Path) -> None:
    with open_engine(tmp_path / "own", embedder=HashingEmbedder()) as engine:
        engine.add([Record("d1", "Tighten the keel bolts."), Record("d2", "Epoxy cures.")])
        queries = [{"_id": "q", "text": "keel"}]
        known = read(write(corpus=None, queries=queries, qrels=["q\td1\t1"], name="known"))
        assert "no vectors" in (harness.why_no_vectors(engine) or "")
        engine.embed()
        assert harness.why_no_vectors(engine) is None
        assert harness.check_store(known, engine) == known
        wrong = ["q\td1\t1", "q\tgone\t1"]
        other = read(write(corpus=None, queries=queries, qrels=wrong, name="wrong"))
        with pytest.raises(InputError, match=r"qrels\.tsv:3: there is no record 'gone'"):
            harness.check_store(other, engine)
    assert harness.is_own(tmp_path / "own") and harness.is_own(tmp_path / "own" / ".clew")


def test_judgements_of_what_a_store_lacks_can_be_left_out(write: Any, tmp_path: Path) -> None:
    queries = [{"_id": "q", "text": "keel"}, {"_id": "r", "text": "lost"}]
    qrels = ["q\td1\t1", "q\tgone\t2", "r\tgone\t1", "r\td1\t0"]
    dataset = read(write(corpus=None, queries=queries, qrels=qrels))
    with open_engine(tmp_path / "own", model="none") as engine:
        engine.add([Record("d1", "Tighten the keel bolts.")])
        found = harness.check_store(dataset, engine, skip_bad=True)
        assert found.qrels == {"q": {"d1": 1}} and [q.id for q in found.queries] == ["q"]
        assert "2 judgements were skipped: qrels.tsv:3: there is no record 'gone'" in found.notes[0]
        assert "1 queries have no relevant document" in found.notes[1]
        assert dataset.qrels["q"] == {"d1": 1, "gone": 2}  # as it was
        engine.remove("d1")
        with pytest.raises(InputError, match="no judgement is about a record of"):
            harness.check_store(dataset, engine, skip_bad=True)


def test_a_store_made_for_another_collection_is_not_mixed_up(write: Any, tmp_path: Path) -> None:
    indexed(read(write()), folder=tmp_path / "kept").close()
    assert not harness.is_own(tmp_path / "kept")
    indexed(read(write()), folder=tmp_path / "kept").close()
    corpus = [{"_id": "d1", "text": "else"}]
    qrels = ["q1\td1\t1"]
    queries = [{"_id": "q1", "text": "else"}]
    other = read(write(corpus=corpus, queries=queries, qrels=qrels, name="other"))
    with pytest.raises(InputError, match="another collection"):
        harness.open_indexed(other, folder=tmp_path / "kept", embedder=HashingEmbedder())
