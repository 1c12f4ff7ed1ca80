"""Gemini, over real HTTP: its own method where it takes roles, the compatible one elsewhere."""

from __future__ import annotations

import logging
import sys
from functools import partial
from typing import Any

import numpy as np
import pytest

from clew.config import Config
from clew.errors import ModelError
from clew.models import load_configured, load_embedder
from clew.models.api import ApiEmbedder
from clew.models.chat import load_llm
from endpoint import (
    Endpoint,
    Reply,
    body,
    break_off,
    close,
    google,
    open_embedder,
    status,
)
from endpoint import expected as endpoint_expected
from servers import hang

NATIVE = "/v1beta/models/gemini-embedding-001:batchEmbedContents"


@pytest.fixture
def relay(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> Endpoint:
    """Stands where Google's own host would."""
    monkeypatch.setenv("GOOGLE_GEMINI_BASE_URL", endpoint.url.removesuffix("/v1"))
    monkeypatch.setenv("GEMINI_API_KEY", "g")
    endpoint.dim = 3072
    return endpoint


@pytest.fixture(autouse=True)
def backoff(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clew.models.api.BACKOFF", 0.001)


def make(name: str = "gemini-embedding-001", **options: Any) -> ApiEmbedder:
    return open_embedder(f"gemini:{name}", **options)


expected = partial(endpoint_expected, dim=3072)


def sent(request: dict[str, Any]) -> list[str]:
    return [each["content"]["parts"][0]["text"] for each in request["requests"]]


def test_documents_and_queries_are_sent_as_what_they_are(relay: Endpoint) -> None:
    embedder = load_embedder("gemini")
    vectors = embedder.embed_documents(["one", "three"])
    np.testing.assert_allclose(vectors, expected(["one", "three"]), atol=1e-6)
    embedder.embed_query("how many?")
    assert relay.paths == [NATIVE, NATIVE]
    documents, query = relay.requests
    assert sent(documents) == ["one", "three"] and sent(query) == ["how many?"]
    assert {each["taskType"] for each in documents["requests"]} == {"RETRIEVAL_DOCUMENT"}
    assert {each["taskType"] for each in query["requests"]} == {"RETRIEVAL_QUERY"}
    assert {each["model"] for each in documents["requests"]} == {"models/gemini-embedding-001"}
    assert "outputDimensionality" not in query["requests"][0]


def test_the_key_is_sent_once_and_nothing_of_an_openai_account(
    relay: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Google refuses a request with two credentials."""
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    monkeypatch.setenv("OPENAI_ORG_ID", "org")
    monkeypatch.setenv("OPENAI_PROJECT_ID", "project")
    make().embed_query("q")
    make("gemini-embedding-2").embed_query("q")
    own, compatible = relay.headers
    assert own["x-goog-api-key"] == "g" and "authorization" not in own
    assert compatible["authorization"] == "Bearer g" and "x-goog-api-key" not in compatible
    for headers in relay.headers:
        assert not {"openai-organization", "openai-project"} & set(headers)
        assert "secret" not in str(headers)


@pytest.mark.parametrize("names", [("GEMINI_API_KEY", "GOOGLE_API_KEY"), ("GOOGLE_API_KEY",)])
def test_the_key_comes_from_either_variable(
    relay: Endpoint, monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...]
) -> None:
    monkeypatch.delenv("GEMINI_API_KEY")
    for name in reversed(names):
        monkeypatch.setenv(name, name.lower())
    make().embed_query("q")
    assert relay.headers[0]["x-goog-api-key"] == names[0].lower()


def test_shorter_vectors_are_asked_for_and_of_length_one(relay: Endpoint) -> None:
    """Gemini's own are so only in full length."""
    embedder = load_embedder("gemini:gemini-embedding-001@768")
    vector = embedder.embed_query("q")
    assert relay.requests[0]["requests"][0]["outputDimensionality"] == 768
    assert vector.shape == (768,) and embedder.dim == 768
    assert np.linalg.norm(vector) == pytest.approx(1.0)
    assert embedder.model.startswith("gemini:gemini-embedding-001@768#")


def test_a_model_with_prefixes_is_asked_by_the_compatible_endpoint(relay: Endpoint) -> None:
    embedder = make("gemini-embedding-2@64")
    embedder.embed_documents(["one"])
    embedder.embed_query("q")
    assert relay.paths == ["/v1beta/openai/embeddings"] * 2
    assert [request["input"] for request in relay.requests] == [
        ["title: none | text: one"],
        ["task: search result | query: q"],
    ]
    assert relay.requests[0]["dimensions"] == 64


def test_an_endpoint_of_the_settings_wins_and_gets_no_field_it_may_not_know(
    endpoint: Endpoint,
) -> None:
    config = Config(model="gemini", model_url=endpoint.url)
    endpoint.dim = 3072
    embedder = load_configured(config)
    assert embedder.embed_query("q").shape == (3072,)
    assert endpoint.paths == ["/v1/embeddings"]
    assert set(endpoint.requests[0]) == {"model", "input", "encoding_format"}
    assert embedder.model == "gemini:gemini-embedding-001"


def test_a_hundred_texts_are_the_most_of_one_request(relay: Endpoint) -> None:
    def too_many(request: dict[str, Any]) -> Reply | None:
        if len(request["requests"]) <= 100:
            return None
        return google(400, "BatchEmbedContentsRequest.requests: at most 100 requests can be in one")

    relay.refuses = too_many
    texts = [f"text {i}" for i in range(250)]
    vectors = make().embed_documents(texts)
    np.testing.assert_allclose(vectors, expected(texts), atol=1e-6)
    assert [len(request["requests"]) for request in relay.requests] == [100, 100, 50]


def test_a_text_longer_than_it_reads_is_cut_and_the_log_says_so_once(
    relay: Endpoint, caplog: pytest.LogCaptureFixture
) -> None:
    embedder = make()
    with caplog.at_level(logging.WARNING, "clew.models"):
        embedder.embed_documents(["word " * 20_000, "short", "字" * 20_000])
        embedder.embed_query("word " * 20_000)
    long, short, chinese = (len(text) for request in relay.requests[:-1] for text in sent(request))
    assert 2048 < long < 8 * 2048 and short == 5 and chinese <= 2048
    assert len(sent(relay.requests[-1])[0]) == long
    assert len(caplog.records) == 1
    assert "reads 2,048 tokens" in caplog.text and "100,000 characters" in caplog.text


# ---------------------------------------------------------------- faults


def test_it_waits_as_long_as_the_body_says(relay: Endpoint, slept: list[float]) -> None:
    delay = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "39.5s"}
    relay.script = [google(429, "Resource has been exhausted", delay), status(429, retry_after="2")]
    make().embed_query("q")
    assert slept == [39.5, 2.0]


@pytest.mark.parametrize("name", ["gemini-embedding-001", "gemini-embedding-2"])
def test_a_quota_of_a_day_is_not_waited_for(relay: Endpoint, slept: list[float], name: str) -> None:
    used_up = {"violations": [{"quotaId": "EmbedContentRequestsPerDayPerUserPerProjectPerModel"}]}
    relay.script = [google(429, "You exceeded your current quota", used_up)]
    with pytest.raises(ModelError, match="quota is used up: wait, or raise it"):
        make(name).embed_query("q")
    assert slept == [] and len(relay.requests) == 1


@pytest.mark.parametrize("name", ["gemini-embedding-001", "gemini-embedding-2"])
def test_a_wrong_key_is_named_although_the_answer_is_400(relay: Endpoint, name: str) -> None:
    relay.script = [google(400, "API key not valid.", {"reason": "API_KEY_INVALID"})]
    with pytest.raises(ModelError, match="check the key in GEMINI_API_KEY or GOOGLE_API_KEY"):
        make(name).embed_query("q")
    assert len(relay.requests) == 1


def test_no_key_at_all_is_said_before_anything_is_sent(
    relay: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GEMINI_API_KEY")
    monkeypatch.setenv("OPENAI_API_KEY", "not meant for Google")
    with pytest.raises(ModelError, match="needs a key: set GEMINI_API_KEY or GOOGLE_API_KEY, or"):
        make().embed_query("q")
    assert relay.requests == []


@pytest.mark.parametrize("fault", [status(500), status(503), close, break_off])
def test_a_fault_that_passes_is_waited_out(relay: Endpoint, fault: Reply) -> None:
    relay.script = [fault, fault]
    assert make().embed_query("q").shape == (3072,)
    assert len(relay.requests) == 3


def test_a_server_that_hangs_is_given_up_on(relay: Endpoint) -> None:
    relay.script = [hang, hang]
    with pytest.raises(ModelError, match=r"no answer within 0\.2 s, 2 times"):
        make(timeout=0.2, retries=1).embed_query("q")


def values(*rows: list[float]) -> Reply:
    text = '{"embeddings": [' + ", ".join(f'{{"values": {row}}}' for row in rows) + "]}"
    return body(text.replace("nan", "NaN").encode())


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        (body(b'{"embeddings": [{"val'), "answer that cannot be read|not a list of vectors"),
        (body(b"[]"), "not a list of vectors"),
        (body(b"{}"), "not a list of vectors"),
        (body(b'{"embeddings": [{}, {}]}'), "not a list of vectors"),
        (body(b'{"embeddings": null}'), "not a list of vectors"),
        (values([1.0] * 3072), r"sent vectors \[0\] for 2 texts"),
        (values([1.0] * 768, [1.0] * 768), "a vector of 768 numbers where 3072 .*001@768"),
        (values([float("nan")] * 3072, [1.0] * 3072), "not finite"),
        (values([], []), "empty or not finite"),
    ],
)
def test_a_wrong_answer_is_refused(relay: Endpoint, reply: Reply, message: str) -> None:
    relay.script = [reply]
    with pytest.raises(ModelError, match=message):
        make().embed_documents(["one", "three"])


def test_the_missing_extra_is_named(relay: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openai", None)
    with pytest.raises(ModelError, match=r"pip install 'clew-search\[openai\]'"):
        make().embed_query("q")


# ---------------------------------------------------------------- chat


def test_a_chat_model_of_gemini_is_asked_at_its_address_with_its_key(relay: Endpoint) -> None:
    llm = load_llm(Config(llm="gemini:gemini-2.5-flash"))
    assert llm is not None and llm.model == "gemini-2.5-flash"
    assert llm.complete("s", "p", seconds=5) == "[]"
    assert relay.paths == ["/v1beta/openai/chat/completions"]
    assert relay.keys == ["Bearer g"]
