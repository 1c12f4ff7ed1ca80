"""One thing begun now and waited for later, for as long as one likes. `concurrent.futures` does the
same, and takes 4 ms to import, which a command that answers one query feels."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

__all__ = ["begin", "within"]

T = TypeVar("T")


def begin(function: Callable[[], T]) -> Callable[[], T]:
    """Run it in a thread; the answer is a function that waits for the result, or raises as it did.

    The thread is a daemon: a process that ends does not wait for it.
    """
    waited = _begin(function)
    return lambda: waited(None)


def within(seconds: float, function: Callable[[], T]) -> T:
    """Its result, or a TimeoutError: then it goes on by itself, and nobody asks what it gave."""
    return _begin(function)(seconds)


def _begin(function: Callable[[], T]) -> Callable[[float | None], T]:
    done: list[T] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            done.append(function())
        except BaseException as error:  # whoever waits for it gets it
            failed.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()

    def result(seconds: float | None) -> T:
        thread.join(None if seconds is None else max(seconds, 0.0))
        if not done and not failed:
            raise TimeoutError(f"not done within {seconds:g} s")
        if failed:
            raise failed[0]
        return done[0]

    return result
