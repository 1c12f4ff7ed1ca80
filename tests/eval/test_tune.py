from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from clew import config
from clew.errors import InputError
from clew.eval import harness, metrics, tune
from clew.eval.datasets import Dataset, Question
from clew.eval.halves import FEWEST, halves, names
from clew.eval.tune import DEFAULT, Asked, Fusion
from clew.ranking.adaptive import Facts
from clew.types import Candidate
from entries import WORDS

from hashing import HashingEmbedder

WRONG = "a wrong one"  # before `right` in a tie


def collection(ids: range, *, prefix: str = "q") -> Dataset:
    """Each query has one relevant document, `right`."""
    queries = tuple(Question(f"{prefix}{i}", f"{prefix} {i}") for i in ids)
    return Dataset("made", Path(), "train", None, queries, {q.id: {"right": 1} for q in queries})


def lists(dataset: Dataset, *, keyword: str, vectors: str) -> dict[str, Asked]:
    """The keyword list begins with `keyword`, far above the rest; the vectors' with `vectors`."""
    other = [f"x{i}" for i in range(20)]
    words = [Candidate(keyword, 20.0), *(Candidate(o, 5.0 - i / 10) for i, o in enumerate(other))]
    near = [Candidate(vectors, 0.7), *(Candidate(o, 0.6 - i / 100) for i, o in enumerate(other))]
    return {q.id: Asked({"keyword": words, "vectors": near}, Facts()) for q in dataset.queries}


# ---------------------------------------------------------------------- choosing


def test_the_weights_go_to_the_leg_that_is_right() -> None:
    train, test = collection(range(40)), collection(range(30), prefix="t")
    asked = lists(train, keyword=WRONG, vectors="right")
    tuned = tune.tune(train, asked)
    assert tuned.chosen.share > 0.5
    assert tuned.trials[0].mean == tuned.trial(tuned.chosen).mean == pytest.approx(1)
    assert tuned.trial(DEFAULT).mean < 1
    figures = tune.compare(tuned, test, lists(test, keyword=WRONG, vectors="right"))
    assert figures["better"] and figures["p"] < 0.05
    assert figures["chosen"]["ndcg@10"] == 1 > figures["default"]["ndcg@10"]


def test_of_equals_the_default_is_chosen_and_written() -> None:
    train, test = collection(range(25)), collection(range(9), prefix="t")
    tuned = tune.tune(train, lists(train, keyword="right", vectors="right"))
    assert tuned.chosen == DEFAULT
    figures = tune.compare(tuned, test, lists(test, keyword="right", vectors="right"))
    assert figures["difference"] == 0 and not figures["better"]
    text = tune.fragment("made", tuned, figures)
    assert tomllib.loads(text) == {"fusion": DEFAULT.strategy}
    assert "nothing did better" in text


def test_a_gain_that_does_not_hold_elsewhere_is_not_written() -> None:
    train, test = collection(range(40)), collection(range(30), prefix="t")
    tuned = tune.tune(train, lists(train, keyword=WRONG, vectors="right"))
    figures = tune.compare(tuned, test, lists(test, keyword="right", vectors=WRONG))
    assert figures["difference"] < 0 and figures["p"] < 0.05 and not figures["better"]
    text = tune.fragment("made", tuned, figures)
    assert tomllib.loads(text) == {"fusion": DEFAULT.strategy}
    assert "No significant gain" in text and "vectors = " in text


def test_what_is_written_are_settings(tmp_path: Path) -> None:
    how = Fusion("rrf", 0.6, 20)
    tuned = tune.Tuned(how, (), (), ())
    side = {"ndcg@10": 0.5, "ci95": None}
    figures = {"queries": 9, "chosen": side, "default": side, "p": 0.01, "better": True}
    (tmp_path / "clew.toml").write_text(tune.fragment("made", tuned, figures) + "depth = 7\n")
    loaded = config.load(tmp_path)
    assert (loaded.fusion, loaded.rrf_k, loaded.depth) == ("rrf", 20, 7)
    assert loaded.weights == {"keyword": 0.8, "vectors": 1.2} == how.weights
    assert DEFAULT.settings == {} and Fusion("convex").settings == {"fusion": "convex"}


