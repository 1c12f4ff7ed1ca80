"""What code does with an engine or a memory, it does with a server as well."""

from __future__ import annotations

import datetime as dt
import socket
import socketserver
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import clew
from clew.client import Client
from clew.errors import InputError
from clew.serve.http import create_app
from clew.serve.stores import ServedStores
from servers import running

TOKEN = "open sesame"


@pytest.fixture
def url(stores: ServedStores) -> Iterator[str]:
    with running(create_app(stores, token=TOKEN), lifespan="on") as (host, port):
        yield f"http://{host}:{port}"


@pytest.fixture
def client(url: str) -> Iterator[Client]:
    with clew.connect(url, token=TOKEN) as connected:
        yield connected


def test_search_gives_the_same_types_and_values(client: Client, stores: ServedStores) -> None:
    engine = stores.folder().engine
    for options in (
        {},
        {"filter": clew.Filter(tags="safety")},
        {"filter": {"path": "boat", "importance_min": 0.1}},
        {"mode": "keyword", "sources": ["keyword"], "explain": True},
        {"sources": "keyword"},
        {"filter": clew.Filter(metadata={"language": None})},
        {"filter": clew.Filter(after=1.5e9, before=dt.date(2100, 1, 1))},
    ):
        got = client.search("keel bolts", limit=3, cache=False, **options)
        own = engine.search("keel bolts", limit=3, cache=False, **options)
        assert isinstance(got, clew.SearchResult) and isinstance(got[0], clew.Hit)
        assert got.hits == own.hits
        assert got.notes == own.notes
    half = client.search("keel \ud800 bolts", cache=False)
    assert half.hits == engine.search("keel \ud800 bolts", cache=False).hits
    assert not client.search("keel", filter=clew.Filter(metadata={"page": {"lt": 3}}))
    engine.add([clew.Record(id="m", content="A spare keel.", metadata={"status": "open"})])
    (hit,) = client.search("keel", filter=clew.Filter(metadata={"status": ["shut", "open"]}))
    assert hit.id == "m"
    with pytest.raises(InputError, match="no source is named"):
        client.search("keel", sources=[])
    nothing = client.search("keel", filter=clew.Filter(tags="saefty"))
    assert not nothing and "saefty" in nothing.notes[0].text


def test_records_and_status(client: Client, stores: ServedStores) -> None:
    engine = stores.folder().engine
    assert client.get("notes:boat/keel.md") == engine.get("notes:boat/keel.md")
    assert client.get("nothing") is None
    assert client.status()["records"] == 3
    assert [each["name"] for each in client.stores()] == ["notes", "memory"]


def test_index_waits_for_what_it_did(client: Client, notes: Path) -> None:
    (notes / "new.md").write_text("A sextant measures angles.", "utf-8")
    assert client.index(embed=False)["added"] == ["new.md"]
    assert client.search("sextant")


def test_memories_live_as_they_do_here(client: Client, stores: ServedStores) -> None:
    made = client.remember("Ana lives in Porto", tags="home", metadata={"turn": 7})
    assert made["status"] == made.status == "created"
    memory = stores.memory()
    own = memory.recall("where does Ana live", metadata={"turn": 7}, record_access=False)
    got = client.recall("where does Ana live", None, 5, metadata={"turn": 7})
    with pytest.raises(InputError, match="now"):
        client.recall("where does Ana live", now=0.0)
    client.recall("where does Ana live", record_access=False)
    kept = memory.get(made.id)
    assert kept is not None and kept.accesses == 1
    with pytest.raises(InputError, match="embedding"):
        client.recall("where does Ana live", [1.0, 0.0])  # type: ignore[arg-type]
    assert [each.content for each in got] == [each.content for each in own]
    assert got.diagnostics["search_type"] == own.diagnostics["search_type"]
    assert client.update(made.id, importance=0.9).status == "updated"
    then = client.supersede(made.id, "Ana lives in Lisbon")
    assert [each.id for each in client.history(then.id)] == [then.id, made.id]
    assert client.latest(1)[0].content == "Ana lives in Lisbon"
    assert client.feedback(then.id)["useful"] == 1
    assert client.forget(then.id) is True
    assert client.forget("nobody") is False
    assert client.restore(then.id) == 1
    assert len(client.remember_many([{"content": "one"}, {"content": "two"}])) == 2


