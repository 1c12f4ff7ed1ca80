"""Records, chunks and vectors written to DuckDB's tables: as embedded/writing.py, but a whole batch
per statement, since every statement costs the same however many rows it writes."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from clew.storage import log
from clew.storage.duckdb import rows
from clew.storage.rows import COLUMNS
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
from clew.storage.writing import check_dim
from clew.types import Entry, FileState, Record, Vector, Vectors

if TYPE_CHECKING:
    from clew.storage.duckdb.connection import Connection

__all__ = ["delete", "note_changes", "put", "put_new", "rename", "set_file", "set_vectors"]

_TABLES = {
    "records": ["rid", *COLUMNS.split(", "), "tags", "links", "content"],
    "chunks": ["cid", "rid", "start", "end", "first_line", "last_line", "heading", "digest"],
    "labels": ["kind", "label", "rid"],
    "attributes": ["rid", "key", "text", "number", "whole"],
    "files": ["collection", "path", "size", "mtime_ns", "digest", "indexed_ns"],
}
_MOVED = ("start", "end", "first_line", "last_line")


def put(db: Connection, entries: Sequence[Entry], *, model: str | None) -> list[str]:
    """Insert or replace by id. An id given twice in one batch: the last one counts."""
    with writable(entries):
        return _put(db, entries, model)


def _put(db: Connection, entries: Sequence[Entry], model: str | None) -> list[str]:
    last = {entry.record.id: i for i, entry in enumerate(entries)}
    dim = check_given(entries, model)
    if dim:
        check_dim(db, model or "", dim)
    known = {record.id: (rid, record) for rid, record in rows.numbered(db, list(last))}
    batch = _Batch(db, [rid for rid, _ in known.values()], model, dim)
    statuses: list[str] = []
    for i, entry in enumerate(entries):
        if last[entry.record.id] != i:
            statuses.append("updated")
        elif (there := known.get(entry.record.id)) is None:
            statuses.append(batch.insert(entry))
        else:
            statuses.append(batch.replace(*there, entry))
    batch.write()
    return statuses


def put_new(
    db: Connection, entries: Sequence[Entry], *, model: str | None
) -> list[tuple[str, str]]:
    """Insert what is not there yet; per entry a status and the id under which the text is kept."""
    with writable(entries):
        taken = {record.id: record for record in rows.get(db, [e.record.id for e in entries])}
        fresh, kept = new_ones(entries, taken, _twins(db, entries))
        _put(db, fresh, model)
        return kept


def _twins(db: Connection, entries: Sequence[Entry]) -> Twins:
    """Records that have not ended, by what they say, for what the entries say."""
    query = """SELECT r.collection, r.type, r.content, r.valid_from, r.valid_to, r.id
               FROM records AS r
               WHERE r.ended_at IS NULL AND r.rid IN (
                   SELECT rid FROM chunks WHERE digest IN (SELECT unnest(?)))"""
    digests = first_digests(entries)
    return twins_of(db.execute(query, [digests])) if digests else {}


class _Batch:
    """Collects the rows of one `put`, so that each table is written with one statement."""

    def __init__(self, db: Connection, known: Sequence[int], model: str | None, dim: int):
        """`known` are the records of the batch that are there already."""
        self._db, self._model, self._dim = db, model, dim
        last: dict[str, int] = dict(db.execute("SELECT name, last FROM counters").fetchall())
        self._before, self._rid, self._cid = last, last["rid"], last["cid"]
        self._now = time.time()
        self._rows: dict[str, list[tuple[Any, ...]]] = {name: [] for name in _TABLES}
        self._moved: list[tuple[int, ...]] = []
        self._again: list[int] = []
        self._vectors: dict[int, Vector] = {}
        self._log: dict[str, list[int]] = {"record": [], "chunk": [], "gone": [], "vector": []}
        self._kept: dict[int, dict[bytes, list[tuple[int, ...]]]] = {}
        query = """SELECT rid, digest, cid, "start", "end", first_line, last_line FROM chunks
                   WHERE rid IN ({}) ORDER BY cid DESC"""
        for rid, words, *place in rows.among(db, query, known):
            self._kept.setdefault(rid, {}).setdefault(words, []).append(tuple(place))
        self._had: dict[int, tuple[str, Any]] = {}
        if dim and known:
            query = """SELECT cid, embedding_model, embedding FROM vectors
                       WHERE cid IN (SELECT cid FROM chunks WHERE rid IN ({}))"""
            self._had = {cid: (of, row) for cid, of, row in rows.among(db, query, known)}

    def insert(self, entry: Entry) -> str:
        self._rid += 1
        self._record(self._rid, entry, self._now, self._now)
        for number, chunk in enumerate(entry.chunks):
            self._chunk(self._rid, entry, number, digest_of(entry, chunk.start, chunk.end, number))
        return "created"

    def replace(self, rid: int, old: Record, entry: Entry) -> str:
        record = entry.record
        created = old.created_at if record.created_at is None else record.created_at
        assert created is not None
        # Chunks whose words did not change keep their number, and with it index entry and vector.
        kept = self._kept.get(rid, {})
        changed = False
        for number, chunk in enumerate(entry.chunks):
            words = digest_of(entry, chunk.start, chunk.end, number)
            place = (chunk.start, chunk.end, *chunk.lines)
            if same := kept.get(words):
                cid, *was = same.pop()
                if tuple(was) != place:
                    self._moved.append((cid, *place))
                    changed = True
                if entry.vectors is not None:
                    changed |= self._vector(cid, entry.vectors[number])
            else:
                self._chunk(rid, entry, number, words)
                changed = True
        gone = [place[0] for places in kept.values() for place in places]
        self._log["gone"] += gone
        if alike(old, record) and not changed and not gone:
            self._file(entry)
            return "unchanged"
        self._again.append(rid)
        updated = self._now if record.updated_at is None else record.updated_at
        self._record(rid, entry, created, updated)
        return "updated"

    def _record(self, rid: int, entry: Entry, created: float, updated: float) -> None:
        record, tags = entry.record, tags_of(entry.record)
        links = list(dict.fromkeys(record.links))
        row = row_of(record, created, updated)
        self._rows["records"].append((rid, *row, tags, links, record.content))
        self._rows["labels"] += (("tag", tag, rid) for tag in tags)
        self._rows["labels"] += ((kind, label, rid) for kind, label in labels_of(record))
        for key, value in dict.fromkeys(scalars(record.metadata)):
            self._rows["attributes"].append((rid, key, *_parted(value)))
        self._log["record"].append(rid)
        self._file(entry)

    def _file(self, entry: Entry) -> None:
        record, state = entry.record, entry.file
        if state is not None and record.path is not None:
            root = root_of(record.id, record.collection, record.path)
            self._rows["files"].append((root, record.path, *_state(state)))

    def _chunk(self, rid: int, entry: Entry, number: int, words: bytes) -> None:
        chunk = entry.chunks[number]
        self._cid += 1
        place = (chunk.start, chunk.end, *chunk.lines)
        self._rows["chunks"].append((self._cid, rid, *place, chunk.heading, words))
        self._log["chunk"].append(self._cid)
        if entry.vectors is not None:
            self._vector(self._cid, entry.vectors[number])

    def _vector(self, cid: int, vector: Vector) -> bool:
        """Whether it is another one than is there already."""
        row = vector.astype("<f4")
        had = self._had.get(cid)
        if had is not None and had[0] == self._model and np.array_equal(np.float32(had[1]), row):
            return False
        self._vectors[cid] = row
        self._log["vector"].append(cid)
        return True

    def write(self) -> None:
        db = self._db
        _remove(db, "rid", self._again, "records", "labels", "attributes")
        _remove(db, "cid", self._log["gone"], "chunks", "vectors")
        _remove(db, "cid", [cid for cid in self._vectors if cid in self._had], "vectors")
        if self._moved:
            sets = ", ".join(f'"{name}" = m."{name}"' for name in _MOVED)
            given = ", ".join(f'unnest(?) AS "{name}"' for name in ("cid", *_MOVED))
            query = f"UPDATE chunks SET {sets} FROM (SELECT {given}) AS m WHERE chunks.cid = m.cid"
            db.execute(query, [list(column) for column in zip(*self._moved, strict=True)])
        _set_files(db, self._rows.pop("files"))
        for table, some in self._rows.items():
            db.insert(table, _columns(table, some))
        if self._vectors:
            _add_vectors(db, self._vectors, self._model or "")
        for name, last in (("rid", self._rid), ("cid", self._cid)):
            if last != self._before[name]:
                db.execute("UPDATE counters SET last = ? WHERE name = ?", (last, name))
        note_changes(db, self._log)


def _columns(table: str, some: Sequence[tuple[Any, ...]]) -> dict[str, list[Any]]:
    names = _TABLES[table]
    columns = zip(*some, strict=True) if some else ([] for _ in names)
    return {name: list(column) for name, column in zip(names, columns, strict=True)}


def _parted(value: str | int | float | None) -> tuple[str | None, float | None, int | None]:
    """A scalar as text, as a number, as a whole one."""
    if value is None or isinstance(value, str):
        return value, None, None
    return None, float(value), value if isinstance(value, int) else None


def _add_vectors(db: Connection, given: Mapping[int, Vector], model: str) -> None:
    table = np.stack(list(given.values()))
    count, dim = table.shape
    columns = {
        "cid": np.fromiter(given, dtype=np.int64, count=count),
        "embedding_model": np.full(count, model, dtype=object),
        "embedding_dim": np.full(count, dim, dtype=np.int32),
    }
    db.insert_vectors(columns, table)


def _remove(db: Connection, key: str, numbers: Iterable[int], *tables: str) -> None:
    if some := list(numbers):
        for table in tables:
            db.execute(f"DELETE FROM {table} WHERE {key} IN (SELECT unnest(?))", [some])


def note_changes(db: Connection, changed: Mapping[str, Iterable[int]]) -> None:
    """Append to the change log: kinds and their numbers."""
    some = [row for kind, numbers in changed.items() for row in log.rows(kind, numbers)]
    if some:
        seq = log.head(db)[0]
        kinds, firsts, lasts, tokens = map(list, zip(*some, strict=True))
        numbers = list(range(seq + 1, seq + 1 + len(some)))
        columns = {"seq": numbers, "kind": kinds, "first": firsts, "last": lasts, "token": tokens}
        db.insert("changes", columns)


def set_vectors(db: Connection, chunks: Sequence[int], vectors: Vectors, *, model: str) -> int:
    vectors = float32(vectors, len(chunks), "these chunks")
    check_dim(db, model, vectors.shape[1])
    alive = {row[0] for row in rows.among(db, "SELECT cid FROM chunks WHERE cid IN ({})", chunks)}
    some = {cid: row for cid, row in zip(chunks, vectors, strict=True) if cid in alive}
    if some:
        _remove(db, "cid", some, "vectors")
        _add_vectors(db, some, model)
        note_changes(db, {"vector": some})
    return sum(cid in alive for cid in chunks)


def delete(db: Connection, ids: Sequence[str]) -> int:
    query = "SELECT rid, id, collection, path FROM records WHERE id IN ({})"
    found = list(rows.among(db, query, list(dict.fromkeys(ids))))
    rids = [row[0] for row in found]
    cids = [row[0] for row in rows.among(db, "SELECT cid FROM chunks WHERE rid IN ({})", rids)]
    _remove(db, "cid", cids, "chunks", "vectors")
    _remove(db, "rid", rids, "records", "labels", "attributes", "lives")
    files = [(root_of(*row[1:]), row[3]) for row in found if row[3] is not None]
    _forget_files(db, files)
    note_changes(db, {"gone": cids, "record": rids})
    return len(rids)


def rename(db: Connection, old_id: str, entry: Entry) -> None:
    """Give a record another id, then write the rest of the entry over it."""
    record = entry.record
    row = db.execute("SELECT rid, collection, path FROM records WHERE id = ?", (old_id,)).fetchone()
    if row is None or old_id == record.id:
        put(db, [entry], model=None)
        return
    delete(db, [record.id])
    db.execute("UPDATE records SET id = ? WHERE rid = ?", (record.id, row[0]))
    note_changes(db, {"record": [row[0]]})
    _forget_files(db, [(root_of(old_id, *row[1:]), row[2])])
    put(db, [entry], model=None)


def _forget_files(db: Connection, files: Sequence[tuple[str, str | None]]) -> None:
    if files:
        roots, paths = map(list, zip(*files, strict=True))
        db.execute(
            """DELETE FROM files USING (SELECT unnest(?) AS root, unnest(?) AS place) AS gone
               WHERE files.collection = gone.root AND files.path = gone.place""",
            [roots, paths],
        )


def _set_files(db: Connection, some: Sequence[tuple[Any, ...]]) -> None:
    newest = {row[:2]: row for row in some}
    _forget_files(db, list(newest))
    db.insert("files", _columns("files", list(newest.values())))


def set_file(db: Connection, collection: str, path: str, state: FileState) -> None:
    _set_files(db, [(collection, path, *_state(state))])


def _state(state: FileState) -> tuple[int, int, str, int]:
    return state.size, state.mtime_ns, state.digest, state.indexed_ns
