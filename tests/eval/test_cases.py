from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from clew.errors import InputError
from clew.eval import cases
from clew.eval.cases import Case, CaseOutcome

from hashing import HashingEmbedder


def test_there_are_enough_cases_of_every_kind() -> None:
    counts = Counter(case.kind for case in cases.read_cases())
    assert sum(counts.values()) >= 60
    kinds = {"proper nouns", "medication names", "short queries", "stemming"}
    assert set(counts) == kinds | {"synonyms/paraphrase", "multilingual", "negative"}
    assert min(counts.values()) >= 8
    assert len({(c.query, tuple(c.texts)) for c in cases.read_cases()}) == len(cases.read_cases())
    assert all(len(case.texts) >= 10 for case in cases.read_cases())


def test_a_negative_passes_only_with_nothing() -> None:
    negative = Case("negative", "whales", {"a": "boats"}, ())
    assert CaseOutcome(negative, "vector", ()).recall(1) == 1
    assert CaseOutcome(negative, "vector", ("a",)).recall(5) == 0
    assert not CaseOutcome(negative, "vector", ("a",)).passed


def test_recall_counts_what_could_be_found() -> None:
    case = Case("short queries", "x", {n: n for n in "abcdefg"}, ("a", "b"))
    assert CaseOutcome(case, "vector", ("a", "c", "b")).recall(1) == 1
    assert CaseOutcome(case, "vector", ("c", "a")).recall(1) == 0
    assert CaseOutcome(case, "vector", ("c", "a")).recall(5) == 0.5
    assert CaseOutcome(case, "vector", ("c", "d", "e", "f", "g", "a", "b")).recall(5) == 0


def test_token_recall_wins_where_it_should_and_loses_where_it_should() -> None:
    marks = cases.summarise_cases(cases.run_cases(["token-only"], None))["token-only"]
    assert marks["proper nouns"]["recall@1"] == marks["multilingual"]["recall@1"] == 1
    assert marks["medication names"]["recall@5"] == 1
    assert marks["stemming"]["recall@5"] < 0.2 and marks["synonyms/paraphrase"]["recall@5"] < 0.2
    assert marks["negative"]["recall@1"] >= 0.9
    assert list(marks)[-1] == "all" and marks["all"]["cases"] == len(cases.read_cases())


def test_all_scorers_run_with_any_embedder() -> None:
    embedder = HashingEmbedder(dim=256)
    outcomes = cases.run_cases(cases.SCORERS, embedder, least=0.2)
    assert len(outcomes) == 3 * len(cases.read_cases())
    assert set(cases.summarise_cases(outcomes)) == set(cases.SCORERS)
    assert len(embedder.embedded) == len(set(embedder.embedded))
    both = {(o.scorer, o.case.query): set(o.found) for o in outcomes}
    for case in cases.read_cases():
        tokens, vectors = both["token-only", case.query], both["vector", case.query]
        assert both["hybrid", case.query] == tokens | vectors


@pytest.mark.parametrize(
    ("case", "says"),
    [
        ('kind = "stemming"\nstore = "b"\nquery = "x"\nexpect = ["x"]', "unknown store"),
        ('kind = "stemming"\nstore = "a"\nquery = " "\nexpect = ["x"]', "empty query"),
        ('kind = "stemming"\nstore = "a"\nquery = "x"\nexpect = ["y"]', "no entry"),
        ('kind = "stemming"\nstore = "a"\nquery = "x"\nexpect = []', "only a negative"),
        ('kind = "negative"\nstore = "a"\nquery = "x"\nexpect = ["x"]', "only a negative"),
    ],
)
def test_a_case_that_makes_no_sense_is_refused(tmp_path: Path, case: str, says: str) -> None:
    file = tmp_path / "cases.toml"
    file.write_text(f'[stores.a]\nx = "text"\n\n[[cases]]\n{case}\n', "utf-8")
    with pytest.raises(InputError, match=says):
        cases.read_cases(file)


def test_scorers_keep_what_is_above_their_threshold_best_first() -> None:
    texts = {"b": "fluoxetine in April", "a": "fluoxetine in April", "c": "April rain", "d": "snow"}
    assert cases.score_tokens("fluoxetine April", texts) == [("a", 1.0), ("b", 1.0), ("c", 0.5)]
    assert cases.score_tokens("one two three", {"x": "one"}) == [("x", pytest.approx(1 / 3))]
    assert cases.score_tokens("one two three four", {"x": "one"}) == []
    vectors = {"far": np.float32([0, 1]), "near": np.float32([0.8, 0.6]), "at": np.float32([1, 0])}
    found = cases.score_cosine(np.float32([1, 0]), vectors, least=0.5)
    assert [name for name, _ in found] == ["at", "near"]


def test_hybrid_is_plain_reciprocal_rank_fusion() -> None:
    found = cases.fuse_scores([("a", 0.9), ("b", 0.4)], [("b", 0.7)])
    assert found == [("b", pytest.approx(1 / 62 + 1 / 61)), ("a", pytest.approx(1 / 61))]
    assert cases.fuse_scores([], []) == []


def test_each_model_has_its_own_least_cosine() -> None:
    assert cases.least_cosine("openai:anything") == 0.5
    assert cases.least_cosine("bge-small") > 0.5 > cases.least_cosine("minilm")
