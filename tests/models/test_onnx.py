from __future__ import annotations

import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from clew.errors import ModelError
from clew.models.catalogue import find_model
from clew.models.download import pull
from clew.models.onnx import OnnxEmbedder, OnnxReranker
from clew.validate import unit

PASSAGES = [
    "The mitochondrion produces most of the chemical energy of a cell.",
    "To reset your password, open Settings and choose Security.",
    "Heavy rain flooded the lower streets of the old town on Sunday.",
    "def connect(host, port): open a TCP socket and return it",
    "Simmer the lentils with cumin, garlic and a bay leaf for half an hour.",
]
QUESTIONS = [
    "where does a cell get its energy from",
    "I forgot my login credentials",
    "weather damage in the city",
    "how do I make a network connection in code",
    "recipe for a legume stew",
]


def test_a_question_is_nearest_to_its_answer(embedder: OnnxEmbedder) -> None:
    passages = embedder.embed_documents(PASSAGES)
    for number, question in enumerate(QUESTIONS):
        assert int(np.argmax(passages @ embedder.embed_query(question))) == number, question


def test_shape_type_and_length(embedder: OnnxEmbedder) -> None:
    assert embedder.model == "bge-small@6c9c6101a956"
    assert embedder.dim == 384
    vectors = embedder.embed_documents(PASSAGES)
    assert vectors.shape == (5, 384) and vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1.0, atol=1e-6)
    query = embedder.embed_query("energy")
    assert query.shape == (384,) and query.dtype == np.float32
    assert abs(float(np.linalg.norm(query)) - 1.0) < 1e-6
    assert embedder.embed_documents([]).shape == (0, 384)


def test_no_neighbour_changes_a_vector(embedder: OnnxEmbedder) -> None:
    """Dynamic quantisation would let a batch do that; identical means identical."""
    texts = [*PASSAGES, PASSAGES[0] * 40, "", "x"]
    together = embedder.embed_documents(texts)
    alone = np.stack([embedder.embed_documents([text])[0] for text in texts])
    assert np.array_equal(together, alone)
    assert np.array_equal(embedder.embed_documents(texts[::-1])[::-1], together)


def test_threads_change_nothing(embedder: OnnxEmbedder) -> None:
    single = OnnxEmbedder(find_model("bge-small"), pull("bge-small"), threads=1)
    assert np.array_equal(single.embed_documents(PASSAGES), embedder.embed_documents(PASSAGES))


def test_it_can_be_called_from_many_threads() -> None:
    fresh = OnnxEmbedder(find_model("bge-small"), pull("bge-small"), threads=2)
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda _: fresh.embed_documents(PASSAGES), range(8)))
    assert all(np.array_equal(result, results[0]) for result in results)


@pytest.mark.parametrize("text", ["", " ", "\n\t", "\x00", "é" * 5000, "word " * 5000, "日本語🙂"])
def test_odd_texts_have_vectors(embedder: OnnxEmbedder, text: str) -> None:
    for vector in (embedder.embed_documents([text])[0], embedder.embed_query(text)):
        assert np.isfinite(vector).all()
        assert abs(float(np.linalg.norm(vector)) - 1.0) < 1e-6


def test_a_query_is_prefixed_and_a_document_is_not(embedder: OnnxEmbedder) -> None:
    prefix = find_model("bge-small").query_prefix
    assert np.array_equal(
        embedder.embed_query("energy"), embedder.embed_documents([f"{prefix}energy"])[0]
    )
    bare = embedder.embed_documents(["energy"])[0]
    assert not np.array_equal(embedder.embed_query("energy"), bare)


def test_text_beyond_the_maximum_is_cut(embedder: OnnxEmbedder) -> None:
    start = "alpha " * 510  # and the two tokens around it: 512
    assert np.array_equal(*embedder.embed_documents([start, start + "omega " * 50]))


def test_the_optimised_copy_gives_the_same_vectors(tmp_path: Path) -> None:
    model, source = find_model("bge-small"), pull("bge-small")
    folder = tmp_path / "model"
    folder.mkdir()
    for file in model.files:
        shutil.copyfile(source / file.name, folder / file.name)
    first = OnnxEmbedder(model, folder).embed_documents(PASSAGES)
    (copy,) = folder.glob("ort-*")
    assert not list(folder.glob(".ort-*"))
    assert np.array_equal(OnnxEmbedder(model, folder).embed_documents(PASSAGES), first)
    # One that cannot be read is made again, and what a killed process left goes.
    (copy / "model.onnx").write_bytes(b"nonsense")
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    (folder / f".ort-{gone.pid}-7").mkdir()
    assert np.array_equal(OnnxEmbedder(model, folder).embed_documents(PASSAGES), first)
    assert (copy / "model.onnx").stat().st_size > 1000
    assert not list(folder.glob(".ort-*"))


