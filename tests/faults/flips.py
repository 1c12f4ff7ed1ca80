"""One damage to one file of a store, and what is then answered.

Harmless: everything was served as it was written, perhaps by an index made anew. Named: an error in
Clew's words, or an answer that says what is missing from it. Wrong: anything else was served. Bare:
another error than Clew's, a crash or a hang.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from harness import Child, Copies, Say, Tally, take_turns
from worlds import World, differences

PARTS = {
    "database": ("clew.db", "clew.duckdb", "memory.db"),
    "words": ("keyword-", "keyword.json"),
    "vectors": ("vectors-",),
    "graph": ("derived/graph/",),
    "tree": ("derived/tree",),
    "cache": ("cache.db",),
    "codes": ("tokens-",),
}


def part_of(path: Path) -> str:
    inside = path.as_posix()
    for part, marks in PARTS.items():
        if any(path.name == mark if "." in mark else mark in inside for mark in marks):
            return part
    return ""


def damage(file: Path, rng: random.Random) -> str:
    """A bit flipped, 64 bytes of nothing, or the end lost."""
    data = bytearray(file.read_bytes())
    place = rng.randrange(len(data))
    match rng.choices(("bit", "hole", "cut"), (8, 1, 1))[0]:
        case "bit":
            bit = rng.randrange(8)
            data[place] ^= 1 << bit
            said = f"bit {bit} of byte {place:,}"
        case "hole":
            data[place : place + 64] = bytes(len(data[place : place + 64]))
            said = f"64 zero bytes at {place:,}"
        case _:
            del data[place:]
            said = f"cut off at {place:,}"
    file.write_bytes(data)
    return said


TURNS = (*(("store", "embedded"), ("memory", "embedded")) * 2, ("store", "duckdb"))


class Flips(Copies):
    def __init__(self, kind: str, scheme: str, place: Path, *, seed: int):
        super().__init__(kind, scheme, place, seed=seed)
        self.renew()
        self.parts: dict[str, list[Path]] = {}
        for file in sorted(self.folder.rglob("*")):
            inside = file.relative_to(self.folder)
            if file.is_file() and file.stat().st_size and (part := part_of(inside)):
                self.parts.setdefault(part, []).append(inside)
        self.number = 0

    def one(self) -> None:
        self.number += 1
        part = sorted(self.parts)[self.number % len(self.parts)]
        self.renew()
        sizes = [(self.folder / file).stat().st_size for file in self.parts[part]]
        inside = self.rng.choices(self.parts[part], sizes)[0]
        what = damage(self.folder / inside, self.rng)
        where = f"seed {self.seed}, {self.kind} {self.scheme} {inside}: {what}"
        outcome, why = self._outcome(self._ask)
        self.tally.counts["corruptions"] += 1
        self.tally.counts[f"{part}: {outcome}"] += 1
        if outcome in ("wrong", "bare"):
            self.tally.find(outcome, f"{where}: {why}")
        else:
            self.tally.counts[outcome] += 1
        if outcome == "harmless":
            return
        sick, _ = self._outcome(self._diagnose)
        if outcome == "wrong" and sick == "harmless":
            self.tally.counts["wrong, and doctor content"] += 1
        after, why = self._outcome(self._mend)
        if after in ("harmless", "named"):
            self.tally.counts["mended" if after == "harmless" else "loss said"] += 1
        else:
            self.tally.find("not mended", f"{where}: {why}")

    def _outcome(self, step: Any) -> tuple[str, str]:
        child = Child(lambda say: step(self.open(), say))
        said = list(child.lines(seconds=60))
        if said and "hung" in said[-1]:
            child.kill()
        if status := child.wait():
            return "bare", f"crashed, status {status}" if "hung" not in said[-1:] else "hung"
        line = said[-1]
        if "bare" in line:
            return "bare", line["bare"][-700:]
        if "error" in line:
            return "named", line["error"]
        if not line["wrong"]:
            return "harmless", ""
        return ("named" if line["named"] else "wrong"), "; ".join(line["wrong"])[:700]

    def _ask(self, world: World, say: Say) -> None:
        seen = world.observe()
        answers = world.answers(self.state) | world.asides()
        wrong = differences(dict(self.state), dict(seen)) + differences(self.answers, answers)
        named = any(answers[key] for key in answers if key.startswith("degraded"))
        say(wrong=[line for line in wrong if not line.startswith("degraded")], named=named)

    def _diagnose(self, world: World, say: Say) -> None:
        store = world.engine if hasattr(world, "engine") else world.memory.engine
        say(wrong=[f["advice"] for f in store.doctor() if not f["ok"]], named=True)

    def _mend(self, world: World, say: Say) -> None:
        store = world.engine if hasattr(world, "engine") else world.memory.engine
        lost = [finding for finding in store.doctor(mend=True) if not finding["ok"]]
        self._ask(world, lambda **said: say(**said | {"named": said["named"] or bool(lost)}))


def run(*, seed: int, flips: int, seconds: float) -> Tally:
    return take_turns(Flips, TURNS, seed=seed, until=("corruptions", flips), seconds=seconds)
