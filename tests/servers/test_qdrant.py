"""A store in Qdrant beyond the contract: addresses, refusals, kills, moves, what stands on it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from http.server import BaseHTTPRequestHandler
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import clew
from clew.config import load
from clew.errors import ConfigError, InputError, StoreError
from clew.filter import Filter
from clew.protocols import Store
from clew.servers.qdrant import journal
from clew.servers.qdrant.client import Address, Server
from clew.servers.qdrant.records import vectors_part
from clew.storage import migrate as migrating
from clew.storage.migrate import migrate
from clew.store import EmbeddedStore, open_store
from clew.types import Record
from entries import MODEL, entry, found, ill, near
from qdrant_server import Node, free_ports, serving, url_of
from servers import StandIn, answering

from hashing import HashingEmbedder, Words

_NUMBERS = count()


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    with serving() as (one,):
        yield one


@pytest.fixture
def url(node: Node) -> str:
    return url_of([node], f"s{next(_NUMBERS)}", shards=2)


@contextmanager
def opened(url: str, folder: Path, *, create: bool = True) -> Iterator[Store]:
    store = open_store(url, base=folder, folder=folder, create=create, busy_seconds=3.0)
    try:
        yield store
    finally:
        store.close()


# ---------------------------------------------------------------------- addresses


def test_an_address_says_nodes_name_shards_and_replicas() -> None:
    said = Address.of("qdrant://one:7000,two/notes?shards=6&replicas=2&tls=true")
    assert said == ((("one", 7000), ("two", 6333)), "notes", 6, 2, True)
    assert Address.of("qdrant://[::1]:6333") == ((("::1", 6333),), "clew", 1, 1, False)


@pytest.mark.parametrize(
    "url",
    [
        "qdrant://:key@host:6333/a",
        "qdrant://host:x/a",
        "qdrant://host:99999/a",
        "qdrant://,host/a",
        "qdrant:///a",
        "qdrant://host/a/b",
        "qdrant://host/ä",
        "qdrant://host/a?shard=2",
        "qdrant://host/a?shards=0",
        "qdrant://host/a?replicas=two",
        "qdrant://host/a?tls=yes",
    ],
)
def test_an_address_that_makes_no_sense_is_refused(url: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError), opened(url, tmp_path):
        pass


def test_collections_have_the_shards_that_were_asked_for(
    node: Node, url: str, tmp_path: Path
) -> None:
    with opened(url, tmp_path) as store:
        store.put([entry("a", "zebra", vectors=[[1, 0]])], model=MODEL)
    server = Server(Address.of(url), patience=1.0)
    with closing(server):
        parts = server.collections()
        assert parts == ["meta", "records", vectors_part(MODEL, 2), "words"]
        for part in parts:
            said = server.call("GET", f"/collections/{server.collection(part)}")
            assert said["config"]["params"]["shard_number"] == (1 if part == "meta" else 2)
            assert "is" in said["payload_schema"]


# ---------------------------------------------------------------------- refusals


def test_a_server_that_is_away_is_said_at_once(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    with (
        pytest.raises(StoreError, match=r"no server answers .* start it, or check the address"),
        opened(f"qdrant://127.0.0.1:{port}/a", tmp_path),
    ):
        pass


def test_a_wrong_key_is_said_and_the_right_one_is_taken_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(key="open sesame") as nodes:
        for key in ("", "wrong"):
            monkeypatch.setenv("QDRANT_API_KEY", key)
            with (
                pytest.raises(StoreError, match="QDRANT_API_KEY"),
                opened(url_of(nodes, "a"), tmp_path),
            ):
                pass
        monkeypatch.setenv("QDRANT_API_KEY", "open sesame")
        with opened(url_of(nodes, "a"), tmp_path) as store:
            store.put([entry("a", "zebra")])
            assert found(store, "zebra") == ["a"]


@pytest.mark.parametrize("said", ['{"version": "1.9.2"}', '{"version": "2.0.0"}', "<html>", "[]"])
def test_another_version_or_another_program_is_refused(said: str, tmp_path: Path) -> None:
    class Other(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(said.encode())

        def log_message(self, *_: object) -> None:
            pass

    with answering(StandIn(Other)) as server:
        address = f"qdrant://127.0.0.1:{server.server_port}/a"
        with pytest.raises(StoreError, match="version"), opened(address, tmp_path):
            pass


@pytest.mark.parametrize(("version", "said"), [("1.16.3", 1), ("1.18.0", 1), ("1.18.1", 0)])
def test_a_check_says_of_older_servers_that_searches_may_miss_what_was_just_written(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, said: int
) -> None:
    monkeypatch.setattr(Server, "_version", lambda _: version)
    with opened(url, tmp_path) as store:
        checks = list(store.upkeep.check())
        assert sum("1.18.1" in what for what, _, _ in checks) == said
        assert ill(store) == []


def test_what_is_not_there_is_not_made_unless_asked(url: str, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="has no store"), opened(url, tmp_path, create=False):
        pass
    server = Server(Address.of(url), patience=1.0)
    with closing(server):
        assert server.collections() == []


def test_a_collection_with_another_dimension_is_refused_and_nothing_is_written(
    url: str, tmp_path: Path
) -> None:
    with opened(url, tmp_path) as store, closing(Server(Address.of(url), patience=1.0)) as server:
        path = f"/collections/{server.collection(vectors_part(MODEL, 2))}"
        server.call("PUT", path, {"vectors": {"dense": {"size": 5, "distance": "Dot"}}})
        before = store.changes.edition()
        with pytest.raises(StoreError, match="5 dimensions"):
            store.put([entry("a", "zebra", vectors=[[1, 0]])], model=MODEL)
        assert store.changes.edition() == before
        store.put([entry("b", "zebra")])  # and the store is none the worse for it
        assert found(store, "zebra") == ["b"]


def test_a_store_of_a_newer_format_is_refused(url: str, tmp_path: Path) -> None:
    with opened(url, tmp_path), closing(Server(Address.of(url), patience=1.0)) as server:
        newer = {"set_payload": {"payload": {"format": 99}, "filter": {}}}
        server.write("meta", [newer])
        with pytest.raises(StoreError, match="newer Clew"), opened(url, tmp_path):
            pass


def test_a_store_whose_collections_were_deleted_says_so(url: str, tmp_path: Path) -> None:
    with opened(url, tmp_path) as store, closing(Server(Address.of(url), patience=1.0)) as server:
        store.put([entry("a", "zebra")])
        for part in server.collections():
            server.call("DELETE", f"/collections/{server.collection(part)}")
        with pytest.raises(StoreError):
            found(store, "zebra")
        with pytest.raises(StoreError):
            store.put([entry("b", "zebra")])


# ---------------------------------------------------------------------- kills


@pytest.mark.parametrize("moment", ["before", "made", "half"])
def test_a_batch_is_there_whole_or_not_at_all_whenever_its_writer_is_killed(
    url: str, tmp_path: Path, moment: str
) -> None:
    with opened(url, tmp_path) as store:
        store.put([entry("old", "zebra", vectors=[[1, 0]], tags=("old",))], model=MODEL)
        here = Path(__file__).parent
        done = subprocess.run(
            [sys.executable, str(here / "qdrant_victim.py"), url, str(tmp_path), moment],
            env={**os.environ, "PYTHONPATH": os.pathsep.join([*sys.path, str(here.parent)])},
            check=False,
        )
        assert done.returncode == -9
        if moment == "before":
            assert found(store, "zebra") == ["old"]
            assert near(store, [1, 0], tags="old") == ["old"]
        else:
            assert sorted(found(store, "zebra")) == [f"n{i}" for i in range(5)]
            assert found(store, "walrus", tags="new") == ["old"]
            assert len(near(store, [1, 0])) == 6
        store.put([entry("next", "zebra")])
        assert "next" in found(store, "zebra")
        assert ill(store) == []


# ---------------------------------------------------------------------- moves


def test_a_write_that_was_refused_keeps_nobody_waiting(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a full disk: neither the write nor the end of its lease can be told to the server."""
    with closing(open_store(url, base=tmp_path, folder=tmp_path, busy_seconds=1.0)) as store:
        store.put([entry("one", "zebra one")])
        write = Server.write
        full: list[str] = []

        def refuse(self: Server, part: str, operations: Sequence[Any]) -> None:
            if full or any("upsert" in operation for operation in operations):
                full.append(part)
                raise StoreError("the disk of a node is full")
            write(self, part, operations)

        with monkeypatch.context() as patch:
            patch.setattr(Server, "write", refuse)
            with pytest.raises(StoreError, match="full"):
                store.put([entry("two", "zebra two")])
        assert len(full) > 1
        assert found(store, "zebra") == ["one"]
        store.put([entry("two", "zebra two")])
        assert sorted(found(store, "zebra")) == ["one", "two"]


