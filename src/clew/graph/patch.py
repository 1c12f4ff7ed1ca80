"""A graph brought up to date after a few edits, at a cost that goes with these: in a copy of its
files the records that changed are taken out and put in anew, with their names, links and edges.

What all records together say stays as it was until the next whole build: which names are the same,
what is named together, themes and the sentences of others. So it is made whole again when one in
`PART` records has changed, and whenever a title has.
"""

from __future__ import annotations

import contextlib
import json
import math
import shutil
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from clew.errors import ClewError
from clew.graph.assemble import (
    LINK,
    MOST_ENTITIES,
    NAMING,
    LinkResolver,
    compress_edges,
    idf,
    lead_on,
    own_titles,
)
from clew.graph.extract import RecordExtract, key
from clew.graph.snapshot import ARRAYS, COUNTED, DATABASE
from clew.storage.snapshot import DerivedFolder, State, map_array, save_array

PART = 50
_WITH_RECORD = ("mentions", "writers", "joins", "stated", "titles", "sentences")


def is_small(state: Mapping[str, Any], changes: int) -> bool:
    """Whether so many more changes leave it worth patching."""
    return bool(0 < changes + state.get("patched", 0) <= state["records"] // PART)


def patch(
    folder: DerivedFolder,
    state: State,
    changed: Sequence[RecordExtract],
    gone: Sequence[str],
    pages: Sequence[RecordExtract],
    facts: Mapping[str, Any],
) -> State | None:
    """Make the patched one the current one; its state. None: it has to be made whole, since a title
    changed. `pages` are all records as they are now; of those that did not change, without data."""
    old = folder.folder(state)

    def fill(place: Path) -> State:
        for name in state["files"]:
            shutil.copyfile(old / name, place / name)
        with contextlib.closing(sqlite3.connect(place / DATABASE, isolation_level=None)) as db:
            db.execute("PRAGMA journal_mode = OFF")
            db.execute("PRAGMA synchronous = OFF")
            db.execute("BEGIN")
            tables = _PatchedTables(db, int(state["nodes"]))
            if not tables.replace(changed, gone, pages):
                raise _TitleChangedError
            db.execute("COMMIT")
            counts = {
                name: db.execute(f"SELECT COUNT(*) FROM {name}").fetchone()[0] for name in COUNTED
            }
        edges = _patch_edges(place, tables)
        for name, array in zip(ARRAYS, edges, strict=True):
            save_array(place / f"{name}.npy", array)
        return {
            **counts,
            "nodes": tables.nodes,
            "edges": len(edges[1]) // 2,
            "levels": state["levels"],
            "first_entity": state.get("first_entity", state["records"]),
            "added": [*state.get("added", ()), *sorted(tables.added)],
            "patched": state.get("patched", 0) + len(changed) + len(gone),
            **facts,
        }

    try:
        return folder.swap(fill)
    except _TitleChangedError:
        return None


class _TitleChangedError(ClewError):
    """A page has another title now, so that names all over the graph may mean others."""


class _PatchedTables:
    """The rows of a graph's database, of which some are replaced."""

    def __init__(self, db: sqlite3.Connection, nodes: int):
        self.db, self.nodes = db, nodes
        self.of = dict(self._rows("SELECT id, node FROM records"))
        self.touched: set[int] = set()
        self.added: set[int] = set()
        self.edges: list[tuple[int, int, float]] = []

    def _rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        return self.db.execute(query, values).fetchall()

    def _insert(self, table: str, rows: Iterable[tuple[Any, ...]]) -> None:
        for row in rows:
            marks = ", ".join("?" * len(row))
            self.db.execute(f"INSERT OR IGNORE INTO {table} VALUES ({marks})", row)

    def replace(
        self,
        changed: Sequence[RecordExtract],
        gone: Sequence[str],
        pages: Sequence[RecordExtract],
    ) -> bool:
        """Whether that could be done."""
        for record in changed:
            known = {
                row[0]
                for row in self._rows(
                    "SELECT key FROM titles WHERE record = ?", self.of.get(record.id, -1)
                )
            }
            if record.id in self.of and known != set(own_titles(record)):
                return False
        names = (*gone, *(record.id for record in changed))
        self.touched = {self.of[name] for name in names if name in self.of}
        affected = self._take_out(gone)
        for record in changed:
            if record.id not in self.of:
                self.of[record.id] = self.nodes
                self.added.add(self.nodes)
                self.nodes += 1
            node = self.of[record.id]
            self.db.execute(
                "INSERT OR REPLACE INTO records VALUES (?, ?, ?)", (node, record.id, record.digest)
            )
        numbers = self._name_numbers(changed)
        for record in changed:
            affected |= self._put_in(record, numbers, len(pages))
        self._link(changed, pages)
        self.db.execute(
            """UPDATE entities SET
                 records = (SELECT COUNT(*) FROM mentions WHERE entity = node),
                 mentions = (SELECT COALESCE(SUM(times), 0) FROM mentions WHERE entity = node)
               WHERE node IN (SELECT value FROM json_each(?))""",
            (json.dumps(sorted(affected)),),
        )
        return True

    def _take_out(self, gone: Sequence[str]) -> set[int]:
        """What changed and what is gone; the entities that they named."""
        some = json.dumps(sorted(self.touched))
        within = "IN (SELECT value FROM json_each(?))"
        affected = {
            row[0] for row in self._rows(f"SELECT entity FROM mentions WHERE record {within}", some)
        }
        self.db.execute(
            f"""UPDATE communities SET summary = '' WHERE number IN (
                SELECT community FROM sentences WHERE record {within})""",
            (some,),
        )
        for table in _WITH_RECORD:
            self.db.execute(f"DELETE FROM {table} WHERE record {within}", (some,))
        self.db.execute(f"DELETE FROM links WHERE source {within}", (some,))
        lost = json.dumps([self.of[name] for name in gone if name in self.of])
        self.db.execute(f"DELETE FROM links WHERE target {within}", (lost,))
        self.db.execute(f"DELETE FROM records WHERE node {within}", (lost,))
        return affected

    def _name_numbers(self, changed: Sequence[RecordExtract]) -> dict[str, tuple[int, int]]:
        """Number and node of every name that these records write; new ones are made."""
        wanted: dict[str, tuple[str, str]] = {}
        for record in changed:
            for name, mention in record.data.mentions.items():
                if mention.kind != "heading" or name == key(record.title):
                    wanted.setdefault(name, (mention.text, mention.kind))
        query = """SELECT key, number, node FROM names
                   WHERE key IN (SELECT value FROM json_each(?))"""
        every = {name for record in changed for name in (*record.data.mentions, *record.data.own)}
        found = {
            name: (number, node)
            for name, number, node in self._rows(query, json.dumps(sorted(every)))
        }
        number = self._rows("SELECT COALESCE(MAX(number), -1) FROM names")[0][0]
        for name, (text, kind) in wanted.items():
            if name not in found:
                number += 1
                found[name] = number, self.nodes
                self._insert("names", [(number, name, self.nodes)])
                self._insert("entities", [(self.nodes, text, kind, 0, 0)])
                self.nodes += 1
        return found

    def _put_in(
        self, record: RecordExtract, names: dict[str, tuple[int, int]], records: int
    ) -> set[int]:
        """One record's names, aliases and relations; the entities it names."""
        node, title = self.of[record.id], key(record.title)
        own = names[title][1] if title in names else -1
        times: dict[int, int] = defaultdict(int)
        written: dict[int, tuple[int, str]] = {}
        for name, mention in record.data.mentions.items():
            if name in names:
                number, entity = names[name]
                rank = 1000 if name == title else mention.count
                times[entity] += mention.count
                written[entity] = max(written.get(entity, (0, "")), (rank, mention.text))
                self._insert("writers", [(number, node)])
        self._insert(
            "mentions",
            [(e, node, count, int(e == own), written[e][1]) for e, count in sorted(times.items())],
        )
        for alias in record.data.own:
            if own >= 0 and alias != title:
                if alias not in names:
                    number = 1 + self._rows("SELECT MAX(number) FROM names")[0][0]
                    names[alias] = number, own
                    self._insert("names", [(number, alias, own)])
                if names[alias][1] == own:
                    self._insert("joins", [(own, names[alias][0], names[title][0], node)])
        self._insert("titles", [(name, node) for name in own_titles(record)])
        number = 1 + self._rows("SELECT COALESCE(MAX(number), -1) FROM relations")[0][0]
        for first, kind, second in record.data.relations:
            one = own if not first else names.get(first, (0, -1))[1]
            other = names.get(second, (0, -1))[1]
            if one >= 0 and other >= 0 and one != other:
                self._insert("relations", [(number, one, other, kind, 1.0)])
                self._insert("stated", [(number, node)])
                number += 1
        query = "SELECT node, records FROM entities WHERE node IN (SELECT value FROM json_each(?))"
        shares = {
            entity: (1 + math.log(times[entity]) / 2)
            * idf(count or 1, records) ** 2
            * (NAMING if entity == own else 1.0)
            for entity, count in self._rows(query, json.dumps(sorted(times)))
        }
        heaviest = sorted(shares, key=lambda entity: (-shares[entity], entity))[:MOST_ENTITIES]
        self.edges += [(node, entity, shares[entity]) for entity in heaviest]
        return set(times)

    def _link(self, changed: Sequence[RecordExtract], pages: Sequence[RecordExtract]) -> None:
        """What these records link to and name."""
        numbers = {record.id: number for number, record in enumerate(pages)}
        resolver = LinkResolver(pages)
        links = {
            (source, target)
            for record in changed
            for given, _ in record.data.anchors
            if (target := resolver.find(source := numbers[record.id], given)) is not None
            and target != source
        }
        place = 1 + self._rows("SELECT COALESCE(MAX(place), -1) FROM links")[0][0]
        of = [self.of[page.id] for page in pages]
        common = dict(self._rows("SELECT target, COUNT(*) FROM links GROUP BY target"))
        naming = [common.get(node, 0) for node in of]
        rows = lead_on(pages, links, naming=naming)
        self._insert("links", [(of[a], of[b], place + at) for a, b, at in rows])
        query = "SELECT source, target FROM links WHERE target IN (SELECT value FROM json_each(?))"
        incoming = set(self._rows(query, json.dumps(sorted(self.touched))))
        outgoing = {(self.of[pages[a].id], self.of[pages[b].id]) for a, b in links}
        joined = Counter((min(pair), max(pair)) for pair in incoming | outgoing)
        self.edges += [(*pair, LINK * count**0.5) for pair, count in sorted(joined.items())]


def _patch_edges(place: Path, tables: _PatchedTables) -> list[npt.NDArray[Any]]:
    """The arrays without edges of what changed, and with the new ones."""
    begins, targets, shares, sums, levels = (map_array(place / f"{name}.npy") for name in ARRAYS)
    sources = np.repeat(np.arange(len(begins) - 1), np.diff(begins))
    once = sources < targets
    one, other, weight = sources[once], targets[once], (shares * sums[sources])[once]
    touched = np.asarray(sorted(tables.touched), np.int64)
    kept = ~np.isin(one, touched) & ~np.isin(other, touched)
    added = tables.edges
    edges = (
        np.concatenate([one[kept], [a for a, _, _ in added]]).astype(np.int32),
        np.concatenate([other[kept], [b for _, b, _ in added]]).astype(np.int32),
        np.concatenate([weight[kept], [w for _, _, w in added]]).astype(np.float32),
    )
    grouped = np.full((len(levels), tables.nodes), -1, np.int32)
    grouped[:, : levels.shape[1]] = levels
    return [*compress_edges(edges, tables.nodes), grouped]
