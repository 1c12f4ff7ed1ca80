"""Models of the hub, from a server that speaks its protocol, with a tiny graph made here."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

import clew
from clew.errors import ConfigError, ModelError
from clew.models import load_embedder, model_name, traits
from clew.models.catalogue import models_dir
from clew.models.download import installed, pull, remove
from clew.models.hub import list_entries
from hub_server import Hub
from servers import answering

WORDS = ["[UNK]", "keel", "bolt", "mast", "sail", "soup", "salt", "ask:", "a", "b"]
SPEC = "hf:tiny/words"
DIM = 8


def graph(seed: int = 0) -> bytes:
    """A table of words, looked up: what a transformer's first layer does."""
    table = np.random.default_rng(seed).normal(size=(len(WORDS), DIM)).astype(np.float32)
    names = ("input_ids", "attention_mask")
    inputs = [helper.make_tensor_value_info(n, TensorProto.INT64, [1, None]) for n in names]
    outputs = [
        helper.make_tensor_value_info("last_hidden_state", TensorProto.FLOAT, [1, None, DIM])
    ]
    nodes = [
        helper.make_node("Gather", ["table", "input_ids"], ["found"]),
        helper.make_node("Cast", ["attention_mask"], ["mask"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["mask", "last"], ["column"]),
        helper.make_node("Mul", ["found", "column"], ["last_hidden_state"]),
    ]
    weights = [
        numpy_helper.from_array(table, "table"),
        numpy_helper.from_array(np.array([-1], np.int64), "last"),
    ]
    made = helper.make_graph(nodes, "words", inputs, outputs, weights)
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(model)
    return bytes(model.SerializeToString())


def tokenizer() -> bytes:
    made = Tokenizer(WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]"))
    made.pre_tokenizer = Whitespace()
    return made.to_str().encode()


def repository(pooling: str = "mean_tokens") -> dict[str, bytes]:
    configs = {
        "config.json": {"hidden_size": DIM, "max_position_embeddings": 512},
        "modules.json": [
            {"type": "sentence_transformers.models.Transformer", "path": ""},
            {"type": "sentence_transformers.models.Pooling", "path": "1_Pooling"},
            {"type": "sentence_transformers.models.Normalize", "path": "2_Normalize"},
        ],
        "1_Pooling/config.json": {
            "word_embedding_dimension": DIM,
            f"pooling_mode_{pooling}": True,
            "pooling_mode_max_tokens": False,
        },
        "config_sentence_transformers.json": {"prompts": {"query": "ask: ", "document": ""}},
        "sentence_bert_config.json": {"max_seq_length": 4},
    }
    files = {name: json.dumps(value).encode() for name, value in configs.items()}
    return {**files, "tokenizer.json": tokenizer(), "onnx/model.onnx": graph()}


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    monkeypatch.setenv("CLEW_MODELS", str(tmp_path / "models"))
    traits.cache_clear()
    with answering(Hub(repository())) as made:
        monkeypatch.setenv("HF_ENDPOINT", made.url)
        yield made
    traits.cache_clear()


def test_a_model_runs_as_its_own_configuration_says(hub: Hub) -> None:
    assert model_name(SPEC) == SPEC
    assert not load_embedder(SPEC).dim  # offline: nothing is fetched
    assert hub.asked == []
    embedder = load_embedder(SPEC, offline=False)
    assert embedder.dim == DIM
    assert embedder.model == model_name(SPEC)
    assert re.fullmatch(r"hf:tiny/words@[0-9a-f]{12}", embedder.model)
    table = np.random.default_rng(0).normal(size=(len(WORDS), DIM)).astype(np.float32)

    def mean(*words: str) -> np.ndarray:
        row = table[[WORDS.index(word) for word in words]].mean(axis=0)
        return row / np.linalg.norm(row)

    rows = embedder.embed_documents(["keel bolt", "a b keel bolt mast sail"])
    np.testing.assert_allclose(rows[0], mean("keel", "bolt"), atol=1e-6)
    np.testing.assert_allclose(rows[1], mean("a", "b", "keel", "bolt"), atol=1e-6)  # four tokens
    # "ask:" is two tokens to a tokenizer that parts punctuation: [UNK] twice
    query = embedder.embed_query("mast")
    np.testing.assert_allclose(query, mean("[UNK]", "[UNK]", "mast"), atol=1e-6)
    assert traits(embedder.model).gauged
    assert installed()[SPEC].parent == models_dir()


def test_the_first_token_speaks_where_the_repository_says_so(hub: Hub) -> None:
    hub.files = repository("cls_token")
    row = load_embedder(SPEC, offline=False).embed_documents(["keel bolt"])[0]
    table = np.random.default_rng(0).normal(size=(len(WORDS), DIM)).astype(np.float32)
    np.testing.assert_allclose(row, table[1] / np.linalg.norm(table[1]), atol=1e-6)


def test_a_folder_is_searched_by_such_a_model(hub: Hub, tmp_path: Path) -> None:
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "boat.md").write_text("keel bolt mast", "utf-8")
    (folder / "food.md").write_text("soup salt", "utf-8")
    with clew.open(folder, model=SPEC) as engine:
        assert engine.index().embedded == 2
        assert engine.status()["model"] == model_name(SPEC)
        found = engine.search("sail keel", limit=1)
        assert found[0].path == "boat.md"
        assert found.trace["sources"]["vectors"]["count"] == 2