def test_it_works_where_no_copy_can_be_written(tmp_path: Path, embedder: OnnxEmbedder) -> None:
    model, source = find_model("bge-small"), pull("bge-small")
    folder = tmp_path / "model"
    folder.mkdir()
    for file in model.files:
        (folder / file.name).symlink_to(source / file.name)
    (copy,) = source.glob("ort-*")
    (folder / copy.name).write_text("in the way")
    blocked = OnnxEmbedder(model, folder)
    assert np.array_equal(blocked.embed_query("energy"), embedder.embed_query("energy"))
    folder.chmod(0o500)
    try:
        again = OnnxEmbedder(model, folder)
        assert np.array_equal(again.embed_query("energy"), embedder.embed_query("energy"))
    finally:
        folder.chmod(0o700)


def test_damaged_weights_name_the_way_out(tmp_path: Path) -> None:
    source = pull("bge-small")
    (tmp_path / "model.onnx").write_bytes(b"not a graph")
    shutil.copyfile(source / "tokenizer.json", tmp_path / "tokenizer.json")
    broken = OnnxEmbedder(find_model("bge-small"), tmp_path)
    with pytest.raises(ModelError, match=r"cannot be loaded: .*`clew models pull bge-small`"):
        broken.embed_query("energy")


@pytest.mark.parametrize("name", ["bge-small", "minilm"])
def test_agrees_with_the_libraries_used_plainly(name: str) -> None:
    import onnxruntime
    import tokenizers

    model, folder = find_model(name), pull(name)
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    session = onnxruntime.InferenceSession(str(folder / "model.onnx"))
    rows = []
    for text in PASSAGES:
        encoding = tokenizer.encode(text)
        inputs = {
            "input_ids": np.array([encoding.ids]),
            "attention_mask": np.array([encoding.attention_mask]),
            "token_type_ids": np.array([encoding.type_ids]),
        }
        tokens = session.run(None, inputs)[0][0]
        row = tokens[0] if model.pooling == "cls" else tokens.mean(axis=0)
        rows.append(row / np.linalg.norm(row))
    vectors = OnnxEmbedder(model, folder).embed_documents(PASSAGES)
    np.testing.assert_allclose(vectors, np.stack(rows), atol=1e-5)


def test_mean_pooling_with_minilm() -> None:
    minilm = OnnxEmbedder(find_model("minilm"), pull("minilm"), threads=2)
    passages = minilm.embed_documents(PASSAGES)
    for number, question in enumerate(QUESTIONS):
        assert int(np.argmax(passages @ minilm.embed_query(question))) == number, question
    # Its tokenizer.json asks for padding to 128 tokens and cutting there: neither is done.
    long = "alpha " * 200
    assert not np.array_equal(*minilm.embed_documents([long, long + "omega"]))
    np.testing.assert_allclose(np.linalg.norm(passages, axis=1), 1.0, atol=1e-6)


def test_unit_gives_no_nan() -> None:
    rows = np.array([[3.0, 4.0], [0.0, 0.0], [np.nan, 1.0], [np.inf, 1.0], [1e-30, 0.0]])
    assert unit(rows).tolist() == [
        [pytest.approx(0.6), pytest.approx(0.8)],
        [0.0, 0.0],
        [0.0, 0.0],
        [0.0, 0.0],
        [1.0, 0.0],
    ]
    assert unit(rows).dtype == np.float32


def test_the_reranker_puts_the_answer_first(reranker: OnnxReranker) -> None:
    for number, question in enumerate(QUESTIONS):
        scores = reranker.score(question, PASSAGES)
        assert len(scores) == 5 and all(isinstance(score, float) for score in scores)
        assert int(np.argmax(scores)) == number, question


def test_a_score_depends_on_its_own_pair_alone(reranker: OnnxReranker) -> None:
    together = reranker.score(QUESTIONS[0], [*PASSAGES, "", "word " * 3000])
    assert together[2] == reranker.score(QUESTIONS[0], [PASSAGES[2]])[0]
    assert np.isfinite(together).all()
    assert reranker.score(QUESTIONS[0], []) == []
    assert reranker.model == "reranker-en@1225ccd6afd0"
