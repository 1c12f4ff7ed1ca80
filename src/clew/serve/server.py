"""The server's process: what it listens on, and how it ends."""

from __future__ import annotations

import ipaddress
import os
import signal
import socket
import sys
from asyncio import TimerHandle, Transport
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import uvicorn
from filelock import FileLock, Timeout
from starlette.types import ASGIApp
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from clew.errors import ConfigError, StoreError
from clew.resident import socket_file

GRACE = 10
"""Seconds that requests at work have to finish when the server is told to end."""
IDLE = 15
"""Seconds that a connection may be silent."""
TURN = 0.001
"""Seconds that a thread has Python to itself, a fifth of the usual: what is answered at once waits
for that long, several times, while others search."""
HEAD_BYTES, HEAD_SECONDS = 64_000, 15.0
"""Of a request's head: how long it may be, and how long it may take to come."""
REFUSED_BYTES = 10_000_000
"""Of a body that comes although its request was refused: it is not kept, and clients read what is
wrong when they have sent it."""
CONNECTIONS = 1_000
BACKLOG = 512
_ENDING = (signal.SIGINT, signal.SIGTERM)


def check_address(host: str, token: str | None) -> None:
    """Refuse to listen on an address that others can reach unless they need a token."""
    if not token and not _is_loopback(host):
        raise ConfigError(
            f"{host} can be reached by other machines: set a token (--token-file or CLEW_TOKEN), "
            "or listen on 127.0.0.1"
        )


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def listen(host: str, port: int) -> socket.socket:
    """Open the socket of an address; port 0 takes any that is free."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol has to be named: only then does asyncio turn Nagle's algorithm off, which has the
    # body of an answer wait 40 ms behind its head.
    opened = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        opened.bind((host.strip("[]"), port))
        opened.listen(BACKLOG)  # from now on clients wait, rather than being refused
    except OSError as error:
        opened.close()
        raise ConfigError(
            f"cannot listen on {host}:{port}: {error.strerror or error}; take another --port, or "
            "end what listens there"
        ) from error
    return opened


@contextmanager
def local_socket(place: str) -> Iterator[socket.socket | None]:
    """The socket of a store, which this user's commands look for; the file is gone at the end. An
    error where another server has the store; None where the system has no such sockets, or the
    folder cannot be written to."""
    path = Path(socket_file(place))
    if not hasattr(socket, "AF_UNIX"):
        yield None
        return
    with suppress(OSError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        about = path.parent.stat()
        if about.st_uid != os.getuid() or about.st_mode & 0o022:  # others could stand in the way
            yield None
            return
    lock = FileLock(f"{path}.lock", timeout=0, mode=0o600)
    try:
        lock.acquire()
    except Timeout:
        raise StoreError(
            f"another `clew serve` has {place} open already: ask that one, or end it first"
        ) from None
    except OSError:
        yield None
        return
    opened = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if path.is_socket():  # left behind: who has the lock is the only server
            path.unlink()
        before = os.umask(0o177)
        try:
            opened.bind(str(path))
        except OSError:
            yield None
            return
        finally:
            os.umask(before)
        opened.listen(BACKLOG)
        yield opened
    finally:
        opened.close()
        if path.is_socket():
            path.unlink()
        lock.release()


class BoundedHead(AutoHTTPProtocol):  # type: ignore[valid-type, misc]
    """What reads requests (httptools, or h11 where that is not installed), with bounds to their
    heads: else whoever sends one byte now and then keeps others out, and one without end fills the
    memory, before anybody has asked for a token."""

    def connection_made(self, transport: Transport) -> None:
        super().connection_made(transport)
        self._last, self._taken = self.cycle, 0
        self._due: TimerHandle | None = self.loop.call_later(HEAD_SECONDS, transport.close)

    def data_received(self, data: bytes) -> None:
        asked = self.cycle
        body = asked is not None and asked.more_body  # of which this may be the last piece
        super().data_received(data)
        if self.cycle is not self._last:  # a head is whole
            self._last, self._taken = self.cycle, 0
            self._stop_waiting()
            return
        answered = asked is None or asked.response_complete
        if body and not answered:
            return  # guard.py bounds it
        self._taken += len(data)
        if self._taken > (REFUSED_BYTES if body else HEAD_BYTES):
            if not self.transport.is_closing():
                self.send_400_response("The head of the request is too long.")
        elif self._due is None and not body and answered:  # and not while one waits for an answer
            self._due = self.loop.call_later(HEAD_SECONDS, self.transport.close)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def _stop_waiting(self) -> None:
        if self._due is not None:
            self._due.cancel()
            self._due = None


def run_server(
    app: ASGIApp, *, host: str, port: int, sockets: Sequence[socket.socket] = ()
) -> None:
    """Serve until the process is told to end (SIGTERM, Ctrl-C); what runs then is finished."""
    listener = listen(host, port)
    address, number = listener.getsockname()[:2]
    shown = f"[{address}]" if ":" in address else address
    print(f"Clew serves at http://{shown}:{number} (Ctrl-C ends it)", flush=True)
    config = uvicorn.Config(
        app,
        http=BoundedHead,
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_keep_alive=IDLE,
        timeout_graceful_shutdown=GRACE,
        limit_concurrency=CONNECTIONS,
        lifespan="on",
    )
    # uvicorn hears the signal, finishes, and raises it again for whoever listened before: nobody
    # has to, since stores are closed by the caller.
    sys.setswitchinterval(TURN)
    before = {each: signal.signal(each, lambda *_: None) for each in _ENDING}
    try:
        uvicorn.Server(config).run(sockets=[listener, *sockets])
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
