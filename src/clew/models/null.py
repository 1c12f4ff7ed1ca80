"""No embedding model: Clew then finds by words alone, and says why."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from clew.errors import ModelError

__all__ = ["NullEmbedder", "NullEmbeddingProvider"]


class NullEmbeddingProvider:
    """Stands where an embedder would. `reason` says why there is none and what to do about it."""

    model = "none"
    dim = 0

    def __init__(
        self, reason: str = "no embedding model is configured: set `model` to bge-small"
    ) -> None:
        self.reason = reason

    def embed_documents(self, texts: Sequence[str]) -> NoReturn:
        raise ModelError(self.reason)

    def embed_query(self, text: str) -> NoReturn:
        raise ModelError(self.reason)

    def __repr__(self) -> str:
        return f"NullEmbeddingProvider({self.reason!r})"


NullEmbedder = NullEmbeddingProvider
"""The same class, by the name that the other embedders go by."""
