"""Records, chunks and vectors written as rows. Functions over a connection: the caller owns the
transaction, and every change is noted in the log within it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from clew.errors import InputError
from clew.storage import log
from clew.storage.rows import COLUMNS, among, get, rids_of
from clew.storage.tables import Tables
from clew.storage.values import (
    Twins,
    alike,
    check_given,
    digest_of,
    first_digests,
    float32,
    labels_of,
    new_ones,
    root_of,
    row_of,
    scalars,
    tags_of,
    twins_of,
    writable,
)
from clew.types import Entry, FileState, Record, Vector, Vectors

__all__ = ["check_dim", "delete", "put", "put_new", "rename", "set_file", "set_vectors"]

_MARKS = ", ".join("?" * len(COLUMNS.split(", ")))
_DETAILS = ("tags", "links", "attributes", "labels")
"""Tables of a record's own, written anew when it changes."""


def put(db: Tables, entries: Sequence[Entry], *, model: str | None) -> list[str]:
    """Insert or replace by id. An id given twice in one batch: the last one counts."""
    with writable(entries):
        return _put(db, entries, model)


def _put(db: Tables, entries: Sequence[Entry], model: str | None) -> list[str]:
    last = {entry.record.id: i for i, entry in enumerate(entries)}
    known = rids_of(db, list(last))
    dim = _check_vectors(db, entries, model)
    batch = _Batch(db, model, dim)
    statuses: list[str] = []
    for i, entry in enumerate(entries):
        if last[entry.record.id] != i:
            statuses.append("updated")
            continue
        rid = known.get(entry.record.id)
        statuses.append(batch.insert(entry) if rid is None else batch.replace(rid, entry))
    batch.write()
    return statuses


def put_new(db: Tables, entries: Sequence[Entry], *, model: str | None) -> list[tuple[str, str]]:
    """Insert what is not there yet; per entry a status and the id under which the text is kept."""
    with writable(entries):
        return _put_new(db, entries, model)


def _put_new(db: Tables, entries: Sequence[Entry], model: str | None) -> list[tuple[str, str]]:
    ids = [entry.record.id for entry in entries]
    taken = {record.id: record for record in get(db, ids)}
    fresh, kept = new_ones(entries, taken, _twins(db, entries))
    _put(db, fresh, model)
    return kept


def _twins(db: Tables, entries: Sequence[Entry]) -> Twins:
    """Records that have not ended, by what they say, for what the entries say."""
    query = """SELECT r.collection, r.type, t.content, r.valid_from, r.valid_to, r.id
               FROM chunks AS c
               JOIN records AS r USING (rid) JOIN texts AS t USING (rid)
               WHERE c.digest IN ({}) AND r.ended_at IS NULL"""
    return twins_of(among(db, query, first_digests(entries)))


class _Batch:
    """Collects the rows of one `put`, so that each table is written with one statement.

    Numbers are given here rather than by SQLite: within a write transaction nobody else can.
    """

    def __init__(self, db: Tables, model: str | None, dim: int):
        self._db, self._model, self._dim = db, model, dim
        sequence = dict(db.execute("SELECT name, seq FROM sqlite_sequence").fetchall())
        self._rid: int = sequence.get("records", 0)
        self._cid: int = sequence.get("chunks", 0)
        self._now = time.time()
        self._rows: dict[str, list[tuple[Any, ...]]] = {}
        self._log: dict[str, list[int]] = {"record": [], "chunk": [], "gone": [], "vector": []}

    def insert(self, entry: Entry) -> str:
        self._rid += 1
        self._add("records", self._rid, *row_of(entry.record, self._now, self._now))
        self._add("texts", self._rid, entry.record.content)
        self._details(self._rid, entry)
        if entry.file is not None and entry.record.path is not None:
            self._file(entry.record, entry.file)
        for number, chunk in enumerate(entry.chunks):
            self._chunk(self._rid, entry, number, digest_of(entry, chunk.start, chunk.end, number))
        self._log["record"].append(self._rid)
        return "created"

    def replace(self, rid: int, entry: Entry) -> str:
        db, record = self._db, entry.record
        old = get(db, [record.id])[0]
        created = old.created_at if record.created_at is None else record.created_at
        assert created is not None
        # Chunks whose words did not change keep their number, and with it index entry and vector.
        kept: dict[bytes, list[tuple[int, ...]]] = {}
        for *place, words in db.execute(
            """SELECT cid, "start", "end", first_line, last_line, digest FROM chunks
               WHERE rid = ? ORDER BY cid DESC""",
            (rid,),
        ):
            kept.setdefault(words, []).append(tuple(place))
        changed = False
        for number, chunk in enumerate(entry.chunks):
            words = digest_of(entry, chunk.start, chunk.end, number)
            place = (chunk.start, chunk.end, *chunk.lines)
            if same := kept.get(words):
                cid, *was = same.pop()
                if tuple(was) != place:
                    db.execute(
                        """UPDATE chunks SET "start" = ?, "end" = ?, first_line = ?, last_line = ?
                           WHERE cid = ?""",
                        (*place, cid),
                    )
                    changed = True
                if entry.vectors is not None:
                    changed |= self._vector(cid, entry.vectors[number], known=True)
            else:
                self._chunk(rid, entry, number, words)
                changed = True
        gone = [place[0] for places in kept.values() for place in places]
        _delete_chunks(db, gone)
        self._log["gone"] += gone
        if entry.file is not None and record.path is not None:
            self._file(record, entry.file)
        if alike(old, record) and not changed and not gone:
            return "unchanged"
        for table in _DETAILS:
            db.execute(f"DELETE FROM {table} WHERE rid = ?", (rid,))
        self._details(rid, entry)
        updated = self._now if record.updated_at is None else record.updated_at
        db.execute(
            f"UPDATE records SET ({COLUMNS}) = ({_MARKS}) WHERE rid = ?",
            (*row_of(record, created, updated), rid),
        )
        db.execute("UPDATE texts SET content = ? WHERE rid = ?", (record.content, rid))
        self._log["record"].append(rid)
        return "updated"

    def _file(self, record: Record, state: FileState) -> None:
        assert record.path is not None
        root = root_of(record.id, record.collection, record.path)
        set_file(self._db, root, record.path, state)

    def _details(self, rid: int, entry: Entry) -> None:
        record = entry.record
        for tag in tags_of(record):
            self._add("tags", tag, rid)
        for target in dict.fromkeys(record.links):
            self._add("links", rid, target)
        for key, value in dict.fromkeys(scalars(record.metadata)):
            self._add("attributes", key, value, rid)
        for kind, label in labels_of(record):
            self._add("labels", kind, label, rid)

    def _chunk(self, rid: int, entry: Entry, number: int, words: bytes) -> None:
        chunk = entry.chunks[number]
        self._cid += 1
        place = (chunk.start, chunk.end, *chunk.lines)
        self._add("chunks", self._cid, rid, *place, chunk.heading, words)
        self._log["chunk"].append(self._cid)
        if entry.vectors is not None:
            self._vector(self._cid, entry.vectors[number])

    def _vector(self, cid: int, vector: Vector, *, known: bool = False) -> bool:
        """Whether it is another one than is there already."""
        row = (self._model, self._dim, vector.astype("<f4").tobytes())
        if known:
            query = """SELECT embedding_model, embedding_dim, embedding FROM vectors
                       WHERE cid = ?"""
            if self._db.execute(query, (cid,)).fetchone() == row:
                return False
        self._add("vectors", cid, *row)
        self._log["vector"].append(cid)
        return True

    def _add(self, table: str, *values: Any) -> None:
        self._rows.setdefault(table, []).append(values)

    def write(self) -> None:
        for table, some in self._rows.items():
            columns = f"(rid, {COLUMNS})" if table == "records" else ""
            marks = ", ".join("?" * len(some[0]))
            self._db.executemany(f"INSERT OR REPLACE INTO {table} {columns} VALUES ({marks})", some)
        for kind, numbers in self._log.items():
            log.append(self._db, kind, numbers)


