"""SIGKILL at random moments, over every operation that writes."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from harness import Life, Tally

LIVES = (("store", "embedded"), ("memory", "embedded"), ("store", "duckdb"), ("memory", "duckdb"))
SHARES = (6, 4, 1, 1)
"""Kills of each in a round. A DuckDB file takes seconds to be opened and examined."""


def run(*, seed: int, kills: int, seconds: float) -> Tally:
    """So many kills, or for so long, whichever is over first."""
    end, total = time.monotonic() + seconds, Tally()
    with tempfile.TemporaryDirectory() as place:
        lives = [
            Life(kind, scheme, Path(place) / f"{kind}-{scheme}", seed=seed)
            for kind, scheme in LIVES
        ]
        turns = [life for life, share in zip(lives, SHARES, strict=True) for _ in range(share)]
        done = 0
        while done < kills and time.monotonic() < end:
            turns[done % len(turns)].cycle()
            done += 1
        for life in lives:
            if life.number:
                total.add(life.finish())
    return total
