"""A server that speaks the protocol of the Hugging Face hub, with one repository, tiny/words."""

from __future__ import annotations

import json
import re
from http.server import BaseHTTPRequestHandler

from servers import StandIn


class Hub(StandIn):
    """Serves `files` as those of tiny/words. `page`: what a proxy answers to everything."""

    def __init__(self, files: dict[str, bytes]):
        super().__init__(Handler)
        self.files = files
        self.page: bytes | None = None
        self.asked: list[str] = []


class Handler(BaseHTTPRequestHandler):
    server: Hub

    def do_GET(self) -> None:
        hub = self.server
        hub.asked.append(self.path)
        if hub.page is not None:
            return self.answer(hub.page, "text/html")
        if self.path == "/api/models/tiny/words":
            names = [{"rfilename": name} for name in hub.files]
            said = {"sha": "c0ffee", "siblings": names, "cardData": {"license": "mit"}}
            return self.answer(json.dumps(said).encode(), "application/json")
        data = hub.files.get(self.path.removeprefix("/tiny/words/resolve/c0ffee/"))
        if data is None:
            return self.send_error(404)
        wanted = re.match(r"bytes=(\d+)-", self.headers.get("Range", ""))
        return self.answer(data, "application/octet-stream", int(wanted[1]) if wanted else 0)

    def answer(self, data: bytes, kind: str, first: int = 0) -> None:
        self.send_response(206 if first else 200)
        if first:
            self.send_header("Content-Range", f"bytes {first}-{len(data) - 1}/{len(data)}")
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data) - first))
        self.end_headers()
        self.wfile.write(data[first:])

    def log_message(self, *_: object) -> None: ...
