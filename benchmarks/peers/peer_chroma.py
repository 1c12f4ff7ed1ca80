"""Chroma on one machine: vectors only.

Its hybrid search (Search API with RRF, https://docs.trychroma.com/cloud/search-api/overview) is
for Chroma Cloud only, so what is compared is `collection.query`: the default HNSW index, cosine.
Scope is a `where` clause.
"""

from __future__ import annotations

from collections.abc import Callable

import chromadb
from job import Job, Query, run


def build(job: Job) -> dict[str, Callable[[Query], list[str]]]:
    client = chromadb.PersistentClient(path=str(job.index))
    collection = client.create_collection(
        "texts", configuration={"hnsw": {"space": "cosine"}}, embedding_function=None
    )
    for texts, vectors in job.batches(min(5_000, client.get_max_batch_size())):
        collection.add(
            ids=[text.id for text in texts],
            embeddings=vectors,
            documents=[text.text for text in texts],
            metadatas=[{"scope": text.scope} for text in texts],
        )

    def ask(query: Query) -> list[str]:
        where = {"scope": query.scope} if query.scope else None
        found = collection.query(query_embeddings=[query.vector], n_results=job.k, where=where)
        return found["ids"][0]

    return {"vector": ask}


if __name__ == "__main__":
    run(build, packages=("chromadb",))
