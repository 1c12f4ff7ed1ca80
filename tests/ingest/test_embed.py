"""The second and third pass of indexing, by two processes at once."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import clew
from clew.config import load
from clew.store import open_store

from hashing import HashingEmbedder, Words

SLOW = """
import sys
import clew
from hashing import HashingEmbedder

class Slow(HashingEmbedder):
    def embed_documents(self, texts):
        if not self.embedded:
            print("embedding", flush=True)
            sys.stdin.readline()
        return super().embed_documents(texts)

with clew.open(sys.argv[1], embedder=Slow()) as engine:
    print(engine.index().embedded, flush=True)
"""

SLOW_TOKENS = """
import sys
from pathlib import Path
import clew.ingest.records
from hashing import Words
from ingest.test_embed import open_late

class Slow(Words):
    def encode_passages(self, texts):
        if len(self.encoded) == 3:
            print("encoding", flush=True)
            sys.stdin.readline()
        return super().encode_passages(texts)

clew.ingest.records.SAMPLED = clew.ingest.records.ENCODE_BATCH = 2
with open_late(Path(sys.argv[1]), Slow()) as engine:
    engine.index()
"""


def open_late(folder: Path, model: Words) -> clew.Engine:
    return clew.Engine(
        open_store("", base=folder, folder=folder / ".clew"),
        config=load(None, {"late_interaction": "on", "late_seconds": 0}),
        root=folder,
        embedder=HashingEmbedder(),
        late_interaction=model,
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for i in range(5):
        (tmp_path / f"{i}.md").write_text(f"Note number {i}.\n", "utf-8")
    return tmp_path


@pytest.fixture
def other(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A process in the middle of embedding; a line on its standard input lets it go on."""
    yield from start(SLOW, folder, "embedding\n")


@pytest.fixture
def encoder(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """One in the middle of the third pass, with the codes of three passages of five written."""
    yield from start(SLOW_TOKENS, folder, "encoding\n")


def start(script: str, folder: Path, wanted: str) -> Iterator[subprocess.Popen[str]]:
    tests = str(Path(__file__).parents[1])
    path = os.pathsep.join([tests, os.environ.get("PYTHONPATH", "")])
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(folder)],
        env={**os.environ, "PYTHONPATH": path},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == wanted
    yield process
    process.kill()
    process.communicate()


def test_a_run_beside_another_embeds_nothing_and_says_why(
    folder: Path, other: subprocess.Popen[str]
) -> None:
    mine = HashingEmbedder()
    with clew.open(folder, embedder=mine) as engine:
        (folder / "new.md").write_text("Brought in meanwhile.\n", "utf-8")
        report = engine.index()
        assert report.added == ["new.md"] and report.embedded == 0
        assert any("another process is embedding" in note for note in report.notes)
        out, _ = other.communicate("go on\n", timeout=60)
        assert out == "6\n"  # it has done the new one as well
        assert mine.embedded == []
        assert engine.status()["embedded"] == 1.0
        assert engine.index().notes == []


def test_a_run_that_was_killed_holds_nobody_up(folder: Path, other: subprocess.Popen[str]) -> None:
    other.kill()
    other.wait()
    mine = HashingEmbedder()
    with clew.open(folder, embedder=mine) as engine:
        report = engine.index()
        assert report.embedded == 5 and report.notes == []


def test_embed_waits_for_the_other_and_does_the_rest(
    folder: Path, other: subprocess.Popen[str]
) -> None:
    mine = HashingEmbedder()
    waiting = threading.Event()
    counts: list[int] = []

    def tell(stage: str, done: int, total: int) -> None:
        if stage == "waiting":
            waiting.set()

    with clew.open(folder, embedder=mine) as engine:
        thread = threading.Thread(target=lambda: counts.append(engine.embed(progress=tell)))
        thread.start()
        assert waiting.wait(60) and not counts
        other.communicate("go on\n", timeout=60)
        thread.join(60)
        assert counts == [0] and mine.embedded == []
        assert engine.status()["embedded"] == 1.0


def test_token_codes_are_made_by_one_process(folder: Path, encoder: subprocess.Popen[str]) -> None:
    with open_late(folder, mine := Words()) as engine:
        assert engine.status()["late_interaction"]["share"] == 0.6
        found = engine.search("number of the note")
        assert (found.trace["late"]["read"], found.trace["late"]["of"]) == (3, 5) and found.degraded
        assert "tokens" not in engine.index().seconds and not mine.encoded
        encoder.communicate("go on\n", timeout=60)
        assert engine.status()["late_interaction"]["share"] == 1 and engine.embed() == 0
        assert not mine.encoded


def test_after_a_kill_the_third_pass_goes_on_where_it_was(
    folder: Path, encoder: subprocess.Popen[str]
) -> None:
    encoder.kill()
    encoder.wait()
    stages: list[tuple[str, int, int]] = []
    with open_late(folder, mine := Words()) as engine:
        engine.index(progress=lambda *stage: stages.append(stage))
        assert len(mine.encoded) == 2 and ("reading tokens", 2, 2) in stages
        assert engine.status()["late_interaction"]["share"] == 1
