"""Writing records with their chunks and vectors: checked, digested, compared, and then a batch of
rows. Functions over a connection: the caller owns the transaction, and every change is noted in the
log within it."""

from __future__ import annotations

import contextlib
import json
import math
import re
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any

import numpy as np

from clew.errors import InputError
from clew.storage import log
from clew.storage.checksum import are_sound, seal_records, sum_chunk, sum_record
from clew.storage.rows import dim_of, get, rids_of
from clew.storage.tables import Row, Tables, remove
from clew.text.passage import digest, labels, passage, titles
from clew.types import Entry, FileState, Record, Vector, Vectors

_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False)
_HALF = re.compile("[\ud800-\udfff]")
_SAME = attrgetter(
    *("content", "title", "path", "collection", "type", "domain"),
    *("importance", "ended_at", "valid_from", "valid_to"),
)


def put(db: Tables, entries: Sequence[Entry], *, model: str | None) -> list[str]:
    """Insert or replace by id. An id given twice in one batch: the last one counts."""
    with explain_unwritable(entries):
        last = {entry.record.id: i for i, entry in enumerate(entries)}
        dim = check_vectors(entries, model)
        if dim:
            check_dim(db, model or "", dim)
        batch = _Batch(db, list(last), model, dim)
        statuses = [
            batch.add(entry) if last[entry.record.id] == i else "updated"
            for i, entry in enumerate(entries)
        ]
        batch.write()
        return statuses


def put_new(db: Tables, entries: Sequence[Entry], *, model: str | None) -> list[tuple[str, str]]:
    """Insert what is not there yet; per entry a status and the id under which the text is kept."""
    with explain_unwritable(entries):
        there = get(db, [entry.record.id for entry in entries], damaged=set())
        query = f"""SELECT r.collection, r.type, {db.CONTENT}, r.valid_from, r.valid_to, r.id
                    FROM chunks AS c JOIN records AS r USING (rid) {db.TEXTS}
                    WHERE {db.DIGEST.format("c")} IN ({{}}) AND r.ended_at IS NULL"""
        digests = [db.as_digest(passage_digest(entry, 0)) for entry in entries if entry.chunks]
        fresh, kept = find_new(entries, there, db.among(query, digests))
        put(db, fresh, model=model)
    return kept


def find_new(
    entries: Sequence[Entry], there: Iterable[Record], alike: Iterable[Row]
) -> tuple[list[Entry], list[tuple[str, str]]]:
    """The entries that are new, and per entry a status and the id under which its text is kept.
    `there` are the records of the same ids, `alike` (collection, type, content, valid_from,
    valid_to, id) of those in use that may say the same."""
    twins: dict[Row, str] = {}
    """Records in use, by what they say and when that is true."""

    def add_twin(collection: str, type: str, content: str, *rest: Any) -> None:
        """What is told without a time is the same as what has no end."""
        since, until, name = rest
        twins[collection, type, content, since, until] = name
        if until is None:
            twins.setdefault((collection, type, content, None, None), name)

    fresh: list[Entry] = []
    kept: list[tuple[str, str]] = []
    taken = {record.id: record for record in there}
    for row in alike:
        add_twin(*row)
    for entry in entries:
        record = entry.record
        told = record.collection, record.type, record.content
        if (same := taken.get(record.id)) is not None:
            if (same.collection, same.type, same.content) != told:
                raise InputError(
                    f"the id {record.id!r} is taken by another text: leave the id out, or "
                    "update or supersede that one"
                )
            kept.append(("duplicate", record.id))
            continue
        said = (*told, record.valid_from, record.valid_to)
        if (twin := twins.get(said)) is not None:
            kept.append(("duplicate", twin))
        else:
            fresh.append(entry)
            taken[record.id] = record
            add_twin(*said, record.id)
            kept.append(("created", record.id))
    return fresh, kept


