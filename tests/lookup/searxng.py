"""A real HTTP server that answers as SearXNG does, well or badly."""

from __future__ import annotations

import json
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, urlsplit

from servers import StandIn

Reply = Callable[["Handler"], None]


class Server(StandIn):
    def __init__(self) -> None:
        super().__init__(Handler)
        self.asked: list[str] = []
        self.reply: Reply = results(
            {"url": "https://en.wikipedia.org/wiki/Keel", "title": "Keel", "content": "A keel."},
            {"url": "https://example.org/torque", "title": "Torque", "content": "Keel torque."},
        )


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        asked = parse_qs(urlsplit(self.path).query)
        assert asked["format"] == ["json"]
        self.server.asked += asked["q"]
        self.server.reply(self)

    def send(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None: ...


def results(*rows: Any) -> Reply:
    return body(json.dumps({"results": rows}).encode())


def body(text: bytes, status: int = 200, **headers: str) -> Reply:
    return lambda handler: handler.send(status, text, **headers)


def flood(handler: Handler) -> None:
    """More than anybody should read."""
    handler.send_response(200)
    handler.end_headers()
    try:
        while not handler.server.over.is_set():
            handler.wfile.write(b" " * 65_536)
    except OSError:
        pass
    handler.close_connection = True
