"""The derived indexes of a store: opened, brought up to date, sealed, made anew.

They follow the change log: in memory (unflushed.py) while they are a little behind, so that nobody
waits for a disk, and on disk from time to time; docs/architecture.md draws it ("Where an index
stands"). Who writes them holds `derived.lock`, who builds inverted lists `seal.lock`: the operating
system frees both when a process dies.
"""

from __future__ import annotations

import atexit
import contextlib
import glob
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from clew.errors import InputError, StoreError
from clew.index.keyword import IndexDamagedError, KeywordIndex, is_damaged, segment_files
from clew.index.unflushed import FAR, ROOM
from clew.index.vectors import PlacedRows, TableRows, VectorIndex, discard, folder_name
from clew.protocols import Progress
from clew.storage import log
from clew.storage.checksum import examine, is_sealed, seal
from clew.storage.ownership import trust_command
from clew.storage.rows import dim_of
from clew.storage.snapshot import read_state
from clew.storage.tables import Database, Tables, plain

LOCK_SECONDS = 10.0
"""How long a search waits for another process that is writing the derived indexes, if it must."""
ALONE_SECONDS = 60.0
"""How long who makes them anew waits for it."""
AT_FIRST = 64
"""Changes that a process reads into memory when it opens a store: for more it is quicker to write
the index than to leave it to the next process to read them all again."""
ROWS = 10_000
"""Rows of the log from which on nobody counts what they say: that is far."""
AGAIN = 0.2
"""Seconds until an index is tried to be written again in the background, after another process was
at it or the disk was full."""
LISTS_AGAIN = 60.0
"""The same of inverted lists, which take both cores for minutes where there are many rows."""
AGAIN_FROM_FILES = (
    "`clew doctor --mend` reads those anew that are from files; restore the others from a backup, "
    "or write them again"
)
CUT_AGAIN = "`clew doctor --mend` cuts these records anew"
EMBED_AGAIN = (
    "`clew doctor --mend` drops them, and `clew index` (or `embed()`) makes new ones; vectors that "
    "you gave yourself have to be given again"
)
_NAMED = 20
"""Damaged records that are named."""
REBUILD = "run `clew doctor --mend`: derived indexes are made anew from the database"

T = TypeVar("T")


