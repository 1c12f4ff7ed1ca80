"""One thing begun now and waited for later. `concurrent.futures` does the same, and takes 4 ms to
import, which a command that answers one query feels."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

__all__ = ["begin"]

T = TypeVar("T")


def begin(function: Callable[[], T]) -> Callable[[], T]:
    """Run it in a thread; the answer is a function that waits for the result, or raises as it did.

    The thread is a daemon: a process that ends does not wait for it.
    """
    done: list[T] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            done.append(function())
        except BaseException as error:  # whoever waits for it gets it
            failed.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()

    def result() -> T:
        thread.join()
        if failed:
            raise failed[0]
        return done[0]

    return result
