"""Run by tests: once told to, open a store that may not exist yet and put one record into it."""

from __future__ import annotations

import sys
from pathlib import Path

from samples import record

from clew.store import EmbeddedStore
from entries import MODEL

if __name__ == "__main__":
    folder, name = sys.argv[1:]
    sys.stdin.readline()  # so that several begin at the same moment, imports done
    store = EmbeddedStore(Path(folder))
    store.put([record(name)], model=MODEL)
    print(store.get([name])[0].id)
