"""Writes a batch to a store in Qdrant and is killed at a moment of it.

python qdrant_victim.py URL FOLDER before|made|half
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from clew.servers.qdrant.journal import Journal
from clew.store import open_store
from entries import MODEL, entry


def main(url: str, folder: str, moment: str) -> None:
    store = open_store(url, base=Path(folder), folder=Path(folder))
    apply = Journal._apply

    def die() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def apply_some(self: Journal, operations: list[Any], owner: str) -> None:
        if moment == "half":
            apply(self, operations[:1], owner)
        die()

    Journal._apply = apply_some  # type: ignore[method-assign]
    if moment == "before":
        Journal._commit = lambda *_: die()  # type: ignore[method-assign]
    store.put(
        [
            entry("old", "walrus", vectors=[[0, 1]], tags=("new",)),
            *(entry(f"n{i}", f"zebra {i}", vectors=[[1, i]]) for i in range(5)),
        ],
        model=MODEL,
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