def test_a_writer_that_was_stopped_writes_nothing_over_what_came_after_it(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It wakes in the middle of applying its entry, which another has applied in its place."""
    monkeypatch.setattr(journal, "LEASE", 0.4)
    monkeypatch.setattr(journal, "PIECE", 3_000)
    names = [f"r{i}" for i in range(12)]
    with opened(url, tmp_path / "a") as stopped, opened(url, tmp_path / "b") as other:
        write = Server.write
        asleep: list[str] = []

        def stop(self: Server, part: str, operations: Sequence[Any]) -> None:
            write(self, part, operations)
            if part == "records" and not asleep:
                asleep.append(part)
                other.put([entry(name, "walrus") for name in names])

        monkeypatch.setattr(Server, "write", stop)
        stopped.put([entry(name, f"zebra {name} " * 60) for name in names])
        assert asleep
        assert {record.content for record in other.get(names)} == {"walrus"}
        assert sorted(found(other, "walrus", limit=20)) == sorted(names)
        assert ill(other) == []


def test_a_writer_that_has_lost_its_lease_leaves_its_entry_to_who_has_it(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another has taken the lease while it slept, and has not read the entry yet."""
    monkeypatch.setattr(journal, "LEASE", 0.4)
    monkeypatch.setattr(journal, "PIECE", 3_000)
    names = [f"r{i}" for i in range(12)]
    with opened(url, tmp_path / "a") as stopped, opened(url, tmp_path / "b") as other:
        write = Server.write
        asleep: list[str] = []

        def stop(self: Server, part: str, operations: Sequence[Any]) -> None:
            write(self, part, operations)
            if part == "records" and not asleep:
                asleep.append(part)
                thief: Any = other
                head = thief._journal.read()
                thief._journal._change(head.owner, {"owner": "elsewhere:1:gone", "until": 0.0})
                time.sleep(0.2)

        monkeypatch.setattr(Server, "write", stop)
        stopped.put([entry(name, f"zebra {name} " * 60) for name in names])
        assert asleep
        assert len(other.get(names)) == len(names)
        assert sorted(found(other, "zebra", limit=20)) == sorted(names)
        assert ill(other) == []


def test_words_are_made_anew_by_nobody_who_was_overtaken(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "LEASE", 0.4)
    with opened(url, tmp_path / "a") as stopped, opened(url, tmp_path / "b") as other:
        stopped.put([entry("old", "zebra")])
        write = Server.write
        asleep: list[str] = []

        def stop(self: Server, part: str, operations: Sequence[Any]) -> None:
            write(self, part, operations)
            if part == "words" and not asleep:
                asleep.append(part)
                other.put([entry("new", "walrus")])

        monkeypatch.setattr(Server, "write", stop)
        with pytest.raises(StoreError, match="went ahead"):
            stopped.indexes.rebuild()
        assert found(other, "walrus") == ["new"]
        assert ill(other) == []
        stopped.indexes.rebuild()
        assert found(other, "zebra") == ["old"]


def test_a_store_moves_there_and_back_with_nothing_lost_though_it_is_interrupted(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migrating, "BATCH", 7)
    with ExitStack() as stack:
        source = stack.enter_context(closing(EmbeddedStore(tmp_path / "one")))
        target = stack.enter_context(opened(url, tmp_path))
        back = stack.enter_context(closing(EmbeddedStore(tmp_path / "two")))
        rows = [
            entry(
                f"r{i:02}",
                [f"zebra {i}", "walrus"],
                vectors=[[1, i], [i, 1 / 3]],
                tags=("t",) * (i % 2),
                importance=i / 31,
                created_at=1e9 + i / 7,
                metadata={"n": 2**60 + i, "f": i / 3},
                valid_to=2e9 + i / 9 if i % 3 else None,
            )
            for i in range(30)
        ]
        source.put(rows, model=MODEL)
        source.put([entry("bare", "heron", path="a/b.md", links=("r01",))])
        source.lifecycle.end(["r03"], at=1e9 + 1 / 3, reason="superseded", successor="r04")
        source.lifecycle.count_accesses({"r05": 3}, at=1e9 + 1 / 7)
        source.notes["n"] = "x\0y"
        source.files.set_root("notes", "/somewhere")

        def interrupt(stage: str, done: int, total: int) -> None:
            if done > 10:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            migrate(source, target, origin="one", progress=interrupt)
        with pytest.raises(InputError, match="not from there"):
            migrate(back, target, origin="another")
        done = migrate(source, target, origin="one")
        assert (done.well, done.resumed, done.records) == (True, True, 31)
        again = migrate(target, back, origin="two")
        assert (again.well, again.records, again.vectors) == (True, 31, 60)
        assert back.lifecycle.ledger(Filter()) == source.lifecycle.ledger(Filter())
        assert found(target, "zebra 7", limit=1) == ["r07"] == found(back, "zebra 7", limit=1)


# ---------------------------------------------------------------------- what stands on it


def test_a_folder_is_indexed_and_searched_by_command(url: str, tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("# Sauna\nThe heater trips the breaker. #home")
    (tmp_path / "b.md").write_text("# Boat\nThe keel is lead. See [[a]].")
    (tmp_path / "clew.toml").write_text(f'store = "{url}"\nmodel = "none"\n')

    def run(*words: str) -> dict[str, object]:
        command = [sys.executable, "-m", "clew", *words, "--json", "-C", str(tmp_path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        said: dict[str, object] = json.loads(done.stdout)
        return said

    run("index")
    (first,) = run("search", "sauna heater")["results"][:1]  # type: ignore[index]
    assert first["path"] == "a.md"
    assert run("status")["records"] == 2


def test_memories_are_kept_recalled_and_forgotten(url: str) -> None:
    with clew.Memory(url, embedder=HashingEmbedder(dim=32)) as memory:
        kept = memory.remember("The keel bolts are from 1987", tags=["boat"]).id
        memory.remember("The sauna heater trips the breaker")
        assert memory.recall("keel bolts", k=1)[0].id == kept
        assert memory.remember("The keel bolts are from 1987").id == kept
        memory.forget(kept)
        assert all(hit.id != kept for hit in memory.recall("keel bolts", k=5))
    with clew.Memory(url, embedder=HashingEmbedder(dim=32)) as memory:
        assert [hit.content for hit in memory.recall("breaker", k=1)] == [
            "The sauna heater trips the breaker"
        ]


# ---------------------------------------------------------------------- late interaction


def test_tokens_are_multivectors_and_scored_as_codes_are(url: str, tmp_path: Path) -> None:
    texts = {
        "hull": "The hull was painted in spring. Paint needs two days to dry.",
        "crane": "A crane lifts the engine. The crane is inspected every year.",
        "sail": "Sails are dried before they are stored for the winter.",
    }

    def asked(store: Store) -> tuple[list[str], dict[str, float], dict[str, object]]:
        engine = clew.Engine(
            store,
            config=load(None, {"cache": False, "late_interaction": "on", "late_seconds": 0}),
            root=tmp_path,
            embedder=HashingEmbedder(dim=64),
            late_interaction=Words(),
        )
        engine.add(Record(id=name, content=text) for name, text in texts.items())
        engine.embed()
        result = engine.search("when was the hull painted", explain=True)
        scores = {row["id"]: row["score"] for row in result.trace["lists"]["late_interaction"]}
        status = engine.status()["late_interaction"]
        assert not result.degraded
        store.delete(["sail"])
        engine.vacuum()
        left = engine.load_token_reader().figures(store)
        assert left["passages"] == 2 and left["share"] == 1
        return [hit.id for hit in result], scores, status

    with opened(url, tmp_path / "there") as store:
        ids, scores, status = asked(store)
        codes = list((tmp_path / "there").glob("tokens-*"))
    with closing(EmbeddedStore(tmp_path / "here")) as store:
        others, theirs, _ = asked(store)
    assert ids == others and status["passages"] == 3 and not codes
    assert scores == pytest.approx(theirs, abs=0.02)
