"""The chat model's client, against a real HTTP server that answers well or badly."""

from __future__ import annotations

import email.utils
import sys
import time
from typing import Any

import pytest

from clew.config import Config
from clew.errors import ModelError
from clew.models.chat import UNNAMED, ApiLLM, load_llm
from endpoint import Endpoint, Reply, body, break_off, close, message, status
from servers import drip, hang


def make(endpoint: Endpoint, **options: Any) -> ApiLLM:
    return ApiLLM("m", **{"base_url": endpoint.url, "api_key": "k", **options})


def ask(endpoint: Endpoint, *, seconds: float = 30, **options: Any) -> str:
    return make(endpoint, **options).complete("be brief", "hello", seconds=seconds)


def test_the_answer_comes_back_without_the_space_around_it(endpoint: Endpoint) -> None:
    endpoint.words = "\n hello yourself \n"
    assert ask(endpoint) == "hello yourself"
    (sent,) = endpoint.requests
    assert sent["model"] == "m" and sent["temperature"] == 0
    assert [(m["role"], m["content"]) for m in sent["messages"]] == [
        ("system", "be brief"),
        ("user", "hello"),
    ]
    assert endpoint.keys == ["Bearer k"]


# ---------------------------------------------------------------- rate limits


def test_a_rate_limit_is_waited_for_once(endpoint: Endpoint, slept: list[float]) -> None:
    endpoint.script = [status(429, retry_after="2")]
    assert ask(endpoint) == "[]"
    assert slept == [2.0] and len(endpoint.requests) == 2


def test_a_rate_limit_may_name_a_date(endpoint: Endpoint, slept: list[float]) -> None:
    soon = email.utils.formatdate(time.time() + 5, usegmt=True)
    endpoint.script = [status(429, retry_after=soon)]
    assert ask(endpoint) == "[]"
    assert len(slept) == 1 and 0 < slept[0] <= 5


def test_a_rate_limit_that_says_nothing_is_waited_for_shortly(
    endpoint: Endpoint, slept: list[float]
) -> None:
    endpoint.script = [status(429)]
    assert ask(endpoint) == "[]"
    assert slept == [0.5]


@pytest.mark.parametrize("after", ["31", "86400", "inf"])
def test_a_rate_limit_that_lasts_too_long_is_not_waited_for(
    endpoint: Endpoint, slept: list[float], after: str
) -> None:
    endpoint.script = [status(429, retry_after=after)]
    with pytest.raises(ModelError, match=r"answered 429 .*wait, or raise it"):
        ask(endpoint, seconds=30)
    assert slept == [] and len(endpoint.requests) == 1


def test_a_second_rate_limit_is_the_end(endpoint: Endpoint, slept: list[float]) -> None:
    endpoint.script = [status(429, retry_after="1"), status(429, retry_after="1")]
    with pytest.raises(ModelError, match="answered 429"):
        ask(endpoint)
    assert len(endpoint.requests) == 2


def test_a_used_up_quota_is_not_waited_for(endpoint: Endpoint, slept: list[float]) -> None:
    endpoint.script = [status(429, "insufficient_quota")]
    with pytest.raises(ModelError, match="quota is used up"):
        ask(endpoint)
    assert slept == [] and len(endpoint.requests) == 1


# ---------------------------------------------------------------- faults


@pytest.mark.parametrize("reply", [hang, drip])
def test_the_budget_holds_whatever_the_server_does(endpoint: Endpoint, reply: Reply) -> None:
    endpoint.script = [reply]
    with pytest.raises(ModelError, match=r"gave no answer within 0\.3 s: is it running\?"):
        ask(endpoint, seconds=0.3)


