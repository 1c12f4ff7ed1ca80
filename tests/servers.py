"""Servers that tests ask: a running `clew serve`, and stand-ins for those of others."""

from __future__ import annotations

import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeVar


@dataclass
class Server:
    process: subprocess.Popen[str]
    url: str

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(30)


class StandIn(ThreadingHTTPServer):
    """On a port that is free. Who hangs does so until it is `over`."""

    daemon_threads = True

    def __init__(self, handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(("127.0.0.1", 0), handler)
        self.over = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


S = TypeVar("S", bound=StandIn)


@contextmanager
def running(app: Any, **options: Any) -> Iterator[tuple[str, int]]:
    """An application behind a real socket, in a thread; its address. `options` are uvicorn's."""
    import uvicorn

    from clew.serve.server import listen

    opened = listen("127.0.0.1", 0)
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", **options))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [opened]}, daemon=True)
    thread.start()
    try:
        yield opened.getsockname()[:2]
    finally:
        server.should_exit = True
        thread.join(30)


@contextmanager
def answering(server: S) -> Iterator[S]:
    """A stand-in that answers until the block ends."""
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield server
    finally:
        server.over.set()
        server.shutdown()
        server.server_close()
        thread.join()


def hang(handler: Any, *_: object) -> None:
    handler.server.over.wait()
    handler.close_connection = True


def drip(handler: Any, *_: object) -> None:
    """Something now and then, and never all of it."""
    handler.send_response(200)
    handler.send_header("Content-Length", "100000")
    handler.end_headers()
    while not handler.server.over.wait(0.02):
        try:
            handler.wfile.write(b" ")
        except OSError:
            break
    handler.close_connection = True
