"""LlamaIndex's QueryFusionRetriever over a vector index and BM25Retriever, reciprocal_rerank.

As in its example, with no queries made up by a model (num_queries=1):
https://developers.llamaindex.ai/python/framework/integrations/retrievers/reciprocal_rerank_fusion/
Both retrievers are asked for the job's k. BM25Retriever is bm25s with an English stemmer. Vectors
are in the default in-memory store; from 50,000 on in its FAISS store (IndexFlatIP), because the
default one loops over all vectors in Python.
Scope is a metadata filter in both retrievers, which are made once for each scope.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import faiss
from job import Job, Query, run
from llama_index.core import MockEmbedding, Settings, StorageContext, VectorStoreIndex
from llama_index.core.llms import MockLLM
from llama_index.core.retrievers import QueryFusionRetriever
from llama_index.core.schema import QueryBundle, TextNode
from llama_index.core.vector_stores import ExactMatchFilter, MetadataFilters
from llama_index.retrievers.bm25 import BM25Retriever
from llama_index.vector_stores.faiss import FaissVectorStore

FAISS_FROM = 50_000


def build(job: Job) -> dict[str, Callable[[Query], list[str]]]:
    # Neither model is ever called: nodes and queries come with their vectors.
    Settings.llm = MockLLM()
    Settings.embed_model = MockEmbedding(embed_dim=int(job.vectors.shape[1]))
    nodes = [
        TextNode(
            id_=text.id,
            text=text.text,
            metadata={"scope": text.scope},
            embedding=row.tolist(),
            excluded_embed_metadata_keys=["scope"],
        )
        for text, row in zip(job.texts(), job.vectors, strict=True)
    ]
    storage = None
    if len(nodes) >= FAISS_FROM:
        store = FaissVectorStore(faiss_index=faiss.IndexFlatIP(int(job.vectors.shape[1])))
        storage = StorageContext.from_defaults(vector_store=store)
        job.notes.append("vectors in its FAISS store")
    index = VectorStoreIndex(nodes, storage_context=storage)
    for node in nodes:
        node.embedding = None  # the index has them; BM25Retriever would keep a copy as JSON

    @cache
    def retrievers(scope: str) -> tuple[Any, Any]:
        filters = MetadataFilters(filters=[ExactMatchFilter(key="scope", value=scope)])
        inside = {"filters": filters} if scope else {}
        vectors = index.as_retriever(similarity_top_k=job.k, **inside)
        words = BM25Retriever.from_defaults(nodes=nodes, similarity_top_k=job.k, **inside)
        return vectors, QueryFusionRetriever(
            [vectors, words],
            similarity_top_k=job.k,
            num_queries=1,
            mode="reciprocal_rerank",
            use_async=False,
        )

    for scope in {query.scope for query in job.queries}:
        retrievers(scope)
    index.storage_context.persist(persist_dir=str(job.index))

    def ask(query: Query, which: int) -> list[str]:
        asked = QueryBundle(query.text, embedding=query.vector.tolist())
        return [found.node.node_id for found in retrievers(query.scope)[which].retrieve(asked)]

    return {"hybrid": lambda query: ask(query, 1), "vector": lambda query: ask(query, 0)}


if __name__ == "__main__":
    run(build, packages=("llama-index-core", "llama-index-retrievers-bm25", "faiss-cpu"))
