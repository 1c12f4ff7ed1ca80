"""SQLite: the truth on one machine, in one file in WAL mode."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import sqlite3
import threading
import time
import uuid
import weakref
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

import numpy as np

from clew.errors import StoreError
from clew.protocols import Progress
from clew.storage import log, ownership
from clew.storage.batch import labels_of, scalars, storable, tags_of
from clew.storage.checksum import UNSEALED
from clew.storage.tables import (
    COLUMNS,
    OPERATORS,
    OTHERS,
    RECORD,
    Database,
    Row,
    Tables,
    distrust_files,
    explained,
    identify,
    match_glob,
    one_moment,
    run_script,
    spaced,
)
from clew.text.passage import labels
from clew.types import Record, Vector, Vectors

if TYPE_CHECKING:
    from clew.storage.filters import Allowed

_OWN_TABLES = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
_MEANWHILE = 10_000
"""Rows of the change log that others may have followed and a damaged file has lost."""
_MAPPED = 0x7FFF0000
"""Bytes of the file that are mapped where only vectors are read: all that SQLite can."""
_AT_ONCE = 512
"""Values that are asked for at once, a power of two."""
_PAGES = 1_000
"""Pages that are copied between two words of progress."""

_FIRST = """
    CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;

    -- Narrow on purpose: filters read this table, so the text lives beside it.
    CREATE TABLE records (
        rid INTEGER PRIMARY KEY AUTOINCREMENT,
        id TEXT NOT NULL UNIQUE,
        collection TEXT NOT NULL,
        type TEXT NOT NULL,
        domain TEXT NOT NULL,
        title TEXT NOT NULL,
        path TEXT,
        importance REAL NOT NULL,
        created_at REAL NOT NULL,
        updated_at REAL NOT NULL,
        metadata TEXT NOT NULL
    );
    CREATE INDEX records_collection ON records (collection);
    CREATE INDEX records_type ON records (type);
    CREATE INDEX records_domain ON records (domain) WHERE domain <> '';
    CREATE INDEX records_path ON records (path) WHERE path IS NOT NULL;
    CREATE INDEX records_updated ON records (updated_at);
    CREATE TABLE texts (rid INTEGER PRIMARY KEY, content TEXT NOT NULL);

    CREATE TABLE chunks (
        cid INTEGER PRIMARY KEY AUTOINCREMENT,
        rid INTEGER NOT NULL,
        "start" INTEGER NOT NULL,
        "end" INTEGER NOT NULL,
        first_line INTEGER NOT NULL,
        last_line INTEGER NOT NULL,
        heading TEXT NOT NULL,
        digest BLOB NOT NULL
    );
    CREATE INDEX chunks_rid ON chunks (rid);
    CREATE INDEX chunks_digest ON chunks (digest);

    -- embedding: little-endian float32
    CREATE TABLE vectors (
        cid INTEGER PRIMARY KEY,
        embedding_model TEXT NOT NULL,
        embedding_dim INTEGER NOT NULL,
        embedding BLOB NOT NULL
    );
    CREATE INDEX vectors_model ON vectors (embedding_model);

    CREATE TABLE tags (tag TEXT NOT NULL, rid INTEGER NOT NULL, PRIMARY KEY (tag, rid))
        WITHOUT ROWID;
    CREATE INDEX tags_rid ON tags (rid);
    CREATE TABLE links (rid INTEGER NOT NULL, target TEXT NOT NULL, PRIMARY KEY (rid, target))
        WITHOUT ROWID;
    CREATE INDEX links_target ON links (target);
    -- One row per scalar of a record's metadata, so that filters on it have an index.
    CREATE TABLE attributes (
        key TEXT NOT NULL, value, rid INTEGER NOT NULL, PRIMARY KEY (key, value, rid)
    );
    CREATE INDEX attributes_rid ON attributes (rid);

    CREATE TABLE roots (collection TEXT PRIMARY KEY, folder TEXT NOT NULL) WITHOUT ROWID;
    CREATE TABLE files (
        collection TEXT NOT NULL, path TEXT NOT NULL,
        size INTEGER NOT NULL, mtime_ns INTEGER NOT NULL,
        digest TEXT NOT NULL, indexed_ns INTEGER NOT NULL,
        PRIMARY KEY (collection, path)
    ) WITHOUT ROWID;

    -- What derived indexes have to apply: see log.py.
    CREATE TABLE changes (
        seq INTEGER PRIMARY KEY AUTOINCREMENT,
        kind TEXT NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL,
        token INTEGER NOT NULL
    );
