"""Accesses are counted behind the caller's back: a recall waits for no disk and no other process.

A process that is killed loses the last moment's counts, nothing else.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from clew.background import Writer
from clew.errors import StoreError
from clew.memory.identity import find, public_id
from clew.protocols import Store

__all__ = ["Accesses"]

BREATH = 0.25
"""Seconds to wait for more: one transaction for all recalls in that time."""
PATIENCE = 10.0
"""Seconds to wait, at most, for what is under way when somebody wants to read the counts."""


class Accesses:
    """Counts by namespace and id, written some time later."""

    def __init__(self, store: Store):
        self._store = store
        self._counts: Counter[tuple[str, str]] = Counter()
        self._at = 0.0
        self._lock = threading.Lock()
        self._writer = Writer(self._write, name="clew-accesses", breath=BREATH)
        self._process = os.getpid()

    def note(self, memories: Iterable[Mapping[str, Any]], *, at: float | None = None) -> None:
        with self._lock:
            self._counts.update((memory["namespace"], memory["id"]) for memory in memories)
            self._at = max(self._at, time.time() if at is None else at)
        self._writer.wake()

    def flush(self) -> None:
        """Before the counts are read."""
        if self._process == os.getpid():  # a forked child has no thread to wait for
            self._writer.flush(PATIENCE)

    def close(self) -> None:
        if self._process == os.getpid():
            self._writer.close(PATIENCE)

    def _write(self) -> None:
        with self._lock:
            counts, at = self._counts, self._at
            self._counts = Counter()
        try:
            for space in {space for space, _ in counts}:
                ids = [name for of, name in counts if of == space]
                found = find(self._store, ids, space)
                times = {r.id: counts[space, public_id(r.id, space)] for r in found}
                self._store.accessed(times, at=at)
        except StoreError as error:  # a full disk must not take recall down
            logging.getLogger("clew").warning("accesses are not counted: %s", error)