def test_files_that_changed_since_the_pull_are_refused(hub: Hub) -> None:
    folder = pull(SPEC)
    identity = model_name(SPEC)
    (folder / "model.onnx").write_bytes(graph(seed=1))
    with pytest.raises(ModelError, match="not those of its first pull"):
        load_embedder(SPEC)
    remove(SPEC)
    hub.files["onnx/model.onnx"] = graph(seed=1)
    with pytest.raises(ModelError, match="refused"):
        pull(SPEC)
    from clew.models.hub import forget_entry

    forget_entry(SPEC)  # what --renew does
    pull(SPEC)
    assert model_name(SPEC) != identity


def test_a_hub_that_answers_with_a_page_is_named(hub: Hub) -> None:
    hub.page = b"<html>Please log in</html>"
    with pytest.raises(ModelError, match="web page"):
        pull(SPEC)
    assert not installed().get(SPEC)


def test_a_pull_that_was_cut_off_leaves_nothing_half(hub: Hub) -> None:
    whole = hub.files.pop("tokenizer.json")
    with pytest.raises(ModelError, match=r"tokenizer\.json"):
        pull(SPEC)
    assert not load_embedder(SPEC).dim
    hub.files["tokenizer.json"] = whole
    assert load_embedder(SPEC, offline=False).dim == DIM


def test_two_that_pull_at_once_bring_it_once(hub: Hub) -> None:
    with ThreadPoolExecutor(2) as pool:
        one, other = pool.map(pull, [SPEC, SPEC])
    assert one == other
    assert load_embedder(SPEC).dim == DIM
    assert sum("model.onnx" in path for path in hub.asked) == 2  # how long it is, and it


def test_what_is_left_of_another_revision_is_not_gone_on_with(hub: Hub) -> None:
    staging = models_dir() / ".hf--tiny--words.first"
    staging.mkdir(parents=True)
    (staging / "model.onnx.part").write_bytes(graph(seed=1)[:-9])
    folder = pull(SPEC)
    assert (folder / "model.onnx").read_bytes() == graph()
    assert not list(folder.glob("*part"))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"modules.json": [{"type": "sentence_transformers.models.Dense", "path": "d"}]}, "Dense"),
        ({"1_Pooling/config.json": {"pooling_mode_max_tokens": True}}, "cls or mean"),
        (
            {"config.json": {}, "1_Pooling/config.json": {"pooling_mode_cls_token": True}},
            "how long",
        ),
    ],
)
def test_what_clew_does_not_run_is_said(hub: Hub, change: dict[str, object], said: str) -> None:
    hub.files |= {name: json.dumps(value).encode() for name, value in change.items()}
    with pytest.raises(ModelError, match=said):
        pull(SPEC)


