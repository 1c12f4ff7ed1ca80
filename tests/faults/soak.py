"""Mixed load on a store and a memory for as long as it is told, and what that takes meanwhile.

    python tests/faults/soak.py --seconds 600 --seed 1

Prints one line of JSON for every sample: memory, open files, bytes on disk, and how long searches
took since the last one. What is added is removed again, so all of it should stay as it is.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import worlds
from harness import apply
from worlds import MemoryWorld, State, StoreWorld, World

STORE = {
    "search": 40,
    "add": 8,
    "put": 8,
    "remove": 8,
    "embed": 4,
    "index": 2,
    "optimise": 1,
    "graph": 0.2,
    "tree": 0.2,
    "vacuum": 0.2,
    "mend": 0.1,
}
MEMORY = {
    "recall": 10,
    "remember": 8,
    "update": 4,
    "supersede": 4,
    "forget": 2,
    "restore": 1,
    "feedback": 2,
    "vacuum": 0.2,
}
KEPT = 200
"""Memories, about: older ones are deleted for good."""
FLAT = {"rss_mb": 0.1, "files": 0.1, "disk_mb": 0.25, "p50_ms": 0.25, "p95_ms": 0.5}
"""By how much the last third may lie above the middle one."""


def run(*, seed: int, seconds: float, every: float) -> list[dict[str, float]]:
    samples: list[dict[str, float]] = []
    rng, begun = random.Random(seed), time.monotonic()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        lives: list[tuple[World, dict[str, float], State]] = [
            (StoreWorld(folder / "store"), STORE, {}),
            (MemoryWorld(folder / "memory"), MEMORY, {}),
        ]
        world, _, state = lives[0]
        while len(state) < worlds.SIZE:  # as large as it will stay
            changes, act = StoreWorld.put(world, rng, state)  # type: ignore[arg-type]
            act()
            apply(state, changes)
        took: list[float] = []
        calls, due = 0, begun + every
        while (now := time.monotonic()) < begun + seconds:
            world, weights, state = lives[rng.random() < 0.3]
            name = rng.choices(list(weights), list(weights.values()))[0]
            changes, act = world.OPERATIONS[name](world, rng, state)
            before = time.perf_counter()
            act()
            if name == "search":
                took.append((time.perf_counter() - before) * 1000 / 3)  # it asks three
            apply(state, changes)
            calls += 1
            if isinstance(world, MemoryWorld) and len(state) > KEPT:
                for old in rng.sample(sorted(state), 40):
                    space = json.loads(state.pop(old))[2]
                    world.memory.forget(old, hard=True, namespace=space)
            if now > due and took:
                due = now + every
                samples.append(sample(now - begun, calls, took, folder))
                print(json.dumps(samples[-1]), flush=True)
                took = []
        world, _, state = lives[0]
        if wrong := worlds.differences(dict(state), dict(world.observe())):
            raise AssertionError(wrong[:3])
        for world, *_ in lives:
            world.close()
    return samples


def sample(seconds: float, calls: int, took: Sequence[float], folder: Path) -> dict[str, float]:
    ordered = sorted(took)
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    return {
        "seconds": round(seconds, 1),
        "calls": calls,
        "rss_mb": round(pages * os.sysconf("SC_PAGE_SIZE") / 1e6, 1),
        "files": len(os.listdir("/proc/self/fd")),  # noqa: PTH208
        "disk_mb": round(_bytes(folder) / 1e6, 3),
        "p50_ms": round(ordered[len(ordered) // 2], 2),
        "p95_ms": round(ordered[len(ordered) * 95 // 100], 2),
    }


def _bytes(folder: Path) -> int:
    total = 0
    for file in folder.rglob("*"):
        try:
            total += file.stat().st_size if file.is_file() else 0
        except FileNotFoundError:
            continue  # upkeep was quicker
    return total


def growth(samples: Sequence[dict[str, Any]], name: str) -> float:
    """How far the median of the last third lies above that of the middle one."""
    third = len(samples) // 3
    if not third:
        return 0.0
    middle, last = (
        sorted(each[name] for each in some)[len(some) // 2]
        for some in (samples[third : 2 * third], samples[2 * third :])
    )
    return float(last / middle - 1) if middle else 0.0


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--every", type=float, default=2)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    run(seed=options.seed, seconds=options.seconds, every=options.every)
