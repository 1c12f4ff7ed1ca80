"""Records, chunks and vectors read back from their rows. Functions over a connection."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from clew.storage.tables import Tables
from clew.text.passage import passage, titles
from clew.types import Candidate, Chunk, Held, Passage, Record, Vector, Vectors

__all__ = [
    "COLUMNS",
    "among",
    "chunk_texts",
    "chunks_of",
    "count",
    "get",
    "held",
    "known_vectors",
    "lengths",
    "names",
    "one_model",
    "passages",
    "pending",
    "record",
    "rids_of",
    "sizes_of",
    "texts",
    "texts_of",
    "titled",
    "unembedded",
    "vector_rows",
    "vectors_of",
]

LENGTHS = 64
"""Passages whose length is looked at."""
COLUMNS = (
    "id, collection, type, domain, title, path, importance, created_at, updated_at, metadata, "
    "ended_at, valid_from, valid_to"
)


def get(db: Tables, ids: Sequence[str]) -> list[Record]:
    """In the order asked for; unknown ids are left out."""
    # One statement for all, details as JSON: 2,000 records in 10 ms, against 95 with one each.
    query = f"""SELECT {", ".join("r." + name for name in COLUMNS.split(", "))}, t.content,
                       (SELECT json_group_array(tag) FROM tags WHERE tags.rid = r.rid),
                       (SELECT json_group_array(target) FROM links WHERE links.rid = r.rid)
                FROM records AS r JOIN texts AS t USING (rid) WHERE r.id IN ({{}})"""
    found: dict[str, Record] = {}
    for *columns, content, tags, links in among(db, query, ids):
        found[columns[0]] = record(columns, content, _several(tags), _several(links))
    return [found[name] for name in ids if name in found]


def _several(listed: str) -> tuple[str, ...]:
    return () if listed == "[]" else tuple(json.loads(listed))


def record(
    columns: Sequence[Any], content: str, tags: tuple[str, ...], links: tuple[str, ...]
) -> Record:
    name, collection, kind, domain, title, path, importance, created, updated, *rest = columns
    metadata, ended, valid_from, valid_to = rest
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
        ended_at=ended,
        valid_from=valid_from,
        valid_to=valid_to,
    )


def names(db: Tables, rids: Sequence[int]) -> dict[int, str]:
    # As one JSON value: sqlite3 lets go of the interpreter lock at every row, and the other sources
    # take it. 100 rows: 0.07 ms, against 0.11 alone and 0.16 beside a busy thread.
    row = db.execute(
        """SELECT json_group_array(json_array(r.rid, r.id)) FROM json_each(?) AS j
           CROSS JOIN records AS r ON r.rid = j.value""",
        (json.dumps(rids),),
    ).fetchone()
    return dict(json.loads(row[0]))


def passages(db: Tables, candidates: Sequence[Candidate]) -> list[Passage | None]:
    query = f"""SELECT c.cid, c.first_line, c.last_line, c.heading, t.content, c."start", c."end",
                       (SELECT json_group_array(tag) FROM tags WHERE tags.rid = c.rid),
                       {", ".join("r." + name for name in COLUMNS.split(", "))}
                FROM chunks AS c JOIN records AS r USING (rid) JOIN texts AS t USING (rid)"""
    chunks = [candidate.chunk for candidate in candidates if candidate.chunk is not None]
    rows = {row[0]: row for row in among(db, query + " WHERE c.cid IN ({})", chunks)}
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
        of = record(columns, content, _several(tags), ())
        found.append(Passage(cid, of, content[start:end], (first, last), heading))
    return found


def count(db: Tables) -> int:
    """About how many records there are; asked often, so not counted."""
    # Two questions: asked for both at once, SQLite goes through the whole table.
    query = "SELECT (SELECT MIN(rid) FROM records), (SELECT MAX(rid) FROM records)"
    low, high = db.execute(query).fetchone()
    return 0 if low is None else int(high - low + 1)


def sizes_of(db: Tables, rids: Sequence[int]) -> list[tuple[int, int, int]]:
    """(passage, record, characters) of these records."""
    query = 'SELECT cid, rid, "end" - "start" FROM chunks WHERE rid IN ({})'
    return [(cid, rid, size) for cid, rid, size in among(db, query, rids)]


def texts_of(db: Tables, cids: Sequence[int]) -> list[tuple[int, int, str]]:
    """(passage, record, the passage as it is indexed)."""
    return [(cid, rid, text) for cid, rid, _, text in db.chunk_texts(list(cids))]


def lengths(db: Tables) -> list[int]:
    """Of passages evenly spread over the store."""
    query = "SELECT (SELECT MIN(cid) FROM chunks), (SELECT MAX(cid) FROM chunks)"
    low, high = db.execute(query).fetchone()
    if low is None:
        return []
    query = 'SELECT "end" - "start" FROM chunks WHERE cid >= ? ORDER BY cid LIMIT 1'
    count = min(LENGTHS, high - low + 1)
    places = [low + (high - low) * i // max(1, count - 1) for i in range(count)]
    return [int(db.execute(query, (cid,)).fetchone()[0]) for cid in places]


def pending(db: Tables, model: str) -> list[int]:
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
            ORDER BY number, CAST(updated_at / 86400 AS INTEGER) DESC, length, cid""",
        (model,),
    )
    return [row[0] for row in rows]


def texts(db: Tables, chunks: Sequence[int]) -> list[tuple[int, str]]:
    found = {cid: text for cid, _, _, text in chunk_texts(db, chunks)}
    return [(cid, found[cid]) for cid in chunks if cid in found]


