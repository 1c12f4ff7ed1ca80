"""The store: tables hold the truth, Tantivy and FAISS follow its change log."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np

from clew.errors import StoreError
from clew.filter import Filter
from clew.index.bm25 import Scopes
from clew.index.keyword import IndexDamagedError
from clew.index.maintenance import DerivedIndexes, check_store, read_stats
from clew.index.unflushed import ChunkScore
from clew.index.vectors import NONE, TableRows, VectorIndex
from clew.protocols import Progress, Store
from clew.storage import FOLDER, StoreLocation, checksum, locate, log, rows
from clew.storage.filters import Allowed, FilterCache, Mask, where
from clew.storage.ownership import check_ownership, make_folder
from clew.storage.sql_store import Facet, SqlStore
from clew.storage.tables import SAMPLED_LENGTHS, Database, explained, plain
from clew.types import Candidate, LabelKind, Terms, Vector
from clew.validate import check_row

_TRIES = 3
"""How often rows are looked for that others rewrite meanwhile."""
_NAMES = 50_000
"""Names of records kept between searches: a few megabytes."""


def open_store(
    url: str,
    *,
    base: Path,
    folder: Path | None = None,
    create: bool = True,
    ivf_threshold: int = 50_000,
    busy_seconds: float = 10.0,
    synchronous: str = "NORMAL",
) -> Store:
    """The store of this URL; `folder` is where its derived indexes go, if not to the usual place.

    What is missing is made, unless `create` is False: then it is an error.
    """
    place = locate(url, base)
    if place.server:
        folder = folder or place.path
        opened: Store = _server(place).open_server(
            place, folder=folder, create=create, busy_seconds=busy_seconds
        )
        return opened
    if not create and not place.file.exists():
        raise StoreError(f"there is no store in {place.file}: check the path, or index something")
    if place.scheme == "duckdb":
        return DuckStore(
            place.path,
            folder=folder,
            create=create,
            ivf_threshold=ivf_threshold,
            busy_seconds=busy_seconds,
        )
    file = place.file
    beside = file.parent if place.whole else file.with_name(f"{file.name}{FOLDER}")
    elsewhere = folder is not None and folder.absolute() != beside.absolute()
    if place.whole and elsewhere and create:
        make_folder(file.parent)
    return EmbeddedStore(
        folder or beside,
        database=file if elsewhere or not place.whole else None,
        create=create,
        ivf_threshold=ivf_threshold,
        busy_seconds=busy_seconds,
        synchronous=synchronous,
    )


_EXTRAS = {"postgresql": "postgres", "qdrant": "qdrant"}


def _server(place: StoreLocation) -> Any:
    """The module of servers/ that has `open_server` of this kind of store."""
    extra = _EXTRAS[place.scheme]
    try:
        return import_module(f"clew.servers.{extra}")
    except ImportError as error:
        raise StoreError(
            f"a store in {place.name} needs its client ({error}): pip install "
            f"'clew-search[{extra}]'"
        ) from error


class _Memo:
    """What is kept between searches, and shared by all views of a store."""

    def __init__(self) -> None:
        self.names: tuple[log.Place, dict[int, str]] = log.NOWHERE, {}
        self.lengths: tuple[int, Sequence[int]] = 0, ()
        self.labels: tuple[log.Place, frozenset[str]] = log.NOWHERE, frozenset()


def _check_emptied(folder: Path, file: Path) -> None:
    """Nobody empties a database: who wants to begin anew deletes it."""
    log = file.with_name(f"{file.name}-wal")
    indexed = file.exists() and (folder / "derived" / "keyword.json").exists()
    if indexed and not any(each.stat().st_size for each in (file, log) if each.exists()):
        raise StoreError(
            f"{file} is damaged: it is empty, and indexes of it are not. Bring it back from a "
            "backup with `clew restore --force`, or delete it to begin anew"
        )


class EmbeddedStore(SqlStore):
    """One folder: `clew.db` is the truth (or the `database` that is given, wherever it is);
    `derived/` can be deleted at any time."""

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
        # the current folder may be another one later
        folder, file = folder.absolute(), (database or folder / "clew.db").absolute()
        if not create and not file.exists():
            raise StoreError(f"there is no Clew store in {folder}: run `clew index` first")
        if create and database is None:
            make_folder(folder)
        check_ownership(folder, file)
        _check_emptied(folder, file)
        from clew.storage.sqlite import SqliteDatabase

        db = SqliteDatabase(file, busy_seconds=busy_seconds, synchronous=synchronous)
        self._begin(folder, db, ivf_threshold)

    def _begin(self, folder: Path, db: Database, ivf_threshold: int) -> None:
        super().__init__(db, folder)
        if not self._db.read_only:
            make_folder(folder)  # it may have been deleted, or not copied with the database
        self._derived = DerivedIndexes(folder, self._db, ivf_threshold=ivf_threshold)
        self._filters = FilterCache()
        self._scopes = Scopes()
        self._memo = _Memo()
        self.indexes = _SearchIndexes(self)
        self.upkeep = _Upkeep(self)

    def in_place(self) -> bool:
        """Whether the database is still the one that was opened: else others have another."""
        return self._db.in_place()

    @plain
    def view(self) -> EmbeddedStore:
        view = self._pinned()
        view.indexes = _SearchIndexes(view)
        return view

    @plain
    def count(self, filter: Filter) -> int:
        return self._filters.count(filter, self._db.reader, self._head())

    # ------------------------------------------------------------------ legs

    def _allowed(self, filter: Filter) -> Allowed | None:
        """The records that a filter leaves; None: all."""
        db, pin = self._db.reader, self._pin
        if pin is None:
            return self._filters.allowed(filter, db)
        with pin.lock:
            if filter not in pin.allowed:
                pin.allowed[filter] = self._filters.allowed(filter, db, pin.head)
            kept: Allowed | None = pin.allowed[filter]
            return kept

    @plain
    def keyword(
        self, terms: Terms, filter: Filter, *, limit: int, per_record: int = 1
    ) -> list[Candidate]:
        def search() -> list[Candidate]:
            self._derived.refresh_to_search(self._head())
            allowed = self._allowed(filter)
            scope = self._scopes.of(allowed, self._db.reader)
            narrowed = self._narrow(allowed, terms)
            found: list[ChunkScore] = self._derived.keyword.ask(
                lambda index: index.search(terms, narrowed, limit, scope, per_record), []
            )
            return self._rank_by_id(found, limit)

        return self._derived.mending(search)

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
        query = check_row(vector)
        opened = self._derived.vector_index(model, len(query))
        if opened is None:
            return []
        first: VectorIndex = opened

        def search() -> list[Candidate]:
            head = self._head()
            for _ in range(_TRIES):
                self._derived.refresh_to_search(head)
                index = self._derived.vectors.get(model, first)  # a rebuild may have made it anew
                allowed = self._narrow(self._allowed(filter), terms)
                read = TableRows(lambda: self._db.vector_reader, model, len(query))
                found = index.search(read, query, allowed, limit, per_record)
                if not read.lacking or index.place >= (head := log.head(self._db.reader)):
                    break  # else somebody has written meanwhile: what is gone may have come anew
            return self._rank_by_id(found, limit)

        return self._derived.mending(search)

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
        asked = terms is not None and terms.narrows
        if asked:
            self._derived.refresh_to_search(self._head())
        if self._pin is not None:
            present = self._kinds_of_labels(self._pin.head)
            kinds = [kind for kind in kinds if kind in present]
            if not kinds:
                return []
        with self._db.snapshot() as db:
            every = self._allowed(filter)
            whole = every is None or every.whole
            return rows.labelled(
                db,
                kinds,
                groups,
                None if whole else where(filter, db),
                limit=limit,
                allowed=self._narrow(every, terms) if asked else None,
                before=len(every.mask) if every is not None and whole else None,
            )

    def _kinds_of_labels(self, head: log.Place) -> frozenset[str]:
        """Those that any record has: memories have neither folders nor names of files."""
        at, kinds = self._memo.labels
        if at != head:
            self._memo.labels = head, (kinds := rows.kinds_of_labels(self._db.reader))
        return kinds

    def _narrow(self, allowed: Allowed | None, terms: Terms | None) -> Allowed | None:
        """Filter, required phrases and excluded words as one set of records; None: all."""
        if terms is None or not terms.narrows:
            return allowed
        top = self._db.reader.execute("SELECT MAX(rid) FROM records").fetchone()[0] or 0
        size = max(top + 1, 0 if allowed is None else len(allowed.mask))
        mask = np.ones(size, np.bool_)
        if allowed is not None:
            mask[:] = False
            mask[: len(allowed.mask)] = allowed.mask

        def having(phrases: Sequence[tuple[str, ...]]) -> Mask:
            """The records that have all of these, each with its tokens in a row in some chunk."""
            has = np.zeros(size, np.bool_)
            rids = self._derived.keyword.ask(lambda index: index.containing(phrases), NONE)
            has[rids[rids < size]] = True
            return has

        if terms.phrases:
            mask &= having(terms.phrases)
        for phrase in terms.excluded:
            mask &= ~having([phrase])
        return Allowed.of(mask)

    def _rank_by_id(self, found: list[ChunkScore], limit: int) -> list[Candidate]:
        """With their ids, in order: by score, then by id and passage; those of the first `limit`
        records. Here alone equals are told apart: an index makes scores that rounding tells apart
        equal (`level_scores`) and gives all that are equal at the cut."""
        ids = self._names(found)
        candidates = [Candidate(ids[rid], score, cid) for rid, cid, score in found if rid in ids]
        if any(a.score == b.score for a, b in pairwise(candidates)):  # else they are in order
            candidates.sort(key=lambda c: (-c.score, c.id, c.chunk))
        if len(candidates) <= limit:
            return candidates
        kept = frozenset(islice(dict.fromkeys(c.id for c in candidates), limit))
        return [c for c in candidates if c.id in kept]

    def _names(self, found: list[ChunkScore]) -> Mapping[int, str]:
        """Record numbers to ids. Those asked for lately are kept until something is written."""
        at, ids = self._memo.names
        if at != self._derived.keyword.place or len(ids) > _NAMES:
            ids = {}
            self._memo.names = self._derived.keyword.place, ids
        if missing := [rid for rid, _, _ in found if rid not in ids]:
            ids |= self._db.reader.names(missing)
        return ids

    # ------------------------------------------------------------------ upkeep

    @plain
    def stats(self, *, model: str) -> dict[str, Any]:
        self.indexes.prepare(model)
        self.indexes.refresh()
        index = self._derived.vectors.get(model)
        return read_stats(self._db.reader, self._db.path, self.folder) | {
            "generation": self.changes.generation(),
            "embedded": self.indexes.coverage(model),
            "vectors": index.stage if index is not None else {"stage": "none", "rows": 0},
            "behind": self.indexes.behind,
        }

    def close(self) -> None:
        self._derived.close()
        self._db.close()


class DuckStore(EmbeddedStore):
    """One DuckDB file, which one process at a time may have open; the derived indexes are in
    `folder`, by default beside it, and can be deleted at any time.

    DuckDB could rank by itself, but its exact scan of 20,000 vectors takes some twenty times as
    long as the shared index, and its full-text search is an extension that has to be downloaded.
    """

    def __init__(
        self,
        database: Path,
        *,
        folder: Path | None = None,
        create: bool = True,
        ivf_threshold: int = 50_000,
        busy_seconds: float = 10.0,
    ):
        from clew.storage.duckdb_file import DuckDatabase

        if not create and not database.exists():
            raise StoreError(f"there is no store in {database}: check the path, or index something")
        if folder is not None and create:
            make_folder(folder)  # the file may be meant to be in it
        folder = folder or database.with_name(f"{database.name}.clew")
        check_ownership(folder, database)
        db = DuckDatabase(database, busy_seconds=busy_seconds)
        self._begin(folder, db, ivf_threshold)


class _SearchIndexes(Facet):
    _store: EmbeddedStore
    remote = False

    def __init__(self, store: EmbeddedStore):
        super().__init__(store)
        self._derived = store._derived
        self.refresh, self.rebuild = self._derived.refresh, self._derived.rebuild
        self.prepare = self._derived.prepare

    def current(self) -> bool:
        return self._derived.follow(self._store._head())

    @property
    def behind(self) -> int:
        return self._derived.behind

    @property
    def behind_because(self) -> str:
        return self._derived.behind_because

    @plain
    def coverage(self, model: str) -> float:
        pin = self._store._pin
        with contextlib.nullcontext() if pin is None else pin.lock:
            if pin is not None and model in pin.coverage:
                return pin.coverage[model]
            self.prepare(model)
            self._derived.refresh_to_search(self._store._head())
            share = self._derived.coverage(model)
            if pin is not None:
                pin.coverage[model] = share
            return share

    @plain
    def reach(self, terms: Terms, filter: Filter) -> float:
        scope = self._store._scopes.of(self._store._allowed(filter), self._db.reader)
        try:
            return self._derived.keyword.ask(lambda index: index.reach(terms, scope), 0.0)
        except IndexDamagedError:  # the leg, which mends it, was not asked: unknown
            return 0.0

    @plain
    def lengths(self) -> Sequence[int]:
        """Taken anew when the store has grown or shrunk by half: they do not change overnight."""
        memo, size = self._store._memo, self._derived.keyword.size
        at = memo.lengths[0]
        if not at / 1.5 <= size <= at * 1.5:
            memo.lengths = size, self._db.reader.lengths(SAMPLED_LENGTHS)
        return memo.lengths[1]


class _Upkeep(Facet):
    _store: EmbeddedStore

    def check(self) -> Iterator[tuple[str, bool, str]]:
        with explained(self._db.path):
            yield from check_store(self._db, self._store.folder)

    def mend(self) -> tuple[list[str], list[str], bool]:
        anew = self._db.restructure()
        with self._db.transaction() as db:
            return *checksum.drop_damaged(db), anew

    def vacuum(self) -> None:
        """Give freed space back to the disk, and leave no trace of what was deleted anywhere."""
        self._db.vacuum()
        self._store.indexes.rebuild()

    def backup(
        self,
        file: str | Path,
        *,
        root: Path | None = None,
        force: bool = False,
        progress: Progress | None = None,
    ) -> dict[str, Any]:
        from clew.storage.backup import write_backup

        return write_backup(self._db, file, root=root, force=force, progress=progress)
