"""A small storage, and no Search left over from another test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import clew

from hashing import HashingEmbedder

CLAIMS = {
    "keel": "The keel bolts of the sloop are tightened with a torque of forty newton metres.",
    "sail": "New sails were ordered in spring and arrived before the regatta.",
    "mast": "The mast was varnished twice, with a day of drying between the coats.",
    "shed": "Bolt cutters hang in the shed beside the torque wrench.",
    "dinner": "We had soup for dinner.",
}


@pytest.fixture(autouse=True)
def nothing_shared(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """In a folder without a store, with the class's own instance gone afterwards. No model but
    those that tests give, whatever there is on this machine."""
    monkeypatch.setenv("CLEW_MODEL", "none")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    clew.Search.reset()
    yield
    clew.Search.reset()


@pytest.fixture
def storage(tmp_path: Path) -> Iterator[clew.Engine]:
    with clew.open(tmp_path / "storage", embedder=HashingEmbedder()) as engine:
        engine.add({"id": name, "content": text} for name, text in CLAIMS.items())
        engine.embed()
        yield engine


@pytest.fixture
def search(storage: clew.Engine) -> Iterator[clew.Search]:
    with clew.Search(storage) as search:
        yield search