class DerivedIndexes:
    """One keyword index, and a vector index for each model that was asked for."""

    def __init__(self, folder: Path, db: Database, *, ivf_threshold: int):
        self._folder = folder
        self._place = folder / "derived"
        self._db = db
        self._threshold = ivf_threshold
        self.keyword = KeywordIndex(self._place, db.store_id)
        self.vectors: dict[str, VectorIndex] = {}
        self.behind = 0
        """Changes not yet in them."""
        self.behind_because = ""
        self._mutex = threading.RLock()
        self._following = threading.Lock()
        self._starting = threading.Lock()
        self._threads: dict[str, threading.Thread] = {}
        self._not_before = self._lists_not_before = 0.0
        self._opened = False
        self._closing = threading.Event()

    def _indexes(self) -> list[KeywordIndex | VectorIndex]:
        return [self.keyword, *list(self.vectors.values())]

    def _load(self) -> None:
        for index in self._indexes():
            index.load()

    def mending(self, search: Callable[[], T]) -> T:
        """An index whose files turn out to be damaged is made anew, once."""
        try:
            return search()
        except (IndexDamagedError, IndexError):
            with self._mutex, self._alone():
                for index in self._indexes():
                    index.forget()
            return search()

    @plain
    def refresh(
        self, *, progress: Progress | None = None, optimise: bool = False, bulk: bool = False
    ) -> None:
        """Bring what is on disk up to the change log. Costs one look-up when it is there. In a
        `bulk` load new inverted lists are waited for only where most vectors are in none: else they
        are made beside the next batch, on the core that writing it leaves idle."""
        if not self._written():
            with self._mutex:
                self._load()  # another process may have done the work
                if self._written():
                    self._note_behind()
                elif self._db.read_only:
                    self._fall_behind(f"the store is on a read-only disk{self._strange()}")
                elif self._write(progress, seconds=LOCK_SECONDS):
                    self._note_behind()
                else:
                    self._fall_behind("another process is indexing")
        if self._db.read_only:
            return
        if optimise or (bulk and any(index.mostly_unlisted for index in self.vectors.values())):
            if not self._db.reader.in_transaction:  # which the other thread may be waiting for
                self._wait_for(self._threads.get("sealing"))
            self._optimise(progress)
            if optimise and self._db.GIVES_VECTORS_FAST:
                self._drop_sealed()
        else:
            self._seal_if_due()

    def refresh_to_search(self, head: log.Place | None = None) -> None:
        """Have everything found that was written, if possible without waiting: what is a little
        behind on disk is made up for in memory. What cannot be written now does not keep from
        searching what is there: the answer then says how far it is behind, and why. `head` is
        where the log ends, if known."""
        if self.follow(head):
            if not all(index.checked for index in self._indexes()):
                self._in_background("checking", self._check_files)
            self._seal_if_due()
            return
        try:
            self.refresh()
        except StoreError as error:
            if any(index.place == log.NOWHERE for index in self._indexes()):
                raise
            self._fall_behind(str(error))

    def _check_files(self) -> None:
        """Large files are looked at once in a process, while they are searched."""
        for index in self._indexes():
            if not index.checked and not index.check_files(self._closing.is_set):
                with self._mutex, self._alone():
                    index.forget()

    def _note_behind(self, changes: int = 0, reason: str = "") -> None:
        self.behind, self.behind_because = changes, reason

    def _strange(self) -> str:
        if all(index.whole() == (index.place != log.NOWHERE) for index in self._indexes()):
            return ""
        trust = trust_command(self._folder)
        return f", and its indexes are of another version (then copy it) or from elsewhere: {trust}"

    def _fall_behind(self, reason: str) -> None:
        head = log.head(self._db.reader)
        if self._follow(head):
            self._note_behind()
            return
        oldest = min(index.place[0] for index in self._indexes())
        self._note_behind(max(1, log.head(self._db.reader)[0] - max(oldest, 0)), reason)

    def _written(self) -> bool:
        """Whether everything is on disk."""
        head = log.head(self._db.reader)
        return all(index.committed == head for index in self._indexes())

    # ------------------------------------------------------------------ in memory

    @plain
    def follow(self, head: log.Place | None = None) -> bool:
        """Whether everything that was written is found, if need be after reading it into memory.
        False: the indexes are too far behind for that, or are not there."""
        head = head or log.head(self._db.reader)
        if self._reached(head):
            return True
        if self._opened:
            served = self._follow(head)
        else:
            served = self._follow(head, AT_FIRST) or self._write_if_free() or self._follow(head)
        if not served:
            return False
        self._opened = True
        self._note_behind()
        late = any(index.lag > index.room for index in self._indexes())
        if late and not self._db.read_only and time.monotonic() >= self._not_before:
            self._not_before = time.monotonic() + AGAIN
            self._in_background("writing", self._write_if_free)
        return True

    def _reached(self, head: log.Place) -> bool:
        """Whether they have all up to there. A view may be behind them; the log itself is behind
        only where it is another one than before: of a copy that was put back, or without a write
        that failed in the end."""
        if all(index.place == head for index in self._indexes()):
            return True
        most = max(index.place[0] for index in self._indexes())
        return self._passed(head) and most <= log.head(self._db.reader)[0]

    def _passed(self, head: log.Place) -> bool:
        return all(i.place == head or i.place[0] > head[0] for i in self._indexes())

    def _follow(self, head: log.Place, at_most: int = sys.maxsize) -> bool:
        """Read into memory what is new up to `head`, unless it is many times what there is room
        for."""
        for _ in range(3):
            for index in self._indexes():
                # nothing looked at yet, or made anew by another process, or lost
                if not index.whole() and not index.load():
                    return False
            with self._following:
                if self._reached(head):  # by the thread that was waited for
                    return True
                with self._db.snapshot() as db:
                    if self._extend(db, at_most):
                        return True
                places = [index.place for index in self._indexes()]
            self._load()
            if places == [index.place for index in self._indexes()]:
                break  # else another process, or thread, has written them meanwhile
        return False

    def _extend(self, db: Tables, at_most: int) -> bool:
        known: dict[log.Place, log.Changes | None] = {}

        def find_changes(since: log.Place) -> log.Changes | None:
            if since not in known:
                known[since] = log.since(db, since, at_most=ROWS)
            return known[since]

        for index in self._indexes():
            changes = find_changes(index.place)
            if changes is None and index.place != index.committed:
                index.drop_tail()  # what is in it is not in the log any more
                changes = find_changes(index.place)
            if changes is None or len(changes.rows) >= ROWS:
                return False
            if index.lag + changes.size(*index.kinds) > min(at_most, FAR * index.room):
                return False
            index.follow(db, changes)
            head = changes.place
        return self._passed(head)

    def coverage(self, model: str) -> float:
        """The share of chunks that have a vector of this model. Both are counted at one place of
        the log: else a record whose passage is counted already would seem to lack its vector."""
        if (index := self.vectors.get(model)) is None:
            return 0.0
        for _ in range(4):
            (place, chunks), (other, with_vector) = self.keyword.counted, index.counted
            if place == other or not self.follow():
                break
        return min(1.0, with_vector / chunks) if chunks else 0.0

    # ------------------------------------------------------------------ on disk

    @contextlib.contextmanager
    def _locked(self, name: str = "derived.lock", seconds: float = 60.0) -> Iterator[None]:
        """Alone, among all processes, with the derived indexes."""
        import filelock

        if self._db.read_only:
            raise StoreError(f"{self._folder} is on a read-only disk: copy it to change anything")
        lock = filelock.FileLock(self._folder / name, timeout=seconds)
        try:
            lock.acquire()
        except filelock.Timeout:
            raise
        except OSError as error:
            raise StoreError(
                f"{self._folder / name} cannot be opened: {error.strerror}; is the disk full, and "
                "may you write there?"
            ) from error
        try:
            yield
        finally:
            lock.release()

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """The same, for who can do nothing without it."""
        import filelock

        try:
            with self._locked(seconds=ALONE_SECONDS):
                yield
        except filelock.Timeout as error:
            raise StoreError(
                f"another process is writing the indexes in {self._place}: wait for it to finish, "
                "then try again"
            ) from error

    def _write_if_free(self) -> bool:
        """Write the indexes unless somebody is at it, in this process or in another. What else is
        in the way is said when a search has to wait for it."""
        if self._db.read_only or not self._mutex.acquire(blocking=False):
            return False
        try:
            self._load()
            return self._write(None, seconds=0)
        except StoreError:
            return False
        finally:
            self._mutex.release()

    def _write(self, progress: Progress | None, *, seconds: float) -> bool:
        """Apply the change log on disk. False: another process was at it for so long."""
        import filelock

        try:
            self._place.mkdir(exist_ok=True)
            with self._locked(seconds=seconds):
                for index in self._indexes():
                    with self._db.snapshot() as db:  # log and tables of one moment
                        index.catch_up(db, progress=progress)
            return True
        except filelock.Timeout:
            return False
        except (OSError, ValueError) as error:
            raise StoreError(
                f"the derived indexes in {self._place} cannot be written: {error}; is the disk "
                "full? Records are safe: free some space, the next search catches up"
            ) from error

    def _optimise(self, progress: Progress | None) -> None:
        import filelock

        for index in list(self.vectors.values()):
            if index.compact_due:
                with contextlib.suppress(filelock.Timeout), self._locked(seconds=LOCK_SECONDS):
                    index.forget()
                self.refresh(progress=progress)
            if not index.seal_due(waiting=True):
                continue
            try:
                with self._locked("seal.lock", 0):
                    # Another process may have renewed them since, and removed those known here.
                    if not (index.load() and index.seal_due(waiting=True)):
                        continue
                    sealed = index.build_lists(
                        lambda: self._db.vector_reader, progress, stopped=self._closing.is_set
                    )
                    with self._locked():
                        index.adopt_lists(sealed)
            except (filelock.Timeout, InterruptedError):
                pass  # another process is at it, or this one is about to end
            except (OSError, RuntimeError) as error:  # FAISS says RuntimeError for a full disk
                raise StoreError(f"inverted lists cannot be written: {error}") from error
        if self.keyword.purge_due:
            with (
                contextlib.suppress(filelock.Timeout),
                self._locked(seconds=LOCK_SECONDS),
                self._db.snapshot() as db,
            ):
                try:
                    self.keyword.rebuild(db, progress=progress)
                except (OSError, ValueError) as error:  # Tantivy says ValueError for a full disk
                    raise StoreError(f"the keyword index cannot be written: {error}") from error
        # At once or not at all: whoever has the lock may be making an index anew.
        with contextlib.suppress(filelock.Timeout), self._mutex, self._locked(seconds=0):
            self._drop_unused()
        with self._db.transaction() as db:
            log.prune(db)
            if not is_sealed(db):
                seal(db)
        self._db.checkpoint()

    def _drop_sealed(self) -> None:
        import filelock

        try:
            with self._mutex, self._locked(seconds=0):
                for index in self.vectors.values():
                    index.drop_sealed()
        except filelock.Timeout:
            pass  # another process is writing: when there is time again
        except OSError as error:
            raise StoreError(f"the vector index cannot be written: {error}") from error

    def _drop_unused(self) -> None:
        """The vector index of a model that no vector is of any more goes, as after `reembed`."""
        for place in self._place.glob("vectors-*"):
            state = read_state(place / "state.json", "model")
            model = state["model"] if state else ""
            elsewhere = place.name != folder_name(model)  # as an older version called it
            if model and (elsewhere or not dim_of(self._db.reader, model)):
                self.vectors.pop(model, None)
                discard(place)

    def _seal_if_due(self) -> None:
        """New inverted lists while searches go on with the old ones (and an exact tail)."""
        if self._db.read_only or time.monotonic() < self._lists_not_before:
            return
        if any(index.seal_due() for index in self.vectors.values()):
            self._in_background("sealing", self._seal)

    def _seal(self) -> None:
        try:
            self._optimise(None)
        except StoreError:
            self._lists_not_before = time.monotonic() + LISTS_AGAIN
            raise

    def _in_background(self, name: str, task: Callable[[], object]) -> None:
        def quietly() -> None:
            # Nobody waits for this thread: what went wrong will go wrong, and be said, when
            # somebody does.
            with contextlib.suppress(StoreError):
                task()

        with self._starting:
            known = self._threads.get(name)
            if (known is not None and known.is_alive()) or self._closing.is_set():
                return
            if not self._threads:  # Python must not end under FAISS: it aborts
                atexit.register(_end_threads, weakref.ref(self))
            thread = threading.Thread(target=quietly, daemon=True)
            thread.start()
            self._threads[name] = thread  # only now: others wait for those in there

    # ------------------------------------------------------------------ vectors of a model

    def vector_index(self, model: str, dim: int) -> VectorIndex | None:
        index = self.vectors.get(model)
        if index is not None and index.dim == dim:
            return index  # without the mutex, which is held for as long as an index is written
        with self._mutex:
            index = self.vectors.get(model)
            if index is None or index.dim != dim:
                if not (known := dim_of(self._db.reader, model)):
                    return None
                if known != dim:
                    raise InputError(
                        f"this store's vectors of {model} have {known} dimensions, the given "
                        f"one has {dim}: use the model the store was built with"
                    )
                place, store = self._place / folder_name(model), self._db.store_id
                index = VectorIndex(place, store, model=model, dim=dim, threshold=self._threshold)
                index.load()
                self.vectors[model] = index
            return index

    @plain
    def prepare(self, model: str) -> int:
        """Open the vector index of a model ahead of the first search; its dimension, or 0."""
        self._db.check()  # also where nothing has to be read
        if (index := self.vectors.get(model)) is not None and index.size:
            return index.dim
        if dim := dim_of(self._db.reader, model):
            self.vector_index(model, dim)
        return dim

    def rebuild(self, *, progress: Progress | None = None) -> None:
        """Throw the derived indexes away and make them anew."""
        with self._mutex, self._alone():
            for index in self._indexes():  # which serve what they have until then
                index.forget()
            for place in self._place.glob("vectors-*"):
                discard(place)
        model = self._db.reader.execute(
            "SELECT embedding_model FROM vectors GROUP BY 1 ORDER BY COUNT(*) DESC LIMIT 1"
        ).fetchone()
        if model:
            self.prepare(model[0])
        self.refresh(progress=progress, optimise=True)

    def close(self) -> None:
        """Wait for what is being built to notice, and end."""
        self._closing.set()
        with self._starting:
            threads = list(self._threads.values())
        for thread in threads:
            self._wait_for(thread)

    @staticmethod
    def _wait_for(thread: threading.Thread | None) -> None:
        if thread is not None and thread is not threading.current_thread():
            thread.join()


