"""A server as users start it, and the same application inside the test's process."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from fastapi.testclient import TestClient

import clew
from clew.serve.http import create_app
from clew.serve.stores import ServedStores
from servers import Server

NOTES = {
    "boat/fuses.md": "# Fuses\n\nThe electric fuse keeps blowing when the pump starts.\n",
    "boat/keel.md": "---\ntags: [safety]\n---\n# Keel\n\nTorque the keel bolts to 80 Nm.\n",
    "kitchen.txt": "Walnut bread needs two hours to rise.\n",
}


@pytest.fixture
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is indexed, by words alone."""
    monkeypatch.setenv("CLEW_MODEL", "none")
    folder = tmp_path / "notes"
    for name, text in NOTES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, "utf-8")
    with clew.open(folder) as engine:
        engine.index()
    return folder


@pytest.fixture
def stores(notes: Path, tmp_path: Path) -> Iterator[ServedStores]:
    with ServedStores() as opened:
        opened.open_folder(notes)
        opened.open_memory(tmp_path / "memory.db")
        yield opened


@pytest.fixture
def web(stores: ServedStores) -> Iterator[TestClient]:
    with TestClient(create_app(stores), base_url="http://127.0.0.1") as client:
        yield client


@pytest.fixture
def serve() -> Iterator[Callable[..., Server]]:
    """Run `clew serve …` on any free port; what is still there at the end is killed."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str | Path, **environment: str) -> Server:
        command = [sys.executable, "-m", "clew", "serve", "--port", "0", *map(str, arguments)]
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "CLEW_MODEL": "none", **environment},
        )
        started.append(process)
        assert process.stdout is not None
        said = ""
        for line in process.stdout:
            said += line
            if found := re.search(r"http://\S+:\d+", line):
                return Server(process, found[0])
        raise AssertionError(f"the server ended: {said}")

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
            process.wait()


@pytest.fixture
def ask() -> Iterator[httpx.Client]:
    with httpx.Client(timeout=30) as client:
        yield client