@pytest.mark.parametrize(
    "options",
    [
        {"time_range": (1.6e9, None)},
        {"time_range": (None, 1_600_000_000)},
        {"time_range": (dt.date(2023, 1, 1), dt.datetime(2025, 1, 1, tzinfo=dt.UTC))},
        {"as_of": 1.7e9 + 1},
        {"metadata": {"turn": 7}},
        {"metadata": {"turn": "7"}},
        {"metadata": {"page": "7"}},
        {"metadata": {"turn": {"gte": 3}}},
        {"metadata": {"nothing": None}},
        {"namespace": ["default", "bo"]},
    ],
)
def test_which_memories_are_meant_is_said_as_to_a_memory(
    client: Client, stores: ServedStores, options: dict[str, Any]
) -> None:
    memory = stores.memory()
    told = {"turn": 7, "page": "7"}
    memory.remember("Ana lives in Porto", id="a", metadata=told, created_at=1.7e9)
    memory.remember("Bo lives in Porto", id="b", namespace="bo", metadata=told, created_at=1.65e9)
    asked = {"floor": 0, **options}
    assert [each.id for each in client.recall("lives", **asked)] == [
        each.id for each in memory.recall("lives", **asked)
    ]
    if "metadata" in options:
        assert client.latest(**options) == memory.latest(**options)


def test_calls_that_a_memory_takes_a_client_takes(client: Client, stores: ServedStores) -> None:
    memory, told = stores.memory(), list[tuple[Any, ...]]()
    many = [{"content": "one"}, {"content": "two"}]
    for each in (client, memory):
        made = each.remember("Ana sails", "episodic", 0.5, "boat", None, None, f"of-{id(each)}")
        assert each.update(made.id, "Ana sails again", tags="sea").status == "updated"
        each.remember_many(many, progress=lambda *said: told.append(said))
        each.forget(made.id)
        assert each.restore([made.id]) == 1
        with pytest.raises(InputError, match="is no namespace"):
            each.latest(namespace=None)  # type: ignore[arg-type]
        then = each.supersede(made.id, "Ana rows", tags="lake")
        assert memory.get(then.id).tags == ("lake",)  # type: ignore[union-attr]
        assert memory.get(made.id).tags == ("sea",)  # type: ignore[union-attr]
    assert told == [("remembering", 1, 2), *[("remembering", 2, 2)] * 2]
    for refused in (client.remember, client.update):
        with pytest.raises(InputError, match="embedding"):
            refused("x", embedding=[1.0, 0.0])  # type: ignore[operator]


def test_errors_are_those_of_the_library(client: Client, url: str) -> None:
    with pytest.raises(clew.InputError, match="no store 'elsewhere'"):
        clew.connect(url, token=TOKEN, store="elsewhere").search("keel")
    with pytest.raises(clew.InputError, match="after"):
        client.search("keel", filter={"after": "yesterdayish"})
    with pytest.raises(clew.ConfigError, match="token"):
        clew.connect(url, token="wrong").status()
    with pytest.raises(clew.ConfigError, match="http://HOST"):
        clew.connect("localhost:80")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        with pytest.raises(clew.StoreError, match="clew serve"):
            clew.connect(f"http://127.0.0.1:{taken.getsockname()[1]}").status()


def test_threads_share_a_client(client: Client) -> None:
    def look(_: int) -> list[int]:
        return [len(client.search("keel fuse bread", limit=5)) for _ in range(5)]

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(look, range(4))) == [[3] * 5] * 4


@pytest.mark.parametrize(
    "said",
    [
        b"data: [[[\n\n",
        b"data: " + b"[" * 100_000 + b"\n\n",
        b"event: done\ndata: 3\n\n",
        b"cut off",
        b'{"results": [3]',
        b"[]",
    ],
)
def test_what_another_server_says_is_an_error(said: bytes) -> None:
    class Other(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            while self.rfile.readline().strip():
                pass
            length = len(said) + (said == b"cut off")
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % length + said)

    with socketserver.TCPServer(("127.0.0.1", 0), Other) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with clew.connect(f"http://127.0.0.1:{server.server_address[1]}", timeout=5) as connected:
            for ask in (connected.ask, connected.search):
                with pytest.raises(
                    clew.ClewError, match=r"server of Clew|broke off|nobody answers"
                ):
                    ask("keel")
        server.shutdown()
