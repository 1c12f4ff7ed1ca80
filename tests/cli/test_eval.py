from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from clew.cli import app
from clew.engine import open_engine
from clew.errors import ClewError
from clew.types import Record

CORPUS = [
    {"_id": "a", "title": "Keel bolts", "text": "Tighten them to 95 Nm."},
    {"_id": "b", "title": "", "text": "The epoxy cures in twelve hours."},
    {"_id": "c", "title": "", "text": "Miso must not boil."},
]
QUERIES = [
    {"_id": "1", "text": "keel bolts", "category": "boat"},
    {"_id": "2", "text": "does miso boil", "category": "food"},
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CLEW_EVAL", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "tiny"
    folder.mkdir()
    for name, rows in (("corpus", CORPUS), ("queries", QUERIES)):
        data = "\n".join(json.dumps(row) for row in rows).encode()
        (folder / f"{name}.jsonl.gz").write_bytes(gzip.compress(data))
    (folder / "qrels.tsv").write_text("query-id\tcorpus-id\tscore\n1\ta\t1\n2\tc\t1\n")
    return folder


def run(*arguments: str | Path, input: str | None = None) -> Result:
    done = CliRunner().invoke(app, [str(a) for a in arguments], input=input)
    if done.exception is not None and not isinstance(done.exception, (ClewError, SystemExit)):
        raise done.exception
    return done


def answer(*arguments: str | Path) -> Any:
    done = run(*arguments, "--json")
    assert done.exit_code == 0, done.exception
    return json.loads(done.stdout)


def test_a_dataset_is_evaluated_in_every_mode(folder: Path, tmp_path: Path) -> None:
    found = answer("eval", folder, "--modes", "keyword,vector,hybrid", "--out", tmp_path / "runs")
    assert found["dataset"] == "tiny" and set(found["modes"]) == {"keyword", "vector", "hybrid"}
    for mode, figures in found["modes"].items():
        assert figures["ndcg@10"] == figures["recall@100"] == figures["success@1"] == 1, mode
        assert figures["p50_ms"] > 0 and figures["degraded"] == {}
        assert Path(figures["run"]) == tmp_path / "runs" / f"tiny.{mode}.run"
        assert Path(figures["run"]).read_text().startswith("1 Q0 a 1 ")
    assert found["embedded"] == 1 and len(found["significance"]) == 3


def test_people_get_tables(folder: Path) -> None:
    shown = run("eval", "run", folder, "--modes", "keyword", "--limit-queries", "1").stdout
    assert "tiny · test · 3 documents, 1 queries" in shown
    assert "nDCG@10" in shown and "snippet" in shown and "tiny-first1.keyword.run" in shown


def test_keyword_alone_needs_no_model(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLEW_MODELS", str(folder / "no-models"))
    options = ("--set", "offline=true")
    found = answer("eval", folder, "--modes", "keyword", *options)
    assert found["modes"]["keyword"]["ndcg@10"] == 1
    found = answer("eval", folder, "--modes", "keyword,vector,rerank", *options)
    assert found["modes"]["keyword"]["ndcg@10"] == 1
    assert "clew models pull" in found["modes"]["vector"]["unavailable"]
    assert "unavailable" in found["modes"]["rerank"]


def test_a_plot_is_drawn(folder: Path, tmp_path: Path) -> None:
    answer("eval", folder, "--modes", "keyword", "--plot", tmp_path / "bars.png")
    assert (tmp_path / "bars.png").stat().st_size > 1000


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("eval", "nowhere"), "no folder 'nowhere'"),
        (("eval", "tiny", "--modes", "hybird"), "hybrid"),
        (("eval", "tiny", "--mode", "vector"), "--modes"),
        (("eval", "tiny", "--verbose"), "--verbose"),
        (("eval", "--split", "dev"), "--split"),
        (("eval", "--modes", "keyword"), "needs a DATASET"),
        (("eval", "--plot", "x.png"), "--plot needs a DATASET"),
        (("eval", "tiny", "--split", "train"), "qrels_train.tsv"),
        (("eval", "tiny", "--set", "fuson=rrf"), "fusion"),
        (("judge",), "--queries"),
    ],
)
def test_wrong_use_says_what_to_do(folder: Path, arguments: tuple[str, ...], says: str) -> None:
    done = run(*arguments)
    assert done.exit_code == 1 and says in str(done.exception)


