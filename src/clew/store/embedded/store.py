"""The embedded store: SQLite holds the truth, Tantivy and FAISS follow its change log."""

from __future__ import annotations

import atexit
import contextlib
import functools
import shutil
import sqlite3
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import numpy as np

from clew.errors import InputError, StoreError
from clew.filter import Filter
from clew.protocols import Progress
from clew.store.embedded import check, log, rows
from clew.store.embedded.derived import read_state
from clew.store.embedded.filters import Allowed, FilterCache, where
from clew.store.embedded.keyword import IndexDamagedError, KeywordIndex
from clew.store.embedded.sqlite import Database, explained
from clew.store.embedded.vectors import VectorIndex, folder_name
from clew.types import Candidate, Entry, FileState, Passage, Record, Terms, Vector, Vectors

__all__ = ["EmbeddedStore"]

NAMES = 50_000
"""Names of records kept between searches: 6 MB, half of what the next one asks for."""
LOCK_SECONDS = 10.0
"""How long a search waits for another process that is bringing the derived indexes up to date."""


P = ParamSpec("P")
T = TypeVar("T")


def _plain(method: Callable[P, T]) -> Callable[P, T]:
    """SQLite's errors in our words."""

    @functools.wraps(method)
    def explaining(*args: P.args, **options: P.kwargs) -> T:
        try:  # and no `with`: it would cost each of a search's dozen calls a microsecond or two
            return method(*args, **options)
        except sqlite3.Error:
            store: Any = args[0]
            with explained(store._db.path):
                raise

    return explaining


