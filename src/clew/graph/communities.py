"""Communities: records and entities that have more to do with each other than with the rest.

Leiden (Traag, Waltman, van Eck, 2019) by igraph, fine groups first; these become the nodes of the
next, coarser level, so that each group lies within one of the level above. The seed is fixed and
the groups are numbered by size, so the same graph always gives the same communities.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from clew.errors import ConfigError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = ["MISSING", "RESOLUTIONS", "communities"]

RESOLUTIONS = (4.0, 1.0, 0.3)
"""From many small groups to a few large ones."""
SEED = 20251013
ITERATIONS = 4
_dice = threading.Lock()
"""igraph has one source of chance for the whole process."""
MISSING = (
    "communities need igraph, which is not installed: run `pip install 'clew-search[graph]'`, then "
    "`clew graph build`"
)


def _igraph() -> Any:
    try:
        import igraph  # type: ignore[import-untyped]
    except ImportError:
        raise ConfigError(MISSING) from None
    return igraph


def communities(
    edges: tuple[npt.NDArray[np.int32], npt.NDArray[np.int32], npt.NDArray[np.float32]],
    nodes: int,
    *,
    resolutions: Sequence[float] = RESOLUTIONS,
) -> list[npt.NDArray[np.int32]]:
    """Per level, from fine to coarse, the community of each node. A ConfigError where igraph is
    missing."""
    import numpy as np

    igraph = _igraph()
    if not nodes:
        return []
    one, other, weight = edges
    graph = igraph.Graph(n=nodes, edges=np.column_stack([one, other]))
    graph.es["weight"] = weight.astype(np.float64).tolist()
    of = np.arange(nodes)
    levels: list[npt.NDArray[np.int32]] = []
    for resolution in resolutions:
        membership = np.asarray(_leiden(igraph, graph, resolution))
        of, order = _by_size(membership[of])
        levels.append(of.astype(np.int32))
        graph.contract_vertices(order[membership].tolist())
        graph.simplify(multiple=True, loops=False, combine_edges="sum")
        if graph.vcount() == len(membership) and len(levels) > 1:
            levels.pop()  # nothing came together any more
            break
    return levels


def _leiden(igraph: Any, graph: Any, resolution: float) -> list[int]:
    with _dice:
        igraph.set_random_number_generator(random.Random(SEED))
        try:
            found = graph.community_leiden(
                objective_function="modularity",
                weights="weight",
                resolution=resolution,
                n_iterations=ITERATIONS,
            )
        finally:
            igraph.set_random_number_generator(random)
    return list(found.membership)


def _by_size(of: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Numbered by size, then by their first node; and the new number of each old one."""
    import numpy as np

    sizes = np.bincount(of)
    first = np.full(len(sizes), len(of), np.int64)
    np.minimum.at(first, of, np.arange(len(of)))
    order = np.empty(len(sizes), np.int64)
    order[np.lexsort((first, -sizes))] = np.arange(len(sizes))
    return order[of], order
