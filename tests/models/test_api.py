"""Against a real HTTP server that speaks the embeddings endpoint, well or badly."""

from __future__ import annotations

import base64
import email.utils
import logging
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from clew.errors import ModelError
from clew.models.api import ApiEmbedder
from clew.models.providers import PROVIDERS
from endpoint import (
    Endpoint,
    Handler,
    Reply,
    body,
    break_off,
    close,
    expected,
    open_embedder,
    status,
)
from servers import drip, hang


def changed(change: Callable[[list[dict[str, Any]]], Any]) -> Reply:
    """A proper answer's items, after `change`."""

    def reply(handler: Handler, body: dict[str, Any]) -> None:
        items = handler.items(body)
        handler.send_items(change(items) or items)

    return reply


@pytest.fixture(autouse=True)
def backoff(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clew.models.api.BACKOFF", 0.001)


def make(endpoint: Endpoint, **options: Any) -> ApiEmbedder:
    return open_embedder("openai:m", **{"base_url": endpoint.url, "api_key": "k", **options})


def test_documents_and_query(endpoint: Endpoint) -> None:
    embedder = make(endpoint)
    vectors = embedder.embed_documents(["one", "three"])
    np.testing.assert_allclose(vectors, expected(["one", "three"]), atol=1e-6)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(embedder.embed_query("q"), expected(["q"])[0], atol=1e-6)
    assert embedder.model == "openai:m"
    assert endpoint.keys[0] == "Bearer k"


def test_requests_are_bounded_by_count_and_by_characters(endpoint: Endpoint) -> None:
    texts = ["a" * n for n in (1, 2, 3, 4, 50, 5, 6)]
    embedder = make(endpoint, batch=3, batch_tokens=10)
    np.testing.assert_allclose(embedder.embed_documents(texts), expected(texts), atol=1e-6)
    sizes = [[len(text) for text in body["input"]] for body in endpoint.requests]
    assert sizes == [[1, 2, 3], [4], [50], [5, 6]]


def test_openai_gets_no_more_than_it_takes(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """2,048 texts and 300,000 tokens; counted here at four characters a token, as English has."""

    def too_much(request: dict[str, Any]) -> Reply | None:
        texts = request["input"]
        if len(texts) > 2048:
            return status(400, message="'$.input' is too long. Maximum length is 2048.")
        total = sum(len(text) for text in texts) // 4
        if total > 300_000:
            said = f"Requested {total} tokens, max 300000 tokens per request"
            return status(400, "max_tokens_per_request", message=said)
        return None

    endpoint.refuses = too_much
    provider = PROVIDERS["openai"]._replace(url=endpoint.url)
    monkeypatch.setitem(PROVIDERS, "openai", provider)
    embedder = open_embedder("openai:m", api_key="k")
    many, long = ["a"] * 5000, ["word " * 400] * 1000
    assert embedder.embed_documents(many + long).shape == (6000, 4)
    sizes = [len(request["input"]) for request in endpoint.requests]
    assert sizes[:2] == [2048, 2048] and sum(sizes) == 6000
    assert len(sizes) < 8, "nothing was refused, and no request was much smaller than it had to be"


@pytest.mark.parametrize(
    "refusal",
    [
        status(400, "max_tokens_per_request", message="max 300000 tokens per request"),
        status(400, message="This model's maximum context length is 512 tokens, however you asked"),
        status(400, "context_length_exceeded"),
        status(400, message="the input length exceeds the context length"),
        status(413, message="`inputs` must have less than 512 tokens. Given: 514"),
        status(429, "rate_limit_exceeded", message="Request too large for m on tokens per min"),
        status(500, message="input length exceeds maximum context length"),
    ],
)
def test_a_refused_text_is_shortened_until_it_is_taken(
    endpoint: Endpoint, refusal: Reply, caplog: pytest.LogCaptureFixture, slept: list[float]
) -> None:
    """Each server counts tokens in its own way: what was cut by a guess may still be too long."""
    endpoint.refuses = lambda asked: refusal if sum(map(len, asked["input"])) > 1000 else None
    texts = ["one", "x" * 3000, "three", "seventeen"]
    with caplog.at_level(logging.WARNING, "clew.models"):
        vectors = make(endpoint, query_prefix="q: ").embed_documents(texts)
    np.testing.assert_allclose(
        vectors, expected(["one", "x" * 750, "three", "seventeen"]), atol=1e-6
    )
    assert len(caplog.records) == 1 and "of a text of 3,000 characters" in caplog.text
    assert slept == []


def test_a_server_that_finds_everything_too_long_is_given_up_on(endpoint: Endpoint) -> None:
    endpoint.refuses = lambda asked: status(400, message="too long")
    with pytest.raises(ModelError, match="no text is longer than it reads"):
        make(endpoint).embed_documents(["a" * 1000] * 3)
    assert len(endpoint.requests) < 12


def test_roles_are_seen_by_the_server(endpoint: Endpoint) -> None:
    embedder = open_embedder("openai:e5-small", base_url=endpoint.url)
    embedder.embed_documents(["one", ""])
    embedder.embed_query("how many?")
    assert [request["input"] for request in endpoint.requests] == [
        ["passage: one", "passage:  "],
        ["query: how many?"],
    ]


def test_roles_of_ones_own_take_the_place_of_those_known(endpoint: Endpoint) -> None:
    embedder = open_embedder(
        "openai:e5-small", base_url=endpoint.url, document_prefix="d: ", query_prefix="q: "
    )
    embedder.embed_documents(["one"])
    embedder.embed_query("two")
    assert [request["input"] for request in endpoint.requests] == [["d: one"], ["q: two"]]


def test_a_prefix_is_not_cut_off_with_a_long_text(endpoint: Endpoint) -> None:
    open_embedder("openai:e5-small", base_url=endpoint.url).embed_query("word " * 9000)
    (text,) = endpoint.requests[0]["input"]
    assert text.startswith("query: word ") and len(text) < 4 * 512


def test_half_a_character_is_replaced(endpoint: Endpoint) -> None:
    """A command line may hold what is no Unicode; JSON may not."""
    make(endpoint).embed_query("caf\udce9")
    assert endpoint.requests[0]["input"] == ["caf?"]


def test_dim_is_measured_once_and_only_if_asked(endpoint: Endpoint) -> None:
    embedder = make(endpoint)
    assert endpoint.requests == []
    assert embedder.dim == 4
    assert embedder.dim == 4
    assert len(endpoint.requests) == 1
    assert embedder.embed_documents([]).shape == (0, 4)
    assert open_embedder("openai:text-embedding-3-small").dim == 1536


def test_a_given_dim_is_sent_and_becomes_part_of_the_identity(endpoint: Endpoint) -> None:
    embedder = make(endpoint, dim=8)
    assert embedder.model == "openai:m@8"
    assert embedder.embed_query("q").shape == (8,)
    assert endpoint.requests[0]["dimensions"] == 8
    make(endpoint).embed_query("q")
    assert "dimensions" not in endpoint.requests[1]


def test_empty_texts_are_not_sent_empty(endpoint: Endpoint) -> None:
    assert make(endpoint).embed_documents(["", "\n", "x"]).shape == (3, 4)
    assert endpoint.requests[0]["input"] == [" ", " ", "x"]


def test_order_is_by_index(endpoint: Endpoint) -> None:
    endpoint.script = [changed(lambda items: items[::-1])]
    texts = ["one", "three", "seventeen"]
    np.testing.assert_allclose(make(endpoint).embed_documents(texts), expected(texts), atol=1e-6)


def drop_first(items: list[dict[str, Any]]) -> None:
    del items[0]["index"]  # as Gemini does


def zero_all(items: list[dict[str, Any]]) -> None:
    for item in items:
        item["index"] = 0


def drop_all(items: list[dict[str, Any]]) -> None:
    for item in items:
        del item["index"]


def to_base64(items: list[dict[str, Any]]) -> None:
    for item in items:
        item["embedding"] = base64.b64encode(np.array(item["embedding"], "<f4").tobytes()).decode()


@pytest.mark.parametrize("quirk", [drop_first, zero_all, drop_all, to_base64])
def test_quirks_of_compatible_servers(endpoint: Endpoint, quirk: Callable[..., None]) -> None:
    endpoint.script = [changed(quirk)]
    texts = ["one", "three", "seventeen"]
    np.testing.assert_allclose(make(endpoint).embed_documents(texts), expected(texts), atol=1e-6)


def test_floats_are_asked_for(endpoint: Endpoint) -> None:
    make(endpoint).embed_query("q")
    assert endpoint.requests[0]["encoding_format"] == "float"


# ---------------------------------------------------------------- faults that pass


@pytest.mark.parametrize("code", [408, 429, 500, 502, 503])
def test_passing_faults_are_waited_out(endpoint: Endpoint, code: int) -> None:
    endpoint.script = [status(code), status(code)]
    assert make(endpoint).embed_query("q").shape == (4,)
    assert len(endpoint.requests) == 3


def test_retry_after_is_honoured(endpoint: Endpoint, slept: list[float]) -> None:
    endpoint.script = [status(429, retry_after="7"), status(503, retry_after="0.25")]
    make(endpoint).embed_query("q")
    assert slept == [7.0, 0.25]


def test_retry_after_may_be_a_date_and_is_bounded(endpoint: Endpoint, slept: list[float]) -> None:
    soon = email.utils.formatdate(time.time() + 20, usegmt=True)
    past = email.utils.formatdate(time.time() - 20, usegmt=True)
    endpoint.script = [
        status(429, retry_after=soon),
        status(429, retry_after=past),
        status(429, retry_after="86400"),
        status(429, retry_after="soon"),
    ]
    make(endpoint).embed_query("q")
    assert 10 < slept[0] <= 20
    assert slept[1:3] == [0.0, 60.0]
    assert 0 < slept[3] < 1


def test_waits_grow_and_are_never_quite_the_same(
    endpoint: Endpoint, slept: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clew.models.api.BACKOFF", 1.0)
    endpoint.script = [status(500)] * 5
    with pytest.raises(ModelError, match=r"answered 500 .*try again later"):
        make(endpoint).embed_query("q")
    assert len(endpoint.requests) == 5
    assert [2**n * 0.5 <= wait <= 2**n for n, wait in enumerate(slept)] == [True] * 4


def test_a_hanging_server_is_given_up_on(endpoint: Endpoint) -> None:
    endpoint.script = [hang, hang]
    with pytest.raises(ModelError, match=r"no answer within 0\.2 s, 2 times: is it running"):
        make(endpoint, timeout=0.2, retries=1).embed_query("q")


@pytest.mark.parametrize("fault", [close, break_off])
def test_a_connection_that_is_cut_is_opened_again(endpoint: Endpoint, fault: Reply) -> None:
    endpoint.script = [fault, fault]
    assert make(endpoint).embed_query("q").shape == (4,)
    assert len(endpoint.requests) == 3


@pytest.mark.parametrize("fault", [close, break_off])
def test_one_that_is_always_cut_is_given_up_on(endpoint: Endpoint, fault: Reply) -> None:
    endpoint.script = [fault] * 3
    with pytest.raises(ModelError, match=r"cannot be reached .*3 times: is it running"):
        make(endpoint, retries=2).embed_query("q")


def test_an_answer_that_trickles_in_is_not_waited_for_for_ever(endpoint: Endpoint) -> None:
    """Every byte starts the client's own time-out anew."""
    endpoint.script = [drip, drip]
    with pytest.raises(ModelError, match=r"no whole answer within 2\.4 s, 2 times"):
        make(endpoint, timeout=0.6, retries=1).embed_query("q")


def test_a_server_that_hangs_once_is_asked_again(endpoint: Endpoint) -> None:
    endpoint.script = [hang]
    assert make(endpoint, timeout=1.0).embed_query("q").shape == (4,)


def test_no_server_at_all(endpoint: Endpoint) -> None:
    nowhere = make(endpoint, base_url="http://127.0.0.1:1/v1", retries=1)
    with pytest.raises(ModelError, match=r"at http://127\.0\.0\.1:1/v1 cannot be reached"):
        nowhere.embed_query("q")


# ---------------------------------------------------------------- faults that stay


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        (status(401), "check the key in OPENAI_API_KEY"),
        (status(404), "check the model's name, and model_url"),
        (status(400), "check the model's name and `dim`"),
        (status(429, "insufficient_quota"), "quota is used up"),
    ],
)
def test_what_will_not_pass_is_not_repeated(endpoint: Endpoint, reply: Reply, message: str) -> None:
    endpoint.script = [reply]
    with pytest.raises(ModelError, match=message):
        make(endpoint).embed_query("q")
    assert len(endpoint.requests) == 1


def set_first(key: str, value: Any) -> Callable[[list[dict[str, Any]]], None]:
    def change(items: list[dict[str, Any]]) -> None:
        items[0][key] = value

    return change


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        (body(b'{"data": [{"ind'), "answer that cannot be read"),
        (body(b"[]"), "not a list of vectors"),
        (body(b'{"data": 3}'), "not a list of vectors"),
        (body(b"{}"), "not a list of vectors"),
        (changed(lambda items: items[:1]), r"sent vectors \[0\] for 2 texts"),
        (changed(lambda items: [*items, *items]), "for 2 texts"),
        (changed(set_first("index", 1)), r"sent vectors \[1, 1\] for 2 texts"),
        (changed(set_first("index", -1)), "for 2 texts"),
        (changed(set_first("index", "zero")), "not a list of vectors"),
        (changed(set_first("embedding", [1.0, 2.0])), "a vector of 4 numbers where 2"),
        (changed(set_first("embedding", [1.0, float("nan"), 0.0, 0.0])), "not finite"),
        (changed(set_first("embedding", [1.0, float("inf"), 0.0, 0.0])), "not finite"),
        (changed(set_first("embedding", [])), "empty or not finite"),
        (changed(set_first("embedding", None)), "empty or not finite"),
        (changed(set_first("embedding", "%%%")), "not a list of vectors|empty"),
        (changed(set_first("embedding", [[1.0], [2.0]])), "empty or not finite"),
    ],
)
def test_a_wrong_answer_is_refused(endpoint: Endpoint, reply: Reply, message: str) -> None:
    endpoint.script = [reply]
    with pytest.raises(ModelError, match=message) as caught:
        make(endpoint).embed_documents(["one", "three"])
    assert str(caught.value).startswith(f"openai:m at {endpoint.url} ")


