"""A small life for an embedded store, and questions about it. Shared with the scripts here."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from clew.filter import Filter
from clew.protocols import Store
from clew.types import Vector
from entries import MODEL, entry, found, near

SEAL = {"threshold": 200, "tail_rows": 100}
"""Enough rows for inverted lists, in tests."""

DIM = 16
Answers = dict[str, Any]


def vector(name: str, version: int = 0) -> Vector:
    """One direction per name and version, the same in every process."""
    seed = [version, *name.encode()]
    row = np.random.default_rng(seed).standard_normal(DIM).astype(np.float32)
    return row / np.linalg.norm(row)


def word(name: str, version: int = 0) -> str:
    """One word per name and version, of letters only: no part of it is part of another."""
    return f"{name}v{version}".translate(_LETTERS)


_LETTERS = str.maketrans("0123456789", "bcdfghjklm")


def record(name: str, version: int = 0, **fields: Any) -> Any:
    words = f"zebra {word(name, version)} quick brown"
    metadata = {"version": version}
    return entry(name, words, vectors=[vector(name, version)], metadata=metadata, **fields)


def live(store: Store) -> None:
    """320 records, of which 20 are deleted and 20 changed after the lists were sealed, 20 later."""
    tags = [("even",), ("odd",)]
    store.put([record(f"r{i:03}", tags=tags[i % 2]) for i in range(300)], model=MODEL)
    seal(store)
    store.delete([f"r{i:03}" for i in range(20)])
    changed = range(20, 40)
    store.put([record(f"r{i:03}", 1, tags=tags[i % 2]) for i in changed], model=MODEL)
    store.put([record(f"r{i:03}", tags=tags[i % 2]) for i in range(300, 320)], model=MODEL)
    store.indexes.refresh()


def seal(store: Store, *, rows: int = 0) -> dict[str, Any]:
    """Have inverted lists built (over at least `rows` rows); the stage reached.

    A search may have begun to build them in the background: then `optimise` leaves it to that.
    """
    end = time.monotonic() + 120
    while time.monotonic() < end:
        store.indexes.prepare(MODEL)
        store.indexes.refresh(optimise=True)
        stage: dict[str, Any] = store.stats(model=MODEL)["vectors"]
        if stage["stage"] == "inverted lists" and stage["sealed"] >= rows:
            return stage
        time.sleep(0.02)
    raise AssertionError("no inverted lists within two minutes")


def answers(store: Store) -> Answers:
    """Questions with one right answer, also with inverted lists: all rows, or a row's own self."""
    names = ["r019", "r020", "r039", "r040", "r123", "r250", "r299", "r300", "r319"]
    versions = {name: 1 if name in ("r020", "r039") else 0 for name in names}
    without = f"zebra -{word('r100')} -{word('r101')}"
    return {
        "everything": found(store, "zebra"),
        "odd": sorted(found(store, "zebra", tags="odd", path=())),
        "phrase": sorted(found(store, f'"{word("r250")} quick"')),
        "old words": found(store, word("r020")),
        "by word": {n: found(store, word(n, v)) for n, v in versions.items()},
        "all rows": sorted(near(store, vector("r100"))),
        "odd rows": sorted(near(store, vector("r100"), tags="odd")),
        "without": sorted(near(store, vector("r100"), query=without)),
        "by vector": {n: near(store, vector(n, v), limit=1) for n, v in versions.items()},
        "scores": [
            round(c.score, 4)
            for c in store.nearest(vector("r123"), Filter(), model=MODEL, limit=1000)
        ],
    }


@dataclass(frozen=True)
class Lived:
    """A closed store: its folder and what it answered."""

    folder: Path
    answers: Answers

    @property
    def derived(self) -> Path:
        return self.folder / "derived"

    @property
    def vectors(self) -> Path:
        (place,) = self.derived.glob("vectors-*")
        return place
