"""Clew from this checkout, as `clew.open` comes: default weights, sources and depth.

The vectors are given to `Engine.add` and `Engine.search`, so that a text is one passage with one
vector here as everywhere else. A text's title, with which it begins, goes where records have it;
the words are the same. Queries are plain words (`syntax=False`), as questions are. Scope is a
`Filter` on metadata, which runs inside every leg.

The mode `late` is the same store with `late_interaction = "on"`: codes of 4 bits, which are made
when it is loaded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from job import Job, Query, Text, run

import clew


def build(job: Job) -> dict[str, Callable[[Query], list[str]]]:
    engine = clew.open(job.index, cache=False)
    for texts, vectors in job.batches(50_000):
        engine.add([_record(text) for text in texts], vectors=vectors)
    engine.optimise()  # the end of a bulk load, part of its time
    readers = dict.fromkeys(("hybrid", "keyword", "vector"), engine)
    if "late" in job.modes:
        readers["late"] = clew.open(job.index, cache=False, late_interaction="on", late_seconds=0)
        readers["late"].embed()

    def ask(name: str) -> Callable[[Query], list[str]]:
        engine, mode = readers[name], cast(Any, "hybrid" if name == "late" else name)

        def answer(query: Query) -> list[str]:
            scope = clew.Filter(metadata={"scope": query.scope}) if query.scope else None
            found = engine.search(
                query.text,
                limit=job.k,
                mode=mode,
                vector=query.vector,
                filter=scope,
                syntax=False,
            )
            if found.cache or found.degraded:
                raise RuntimeError(f"not a fair answer: {found.cache or found.degraded}")
            return [hit.id for hit in found]

        return answer

    return {name: ask(name) for name in readers}


def _record(text: Text) -> clew.Record:
    title, body = text.title, text.text[len(text.title) :].strip()
    if not body:
        title, body = "", text.text
    return clew.Record(id=text.id, content=body, title=title, metadata={"scope": text.scope})


if __name__ == "__main__":
    run(build, packages=("clew-search", "tantivy", "faiss-cpu"))
