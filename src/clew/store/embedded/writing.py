"""Records, chunks and vectors written as rows. Functions over a connection: the caller owns the
transaction, and every change is noted in the log within it."""

from __future__ import annotations

import contextlib
import json
import math
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from clew.errors import InputError
from clew.store.embedded import log
from clew.store.embedded.filters import storable
from clew.store.embedded.rows import COLUMNS, among, get, rids_of
from clew.text.labels import labels
from clew.text.passage import digest, passage
from clew.types import Entry, FileState, Record, Vector, Vectors

__all__ = ["delete", "put", "put_new", "rename", "set_file", "set_vectors"]

_DETAILS = ("tags", "links", "attributes", "labels")
"""Tables of a record's own, written anew when it changes."""


@contextlib.contextmanager
def _writable(entries: Sequence[Entry]) -> Iterator[None]:
    """What SQLite cannot take, in words that name the record."""
    try:
        yield
    except UnicodeEncodeError as error:
        raise InputError(_half_a_character(entries)) from error
    except OverflowError as error:
        raise InputError(f"a number is too large to be kept: {error}") from error


def put(db: sqlite3.Connection, entries: Sequence[Entry], *, model: str | None) -> list[str]:
    """Insert or replace by id. An id given twice in one batch: the last one counts."""
    with _writable(entries):
        return _put(db, entries, model)


def _put(db: sqlite3.Connection, entries: Sequence[Entry], model: str | None) -> list[str]:
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


def put_new(
    db: sqlite3.Connection, entries: Sequence[Entry], *, model: str | None
) -> list[tuple[str, str]]:
    """Insert what is not there yet; per entry a status and the id under which the text is kept."""
    with _writable(entries):
        return _put_new(db, entries, model)


def _put_new(
    db: sqlite3.Connection, entries: Sequence[Entry], model: str | None
) -> list[tuple[str, str]]:
    ids = [entry.record.id for entry in entries]
    taken = {record.id: record for record in get(db, ids)}
    twins = _twins(db, entries)
    fresh: list[Entry] = []
    kept: list[tuple[str, str]] = []
    for entry in entries:
        record = entry.record
        if (there := taken.get(record.id)) is not None:
            if _told_by(there) != _told_by(record):
                raise InputError(
                    f"the id {record.id!r} is taken by another text: leave the id out, or use "
                    "update() or supersede()"
                )
            kept.append(("duplicate", record.id))
        elif (twin := twins.get(_told_by(record))) is not None:
            kept.append(("duplicate", twin))
        else:
            fresh.append(entry)
            taken[record.id] = record
            twins[_told_by(record)] = record.id
            kept.append(("created", record.id))
    _put(db, fresh, model)
    return kept


def _told_by(record: Record) -> tuple[str, str, str]:
    """Two records that agree in this say the same to the same."""
    return record.collection, record.type, record.content


def _twins(db: sqlite3.Connection, entries: Sequence[Entry]) -> dict[tuple[str, str, str], str]:
    """Records that have not ended, by what they say, for what the entries say."""
    digests = [
        _digest(entry, entry.chunks[0].start, entry.chunks[0].end, 0)
        for entry in entries
        if entry.chunks
    ]
    query = """SELECT r.collection, r.type, t.content, r.id FROM chunks AS c
               JOIN records AS r USING (rid) JOIN texts AS t USING (rid)
               WHERE c.digest IN ({}) AND r.ended_at IS NULL"""
    return {row[:3]: row[3] for row in among(db, query, digests)}


def _half_a_character(entries: Sequence[Entry]) -> str:
    for record in (entry.record for entry in entries):
        texts = (record.id, record.title, record.path or "", record.content, _json(record))
        named = (record.collection, record.type, record.domain, *record.tags, *record.links)
        if any("\ud800" <= c <= "\udfff" for text in (*texts, *named) for c in text):
            return f"record {record.id!r} has half a character (a lone surrogate) in it"
    return "a record has half a character (a lone surrogate) in it"


