"""txtai: `Embeddings(hybrid=True, content=True)`, https://neuml.github.io/txtai/embeddings/ .

Its own defaults: BM25 over its terms index, FAISS as it configures it for the number of rows, both
10·k deep, scores normalised and averaged half and half. Vectors come through `method="external"`
with a function that looks them up by text:
https://neuml.github.io/txtai/embeddings/configuration/
Scope is a condition in txtai's SQL, which filters the 10·k candidates of `similar()` afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from job import Job, Query, run
from txtai import Embeddings

WITHIN = "SELECT id, score FROM txtai WHERE similar(:text) AND scope = :scope"
ALL = "SELECT id, score FROM txtai WHERE similar(:text)"


def build(job: Job) -> dict[str, Callable[[Query], list[str]]]:
    asked = job.by_text()
    waiting: dict[str, list[int]] = {}
    for row, text in enumerate(job.texts()):
        waiting.setdefault(text.text, []).append(row)

    def vectors(texts: list[str]) -> Any:
        if waiting:  # indexing: texts come in order, also those that occur twice
            return np.stack([job.vectors[waiting[text].pop(0)] for text in texts])
        return np.stack([asked[text] for text in texts])

    def rows() -> Iterator[tuple[str, dict[str, str], None]]:
        for text in job.texts():
            yield text.id, {"text": text.text, "scope": text.scope}, None

    embeddings = Embeddings(hybrid=True, content=True, method="external", transform=vectors)
    embeddings.index(rows())
    waiting.clear()
    embeddings.save(str(job.index / "txtai"))

    def ask(query: Query, weights: float | None = None) -> list[str]:
        given = {"text": query.text}
        if query.scope:
            given["scope"] = query.scope
        found = embeddings.search(
            WITHIN if query.scope else ALL, job.k, weights=weights, parameters=given
        )
        return [hit["id"] for hit in found]

    return {
        "hybrid": ask,
        "vector": lambda query: ask(query, 1.0),
        "keyword": lambda query: ask(query, 0.0),
    }


if __name__ == "__main__":
    run(build, packages=("txtai", "faiss-cpu", "torch"))
