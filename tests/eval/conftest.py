"""A tiny collection whose figures can be worked out by hand."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Write = Callable[..., Path]

CORPUS: list[dict[str, Any]] = [
    {
        "_id": "d1",
        "title": "Keel bolts",
        "text": "Tighten the keel bolts to 95 Nm.",
        "scope": "yard",
    },
    {"_id": "d2", "title": "", "text": "The epoxy cures in twelve hours.", "scope": "yard"},
    {"_id": "d3", "title": "Miso soup", "text": "", "scope": "kitchen"},
    {"_id": "d4", "title": "Bread", "text": "Bake the bread at 240 degrees.", "scope": "kitchen"},
    {"_id": "d 5", "title": "", "text": "Bolts and bread have nothing in common.", "scope": "yard"},
]
QUERIES: list[dict[str, Any]] = [
    {"_id": "q1", "text": "keel bolts", "category": "boat"},
    {"_id": "q2", "text": "how long does epoxy cure", "category": "boat", "scope": "yard"},
    {"_id": "q3", "text": "miso soup", "category": "food"},
]
QRELS = ["q1\td1\t2", "q1\td 5\t1", "q2\td2\t1", "q3\td3\t1", "q3\td4\t0"]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes a collection; each part can be replaced, or left out with None."""

    def write(
        *,
        corpus: list[Any] | None = CORPUS,
        queries: list[Any] | None = QUERIES,
        qrels: list[str] | None = QRELS,
        gz: bool = False,
        name: str = "tiny",
    ) -> Path:
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        parts = {"corpus.jsonl": corpus, "queries.jsonl": queries, "qrels.tsv": qrels}
        for file, rows in parts.items():
            if rows is None:
                continue
            lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
            if file == "qrels.tsv":
                lines = ["query-id\tcorpus-id\tscore", *lines]
            data = "".join(f"{line}\n" for line in lines).encode()
            if gz:
                (folder / f"{file}.gz").write_bytes(gzip.compress(data))
            else:
                (folder / file).write_bytes(data)
        return folder

    return write


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Indexes and runs of a test go nowhere else."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("CLEW_EVAL", str(folder))
    return folder
