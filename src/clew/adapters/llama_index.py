"""A LlamaIndex retriever over an engine or a memory.

>>> retriever = ClewRetriever(engine, k=5, options={"filter": {"path": "projects/"}})
>>> RetrieverQueryEngine.from_args(retriever).query("which bolts hold the keel?")
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from clew.adapters import RetrievedText, check_source, retrieve
from clew.engine import Engine
from clew.errors import needs_extra
from clew.memory import AsyncMemory, Memory

with needs_extra("llama-index", "the adapter for LlamaIndex"):
    from llama_index.core.callbacks import CallbackManager
    from llama_index.core.retrievers import BaseRetriever
    from llama_index.core.schema import (
        NodeRelationship,
        NodeWithScore,
        QueryBundle,
        RelatedNodeInfo,
        TextNode,
    )

_SILENT = (
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
        self._source = check_source(source, k, options or {})
        self._k, self._options = k, dict(options or {})
        super().__init__(callback_manager=callback_manager, verbose=verbose)

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        found = retrieve(self._source, query_bundle.query_str, self._k, self._options)
        return [NodeWithScore(node=_make_node(one), score=one.score) for one in found]

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return await asyncio.to_thread(self._retrieve, query_bundle)


def _make_node(found: RetrievedText) -> TextNode:
    return TextNode(
        id_=found.id,
        text=found.text,
        metadata=found.metadata,
        excluded_llm_metadata_keys=[name for name in found.metadata if name in _SILENT],
        excluded_embed_metadata_keys=list(found.metadata),
        relationships={NodeRelationship.SOURCE: RelatedNodeInfo(node_id=found.id)},
    )
