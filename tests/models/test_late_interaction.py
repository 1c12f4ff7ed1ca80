"""Late interaction against another way to the same numbers."""

from __future__ import annotations

import hashlib
import json
import string
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnxruntime
import pytest
from tokenizers import Tokenizer

import clew.models
from clew.errors import ConfigError, ModelError
from clew.models import load_late_interaction
from clew.models.catalogue import find_model, read_catalogue
from clew.models.download import remove
from clew.models.late_interaction import OnnxLateInteraction

HEAD = Path(clew.models.__file__).with_name("colbert-small-head.safetensors")
QUERIES = [
    "how long are backups kept",
    "E1042",
    "restart policy of a pod that keeps crashing, and where it is written down",
    "?",
    "word " * 2000,
]
PASSAGES = [
    "Backups are kept for thirty days, then the oldest is deleted.",
    "Error E1042: the valve did not close within 3.5 s (see TX-4471-B).",
    "A pod is restarted by the kubelet with an exponential back-off.",
    "def parse(line: str) -> list[str]:\n    return line.split(',')",
    "",
    "... !!! ,,,",
    "Die Sicherung läuft jede Nacht um 02:00 Uhr.",
    "备份保存三十天。",
    "long " * 1000,
    "She said that the garden had been the best part of the holiday.",
]


class Reference:
    """The model as its authors describe it, in plain steps."""

    def __init__(self, folder: Path):
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.tokenizer.no_padding()
        self.tokenizer.no_truncation()
        self.session = onnxruntime.InferenceSession(str(folder / "model.onnx"))
        data = HEAD.read_bytes()
        length = int.from_bytes(data[:8], "little")
        shape = json.loads(data[8 : 8 + length])["linear.weight"]["shape"]
        self.head = np.frombuffer(data[8 + length :], np.float32).reshape(shape)

    def rows(self, ids: list[int], attended: list[int]) -> npt.NDArray[np.float64]:
        inputs = {
            "input_ids": np.array([ids]),
            "attention_mask": np.array([attended]),
            "token_type_ids": np.zeros((1, len(ids)), np.int64),
        }
        hidden = self.session.run(None, inputs)[0][0].astype(np.float64)
        projected = np.array([self.head @ state for state in hidden])
        return np.array([row / np.sqrt((row * row).sum()) for row in projected])

    def score(self, query: str, passage: str) -> float:
        vocabulary = self.tokenizer.get_vocab()
        words = self.tokenizer.encode(query, add_special_tokens=False).ids[:29]
        ids = [vocabulary["[CLS]"], vocabulary["[unused0]"], *words, vocabulary["[SEP]"]]
        mask = [vocabulary["[MASK]"]] * (32 - len(ids))
        asked = self.rows(ids + mask, [1] * len(ids) + [0] * len(mask))
        words = self.tokenizer.encode(passage, add_special_tokens=False).ids[:297]
        ids = [vocabulary["[CLS]"], vocabulary["[unused1]"], *words, vocabulary["[SEP]"]]
        rows = self.rows(ids, [1] * len(ids))
        marks = {vocabulary[mark] for mark in string.punctuation}
        rows = np.array([row for row, token in zip(rows, ids, strict=True) if token not in marks])
        return float(sum(max(float(a @ b) for b in rows) for a in asked))


def test_scores_agree_with_a_plain_reference(colbert: OnnxLateInteraction) -> None:
    reference = Reference(clew.models.catalogue.model_path("colbert-small") or Path())
    encoded = colbert.encode_passages(PASSAGES)
    assert all(rows.shape[1] == colbert.dim == 96 for rows in encoded)
    for query in QUERIES:
        scores = colbert.score(colbert.encode_query(query), encoded)
        wanted = [reference.score(query, passage) for passage in PASSAGES]
        np.testing.assert_allclose(scores, wanted, atol=1e-2)


def test_the_answer_scores_best_and_a_text_counts_by_itself(colbert: OnnxLateInteraction) -> None:
    together = colbert.encode_passages(PASSAGES)
    scores = colbert.score(colbert.encode_query(QUERIES[0]), together)
    assert max(scores) == scores[0]
    np.testing.assert_array_equal(together[2], colbert.encode_passages([PASSAGES[2]])[0])
    assert colbert.encode_passages([]) == [] and colbert.score(together[0], []) == []


def test_rows_stand_for_tokens(colbert: OnnxLateInteraction) -> None:
    text = "Backups, daily."
    assert colbert.words(text) == ["", "", "Backups", "Backups", "daily", ""]
    for each in (text, *PASSAGES):
        assert len(colbert.words(each)) == len(colbert.encode_passages([each])[0])
    asked = colbert.words("how long", query=True)
    assert asked[:5] == ["", "", "how", "long", ""] and len(asked) == 32


def test_the_last_layer_is_the_published_one() -> None:
    wanted = "47d2690e7c1612c84b7b941e69a883e99190b9b44ebb0be00152f68966c6eb11"
    assert hashlib.sha256(HEAD.read_bytes()).hexdigest() == wanted
    assert find_model("colbert-small").identity == "colbert-small@4980983628c1"


def test_weights_that_are_not_here_say_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLEW_MODELS", str(tmp_path))
    with pytest.raises(ModelError, match="clew models pull colbert-small"):
        load_late_interaction("colbert-small")
    with pytest.raises(ConfigError, match="did you mean 'colbert-small'"):
        load_late_interaction("colbert-smal")
    assert not remove("colbert-small")


def test_an_entry_needs_its_widths(tmp_path: Path) -> None:
    text = clew.models.catalogue.SHIPPED.read_text().split("[colbert-small]")[1]
    file = tmp_path / "mine.toml"
    file.write_text("[colbert-small]" + text.replace("query_tokens = 32\n", ""))
    with pytest.raises(ConfigError, match="needs `dim` and `query_tokens`"):
        read_catalogue(file)
