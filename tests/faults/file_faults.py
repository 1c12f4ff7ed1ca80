"""An error, or a kill, at the n-th file operation of every operation that writes."""

from __future__ import annotations

import errno
import os
import random
import socket
from pathlib import Path
from typing import Any

from harness import Child, Copies, Say, Tally, apply, examine, judge, take_turns
from syscalls import ERRORS, be_supervised, supervise
from worlds import WORLDS, Changes

TURNS = (
    *(("store", "embedded"), ("memory", "embedded")) * 3,
    ("store", "duckdb"),
)


class Faults(Copies):
    """In each copy one operation goes wrong."""

    def __init__(self, kind: str, scheme: str, place: Path, *, seed: int):
        super().__init__(kind, scheme, place, seed=seed)
        self.operations = list(WORLDS[kind].OPERATIONS)  # type: ignore[attr-defined]
        self.calls = dict.fromkeys(self.operations, 30)
        """File operations that each makes, as far as is known."""
        self.number = 0

    def one(self) -> None:
        """The operation whose turn it is, in a fresh copy, with one fault: for good (a disk that is
        broken or full) or once."""
        name = self.operations[self.number % len(self.operations)]
        self.number += 1
        self.renew()
        number = self.rng.randint(1, 1 + self.calls[name] * 5 // 4)
        mode = self.rng.choice(("once", "once", "for good", "kill"))
        seed, choice = self.rng.randrange(10**9), self.rng.random()
        hit: list[str] = []
        seen = 0

        def decide(call: str, file: str) -> int | None:
            nonlocal seen
            seen += 1
            if seen < number or (seen > number and mode != "for good"):
                return 0
            if mode == "kill":
                hit.append(f"killed at {call} {Path(file).name}")
                return None
            code = ERRORS[call][int(choice * len(ERRORS[call]))]
            hit.append(f"{errno.errorcode[code]} at {call} {Path(file).name}")
            return code

        mine, theirs = socket.socketpair()
        child = Child(lambda say: self._act(say, name, seed, theirs))
        theirs.close()
        supervise(child.pid, mine, self.folder, decide)
        mine.close()
        said = list(child.lines())
        status = child.wait()
        self.calls[name] = max(self.calls[name], seen)
        if not hit:
            self.tally.counts["not reached"] += 1
        else:
            self.tally.counts["kills at a file operation" if mode == "kill" else "faults"] += 1
        where = f"seed {self.seed}, {self.kind} {self.scheme} {name} {number} {mode}: {hit[:1]}"
        self._settle(said, status, mode, where)

    def _act(self, say: Say, name: str, seed: int, channel: socket.socket) -> None:
        world = self.open()
        changes, act = world.OPERATIONS[name](world, random.Random(seed), dict(self.state))
        say(plan=name, changes=changes)
        be_supervised(channel)
        act()
        say(done=name)
        os._exit(0)  # as after kill -9: closing is another operation

    def _settle(self, said: list[dict[str, Any]], status: int, mode: str, where: str) -> None:
        pending: Changes = {}
        state = dict(self.state)
        for line in said:
            if "plan" in line:
                pending = line["changes"]
            elif "done" in line:
                apply(state, pending)
                pending = {}
            elif "error" in line:
                self.tally.counts["told"] += 1
            elif "bare" in line:
                self.tally.find("bare", f"{where}: {line['bare']}")
            else:
                self.tally.find("hung", where)
        if status and mode != "kill":
            self.tally.find("crashed", f"{where}: status {status}")
        child = Child(lambda say: say(**examine(self.open(), seed=0)))
        for line in child.lines():
            if "seen" in line:
                judge(line["seen"], state, pending, line["problems"], self.tally, where)
            else:
                kind = next(k for k in ("hung", "error", "bare") if k in line)
                kind = "refused" if kind == "error" else kind
                self.tally.find(kind, f"{where}, opened again: {next(iter(line.values()))}")
        if child.wait():
            self.tally.find("crashed", f"{where}, opened again")


def run(*, seed: int, faults: int, seconds: float) -> Tally:
    """So many faults, kills at a file operation not counted."""
    return take_turns(Faults, TURNS, seed=seed, until=("faults", faults), seconds=seconds)
