"""The storage's two legs. Every search of it takes the engine's one path."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from clew.lookup.backends import Backend, Setup
from clew.lookup.result import Found, Partial
from clew.types import Hit, Mode, SearchResult, Vector

if TYPE_CHECKING:
    from clew.engine import Engine

__all__ = ["chunks_of", "storage_keyword", "storage_vector"]


class _Leg(Backend):
    """One mode of the engine's search."""

    def __init__(self, engine: Engine, mode: Mode, leg: str, setup: Setup):
        self._engine, self._mode, self._leg, self._setup = engine, mode, leg, setup

    def __call__(self, query: str, limit: int) -> Partial:
        result = self._engine.search(
            query,
            limit=limit,
            mode=self._mode,
            group_by="record",
            filter=self._setup.filter,
            include_personal=self._setup.include_personal,
            syntax=False,
            rerank=False,
            cache=False,
            explain=True,  # names the passages, whose vectors are wanted
        )
        chunks = chunks_of(result, self._leg)
        model = str(result.trace.get("model", ""))
        known = self._engine.store.vectors.known(list(chunks.values()), model=model)
        roots = self._engine.store.files.roots()
        return Partial(
            [self._found(hit, known.get(chunks.get(hit.id, -1)), roots) for hit in result],
            "; ".join(result.degraded) or None,
        )

    def _found(self, hit: Hit, vector: Vector | None, roots: Mapping[str, str]) -> Found:
        near = hit.signals.get("vectors", {}).get("score") if self._mode == "vector" else None
        folder, file = roots.get(hit.id.partition(":")[0]), None
        if folder is not None and hit.path:
            file = str(Path(self._engine.root or "", folder, hit.path).resolve())
        return Found(hit, vector, near, file)

    def freshness(self) -> str:
        return ".".join(map(str, self._engine.store.changes.edition()))

    def idle(self) -> str | None:
        """Why it need not be asked."""
        if self._mode == "vector" and not self._engine.store.indexes.prepare(self._engine.model):
            return "the storage has no vectors"
        return None


def chunks_of(result: SearchResult, leg: str) -> dict[str, int]:
    """Record → the number of the passage that is shown of it."""
    rows: list[Mapping[str, object]] = result.trace.get("lists", {}).get(leg, [])
    return {str(row["id"]): row["chunk"] for row in rows if isinstance(row["chunk"], int)}


def storage_keyword(setup: Setup) -> Backend | None:
    """Records by their words."""
    return None if setup.engine is None else _Leg(setup.engine, "keyword", "keyword", setup)


def storage_vector(setup: Setup) -> Backend | None:
    """Records by their meaning."""
    return None if setup.engine is None else _Leg(setup.engine, "vector", "vectors", setup)
