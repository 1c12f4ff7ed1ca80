"""Records, chunks and vectors as rows. Functions over a connection: the caller owns the
transaction, and every change is noted in the log within it."""

from __future__ import annotations

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
from clew.text.labels import labels
from clew.text.passage import digest, passage
from clew.types import Candidate, Entry, FileState, Passage, Record, Vector, Vectors

__all__ = [
    "chunk_texts",
    "count",
    "delete",
    "get",
    "known_vectors",
    "lengths",
    "names",
    "passages",
    "pending",
    "put",
    "rename",
    "set_file",
    "set_vectors",
    "texts",
    "texts_of",
]

LENGTHS = 64
"""Passages whose length is looked at."""
_DETAILS = ("tags", "links", "attributes", "labels")
"""Tables of a record's own, written anew when it changes."""
_COLUMNS = "id, collection, type, domain, title, path, importance, created_at, updated_at, metadata"


def put(db: sqlite3.Connection, entries: Sequence[Entry], *, model: str | None) -> list[str]:
    """Insert or replace by id. An id given twice in one batch: the last one counts."""
    last = {entry.record.id: i for i, entry in enumerate(entries)}
    known = _rids(db, list(last))
    dim = _check_vectors(db, entries, model)
    batch = _Batch(db, model, dim)
    statuses: list[str] = []
    try:
        for i, entry in enumerate(entries):
            if last[entry.record.id] != i:
                statuses.append("updated")
                continue
            rid = known.get(entry.record.id)
            statuses.append(batch.insert(entry) if rid is None else batch.replace(rid, entry))
        batch.write()
    except UnicodeEncodeError as error:
        raise InputError(_half_a_character(entries)) from error
    except OverflowError as error:
        raise InputError(f"a number is too large to be kept: {error}") from error
    return statuses


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
            f"UPDATE records SET ({_COLUMNS}) = ({', '.join('?' * 10)}) WHERE rid = ?",
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
            columns = f"(rid, {_COLUMNS})" if table == "records" else ""
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
    alive = {row[0] for row in _among(db, "SELECT cid FROM chunks WHERE cid IN ({})", chunks)}
    some = [
        (cid, model, vectors.shape[1], vector.astype("<f4").tobytes())
        for cid, vector in zip(chunks, vectors, strict=True)
        if cid in alive
    ]
    db.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?, ?, ?)", some)
    log.append(db, "vector", [row[0] for row in some])
    return len(some)


def delete(db: sqlite3.Connection, ids: Sequence[str]) -> int:
    rids = list(_rids(db, ids).values())
    cids = [row[0] for row in _among(db, "SELECT cid FROM chunks WHERE rid IN ({})", rids)]
    query = "SELECT id, collection, path FROM records WHERE path IS NOT NULL AND rid IN ({})"
    files = [(_root(*row), row[2]) for row in _among(db, query, rids)]
    _delete_chunks(db, cids)
    for table in ("records", "texts", *_DETAILS):
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


# ---------------------------------------------------------------------- reading


def get(db: sqlite3.Connection, ids: Sequence[str]) -> list[Record]:
    """In the order asked for; unknown ids are left out."""
    found: dict[str, Record] = {}
    query = f"SELECT rid, {_COLUMNS} FROM records WHERE id IN ({{}})"
    for rid, *columns in _among(db, query, ids):
        (content,) = db.execute("SELECT content FROM texts WHERE rid = ?", (rid,)).fetchone()
        tags = tuple(r[0] for r in db.execute("SELECT tag FROM tags WHERE rid = ?", (rid,)))
        links = tuple(r[0] for r in db.execute("SELECT target FROM links WHERE rid = ?", (rid,)))
        found[columns[0]] = _record(columns, content, tags, links)
    return [found[name] for name in ids if name in found]


def _record(
    columns: Sequence[Any], content: str, tags: tuple[str, ...], links: tuple[str, ...]
) -> Record:
    name, collection, kind, domain, title, path, importance, created, updated, metadata = columns
    return Record(
        id=name,
        content=content,
        title=title,
        path=path,
        collection=collection,
        type=kind,
        domain=domain,
        tags=tags,
        links=links,
        importance=importance,
        created_at=created,
        updated_at=updated,
        metadata={} if metadata == "{}" else json.loads(metadata),
    )


def names(db: sqlite3.Connection, rids: Sequence[int]) -> dict[int, str]:
    # As one JSON value: sqlite3 lets go of the interpreter lock at every row, and the other sources
    # take it. 100 rows: 0.07 ms, against 0.11 alone and 0.16 beside a busy thread.
    row = db.execute(
        """SELECT json_group_array(json_array(r.rid, r.id)) FROM json_each(?) AS j
           CROSS JOIN records AS r ON r.rid = j.value""",
        (json.dumps(rids),),
    ).fetchone()
    return dict(json.loads(row[0]))