def chunk_texts(db: Tables, chunks: Sequence[int]) -> Iterator[tuple[int, int, str, str]]:
    """(chunk, record, its titles, text as it is indexed and embedded), in the order of the chunks'
    numbers.

    Texts are cut here, not by SQLite's substr: it walks a text from its beginning, and ends at NUL.
    """
    query = """SELECT c.cid, c.rid, c.heading, c."start", c."end" FROM chunks AS c
               WHERE c.cid IN ({})"""
    words = """SELECT r.title, r.metadata, t.content FROM records AS r JOIN texts AS t USING (rid)
               WHERE r.rid = ?"""
    of, title, content = 0, "", ""
    for cid, rid, heading, start, end in sorted(among(db, query, chunks)):
        if rid != of:
            row = db.execute(words, (rid,)).fetchone()
            if row is None:
                continue
            of, title, content = rid, titled(row[0], row[1]), row[2]
        yield cid, rid, title, passage(title, heading, content[start:end])


def titled(title: str, metadata: str) -> str:
    """The title with the other names that metadata, as it is kept, may give."""
    return titles(title, json.loads(metadata)) if '"alias' in metadata else title


def known_vectors(db: Tables, chunks: Sequence[int], *, model: str) -> dict[int, Vector]:
    # CROSS JOIN: from these chunks on. Left to itself SQLite may begin with all of the model's.
    query = """SELECT c.cid, v.embedding FROM chunks AS c
               CROSS JOIN chunks AS same ON same.digest = c.digest
               CROSS JOIN vectors AS v ON v.cid = same.cid
               WHERE c.cid IN ({}) AND v.embedding_model = ?"""
    found = among(db, query, chunks, model)
    return {cid: np.frombuffer(vector, "<f4") for cid, vector in found}


def vectors_of(db: Tables, ids: Sequence[str]) -> dict[str, tuple[str, Vectors]]:
    query = """SELECT r.id, v.embedding_model, v.embedding FROM records AS r
               JOIN chunks AS c USING (rid) LEFT JOIN vectors AS v USING (cid)
               WHERE r.id IN ({}) ORDER BY c.cid"""
    parts: dict[str, list[tuple[str | None, bytes]]] = {}
    for name, model, embedding in among(db, query, ids):
        parts.setdefault(name, []).append((model, embedding))
    return {
        name: (model, np.stack([np.frombuffer(row, "<f4") for _, row in rows]))
        for name, rows in parts.items()
        if (model := one_model(rows)) is not None
    }


def one_model(rows: Iterable[tuple[str | None, Any]]) -> str | None:
    """The model of all these (model, vector); None: they have several, or one has no vector."""
    models = {model for model, _ in rows}
    return models.pop() if len(models) == 1 else None


def chunks_of(db: Tables, ids: Sequence[str]) -> dict[str, list[Held]]:
    query = """SELECT r.id, c.cid, c."start", c."end", c.first_line, c.last_line, c.heading,
                      v.embedding_model, v.embedding
               FROM records AS r JOIN chunks AS c USING (rid) LEFT JOIN vectors AS v USING (cid)
               WHERE r.id IN ({}) ORDER BY c."start", c."end", c.cid"""
    return held(
        (*row[:-1], None if row[-1] is None else np.frombuffer(row[-1], "<f4"))
        for row in among(db, query, ids)
    )


def held(found: Iterable[tuple[Any, ...]]) -> dict[str, list[Held]]:
    """By record: id, number, place, heading, model and vector."""
    by_id: dict[str, list[Held]] = {}
    for name, cid, start, end, first, last, heading, model, vector in found:
        chunk = Chunk(start, end, (first, last), heading)
        by_id.setdefault(name, []).append(Held(cid, chunk, model, vector))
    return by_id


def unembedded(
    db: Tables, condition: str, values: Sequence[Any], *, model: str
) -> dict[tuple[str, int] | None, int]:
    """Of the records under this condition (see filters.py), which decides what it costs: it is
    asked first, and whether a passage has a vector is read from the index of models alone."""
    found = db.execute(
        f"""SELECT v.embedding_model, v.embedding_dim, COUNT(DISTINCT r.rid)
            FROM records AS r CROSS JOIN chunks AS c ON c.rid = r.rid
            LEFT JOIN vectors AS v ON v.cid = c.cid
            WHERE {condition} AND NOT EXISTS (
                SELECT 1 FROM vectors AS w INDEXED BY vectors_model
                WHERE w.embedding_model = ? AND w.cid = c.cid)
            GROUP BY 1, 2 ORDER BY 1, 2""",
        [*values, model],
    )
    return {None if other is None else (other, dim): count for other, dim, count in found}


def vector_rows(
    db: Tables, chunks: Sequence[int], *, model: str, dim: int
) -> list[tuple[int, int, bytes]]:
    marks = ", ".join("?" * len(chunks))
    found: list[tuple[int, int, bytes]] = db.execute(
        f"""SELECT v.cid, c.rid, v.embedding FROM vectors AS v JOIN chunks AS c USING (cid)
            WHERE v.cid IN ({marks}) AND v.embedding_model = ? AND v.embedding_dim = ?
            ORDER BY v.cid""",
        [*chunks, model, dim],
    ).fetchall()
    return found


def among(db: Tables, query: str, values: Sequence[Any], *more: Any) -> Iterator[tuple[Any, ...]]:
    """A query with IN ({}), asked in pieces that SQLite takes."""
    for i in range(0, len(values), 500):
        some = values[i : i + 500]
        yield from db.execute(query.format(", ".join("?" * len(some))), [*some, *more]).fetchall()


def rids_of(db: Tables, ids: Sequence[str]) -> dict[str, int]:
    return dict(among(db, "SELECT id, rid FROM records WHERE id IN ({})", ids))
