"""Processes that read files and embed texts for one run of indexing: on this machine, or a Dask
cluster's.

Whoever indexes gives out batches and writes what comes back, in order, so that one process alone
writes to the store. A batch whose worker was killed is given out once more; a second time it is an
error, and what was written so far stays.
"""

from __future__ import annotations

import contextlib
import pickle
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any, Protocol, TypeVar

import numpy as np

from clew.background import PythonProcess, send_messages, take_output
from clew.config import Config
from clew.errors import (
    ClewError,
    ConfigError,
    InputError,
    ModelError,
    StoreError,
    needs_extra,
)
from clew.ingest.readers import Reading, make_batches, read_each
from clew.protocols import Embedder
from clew.types import Vectors

T = TypeVar("T")
R = TypeVar("R")

EMBED_BATCH = 64
AHEAD = 2
"""Batches per worker that are given out before the first of them is back."""


class Workers(Protocol):
    """Where batches are worked on."""

    count: int

    def submit(self, function: Callable[..., R], /, *arguments: Any) -> Future[R]: ...

    def close(self) -> None: ...


def open_workers(count: int | None = None, address: str | None = None) -> Workers:
    """So many processes here, or those of the Dask cluster whose scheduler has this address
    (dask://HOST:PORT)."""
    if address is not None:
        return DaskWorkers(address)
    if count is None or not 1 <= count <= 256:
        raise InputError(f"workers is a number from 1 to 256, not {count!r}")
    return ProcessWorkers(count)


def map_batches(workers: Workers, function: Callable[[T], R], batches: Iterable[T]) -> Iterator[R]:
    """What a function makes of each batch, in their order; a few are under way at a time."""
    waiting: deque[Future[R]] = deque()
    try:
        for batch in batches:
            waiting.append(workers.submit(function, batch))
            if len(waiting) > AHEAD * workers.count:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()


# ---------------------------------------------------------------- what they do


def read_files(
    workers: Workers, files: Iterable[tuple[T, bytes, str]], *, chunk_size: int
) -> Iterator[tuple[T, Reading | InputError]]:
    """Do as `read_each` does, by workers."""
    names: deque[list[T]] = deque()

    def give_out() -> Iterator[tuple[int, list[tuple[bytes, str]]]]:
        for batch in make_batches(files):
            names.append([file[0] for file in batch])
            yield chunk_size, [file[1:] for file in batch]

    for found in map_batches(workers, read_batch, give_out()):
        yield from zip(names.popleft(), found, strict=True)


def read_batch(batch: tuple[int, Sequence[tuple[bytes, str]]]) -> list[Reading | InputError]:
    """(size of passages, files as bytes and path) read and cut, each within its limits."""
    size, files = batch
    numbered = ((number, *file) for number, file in enumerate(files))
    return [found for _, found in read_each(numbered, chunk_size=size)]


def embed_batch(batch: tuple[Config, Sequence[str]]) -> tuple[str, Vectors]:
    """(settings, texts) embedded by the model of the settings, which is loaded once."""
    config, texts = batch
    embedder = _load_embedder(config)
    return embedder.model, embedder.embed_documents(texts)