def _end_threads(reference: weakref.ref[DerivedIndexes]) -> None:
    if (indexes := reference()) is not None:
        indexes.close()


# ---------------------------------------------------------------------- status and doctor


def read_stats(db: Tables, file: Path, folder: Path) -> dict[str, Any]:
    """Figures for `clew status`."""
    database = (p for p in file.parent.glob(f"{glob.escape(file.name)}*") if p.is_file())
    return count_rows(db) | {
        "bytes": {
            "database": sum(map(_size, database)),
            "keyword index": sum(map(_size, (folder / "derived").glob("keyword*"))),
            "vector index": sum(map(_size, (folder / "derived").glob("vectors-*"))),
        },
    }


def count_rows(db: Tables) -> dict[str, Any]:
    """What is in the tables."""

    def count(what: str) -> int:
        return int(db.execute(f"SELECT COUNT({what}").fetchone()[0])

    def count_by(column: str, table: str) -> dict[str, int]:
        query = f"SELECT {column}, COUNT(*) FROM {table} GROUP BY 1 ORDER BY 1"
        return dict(db.execute(query).fetchall())

    return {
        "records": count("*) FROM records"),
        "chunks": count("*) FROM chunks"),
        "tags": count("DISTINCT tag) FROM tags"),
        "links": count("*) FROM links"),
        "collections": count_by("collection", "records"),
        "types": count_by("type", "records"),
        "models": count_by("embedding_model", "vectors"),
    }


