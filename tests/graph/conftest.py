"""Small stores whose graphs can be read off the page."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from yard import YARD, Opened

import clew
from clew import Engine


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Opened]:
    """Open a store with no model, so that words and the graph alone decide."""
    engines: list[Engine] = []

    def open_store(name: str = "store", **settings: Any) -> Engine:
        engine = clew.open(tmp_path / name, **{"model": "none", **settings})
        engines.append(engine)
        return engine

    yield open_store
    for engine in engines:
        engine.close()


@pytest.fixture
def yard(opened: Opened) -> Engine:
    engine = opened()
    engine.add(YARD)
    engine.graph.build()
    return engine