def test_a_flawed_dataset_names_file_and_line(folder: Path) -> None:
    with (folder / "qrels.tsv").open("a") as file:
        file.write("2\tnowhere\t1\n")
    done = run("eval", folder, "--modes", "keyword")
    assert done.exit_code == 1 and "qrels.tsv:4" in str(done.exception)
    found = answer("eval", folder, "--modes", "keyword", "--skip-bad")
    assert "qrels.tsv:4" in found["notes"][0]


def test_without_the_extra_nothing_is_indexed_first(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ir_measures", None)
    done = run("eval", folder)
    assert "pip install 'clew-search[eval]'" in str(done.exception)
    assert not (tmp_path / "cache").exists()


def test_queries_are_words_unless_they_are_to_be_read_as_typed(folder: Path) -> None:
    rows = [{"_id": "1", "text": "keel -bolts"}]
    (folder / "queries.jsonl").write_text(json.dumps(rows[0]))
    (folder / "qrels.tsv").write_text("1\ta\t1\n")
    asked = ("eval", folder, "--modes", "keyword")
    assert answer(*asked)["modes"]["keyword"]["recall@10"] == 1
    assert answer(*asked, "--syntax")["modes"]["keyword"]["recall@10"] == 0


def test_the_bundled_cases_print_a_matrix(folder: Path) -> None:
    shown = run("eval", "--mode", "token-only", "--verbose").stdout
    assert "token-only" in shown and "vector" not in shown.splitlines()[1]
    assert "medication names" in shown and "negative" in shown
    assert "'insomnia' expected sleep, found nothing" in shown
    found = answer("eval", "--mode", "hybrid")
    assert set(found["scorers"]) == {"token-only", "vector", "hybrid"} and found["cases"] >= 60
    alone = answer("eval", "--mode", "vector", "--verbose")
    assert set(alone["scorers"]) == {"vector"} and alone["failed"]
    for kind, marks in found["scorers"]["hybrid"].items():
        if kind not in ("negative", "all"):
            best = max(found["scorers"][s][kind]["recall@5"] for s in ("token-only", "vector"))
            assert marks["recall@5"] >= best - 1e-9


@pytest.fixture
def own(folder: Path, tmp_path: Path) -> Path:
    with open_engine(tmp_path / "own") as engine:
        engine.add([Record(str(r["_id"]), str(r["text"]), title=str(r["title"])) for r in CORPUS])
        engine.embed()
    return tmp_path / "own"


def test_people_can_evaluate_their_own_store(own: Path, tmp_path: Path) -> None:
    assert answer("eval", "init", "--store", own, "--out", tmp_path / "mine")["queries"] == 3
    again = run("eval", "init", "--store", own, "--out", tmp_path / "mine")
    assert again.exit_code == 1 and "exists" in str(again.exception)
    generation = open_engine(own).store.changes.generation()
    found = answer("eval", tmp_path / "mine", "--store", own)
    assert found["queries"] == 3 and found["modes"]["hybrid"]["recall@10"] == 1
    assert "unchecked" in found["notes"][0] and found["documents"] is None
    assert open_engine(own).store.changes.generation() == generation  # read only


def test_flawed_rows_about_ones_own_store_can_be_left_out(own: Path, tmp_path: Path) -> None:
    run("eval", "init", "--store", own, "--out", tmp_path / "mine")
    with (tmp_path / "mine" / "qrels.tsv").open("a") as file:
        file.write("q1\tnowhere\t1\n")
    asked = ("eval", tmp_path / "mine", "--store", own, "--modes", "keyword")
    done = run(*asked)
    assert done.exit_code == 1
    assert "qrels.tsv:5: there is no record 'nowhere'" in str(done.exception)
    found = answer(*asked, "--skip-bad")
    assert found["queries"] == 3 and found["modes"]["keyword"]["recall@10"] == 1
    assert any("1 judgements were skipped: qrels.tsv:5" in note for note in found["notes"])


def test_runs_of_different_things_have_different_files(own: Path, folder: Path) -> None:
    asked = ("eval", folder, "--modes", "keyword")
    files = []
    for more in (
        (),
        ("--limit-queries", "1"),
        ("--syntax",),
        ("--set", "depth=1"),
        ("--store", own),
        ("--store", own, "--limit-queries", "1"),
    ):
        files.append(Path(answer(*asked, *more)["modes"]["keyword"]["run"]))
    assert len(set(files)) == len(files)
    names = [file.name for file in files]
    assert names[:2] == ["tiny.keyword.run", "tiny-first1.keyword.run"]
    assert names[3] == "tiny-depth=1.keyword.run" and names[4].startswith("tiny-own-")
    lines = [len(file.read_text().splitlines()) for file in files]
    assert lines[1] < lines[0] and lines[5] < lines[4]  # and none was overwritten by a later one
    again = answer(*asked)["modes"]["keyword"]["run"]
    assert Path(again) == files[0]  # the same run is the same file


def test_a_run_does_not_replace_another_of_its_name(folder: Path, tmp_path: Path) -> None:
    asked = ("eval", folder, "--modes", "keyword", "--out", tmp_path / "runs")
    first = Path(answer(*asked)["modes"]["keyword"]["run"])
    before = first.read_text()
    (folder / "queries.jsonl").write_text('{"_id": "1", "text": "epoxy"}\n')
    (folder / "queries.jsonl.gz").unlink()
    (folder / "qrels.tsv").write_text("1\tb\t1\n")
    second = Path(answer(*asked)["modes"]["keyword"]["run"])
    assert second.name == "tiny.keyword.2.run" and second.read_text().startswith("1 Q0 b 1 ")
    assert first.read_text() == before


def test_a_dataset_can_be_asked_of_a_store_that_has_its_documents(own: Path, folder: Path) -> None:
    found = answer("eval", folder, "--store", own, "--modes", "keyword")
    assert found["store"] == str(own) and found["modes"]["keyword"]["ndcg@10"] == 1


def test_a_dataset_can_be_indexed_where_one_says(folder: Path, tmp_path: Path) -> None:
    new = tmp_path / "new"
    new.mkdir()
    for _ in range(2):
        found = answer("eval", folder, "--store", new, "--modes", "keyword")
        assert found["store"] == str(new) and found["modes"]["keyword"]["ndcg@10"] == 1
    assert (new / ".clew" / "clew.db").exists()


def test_hits_are_judged_from_a_pipe_and_nothing_is_lost(own: Path, tmp_path: Path) -> None:
    out = tmp_path / "marks"
    judge = ("judge", "keel bolts", "--store", own, "--out", out)
    done = run(*judge, input="y\nwhat?\n0\nq\n")
    assert done.exit_code == 0 and "2 judgements added" in done.stdout
    assert "1/3 Keel bolts" in done.stdout and "s skip" in done.stdout
    lines = (out / "qrels.tsv").read_text().splitlines()
    assert lines[1] == "q1\ta\t1" and lines[2].endswith("\t0") and len(lines) == 3
    rest = run(*judge, input="3\n")  # the input ends: what was marked stays
    assert "1 hits to judge" in rest.stdout and "1 judgements added" in rest.stdout
    assert answer("eval", out, "--store", own)["modes"]["keyword"]["success@1"] == 1


@pytest.mark.parametrize("words", [("keel", "-b"), ("-b", "keel"), ("keel", "-bolts")])
def test_words_to_judge_may_begin_with_a_hyphen(
    own: Path, tmp_path: Path, words: tuple[str, ...]
) -> None:
    out = tmp_path / "marks"
    done = run("judge", *words, "-C", own, "--out", out, "--modes", "keyword", input="s\n")
    assert done.exit_code == 0, done.output
    assert json.loads((out / "queries.jsonl").read_text())["text"] == " ".join(words)
    assert run("judge", "keel", "--outt", out).exit_code == 2


def test_a_file_of_queries_is_judged_beside_itself(own: Path, tmp_path: Path) -> None:
    run("eval", "init", "--store", own, "--out", tmp_path / "mine")
    asked = tmp_path / "mine" / "queries.jsonl"
    done = run("judge", "--queries", asked, "--store", own, "--limit", "2", input="n\n" * 20)
    assert done.exit_code == 0 and "[3/3]" in done.stdout
    assert len(asked.read_text().splitlines()) == 3
    plain = tmp_path / "plain.txt"
    plain.write_text("miso\n\nepoxy cure\n")
    done = run("judge", "--queries", plain, "--store", own, "--modes", "keyword", input="y\ns\n")
    assert (tmp_path / "clew-eval" / "qrels.tsv").read_text().endswith("q1\tc\t1\n")