def _size(path: Path) -> int:
    """Of a file or a folder; nothing where another process has removed it meanwhile."""
    try:
        return sum(map(_size, path.iterdir())) if path.is_dir() else path.stat().st_size
    except FileNotFoundError:
        return 0


Finding = tuple[str, bool, str]
"""(what was checked, is it well, what to do if not)"""


def check_store(database: Database, folder: Path) -> Iterator[Finding]:
    well = True
    for finding in check_tables(database):
        well &= finding[1]
        yield finding
    if well or not database.verdict():
        yield from _check_indexes(database, folder)


def check_tables(database: Database) -> Iterator[Finding]:
    db = database.reader
    verdict = database.verdict()
    yield (
        "database is readable throughout",
        not verdict,
        f"{verdict}: restore {database.name} from a backup, or delete it and index again",
    )
    if verdict:
        return
    with database.snapshot() as moment:  # others may write meanwhile
        found = examine(moment)
    for what, names, advice in (
        ("records are as they were written", found.records.values(), AGAIN_FROM_FILES),
        ("passages are as they were written", found.chunks.values(), CUT_AGAIN),
        ("vectors are as they were written", map(str, found.vectors), EMBED_AGAIN),
    ):
        some = sorted(names)
        listed = ", ".join(some[:_NAMED]) + (", …" if len(some) > _NAMED else "")
        yield what, not some, f"{len(some)} not: {listed}; {advice}"
    for what, query in (
        ("every record has its text", "SELECT rid FROM records EXCEPT SELECT rid FROM texts"),
        ("every chunk has its record", "SELECT rid FROM chunks EXCEPT SELECT rid FROM records"),
        ("every vector has its chunk", "SELECT cid FROM vectors EXCEPT SELECT cid FROM chunks"),
    ):
        strays = len(db.execute(query).fetchall())
        yield what, strays == 0, f"{strays} do not: index again with `clew index --force`"
    damaged = db.execute(f"SELECT COUNT(*) FROM vectors WHERE {db.SHORT}").fetchone()[0]
    yield "vectors have their full length", damaged == 0, f"{damaged} do not: run `clew reembed`"


