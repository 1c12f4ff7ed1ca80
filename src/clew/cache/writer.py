"""Work done behind the caller's back, so that nobody waits for a disk."""

from __future__ import annotations

import threading
from collections.abc import Callable

__all__ = ["Writer"]

BREATH = 0.05
"""Seconds to wait for more: one transaction for all that comes in that time."""
IDLE = 5.0
"""Seconds without work after which the thread ends; the next work starts another. So a cache that
nobody closed leaves nothing behind."""


class Writer:
    """Calls `work` on a daemon thread some time after `wake`. `work` takes all there is to do."""

    def __init__(self, work: Callable[[], None]):
        self._work = work
        self._changed = threading.Condition()
        self._asked = self._done = 0
        self._running = self._hurried = self._closed = False

    def wake(self) -> None:
        with self._changed:
            if self._closed:
                return
            self._asked += 1
            self._changed.notify_all()
            if self._running:
                return
            try:
                threading.Thread(target=self._run, name="clew-cache", daemon=True).start()
                self._running = True
            except RuntimeError:  # no more threads, or Python is ending: then it is not written
                self._done = self._asked

    def flush(self, seconds: float) -> bool:
        """Wait until all that was asked for is done, but not longer than that."""
        with self._changed:
            wanted, self._hurried = self._asked, True
            self._changed.notify_all()
            return self._changed.wait_for(lambda: self._done >= wanted, seconds)

    def close(self, seconds: float) -> None:
        """Do what there is and nothing more."""
        self.flush(seconds)
        with self._changed:
            self._closed = True

    def _run(self) -> None:
        try:
            while asked := self._next():
                self._work()
                self._finish(asked)
        except (
            BaseException
        ):  # said by Python; whoever waits goes on, and the next work starts anew
            with self._changed:
                self._running = False
            self._finish(self._asked)
            raise

    def _next(self) -> int:
        """The number of the last work that was asked for; 0: none, and the thread ends."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._asked > self._done, IDLE):
                self._running = False
                return 0
            self._changed.wait_for(lambda: self._hurried, BREATH)
            self._hurried = False
            return self._asked

    def _finish(self, asked: int) -> None:
        with self._changed:
            self._done = asked
            self._changed.notify_all()
