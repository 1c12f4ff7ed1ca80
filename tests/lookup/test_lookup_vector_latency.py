"""Scenario: vector latency. What a lookup by vector costs is told stage by stage, and is bounded by
what it has to look at: how long that takes depends on the machine, so benchmarks/lookup.py says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import clew
from clew import ExternalLookupResult, Search

from hashing import HashingEmbedder


def test_the_time_of_every_backend_and_of_the_whole_is_in_the_trace(search: Search) -> None:
    found = search.external_lookup("keel bolts", return_handles=True)
    assert isinstance(found, ExternalLookupResult)
    told = found.trace["backends"]
    assert all(told[name]["ms"] > 0 for name in ("storage_keyword", "storage_vector"))
    assert found.trace["total_ms"] >= told["storage_vector"]["ms"]
    again = search.external_lookup("keel bolts", return_handles=True)
    assert isinstance(again, ExternalLookupResult)
    assert again.trace["cache"]["slot"] == "primary"
    assert again.trace["backends"] == told  # as they were when it was made


def test_a_vector_lookup_embeds_nothing_and_a_second_one_searches_nothing(tmp_path: Path) -> None:
    embedder = HashingEmbedder()
    with clew.open(tmp_path / "s", embedder=embedder) as engine:
        rows = np.random.default_rng(1).standard_normal((2_000, 64)).astype(np.float32)
        engine.add(
            [{"id": f"r{i:04}", "content": f"record {i}"} for i in range(2_000)], vectors=rows
        )
        before = len(embedder.embedded)
        asked: list[object] = []
        nearest = engine.store.nearest

        def watched(*arguments: Any, **more: Any) -> Any:
            asked.append(arguments)
            return nearest(*arguments, **more)

        engine.store.nearest = watched  # type: ignore[method-assign]
        with Search(engine) as search:
            found = search.embedding_lookup(rows[7], 3)
            assert found[0].id == "r0007" and found[0].score > 0.999
            assert [hit.score for hit in found] == sorted((h.score for h in found), reverse=True)
            assert search.embedding_lookup(rows[7], 3) == found
            assert len(asked) == 1 and len(embedder.embedded) == before


def test_a_text_that_is_in_no_store_is_embedded_once(storage: clew.Engine, tmp_path: Path) -> None:
    embedder = HashingEmbedder()
    pages = [{"id": "p", "text": "keel bolts on a page"}]
    with Search(backends={"pages": lambda query, limit: pages}, embedder=embedder) as search:
        for query in ("keel", "bolts", "page"):
            search.external_lookup(query)
    assert embedder.embedded == ["keel bolts on a page"]
