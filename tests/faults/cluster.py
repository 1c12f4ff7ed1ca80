"""A cluster of three real Qdrant nodes, and what befalls it while a store on it is written to and
searched: a node killed, one cut off from the others, all of them killed at once.

What was acknowledged has to be there, and found, whatever happens; what was refused may be. Both
may fail while there is a fault, and have to go on by themselves when it is over.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

from harness import Tally

from clew.errors import StoreError
from clew.filter import Filter
from clew.protocols import Store
from clew.store import open_store
from entries import MODEL, entry, found, ill
from qdrant_server import Node, url_of


class Cluster:
    """Three nodes. Where the machine lets us, the third is in a network namespace of its own, and
    to cut it off is to take its link down. Else it is stopped (SIGSTOP): it answers nobody."""

    def __init__(self, folder: Path):
        self._name = f"clew{os.getpid() % 100_000}"
        # Of the one node that has its own; other processes of the suite have theirs.
        self._network = f"10.{200 + os.getpid() // 256 % 56}.{os.getpid() % 256}"
        self.namespace = self._make_network()
        last = (
            {"host": f"{self._network}.2", "within": [*_root(), "ip", "netns", "exec", self._name]}
            if self.namespace
            else {}
        )
        here = {"host": f"{self._network}.1"} if self.namespace else {}
        self.nodes = [
            Node(folder / "0", cluster=True, **here),  # type: ignore[arg-type]
            Node(folder / "1", cluster=True, **here),  # type: ignore[arg-type]
            Node(folder / "2", cluster=True, **last),  # type: ignore[arg-type]
        ]
        for node in self.nodes:
            node.start(None if node is self.nodes[0] else self.nodes[0])

    def _make_network(self) -> bool:
        inside = ["ip", "netns", "exec", self._name]
        commands = (
            ["ip", "netns", "add", self._name],
            [
                "ip",
                "link",
                "add",
                f"{self._name}a",
                "type",
                "veth",
                "peer",
                "name",
                f"{self._name}b",
            ],
            ["ip", "link", "set", f"{self._name}b", "netns", self._name],
            ["ip", "addr", "add", f"{self._network}.1/30", "dev", f"{self._name}a"],
            ["ip", "link", "set", f"{self._name}a", "up"],
            [*inside, "ip", "addr", "add", f"{self._network}.2/30", "dev", f"{self._name}b"],
            [*inside, "ip", "link", "set", f"{self._name}b", "up"],
            [*inside, "ip", "link", "set", "lo", "up"],
        )
        done = shutil.which("ip") is not None and all(_ran(command) for command in commands)
        if not done:
            self._remove_network()
        return done

    def _remove_network(self) -> None:
        if shutil.which("ip") is not None:
            _ran(["ip", "link", "del", f"{self._name}a"])
            _ran(["ip", "netns", "del", self._name])

    @contextmanager
    def split(self) -> Iterator[None]:
        """The third node and the others do not hear of each other."""
        link = ["ip", "link", "set", f"{self._name}a"]
        if self.namespace:
            assert _ran([*link, "down"])
        else:
            self.nodes[2].signal(signal.SIGSTOP)
        try:
            yield
        finally:
            if self.namespace:
                assert _ran([*link, "up"])
                _ran(["ip", "addr", "add", f"{self._network}.1/30", "dev", f"{self._name}a"])
            else:
                self.nodes[2].signal(signal.SIGCONT)

    def wait_whole(self, name: str, seconds: float = 60.0) -> None:
        """Until every replica of every shard is active again."""
        until = time.monotonic() + seconds
        states: set[str] = set()
        while time.monotonic() < until:
            states = set()
            for part in ("meta", "records", "words"):
                try:
                    said = self.nodes[0].get(f"/collections/{name}-{part}/cluster")["result"]
                except OSError:
                    states.add("away")
                    continue
                shards = [*said["local_shards"], *said["remote_shards"]]
                states |= {shard["state"] for shard in shards}
            if states == {"Active"}:
                return
            time.sleep(0.2)
        raise AssertionError(f"the cluster is not whole again: {states}")

    def close(self) -> None:
        for node in self.nodes:
            node.kill()
        if self.namespace:
            self._remove_network()


def _root() -> list[str]:
    return [] if os.geteuid() == 0 else ["sudo", "-n"]


def _ran(command: Sequence[str]) -> bool:
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    return subprocess.run([*_root(), *command], check=False, **quiet).returncode == 0  # type: ignore[call-overload,no-any-return]


@contextmanager
def three_nodes() -> Iterator[Cluster]:
    fast = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with (
        tempfile.TemporaryDirectory(prefix="clew-cluster-", dir=fast) as folder,
        closing(Cluster(Path(folder))) as cluster,
    ):
        yield cluster


class Traffic:
    """One who writes and one who searches, without a pause, each with an own opening."""

    def __init__(self, url: str, folder: Path):
        self.written: list[str] = []
        """Ids of records that were acknowledged."""
        self.refused = self.searched = self.failed = 0
        self.lost: list[str] = []
        """What a search did not find though it was acknowledged before."""
        self._done = threading.Event()
        self._stack = ExitStack()
        self.stores: list[Store] = [
            self._stack.enter_context(
                closing(open_store(url, base=folder, folder=folder, busy_seconds=5.0))  # type: ignore[type-var]
            )
            for _ in range(2)
        ]
        self._first = self.stores[0].count(Filter())
        self._threads = [
            threading.Thread(target=self._write),
            threading.Thread(target=self._search),
        ]
        for thread in self._threads:
            thread.start()

    def _write(self) -> None:
        number = self._first
        while not self._done.is_set():
            number += 1
            names = [f"r{number:05}{letter}" for letter in "ab"]
            rows = [entry(name, f"zebra {name}", vectors=[[1.0, number]]) for name in names]
            try:
                self.stores[0].put(rows, model=MODEL)
            except StoreError:
                self.refused += 1
            else:
                self.written += names

    def _search(self) -> None:
        while not self._done.is_set():
            known = list(self.written)
            try:
                there = set(found(self.stores[1], "zebra", limit=2_000))
            except StoreError:
                self.failed += 1
            else:
                self.searched += 1
                self.lost += [name for name in known if name not in there]

    def wait(self, more: int, seconds: float = 180.0) -> None:
        """Until so many more were written and something was searched again. A write that is under
        way when a link goes down is given up by the node that has it after a minute."""
        written, searched, until = len(self.written), self.searched, time.monotonic() + seconds
        while len(self.written) < written + more or self.searched <= searched:
            assert time.monotonic() < until, (len(self.written), self.refused, self.failed)
            time.sleep(0.02)

    def close(self) -> None:
        self._done.set()
        for thread in self._threads:
            thread.join()

    def check(self) -> list[str]:
        """What is not as it should be, now that all is quiet."""
        findings = [f"not found while it was there: {name}" for name in dict.fromkeys(self.lost)]
        with self._stack:
            for store in self.stores:
                there = {record.id for record in store.get(self.written)}
                findings += [f"lost: {name}" for name in self.written if name not in there]
                by_words = set(found(store, "zebra", limit=5_000))
                findings += [f"not found: {name}" for name in self.written if name not in by_words]
                halves = {name[:-1] for name in by_words}
                findings += [
                    f"half: {name}" for name in halves if not {f"{name}a", f"{name}b"} <= by_words
                ]
            findings += ill(self.stores[0])
        return findings


def kill_one(cluster: Cluster, traffic: Traffic) -> None:
    cluster.nodes[1].kill()
    try:
        traffic.wait(6)
    finally:
        cluster.nodes[1].start()


def cut_one_off(cluster: Cluster, traffic: Traffic) -> None:
    with cluster.split():
        traffic.wait(6)


def kill_all(cluster: Cluster, traffic: Traffic) -> None:
    for node in cluster.nodes:
        node.kill()
    for node in cluster.nodes:
        node.start(wait=False)
    for node in cluster.nodes:
        node.wait()


FAULTS: dict[str, Callable[[Cluster, Traffic], None]] = {
    "kill_one": kill_one,
    "cut_one_off": cut_one_off,
    "kill_all": kill_all,
}


def suffer(cluster: Cluster, name: str, fault: str) -> tuple[Traffic, list[str]]:
    """A fault, while there is traffic, until that goes on by itself."""
    url = url_of(cluster.nodes, name, shards=3, replicas=2)
    with tempfile.TemporaryDirectory() as folder:
        traffic = Traffic(url, Path(folder))
        try:
            traffic.wait(6)
            FAULTS[fault](cluster, traffic)
            traffic.wait(6)
        finally:
            traffic.close()
        cluster.wait_whole(name)
        return traffic, traffic.check()


def run(*, seed: int, seconds: float, count: int = 10**9) -> Tally:
    """Faults one after the other, for so long."""
    tally, until = Tally(), time.monotonic() + seconds
    with three_nodes() as cluster:
        tally.counts["network namespace"] = int(cluster.namespace)
        kinds = list(FAULTS)
        for number in range(min(count, 10**6)):
            if time.monotonic() > until:
                break
            fault = kinds[(seed + number) % len(kinds)]
            traffic, findings = suffer(cluster, "soak", fault)
            tally.counts[fault] = tally.counts.get(fault, 0) + 1
            for what in ("refused", "searched", "failed"):
                tally.counts[what] = tally.counts.get(what, 0) + getattr(traffic, what)
            tally.counts["written"] = tally.counts.get("written", 0) + len(traffic.written)
            tally.findings += [f"{fault}: {finding}" for finding in findings]
    return tally
