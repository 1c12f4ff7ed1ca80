"""What the derived indexes, filters and the change log ask of the truth, whichever database it is.

Plain SQL that SQLite and DuckDB read alike, and a few questions that each asks in its own way.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

__all__ = ["Tables"]


class Tables(Protocol):
    """A connection. Outside a transaction each statement sees the newest committed state."""

    @property
    def in_transaction(self) -> bool: ...

    def execute(self, query: str, parameters: Any = ..., /) -> Any:
        """Rows, to be iterated over or fetched."""
        ...

    def executemany(self, query: str, parameters: Any, /) -> Any: ...

    def chunk_texts(self, chunks: Sequence[int]) -> Iterable[tuple[int, int, str, str]]:
        """(chunk, record, its title, text as it is indexed), by the number of the chunk."""
        ...

    def vector_rows(
        self, chunks: Sequence[int], *, model: str, dim: int
    ) -> list[tuple[int, int, bytes]]:
        """(chunk, record, vector as little-endian float32) of those that have one of this model,
        by the number of the chunk."""
        ...