class _Batch:
    """Collects the rows of one `put`, so that each table is written with one statement."""

    def __init__(self, db: Tables, ids: Sequence[str], model: str | None, dim: int):
        self._db, self._model = db, model
        self._rid, self._cid = self._before = db.last_numbers()
        self._now = time.time()
        self._rows: defaultdict[str, list[Row]] = defaultdict(list)
        self._again: list[int] = []
        self._moved: list[int] = []
        self._vectors: dict[int, Vector] = {}
        self._log: dict[str, list[int]] = {"record": [], "chunk": [], "gone": [], "vector": []}
        self._known = rids_of(db, ids)  # of a bulk load few, if any, are there
        rids = list(self._known.values())
        """Those that are as they were written; what is not is written over."""
        self._old = {record.id: record for record in get(db, list(self._known), damaged=set())}
        self._chunks: dict[int, dict[bytes, list[tuple[Any, ...]]]] = {}
        query = """SELECT rid, digest, cid, "start", "end", first_line, last_line, heading, checksum
                   FROM chunks WHERE rid IN ({}) ORDER BY cid DESC"""
        cids: list[int] = []
        for rid, words, *place in db.among(query, rids):
            self._chunks.setdefault(rid, {}).setdefault(words, []).append(tuple(place))
            cids.append(place[0])
        self._had: dict[int, tuple[str, Vector]] = {}
        if dim and rids:
            query = """SELECT cid, embedding_model, checksum, embedding FROM vectors
                       WHERE cid IN ({})"""
            self._had = {cid: (of, row) for cid, of, row in db.with_vectors(query, cids)}

    def add(self, entry: Entry) -> str:
        record = entry.record
        old, known = self._old.get(record.id), self._known.get(record.id)
        if known is None:
            self._rid += 1
        rid = self._rid if known is None else known
        changed = self._add_chunks(rid, entry)
        if entry.file is not None and record.path is not None:
            root = root_of(record.id, record.collection, record.path)
            self._rows["files"].append(file_row(root, record.path, entry.file))
        if old is not None and not changed and alike(old, record):
            return "unchanged"
        if known is not None:
            self._again.append(rid)
        created = self._now if old is None or old.created_at is None else old.created_at
        columns = record_columns(record, created, self._now)
        links = list(dict.fromkeys(record.links))
        checksum = sum_record(columns, tags_of(record), record.content, links)
        for table, row in self._db.detail_rows(rid, (*columns, checksum), record):
            self._rows[table].append(row)
        self._log["record"].append(rid)
        return "created" if known is None else "updated"

    def _add_chunks(self, rid: int, entry: Entry) -> bool:
        """Whether any is another one than before. Chunks whose words did not change keep their
        number, and with it index entry and vector."""
        before = self._chunks.get(rid, {})
        changed = False
        for number, chunk in enumerate(entry.chunks):
            words = passage_digest(entry, number)
            place = (chunk.start, chunk.end, *chunk.lines)
            text = entry.record.content[chunk.start : chunk.end]
            was: tuple[Any, ...] = ()
            kept: int | None = None
            if same := before.get(words):
                cid, *rest, kept = same.pop()
                was = tuple(rest)
            else:
                cid = self._cid = self._cid + 1
                self._log["chunk"].append(cid)
            checksum = sum_chunk((cid, rid, *place), chunk.heading, words, text)
            if was != (*place, chunk.heading) or kept not in (None, checksum):
                if was:
                    self._moved.append(cid)
                self._rows["chunks"].append((cid, rid, *place, chunk.heading, words, checksum))
                changed = True
            if entry.vectors is not None:
                changed |= self._add_vector(cid, entry.vectors[number])
        gone = [place[0] for places in before.values() for place in places]
        self._log["gone"] += gone
        return changed or bool(gone)

    def _add_vector(self, cid: int, vector: Vector) -> bool:
        """Whether it is another one than is there already."""
        row = vector.astype("<f4", copy=False)
        had = self._had.get(cid)
        if had is not None and had[0] == self._model and np.array_equal(had[1], row):
            return False
        self._vectors[cid] = row
        self._log["vector"].append(cid)
        return True

    def write(self) -> None:
        db, gone = self._db, self._log["gone"]
        for table in db.DETAILS:
            remove(db, table, "rid", self._again)
        remove(db, "chunks", "cid", gone + self._moved)
        remove(db, "vectors", "cid", gone + [c for c in self._vectors if c <= self._before[1]])
        db.insert("files", self._rows.pop("files", ()), replacing=2)
        for table, rows in self._rows.items():
            db.insert(table, rows)
        if self._vectors:
            db.insert_vectors(self._vectors, self._model or "")
        if (self._rid, self._cid) != self._before:
            db.note_numbers(self._rid, self._cid)
        log.append(db, self._log)


