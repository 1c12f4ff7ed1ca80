"""Sources of installed packages, each in a process of its own, which can be left behind.

Anybody's code may keep the interpreter lock (a regular expression that runs away will do), and then
no thread of its process goes on, whatever the deadline says. So such a source lives elsewhere: the
query goes there pickled, candidates come back, and what it wants of the store it asks for in
between. The process starts with the first question and is kept for the next. One that is late is
ended, and one whose owner is gone ends itself.

    owner                            worker
    what to make                 →
    ("ask", query)               →
                                 ←   ("store.keyword", arguments…)     as often as it likes
    ("done", what that gives)    →
                                 ←   ("done", answer), or ("failed", why)
"""

from __future__ import annotations

import faulthandler
import os
import pickle
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import EntryPoint
from itertools import islice
from operator import attrgetter
from pathlib import Path
from typing import Any

from clew.background import PythonProcess, send_messages, take_output, within
from clew.errors import ClewError, SourceError
from clew.protocols import Context, Source, Store
from clew.types import Answer, Candidate, Query

GLANCE = 0.25
"""Seconds that a source has to say how fresh it is."""
ORPHANED = 600.0
"""Seconds after which a worker that is still at one question ends itself: nobody waits for it."""
IDLE = 1
"""Workers of a source that are kept while there is nothing to ask them."""
_VALUES = frozenset(
    (
        *("model", "current", "at_hand", "store.folder", "store.notes"),
        *("store.indexes.behind", "store.indexes.behind_because"),
    )
)
_READING: Mapping[str, tuple[str, ...]] = {
    "": ("query_vector",),
    "store": (
        *("count", "counts", "get", "keyword", "labelled", "nearest", "passages", "select"),
        "stats",
    ),
    "store.changes": ("edition", "generation", "touched"),
    "store.files": ("roots", "states"),
    "store.indexes": ("coverage", "current", "lengths", "prepare", "reach"),
    "store.lifecycle": ("get", "ledger", "next_change", "predecessors", "tally"),
    "store.vectors": ("chunks", "known", "missing", "of", "pending", "texts"),
}
"""Of a search and the parts of its store, all that a source may ask for, beside those values."""
_ALLOWED = _VALUES.union(
    f"{part}.{name}".lstrip(".") for part, names in _READING.items() for name in names
)

Message = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class SourceRecipe:
    """What a worker makes its source of: an entry point, and what the settings say of it."""

    kind: str
    value: str
    version: str
    root: Path
    options: Mapping[str, Any]

    def made(self) -> Any:
        return EntryPoint(self.kind, self.value, "clew.sources").load()(self.root, **self.options)


