"""The tables that hold the truth, whichever database they are in.

A statement is written once. What a database says in other words is in its `Tables`, the dialect:
`sqlite.py` and `duckdb.py` have one each, and the connections behind it. `Database` has what both
do alike: a thread's own connection to read with, and one transaction at a time to write in.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, ParamSpec, Protocol, TypeVar

import numpy as np

from clew.errors import StoreError
from clew.filter import glob_pattern
from clew.protocols import Progress
from clew.types import Record, Vector, Vectors

if TYPE_CHECKING:
    from clew.storage.filters import Allowed

P = ParamSpec("P")
T = TypeVar("T")
Row = tuple[Any, ...]

RECORD = (
    *("id", "collection", "type", "domain", "title", "path", "importance"),
    *("created_at", "updated_at", "metadata", "ended_at", "valid_from", "valid_to"),
)
"""Columns of a record, in whichever database."""
LIFE = ("accesses", "strength", "accessed_at", "useful", "useless", "reason", "successor")
COLUMNS: Mapping[str, Sequence[str]] = {
    "chunks": (
        *("cid", "rid", "start", "end", "first_line", "last_line"),
        *("heading", "digest", "checksum"),
    ),
    "files": ("collection", "path", "size", "mtime_ns", "digest", "indexed_ns"),
    "lives": ("rid", *LIFE),
    "changes": ("seq", "kind", "first", "last", "token"),
    "roots": ("collection", "folder"),
    "meta": ("key", "value"),
}
"""Those of the tables that every database has alike."""
OPERATORS = {"eq": "=", "gt": ">", "gte": ">=", "lt": "<", "lte": "<="}
SAMPLED_LENGTHS = 64
"""Passages whose length is looked at."""

CLOSED = "this store is closed: open it again"
OTHERS = "{} is not a Clew store but another program's database: give another path"


def match_glob(pattern: str, path: str | None) -> bool:
    """What statements call `clew_glob`."""
    return path is not None and glob_pattern(pattern).fullmatch(path) is not None


def run_script(db: Tables, script: str) -> None:
    """Within the transaction under way (SQLite's own `executescript` would end it)."""
    for statement in filter(str.strip, script.split(";")):
        db.execute(statement)


def distrust_files(db: Tables) -> None:
    """Have the next run of indexing read all files again, also where this one is killed before."""
    db.execute("UPDATE files SET mtime_ns = 0, digest = ''")


def spaced(first: int, last: int, count: int) -> list[int]:
    """So many numbers from the first to the last, evenly spread; all, where there are no more."""
    count = min(count, last - first + 1)
    return [first + (last - first) * i // max(1, count - 1) for i in range(count)]


def remove(db: Tables, table: str, column: str, numbers: Iterable[int]) -> None:
    if keys := [(number,) for number in numbers]:
        db.remove(table, (column,), keys)


class Tables(Protocol):
    """A connection that speaks the dialect of its database. Outside a transaction each statement
    sees the newest committed state."""

    in_transaction: bool

    # --- words of the dialect
    LIST: ClassVar[str]
    """A parameter (see `as_list`) as a table with the column `value`."""
    IN: ClassVar[str] = "IN {}"
    NOT_IN: ClassVar[str] = "NOT IN {}"
    """That a column is among what a subquery gives, or not."""
    JOIN: ClassVar[str]
    """A join that begins with the rows on its left."""
    CONTENT: ClassVar[str]
    """A record's text, in a query on `records AS r` and `TEXTS`."""
    TEXTS: ClassVar[str]
    TAGS: ClassVar[str]
    LINKS: ClassVar[str]
    WHOLE: ClassVar[str]
    """A number without its fraction."""
    GLOB: ClassVar[str] = "clew_glob(?, r.path)"
    """Whether a record's path fits a parameter (see `as_glob`)."""
    BY_MODEL: ClassVar[str]
    """A hint to look vectors up by their model."""
    DIGEST: ClassVar[str] = "{}.digest"
    """As much of a chunk's digest as there is an index of (see `as_digest`)."""
    SHORT: ClassVar[str]
    """The condition of a vector that is not whole."""
    DETAILS: ClassVar[Mapping[str, Sequence[str]]]
    """The tables of a record's own, by `rid`, and their columns."""

    @staticmethod
    def as_list(values: Sequence[Any]) -> Any:
        """Any number of values as one parameter."""

    @staticmethod
    def as_names(value: Any) -> tuple[str, ...]:
        """What `TAGS` or `LINKS` gave."""

    @staticmethod
    def as_digest(digest: bytes) -> bytes:
        """What `DIGEST` is compared with."""
        return digest

    @staticmethod
    def as_glob(pattern: str) -> str:
        """What `GLOB` is given."""
        return pattern

    @staticmethod
    def compare(operator: str, bound: Any) -> tuple[str, list[Any]]:
        """A condition on a row of `attributes`: "eq", "gt", "gte", "lt" or "lte"."""

    @staticmethod
    def detail_rows(rid: int, columns: Row, record: Record) -> Iterator[tuple[str, Row]]:
        """(table, row) of all that `DETAILS` have of a record."""

    # --- statements
    def execute(self, query: str, parameters: Any = ..., /) -> Any:
        """Rows, to be iterated over or fetched."""

    def among(
        self, query: str, values: Sequence[Any], *more: Any, near: bool = False
    ) -> Iterator[Row]:
        """A query with `IN ({})`, asked in pieces that the database takes. `near`: the values are
        numbers that lie close together."""

    def with_vectors(self, query: str, values: Sequence[Any], *more: Any) -> Iterator[Row]:
        """As `among`, of near numbers. The last two columns are a vector's checksum and the vector,
        which comes without it; one that does not fit its checksum is left out."""

    def vectors_of(self, cids: Sequence[int], model: str, dim: int) -> tuple[list[int], Vectors]:
        """Of these chunks, those that have one, and one row each."""
        query = """SELECT cid, checksum, embedding FROM vectors
                   WHERE cid IN ({}) AND embedding_model = ? AND embedding_dim = ?"""
        found = [(c, v) for c, v in self.with_vectors(query, cids, model, dim) if len(v) == dim]
        rows = np.array([row for _, row in found], np.float32).reshape(-1, dim)
        return [cid for cid, _ in found], rows

    def insert(self, table: str, rows: Sequence[Row], *, replacing: int = 0) -> None:
        """Rows of a table in `COLUMNS` or `DETAILS`, in the place of those that have the same in
        their first `replacing` columns; the last of those given counts. 0: there are none."""

    def insert_vectors(self, vectors: Mapping[int, Vector], model: str) -> None: ...

    def remove(self, table: str, columns: Sequence[str], keys: Sequence[Row]) -> None:
        """Delete the rows that have one of these keys in these columns."""

    def set_checksums(self, table: str, key: str, sums: Sequence[tuple[int, int]]) -> None:
        """(number, checksum) of rows of a table, found by the column `key`."""

    # --- where it is not the words that differ, but what is quick
    def last_numbers(self) -> tuple[int, int]:
        """The last `rid` and `cid` that were ever given. Within a write nobody else gives any."""

    def note_numbers(self, rid: int, cid: int) -> None: ...

    def names(self, rids: Sequence[int]) -> Mapping[int, str]:
        """The ids of records; of many, in no time."""

    def lengths(self, count: int) -> list[int]:
        """How many characters so many passages have, evenly spread over the store."""

    def label_holders(
        self,
        kinds: Sequence[str],
        labels: Sequence[str],
        where: tuple[str, list[Any]] | None,
        allowed: Allowed | None,
        most: int,
    ) -> dict[int, set[str]]:
        """Records that have one of these labels, or a tag below one, and which: of each label the
        `most` newest records, and all that have it too among those of the others."""


def identify(path: Path) -> tuple[int, int] | None:
    """What a path leads to, whatever it is called."""
    try:
        about = path.stat()
    except OSError:
        return None
    return about.st_dev, about.st_ino


class Database:
    """One opening of a store's database."""

    BEGIN: ClassVar[str]
    KIND: ClassVar[str]
    store_id: str
    _writing: threading.RLock
    """Held by the thread that writes."""
    _writer: Any

    def __init__(self, path: Path, name: str = ""):
        self.path, self.name = path, name or str(path)
        self.read_only = False
        self._local = threading.local()
        self._closed = False
        self._process = os.getpid()
        self._spoilt: BaseException | None = None

    @abstractmethod
    def _connect(self) -> Any:
        """A connection for one thread to read with."""

    @abstractmethod
    def verdict(self) -> str:
        """What is wrong with the file; nothing, most times."""

    def restructure(self) -> bool:
        """Make anew what the database itself keeps twice, where it is damaged; whether rows may be
        lost by it."""
        return False

    @abstractmethod
    def checkpoint(self) -> None:
        """Bring what is in the log beside the file into it."""

    @abstractmethod
    def vacuum(self) -> None:
        """Write the file without the space that deletions left, and empty the log beside it."""

    @abstractmethod
    def copy_to(self, file: Path, progress: Progress) -> None:
        """One state of it, whoever writes meanwhile, into a new file."""

    @abstractmethod
    def replace_with(self, file: Path) -> None:
        """Become what a file has, in one step, also for those who have it open."""

    @abstractmethod
    def close(self) -> None: ...

    def check(self) -> None:
        """A StoreError unless it can be used, here and now."""
        if self._closed:
            raise StoreError(CLOSED)
        if self._process != os.getpid():
            raise StoreError(
                "this store was opened before the process was forked, which neither a database's "
                "connections nor a model's threads survive: open it again in the child, or start "
                "processes with 'spawn'"
            )

    def in_place(self) -> bool:
        """Whether what was opened is still what the path leads to."""
        return True

    def check_in_place(self) -> None:
        """Databases go on with a file that was deleted: what is written there is lost, and another
        thread would read another file."""
        if not self.in_place():
            raise StoreError(
                f"{self.path} was deleted or replaced since it was opened: open the store again"
            )

    def check_writable(self) -> None:
        if self.read_only:
            raise StoreError(f"{self.name} is on a read-only disk: copy it to write")
        self.check_in_place()

    def check_format(self, have: int, known: int, *, foreign: bool) -> None:
        """A StoreError unless this Clew can read the file, or bring it up to its own format."""
        if foreign:
            raise StoreError(OTHERS.format(self.name))
        if have > known:
            raise StoreError(
                f"{self.name} was written by a newer Clew (format {have}, this one knows {known}): "
                "upgrade with `pip install -U clew-search`"
            )

    @property
    def reader(self) -> Tables:
        """This thread's connection: each statement sees the newest committed state, and what this
        thread is writing."""
        self.check()
        local = self._local.__dict__
        db: Tables | None = self._writer if local.get("writing") else local.get("db")
        if db is None:
            with explained(self.name):
                db = self._local.db = self._connect()
        return db

    GIVES_VECTORS_FAST: ClassVar = False
    """Whether `vector_reader` gives a hundred, wherever they lie, in a part of a millisecond."""

    @property
    def vector_reader(self) -> Tables:
        """A connection of this thread's to read vectors by, as they are committed."""
        return self.reader

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Tables]:
        """One write, whole or not at all. Durable when the block has ended. One within another is
        part of it, and if it fails the outer one fails too, whatever its caller makes of the error:
        half of it may be written (a savepoint for each would cost every write a third more)."""
        self.check()  # before a lock that a thread of the parent may have had when it was forked
        with self._writing, explained(self.name):
            self.check()
            writer = self._writer
            if writer.in_transaction:
                try:
                    yield writer
                except BaseException as error:
                    self._spoilt = self._spoilt or error
                    raise
                return
            self.check_writable()
            try:
                writer.execute(self.BEGIN)  # here: Ctrl-C may end the wait for it when it has begun
                self._local.writing = True
                yield writer
                if self._spoilt is not None:
                    raise StoreError(
                        f"nothing was written: a part of it failed ({self._spoilt})"
                    ) from self._spoilt
                writer.execute("COMMIT")
            except BaseException:
                if writer.in_transaction:
                    with contextlib.suppress(Exception):
                        writer.execute("ROLLBACK")
                raise
            finally:
                self._local.writing, self._spoilt = False, None

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[Tables]:
        """Several statements that see one state of the database, whoever writes meanwhile."""
        db = self.reader
        with explained(self.name), one_moment(db):
            yield db


@contextlib.contextmanager
def one_moment(db: Tables) -> Iterator[None]:
    """Statements that see one state."""
    if db.in_transaction:
        yield
        return
    try:
        db.execute("BEGIN")
        yield
    finally:
        if db.in_transaction:
            db.execute("COMMIT")


@contextlib.contextmanager
def explained(path: Path | str) -> Iterator[None]:
    """SQLite's words into ours, with what to do. (DuckDB's are where they are said.)"""
    try:
        yield
    except sqlite3.Error as error:
        text = str(error)
        for words, advice in _ADVICE:
            if any(word in text for word in words):
                raise StoreError(f"{path}: {text}; {advice}") from error
        raise StoreError(f"{path}: {text}; see `clew doctor`, or restore a backup") from error


_ADVICE = (
    (
        ("locked", "busy"),
        "another process is writing to it: wait for it to finish, then try again",
    ),
    (("full",), "the disk is full: free some space and run it again; nothing written is lost"),
    (
        ("readonly", "read-only"),
        "the disk or file is read-only: copy the folder, or change its permissions",
    ),
    (
        ("not a database", "malformed", "corrupt", "decode", "no such table", "no such column"),
        "it is not a Clew store or is damaged: see `clew doctor`, restore a backup",
    ),
    (("unable to open",), "does the folder exist, and may you write to it?"),
    (("disk I/O",), "the disk refused: is it full or failing?"),
)


def plain(method: Callable[P, T]) -> Callable[P, T]:
    """For methods of an owner of a `_db`: SQLite's errors in our words, and what
    follows where a damaged file gives nothing, or text for a number."""

    @wraps(method)
    def explaining(*args: P.args, **options: P.kwargs) -> T:
        try:  # and no `with`: it would cost each of a search's dozen calls a microsecond or two
            return method(*args, **options)
        except sqlite3.Error:
            owner: Any = args[0]
            with explained(owner._db.name):
                raise
        except (TypeError, AttributeError, OverflowError) as error:
            owner = args[0]
            raise StoreError(
                f"{owner._db.name}: what it says makes no sense ({error}): see `clew doctor`"
            ) from error

    return explaining