def test_a_model_that_changes_its_length_is_refused(endpoint: Endpoint) -> None:
    embedder = make(endpoint)
    embedder.embed_query("q")
    endpoint.dim = 5
    with pytest.raises(ModelError, match="a vector of 5 numbers where 4 were expected"):
        embedder.embed_query("q")


def test_a_vector_of_zeros_has_no_direction_and_no_nan(endpoint: Endpoint) -> None:
    endpoint.script = [changed(set_first("embedding", [0.0] * 4))]
    assert make(endpoint).embed_query("q").tolist() == [0.0] * 4


# ---------------------------------------------------------------- settings


def test_key_and_url_come_from_the_environment(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", endpoint.url)
    monkeypatch.setenv("OPENAI_API_KEY", "from-env")
    open_embedder("openai:m").embed_query("q")
    assert endpoint.keys == ["Bearer from-env"]


def test_a_server_of_ones_own_needs_no_key(endpoint: Endpoint) -> None:
    assert make(endpoint, api_key=None).embed_query("q").shape == (4,)


def test_openai_itself_does(endpoint: Endpoint) -> None:
    with pytest.raises(ModelError, match="openai:m needs a key: set OPENAI_API_KEY, or model_url"):
        open_embedder("openai:m").embed_query("q")


def test_the_missing_extra_is_named(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openai", None)
    embedder = make(endpoint)
    assert embedder.model == "openai:m"
    with pytest.raises(ModelError, match=r"pip install 'clew-search\[openai\]'"):
        embedder.embed_query("q")
