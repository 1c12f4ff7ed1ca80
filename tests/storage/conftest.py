"""An embedded store with a life behind it, and what it answers whatever becomes of its files."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from samples import SEAL, Answers, Lived, answers, live

from clew.index import vectors
from clew.store import EmbeddedStore


@pytest.fixture
def small_tail(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let hundreds of rows do what tens of thousands do in earnest."""
    monkeypatch.setattr(vectors, "TAIL_ROWS", SEAL["tail_rows"])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def opened(folder: Path, small_tail: None) -> Iterator[Callable[..., EmbeddedStore]]:
    """Opens the store in `folder`; closes it in the end."""
    stores: list[EmbeddedStore] = []

    def open_store(**options: Any) -> EmbeddedStore:
        stores.append(EmbeddedStore(folder, **{"ivf_threshold": SEAL["threshold"]} | options))
        return stores[-1]

    yield open_store
    for store in stores:
        store.close()


@pytest.fixture(scope="session")
def _template(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Answers]:
    folder = tmp_path_factory.mktemp("template") / "store"
    before, vectors.TAIL_ROWS = vectors.TAIL_ROWS, SEAL["tail_rows"]
    try:
        store = EmbeddedStore(folder, ivf_threshold=SEAL["threshold"])
        live(store)
        expected = answers(store)
        store.close()
    finally:
        vectors.TAIL_ROWS = before
    return folder, expected


@pytest.fixture
def lived(_template: tuple[Path, Answers], folder: Path) -> Lived:
    """A copy per test of a store with inverted lists, a tail, deletions and updates."""
    shutil.copytree(_template[0], folder)
    return Lived(folder, _template[1])


@pytest.fixture
def examined(script: Callable[..., subprocess.Popen[str]]) -> Callable[..., list[dict[str, Any]]]:
    """What another process makes of stores: a damaged file may take a process down with it."""

    def examine(*folders: Path) -> list[dict[str, Any]]:
        reports: list[dict[str, Any]] = []
        while len(reports) < len(folders):
            process = script("examine.py", *folders[len(reports) :])
            out, err = process.communicate(timeout=250)
            reports += [json.loads(line) for line in out.splitlines()]
            if len(reports) < len(folders):  # the next one took the process down
                reports.append({"crash": f"exit {process.returncode}: {err}"})
        return reports

    return examine
