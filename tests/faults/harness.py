"""Children that live in a world until they are stopped, and what became of what they had said.

A child is forked, so that it starts in milliseconds; the parent has no threads and opens nothing.
Before each operation the child says what it is about to do, and after it that this is done.
"""

from __future__ import annotations

import json
import os
import random
import select
import shutil
import signal
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import duckdb  # noqa: F401 - what a child would have to import first, and takes long
import faiss  # noqa: F401
import igraph  # noqa: F401
import tantivy  # noqa: F401
from worlds import WORLDS, Changes, State, World, shorten

import clew.cache
import clew.graph.knowledge
import clew.ingest.sync
import clew.ingest.wikipedia
import clew.memory.portable
import clew.search.cache_step
import clew.storage.backup
import clew.storage.duckdb_file
import clew.tree.build  # noqa: F401
from clew.errors import ClewError

PATIENCE = 120.0
"""Seconds after which a child that says nothing hangs."""
KEPT = 20
"""Findings that are told in words; the others are counted."""
Say = Callable[..., None]


@dataclass
class Tally:
    """What was tried and what came of it."""

    counts: Counter[str] = field(default_factory=Counter)
    findings: list[str] = field(default_factory=list)

    def find(self, kind: str, what: str) -> None:
        self.counts[kind] += 1
        if len(self.findings) < KEPT:
            self.findings.append(f"{kind}: {what}")

    def add(self, other: Tally) -> None:
        self.counts += other.counts
        self.findings += other.findings[: KEPT - len(self.findings)]

    @property
    def bad(self) -> int:
        return sum(self.counts[kind] for kind in BAD)


BAD = ("lost", "doubled", "wrong", "bare", "refused", "hung", "crashed")
"""Lost: acknowledged and gone. Doubled: there twice. Wrong: served, and not what was written.
Bare: an error that is not Clew's own left the library. Refused: an error where nothing was amiss.
"""


class Child:
    """A forked process that runs `live(say)` and ends."""

    def __init__(self, live: Callable[[Say], None]):
        read, write = os.pipe()
        self.pid = os.fork()
        if not self.pid:
            os.close(read)
            _run(live, write)
        os.close(write)
        self._pipe, self._rest = read, b""
        self.status: int | None = None

    def lines(self, *, seconds: float = PATIENCE) -> Iterator[dict[str, Any]]:
        """What it says, till it ends or for so long says nothing. A line that was cut off by a kill
        was not said."""
        while True:
            while b"\n" in self._rest:
                line, _, self._rest = self._rest.partition(b"\n")
                yield json.loads(line)
            if not select.select([self._pipe], [], [], seconds)[0]:
                yield {"hung": True}
                return
            more = os.read(self._pipe, 1 << 16)
            if not more:
                return
            self._rest += more

    def kill(self) -> list[dict[str, Any]]:
        """Kill it; all it had said and nobody had read."""
        os.kill(self.pid, signal.SIGKILL)
        said = list(self.lines())
        self.wait()
        return said

    def wait(self) -> int:
        if self.status is None:
            self.status = os.waitpid(self.pid, 0)[1]
            os.close(self._pipe)
        return self.status


def _run(live: Callable[[Say], None], pipe: int) -> NoReturn:
    def say(**line: Any) -> None:
        os.write(pipe, json.dumps(line).encode() + b"\n")

    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    try:
        live(say)
    except ClewError as error:
        say(error=f"{type(error).__name__}: {error}")
    except BaseException:  # a panic of Rust is no Exception
        say(bare=traceback.format_exc()[-1500:])
    os._exit(0)


def judge(
    seen: State, state: State, pending: Changes, problems: list[str], tally: Tally, where: str
) -> None:
    """Compare what is there with what must be: as acknowledged, or as was being written."""
    for item in {**state, **pending, **seen}:
        got, was = seen.get(item), state.get(item)
        if got == was or (item in pending and got == pending[item]):
            continue
        kind = "lost" if got is None else "wrong"
        tally.find(kind, f"{where}: {item} is {shorten(got)}, was {shorten(was)}")
    for problem in problems:
        tally.find("doubled" if "twice" in problem else "wrong", f"{where}: {shorten(problem)}")


def examine(world: World, *, seed: int, rebuild: bool = False) -> dict[str, Any]:
    """What a child says of a world that it finds."""
    seen = world.observe()
    if any(value.startswith("wrong") for value in seen.values()):
        return {"seen": seen, "problems": []}
    return {"seen": seen, "problems": world.problems(seen, seed=seed, rebuild=rebuild)}


def apply(state: State, changes: Changes) -> None:
    for item, value in changes.items():
        if value is None:
            state.pop(item, None)
        else:
            state[item] = value


