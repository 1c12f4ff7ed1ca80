"""How common words are among the records that a filter leaves.

BM25 weighs a word by how rare it is. Counted over the whole store, a name that is in every turn of
one conversation looks rare because nine others do not have it, and what is kept in one namespace
sways the ranking in another. So under a filter words are weighed by how rare they are within it.

To count exactly would take as long as the search: a word that few have is counted, one that many
have is estimated from a sample of the filter's own passages.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Sequence

import numpy as np

from clew.store.embedded import rows
from clew.store.embedded.filters import Allowed
from clew.text import tokenise

__all__ = ["Scope", "Scopes"]

SAMPLE = 256
"""Records of a filter that are read, once per filter and change."""
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
    """Those of the last filters. A filter's set is a new object once it has changed."""

    def __init__(self) -> None:
        self._kept: dict[int, Scope] = {}
        self._lock = threading.Lock()

    def of(self, allowed: Allowed | None, db: sqlite3.Connection) -> Scope | None:
        """None where the figures of the whole store will do."""
        if allowed is None or not allowed.count:
            return None
        kept = self._kept.get(id(allowed))
        if kept is not None and kept.allowed is allowed:
            return kept
        if allowed.count > BROAD * rows.count(db):
            return None
        made = _read(allowed, db)
        with self._lock:
            while len(self._kept) >= KEPT:
                self._kept.pop(next(iter(self._kept)))
            self._kept[id(allowed)] = made
        return made


def _read(allowed: Allowed, db: sqlite3.Connection) -> Scope:
    rids = np.flatnonzero(allowed.mask)
    if len(rids) > SAMPLE:
        rids = rids[np.linspace(0, len(rids) - 1, SAMPLE).astype(np.int64)]
    texts = rows.texts_of(db, rids.tolist())
    sample = [frozenset(tokenise.tokens(text)) for text in texts]
    return Scope(allowed, round(len(sample) * allowed.count / max(1, len(rids))), sample)
