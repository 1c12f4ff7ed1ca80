"""Personalised PageRank by pushing: what is near to some nodes, at a cost that does not grow with
the graph.

Andersen, Chung, Lang: Local graph partitioning using PageRank vectors, FOCS 2006. Here in rounds
over a bounded front, so that whoever asks can say in between which records may be walked through:
nothing is reached by way of a record that must not be seen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = ["spread"]

RESTART = 0.5
"""The share that stays where it is: near things count, far ones hardly (as in HippoRAG)."""
ROUNDS = 5
FRONT = 500
"""Nodes that pass something on in one round, those with most."""
LEAST = 1e-5


def spread(
    begins: npt.NDArray[np.int64],
    targets: npt.NDArray[np.int32],
    shares: npt.NDArray[np.float32],
    seeds: Mapping[int, float],
    *,
    allowed: Callable[[npt.NDArray[np.int64]], npt.NDArray[np.bool_]],
) -> dict[int, float]:
    """How much of the seeds' weight comes to rest at each node; at most 1 together.

    `allowed` is asked once per round which of some new nodes may be stepped on.
    """
    import numpy as np

    total = sum(seeds.values())
    if not total > 0:
        return {}
    nodes = np.asarray(sorted(seeds), np.int64)
    moving = np.asarray([seeds[int(n)] / total for n in nodes])
    known: dict[int, bool] = {}
    rest: dict[int, float] = {}

    def passable(some: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        new = np.asarray([n for n in some.tolist() if n not in known], np.int64)
        if len(new):
            known.update(zip(new.tolist(), allowed(new).tolist(), strict=True))
        return np.asarray([known[n] for n in some.tolist()], np.bool_)

    for step in range(ROUNDS):
        may = passable(nodes)
        nodes, moving = nodes[may], moving[may]
        last = step == ROUNDS - 1
        for node, mass in zip(nodes.tolist(), moving.tolist(), strict=True):
            rest[node] = rest.get(node, 0.0) + mass * (1.0 if last else RESTART)
        if last or not len(nodes):
            break
        if len(nodes) > FRONT:
            front = np.sort(np.lexsort((nodes, -moving))[:FRONT])
            nodes, moving = nodes[front], moving[front]
        counts = begins[nodes + 1] - begins[nodes]
        ends = np.cumsum(counts)
        if not len(ends) or not ends[-1]:
            break
        edges = np.arange(ends[-1]) + np.repeat(begins[nodes] - (ends - counts), counts)
        mass = np.repeat(moving * (1.0 - RESTART), counts) * shares[edges]
        reached, where = np.unique(targets[edges], return_inverse=True)
        arrived = np.bincount(where, weights=mass)
        enough = arrived > LEAST
        nodes, moving = reached[enough].astype(np.int64), arrived[enough]
    return rest
