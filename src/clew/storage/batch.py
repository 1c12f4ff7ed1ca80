"""Writing records, chunks and vectors. Functions over a connection: the caller owns the
transaction, and every change is noted in the log within it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

import numpy as np

from clew.errors import InputError
from clew.storage import log
from clew.storage.entries import (
    Twins,
    alike,
    check_given,
    digest_of,
    first_digests,
    float32,
    new_ones,
    root_of,
    row_of,
    twins_of,
    writable,
)
from clew.storage.rows import get, rids_of
from clew.storage.tables import Row, Tables
from clew.types import Entry, FileState, Vector, Vectors


def put(db: Tables, entries: Sequence[Entry], *, model: str | None) -> list[str]:
    """Insert or replace by id. An id given twice in one batch: the last one counts."""
    with writable(entries):
        return _put(db, entries, model)


def _put(db: Tables, entries: Sequence[Entry], model: str | None) -> list[str]:
    last = {entry.record.id: i for i, entry in enumerate(entries)}
    dim = check_given(entries, model)
    if dim:
        _check_dim(db, model or "", dim)
    batch = _Batch(db, list(last), model, dim)
    statuses = [
        batch.add(entry) if last[entry.record.id] == i else "updated"
        for i, entry in enumerate(entries)
    ]
    batch.write()
    return statuses


def put_new(db: Tables, entries: Sequence[Entry], *, model: str | None) -> list[tuple[str, str]]:
    """Insert what is not there yet; per entry a status and the id under which the text is kept."""
    with writable(entries):
        taken = {record.id: record for record in get(db, [entry.record.id for entry in entries])}
        fresh, kept = new_ones(entries, taken, _twins(db, entries))
        _put(db, fresh, model)
        return kept


def _twins(db: Tables, entries: Sequence[Entry]) -> Twins:
    """Records that have not ended, by what they say, for what the entries say."""
    query = f"""SELECT r.collection, r.type, {db.CONTENT}, r.valid_from, r.valid_to, r.id
                FROM chunks AS c JOIN records AS r USING (rid) {db.TEXTS}
                WHERE c.digest IN ({{}}) AND r.ended_at IS NULL"""
    return twins_of(db.among(query, first_digests(entries)))


class _Batch:
    """Collects the rows of one `put`, so that each table is written with one statement."""

    def __init__(self, db: Tables, ids: Sequence[str], model: str | None, dim: int):
        self._db, self._model = db, model
        self._rid, self._cid = self._before = db.last_numbers()
        self._now = time.time()
        self._rows: dict[str, list[Row]] = {}
        self._again: list[int] = []
        self._moved: list[int] = []
        self._vectors: dict[int, Vector] = {}
        self._log: dict[str, list[int]] = {"record": [], "chunk": [], "gone": [], "vector": []}
        self._known = rids_of(db, ids)  # of a bulk load few, if any, are there
        rids = list(self._known.values())
        self._old = {record.id: record for record in get(db, list(self._known))}
        self._chunks: dict[int, dict[bytes, list[tuple[int, ...]]]] = {}
        query = """SELECT rid, digest, cid, "start", "end", first_line, last_line FROM chunks
                   WHERE rid IN ({}) ORDER BY cid DESC"""
        for rid, words, *place in db.among(query, rids):
            self._chunks.setdefault(rid, {}).setdefault(words, []).append(tuple(place))
        self._had: dict[int, tuple[str, Vector]] = {}
        if dim and rids:
            cids = [
                place[0] for of in self._chunks.values() for some in of.values() for place in some
            ]
            query = """SELECT cid, embedding_model, embedding FROM vectors WHERE cid IN ({})"""
            self._had = {cid: (of, row) for cid, of, row in db.with_vectors(query, cids)}

    def add(self, entry: Entry) -> str:
        record = entry.record
        rid = self._known.get(record.id)
        if rid is None:
            self._rid += 1
            self._record(self._rid, entry, self._now)
            for number in range(len(entry.chunks)):
                self._chunk(self._rid, entry, number, digest_of(entry, number))
            return "created"
        old = self._old[record.id]
        changed = self._replace_chunks(rid, entry)
        if alike(old, record) and not changed:
            self._file(entry)
            return "unchanged"
        self._again.append(rid)
        assert old.created_at is not None
        self._record(rid, entry, old.created_at)
        return "updated"

    def _replace_chunks(self, rid: int, entry: Entry) -> bool:
        """Whether any is another one than before. Chunks whose words did not change keep their
        number, and with it index entry and vector."""
        kept = self._chunks.get(rid, {})
        changed = False
        for number, chunk in enumerate(entry.chunks):
            words = digest_of(entry, number)
            place = (chunk.start, chunk.end, *chunk.lines)
            if not (same := kept.get(words)):
                self._chunk(rid, entry, number, words)
                changed = True
                continue
            cid, *was = same.pop()
            if tuple(was) != place:
                self._moved.append(cid)
                self._add("chunks", (cid, rid, *place, chunk.heading, words))
                changed = True
            if entry.vectors is not None:
                changed |= self._vector(cid, entry.vectors[number])
        gone = [place[0] for places in kept.values() for place in places]
        self._log["gone"] += gone
        return changed or bool(gone)

    def _record(self, rid: int, entry: Entry, created: float) -> None:
        columns = row_of(entry.record, created, self._now)
        for table, row in self._db.detail_rows(rid, columns, entry.record):
            self._add(table, row)
        self._log["record"].append(rid)
        self._file(entry)

    def _file(self, entry: Entry) -> None:
        record, state = entry.record, entry.file
        if state is not None and record.path is not None:
            root = root_of(record.id, record.collection, record.path)
            self._add("files", _file_row(root, record.path, state))

    def _chunk(self, rid: int, entry: Entry, number: int, words: bytes) -> None:
        chunk = entry.chunks[number]
        self._cid += 1
        place = (chunk.start, chunk.end, *chunk.lines)
        self._add("chunks", (self._cid, rid, *place, chunk.heading, words))
        self._log["chunk"].append(self._cid)
        if entry.vectors is not None:
            self._vector(self._cid, entry.vectors[number])

    def _vector(self, cid: int, vector: Vector) -> bool:
        """Whether it is another one than is there already."""
        row = vector.astype("<f4")
        had = self._had.get(cid)
        if had is not None and had[0] == self._model and np.array_equal(had[1], row):
            return False
        self._vectors[cid] = row
        self._log["vector"].append(cid)
        return True

    def _add(self, table: str, row: Row) -> None:
        self._rows.setdefault(table, []).append(row)

    def write(self) -> None:
        db = self._db
        for table in db.DETAILS:
            _remove(db, table, "rid", self._again)
        _remove(db, "chunks", "cid", self._log["gone"] + self._moved)
        _remove(
            db, "vectors", "cid", self._log["gone"] + [c for c in self._vectors if c in self._had]
        )
        db.insert("files", self._rows.pop("files", ()), replacing=2)
        for table, rows in self._rows.items():
            db.insert(table, rows)
        if self._vectors:
            db.insert_vectors(self._vectors, self._model or "")
        if (self._rid, self._cid) != self._before:
            db.note_numbers(self._rid, self._cid)
        log.append(db, self._log)


def _remove(db: Tables, table: str, column: str, numbers: Iterable[int]) -> None:
    if keys := [(number,) for number in numbers]:
        db.remove(table, (column,), keys)


def _check_dim(db: Tables, model: str, dim: int) -> None:
    """An InputError unless the vectors of this model have as many dimensions."""
    query = "SELECT embedding_dim FROM vectors WHERE embedding_model = ? LIMIT 1"
    known = db.execute(query, (model,)).fetchone()
    if known and known[0] != dim:
        raise InputError(
            f"this store's vectors of {model} have {known[0]} dimensions, the given ones {dim}: "
            "use the same model, or name another"
        )


def set_vectors(db: Tables, chunks: Sequence[int], vectors: Vectors, *, model: str) -> int:
    vectors = float32(vectors, len(chunks), "these chunks")
    _check_dim(db, model, vectors.shape[1])
    alive = {row[0] for row in db.among("SELECT cid FROM chunks WHERE cid IN ({})", chunks)}
    some = {cid: row for cid, row in zip(chunks, vectors, strict=True) if cid in alive}
    if some:
        _remove(db, "vectors", "cid", some)
        db.insert_vectors(some, model)
        log.append(db, {"vector": some})
    return sum(cid in alive for cid in chunks)


def delete(db: Tables, ids: Sequence[str]) -> int:
    query = "SELECT rid, id, collection, path FROM records WHERE id IN ({})"
    found = list(db.among(query, list(dict.fromkeys(ids))))
    rids = [row[0] for row in found]
    cids = [row[0] for row in db.among("SELECT cid FROM chunks WHERE rid IN ({})", rids)]
    for table in ("chunks", "vectors"):
        _remove(db, table, "cid", cids)
    for table in (*db.DETAILS, "lives"):
        _remove(db, table, "rid", rids)
    _forget_files(db, [row[1:] for row in found if row[3] is not None])
    log.append(db, {"gone": cids, "record": rids})
    return len(rids)


def rename(db: Tables, old_id: str, entry: Entry) -> None:
    """Give a record another id, then write the rest of the entry over it."""
    record = entry.record
    query = "SELECT rid, id, collection, path FROM records WHERE id = ?"
    row = db.execute(query, (old_id,)).fetchone()
    if row is not None and old_id != record.id:
        delete(db, [record.id])
        db.execute("UPDATE records SET id = ? WHERE rid = ?", (record.id, row[0]))
        log.append(db, {"record": [row[0]]})
        _forget_files(db, [row[1:]])
    put(db, [entry], model=None)


def _forget_files(db: Tables, of: Sequence[Row]) -> None:
    """Those of records, given by (id, collection, path)."""
    if keys := [(root_of(*row), row[2]) for row in of]:
        db.remove("files", ("collection", "path"), keys)


def set_files(db: Tables, collection: str, states: Iterable[tuple[str, FileState]]) -> None:
    rows = [_file_row(collection, path, state) for path, state in states]
    db.insert("files", rows, replacing=2)


def _file_row(collection: str, path: str, state: FileState) -> Row:
    return collection, path, state.size, state.mtime_ns, state.digest, state.indexed_ns
