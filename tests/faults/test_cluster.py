"""A store on a real cluster of three nodes, while these fail. Longer by command: see run.py."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest
from cluster import FAULTS, Cluster, suffer, three_nodes

import clew
from clew.errors import StoreError
from clew.store import open_store
from disks import mounted
from entries import entry, found
from qdrant_server import Node, url_of


@pytest.fixture(scope="module")
def nodes() -> Iterator[Cluster]:
    with three_nodes() as cluster:
        yield cluster


@pytest.mark.timeout(600)
@pytest.mark.parametrize("fault", FAULTS)
def test_nothing_acknowledged_is_lost_and_all_goes_on_by_itself(nodes: Cluster, fault: str) -> None:
    traffic, findings = suffer(nodes, fault.replace("_", "-"), fault)
    assert findings == []
    assert traffic.searched


def test_where_a_shard_is_missing_searches_say_so_and_writes_are_refused(
    nodes: Cluster, tmp_path: Path
) -> None:
    url = url_of(nodes.nodes, "single", shards=3, replicas=1)
    options = {"store": url, "model": "none", "busy_seconds": 1.0, "cache": False}
    usual = ("vectors: no embedding model is configured: set `model` to bge-small",)
    with closing(clew.open(tmp_path, **options)) as engine:
        engine.store.put([entry(f"r{i}", f"zebra {i}") for i in range(30)])
        whole = engine.search("zebra", limit=30)
        assert len(whole) == 30 and whole.degraded == usual
        nodes.nodes[2].kill()
        try:
            answer = engine.search("zebra", limit=30)
            assert any("keyword" in problem for problem in answer.degraded)
            with pytest.raises(StoreError):
                engine.store.put([entry(f"n{i}", f"zebra {i}") for i in range(30)])
        finally:
            nodes.nodes[2].start()
        nodes.wait_whole("single")
        engine.store.put([entry("last", "zebra")])
        again = engine.search("zebra", limit=99)
        assert again.degraded == usual
        assert {f"r{i}" for i in range(30)} | {"last"} <= {hit.id for hit in again}


def test_what_is_acknowledged_is_known_to_be_lacking_where_it_is_not(
    nodes: Cluster, tmp_path: Path
) -> None:
    """The node that leads the shards it has is killed. By the time that a write is acknowledged the
    others have agreed on it, so that it cannot come back as if it had everything."""
    by_peer = {node.get("/cluster")["result"]["peer_id"]: node for node in nodes.nodes}
    leader = max(by_peer)
    url = url_of(nodes.nodes, "agreed", shards=3, replicas=2)
    with closing(open_store(url, base=tmp_path, folder=tmp_path, busy_seconds=30.0)) as store:
        store.put([entry(f"r{i}", f"zebra {i}") for i in range(30)])
        by_peer[leader].kill()
        try:
            store.put([entry(f"n{i}", f"zebra {i}") for i in range(30)])
            (other, *_) = (node for peer, node in by_peer.items() if peer != leader)
            for part in ("meta", "records", "words"):
                said = other.get(f"/collections/agreed-{part}/cluster")["result"]
                states = [s["state"] for s in said["remote_shards"] if s["peer_id"] == leader]
                assert states and "Active" not in states
        finally:
            by_peer[leader].start()
        nodes.wait_whole("agreed")
        assert len(found(store, "zebra", limit=99)) == 60


@pytest.mark.timeout(900)  # who waits for a node that hangs waits a minute each time
def test_a_node_whose_disk_is_full_loses_nothing_and_is_said(tmp_path: Path) -> None:
    """A real disk of one of three nodes. What was acknowledged is there, and what was refused is,
    or is not, as a whole; while the node hangs, a search may be refused as well."""
    with mounted(tmp_path / "disk", megabytes=500) as disk:
        nodes = [Node(disk.place / "0", cluster=True)]
        nodes += [Node(tmp_path / str(i), cluster=True) for i in (1, 2)]
        try:
            for node in nodes:
                node.start(None if node is nodes[0] else nodes[0])
            url = url_of(nodes, "full", shards=3, replicas=2)
            with closing(
                open_store(url, base=tmp_path, folder=tmp_path, busy_seconds=5.0)
            ) as store:
                store.put([entry(f"a{i}", f"zebra {i}") for i in range(30)])
                disk.fill()
                acknowledged = {f"a{i}" for i in range(30)}
                refused = list[set[str]]()
                for batch in range(3):
                    names = {f"b{batch}-{i}" for i in range(30)}
                    try:
                        store.put([entry(name, "zebra " + "stripe " * 500) for name in names])
                        acknowledged |= names
                    except StoreError as error:
                        refused.append(names)
                        assert any(said in str(error) for said in ("Qdrant at", "is writing to"))
                    with suppress(StoreError):
                        assert set(found(store, "zebra", limit=999)) >= acknowledged
                disk.empty()
                nodes[0].kill()
                nodes[0].start(wait=False)
                until, seen = time.monotonic() + 120, list[str]()
                while seen != ["last"]:
                    try:
                        store.put([entry("last", "zebra last")])
                        seen = found(store, "last")
                    except StoreError:
                        assert time.monotonic() < until
                there = set(found(store, "zebra", limit=999))
                assert there >= acknowledged | {"last"}
                assert all(len(names & there) in (0, len(names)) for names in refused)
        finally:
            for node in nodes:
                node.kill()
