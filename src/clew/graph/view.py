"""GraphView: a built graph as one may see it who sees what matches a filter.

An alias is one because a record says it: a link's words, front matter, an acronym beside what it
stands for. To those who may see no such record, the two are different names. And a name that only
hidden records write is none: an entity is called what a record calls it that may be seen.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Self, TypeVar

from clew.filter import Filter
from clew.graph.snapshot import Entry, Snapshot, changed, serve_graph
from clew.protocols import Store

MOST_IDS = 5_000  # ids from which on it is cheaper to ask for all that match than for these
FIRST_LOOK = 20  # records of each name that are looked at before more are
MOST_WRITERS = 400  # records kept of a name that is only part of its entity
EACH = 200  # records of one entity that are looked at
FEW = 20  # where fewer of them may be seen, all the others are looked at as well

K = TypeVar("K", bound=Hashable)
RecordQuery = tuple[str, tuple[Any, ...]]
"""A query for records, the first column, and its values."""


class Meaning(NamedTuple):
    """What a name means."""

    entity: Entry
    only: tuple[int, ...] | None = None
    """The records that write it so, where those who ask must not know of the entity's other
    names; None: all of the entity's."""


class SeenEntity:
    """What may be seen of one entity."""

    def __init__(
        self, node: int, kind: str, rows: Sequence[tuple[int, int, int, str]], *, more: bool
    ):
        """The rows are (record, how often, whether it is named after it, how it writes it)."""
        self.node, self.kind = node, kind
        self.more = more  # there are some that were not looked at
        self.records = [row[0] for row in rows]
        self.mentions = sum(row[1] for row in rows)
        counts: Counter[str] = Counter()
        for _, times, after, written in rows:
            counts[written] += times + (1000 if after else 0)
        self.spellings = sorted(counts, key=lambda name: (-counts[name], name))
        self.name = self.spellings[0]


