"""The built graph on disk: a SQLite file for names and texts, arrays for walking that are mapped
into memory. Written beside the old one and then named in `current.json`, in one step; whoever still
reads the old one keeps it."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import sqlite3
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from clew.errors import SourceError, StoreError
from clew.graph.assemble import Assembled, compressed
from clew.graph.summaries import Community
from clew.storage.derived import read_state, write_state

__all__ = ["CURRENT", "FORMAT", "Entry", "Snapshot", "current", "read_current", "write"]

FORMAT = 2
CURRENT = "current.json"
DATABASE = "graph.db"
ARRAYS = ("begins", "targets", "shares")
REBUILD = "run `clew graph build --force`"
_FIELDS = (
    *("format", "build", "token", "edition", "files", "digests"),
    *("records", "entities", "made_from"),
)

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
    CREATE TABLE links (source INTEGER, target INTEGER, PRIMARY KEY (source, target)) WITHOUT ROWID;
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


class Entry(NamedTuple):
    """An entity as it is kept."""

    node: int
    name: str
    kind: str
    records: int
    mentions: int


# ---------------------------------------------------------------------- writing


def write(
    place: Path,
    graph: Assembled,
    communities: Sequence[Community],
    levels: Sequence[npt.NDArray[np.int32]],
    facts: Mapping[str, Any],
) -> dict[str, Any]:
    """Make it the current one; its state. `facts` go into that as well."""
    build = os.urandom(8).hex()
    folder = place / build
    try:
        folder.mkdir(parents=True)
        arrays: dict[str, npt.NDArray[Any]] = dict(
            zip(ARRAYS, compressed(graph.edges, graph.nodes), strict=True)
        )
        arrays["levels"] = np.stack(levels) if levels else np.empty((0, graph.nodes), np.int32)
        for name, array in arrays.items():
            np.save(folder / f"{name}.npy", array)
        _fill(folder / DATABASE, graph, communities)
        state = {
            "format": FORMAT,
            "build": build,
            "records": len(graph.ids),
            "entities": len(graph.entities),
            "names": len(graph.names),
            "links": len(graph.links),
            "relations": len(graph.relations),
            "edges": len(graph.edges[0]),
            "levels": [
                len({c.number for c in communities if c.level == i}) for i in range(len(levels))
            ],
            "files": {file.name: file.stat().st_size for file in sorted(folder.iterdir())},
            "digests": {file.name: _digest(file) for file in sorted(folder.iterdir())},
            **facts,
        }
        write_state(place / CURRENT, state)
    except (OSError, sqlite3.Error) as error:
        shutil.rmtree(folder, ignore_errors=True)
        raise StoreError(
            f"the graph cannot be written to {place}: {error}; is the disk full? What was there is "
            "still in use: free some space and build it again"
        ) from error
    for other in place.iterdir():
        if other.is_dir() and other.name != build:
            shutil.rmtree(other, ignore_errors=True)  # who maps it keeps it
    return state


def _digest(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "blake2b").hexdigest()[:32]


def _fill(file: Path, graph: Assembled, communities: Sequence[Community]) -> None:
    count = len(graph.ids)
    with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode = OFF")
        db.execute("PRAGMA synchronous = OFF")
        db.executescript(_SCHEMA)
        db.execute("BEGIN")

        def put(table: str, rows: Iterator[Sequence[Any]]) -> None:
            columns = len(db.execute(f"SELECT * FROM {table} LIMIT 0").description)
            marks = ", ".join("?" * columns)
            db.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)

        held = zip(graph.ids, graph.digests, strict=True)
        put("records", ((node, name, mark) for node, (name, mark) in enumerate(held)))
        put("entities", ((count + i, *entity) for i, entity in enumerate(graph.entities)))
        number = {name: i for i, name in enumerate(sorted(graph.names))}
        put("names", ((i, name, graph.names[name]) for name, i in number.items()))
        put("writers", ((number[name], record) for name, record in graph.writers))
        put("joins", ((graph.names[a], number[a], number[b], r) for a, b, r in graph.joins))
        put("mentions", ((count + e, r, n, int(own), w) for e, r, n, own, w in graph.mentions))
        put("links", iter(graph.links))
        put(
            "relations",
            (
                (i, count + r.first, count + r.second, r.kind, r.weight)
                for i, r in enumerate(graph.relations)
            ),
        )
        put("stated", ((i, node) for i, r in enumerate(graph.relations) for node in r.stated))
        put("communities", ((c.number, c.level, c.parent, c.size, c.summary) for c in communities))
        put("members", ((c.number, *m) for c in communities for m in (*c.records, *c.entities)))
        put(
            "sentences",
            (
                (c.number, place, *sentence)
                for c in communities
                for place, sentence in enumerate(c.sentences)
            ),
        )
        db.execute("COMMIT")
        db.executescript(_INDEXES)


# ---------------------------------------------------------------------- reading


class Snapshot:
    """One built graph, opened for reading. Thread-safe."""

    def __init__(self, folder: Path, state: Mapping[str, Any]):
        self.state = state
        self._folder = folder
        self.records = int(state["records"])
        self.nodes = self.records + int(state["entities"])
        self.changed: tuple[tuple[int, int], frozenset[str] | None] | None = None
        """What has changed since, as found last (opened.changed)."""
        self.labels: dict[int, frozenset[str]] | None = None
        """The words of themes, once somebody has asked for them (themes.votes)."""
        try:
            for name, size in state["files"].items():
                if (folder / name).stat().st_size != size:
                    raise ValueError(f"{name} is not as it was written")
            self.begins, self.targets, self.shares, self.levels = (
                np.load(folder / f"{name}.npy", mmap_mode="r") for name in (*ARRAYS, "levels")
            )
            self._fit_together()
            file = (folder / DATABASE).absolute().as_uri()
            self._db = sqlite3.connect(
                f"{file}?mode=ro&immutable=1", uri=True, check_same_thread=False
            )
            self._lock = threading.Lock()
            self.rows("SELECT COUNT(*) FROM communities")
        except (OSError, ValueError, TypeError, IndexError, EOFError, sqlite3.Error) as error:
            raise SourceError(f"the graph cannot be read ({error}): {REBUILD}") from error

    def _fit_together(self) -> None:
        """A walk over what does not leads anywhere."""
        begins, targets, shares = self.begins, self.targets, self.shares
        fit = (
            [a.dtype.kind for a in (begins, targets, shares, self.levels)] == ["i", "i", "f", "i"]
            and begins.shape == (self.nodes + 1,)
            and targets.shape == shares.shape == (int(begins[-1]),)
            and self.levels.ndim == 2
            and self.levels.shape[1] == self.nodes
            and begins[0] == 0
            and bool((begins[1:] >= begins[:-1]).all())
        )
        if fit and len(targets):
            fit = int(targets.min()) >= 0 and int(targets.max()) < self.nodes
            fit = fit and bool(((shares >= 0) & (shares <= 1.001)).all())
        if not fit:
            raise ValueError("its arrays do not fit together")

    def damaged(self) -> str:
        """The first file that is not as it was written; empty: all are."""
        for name, mark in self.state["digests"].items():
            try:
                if _digest(self._folder / name) != mark:
                    return str(name)
            except OSError:
                return str(name)
        return ""

    def rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        try:
            with self._lock:
                return self._db.execute(query, values).fetchall()
        except (sqlite3.Error, UnicodeError) as error:
            raise SourceError(f"the graph is damaged ({error}): {REBUILD}") from error

    def among(self, query: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        """A query with IN (SELECT value FROM json_each(?))."""
        return self.rows(query, json.dumps(list(values))) if values else []

    def look_up(self, keys: Sequence[str]) -> dict[str, tuple[int, Entry]]:
        """Entities by names and aliases, with the number of the name."""
        found = self.among(
            """SELECT n.key, n.number, e.* FROM names AS n JOIN entities AS e USING (node)
               WHERE n.key IN (SELECT value FROM json_each(?))""",
            keys,
        )
        return {name: (number, Entry(*entity)) for name, number, *entity in found}

    def entities(self, nodes: Sequence[int]) -> dict[int, Entry]:
        query = "SELECT * FROM entities WHERE node IN (SELECT value FROM json_each(?))"
        return {row[0]: Entry(*row) for row in self.among(query, nodes)}

    def ids(self, nodes: Sequence[int]) -> dict[int, str]:
        query = "SELECT node, id FROM records WHERE node IN (SELECT value FROM json_each(?))"
        return dict(self.among(query, nodes))

    def nodes_of(self, ids: Sequence[str]) -> dict[str, int]:
        query = "SELECT id, node FROM records WHERE id IN (SELECT value FROM json_each(?))"
        return dict(self.among(query, ids))

    def digests(self, ids: Sequence[str]) -> dict[str, str]:
        """Of the versions that these records were read in."""
        query = "SELECT id, digest FROM records WHERE id IN (SELECT value FROM json_each(?))"
        return dict(self.among(query, ids))

    def owners(self, entities: Sequence[int]) -> dict[int, list[int]]:
        """The records that are named after these entities."""
        query = """SELECT entity, record FROM mentions
                   WHERE after AND entity IN (SELECT value FROM json_each(?)) ORDER BY 1, 2"""
        found: dict[int, list[int]] = {}
        for entity, record in self.among(query, entities):
            found.setdefault(entity, []).append(record)
        return found

    def mentions(
        self, entities: Sequence[int], *, each: int = 200
    ) -> dict[int, list[tuple[int, int, bool, str]]]:
        """Per entity (record, how often, whether it is named after it, how it is written there):
        those named after it first, then those with most."""
        found: dict[int, list[tuple[int, int, bool, str]]] = {}
        for node in entities:
            rows = self.rows(
                """SELECT record, times, after, written FROM mentions WHERE entity = ?
                   ORDER BY after DESC, times DESC, record LIMIT ?""",
                node,
                each,
            )
            found[node] = [(r, n, bool(a), w) for r, n, a, w in rows]
        return found


def read_current(place: Path) -> dict[str, Any] | None:
    """The state of the graph that is in force; None: there is none that can be read."""
    state = read_state(place / CURRENT, *_FIELDS)
    return state if state is not None and state["format"] == FORMAT else None


MOST_OPEN = 8
_opened: dict[Path, Snapshot] = {}
_opening = threading.Lock()


def current(place: Path) -> Snapshot | None:
    """The graph that is in force, opened once for all who ask."""
    state = read_current(place)
    if state is None:
        if (place / CURRENT).exists():
            raise SourceError(f"the graph is of another version of Clew or damaged: {REBUILD}")
        return None
    with _opening:
        known = _opened.get(place)
        if known is None or known.state != state:  # the edition may be another, of the same build
            try:
                known = Snapshot(place / state["build"], state)
            except SourceError:
                again = read_current(place)  # replaced between the two readings
                if again is None or again["build"] == state["build"]:
                    raise
                known = Snapshot(place / again["build"], again)
            while len(_opened) >= MOST_OPEN:
                _opened.pop(next(iter(_opened)))
            _opened[place] = known
        return known
