"""SearchCache: answers to searches, exact and by meaning, in memory and in a file beside the store.

It may lose an answer at any time and never gives a wrong one. Nothing that happens to its file
fails a search or keeps it waiting: then there is memory only, and `stats()` says why.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from clew.background import Writer
from clew.cache.answers import check, copied, weight
from clew.cache.guard import interchangeable
from clew.cache.keys import generation_of
from clew.cache.recent import Kept, Neighbours, Recent
from clew.errors import StoreError
from clew.types import SearchResult, Vector

if TYPE_CHECKING:
    from clew.cache.file import CacheFile

__all__ = ["FILE_NAME", "SearchCache"]

FILE_NAME = "cache.db"
IN_MEMORY = 0.25
"""Part of the bytes that may be in memory, where an answer takes about twice as many."""
WAITING = 1000
"""Answers that may wait to be written; more are dropped, and stay in memory only."""
NOTE_SECONDS = 5.0
"""How often uses, counts and sources' outcomes are written where nothing else is."""
OTHERS_SECONDS = 1.0
"""How long it may take until this process sees that another has cleared the cache."""
FLUSH_SECONDS = 1.0
CLOSE_SECONDS = 10.0
"""How long closing waits for a disk that is busy with other things; usually a few milliseconds."""
TRIES = 64
"""Near queries that are looked at: a thousand invoices that differ in their number are all near."""


