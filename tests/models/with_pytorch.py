"""Models of the hub that have no graph: a tiny network through PyTorch, also on a card if any.

No part of `make test`: PyTorch is not in the lock file, since what it brings takes several GB.
Run it by `pip install torch transformers`, then `python -m pytest tests/models/with_pytorch.py`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

from clew.errors import ModelError
from clew.models import load_embedder
from hub_server import Hub
from servers import answering

SPEC = "hf:tiny/words"
WORDS = ["[UNK]", "keel", "bolt", "mast", "sail", "soup", "salt"]
TEXTS = ["keel bolt mast", "soup", "salt sail " * 30, "", "keel bolt mast"]
DIM = 128


@pytest.fixture(params=["cls_token", "mean_tokens"])
def hub(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Hub]:
    torch.manual_seed(1)
    config = transformers.BertConfig(
        vocab_size=len(WORDS),
        hidden_size=DIM,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=256,
    )
    transformers.BertModel(config).save_pretrained(tmp_path / "made")
    files = {file.name: file.read_bytes() for file in (tmp_path / "made").iterdir()}
    words = Tokenizer(WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]"))
    words.pre_tokenizer = Whitespace()
    pooling = {"word_embedding_dimension": DIM, f"pooling_mode_{request.param}": True}
    modules = [{"type": "sentence_transformers.models.Pooling", "path": "1_Pooling"}]
    files |= {
        "tokenizer.json": words.to_str().encode(),
        "modules.json": json.dumps(modules).encode(),
        "1_Pooling/config.json": json.dumps(pooling).encode(),
    }
    monkeypatch.setenv("CLEW_MODELS", str(tmp_path / "models"))
    with answering(Hub(files)) as made:
        monkeypatch.setenv("HF_ENDPOINT", made.url)
        yield made


def expected(folder: Path, pooling: str, text: str) -> np.ndarray:
    """As transformers says it, one text at a time and in single precision."""
    network = transformers.AutoModel.from_pretrained(folder).eval()
    ids = [WORDS.index(word) for word in text.split()]
    with torch.inference_mode():
        states = network(input_ids=torch.tensor([ids])).last_hidden_state[0].numpy()
    row = states[0] if pooling == "cls_token" else states.mean(axis=0)
    return np.asarray(row / np.linalg.norm(row))


@pytest.mark.parametrize("device", ["auto", "cpu", "cuda"])
def test_a_repository_with_safetensors_alone_runs_as_transformers_runs_it(
    hub: Hub, tmp_path: Path, device: str, request: pytest.FixtureRequest
) -> None:
    if device == "cuda" and not torch.cuda.is_available():
        with pytest.raises(ModelError, match="set `device` to auto or cpu"):
            load_embedder(SPEC, offline=False, device=device)
        return
    embedder = load_embedder(SPEC, offline=False, device=device)
    rows = embedder.embed_documents(TEXTS)
    assert rows.shape == (len(TEXTS), DIM) and rows.dtype == np.float32
    assert np.isfinite(rows).all()
    pooling = request.node.callspec.params["hub"]
    for text, row in zip(TEXTS, rows, strict=True):
        if text:
            assert row @ expected(tmp_path / "made", pooling, text) > 0.999
    assert embedder.embed_query("soup") @ rows[1] > 0.999


def test_other_weights_than_those_of_the_first_pull_are_refused(hub: Hub) -> None:
    load_embedder(SPEC, offline=False, device="cpu")
    from clew.models.download import pull, remove

    remove(SPEC)
    hub.files["model.safetensors"] += b"\0"
    with pytest.raises(ModelError, match="refused"):
        pull(SPEC)


def test_code_of_a_repository_is_not_asked_about(hub: Hub) -> None:
    config = json.loads(hub.files["config.json"])
    config |= {"model_type": "theirs", "auto_map": {"AutoModel": "theirs.Model"}}
    hub.files["config.json"] = json.dumps(config).encode()
    with pytest.raises(ModelError, match="cannot be loaded"):
        load_embedder(SPEC, offline=False).embed_query("keel")
