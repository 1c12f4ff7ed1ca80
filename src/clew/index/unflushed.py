"""Writes that a derived index does not have on disk yet, kept in memory beside it: its tail.

To write an index to the disk takes many times as long as a search, nearly all of it waiting for the
disk, and only one process can. So a search that finds an index a little behind reads the few
passages that the change log names and ranks them beside what is on disk. What the log says is gone
is masked out of the answers from the disk. Now and then somebody writes the index, in the
background, and the tail begins anew.
"""

from __future__ import annotations

import math
import re
import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, NamedTuple, Protocol, Self, TypeVar

import numpy as np
import numpy.typing as npt

from clew.protocols import Progress
from clew.storage.filters import Allowed
from clew.storage.log import NOWHERE, Changes, Place
from clew.storage.rows import chunk_texts
from clew.storage.snapshot import DerivedFolder
from clew.storage.tables import Tables
from clew.text import analyser

ROOM = 512
"""Changes from which on an index is written in the background: to rank so many in memory takes a
small part of a search."""
SHARE = 0.5
FEWEST = 16
"""A small index is written sooner: passages in the tail are weighed by the average length of those
on disk, which must not be too few to tell."""
FAR = 4
"""A search waits for the index to be written when it is this many times further behind."""

CHECKED_AT_ONCE = 8 << 20
"""Bytes of files that are compared with their checksums before the first search, in milliseconds;
more of them after it, in the background."""
ROUNDING = 4e-6
"""Part of a score that adding up in another order may change."""

ChunkScore = tuple[int, int, float]
"""(record, chunk, score)"""
Floats = npt.NDArray[np.float32]
Numbers = npt.NDArray[np.int64]


def cut_ranking(ranked: Iterable[ChunkScore], limit: int, per_record: int = 1) -> list[ChunkScore]:
    """The first `limit` records of a list that is best first, so many entries each; more where
    scores at the cut are equal."""
    entries: dict[int, int] = {}
    taken: list[ChunkScore] = []
    last = math.inf
    for one in ranked:
        if len(entries) >= limit and one[2] < last:
            break
        count = entries.get(one[0], 0)
        if count < per_record:
            entries[one[0]] = count + 1
            taken.append(one)
        last = one[2]
    return taken


def level_scores(scores: npt.NDArray[np.floating[Any]]) -> npt.NDArray[np.floating[Any]]:
    """Scores, best first, of which those that only rounding tells apart are made equal: sums come
    out a little different where the parts of an index lie otherwise, and equals go by their id."""
    if len(scores) < 2:
        return scores
    apart = np.append(True, scores[:-1] - scores[1:] > ROUNDING * np.abs(scores[:-1]))
    leaders = np.maximum.accumulate(np.where(apart, np.arange(len(scores)), 0))
    level: npt.NDArray[np.floating[Any]] = scores[leaders]
    return level


def merge_rankings(
    some: list[ChunkScore], more: list[ChunkScore], limit: int, per_record: int = 1
) -> list[ChunkScore]:
    if not more:
        return some
    both = sorted((*some, *more), key=lambda one: -one[2])
    scores = level_scores(np.array([one[2] for one in both])).tolist()
    ranked = [(rid, cid, score) for (rid, cid, _), score in zip(both, scores, strict=True)]
    ranked.sort(key=lambda one: (-one[2], one[0], one[1]))
    return cut_ranking(ranked, limit, per_record)


# ---------------------------------------------------------------------- what both indexes do


class Served(Protocol):
    """One state of an index: what is on disk, and the tail. Replaced as a whole, never changed."""

    tail: Any

    @property
    def size(self) -> int:
        """Chunks that are found."""

    def extended(self, db: Tables, changes: Changes) -> Self:
        """With these in the tail."""

    def bare(self, place: Place) -> Self:
        """Without a tail."""


S = TypeVar("S", bound=Served)


class DerivedIndex(ABC, Generic[S]):
    """Follows the change log, on disk and in memory. Writing is serialised by the derived lock."""

    kinds: tuple[str, ...]
    """Rows of the log that it goes by."""

    def __init__(self, folder: DerivedFolder):
        self._folder = folder
        self._lock = threading.Lock()
        self._served: S | None = None
        self.committed = NOWHERE
        """How far the log is applied in the files that this object serves."""
        self.lag = 0
        """Changes in the tail."""
        self.checked = False
        """Whether its files were compared with their checksums, once in this process."""

    @property
    def place(self) -> Place:
        """How far it is applied in all that this object serves: in the files and in the tail."""
        if self._served is None or self.committed == NOWHERE:
            return NOWHERE
        return self._served.tail.changes.place  # type: ignore[no-any-return]

    @property
    def counted(self) -> tuple[Place, int]:
        """Place and size of one moment."""
        served = self._served
        return (NOWHERE, 0) if served is None else (served.tail.changes.place, served.size)

    @property
    def size(self) -> int:
        return self.counted[1]

    @property
    def room(self) -> int:
        """Changes that the tail is meant for."""
        return ROOM

    def whole(self) -> bool:
        """Whether what is served is on the disk still."""
        return self._folder.file.exists()

    def follow(self, db: Tables, changes: Changes) -> None:
        """Take them into the tail, unless it has moved meanwhile."""
        with self._lock:
            if self._served is not None and changes.rows and self.place == changes.base:
                self._served = self._served.extended(db, changes)
                self.lag += changes.size(*self.kinds)

    def _serve(self, served: S, place: Place) -> None:
        """What is on disk now, with what is left of the tail. Under the lock."""
        self._served, self.committed = served, place
        self.lag = served.tail.changes.size(*self.kinds)

    def drop_tail(self) -> None:
        """Serve what is on disk alone."""
        with self._lock:
            if self._served is not None:
                self._serve(self._served.bare(self.committed), self.committed)

    def forget(self) -> None:
        """Give up what is there: the next `catch_up` makes it anew."""
        self._folder.file.unlink(missing_ok=True)
        self.committed = NOWHERE

    @abstractmethod
    def check_files(self, stopped: Callable[[], bool]) -> bool:
        """Whether all files are as they were written, as far as was looked until `stopped`."""

    @abstractmethod
    def load(self) -> bool:
        """Serve what is on disk. False: nothing whole is there (what was served stays served)."""

    @abstractmethod
    def catch_up(self, db: Tables, *, progress: Progress | None = None) -> None:
        """Apply the change log; start over from the tables when that is not possible. Only under
        the store's derived lock."""


