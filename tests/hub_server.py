"""A server that speaks the protocol of the Hugging Face hub, with one repository, tiny/words."""

from __future__ import annotations

import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Hub:
    """Serves `files` as those of tiny/words. `page`: what a proxy answers to everything."""

    def __init__(self, files: dict[str, bytes]):
        self.files = files
        self.page: bytes | None = None
        self.asked: list[str] = []
        hub = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                hub.asked.append(self.path)
                if hub.page is not None:
                    return self.answer(hub.page, "text/html")
                if self.path == "/api/models/tiny/words":
                    names = [{"rfilename": name} for name in hub.files]
                    said = {"sha": "c0ffee", "siblings": names, "cardData": {"license": "mit"}}
                    return self.answer(json.dumps(said).encode(), "application/json")
                prefix = "/tiny/words/resolve/c0ffee/"
                data = hub.files.get(self.path.removeprefix(prefix))
                if data is None:
                    return self.send_error(404)
                wanted = re.match(r"bytes=(\d+)-", self.headers.get("Range", ""))
                return self.answer(
                    data, "application/octet-stream", int(wanted[1]) if wanted else 0
                )

            def answer(self, data: bytes, kind: str, first: int = 0) -> None:
                self.send_response(206 if first else 200)
                if first:
                    self.send_header("Content-Range", f"bytes {first}-{len(data) - 1}/{len(data)}")
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(data) - first))
                self.end_headers()
                self.wfile.write(data[first:])

            def log_message(self, *_: object) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}"
