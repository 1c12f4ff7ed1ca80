"""Has a DuckDB store open until a line comes in, or writes to it until it is killed."""

import sys
from pathlib import Path

from clew.store import DuckStore
from entries import MODEL, entry

store = DuckStore(Path(sys.argv[1]))
if sys.argv[2:] == ["write"]:
    print("open", flush=True)
    for i in range(100_000):
        rows = [entry(f"r{i}", f"zebra {i}", vectors=[[1, i]])]
        store.put(rows, model=MODEL)
        print(f"r{i}", flush=True)
store.put([entry("theirs", "zebra")])
print("open", flush=True)
sys.stdin.readline()
store.close()
