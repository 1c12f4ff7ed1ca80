"""A LangChain retriever over an engine or a memory.

>>> retriever = ClewRetriever(engine, k=5, options={"filter": {"tags": ["safety"]}})
>>> retriever.invoke("which bolts hold the keel?")
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from clew.adapters import check_source, retrieve
from clew.engine import Engine
from clew.errors import needs_extra
from clew.memory import AsyncMemory, Memory

with needs_extra("langchain", "the adapter for LangChain"):
    from langchain_core.documents import Document
    from langchain_core.retrievers import BaseRetriever
    from pydantic import Field


class ClewRetriever(BaseRetriever):
    """Documents with the passage (or the memory) as text; the rest is in their metadata.

    `source` is an Engine, a Memory or an AsyncMemory and stays its owner's to close. `options` are
    those of `Engine.search` (`filter`, `mode`, `rerank`…) or of `Memory.recall` (`namespace`,
    `type_filter`, `tags`…). Both, and `k`, can also be given with a call:
    `retriever.invoke(question, k=3)`.
    """

    source: Any = Field(exclude=True)
    k: int = 5
    options: dict[str, Any] = Field(default_factory=dict)

    def __init__(
        self,
        source: Engine | Memory | AsyncMemory,
        *,
        k: int = 5,
        options: Mapping[str, Any] | None = None,
        **fields: Any,
    ):
        # Checked here, not by pydantic: its ValidationError would swallow what to do next.
        check_source(source, k, options or {})
        fields |= {"source": source, "k": k, "options": dict(options or {})}
        super().__init__(**fields)

    def _get_relevant_documents(
        self, query: str, *, run_manager: Any = None, k: int | None = None, **options: Any
    ) -> list[Document]:
        wanted = self.k if k is None else k
        return [
            Document(id=found.id, page_content=found.text, metadata=found.metadata)
            for found in retrieve(self.source, query, wanted, {**self.options, **options})
        ]

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: Any = None, k: int | None = None, **options: Any
    ) -> list[Document]:
        return await asyncio.to_thread(self._get_relevant_documents, query, k=k, **options)
