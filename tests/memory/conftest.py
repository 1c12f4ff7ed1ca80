"""Memories to try things on."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import clew

from hashing import HashingEmbedder

HERE = Path(__file__).parent


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[clew.Memory]:
    with clew.Memory(tmp_path / "memory.db", embedder=HashingEmbedder(dim=64)) as opened:
        yield opened


@pytest.fixture
def plain(tmp_path: Path) -> Iterator[clew.Memory]:
    """Without a model: vectors are given, of four dimensions."""
    with clew.Memory(tmp_path / "plain.db", embedding_dim=4) as opened:
        yield opened


@pytest.fixture
def script() -> Callable[..., subprocess.Popen[str]]:
    """Starts one of the scripts in this folder as another process."""

    def start(name: str, *arguments: object) -> subprocess.Popen[str]:
        places = [str(HERE), str(HERE.parent), os.environ.get("PYTHONPATH", "")]
        return subprocess.Popen(
            [sys.executable, str(HERE / name), *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(places)},
        )

    return start
