"""A DuckDB cursor with the words that the rest of the store has for SQLite's connections.

A statement costs DuckDB a third of a millisecond before it reads a row, so answers of one row
(where the log ends, whether a domain is used) are kept until the next write: only this process can
write, and it knows when it did.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clew.errors import StoreError
from clew.storage.duckdb import rows

if TYPE_CHECKING:
    from clew.storage.duckdb.file import File

__all__ = ["Connection", "Gate", "explained"]


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
        self._version = 0
        """Of the file, when this transaction began."""

    @property
    def file(self) -> File:
        return self._file

    @property
    def private(self) -> bool:
        """Whether it may see what nobody else does."""
        return self.in_transaction and self is self._file.writer

    def execute(self, query: str, parameters: Sequence[Any] = (), /) -> Rows:
        if query in ("BEGIN", "COMMIT", "ROLLBACK"):
            self._turn(query)
            return Rows()
        file, within = self._file, self.in_transaction
        key = None
        if query.startswith("SELECT") and not self.private:
            key = _key(query, parameters)
            known = file.answers.get(key)
            if known is not None and (not within or known[0] == self._version):
                file.check()
                return known[1]
        version = self._version if within else file.version
        with self._inside():
            found = Rows(self._run(query, parameters))
        if key is not None and len(found.fetchall()) <= 1:
            file.keep(key, found, version)
        return found

    @contextlib.contextmanager
    def _inside(self) -> Iterator[None]:
        if self.in_transaction:
            yield
            return
        self._file.gate.enter()
        try:
            yield
        finally:
            self._file.gate.leave()

    def executemany(self, query: str, parameters: Iterable[Sequence[Any]], /) -> None:
        """One by one: for a handful. Many rows go through `insert`."""
        for some in parameters:
            self.execute(query, some)

    def numpy(self, query: str, parameters: Sequence[Any] = ()) -> Mapping[str, Any]:
        """Columns as arrays: much quicker than tuples where there are many rows."""
        with self._inside(), explained(self._file.path):
            columns: Mapping[str, Any] = self._live().execute(query, parameters).fetchnumpy()
            return columns

    def insert(self, table: str, columns: Mapping[str, Sequence[Any]]) -> None:
        """Rows given as columns, in one statement."""
        if not any(map(len, columns.values())):
            return
        names = ", ".join(f'"{name}"' for name in columns)
        lists = ", ".join("unnest(?)" for _ in columns)
        self.execute(f"INSERT INTO {table} ({names}) SELECT {lists}", list(columns.values()))

    def insert_vectors(self, columns: Mapping[str, Any], vectors: Any) -> None:
        """A row of the array each. As parameters 20,000 of them take ten times as long."""
        import numpy as np

        boxed = np.empty(len(vectors), dtype=object)
        boxed[:] = list(vectors)
        names = ", ".join([*columns, "embedding"])
        with explained(self._file.path):
            self._live().register("clew_given", {**columns, "embedding": boxed})
            try:
                self._run(f"INSERT INTO vectors ({names}) SELECT {names} FROM clew_given")
            finally:
                self._live().unregister("clew_given")

    def _turn(self, word: str) -> None:
        if word == "BEGIN":
            self._file.gate.enter()
            try:
                with self._file.turning:  # so that it is known which version this one sees
                    self._run(word)
                    self._version = self._file.version
            except BaseException:
                self._file.gate.leave()
                raise
            self.in_transaction = True
        else:
            try:
                self._run(word)
            except BaseException:
                with contextlib.suppress(Exception):  # a failed commit may leave it open
                    self._live().execute("ROLLBACK")
                raise
            finally:
                self.in_transaction = False
                self._file.gate.leave()

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
    except duckdb.InterruptException as error:
        raise KeyboardInterrupt from error
    except RuntimeError as error:
        if "interrupted" not in str(error).lower():
            raise
        raise KeyboardInterrupt from error  # DuckDB's words for Ctrl-C
    except duckdb.Error as error:
        text = str(error)
        if "surrogate" in text:
            raise UnicodeEncodeError("utf-8", "", 0, 0, "half a character") from error
        if "No space left" in text or "disk is full" in text.lower():
            advice = "the disk is full: free some space and run it again; nothing written is lost"
        elif _damaged(error):
            advice = DAMAGED
        elif isinstance(error, duckdb.TransactionException):
            advice = "this program has changed the same rows in another way: try again"
        elif isinstance(error, (duckdb.FatalException, duckdb.InternalException)):
            advice = "DuckDB has given up: close the store and open it again, see `clew doctor`"
        elif isinstance(error, duckdb.IOException):
            advice = "does the folder exist, may you write to it, and is the disk well?"
        elif isinstance(error, duckdb.OutOfMemoryException):
            advice = "there is not enough memory for it: give less at a time"
        else:
            raise
        raise StoreError(f"{path}: {text.splitlines()[0]}; {advice}") from error


DAMAGED = "the file is damaged: restore it from a backup (`clew doctor` examines all of it)"


def _damaged(error: Exception) -> bool:
    import duckdb

    text = str(error)
    words = ("orrupt", "checksum", "while replaying WAL", "does not match database file")
    return isinstance(error, duckdb.SerializationException) or any(w in text for w in words)
