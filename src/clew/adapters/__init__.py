"""Clew inside other frameworks: one thin module each, and none of them is imported by Clew itself.
Here is what the retrievers have in common: one question to an engine or a memory, answered as text
with metadata that is plain JSON.

clew.adapters.langchain     ClewRetriever    pip install 'clew-search[langchain]'
clew.adapters.llama_index   ClewRetriever    pip install 'clew-search[llama-index]'
clew.adapters.langgraph     ClewStore        pip install 'clew-search[langgraph]'
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, NamedTuple

from clew.engine import Engine
from clew.errors import InputError, check_known
from clew.memory import AsyncMemory, Memory, Recalled
from clew.memory.recall import RecallOptions
from clew.types import Hit
from clew.validate import check_whole, guarded

_OWN_PARAMETERS = {"query", "k", "limit", "options"}
"""Parameters of a search that the adapter sets itself, and the name of further ones."""


class RetrievedText(NamedTuple):
    id: str
    text: str
    score: float
    metadata: dict[str, Any]


@guarded
def check_source(source: Any, k: Any, options: Mapping[str, Any]) -> Engine | Memory:
    """What can be asked, with these options: a wrong name is refused when the retriever is made,
    rather than in the middle of a chain. Of an AsyncMemory it is the memory behind it: frameworks
    have their own way of not blocking the loop."""
    if isinstance(source, AsyncMemory):
        source = source.memory
    if not isinstance(source, (Engine, Memory)):
        raise InputError(
            f"a retriever searches an Engine or a Memory, not {source!r:.100}: use "
            "clew.open(folder) or clew.Memory(file)"
        )
    check_whole("k", k)
    search = source.recall if isinstance(source, Memory) else source.search
    known = inspect.signature(search).parameters.keys() - _OWN_PARAMETERS
    if isinstance(source, Memory):
        known |= RecallOptions.__annotations__.keys()
    check_known(f"{type(source).__name__}.{search.__name__} has no option", known, *options)
    return source


@guarded
def retrieve(source: Any, query: str, k: int, options: Mapping[str, Any]) -> list[RetrievedText]:
    """The best `k`. A question of a chain was not typed as a query, so quotes and hyphens in it are
    no syntax unless the options say so."""
    source = check_source(source, k, options)
    if isinstance(source, Memory):
        return [
            _describe(
                memory,
                namespace=memory.namespace,
                type=memory.type,
                tags=list(memory.tags),
                importance=memory.importance,
                created_at=memory.created_at,
                updated_at=memory.updated_at,
                source=memory.search_type,
            )
            for memory in source.recall(query, k=k, **options)
        ]
    return [
        _describe(
            hit,
            title=hit.title,
            path=hit.path,
            start_line=hit.lines[0] if hit.lines else None,
            end_line=hit.lines[1] if hit.lines else None,
            source=hit.source,
            confidence=hit.confidence,
            chance=hit.chance,
            snippet=hit.snippet,
        )
        for hit in source.search(query, limit=k, **{"syntax": False, **options})
    ]


def _describe(found: Hit | Recalled, **about: Any) -> RetrievedText:
    score = float(found.score)
    signals = {source: dict(signal) for source, signal in found.signals.items()}
    metadata = {**found.metadata, "id": found.id, "score": score, **about, "signals": signals}
    return RetrievedText(found.id, found.content, score, metadata)
