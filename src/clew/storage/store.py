"""The embedded store: SQLite holds the truth, Tantivy and FAISS follow its change log."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np

from clew.errors import InputError, StoreError
from clew.filter import EVERYTHING, Filter
from clew.index.keyword import IndexDamagedError
from clew.index.scope import Scopes
from clew.index.upkeep import DerivedIndexes
from clew.index.vectors import VectorIndex
from clew.protocols import Progress
from clew.storage import check, lives, log, rows, writing
from clew.storage.filters import Allowed, FilterCache, where
from clew.storage.labelled import labelled
from clew.storage.sqlite import Database, explained, plain
from clew.storage.values import possible
from clew.types import (
    Candidate,
    Entry,
    FileState,
    Held,
    LabelKind,
    Life,
    Passage,
    Record,
    Terms,
    Vector,
    Vectors,
)

__all__ = ["EmbeddedStore", "make_folder"]

NAMES = 50_000
"""Names of records kept between searches: a few megabytes."""


def make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(
            f"cannot make {folder}: {error.strerror}; give a folder you may write to"
        ) from error


class EmbeddedStore:
    """One folder: `clew.db` is the truth (or the `database` that is given, wherever it is);
    `derived/` can be deleted at any time."""

    # What is said in SQLite's SQL. A store on another database has its own: see duckdb/.
    _rows, _writing, _lives = rows, writing, lives
    _labelled, _where = staticmethod(labelled), staticmethod(where)

    def __init__(
        self,
        folder: Path,
        *,
        database: Path | None = None,
        create: bool = True,
        ivf_threshold: int = 50_000,
        busy_seconds: float = 10.0,
        synchronous: str = "NORMAL",
    ):
        file = database or folder / "clew.db"
        if not create and not file.exists():
            raise StoreError(f"there is no Clew store in {folder}: run `clew index` first")
        if create and database is None:
            make_folder(folder)
        db = Database(file, busy_seconds=busy_seconds, synchronous=synchronous)
        self._begin(folder, db, ivf_threshold)

    def _begin(self, folder: Path, db: Database, ivf_threshold: int) -> None:
        self.folder = folder
        self._db = db
        if not self._db.read_only:
            make_folder(folder)  # it may have been deleted, or not copied with the database
        self._derived = DerivedIndexes(folder, self._db, ivf_threshold=ivf_threshold)
        self._filters = FilterCache(self._where)
        self._scopes = Scopes()
        self._known_names: tuple[log.Place, dict[int, str]] = log.NOWHERE, {}
        self._lengths: tuple[int, Sequence[int]] = 0, ()

    # ------------------------------------------------------------------ writing

    def put(self, entries: Sequence[Entry], *, model: str | None = None) -> list[str]:
        with self._db.transaction() as db:
            return self._writing.put(db, entries, model=model)

    def put_new(
        self, entries: Sequence[Entry], *, model: str | None = None
    ) -> list[tuple[str, str]]:
        with self._db.transaction() as db:
            return self._writing.put_new(db, entries, model=model)

    @contextlib.contextmanager
    def atomic(self) -> Iterator[None]:
        with self._db.transaction():
            yield

    def delete(self, ids: Sequence[str]) -> int:
        ids = possible(ids)
        with self._db.transaction() as db:
            return self._writing.delete(db, ids)

    def rename(self, old_id: str, entry: Entry) -> None:
        with self._db.transaction() as db:
            self._writing.rename(db, old_id, entry)

    def set_vectors(self, chunks: Sequence[int], vectors: Vectors, *, model: str) -> int:
        with self._db.transaction() as db:
            return self._writing.set_vectors(db, chunks, vectors, model=model)

    # ------------------------------------------------------------------ reading

    def get(self, ids: Sequence[str]) -> list[Record]:
        ids = possible(ids)
        with self._db.snapshot() as db:
            return self._rows.get(db, ids)

    def select(
        self, filter: Filter, *, limit: int, after: str = "", newest: bool = False
    ) -> list[Record]:
        condition, values = self._where(filter)
        order = "r.created_at DESC, r.id" if newest else "r.id"
        with self._db.snapshot() as db:
            found = db.execute(
                f"SELECT r.id FROM records AS r WHERE {condition} AND r.id > ?"
                f" ORDER BY {order} LIMIT ?",
                [*values, after, limit],
            ).fetchall()
            return self._rows.get(db, [row[0] for row in found])

    @plain
    def count(self, filter: Filter) -> int:
        return self._filters.count(filter, self._db.reader)

    @plain
    def counts(self, field: str, filter: Filter) -> dict[str, int]:
        condition, values = self._where(filter)
        apart = {"tag": "tags", "key": "attributes"}.get(field)
        of = f"{apart} AS t JOIN records AS r USING (rid)" if apart else "records AS r"
        name = f"t.{field}" if apart else f"r.{field}"
        number = "COUNT(DISTINCT r.rid)" if apart else "COUNT(*)"
        query = f"SELECT {name}, {number} FROM {of} WHERE {condition} AND {name} <> '' GROUP BY 1"
        return dict(self._db.reader.execute(query, values).fetchall())

    @plain
    def passages(self, candidates: Sequence[Candidate]) -> list[Passage | None]:
        return self._rows.passages(self._db.reader, candidates)

    @plain
    def pending(self, model: str) -> list[int]:
        return self._rows.pending(self._db.reader, model)

    def texts(self, chunks: Sequence[int]) -> list[tuple[int, str]]:
        with self._db.snapshot() as db:
            return self._rows.texts(db, chunks)

    @plain
    def known_vectors(self, chunks: Sequence[int], *, model: str) -> dict[int, Vector]:
        """Vectors of other chunks with the same text, so that no text is embedded twice."""
        return self._rows.known_vectors(self._db.reader, chunks, model=model)

    @plain
    def vectors_of(self, ids: Sequence[str]) -> dict[str, tuple[str, Vectors]]:
        return self._rows.vectors_of(self._db.reader, ids)

    @plain
    def unembedded(self, filter: Filter, *, model: str) -> dict[tuple[str, int] | None, int]:
        return self._rows.unembedded(self._db.reader, *self._where(filter), model=model)

    def chunks_of(self, ids: Sequence[str]) -> dict[str, list[Held]]:
        with self._db.snapshot() as db:
            return self._rows.chunks_of(db, ids)

    # ------------------------------------------------------------------ legs

    @plain
    def keyword(
        self, terms: Terms, filter: Filter, *, limit: int, per_record: int = 1
    ) -> list[Candidate]:
        return self._derived.mending(lambda: self._keyword_leg(terms, filter, limit, per_record))

    @plain
    def reach(self, terms: Terms, filter: Filter) -> float:
        db = self._db.reader
        scope = self._scopes.of(self._filters.allowed(filter, db), db)
        try:
            return self._derived.keyword.reach(terms, scope)
        except IndexDamagedError:  # the leg, which mends it, was not asked: unknown
            return 0.0

    @plain
    def lengths(self) -> Sequence[int]:
        """Taken anew when the store has grown or shrunk by half: they do not change overnight."""
        size, at = self._derived.keyword.size, self._lengths[0]
        if not at / 1.5 <= size <= at * 1.5:
            self._lengths = size, self._rows.lengths(self._db.reader)
        return self._lengths[1]

    def _keyword_leg(
        self, terms: Terms, filter: Filter, limit: int, per_record: int
    ) -> list[Candidate]:
        self._derived.refresh_to_search()
        db = self._db.reader
        scope = self._scopes.of(self._filters.allowed(filter, db), db)
        allowed = self._allowed(filter, terms)
        found = self._derived.keyword.search(
            terms, allowed, limit, scope=scope, per_record=per_record
        )
        return self._named(found, limit)

    @plain
    def nearest(
        self,
        vector: Vector,
        filter: Filter,
        *,
        model: str,
        limit: int,
        terms: Terms | None = None,
        per_record: int = 1,
    ) -> list[Candidate]:
        query = np.ascontiguousarray(vector, dtype=np.float32)
        if query.ndim != 1 or not np.isfinite(query).all():
            raise InputError("a query vector is one row of finite numbers")
        index = self._derived.vector_index(model, len(query))
        if index is None:
            return []
        return self._derived.mending(
            lambda: self._vector_leg(index, query, filter, terms, limit, per_record)
        )

    def _vector_leg(
        self,
        index: VectorIndex,
        query: Vector,
        filter: Filter,
        terms: Terms | None,
        limit: int,
        per_record: int,
    ) -> list[Candidate]:
        self._derived.refresh_to_search()
        index = self._derived.vectors.get(index.model, index)  # made anew, it may be, by a rebuild
        allowed = self._allowed(filter, Terms() if terms is None else terms)
        return self._named(index.search(query, allowed, limit, per_record), limit)

    @plain
    def labelled(
        self,
        kinds: Sequence[LabelKind],
        groups: Sequence[tuple[float, Sequence[str]]],
        filter: Filter,
        *,
        limit: int,
        terms: Terms | None = None,
    ) -> list[Candidate]:
        asked = terms is not None and (terms.phrases or terms.excluded)
        if asked:
            self._derived.refresh_to_search()
        with self._db.snapshot() as db:  # so that nobody adds to what nothing was to be left out of
            allowed = self._allowed(filter, terms) if asked and terms is not None else None
            every = self._filters.allowed(filter, db)
            narrowed = EVERYTHING if every is None or every.whole else filter
            return self._labelled(db, kinds, groups, narrowed, limit=limit, allowed=allowed)

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
        if terms.phrases:
            has = np.zeros(size, np.bool_)
            rids = self._derived.keyword.containing(terms.phrases)
            has[rids[rids < size]] = True
            mask &= has
        for phrase in terms.excluded:
            rids = self._derived.keyword.containing([phrase])
            mask[rids[rids < size]] = False
        return Allowed.of(mask)

    def _named(self, found: list[tuple[int, int, float]], limit: int) -> list[Candidate]:
        """With their ids; those of the first `limit` records."""
        ids = self._names(found)
        candidates = [Candidate(ids[rid], score, cid) for rid, cid, score in found if rid in ids]
        if any(a.score == b.score for a, b in pairwise(candidates)):  # else they are in order
            candidates.sort(key=lambda c: (-c.score, c.id, c.chunk))
        if len(candidates) <= limit:
            return candidates
        kept = frozenset(islice(dict.fromkeys(c.id for c in candidates), limit))
        return [c for c in candidates if c.id in kept]

    def _names(self, found: list[tuple[int, int, float]]) -> Mapping[int, str]:
        """Record numbers to ids. Those asked for lately are kept until something is written."""
        at, ids = self._known_names
        if at != self._derived.keyword.place or len(ids) > NAMES:
            ids = {}
            self._known_names = self._derived.keyword.place, ids
        if missing := [rid for rid, _, _ in found if rid not in ids]:
            ids |= self._rows.names(self._db.reader, missing)
        return ids

    # ------------------------------------------------------------------ lives

    @plain
    def lives(self, ids: Sequence[str]) -> dict[str, Life]:
        return self._lives.lives(self._db.reader, ids)

    def set_lives(self, given: Mapping[str, Life]) -> None:
        with self._db.transaction() as db:
            self._lives.set_lives(db, given)

    def accessed(self, counts: Mapping[str, int], *, at: float) -> None:
        with self._db.transaction() as db:
            self._lives.accessed(db, counts, at=at)

    def rated(self, id: str, *, useful: int = 0, useless: int = 0) -> bool:
        with self._db.transaction() as db:
            return self._lives.rated(db, id, useful=useful, useless=useless)

    def end(
        self, ids: Sequence[str], *, at: float, reason: str, successor: str | None = None
    ) -> list[str]:
        with self._db.transaction() as db:
            return self._lives.end(db, ids, at=at, reason=reason, successor=successor)

    def revive(self, ids: Sequence[str]) -> list[str]:
        with self._db.transaction() as db:
            return self._lives.revive(db, ids)

    @plain
    def ledger(self, filter: Filter) -> list[tuple[str, float, float, Life]]:
        return self._lives.ledger(self._db.reader, filter)

    @plain
    def tally(self) -> list[tuple[str, str, str, int]]:
        return self._lives.tally(self._db.reader)

    @plain
    def next_change(self, at: float) -> float | None:
        return self._lives.next_change(self._db.reader, at)

    @plain
    def predecessors(self, id: str) -> list[str]:
        return self._lives.predecessors(self._db.reader, id)

    # ------------------------------------------------------------------ files

    @plain
    def roots(self) -> dict[str, str]:
        return dict(self._db.reader.execute("SELECT collection, folder FROM roots").fetchall())

    def set_root(self, collection: str, folder: str) -> None:
        with self._db.transaction() as db:
            db.execute("INSERT OR REPLACE INTO roots VALUES (?, ?)", (collection, folder))

    def remove_root(self, collection: str) -> None:
        with self._db.transaction() as db:
            db.execute("DELETE FROM roots WHERE collection = ?", (collection,))
            db.execute("DELETE FROM files WHERE collection = ?", (collection,))

    @plain
    def files(self, collection: str, paths: Sequence[str] | None = None) -> dict[str, FileState]:
        query = "SELECT path, size, mtime_ns, digest, indexed_ns FROM files"
        db = self._db.reader
        if paths is None:
            found = iter(db.execute(f"{query} WHERE collection = ?", (collection,)).fetchall())
        else:
            found = rows.among(
                db, f"{query} WHERE path IN ({{}}) AND collection = ?", paths, collection
            )
        return {path: FileState(*state) for path, *state in found}

    def set_files(self, collection: str, states: Mapping[str, FileState]) -> None:
        with self._db.transaction() as db:
            for path, state in states.items():
                self._writing.set_file(db, collection, path, state)

    @plain
    def note(self, key: str) -> str | None:
        query = "SELECT value FROM meta WHERE key = ?"
        row = self._db.reader.execute(query, (f"note:{key}",)).fetchone()
        return None if row is None else str(row[0])

    def set_note(self, key: str, value: str) -> None:
        with self._db.transaction() as db:
            db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (f"note:{key}", value))

    @plain
    def notes(self) -> dict[str, str]:
        query = "SELECT key, value FROM meta WHERE key LIKE 'note:%'"
        found = self._db.reader.execute(query)
        return {key.removeprefix("note:"): value for key, value in found}

    # ------------------------------------------------------------------ upkeep

    @plain
    def generation(self) -> int:
        return log.head(self._db.reader)[0]

    @plain
    def edition(self) -> tuple[int, int]:
        return log.head(self._db.reader)

    @plain
    def touched(self, edition: tuple[int, int]) -> list[str] | None:
        with self._db.snapshot() as db:
            if (changes := log.since(db, edition)) is None:
                return None
            rids = set(changes.numbers("record"))
            query = "SELECT DISTINCT rid FROM chunks WHERE cid IN ({})"
            rids.update(row[0] for row in rows.among(db, query, changes.numbers("vector")))
            return sorted(self._rows.names(db, sorted(rids)).values())

    def current(self) -> bool:
        return self._derived.follow()

    def refresh(
        self, *, progress: Progress | None = None, optimise: bool = False, bulk: bool = False
    ) -> None:
        self._derived.refresh(progress=progress, optimise=optimise, bulk=bulk)

    def prepare(self, model: str) -> int:
        return self._derived.prepare(model)

    def rebuild(self, *, progress: Progress | None = None) -> None:
        self._derived.rebuild(progress=progress)

    @property
    def behind(self) -> int:
        return self._derived.behind

    @property
    def behind_because(self) -> str:
        return self._derived.behind_because

    @plain
    def coverage(self, model: str) -> float:
        self.prepare(model)
        self._derived.refresh_to_search()
        return self._derived.coverage(model)

    @plain
    def stats(self, *, model: str) -> dict[str, Any]:
        self.prepare(model)
        self.refresh()
        index = self._derived.vectors.get(model)
        return check.stats(self._db.reader, self._db.path, self.folder) | {
            "generation": self.generation(),
            "embedded": self.coverage(model),
            "vectors": index.stage if index is not None else {"stage": "none", "rows": 0},
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
        self._derived.close()
        self._db.close()
