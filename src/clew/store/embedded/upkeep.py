"""The derived indexes of a store: opened, brought up to date, sealed, made anew.

They follow the change log. Who brings them up to date holds `derived.lock`, who builds inverted
lists `seal.lock`: the operating system frees both when a process dies.
"""

from __future__ import annotations

import atexit
import contextlib
import shutil
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from clew.errors import InputError, StoreError
from clew.protocols import Progress
from clew.store.embedded import log
from clew.store.embedded.derived import read_state
from clew.store.embedded.keyword import IndexDamagedError, KeywordIndex
from clew.store.embedded.sqlite import Database, plain
from clew.store.embedded.vectors import VectorIndex, folder_name

__all__ = ["DerivedIndexes"]

LOCK_SECONDS = 10.0
"""How long a search waits for another process that is bringing the derived indexes up to date."""

COUNTED_FROM = 10_000
"""More records than this, and SQLite may count its tables. Of few it learns that walking through
them all is cheapest, and an open connection goes by that when they have become many."""

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
        self._sealing: threading.Thread | None = None
        self._closing = threading.Event()

    def mending(self, search: Callable[[], T]) -> T:
        """An index whose files turn out to be damaged is made anew, once."""
        try:
            return search()
        except (IndexDamagedError, IndexError):
            with self._mutex, self._locked():
                for index in self._indexes():
                    index.forget()
            return search()

    @plain
    def refresh(
        self, *, progress: Progress | None = None, optimise: bool = False, bulk: bool = False
    ) -> None:
        """Catch up with the change log where needed. Costs one look-up when there is nothing."""
        if not self.current():
            with self._mutex:
                for index in self._indexes():
                    index.load()  # another process may have done the work
                if not self.current():
                    self._catch_up(progress)
                else:
                    self.behind, self.behind_because = 0, ""
        if self._db.read_only:
            return
        if bulk:
            if any(index.seal_overdue for index in self.vectors.values()):
                self._optimise(progress)
        elif optimise:
            self._optimise(progress)
        elif any(index.seal_due for index in self.vectors.values()):
            self._seal_in_background()

    def refresh_to_search(self) -> None:
        """As `refresh`, but what cannot be written now does not keep from searching what is there:
        the answer then says how far it is behind, and why."""
        try:
            self.refresh()
        except StoreError as error:
            if any(index.place == log.NOWHERE for index in self._indexes()):
                raise
            self._fall_behind(str(error))

    def _fall_behind(self, reason: str) -> None:
        oldest = min(index.place[0] for index in self._indexes())
        self.behind = max(1, log.head(self._db.reader)[0] - max(oldest, 0))
        self.behind_because = reason

    def _indexes(self) -> list[KeywordIndex | VectorIndex]:
        return [self.keyword, *list(self.vectors.values())]

    @plain
    def current(self) -> bool:
        head = log.head(self._db.reader)
        return all(index.place == head for index in self._indexes())

    @contextlib.contextmanager
    def _locked(self, name: str = "derived.lock", seconds: float = 60.0) -> Iterator[None]:
        """Alone, among all processes, with the derived indexes."""
        import filelock

        if self._db.read_only:
            raise StoreError(f"{self._folder} is on a read-only disk: copy it to change anything")
        with filelock.FileLock(self._folder / name, timeout=seconds):
            yield

    def _catch_up(self, progress: Progress | None) -> None:
        import filelock

        if self._db.read_only:
            self._fall_behind("the store is on a read-only disk")
            return
        try:
            self._place.mkdir(exist_ok=True)
            with self._locked(seconds=LOCK_SECONDS):
                for index in self._indexes():
                    with self._db.snapshot() as db:  # log and tables of one moment
                        index.catch_up(db, progress=progress)
            self.behind, self.behind_because = 0, ""
        except filelock.Timeout:
            self._fall_behind("another process is indexing")
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
            if not index.seal_due:
                continue
            try:
                with self._locked("seal.lock", 0):
                    sealed = index.build_sealed(progress, stopped=self._closing.is_set)
                    with self._locked():
                        index.adopt(sealed)
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
                self.keyword.rebuild(db, progress=progress)
        self._drop_unused()
        with self._db.transaction() as db:
            log.prune(db)
            if db.execute("SELECT 1 FROM records LIMIT 1 OFFSET ?", (COUNTED_FROM,)).fetchone():
                db.execute("PRAGMA optimize")
        self._db.checkpoint()

    def _drop_unused(self) -> None:
        """The vector index of a model that no vector is of any more goes, as after `reembed`."""
        import filelock

        states = {
            place: read_state(place / "state.json", "model")
            for place in self._place.glob("vectors-*")
        }
        query = "SELECT 1 FROM vectors WHERE embedding_model = ? LIMIT 1"
        # At once or not at all: whoever has the lock may be making one of them anew.
        with (
            contextlib.suppress(filelock.Timeout),
            self._mutex,
            self._locked(seconds=0),
            self._db.snapshot() as db,
        ):
            for place, state in states.items():
                if state and not db.execute(query, (state["model"],)).fetchone():
                    self.vectors.pop(state["model"], None)
                    shutil.rmtree(place, ignore_errors=True)

    def _seal_in_background(self) -> None:
        """New inverted lists while searches go on with the old ones (and an exact tail)."""
        with self._mutex:
            if self._sealing is not None and self._sealing.is_alive():
                return
            self._sealing = threading.Thread(target=self._seal_quietly, daemon=True)
            self._sealing.start()
            # Python must not end under FAISS: it aborts.
            atexit.register(_end_sealing, weakref.ref(self))

    def _seal_quietly(self) -> None:
        # Nobody waits for this thread: what went wrong will go wrong, and be said, in `optimise`.
        with contextlib.suppress(StoreError):
            self._optimise(None)

    def vector_index(self, model: str, dim: int) -> VectorIndex | None:
        with self._mutex:
            index = self.vectors.get(model)
            if index is None or index.dim != dim:
                known = self._db.reader.execute(
                    "SELECT embedding_dim FROM vectors WHERE embedding_model = ? LIMIT 1", (model,)
                ).fetchone()
                if known is None:
                    return None
                if known[0] != dim:
                    raise InputError(
                        f"this store's vectors of {model} have {known[0]} dimensions, the given "
                        f"one has {dim}: use the model the store was built with"
                    )
                index = VectorIndex(
                    self._place / folder_name(model),
                    self._db.store_id,
                    model=model,
                    dim=dim,
                    threshold=self._threshold,
                )
                index.load()
                self.vectors[model] = index
            return index

    @plain
    def prepare(self, model: str) -> int:
        """Open the vector index of a model ahead of the first search; its dimension, or 0."""
        if (index := self.vectors.get(model)) is not None and index.size:
            return index.dim
        known = self._db.reader.execute(
            "SELECT embedding_dim FROM vectors WHERE embedding_model = ? LIMIT 1", (model,)
        ).fetchone()
        if known is None:
            return 0
        self.vector_index(model, known[0])
        return int(known[0])

    def rebuild(self, *, progress: Progress | None = None) -> None:
        """Throw the derived indexes away and make them anew."""
        with self._mutex, self._locked():
            for index in self._indexes():  # which serve what they have until then
                index.forget()
            shutil.rmtree(self._place, ignore_errors=True)
        model = self._db.reader.execute(
            "SELECT embedding_model FROM vectors GROUP BY 1 ORDER BY COUNT(*) DESC LIMIT 1"
        ).fetchone()
        if model:
            self.prepare(model[0])
        self.refresh(progress=progress, optimise=True)

    def close(self) -> None:
        """Wait for what is being built to notice, and end."""
        self._closing.set()
        if self._sealing is not None and self._sealing is not threading.current_thread():
            self._sealing.join()


def _end_sealing(reference: weakref.ref[DerivedIndexes]) -> None:
    if (indexes := reference()) is not None:
        indexes.close()