class EmbeddedStore:
    """One folder: `clew.db` is the truth; `derived/` can be deleted at any time."""

    def __init__(
        self,
        folder: Path,
        *,
        create: bool = True,
        ivf_threshold: int = 50_000,
        busy_seconds: float = 10.0,
        synchronous: str = "NORMAL",
    ):
        if create:
            try:
                folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise StoreError(
                    f"cannot make {folder}: {error.strerror}; give a folder you may write to"
                ) from error
        elif not (folder / "clew.db").exists():
            raise StoreError(f"there is no Clew store in {folder}: run `clew index` first")
        self.folder = folder
        self._threshold = ivf_threshold
        self._db = Database(folder / "clew.db", busy_seconds=busy_seconds, synchronous=synchronous)
        self._derived = folder / "derived"
        self._keyword = KeywordIndex(self._derived, self._db.store_id)
        self._vectors: dict[str, VectorIndex] = {}
        self._filters = FilterCache()
        self._mutex = threading.RLock()
        self._known_names: tuple[log.Place, dict[int, str]] = log.NOWHERE, {}
        self.behind = 0
        """Changes not yet in the derived indexes."""
        self.behind_because = ""
        self._sealing: threading.Thread | None = None
        self._closing = threading.Event()

    # ------------------------------------------------------------------ writing

    def put(self, entries: Sequence[Entry], *, model: str | None = None) -> list[str]:
        with self._db.transaction() as db:
            return rows.put(db, entries, model=model)

    def delete(self, ids: Sequence[str]) -> int:
        with self._db.transaction() as db:
            return rows.delete(db, ids)

    def rename(self, old_id: str, entry: Entry) -> None:
        with self._db.transaction() as db:
            rows.rename(db, old_id, entry)

    def set_vectors(self, chunks: Sequence[int], vectors: Vectors, *, model: str) -> int:
        with self._db.transaction() as db:
            return rows.set_vectors(db, chunks, vectors, model=model)

    # ------------------------------------------------------------------ reading

    def get(self, ids: Sequence[str]) -> list[Record]:
        with self._db.snapshot() as db:
            return rows.get(db, ids)

    def select(self, filter: Filter, *, limit: int, after: str = "") -> list[Record]:
        condition, values = where(filter)
        with self._db.snapshot() as db:
            found = db.execute(
                f"SELECT r.id FROM records AS r WHERE {condition} AND r.id > ?"
                " ORDER BY r.id LIMIT ?",
                [*values, after, limit],
            ).fetchall()
            return rows.get(db, [row[0] for row in found])

    @_plain
    def passages(self, candidates: Sequence[Candidate]) -> list[Passage | None]:
        return rows.passages(self._db.reader, candidates)

    @_plain
    def pending(self, model: str) -> list[int]:
        return rows.pending(self._db.reader, model)

    def texts(self, chunks: Sequence[int]) -> list[tuple[int, str]]:
        with self._db.snapshot() as db:
            return rows.texts(db, chunks)

    @_plain
    def known_vectors(self, chunks: Sequence[int], *, model: str) -> dict[int, Vector]:
        """Vectors of other chunks with the same text, so that no text is embedded twice."""
        return rows.known_vectors(self._db.reader, chunks, model=model)

    # ------------------------------------------------------------------ legs

    @_plain
    def keyword(self, terms: Terms, filter: Filter, *, limit: int) -> list[Candidate]:
        return self._mending(lambda: self._keyword_leg(terms, filter, limit))

    def reach(self, terms: Terms) -> float:
        return self._keyword.reach(terms)

    def _keyword_leg(self, terms: Terms, filter: Filter, limit: int) -> list[Candidate]:
        self._refresh_to_search()
        found = self._keyword.search(terms, self._allowed(filter, terms), limit)
        return self._named(found, limit)

    def _mending(self, search: Callable[[], list[Candidate]]) -> list[Candidate]:
        """An index whose files turn out to be damaged is made anew, once."""
        try:
            return search()
        except (IndexDamagedError, IndexError):
            with self._mutex, self._locked():
                for index in self._indexes():
                    index.forget()
            return search()

    @_plain
    def nearest(
        self, vector: Vector, filter: Filter, *, model: str, limit: int, terms: Terms | None = None
    ) -> list[Candidate]:
        query = np.ascontiguousarray(vector, dtype=np.float32)
        if query.ndim != 1 or not np.isfinite(query).all():
            raise InputError("a query vector is one row of finite numbers")
        index = self._vector_index(model, len(query))
        if index is None:
            return []
        return self._mending(lambda: self._vector_leg(index, query, filter, terms, limit))

    def _vector_leg(
        self, index: VectorIndex, query: Vector, filter: Filter, terms: Terms | None, limit: int
    ) -> list[Candidate]:
        self._refresh_to_search()
        index = self._vectors.get(index.model, index)  # made anew, it may be, by a rebuild
        allowed = self._allowed(filter, Terms() if terms is None else terms)
        return self._named(index.search(query, allowed, limit), limit)

    def _allowed(self, filter: Filter, terms: Terms) -> Allowed | None:
        """Filter, required phrases and excluded words as one set of records; None: all."""
        allowed = self._filters.allowed(filter, self._db.reader)
        if not terms.phrases and not terms.excluded:
            return allowed
        top = self._db.reader.execute("SELECT MAX(rid) FROM records").fetchone()[0] or 0
        size = max(top + 1, 0 if allowed is None else len(allowed.mask))
        mask = np.ones(size, np.bool_)
        if allowed is not None:
            mask[:] = False
            mask[: len(allowed.mask)] = allowed.mask
        for phrase in terms.phrases:
            has = np.zeros(size, np.bool_)
            rids = self._keyword.containing(phrase)
            has[rids[rids < size]] = True
            mask &= has
        for phrase in terms.excluded:
            rids = self._keyword.containing(phrase)
            mask[rids[rids < size]] = False
        return Allowed.of(mask)

    def _named(self, found: list[tuple[int, int, float]], limit: int) -> list[Candidate]:
        ids = self._names(found)
        candidates = [Candidate(ids[rid], score, cid) for rid, cid, score in found if rid in ids]
        if any(a.score == b.score for a, b in pairwise(candidates)):  # else they are in order
            candidates.sort(key=lambda c: (-c.score, c.id))
        return candidates[:limit]

    def _names(self, found: list[tuple[int, int, float]]) -> Mapping[int, str]:
        """Record numbers to ids. Those asked for lately are kept until something is written."""
        at, ids = self._known_names
        if at != self._keyword.place or len(ids) > NAMES:
            ids = {}
            self._known_names = self._keyword.place, ids
        if missing := [rid for rid, _, _ in found if rid not in ids]:
            ids |= rows.names(self._db.reader, missing)
        return ids

    # ------------------------------------------------------------------ files

    @_plain
    def roots(self) -> dict[str, str]:
        return dict(self._db.reader.execute("SELECT collection, folder FROM roots").fetchall())

    def set_root(self, collection: str, folder: str) -> None:
        with self._db.transaction() as db:
            db.execute("INSERT OR REPLACE INTO roots VALUES (?, ?)", (collection, folder))

    def remove_root(self, collection: str) -> None:
        with self._db.transaction() as db:
            db.execute("DELETE FROM roots WHERE collection = ?", (collection,))
            db.execute("DELETE FROM files WHERE collection = ?", (collection,))

    @_plain
    def files(self, collection: str) -> dict[str, FileState]:
        found = self._db.reader.execute(
            "SELECT path, size, mtime_ns, digest, indexed_ns FROM files WHERE collection = ?",
            (collection,),
        )
        return {path: FileState(*state) for path, *state in found}

    def set_files(self, collection: str, states: Mapping[str, FileState]) -> None:
        with self._db.transaction() as db:
            for path, state in states.items():
                rows.set_file(db, collection, path, state)

    # ------------------------------------------------------------------ upkeep

    @_plain
    def generation(self) -> int:
        return log.head(self._db.reader)[0]

    @_plain
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
            if any(index.seal_overdue for index in self._vectors.values()):
                self._optimise(progress)
        elif optimise:
            self._optimise(progress)
        elif any(index.seal_due for index in self._vectors.values()):
            self._seal_in_background()

    def _refresh_to_search(self) -> None:
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
        self.behind = max(1, self.generation() - max(oldest, 0))
        self.behind_because = reason

    def _indexes(self) -> list[KeywordIndex | VectorIndex]:
        return [self._keyword, *list(self._vectors.values())]

    @_plain
    def current(self) -> bool:
        head = log.head(self._db.reader)
        return all(index.place == head for index in self._indexes())

    @contextlib.contextmanager
    def _locked(self, name: str = "derived.lock", seconds: float = 60.0) -> Iterator[None]:
        """Alone, among all processes, with the derived indexes."""
        import filelock

        if self._db.read_only:
            raise StoreError(f"{self.folder} is on a read-only disk: copy it to change anything")
        with filelock.FileLock(self.folder / name, timeout=seconds):
            yield

    def _catch_up(self, progress: Progress | None) -> None:
        import filelock

        if self._db.read_only:
            self._fall_behind("the store is on a read-only disk")
            return
        try:
            self._derived.mkdir(exist_ok=True)
            with self._locked(seconds=LOCK_SECONDS):
                for index in self._indexes():
                    with self._db.snapshot() as db:  # log and tables of one moment
                        index.catch_up(db, progress=progress)
            self.behind, self.behind_because = 0, ""
        except filelock.Timeout:
            self._fall_behind("another process is indexing")
        except (OSError, ValueError) as error:
            raise StoreError(
                f"the derived indexes in {self._derived} cannot be written: {error}; is the disk "
                "full? Records are safe: free some space, the next search catches up"
            ) from error

    def _optimise(self, progress: Progress | None) -> None:
        import filelock

        for index in list(self._vectors.values()):
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
        if self._keyword.purge_due:
            with (
                contextlib.suppress(filelock.Timeout),
                self._locked(seconds=LOCK_SECONDS),
                self._db.snapshot() as db,
            ):
                self._keyword.rebuild(db, progress=progress)
        self._drop_unused()
        with self._db.transaction() as db:
            log.prune(db)
            db.execute("PRAGMA optimize")
        self._db.checkpoint()

    def _drop_unused(self) -> None:
        """The vector index of a model that no vector is of any more goes, as after `reembed`."""
        import filelock

        states = {
            place: read_state(place / "state.json", "model")
            for place in self._derived.glob("vectors-*")
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
                    self._vectors.pop(state["model"], None)
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

    def _vector_index(self, model: str, dim: int) -> VectorIndex | None:
        with self._mutex:
            index = self._vectors.get(model)
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
                    self._derived / folder_name(model),
                    self._db.store_id,
                    model=model,
                    dim=dim,
                    threshold=self._threshold,
                )
                index.load()
                self._vectors[model] = index
            return index

    @_plain
    def prepare(self, model: str) -> int:
        """Open the vector index of a model ahead of the first search; its dimension, or 0."""
        if (index := self._vectors.get(model)) is not None and index.size:
            return index.dim
        known = self._db.reader.execute(
            "SELECT embedding_dim FROM vectors WHERE embedding_model = ? LIMIT 1", (model,)
        ).fetchone()
        if known is None:
            return 0
        self._vector_index(model, known[0])
        return int(known[0])

    def rebuild(self, *, progress: Progress | None = None) -> None:
        """Throw the derived indexes away and make them anew."""
        with self._mutex, self._locked():
            for index in self._indexes():  # which serve what they have until then
                index.forget()
            shutil.rmtree(self._derived, ignore_errors=True)
        model = self._db.reader.execute(
            "SELECT embedding_model FROM vectors GROUP BY 1 ORDER BY COUNT(*) DESC LIMIT 1"
        ).fetchone()
        if model:
            self.prepare(model[0])
        self.refresh(progress=progress, optimise=True)

    @_plain
    def coverage(self, model: str) -> float:
        if model not in self._vectors and not self.prepare(model):
            return 0.0
        self._refresh_to_search()
        chunks = self._keyword.size
        return min(1.0, self._vectors[model].size / chunks) if chunks else 0.0

    @_plain
    def stats(self, *, model: str) -> dict[str, Any]:
        self.prepare(model)
        self.refresh()
        stage = self._vectors[model].stage if model in self._vectors else None
        return check.stats(self._db.reader, self.folder) | {
            "generation": self.generation(),
            "embedded": self.coverage(model),
            "vectors": stage or {"stage": "none", "rows": 0},
            "behind": self.behind,
        }

    def check(self) -> Iterator[tuple[str, bool, str]]:
        with explained(self._db.path):
            yield from check.check(self._db, self.folder)

    def vacuum(self) -> None:
        """Give freed space back to the disk, and leave no trace of what was deleted anywhere."""
        self._db.vacuum()
        self.rebuild()

    def close(self) -> None:
        self._closing.set()
        if self._sealing is not None and self._sealing is not threading.current_thread():
            self._sealing.join()
        self._db.close()


def _end_sealing(reference: weakref.ref[EmbeddedStore]) -> None:
    if (store := reference()) is not None:
        store.close()
