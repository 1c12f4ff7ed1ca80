"""The walk over the graph: bounded, repeatable, and never by way of what must not be seen."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from clew.graph.assemble import compress_edges
from clew.graph.search import spread

NODES = 8
edges = st.lists(
    st.tuples(st.integers(0, NODES - 1), st.integers(0, NODES - 1), st.floats(0.1, 5.0)),
    max_size=20,
)


def arrays(given: list[tuple[int, int, float]]) -> Any:
    one = np.asarray([e[0] for e in given], np.int32)
    other = np.asarray([e[1] for e in given], np.int32)
    weights = np.asarray([e[2] for e in given], np.float32)
    return compress_edges((one, other, weights), NODES)[:3]


def everywhere(nodes: Any) -> Any:
    return np.ones(len(nodes), np.bool_)


@given(edges, st.sets(st.integers(0, NODES - 1), min_size=1))
def test_no_more_comes_to_rest_than_set_out_and_always_the_same(
    given: list[tuple[int, int, float]], seeds: set[int]
) -> None:
    start = dict.fromkeys(seeds, 1.0)
    rest = spread(*arrays(given), start, allowed=everywhere)
    assert 0 < sum(rest.values()) <= 1 + 1e-6
    assert rest == spread(*arrays(given), start, allowed=everywhere)
    assert set(rest) >= seeds


@given(edges, st.sets(st.integers(0, NODES - 1)))
def test_what_must_not_be_seen_is_neither_reached_nor_passed(
    given: list[tuple[int, int, float]], hidden: set[int]
) -> None:
    def allowed(nodes: Any) -> Any:
        return np.asarray([node not in hidden for node in nodes.tolist()], np.bool_)

    rest = spread(*arrays(given), {0: 1.0}, allowed=allowed)
    kept = [(a, b, w) for a, b, w in given if a not in hidden and b not in hidden]
    reached = {0} - hidden
    while new := {b for x, y, _ in kept for a, b in ((x, y), (y, x)) if a in reached} - reached:
        reached |= new
    assert set(rest) <= reached


def test_a_nearer_node_holds_more() -> None:
    line = [(0, 1, 1.0), (1, 2, 1.0), (2, 3, 1.0)]
    rest = spread(*arrays(line), {0: 1.0}, allowed=everywhere)
    assert rest[0] > rest[1] > rest[2] > rest[3] > 0


def test_without_weight_nothing_moves() -> None:
    assert spread(*arrays([]), {}, allowed=everywhere) == {}
