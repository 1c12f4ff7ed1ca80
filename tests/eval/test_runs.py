from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import ir_measures
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clew.config import Config
from clew.errors import InputError
from clew.eval import report
from clew.eval.datasets import Dataset, read
from clew.eval.harness import Run
from clew.eval.report import run_name, write_run

FOUND = {"q1": ("d1", "d2", "d 5"), "q2": ("d4",), "q3": ("d4", "d3")}
EMPTY = Dataset("tiny", Path("tiny"), "test", None, (), {})


@pytest.fixture
def dataset(write: Any) -> Dataset:
    return read(write())


def test_a_run_file_evaluates_to_the_same_figures(dataset: Dataset, tmp_path: Path) -> None:
    file = tmp_path / "new" / "tiny.hybrid.run"
    assert write_run(Run("hybrid", FOUND), file) == file
    lines = file.read_text("utf-8").splitlines()
    assert lines[2] == "q1 Q0 d%205 3 0.33333333 clew-hybrid"
    assert all(len(line.split()) == 6 for line in lines)
    qrels = {
        q: {d.replace(" ", "%20"): g for d, g in of.items()} for q, of in dataset.qrels.items()
    }
    run = ir_measures.read_trec_run(str(file))
    found = ir_measures.calc_aggregate([ir_measures.nDCG @ 10], qrels, run)
    summary = report.summarise(dataset, [Run("hybrid", FOUND)])
    value = found[ir_measures.nDCG @ 10]
    assert value == pytest.approx(summary["modes"]["hybrid"]["ndcg@10"], abs=1e-4)


def test_another_run_of_the_same_name_gets_a_number(tmp_path: Path) -> None:
    file = tmp_path / "tiny-depth=0.5.hybrid.run"
    runs = [Run("hybrid", {"q": (f"d{i}",)}) for i in range(3)]
    places = [write_run(run, file) for run in (*runs, *runs)]
    assert [place.name for place in places[:3]] == [
        "tiny-depth=0.5.hybrid.run",
        "tiny-depth=0.5.hybrid.2.run",
        "tiny-depth=0.5.hybrid.3.run",
    ]
    assert places[3:] == places[:3]
    for i, place in enumerate(places[:3]):
        assert place.read_text().split()[2] == f"d{i}"


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(InputError, match="the run cannot be written to"):
        write_run(Run("hybrid", FOUND), tmp_path / "file" / "tiny.hybrid.run")
    (tmp_path / "folder.run").mkdir()
    with pytest.raises(InputError, match="the run cannot be written to"):
        write_run(Run("hybrid", FOUND), tmp_path / "folder.run")


def test_a_name_says_what_a_run_is_of(tmp_path: Path) -> None:
    usual = Config()
    assert run_name(EMPTY, usual) == "tiny"
    assert run_name(replace(EMPTY, split="train"), usual, limit=9) == "tiny-train-first9"
    assert run_name(EMPTY, usual, syntax=True) == "tiny-syntax"
    changed = Config(rerank_blend=1.0, weights={"vectors": 0.5, "keyword": 2.0})
    assert run_name(EMPTY, changed) == "tiny-rerank_blend=1-weights=keyword=2,vectors=0.5"
    assert run_name(EMPTY, Config(model="openai:a/b")) == "tiny-model=openai_a_b"


def test_two_stores_of_one_name_are_told_apart(tmp_path: Path) -> None:
    names = {run_name(EMPTY, Config(), store=tmp_path / at / "notes") for at in ("a", "b")}
    assert len(names) == 2 and all(name.startswith("tiny-notes-") for name in names)


def test_what_decides_nothing_or_may_be_secret_is_not_in_a_name() -> None:
    config = Config(threads=3, offline=True, model_url="https://me:secret@example.org")
    assert run_name(EMPTY, config) == "tiny"
    names = [run_name(EMPTY, Config(weights={"x": {"key": word}})) for word in ("secret", "other")]  # type: ignore[dict-item]
    assert "secret" not in names[0] and names[0] != names[1]


settings = st.builds(
    Config,
    fusion=st.sampled_from(["adaptive", "rrf"]),
    rrf_k=st.integers(0, 10**30),
    depth=st.integers(1, 3),
    rerank_blend=st.sampled_from([0.0, 0.1, 1.0]),
    weights=st.dictionaries(st.text(max_size=40), st.sampled_from([0.0, 1.0, 2.0]), max_size=4),
)


@given(settings, settings)
def test_a_name_is_short_one_word_and_different_for_different_settings(
    one: Config, other: Config
) -> None:
    name = run_name(EMPTY, one)
    assert len(name.encode()) <= 200 and not set(name) & set("/\\ :\0\n")
    plain = all(source.isalnum() for c in (one, other) for source in c.weights)
    assert (name == run_name(EMPTY, other)) == (one == other) or not plain
