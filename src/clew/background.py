"""Work done behind the caller's back: one thing begun now and waited for later, for as long as one
likes (`concurrent.futures` does the same, and takes a while to import, which a command
that answers one query feels), writing that nobody waits for, an end of the process that waits for
calls of libraries, other processes, and what threads keep, for one another and of memory."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any, BinaryIO, TypeVar

T = TypeVar("T")
K = TypeVar("K")


BREATH = 0.05
"""Seconds to wait for more: one transaction for all that comes in that time."""
_ARENA_MAX = -8
"""Its number in glibc's malloc.h."""
IDLE = 5.0
"""Seconds without work after which the thread ends; the next work starts another. So what
nobody closed leaves nothing behind."""


def begin(function: Callable[[], T]) -> Callable[..., T]:
    """Run it in a thread; the answer is a function that waits for the result, or raises as it did.
    It may be told how many seconds to wait: then a TimeoutError comes after these.

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

    def result(seconds: float | None = None) -> T:
        thread.join(None if seconds is None else max(seconds, 0.0))
        if not done and not failed:
            raise TimeoutError(f"not done within {seconds:g} s")
        if failed:
            raise failed[0]
        return done[0]

    return result


def within(seconds: float, function: Callable[[], T]) -> T:
    """The function's result, or a TimeoutError: then it goes on, and nobody asks what it gave."""
    return begin(function)(seconds)


_calls = threading.Condition()
_under_way = 0
_ending = False


@contextmanager
def library_call() -> Iterator[None]:
    """Surround a call that may take long without the interpreter: a process that ends waits for it.
    A daemon thread that comes back from C++ to an interpreter that is gone aborts the process."""
    global _under_way
    with _calls:
        if _ending:
            raise SystemExit  # ends this thread alone
        _under_way += 1
    try:
        yield
    finally:
        with _calls:
            _under_way -= 1
            _calls.notify_all()


@atexit.register
def _wait_for_calls() -> None:
    global _ending
    with _calls:
        _ending = True
        _calls.wait_for(lambda: not _under_way, IDLE)


class Writer:
    """Calls `work` on a daemon thread some time after `wake`. `work` takes all there is to do."""

    def __init__(self, work: Callable[[], None], *, name: str, breath: float = BREATH):
        self._work, self._name, self._breath = work, name, breath
        self._changed = threading.Condition()
        self._asked = self._done = 0
        self._running = self._hurried = self._closed = self._breathing = False

    def wake(self) -> None:
        with self._changed:
            if self._closed:
                return
            self._asked += 1
            if self._running:
                if not self._breathing:  # else it looks again soon, and need not be woken for this
                    self._changed.notify_all()
                return
            try:
                threading.Thread(target=self._run, name=self._name, daemon=True).start()
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
            self._breathing = True
            self._changed.wait_for(lambda: self._hurried, self._breath)
            self._breathing = self._hurried = False
            return self._asked

    def _finish(self, asked: int) -> None:
        with self._changed:
            self._done = asked
            self._changed.notify_all()


class Recent(OrderedDict[K, T]):
    """The last `most` that were kept or used; any thread may."""

    def __init__(self, most: int):
        super().__init__()
        self._most, self._lock = most, threading.Lock()

    def use(self, key: K) -> T | None:
        with self._lock:
            if key in self:
                self.move_to_end(key)
            return self.get(key)

    def keep(self, key: K, value: T) -> None:
        with self._lock:
            self[key] = value
            self.move_to_end(key)
            while len(self) > self._most:
                self.popitem(last=False)


# ---------------------------------------------------------------- in another process


class PythonProcess:
    """A Python of its own and the pipes to it, for one thread at a time. It imports from where its
    owner does, nothing from the current folder, which may be one that is read, and ends with this
    object. Not multiprocessing: that would run the caller's main module again."""

    def __init__(self, code: str, *, quiet: bool = False):
        """`code` finds `pickle` and `sys` imported. What a `quiet` one says goes nowhere."""
        import subprocess

        start = "import pickle, sys; sys.path[:] = pickle.load(sys.stdin.buffer); "
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", start + code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL if quiet else None,
            start_new_session=True,  # Ctrl-C is for the owner, who ends this process
        )
        self.pid, self.owner = self._process.pid, os.getpid()
        self.kill = weakref.finalize(self, _end_process, self._process, self.owner)
        self.send(list(sys.path))

    @property
    def alive(self) -> bool:
        return self._process.poll() is None and self.kill.alive

    def wait(self) -> int:
        """How it ended, when it has."""
        return self._process.wait()

    def send(self, *messages: Any) -> None:
        assert self._process.stdin is not None
        send_messages(self._process.stdin, *messages)

    def receive(self) -> Any:
        import pickle

        assert self._process.stdout is not None
        return pickle.load(self._process.stdout)

    def close(self) -> None:
        self.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            with suppress(OSError):  # what could not be sent
                pipe.close()  # type: ignore[union-attr]


def _end_process(process: Any, owner: int) -> None:
    if os.getpid() == owner:  # and no copy of it
        process.kill()
        process.wait()


def is_running(process: int) -> bool:
    """Whether there is a process of this number here, as far as can be told."""
    if os.name == "posix":
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return False
        except (OSError, OverflowError):
            pass
    return True


@cache
def _allocator() -> Any:
    """glibc's, told to keep one arena of memory for each core, where it would keep eight
    (`MALLOC_ARENA_MAX` says another number). None with another libc."""
    if sys.platform != "linux":
        return None
    import ctypes

    libc = ctypes.CDLL(None)
    if not hasattr(libc, "malloc_trim"):
        return None
    if "MALLOC_ARENA_MAX" not in os.environ:
        libc.mallopt(_ARENA_MAX, max(2, os.cpu_count() or 1))
    return libc


@contextmanager
def returned_memory() -> Iterator[None]:
    """Surround what takes much memory in threads of its own, as index writers do: what is free
    afterwards goes back to the system. After an hour of writes glibc held 700 MB, 30 in use."""
    libc = _allocator()
    try:
        yield
    finally:
        if libc:
            libc.malloc_trim(0)


def send_messages(pipe: Any, *messages: Any) -> None:
    import pickle

    for each in messages:
        pipe.write(pickle.dumps(each))
    pipe.flush()


def take_output() -> BinaryIO:
    """Give the pipe of answers to such a process. What a library prints is none."""
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return out
