"""Commands are answered by the resident process of their store, and by themselves where there is
none: the answers are the same."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

import clew
from clew import resident
from clew.cli import command_route
from clew.errors import StoreError
from clew.serve.http import create_app
from clew.serve.server import local_socket
from clew.serve.stores import ServedStores
from servers import Server

TIMES = re.compile(
    r'"stages_ms": \{[^}]*\}|"\w*ms": [\d.e-]+|"accesses": \d+|[ ▏▎▍▌▋▊▉█]*[\d.]+ ms'
)
"""What differs between two runs of the same command."""


def run(*arguments: str | Path, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "clew", *map(str, arguments)],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "CLEW_MODEL": "none", **environment},
    )
    assert done.returncode == 0, done.stderr
    return done


def count_commands(server: Server, ask: httpx.Client) -> int:
    text = ask.get(f"{server.url}/metrics").text
    route = 'clew_requests_total{method="POST",route="/command",status="200"} '
    found = re.search(re.escape(route) + r"(\d+)", text)
    return int(found[1]) if found else 0


def test_answers_are_the_same_with_and_without_a_server(
    serve: Callable[..., Server], notes: Path, tmp_path: Path, ask: httpx.Client
) -> None:
    db = tmp_path / "memory.db"
    with clew.Memory(db) as memory:
        memory.remember("Ana is allergic to walnuts", tags=["health"])
    calls: list[tuple[str | Path, ...]] = [
        ("search", "--json", "--no-cache", "electric fuse"),
        ("search", "--no-cache", "electric fuse", "-n", "2", "-draft"),
        ("search", "--no-cache", "--explain", "--tag", "saefty", "keel", "-C", notes),
        ("recall", "--json", "walnuts", "--db", db),
    ]
    cwd = notes / "boat"
    cold = [run(*call, cwd=cwd) for call in calls]
    server = serve(notes, "--db", db, "--no-watch")
    warm = [run(*call, cwd=cwd) for call in calls]
    assert count_commands(server, ask) == len(calls)
    for alone, asked in zip(cold, warm, strict=True):
        assert TIMES.sub("", asked.stdout + asked.stderr) == TIMES.sub(
            "", alone.stdout + alone.stderr
        )


def test_another_store_or_setting_is_not_answered_for(
    serve: Callable[..., Server], notes: Path, tmp_path: Path, ask: httpx.Client
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "a.md").write_text("A fuse of another folder.", "utf-8")
    with clew.open(other) as engine:
        engine.index()
    server = serve(notes, "--no-watch")
    assert "another folder" in run("search", "fuse", "-C", other, cwd=notes).stdout
    assert "pump" in run("search", "fuse", cwd=notes, CLEW_LIMIT_UNUSED="1").stdout
    assert "pump" in run("search", "fuse", cwd=notes, CLEW_FLOOR="0.1").stdout
    assert count_commands(server, ask) == 0


def test_a_command_in_error_says_so_itself(serve: Callable[..., Server], notes: Path) -> None:
    serve(notes, "--no-watch")
    for arguments in (["--nonsense"], ["--after", "yesterdayish", "fuse"]):
        done = subprocess.run(
            [sys.executable, "-m", "clew", "search", *arguments],
            cwd=notes,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode in (1, 2) and done.stderr


def test_a_killed_server_leaves_a_socket_that_stops_nobody(
    serve: Callable[..., Server], notes: Path, ask: httpx.Client
) -> None:
    server = serve(notes, "--no-watch")
    file = Path(resident.socket_file(str(notes)))
    assert file.stat().st_mode & 0o777 == 0o600
    server.process.send_signal(signal.SIGKILL)
    server.process.wait()
    assert file.is_socket()
    assert "pump" in run("search", "fuse", cwd=notes).stdout
    again = serve(notes, "--no-watch")
    assert "pump" in run("search", "fuse", cwd=notes).stdout
    assert count_commands(again, ask) == 1
    assert again.stop() == 0
    assert not file.exists()


def test_a_command_that_makes_no_sense_is_refused(stores: ServedStores, notes: Path) -> None:
    app = create_app(stores, routers=[command_route.routes])
    said: dict[str, Any] = {
        "place": str(notes),
        "folder": str(notes),
        "settings": "",
        "terminal": False,
    }
    said |= {"columns": 0, "display": {}}

    async def ask(server: tuple[str, int | None], arguments: list[str]) -> tuple[int, str]:
        there = httpx.ASGITransport(Located(app, server))
        async with httpx.AsyncClient(transport=there, base_url="http://localhost") as client:
            answer = await client.post("/command", json={**said, "arguments": arguments})
        return answer.status_code, answer.json()["error"]

    local = ("/run/clew.sock", None)
    assert asyncio.run(ask(local, []))[0] == 422
    status, error = asyncio.run(ask(local, ["status"]))
    assert status == 400 and "search and recall" in error
    assert asyncio.run(ask(("127.0.0.1", 80), []))[0] == 404


class Located:
    """An application as it is asked at this address."""

    def __init__(self, app: Any, server: tuple[str, int | None]):
        self._app, self._server = app, server

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await self._app({**scope, "server": self._server}, receive, send)


def test_a_second_server_of_a_store_says_so(notes: Path) -> None:
    with (
        local_socket(str(notes)),
        pytest.raises(StoreError, match="another `clew serve`"),
        local_socket(str(notes)),
    ):
        pass


def test_what_is_no_socket_of_this_user_is_not_asked(notes: Path, tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_text("no socket")
    assert resident.post(str(plain), "/command", {}) is None
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(tmp_path / "silent"))
        with pytest.raises(OSError, match=r"refused"):
            resident.post(str(tmp_path / "silent"), "/command", {})


def test_a_long_path_has_its_socket_elsewhere(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 100)
    (deep / ".clew").mkdir(parents=True)
    file = resident.socket_file(str(deep))
    assert len(file) <= resident.LONGEST_PATH and ".clew/" not in file


def test_asking_a_resident_process_imports_next_to_nothing() -> None:
    code = (
        "import sys; from clew.cli import main; from clew.resident import answer_command;"
        "answer_command(['search', 'x']);"
        "print([m for m in ('click', 'numpy', 'tantivy', 'clew.engine', 'typing') "
        "if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