def _check_indexes(database: Database, folder: Path) -> Iterator[Finding]:
    db = database.reader
    state = read_state(folder / "derived" / "keyword.json", "place", "docs")
    with database.snapshot():  # begun after that: what is in the files is in it
        chunks = db.execute("SELECT COUNT(*) FROM chunks").fetchone()[0]
        changes = None if state is None else log.since(db, tuple(state["place"]))
    follows = changes is not None and changes.size("chunk", "gone") <= FAR * ROOM
    yield "keyword index follows the database", follows, "the next search catches up by itself"
    if changes is not None and state is not None:
        added, gone = set(changes.numbers("chunk")), set(changes.numbers("gone"))
        then = chunks - len(added - gone) + len(gone - added)  # as many as there were at its place
        yield "keyword index has every chunk", state["docs"] == then, REBUILD
        files = segment_files(folder / "derived" / str(state.get("folder", "")))
        damaged = ", ".join(file.name for file in files if is_damaged(file))
        yield "keyword index is undamaged", not damaged, f"{damaged} is not: {REBUILD}"
    for place in sorted((folder / "derived").glob("vectors-*")):
        yield from _check_vectors(database, place)


def _check_vectors(database: Database, place: Path) -> Iterator[Finding]:
    if not (place / "state.json").exists():
        return  # never finished: the next search with this model makes it
    state = read_state(place / "state.json", "model", "dim") or {"model": "", "dim": 0}
    model, dim = state["model"], state["dim"]
    if model and place.name != folder_name(model):
        return  # an older version called it so: nobody opens it, and `optimise` removes it
    index = VectorIndex(place, database.store_id, model=model, dim=dim, threshold=0)
    if not (index.load() or index.load()):  # again, where lists were renewed meanwhile
        yield f"{place.name} is whole", False, REBUILD
        return
    with database.snapshot() as db:
        changes, files = log.since(db, index.committed), index.files
        if files is None or not files.count or changes is None:
            return  # the next search with this model catches up by itself
        since = np.array(changes.numbers("vector", "gone"), np.int64)  # not looked at any more
        living = np.flatnonzero(files.alive & ~np.isin(files.cids, since))
        sample = living[:: max(1, len(living) // 2000)]
        read = TableRows(lambda: db, model, dim)
        stored, kept = read(files.cids[sample]), PlacedRows(files, read)[sample]
        query = "SELECT cid FROM vectors WHERE embedding_model = ?"
        every = np.array([row[0] for row in db.execute(query, (model,))], np.int64)
    wrong = int(np.count_nonzero((stored != kept).any(axis=1)))
    yield f"{place.name} agrees with the database", wrong == 0, f"{wrong} rows differ; {REBUILD}"
    missing = int(np.count_nonzero(~np.isin(every, since))) - len(living)
    yield f"{place.name} has every vector", missing == 0, f"{missing} are missing; {REBUILD}"
    whole = index.check_files(lambda: False)
    yield f"{place.name}: rows and inverted lists are undamaged", whole, REBUILD
