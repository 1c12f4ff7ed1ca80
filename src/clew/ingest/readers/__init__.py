"""One reader per kind of file, chosen by the file's name, and the process that they run in.

Parsers of other people's making meet files of other people's making there: one that runs away, eats
memory or breaks the interpreter ends that process and no other. The next file gets a new one.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import pickle
import signal
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple, TypeVar, cast

from clew.background import PythonProcess, send_messages, take_output
from clew.errors import ClewError, InputError
from clew.ingest.chunk import chunk
from clew.ingest.readers.code import LANGUAGES, NAMES
from clew.ingest.readers.text import whole
from clew.protocols import Reader
from clew.types import Chunk, Document

T = TypeVar("T")

VERSION = 3
"""Of what readers make of a file. A store that was filled by another one reads its files anew."""

_TEXTS = (".txt", ".text", ".log", ".org", ".adoc", ".asciidoc", ".tex")
# suffix → (kind, module:function). A module is imported when the first file of its kind is read.
_READERS: Mapping[str, tuple[str, str]] = {
    **dict.fromkeys(LANGUAGES, ("code", "code:read_code")),
    **dict.fromkeys(_TEXTS, ("text", "text:read_text")),
    **dict.fromkeys((".md", ".markdown", ".mdx"), ("markdown", "markdown:read_markdown")),
    ".rst": ("rst", "text:read_rst"),
    **dict.fromkeys((".html", ".htm", ".xhtml"), ("html", "html:read_html")),
    ".csv": ("table", "tables:read_csv"),
    ".tsv": ("table", "tables:read_tsv"),
    **dict.fromkeys((".jsonl", ".ndjson"), ("table", "tables:read_jsonl")),
    ".xlsx": ("table", "documents:read_xlsx"),
    ".pdf": ("document", "documents:read_pdf"),
    ".docx": ("document", "documents:read_docx"),
    ".pptx": ("document", "documents:read_pptx"),
}


def known_suffixes() -> frozenset[str]:
    """The endings that have a reader, with their dot. Files without one can be read as well."""
    return frozenset(_READERS)


def kind_of(suffix: str) -> str | None:
    """The type that records of files with this ending have; None where nothing reads them."""
    return _READERS[suffix][0] if suffix in _READERS else None


def is_table(path: str) -> bool:
    """Whether a file of this name has rows."""
    return kind_of(PurePosixPath(path).suffix.lower()) == "table"


def reader_for(path: str) -> Reader | None:
    """What reads a file of this name; None when nothing does."""
    name = _name_reader(path)
    return None if name is None else _load(name)


def has_reader(path: str) -> bool:
    """Whether files of this name are read."""
    return _name_reader(path) is not None


def _name_reader(path: str) -> str | None:
    name = PurePosixPath(path).name
    suffix = PurePosixPath(path).suffix.lower()
    if name in NAMES:
        return "code:read_code"
    if suffix:
        return _READERS[suffix][1] if suffix in _READERS else None
    # README, LICENSE, a note without an ending. Not .env and its like: they hold settings and keys.
    return None if name.startswith(".") else "text:read_text"


def read(data: bytes, path: str) -> Document:
    """The document in a file's bytes. Whatever is wrong with them is an InputError."""
    reader = reader_for(path)
    if reader is None:
        raise InputError(f"no reader for {PurePosixPath(path).suffix or path!r} files")
    return _read_with(reader, data, path)


def _read_with(reader: Reader, data: bytes, path: str) -> Document:
    try:
        return cast(Document, whole(reader(data, path)))
    except (ClewError, MemoryError):
        raise
    except Exception as error:  # parsers of damaged files raise whatever they stumble over
        raise InputError(f"cannot read {path}: {str(error) or type(error).__name__}") from error


@cache
def _load(name: str) -> Reader:
    module, _, function = name.partition(":")
    module = module if "." in module else f"{__name__}.{module}"
    return cast(Reader, getattr(importlib.import_module(module), function))


# ---------------------------------------------------------------- in a process of their own

SECONDS, SECONDS_PER_MB = 10.0, 20.0
"""Of processor time for a file, and more by its size. It may take so many times as long (a busy
machine):"""
PATIENCE = 10
MEMORY = 3 * 2**30
BATCH_FILES, BATCH_BYTES = 32, 500_000
"""Sent at once: to send takes longer than to read a small file."""
IDLE_SECONDS = 5.0
"""After which a process that nobody needs is ended."""
_START = (
    "import types; folder, memory = pickle.load(sys.stdin.buffer); "
    # Only what readers need: the package itself would bring in all of the engine.
    "sys.modules['clew'] = clew = types.ModuleType('clew'); clew.__path__ = [folder]; "
    "from clew.ingest.readers import serve; serve(memory)"
)
_NO_MEMORY = 3


class BrokenFileError(InputError):
    """A file that ended the process it was read in. It would do so again."""


class Reading(NamedTuple):
    """What was made of a file."""

    document: Document
    chunks: tuple[Chunk, ...]
    rows: tuple[tuple[Chunk, ...], ...]
    """The passages of each row."""


def read_each(
    files: Iterable[tuple[T, bytes, str]], *, chunk_size: int
) -> Iterator[tuple[T, Reading | InputError]]:
    """What becomes of files, given as (what to call it, its bytes, its path), in their order."""
    with _Workers(chunk_size) as workers:
        sent: list[tuple[T, bytes, str]] = []
        for batch in make_batches(files):
            answers = workers.receive() if sent else []
            workers.send([file[1:] for file in batch])
            yield from zip((file[0] for file in sent), answers, strict=True)
            sent = batch  # is read while the caller writes what came before
        yield from zip((file[0] for file in sent), workers.receive() if sent else [], strict=True)