"""
# What a path says of its record, so that file and folder names have an index.
_LABELS = """
    CREATE TABLE labels (
        kind TEXT NOT NULL, label TEXT NOT NULL, rid INTEGER NOT NULL,
        PRIMARY KEY (kind, label, rid)
    ) WITHOUT ROWID;
    CREATE INDEX labels_rid ON labels (rid);
"""
# Records that ended, and how each has fared. `lives` is no part of the change log: an access
# touches no index.
_LIVES = """
    ALTER TABLE records ADD COLUMN ended_at REAL;
    CREATE INDEX records_created ON records (collection, created_at);
    CREATE INDEX records_ended ON records (ended_at) WHERE ended_at IS NOT NULL;
    CREATE TABLE lives (
        rid INTEGER PRIMARY KEY,
        accesses INTEGER NOT NULL DEFAULT 0,
        strength REAL NOT NULL DEFAULT 1,
        accessed_at REAL,
        useful INTEGER NOT NULL DEFAULT 0,
        useless INTEGER NOT NULL DEFAULT 0,
        reason TEXT NOT NULL DEFAULT '',
        successor TEXT
    );
    CREATE INDEX lives_successor ON lives (successor) WHERE successor IS NOT NULL;
"""
# When what a record says is true, apart from when it was written. The indexes tell when that
# changes next among those in use.
_VALIDITY = """
    ALTER TABLE records ADD COLUMN valid_from REAL;
    ALTER TABLE records ADD COLUMN valid_to REAL;
    CREATE INDEX records_valid_from ON records (valid_from)
        WHERE valid_from IS NOT NULL AND ended_at IS NULL;
    CREATE INDEX records_valid_to ON records (valid_to)
        WHERE valid_to IS NOT NULL AND ended_at IS NULL;
"""
APPLICATION_ID = 0x436C6577  # "Clew", in the file's header
# Filled when a row is written, and those of before by `checksum.seal`.
_CHECKSUMS = """
    ALTER TABLE records ADD COLUMN checksum INTEGER;
    ALTER TABLE chunks ADD COLUMN checksum INTEGER;
    ALTER TABLE vectors ADD COLUMN checksum INTEGER;
"""
# Less to write per record: `records_created` begins with the collection too, and a table in the
# order of its key needs no index beside it for that. It takes no NULL, in whose place is an empty
# blob: that the key is there, and nothing to compare with. Digests lie at random, so that a batch
# changes every page of their index: with four bytes of each it has half as many.
_SLIM = """
    DROP INDEX IF EXISTS records_collection;
    CREATE TABLE slim_attributes (
        key TEXT NOT NULL, value, rid INTEGER NOT NULL, PRIMARY KEY (key, value, rid)
    ) WITHOUT ROWID;
    INSERT OR IGNORE INTO slim_attributes
        SELECT key, coalesce(value, x''), rid FROM attributes ORDER BY key, value, rid;
    DROP TABLE attributes;
    ALTER TABLE slim_attributes RENAME TO attributes;
    CREATE INDEX attributes_rid ON attributes (rid);
    DROP INDEX chunks_digest;
    CREATE INDEX chunks_digest ON chunks (substr(digest, 1, 4));
