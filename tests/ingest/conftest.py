"""A folder to be indexed, and what embeds it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import clew

from hashing import HashingEmbedder


@pytest.fixture
def embedder() -> HashingEmbedder:
    return HashingEmbedder()


@pytest.fixture
def engine(folder: Path, embedder: HashingEmbedder) -> Iterator[clew.Engine]:
    """Of the folder that a module has."""
    with clew.open(folder, embedder=embedder) as opened:
        yield opened