def make_batches(files: Iterable[tuple[T, bytes, str]]) -> Iterator[list[tuple[T, bytes, str]]]:
    batch: list[tuple[T, bytes, str]] = []
    size = 0
    for file in files:
        batch.append(file)
        size += len(file[1])
        if len(batch) >= BATCH_FILES or size > BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


_Job = tuple[bytes, str, str, float, float]
"""Bytes, path, reader, seconds of the processor's and of the clock's."""


class _Workers:
    """One process after the other."""

    def __init__(self, chunk_size: int):
        self._size = chunk_size
        self._jobs: list[_Job] = []
        self._worker = _borrow_worker()

    def __enter__(self) -> _Workers:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        _return_worker(self._worker, keep=kind is None)

    def send(self, files: Sequence[tuple[bytes, str]]) -> None:
        self._jobs = []
        for data, path in files:
            seconds = SECONDS + SECONDS_PER_MB * len(data) / 2**20
            job = data, path, _name_reader(path) or "", seconds, seconds * PATIENCE
            self._jobs.append(job)
        self._worker.send((self._size, self._jobs))

    def receive(self) -> list[Reading | InputError]:
        answers = self._worker.receive()
        if answers is not None:
            return answers
        self._renew()
        return [self._read_alone(job) for job in self._jobs]

    def _read_alone(self, job: _Job) -> Reading | InputError:
        """Whatever ended the process, it may have been another file, or somebody from outside."""
        self._worker.send((self._size, [job]))
        answers = self._worker.receive()
        if answers is not None:
            return answers[0]
        reason = self._worker.explain(job[3])
        self._renew()
        return BrokenFileError(f"{reason}: it is not tried again until it changes")

    def _renew(self) -> None:
        self._worker.close()
        self._worker = _Worker()


class _Worker(PythonProcess):
    def __init__(self) -> None:
        self._ready = False
        try:
            super().__init__(_START, quiet=True)
        except OSError as error:
            raise InputError(f"no process can be started to read files in: {error}") from error
        self.send((str(Path(__file__).parents[2]), MEMORY))

    def send(self, *messages: Any) -> None:
        with contextlib.suppress(OSError):  # it is gone, as the one who waits for an answer sees
            super().send(*messages)

    def receive(self) -> list[Reading | InputError] | None:
        """The process's answer; None: it has ended."""
        try:
            if not self._ready:
                self._ready = super().receive()
            answers: list[Reading | InputError] = super().receive()
            return answers
        except (EOFError, pickle.UnpicklingError, OSError) as error:
            if not self._ready:
                raise InputError(
                    f"the process that reads files did not start ({sys.executable}, "
                    f"{self.wait()}): check that Python can be run"
                ) from error
            return None

    def explain(self, seconds: float) -> str:
        """What it died of."""
        code = self.wait()
        if code == _NO_MEMORY:
            return f"reading it takes more than {MEMORY // 2**20} MB of memory"
        if -code in (getattr(signal, "SIGPROF", 0), getattr(signal, "SIGALRM", 0)):
            return f"reading it takes more than {seconds:.3g} s"
        return f"its reader broke ({'signal' if code < 0 else 'code'} {abs(code)})"


_idle: list[_Worker] = []
_lock = threading.Lock()


def _borrow_worker() -> _Worker:
    with _lock:
        worker = _idle.pop() if _idle else None
    if worker is not None and worker.alive and worker.owner == os.getpid():
        return worker
    return _Worker()


def _return_worker(worker: _Worker, *, keep: bool) -> None:
    with _lock:
        keep = keep and worker.alive and not _idle
        if keep:
            _idle.append(worker)
    if not keep:
        worker.close()
        return

    def end() -> None:
        with _lock:
            if worker not in _idle:
                return
            _idle.remove(worker)
        worker.close()

    timer = threading.Timer(IDLE_SECONDS, end)
    timer.daemon = True
    with contextlib.suppress(RuntimeError):  # Python is ending, and this with it
        timer.start()


def serve(memory: int) -> None:
    """Read what is sent to this process, until nobody sends any more."""
    pipe, out = sys.stdin.buffer, take_output()
    with contextlib.suppress(ImportError, ValueError, OSError):  # not there, or lower already
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    answer: Any = True
    while True:
        send_messages(out, answer)
        try:
            size, jobs = pickle.load(pipe)
            answer = [_read_job(job, size) for job in jobs]
        except EOFError:
            return
        except MemoryError:
            os._exit(_NO_MEMORY)


def _read_job(job: _Job, size: int) -> Reading | InputError:
    data, path, reader, *seconds = job
    try:
        with _limit_time(*seconds):
            document = _read_with(_load(reader), data, path)
            rows = (Document(row.text, "text", title=row.title) for row in document.rows)
            passages = tuple(chunk(row, size=size) for row in rows)
            return Reading(document, chunk(document, size=size), passages)
    except ClewError as error:
        return InputError(str(error))


@contextlib.contextmanager
def _limit_time(seconds: float, by_clock: float) -> Iterator[None]:
    """End this process, whatever it is at, where it takes longer."""
    if not hasattr(signal, "setitimer"):
        import faulthandler

        faulthandler.dump_traceback_later(by_clock, exit=True)
        yield
        faulthandler.cancel_dump_traceback_later()
        return
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.setitimer(signal.ITIMER_REAL, by_clock)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