class GraphView:
    """A snapshot, the store it is of, and the filter of whoever asks."""

    def __init__(self, snapshot: Snapshot, store: Store, filter: Filter):
        self.snapshot, self.store, self.filter = snapshot, store, filter

    @classmethod
    def open(cls, store: Store, filter: Filter) -> Self | None:
        """None where no graph is built; a SourceError where it cannot serve."""
        snapshot = serve_graph(store)
        return None if snapshot is None else cls(snapshot, store, filter)

    def changed(self) -> frozenset[str]:
        """The records that are no longer as the graph has them."""
        return changed(self.snapshot, self.store)

    # ------------------------------------------------------------------ records

    def visible(self, nodes: Iterable[int]) -> dict[int, str]:
        """The ids of those of these records that exist, match, and are as the graph has them."""
        named = self.snapshot.ids(sorted(set(nodes)))
        ids = list(named.values())
        found: set[str] = set()
        if len(ids) > MOST_IDS:
            found.update(row[0] for row in self.store.lifecycle.ledger(self.filter))
        else:
            for i in range(0, len(ids), 900):
                wanted = self.filter.narrowed(Filter(ids=tuple(ids[i : i + 900])))
                if wanted is not None:
                    found.update(row[0] for row in self.store.lifecycle.ledger(wanted))
        found -= self.changed()
        return {node: name for node, name in named.items() if name in found}

    def first_records(self, query: str, values: Sequence[Any], *, most: int) -> list[int]:
        """The first of the records of a query that may be seen."""
        rows = [row[0] for row in self.snapshot.rows(query, *values)]
        found: list[int] = []
        at, size = 0, most
        while at < len(rows) and len(found) < most:
            some = rows[at : at + size]
            visible = self.visible(some)
            found += [record for record in some if record in visible]
            at, size = at + size, 10 * size  # if few may be seen, few of the next may
        return found[:most]

    def _any_visible(self, queries: Mapping[K, RecordQuery]) -> list[K]:
        """Those with a record that may be seen. Of most one of the first few may be."""
        found: dict[K, bool] = {}
        for limit in (FIRST_LOOK, -1):
            records = {
                name: [row[0] for row in self.snapshot.rows(f"{query} LIMIT ?", *values, limit)]
                for name, (query, values) in queries.items()
                if name not in found
            }
            visible = self.visible(record for some in records.values() for record in some)
            for name, some in records.items():
                if not visible.keys().isdisjoint(some):
                    found[name] = True
                elif len(some) < FIRST_LOOK:
                    found[name] = False
        return [name for name in queries if found.get(name)]

    # ------------------------------------------------------------------ names

    def meanings(self, keys: Sequence[str]) -> dict[str, Meaning]:
        """What these names mean, by key; those that mean nothing are left out."""
        found = self.snapshot.look_up(keys)
        nodes = sorted({entity.node for _, entity in found.values()})
        names: dict[int, set[int]] = defaultdict(set)
        for node, number in self.snapshot.among(
            "SELECT node, number FROM names WHERE node IN (SELECT value FROM json_each(?))", nodes
        ):
            names[node].add(number)
        joined = self._aliases([node for node in nodes if len(names[node]) > 1])
        whole: dict[str, RecordQuery] = {}
        parts: dict[str, RecordQuery] = {}
        for name, (number, entity) in found.items():
            alike = _connected(number, joined)
            if alike >= names[entity.node]:
                whole[name] = "SELECT record FROM mentions WHERE entity = ?", (entity.node,)
            else:
                query = """SELECT DISTINCT m.record FROM writers AS w
                           JOIN mentions AS m ON m.entity = ? AND m.record = w.record
                           WHERE w.name IN (SELECT value FROM json_each(?))
                           ORDER BY m.after DESC, m.times DESC, m.record"""
                parts[name] = query, (entity.node, json.dumps(sorted(alike)))
        meanings = {name: Meaning(found[name][1]) for name in self._any_visible(whole)}
        for name, (query, values) in parts.items():
            if only := self.first_records(query, values, most=MOST_WRITERS):
                meanings[name] = Meaning(found[name][1], tuple(only))
        return meanings

    def _aliases(self, nodes: Sequence[int]) -> dict[int, set[int]]:
        """Which names are said to be the same, where a record that may be seen says it."""
        pairs = self.snapshot.among(
            """SELECT DISTINCT node, first, second FROM joins
               WHERE node IN (SELECT value FROM json_each(?))""",
            nodes,
        )
        query = "SELECT record FROM joins WHERE node = ? AND first = ? AND second = ?"
        found: dict[int, set[int]] = defaultdict(set)
        for _, first, second in self._any_visible({pair: (query, pair) for pair in pairs}):
            found[first].add(second)
            found[second].add(first)
        return found

    def spellings(self, entities: Sequence[int], records: Iterable[int]) -> list[str]:
        """The names of entities as these records write them; none for what they do not name."""
        rows = self.snapshot.rows(
            """SELECT entity, written FROM mentions
               WHERE entity IN (SELECT value FROM json_each(?))
                 AND record IN (SELECT value FROM json_each(?))
               ORDER BY entity, after, times, record DESC""",
            json.dumps(list(entities)),
            json.dumps(list(records)),
        )
        names = dict(rows)  # the last of each: named after it, or most often
        return list(dict.fromkeys(names[node] for node in entities if node in names))

    # ------------------------------------------------------------------ entities

    def entities(
        self,
        nodes: Iterable[int],
        *,
        parts: Mapping[int, set[int]] | None = None,
        each: int = EACH,
    ) -> dict[int, SeenEntity]:
        """Those of these entities that a record names which may be seen; of those in `parts`, as
        far as these records name them."""
        nodes, parts = list(dict.fromkeys(nodes)), parts or {}
        kinds = self.snapshot.entities(nodes)
        found: dict[int, SeenEntity] = {}
        for limit in (each, -1):
            mentions = self.snapshot.mentions(nodes, each=limit)
            visible = self.visible(row[0] for rows in mentions.values() for row in rows)
            hardly: list[int] = []
            for node in nodes:
                may = parts[node] & visible.keys() if node in parts else visible
                rows = [row for row in mentions[node] if row[0] in may]
                more = len(mentions[node]) == limit
                if rows and node in kinds:
                    found[node] = SeenEntity(node, kinds[node].kind, rows, more=more)
                if len(rows) < FEW and more:
                    hardly.append(node)
            if not (nodes := hardly):  # else those that may be seen are further behind
                break
        return found


def _connected(number: int, joined: Mapping[int, set[int]]) -> set[int]:
    reached, front = {number}, [number]
    while front:
        new = joined.get(front.pop(), set()) - reached
        reached |= new
        front += new
    return reached
