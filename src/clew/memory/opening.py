"""Where a memory's file is, and what turns its texts into vectors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clew.errors import InputError, ModelError, StoreError
from clew.protocols import Embedder
from clew.types import Vector, Vectors

if TYPE_CHECKING:
    from clew.store.embedded import EmbeddedStore

__all__ = ["as_embedder", "open_store"]

BESIDE = ".clew"
"""Ending of the folder beside the file that has the derived indexes."""


def open_store(db_path: str | Path, *, create: bool, **options: Any) -> EmbeddedStore:
    """The store in this one file; its indexes are beside it and can be deleted at any time."""
    if str(db_path) == ":memory:":
        raise StoreError("a memory is a file, so that it lasts: give a path, in a temporary folder")
    path = Path(db_path).expanduser()
    if path.is_dir():
        raise StoreError(
            f"{path} is a folder: give the file of the memory, such as {path}/memory.db"
        )
    if not path.parent.is_dir():
        raise StoreError(f"there is no folder {path.parent}: make it first, or check the path")
    if not create and not path.exists():
        raise StoreError(f"there is no memory in {path}: check the path, or remember something")
    from clew.store.embedded import EmbeddedStore

    beside = path.with_name(path.name + BESIDE)
    return EmbeddedStore(beside, database=path, create=create, **options)


def as_embedder(given: Any, *, dim: int) -> Embedder:
    """An embedder, or a function from a text to its vector made into one."""
    if all(hasattr(given, name) for name in ("model", "dim", "embed_documents", "embed_query")):
        made: Embedder = given
        return made
    if callable(given):
        return _Called(given, dim)
    raise InputError(
        f"embedder must be an embedder or a function from text to vector, not {given!r:.100}"
    )


class _Called:
    """A function from a text to its vector."""

    def __init__(self, embed: Callable[[str], Any], dim: int):
        self._embed = embed
        self.dim = dim
        name = getattr(embed, "__qualname__", type(embed).__qualname__)
        self.model = f"function:{name}@{dim}"  # with another dimension it is another model

    def embed_documents(self, texts: Sequence[str]) -> Vectors:
        import numpy as np

        from clew.models.unit import unit

        if not texts:
            return np.zeros((0, self.dim), np.float32)
        try:
            rows = np.stack([np.asarray(self._embed(text), np.float32) for text in texts])
        except Exception as error:  # anybody's code, and a model on another machine perhaps
            raise ModelError(f"{self.model} failed: {type(error).__name__}: {error}") from error
        if rows.shape != (len(texts), self.dim) or not np.isfinite(rows).all():
            raise ModelError(
                f"{self.model} gave vectors of shape {rows.shape[1:]}, or not finite ones: "
                f"{self.dim} numbers each are expected (embedding_dim)"
            )
        return unit(rows)

    def embed_query(self, text: str) -> Vector:
        row: Vector = self.embed_documents([text])[0]
        return row
