from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import clew
from clew import config
from clew.config import Config
from clew.errors import InputError
from clew.eval import harness, metrics, tune
from clew.eval.datasets import FEWEST_TRAINING as FEWEST
from clew.eval.datasets import Dataset, Question, identify, read_halves
from clew.eval.tune import Asked, Fusion
from clew.ranking.adaptive import Facts
from clew.ranking.fusion import RankedList
from clew.types import Candidate, Record
from entries import WORDS

from hashing import HashingEmbedder

DEFAULT = Fusion()
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
    given = {"keyword": RankedList(words, "keyword"), "vectors": RankedList(near, "vectors")}
    return {q.id: Asked(given, Facts()) for q in dataset.queries}


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
    text = tune.write_fragment("made", tuned, figures)
    assert tomllib.loads(text) == {"fusion": DEFAULT.strategy}
    assert "nothing did better" in text


def test_a_gain_that_does_not_hold_elsewhere_is_not_written() -> None:
    train, test = collection(range(40)), collection(range(30), prefix="t")
    tuned = tune.tune(train, lists(train, keyword=WRONG, vectors="right"))
    figures = tune.compare(tuned, test, lists(test, keyword="right", vectors=WRONG))
    assert figures["difference"] < 0 and figures["p"] < 0.05 and not figures["better"]
    text = tune.write_fragment("made", tuned, figures)
    assert tomllib.loads(text) == {"fusion": DEFAULT.strategy}
    assert "No significant gain" in text and "vectors = " in text


def test_what_is_written_are_settings(tmp_path: Path) -> None:
    how, mine = Fusion("rrf", 0.6, 20), Config(weights={"tags": 0.7})
    tuned = tune.Tuned(how, mine, (), (), ())
    side = {"ndcg@10": 0.5, "ci95": None}
    figures = {"queries": 9, "chosen": side, "default": side, "p": 0.01, "better": True}
    (tmp_path / "clew.toml").write_text(tune.write_fragment("made", tuned, figures) + "depth = 7\n")
    loaded = config.load(tmp_path)
    assert (loaded.fusion, loaded.rrf_k, loaded.depth) == ("rrf", 20, 7)
    assert loaded.weights == {"tags": 0.7, "keyword": 0.8, "vectors": 1.2}
    assert DEFAULT.settings(mine) == {}
    assert Fusion("convex").settings(mine) == {"fusion": "convex"}
    athena = config.load(None, {"profile": "athena"})
    assert DEFAULT.settings(athena) == {"fusion": "adaptive"} and not Fusion.of(athena).settings(
        athena
    )


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
    tried = tune.grid(Config(rrf_k=33))
    assert Fusion(k=33) in tried
    tried = tune.grid(Config())
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
    parts = read_halves(write(corpus=corpus(60), queries=asked, qrels=judged))
    assert len(parts.train.queries) + len(parts.test.queries) == 60
    assert 33 <= len(parts.train.queries) <= 51
    assert not identify(parts.train.queries) & identify(parts.test.queries)
    assert set(parts.train.qrels) == {q.id for q in parts.train.queries}
    assert any("divided" in note for note in parts.notes)
    turned = read_halves(write(corpus=corpus(60), queries=asked[::-1], qrels=judged, name="turned"))
    assert {q.id for q in turned.train.queries} == {q.id for q in parts.train.queries}


def test_a_query_of_both_splits_is_only_reported_on(write: Any) -> None:
    folder = write(corpus=corpus(60), queries=queries(*range(10))[0], qrels=queries(*range(10))[1])
    asked, judged = queries(*range(20, 50))
    again, again_judged = queries(1, 2, prefix="other")  # the text of q1 and q2
    asked, judged = [*asked, *again], [*judged, *again_judged]
    asked.append({"_id": "q3", "text": "sail and tide"})
    judged.append("q3\td30\t1")
    add_split(folder, "train", asked, judged)
    parts = read_halves(folder)
    assert (parts.train.split, parts.test.split) == ("train", "test")
    assert len(parts.test.queries) == 10 and len(parts.train.queries) == 30
    assert any(note.startswith("3 training queries were left out") for note in parts.notes)


def test_dev_stands_in_for_train(write: Any) -> None:
    folder = write(corpus=corpus(60), queries=queries(0, 1)[0], qrels=queries(0, 1)[1])
    add_split(folder, "dev", *queries(*range(2, 32)))
    for parts in (
        read_halves(folder),
        read_halves(folder, train="dev"),
        read_halves(folder, test="test"),
    ):
        assert (parts.train.split, parts.test.split) == ("dev", "test")
    with pytest.raises(InputError, match="qrels_train"):
        read_halves(folder, train="train")
    with pytest.raises(InputError, match="unknown split"):
        read_halves(folder, train="trial")


def test_splits_that_cannot_be_told_apart_are_refused(write: Any) -> None:
    folder = write(corpus=corpus(60), queries=queries(*range(60))[0], qrels=queries(*range(60))[1])
    with pytest.raises(InputError, match="is not reported on 'test'"):
        read_halves(folder, train="test", test="test")
    with pytest.raises(InputError, match="leave out --train"):
        read_halves(folder, train="test")


