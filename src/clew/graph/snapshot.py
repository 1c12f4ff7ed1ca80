"""The built graph on disk: a SQLite file for names and texts, arrays for walking that are mapped
into memory; whether it is this store's, and what of it is outdated. `current.json` says which of
the folders beside it is in force; whoever still reads the one before keeps it.

GraphView is the same as one may see it who sees what matches a filter. An alias is one because a
record says it: a link's words, front matter, an acronym beside what it stands for. To those who may
see no such record, the two are different names. And a name that only hidden records write is none:
an entity is called what a record calls it that may be seen.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
import threading
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar

import numpy as np
import numpy.typing as npt

from clew.background import Recent
from clew.errors import SourceError, StoreError
from clew.filter import Filter
from clew.graph import REBUILD
from clew.graph.assemble import EntityGraph, GraphRows, compress_edges
from clew.graph.extract import BY_RULES, digest
from clew.index.unflushed import CHECKED_AT_ONCE
from clew.protocols import Store, batched
from clew.storage.snapshot import DerivedFolder, State, map_array, save_array

FORMAT = 3
NOTE = "graph"
"""The store's note that tells its graph from that of another store."""
DATABASE = "graph.db"
COUNTED = ("records", "entities", "names", "links", "relations", "communities")
"""Tables whose sizes are told."""
ARRAYS = ("begins", "targets", "shares", "sums", "levels")
WALKED = ("begins.npy", "targets.npy", "shares.npy")
"""What is compared with its checksum on opening, as all small files are: a walk over what is
damaged leads anywhere."""
COMPARED = 2_000
"""Records written since the build that are compared with what was read of them; where there are
more, all of them count as changed."""
MOST_OPEN = 8

MOST_IDS = 5_000  # ids from which on it is cheaper to ask for all that match than for these
FIRST_LOOK = 20  # records of each name that are looked at before more are
MOST_WRITERS = 400  # records kept of a name that is only part of its entity
EACH = 200  # records of one entity that are looked at
FEW = 20  # where fewer of them may be seen, all the others are looked at as well

K = TypeVar("K", bound=Hashable)
RecordQuery = tuple[str, tuple[Any, ...]]
"""A query for records, the first column, and its values."""

_SCHEMA = """
    CREATE TABLE records (node INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE,
                          digest TEXT NOT NULL);
    CREATE TABLE entities (node INTEGER PRIMARY KEY, name TEXT NOT NULL, kind TEXT NOT NULL,
                           records INTEGER NOT NULL, mentions INTEGER NOT NULL);
    CREATE TABLE names (number INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE,
                        node INTEGER NOT NULL);
    CREATE TABLE writers (name INTEGER, record INTEGER, PRIMARY KEY (name, record)) WITHOUT ROWID;
    CREATE TABLE joins (node INTEGER, first INTEGER, second INTEGER, record INTEGER,
                        PRIMARY KEY (node, first, second, record)) WITHOUT ROWID;
    CREATE TABLE mentions (entity INTEGER, record INTEGER, times INTEGER, after INTEGER,
                           written TEXT, PRIMARY KEY (entity, record)) WITHOUT ROWID;
    CREATE TABLE links (source INTEGER, target INTEGER, place INTEGER,
                        PRIMARY KEY (source, target)) WITHOUT ROWID;
    CREATE TABLE titles (key TEXT, record INTEGER, PRIMARY KEY (key, record)) WITHOUT ROWID;
    CREATE TABLE relations (number INTEGER PRIMARY KEY, first INTEGER, second INTEGER, kind TEXT,
                            weight REAL);
    CREATE TABLE stated (relation INTEGER, record INTEGER,
                         PRIMARY KEY (relation, record)) WITHOUT ROWID;
    CREATE TABLE communities (number INTEGER PRIMARY KEY, level INTEGER, parent INTEGER,
                              size INTEGER, summary TEXT NOT NULL);
    CREATE TABLE members (community INTEGER, node INTEGER, central REAL,
                          PRIMARY KEY (community, node)) WITHOUT ROWID;
    CREATE TABLE sentences (community INTEGER, place INTEGER, record INTEGER, text TEXT,
                            PRIMARY KEY (community, place)) WITHOUT ROWID;
"""
_INDEXES = """
    CREATE INDEX mentions_record ON mentions (record);
    CREATE INDEX names_node ON names (node);
    CREATE INDEX links_target ON links (target);
    CREATE INDEX relations_first ON relations (first);
    CREATE INDEX relations_second ON relations (second);
    CREATE INDEX entities_common ON entities (records DESC, node);
"""


