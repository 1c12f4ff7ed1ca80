"""A DuckDB cursor with the words that the rest of the store has for SQLite's connections.

A statement costs DuckDB a third of a millisecond before it reads a row, so answers of one row
(where the log ends, whether a domain is used) are kept until the next write: only this process can
write, and it knows when it did.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clew.errors import StoreError
from clew.store.duckdb import rows

if TYPE_CHECKING:
    from clew.store.duckdb.file import File

__all__ = ["Connection", "Gate", "explained"]

FEW = 1_000
"""Answers kept at a time."""


class Rows:
    """What a statement gave, all of it."""

    __slots__ = ("_rows",)

    def __init__(self, rows: Sequence[tuple[Any, ...]] = ()):
        self._rows = rows

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return iter(self._rows)

    def fetchall(self) -> Any:
        return self._rows

    def fetchone(self) -> Any:
        return self._rows[0] if self._rows else None


class Gate:
    """Many at work, or one alone: who closes or replaces the file waits for running statements."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._inside = 0
        self._closed = False

    def enter(self) -> None:
        with self._changed:
            while self._closed:
                self._changed.wait()
            self._inside += 1

    def leave(self) -> None:
        with self._changed:
            self._inside -= 1
            self._changed.notify_all()

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        with self._changed:
            while self._closed:
                self._changed.wait()
            self._closed = True
            while self._inside:
                self._changed.wait()
        try:
            yield
        finally:
            with self._changed:
                self._closed = False
                self._changed.notify_all()


