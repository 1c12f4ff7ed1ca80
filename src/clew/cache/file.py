"""CacheFile: answers, counts, and how each source did last, in a SQLite file that may be lost.

Whatever happens to the file, nobody who uses it fails: one that is locked, read-only, full or not
there gives nothing and takes nothing, and `problem` says why; one that is damaged is made anew. It
is never wrong either. Nothing waits for the disk (synchronous is OFF), so a power cut may leave any
page half written: every row has a digest of all that is in it, and one that does not fit is not
there.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from clew.cache.answers import SHAPE, KeptAnswer, decoded, encoded
from clew.cache.keys import digest, generation_of

T = TypeVar("T")

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
APPLICATION_ID = 0x436C6563  # "Clec", in the file's header
WAIT = 0.5
"""Seconds a write waits for another process. Reading does not wait: doing the work is quicker."""
RETRY = 5.0
"""Seconds until a file that could not be opened or written is tried again."""
MEMORY_ONLY = "searches are cached in memory only"
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)

SourceOutcome = tuple[float, str | None, float]
"""ms, problem, at"""


class CacheFile:
    """Answers by key. Bounded by number, age and bytes; the least recently used goes first. One
    connection reads, one writes; without a path, none. Thread-safe."""

    def __init__(self, path: Path | None, *, entries: int, seconds: float, bytes: float):
        self.path = path
        self._entries, self._seconds, self._bytes = entries, seconds, bytes
        self._reader, self._writer = _Line(), _Line()
        self.open = path is not None
        """Whether anything can be written at all."""

    @property
    def problem(self) -> str | None:
        """Why it cannot be written or read at present."""
        return self._writer.problem or self._reader.problem

    def is_fresh(self, made: float, *, now: float) -> bool:
        """Whether an entry of that time may still be given."""
        return -SKEW <= now - made < self._seconds

    # ------------------------------------------------------------------ reading

    def read(self, key: str, *, now: float) -> KeptAnswer | None:
        """The answer under this key, where it is whole and not too old."""

        def step(db: sqlite3.Connection) -> KeptAnswer | None:
            row = db.execute(
                "SELECT key, made, answer, bytes, digest FROM answers WHERE key = ?", (key,)
            ).fetchone()
            if row is None or _digest(*row[:3]) != row[4] or not self.is_fresh(row[1], now=now):
                return None
            return KeptAnswer(key, decoded(row[2]), row[1], row[3])

        return self._read(step, None)

    def count_clearings(self) -> int | None:
        """How often the file was cleared; None: unknown now."""
        return self._read(lambda db: _counts(db).get("cleared", 0), None)

    def sources(self) -> dict[str, SourceOutcome]:
        def step(db: sqlite3.Connection) -> dict[str, SourceOutcome]:
            rows = db.execute("SELECT name, ms, problem, at FROM sources").fetchall()
            return {name: (float(ms), problem, float(at)) for name, ms, problem, at in rows}

        return self._read(step, {})

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

        return self._read(step, {"keys": set(), "bytes": 0, "oldest": None, "counts": {}})

    def _read(self, step: Callable[[sqlite3.Connection], T], nothing: T) -> T:
        """What `step` finds, or `nothing`. It fails on what is damaged, by whichever error."""
        with self._reader.lock:
            if self._reader.shut or not self._exists():
                return nothing
            with self._noting(self._reader):
                db = self._opened(self._reader)
                if _version(db) != VERSION:
                    return nothing  # whoever writes sees to it
                try:
                    found = step(db)
                except (ValueError, TypeError, KeyError, AttributeError):
                    self._make_anew(self._reader)  # a row of nonsense
                    return nothing
                self._reader.problem = None
                return found
        return nothing

    # ------------------------------------------------------------------ writing

    def write(
        self,
        answers: Sequence[KeptAnswer],
        used: Sequence[str],
        counts: Mapping[str, int],
        sources: Mapping[str, SourceOutcome],
        *,
        now: float,
    ) -> bool:
        """All of it or nothing; then what is dead or too much goes. `used` are keys that were asked
        for, in order, and `counts` are added. Whether it was written."""
        rows = [row for kept in answers if (row := self._row(kept)) is not None]

        def step(db: sqlite3.Connection) -> None:
            # Uses are numbered, not timed: clocks jump.
            latest = db.execute("SELECT COALESCE(MAX(used), 0) FROM answers").fetchone()[0]
            touched = list(enumerate(used, latest + 1))
            db.executemany("UPDATE answers SET used = ? WHERE key = ?", touched)
            least = _counts(db).get(PURGED, 0)
            alive = [row for row in rows if row[5] >= least]
            db.executemany(
                "INSERT OR REPLACE INTO answers"
                " (key, made, answer, bytes, digest, generation, used)"
                " VALUES (?, ?, ?, ?, ?, ?, ?)",
                [(*row, place) for place, row in enumerate(alive, latest + len(touched) + 1)],
            )
            _add_counts(db, counts)
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

        return self._write(step)

    def _row(self, kept: KeptAnswer) -> tuple[Any, ...] | None:
        try:
            answer = encoded(kept.result)
        except (TypeError, ValueError, RecursionError):  # it stays in memory only
            return None
        size = len(answer) + 256
        if size > self._bytes or kept.key is None:
            return None
        values = (kept.key, kept.made, answer)
        return (*values, size, _digest(*values), generation_of(kept.key))

    def purge(self, generation: int) -> None:
        """Delete what is older than this generation, also what another process is about to write,
        and what is left of its words in the file and its log."""

        def step(db: sqlite3.Connection) -> None:
            db.execute("DELETE FROM answers WHERE generation < ?", (generation,))
            db.execute("INSERT OR REPLACE INTO counts VALUES (?, ?)", (PURGED, generation))

        if self._exists():
            self._writer.retry()
            self._write(step)
            self._tidy("PRAGMA wal_checkpoint(TRUNCATE)")

    def clear(self) -> bool:
        """Delete every entry, and what is left of its words in the file; whether that was done."""
        if not self._exists():
            return True

        def step(db: sqlite3.Connection) -> None:
            cleared = _counts(db).get("cleared", 0)
            db.execute("DELETE FROM answers")
            db.execute("DELETE FROM counts")
            _add_counts(db, {"cleared": cleared + 1})

        self._writer.retry()
        done = self._write(step)
        if done:
            self._tidy("VACUUM")
            self._tidy("PRAGMA wal_checkpoint(TRUNCATE)")
        return done or not self._exists()  # it was damaged, and is gone

    def close(self) -> None:
        self.open = False
        for line in (self._reader, self._writer):
            with line.lock:
                line.rest(float("inf"))

    def _write(self, step: Callable[[sqlite3.Connection], None]) -> bool:
        """Do `step` in one transaction, whole or not at all; whether it was done."""
        with self._writer.lock:
            if self._writer.shut or self.path is None:
                return False
            with self._noting(self._writer):
                with _transaction(self._opened(self._writer)) as db:
                    if _version(db) != VERSION:
                        self._prepare(db)
                    step(db)
                self._writer.problem = None
                return True
        return False

    def _tidy(self, statement: str) -> None:
        """As far as no other process is reading."""
        with self._writer.lock:
            if not self._writer.shut and self._exists():
                with self._noting(self._writer):
                    self._opened(self._writer).execute(statement).fetchall()

    # ------------------------------------------------------------------ connections

    def _exists(self) -> bool:
        try:
            return self.path is not None and bool(self.path.stat())
        except OSError:
            return False

    @contextlib.contextmanager
    def _noting(self, line: _Line) -> Iterator[None]:
        """What goes wrong becomes `problem`; damage makes the file anew."""
        try:
            yield
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF
            line.problem = f"{error}; {MEMORY_ONLY}"
            if code in _DAMAGED:
                self._make_anew(line)
            elif code not in _BUSY:
                line.rest(RETRY)
        except OSError as error:
            line.problem = f"{error.strerror}; {MEMORY_ONLY}"
            line.rest(RETRY)

    def _opened(self, line: _Line) -> sqlite3.Connection:
        """The connection, to the file that is there now: it may have been deleted or made anew."""
        assert self.path is not None
        now = time.monotonic()
        if line.db is not None and now - line.looked > 1.0:
            line.looked = now
            if not self._exists() or line.inode != self.path.stat().st_ino:
                line.close()
        if line.db is None:
            wait = WAIT if line is self._writer else 0.0
            line.db = sqlite3.connect(
                self.path, timeout=wait, isolation_level=None, check_same_thread=False
            )
            line.looked, line.inode = now, self.path.stat().st_ino
            if line is self._writer:
                line.db.execute("PRAGMA secure_delete = ON")  # words of removed records, too
                line.db.execute("PRAGMA journal_mode = WAL")
                line.db.execute("PRAGMA journal_size_limit = 4000000")
            line.db.execute("PRAGMA synchronous = OFF")
        return line.db

    def _make_anew(self, line: _Line) -> None:
        """Delete the damaged file, unless another process has put a new one there already."""
        assert self.path is not None
        for each in (self._reader, self._writer):
            if each.lock.acquire(blocking=False):  # else it is in use, and finds out by itself
                each.close()
                each.lock.release()
        with contextlib.suppress(OSError):
            if line.inode == self.path.stat().st_ino:
                for ending in ("-wal", "-shm", ""):
                    self.path.with_name(self.path.name + ending).unlink(missing_ok=True)
                line.problem = None

    def _prepare(self, db: sqlite3.Connection) -> None:
        """Empty tables, also in place of another version's: what they held can be made again."""
        names = db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        ours = db.execute("PRAGMA application_id").fetchone()[0] == APPLICATION_ID
        if names and not ours:
            raise FileExistsError(17, f"{self.path} is another program's database")
        for (name,) in names:
            if not name.startswith("sqlite_"):
                db.execute(f'DROP TABLE "{name}"')
        for statement in SCHEMA.split(";"):
            db.execute(statement)
        db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        db.execute(f"PRAGMA user_version = {VERSION}")


@dataclass(slots=True)
class _Line:
    """A connection that is opened when first needed and left alone for a while when it failed."""

    lock: threading.RLock = field(default_factory=threading.RLock)
    db: sqlite3.Connection | None = None
    problem: str | None = None
    inode: int = 0
    looked: float = 0.0
    _until: float = 0.0

    @property
    def shut(self) -> bool:
        return time.monotonic() < self._until

    def rest(self, seconds: float) -> None:
        self.close()
        self._until = time.monotonic() + seconds

    def retry(self) -> None:
        """Do not wait any longer after a failure, unless it was closed for good."""
        with self.lock:
            if self._until < float("inf"):
                self._until = 0.0

    def close(self) -> None:
        if self.db is not None:
            with contextlib.suppress(sqlite3.Error):
                self.db.close()
            self.db = None


@contextlib.contextmanager
def _transaction(db: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    db.execute("BEGIN IMMEDIATE")
    try:
        yield db
        db.execute("COMMIT")
    except BaseException:
        with contextlib.suppress(sqlite3.Error):
            db.execute("ROLLBACK")
        raise


def _version(db: sqlite3.Connection) -> int:
    return int(db.execute("PRAGMA user_version").fetchone()[0])


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
