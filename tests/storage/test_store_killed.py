"""kill -9: whatever was acknowledged is there, once, in both legs, and nothing else is."""

from __future__ import annotations

import itertools
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import pytest
from samples import record, seal, vector, word

from clew.filter import Filter
from clew.store import EmbeddedStore
from entries import MODEL, found, ill, near

Opened = Callable[..., EmbeddedStore]
Script = Callable[..., "subprocess.Popen[str]"]


def lines(pipe: IO[str] | None) -> Iterator[str]:
    assert pipe is not None
    # Only whole lines: the last may have been cut off by the kill.
    return (line.strip() for line in pipe if line.endswith("\n"))


def killed(process: subprocess.Popen[str]) -> list[str]:
    """Kill it; all it had said and we had not read."""
    os.kill(process.pid, signal.SIGKILL)
    said = list(lines(process.stdout))
    process.wait()
    return said


class Acknowledged:
    """What the lines of writers say must be there."""

    def __init__(self) -> None:
        self.versions: dict[str, int] = {}
        self.perhaps_gone: set[str] = set()

    def read(self, said: list[str]) -> None:
        self.perhaps_gone = set()
        for line in said:
            word, name, *version = line.split()
            if word == "put":
                self.versions[name] = int(version[0])
            elif word == "deleting":
                self.perhaps_gone = {name}
            elif word == "deleted":
                self.perhaps_gone = set()
                del self.versions[name]


def assert_whole(store: EmbeddedStore, acknowledged: Acknowledged) -> None:
    records = {}
    after = ""
    while page := store.select(Filter(), limit=500, after=after):
        records.update({record.id: record for record in page})
        after = page[-1].id
    missing = set(acknowledged.versions) - set(records) - acknowledged.perhaps_gone
    assert missing == set()
    everything = sorted(records)
    assert sorted(found(store, "zebra", limit=100_000)) == everything
    assert sorted(near(store, vector("x"), limit=100_000)) == everything
    for name, one in records.items():
        version = one.metadata["version"]
        # The write under way when it was killed may have been whole, and then it counts.
        assert version >= acknowledged.versions.get(name, 0)
        assert found(store, word(name, version)) == [name]
        if version:
            assert found(store, word(name, version - 1)) == []
    for name in random.Random(1).sample(everything, min(60, len(everything))):
        version = records[name].metadata["version"]
        (hit,) = store.nearest(vector(name, version), Filter(), model=MODEL, limit=1)
        assert (hit.id, round(hit.score, 4)) == (name, 1.0)
    assert ill(store) == []


def test_a_writer_killed_at_any_moment_loses_nothing(
    folder: Path, opened: Opened, script: Script
) -> None:
    """One store lives through twelve kills; half of the writers seal inverted lists as well."""
    rng = random.Random(5)
    acknowledged, written = Acknowledged(), 0
    for number in range(12):
        process = script("writer.py", folder, f"w{number}x", *["--seal"] * (number % 2))
        said = [next(lines(process.stdout))]  # it has begun
        time.sleep(rng.uniform(0.0, 0.5))
        said += killed(process)
        written += len(said)
        acknowledged.read(said)
        if number % 4 == 3:
            store = opened()
            assert_whole(store, acknowledged)
            store.close()
    assert written > 200  # it was given time to do something worth losing
    assert_whole(opened(), acknowledged)


@pytest.mark.parametrize("stage", ["keyword index", "vector index", "sealing vectors"])
def test_a_writer_killed_while_it_brings_an_index_up_to_date_loses_nothing(
    folder: Path, opened: Opened, script: Script, stage: str
) -> None:
    acknowledged = Acknowledged()
    first = script("writer.py", folder, "a", "--seal", "--rounds", 25)
    acknowledged.read([line for line in lines(first.stdout) if line != "done"])
    assert first.wait() == 0
    for name in ("b", "c"):
        process = script("writer.py", folder, name, "--seal", "--stop-at", stage)
        said = list(itertools.takewhile(lambda line: line != f"at {stage}", lines(process.stdout)))
        killed(process)
        acknowledged.read(said)
    store = opened()
    assert_whole(store, acknowledged)
    store.indexes.refresh(optimise=True)
    assert_whole(store, acknowledged)


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_writer_killed_around_any_replacement_of_a_file_loses_nothing(
    folder: Path, opened: Opened, script: Script, when: str
) -> None:
    """States and lists are replaced in one step: the worst moments are just before and after."""
    acknowledged = Acknowledged()
    for count in (1, 2, 3, 4, 7):
        process = script("writer.py", folder, f"k{count}x", "--seal", "--die", when, count)
        said = list(lines(process.stdout))
        assert process.wait() == -signal.SIGKILL
        acknowledged.read(said)
        store = opened()
        assert_whole(store, acknowledged)
        store.close()


def test_what_interrupted_sealings_left_is_cleared_away_by_the_next(
    folder: Path, opened: Opened, script: Script
) -> None:
    first = script("writer.py", folder, "a", "--rounds", 40)
    assert list(lines(first.stdout))[-1] == "done"
    for _ in range(2):
        process = script("writer.py", folder, "b", "--seal", "--stop-at", "sealing vectors")
        for line in lines(process.stdout):
            if line == "at sealing vectors":
                break
        killed(process)
    for kind in ("ivf-0123456789ab.faiss.1.tmp", "ivf-0123456789ac.faiss"):
        (next(folder.glob("derived/vectors-*")) / kind).write_bytes(b"half")
    store = opened()
    # more than the lists have that a writer's search may have had built behind its back
    store.put([record(f"c{i}") for i in range(2000)], model=MODEL)
    seal(store, rows=2000)
    assert len(list(folder.glob("derived/vectors-*/ivf-*"))) == 1
    assert list(folder.rglob("*.tmp")) == []
