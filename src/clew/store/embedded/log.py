"""The change log: what derived indexes have yet to apply.

Every write appends rows (kind, first, last) in its own transaction, so the log is exactly as
durable as the data. `first`..`last` is a run of numbers, and a bulk load is a handful of rows:

- "chunk": chunks were added        - "gone": chunks were removed
- "vector": chunks got a vector     - "record": what filters see of these records may have changed
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass, field

__all__ = ["Changes", "append", "head", "prune", "since"]

KEEP = 200_000
"""Rows kept for indexes that are behind; an index further behind than that is rebuilt."""


@dataclass(slots=True)
class Changes:
    """Everything between two points of the log, as runs."""

    seq: int
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


def append(db: sqlite3.Connection, kind: str, numbers: Iterable[int]) -> None:
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    db.executemany(
        "INSERT INTO changes (kind, first, last) VALUES (?, ?, ?)",
        [(kind, first, last) for first, last in runs],
    )


def head(db: sqlite3.Connection) -> int:
    """The newest entry's number. It only grows, also across deletions from the log."""
    row = db.execute("SELECT seq FROM sqlite_sequence WHERE name = 'changes'").fetchone()
    return row[0] if row else 0


def since(db: sqlite3.Connection, seq: int) -> Changes | None:
    """What happened after `seq`; None when the log no longer reaches back that far."""
    oldest, newest = db.execute("SELECT MIN(seq), MAX(seq) FROM changes").fetchone()
    if oldest is None:
        return Changes(seq) if head(db) == seq else None
    if seq < oldest - 1 or seq > newest:
        return None
    changes = Changes(seq)
    rows = db.execute(
        "SELECT seq, kind, first, last FROM changes WHERE seq > ? ORDER BY seq", (seq,)
    )
    for number, kind, first, last in rows:
        changes.seq = number
        changes.runs.setdefault(kind, []).append((first, last))
    return changes


def prune(db: sqlite3.Connection) -> None:
    db.execute("DELETE FROM changes WHERE seq <= ?", (head(db) - KEEP,))
