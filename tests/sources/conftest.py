from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from listed import Folder

import clew


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Folder]:
    """Writes files (path → text), indexes them and gives the engine."""
    opened: list[clew.Engine] = []

    def make(files: dict[str, str | bytes], **settings: Any) -> clew.Engine:
        for path, text in files.items():
            place = tmp_path / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(text if isinstance(text, bytes) else text.encode())
        engine = clew.open(tmp_path, model="none", **settings)
        opened.append(engine)
        engine.index(tmp_path)
        return engine

    yield make
    for engine in opened:
        engine.close()
