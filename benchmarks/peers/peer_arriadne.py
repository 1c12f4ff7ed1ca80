"""Ariadne (distribution `arriadne`): `AriadneMemory.recall` with a vector, which is hybrid search.

As its README says: memories with their embeddings in, `recall(query, embedding=…, k=…)` out: FTS5
with all words, any word when that finds nothing, and FAISS, each 2·k deep, fused with RRF. Loaded
with `remember_many`, its bulk method. An exact duplicate is not stored twice and is not found.
(the README in its package, `arriadne`)
Scope is its `namespace`.
"""

from __future__ import annotations

from collections.abc import Callable

from arriadne import AriadneMemory
from job import Job, Query, run


def build(job: Job) -> dict[str, Callable[[Query], list[str]]]:
    memory = AriadneMemory(
        db_path=str(job.index / "memory.db"), embedding_dim=int(job.vectors.shape[1])
    )
    names: dict[int, str] = {}
    refused = 0
    for texts, vectors in job.batches(1_000):
        items = [
            {"content": text.text, "embedding": row, "namespace": text.scope or "default"}
            for text, row in zip(texts, vectors, strict=True)
        ]
        for text, result in zip(texts, memory.remember_many(items), strict=True):
            if result["status"] == "created":
                names[result["memory_id"]] = text.id
            else:
                refused += 1
    if refused:
        job.notes.append(f"{refused} texts were duplicates to it and not stored")

    def hybrid(query: Query) -> list[str]:
        found = memory.recall(
            query.text, embedding=query.vector, k=job.k, namespace=query.scope or None
        )
        return [names[hit["id"]] for hit in found]

    def vector(query: Query) -> list[str]:
        # AriadneMemory has no public method for vectors alone; this is what recall calls.
        found = memory._db.vector_search(query.vector, k=job.k, namespace=query.scope or None)
        return [names[hit["id"]] for hit in found]

    return {"hybrid": hybrid, "vector": vector}


if __name__ == "__main__":
    run(build, packages=("arriadne", "faiss-cpu"))
