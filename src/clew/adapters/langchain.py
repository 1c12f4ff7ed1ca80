"""A LangChain retriever over an engine or a memory.

>>> retriever = ClewRetriever(engine, k=5, options={"filter": {"tags": ["safety"]}})
>>> retriever.invoke("which bolts hold the keel?")
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from clew.adapters import missing
from clew.adapters.found import check_k, check_options, check_source, find
from clew.engine import Engine
from clew.memory import AsyncMemory, Memory

try:
    from langchain_core.documents import Document
    from langchain_core.retrievers import BaseRetriever
    from pydantic import Field
except ImportError as error:
    raise missing("LangChain", "langchain", error) from error

__all__ = ["ClewRetriever"]


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
        fields |= {"source": source, "k": check_k(k)}
        fields["options"] = check_options(check_source(source), options or {})
        super().__init__(**fields)

    def _get_relevant_documents(
        self, query: str, *, run_manager: Any = None, k: int | None = None, **options: Any
    ) -> list[Document]:
        source = check_source(self.source)
        return [
            Document(id=found.id, page_content=found.text, metadata=found.metadata)
            for found in find(
                source,
                query,
                k=self.k if k is None else check_k(k),
                options=check_options(source, {**self.options, **options}),
            )
        ]

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: Any = None, k: int | None = None, **options: Any
    ) -> list[Document]:
        return await asyncio.to_thread(self._get_relevant_documents, query, k=k, **options)
