"""Local search: what lies near the entities that a query names.

The query's words are looked up among names and aliases, the longest first. From there a walk
(walk.py) spreads over the records that name them, what else these name and link to, and so on. What
the query says beside the names then tells which of the near records is meant: a neighbour that has
those words as well is what the question is after, though it may not have the name.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from clew.filter import Filter
from clew.graph.names import key
from clew.graph.snapshot import Entry, Snapshot
from clew.graph.walk import spread
from clew.protocols import Store
from clew.text.stopwords import STOPWORDS
from clew.text.tokenise import spelt, unspaced, words
from clew.types import Terms

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = ["Matched", "Near", "named", "near", "visible"]

LONGEST_WINDOW = 8
MOST_WORDS = 64
"""Words of a query that are looked at."""
MOST_RUN = 12
"""Characters of a name in a script without spaces."""
NEIGHBOURS = 400
"""Near records that are looked at closely."""


class Matched(NamedTuple):
    """An entity that the query names, and which of its words do so."""

    entity: Entry
    key: str
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Near:
    """What a walk from the query's entities found."""

    matched: tuple[Matched, ...]
    records: dict[str, float]
    """By id: nearness, 1 for the nearest. All of them may be seen."""
    entities: dict[int, float]
    rest: Terms
    """What the query says beside the names."""


def named(snapshot: Snapshot, text: str) -> tuple[list[Matched], str]:
    """Entities that a text names, by its longest windows of words; and its other words."""
    said = spelt(text)[:MOST_WORDS]
    windows: dict[tuple[int, int], str] = {}
    for i, word in enumerate(said):
        if unspaced(word):
            continue
        for j in range(i, min(len(said), i + LONGEST_WINDOW)):
            if i == j and word.lower() in STOPWORDS:
                continue
            windows[i, j] = key(" ".join(said[i : j + 1]))
    found = snapshot.look_up(sorted({k for k in windows.values() if k}))
    runs = _in_runs(snapshot, said)
    taken = [False] * len(said)
    matched: list[Matched] = []
    for (i, j), name in sorted(windows.items(), key=lambda w: (w[0][0] - w[0][1], w[0])):
        if name in found and not any(taken[i : j + 1]):
            matched.append(Matched(found[name], name, i, j))
            taken[i : j + 1] = [True] * (j + 1 - i)
    matched += runs
    rest = " ".join(word for word, gone in zip(said, taken, strict=True) if not gone)
    return sorted(matched, key=lambda m: (m.first, m.last, m.key)), rest


def _in_runs(snapshot: Snapshot, said: Sequence[str]) -> list[Matched]:
    """Names within words of scripts that have no spaces, the longest first."""
    matched: list[Matched] = []
    for i, run in enumerate(said):
        if not unspaced(run):
            continue
        some = run[:60]
        parts = {
            some[a:b]
            for a in range(len(some))
            for b in range(a + 2, min(len(some), a + MOST_RUN) + 1)
        }
        found = snapshot.look_up(sorted(parts))
        at = 0
        while at < len(some):
            for b in range(min(len(some), at + MOST_RUN), at + 1, -1):
                if (entity := found.get(some[at:b])) is not None:
                    matched.append(Matched(entity, some[at:b], i, i))
                    at = b - 1
                    break
            at += 1
    return matched


def visible(
    store: Store, filter: Filter, snapshot: Snapshot
) -> Callable[[npt.NDArray[np.int64]], npt.NDArray[np.bool_]]:
    """Which nodes may be stepped on: entities, and records that exist and match the filter."""
    import numpy as np

    def allowed(nodes: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        mask = np.ones(len(nodes), np.bool_)
        records = nodes < snapshot.records
        ids = snapshot.ids(nodes[records].tolist())
        may = seen(store, filter, list(ids.values()))
        mask[records] = [ids.get(node) in may for node in nodes[records].tolist()]
        return mask

    return allowed


def seen(store: Store, filter: Filter, ids: Sequence[str]) -> set[str]:
    """Those of these records that exist and match."""
    found: set[str] = set()
    for i in range(0, len(ids), 900):
        if (wanted := filter.narrowed(Filter(ids=tuple(ids[i : i + 900])))) is not None:
            found.update(row[0] for row in store.ledger(wanted))
    return found


def near(
    snapshot: Snapshot,
    store: Store,
    filter: Filter,
    seeds: dict[int, float],
) -> tuple[dict[str, float], dict[int, float]]:
    """Records by id with their nearness (1: the nearest), and entities by node."""
    rest = spread(
        snapshot.begins,
        snapshot.targets,
        snapshot.shares,
        seeds,
        allowed=visible(store, filter, snapshot),
    )
    records = {node: mass for node, mass in rest.items() if node < snapshot.records}
    best = sorted(records, key=lambda node: (-records[node], node))[:NEIGHBOURS]
    most = records[best[0]] if best else 1.0
    ids = snapshot.ids(best)
    return (
        {ids[node]: records[node] / most for node in best},
        {node: mass for node, mass in rest.items() if node >= snapshot.records},
    )


def rarity(entity: Entry, of: int) -> float:
    """As edges are weighed: 1 for what one record names."""
    from clew.graph.assemble import idf

    return idf(entity.records, of)


def rest_terms(text: str) -> Terms:
    """The words that say something."""
    content = [word for word in spelt(text) if word.lower() not in STOPWORDS]
    return Terms(words=tuple(words(" ".join(content)))) if content else Terms()


def logistic(x: float) -> float:
    return 1.0 / (1.0 + math.exp(-x))
