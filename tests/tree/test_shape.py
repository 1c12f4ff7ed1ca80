"""Shapes: every leaf once, no node with too many children."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clew.tree.hierarchy import (
    Longs,
    Shape,
    group_rows,
    is_leaf,
    shape_bottom_up,
    shape_top_down,
    split_rows,
)
from clew.types import Vectors
from entries import unit_rows

MAKERS = [shape_bottom_up, shape_top_down]


def check(shape: Shape, leaves: int, branching: int) -> None:
    keys = [key for kids in shape.kids for key in kids]
    assert sorted(~key for key in keys if is_leaf(key)) == list(range(leaves))
    assert sorted(key for key in keys if not is_leaf(key)) == list(range(1, len(shape.kids)))
    for node, kids in enumerate(shape.kids):
        assert len(kids) <= branching
        assert all(is_leaf(key) or key > node for key in kids)


@pytest.mark.parametrize("make", MAKERS)
@given(count=st.integers(0, 300), branching=st.integers(2, 20), seed=st.integers(0, 5))
def test_every_leaf_has_one_place(make: object, count: int, branching: int, seed: int) -> None:
    rows = unit_rows(count, 8, seed=seed) if count else np.empty((0, 8), np.float32)
    check(make(rows, branching), count, branching)  # type: ignore[operator]


def all_alike(count: int) -> Vectors:
    return np.repeat(unit_rows(1, 8), count, axis=0)


def one_giant(count: int) -> Vectors:
    """A heap of equal vectors, and a few that are not."""
    return np.concatenate([all_alike(count), unit_rows(7, 8, seed=3)])


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("rows", [all_alike(900), one_giant(900), np.zeros((90, 8), np.float32)])
def test_a_heap_of_equal_texts_becomes_a_shallow_tree(make: object, rows: Vectors) -> None:
    shape = make(rows, 10)  # type: ignore[operator]
    check(shape, len(rows), 10)
    depth = [0] * len(shape.kids)
    for node, kids in enumerate(shape.kids):
        for key in kids:
            if not is_leaf(key):
                depth[key] = depth[node] + 1
    assert max(depth) <= 8


def test_alike_ones_are_put_together() -> None:
    centres = unit_rows(6, 32, seed=1)
    rows = np.repeat(centres, 5, axis=0) + 0.02 * unit_rows(30, 32, seed=2)
    groups = group_rows(rows.astype(np.float32), 10)
    for group in groups:
        assert all({n // 5 * 5 + i for i in range(5)} <= set(group.tolist()) for n in group)


def test_large_sets_are_divided_roughly_first_and_still_whole() -> None:
    rows = unit_rows(9_000, 8, seed=4)
    groups = group_rows(rows, 20)
    assert sorted(n for group in groups for n in group.tolist()) == list(range(9_000))
    assert max(len(group) for group in groups) <= 20


@given(st.integers(2, 200), st.integers(2, 20))
def test_parts_are_two_or_more_and_none_is_nearly_all(count: int, most: int) -> None:
    rows: Longs = np.arange(count)
    for vectors in (unit_rows(count, 8), all_alike(count)):
        parts = split_rows(vectors, rows, most)
        assert 2 <= len(parts) <= most
        assert sorted(n for part in parts for n in part.tolist()) == rows.tolist()
        assert all(len(part) for part in parts)


def test_a_division_by_somebody_else_names_its_parts() -> None:
    rows = unit_rows(40, 8)

    def halves(numbers: Longs) -> list[tuple[str, Longs]] | None:
        if len(numbers) < 40:
            return None
        return [("even", numbers[numbers % 2 == 0]), ("odd", numbers[numbers % 2 == 1])]

    shape = shape_top_down(rows, 10, divide=halves)
    check(shape, 40, 10)
    assert [shape.names[node] for node in shape.kids[0]] == ["even", "odd"]
