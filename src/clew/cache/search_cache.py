"""SearchCache: answers to searches, in memory and in a file beside the store; and, in memory, the
lists of sources, which a search much like the one they were made for may use.

It may lose an answer at any time and never gives a wrong one: a row of the file has a digest of all
that is in it, and one that does not fit is not there. Nothing that happens to the file fails a
search or keeps it waiting: then there is memory only, and `stats()` says why.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from clew import trust
from clew.background import Recent, Writer
from clew.cache.answers import (
    SHAPE,
    AnswerTable,
    KeptAnswer,
    check,
    copied,
    decoded,
    encoded,
    weight,
)
from clew.cache.keys import generation_of
from clew.errors import StoreError
from clew.types import Candidate, SearchResult, Vector

if TYPE_CHECKING:
    import sqlite3

    from clew.cache.file import CacheFile

FILE_NAME = "cache.db"
IN_MEMORY = 0.25
"""Part of the bytes that may be in memory, where an answer takes about twice as many."""
LISTS = 512
"""Lists that are kept to be lent: some ten thousand bytes each."""
WAITING = 1000
"""Answers that may wait to be written; more are dropped, and stay in memory only."""
NOTE_SECONDS = 5.0
"""How often uses, counts and sources' outcomes are written where nothing else is."""
OTHERS_SECONDS = 1.0
"""How long it may take until this process sees that another has cleared the cache."""
FLUSH_SECONDS = 1.0
CLOSE_SECONDS = 10.0
"""How long closing waits for a disk that is busy with other things; usually a few milliseconds."""
SKEW = 60.0
"""Seconds by which an entry may seem to come from the future: clocks are put right in small steps.
One further ahead was made before the clock was put back, and would live too long."""
PURGED, CLEARED = "purged", "cleared"
"""Among the counts: the generation before which nothing may be kept any more, and how often the
file was cleared."""
# What does not fit behind the most recently used, by number and by bytes.
EVICT = """
DELETE FROM answers WHERE number IN (
    SELECT number FROM (
        SELECT number, ROW_NUMBER() OVER latest AS place, SUM(bytes) OVER latest AS total
        FROM answers WINDOW latest AS (ORDER BY used DESC, number DESC)
    ) WHERE place > ? OR total > ?
)
"""
TRIM = "PRAGMA wal_checkpoint(TRUNCATE)"
"""Of the log, as far as no other process is reading."""

SourceOutcome = tuple[float, str | None, float]
"""ms, problem, at"""
_Figures = tuple[list[tuple[str, int, float]], dict[str, int]]
"""Key, size and time of each answer; and the counts."""
_NO_FIGURES: _Figures = [], {}


class LentList(NamedTuple):
    """What one source has found, and for which query."""

    text: str
    vector: Vector
    candidates: tuple[Candidate, ...]


ListPlace = tuple[str, str, Hashable]
"""Group, source, and all of the query that the source's list follows from."""


class KnownKey(NamedTuple):
    """The key that a request had while all else was as `stamp` says."""

    stamp: Hashable
    key: str


