"""Memories to try things on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import clew

from hashing import Hanging, HashingEmbedder


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
def unheard(tmp_path: Path) -> Iterator[clew.Memory]:
    """Of one memory, whose embedder does not answer in time."""
    embedder = Hanging()
    try:
        with clew.Memory(tmp_path / "m.db", embedder=embedder, deadline=1.0) as opened:
            opened.remember("the keel is red", id="keel")
            yield opened
    finally:
        embedder.free.set()
