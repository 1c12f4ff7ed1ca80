"""A real HTTP server that speaks OpenAI's API, well or badly: embeddings and chat.

It speaks Gemini's own method for embeddings as well, beside that.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from http.server import BaseHTTPRequestHandler
from typing import Any

import numpy as np

from clew.models.api import ApiEmbedder
from clew.models.providers import find_api_model
from servers import StandIn

Reply = Callable[["Handler", dict[str, Any]], None]


class Endpoint(StandIn):
    """Answers from `script` while there is one, then properly."""

    def __init__(self) -> None:
        super().__init__(Handler)
        self.script: list[Reply] = []
        self.requests: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.paths: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.refuses: Callable[[dict[str, Any]], Reply | None] = lambda body: None
        """What it will not take, whatever the script says."""
        self.dim = 4
        self.words = "[]"
        """What the chat model says."""

    @property
    def url(self) -> str:
        return f"{super().url}/v1"


class Handler(BaseHTTPRequestHandler):
    server: Endpoint

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.requests.append(body)
        self.server.keys.append(self.headers.get("Authorization"))
        self.server.paths.append(self.path)
        self.server.headers.append({name.lower(): value for name, value in self.headers.items()})
        if (reply := self.server.refuses(body)) is None:
            reply = self.server.script.pop(0) if self.server.script else PROPER[self._asked]
        reply(self, body)

    @property
    def _asked(self) -> str:
        """What the end of the path says, as in `/v1/embeddings` or `/v1/models/m:method`."""
        return self.path.rpartition("/")[2].rpartition(":")[2]

    def send(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def stream(self, events: Iterable[bytes]) -> None:
        """Server-sent events, each when it comes."""
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        for each in events:
            self.wfile.write(each)
            self.wfile.flush()
        self.close_connection = True

    def send_items(self, items: list[dict[str, Any]]) -> None:
        answer = {"object": "list", "model": "m", "data": items, "usage": {}}
        self.send(200, json.dumps(answer).encode())

    def items(self, body: dict[str, Any]) -> list[dict[str, Any]]:
        dim = body.get("dimensions", self.server.dim)
        return [
            {"object": "embedding", "index": i, "embedding": raw(text, dim)}
            for i, text in enumerate(body["input"])
        ]

    def log_message(self, *args: object) -> None: ...


def raw(text: str, dim: int = 4) -> list[float]:
    """A vector that is the text's own, and not of length 1."""
    return [float(len(text) + 1), float(sum(map(ord, text)) % 97), *[0.5] * (dim - 2)]


def expected(texts: list[str], dim: int = 4) -> np.ndarray:
    """What an embedder makes of the raw ones."""
    rows = np.array([raw(text, dim) for text in texts])
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


# ---------------------------------------------------------------- proper answers


def embeddings(handler: Handler, body: dict[str, Any]) -> None:
    handler.send_items(handler.items(body))


def chat(handler: Handler, body: dict[str, Any]) -> None:
    message(content=handler.server.words)(handler, body)


def gemini(handler: Handler, body: dict[str, Any]) -> None:
    values = [
        {"values": raw(text, each.get("outputDimensionality", handler.server.dim))}
        for each in body["requests"]
        for text in [each["content"]["parts"][0]["text"]]
    ]
    handler.send(200, json.dumps({"embeddings": values}).encode())


PROPER: dict[str, Reply] = {
    "embeddings": embeddings,
    "completions": chat,
    "batchEmbedContents": gemini,
}


def message(finish_reason: str = "stop", **fields: Any) -> Reply:
    """A chat completion with this message; piece by piece where that is asked for."""
    choice = {"index": 0, "finish_reason": finish_reason, "message": {"role": "assistant"} | fields}
    answer = {"id": "c", "object": "chat.completion", "model": "m", "created": 0}
    whole = json.dumps({**answer, "choices": [choice]}).encode()

    def reply(handler: Handler, body: dict[str, Any]) -> None:
        if body.get("stream"):
            pieces = re.findall(r"\s*\S+\s*", fields.get("content") or "")
            handler.stream([*map(event, pieces), event(None, finish_reason), b"data: [DONE]\n\n"])
        else:
            handler.send(200, whole)

    return reply


def event(content: str | None, finish_reason: str | None = None) -> bytes:
    """One event of a stream."""
    choice = {"index": 0, "finish_reason": finish_reason, "delta": {"content": content}}
    chunk = {"id": "c", "object": "chat.completion.chunk", "model": "m", "created": 0}
    return b"data: " + json.dumps({**chunk, "choices": [choice]}).encode() + b"\n\n"


# ---------------------------------------------------------------- faults


def status(
    code: int, error_code: str | None = None, *, message: str = "no", **headers: str
) -> Reply:
    error = {"error": {"message": message, "code": error_code}}
    return lambda handler, body: handler.send(code, json.dumps(error).encode(), **headers)


def google(code: int, message: str, *details: dict[str, Any]) -> Reply:
    """An error as Google words it; its compatible endpoint puts it into a list."""
    error = {"error": {"code": code, "message": message, "details": details}}

    def reply(handler: Handler, body: dict[str, Any]) -> None:
        whole: Any = [error] if "/openai/" in handler.path else error
        handler.send(code, json.dumps(whole).encode())

    return reply


def body(text: bytes) -> Reply:
    """This, as if all were well."""
    return lambda handler, body: handler.send(200, text)


def close(handler: Handler, body: dict[str, Any]) -> None:
    """Nothing at all."""
    handler.close_connection = True


def break_off(handler: Handler, body: dict[str, Any]) -> None:
    """The beginning of an answer."""
    handler.send_response(200)
    handler.send_header("Content-Type", "application/json")
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(b'{"choices": [')
    handler.close_connection = True


def open_embedder(spec: str, *, base_url: str | None = None, **options: Any) -> ApiEmbedder:
    """An embedder of this model, by what names a model and by what is asked of its client."""
    names = options.keys() & {"dim", "document_prefix", "query_prefix"}
    model = find_api_model(spec, base_url=base_url, **{name: options.pop(name) for name in names})
    assert model is not None
    return ApiEmbedder(model, base_url=base_url, **options)
