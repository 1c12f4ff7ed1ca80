"""Reading records, chunks and vectors back. Functions over a connection."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from clew.protocols import batched
from clew.storage.checksum import FIELDS, chunk_fits, fields_fit, record_fits, refuse
from clew.storage.filters import Allowed
from clew.storage.tables import RECORD, Tables
from clew.text.passage import lineage, passage, titles
from clew.types import Candidate, Passage, Record, Vector


def get(db: Tables, ids: Sequence[str], damaged: set[str] | None = None) -> list[Record]:
    """Records in the order asked for; unknown ids are left out. So are records that are not as they
    were written, where there is a set to note them in: else they are an error."""
    query = f"""SELECT {FIELDS}, {db.CONTENT}, {db.TAGS}, {db.LINKS}
                FROM records AS r {db.TEXTS} WHERE r.id IN ({{}})"""
    found: dict[str, Record] = {}
    for *columns, known, content, tags, links in db.among(query, ids):
        names, targets = db.as_names(tags), db.as_names(links)
        fits = record_fits(columns, names, content, targets, known)
        record = _record(columns, content, names, targets) if fits else None
        if record is None:
            note_damage(columns[0], damaged)
        else:
            found[record.id] = record
    _note_lost_texts(db, [name for name in ids if name not in found], damaged)
    return [found[name] for name in ids if name in found]


def _note_lost_texts(db: Tables, ids: Sequence[str], damaged: set[str] | None) -> None:
    """Where the structure of a table is damaged, rows are not found that are there."""
    query = """SELECT id FROM records AS r WHERE id IN ({})
               AND NOT EXISTS (SELECT 1 FROM texts AS t WHERE t.rid = r.rid)"""
    for (name,) in db.among(query, ids) if ids else ():
        note_damage(name, damaged)


def note_damage(name: str, damaged: set[str] | None) -> None:
    if damaged is None:
        raise refuse(name)
    damaged.add(name)


def _record(
    columns: Sequence[Any], content: str, tags: tuple[str, ...], links: tuple[str, ...] = ()
) -> Record | None:
    """None: it makes no sense, as one of a store without checksums may."""
    fields = dict(zip(RECORD, columns, strict=True))
    metadata = fields["metadata"]
    try:
        fields["metadata"] = {} if metadata == "{}" else json.loads(metadata)
        return Record(content=content, tags=tags, links=links, **fields)
    except ValueError:
        return None


def dim_of(db: Tables, model: str) -> int:
    """The dimension of this model's vectors; 0: there is none."""
    query = "SELECT embedding_dim FROM vectors WHERE embedding_model = ? LIMIT 1"
    row = db.execute(query, (model,)).fetchone()
    return int(row[0]) if row else 0


def rids_of(db: Tables, ids: Sequence[str]) -> dict[str, int]:
    return dict(db.among("SELECT id, rid FROM records WHERE id IN ({})", ids))


def passages(
    db: Tables, candidates: Sequence[Candidate], damaged: set[str] | None = None
) -> list[Passage | None]:
    """What is not as it was written is left out where there is a set to note it in."""
    query = f"""SELECT c.cid, c.first_line, c.last_line, c.heading, c."start", c."end",
                       {db.CONTENT}, {db.TAGS}, {FIELDS}, c.rid, c.digest, c.checksum
                FROM chunks AS c JOIN records AS r USING (rid) {db.TEXTS} WHERE c.cid IN ({{}})"""
    chunks = [candidate.chunk for candidate in candidates if candidate.chunk is not None]
    rows = {(row[8], row[0]): row for row in db.among(query, chunks)}
    others = [  # none named, or replaced since it was ranked
        candidate.id for candidate in candidates if (candidate.id, candidate.chunk) not in rows
    ]
    first = "SELECT MIN(cid) FROM chunks WHERE rid IN ({}) GROUP BY rid"
    numbers = [row[0] for row in db.among(first, list(rids_of(db, others).values()))]
    firsts = {row[8]: row for row in db.among(query, numbers)}
    found: list[Passage | None] = []
    for candidate in candidates:
        best = rows.get((candidate.id, candidate.chunk)) or firsts.get(candidate.id)
        if best is None:
            found.append(None)
            continue
        cid, line, last, heading, start, end, content, tags, *columns = best
        *columns, whole, rid, digest, own = columns
        names, text = db.as_names(tags), content[start:end]
        place = cid, rid, start, end, line, last
        of = None
        if fields_fit(columns, names, whole) and chunk_fits(place, heading, digest, text, own):
            of = _record(columns, content, names)
        if of is None:
            note_damage(candidate.id, damaged)
        found.append(None if of is None else Passage(cid, of, text, (line, last), heading))
    lost = [c.id for c, of in zip(candidates, found, strict=True) if of is None]
    _note_lost_texts(db, lost, damaged)
    return found


