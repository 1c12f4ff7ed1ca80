"""What the cache's own file holds: answers, counts, and how each source did last.

It may be lost at any time and must never be wrong. Nothing waits for the disk (synchronous is OFF),
so a power cut may leave any page half written: every row has a digest of all that is in it, and one
that does not fit is not there.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from clew.cache.answers import SHAPE, decoded, encoded
from clew.cache.disk import Disk
from clew.cache.keys import digest, generation_of
from clew.cache.recent import Kept

__all__ = ["Batch", "CacheFile"]

VERSION = 2
SCHEMA = """
CREATE TABLE answers (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    key TEXT NOT NULL UNIQUE,
    generation INTEGER NOT NULL,
    made REAL NOT NULL,
    used INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    digest BLOB NOT NULL,
    answer BLOB NOT NULL
);
CREATE INDEX answers_used ON answers (used, bytes);
CREATE TABLE counts (name TEXT PRIMARY KEY, count INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE sources (name TEXT PRIMARY KEY, ms REAL, problem TEXT, at REAL) WITHOUT ROWID
"""
# What does not fit behind the most recently used, by number and by bytes.
EVICT = """
DELETE FROM answers WHERE number IN (
    SELECT number FROM (
        SELECT number, ROW_NUMBER() OVER latest AS place, SUM(bytes) OVER latest AS total
        FROM answers WINDOW latest AS (ORDER BY used DESC, number DESC)
    ) WHERE place > ? OR total > ?
)
"""
PURGED = "purged"
"""Among the counts: the generation before which nothing may be kept any more."""
SKEW = 60.0
"""Seconds by which an entry may seem to come from the future: clocks are put right in small steps.
One further ahead was made before the clock was put back, and would live too long."""

Outcome = tuple[float, str | None, float]
"""ms, problem, at"""


@dataclass(slots=True)
class Batch:
    """What one transaction writes."""

    answers: list[Kept] = field(default_factory=list)
    used: list[str] = field(default_factory=list)
    """Keys that were asked for, in order."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """To be added."""
    sources: Mapping[str, Outcome] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.answers or self.used or self.counts or self.sources)


class CacheFile:
    """Answers by key. Bounded by number, age and bytes; the least recently used goes first."""

    def __init__(self, path: Path | None, *, entries: int, seconds: float, bytes: float):
        self.path = path
        self._entries, self._seconds, self._bytes = entries, seconds, bytes
        self._disk = Disk(path, schema=SCHEMA, version=VERSION)
        self.open = path is not None
        """Whether anything can be written at all."""

    @property
    def problem(self) -> str | None:
        """Why it cannot be written or read at present."""
        return self._disk.problem

    def fresh(self, made: float, *, now: float) -> bool:
        """Whether an entry of that time may still be given."""
        return -SKEW <= now - made < self._seconds

    # ------------------------------------------------------------------ reading

    def read(self, key: str, *, now: float) -> Kept | None:
        """The answer under this key, where it is whole and not too old."""

        def step(db: sqlite3.Connection) -> Kept | None:
            row = db.execute(
                "SELECT key, made, answer, bytes, digest FROM answers WHERE key = ?", (key,)
            ).fetchone()
            if row is None or _digest(*row[:3]) != row[4] or not self.fresh(row[1], now=now):
                return None
            return Kept(key, decoded(row[2]), row[1], row[3])

        return self._disk.read(step, None)

    def times_cleared(self) -> int | None:
        """None: unknown now."""
        return self._disk.read(lambda db: _counts(db).get("cleared", 0), None)

    def sources(self) -> dict[str, Outcome]:
        def step(db: sqlite3.Connection) -> dict[str, Outcome]:
            rows = db.execute("SELECT name, ms, problem, at FROM sources").fetchall()
            return {name: (float(ms), problem, float(at)) for name, ms, problem, at in rows}

        return self._disk.read(step, {})

    def figures(self) -> dict[str, Any]:
        """Keys, bytes, the oldest entry's time, and the counts."""

        def step(db: sqlite3.Connection) -> dict[str, Any]:
            rows = db.execute("SELECT key, bytes, made FROM answers").fetchall()
            return {
                "keys": {row[0] for row in rows},
                "bytes": sum(int(row[1]) for row in rows),
                "oldest": min((float(row[2]) for row in rows), default=None),
                "counts": _counts(db),
            }

        return self._disk.read(step, {"keys": set(), "bytes": 0, "oldest": None, "counts": {}})

    # ------------------------------------------------------------------ writing

    def write(self, batch: Batch, *, now: float) -> bool:
        """All of it or nothing; then what is dead or too much goes. Whether it was written."""
        rows = [row for kept in batch.answers if (row := self._row(kept)) is not None]

        def step(db: sqlite3.Connection) -> bool:
            # Uses are numbered, not timed: clocks jump.
            latest = db.execute("SELECT COALESCE(MAX(used), 0) FROM answers").fetchone()[0]
            touched = list(enumerate(batch.used, latest + 1))
            db.executemany("UPDATE answers SET used = ? WHERE key = ?", touched)
            least = _counts(db).get(PURGED, 0)
            alive = [row for row in rows if row[5] >= least]
            db.executemany(
                "INSERT OR REPLACE INTO answers"
                " (key, made, answer, bytes, digest, generation, used)"
                " VALUES (?, ?, ?, ?, ?, ?, ?)",
                [(*row, place) for place, row in enumerate(alive, latest + len(touched) + 1)],
            )
            _add_counts(db, batch.counts)
            db.executemany(
                "INSERT OR REPLACE INTO sources VALUES (?, ?, ?, ?)",
                [(name, *outcome) for name, outcome in batch.sources.items()],
            )
            self._purge(db, max((row[5] for row in alive), default=0), now)
            return True

        return self._disk.write(step, False)

    def _row(self, kept: Kept) -> tuple[Any, ...] | None:
        try:
            answer = encoded(kept.result)
        except (TypeError, ValueError, RecursionError):  # it stays in memory only
            return None
        size = len(answer) + 256
        if size > self._bytes:
            return None
        values = (kept.key, kept.made, answer)
        return (*values, size, _digest(*values), generation_of(kept.key))

    def _purge(self, db: sqlite3.Connection, generation: int, now: float) -> None:
        db.execute(
            "DELETE FROM answers WHERE generation < ? OR made <= ? OR made > ?",
            (generation, now - self._seconds, now + SKEW),
        )
        count, size = db.execute("SELECT COUNT(*), SUM(bytes) FROM answers").fetchone()
        if count > self._entries or (size or 0) > self._bytes:
            db.execute(EVICT, (self._entries, self._bytes))

    def purge(self, generation: int) -> None:
        """Delete what is older than this generation, also what another process is about to write,
        and what is left of its words in the file and its log."""

        def step(db: sqlite3.Connection) -> bool:
            db.execute("DELETE FROM answers WHERE generation < ?", (generation,))
            db.execute("INSERT OR REPLACE INTO counts VALUES (?, ?)", (PURGED, generation))
            return True

        if self._disk.there:
            self._disk.retry()
            self._disk.write(step, False)
            self._disk.truncate()

    def close(self) -> None:
        self.open = False
        self._disk.close()

    def clear(self) -> bool:
        """Delete every entry, and what is left of its words in the file; whether that was done."""
        if not self._disk.there:
            return True

        def step(db: sqlite3.Connection) -> bool:
            cleared = _counts(db).get("cleared", 0)
            db.execute("DELETE FROM answers")
            db.execute("DELETE FROM counts")
            _add_counts(db, {"cleared": cleared + 1})
            return True

        self._disk.retry()
        done = self._disk.write(step, False)
        if done:
            self._disk.shrink()
        return done or not self._disk.there  # it was damaged, and is gone


def _counts(db: sqlite3.Connection) -> dict[str, int]:
    return dict(db.execute("SELECT name, count FROM counts").fetchall())


def _add_counts(db: sqlite3.Connection, counts: Mapping[str, int]) -> None:
    db.executemany(
        "INSERT INTO counts VALUES (?, ?)"
        " ON CONFLICT (name) DO UPDATE SET count = count + excluded.count",
        list(counts.items()),
    )


def _digest(*values: Any) -> bytes:
    """Of a row's key, time and answer, each with its length."""
    parts = [SHAPE]
    for value in values:
        data = value if isinstance(value, bytes) else repr(value).encode()
        parts += [str(len(data)).encode(), b":", data]
    return digest(b"".join(parts))