# ---------------------------------------------------------------------- words


def character_pattern(token: str) -> str:
    """For the tokens that have this character in them, where it is one that needs it.

    Unspaced scripts are indexed in pairs: one character is part of two of them.
    """
    return f".?{re.escape(token)}.?" if analyser.is_character(token) else ""


class _TailPassage(NamedTuple):
    """A passage, taken apart: the tokens of its "title" and its "body"."""

    cid: int
    rid: int
    tokens: dict[str, list[str]]


Postings = dict[str, dict[str, list[tuple[int, int]]]]
"""Field → token → (chunk, how often it has it)."""


class WordTail:
    """One state of the tail of a keyword index; never changed. Later states share the postings with
    it, which may thus have chunks that are not in it (yet, or any more)."""

    def __init__(
        self,
        changes: Changes,
        passages: Sequence[_TailPassage] = (),
        masked: frozenset[int] = frozenset(),
        postings: Postings | None = None,
    ):
        """Without postings they are made of the passages."""
        self.changes = changes
        self.masked = masked
        """Chunks of the index on disk that are gone."""
        self.passages = {passage.cid: passage for passage in passages}
        self.count = len(passages)
        self.rids = np.array([passage.rid for passage in passages], np.int64)
        self._numbers = {cid: number for number, cid in enumerate(self.passages)}
        self._postings: Postings = {"title": {}, "body": {}} if postings is None else postings
        if postings is None:
            self._post(passages)

    def _post(self, passages: Iterable[_TailPassage]) -> None:
        for passage in passages:
            for field, tokens in passage.tokens.items():
                for token, times in Counter(tokens).items():
                    self._postings[field].setdefault(token, []).append((passage.cid, times))

    def extended(self, db: Tables, changes: Changes) -> WordTail:
        """With what these name, as it is in the tables now."""
        added, gone = changes.numbers("chunk"), frozenset(changes.numbers("gone"))
        left = [passage for cid, passage in self.passages.items() if cid not in gone]
        more = [
            _TailPassage(cid, rid, {"title": analyser.tokens(title), "body": analyser.tokens(text)})
            for cid, rid, title, text in chunk_texts(db, sorted(added))
        ]
        self._post(more)
        # What came and went since is not on disk, and was never read.
        masked = self.masked | gone.difference(self.passages, added)
        whole = self.changes.extended(changes.rows)
        return WordTail(whole, [*left, *more], masked, self._postings)

    def rebased(self, base: Place) -> WordTail:
        """What is left of it when the index on disk has all up to `base`."""
        changes = self.changes.rebased(base)
        if changes is self.changes:
            return self
        added = changes.numbers("chunk")
        left = [self.passages[cid] for cid in added if cid in self.passages]
        return WordTail(changes, left, frozenset(changes.numbers("gone")).difference(added))

    def lengths(self, field: str) -> Numbers:
        return np.array([len(passage.tokens[field]) for passage in self.passages.values()])

    def average(self, field: str) -> float:
        return float(self.lengths(field).mean()) if self.count else 0.0

    def vocabulary(self, field: str) -> list[str]:
        return list(self._postings[field])

    def frequencies(self, field: str, tokens: Sequence[str]) -> Floats:
        """How often each passage has these tokens in a row."""
        found = np.zeros(self.count, np.float32)
        for cid, times in self._postings[field].get(tokens[0], ()):
            if (number := self._numbers.get(cid)) is not None:
                found[number] = times
                if len(tokens) > 1:
                    every, wanted = self.passages[cid].tokens[field], list(tokens)
                    starts = (i for i, token in enumerate(every) if token == wanted[0])
                    found[number] = sum(every[i : i + len(wanted)] == wanted for i in starts)
        return found

    def with_character(self, character: str) -> Floats:
        """1 for each passage that has it in a token."""
        pattern = re.compile(character_pattern(character))
        found = np.zeros(self.count, np.float32)
        for token in self.vocabulary("body"):
            if pattern.fullmatch(token):
                found = np.maximum(found, self.frequencies("body", (token,)))
        return np.minimum(found, 1)

    def rank(
        self, scores: Floats, allowed: Allowed | None, limit: int, per_record: int
    ) -> list[ChunkScore]:
        """The best `limit` records of those with a score, so many entries each."""
        mask = scores > 0 if allowed is None else (scores > 0) & allowed.of_rids(self.rids)
        hits = np.flatnonzero(mask)
        hits = hits[np.argsort(-scores[hits], kind="stable")]
        cids = list(self.passages)
        each = (self.rids[hits].tolist(), [cids[i] for i in hits], scores[hits].tolist())
        ranked = ((rid, cid, round(score, 6)) for rid, cid, score in zip(*each, strict=True))
        return cut_ranking(ranked, limit, per_record)
