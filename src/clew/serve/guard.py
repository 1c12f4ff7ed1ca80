"""What stands before every request: who may ask, how much at once, and how long.

A page of any site that is open in a browser can send requests to this machine. So a request has to
name this server by an address that no foreign name can be made to lead to (DNS rebinding), and one
that says where it comes from must come from here. Whoever reaches the server over a network needs
the token as well.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import socket
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any, TypeVar
from urllib.parse import urlsplit

from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from clew.background import Recent
from clew.errors import ClewError

T = TypeVar("T")
Count = Callable[[str, str, int, float], None]

OPEN_PATHS = ("/healthz", "/web/")
"""What is told to anybody who may ask at all: that the server lives, and the page without data."""
METHODS = ("GET", "HEAD", "POST", "PATCH", "DELETE")
SAFE_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        b"connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'; "
        b"trusted-types 'none'; require-trusted-types-for 'script'",
    ),
)
"""The page loads nothing from elsewhere, and nothing of a document becomes markup or script."""
HOSTS_REMEMBERED = 100
"""Names of this server, or addresses, that were found to be its own, or not."""
CLIENTS_COUNTED = 10_000
"""Addresses whose rate is remembered."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How much is taken from one client, and all of them."""

    body_bytes: int = 8_000_000
    body_seconds: float = 20.0
    """For all of a request's body."""
    rate: float = 0.0
    """Requests a second of one address; 0: any number."""
    burst: int = 100
    workers: int = 4
    """Requests at work at the same time."""
    waiting: int = 128
    """Requests that may wait for their turn; one more is told to come back later."""


class RefusalError(ClewError):
    """A request that is not taken on; `status` is that of the answer."""

    def __init__(self, status: int, message: str):
        super().__init__(message)
        self.status = status


class WorkQueue:
    """Threads that do the work, and no more of it waiting than will be done soon."""

    def __init__(self, limits: Limits):
        self._threads = ThreadPoolExecutor(limits.workers, thread_name_prefix="clew-serve")
        self._room = limits.workers + limits.waiting
        self.pending = 0

    async def run(self, work: Callable[..., T], *args: Any, **options: Any) -> T:
        if self.pending >= self._room:
            raise RefusalError(503, "too many requests at once: try again in a second")
        self.pending += 1
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._threads, partial(work, *args, **options))
        finally:
            self.pending -= 1

    def close(self) -> None:
        self._threads.shutdown(wait=True, cancel_futures=True)


@dataclass(slots=True)
class _Bucket:
    left: float
    at: float = field(default_factory=time.monotonic)