def test_weights_of_pytorch_need_pytorch(hub: Hub) -> None:
    del hub.files["onnx/model.onnx"]
    with pytest.raises(ModelError, match="neither an ONNX graph"):
        pull(SPEC)
    hub.files["model.safetensors"] = b"weights"
    with pytest.raises(ModelError, match=r"clew-search\[gpu\]"):
        pull(SPEC)
    assert not any("safetensors" in path for path in hub.asked)  # it is not fetched in vain


def test_a_model_that_is_not_there(hub: Hub) -> None:
    with pytest.raises(ModelError, match="no such model"):
        pull("hf:tiny/other")
    with pytest.raises(ModelError, match=r"no onnx/x\.onnx"):
        pull(f"{SPEC}/onnx/x.onnx")
    for wrong in ("hf:tiny", "hf:tiny/", "hf:../..", "hf:a/b/../c"):
        with pytest.raises((ConfigError, ModelError)):
            load_embedder(wrong, offline=False)


def test_a_card_that_is_not_there_is_said(hub: Hub, tmp_path: Path) -> None:
    pull(SPEC)
    for device in ("cuda", "mps"):
        with pytest.raises(ModelError, match="set `device` to auto or cpu"):
            load_embedder(SPEC, device=device).embed_query("keel")
    assert load_embedder(SPEC, device="cpu").embed_query("keel").shape == (DIM,)
    with pytest.raises(ConfigError, match="device"):
        clew.open(tmp_path / "x", device="tpu")


@pytest.mark.parametrize("name", sorted(set(repository()) - {"onnx/model.onnx"}))
@pytest.mark.parametrize("said", ["[3]", '"x"', "[" * 100_000, '{"type": 3, "hidden_size": "x"}'])
def test_a_repository_that_makes_no_sense_is_a_model_error(hub: Hub, name: str, said: str) -> None:
    """All of them may be taken, where what they say is not asked for; nothing else leaves."""
    hub.files[name] = said.encode()
    with contextlib.suppress(ModelError):
        pull(SPEC)
    list_entries()


@pytest.mark.parametrize(
    "said", ["[]", "3", '{"siblings": 3}', '{"siblings": [3]}', '{"cardData": "x"}', "[" * 100_000]
)
def test_a_hub_that_makes_no_sense_is_a_model_error(hub: Hub, said: str) -> None:
    hub.page = said.encode()
    with pytest.raises(ModelError, match=r"no sense|no JSON object|has no"):
        pull(SPEC)


def test_what_was_noted_and_cannot_be_read_is_said(hub: Hub) -> None:
    pull(SPEC)
    file = next(models_dir().glob("hf--*.json"))
    for said in ("[]", "x", '{"files": [3]}', "[" * 100_000):
        file.write_text(said)
        for look in (list_entries, lambda: load_embedder(SPEC)):
            with pytest.raises(ModelError, match=r"cannot be read .* delete it"):
                look()


def test_a_password_in_the_address_of_a_mirror_is_not_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLEW_MODELS", str(tmp_path))
    monkeypatch.setenv("HF_ENDPOINT", "http://user:hunter2@127.0.0.1:9")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    for spec in (SPEC, "bge-small"):
        with pytest.raises(ModelError, match="HF_TOKEN") as raised:
            pull(spec)
        assert "hunter2" not in str(raised.value)


def test_a_mirror_without_a_scheme_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLEW_MODELS", str(tmp_path))
    monkeypatch.setenv("HF_ENDPOINT", "hub.example")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    for spec in (SPEC, "bge-small"):
        with pytest.raises(ModelError, match="write https://HOST"):
            pull(spec)