class SearchCache:
    """Answers, bounded by number, age and bytes; the least recently used goes first. Thread-safe;
    several processes may share the file. Without a file it is in memory only."""

    def __init__(
        self,
        file: Path | None,
        *,
        entries: int = 1000,
        hours: float = 24.0,
        megabytes: float = 64.0,
        clock: Callable[[], float] = time.time,
    ):
        from clew.cache.file import CacheFile  # SQLite: only now

        self._reader: CacheFile = CacheFile(file, writes=False)
        self._file: CacheFile = CacheFile(file, writes=True)
        self._entries, self._seconds, self._bytes = entries, hours * 3600, megabytes * 1e6
        self._recent: AnswerTable[str] = AnswerTable(entries, self._bytes * IN_MEMORY)
        self._lists: Recent[ListPlace, LentList] = Recent(min(LISTS, entries))
        self.known_keys: dict[Hashable, KnownKey] = {}
        """By request: see search/cache_step.py."""
        self._newest = -1
        self._clock = clock
        self._lock = threading.RLock()
        self._writer = Writer(self._write, name="clew-cache")
        self._pending: dict[str, KeptAnswer] = {}
        self._used: dict[str, None] = {}
        self._counts: Counter[str] = Counter()
        self._outcomes: dict[str, SourceOutcome] = {}
        self._unsaved: set[str] = set()
        self._noted = self._looked = float("-inf")
        self._cleared: int | None = None

    # ------------------------------------------------------------------ answers

    def get(self, key: str, *, shared: bool = False) -> SearchResult | None:
        """The answer to the very same search, as a copy of the caller's own; or, `shared`, with the
        very hits that are kept."""
        now = self._clock()
        with self._lock:
            self._look_around()
            self._see(generation_of(key))
            self._counts["asked"] += 1
            kept = self._recent.use(key)
            if kept is None and (kept := self._reader.read(lambda db: _read(db, key), None)):
                self._recent.put(key, kept)
            if kept is None or not -SKEW <= now - kept.made < self._seconds:
                self._recent.drop(key)
                return None
            self._counts["exact"] += 1
            self._used.pop(key, None)
            self._used[key] = None
            self._wake_now_and_then()
        about = {"answered": "exact", "age_seconds": round(max(0.0, now - kept.made), 1)}
        if shared:
            trace = {**kept.result.trace, "cache": about}
            return replace(kept.result, cache="exact", trace=trace)
        return copied(kept.result, cache="exact", about=about)

    def put(self, key: str, result: SearchResult, *, lasting: Sequence[str] = ()) -> None:
        """Keep an answer. One in which something was missing is not kept: it may be there again
        at the next search; unless that is `lasting`, since what the key tells decides it."""
        if not set(result.degraded).issubset(lasting):
            return
        try:
            check(result)
        except (TypeError, ValueError, RecursionError):  # somebody's metadata is no plain data
            with self._lock:
                self._counts["refused"] += 1
            return
        mine = replace(copied(result), made={})
        kept = KeptAnswer(key, mine, float(self._clock()), weight(mine))
        with self._lock:
            self._see(generation_of(key))
            self._recent.put(key, kept)
            if len(self._pending) < WAITING:
                self._pending[key] = kept
                self._wake()
            else:
                self._counts["dropped"] += 1

    def know_key(self, request: Hashable, stamp: Hashable, key: str) -> None:
        """Note which key a request has, for as long as everything is as `stamp` says."""
        with self._lock:
            if len(self.known_keys) >= self._entries:
                self.known_keys.clear()
            self.known_keys[request] = KnownKey(stamp, key)

    def _see(self, generation: int) -> None:
        """A newer one makes all that is older dead."""
        if generation <= self._newest:
            return
        self._newest = generation
        self.known_keys.clear()
        for key in list(self._recent):
            if generation_of(key) < generation:
                self._recent.drop(key)
        for place in [place for place in self._lists if generation_of(place[0]) < generation]:
            del self._lists[place]

    # ------------------------------------------------------------------ lists

    def borrow(self, place: ListPlace) -> LentList | None:
        """The list that a source has found for what is the same query to it."""
        with self._lock:
            return self._lists.use(place)

    def lend(self, lists: Iterable[tuple[ListPlace, LentList]]) -> None:
        """Keep lists for others, in memory: to read one from the file takes as long as most of them
        took to make."""
        with self._lock:
            for place, lent in lists:
                self._lists.keep(place, lent)

    def note_lent(self) -> None:
        """A search was made with lists of another one."""
        with self._lock:
            self._counts["semantic"] += 1
            self._wake_now_and_then()

    # ------------------------------------------------------------------ sources

    def note_sources(self, outcomes: Mapping[str, tuple[float, str | None]]) -> None:
        """How long each source took and what was wrong with it, for `clew sources`."""
        now, changed = self._clock(), False
        with self._lock:
            for name, (ms, problem) in outcomes.items():
                known = self._outcomes.get(name)
                changed |= known is None or (known[1] is None) != (problem is None)
                self._outcomes[name] = (ms, problem, now)
                self._unsaved.add(name)
            self._wake_now_and_then(at_once=changed)

    def sources(self) -> dict[str, dict[str, Any]]:
        """The last outcome of each source, of whichever process."""
        found: dict[str, SourceOutcome] = self._reader.read(_read_sources, {})
        with self._lock:
            for name, outcome in self._outcomes.items():
                found[name] = max(outcome, found.get(name, outcome), key=lambda each: each[2])
        fields = ("ms", "problem", "at")
        return {name: dict(zip(fields, found[name], strict=True)) for name in sorted(found)}

    # ------------------------------------------------------------------ upkeep

    def stats(self) -> dict[str, Any]:
        """How much is kept (in the file, or in memory where there is none), how often it was of use
        since it was last cleared, and what is wrong with the file, if anything."""
        self.flush()
        rows, filed = self._reader.read(_read_figures, _NO_FIGURES)
        problem = self._file.problem or self._reader.problem
        with self._lock:
            counts = Counter(filed) + self._counts
            if self._file.path is None or problem:
                rows = [(key, kept.size, kept.made) for key, kept in self._recent.items()]
        return {
            "file": None if self._file.path is None else str(self._file.path),
            "entries": len(rows),
            "bytes": sum(size for _, size, _ in rows),
            "hits": {"exact": counts["exact"], "semantic": counts["semantic"]},
            "misses": max(0, counts["asked"] - counts["exact"] - counts["semantic"]),
            "oldest": min((made for *_, made in rows), default=None),
            "refused": counts["refused"],
            "dropped": counts["dropped"],
            "problem": problem,
        }

    def clear(self) -> int:
        """Forget every answer; how many there were. Other processes notice within a second."""
        self.flush()
        with self._lock:
            rows, _ = self._reader.read(_read_figures, _NO_FIGURES)
            keys = {*self._recent, *(key for key, *_ in rows)}
            self._forget()
            self._pending.clear()
            self._used.clear()
            self._counts.clear()
        cleared = not self._file.exists() or self._file.write(_clear, at_once=True)
        if not cleared and self._file.exists():  # else it was damaged, and is gone
            problem = self._file.problem or self._reader.problem or "it is closed"
            raise StoreError(
                f"{self._file.path} could not be cleared: {problem}; delete the file when nothing "
                "uses it"
            )
        self._file.execute("VACUUM")
        self._file.execute(TRIM)
        return len(keys)

    def purge(self, generation: int) -> None:
        """Leave no trace of what was answered before this generation of the store, also by what
        another process is about to write: something was deleted from it."""
        with self._lock:
            self._see(generation)
            for key in [key for key in self._pending if generation_of(key) < generation]:
                del self._pending[key]
        self._writer.flush(FLUSH_SECONDS)  # what it is writing now was answered before as well

        def step(db: sqlite3.Connection) -> None:
            db.execute("DELETE FROM answers WHERE generation < ?", (generation,))
            db.execute("INSERT OR REPLACE INTO counts VALUES (?, ?)", (PURGED, generation))

        if self._file.exists():
            self._file.write(step, at_once=True)
            self._file.execute(TRIM)

    def flush(self, seconds: float = FLUSH_SECONDS) -> bool:
        """Wait until what was put so far is in the file; whether that took no longer than this."""
        with self._lock:
            if self._pending or self._used or self._counts or self._unsaved:
                self._wake()
        return self._writer.flush(seconds)

    def close(self) -> None:
        """Write what is waiting. Nothing is written after that; what is in memory still answers."""
        self.flush(CLOSE_SECONDS)
        self._writer.close(0.0)
        self._reader.close()
        self._file.close()

    def _write(self) -> None:
        """Write all or nothing, on the writer's thread; then what is dead or too much goes."""
        with self._lock:
            answers, used, counts = self._pending, list(self._used), self._counts
            sources = {name: self._outcomes[name] for name in self._unsaved}
            self._pending, self._used, self._counts, self._unsaved = {}, {}, Counter(), set()
        now = self._clock()
        rows = [
            row for kept in answers.values() if (row := _make_row(kept)) and row[3] <= self._bytes
        ]

        def step(db: sqlite3.Connection) -> None:
            # Uses are numbered, not timed: clocks jump.
            latest = db.execute("SELECT COALESCE(MAX(used), 0) FROM answers").fetchone()[0]
            touched = list(enumerate(used, latest + 1))
            db.executemany("UPDATE answers SET used = ? WHERE key = ?", touched)
            least = _read_counts(db).get(PURGED, 0)
            alive = [row for row in rows if row[5] >= least]
            db.executemany(
                "INSERT OR REPLACE INTO answers"
                " (key, made, answer, bytes, digest, generation, used)"
                " VALUES (?, ?, ?, ?, ?, ?, ?)",
                [(*row, place) for place, row in enumerate(alive, latest + len(touched) + 1)],
            )
            db.executemany(
                "INSERT INTO counts VALUES (?, ?)"
                " ON CONFLICT (name) DO UPDATE SET count = count + excluded.count",
                list(counts.items()),
            )
            db.executemany(
                "INSERT OR REPLACE INTO sources VALUES (?, ?, ?, ?)",
                [(name, *outcome) for name, outcome in sources.items()],
            )
            newest = max((row[5] for row in alive), default=0)
            db.execute(
                "DELETE FROM answers WHERE generation < ? OR made <= ? OR made > ?",
                (newest, now - self._seconds, now + SKEW),
            )
            count, size = db.execute("SELECT COUNT(*), TOTAL(bytes) FROM answers").fetchone()
            if count > self._entries or size > self._bytes:
                db.execute(EVICT, (self._entries, self._bytes))

        written = not (answers or used or counts or sources) or self._file.write(step)
        if not written:
            with self._lock:
                self._counts.update(counts)
                self._counts["dropped"] += len(answers)
                self._unsaved.update(sources)

    def _wake_now_and_then(self, *, at_once: bool = False) -> None:
        if at_once or time.monotonic() - self._noted >= NOTE_SECONDS:
            self._noted = time.monotonic()
            self._wake()

    def _wake(self) -> None:
        if self._file.open:
            self._writer.wake()
        else:  # nobody will come for it
            self._pending.clear()
            self._used.clear()

    def _look_around(self) -> None:
        """Forget what is in memory when another process has cleared the file."""
        now = time.monotonic()
        if now - self._looked >= OTHERS_SECONDS:
            self._looked = now
            counts = self._reader.read(_read_counts, None)
            if counts is not None:
                cleared = counts.get(CLEARED, 0)
                if self._cleared not in (None, cleared):
                    self._forget()
                self._cleared = cleared

    def _forget(self) -> None:
        self._recent.clear()
        self._lists.clear()
        self.known_keys.clear()


