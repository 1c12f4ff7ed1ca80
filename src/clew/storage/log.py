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
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from clew.storage.tables import Tables

__all__ = [
    "NOWHERE",
    "Changes",
    "Mention",
    "Place",
    "after",
    "append",
    "head",
    "prune",
    "rows",
    "since",
]

Place = tuple[int, int]
"""(number, token)"""
NOWHERE: Place = (-1, 0)
"""Where an index stands that has applied nothing yet."""

KEEP = 200_000
"""Rows kept for indexes that are behind; an index further behind than that is rebuilt."""


class Mention(NamedTuple):
    """One row of the log."""

    number: int
    token: int
    kind: str
    first: int
    last: int


@dataclass(slots=True)
class Changes:
    """Everything between two points of the log, as runs."""

    place: Place
    runs: dict[str, list[tuple[int, int]]] = field(default_factory=dict)

    def numbers(self, *kinds: str) -> list[int]:
        """The distinct numbers named, in order of first mention."""
        seen: dict[int, None] = {}
        for kind in kinds:
            for first, last in self.runs.get(kind, ()):
                seen.update(dict.fromkeys(range(first, last + 1)))
        return list(seen)

    def size(self, *kinds: str) -> int:
        return sum(last - first + 1 for k in kinds for first, last in self.runs.get(k, ()))


def rows(kind: str, numbers: Iterable[int]) -> list[tuple[str, int, int, int]]:
    """What is to be written of them: kind, first, last, token."""
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return [(kind, first, last, int.from_bytes(os.urandom(7))) for first, last in runs]


def append(db: Tables, kind: str, numbers: Iterable[int]) -> None:
    query = "INSERT INTO changes (kind, first, last, token) VALUES (?, ?, ?, ?)"
    db.executemany(query, rows(kind, numbers))


def head(db: Tables) -> Place:
    """The newest entry. Its number only grows."""
    row = db.execute("SELECT seq, token FROM changes ORDER BY seq DESC LIMIT 1").fetchone()
    return row or (0, 0)


def after(db: Tables, place: Place, *, at_most: int = sys.maxsize - 1) -> list[Mention] | None:
    """The first rows after `place`; None when this log does not (or no longer) have that place."""
    found = db.execute(
        """SELECT seq, token, kind, first, last FROM changes WHERE seq >= ? ORDER BY seq
           LIMIT ?""",
        (place[0], at_most + 1),
    )
    mentions = [Mention(*row) for row in found]
    if place == (0, 0):  # the beginning, unless it has been pruned
        return None if mentions and mentions[0].number > 1 else mentions
    return mentions[1:] if mentions and mentions[0][:2] == place else None


def since(db: Tables, place: Place) -> Changes | None:
    """What happened after `place`; None when this log does not (or no longer) have that place."""
    mentions = after(db, place)
    if mentions is None:
        return None
    changes = Changes(place)
    for number, token, kind, first, last in mentions:
        changes.place = (number, token)
        changes.runs.setdefault(kind, []).append((first, last))
    return changes


def prune(db: Tables) -> None:
    db.execute("DELETE FROM changes WHERE seq <= ?", (head(db)[0] - KEEP,))