def test_too_few_queries_are_refused(write: Any) -> None:
    folder = write(corpus=corpus(60), queries=queries(*range(12))[0], qrels=queries(*range(12))[1])
    with pytest.raises(InputError, match=f"{FEWEST} are the least"):
        read_halves(folder)
    with pytest.raises(InputError, match="are the least"):
        tune.tune(collection(range(3)), {})
    with pytest.raises(InputError, match="no folder"):
        read_halves(folder / "gone")


# ---------------------------------------------------------------------- asking


SOURCES = {"yard": {"kind": "vectors", "collection": "yard", "weight": 2.5, "floor": 0.1}}


def yard(number: int) -> list[Record]:
    """Notes in two collections, with file names and tags of their own."""
    return [
        Record(
            row["_id"],
            row["text"],
            path=f"{'yard' if i % 3 else 'shed'}/{'-'.join(row['text'].split()[::2])}.md",
            collection="yard" if i % 3 else "shed",
            tags=tuple(row["text"].split()[i % 2 : 3 : 2]),
        )
        for i, row in enumerate(corpus(number))
    ]


@pytest.mark.parametrize("embedded", [60, 35])
@pytest.mark.parametrize("profile", ["default", "athena"])
def test_what_is_reported_is_what_a_search_gives(
    tmp_path: Path, profile: str, embedded: int
) -> None:
    """For every strategy that is tried, to the last digit; and so does what is written."""
    asked, _ = queries(*range(0, 60, 2))
    questions = tuple(Question(q["_id"], q["text"].replace("and", "or")) for q in asked)
    qrels = {q.id: {f"d{(int(q.id[1:]) + 7) % 60}": 1, f"d{q.id[1:]}": 2} for q in questions}
    dataset = Dataset("made", tmp_path, "train", None, questions, qrels)
    mine = f'profile = "{profile}"\nweights = {{ tags = 0.9 }}\n'
    (tmp_path / "clew.toml").write_text(mine)
    with clew.open(tmp_path, embedder=HashingEmbedder(), sources=SOURCES, cache=False) as engine:
        engine.add(yard(60)[:embedded])
        engine.embed()
        engine.add(yard(60))
        engine.optimise()  # scores change a little when an index is written, which is any time
        found, _ = tune.ask(engine, questions)
        assert {"yard", "tags", "filenames"} <= set(found["q2"].lists)
        tried = [Fusion(name, s, k) for name in tune.STRATEGIES for s, k in ((0.5, 60), (0.2, 60))]
        among = [*tried, Fusion("rrf", 0.8, 10), Fusion("weighted_rrf", 0.9, 20)]
        tuned = tune.tune(dataset, found, engine.config, among=among)
        every = {trial.how: trial.mean for trial in tuned.trials}
        for how in among:
            options = {"fusion": how.strategy, "rrf_k": how.k, "weights": how.weights or None}
            assert real(engine, dataset, **options) == pytest.approx(every[how], abs=1e-9)
        assert len(set(map(every.get, tried))) > 3  # they differ: agreeing says something
    chosen = replace(tuned, chosen=min(every, key=lambda how: (every[how], how.k)))
    side = {"ndcg@10": 0.5, "ci95": None}
    figures = {"queries": 9, "chosen": side, "default": side, "p": 0.01, "better": True}
    lines = tune.write_fragment("made", chosen, figures)
    assert "weights" not in tomllib.loads(lines) or tomllib.loads(lines)["weights"]["tags"] == 0.9
    kept = "" if "weights = " in lines else mine.splitlines()[1]
    (tmp_path / "clew.toml").write_text(f'profile = "{profile}"\n{lines}{kept}\n')
    with clew.open(tmp_path, embedder=HashingEmbedder(), sources=SOURCES, cache=False) as engine:
        assert real(engine, dataset) == pytest.approx(every[chosen.chosen], abs=1e-9)


def real(engine: clew.Engine, dataset: Dataset, **options: Any) -> float:
    """The mean over the folds of nDCG@10, as `clew tune` takes it, by searching."""
    ranked = {
        q.id: [hit.id for hit in engine.search(q.text, syntax=False, **options)]
        for q in dataset.queries
    }
    scores = metrics.per_query(dataset.qrels, ranked, measures=["ndcg@10"])["ndcg@10"]
    assert len(scores) % tune.FOLDS == 0  # folds of equal size: their mean is the mean
    return metrics.mean(list(scores.values()))


def test_a_query_without_words_finds_nothing_and_counts(write: Any) -> None:
    asked, judged = queries(*range(30))
    folder = write(corpus=corpus(60), queries=[*asked, {"_id": "?", "text": "???"}], qrels=judged)
    engine, _ = harness.open_indexed(read_halves(folder).train, embedder=HashingEmbedder())
    with engine:
        found, degraded = tune.ask(engine, [Question("?", "???")])
    assert found["?"].rank(DEFAULT) == [] and sum(degraded.values()) == 1


def test_a_measure_alone_is_the_same_figure() -> None:
    qrels, ranked = {"a": {"x": 2, "y": 1}}, {"a": ["y", "z", "x"]}
    whole = metrics.per_query(qrels, ranked)
    assert metrics.per_query(qrels, ranked, measures=["ndcg@10"]) == {"ndcg@10": whole["ndcg@10"]}