def _check_vectors(db: Tables, entries: Sequence[Entry], model: str | None) -> int:
    """The dimension of the given vectors (0: none given), after making sure that they fit."""
    dim = check_given(entries, model)
    if dim:
        check_dim(db, model or "", dim)
    return dim


def check_dim(db: Tables, model: str, dim: int) -> None:
    """An InputError unless the vectors of this model have as many dimensions."""
    known = db.execute(
        "SELECT embedding_dim FROM vectors WHERE embedding_model = ? LIMIT 1", (model,)
    ).fetchone()
    if known and known[0] != dim:
        raise InputError(
            f"this store's vectors of {model} have {known[0]} dimensions, the given ones {dim}: "
            "use the same model, or name another"
        )


def set_vectors(db: Tables, chunks: Sequence[int], vectors: Vectors, *, model: str) -> int:
    vectors = float32(vectors, len(chunks), "these chunks")
    check_dim(db, model, vectors.shape[1])
    alive = {row[0] for row in among(db, "SELECT cid FROM chunks WHERE cid IN ({})", chunks)}
    some = [
        (cid, model, vectors.shape[1], vector.astype("<f4").tobytes())
        for cid, vector in zip(chunks, vectors, strict=True)
        if cid in alive
    ]
    db.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?, ?, ?)", some)
    log.append(db, "vector", [row[0] for row in some])
    return len(some)


def delete(db: Tables, ids: Sequence[str]) -> int:
    rids = list(rids_of(db, ids).values())
    cids = [row[0] for row in among(db, "SELECT cid FROM chunks WHERE rid IN ({})", rids)]
    query = "SELECT id, collection, path FROM records WHERE path IS NOT NULL AND rid IN ({})"
    files = [(root_of(*row), row[2]) for row in among(db, query, rids)]
    _delete_chunks(db, cids)
    for table in ("records", "texts", "lives", *_DETAILS):
        db.executemany(f"DELETE FROM {table} WHERE rid = ?", [(rid,) for rid in rids])
    db.executemany("DELETE FROM files WHERE collection = ? AND path = ?", files)
    log.append(db, "gone", cids)
    log.append(db, "record", rids)
    return len(rids)


def _delete_chunks(db: Tables, cids: Sequence[int]) -> None:
    for table in ("chunks", "vectors"):
        db.executemany(f"DELETE FROM {table} WHERE cid = ?", [(cid,) for cid in cids])


def rename(db: Tables, old_id: str, entry: Entry) -> None:
    """Give a record another id, then write the rest of the entry over it."""
    record = entry.record
    row = db.execute("SELECT rid, collection, path FROM records WHERE id = ?", (old_id,)).fetchone()
    if row is None or old_id == record.id:
        put(db, [entry], model=None)
        return
    delete(db, [record.id])
    db.execute("UPDATE records SET id = ? WHERE rid = ?", (record.id, row[0]))
    log.append(db, "record", [row[0]])
    db.execute(
        "DELETE FROM files WHERE collection = ? AND path = ?", (root_of(old_id, *row[1:]), row[2])
    )
    put(db, [entry], model=None)


def set_file(db: Tables, collection: str, path: str, state: FileState) -> None:
    db.execute(
        "INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?, ?, ?)",
        (collection, path, state.size, state.mtime_ns, state.digest, state.indexed_ns),
    )