class SearchCache:
    """Thread-safe; several processes may share the file. Without a file it is in memory only."""

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

        size = megabytes * 1e6
        self._file: CacheFile = CacheFile(file, entries=entries, seconds=hours * 3600, bytes=size)
        self._recent = Recent(entries=entries, bytes=size * IN_MEMORY)
        self._clock = clock
        self._lock = threading.RLock()
        self._writer = Writer(self._write, name="clew-cache")
        self._pending: dict[str, Kept] = {}
        self._used: dict[str, None] = {}
        self._counts: Counter[str] = Counter()
        self._outcomes: dict[str, tuple[float, str | None, float]] = {}
        self._unsaved: set[str] = set()
        self._noted = float("-inf")
        self._looked = float("-inf")
        self._cleared: int | None = None

    # ------------------------------------------------------------------ answers

    def get(self, key: str) -> SearchResult | None:
        """The answer to the very same search, as a copy of the caller's own."""
        now = self._clock()
        with self._lock:
            self._look_around()
            self._recent.see(generation_of(key))
            self._counts["asked"] += 1
            kept = self._found(key, now)
            if kept is None:
                return None
            self._note_use(key, "exact")
        return _answer(kept, "exact", now)

    def nearest(
        self,
        group: str,
        query_text: str,
        vector: Vector | Sequence[float],
        *,
        least: float = 0.90,
    ) -> SearchResult | None:
        """The answer to the nearest query of this group, of those that mean the same.

        To be asked after `get` found nothing. Vectors have length 1. The trace says whose answer
        it is and how near.
        """
        import numpy as np

        row = np.asarray(vector, np.float32)
        now = self._clock()
        with self._lock:
            kept = next(self._near(group, query_text, row, least, now), None)
            if kept is None or kept.vector is None:
                return None
            self._note_use(kept.key, "semantic")
        cosine = round(float(kept.vector @ row), 4)
        return _answer(kept, "semantic", now, query=kept.text, cosine=cosine)

    def has_near(self, group: str) -> bool:
        """Whether `nearest` has anything to compare with: if not, no vector need be made."""
        with self._lock:
            return bool(self._gathered(group))

    def put(
        self,
        key: str,
        group: str,
        query_text: str,
        vector: Vector | Sequence[float] | None,
        result: SearchResult,
    ) -> None:
        """Keep an answer. One in which something was missing is not kept: it may be there again
        at the next search."""
        if result.degraded:
            return
        try:
            check(result)
        except (TypeError, ValueError, RecursionError):  # somebody's metadata is no plain data
            with self._lock:
                self._counts["refused"] += 1
            return
        mine = copied(result)
        row, size = None, weight(mine)
        if vector is not None:
            import numpy as np

            row = np.array(vector, np.float32)
            size += row.nbytes
        kept = Kept(key, group, query_text, row, mine, float(self._clock()), size)
        with self._lock:
            self._recent.put(kept)
            if row is not None and (near := self._recent.known_neighbours(group)) is not None:
                near.add(key, query_text, row)
            if len(self._pending) < WAITING:
                self._pending[key] = kept
                self._wake()
            else:
                self._counts["dropped"] += 1

    def _found(self, key: str, now: float) -> Kept | None:
        kept = self._recent.get(key)
        if kept is None:
            kept = self._file.read(key, now=now)
            if kept is not None:
                self._recent.put(kept)
        elif not self._file.fresh(kept.made, now=now):
            self._recent.drop(key)
            return None
        return kept

    def _gathered(self, group: str) -> Neighbours:
        """The queries of a group, this process's and others'."""
        near = self._recent.neighbours(group)
        for number, key, query, row in self._file.queries(group, after=near.seen):
            near.add(key, query, row)
            near.seen = number
        return near

    def _near(
        self, group: str, text: str, vector: Vector, least: float, now: float
    ) -> Iterator[Kept]:
        near = self._gathered(group)
        for key, query in near.ranked(vector, least=least)[:TRIES]:
            if not interchangeable(query, text):
                continue
            kept = self._found(key, now)
            if kept is None:
                near.drop(key)
            # Again, of what was read whole: the list of the group may come from a broken page.
            elif kept.vector is None or not kept.vector @ vector >= least:
                continue
            elif kept.group == group and interchangeable(kept.text, text):
                yield kept

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
        found = self._file.sources()
        with self._lock:
            for name, outcome in self._outcomes.items():
                if name not in found or found[name][2] <= outcome[2]:
                    found[name] = outcome
        return {
            name: {"ms": ms, "problem": problem, "at": at}
            for name, (ms, problem, at) in sorted(found.items())
        }

    # ------------------------------------------------------------------ upkeep

    def stats(self) -> dict[str, Any]:
        """How much is kept (in the file, or in memory where there is none), how often it was of use
        since it was last cleared, and what is wrong with the file, if anything."""
        self.flush()
        figures, problem = self._file.figures(), self._file.problem
        with self._lock:
            counts = Counter(figures["counts"]) + self._counts
            entries, size, oldest = len(figures["keys"]), figures["bytes"], figures["oldest"]
            if self._file.path is None or problem:
                entries, size = len(self._recent), self._recent.bytes
                oldest = min((kept.made for kept in self._recent.kept), default=None)
        return {
            "file": None if self._file.path is None else str(self._file.path),
            "entries": entries,
            "bytes": size,
            "hits": {"exact": counts["exact"], "semantic": counts["semantic"]},
            "misses": max(0, counts["asked"] - counts["exact"] - counts["semantic"]),
            "oldest": oldest,
            "refused": counts["refused"],
            "dropped": counts["dropped"],
            "problem": problem,
        }

    def clear(self) -> int:
        """Forget every answer; how many there were. Other processes notice within a second."""
        self.flush()
        with self._lock:
            keys = {kept.key for kept in self._recent.kept} | self._file.figures()["keys"]
            self._recent.clear()
            self._pending.clear()
            self._used.clear()
            self._counts.clear()
        if not self._file.clear():
            raise StoreError(
                f"{self._file.path} could not be cleared: {self._file.problem or 'it is closed'}; "
                "delete the file when nothing uses it"
            )
        return len(keys)

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
        self._file.close()

    def _write(self) -> None:
        """On the writer's thread."""
        from clew.cache.file import Batch

        with self._lock:
            sources = {name: self._outcomes[name] for name in self._unsaved}
            batch = Batch(
                list(self._pending.values()), list(self._used), dict(self._counts), sources
            )
            self._used.clear()
            self._counts.clear()
            self._unsaved.clear()
        written = not batch or self._file.write(batch, now=self._clock())
        with self._lock:
            for kept in batch.answers:
                if self._pending.get(kept.key) is kept:
                    del self._pending[kept.key]
            if not written:
                self._counts.update(batch.counts)
                self._counts["dropped"] += len(batch.answers)
                self._unsaved.update(sources)

    def _note_use(self, key: str, kind: Literal["exact", "semantic"]) -> None:
        self._counts[kind] += 1
        self._used.pop(key, None)
        self._used[key] = None
        self._wake_now_and_then()

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
            cleared = self._file.times_cleared()
            if cleared is not None:
                if self._cleared is not None and cleared != self._cleared:
                    self._recent.clear()
                self._cleared = cleared


def _answer(
    kept: Kept, kind: Literal["exact", "semantic"], now: float, **said: Any
) -> SearchResult:
    about = {"answered": kind, "age_seconds": round(max(0.0, now - kept.made), 1), **said}
    return copied(kept.result, cache=kind, about=about)
