"""The change log: what derived indexes have yet to apply.

Every write appends rows (kind, first, last) in its own transaction, so the log is exactly as
durable as the data. `first`..`last` is a run of numbers, and a bulk load is a handful of rows:

- "chunk": chunks were added        - "gone": chunks were removed
- "vector": chunks got a vector     - "record": what filters see of these records may have changed

A place in the log is a number and the random token of that row. A database brought back from a
backup can reach the same number again, but not with the same token.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from clew.storage.tables import Tables

Place = tuple[int, int]
"""(number, token)"""
NOWHERE: Place = (-1, 0)
"""Where an index stands that has applied nothing yet."""

KEEP = 200_000
"""Rows kept for indexes that are behind; an index further behind than that is rebuilt."""


class Change(NamedTuple):
    """One row of the log."""

    number: int
    token: int
    kind: str
    first: int
    last: int


class Changes(NamedTuple):
    """What the log says between two places."""

    base: Place
    place: Place
    rows: tuple[Change, ...] = ()

    def numbers(self, *kinds: str) -> list[int]:
        """The distinct numbers that rows of these kinds name, in order of first mention."""
        seen: dict[int, None] = {}
        for _, _, kind, first, last in self.rows:
            if kind in kinds:
                seen.update(dict.fromkeys(range(first, last + 1)))
        return list(seen)

    def size(self, *kinds: str) -> int:
        """How many numbers they name, with repetitions."""
        return sum(last - first + 1 for _, _, kind, first, last in self.rows if kind in kinds)

    def extended(self, rows: Iterable[Change]) -> Changes:
        whole = (*self.rows, *rows)
        return Changes(self.base, whole[-1][:2] if whole else self.place, whole)

    def rebased(self, base: Place) -> Changes:
        """What is left when the disk has all up to `base`. What was served stays served: nobody may
        lose sight of a write that he has seen."""
        if base == self.base:
            return self
        known = any(row[:2] == base for row in self.rows)
        left = (row for row in self.rows if known and row.number > base[0])
        return Changes(base, base).extended(left)


def append(db: Tables, changed: Mapping[str, Iterable[int]]) -> None:
    """Note kinds and their numbers, in the transaction of the write itself."""
    rows: list[tuple[int, str, int, int, int]] = []
    seq = 0
    for kind, numbers in changed.items():
        for first, last in _runs(numbers):
            seq = seq or head(db)[0]
            seq += 1
            rows.append((seq, kind, first, last, int.from_bytes(os.urandom(7))))
    db.insert("changes", rows)


def _runs(numbers: Iterable[int]) -> list[list[int]]:
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return runs


def head(db: Tables) -> Place:
    """The newest entry. Its number only grows."""
    row = db.execute("SELECT seq, token FROM changes ORDER BY seq DESC LIMIT 1").fetchone()
    return row or (0, 0)


def since(db: Tables, place: Place, *, at_most: int = sys.maxsize - 1) -> Changes | None:
    """What happened after `place`, up to so many rows of it; None when this log does not (or no
    longer) have that place."""
    found = db.execute(
        """SELECT seq, token, kind, first, last FROM changes WHERE seq >= ? ORDER BY seq
           LIMIT ?""",
        (place[0], at_most + 1),
    )
    rows = [Change(*row) for row in found]
    if place == (0, 0):  # the beginning, unless it has been pruned
        if rows and rows[0].number > 1:
            return None
    elif rows and rows[0][:2] == place:
        rows = rows[1:]
    else:
        return None
    return Changes(place, place).extended(rows)


def advance(db: Tables, number: int) -> None:
    """Have the log end beyond this number, with a row that names nothing: who has followed another
    log up to there must not take this one for an earlier state of it."""
    seq = max(number, head(db)[0]) + 1
    db.insert("changes", [(seq, "record", 1, 0, int.from_bytes(os.urandom(7)))])


def prune(db: Tables) -> None:
    db.execute("DELETE FROM changes WHERE seq <= ?", (head(db)[0] - KEEP,))