class Life:
    """One world that is opened, written to and killed, again and again."""

    def __init__(self, kind: str, scheme: str, folder: Path, *, seed: int):
        self.kind, self.scheme, self.folder, self.seed = kind, scheme, folder, seed
        self.rng = random.Random(f"{seed} {kind} {scheme}")
        self.state: State = {}
        self.pending: Changes = {}
        self.doing = "nothing"
        self.tally = Tally()
        self.operations = list(WORLDS[kind].OPERATIONS)  # type: ignore[attr-defined]
        self.typical = dict.fromkeys(self.operations, 0.05)
        """How long each took when it was last finished."""
        self.number = 0

    def open(self) -> World:
        return WORLDS[self.kind](self.folder, scheme=self.scheme)

    def cycle(self) -> None:
        """Examine what the last one left, go on, and be killed: mostly within the operation whose
        turn it is, and every eighth time while the store is opened and examined."""
        self.number += 1
        first = self.operations[self.number % len(self.operations)]
        seed, rebuild = self.rng.randrange(10**9), self.number % 10 == 0
        early = self.rng.random() < 1 / 8
        child = Child(lambda say: self._live(say, first, seed, rebuild))
        if early:
            time.sleep(self.rng.uniform(0, 0.3))
            self._hear(child.kill())
        else:
            for line in child.lines():
                self._hear([line])
                if "plan" in line or "hung" in line:
                    break
            time.sleep(self.rng.uniform(0, 1.3 * self.typical[first] + 0.002))
            self._hear(child.kill())
        self.tally.counts["kills"] += 1
        self.tally.counts[f"during {'opening' if early else self.doing}"] += 1

    def finish(self) -> Tally:
        """A last look, at leisure."""
        child = Child(lambda say: say(**examine(self.open(), seed=0, rebuild=True)))
        self._hear(list(child.lines()))
        child.wait()
        return self.tally

    def _live(self, say: Say, first: str, seed: int, rebuild: bool) -> None:
        world, rng = self.open(), random.Random(seed)
        found = examine(world, seed=seed, rebuild=rebuild)
        say(**found)
        state, name = found["seen"], first
        while True:
            changes, act = world.OPERATIONS[name](world, rng, state)
            say(plan=name, changes=changes)
            begun = time.monotonic()
            act()
            say(done=name, seconds=time.monotonic() - begun)
            apply(state, changes)
            name = rng.choice(self.operations)

    def _hear(self, said: list[dict[str, Any]]) -> None:
        where = f"seed {self.seed}, {self.kind} {self.scheme}, kill {self.number}"
        for line in said:
            if "seen" in line:
                after = f"{where} after {self.doing}"
                judge(line["seen"], self.state, self.pending, line["problems"], self.tally, after)
                self.tally.counts["looked at"] += len(line["seen"])
                self.state, self.pending, self.doing = dict(line["seen"]), {}, "nothing"
            elif "plan" in line:
                self.doing, self.pending = line["plan"], line["changes"]
            elif "done" in line:
                apply(self.state, self.pending)
                self.pending, self.doing = {}, "nothing"
                self.typical[line["done"]] = line["seconds"]
                self.tally.counts["acknowledged"] += 1
            elif "hung" in line:
                self.tally.find("hung", f"{where}, {self.doing}")
            elif "error" in line:
                self.tally.find("refused", f"{where}, {self.doing}: {line['error']}")
            else:
                self.tally.find("bare", f"{where}, {self.doing}: {line['bare']}")


class Copies:
    """One world in which everything was done, and copies of it to be maltreated."""

    def __init__(self, kind: str, scheme: str, place: Path, *, seed: int):
        self.kind, self.scheme, self.seed = kind, scheme, seed
        self.folder, self._template = place / "world", place / "template"
        self.tally = Tally()
        self.rng = random.Random(f"{seed} {kind} {scheme}")
        child = Child(self._prepare)
        said = list(child.lines())
        child.wait()
        if "state" not in said[-1]:
            raise RuntimeError(said[-1])
        self.state: State = said[-1]["state"]
        self.answers: dict[str, Any] = said[-1]["answers"]
        # made where the copies will be: a store knows its own path
        self.folder.rename(self._template)

    def _prepare(self, say: Say) -> None:
        world, state = self.open(), State()
        for name in ("put", *world.OPERATIONS, "graph", "tree"):  # those two are dropped by upkeep
            if name in world.OPERATIONS:
                changes, run = world.OPERATIONS[name](world, random.Random(name), state)
                run()
                apply(state, changes)
        for _ in range(2):  # asked twice: kept the first time
            answers = world.answers(state) | world.asides()
        world.close()
        say(state=state, answers=answers)

    def open(self) -> World:
        return WORLDS[self.kind](self.folder, scheme=self.scheme)

    def renew(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.copytree(self._template, self.folder)

    def one(self) -> None:
        """Maltreat a fresh copy in one way."""
        raise NotImplementedError


def take_turns(
    make: type[Copies],
    turns: Sequence[tuple[str, str]],
    *,
    seed: int,
    until: tuple[str, int],
    seconds: float,
) -> Tally:
    """One after another, until so many of what is counted were tried or the time is over."""
    end, total = time.monotonic() + seconds, Tally()
    lives: dict[tuple[str, str], Copies] = {}
    what, many = until
    number = 0
    with tempfile.TemporaryDirectory() as place:
        while sum(life.tally.counts[what] for life in lives.values()) < many:
            kind, scheme = turn = turns[number % len(turns)]
            number += 1
            if turn not in lives:
                lives[turn] = make(kind, scheme, Path(place) / f"{kind}-{scheme}", seed=seed)
            lives[turn].one()
            if time.monotonic() > end:
                break
        for life in lives.values():
            total.add(life.tally)
    return total
