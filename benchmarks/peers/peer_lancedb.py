"""LanceDB: hybrid as https://lancedb.github.io/lancedb/hybrid_search/hybrid_search/ says.

`create_fts_index` on the text with its defaults (English stemming, stopwords out), then
`search(query_type="hybrid").vector(…).text(…)` with the default reranker, RRF
(https://docs.lancedb.com/reranking/rrf). The limit is also the depth of each leg.

Vectors: its documentation wants an index where scanning is too slow, from a few hundred thousand
rows on (https://lancedb.com/documentation/concepts/search.html); here from 100,000 on, and none
below, which is exact. It is `create_index` with the default type and settings (IVF_PQ); `nprobes`
and `refine_factor`, the knobs of https://docs.lancedb.com/indexing/vector-index, are the cheapest
that reach the job's recall on the warm-up queries.
Scope is a `where` clause, which LanceDB applies before the search, with a scalar index on it.

Late interaction is a column of multivectors (https://docs.lancedb.com/search/multivector-search),
searched without an index, which is exact: `late alone` by it, `late` by it and the full text, made
one by RRF as above.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import lancedb
import pyarrow as pa
from job import Job, Query, run

INDEX_FROM = 100_000
KNOBS = [(None, None)] + [(n, r) for n in (20, 50, 100, 200) for r in (5, 20, 50, 100)]
"""(nprobes, refine_factor), cheap first; (None, None): its own choice."""


def build(job: Job) -> dict[str, Callable[[Query], list[str]]]:
    schema = pa.schema(
        [
            ("id", pa.string()),
            ("text", pa.string()),
            ("scope", pa.string()),
            ("vector", pa.list_(pa.float32(), job.vectors.shape[1])),
        ]
    )
    table = lancedb.connect(job.index).create_table("texts", data=_rows(job, schema), schema=schema)
    table.create_fts_index("text")
    if job.scoped:
        table.create_scalar_index("scope")
    indexed = len(job.vectors) >= INDEX_FROM
    if indexed:
        table.create_index(metric="cosine")
        table.optimize()

    def hybrid(query: Query, knobs: Any) -> list[str]:
        words = query.text.replace('"', " ")  # a quotation would be a phrase, for another index
        search = table.search(query_type="hybrid").vector(query.vector).text(words)
        return _ids(search, query, knobs)

    def vector(query: Query, knobs: Any) -> list[str]:
        return _ids(table.search(query.vector), query, knobs)

    def _ids(search: Any, query: Query, knobs: Any) -> list[str]:
        search = search.distance_type("cosine")
        nprobes, refine = knobs
        if nprobes:
            search = search.nprobes(nprobes)
        if refine:
            search = search.refine_factor(refine)
        if query.scope:
            search = search.where(f"scope = '{query.scope}'")
        found = search.limit(job.k).select(["id"]).to_arrow()
        return found["id"].to_pylist()

    knobs = job.tune(KNOBS, vector) if indexed else (None, None)
    asks = {
        "hybrid": lambda query: hybrid(query, knobs),
        "vector": lambda query: vector(query, knobs),
    }
    return asks | (_late(job) if "late" in job.modes else {})


def _late(job: Job) -> dict[str, Callable[[Query], list[str]]]:
    tokens = job.tokens()
    assert tokens is not None
    width = tokens[0].shape[1]
    schema = pa.schema(
        [
            ("id", pa.string()),
            ("text", pa.string()),
            ("scope", pa.string()),
            ("vector", pa.list_(pa.list_(pa.float32(), width))),
        ]
    )
    rows = [
        {"id": text.id, "text": text.text, "scope": text.scope, "vector": list(of)}
        for text, of in zip(job.texts(), (of.astype("float32") for of in tokens), strict=True)
    ]
    data = pa.Table.from_pylist(rows, schema=schema)
    table = lancedb.connect(job.index).create_table("tokens", data=data, schema=schema)
    table.create_fts_index("text")

    def ask(query: Query, search: Any) -> list[str]:
        if query.scope:
            search = search.where(f"scope = '{query.scope}'")
        found = search.distance_type("cosine").limit(job.k).select(["id"]).to_arrow()
        return found["id"].to_pylist()

    def alone(query: Query) -> list[str]:
        return ask(query, table.search(query.tokens.astype("float32"), vector_column_name="vector"))

    def both(query: Query) -> list[str]:
        words = query.text.replace('"', " ")
        search = table.search(query_type="hybrid", vector_column_name="vector")
        return ask(query, search.vector(query.tokens.astype("float32")).text(words))

    return {"late": both, "late alone": alone}


def _rows(job: Job, schema: Any) -> Iterator[Any]:
    for texts, vectors in job.batches(10_000):
        flat = pa.array(vectors.reshape(-1))
        columns = [
            pa.array([text.id for text in texts]),
            pa.array([text.text for text in texts]),
            pa.array([text.scope for text in texts]),
            pa.FixedSizeListArray.from_arrays(flat, vectors.shape[1]),
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


if __name__ == "__main__":
    run(build, packages=("lancedb",))