class WorkerSource(Source):
    """A source of an installed package. Searches at the same time have a worker each. Records of
    its own, which come with a passage, are called `name:id` by the source's name."""

    def __init__(self, name: str, recipe: SourceRecipe):
        self._name, self._recipe = name, recipe
        self._lock = threading.Lock()
        self._idle: list[_SourceWorker] = []
        self._busy: dict[int, _SourceWorker] = {}
        """By the identity of the query that it is at."""

    def __call__(self, query: Query, context: Context) -> Answer:
        answer: Answer = self._ask(("ask", query), query, context)
        return answer._replace(candidates=[self._own(each) for each in answer.candidates])

    def freshness(self, store: Store) -> str | None:
        """What the source says, if it does and its process is there: to start that takes longer
        than a search can wait before it begins. Another version of the package is another one."""
        if not self._idle:
            return None
        query = Query("", "")  # names the question
        try:
            told = within(GLANCE, lambda: self._ask(("freshness",), query))
        except (TimeoutError, SourceError):  # it is asked next, and named if that fails as well
            self.leave(query)
            return None
        return None if told is None else f"{self._recipe.value} {self._recipe.version} {told}"

    def leave(self, query: Query) -> None:
        with self._lock:
            worker = self._busy.get(id(query))
        if worker is not None:
            worker.kill()

    def close(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for worker in idle:
            worker.close()

    def _ask(self, question: Message, query: Query, context: Context | None = None) -> Any:
        with self._lock:
            worker = self._idle.pop() if self._idle else _SourceWorker(self._recipe)
            self._busy[id(query)] = worker
        try:
            said, answer = worker.ask(question, context)
        except Exception as error:
            worker.close()
            raise SourceError(f"its process ended: {worker.fate or error}") from error
        finally:
            with self._lock:
                del self._busy[id(query)]
                keep = worker.alive and len(self._idle) < IDLE
                if keep:
                    self._idle.append(worker)
            if not keep:
                worker.close()
        if said == "failed":
            raise SourceError(answer)
        return answer

    def _own(self, candidate: Candidate) -> Candidate:
        """Name it after the source, if it is no record of the store's."""
        if not isinstance(candidate, Candidate) or candidate.passage is None:
            return candidate
        name = f"{self._name}:{candidate.id.removeprefix(f'{self._name}:')}"
        record = replace(candidate.passage.record, id=name)
        return candidate._replace(id=name, passage=replace(candidate.passage, record=record))


class _SourceWorker(PythonProcess):
    def __init__(self, recipe: SourceRecipe):
        super().__init__("from clew.sources.worker import serve; serve()")
        self._first: tuple[Any, ...] = (recipe,)

    @property
    def fate(self) -> str:
        """How it ended, in words."""
        code = self._process.poll()
        return "" if code is None else f"by signal {-code}" if code < 0 else f"with code {code}"

    def ask(self, question: Message, context: Context | None) -> Message:
        """("done", its answer) or ("failed", why). What it asks in between is answered."""
        self.send(*self._first, question)
        self._first = ()
        while (said := self.receive())[0] not in ("done", "failed"):
            self.send(_outcome(partial(_answered, said, context)))
        return tuple(said)


def _outcome(call: Callable[[], Any]) -> Message:
    try:
        return "done", call()
    except ClewError as error:
        return "failed", str(error)
    except BaseException as error:  # SystemExit as well: the answer is all that may end
        return "failed", f"{type(error).__name__}: {error}"


def _answered(asked: Message, context: Context | None) -> Any:
    """What a worker wants to know of the search."""
    name, given, options = asked
    if name not in _ALLOWED:
        name = name.removeprefix("store.")
        raise SourceError(f"a source of a package reads the store, which has no {name!r} for that")
    found = attrgetter(name)(context)
    if callable(found):
        return found(*given, **options)
    return dict(found) if isinstance(found, Mapping) else found


# ---------------------------------------------------------------------- in the worker


def serve() -> None:
    """Make the source and answer questions, until nobody asks any more."""
    pipe, out = sys.stdin.buffer, take_output()
    recipe: SourceRecipe = pickle.load(pipe)
    source: Any = None
    nowhere = os.open(os.devnull, os.O_WRONLY)

    def elsewhere(name: str, *given: Any, **options: Any) -> Any:
        send_messages(out, (name, given, options))
        said, answer = pickle.load(pipe)
        if said == "failed":
            raise SourceError(answer)
        return answer

    search = _Remote(elsewhere)

    def answer(question: Message) -> Any:
        nonlocal source
        if source is None:
            source = recipe.made()
        if question[0] == "freshness":
            tell = getattr(source, "freshness", None)
            told = None if tell is None else tell(search.store)
            return None if told is None else str(told)
        _, query = question
        given = source(query, search)
        whole = given if isinstance(given, Answer) else Answer(given)
        return whole._replace(candidates=list(islice(whole.candidates, query.depth)))

    while True:
        try:
            question = pickle.load(pipe)
        except EOFError:
            return
        faulthandler.dump_traceback_later(ORPHANED, exit=True, file=nowhere)  # needs no lock
        told = _outcome(partial(answer, question))
        faulthandler.cancel_dump_traceback_later()
        try:
            send_messages(out, told)
        except (pickle.PickleError, AttributeError, TypeError) as error:
            send_messages(out, ("failed", f"its answer is no plain data: {error}"))


class _Remote:
    """The search, its store, or a part of that, which is in another process."""

    def __init__(self, ask: Callable[..., Any], part: str = ""):
        self._ask, self._part = ask, part

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        name = f"{self._part}{name}"
        if name in _READING:
            return _Remote(self._ask, f"{name}.")
        return self._ask(name) if name in _VALUES else partial(self._ask, name)
