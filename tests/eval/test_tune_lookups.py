from __future__ import annotations

import tomllib
from pathlib import Path

import clew
from clew import config
from clew.eval import tune
from clew.eval.datasets import Dataset, Question
from clew.eval.tune import MEANING_DEFAULT, LookupPool

from hashing import HashingEmbedder


def collection(count: int, *, prefix: str) -> Dataset:
    queries = tuple(Question(f"{prefix}{i}", f"{prefix} {i}") for i in range(count))
    return Dataset("made", Path(), "train", None, queries, {q.id: {"right": 1} for q in queries})


def pools(dataset: Dataset, *, words: float, near: float) -> dict[str, LookupPool]:
    """Of `right`; the other has the opposite, and comes first in a tie."""
    components = {"bm25": (words, 1 - words), "semantic": (near, 1 - near)}
    return {q.id: LookupPool(("right", "other"), components) for q in dataset.queries}


def test_the_weight_goes_to_what_is_right() -> None:
    train, test = collection(30, prefix="q"), collection(20, prefix="t")
    found = tune.tune_lookups(
        train, pools(train, words=1, near=0), test, pools(test, words=1, near=0)
    )
    assert found["better"] and found["weights"]["bm25"] > found["weights"]["semantic"]
    assert sum(found["weights"].values()) == 1 and found["weights"]["credibility"] == 0.2
    written = tomllib.loads(tune.write_lookup_fragment(found))
    assert config.coerce("lookup", written["lookup"], "x")["weights"] == found["weights"]


def test_where_nothing_is_better_the_default_stays() -> None:
    train, test = collection(30, prefix="q"), collection(20, prefix="t")
    same = pools(train, words=1, near=1), pools(test, words=1, near=1)
    found = tune.tune_lookups(train, same[0], test, same[1])
    assert not found["better"] and found["weights"]["semantic"] == 0.8 * MEANING_DEFAULT
    assert tomllib.loads(tune.write_lookup_fragment(found)) == {}


def test_queries_are_looked_up_within_their_scope(tmp_path: Path) -> None:
    with clew.open(tmp_path, embedder=HashingEmbedder()) as engine:
        engine.add(
            {"id": f"{who}{i}", "content": f"keel {i}", "collection": who}
            for who in ("a", "b")
            for i in range(3)
        )
        engine.embed()
        questions = [Question("q1", "keel", scope="a"), Question("q2", "keel 1", scope="b")]
        asked = tune.ask_lookups(engine, questions)
        assert {name[0] for name in asked["q1"].ids} == {"a"}
        assert {name[0] for name in asked["q2"].ids} == {"b"}
        assert asked["q2"].rank(0.0)[0] == "b1"
        assert set(asked["q1"].components) == {"bm25", "semantic", "credibility"}