def folder_of(store: Store) -> DerivedFolder:
    """Among the other derived indexes."""
    place = store.folder / "derived" / "graph"
    fields = ("build", "token", "edition", "files", "records", "entities", "made_from")
    return DerivedFolder(place / "current.json", *fields, identity={"format": FORMAT}, key="build")


def token_of(store: Store) -> str:
    return store.notes.get(NOTE) or ""


# ---------------------------------------------------------------------- writing


def write(
    folder: DerivedFolder,
    graph: EntityGraph,
    levels: Sequence[npt.NDArray[np.int32]],
    facts: Mapping[str, Any],
) -> State:
    """Make it the current one; its state. `facts` go into that as well."""

    def fill(place: Path) -> State:
        grouped = np.stack(levels) if levels else np.empty((0, graph.nodes), np.int32)
        arrays: list[Any] = [*compress_edges(graph.edges, graph.nodes), grouped]
        for name, array in zip(ARRAYS, arrays, strict=True):
            save_array(place / f"{name}.npy", array)
        _fill(place / DATABASE, graph.tables)
        sizes = Counter(level for _, level, *_ in graph.tables["communities"])
        return {
            **{name: len(graph.tables[name]) for name in COUNTED},
            "nodes": graph.nodes,
            "edges": len(graph.edges[0]),
            "levels": [sizes[level] for level in range(len(levels))],
            **facts,
        }

    try:
        return folder.swap(fill)
    except (OSError, sqlite3.Error) as error:
        raise StoreError(
            f"the graph cannot be written to {folder.place}: {error}; is the disk full? What was "
            "there is still in use: free some space and build it again"
        ) from error


def _fill(file: Path, tables: GraphRows) -> None:
    with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode = OFF")
        db.execute("PRAGMA synchronous = OFF")
        db.executescript(_SCHEMA)
        db.execute("BEGIN")
        for table, rows in tables.items():
            columns = len(db.execute(f"SELECT * FROM {table} LIMIT 0").description)
            marks = ", ".join("?" * columns)
            db.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)
        db.execute("COMMIT")
        db.executescript(_INDEXES)


# ---------------------------------------------------------------------- reading