# ---------------------------------------------------------------------- rows of the file


def _make_row(kept: KeptAnswer) -> tuple[Any, ...] | None:
    """Key, time, answer, size, digest and generation; None: it stays in memory only."""
    try:
        answer = encoded(kept.result)
    except (TypeError, ValueError, RecursionError):
        return None
    key = kept.key or ""
    return (
        *(key, kept.made, answer, len(answer) + 256),
        *(_digest(key, kept.made, answer), generation_of(key)),
    )


def _read(db: sqlite3.Connection, key: str) -> KeptAnswer | None:
    sql = "SELECT key, made, answer, bytes, digest FROM answers WHERE key = ?"
    row = db.execute(sql, (key,)).fetchone()
    if row is None or _digest(*row[:3]) != row[4]:
        return None
    return KeptAnswer(key, replace(decoded(row[2]), made={}), row[1], row[3])


def _digest(*values: Any) -> bytes:
    """Sign a row's key, time and answer, each with its length: what others wrote does not count."""
    parts = [SHAPE]
    for value in values:
        data = value if isinstance(value, bytes) else repr(value).encode()
        parts += [str(len(data)).encode(), b":", data]
    return trust.sign(b"".join(parts))


def _read_counts(db: sqlite3.Connection) -> dict[str, int]:
    return dict(db.execute("SELECT name, count FROM counts").fetchall())


def _read_figures(db: sqlite3.Connection) -> _Figures:
    rows = db.execute("SELECT key, bytes, made FROM answers").fetchall()
    return [(key, int(size), float(made)) for key, size, made in rows], _read_counts(db)


def _read_sources(db: sqlite3.Connection) -> dict[str, SourceOutcome]:
    rows = db.execute("SELECT name, ms, problem, at FROM sources").fetchall()
    return {name: (float(ms), problem, float(at)) for name, ms, problem, at in rows}


def _clear(db: sqlite3.Connection) -> None:
    cleared = _read_counts(db).get(CLEARED, 0)
    db.execute("DELETE FROM answers")
    db.execute("DELETE FROM counts")
    db.execute("INSERT INTO counts VALUES (?, ?)", (CLEARED, cleared + 1))
