"""LangChain's EnsembleRetriever over BM25Retriever and FAISS, weights 0.5 and 0.5.

As in its how-to and https://reference.langchain.com/python/langchain-classic/retrievers/ensemble :
both retrievers with k of the job and all other defaults: BM25Retriever splits at white space only,
FAISS is a flat index. `id_key` tells documents with the same text apart. All of it lives in memory.
BM25Retriever cannot filter: with a scope both are asked for 10 × k and the rest is dropped after.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from job import Job, Query, run
from langchain_classic.retrievers import EnsembleRetriever
from langchain_community.retrievers import BM25Retriever
from langchain_community.vectorstores import FAISS
from langchain_core.embeddings import Embeddings


class Given(Embeddings):
    """The vectors of the job, by the query's text."""

    def __init__(self, job: Job) -> None:
        self._vectors = {text: row.tolist() for text, row in job.by_text().items()}

    def embed_query(self, text: str) -> list[float]:
        return self._vectors[text]

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        raise NotImplementedError("documents come with their vectors")


def build(job: Job) -> dict[str, Callable[[Query], list[str]]]:
    texts = list(job.texts())
    about: list[dict[str, Any]] = [{"id": text.id, "scope": text.scope} for text in texts]
    words = [text.text for text in texts]
    bm25 = BM25Retriever.from_texts(words, metadatas=about)
    pairs = zip(words, (row.tolist() for row in job.vectors), strict=True)
    store = FAISS.from_embeddings(pairs, Given(job), metadatas=about)

    def depth(query: Query) -> int:
        return min(job.depth(query), len(texts))

    def hybrid(query: Query) -> list[str]:
        bm25.k = depth(query)
        nearest = store.as_retriever(search_kwargs={"k": depth(query)})
        both = EnsembleRetriever(retrievers=[bm25, nearest], weights=[0.5, 0.5], id_key="id")
        return job.within((found.metadata["id"] for found in both.invoke(query.text)), query)

    def vector(query: Query) -> list[str]:
        found = store.similarity_search(query.text, k=depth(query))
        return job.within((document.metadata["id"] for document in found), query)

    return {"hybrid": hybrid, "vector": vector}


if __name__ == "__main__":
    run(build, packages=("langchain-classic", "langchain-community", "rank-bm25", "faiss-cpu"))
