"""A folder of notes and a memory, as the retrievers' tests search them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import clew

from hashing import HashingEmbedder


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[clew.Engine]:
    notes = tmp_path / "notes"
    notes.mkdir()
    (notes / "keel.md").write_text(
        "---\ntags: [safety]\nstatus: open\n---\n# Keel\n\nThe keel bolts are torqued to 90 Nm.\n"
    )
    (notes / "tea.md").write_text("# Tea\n\nBlack tea draws for four minutes.\n")
    with clew.open(notes, embedder=HashingEmbedder()) as opened:
        opened.index()
        yield opened


@pytest.fixture
def remembered(tmp_path: Path) -> Iterator[clew.Memory]:
    with clew.Memory(tmp_path / "memory.db", embedder=HashingEmbedder()) as memory:
        memory.remember("Ana is allergic to walnuts", tags=["health"], metadata={"turn": 7})
        memory.remember("Ana drinks tea", type="episodic")
        memory.remember("Bo is allergic to walnuts too", namespace="bo")
        yield memory