class _Batch:
    """Collects the rows of one `put`, so that each table is written with one statement.

    Numbers are given here rather than by SQLite: within a write transaction nobody else can.
    """

    def __init__(self, db: sqlite3.Connection, model: str | None, dim: int):
        self._db, self._model, self._dim = db, model, dim
        sequence = dict(db.execute("SELECT name, seq FROM sqlite_sequence").fetchall())
        self._rid: int = sequence.get("records", 0)
        self._cid: int = sequence.get("chunks", 0)
        self._now = time.time()
        self._rows: dict[str, list[tuple[Any, ...]]] = {}
        self._log: dict[str, list[int]] = {"record": [], "chunk": [], "gone": [], "vector": []}

    def insert(self, entry: Entry) -> str:
        self._rid += 1
        self._add("records", self._rid, *_row(entry.record, self._now, self._now))
        self._add("texts", self._rid, entry.record.content)
        self._details(self._rid, entry)
        if entry.file is not None and entry.record.path is not None:
            self._file(entry.record, entry.file)
        for number, chunk in enumerate(entry.chunks):
            self._chunk(self._rid, entry, number, _digest(entry, chunk.start, chunk.end, number))
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
            words = _digest(entry, chunk.start, chunk.end, number)
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
        if _same(old, record) and not changed and not gone:
            return "unchanged"
        for table in _DETAILS:
            db.execute(f"DELETE FROM {table} WHERE rid = ?", (rid,))
        self._details(rid, entry)
        updated = self._now if record.updated_at is None else record.updated_at
        db.execute(
            f"UPDATE records SET ({COLUMNS}) = ({', '.join('?' * 11)}) WHERE rid = ?",
            (*_row(record, created, updated), rid),
        )
        db.execute("UPDATE texts SET content = ? WHERE rid = ?", (record.content, rid))
        self._log["record"].append(rid)
        return "updated"

    def _file(self, record: Record, state: FileState) -> None:
        assert record.path is not None
        root = _root(record.id, record.collection, record.path)
        set_file(self._db, root, record.path, state)

    def _details(self, rid: int, entry: Entry) -> None:
        record = entry.record
        for tag in dict.fromkeys(tag.lstrip("#").casefold() for tag in record.tags):
            self._add("tags", tag, rid)
        for target in dict.fromkeys(record.links):
            self._add("links", rid, target)
        for key, value in dict.fromkeys(_scalars(record.metadata)):
            self._add("attributes", key, value, rid)
        if record.path is not None:
            for kind, label in labels(record.path):
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


def _check_vectors(db: sqlite3.Connection, entries: Sequence[Entry], model: str | None) -> int:
    """The dimension of the given vectors (0: none given), after making sure that they fit."""
    dim = 0
    for entry in entries:
        if entry.vectors is None:
            continue
        if model is None:
            raise InputError("vectors were given without naming the model that made them")
        rows = _float32(entry.vectors, len(entry.chunks), f"record {entry.record.id!r}")
        if dim and rows.shape[1] != dim:
            raise InputError(f"vectors of {dim} and of {rows.shape[1]} dimensions in one batch")
        dim = rows.shape[1]
    if dim:
        _check_dim(db, model or "", dim)
    return dim


def _float32(vectors: Vectors, count: int, of: str) -> Vectors:
    """As they are kept, one row per chunk, or an error that says what is wrong."""
    if vectors.ndim != 2 or len(vectors) != count or not vectors.shape[1]:
        raise InputError(f"{of}: {count} chunks but vectors of shape {vectors.shape}")
    with np.errstate(over="ignore"):
        rows = vectors.astype("<f4", copy=False)
    if not np.isfinite(rows).all():
        raise InputError(f"{of}: a vector has NaN or infinity in it")
    return rows


def _check_dim(db: sqlite3.Connection, model: str, dim: int) -> None:
    known = db.execute(
        "SELECT embedding_dim FROM vectors WHERE embedding_model = ? LIMIT 1", (model,)
    ).fetchone()
    if known and known[0] != dim:
        raise InputError(
            f"this store's vectors of {model} have {known[0]} dimensions, the given ones {dim}: "
            "use the same model, or name another"
        )


def set_vectors(
    db: sqlite3.Connection, chunks: Sequence[int], vectors: Vectors, *, model: str
) -> int:
    vectors = _float32(vectors, len(chunks), "these chunks")
    _check_dim(db, model, vectors.shape[1])
    alive = {row[0] for row in among(db, "SELECT cid FROM chunks WHERE cid IN ({})", chunks)}
    some = [
        (cid, model, vectors.shape[1], vector.astype("<f4").tobytes())
        for cid, vector in zip(chunks, vectors, strict=True)
        if cid in alive
    ]
    db.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?, ?, ?)", some)
    log.append(db, "vector", [row[0] for row in some])
    return len(some)


