"""Answers to lookups, kept in memory: under the newest form of their key and the older ones.

The older forms say less: the oldest knows neither the namespace nor the state of what was searched.
So namespaces are kept apart here, and each answer is stamped with the newest form of the key it was
made for: under an older form it answers only the very same lookup. An answer from an old snapshot
has no stamp; whether that will do is for the caller to say.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from clew.cache.answers import check, copied
from clew.cache.lookup_keys import DEFAULT_NAMESPACE, CacheKey
from clew.types import SearchResult

__all__ = ["Answered", "KeptAnswer", "LookupCache", "Slot"]

Slot = Literal["primary", "alias", "legacy"]


@dataclass(frozen=True, slots=True)
class KeptAnswer:
    """One answer, when it was made, and for which lookup."""

    result: SearchResult
    made: float
    """Seconds since the epoch."""
    stamp: str | None = None
    """The newest form of its key; None: it comes from a snapshot that did not say."""


class Answered(NamedTuple):
    result: SearchResult
    slot: Slot


class LookupCache:
    """Thread-safe; bounded in number and in age."""

    def __init__(
        self,
        *,
        entries: int = 1000,
        seconds: float = 86_400.0,
        clock: Callable[[], float] = time.time,
    ):
        self._most, self._seconds, self._clock = max(0, entries), seconds, clock
        self._kept: OrderedDict[tuple[str, str], KeptAnswer] = OrderedDict()
        self._names: Counter[int] = Counter()
        """Answer (its identity) → under how many names it is kept."""
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """How many answers there are, under however many names."""
        with self._lock:
            return len(self._names)

    def get(
        self, key: CacheKey, *, namespace: str | None = None, stamped: bool = False
    ) -> Answered | None:
        """The answer to this lookup and the form of the key that had it. One found under an older
        form is kept under all of them from now on. With `stamped`, not what an old snapshot has."""
        scope = namespace or DEFAULT_NAMESPACE
        with self._lock:
            for name in key.candidates():
                kept = self._kept.get((scope, name))
                if kept is None:
                    continue
                if not self._alive(kept):
                    self._drop((scope, name))
                    continue
                if kept.stamp is None:
                    if stamped:
                        continue
                    kept = KeptAnswer(kept.result, kept.made, key.primary)
                elif kept.stamp != key.primary:
                    continue
                self._put(key.candidates(), scope, kept)  # also: used last
                return Answered(copied(kept.result), _slot(key, name))
        return None

    def put(self, key: CacheKey, result: SearchResult, *, namespace: str | None = None) -> None:
        """Keep an answer under every form of its key; not one whose values could not be copied."""
        try:
            check(result)
        except TypeError:
            return
        kept = KeptAnswer(copied(result), self._clock(), key.primary)
        with self._lock:
            self._put(key.candidates(), namespace or DEFAULT_NAMESPACE, kept)

    def clear(self, *, namespace: str | None = None) -> None:
        """Forget the answers of a namespace, or all."""
        with self._lock:
            for place in [p for p in self._kept if namespace in (None, p[0])]:
                self._drop(place)

    def save(self, file: str | Path) -> int:
        """Write a snapshot; how many answers it has. What has no form in JSON is left out."""
        from clew.cache.snapshots import write

        with self._lock:
            alive = [(*place, kept) for place, kept in self._kept.items() if self._alive(kept)]
        return write(Path(file), alive)

    def load(self, file: str | Path) -> int:
        """Take in a snapshot of this or an older form; how many answers came of it. What is here
        already stays: it is newer."""
        from clew.cache.snapshots import read

        taken: set[int] = set()
        with self._lock:
            for namespace, name, kept in read(Path(file)):
                if (namespace, name) not in self._kept and self._alive(kept):
                    self._put((name,), namespace, kept)
                    taken.add(id(kept))
        return len(taken)

    def _put(self, names: Iterable[str], scope: str, kept: KeptAnswer) -> None:
        for name in names:
            self._drop((scope, name))
            self._kept[scope, name] = kept
            self._names[id(kept)] += 1
        while len(self._names) > self._most:
            self._drop(next(iter(self._kept)))

    def _drop(self, place: tuple[str, str]) -> None:
        if (gone := self._kept.pop(place, None)) is not None:
            self._names[id(gone)] -= 1
            if not self._names[id(gone)]:
                del self._names[id(gone)]

    def _alive(self, kept: KeptAnswer) -> bool:
        return 0 <= self._clock() - kept.made < self._seconds


def _slot(key: CacheKey, name: str) -> Slot:
    if name == key.primary:
        return "primary"
    return "alias" if name in key.aliases else "legacy"