def test_choosing_needs_no_order_of_the_queries_and_keeps_to_the_folds() -> None:
    train = collection(range(43))
    asked = {
        **lists(train, keyword=WRONG, vectors="right"),
        **lists(collection(range(20)), keyword="right", vectors=WRONG),
    }
    some = [DEFAULT, Fusion("convex", 0.2), Fusion("convex", 0.8)]
    tuned = tune.tune(train, asked, among=some)
    turned = replace(train, queries=train.queries[::-1])
    again = tune.tune(turned, asked, among=some[::-1])
    assert again.trials == tuned.trials and again.unseen == tuned.unseen
    assert all(len(trial.folds) == 5 for trial in tuned.trials)
    assert all(a <= max(t.folds[i] for t in tuned.trials) for i, a in enumerate(tuned.unseen))


def test_the_grid_has_every_strategy_once() -> None:
    tried = tune.grid()
    assert DEFAULT in tried and len(set(tried)) == len(tried)
    assert {how.strategy for how in tried} == set(tune.STRATEGIES)
    assert {how.k for how in tried if how.strategy == "convex"} == {DEFAULT.k}
    assert {how.k for how in tried if how.strategy == "rrf"} == set(tune.KS)


# ---------------------------------------------------------------------- two halves


def test_figures_on_what_was_tuned_on_are_refused() -> None:
    train = collection(range(30))
    asked = lists(train, keyword="right", vectors="right")
    tuned = tune.tune(train, asked, among=[DEFAULT])
    with pytest.raises(InputError, match="tuned on"):
        tune.compare(tuned, train, asked)
    renamed = replace(train.queries[3], id="other", text="  Q  3 ")
    with pytest.raises(InputError, match="'q 3'"):
        tune.compare(tuned, replace(train, queries=(renamed,)), asked)


def corpus(number: int) -> list[dict[str, Any]]:
    pairs = [(a, b) for a in WORDS for b in WORDS if a < b]
    return [
        {"_id": f"d{i}", "text": f"{a} and {b} stand in note {i}"}
        for i, (a, b) in enumerate(pairs[:number])
    ]


def queries(*ids: int, prefix: str = "q") -> tuple[list[dict[str, str]], list[str]]:
    made = corpus(60)
    asked = [{"_id": f"{prefix}{i}", "text": " ".join(made[i]["text"].split()[:3])} for i in ids]
    return asked, [f"{prefix}{i}\td{i}\t1" for i in ids]


def add_split(folder: Path, split: str, asked: list[dict[str, str]], judged: list[str]) -> None:
    import json

    (folder / f"queries_{split}.jsonl").write_text("\n".join(map(json.dumps, asked)))
    (folder / f"qrels_{split}.tsv").write_text("\n".join(judged))


def test_a_single_split_is_divided_once_and_for_all(write: Any) -> None:
    asked, judged = queries(*range(60))
    parts = halves(write(corpus=corpus(60), queries=asked, qrels=judged))
    assert len(parts.train.queries) + len(parts.test.queries) == 60
    assert 33 <= len(parts.train.queries) <= 51
    assert not names(parts.train.queries) & names(parts.test.queries)
    assert set(parts.train.qrels) == {q.id for q in parts.train.queries}
    assert any("divided" in note for note in parts.notes)
    turned = halves(write(corpus=corpus(60), queries=asked[::-1], qrels=judged, name="turned"))
    assert {q.id for q in turned.train.queries} == {q.id for q in parts.train.queries}