class Guard:
    """ASGI middleware: answers for itself what must not reach the application."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        token: str | None = None,
        hosts: Sequence[str] = (),
        limits: Limits | None = None,
        count: Count | None = None,
    ):
        """`hosts` are names of this server beside localhost and its addresses. `count` is told of
        every answer: method, route, status, seconds."""
        self.app, self.limits, self._count = app, limits or Limits(), count
        self._token = token.encode() if token else None
        self._hosts = {"localhost", socket.gethostname().lower(), *map(str.lower, hosts)}
        self._knows_host = lru_cache(HOSTS_REMEMBERED)(self._find_host)
        self._buckets: Recent[str, _Bucket] = Recent(CLIENTS_COUNTED)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        begun, status = time.perf_counter(), 0
        broken: list[tuple[int, str, str]] = []

        async def send_counted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), *SAFE_HEADERS]
            await send(message)

        async def send_whole(message: Message) -> None:
            if status or not broken:  # else what the application says of half a body is not sent
                await send_counted(message)

        try:
            if refused := self._refuse(scope):
                await _answer(*refused)(scope, receive, send_counted)
                return
            try:
                await self.app(scope, self._bounded(receive, broken), send_whole)
            except RefusalError:
                if not broken:
                    raise
            if broken and not status:
                await _answer(*broken[0])(scope, receive, send_counted)
        finally:
            if self._count is not None:
                # as it is declared: what clients make up does not become names of figures
                route = getattr(scope.get("route"), "path", "")
                method = scope["method"] if scope["method"] in METHODS else ""
                self._count(method, route, status or 500, time.perf_counter() - begun)

    def _refuse(self, scope: Scope) -> tuple[int, str, str] | None:
        headers = dict(scope["headers"])
        length = headers.get(b"content-length", b"0")
        if not length.isdigit() or int(length) > self.limits.body_bytes:
            return 413, "InputError", f"the body is larger than {self.limits.body_bytes:,} bytes"
        if is_local_socket(scope):
            return None  # its file is its owner's, and no browser can open it
        host = headers.get(b"host", b"")
        if not self._knows_host(host):
            return 421, "InputError", "this server has another name: see `clew serve --allow-host`"
        origin = headers.get(b"origin", b"").decode("latin-1")
        if origin and _split(origin)[0].lower() != host.decode("latin-1").lower():
            return 403, "InputError", "requests of other sites are refused"
        if headers.get(b"sec-fetch-site") == b"cross-site" and scope["path"] != "/":
            return 403, "InputError", "requests of other sites are refused"
        given = headers.get(b"authorization", b"")
        if not self._knows_token(scope["path"], given):
            wrong = "the token is wrong: send that of `clew serve` as"
            said = wrong if given.lower().startswith(b"bearer ") else "a token is needed:"
            return 401, "InputError", f"{said} Authorization: Bearer TOKEN"
        if self.limits.rate and not self._within_rate(str((scope.get("client") or ("",))[0])):
            return 429, "InputError", "too many requests: wait a second"
        return None

    def _find_host(self, given: bytes) -> bool:
        """An address cannot be made to lead elsewhere, a name can: only known ones will do."""
        address = given.decode("latin-1")
        name = _split(f"//{address}")[1] if _is_netloc(address) else ""
        if name in self._hosts:
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True

    def _knows_token(self, path: str, given: bytes) -> bool:
        if self._token is None or path == "/" or path.startswith(OPEN_PATHS):
            return True
        scheme, _, said = given.partition(b" ")
        return scheme.lower() == b"bearer" and hmac.compare_digest(said.strip(), self._token)

    def _within_rate(self, client: str) -> bool:
        now, most = time.monotonic(), float(self.limits.burst)
        bucket = self._buckets.use(client) or _Bucket(most, now)
        bucket.left = min(most, bucket.left + (now - bucket.at) * self.limits.rate)
        bucket.at = now
        self._buckets.keep(client, bucket)
        if bucket.left < 1:
            return False
        bucket.left -= 1
        return True

    def _bounded(self, receive: Receive, broken: list[tuple[int, str, str]]) -> Receive:
        """A body that is too long, or takes too long, ends in an error; `broken` gets the answer
        to it."""
        begun, taken, ended = time.monotonic(), 0, False

        async def receive_bounded() -> Message:
            nonlocal taken, ended
            if ended:  # waits for the client to leave, for as long as the answer takes
                return await receive()
            left = begun + self.limits.body_seconds - time.monotonic()
            try:
                message = await asyncio.wait_for(receive(), max(left, 0.001))
            except TimeoutError:
                broken.append((408, "ClewError", "the request did not come in time"))
                raise RefusalError(408, broken[0][2]) from None
            taken += len(message.get("body", b""))
            ended = not message.get("more_body", False)
            if taken > self.limits.body_bytes:
                most = f"the body is larger than {self.limits.body_bytes:,} bytes"
                broken.append((413, "InputError", most))
                raise RefusalError(413, most)
            return message

        return receive_bounded


def is_local_socket(scope: Scope) -> bool:
    """Whether the request came through the socket of this machine's user."""
    server = scope.get("server") or ("", 0)
    return server[1] is None


def _split(address: str) -> tuple[str, str]:
    """Its part with host and port, and the host; nothing where it makes no sense."""
    try:
        parts = urlsplit(address)
        return parts.netloc, parts.hostname or ""
    except ValueError:
        return "", ""


def _is_netloc(given: str) -> bool:
    return bool(given) and not set(given) & set("/?#@\\ ")


_HEADERS = {
    401: {"WWW-Authenticate": "Bearer"},
    408: {"Connection": "close"},
    413: {"Connection": "close"},
    429: {"Retry-After": "1"},
}


def _answer(status: int, kind: str, message: str) -> Response:
    return JSONResponse({"error": message, "kind": kind}, status, _HEADERS.get(status))
