"""What is kept to be quicker, and was changed by somebody else: weights and answers. Indexes and
graphs are in test_planted_store.py."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from pathlib import Path

import numpy as np
import pytest

import clew
from clew.errors import ModelError
from clew.models.catalogue import find_model, is_own
from clew.models.download import pull, verify
from clew.models.onnx import OnnxEmbedder

from hashing import HashingEmbedder

SHARED = {"models": 0o777, "folder": 0o777, "file": 0o666, "copy": 0o777}


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    """A copy of the default model, with the copy that the runtime makes of it."""
    source, model = pull("bge-small"), find_model("bge-small")
    folder = tmp_path / "models" / source.name
    folder.mkdir(parents=True)
    for file in model.files:
        shutil.copyfile(source / file.name, folder / file.name)
    OnnxEmbedder(model, folder, threads=1).embed_query("keel")
    assert list(folder.glob("ort-*"))
    return folder


def open_to_others(folder: Path, what: str) -> None:
    place = {
        "models": folder.parent,
        "folder": folder,
        "file": folder / "model.onnx",
        "copy": next(folder.glob("ort-*")),
    }[what]
    place.chmod(SHARED[what])


@pytest.mark.parametrize("what", SHARED)
def test_weights_that_others_could_write_are_hashed(what: str, weights: Path) -> None:
    model = find_model("bge-small")
    expected = OnnxEmbedder(model, weights, threads=1).embed_query("keel")
    assert is_own(weights)
    open_to_others(weights, what)
    assert not is_own(weights)
    # The copy of the runtime has no hash, so it is not opened.
    for file in next(weights.glob("ort-*")).iterdir():
        file.write_bytes(b"poison")
    found = OnnxEmbedder(model, weights, threads=1).embed_query("keel")
    assert np.allclose(found, expected, atol=1e-5)
    for name in ("model.onnx", "tokenizer.json"):
        whole = (weights / name).read_bytes()
        (weights / name).write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
        with pytest.raises(ModelError, match="not the file of that model"):
            OnnxEmbedder(model, weights, threads=1).embed_query("keel")
        (weights / name).write_bytes(whole)


@pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() != 0, reason="only root gives away")
def test_weights_of_another_user_are_hashed(weights: Path) -> None:
    os.chown(weights / "tokenizer.json", 4242, 4242)
    assert is_own(weights) is False


def test_what_a_pull_left_half_done_is_hashed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the scratch folder of a download that goes on where another stopped."""
    model, source = find_model("bge-small"), pull("bge-small")
    monkeypatch.setenv("CLEW_MODELS", str(tmp_path / "models"))
    given = tmp_path / "given"
    given.mkdir()
    for file in model.files:
        data = bytearray((source / file.name).read_bytes())
        data[len(data) // 2] ^= 1
        (given / file.name).write_bytes(data)
    with pytest.raises(ModelError, match="refused"):
        pull("bge-small", folder=given)
    assert not verify("bge-small")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("CLEW_TRUST", raising=False)
    place = tmp_path / "notes"
    place.mkdir()
    (place / "note.md").write_text("The keel bolts are torqued to 90 Nm.")
    with clew.open(place, embedder=HashingEmbedder()) as engine:
        engine.index()
        engine.search("keel bolts")
        engine.search("torqued")
    return place


POISON = {
    "answer": "UPDATE answers SET answer = replace(answer, '90', '99')",
    "digest": "UPDATE answers SET digest = zeroblob(16)",
    "swapped": "UPDATE answers SET answer = (SELECT answer FROM answers AS o WHERE "
    "o.key != answers.key)",
    "renewed": "UPDATE answers SET generation = generation + 1, made = made + 1e6",
    "type": "UPDATE answers SET answer = 5, digest = 'x'",
    "nested": f"UPDATE answers SET answer = '{'[' * 100_000}'",
    "huge": "UPDATE answers SET answer = zeroblob(50000000)",
    "trigger": "CREATE TRIGGER t AFTER UPDATE ON answers BEGIN DELETE FROM counts; END",
    "view": "CREATE VIEW v AS SELECT load_extension('/tmp/x')",
    "drop": "DROP TABLE answers",
    "version": "PRAGMA user_version = 99",
}


@pytest.mark.parametrize("statement", POISON.values(), ids=POISON)
def test_a_changed_answer_is_not_given(statement: str, folder: Path) -> None:
    file = folder / ".clew" / "cache.db"
    with sqlite3.connect(file) as db:
        assert db.execute("SELECT count(*) FROM answers").fetchone()[0] >= 2
        db.execute(statement)
    db.close()
    with clew.open(folder, embedder=HashingEmbedder()) as engine:
        for query in ("keel bolts", "torqued"):
            found = engine.search(query)
            assert [hit.path for hit in found] == ["note.md"]
            assert "90 Nm" in found[0].content and "99" not in json.dumps(found[0].content)


def test_another_program_s_database_is_left_alone(folder: Path) -> None:
    file = folder / ".clew" / "cache.db"
    file.unlink()
    for ending in ("-wal", "-shm"):
        file.with_name(file.name + ending).unlink(missing_ok=True)
    with sqlite3.connect(file) as db:
        db.execute("CREATE TABLE theirs (a)")
        db.execute("INSERT INTO theirs VALUES (1)")
    db.close()
    with clew.open(folder, embedder=HashingEmbedder()) as engine:
        assert len(engine.search("keel bolts")) == 1
    with sqlite3.connect(file) as db:
        assert db.execute("SELECT a FROM theirs").fetchall() == [(1,)]
    db.close()