def delete(db: Tables, ids: Sequence[str]) -> int:
    query = "SELECT rid, id, collection, path FROM records WHERE id IN ({})"
    found = list(db.among(query, list(dict.fromkeys(ids))))
    rids = [row[0] for row in found]
    cids = [row[0] for row in db.among("SELECT cid FROM chunks WHERE rid IN ({})", rids)]
    for table in ("chunks", "vectors"):
        remove(db, table, "cid", cids)
    for table in (*db.DETAILS, "lives"):
        remove(db, table, "rid", rids)
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
        sound = are_sound(db, [row[0]])
        db.execute("UPDATE records SET id = ? WHERE rid = ?", (record.id, row[0]))
        seal_records(db, sound)
        log.append(db, {"record": [row[0]]})
        _forget_files(db, [row[1:]])
    put(db, [entry], model=None)


def _forget_files(db: Tables, of: Sequence[Row]) -> None:
    """Forget the states of records' files, given by (id, collection, path). A table that loses a
    row has others, which go by its state: it stays, and says that the file is to be read again."""
    gone = {(root_of(*row), row[2]) for row in of if not is_row(row[0], row[2])}
    for key in {(root_of(*row), row[2]) for row in of} - gone:
        query = "UPDATE files SET digest = '', indexed_ns = 0 WHERE collection = ? AND path = ?"
        db.execute(query, key)
    if gone:
        db.remove("files", ("collection", "path"), list(gone))


def file_row(collection: str, path: str, state: FileState) -> Row:
    return collection, path, state.size, state.mtime_ns, state.digest, state.indexed_ns


# ---------------------------------------------------------------------- what can be written


@contextlib.contextmanager
def explain_unwritable(entries: Sequence[Entry]) -> Iterator[None]:
    """What a database cannot take, in words that name the record."""
    try:
        yield
    except UnicodeEncodeError as error:
        half = (f"record {e.record.id!r}" for e in entries if _has_half_a_character(e.record))
        which = next(half, "a record")
        raise InputError(f"{which} has half a character (a lone surrogate) in it") from error
    except OverflowError as error:
        raise InputError(f"a number is too large to be kept: {error}") from error


def _has_half_a_character(record: Record) -> bool:
    texts = (record.id, record.title, record.path or "", record.content, _json(record))
    named = (record.collection, record.type, record.domain, *record.tags, *record.links)
    return any(_HALF.search(text) for text in (*texts, *named))


def possible_ids(ids: Sequence[str]) -> Sequence[str]:
    """Ids that a record can have: none has half a character in it."""
    if any(not name.isascii() and _HALF.search(name) for name in ids):
        return [name for name in ids if not _HALF.search(name)]
    return ids


def check_vectors(entries: Sequence[Entry], model: str | None) -> int:
    """The dimension of the given vectors (0: none given), after making sure that they fit each
    other."""
    given = [(e.record.id, len(e.chunks), e.vectors) for e in entries if e.vectors is not None]
    if not given:
        return 0
    if model is None:
        raise InputError("vectors were given without naming the model that made them")
    dims: dict[int, None] = {}
    for name, count, rows in given:
        check_shape(rows, count, f"record {name!r}")
        dims[rows.shape[1]] = None
    if len(dims) > 1:
        widths = " and of ".join(map(str, dims))
        raise InputError(f"vectors of {widths} dimensions in one batch")
    try:  # all at once: one by one it would take as long as writing them
        float32(together := np.concatenate([rows for _, _, rows in given]), len(together), "")
    except InputError:
        for name, count, rows in given:
            float32(rows, count, f"record {name!r}")
        raise
    return next(iter(dims))


def check_dim(db: Tables, model: str, dim: int) -> None:
    """An InputError unless the vectors of this model have as many dimensions."""
    known = dim_of(db, model)
    if known not in (0, dim):
        raise InputError(
            f"this store's vectors of {model} have {known} dimensions, the given ones {dim}: "
            "use the same model, or name another"
        )