@pytest.mark.parametrize(
    ("reply", "says"),
    [
        (status(500), "answered 500 .*: the endpoint is in trouble: try again later"),
        (status(503), "answered 503"),
        (status(400), "answered 400 .*: check the model's name"),
        (status(401), "check the key in OPENAI_API_KEY"),
        (status(404), "check the model's name, and llm_url"),
        (close, "cannot be reached"),
        (break_off, "cannot be reached"),
        (body(b'{"choices": [{"mess'), "sent an answer that cannot be read"),
        (body(b"<html>Welcome</html>"), "sent an answer that cannot be read"),
        (body(b"[]"), "something other than a chat completion: check llm_url"),
        (body(b"{}"), "something other than a chat completion"),
        (body(b'{"choices": []}'), "something other than a chat completion"),
        (body(b'{"choices": [3]}'), "something other than a chat completion"),
        (body(b'{"choices": [{"message": null}]}'), "something other than a chat completion"),
        (message(content=None, refusal="I cannot help"), "refused .'I cannot help'."),
        (message(content=None, finish_reason="content_filter"), "withheld its answer"),
        (message(content=None), "sent an empty answer"),
        (message(content=" \n"), "sent an empty answer"),
        (message(content={"a": 1}), "sent an empty answer"),
    ],
)
def test_a_fault_is_an_error_that_says_what_happened(
    endpoint: Endpoint, reply: Reply, says: str
) -> None:
    endpoint.script = [reply]
    with pytest.raises(ModelError, match=says) as caught:
        ask(endpoint)
    assert str(caught.value).startswith(f"m at {endpoint.url} ")
    assert len(endpoint.requests) == 1


def test_no_server_at_all(endpoint: Endpoint) -> None:
    with pytest.raises(ModelError, match=r"cannot be reached .*: is it running\?"):
        ask(endpoint, base_url="http://127.0.0.1:1/v1")


def test_a_page_of_html_as_an_error_is_not_passed_on_whole(endpoint: Endpoint) -> None:
    endpoint.script = [lambda handler, _: handler.send(502, b"<p>bad gateway</p>" * 1000)]
    with pytest.raises(ModelError, match="answered 502") as caught:
        ask(endpoint)
    assert len(str(caught.value)) < 500


def test_a_model_that_takes_no_temperature_is_asked_without(endpoint: Endpoint) -> None:
    refused = b'{"error": {"message": "Unsupported value: \'temperature\' must be 1"}}'
    endpoint.script = [lambda handler, _: handler.send(400, refused)]
    llm = make(endpoint)
    assert llm.complete("s", "p", seconds=30) == "[]"
    assert llm.complete("s", "p", seconds=30) == "[]"
    assert ["temperature" in sent for sent in endpoint.requests] == [True, False, False]


# ---------------------------------------------------------------- settings


def test_without_a_name_and_a_url_there_is_none() -> None:
    assert load_llm(Config()) is None


def test_the_settings_name_model_and_endpoint(endpoint: Endpoint) -> None:
    llm = load_llm(Config(llm="openai:m", llm_url=endpoint.url))
    assert llm is not None and llm.model == "m"
    assert llm.complete("s", "p", seconds=30) == "[]"
    assert load_llm(Config(llm="m", llm_url=endpoint.url)) is llm  # its connection is kept


def test_an_endpoint_without_a_name_is_asked_for_the_default(endpoint: Endpoint) -> None:
    llm = load_llm(Config(llm_url=endpoint.url))
    assert llm is not None and llm.model == UNNAMED == "gemini-2.5-flash"


def test_key_and_url_come_from_the_environment(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", endpoint.url)
    monkeypatch.setenv("OPENAI_API_KEY", "from-env")
    llm = load_llm(Config(llm="m"))
    assert llm is not None and llm.complete("s", "p", seconds=30) == "[]"
    assert endpoint.keys == ["Bearer from-env"]


def test_openai_itself_needs_a_key(endpoint: Endpoint) -> None:
    with pytest.raises(ModelError, match="m needs a key: set OPENAI_API_KEY, or llm_url"):
        ApiLLM("m").complete("s", "p", seconds=1)


def test_the_missing_extra_is_named(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openai", None)
    with pytest.raises(ModelError, match=r"pip install 'clew-search\[openai\]'"):
        ask(endpoint)