def delete(db: sqlite3.Connection, ids: Sequence[str]) -> int:
    rids = list(rids_of(db, ids).values())
    cids = [row[0] for row in among(db, "SELECT cid FROM chunks WHERE rid IN ({})", rids)]
    query = "SELECT id, collection, path FROM records WHERE path IS NOT NULL AND rid IN ({})"
    files = [(_root(*row), row[2]) for row in among(db, query, rids)]
    _delete_chunks(db, cids)
    for table in ("records", "texts", "lives", *_DETAILS):
        db.executemany(f"DELETE FROM {table} WHERE rid = ?", [(rid,) for rid in rids])
    db.executemany("DELETE FROM files WHERE collection = ? AND path = ?", files)
    log.append(db, "gone", cids)
    log.append(db, "record", rids)
    return len(rids)


def _delete_chunks(db: sqlite3.Connection, cids: Sequence[int]) -> None:
    for table in ("chunks", "vectors"):
        db.executemany(f"DELETE FROM {table} WHERE cid = ?", [(cid,) for cid in cids])


def rename(db: sqlite3.Connection, old_id: str, entry: Entry) -> None:
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
        "DELETE FROM files WHERE collection = ? AND path = ?", (_root(old_id, *row[1:]), row[2])
    )
    put(db, [entry], model=None)


def _root(id: str, collection: str, path: str | None) -> str:
    """The collection whose folder a file is in: `notes:a/b.md` is notes', even where the settings
    give the record to another one."""
    return id.removesuffix(f":{path}") if id.endswith(f":{path}") else collection


def set_file(db: sqlite3.Connection, collection: str, path: str, state: FileState) -> None:
    db.execute(
        "INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?, ?, ?)",
        (collection, path, state.size, state.mtime_ns, state.digest, state.indexed_ns),
    )


def _digest(entry: Entry, start: int, end: int, number: int) -> bytes:
    heading = entry.chunks[number].heading
    return digest(passage(entry.record.title, heading, entry.record.content[start:end]))


def _row(record: Record, created: float, updated: float) -> tuple[Any, ...]:
    if not 0.0 <= record.importance <= 1.0:
        raise InputError(f"record {record.id!r}: importance {record.importance} is not in 0 … 1")
    for moment in (record.created_at, record.updated_at, record.ended_at):
        if moment is not None and not math.isfinite(moment):
            raise InputError(f"record {record.id!r}: {moment} is no moment in time")
    return (
        record.id,
        record.collection,
        record.type,
        record.domain,
        record.title,
        record.path,
        record.importance,
        created if record.created_at is None else record.created_at,
        updated if record.updated_at is None else record.updated_at,
        _json(record),
        record.ended_at,
    )


def _json(record: Record) -> str:
    try:
        return json.dumps(dict(record.metadata), ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InputError(f"record {record.id!r}: metadata cannot be kept: {error}") from error


def _same(old: Record, new: Record) -> bool:
    """Whether writing `new` would change anything that can be read back."""
    return (
        old.content == new.content
        and old.title == new.title
        and old.path == new.path
        and (old.collection, old.type, old.domain) == (new.collection, new.type, new.domain)
        and (old.importance, old.ended_at) == (new.importance, new.ended_at)
        and (new.updated_at is None or old.updated_at == new.updated_at)
        and (new.created_at is None or old.created_at == new.created_at)
        and set(old.tags) == {tag.lstrip("#").casefold() for tag in new.tags}
        and set(old.links) == set(new.links)
        and json.dumps(old.metadata, sort_keys=True)
        == json.dumps(json.loads(_json(new)), sort_keys=True)
    )


def _scalars(metadata: Mapping[str, Any]) -> Iterator[tuple[str, str | int | float | None]]:
    """What can be filtered by: scalars, and each scalar of a list. A value that is neither leaves
    a None behind, which says that the key is there."""
    for key, value in metadata.items():
        members = value if isinstance(value, (list, tuple)) else (value,)
        scalars = [m for m in members if isinstance(m, (str, int, float))]
        for scalar in scalars:
            yield key, int(scalar) if isinstance(scalar, bool) else storable(scalar)
        if not scalars and value is not None:
            yield key, None