class WorkersEmbedder:
    """The embedder of the settings, run by workers. Queries it embeds here."""

    def __init__(self, embedder: Embedder, workers: Workers, config: Config):
        self.model, self.dim = embedder.model, embedder.dim
        self.embed_query = embedder.embed_query
        self._workers = workers
        # Each has a process, so none needs threads; keys and addresses stay here.
        self._config = replace(Config(), model=config.model, device=config.device, threads=1)

    def embed_documents(self, texts: Sequence[str]) -> Vectors:
        if not texts:
            return np.zeros((0, self.dim), np.float32)
        size = max(1, min(EMBED_BATCH, -(-len(texts) // (AHEAD * self._workers.count))))
        batches = [(self._config, texts[i : i + size]) for i in range(0, len(texts), size)]
        rows = []
        for model, vectors in map_batches(self._workers, embed_batch, batches):
            if model != self.model:
                raise ModelError(
                    f"a worker embeds with {model}, this process with {self.model}: both need the "
                    "same weights (`clew models pull` on each machine)"
                )
            rows.append(vectors)
        return np.concatenate(rows)


_lock = threading.Lock()
_embedders: dict[str, Any] = {}


def _load_embedder(config: Config) -> Any:
    from clew.models import load_configured

    key = f"{config.model} {config.device}"
    with _lock:
        if key not in _embedders:
            embedder = load_configured(config, offline=config.offline)
            if not embedder.dim:
                embedder.embed_query("")  # says why it cannot
            _embedders[key] = embedder
        return _embedders[key]


# ---------------------------------------------------------------- on this machine


class ProcessWorkers:
    """Processes of their own, a thread here for each."""

    def __init__(self, count: int):
        self.count = count
        self._threads: Executor = ThreadPoolExecutor(count, thread_name_prefix="clew-worker")
        self._local = threading.local()
        self._all: list[PythonProcess] = []
        self._lock = threading.Lock()
        self._closed = False

    def submit(self, function: Callable[..., R], /, *arguments: Any) -> Future[R]:
        return self._threads.submit(self._call, function, *arguments)

    @property
    def pids(self) -> list[int]:
        return [process.pid for process in self._all if process.alive]

    def _call(self, function: Callable[..., R], *arguments: Any) -> R:
        process: PythonProcess | None = getattr(self._local, "process", None)
        for _ in range(2):
            if process is None or not process.alive:
                process = self._local.process = self._start()
            try:
                process.send((function, arguments))
                well, answer = process.receive()
            except (EOFError, OSError, pickle.UnpicklingError):  # it was killed
                process.close()
                continue
            if well:
                made: R = answer
                return made
            raise answer
        assert process is not None
        raise StoreError(
            f"two worker processes died over one batch (exit {process.wait()}): fewer "
            "--workers take less memory; what was indexed so far is kept"
        )

    def _start(self) -> PythonProcess:
        with self._lock:
            if self._closed:
                raise StoreError("these workers were ended")
            self._all.append(PythonProcess("from clew.ingest.workers import serve; serve()"))
            return self._all[-1]

    def close(self) -> None:
        with self._lock:
            self._closed = True  # no more are begun in the place of those that end now
        for process in self._all:
            process.kill()
        self._threads.shutdown(cancel_futures=True)  # none reads a pipe that is closed below
        for process in self._all:
            process.close()


def _call_worker(function: Callable[..., Any], arguments: tuple[Any, ...]) -> tuple[bool, Any]:
    """Whether all went well, and what came of it."""
    try:
        return True, function(*arguments)
    except ClewError as error:
        return False, error


def serve() -> None:
    """Do what is sent to this process, until nobody sends any more."""
    to = take_output()
    while True:
        try:
            function, arguments = pickle.load(sys.stdin.buffer)
        except (EOFError, pickle.UnpicklingError):  # who gave out the work is gone
            return
        try:
            answer = _call_worker(function, arguments)
        except Exception as error:
            answer = (False, StoreError(f"a worker failed: {type(error).__name__}: {error}"))
        with contextlib.suppress(BrokenPipeError):
            send_messages(to, answer)


# ---------------------------------------------------------------- on a cluster


class DaskWorkers:
    """The workers of a Dask cluster: each needs Clew of this version, and fetches the model."""

    def __init__(self, address: str):
        scheme, _, place = address.partition("://")
        if scheme != "dask" or not place:
            raise ConfigError(f"{address!r} is no cluster: dask://HOST:PORT of its scheduler")
        with needs_extra("dask", "a Dask cluster"):
            from distributed import Client
        try:
            client: Any = Client  # it has no annotations
            self._client = client(f"tcp://{place}", timeout="10s", set_as_default=False)
        except (OSError, TimeoutError, ValueError) as error:
            raise ConfigError(f"no Dask scheduler answers at {place}: {error}") from error
        self.count = max(1, len(self._client.scheduler_info(n_workers=-1)["workers"]))

    def submit(self, function: Callable[..., R], /, *arguments: Any) -> Future[R]:
        # Not pure: two equal batches are two. A batch goes where nothing is kept of it before.
        made = self._client.submit(_call_worker, function, arguments, pure=False, retries=1)
        return _DaskResult(made)

    def close(self) -> None:
        self._client.close()


class _DaskResult(Future[R]):
    """A result that is on its way from a cluster."""

    def __init__(self, of: Any):
        super().__init__()
        self._of = of

    def result(self, timeout: float | None = None) -> R:
        from distributed import CancelledError, KilledWorker

        try:
            well, answer = self._of.result(timeout)
        except (KilledWorker, CancelledError, OSError, TimeoutError) as error:
            raise StoreError(
                f"the Dask cluster lost a batch: {error}; run it again, what was indexed is kept"
            ) from error
        if not well:
            raise answer
        made: R = answer
        return made

    def cancel(self) -> bool:
        self._of.cancel()
        return True
