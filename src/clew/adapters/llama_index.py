"""A LlamaIndex retriever over an engine or a memory.

>>> retriever = ClewRetriever(engine, k=5, options={"filter": {"path": "projects/"}})
>>> RetrieverQueryEngine.from_args(retriever).query("which bolts hold the keel?")
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from clew.adapters import missing
from clew.adapters.found import Found, check_k, check_options, check_source, find
from clew.engine import Engine
from clew.memory import AsyncMemory, Memory

try:
    from llama_index.core.callbacks import CallbackManager
    from llama_index.core.retrievers import BaseRetriever
    from llama_index.core.schema import (
        NodeRelationship,
        NodeWithScore,
        QueryBundle,
        RelatedNodeInfo,
        TextNode,
    )
except ImportError as error:
    raise missing("LlamaIndex", "llama-index", error) from error

__all__ = ["ClewRetriever"]

SILENT = (
    *("id", "score", "source", "confidence", "chance", "signals", "snippet", "snippet_line"),
    *("collection", "importance", "updated_at"),
)
"""Metadata that is for programs: above the passage in a prompt it would only cost tokens."""


class ClewRetriever(BaseRetriever):
    """Nodes with the passage (or the memory) as text, their score and their place.

    `source` is an Engine, a Memory or an AsyncMemory and stays its owner's to close. `options` are
    those of `Engine.search` (`filter`, `mode`, `rerank`…) or of `Memory.recall` (`namespace`,
    `type_filter`, `tags`…). The embedding that a QueryBundle may carry is of another model than the
    store's, so it is not used.
    """

    def __init__(
        self,
        source: Engine | Memory | AsyncMemory,
        *,
        k: int = 5,
        options: Mapping[str, Any] | None = None,
        callback_manager: CallbackManager | None = None,
        verbose: bool = False,
    ):
        self._source = check_source(source)
        self._k = check_k(k)
        self._options = check_options(self._source, options or {})
        super().__init__(callback_manager=callback_manager, verbose=verbose)

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        found = find(self._source, query_bundle.query_str, k=self._k, options=self._options)
        return [NodeWithScore(node=_node(one), score=one.score) for one in found]

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return await asyncio.to_thread(self._retrieve, query_bundle)


def _node(found: Found) -> TextNode:
    silent = [name for name in found.metadata if name in SILENT]
    return TextNode(
        id_=found.id,
        text=found.text,
        metadata=found.metadata,
        excluded_llm_metadata_keys=silent,
        excluded_embed_metadata_keys=list(found.metadata),
        relationships={NodeRelationship.SOURCE: RelatedNodeInfo(node_id=found.id)},
    )
