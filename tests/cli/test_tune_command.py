from __future__ import annotations

import json
import tomllib
from functools import partial
from pathlib import Path

import pytest

from clew import config
from clew.engine import open_engine
from clew.eval import harness
from clew.types import Record
from commands import Command
from entries import WORDS

from hashing import HashingEmbedder

NOTES = [f"the {a} and the {b}" for a in WORDS for b in WORDS if a < b]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """66 notes, each asked for; the model is made of hashed words."""
    monkeypatch.setenv("CLEW_EVAL", str(tmp_path / "cache"))
    embedded = partial(harness.open_indexed, embedder=HashingEmbedder())
    monkeypatch.setattr(harness, "open_indexed", embedded)
    folder = tmp_path / "notes"
    folder.mkdir()
    rows = [json.dumps({"_id": f"d{i}", "text": text}) for i, text in enumerate(NOTES)]
    (folder / "corpus.jsonl").write_text("\n".join(rows))
    rows = [json.dumps({"_id": f"q{i}", "text": f"{t}?"}) for i, t in enumerate(NOTES)]
    (folder / "queries.jsonl").write_text("\n".join(rows))
    (folder / "qrels.tsv").write_text("\n".join(f"q{i}\td{i}\t1" for i in range(len(NOTES))))
    return folder


def test_a_collection_is_tuned_and_measured_on_other_queries(
    command: Command, folder: Path, tmp_path: Path
) -> None:
    done = command("tune", folder, "--out", tmp_path / "new" / "found.toml", "--json")
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert found["train"]["queries"] + found["test"]["queries"] == len(NOTES)
    assert found["held_out"]["queries"] == found["test"]["queries"]
    assert found["configurations"] > 100 and len(found["cross_validation"]) == 2
    assert sum(trial["default"] for trial in found["trials"]) == 1
    assert sum(trial["chosen"] for trial in found["trials"]) == 1
    assert all(len(trial["folds"]) == 5 for trial in found["trials"])
    written = (tmp_path / "new" / "found.toml").read_text()
    assert written == found["toml"]
    for name, value in tomllib.loads(written).items():
        config.coerce(name, value, "found.toml")
    assert any("divided" in note for note in found["notes"])


def test_people_get_tables(command: Command, folder: Path) -> None:
    shown = command("tune", folder).out
    for words in ("queries to tune on", "adaptive", "had no part in it", "fusion = ", "95 %"):
        assert words in shown


def test_a_file_is_not_overwritten_unasked(command: Command, folder: Path, tmp_path: Path) -> None:
    mine = tmp_path / "clew.toml"
    mine.write_text("depth = 70\n")
    done = command("tune", folder, "--out", mine)
    assert done.code == 1 and "--force" in done.err and mine.read_text() == "depth = 70\n"
    assert command("tune", folder, "--out", mine, "--force").code == 0
    assert "fusion" in mine.read_text()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--train", "test", "--test", "test"), "is not reported on"),
        (("--train", "train"), "qrels_train"),
        (("--set", "fusion=rrf"), "leave it out"),
    ],
)
def test_what_makes_no_sense_is_refused(
    command: Command, folder: Path, options: tuple[str, ...], said: str
) -> None:
    done = command("tune", folder, *options)
    assert done.code == 1 and said in done.err and not done.out


def test_without_vectors_there_is_nothing_to_weigh(
    command: Command, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(harness, "open_indexed", harness.open_indexed.func)  # type: ignore[attr-defined]
    done = command("tune", folder)
    assert done.code == 1 and "nothing to weigh" in done.err


def test_judgements_about_a_store_must_name_its_records(
    command: Command, folder: Path, tmp_path: Path
) -> None:
    (folder / "corpus.jsonl").unlink()
    with open_engine(tmp_path / "own", embedder=HashingEmbedder()) as engine:
        engine.add([Record(f"d{i}", text) for i, text in enumerate(NOTES[:-1])])
    done = command("tune", folder, "--store", tmp_path / "own")
    assert done.code == 1 and "there is no record 'd65'" in done.err
