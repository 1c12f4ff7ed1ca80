"""Which embedder there is where nobody names one, and that a key alone sends nothing anywhere."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import clew
from clew.config import Config, load
from clew.errors import ModelError
from clew.models import (
    NullEmbeddingProvider,
    default_embedder,
    load_embedder,
    why_missing,
)
from clew.models.api import ApiEmbedder
from clew.models.onnx import OnnxEmbedder
from endpoint import Endpoint

KEYS = ("OPENAI_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY")


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*KEYS, "OPENAI_BASE_URL", "CLEW_MODEL", "CLEW_MODEL_URL"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def no_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLEW_MODELS", str(tmp_path / "empty"))


def null(config: Config | None = None) -> NullEmbeddingProvider:
    found = default_embedder(config)
    assert isinstance(found, clew.NullEmbeddingProvider)
    with pytest.raises(ModelError) as caught:
        found.embed_query("x")
    assert str(caught.value) == found.reason
    return found


def test_the_public_name_and_the_inner_one_are_one_class() -> None:
    assert clew.NullEmbeddingProvider is NullEmbeddingProvider
    assert isinstance(load_embedder("none"), clew.NullEmbeddingProvider)
    provider = clew.NullEmbeddingProvider("for a reason")
    assert (provider.model, provider.dim, provider.reason) == ("none", 0, "for a reason")


@pytest.mark.parametrize("model", ["bge-small", "auto-api"])
def test_the_bundled_model_comes_first(
    embedder: OnnxEmbedder, monkeypatch: pytest.MonkeyPatch, model: str
) -> None:
    for name in KEYS:
        monkeypatch.setenv(name, "k")
    found = default_embedder(Config(model=model))
    assert isinstance(found, OnnxEmbedder) and found.model == embedder.model


def test_without_weights_it_says_what_to_do(no_weights: None) -> None:
    found = null()
    assert found.reason == (
        "the weights of 'bge-small' are not on this machine: run `clew models pull bge-small`"
    )


@pytest.mark.parametrize("key", KEYS)
def test_a_key_alone_sends_nothing_anywhere(
    no_weights: None, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    monkeypatch.setenv(key, "k")
    assert "set `model` to auto-api, which sends texts to the API of your key" in null().reason
    assert isinstance(load_embedder("bge-small"), NullEmbeddingProvider)


@pytest.mark.parametrize(
    ("keys", "model"),
    [
        (("GEMINI_API_KEY",), "gemini:gemini-embedding-001"),
        (("GOOGLE_API_KEY",), "gemini:gemini-embedding-001"),
        (("OPENAI_API_KEY",), "openai:text-embedding-3-small"),
        (KEYS, "gemini:gemini-embedding-001"),
    ],
)
def test_auto_api_takes_the_api_whose_key_is_there(
    no_weights: None, monkeypatch: pytest.MonkeyPatch, keys: tuple[str, ...], model: str
) -> None:
    for name in keys:
        monkeypatch.setenv(name, "k")
    monkeypatch.setenv("CLEW_MODEL", "auto-api")
    found = default_embedder(load())
    assert isinstance(found, ApiEmbedder)
    assert found.model.partition("#")[0] == model
    assert found.dim == {"g": 3072, "o": 1536}[model[0]]


def test_auto_api_without_weights_or_key_names_both(no_weights: None) -> None:
    reason = null(Config(model="auto-api")).reason
    assert "run `clew models pull bge-small`, or set OPENAI_API_KEY or GEMINI_API_KEY" in reason


@pytest.mark.parametrize("model", ["gemini", "gemini:gemini-embedding-001@768", "openai:x"])
def test_a_named_api_without_a_key_is_none(model: str) -> None:
    assert "needs a key: set " in null(Config(model=model)).reason


def test_an_endpoint_of_ones_own_needs_no_key(endpoint: Endpoint) -> None:
    found = default_embedder(Config(model="openai:m", model_url=endpoint.url))
    assert found.embed_query("q").shape == (4,)


def test_an_api_without_its_extra_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEMINI_API_KEY", "k")
    monkeypatch.setitem(sys.modules, "openai", None)
    assert null(Config(model="gemini")).reason.endswith("pip install 'clew-search[openai]'")


def test_none_is_none() -> None:
    assert "set `model` to bge-small" in null(Config(model="none")).reason


def test_an_api_that_is_ready_is_said_to_be_without_asking_it(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert why_missing("openai:m", base_url=endpoint.url) is None
    monkeypatch.setenv("GEMINI_API_KEY", "k")
    assert why_missing("gemini") is None
    assert endpoint.requests == []


def test_a_store_says_why_an_api_is_not_ready_and_asks_nobody(
    endpoint: Endpoint, tmp_path: Path
) -> None:
    with clew.open(tmp_path / "a", model="gemini") as engine:
        state = engine.status()
        assert not state["ready"] and "set GEMINI_API_KEY" in state["why_not"]
        assert state["model"].startswith("gemini:gemini-embedding-001#")
    with clew.open(tmp_path / "b", model="openai:m", model_url=endpoint.url) as engine:
        assert engine.embedder.model == "openai:m"
        state = engine.status()
        assert state["ready"] and state["model"] == "openai:m"
    assert endpoint.requests == []


def test_a_store_embeds_documents_and_queries_in_their_roles(
    endpoint: Endpoint, tmp_path: Path
) -> None:
    settings = {"model_url": endpoint.url, "model_query_prefix": "ask: "}
    with clew.open(tmp_path, model="openai:nomic-embed-text", **settings) as engine:
        endpoint.dim = 768
        engine.add([{"id": "a", "content": "Granite is a coarse rock."}])
        engine.embed()
        engine.search("coarse rock")
        model = engine.status()["model"]
    texts = [text for request in endpoint.requests for text in request["input"]]
    assert any(text.startswith("search_document: ") and "Granite" in text for text in texts)
    assert "ask: coarse rock" in texts
    with clew.open(tmp_path, model="openai:nomic-embed-text", model_url=endpoint.url) as engine:
        state = engine.status()
        assert state["model"] != model and model in state["other_models"]
