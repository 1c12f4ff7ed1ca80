"""Ctrl-C: what it says, and that nothing is lost."""

from __future__ import annotations

import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import clew

COMMAND = [sys.executable, "-m", "clew"]


def test_an_interrupted_index_says_what_is_kept_and_how_to_go_on(tmp_path: Path) -> None:
    (tmp_path / "knots.md").write_text("A bowline does not slip.\n", "utf-8")
    with socket.create_server(("127.0.0.1", 0)) as endpoint:  # takes calls, never answers
        endpoint.settimeout(60)
        process = subprocess.Popen(
            [*COMMAND, "index"],
            cwd=tmp_path,
            env={
                **os.environ,
                "CLEW_MODEL": "openai:silent",
                "CLEW_MODEL_URL": f"http://127.0.0.1:{endpoint.getsockname()[1]}/v1",
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # Whoever runs the tests in the background has it ignored, and that is inherited.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        call, _ = endpoint.accept()  # the text is in, and its vectors are being asked for
        with call:
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert said.strip().startswith("clew: stopped") and "`clew index` goes on" in said
    assert "Aborted" not in said and "Traceback" not in said
    found = subprocess.run(
        [*COMMAND, "search", "bowline", "--mode", "keyword"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "knots.md" in found.stdout


def test_an_interrupted_migration_names_the_whole_command_that_goes_on(tmp_path: Path) -> None:
    inner = tmp_path / "my notes"
    inner.mkdir()
    with clew.open(inner, store="embedded:///other.db", model="none") as engine:
        engine.add({"id": f"r{i}", "content": f"walrus {i} " * 50} for i in range(8_000))
    arguments = ["--from", "embedded:///other.db", "--to", "duckdb:///x.duckdb", "--merge"]
    process = subprocess.Popen(
        [*COMMAND, "migrate", *arguments, "-C", "my notes"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    log = inner / "x.duckdb.wal"
    while process.poll() is None and not (log.exists() and log.stat().st_size > 500_000):
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130, said
    assert f"`clew migrate {shlex.join(arguments)} -C 'my notes'` goes on from there" in said
    assert "Traceback" not in said
    again = [*COMMAND, "migrate", *arguments, "-C", "my notes"]
    done = subprocess.run(again, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "8,000 records" in done.stdout and "was gone on with" in done.stdout