def passages(db: sqlite3.Connection, candidates: Sequence[Candidate]) -> list[Passage | None]:
    query = f"""SELECT c.cid, c.first_line, c.last_line, c.heading, t.content, c."start", c."end",
                       (SELECT json_group_array(tag) FROM tags WHERE tags.rid = c.rid),
                       {", ".join("r." + name for name in _COLUMNS.split(", "))}
                FROM chunks AS c JOIN records AS r USING (rid) JOIN texts AS t USING (rid)"""
    chunks = [candidate.chunk for candidate in candidates if candidate.chunk is not None]
    rows = {row[0]: row for row in _among(db, query + " WHERE c.cid IN ({})", chunks)}
    found: list[Passage | None] = []
    for candidate in candidates:
        row = rows.get(candidate.chunk or 0)
        if row is None or row[8] != candidate.id:  # none named, or replaced since it was ranked
            row = db.execute(
                query + " WHERE r.id = ? ORDER BY c.cid LIMIT 1", (candidate.id,)
            ).fetchone()
            if row is None:
                found.append(None)
                continue
        cid, first, last, heading, content, start, end, tags, *columns = row
        record = _record(columns, "", () if tags == "[]" else tuple(json.loads(tags)), ())
        found.append(Passage(cid, record, content[start:end], (first, last), heading))
    return found


def count(db: sqlite3.Connection) -> int:
    """About how many records there are; asked often, so not counted."""
    low, high = db.execute("SELECT MIN(rid), MAX(rid) FROM records").fetchone()
    return 0 if low is None else int(high - low + 1)


def texts_of(db: sqlite3.Connection, rids: Sequence[int]) -> list[str]:
    """The passages of these records, as they are indexed."""
    cids = [row[0] for row in _among(db, "SELECT cid FROM chunks WHERE rid IN ({})", rids)]
    return [text for _, _, _, text in chunk_texts(db, cids)]


def lengths(db: sqlite3.Connection) -> list[int]:
    """Of passages evenly spread over the store."""
    low, high = db.execute("SELECT MIN(cid), MAX(cid) FROM chunks").fetchone()
    if low is None:
        return []
    query = 'SELECT "end" - "start" FROM chunks WHERE cid >= ? ORDER BY cid LIMIT 1'
    count = min(LENGTHS, high - low + 1)
    places = [low + (high - low) * i // max(1, count - 1) for i in range(count)]
    return [int(db.execute(query, (cid,)).fetchone()[0]) for cid in places]


def pending(db: sqlite3.Connection, model: str) -> list[int]:
    rows = db.execute(
        """SELECT c.cid FROM chunks AS c JOIN records AS r USING (rid)
           WHERE c.cid NOT IN (SELECT cid FROM vectors WHERE embedding_model = ?)
           ORDER BY CAST(r.updated_at / 86400 AS INTEGER) DESC, c."end" - c."start", c.cid""",
        (model,),
    )
    return [row[0] for row in rows]


def texts(db: sqlite3.Connection, chunks: Sequence[int]) -> list[tuple[int, str]]:
    found = {cid: text for cid, _, _, text in chunk_texts(db, chunks)}
    return [(cid, found[cid]) for cid in chunks if cid in found]


def chunk_texts(
    db: sqlite3.Connection, chunks: Sequence[int]
) -> Iterator[tuple[int, int, str, str]]:
    """(chunk, record, its title, text as it is indexed and embedded), in the order of the chunks'
    numbers.

    Texts are cut here, not by SQLite's substr: it walks a text from its beginning, and ends at NUL.
    """
    query = """SELECT c.cid, c.rid, r.title, c.heading, c."start", c."end"
               FROM chunks AS c JOIN records AS r USING (rid) WHERE c.cid IN ({})"""
    of, content = 0, ""
    for cid, rid, title, heading, start, end in sorted(_among(db, query, chunks)):
        if rid != of:
            row = db.execute("SELECT content FROM texts WHERE rid = ?", (rid,)).fetchone()
            of, content = rid, row[0] if row else ""
        yield cid, rid, title, passage(title, heading, content[start:end])


def known_vectors(
    db: sqlite3.Connection, chunks: Sequence[int], *, model: str
) -> dict[int, Vector]:
    query = """SELECT c.cid, v.embedding FROM chunks AS c
               JOIN chunks AS same USING (digest) JOIN vectors AS v ON v.cid = same.cid
               WHERE c.cid IN ({}) AND v.embedding_model = ?"""
    found = _among(db, query, chunks, model)
    return {cid: np.frombuffer(vector, "<f4") for cid, vector in found}


def _among(
    db: sqlite3.Connection, query: str, values: Sequence[Any], *more: Any
) -> Iterator[tuple[Any, ...]]:
    """A query with IN ({}), asked in pieces that SQLite takes."""
    for i in range(0, len(values), 500):
        some = values[i : i + 500]
        yield from db.execute(query.format(", ".join("?" * len(some))), [*some, *more]).fetchall()


def _rids(db: sqlite3.Connection, ids: Sequence[str]) -> dict[str, int]:
    return dict(_among(db, "SELECT id, rid FROM records WHERE id IN ({})", ids))


# ---------------------------------------------------------------------- values


def _digest(entry: Entry, start: int, end: int, number: int) -> bytes:
    heading = entry.chunks[number].heading
    return digest(passage(entry.record.title, heading, entry.record.content[start:end]))


def _row(record: Record, created: float, updated: float) -> tuple[Any, ...]:
    if not 0.0 <= record.importance <= 1.0:
        raise InputError(f"record {record.id!r}: importance {record.importance} is not in 0 … 1")
    for moment in (record.created_at, record.updated_at):
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
        and old.importance == new.importance
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
