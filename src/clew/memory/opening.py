"""Where a memory's file is, and what turns its texts into vectors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from clew import storage as stores
from clew.errors import InputError, ModelError, StoreError, counted
from clew.models import NullEmbedder
from clew.protocols import Embedder, Store
from clew.types import Vector, Vectors

__all__ = ["Foreign", "as_embedder", "open_store", "path_of"]

BESIDE = ".clew"
"""Ending of the folder beside the file that has the derived indexes."""


def path_of(db_path: str | Path) -> Path:
    """The file that is meant, by its path or by the URL of a store."""
    return stores.located(str(db_path), Path()).path if stores.is_url(db_path) else Path(db_path)


def open_store(db_path: str | Path, *, create: bool, **options: Any) -> Store:
    """The store in this one file; its indexes are beside it and can be deleted at any time."""
    if stores.is_url(db_path):
        return stores.open_store(str(db_path), base=Path(), create=create, **options)
    if str(db_path) == ":memory:":
        raise StoreError("a memory is a file, so that it lasts: give a path, in a temporary folder")
    path = Path(db_path).expanduser()
    try:
        path.stat()
    except FileNotFoundError:
        pass
    except (OSError, ValueError) as error:  # a name that cannot be one
        raise StoreError(f"{str(path)!r:.200} is no path of a file: {error}") from None
    if path.is_dir():
        raise StoreError(
            f"{path} is a folder: give the file of the memory, such as {path}/memory.db"
        )
    if not path.parent.is_dir():
        raise StoreError(f"there is no folder {path.parent}: make it first, or check the path")
    if not create and not path.exists():
        raise StoreError(f"there is no memory in {path}: check the path, or remember something")
    from clew.storage.store import EmbeddedStore

    beside = path.with_name(path.name + BESIDE)
    return EmbeddedStore(beside, database=path, create=create, **options)


def as_embedder(given: Any, *, dim: int) -> Embedder:
    """What callers have to make vectors with, as an embedder: one of ours, anything with its two
    methods (as LangChain's), with `encode` (as sentence-transformers'), or a function of a text."""
    if isinstance(given, NullEmbedder):
        return given
    if callable(getattr(given, "embed_documents", None)) and callable(
        getattr(given, "embed_query", None)
    ):
        return Foreign(given, given.embed_documents, given.embed_query, dim)
    if callable(encode := getattr(given, "encode", None)) and not isinstance(given, str):
        return Foreign(given, lambda texts: encode(list(texts)), encode, dim)
    if callable(given):
        return Foreign(given, lambda texts: [given(text) for text in texts], given, dim)
    raise InputError(
        f"embedder must be an embedder or a function from text to vector, not {given!r:.100}"
    )


class Foreign:
    """Anybody's code that makes vectors: what it gives is checked and brought to length 1, and
    whatever it raises is a ModelError, so that a memory is kept without a vector rather than lost.

    Vectors of another length than was said are the caller's mistake, and an InputError.
    """

    def __init__(
        self,
        of: Any,
        documents: Callable[[Sequence[str]], Any],
        query: Callable[[str], Any],
        dim: int,
    ):
        self._of, self._dim = of, dim
        self._documents, self._query = documents, query

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
        return self._checked(lambda: self._documents(texts), len(texts))

    def embed_query(self, text: str) -> Vector:
        row: Vector = self._checked(lambda: [self._query(text)], 1)[0]
        return row

    def _checked(self, embed: Callable[[], Any], count: int) -> Vectors:
        import numpy as np

        from clew.models.vectors import unit

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
