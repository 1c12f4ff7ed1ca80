"""A model endpoint that means harm: whatever it answers, Clew says so, goes on and stays itself."""

from __future__ import annotations

import gzip
import json
import threading
from pathlib import Path
from typing import Any

import pytest

import clew
from clew.cli import run
from clew.errors import ModelError
from clew.models.chat import ApiLLM, find_values
from endpoint import Endpoint, Handler, Reply, body, open_embedder, status
from servers import drip

VECTOR = {"object": "embedding", "index": 0, "embedding": [1.0, 2.0, 3.0, 4.0]}


def data(*items: Any) -> Reply:
    return body(json.dumps({"object": "list", "model": "m", "data": items}).encode())


def endless(piece: bytes, **headers: str) -> Reply:
    def reply(handler: Handler, _: dict[str, Any]) -> None:
        handler.send_response(200)
        for name, value in {"Content-Type": "application/json", **headers}.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        sent = 0
        while not handler.server.over.is_set() and sent < 1 << 30:
            try:
                handler.wfile.write(piece)
            except OSError:
                break
            sent += len(piece)
        handler.server.sent = sent  # type: ignore[attr-defined]
        handler.close_connection = True

    return reply


NESTED = b'{"data": ' + b"[" * 200_000 + b"]" * 200_000 + b"}"
BOMB = gzip.compress(b" " * (256 << 20), 9)
ANSWERS: dict[str, Reply] = {
    "nan": body(b'{"data": [{"index": 0, "embedding": [NaN, 1, 2, 3]}]}'),
    "infinity": body(b'{"data": [{"index": 0, "embedding": [1e999, 1, 2, 3]}]}'),
    "empty vector": data({**VECTOR, "embedding": []}),
    "words": data({**VECTOR, "embedding": ["a"] * 4}),
    "nested vector": data({**VECTOR, "embedding": [[[1.0]]]}),
    "uneven vector": data({**VECTOR, "embedding": [1.0, [2.0], 3.0]}),
    "object": data({**VECTOR, "embedding": {"a": 1}}),
    "long integers": body(
        b'{"data": [{"index": 0, "embedding": [' + b"9" * 4000 + b",1,2,3]}]}"
    ),
    "longer integers": body(
        b'{"data": [{"index": 0, "embedding": [' + b"9" * 400_000 + b",1,2,3]}]}"
    ),
    "none": data(),
    "too many": data(VECTOR, {**VECTOR, "index": 1}),
    "another index": data({**VECTOR, "index": 7}),
    "huge index": data({**VECTOR, "index": 10**400}),
    "no index": data({**VECTOR, "index": "x"}),
    "no list": body(b'{"data": {"a": 1}}'),
    "null": body(b"null"),
    "number": body(b"1"),
    "no json": body(b"<html>"),
    "no text": body(b"\xff\xfe\x00"),
    "surrogates": body(b'"\\ud800"'),
    "nested": body(NESTED),
    "bomb": lambda handler, _: handler.send(200, BOMB, Content_Encoding="gzip"),
    "another packing": lambda handler, _: handler.send(200, b"x", Content_Encoding="br"),
    "broken packing": lambda handler, _: handler.send(200, b"x" * 99, Content_Encoding="gzip"),
    "endless": endless(b" " * 65536),
    "endless list": endless(b'{"data": [' + b"1," * 32000),
    "no end of a status": endless(b"x" * 65536),
    "nowhere": lambda handler, _: handler.send(307, b"", Location="http://[::bad"),
    "a file": lambda handler, _: handler.send(307, b"", Location="file:///etc/passwd"),
    "another method": lambda handler, _: handler.send(303, b"", Location="javascript:alert(1)"),
    "odd wait": status(429, retry_after="9" * 400),
    "negative wait": status(429, retry_after="-1e308"),
    "no such status": lambda handler, _: handler.send(799, b"{}"),
}  # fmt: skip


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
def test_an_answer_that_is_none_is_a_model_error(
    answer: Reply, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To an embedder that knows its dimension, and to a chat model."""
    endpoint.refuses = lambda body: answer
    embedder = open_embedder("openai:m@4", base_url=endpoint.url, api_key="k", retries=0)
    with pytest.raises(ModelError) as raised:
        embedder.embed_query("keel")
    assert len(str(raised.value)) < 2_000
    with pytest.raises(ModelError) as raised:
        ApiLLM("m", base_url=endpoint.url, api_key="k").complete("s", "p", seconds=20)
    assert len(str(raised.value)) < 2_000
    assert getattr(endpoint, "sent", 0) < 64 << 20  # it was cut off long before a gigabyte


def test_another_dimension_on_the_way_is_refused(endpoint: Endpoint) -> None:
    embedder = open_embedder("openai:m", base_url=endpoint.url, api_key="k", retries=0)
    assert embedder.embed_query("keel").size == 4
    endpoint.dim = 7
    with pytest.raises(ModelError, match="7 numbers where 4"):
        embedder.embed_query("mast")


def test_a_server_that_drips_leaves_no_thread_behind(endpoint: Endpoint) -> None:
    """The caller is told after four time-outs, and so is the thread that reads."""
    endpoint.refuses = lambda body: drip
    embedder = open_embedder("openai:m", base_url=endpoint.url, api_key="k", retries=0, timeout=0.1)
    before = set(threading.enumerate())
    with pytest.raises(ModelError, match="within"):
        embedder.embed_query("keel")
    own = [t for t in set(threading.enumerate()) - before if "process_request" not in t.name]
    for thread in own:
        thread.join(10)
    assert not any(thread.is_alive() for thread in own)


@pytest.mark.parametrize("fault", [drip, endless(b" " * 65536), body(NESTED)])
def test_a_search_answers_by_words_within_its_deadline(
    fault: Reply, endpoint: Endpoint, tmp_path: Path
) -> None:
    (tmp_path / "note.md").write_text("The keel bolts are torqued to 90 Nm.")
    settings = {"model": "openai:m", "model_url": endpoint.url, "deadline": 1.0}
    with clew.open(tmp_path, **settings) as engine:
        engine.index()
        endpoint.refuses = lambda body: fault
        found = engine.search("keel bolts")
        assert [hit.path for hit in found] == ["note.md"]
        assert found.degraded


CONTROL = "\x1b]0;pwned\x07\x9b31m\u202etxt.exe\u2066 \r over"


@pytest.mark.parametrize("where", [400, 401, 429, 500])
def test_control_characters_of_an_error_are_not_obeyed(
    where: int, endpoint: Endpoint, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from clew.models import api

    (tmp_path / "note.md").write_text("The keel bolts are torqued to 90 Nm.")
    endpoint.refuses = lambda body: status(where, "insufficient_quota", message=CONTROL)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(api, "BACKOFF", 0.0)
        patch.setenv("CLEW_MODEL_URL", endpoint.url)
        patch.setenv("CLEW_MODEL", "openai:m")
        assert run(["index", str(tmp_path)]) in (0, 1)
        assert run(["search", "keel", "--explain", "--no-cache", "-C", str(tmp_path)]) == 0
        assert run(["search", "keel", "--json", "--no-cache", "-C", str(tmp_path)]) == 0
    shown = capsys.readouterr()
    assert not set("\x1b\x07\x9b\u202e\u2066\r") & set(shown.out + shown.err)


def test_a_chat_model_s_words_are_looked_through_in_time_by_their_length(
    endpoint: Endpoint,
) -> None:
    for piece in ("[", '{"a":', "<think>", "[[1]", '"\\'):
        assert list(find_values(piece * (1_000_000 // len(piece)))) is not None


def test_a_chat_model_that_says_too_much_is_cut_off(endpoint: Endpoint) -> None:
    endpoint.words = "word " * 2_000_000
    llm = ApiLLM("m", base_url=endpoint.url, api_key="k")
    with pytest.raises(ModelError, match="more than"):
        llm.complete("s", "p", seconds=20)
    endpoint.words = "one word"
    assert llm.complete("s", "p", seconds=20) == "one word"
