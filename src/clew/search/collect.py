"""Ask several sources at once, under one deadline that holds.

Sources run in daemon threads. One that is late, even asleep in C code, is left behind: its answer
goes to a box nobody opens any more, so it cannot touch this search's result or a later one's.

Those that answer from this store's own indexes (`quick`) run in the caller's thread where the
context says that nothing can keep them waiting, which for the vectors includes the query's own: a
thread's waking and its fight for the interpreter lock take longer than they do.
"""

from __future__ import annotations

import math
import queue
import sys
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, NamedTuple

from clew.errors import ClewError, counted
from clew.protocols import Context, Source
from clew.search.plan import PlannedSource
from clew.types import Answer, Candidate, Query

LONGEST_PASSAGE = 100_000
"""Characters of a passage that a source brings along: more would be read past any deadline."""
STUCK_AT_MOST = 4
"""A source that left this many searches waiting past their deadline is not asked again until one
of them comes back."""
IDLE = 60.0
"""Seconds without work after which a thread ends, and its connection with it."""


class Outcome(NamedTuple):
    """What one source gave."""

    source: str
    candidates: tuple[Candidate, ...] = ()
    ms: float = 0.0
    problem: str | None = None
    start: float = 0.0
    """Milliseconds from the beginning of the collection until it was its turn."""
    trace: Mapping[str, Any] | None = None
    """What the source says of how it came by them."""
    places: Mapping[str, int] = {}
    """Of records that it cannot judge yet."""

    def cut_below(self, least: float) -> Outcome:
        """Leave out what scores less than that."""
        return self._replace(candidates=tuple(c for c in self.candidates if c.score >= least))


class Collector:
    """Threads kept for the next search; more are made when all are busy."""

    def __init__(self) -> None:
        self._tasks: queue.SimpleQueue[_Task | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._threads = 0
        self._busy = 0
        self._late: dict[str, int] = {}

    def collect(
        self,
        planned: Sequence[PlannedSource],
        context: Context,
        *,
        deadline: float,
        spent: float = 0.0,
    ) -> list[Outcome]:
        """One outcome per source, in the given order, at most `deadline` seconds later, of which
        so many are `spent`."""
        box: queue.SimpleQueue[Outcome] = queue.SimpleQueue()
        outcomes: dict[str, Outcome] = {}
        waiting: dict[str, _Task] = {}
        here: list[_Task] = []
        begun = time.perf_counter()
        for one in planned:
            seconds = min(deadline, one.deadline or deadline)
            task = _Task(one.name, one.source, one.query, context, box, seconds, begun)
            if one.quick and (context.at_hand if one.kind == "vectors" else context.current):
                here.append(task)
            elif self._late.get(one.name, 0) >= STUCK_AT_MOST:
                outcomes[one.name] = Outcome(one.name, problem="still busy with earlier searches")
            else:
                waiting[one.name] = task
                self._submit(task)
        for task in here:  # while the others are at it
            outcomes[task.name] = task.run()
        while waiting:
            end = begun - spent + min(task.seconds for task in waiting.values())
            try:
                outcome = box.get(timeout=max(0.0, end - time.perf_counter()))
            except queue.Empty:
                for task in [t for t in waiting.values() if begun - spent + t.seconds <= end]:
                    self._leave(waiting.pop(task.name))
                    problem = f"no answer within {task.seconds:g} s"
                    outcomes[task.name] = Outcome(task.name, (), task.seconds * 1e3, problem)
                continue
            if waiting.pop(outcome.source, None):
                outcomes[outcome.source] = outcome
        return [outcomes[one.name] for one in planned]

    def _submit(self, task: _Task) -> None:
        with self._lock:
            self._busy += 1
            if self._busy > self._threads:
                self._threads += 1
                threading.Thread(target=self._work, name="clew-source", daemon=True).start()
        self._tasks.put(task)

    def _leave(self, task: _Task) -> None:
        with self._lock:
            if not task.done:
                task.left = True
                self._late[task.name] = self._late.get(task.name, 0) + 1
        task.source.leave(task.query)

    def _work(self) -> None:
        while True:
            try:
                task = self._tasks.get(timeout=IDLE)
            except queue.Empty:
                with self._lock:
                    if self._busy < self._threads:  # else one is being given right now
                        self._threads -= 1
                        return
                continue
            if task is None:
                return
            outcome = task.run()
            with self._lock:
                self._busy -= 1
                task.done = True
                self._late[task.name] = self._late.get(task.name, 0) - task.left
            task.box.put(outcome)

    def close(self) -> None:
        """Let idle threads end. A source that is stuck keeps its own until the process ends."""
        with self._lock:
            for _ in range(self._threads):
                self._tasks.put(None)
            self._threads = 0


@dataclass(slots=True)
class _Task:
    name: str
    source: Source
    query: Query
    context: Context
    box: queue.SimpleQueue[Outcome]
    seconds: float
    begun: float
    done: bool = False
    left: bool = False
    """Its search has gone on without it."""

    def run(self) -> Outcome:
        start = time.perf_counter()
        found: tuple[Candidate, ...] = ()
        problem: str | None = None
        trace: Mapping[str, Any] | None = None
        places: Mapping[str, int] = {}
        try:
            given = self.source(self.query, self.context)
            found, problem = _checked(given, self.query)
            if isinstance(given, Answer):
                trace, places = given.trace, given.places
        except ClewError as error:
            problem = str(error)
        except BaseException as error:
            # A source may be anybody's code, and this thread is nobody's: whatever it throws,
            # SystemExit included, must not take the answer down.
            problem = f"{type(error).__name__}: {error}"
        ms = (time.perf_counter() - start) * 1e3
        return Outcome(self.name, found, ms, problem, (start - self.begun) * 1e3, trace, places)


def _cut(candidate: Candidate) -> Candidate:
    """Cut a candidate's passage to what can be read in no time."""
    passage = getattr(candidate, "passage", None)
    if passage is None or len(passage.text) <= LONGEST_PASSAGE:
        return candidate
    return candidate._replace(passage=replace(passage, text=passage.text[:LONGEST_PASSAGE]))


def _checked(
    given: Iterable[Candidate] | Answer, query: Query
) -> tuple[tuple[Candidate, ...], str | None]:
    """Take as many candidates as were asked for, with a score that can be ranked; what is wrong
    with the others of these."""
    if isinstance(given, Answer):
        sound, wrong = _checked(given.candidates, query)
        return sound, "; ".join(filter(None, (given.problem, wrong))) or None
    most = min(query.depth * query.passages, sys.maxsize)
    candidates = tuple(map(_cut, islice(given, most)))
    for kind in set(map(type, candidates)):
        if not issubclass(kind, Candidate):
            raise TypeError(f"gave {kind.__name__}, not Candidate")
    if len(candidates) > query.depth:
        first = frozenset(islice(dict.fromkeys(c.id for c in candidates), query.depth))
        candidates = tuple(c for c in candidates if c.id in first)
    if math.isfinite(sum([c.score for c in candidates])):
        return candidates, None
    sound = tuple(c for c in candidates if math.isfinite(c.score))
    count = len(candidates) - len(sound)
    return sound, f"{counted(count, 'candidate')} without a finite score" if count else None
