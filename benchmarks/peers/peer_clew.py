"""Clew from this checkout, as `clew.open` comes: default weights, sources and depth.

The vectors are given to `Engine.add` and `Engine.search`, so that a text is one passage with one
vector here as everywhere else. Scope is a `Filter` on metadata, which runs inside every leg.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from job import Job, Query, run

import clew


def build(job: Job) -> dict[str, Callable[[Query], list[str]]]:
    engine = clew.open(job.index)
    for texts, vectors in job.batches(50_000):
        records = [
            clew.Record(id=text.id, content=text.text, metadata={"scope": text.scope})
            for text in texts
        ]
        engine.add(records, vectors=vectors)

    def ask(mode: Any) -> Callable[[Query], list[str]]:
        def answer(query: Query) -> list[str]:
            scope = clew.Filter(metadata={"scope": query.scope}) if query.scope else None
            found = engine.search(
                query.text, limit=job.k, mode=mode, vector=query.vector, filter=scope
            )
            if found.cache or found.degraded:
                raise RuntimeError(f"not a fair answer: {found.cache or found.degraded}")
            return [hit.id for hit in found]

        return answer

    return {mode: ask(mode) for mode in ("hybrid", "keyword", "vector")}


if __name__ == "__main__":
    run(build, packages=("clew-search", "tantivy", "faiss-cpu"))
