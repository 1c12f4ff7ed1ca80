"""Processes and threads that write, search, compact and delete at the same time, for a while.

Every thread has records of its own, and finds each of them as it wrote it last: at once, while
others rebuild the indexes under it. In the end all that was acknowledged is compared.
"""

from __future__ import annotations

import random
import tempfile
import threading
import time
from pathlib import Path

from harness import PATIENCE, Child, Say, Tally, apply, examine, judge
from samples import word
from worlds import WORLDS, State, StoreWorld, World

from clew.errors import ClewError
from entries import found

WRITES = {
    "store": ("add", "put", "add", "remove", "search", "embed"),
    "memory": ("remember", "remember_many", "update", "supersede", "forget", "restore", "recall"),
}
UPKEEP = {"store": ("optimise", "vacuum", "mend", "optimise"), "memory": ("optimise", "vacuum")}


def run(
    *, seed: int, seconds: float, processes: int = 3, threads: int = 3, scheme: str = "embedded"
) -> Tally:
    total = Tally()
    for kind in WORLDS:
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place) / "world"
            each = seconds / len(WORLDS)
            total.add(_crowd(kind, scheme, folder, seed, each, processes, threads))
    return total


def _crowd(
    kind: str, scheme: str, folder: Path, seed: int, seconds: float, processes: int, threads: int
) -> Tally:
    tally, state = Tally(), State()
    where = f"seed {seed}, {kind} {scheme}, {processes} processes of {threads} threads"

    def begin(say: Say) -> None:
        WORLDS[kind](folder, scheme=scheme).close()
        say(begun=True)

    first = Child(begin)
    list(first.lines())
    first.wait()
    end = time.monotonic() + seconds

    def member(number: int) -> Child:
        return Child(lambda say: _live(kind, scheme, folder, f"{seed}{number}", end, threads, say))

    children = [member(number) for number in range(processes)]
    for child in children:
        for line in child.lines(seconds=seconds + PATIENCE):
            if "state" in line:
                state |= line["state"]
                tally.counts["calls at once"] += line["calls"]
            elif "hung" in line:
                tally.find("hung", where)
            else:
                kind_of = "refused" if "error" in line else "bare" if "bare" in line else "wrong"
                tally.find(kind_of, f"{where}: {next(iter(line.values()))}")
        if child.wait():
            tally.find("crashed", where)
    last = Child(
        lambda say: say(**examine(WORLDS[kind](folder, scheme=scheme), seed=seed, rebuild=True))
    )
    for line in last.lines():
        if "seen" in line:
            judge(line["seen"], state, {}, line["problems"], tally, where)
        else:
            tally.find("bare", f"{where}, afterwards: {next(iter(line.values()))}")
    last.wait()
    return tally


def _live(
    kind: str, scheme: str, folder: Path, name: str, end: float, threads: int, say: Say
) -> None:
    lock, calls = threading.Lock(), [0]

    def tell(**line: object) -> None:
        with lock:
            say(**line)

    world = WORLDS[kind](folder, scheme=scheme)
    crowd = [
        threading.Thread(target=_thread, args=(kind, world, f"{name}{i}", end, tell, calls))
        for i in range(threads)
    ]
    for each in crowd:
        each.start()
    for each in crowd:
        each.join()
    world.close()


def _thread(kind: str, world: World, name: str, end: float, tell: Say, calls: list[int]) -> None:
    import copy

    rng, state = random.Random(name), State()
    mine = copy.copy(world)
    mine.prefix = f"t{name}x"
    done = 0
    try:
        while time.monotonic() < end:
            names = UPKEEP[kind] if rng.random() < 0.05 else WRITES[kind]
            changes, act = mine.OPERATIONS[rng.choice(names)](mine, rng, dict(state))
            try:
                act()
            except ClewError as error:
                # Upkeep that wants to be alone says so, and changes nothing.
                if changes or "try again" not in str(error):
                    raise
            done += 1
            apply(state, changes)
            if state and isinstance(mine, StoreWorld):
                one = rng.choice(sorted(state))
                got = found(mine.store, word(one, int(state[one])))
                if got != [one]:
                    tell(wrong=f"{one} at {state[one]} is looked for, and {got} found")
    except ClewError as error:
        tell(error=f"{type(error).__name__}: {error}")
    except BaseException as error:
        tell(bare=f"{type(error).__name__}: {error}")
    tell(state=state, calls=done)
