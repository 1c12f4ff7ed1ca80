"""Anybody's code that makes vectors, as an embedder of a memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from clew.errors import InputError, ModelError, counted
from clew.models import NullEmbedder
from clew.protocols import Embedder
from clew.types import Vector, Vectors
from clew.validate import unit


def as_embedder(given: Any, *, dim: int) -> Embedder:
    """What callers have to make vectors with, as an embedder: one of ours, anything with its two
    methods (as LangChain's), with `encode` (as sentence-transformers'), or a function of a text."""
    if isinstance(given, NullEmbedder):
        return given
    documents, query, encode = (
        getattr(given, name, None) for name in ("embed_documents", "embed_query", "encode")
    )
    if callable(documents) and callable(query):
        return ForeignEmbedder(given, documents, query, dim)
    if callable(encode) and not isinstance(given, str):
        return ForeignEmbedder(given, lambda texts: encode(list(texts)), encode, dim)
    if callable(given):
        return ForeignEmbedder(given, lambda texts: [given(text) for text in texts], given, dim)
    raise InputError(
        f"embedder must be an embedder or a function from text to vector, not {given!r:.100}"
    )


@dataclass(eq=False, repr=False)
class ForeignEmbedder:
    """Anybody's code that makes vectors: what it gives is checked and brought to length 1, and
    whatever it raises is a ModelError, so that a memory is kept without a vector rather than lost.

    Vectors of another length than was said are the caller's mistake, and an InputError.
    """

    _of: Any
    _documents: Callable[[Sequence[str]], Any]
    _query: Callable[[str], Any]
    _dim: int

    @property
    def model(self) -> str:
        """Its own name for it, or else that of the function or class."""
        named = getattr(self._of, "model", None) or getattr(self._of, "model_name", None)
        if isinstance(named, str):
            return named
        name = getattr(self._of, "__qualname__", type(self._of).__qualname__)
        return f"function:{name}@{self.dim}"  # with another dimension it is another model

    @property
    def dim(self) -> int:
        """What it says itself, which may ask another machine, and fail; or what the caller said."""
        said = getattr(self._of, "dim", None)
        if callable(asked := getattr(self._of, "get_sentence_embedding_dimension", None)):
            said = asked()
        return said if isinstance(said, int) else self._dim

    def embed_documents(self, texts: Sequence[str]) -> Vectors:
        import numpy as np

        if not texts:
            return np.zeros((0, self.dim), np.float32)
        return self._embed(lambda: self._documents(texts), len(texts))

    def embed_query(self, text: str) -> Vector:
        row: Vector = self._embed(lambda: [self._query(text)], 1)[0]
        return row

    def _embed(self, embed: Callable[[], Any], count: int) -> Vectors:
        import numpy as np

        try:
            rows = np.asarray(embed(), np.float64)
        except ModelError:
            raise
        except Exception as error:  # a model on another machine, perhaps
            raise ModelError(f"{self.model} failed: {type(error).__name__}: {error}") from error
        if rows.ndim == 2 and rows.shape[1] != self.dim:
            raise InputError(
                f"{self.model} makes vectors of {rows.shape[1]} numbers, not {self.dim}: open the "
                f"memory with embedding_dim={rows.shape[1]}"
            )
        if rows.shape != (count, self.dim):
            raise ModelError(
                f"{self.model} gave vectors of shape {rows.shape} for {counted(count, 'text')}: "
                f"{(count, self.dim)} is expected"
            )
        if not np.isfinite(rows).all():
            raise ModelError(f"{self.model} gave a vector with NaN or infinity in it")
        return unit(rows)
