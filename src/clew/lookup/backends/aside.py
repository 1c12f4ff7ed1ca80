"""A store for what a backend reads elsewhere: words only, in a folder that goes with the search.

Reading a large folder for the first time takes longer than a lookup may. It goes on behind the
lookup's back, what has been read can be searched already, and the answer says that there is more.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from clew.background import within
from clew.errors import SourceError

if TYPE_CHECKING:
    from clew.engine import Engine

__all__ = ["GLANCE", "WAIT", "Aside"]

WAIT, GLANCE = 0.4, 0.1
"""The parts of the deadline that a lookup waits for reading, and that it waits to learn whether
what was kept will do."""


class Aside:
    """Opened when first used. Thread-safe."""

    def __init__(self, folder: Callable[[], Path], *, max_file_mb: float):
        self._folder, self._max_file_mb = folder, max_file_mb
        self._engine: Engine | None = None
        self._opening, self._reading = threading.Lock(), threading.Lock()
        self._ending = threading.Event()

    def brought_up(self, read: Callable[[Engine], None], *, seconds: float) -> tuple[Engine, bool]:
        """The store, and whether `read` has brought it up to date within this time. One reads at a
        time: a second one, when its turn comes, finds little left to do."""
        engine = self._open()

        def work() -> None:
            if not self._reading.acquire(timeout=seconds):
                raise TimeoutError
            try:
                read(engine)
            finally:
                self._reading.release()

        try:
            within(seconds, work)
        except TimeoutError:
            return engine, False
        return engine, True

    def go_on(self, *_: object) -> None:
        """Called by who reads, now and then: raises when nobody wants it any more."""
        if self._ending.is_set():
            raise SourceError("the search was closed")

    def close(self) -> None:
        self._ending.set()
        with self._reading, self._opening:
            if self._engine is not None:
                self._engine.close()

    def _open(self) -> Engine:
        from clew.engine import open_engine

        with self._opening:
            self.go_on()
            if self._engine is None:
                self._engine = open_engine(
                    self._folder(), model="none", cache=False, max_file_mb=self._max_file_mb
                )
            return self._engine
