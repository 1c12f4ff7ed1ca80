"""Run by tests: writes to a store for as long as it is let, and says what was acknowledged.

    writer.py FOLDER NAME [--rounds N] [--seal] [--stop-at STAGE] [--die before|after N]

Each line is one acknowledged write: `put r12 3` (record, version), `deleted r12`. `deleting r12`
comes before a deletion, which may or may not have happened when it is the last line.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import signal
import time
from pathlib import Path

from samples import SEAL, record, vector, word

from clew.index import vectors
from clew.store import EmbeddedStore
from entries import MODEL, found, near


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("name")
    parser.add_argument("--rounds", type=int, default=10**9)
    parser.add_argument("--seal", action="store_true")
    parser.add_argument("--stop-at", default="")
    parser.add_argument("--die", nargs=2, default=("", "0"))
    options = parser.parse_args()
    vectors.TAIL_ROWS = SEAL["tail_rows"]
    when, count = options.die
    if when:
        die_at_replacement(when, int(count))
    store = EmbeddedStore(options.folder, ivf_threshold=SEAL["threshold"])

    def progress(stage: str, done: int, total: int) -> None:
        if stage == options.stop_at:
            say(f"at {stage}")
            time.sleep(600)  # to be killed here

    write(store, options.name, options.rounds, seal=options.seal, progress=progress)
    say("done")
    os._exit(0)


def write(store: EmbeddedStore, name: str, rounds: int, *, seal: bool, progress: object) -> None:
    rng = random.Random(name)
    versions: dict[str, int] = {}
    fresh = itertools.count()
    for number in range(rounds):
        batch = [f"{name}{next(fresh)}" for _ in range(rng.randint(1, 20))]
        batch += rng.sample(sorted(versions), min(len(versions), rng.randint(0, 5)))
        for one in batch:
            versions[one] = versions.get(one, -1) + 1
        store.put([record(one, versions[one]) for one in batch], model=MODEL)
        for one in batch:
            say(f"put {one} {versions[one]}")
        if number % 3 == 2:
            gone = rng.choice(sorted(versions))
            say(f"deleting {gone}")
            store.delete([gone])
            del versions[gone]
            say(f"deleted {gone}")
        if number % 2:
            one = rng.choice(sorted(versions))
            version = versions[one]
            assert found(store, word(one, version)) == [one]
            assert near(store, vector(one, version), limit=1) == [one]
        store.indexes.refresh(progress=progress, optimise=seal)  # type: ignore[arg-type]


def say(line: str) -> None:
    print(line, flush=True)


def die_at_replacement(when: str, count: int) -> None:
    """Be killed at the `count`th time a file takes the place of another: states do, and lists."""
    replace, calls = Path.replace, itertools.count(1)

    def replaced(self: Path, target: Path) -> Path:
        mine = next(calls) == count
        if mine and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        made = replace(self, target)
        if mine:
            os.kill(os.getpid(), signal.SIGKILL)
        return made

    Path.replace = replaced  # type: ignore[method-assign, assignment]


if __name__ == "__main__":
    main()
