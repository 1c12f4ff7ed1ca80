"""The vector leg against brute force in numpy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import clew
from clew.types import Vectors


def unit(rows: Vectors) -> Vectors:
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def brute_force(rows: Vectors, query: Vectors, keep: list[bool], limit: int) -> list[str]:
    """In double precision and by full sort; equal to six digits is equal, then by id."""
    scores = rows.astype(np.float64) @ query.astype(np.float64)
    ranked = [(-round(float(s), 6), f"r{i:04}") for i, s in enumerate(scores) if keep[i]]
    return [name for _, name in sorted(ranked)[:limit]]


def separate(rows: Vectors, query: Vectors) -> bool:
    """Whether float32 cannot swap any of the first eleven: then both must give the same ten."""
    scores = np.sort(rows.astype(np.float64) @ query.astype(np.float64))[-11:]
    return len(scores) < 2 or bool(np.diff(scores).min() > 3e-6)


@pytest.mark.parametrize(("count", "dim"), [(1, 4), (50, 3), (800, 16)])
def test_the_vector_leg_is_exact(tmp_path: Path, count: int, dim: int) -> None:
    dice = np.random.default_rng(count)
    rows = unit(dice.normal(size=(count, dim)))
    compared = 0
    with clew.open(tmp_path, model="none") as engine:
        engine.add(
            [clew.Record(f"r{i:04}", f"record number {i}") for i in range(count)], vectors=rows
        )
        for query in unit(dice.normal(size=(20, dim))):
            found = engine.search("anything", mode="vector", vector=query, limit=10)
            if separate(rows, query):
                compared += 1
                assert [hit.id for hit in found] == brute_force(rows, query, [True] * count, 10)
            assert len(found) == min(count, 10)
            for hit in found:
                exact = float(rows[int(hit.id[1:])].astype(np.float64) @ query)
                assert hit.signals["vectors"]["score"] == pytest.approx(exact, abs=2e-6)
    assert compared >= 15


def test_the_length_of_a_vector_does_not_matter(tmp_path: Path) -> None:
    dice = np.random.default_rng(7)
    rows = dice.normal(size=(60, 8)).astype(np.float32)
    query = dice.normal(size=8).astype(np.float32)
    with clew.open(tmp_path, model="none") as engine:
        engine.add([clew.Record(f"r{i:04}", f"record {i}") for i in range(60)], vectors=rows * 37)
        found = engine.search("anything", mode="vector", vector=query * 0.01, limit=60)
    assert [h.id for h in found] == brute_force(
        unit(rows), unit(query.reshape(1, -1))[0], [True] * 60, 60
    )


@pytest.mark.parametrize("share", [2, 7, 50])
def test_a_filter_is_as_exact_as_brute_force_over_what_it_leaves(
    tmp_path: Path, share: int
) -> None:
    dice = np.random.default_rng(share)
    rows = unit(dice.normal(size=(400, 12)))
    keep = [i % share == 0 for i in range(400)]
    with clew.open(tmp_path, model="none") as engine:
        records = [
            clew.Record(f"r{i:04}", f"record {i}", tags=("kept",) if keep[i] else ())
            for i in range(400)
        ]
        engine.add(records, vectors=rows)
        for query in unit(dice.normal(size=(10, 12))):
            found = engine.search(
                "anything", mode="vector", vector=query, limit=10, filter={"tags": "kept"}
            )
            # As many as asked for wherever that many are left: the filter runs before the cut.
            assert [h.id for h in found] == brute_force(rows, query, keep, 10)


def test_equal_vectors_go_by_id(tmp_path: Path) -> None:
    rows = np.tile(np.array([[0.6, 0.8]], dtype=np.float32), (30, 1))
    with clew.open(tmp_path, model="none") as engine:
        shuffled = [f"r{i:04}" for i in np.random.default_rng(3).permutation(30)]
        engine.add([clew.Record(name, f"record {name}") for name in shuffled], vectors=rows)
        found = engine.search("anything", mode="vector", vector=[1.0, 0.0], limit=30)
    assert [h.id for h in found] == sorted(shuffled)