class Connection:
    """Of one thread, or the one that writes. Its cursor is a new one when the file was replaced."""

    def __init__(self, file: File):
        self._file = file
        self._cursor: Any = None
        self._epoch = -1
        self.in_transaction = False
        self._done: list[Callable[[], object]] = []
        """What this transaction has written so far, to be done again: see `back_to`."""

    @property
    def file(self) -> File:
        return self._file

    def execute(self, query: str, parameters: Sequence[Any] = (), /) -> Rows:
        if query in ("BEGIN", "COMMIT", "ROLLBACK"):
            self._turn(query)
            return Rows()
        reads = query.lstrip().startswith("SELECT")
        if self.in_transaction:
            rows = self._run(query, parameters)
            if not reads:
                self._done.append(lambda: self._run(query, parameters))
            return Rows(rows)
        key = _key(query, parameters) if reads else None
        if key is not None and (known := self._file.answers.get(key)) is not None:
            self._file.check()
            return known
        version = self._file.version
        self._file.gate.enter()
        try:
            found = Rows(self._run(query, parameters))
        finally:
            self._file.gate.leave()
        if key is not None and len(found.fetchall()) <= 1:
            self._file.keep(key, found, version, FEW)
        return found

    def executemany(self, query: str, parameters: Iterable[Sequence[Any]], /) -> None:
        """One by one: for a handful. Many rows go through `insert`."""
        for some in parameters:
            self.execute(query, some)

    def numpy(self, query: str, parameters: Sequence[Any] = ()) -> Mapping[str, Any]:
        """Columns as arrays: much quicker than tuples where there are many rows."""
        outside = not self.in_transaction
        if outside:
            self._file.gate.enter()
        try:
            with explained(self._file.path):
                columns: Mapping[str, Any] = self._live().execute(query, parameters).fetchnumpy()
                return columns
        finally:
            if outside:
                self._file.gate.leave()

    def insert(self, table: str, columns: Mapping[str, Sequence[Any]]) -> None:
        """Rows given as columns, in one statement."""
        if not any(map(len, columns.values())):
            return
        names = ", ".join(f'"{name}"' for name in columns)
        lists = ", ".join("unnest(?)" for _ in columns)
        self.execute(f"INSERT INTO {table} ({names}) SELECT {lists}", list(columns.values()))

    def insert_vectors(self, columns: Mapping[str, Any], vectors: Any) -> None:
        """A row of the array each. As parameters 20,000 of them take ten times as long."""

        def write() -> None:
            import numpy as np

            boxed = np.empty(len(vectors), dtype=object)
            boxed[:] = list(vectors)
            cursor = self._live()
            with explained(self._file.path):
                cursor.register("clew_given", {**columns, "embedding": boxed})
                try:
                    names = ", ".join([*columns, "embedding"])
                    cursor.execute(f"INSERT INTO vectors ({names}) SELECT {names} FROM clew_given")
                finally:
                    cursor.unregister("clew_given")

        if len(vectors):
            write()
            self._done.append(write)

    # ------------------------------------------------------------------ transactions

    def _turn(self, word: str) -> None:
        if word == "BEGIN":
            self._file.gate.enter()
            try:
                self._run(word)
            except BaseException:
                self._file.gate.leave()
                raise
            self.in_transaction = True
            return
        try:
            self._run(word)
        finally:
            if word == "ROLLBACK" or not self._writes:
                self._end()
        if self.in_transaction:
            self._end()

    @property
    def _writes(self) -> bool:
        return self is self._file.writer

    def _end(self) -> None:
        self.in_transaction = False
        self._done.clear()
        self._file.gate.leave()

    @property
    def mark(self) -> int:
        return len(self._done)

    def back_to(self, mark: int) -> None:
        """Undo what was written since. DuckDB has no savepoints: all is taken back, and what came
        before is written again. Nobody else can have written meanwhile."""
        again = self._done[:mark]
        self._run("ROLLBACK")
        self._run("BEGIN")
        self._done.clear()
        for step in again:
            step()
        self._done.extend(again)

    def drop(self) -> None:
        """Let go of the cursor; with the gate closed."""
        if self._cursor is not None:
            self._cursor.close()
            self._cursor = None
        self._epoch = -1

    def _live(self) -> Any:
        if self._epoch != self._file.epoch:
            self._cursor = self._file.cursor()
            self._epoch = self._file.epoch
        return self._cursor

    def _run(self, query: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        with explained(self._file.path):
            found: list[tuple[Any, ...]] = self._live().execute(query, parameters).fetchall()
            return found

    # ------------------------------------------------------------------ for derived indexes

    def chunk_texts(self, chunks: Sequence[int]) -> Iterable[tuple[int, int, str, str]]:
        return rows.chunk_texts(self, chunks)

    def vector_rows(
        self, chunks: Sequence[int], *, model: str, dim: int
    ) -> list[tuple[int, int, bytes]]:
        return rows.vector_rows(self, chunks, model=model, dim=dim)


def _key(query: str, parameters: Sequence[Any]) -> tuple[Any, ...] | None:
    key = (query, *parameters)
    try:
        hash(key)
    except TypeError:  # lists of names
        return None
    return key


@contextlib.contextmanager
def explained(path: Path) -> Iterator[None]:
    """DuckDB's words into ours, with what to do."""
    import duckdb

    try:
        yield
    except duckdb.Error as error:
        text = str(error)
        if "surrogate" in text:
            raise UnicodeEncodeError("utf-8", "", 0, 0, "half a character") from error
        if "No space left" in text or "disk is full" in text.lower():
            advice = "the disk is full: free some space and run it again; nothing written is lost"
        elif isinstance(error, duckdb.TransactionException):
            advice = "this program has changed the same rows in another way: try again"
        elif isinstance(error, (duckdb.FatalException, duckdb.InternalException)):
            advice = "DuckDB has given up: close the store and open it again, see `clew doctor`"
        elif isinstance(error, duckdb.SerializationException) or "orrupt" in text:
            advice = "the file is damaged: see `clew doctor`, restore a backup"
        elif isinstance(error, duckdb.IOException):
            advice = "does the folder exist, may you write to it, and is the disk well?"
        elif isinstance(error, duckdb.OutOfMemoryException):
            advice = "there is not enough memory for it: give less at a time"
        else:
            raise
        raise StoreError(f"{path}: {text.splitlines()[0]}; {advice}") from error
