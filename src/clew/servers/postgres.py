"""The Postgres store: tables, and both legs, on the server.

Words are ranked by storage/postgres_words.py, vectors by pgvector: exactly where there are few, or
a filter leaves few; else by an HNSW index per model, whose scan goes on until enough rows pass the
filter (`hnsw.iterative_scan`: without it a rare filter leaves nothing of the first forty).
"""

from __future__ import annotations

import contextlib
import tempfile
import threading
from collections.abc import Hashable, Iterator, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from psycopg import sql

from clew.errors import InputError
from clew.filter import Filter
from clew.index.bm25 import (
    BROAD,
    SAMPLE,
    Scope,
    choose_passages,
    greatest_score,
    guess_having_all,
)
from clew.index.maintenance import check_tables, count_rows
from clew.index.unflushed import level_scores
from clew.protocols import Progress, ignore_progress
from clew.ranking.adaptive import rarity
from clew.storage import StoreLocation, checksum, log, rows
from clew.storage.filters import where
from clew.storage.ownership import make_folder
from clew.storage.postgres import PostgresTables
from clew.storage.postgres_server import PostgresDatabase
from clew.storage.postgres_words import (
    Figures,
    WordQuery,
    fold_terms,
    in_a_row,
    index_passages,
    literal,
    read_figures,
)
from clew.storage.side_tables import SqlEmbeddings
from clew.storage.sql_store import Facet, SqlStore
from clew.storage.tables import SAMPLED_LENGTHS, plain
from clew.types import Candidate, Entry, LabelKind, Terms, Vector, Vectors
from clew.validate import check_row

T = TypeVar("T")

INDEXED_FROM = 10_000
"""Vectors of a model from which on they have an index; to score fewer takes as long."""
FEW = 20_000
"""Records that a filter may leave to be scored one by one."""
LONGEST_INDEXED, LONGEST_HALVES = 2_000, 4_000
"""Dimensions that an HNSW index takes, whole and in half precision."""
_KEPT = 64
"""Answers that are kept until something is written."""