"""
MIGRATIONS = [_FIRST, _LABELS, _LIVES, _VALIDITY, _CHECKSUMS, _SLIM]
"""Each takes a store from its number to the next; never change one that was released."""
_SEALED = MIGRATIONS.index(_CHECKSUMS) + 1
"""The format from which on rows have checksums. Of those before it only the last can be read
without being brought up to date."""


_COUNTED_FROM = 10_000
"""More records than this, and SQLite may count its tables. Of few it learns that walking through
them all is cheapest, and an open connection goes by that when they have become many."""


class SqliteTables(sqlite3.Connection, Tables):  # type: ignore[override]
    """Can be referred to weakly: a thread's connection ends when neither it nor anybody needs it.

    Python crashes when one thread closes a connection that another is using, as a search left
    behind at its deadline may be.
    """

    LIST = "json_each(?)"
    JOIN = "CROSS JOIN"  # left to itself SQLite may begin with all of a model's vectors
    CONTENT, TEXTS = "t.content", "JOIN texts AS t USING (rid)"
    # Details as JSON: 2,000 records in 10 ms, against 95 with a statement each.
    TAGS = "(SELECT json_group_array(tag) FROM tags WHERE tags.rid = r.rid)"
    LINKS = "(SELECT json_group_array(target) FROM links WHERE links.rid = r.rid)"
    WHOLE = "CAST({} AS INTEGER)"
    BY_MODEL = "INDEXED BY vectors_model"
    DIGEST = "substr({}.digest, 1, 4)"
    SHORT = "length(embedding) <> 4 * embedding_dim"
    DETAILS: Mapping[str, Sequence[str]] = {  # type: ignore[misc]
        "records": ("rid", *RECORD, "checksum"),
        "texts": ("rid", "content"),
        "tags": ("tag", "rid"),
        "links": ("rid", "target"),
        "attributes": ("key", "value", "rid"),
        "labels": ("kind", "label", "rid"),
    }

    @staticmethod
    def as_list(values: Sequence[Any]) -> str:
        return json.dumps(values)

    @staticmethod
    def as_digest(digest: bytes) -> bytes:
        return digest[:4]

    @staticmethod
    def as_names(value: str) -> tuple[str, ...]:
        return () if value == "[]" else tuple(json.loads(value))

    @staticmethod
    def compare(operator: str, bound: Any) -> tuple[str, list[Any]]:
        # SQLite sorts every text above every number: compare like with like only
        kind = "'text'" if isinstance(bound, str) else "'integer', 'real'"
        like = "" if operator == "eq" else f"typeof(value) IN ({kind}) AND "
        return f"{like}value {OPERATORS[operator]} ?", [storable(bound)]

    @staticmethod
    def detail_rows(rid: int, columns: Row, record: Record) -> Iterator[tuple[str, Row]]:
        yield "records", (rid, *columns)
        yield "texts", (rid, record.content)
        for tag in tags_of(record):
            yield "tags", (tag, rid)
        for target in dict.fromkeys(record.links):
            yield "links", (rid, target)
        for key, value in dict.fromkeys(scalars(record.metadata)) if record.metadata else ():
            yield "attributes", (key, b"" if value is None else value, rid)
        for kind, label in labels_of(record):
            yield "labels", (kind, label, rid)

    def among(
        self, query: str, values: Sequence[Any], *more: Any, near: bool = False
    ) -> Iterator[Row]:
        for i in range(0, len(values), _AT_ONCE):
            some = values[i : i + _AT_ONCE]
            # a statement is kept by each connection: of few lengths there are few, soon prepared
            size = 1 << (len(some) - 1).bit_length()
            asked = query.format(", ".join("?" * size))
            given = [*some, *[some[0]] * (size - len(some)), *more]
            try:
                found = self.execute(asked, given).fetchall()
            except sqlite3.OperationalError as error:
                if "decode" not in str(error):
                    raise
                found = self._read_garbled(asked, given)
            yield from found

    def _read_garbled(self, query: str, parameters: Sequence[Any]) -> list[Row]:
        """With marks in the place of what is no text: a checksum tells whose it is."""
        self.text_factory = lambda given: given.decode("utf-8", "surrogateescape")
        try:
            return self.execute(query, parameters).fetchall()
        finally:
            self.text_factory = str

    def with_vectors(self, query: str, values: Sequence[Any], *more: Any) -> Iterator[Row]:
        for *columns, known, vector in self.among(query, values, *more):
            if known is None or crc32(vector) == known:
                yield *columns, np.frombuffer(vector, "<f4")

    def vectors_of(self, cids: Sequence[int], model: str, dim: int) -> tuple[list[int], Vectors]:
        """All at once: searches wait for it."""
        query = """SELECT cid, embedding, checksum FROM vectors
                   WHERE cid IN ({}) AND embedding_model = ? AND embedding_dim = ?"""
        found = [
            row
            for row in self.among(query, cids, model, dim)
            if len(row[1]) == 4 * dim and row[2] in (crc32(row[1]), None)
        ]
        rows = np.frombuffer(b"".join([row[1] for row in found]), "<f4").reshape(-1, dim)
        return [row[0] for row in found], rows

    def insert(self, table: str, rows: Sequence[Row], *, replacing: int = 0) -> None:
        if not rows:
            return
        names = self.DETAILS.get(table) or COLUMNS[table]
        quoted = ", ".join(f'"{name}"' for name in names)
        marks = ", ".join("?" * len(names))
        query = f"{{}} INTO {table} ({quoted}) VALUES ({marks})"
        self._insert(query, rows, replacing=bool(replacing))

    def insert_vectors(self, vectors: Mapping[int, Vector], model: str) -> None:
        datas = ((cid, np.ascontiguousarray(row, "<f4").data) for cid, row in vectors.items())
        rows = [(cid, model, len(data), data, crc32(data)) for cid, data in datas]
        self._insert("{} INTO vectors VALUES (?, ?, ?, ?, ?)", rows)

    def _insert(self, query: str, rows: Sequence[Row], *, replacing: bool = False) -> None:
        """To be ready to replace takes SQLite half as long again, so that it is only where a row
        may be there; or is, in a damaged file, where none should be."""
        if not replacing:
            try:
                self.executemany(query.format("INSERT"), rows)
                return
            except sqlite3.IntegrityError:
                pass
        self.executemany(query.format("INSERT OR REPLACE"), rows)

    def remove(self, table: str, columns: Sequence[str], keys: Sequence[Row]) -> None:
        same = " AND ".join(f"{name} = ?" for name in columns)
        self.executemany(f"DELETE FROM {table} WHERE {same}", keys)

    def set_checksums(self, table: str, key: str, sums: Sequence[tuple[int, int]]) -> None:
        rows = [(checksum, number) for number, checksum in sums]
        self.executemany(f"UPDATE {table} SET checksum = ? WHERE {key} = ?", rows)

    def last_numbers(self) -> tuple[int, int]:
        last = dict(self.execute("SELECT name, seq FROM sqlite_sequence").fetchall())
        return last.get("records", 0), last.get("chunks", 0)

    def note_numbers(self, rid: int, cid: int) -> None:
        """AUTOINCREMENT has seen them."""

    def names(self, rids: Sequence[int]) -> Mapping[int, str]:
        # As one JSON value: sqlite3 lets go of the interpreter lock at every row, and the other
        # sources take it. 100 rows: 0.07 ms, against 0.11 alone and 0.16 beside a busy thread.
        row = self.execute(
            """SELECT json_group_array(json_array(r.rid, r.id)) FROM json_each(?) AS j
               CROSS JOIN records AS r ON r.rid = j.value""",
            (json.dumps(rids),),
        ).fetchone()
        return dict(json.loads(row[0]))

    def lengths(self, count: int) -> list[int]:
        query = "SELECT (SELECT MIN(cid) FROM chunks), (SELECT MAX(cid) FROM chunks)"
        low, high = self.execute(query).fetchone()
        if low is None:
            return []
        query = 'SELECT "end" - "start" FROM chunks WHERE cid >= ? ORDER BY cid LIMIT 1'
        found = (self.execute(query, (cid,)).fetchone() for cid in spaced(low, high, count))
        return [int(row[0]) for row in found if row]  # else the last ones were deleted since

    def label_holders(
        self,
        kinds: Sequence[str],
        labels: Sequence[str],
        where: tuple[str, list[Any]] | None,
        allowed: Allowed | None,
        most: int,
    ) -> dict[int, set[str]]:
        """Label by label, each from its index: it may be on a hundred thousand records, and only
        those that are looked at cost anything."""
        has: dict[int, set[str]] = {}
        broad: list[tuple[str, str]] = []
        for kind in kinds:
            holds = _HOLDERS[kind].replace("?", "asked.value")
            query = f"SELECT value FROM json_each(?) AS asked WHERE EXISTS ({holds})"
            present = [row[0] for row in self.execute(query, (json.dumps(labels),))]
            if kind == "tag":
                query = _BELOW.format(most)
                present += [row[0] for row in self.execute(query, (json.dumps(labels),))]
            for label in dict.fromkeys(present):
                rids = self._newest(kind, label, where, allowed, most)
                if len(rids) >= most:
                    broad.append((kind, label))
                for rid in rids:
                    has.setdefault(rid, set()).add(label)
        for kind, label in broad:
            others = [rid for rid, mine in has.items() if label not in mine]
            query = f"""SELECT other.value FROM json_each(?) AS other
                        WHERE EXISTS ({_HOLDERS[kind]} AND rid = other.value)"""
            for (rid,) in self.execute(query, (json.dumps(others), label)).fetchall():
                has[rid].add(label)
        return has

    def _newest(
        self,
        kind: str,
        label: str,
        where: tuple[str, list[Any]] | None,
        allowed: Allowed | None,
        most: int,
    ) -> list[int]:
        holders = _HOLDERS[kind]
        if allowed is not None:
            every = np.array([row[0] for row in self.execute(holders, (label,))], dtype=np.int64)
            newest: list[int] = every[allowed.of_rids(every)][::-1][:most].tolist()
            return newest
        if where is None:
            query, values = f"{holders} ORDER BY rid DESC LIMIT {most}", [label]
        else:
            # The label's own rows, newest first, until it is enough: by r.rid, SQLite sorts all.
            query = f"""SELECT r.rid FROM ({holders}) AS l CROSS JOIN records AS r USING (rid)
                        WHERE {where[0]} ORDER BY l.rid DESC LIMIT {most}"""
            values = [label, *where[1]]
        return [row[0] for row in self.execute(query, values)]

    def __del__(self) -> None:
        try:  # noqa: SIM105 - when Python ends, modules are gone before this is
            self.close()
        except Exception:  # one that could not be opened
            pass


_HOLDERS = {
    "tag": "SELECT rid FROM tags WHERE tag = ?",
    "folder": "SELECT rid FROM labels WHERE kind = 'folder' AND label = ?",
    "name": "SELECT rid FROM labels WHERE kind = 'name' AND label = ?",
}
# Tags below one of these, found by stepping through the index from one to the next: there may be
# many records with each.
_BELOW = """WITH RECURSIVE below(asked, tag) AS (
              SELECT value, (SELECT MIN(tag) FROM tags
                             WHERE tag > value || '/' AND tag < value || '0') FROM json_each(?)
              UNION ALL
              SELECT asked, (SELECT MIN(tag) FROM tags
                             WHERE tag > below.tag AND tag < asked || '0')
              FROM below WHERE below.tag IS NOT NULL)
            SELECT tag FROM below WHERE tag IS NOT NULL LIMIT {}"""


def _salvage(source: SqliteTables, target: Tables, table: str) -> None:
    """Copy all rows of a table up to what cannot be read, and from its end back to there."""
    info = target.execute(f"PRAGMA table_info({table})").fetchall()
    names = ", ".join(f'"{row[1]}"' for row in info)
    keys = ", ".join(f'"{row[1]}" {{0}}' for row in sorted(info, key=lambda r: r[5]) if row[5])
    how = "REPLACE" if table == "meta" else "IGNORE"
    # A file that could not be brought up to date may have a NULL where there is none any more.
    marks = ", ".join("coalesce(?, x'')" if row[1] == "value" and row[3] else "?" for row in info)
    into = f"INSERT OR {how} INTO {table} ({names}) VALUES ({marks})"
    for order in ("ASC", "DESC"):
        query = f"SELECT {names} FROM {table} NOT INDEXED ORDER BY {keys.format(order)}"
        try:
            for row in source.execute(query):
                target.execute(into, row)
            return
        except (sqlite3.DatabaseError, StoreError):
            continue


class SqliteDatabase(Database):
    """Connections to the store's file: one per thread for reading, one for writing."""

    BEGIN, KIND = "BEGIN IMMEDIATE", "sqlite"

    def __init__(self, path: Path, *, busy_seconds: float = 10.0, synchronous: str = "NORMAL"):
        super().__init__(path)
        self._busy = busy_seconds
        self._synchronous = synchronous
        self._open: weakref.WeakSet[SqliteTables] = weakref.WeakSet()
        self._guard = threading.Lock()
        self._writing = threading.RLock()
        with explained(path):
            self._look()
            ownership.create_private(path)
            self._identity = identify(path)
            self._writer = self._connect()
            self._writer.execute("PRAGMA cache_size = -64000")  # all that a batch changes
            self._writer.execute("PRAGMA journal_size_limit = 8000000")  # once it is in the file
            self._migrate()
            query = "SELECT value FROM meta WHERE key = 'store'"
            self.store_id = self._writer.execute(query).fetchone()[0]

    def in_place(self) -> bool:
        return identify(self.path) == self._identity

    def _look(self) -> None:
        """Another program's database is left as it is: to open it our way would make it a WAL one.
        So its header is read first: the application, and whether there is any table."""
        with contextlib.suppress(OSError), self.path.open("rb") as file:
            header = file.read(105)
            foreign = int.from_bytes(header[68:72]) != APPLICATION_ID
            if foreign and header.startswith(b"SQLite format 3") and any(header[103:105]):
                raise StoreError(OTHERS.format(self.path))

    GIVES_VECTORS_FAST = True

    @property
    def vector_reader(self) -> SqliteTables:
        """Has the file mapped: 132 vectors in 0.15 ms, against 0.4 (each has a checksum)."""
        self.check()
        db: SqliteTables | None = self._local.__dict__.get("mapped")
        if db is None:
            with explained(self.path):
                db = self._local.mapped = self._connect(mapped=True)
        return db

    def _connect(self, *, mapped: bool = False) -> SqliteTables:
        self.check_in_place()
        target, uri = str(self.path), False
        if self.read_only or (self.path.exists() and not os.access(self.path.parent, os.W_OK)):
            # WAL wants to write beside the file even to read; a disk that refuses does not change
            # for us. What a log beside the file holds is read all the same; and an empty one may be
            # that of somebody who has the store open, and goes on to write.
            log, index = (self.path.with_name(self.path.name + end) for end in ("-wal", "-shm"))
            followed = log.exists() and (log.stat().st_size or index.exists())
            how = "mode=ro" if followed else "immutable=1"
            target, uri = f"{self.path.absolute().as_uri()}?{how}", True
            self.read_only = True
        db = sqlite3.connect(
            target,
            uri=uri,
            timeout=self._busy,
            isolation_level=None,
            check_same_thread=False,
            factory=SqliteTables,
        )
        with self._guard:
            self._open.add(db)
        if not self.read_only:
            db.execute("PRAGMA page_size = 8192")  # five 384-float rows a page, not two
            self._into_wal(db)
            db.execute(f"PRAGMA synchronous = {self._synchronous}")
        if strange := ownership.harden(db):
            raise StoreError(f"{self.path} {ownership.HOSTILE.format(strange)}")
        db.execute("PRAGMA cache_size = -16000")
        # One that is mapped would be checked each time that it is looked at.
        checked = f"mmap_size = {_MAPPED}" if mapped else "cell_size_check = ON"
        db.execute(f"PRAGMA {checked}")
        db.create_function("clew_glob", 2, match_glob, deterministic=True)
        if self.read_only and db.execute("PRAGMA user_version").fetchone()[0] < _SEALED:
            for table in ("records", "chunks", "vectors"):  # which have none, and will get none
                view = f"SELECT *, NULL AS checksum FROM main.{table}"
                db.execute(f"CREATE TEMP VIEW {table} AS {view}")
            db.BY_MODEL = ""  # type: ignore[misc]  # a view has no index
        return db

    def _into_wal(self, db: sqlite3.Connection) -> None:
        """SQLite answers "locked" at once, without its usual wait, while another process is making
        the same new file a WAL one: so the wait is here."""
        end = time.monotonic() + self._busy
        while True:
            try:
                db.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError as error:
                if "locked" not in str(error) or time.monotonic() > end:
                    raise
                time.sleep(0.01)

    def _migrate(self) -> None:
        have = self._writer.execute("PRAGMA user_version").fetchone()[0]
        foreign = self._writer.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID
        used = self._writer.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone()
        self.check_format(have, len(MIGRATIONS), foreign=foreign and used is not None)
        if have == len(MIGRATIONS) or (self.read_only and have >= _SEALED - 1):
            return
        try:
            self._bring_to(len(MIGRATIONS))
        except StoreError as error:
            if getattr(error.__cause__, "sqlite_errorcode", 0) & 0xFF != sqlite3.SQLITE_CORRUPT:
                raise
            # What comes after that reads all of some tables. Without it a store says as much as
            # its damage leaves, and can be mended.
            self._bring_to(_SEALED)

    def _bring_to(self, number: int) -> None:
        with self.transaction():
            db = self._writer
            db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            have = db.execute("PRAGMA user_version").fetchone()[0]  # another process may be first
            if have >= number:
                return
            for script in MIGRATIONS[have:number]:
                run_script(db, script)
                if script is _FIRST:
                    db.insert("meta", [("store", uuid.uuid4().hex)])
                elif script is _LABELS:
                    paths = db.execute("SELECT rid, path FROM records WHERE path IS NOT NULL")
                    named = ((rid, labels(path)) for rid, path in paths.fetchall())
                    rows = [(kind, label, rid) for rid, some in named for kind, label in some]
                    db.insert("labels", rows)
            if 0 < have < _SEALED:
                db.insert("meta", [(UNSEALED, "1")])
            db.execute(f"PRAGMA user_version = {number}")

    def verdict(self) -> str:
        try:
            found = self.reader.execute("PRAGMA integrity_check(1)").fetchone()[0]
        except (sqlite3.Error, StoreError) as error:
            return str(error)
        return "" if found == "ok" else str(found)

    def restructure(self) -> bool:
        """SQLite's own indexes are made from the tables; where that is not enough, all of it is,
        from every row that can still be read."""
        from clew.storage.backup import make_room

        self.check_writable()
        with make_room(self.path) as place:
            if not self.verdict():
                return False
            with contextlib.suppress(sqlite3.Error, StoreError), self.transaction() as db:
                db.execute("REINDEX")
            if not self.verdict():
                return False
            fresh = SqliteDatabase(place / "clew.db")
            with (
                contextlib.closing(self._connect()) as source,
                contextlib.closing(fresh),
                fresh.transaction() as db,
            ):
                source.text_factory = lambda text: text.decode("utf-8", "replace")
                for (name,) in db.execute(_OWN_TABLES).fetchall():
                    _salvage(source, db, name)
                distrust_files(db)
                log.advance(db, log.head(db)[0] + _MEANWHILE)
            self.replace_with(fresh.path)
        return True

    def checkpoint(self) -> None:
        """Bring what is in the log into the file and empty it, as far as no reader is in the way:
        pages are read faster from there. And count tables that have become large."""
        with self._writing, explained(self.path):
            if not self._closed and not self.read_only:
                many = "SELECT 1 FROM records LIMIT 1 OFFSET ?"
                if self._writer.execute(many, (_COUNTED_FROM,)).fetchone():
                    self._writer.execute("PRAGMA optimize")
                try:
                    self._writer.execute("PRAGMA busy_timeout = 0")  # no reader is waited for
                    self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
                finally:
                    self._writer.execute(f"PRAGMA busy_timeout = {int(self._busy * 1000)}")

    def vacuum(self) -> None:
        """Rewrite the file without the space that deletions left, and empty the log beside it."""
        self.check()
        with self._writing, explained(self.path):
            self.check()
            self.check_writable()
            self._writer.execute("VACUUM")
            busy = self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
            if busy:
                raise StoreError(
                    f"{self.path}: another process is reading, so what was deleted is still in the "
                    "log beside it: try again when it is done"
                )

    def copy_to(self, file: Path, progress: Progress) -> None:
        self.check()
        with (
            explained(self.path),
            contextlib.closing(self._connect()) as source,
            contextlib.closing(sqlite3.connect(file)) as target,
        ):
            target.execute("PRAGMA synchronous = OFF")  # whoever wants it durable sees to it
            with one_moment(source):  # else each write of another process would start it again
                source.execute("SELECT 1 FROM meta").fetchone()
                source.backup(
                    target,
                    pages=_PAGES,
                    progress=lambda _, left, total: progress("copying", total - left, total),
                )

    def replace_with(self, file: Path) -> None:
        self.check()
        end = time.monotonic() + self._busy

        def wait(_: int, left: int, total: int) -> None:
            if (left or not total) and time.monotonic() > end:
                raise sqlite3.OperationalError("database is locked")

        with (
            self._writing,
            explained(self.path),
            contextlib.closing(sqlite3.connect(file)) as source,
        ):
            self.check_writable()
            source.backup(self._writer, progress=wait, sleep=0.01)  # one transaction
            self._writer.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()

    def close(self) -> None:
        if self._process != os.getpid():  # the parent's, and its own to close
            self._closed = True
            return
        with self._writing:
            self._closed = True
            mine = [self._writer, *(getattr(self._local, name, None) for name in ("db", "mapped"))]
            self._local = threading.local()  # let go of the other threads'
            with self._guard:
                for db in filter(None, mine):
                    with contextlib.suppress(sqlite3.Error):
                        db.close()
                    self._open.discard(db)
            for generation in (1, 2):  # each refers to itself: this ends all but those in use
                if self._open:
                    gc.collect(generation)  # among what is young: a command's are, and it waits
