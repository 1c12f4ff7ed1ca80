"""What must not be answered is refused, and what is too much or too slow does no harm."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from fastapi.testclient import TestClient
from starlette.types import Receive, Scope, Send

import clew
from clew.cli import run
from clew.cli.options import read_token
from clew.errors import ConfigError
from clew.serve import server as process
from clew.serve.guard import Limits
from clew.serve.http import create_app
from clew.serve.server import check_address, listen
from clew.serve.stores import ServedStores
from clew.types import SearchRequest
from servers import Server, running

LOOPBACK = "http://127.0.0.1"
OUTSIDE = (
    "../../../etc/passwd",
    "..%2f..%2f..%2fetc%2fpasswd",
    "/etc/passwd",
    "%2fetc%2fpasswd",
    "notes:../../../etc/passwd",
    "....//....//etc/passwd",
    "..\\..\\etc\\passwd",
    "boat/../../secret.txt",
    "file:///etc/passwd",
    "boat/keel.md%00.txt",
)


@pytest.fixture
def guarded(stores: ServedStores) -> Iterator[Callable[..., TestClient]]:
    opened: list[TestClient] = []

    def make(**options: object) -> TestClient:
        app = create_app(stores, **options)  # type: ignore[arg-type]
        client = TestClient(app, base_url=LOOPBACK, raise_server_exceptions=False)
        opened.append(client.__enter__())
        return client

    yield make
    for client in opened:
        client.__exit__(None, None, None)


@pytest.mark.parametrize("path", OUTSIDE)
def test_no_path_leads_outside(web: TestClient, notes: Path, path: str) -> None:
    (notes.parent / "secret.txt").write_text("root:x:0:0", "utf-8")
    for address in (f"/records/{path}", f"/web/{path}", f"/memories/{path}", f"/{path}"):
        answer = web.get(address)
        assert "root:" not in answer.text
        assert answer.status_code in (400, 404, 422) or address.startswith("/records/boat/keel")
    for parameter in ("path", "collection", "source", "store", "type", "tag"):
        answer = web.get("/search", params={"q": "root", parameter: path})
        assert answer.status_code in (200, 400, 404) and "root:" not in answer.text


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://["},
        {"Origin": "http://127.0.0.1.evil.example"},
        {"Origin": "http://127.0.0.1:8080"},
        {"Sec-Fetch-Site": "cross-site"},
    ],
)
def test_another_sites_page_is_refused(web: TestClient, headers: dict[str, str]) -> None:
    assert web.get("/search", params={"q": "keel"}, headers=headers).status_code == 403
    made = web.post("/memories", json={"content": "planted"}, headers=headers)
    assert made.status_code == 403
    assert web.get("/memories").json()["memories"] == []


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("evil.example", 421),
        ("evil.example:7373", 421),
        ("127.0.0.1.evil.example", 421),
        ("localhost.evil.example", 421),
        ("", 421),
        ("user@127.0.0.1", 421),
        ("[::1", 421),
        ("[evil]", 421),
        ("localhost", 200),
        ("LOCALHOST:7373", 200),
        ("127.0.0.1:7373", 200),
        ("[::1]:7373", 200),
        ("notes.example", 200),
    ],
)
def test_a_name_that_others_give_is_refused(
    guarded: Callable[..., TestClient], host: str, status: int
) -> None:
    web = guarded(hosts=["notes.example"])
    assert web.get("/status", headers={"Host": host}).status_code == status


@pytest.mark.parametrize(
    "given", ["", "Bearer", "Bearer wrong", "Bearer open sesam", "Basic open sesame", "open sesame"]
)
def test_a_wrong_token_is_refused(guarded: Callable[..., TestClient], given: str) -> None:
    web = guarded(token="open sesame")
    for path in ("/search?q=keel", "/records/boat/keel.md", "/metrics", "/openapi.json", "/mcp"):
        answer = web.get(path, headers={"Authorization": given})
        assert answer.status_code == 401 and answer.headers["www-authenticate"] == "Bearer"
        said = "token is wrong" if given.startswith("Bearer ") else "token is needed"
        assert said in answer.json()["error"]
    assert web.get("/healthz").status_code == 200
    assert web.get("/").status_code == 200
    right = {"Authorization": "Bearer open sesame"}
    assert web.get("/search?q=keel", headers=right).status_code == 200


def test_a_body_that_is_too_large_is_refused(web: TestClient) -> None:
    large = b'{"content": "' + b"x" * 50_000_000 + b'"}'
    assert web.post("/memories", content=large).status_code == 413

    def pieces() -> Iterator[bytes]:
        for at in range(0, len(large), 1_000_000):
            yield large[at : at + 1_000_000]

    assert web.post("/memories", content=pieces()).status_code == 413
    assert web.get("/memories").json()["memories"] == []


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b'"text"', b"\xff\xfe", b'{"content": 7}', b"[" * 100_000]
)
def test_what_is_no_json_is_refused(web: TestClient, body: bytes) -> None:
    sent = web.post("/memories", content=body, headers={"Content-Type": "application/json"})
    assert sent.status_code in (400, 422) and sent.json()["error"]


def test_too_many_requests_a_second_are_refused(guarded: Callable[..., TestClient]) -> None:
    web = guarded(limits=Limits(rate=0.001, burst=3))
    codes = [web.get("/healthz").status_code for _ in range(5)]
    assert codes == [200, 200, 200, 429, 429]


def test_overload_is_said_quickly(
    guarded: Callable[..., TestClient], stores: ServedStores, monkeypatch: pytest.MonkeyPatch
) -> None:
    web = guarded(limits=Limits(workers=1, waiting=1))
    go, engine = threading.Event(), stores.folder().engine

    def slow(*_: object, **__: object) -> clew.SearchResult:
        go.wait(30)
        return clew.SearchResult()

    monkeypatch.setattr(engine, "answer", slow)
    with ThreadPoolExecutor(2) as threads:
        answers = [threads.submit(web.get, "/search?q=overload") for _ in range(2)]
        while web.app.state.work.pending < 2:  # type: ignore[attr-defined]
            time.sleep(0.01)
        refused = web.get("/search?q=overload")
        assert refused.status_code == 503 and refused.headers["retry-after"] == "1"
        go.set()
    assert [answer.result().status_code for answer in answers] == [200, 200]


def test_a_body_that_does_not_come_is_not_waited_for(stores: ServedStores) -> None:
    app = create_app(stores, limits=Limits(body_seconds=0.1))
    sent: list[dict[str, object]] = []
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/memories",
        "query_string": b"",
        "headers": [(b"host", b"localhost"), (b"content-type", b"application/json")],
        "server": ("127.0.0.1", 80),
    }

    async def receive() -> dict[str, object]:
        if sent or len(pieces) > 1:
            await asyncio.sleep(60)
        pieces.append(b"{")
        return {"type": "http.request", "body": b"{", "more_body": True}

    async def send(message: dict[str, object]) -> None:
        sent.append(message)

    pieces: list[bytes] = []
    asyncio.run(app(scope, receive, send))  # type: ignore[arg-type]
    assert sent[0]["status"] == 408


def test_no_answer_waits_for_the_one_before_to_arrive() -> None:
    with listen("127.0.0.1", 0) as opened:
        assert opened.proto == socket.IPPROTO_TCP, "asyncio sets TCP_NODELAY for this alone"


def test_an_address_that_others_reach_needs_a_token() -> None:
    for host in ("127.0.0.1", "::1", "localhost", "127.5.5.5"):
        check_address(host, None)
    check_address("0.0.0.0", "secret")
    for host in ("0.0.0.0", "::", "192.168.1.5", "notes.example"):
        with pytest.raises(ConfigError, match="token"):
            check_address(host, None)


def test_the_command_refuses_an_open_address_without_a_token(notes: Path) -> None:
    from clew.cli import run

    assert run(["serve", str(notes), "--host", "0.0.0.0"]) == 1


def test_clients_that_dawdle_vanish_or_talk_nonsense_harm_nobody(
    serve: Callable[..., Server], notes: Path, ask: httpx.Client
) -> None:
    server = serve(notes)
    at = urlsplit(server.url)
    where = (at.hostname, at.port)
    slow = [socket.create_connection(where) for _ in range(20)]
    for each in slow:
        each.sendall(b"GET /search?q=keel HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")
    with socket.create_connection(where) as nonsense:
        nonsense.sendall(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" * 50)
        assert b"200" not in nonsense.recv(100)
    with ask.stream("GET", f"{server.url}/index/progress") as stream:
        first = next(stream.iter_lines())
        assert first == "event: job"
    with socket.create_connection(where) as vanishing:
        vanishing.sendall(b"GET /index/progress HTTP/1.1\r\nHost: localhost\r\n\r\n")
        vanishing.recv(10)
    found = ask.get(f"{server.url}/search", params={"q": "keel"}).json()
    assert found["results"][0]["path"] == "boat/keel.md"
    assert server.stop() == 0
    for each in slow:
        each.close()


def test_a_head_without_end_is_cut_off(serve: Callable[..., Server], notes: Path) -> None:
    at = urlsplit(serve(notes).url)
    with socket.create_connection((at.hostname, at.port), timeout=20) as endless:
        endless.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n")
        with pytest.raises(OSError):  # closed long before all of it is sent
            for number in range(2_000):
                endless.sendall(b"X-%d: %s\r\n" % (number, b"a" * 10_000))


@pytest.fixture
def listening(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, int]]:
    """A server in this process that has little patience for heads, and refuses any body but one:
    for that it takes its time."""
    monkeypatch.setattr(process, "HEAD_SECONDS", 0.5)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if taken := scope["path"] == "/taken":
            while (await receive())["more_body"]:
                pass
            await asyncio.sleep(1.0)
        status = 200 if taken else 401
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": scope["path"].encode()})

    with running(app, http=process.BoundedHead, lifespan="off") as address:
        yield address


@pytest.mark.parametrize("first", [b"", b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"])
def test_a_head_that_comes_by_drops_is_cut_off(listening: tuple[str, int], first: bytes) -> None:
    with socket.create_connection(listening, timeout=10) as slow:
        slow.sendall(first)
        if first:
            assert b"401" in slow.recv(1000)
        begun = time.monotonic()
        with pytest.raises(OSError):
            while time.monotonic() - begun < 8:
                slow.sendall(b"G")
                time.sleep(0.1)
        assert time.monotonic() - begun < 8


def test_a_head_after_a_refused_body_is_bounded_as_well(listening: tuple[str, int]) -> None:
    with socket.create_connection(listening, timeout=10) as client:
        body = b"x" * 1_000_000  # refused at once, and yet it may be sent: then clients listen
        client.sendall(b"POST /one HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n")
        client.sendall(body)
        assert b"401" in client.recv(1000)
        client.sendall(b"GET /two HTTP/1.1\r\nHost: localhost\r\n")
        with pytest.raises(OSError):
            for number in range(2_000):
                client.sendall(b"X-%d: %s\r\n" % (number, b"a" * 10_000))


@pytest.mark.parametrize("body", [b"x" * 2_000_000, b"x"])
@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_is_no_head_and_its_answer_may_take_long(
    listening: tuple[str, int], body: bytes, chunked: bool
) -> None:
    told = b"Transfer-Encoding: chunked" if chunked else b"Content-Length: %d" % len(body)
    with socket.create_connection(listening, timeout=10) as client:
        client.sendall(b"POST /taken HTTP/1.1\r\nHost: localhost\r\n%s\r\n\r\n" % told)
        time.sleep(0.1)  # so that it comes by itself
        client.sendall(b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body) if chunked else body)
        assert b"200 OK" in client.recv(1000)


def check_search_beside(
    web: TestClient, ask: Callable[[], object], busy: threading.Event, go: threading.Event
) -> None:
    """A search is answered while what was asked before it goes on."""
    thread = threading.Thread(target=ask)
    thread.start()
    assert busy.wait(10)
    found = web.get("/search", params={"q": "fuse", "cache": False})
    assert thread.is_alive(), "the search came after it"
    go.set()
    thread.join()
    assert found.json()["results"][0]["path"] == "boat/fuses.md"


def test_those_who_wait_for_a_chat_model_keep_no_search_waiting(
    guarded: Callable[..., TestClient], stores: ServedStores, monkeypatch: pytest.MonkeyPatch
) -> None:
    web = guarded(limits=Limits(workers=1, waiting=2))
    go, asked = threading.Event(), threading.Event()

    def slow(*_: object, **__: object) -> Iterator[object]:
        asked.set()
        go.wait(10)
        yield from ()

    monkeypatch.setattr("clew.ask.stream_answer", slow)
    question = {"question": "what keeps blowing?"}
    check_search_beside(web, lambda: web.post("/ask", json=question), asked, go)


@pytest.mark.parametrize("by", ["GET", "POST"])
def test_those_who_walk_down_the_tree_keep_no_search_waiting(
    guarded: Callable[..., TestClient],
    stores: ServedStores,
    monkeypatch: pytest.MonkeyPatch,
    by: str,
) -> None:
    web = guarded(limits=Limits(workers=1, waiting=2))
    go, walking, engine = threading.Event(), threading.Event(), stores.folder().engine
    usual = engine.answer

    def answer(request: SearchRequest) -> clew.SearchResult:
        if request.tree:
            walking.set()
            go.wait(10)
            return clew.SearchResult()
        return usual(request)

    monkeypatch.setattr(engine, "answer", answer)
    walk = {"q": "fuse", "tree": True}
    options = {"params": walk} if by == "GET" else {"json": walk}
    check_search_beside(web, lambda: web.request(by, "/search", **options), walking, go)  # type: ignore[arg-type]


def test_a_killed_server_loses_nothing_that_it_acknowledged(
    serve: Callable[..., Server], notes: Path, tmp_path: Path, ask: httpx.Client
) -> None:
    server = serve(notes, "--db", tmp_path / "kept.db")
    made = [
        ask.post(f"{server.url}/memories", json={"content": f"fact number {n}"}).json()["id"]
        for n in range(5)
    ]
    with ask.stream("GET", f"{server.url}/index/progress") as stream:
        lines = stream.iter_lines()
        next(lines)
        server.process.kill()
        server.process.wait()
        with pytest.raises(httpx.HTTPError):
            list(lines)
    with clew.Memory(tmp_path / "kept.db") as memory:
        assert {each.id for each in memory.latest(10)} == set(made)


def test_script_in_documents_comes_as_data(web: TestClient, notes: Path) -> None:
    text = "<script>alert(1)</script> halyard"
    (notes / "<img src=x>.md").write_text(text, "utf-8")
    web.post("/index", json={"embed": False})
    while web.get("/index").json()["state"] == "running":
        time.sleep(0.02)
    answer = web.get("/search", params={"q": "halyard <script>"})
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert json.loads(answer.text)["results"][0]["content"] == text
    policy = answer.headers["content-security-policy"].split("; ")
    assert {"default-src 'none'", "script-src 'self'"} <= set(policy)
    assert "unsafe" not in answer.headers["content-security-policy"]


def test_a_token_comes_from_a_file_for_either_server(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "token"
    file.write_text("keel-90\n")
    assert read_token("another", file) == "keel-90"
    file.write_text("\n")
    for command in (["serve", str(tmp_path)], ["mcp", "--http"]):
        assert run([*command, "--host", "0.0.0.0", "--token-file", str(file)]) != 0
        assert "it should have the token" in capsys.readouterr().err
        assert run([*command, "--host", "0.0.0.0", "--token-file", str(tmp_path / "none")]) != 0
        assert "cannot read the token" in capsys.readouterr().err