def chunk_texts(db: Tables, chunks: Sequence[int]) -> Iterator[tuple[int, int, str, str]]:
    """(chunk, record, its titles, text as it is indexed and embedded), in the order of the chunks'
    numbers.

    Texts are cut here, not by SQLite's substr: it walks a text from its beginning, and ends at NUL.
    """
    query = 'SELECT cid, rid, heading, "start", "end" FROM chunks WHERE cid IN ({})'
    places = sorted(db.among(query, chunks, near=True))
    query = f"""SELECT r.rid, r.title, r.metadata, {db.CONTENT} FROM records AS r {db.TEXTS}
                WHERE r.rid IN ({{}})"""
    for some in batched(places, _AT_ONCE):
        of: dict[int, tuple[str, str]] = {}
        rids = sorted({row[1] for row in some})
        for rid, title, metadata, content in db.among(query, rids, near=True):
            # With the other names that metadata, as it is kept, may give.
            named = titles(title, json.loads(metadata)) if '"alias' in metadata else title
            of[rid] = named, content
        for cid, rid, heading, start, end in some:
            if rid in of:
                title, content = of[rid]
                yield cid, rid, title, passage(title, heading, content[start:end])


_AT_ONCE = 2_000
"""Chunks whose records' texts are in memory together."""


def vector_rows(
    db: Tables, chunks: Sequence[int], *, model: str, dim: int
) -> list[tuple[int, int, Vector]]:
    """(chunk, record, vector) of those that have one of this model, by the number of the chunk."""
    query = """SELECT v.cid, c.rid, v.checksum, v.embedding
               FROM vectors AS v JOIN chunks AS c USING (cid)
               WHERE v.cid IN ({}) AND v.embedding_model = ? AND v.embedding_dim = ?
               ORDER BY v.cid"""
    return list(db.with_vectors(query, chunks, model, dim))


def labelled(
    db: Tables,
    kinds: Sequence[str],
    groups: Sequence[tuple[float, Sequence[str]]],
    where: tuple[str, list[Any]] | None,
    *,
    limit: int,
    allowed: Allowed | None,
    before: int | None,
) -> list[Candidate]:
    """The best `limit` by the sum of the groups of which they have a label. `allowed` are those
    that may be found, where the condition does not say it all; none from `before` on is.

    A label may be on a hundred thousand records, and then says little: of each only the newest are
    taken up, and others are asked only whether they have it too, which bounds what it costs.
    """
    asked = list(dict.fromkeys(label for _, group in groups for label in group))
    has = db.label_holders(kinds, asked, where, allowed, _LABELLED)
    scores = {
        rid: sum(worth for worth, group in groups if not mine.isdisjoint(group))
        for rid, labels in has.items()
        for mine in [{name for label in labels for name in lineage(label)}]
        if before is None or rid < before
    }
    if len(scores) > limit:  # ids, which settle ties, are looked up for the best alone
        least = sorted(scores.values(), reverse=True)[limit - 1]
        scores = {rid: score for rid, score in scores.items() if score >= least}
    ids = db.names(list(scores)) if scores else {}
    found = [Candidate(ids[rid], score) for rid, score in scores.items() if rid in ids]
    return sorted(found, key=lambda c: (-c.score, c.id))[:limit]


def kinds_of_labels(db: Tables) -> frozenset[str]:
    """The kinds of labels that any record has."""
    tables = {
        "tag": "tags",
        "folder": "labels WHERE kind = 'folder'",
        "name": "labels WHERE kind = 'name'",
    }
    row = db.execute(
        "SELECT " + ", ".join(f"EXISTS (SELECT 1 FROM {table})" for table in tables.values())
    ).fetchone()
    return frozenset(kind for kind, there in zip(tables, row, strict=True) if there)


_LABELLED = 100
"""Records of one label that are taken up."""
