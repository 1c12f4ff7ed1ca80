"""A folder with records of several topics, and a tree over them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from topics import records

import clew

from hashing import HashingEmbedder


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[clew.Engine]:
    with clew.open(tmp_path, embedder=HashingEmbedder(), cache=False) as opened:
        opened.add(records(25))
        opened.embed()
        opened.tree.build(branching=10)
        yield opened