class _Kept:
    """What was asked for since the last write, by whichever view."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._answers: dict[Hashable, tuple[log.Place, Any]] = {}

    def get(self, key: Hashable, place: log.Place, ask: Any) -> Any:
        at, answer = self._answers.get(key, (log.NOWHERE, None))
        if at != place:
            answer = ask()
        with self._lock:
            self._answers.pop(key, None)
            while len(self._answers) >= _KEPT:
                self._answers.pop(next(iter(self._answers)))  # what was not asked for the longest
            self._answers[key] = place, answer
        return answer


class _Model(NamedTuple):
    """What a store has of one."""

    dim: int = 0
    rows: int = 0
    indexed: bool = False


class PostgresStore(SqlStore):
    """Tables of one schema. `folder` has nothing of them, only what others derive."""

    _db: PostgresDatabase

    def __init__(
        self, place: StoreLocation, *, folder: Path, create: bool = True, busy_seconds: float = 10.0
    ):
        db = PostgresDatabase(place, folder, create=create, busy_seconds=busy_seconds)
        make_folder(folder)
        super().__init__(db, folder)
        self.vectors = _PostgresEmbeddings(db)
        self._kept = _Kept()
        self.indexes = _ServerIndexes(self)
        self.upkeep = _PostgresUpkeep(self)

    @plain
    def view(self) -> PostgresStore:
        view = self._pinned()
        view.indexes = _ServerIndexes(view)
        return view

    # ------------------------------------------------------------------ writing

    def put(self, entries: Sequence[Entry], *, model: str | None = None) -> list[str]:
        return self._db.again(lambda: SqlStore.put(self, entries, model=model))

    def put_new(
        self, entries: Sequence[Entry], *, model: str | None = None
    ) -> list[tuple[str, str]]:
        return self._db.again(lambda: SqlStore.put_new(self, entries, model=model))

    def delete(self, ids: Sequence[str]) -> int:
        return self._db.again(lambda: SqlStore.delete(self, ids))

    def rename(self, old_id: str, entry: Entry) -> None:
        self._db.again(lambda: SqlStore.rename(self, old_id, entry))

    # ------------------------------------------------------------------ what is kept

    @property
    def _tables(self) -> PostgresTables:
        db = self._db.reader
        assert isinstance(db, PostgresTables)
        return db

    def _once(self, key: Hashable, ask: Any) -> Any:
        """The same until something is written. What this thread is writing is kept from others."""
        db = self._tables
        if db.in_transaction:
            return ask()
        return self._kept.get(key, self._head() or log.head(db), ask)

    @plain
    def count(self, filter: Filter) -> int:
        found: int = self._once(("count", filter), lambda: SqlStore.count(self, filter))
        return found

    def _model(self, model: str) -> _Model:
        def ask() -> _Model:
            query = """SELECT COUNT(*), MIN(embedding_dim) FROM vectors WHERE embedding_model = ?"""
            count, dim = self._tables.execute(query, (model,))[0]
            name = _index_name(model, dim or 0)
            return _Model(dim or 0, count, bool(count and name in self._indexes()))

        found: _Model = self._once(("model", model), ask)
        return found

    def _indexes(self) -> dict[str, bool]:
        """Those of vectors, and whether they are whole."""
        query = """SELECT c.relname, i.indisvalid FROM pg_index AS i
                   JOIN pg_class AS c ON c.oid = i.indexrelid JOIN pg_am AS a ON a.oid = c.relam
                   WHERE c.relnamespace = ?::regnamespace AND a.amname = 'hnsw'"""
        return dict(self._tables.execute(query, (self._db.schema,)))

    def _figures(self, terms: Terms) -> Figures:
        tokens = [*terms.tokens, *(token for phrase in terms.phrases for token in phrase)]
        known: dict[str, Sequence[int]] = self._once("words", dict)
        return read_figures(self._tables, list(dict.fromkeys(tokens)), known)

    def _scope(self, filter: Filter) -> Scope | None:
        """None where the figures of the whole store will do."""
        if not filter:
            return None
        found: Scope | None = self._once(("scope", filter), lambda: self._read_scope(filter))
        return found

    def _read_scope(self, filter: Filter) -> Scope | None:
        db = self._tables
        condition, values = where(filter, db)
        query = f"""SELECT COUNT(*), COUNT(*) FILTER (WHERE {condition}), MIN(rid), MAX(rid)
                    FROM records AS r"""
        every, count, low, high = db.execute(query, values)[0]
        if count in (0, every) or count > BROAD * (high - low + 1):
            return None
        query = f"""SELECT r.rid FROM records AS r WHERE {condition}
                    ORDER BY (r.rid * 2654435761) % 4294967296 LIMIT {SAMPLE}"""
        rids = [row[0] for row in db.execute(query, values)]
        query = 'SELECT cid, rid, "end" - "start" FROM chunks WHERE rid IN ({})'
        there = list(db.among(query, rids))
        chosen = [cid for cid, _ in choose_passages(there)]
        query = "SELECT tsvector_to_array(body) FROM words WHERE cid IN ({})"
        sample = [frozenset(row[0]) for row in db.among(query, chosen)]
        return Scope(None, round(len(there) * count / max(1, len(rids))), sample)

    def _inside(self, terms: Terms, filter: Filter) -> tuple[dict[str, float], float, Scope | None]:
        """How many passages of a filter's scope have each word, how many there are, and the
        scope."""
        figures, scope = self._figures(terms), self._scope(filter)
        everywhere = {token: float(figures.body[token]) for token in terms.tokens}
        if scope is None:
            return everywhere, figures.passages, None
        condition, values = where(filter, self._tables)

        def count(token: str, _: Any) -> int:
            query = f"""SELECT COUNT(*) FROM words AS w JOIN records AS r USING (rid)
                        WHERE w.body @@ {literal(in_a_row((token,)))} AND {condition}"""
            return int(self._tables.rank(query, values)[0][0])

        inside = {
            token: scope.holders(token, int(held), figures.passages, count)
            for token, held in everywhere.items()
        }
        return inside, scope.passages, scope

    # ------------------------------------------------------------------ legs

    @plain
    def keyword(
        self, terms: Terms, filter: Filter, *, limit: int, per_record: int = 1
    ) -> list[Candidate]:
        if not terms:
            return []
        figures = self._figures(terms)
        inside, passages, scope = self._inside(terms, filter)
        rarer = {
            token: rarity(passages, held) / rarity(figures.passages, figures.body[token])
            for token, held in inside.items()
            if scope is not None and held
        }
        words = WordQuery(terms, figures, rarer)
        if terms.words and limit <= guess_having_all(terms, figures.body, figures.passages):
            found = self._rank_words(*words.every_word(), terms, filter, limit, per_record)
            if _has_records(found, limit):
                return found
        if scope is None and words.listed:
            # Most of what is best may be found: the best of all, and of these what the filter and
            # the words that are left out leave.
            depth = 2 * limit + 16
            if depth < sum(inside.values()):
                best = words.any_listed(depth)
                found = self._rank_words(*best, terms, filter, limit, per_record)
                if _has_records(found, limit):
                    return found
        any_word = words.any_listed() if words.listed else words.any_word()
        return self._rank_words(*any_word, terms, filter, limit, per_record)

    def _rank_words(
        self, source: str, score: str, terms: Terms, filter: Filter, limit: int, per_record: int
    ) -> list[Candidate]:
        condition, values = where(filter, self._tables)
        joined = "JOIN records AS r USING (rid)" if filter else ""
        hits = f"""SELECT w.cid, w.rid, ({score})::real AS score FROM {source} {joined}
                   WHERE {condition} AND {_narrow(terms, "w.rid")}"""
        return self._best(hits, values, limit, per_record)

    def _best(
        self, hits: str, values: Sequence[Any], limit: int, per_record: int, **settings: Any
    ) -> list[Candidate]:
        """The best `limit` records of passages (cid, rid, score), by score and then by id. How many
        passages there are is not foreseen: as a join of `best`, a plan for three takes long."""
        query = f"""WITH hits AS MATERIALIZED ({hits}),
            best AS (SELECT rid, MAX(score) AS most FROM hits GROUP BY rid
                     ORDER BY most DESC FETCH FIRST {int(limit)} ROWS WITH TIES),
            kept AS MATERIALIZED (
                SELECT cid, rid, score, MAX(score) OVER (PARTITION BY rid) AS most
                FROM hits WHERE (rid IN (SELECT rid FROM best)) IS TRUE)
            SELECT id, cid, score FROM (
                SELECT r.id, k.cid, k.score,
                       row_number() OVER (PARTITION BY rid ORDER BY k.score DESC, k.cid) AS place,
                       dense_rank() OVER (ORDER BY most DESC, r.id) AS number
                FROM kept AS k JOIN records AS r USING (rid)) AS ranked
            WHERE place <= {int(per_record)} AND number <= {int(limit)}
            ORDER BY score DESC, id, cid"""
        found = self._tables.rank(query, values, **settings)
        scores = level_scores(np.array([score for _, _, score in found])).tolist()
        ranked = [
            Candidate(name, round(score, 6), cid)
            for (name, cid, _), score in zip(found, scores, strict=True)
        ]
        return sorted(ranked, key=lambda c: (-c.score, c.id, c.chunk))

    @plain
    def nearest(
        self,
        vector: Vector,
        filter: Filter,
        *,
        model: str,
        limit: int,
        terms: Terms | None = None,
        per_record: int = 1,
    ) -> list[Candidate]:
        query = check_row(vector)
        known = self._model(model)
        if not known.rows:
            return []
        if known.dim != len(query):
            raise InputError(
                f"this store's vectors of {model} have {known.dim} dimensions, the given one has "
                f"{len(query)}: use the model the store was built with"
            )
        condition, values = where(filter, self._tables)
        condition += f" AND {_narrow(terms, 'c.rid')}"
        joined = "JOIN records AS r USING (rid)" if filter else ""
        narrowed = filter or (terms and terms.narrows)
        product = f"-(v.embedding OPERATOR({self._db.extension}.<#>) ?)"
        if known.indexed and (not filter or self.count(filter) > FEW):
            near = self._near(known, model)
            # Asked row by row as the scan goes on, whatever the planner thinks that it leaves.
            each_record = f"""JOIN LATERAL (SELECT FROM records AS r WHERE r.rid = c.rid
                              AND {condition} OFFSET 0) AS allowed ON true"""
            each = -(-known.rows // max(1, self.count(Filter())))  # passages of a record
            depth = 2 * limit * max(1, min(per_record, each)) + 10
            most = max(depth, limit * 40)
            while depth <= most:
                hits = f"""SELECT cid, rid, score FROM (
                    SELECT v.cid, c.rid, ({product})::real AS score
                    FROM vectors AS v JOIN chunks AS c USING (cid) {each_record if narrowed else ""}
                    WHERE v.embedding_model = {sql.Literal(model).as_string()}
                    ORDER BY {near} LIMIT {depth}) AS near"""
                found = self._best(hits, [query, *values, query], limit, per_record, **_scan(depth))
                if _has_records(found, limit):
                    return found
                depth *= 4
        hits = f"""SELECT v.cid, c.rid, ({product})::real AS score
                   FROM vectors AS v JOIN chunks AS c USING (cid) {joined}
                   WHERE v.embedding_model = ? AND {condition}"""
        return self._best(hits, [query, model, *values], limit, per_record)

    def _near(self, known: _Model, model: str) -> str:
        """The order that the index of a model has."""
        kind, _ = _kind(known.dim, self._db.extension)
        return f"v.embedding::{kind} OPERATOR({self._db.extension}.<#>) ?::{kind}"

    @plain
    def labelled(
        self,
        kinds: Sequence[LabelKind],
        groups: Sequence[tuple[float, Sequence[str]]],
        filter: Filter,
        *,
        limit: int,
        terms: Terms | None = None,
    ) -> list[Candidate]:
        there = self._once("labels", lambda: rows.kinds_of_labels(self._tables))
        kinds = [kind for kind in kinds if kind in there]
        if not kinds:
            return []
        with self._db.snapshot() as db:
            condition, values = where(filter, db)
            said = f"{condition} AND {_narrow(terms, 'r.rid')}", values
            return rows.labelled(db, kinds, groups, said, limit=limit, allowed=None, before=None)

    # ------------------------------------------------------------------ upkeep

    @plain
    def stats(self, *, model: str) -> dict[str, Any]:
        known = self._model(model)
        stage = "hnsw" if known.indexed else "exact" if known.rows else "none"
        return count_rows(self._tables) | {
            "bytes": self._sizes(),
            "generation": self.changes.generation(),
            "embedded": self.indexes.coverage(model),
            "vectors": {"stage": stage, "rows": known.rows},
            "behind": self.indexes.behind,
        }

    def _sizes(self) -> dict[str, int]:
        query = """SELECT c.relname, c.relkind, a.amname, pg_total_relation_size(c.oid)
                   FROM pg_class AS c LEFT JOIN pg_am AS a ON a.oid = c.relam
                   WHERE c.relnamespace = ?::regnamespace AND c.relkind IN ('r', 'i')"""
        sizes = {"database": 0, "keyword index": 0, "vector index": 0}
        for name, kind, method, size in self._tables.execute(query, (self._db.schema,)):
            if kind == "r":
                sizes["keyword index" if name in ("words", "terms") else "database"] += size
            elif method == "hnsw":
                sizes["vector index"] += size
                sizes["database"] -= size
        return sizes

    def close(self) -> None:
        self._db.close()


open_server = PostgresStore


def _has_records(found: Sequence[Candidate], limit: int) -> bool:
    return len({candidate.id for candidate in found}) >= limit


def _narrow(terms: Terms | None, rid: str) -> str:
    """That a record has all phrases, each in some passage, and no word that is left out."""
    if terms is None:
        return "true"
    has = "EXISTS (SELECT 1 FROM words AS held WHERE held.rid = {} AND held.body @@ {})"
    tests = [has.format(rid, literal(in_a_row(phrase))) for phrase in terms.phrases]
    tests += ["NOT " + has.format(rid, literal(in_a_row(phrase))) for phrase in terms.excluded]
    return " AND ".join(tests) or "true"


def _scan(depth: int) -> dict[str, Any]:
    """Settings of one scan of an HNSW index. The planner may take a filter for a narrow one, and
    would rather score and sort all rows: it is not given that choice."""
    return {
        **dict.fromkeys(("enable_sort", "enable_seqscan", "enable_bitmapscan"), "off"),
        **dict.fromkeys(("enable_hashjoin", "enable_mergejoin"), "off"),
        "join_collapse_limit": 1,
        "hnsw.iterative_scan": "strict_order",
        "hnsw.ef_search": min(1000, max(160, depth)),
        "hnsw.max_scan_tuples": 1_000_000,
        "hnsw.scan_mem_multiplier": 16,
    }


def _kind(dim: int, extension: str) -> tuple[str, str]:
    """The type that an index of so many dimensions is of, and its operators; or nothing."""
    if dim > LONGEST_HALVES:
        return "", ""
    name = "vector" if dim <= LONGEST_INDEXED else "halfvec"
    return f"{extension}.{name}({dim})", f"{extension}.{name}_ip_ops"


def _index_name(model: str, dim: int) -> str:
    return f"vectors_{blake2b(f'{model} {dim}'.encode(), digest_size=8).hexdigest()}"


class _PostgresEmbeddings(SqlEmbeddings):
    _db: PostgresDatabase

    def set(self, chunks: Sequence[int], vectors: Vectors, *, model: str) -> int:
        return self._db.again(lambda: SqlEmbeddings.set(self, chunks, vectors, model=model))


class _ServerIndexes(Facet):
    """The server has them up to date with every write."""

    _store: PostgresStore
    _db: PostgresDatabase
    behind, behind_because = 0, ""

    @property
    def remote(self) -> bool:
        return not self._store._tables.in_transaction

    def current(self) -> bool:
        self._db.check()
        return True

    def refresh(
        self, *, progress: Progress | None = None, optimise: bool = False, bulk: bool = False
    ) -> None:
        self._db.check()
        if not optimise or self._db.read_only:
            return
        with self._db.transaction() as db:
            log.prune(db)
            assert isinstance(db, PostgresTables)
            fold_terms(db)
        self._index_vectors(progress or ignore_progress)
        self._db.checkpoint()

    def _index_vectors(self, progress: Progress, *, anew: bool = False) -> None:
        """An index for each model that has many vectors, and none for those that have not."""
        db, schema, extension = self._store._tables, self._db.schema, self._db.extension
        query = "SELECT embedding_model, embedding_dim, COUNT(*) FROM vectors GROUP BY 1, 2"
        wanted = {
            _index_name(model, dim): (model, dim, count)
            for model, dim, count in db.execute(query)
            if count >= INDEXED_FROM and dim <= LONGEST_HALVES
        }
        there = self._store._indexes()
        busy = {
            row[0]
            for row in db.execute(
                """SELECT c.relname FROM pg_stat_progress_create_index AS p
                   JOIN pg_class AS c ON c.oid = p.index_relid"""
            )
        }
        for name, whole in there.items():
            if name not in busy and (anew or not whole or name not in wanted):
                self._db.run_alone(f"DROP INDEX CONCURRENTLY IF EXISTS {schema}.{name}")
        for name, (model, dim, count) in wanted.items():
            if (name in there and there[name] and not anew) or name in busy:
                continue
            progress("vector index", 0, count)
            kind, operators = _kind(dim, extension)
            self._db.run_alone(
                f"""CREATE INDEX CONCURRENTLY IF NOT EXISTS {name} ON {schema}.vectors
                    USING hnsw ((embedding::{kind}) {operators})
                    WHERE embedding_model = {sql.Literal(model).as_string()}"""
            )
            progress("vector index", count, count)
        self._store._kept = _Kept()

    @plain
    def prepare(self, model: str) -> int:
        self._db.check()
        return self._store._model(model).dim

    def rebuild(self, *, progress: Progress | None = None) -> None:
        progress = progress or ignore_progress
        with self._db.transaction() as db:
            assert isinstance(db, PostgresTables)
            for table in ("words", "terms"):
                db.execute(f"DELETE FROM {table}")
            cids = [row[0] for row in db.execute("SELECT cid FROM chunks ORDER BY cid")]
            for done in index_passages(db, cids):
                progress("keyword index", done, len(cids))
        self._index_vectors(progress, anew=True)
        self._db.checkpoint()

    @plain
    def coverage(self, model: str) -> float:
        def ask() -> float:
            query = """SELECT (SELECT COUNT(*) FROM vectors WHERE embedding_model = ?),
                              (SELECT COUNT(*) FROM chunks)"""
            have, chunks = self._store._tables.execute(query, (model,))[0]
            return min(1.0, have / chunks) if chunks else 0.0

        share: float = self._store._once(("coverage", model), ask)
        return share

    @plain
    def reach(self, terms: Terms, filter: Filter) -> float:
        inside, passages, _ = self._store._inside(terms, filter)
        return greatest_score(terms, inside, passages)

    @plain
    def lengths(self) -> Sequence[int]:
        found: Sequence[int] = self._store._once(
            "lengths", lambda: self._store._tables.lengths(SAMPLED_LENGTHS)
        )
        return found


class _PostgresUpkeep(Facet):
    _store: PostgresStore
    _db: PostgresDatabase

    def check(self) -> Iterator[tuple[str, bool, str]]:
        self._db.check()
        yield from check_tables(self._db)
        mend = "run `clew doctor --mend`: words and indexes are made anew from the tables"
        for what, query in (
            ("every passage has its words", "SELECT cid FROM chunks EXCEPT SELECT cid FROM words"),
            ("all words are of passages", "SELECT cid FROM words EXCEPT SELECT cid FROM chunks"),
        ):
            strays = len(self._store._tables.execute(query))
            yield what, not strays, f"{strays} are not; {mend}"
        broken = [name for name, whole in self._store._indexes().items() if not whole]
        yield "vector indexes are whole", not broken, f"{', '.join(broken)} is not; {mend}"

    def mend(self) -> tuple[list[str], list[str], bool]:
        with self._db.transaction() as db:
            return *checksum.drop_damaged(db), False

    def vacuum(self) -> None:
        """Give freed space back to the server's disk: tables are written anew, one after another,
        and each is locked meanwhile."""
        self._db.vacuum()

    def backup(
        self,
        file: str | Path,
        *,
        root: Path | None = None,
        force: bool = False,
        progress: Progress | None = None,
    ) -> dict[str, Any]:
        """As an SQLite store, which is restored to a file, and copied into a server from there. The
        server has its own ways for all of a database (pg_dump, snapshots)."""
        from clew.storage.backup import write_backup
        from clew.storage.migrate import NOTES, migrate
        from clew.storage.sqlite import SqliteDatabase

        with tempfile.TemporaryDirectory(prefix="clew-") as place:
            copy = SqliteDatabase(Path(place) / "clew.db", synchronous="OFF")
            with contextlib.closing(copy):
                target: Any = SqlStore(copy, Path(place))
                migrate(self._store, target, origin=self._db.name, progress=progress)
                for note in NOTES & set(target.notes):
                    del target.notes[note]
                return write_backup(copy, file, root=root, force=force, progress=progress)
