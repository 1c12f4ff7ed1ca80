"""The floor: bare Tantivy and bare FAISS, fused with plain RRF (k = 60) in ten lines.

What anybody gets who glues the two libraries together: Tantivy's own `en_stem` tokenizer and query
parser, FAISS exact below 50,000 vectors and IVFFlat with 4·√n lists above (the fewest probes that
reach the job's recall), both 100 deep. https://github.com/quickwit-oss/tantivy-py,
https://github.com/facebookresearch/faiss/wiki/Guidelines-to-choose-an-index
Scope is a required term in Tantivy and an id selector in FAISS.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import faiss
import numpy as np
import tantivy
from job import Job, Query, run

DEPTH, RRF_K = 100, 60
IVF_FROM = 50_000
_WORD = re.compile(r"\w+")


def build(job: Job) -> dict[str, Callable[[Query], list[str]]]:
    builder = tantivy.SchemaBuilder()
    builder.add_unsigned_field("row", fast=True)
    builder.add_text_field("text", tokenizer_name="en_stem", index_option="freq")
    builder.add_text_field("scope", tokenizer_name="raw")
    index = tantivy.Index(builder.build(), str(job.index))
    writer = index.writer(256_000_000, 1)  # with more threads ties fall differently each time
    scopes = []
    for row, text in enumerate(job.texts()):
        document = tantivy.Document(text=text.text, scope=text.scope)
        document.add_unsigned("row", row)
        writer.add_document(document)
        scopes.append(text.scope)
    writer.commit()
    writer.wait_merging_threads()
    index.reload()
    searcher = index.searcher()
    ids, rows = job.ids, np.array(scopes)
    inside = {s: np.flatnonzero(rows == s) for s in {q.scope for q in job.queries} if s}
    vectors = _vectors(job)

    def keyword(query: Query) -> list[int]:
        # Only words, and in small letters: the parser's operators and AND, OR, IN are not meant.
        words = " ".join(_WORD.findall(query.text.lower()))
        wanted, _ = index.parse_query_lenient(words, ["text"])  # also of no word it knows
        if query.scope:
            scope = tantivy.Query.term_query(index.schema, "scope", query.scope)
            must = tantivy.Occur.Must
            wanted = tantivy.Query.boolean_query([(must, wanted), (must, scope)])
        hits = searcher.search(wanted, DEPTH, count=False).hits
        return searcher.fast_field_values("row", [address for _, address in hits])

    def nearest(query: Query, probes: int, k: int = DEPTH) -> list[int]:
        selector = faiss.IDSelectorBatch(inside[query.scope]) if query.scope else None
        if isinstance(vectors, faiss.IndexIVF):
            settings = faiss.SearchParametersIVF(nprobe=probes, sel=selector)
        else:
            settings = faiss.SearchParameters(sel=selector)
        found = vectors.search(query.vector.reshape(1, -1), k, params=settings)[1][0]
        return [int(row) for row in found if row >= 0]

    settings = [n for n in (8, 16, 24, 32, 48, 64, 96, 128, 192, 256) if n <= 4 * len(ids) ** 0.5]
    if isinstance(vectors, faiss.IndexIVF):
        probes = job.tune(settings, lambda query, n: [ids[row] for row in nearest(query, n, job.k)])
    else:
        probes = 1

    def hybrid(query: Query) -> list[str]:
        scores: dict[int, float] = {}
        for leg in (keyword(query), nearest(query, probes)):
            for rank, row in enumerate(leg, 1):
                scores[row] = scores.get(row, 0.0) + 1 / (RRF_K + rank)
        best = sorted(scores, key=lambda row: (-scores[row], row))
        return [ids[row] for row in best[: job.k]]

    return {
        "hybrid": hybrid,
        "keyword": lambda query: [ids[row] for row in keyword(query)],
        "vector": lambda query: [ids[row] for row in nearest(query, probes, job.k)],
    }


def _vectors(job: Job) -> Any:
    count, dim = job.vectors.shape
    if count < IVF_FROM:
        flat = faiss.IndexFlatIP(dim)
        flat.add(np.ascontiguousarray(job.vectors))
        return flat
    lists = int(4 * count**0.5)
    ivf = faiss.IndexIVFFlat(faiss.IndexFlatIP(dim), dim, lists, faiss.METRIC_INNER_PRODUCT)
    sample = np.sort(np.random.default_rng(4).permutation(count)[: 64 * lists])
    ivf.train(np.ascontiguousarray(job.vectors[sample]))
    for i in range(0, count, 50_000):
        ivf.add(np.ascontiguousarray(job.vectors[i : i + 50_000]))
    faiss.write_index(ivf, str(job.index / "vectors.faiss"))
    return ivf


if __name__ == "__main__":
    run(build, packages=("tantivy", "faiss-cpu"))