class GraphSnapshot:
    """One built graph, opened for reading. Thread-safe."""

    def __init__(self, folder: DerivedFolder, state: State):
        self.state = state
        self._folder = folder
        self.records = int(state["records"])
        self._added = frozenset(state.get("added", ()))
        self._first_entity = int(state.get("first_entity", self.records))
        self.changed: tuple[tuple[int, int], frozenset[str]] | None = None
        """What has changed since, as found last, at which edition of the store (GraphView)."""
        self.labels: dict[int, frozenset[str]] | None = None
        """The words of themes, once somebody has asked for them (communities.py)."""
        place = folder.folder(state)
        try:
            checked = set(WALKED)
            for name, size in state["files"].items():
                if (place / name).stat().st_size != size:
                    raise ValueError(f"{name} is not as it was written")
                checked |= {name} if size <= CHECKED_AT_ONCE else set()
            if name := folder.damaged(state, checked):
                raise ValueError(f"{name} is not as it was written")
            arrays = [map_array(place / f"{name}.npy") for name in ARRAYS]
            self.begins, self.targets, self.shares, _, self.levels = arrays
            file = (place / DATABASE).absolute().as_uri()
            self._db = sqlite3.connect(
                f"{file}?mode=ro&immutable=1", uri=True, check_same_thread=False
            )
            self._lock = threading.Lock()
            self.rows("SELECT COUNT(*) FROM communities")
        except (OSError, ValueError, TypeError, EOFError, sqlite3.Error) as error:
            raise SourceError(f"the graph cannot be read ({error}): {REBUILD}") from error

    def is_record(self, node: int) -> bool:
        """Else it is an entity. Records come first, but for those added since (patch.py)."""
        return node < self._first_entity or node in self._added

    def damaged(self) -> str:
        """The first file that is not as it was written; empty: all are."""
        return self._folder.damaged(self.state)

    def rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        try:
            with self._lock:
                return self._db.execute(query, values).fetchall()
        except (sqlite3.Error, UnicodeError) as error:
            raise SourceError(f"the graph is damaged ({error}): {REBUILD}") from error

    def among(self, query: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        """A query with IN (SELECT value FROM json_each(?))."""
        return self.rows(query, json.dumps(list(values))) if values else []

    def ids(self, nodes: Sequence[int]) -> dict[int, str]:
        query = "SELECT node, id FROM records WHERE node IN (SELECT value FROM json_each(?))"
        return dict(self.among(query, nodes))

    def nodes_of(self, ids: Sequence[str]) -> dict[str, int]:
        query = "SELECT id, node FROM records WHERE id IN (SELECT value FROM json_each(?))"
        return dict(self.among(query, ids))


_opened: Recent[Path, GraphSnapshot] = Recent(MOST_OPEN)
_opening = threading.Lock()


def open_graph(store: Store) -> GraphSnapshot | None:
    """The graph in force, opened once for all who ask. None where none is built; a SourceError
    where what is there cannot serve."""
    folder = folder_of(store)
    with _opening:
        known = _opened.use(folder.place)

        def load(place: Path, state: State) -> GraphSnapshot:
            if known is None or known.state != state:  # the edition may be another, of one build
                return GraphSnapshot(folder, state)
            return known

        snapshot = folder.open(load)
        if snapshot is None:
            if folder.file.exists():
                raise SourceError(
                    f"the graph was not built here by this Clew, or is damaged: {REBUILD}"
                )
            return None
        if snapshot is not known:
            _opened.keep(folder.place, snapshot)
    if snapshot.state["token"] != token_of(store):
        raise SourceError("the graph is that of another store: run `clew graph build`")
    return snapshot


def _find_changed(snapshot: GraphSnapshot, store: Store, now: tuple[int, int]) -> frozenset[str]:
    first, second = snapshot.state["edition"]
    if (first, second) == now:
        return frozenset()
    if (touched := store.changes.touched((first, second))) is None:
        raise SourceError(
            "the graph is too far behind to tell what has changed since: run `clew graph build`"
        )
    if len(touched) > COMPARED:
        return frozenset(touched)
    # a vector, or a field that the graph does not go by, makes no other version
    query = "SELECT id, digest FROM records WHERE id IN (SELECT value FROM json_each(?))"
    model, read = snapshot.state["model"], dict(snapshot.among(query, touched))
    same = {
        record.id
        for record in store.get(list(read))
        if read[record.id].removesuffix(BY_RULES) == digest(record, llm=model)
    }
    return frozenset(touched) - same


# ---------------------------------------------------------------------- as one may see it


class Meaning(NamedTuple):
    """What a name means."""

    entity: int
    records: int
    """How many name the entity, whoever may see them."""
    only: tuple[int, ...] | None = None
    """The records that write it so, where those who ask must not know of the entity's other
    names; None: all of the entity's."""


class SeenEntity:
    """What may be seen of one entity."""

    def __init__(self, node: int, kind: str, rows: Sequence[tuple[Any, ...]], *, more: bool):
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

    def __init__(self, snapshot: GraphSnapshot, store: Store, filter: Filter):
        self.snapshot, self.store, self.filter = snapshot, store, filter
        self._visible: dict[int, str | None] = {}

    @classmethod
    def open(cls, store: Store, filter: Filter) -> Self | None:
        """None where no graph is built; a SourceError where it cannot serve."""
        if (snapshot := open_graph(store)) is None:
            return None
        view = cls(snapshot, store, filter)
        view.changed()
        return view

    def changed(self) -> frozenset[str]:
        """The records that are no longer as the graph has them. Found once per edition of the
        store. Whatever the graph says of them is old: until it is built again, they are not in
        it. A SourceError where that cannot be told."""
        now = self.store.changes.edition()
        known = self.snapshot.changed
        if known is None or known[0] != now:
            known = now, _find_changed(self.snapshot, self.store, now)
            self.snapshot.changed = known
        return known[1]

    # ------------------------------------------------------------------ records

    def visible(self, nodes: Iterable[int]) -> dict[int, str]:
        """The ids of those of these records that exist, match, and are as the graph has them."""
        nodes = sorted(set(nodes))
        named = self.snapshot.ids([node for node in nodes if node not in self._visible])
        ids = list(named.values())
        found: set[str] = set()
        if len(ids) > MOST_IDS:
            found.update(row[0] for row in self.store.lifecycle.ledger(self.filter))
        else:
            for some in batched(ids, 900):
                wanted = self.filter.narrowed(Filter(ids=tuple(some)))
                if wanted is not None:
                    found.update(row[0] for row in self.store.lifecycle.ledger(wanted))
        found -= self.changed()
        self._visible |= {node: name if name in found else None for node, name in named.items()}
        return {node: name for node in nodes if (name := self._visible.get(node)) is not None}

    def first_records(self, query: str, values: Sequence[Any], *, most: int) -> list[int]:
        """The first of the records of a query that may be seen."""
        found: list[int] = []
        at, size = 0, max(most, FIRST_LOOK)
        while len(found) < most:
            rows = self.snapshot.rows(f"{query} LIMIT ? OFFSET ?", *values, size, at)
            visible = self.visible(row[0] for row in rows)
            found += [row[0] for row in rows if row[0] in visible]
            if len(rows) < size:
                break
            at, size = at + size, 10 * size  # if few may be seen, few of the next may
        return found[:most]

    def _any_visible(self, queries: Mapping[K, RecordQuery]) -> list[K]:
        """Those with a record that may be seen. Of most one of the first few may be: these are
        looked at together."""
        firsts = [
            self.snapshot.rows(f"{query} LIMIT ?", *values, FIRST_LOOK)
            for query, values in queries.values()
        ]
        self.visible(row[0] for rows in firsts for row in rows)
        return [name for name, query in queries.items() if self.first_records(*query, most=1)]

    # ------------------------------------------------------------------ names

    def meanings(self, keys: Sequence[str]) -> dict[str, Meaning]:
        """What these names mean, by key; those that mean nothing are left out."""
        rows = self.snapshot.among(
            """SELECT n.key, n.number, e.node, e.records
               FROM names AS n JOIN entities AS e USING (node)
               WHERE n.key IN (SELECT value FROM json_each(?))""",
            keys,
        )
        names: dict[int, set[int]] = defaultdict(set)
        for node, number in self.snapshot.among(
            "SELECT node, number FROM names WHERE node IN (SELECT value FROM json_each(?))",
            sorted({node for _, _, node, _ in rows}),
        ):
            names[node].add(number)
        joined = self._aliases([node for node in names if len(names[node]) > 1])
        found = {name: Meaning(node, records) for name, _, node, records in rows}
        whole: dict[str, RecordQuery] = {}
        parts: dict[str, Meaning] = {}
        for name, number, node, _ in rows:
            alike = _connected(number, joined)
            if alike >= names[node]:
                whole[name] = "SELECT record FROM mentions WHERE entity = ?", (node,)
                continue
            query = """SELECT DISTINCT m.record FROM writers AS w
                       JOIN mentions AS m ON m.entity = ? AND m.record = w.record
                       WHERE w.name IN (SELECT value FROM json_each(?))
                       ORDER BY m.after DESC, m.times DESC, m.record"""
            values = node, json.dumps(sorted(alike))
            if only := self.first_records(query, values, most=MOST_WRITERS):
                parts[name] = found[name]._replace(only=tuple(only))
        return parts | {name: found[name] for name in self._any_visible(whole)}

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
        query = "SELECT node, kind FROM entities WHERE node IN (SELECT value FROM json_each(?))"
        kinds = dict(self.snapshot.among(query, nodes))
        # those named after it first, then those with most
        naming = """SELECT record, times, after, written FROM mentions WHERE entity = ?
                    ORDER BY after DESC, times DESC, record LIMIT ?"""
        found: dict[int, SeenEntity] = {}
        for limit in (each, -1):
            mentions = {node: self.snapshot.rows(naming, node, limit) for node in nodes}
            visible = self.visible(row[0] for rows in mentions.values() for row in rows)
            hardly: list[int] = []
            for node in nodes:
                may = parts[node] & visible.keys() if node in parts else visible
                rows = [row for row in mentions[node] if row[0] in may]
                more = len(mentions[node]) == limit
                if rows and node in kinds:
                    found[node] = SeenEntity(node, kinds[node], rows, more=more)
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
