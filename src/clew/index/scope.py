"""How common words are among the records that a filter leaves.

BM25 weighs a word by how rare it is. Counted over the whole store, a name that is in every turn of
one conversation looks rare because nine others do not have it, and what is kept in one namespace
sways the ranking in another. So under a filter words are weighed by how rare they are within it.

To count exactly would take as long as the search: a word that few have is counted, one that many
have is estimated from a sample of the filter's own passages.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt

from clew.storage import log, rows
from clew.storage.filters import Allowed
from clew.storage.tables import Tables
from clew.text import analyser

SAMPLE = 256
"""Records of a filter that are looked at, once per filter and change."""
CHARACTERS = 100_000
"""Of their passages that are read: a sample of them where there is more. To cut text into words is
what takes the time, and a search waits for it."""
RARE = 1_000
"""A word that at most this many passages have is counted, which is quick."""
PRIOR = 16
"""Passages' worth of belief in the store's own figure, for what the sample happens to miss."""
KEPT = 32
BROAD = 0.5
"""A filter that leaves more than this part of the store is as good as none."""


class Scope:
    """One filter's records, as they are now."""

    def __init__(self, allowed: Allowed, passages: int, sample: Sequence[frozenset[str]]):
        self.allowed, self.passages = allowed, max(1, passages)
        self._sample = sample
        self._whole = len(sample) >= self.passages
        self._counts: dict[str, float] = {}

    def holders(
        self, token: str, everywhere: int, total: int, count: Callable[[str, Allowed], int]
    ) -> float:
        """About how many of its passages have this word. `count` does it exactly."""
        known = self._counts.get(token)
        if known is None:
            if not everywhere:
                known = 0.0
            elif not self._whole and everywhere <= RARE:
                known = float(count(token, self.allowed))
            else:
                seen = float(sum(token in tokens for tokens in self._sample))
                if not self._whole:
                    belief = PRIOR * everywhere / max(1, total)
                    seen = (seen + belief) / (len(self._sample) + PRIOR) * self.passages
                known = min(seen, float(everywhere))
            self._counts[token] = known
        return known


class Scopes:
    """Those of the last filters. A filter's set is a new object once something was written; what
    was read for it before is kept, except of records that the log names since."""

    def __init__(self) -> None:
        self._kept: dict[int, Scope] = {}
        self._words: dict[int, dict[int, frozenset[str]]] = {}
        """Record → the words of each of its passages that was read."""
        self._place = log.NOWHERE
        self._lock = threading.Lock()

    def of(self, allowed: Allowed | None, db: Tables) -> Scope | None:
        """None where the figures of the whole store will do."""
        if allowed is None or allowed.whole or not allowed.count:
            return None
        kept = self._kept.get(id(allowed))
        if kept is not None and kept.allowed is allowed:
            return kept
        if allowed.count > BROAD * rows.count(db):
            return None
        with self._lock:
            made = self._read(allowed, db)
            while len(self._kept) >= KEPT:
                self._kept.pop(next(iter(self._kept)))
            self._kept[id(allowed)] = made
        return made

    def _read(self, allowed: Allowed, db: Tables) -> Scope:
        self._forget_changed(db)
        rids = _sampled(np.flatnonzero(allowed.mask))
        there = sorted(rows.sizes_of(db, rids.tolist()), key=lambda passage: _order(passage[0]))
        sums = accumulate(size for _, _, size in there)
        chosen = [
            (c, rid) for (c, rid, _), size in zip(there, sums, strict=True) if size <= CHARACTERS
        ]
        missing = [cid for cid, rid in chosen if cid not in self._words.get(rid, {})]
        for cid, rid, _, text in rows.chunk_texts(db, missing):
            self._words.setdefault(rid, {})[cid] = frozenset(analyser.tokens(text))
        read = ((cid, self._words.get(rid, {})) for cid, rid in chosen)
        sample = [words[cid] for cid, words in read if cid in words]
        return Scope(allowed, round(len(there) * allowed.count / max(1, len(rids))), sample)

    def _forget_changed(self, db: Tables) -> None:
        changes = log.since(db, self._place)
        if changes is None or len(self._words) > KEPT * SAMPLE:
            self._words.clear()
        elif changes.size("record") > len(self._words):
            touched = set(changes.numbers("record"))
            self._words = {rid: of for rid, of in self._words.items() if rid not in touched}
        else:
            for rid in changes.numbers("record"):
                self._words.pop(rid, None)
        self._place = log.head(db) if changes is None else changes.place


def _sampled(rids: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Up to SAMPLE of them, in an order that is as good as any but always the same: a record more
    or less changes the sample by one at most."""
    if len(rids) <= SAMPLE:
        return rids
    return rids[np.argpartition(_order(rids), SAMPLE)[:SAMPLE]]


def _order(number: Any) -> Any:
    return (number * 2_654_435_761) % 2**32  # Knuth's multiplicative hash
