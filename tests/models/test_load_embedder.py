from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from clew.config import check_model
from clew.errors import ConfigError, ModelError
from clew.models import NullEmbeddingProvider, load_embedder
from clew.models.api import ApiEmbedder
from clew.models.onnx import OnnxEmbedder


def test_weights_that_are_here_are_loaded(embedder: OnnxEmbedder) -> None:
    loaded = load_embedder("bge-small", threads=1)
    assert isinstance(loaded, OnnxEmbedder)
    assert loaded.model == embedder.model
    assert loaded.embed_query("energy").shape == (384,)


def test_weights_that_are_not_here_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLEW_MODELS", str(tmp_path / "empty"))
    loaded = load_embedder("bge-small")
    assert isinstance(loaded, NullEmbeddingProvider)
    assert (loaded.model, loaded.dim) == ("none", 0)
    for call in (lambda: loaded.embed_query("x"), lambda: loaded.embed_documents(["x"])):
        with pytest.raises(ModelError, match="run `clew models pull bge-small`"):
            call()
    assert not (tmp_path / "empty").exists()


def test_not_offline_fetches_them_and_a_failure_is_the_reason(
    embedder: OnnxEmbedder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from clew.models.catalogue import model_path

    source = model_path("bge-small")
    assert source is not None
    monkeypatch.setenv("CLEW_MODELS", str(tmp_path / "models"))
    failed = load_embedder("bge-small", offline=False, folder=tmp_path)
    assert isinstance(failed, NullEmbeddingProvider) and "has no model.onnx" in failed.reason
    fetched = load_embedder("bge-small", offline=False, folder=source)
    assert isinstance(fetched, OnnxEmbedder)


def test_none_is_a_model() -> None:
    with pytest.raises(ModelError, match="no embedding model is configured"):
        load_embedder("none").embed_query("x")


def test_an_endpoint() -> None:
    loaded = load_embedder("openai:any-model:v1.5", base_url="http://localhost:1/v1", dim=64)
    assert isinstance(loaded, ApiEmbedder)
    assert (loaded.model, loaded.dim) == ("openai:any-model:v1.5@64", 64)


@pytest.mark.parametrize(
    "spec", ["bge-smal", "", "nope", "openai:", "gemini:", "gemnii:x", "reranker-en"]
)
def test_a_name_that_is_no_embedder_gets_the_list_of_those_that_are(spec: str) -> None:
    for use in (load_embedder, check_model):
        with pytest.raises(ConfigError, match=r"bge-small, minilm .*none.*gemini:NAME") as caught:
            use(spec)
        assert repr(spec) in str(caught.value)
        assert ("is a reranker" in str(caught.value)) == (spec == "reranker-en")


@pytest.mark.parametrize(
    "spec",
    ["bge-small", "minilm", "none", "openai:any", "openai:a:b", "gemini", "gemini:x", "auto-api"],
)
def test_a_name_that_is_one_passes(spec: str) -> None:
    check_model(spec)


def test_loading_an_embedder_imports_nothing_heavy(embedder: OnnxEmbedder) -> None:
    """Only embedding may pay for these: a search by words never does."""
    script = (
        "import sys; from clew.models import load_embedder; "
        "load_embedder('bge-small'); load_embedder('openai:x'); load_embedder('none'); "
        "load_embedder('gemini'); load_embedder('auto-api'); "
        "print([name for name in ('onnxruntime', 'tokenizers', 'openai', 'ssl', 'filelock') "
        "if name in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
