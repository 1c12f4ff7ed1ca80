"""Run by tests: search once, which has inverted lists built in the background, and leave soon."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np

from clew.index import vectors
from clew.store import EmbeddedStore
from entries import near

if __name__ == "__main__":
    folder, how, delay = sys.argv[1:]
    vectors.TAIL_ROWS = 1_000
    store = EmbeddedStore(Path(folder), ivf_threshold=1_000)
    print(len(near(store, np.ones(64), limit=5)), flush=True)
    time.sleep(float(delay))
    if how == "closed":
        store.close()
