"""Records, chunks and vectors read back from DuckDB's tables: as embedded/rows.py, with few large
statements where that has many small ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from clew.storage.rows import COLUMNS, LENGTHS, held, one_model, record, titled
from clew.text.passage import passage
from clew.types import Candidate, Held, Passage, Record, Vector, Vectors

if TYPE_CHECKING:
    from clew.storage.duckdb.connection import Connection

__all__ = [
    "among",
    "chunk_texts",
    "chunks_of",
    "get",
    "known_vectors",
    "lengths",
    "names",
    "numbered",
    "passages",
    "pending",
    "texts",
    "unembedded",
    "vector_rows",
    "vectors_of",
]

INDEXED = 50
"""DuckDB looks so many values up in an index; for more it reads the whole column."""
WORTH = 20
"""Look-ups of so many each take as long as to read all of a column of long texts."""
_FIELDS = ", ".join(f"r.{name}" for name in COLUMNS.split(", "))


def among(
    db: Connection, query: str, values: Sequence[Any], *more: Any
) -> Iterator[tuple[Any, ...]]:
    """A query with IN ({}), asked in pieces that an index answers, or all at once."""
    size = INDEXED if len(values) <= INDEXED * WORTH else len(values)
    for i in range(0, len(values), max(1, size)):
        some = list(values[i : i + size])
        yield from db.execute(query.format("SELECT unnest(?)"), [some, *more])


def get(db: Connection, ids: Sequence[str]) -> list[Record]:
    """In the order asked for; unknown ids are left out."""
    found = {record.id: record for _, record in numbered(db, ids)}
    return [found[name] for name in ids if name in found]


def numbered(db: Connection, ids: Sequence[str]) -> Iterator[tuple[int, Record]]:
    """Records with their numbers, in any order."""
    if len(ids) > INDEXED * WORTH:  # a bulk load: few, if any, are there
        found = among(db, "SELECT id FROM records WHERE id IN ({})", ids)
        ids = [row[0] for row in found]
    query = f"SELECT r.rid, {_FIELDS}, r.content, r.tags, r.links FROM records AS r"
    for rid, *columns, content, tags, links in among(db, query + " WHERE r.id IN ({})", ids):
        yield rid, record(columns, content, tuple(tags), tuple(links))


def names(db: Connection, rids: Sequence[int]) -> dict[int, str]:
    return dict(db.file.names.of(db, rids))


_PASSAGE = f"""SELECT c.cid, c.first_line, c.last_line, c.heading, r.content, c."start", c."end",
                      r.tags, {_FIELDS}
               FROM chunks AS c JOIN records AS r USING (rid)"""


def passages(db: Connection, candidates: Sequence[Candidate]) -> list[Passage | None]:
    chunks = [candidate.chunk for candidate in candidates if candidate.chunk is not None]
    rows = {row[0]: row for row in among(db, _PASSAGE + " WHERE c.cid IN ({})", chunks)}
    chosen = [rows.get(candidate.chunk or 0) for candidate in candidates]
    others = [  # none named, or replaced since it was ranked
        candidate.id
        for candidate, row in zip(candidates, chosen, strict=True)
        if row is None or row[8] != candidate.id
    ]
    firsts: dict[str, tuple[Any, ...]] = {}
    for row in among(db, _PASSAGE + " WHERE r.id IN ({}) ORDER BY c.cid", others):
        firsts.setdefault(row[8], row)
    found: list[Passage | None] = []
    for candidate, best in zip(candidates, chosen, strict=True):
        fits = best is not None and best[8] == candidate.id
        of = best if fits else firsts.get(candidate.id)
        if of is None:
            found.append(None)
            continue
        cid, first, last, heading, content, start, end, tags, *columns = of
        whose = record(columns, content, tuple(tags), ())
        found.append(Passage(cid, whose, content[start:end], (first, last), heading))
    return found


def lengths(db: Connection) -> list[int]:
    """Of passages evenly spread over the store."""
    query = """SELECT "end" - "start" FROM (
                   SELECT *, row_number() OVER (ORDER BY cid) - 1 AS n, COUNT(*) OVER () AS total
                   FROM chunks)
               WHERE n % greatest(1, total // ?) = 0 ORDER BY cid LIMIT ?"""
    return [row[0] for row in db.execute(query, (LENGTHS, LENGTHS))]


def pending(db: Connection, model: str) -> list[int]:
    """The first of every file come before the second of any: a store that is embedded in part knows
    something of each. Only where there are any are all of them counted."""
    missing = "NOT IN (SELECT cid FROM vectors WHERE embedding_model = ?)"
    if db.execute(f"SELECT 1 FROM chunks WHERE cid {missing} LIMIT 1", (model,)).fetchone() is None:
        return []
    rows = db.execute(
        f"""SELECT cid FROM (
                SELECT c.cid, r.updated_at, c."end" - c."start" AS length, ROW_NUMBER() OVER (
                    PARTITION BY coalesce(r.path, r.id), r.collection
                    ORDER BY r.rid, c."start", c.cid
                ) AS number FROM chunks AS c JOIN records AS r USING (rid)
            ) AS numbered WHERE cid {missing}
            ORDER BY number, trunc(updated_at / 86400) DESC, length, cid""",
        (model,),
    )
    return [row[0] for row in rows]


def texts(db: Connection, chunks: Sequence[int]) -> list[tuple[int, str]]:
    found = {cid: text for cid, _, _, text in chunk_texts(db, chunks)}
    return [(cid, found[cid]) for cid in chunks if cid in found]


def chunk_texts(db: Connection, chunks: Sequence[int]) -> Iterator[tuple[int, int, str, str]]:
    """(chunk, record, its titles, text as it is indexed and embedded), in the order of the chunks'
    numbers."""
    if not chunks:
        return
    # The bounds are what lets DuckDB pass over most of a large table.
    places = db.execute(
        """SELECT cid, rid, heading, "start", "end" FROM chunks
           WHERE cid IN (SELECT unnest(?)) AND cid BETWEEN ? AND ? ORDER BY cid""",
        [list(chunks), min(chunks), max(chunks)],
    ).fetchall()
    rids = sorted({row[1] for row in places})
    if not rids:
        return
    found = db.execute(
        """SELECT rid, title, metadata, content FROM records
           WHERE rid IN (SELECT unnest(?)) AND rid BETWEEN ? AND ?""",
        [rids, rids[0], rids[-1]],
    )
    of = {rid: (titled(title, metadata), content) for rid, title, metadata, content in found}
    for cid, rid, heading, start, end in places:
        title, content = of[rid]
        yield cid, rid, title, passage(title, heading, content[start:end])


def vector_rows(
    db: Connection, chunks: Sequence[int], *, model: str, dim: int
) -> list[tuple[int, int, bytes]]:
    if not chunks:
        return []
    found = db.numpy(
        """SELECT v.cid, c.rid, v.embedding FROM vectors AS v JOIN chunks AS c USING (cid)
           WHERE v.cid IN (SELECT unnest(?)) AND v.cid BETWEEN ? AND ?
             AND v.embedding_model = ? AND v.embedding_dim = ? ORDER BY v.cid""",
        [list(chunks), min(chunks), max(chunks), model, dim],
    )
    rows = (_row(row).tobytes() for row in found["embedding"])
    return list(zip(found["cid"].tolist(), found["rid"].tolist(), rows, strict=True))


def _row(embedding: Any) -> Vector:
    row: Vector = np.asarray(embedding, dtype="<f4")
    return row


def known_vectors(db: Connection, chunks: Sequence[int], *, model: str) -> dict[int, Vector]:
    query = """SELECT c.cid, v.embedding FROM chunks AS c
               JOIN chunks AS same USING (digest) JOIN vectors AS v ON v.cid = same.cid
               WHERE c.cid IN (SELECT unnest(?)) AND v.embedding_model = ?"""
    if not chunks:
        return {}
    found = db.numpy(query, [list(chunks), model])
    return dict(zip(found["cid"].tolist(), map(_row, found["embedding"]), strict=True))


def vectors_of(db: Connection, ids: Sequence[str]) -> dict[str, tuple[str, Vectors]]:
    query = """SELECT r.id, v.embedding_model, v.embedding FROM records AS r
               JOIN chunks AS c USING (rid) LEFT JOIN vectors AS v USING (cid)
               WHERE r.id IN ({}) ORDER BY c.cid"""
    parts: dict[str, list[tuple[str | None, Any]]] = {}
    for name, model, embedding in among(db, query, ids):
        parts.setdefault(name, []).append((model, embedding))
    return {
        name: (model, np.stack([_row(row) for _, row in rows]))
        for name, rows in parts.items()
        if (model := one_model(rows)) is not None
    }


def chunks_of(db: Connection, ids: Sequence[str]) -> dict[str, list[Held]]:
    """In three steps, since a join would read the vectors of all records."""
    named = {rid: name for name, rid in among(db, _NUMBERS, ids)}
    query = """SELECT rid, cid, "start", "end", first_line, last_line, heading FROM chunks
               WHERE rid IN ({}) ORDER BY "start", "end", cid"""
    chunks = list(among(db, query, list(named)))
    vectors = _vectors(db, [row[1] for row in chunks])
    nothing = (None, None)
    return held((named[row[0]], *row[1:], *vectors.get(row[1], nothing)) for row in chunks)


_NUMBERS = "SELECT id, rid FROM records WHERE id IN ({})"


def _vectors(db: Connection, chunks: Sequence[int]) -> dict[int, tuple[str, Vector]]:
    """Of any model."""
    if not chunks:
        return {}
    query = """SELECT cid, embedding_model, embedding FROM vectors
               WHERE cid IN (SELECT unnest(?)) AND cid BETWEEN ? AND ?"""
    found = db.numpy(query, [list(chunks), min(chunks), max(chunks)])
    models, rows = found["embedding_model"].tolist(), map(_row, found["embedding"])
    return dict(zip(found["cid"].tolist(), zip(models, rows, strict=True), strict=True))


def unembedded(
    db: Connection, condition: str, values: Sequence[Any], *, model: str
) -> dict[tuple[str, int] | None, int]:
    """Of the records under this condition (see filters.py)."""
    found = db.execute(
        f"""SELECT v.embedding_model, v.embedding_dim, COUNT(DISTINCT r.rid)
            FROM records AS r JOIN chunks AS c USING (rid) LEFT JOIN vectors AS v USING (cid)
            WHERE {condition} AND v.embedding_model IS DISTINCT FROM ?
            GROUP BY 1, 2 ORDER BY 1, 2""",
        [*values, model],
    )
    return {None if other is None else (other, dim): count for other, dim, count in found}