def float32(vectors: Vectors, count: int, of: str) -> Vectors:
    """Vectors as they are kept, one row per chunk, or an error that says what is wrong."""
    check_shape(vectors, count, of)
    with np.errstate(over="ignore"):
        rows = vectors.astype("<f4", copy=False)
    if not np.isfinite(rows).all():
        raise InputError(f"{of}: a vector has NaN or infinity in it")
    return rows


def check_shape(vectors: Vectors, count: int, of: str) -> None:
    if vectors.ndim != 2 or len(vectors) != count or not vectors.shape[1]:
        raise InputError(f"{of}: {count} chunks but vectors of shape {vectors.shape}")


# ---------------------------------------------------------------------- what entries come to


def tags_of(record: Record) -> list[str]:
    """Tags as they are kept: folded, each once."""
    if not record.tags:
        return []
    return list(dict.fromkeys(tag.lstrip("#").casefold() for tag in record.tags))


def root_of(id: str, collection: str, path: str | None) -> str:
    """The collection whose folder a file is in: `notes:a/b.md` is notes', even where the settings
    give the record to another one. So is a row of it, `notes:a/b.csv#17`."""
    if id.endswith(f":{path}"):
        return id.removesuffix(f":{path}")
    return id.partition(f":{path}#")[0] if is_row(id, path) else collection


def is_row(id: str, path: str | None) -> bool:
    """Whether a record is a row of the table in the file at `path`, and not the file itself."""
    return path is not None and not id.endswith(f":{path}") and f":{path}#" in id


def labels_of(record: Record) -> Iterator[tuple[str, str]]:
    """What its path says of a record. A thousand rows of one table are not a thousand files of its
    name: only the table's own record goes by it."""
    if record.path is not None and not is_row(record.id, record.path):
        yield from labels(record.path)


def passage_digest(entry: Entry, number: int) -> bytes:
    """The digest of the words of one of its chunks."""
    record, chunk = entry.record, entry.chunks[number]
    title = titles(record.title, record.metadata)
    return digest(passage(title, chunk.heading, record.content[chunk.start : chunk.end]))


def record_columns(record: Record, created: float, updated: float) -> Row:
    moments = record.ended_at, record.valid_from, record.valid_to
    for moment in (record.created_at, record.updated_at, *moments):
        if moment is not None and not math.isfinite(moment):
            raise InputError(f"record {record.id!r}: {moment} is no moment in time")
    return (
        *(record.id, record.collection, record.type, record.domain, record.title, record.path),
        record.importance,
        created if record.created_at is None else record.created_at,
        updated if record.updated_at is None else record.updated_at,
        _json(record),
        *moments,
    )


def _json(record: Record) -> str:
    try:
        return _ENCODER.encode(dict(record.metadata))
    except (TypeError, ValueError) as error:
        raise InputError(f"record {record.id!r}: metadata cannot be kept: {error}") from error


def alike(old: Record, new: Record) -> bool:
    """Whether writing `new` would change anything that can be read back."""
    return (
        _SAME(old) == _SAME(new)
        and (new.updated_at is None or old.updated_at == new.updated_at)
        and (new.created_at is None or old.created_at == new.created_at)
        and set(old.tags) == set(tags_of(new))
        and set(old.links) == set(new.links)
        and json.dumps(old.metadata, sort_keys=True)
        == json.dumps(json.loads(_json(new)), sort_keys=True)
    )


def storable(value: Any) -> Any:
    """A database's integers have 64 bits: a larger one is compared as a float."""
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return float(value)
    return value


def scalars(metadata: Mapping[str, Any]) -> Iterator[tuple[str, str | int | float | None]]:
    """What can be filtered by: scalars, and each scalar of a list. A value that is neither leaves
    a None behind, which says that the key is there."""
    for key, value in metadata.items():
        if isinstance(value, (str, float)):
            yield key, value
            continue
        members = value if isinstance(value, (list, tuple)) else (value,)
        scalars = [m for m in members if isinstance(m, (str, int, float))]
        for scalar in scalars:
            yield key, int(scalar) if isinstance(scalar, bool) else storable(scalar)
        if not scalars and value is not None:
            yield key, None
