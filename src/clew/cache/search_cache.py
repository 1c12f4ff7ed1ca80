"""SearchCache: answers to searches, in memory and in a file beside the store; and, in memory, the
lists of sources, which a search much like the one they were made for may use.

It may lose an answer at any time and never gives a wrong one. Nothing that happens to its file
fails a search or keeps it waiting: then there is memory only, and `stats()` says why.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from clew.background import Writer
from clew.cache.answers import AnswerTable, KeptAnswer, check, copied, weight
from clew.cache.keys import generation_of
from clew.errors import StoreError
from clew.types import Candidate, SearchResult, Vector

if TYPE_CHECKING:
    from clew.cache.file import CacheFile, SourceOutcome

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


class LentList(NamedTuple):
    """What one source has found, and for which query."""

    text: str
    vector: Vector
    candidates: tuple[Candidate, ...]


ListPlace = tuple[str, str, Hashable]
"""Group, source, and all of the query that the source's list follows from."""


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
        self._recent: AnswerTable[str] = AnswerTable(entries=entries, bytes=size * IN_MEMORY)
        self._lists: OrderedDict[ListPlace, LentList] = OrderedDict()
        self._most_lists = min(LISTS, entries)
        self._newest = -1
        self._clock = clock
        self._lock = threading.RLock()
        self._writer = Writer(self._write, name="clew-cache")
        self._pending: dict[str, KeptAnswer] = {}
        self._used: dict[str, None] = {}
        self._counts: Counter[str] = Counter()
        self._outcomes: dict[str, SourceOutcome] = {}
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
            self._see(generation_of(key))
            self._counts["asked"] += 1
            kept = self._find(key, now)
            if kept is None:
                return None
            self._counts["exact"] += 1
            self._used.pop(key, None)
            self._used[key] = None
            self._wake_now_and_then()
        about = {"answered": "exact", "age_seconds": round(max(0.0, now - kept.made), 1)}
        return copied(kept.result, cache="exact", about=about)

    def put(self, key: str, result: SearchResult) -> None:
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
        kept = KeptAnswer(key, mine, float(self._clock()), weight(mine))
        with self._lock:
            self._see(generation_of(key))
            self._recent.put(key, kept)
            if len(self._pending) < WAITING:
                self._pending[key] = kept
                self._wake()
            else:
                self._counts["dropped"] += 1

    def _find(self, key: str, now: float) -> KeptAnswer | None:
        kept = self._recent.use(key)
        if kept is None:
            kept = self._file.read(key, now=now)
            if kept is not None:
                self._recent.put(key, kept)
        elif not self._file.is_fresh(kept.made, now=now):
            self._recent.drop(key)
            return None
        return kept

    def _see(self, generation: int) -> None:
        """A newer one makes all that is older dead."""
        if generation <= self._newest:
            return
        self._newest = generation
        for key in list(self._recent):
            if generation_of(key) < generation:
                self._recent.drop(key)
        for place in [place for place in self._lists if generation_of(place[0]) < generation]:
            del self._lists[place]

    # ------------------------------------------------------------------ lists

    def borrow(self, place: ListPlace) -> LentList | None:
        """The list that a source has found for what is the same query to it."""
        with self._lock:
            if (found := self._lists.get(place)) is not None:
                self._lists.move_to_end(place)
            return found

    def lend(self, lists: Iterable[tuple[ListPlace, LentList]]) -> None:
        """Keep lists for others, in memory: to read one from the file takes as long as most of them
        took to make."""
        with self._lock:
            for place, lent in lists:
                self._lists[place] = lent
                self._lists.move_to_end(place)
            while len(self._lists) > self._most_lists:
                self._lists.popitem(last=False)

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
        found = self._file.sources()
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
        figures, problem = self._file.figures(), self._file.problem
        with self._lock:
            counts = Counter(figures["counts"]) + self._counts
            entries, size, oldest = len(figures["keys"]), figures["bytes"], figures["oldest"]
            if self._file.path is None or problem:
                entries, size = len(self._recent), self._recent.bytes
                oldest = min((kept.made for kept in self._recent.values()), default=None)
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
            keys = self._recent.keys() | self._file.figures()["keys"]
            self._forget()
            self._pending.clear()
            self._used.clear()
            self._counts.clear()
        if not self._file.clear():
            raise StoreError(
                f"{self._file.path} could not be cleared: {self._file.problem or 'it is closed'}; "
                "delete the file when nothing uses it"
            )
        return len(keys)

    def purge(self, generation: int) -> None:
        """Leave no trace of what was answered before this generation of the store: something was
        deleted from it."""
        with self._lock:
            self._see(generation)
            for key in [key for key in self._pending if generation_of(key) < generation]:
                del self._pending[key]
        self._writer.flush(FLUSH_SECONDS)  # what it is writing now was answered before as well
        self._file.purge(generation)

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
        with self._lock:
            answers, used = list(self._pending.values()), list(self._used)
            counts = dict(self._counts)
            sources = {name: self._outcomes[name] for name in self._unsaved}
            self._used.clear()
            self._counts.clear()
            self._unsaved.clear()
        written = not (answers or used or counts or sources) or self._file.write(
            answers, used, counts, sources, now=self._clock()
        )
        with self._lock:
            for kept in answers:
                if kept.key is not None and self._pending.get(kept.key) is kept:
                    del self._pending[kept.key]
            if not written:
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
            cleared = self._file.count_clearings()
            if cleared is not None:
                if self._cleared is not None and cleared != self._cleared:
                    self._forget()
                self._cleared = cleared

    def _forget(self) -> None:
        self._recent.clear()
        self._lists.clear()