def test_a_query_of_both_splits_is_only_reported_on(write: Any) -> None:
    folder = write(corpus=corpus(60), queries=queries(*range(10))[0], qrels=queries(*range(10))[1])
    asked, judged = queries(*range(20, 50))
    again, again_judged = queries(1, 2, prefix="other")  # the text of q1 and q2
    asked, judged = [*asked, *again], [*judged, *again_judged]
    asked.append({"_id": "q3", "text": "sail and tide"})
    judged.append("q3\td30\t1")
    add_split(folder, "train", asked, judged)
    parts = halves(folder)
    assert (parts.train.split, parts.test.split) == ("train", "test")
    assert len(parts.test.queries) == 10 and len(parts.train.queries) == 30
    assert any(note.startswith("3 training queries were left out") for note in parts.notes)


def test_dev_stands_in_for_train(write: Any) -> None:
    folder = write(corpus=corpus(60), queries=queries(0, 1)[0], qrels=queries(0, 1)[1])
    add_split(folder, "dev", *queries(*range(2, 32)))
    for parts in (halves(folder), halves(folder, train="dev"), halves(folder, test="test")):
        assert (parts.train.split, parts.test.split) == ("dev", "test")
    with pytest.raises(InputError, match="qrels_train"):
        halves(folder, train="train")
    with pytest.raises(InputError, match="unknown split"):
        halves(folder, train="trial")


def test_splits_that_cannot_be_told_apart_are_refused(write: Any) -> None:
    folder = write(corpus=corpus(60), queries=queries(*range(60))[0], qrels=queries(*range(60))[1])
    with pytest.raises(InputError, match="is not reported on 'test'"):
        halves(folder, train="test", test="test")
    with pytest.raises(InputError, match="leave out --train"):
        halves(folder, train="test")


def test_too_few_queries_are_refused(write: Any) -> None:
    folder = write(corpus=corpus(60), queries=queries(*range(12))[0], qrels=queries(*range(12))[1])
    with pytest.raises(InputError, match=f"{FEWEST} are the least"):
        halves(folder)
    with pytest.raises(InputError, match="are the least"):
        tune.tune(collection(range(3)), {})
    with pytest.raises(InputError, match="no folder"):
        halves(folder / "gone")


# ---------------------------------------------------------------------- asking


@pytest.mark.parametrize("how", [DEFAULT, Fusion("rrf", 0.3, 20), Fusion("dbsf", 0.7)])
def test_lists_fused_later_are_what_a_search_gives(write: Any, how: Fusion) -> None:
    folder = write(corpus=corpus(60), queries=queries(*range(60))[0], qrels=queries(*range(60))[1])
    parts = halves(folder)
    engine, no_vectors = harness.open_indexed(
        parts.train, embedder=HashingEmbedder(), overrides=how.settings
    )
    with engine:
        assert no_vectors is None
        asked, degraded = tune.ask(engine, parts.test.queries)
        assert degraded == {} and all(a.facts.reach > 0 for a in asked.values())
        for question in parts.test.queries:
            found = engine.search(question.text, syntax=False)
            assert asked[question.id].fused(how) == [hit.id for hit in found]


def test_a_query_without_words_finds_nothing_and_counts(write: Any) -> None:
    asked, judged = queries(*range(30))
    folder = write(corpus=corpus(60), queries=[*asked, {"_id": "?", "text": "???"}], qrels=judged)
    engine, _ = harness.open_indexed(halves(folder).train, embedder=HashingEmbedder())
    with engine:
        found, degraded = tune.ask(engine, [Question("?", "???")])
    assert found["?"].fused(DEFAULT) == [] and sum(degraded.values()) == 1


def test_a_measure_alone_is_the_same_figure() -> None:
    qrels, ranked = {"a": {"x": 2, "y": 1}}, {"a": ["y", "z", "x"]}
    whole = metrics.per_query(qrels, ranked)
    assert metrics.per_query(qrels, ranked, measures=["ndcg@10"]) == {"ndcg@10": whole["ndcg@10"]}
