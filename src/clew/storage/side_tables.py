"""The tables beside the records: vectors, how records fare, indexed folders and files, notes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from typing import Any

import numpy as np

from clew.filter import Filter
from clew.ranking.adjust import GROWTH, STRONGEST
from clew.storage import log
from clew.storage.batch import check_dim, file_row, float32
from clew.storage.checksum import are_sound, seal_records
from clew.storage.filters import where
from clew.storage.rows import chunk_texts, rids_of
from clew.storage.tables import LIFE, Database, Tables, plain, remove
from clew.types import Chunk, FileState, Held, Life, Vector, Vectors

_LIFE = ", ".join(LIFE)
_UNSET = Life()


def stack_vectors(chunks: Mapping[str, Sequence[Held]]) -> dict[str, tuple[str, Vectors]]:
    """The model and a row per chunk, of records all of whose chunks have one of that model."""
    found: dict[str, tuple[str, Vectors]] = {}
    for name, held in chunks.items():
        models = {one.model for one in held}
        model = models.pop()
        if model is not None and not models:
            by_number = sorted(held, key=lambda one: one.number)
            found[name] = model, np.stack([one.vector for one in by_number])  # type: ignore[misc]
    return found


class SqlEmbeddings:
    """The vectors of chunks, and the texts that have none."""

    def __init__(self, db: Database):
        self._db = db

    def tokens(self, model: str, dim: int) -> None:
        """The database does not compare them."""

    @plain
    def pending(self, model: str) -> list[int]:
        """The first of every file come before the second of any: a store that is embedded in part
        knows something of each. Only where there are any are all of them counted."""
        db = self._db.reader
        missing = "NOT IN (SELECT cid FROM vectors WHERE embedding_model = ?)"
        any_missing = f"SELECT 1 FROM chunks AS c WHERE c.cid {missing} LIMIT 1"
        if db.execute(any_missing, (model,)).fetchone() is None:
            return []
        rows = db.execute(
            f"""SELECT cid FROM (
                    SELECT c.cid, r.updated_at, c."end" - c."start" AS length, ROW_NUMBER() OVER (
                        PARTITION BY coalesce(r.path, r.id), r.collection
                        ORDER BY r.rid, c."start", c.cid
                    ) AS number FROM chunks AS c JOIN records AS r USING (rid)
                ) AS numbered WHERE numbered.cid {missing}
                ORDER BY number, {db.WHOLE.format("updated_at / 86400")} DESC, length, cid""",
            (model,),
        )
        return [row[0] for row in rows]

    def texts(self, chunks: Sequence[int]) -> list[tuple[int, str]]:
        with self._db.snapshot() as db:
            found = {cid: text for cid, _, _, text in chunk_texts(db, chunks)}
            return [(cid, found[cid]) for cid in chunks if cid in found]

    @plain
    def digests(self, chunks: Sequence[int] | None = None) -> dict[int, bytes]:
        db = self._db.reader
        if chunks is None:
            rows = db.execute("SELECT cid, digest FROM chunks ORDER BY cid").fetchall()
        else:
            rows = list(db.among("SELECT cid, digest FROM chunks WHERE cid IN ({})", chunks))
        return {cid: bytes(digest) for cid, digest in rows}

    @plain
    def known(self, chunks: Sequence[int], *, model: str) -> dict[int, Vector]:
        db = self._db.reader
        query = """SELECT cid, checksum, embedding FROM vectors
                   WHERE cid IN ({}) AND embedding_model = ?"""
        own: dict[int, Vector] = dict(db.with_vectors(query, chunks, model))
        if not (others := [cid for cid in chunks if cid not in own]):
            return own
        # One is enough: a table may have the same row a hundred thousand times.
        query = f"""SELECT c.cid, v.checksum, v.embedding FROM chunks AS c
                    CROSS JOIN vectors AS v WHERE c.cid IN ({{}}) AND v.cid = (
                        SELECT held.cid FROM chunks AS same
                        {db.JOIN} vectors AS held ON held.cid = same.cid
                        WHERE {db.DIGEST.format("same")} = {db.DIGEST.format("c")}
                        AND same.digest = c.digest AND same.cid <> c.cid
                        AND held.embedding_model = ? LIMIT 1
                    )"""
        return own | dict(db.with_vectors(query, others, model))

    def set(self, chunks: Sequence[int], vectors: Vectors, *, model: str) -> int:
        with self._db.transaction() as db:
            vectors = float32(vectors, len(chunks), "these chunks")
            check_dim(db, model, vectors.shape[1])
            alive = {row[0] for row in db.among("SELECT cid FROM chunks WHERE cid IN ({})", chunks)}
            some = {cid: row for cid, row in zip(chunks, vectors, strict=True) if cid in alive}
            if some:
                remove(db, "vectors", "cid", some)
                db.insert_vectors(some, model)
                log.append(db, {"vector": some})
            return sum(cid in alive for cid in chunks)

    def of(self, ids: Sequence[str]) -> dict[str, tuple[str, Vectors]]:
        return stack_vectors(self.chunks(ids))

    def chunks(self, ids: Sequence[str]) -> dict[str, list[Held]]:
        """Read in three steps, since a join would have DuckDB read the vectors of all records."""
        with self._db.snapshot() as db:
            named = {rid: name for name, rid in rids_of(db, ids).items()}
            query = """SELECT rid, cid, "start", "end", first_line, last_line, heading FROM chunks
                       WHERE rid IN ({})"""
            chunks = sorted(db.among(query, list(named)), key=lambda row: (row[2], row[3], row[1]))
            query = """SELECT cid, embedding_model, checksum, embedding FROM vectors
                       WHERE cid IN ({})"""
            rows = db.with_vectors(query, [row[1] for row in chunks])
            vectors = {cid: (model, vector) for cid, model, vector in rows}
        held: dict[str, list[Held]] = {}
        for rid, cid, start, end, first, last, heading in chunks:
            model, vector = vectors.get(cid, (None, None))
            chunk = Chunk(start, end, (first, last), heading)
            held.setdefault(named[rid], []).append(Held(cid, chunk, model, vector))
        return held

    @plain
    def missing(self, filter: Filter, *, model: str) -> dict[tuple[str, int] | None, int]:
        """The filter decides what it costs: it is asked first, and whether a passage has a vector
        is read from the index of models alone."""
        db = self._db.reader
        condition, values = where(filter, db)
        found = db.execute(
            f"""SELECT v.embedding_model, v.embedding_dim, COUNT(DISTINCT r.rid)
                FROM records AS r {db.JOIN} chunks AS c ON c.rid = r.rid
                LEFT JOIN vectors AS v ON v.cid = c.cid
                WHERE {condition} AND NOT EXISTS (
                    SELECT 1 FROM vectors AS w {db.BY_MODEL}
                    WHERE w.embedding_model = ? AND w.cid = c.cid)
                GROUP BY 1, 2 ORDER BY 1, 2""",
            [*values, model],
        )
        return {None if other is None else (other, dim): count for other, dim, count in found}


class SqlLifecycle:
    """How records fare. What there is is read, changed and written anew: while one writes, nobody
    comes between. Only an end or a return is noted in the change log, for filters see it."""

    def __init__(self, db: Database):
        self._db = db

    @plain
    def get(self, ids: Sequence[str]) -> dict[str, Life]:
        """What nothing has happened to yet has a life like any new one."""
        return {name: life for name, (_, life) in _read_lives(self._db.reader, ids).items()}

    def set(self, lives: Mapping[str, Life]) -> None:
        self._change(list(lives), lambda name, _: lives[name])

    def count_accesses(self, counts: Mapping[str, int], *, at: float) -> None:
        def change(name: str, life: Life) -> Life:
            return life._replace(
                accesses=life.accesses + counts[name],
                strength=min(life.strength * GROWTH ** min(counts[name], 64), STRONGEST),
                accessed_at=at if life.accessed_at is None else max(life.accessed_at, at),
            )

        self._change(list(counts), change)

    def rate(self, id: str, *, useful: int = 0, useless: int = 0) -> bool:
        def change(_: str, life: Life) -> Life:
            return life._replace(useful=life.useful + useful, useless=life.useless + useless)

        return bool(self._change([id], change))

    def end(
        self, ids: Sequence[str], *, at: float, reason: str, successor: str | None = None
    ) -> list[str]:
        return self._set_end(ids, at, reason, successor)

    def revive(self, ids: Sequence[str]) -> list[str]:
        return self._set_end(ids, None, "", None)

    def _set_end(
        self, ids: Sequence[str], at: float | None, reason: str, successor: str | None
    ) -> list[str]:
        ended = "IS NOT NULL" if at is None else "IS NULL"
        query = f"SELECT id FROM records WHERE ended_at {ended} AND id IN ({{}})"
        with self._db.transaction() as db:
            names = [row[0] for row in db.among(query, ids)]
            rids = self._change(
                names, lambda _, life: life._replace(reason=reason, successor=successor)
            )
            update = f"UPDATE records SET ended_at = ? WHERE rid IN (SELECT value FROM {db.LIST})"
            if rids:
                sound = are_sound(db, rids)
                db.execute(update, [at, db.as_list(rids)])
                seal_records(db, sound)
            log.append(db, {"record": rids})
        return names

    def _change(self, ids: Sequence[str], change: Callable[[str, Life], Life]) -> list[int]:
        """The numbers of those that are there."""
        with self._db.transaction() as db:
            known = _read_lives(db, ids)
            rows = [(rid, *change(name, life)) for name, (rid, life) in known.items()]
            db.insert("lives", rows, replacing=1)
            return [row[0] for row in rows]

    @plain
    def ledger(self, filter: Filter) -> list[tuple[str, float, float, Life]]:
        db = self._db.reader
        condition, values = where(filter, db)
        query = f"""SELECT r.id, r.importance, r.created_at, {_LIFE} FROM records AS r
                    LEFT JOIN lives USING (rid) WHERE {condition} ORDER BY r.id"""
        return [(*row[:3], _life(row[3:])) for row in db.execute(query, values).fetchall()]

    @plain
    def next_change(self, at: float) -> float | None:
        query = """SELECT MIN(moment) FROM (
                       SELECT MIN(valid_from) AS moment FROM records
                       WHERE valid_from > ? AND ended_at IS NULL
                       UNION ALL
                       SELECT MIN(valid_to) FROM records WHERE valid_to > ? AND ended_at IS NULL
                   ) AS moments"""
        moment: float | None = self._db.reader.execute(query, (at, at)).fetchone()[0]
        return moment

    @plain
    def predecessors(self, id: str) -> list[str]:
        query = """SELECT r.id FROM lives AS l JOIN records AS r USING (rid) WHERE l.successor = ?
                   ORDER BY r.created_at DESC, r.id"""
        return [row[0] for row in self._db.reader.execute(query, (id,))]

    @plain
    def tally(self) -> list[tuple[str, str, str, int]]:
        found: list[tuple[str, str, str, int]] = self._db.reader.execute(
            """SELECT r.collection, r.type,
                      CASE WHEN r.ended_at IS NULL THEN ''
                           ELSE COALESCE(NULLIF(l.reason, ''), 'ended') END, COUNT(*)
               FROM records AS r LEFT JOIN lives AS l USING (rid)
               GROUP BY 1, 2, 3 ORDER BY 1, 2, 3"""
        ).fetchall()
        return found


def _read_lives(db: Tables, ids: Sequence[str]) -> dict[str, tuple[int, Life]]:
    query = f"SELECT r.id, r.rid, {_LIFE} FROM records AS r LEFT JOIN lives USING (rid)"
    found = db.among(query + " WHERE r.id IN ({})", ids)
    return {name: (rid, _life(columns)) for name, rid, *columns in found}


def _life(columns: Sequence[Any]) -> Life:
    return _UNSET if columns[0] is None else Life(*columns)


class SqlFileStates:
    """The folders that were indexed, and how their files were then."""

    def __init__(self, db: Database):
        self._db = db

    @plain
    def roots(self) -> dict[str, str]:
        return dict(self._db.reader.execute("SELECT collection, folder FROM roots").fetchall())

    def set_root(self, collection: str, folder: str) -> None:
        with self._db.transaction() as db:
            db.insert("roots", [(collection, folder)], replacing=1)

    def remove_root(self, collection: str) -> None:
        with self._db.transaction() as db:
            for table in ("roots", "files"):
                db.remove(table, ("collection",), [(collection,)])

    @plain
    def states(self, collection: str, paths: Sequence[str] | None = None) -> dict[str, FileState]:
        query = "SELECT path, size, mtime_ns, digest, indexed_ns FROM files WHERE "
        db = self._db.reader
        if paths is None:
            found = db.execute(query + "collection = ?", (collection,)).fetchall()
        else:
            found = db.among(query + "path IN ({}) AND collection = ?", paths, collection)
        return {path: FileState(*state) for path, *state in found}

    def set_states(self, collection: str, states: Mapping[str, FileState]) -> None:
        rows = [file_row(collection, path, state) for path, state in states.items()]
        with self._db.transaction() as db:
            db.insert("files", rows, replacing=2)

    def forget(self, collection: str, paths: Sequence[str]) -> None:
        with self._db.transaction() as db:
            db.remove("files", ("collection", "path"), [(collection, path) for path in paths])


class SqlNotes(MutableMapping[str, str]):
    """What others wrote down, by name."""

    def __init__(self, db: Database):
        self._db = db

    @plain
    def __getitem__(self, key: str) -> str:
        query = "SELECT value FROM meta WHERE key = ?"
        row = self._db.reader.execute(query, (f"note:{key}",)).fetchone()
        if row is None:
            raise KeyError(key)
        return str(row[0])

    def __setitem__(self, key: str, value: str) -> None:
        with self._db.transaction() as db:
            db.insert("meta", [(f"note:{key}", value)], replacing=1)

    def __delitem__(self, key: str) -> None:
        with self._db.transaction() as db:
            db.remove("meta", ("key",), [(f"note:{key}",)])

    @plain
    def __iter__(self) -> Iterator[str]:
        query = "SELECT key FROM meta WHERE key LIKE 'note:%'"
        found = self._db.reader.execute(query).fetchall()
        return iter([row[0].removeprefix("note:") for row in found])

    def __len__(self) -> int:
        return len(list(iter(self)))
