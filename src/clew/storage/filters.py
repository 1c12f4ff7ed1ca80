"""Filters as sets of records: answered by the database once, then kept current from the log."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from clew.background import Recent
from clew.filter import Filter
from clew.protocols import batched
from clew.storage import log
from clew.storage.tables import Tables, one_moment
from clew.timestamps import UNDATED

Mask = npt.NDArray[np.bool_]


class Allowed:
    """The records that may be found: `mask[rid]`. `whole`: every record there was when it was asked
    for, as good as no filter, and much faster. Those written since have higher numbers than the
    mask knows: an index that has them already must leave them out."""

    def __init__(self, mask: Mask, count: int, whole: bool = False):
        self.mask, self.count, self.whole = mask, count, whole

    @classmethod
    def of(cls, mask: Mask, *, whole: bool = False) -> Allowed:
        return cls(mask, int(np.count_nonzero(mask)), whole)

    def of_rids(self, rids: npt.NDArray[np.int64]) -> Mask:
        """Which of these records are allowed; newer ones than the mask knows are not."""
        known = rids < len(self.mask)
        if known.all():
            return self.mask[rids]
        return known & self.mask[np.where(known, rids, 0)]


def where(filter: Filter, db: Tables) -> tuple[str, list[Any]]:
    """The condition on `records AS r`, with its parameters. "true" when there is none."""
    tests: list[str] = []
    values: list[Any] = []

    def test(sql: str, *parameters: Any) -> None:
        tests.append(sql)
        values.extend(parameters)

    listed = f"(SELECT value FROM {db.LIST} AS listed)"
    # With these tags or below them. "0" comes after "/": two ranges of an index, never all of it.
    tagged = f"""(SELECT t.rid FROM {db.LIST} AS asked {db.JOIN} tags AS t
                  ON t.tag = asked.value
                  OR (t.tag > asked.value || '/' AND t.tag < asked.value || '0'))"""
    for column, names in (
        ("collection", filter.collection),
        ("type", filter.type),
        ("domain", filter.domain),
        ("id", filter.ids),
    ):
        if len(names) == 1:  # so that an index on it also gives the order
            test(f"r.{column} = ?", names[0])
        elif names:
            test(f"r.{column} {db.IN.format(listed)}", db.as_list(names))
    if filter.not_domain:
        test(f"r.domain {db.NOT_IN.format(listed)}", db.as_list(filter.not_domain))
    if filter.tags:
        test(f"r.rid {db.IN.format(tagged)}", db.as_list(filter.tags))
    if filter.not_tags:
        test(f"r.rid {db.NOT_IN.format(tagged)}", db.as_list(filter.not_tags))
    for tag in filter.tags_all:
        test(f"r.rid {db.IN.format(tagged)}", db.as_list([tag]))
    if filter.path:
        options = [_path(pattern, db) for pattern in filter.path]
        test(" OR ".join(sql for sql, _ in options), *(v for _, vs in options for v in vs))
    for folders, sql in (
        (filter.within, "{}"),
        (filter.not_within, "r.path IS NULL OR NOT ({})"),
    ):
        if folders:
            below = [bound for folder in folders for bound in _below(folder)]
            test(sql.format(" OR ".join([f"({_PREFIX})"] * len(folders))), *below)
    for sql, *bound in _bounds(filter):
        test(sql, *bound)
    for key, value in filter.metadata:
        if value is None:
            test(f"r.rid {db.NOT_IN.format('(SELECT rid FROM attributes WHERE key = ?)')}", key)
            continue
        asked = value if isinstance(value, tuple) else (("eq", value),)
        parts = [db.compare(operator, bound) for operator, bound in asked]
        sql = (" OR " if asked[0][0] == "eq" else " AND ").join(f"({part})" for part, _ in parts)
        numbers = [number for _, some in parts for number in some]
        held = f"(SELECT rid FROM attributes WHERE key = ? AND ({sql}))"
        test(f"r.rid {db.IN.format(held)}", key, *numbers)
    return " AND ".join(f"({t})" for t in tests) or "true", values


def _bounds(filter: Filter) -> Iterator[tuple[Any, ...]]:
    """Conditions on numbers and moments, each with its values."""
    for sql, bound in (
        ("r.importance >= ?", filter.importance_min),
        ("r.importance <= ?", filter.importance_max),
        ("r.updated_at >= ?", filter.after),
        (f"r.updated_at < ? AND r.updated_at != {UNDATED}", filter.before),
        ("r.created_at >= ?", filter.created_after),
        (f"r.created_at < ? AND r.created_at != {UNDATED}", filter.created_before),
        ("r.valid_from IS NULL OR r.valid_from <= ?", filter.valid_at),
        ("r.valid_to IS NULL OR r.valid_to > ?", filter.valid_at),
        ("COALESCE(r.valid_from, r.created_at) <= ?", filter.as_of),
        ("r.valid_to IS NULL OR r.valid_to > ?", filter.as_of),
        ("r.ended_at IS NULL OR r.ended_at > ?", filter.as_of),
    ):
        if bound is not None:
            yield sql, bound
    if filter.active is not None:
        yield ("r.ended_at IS NULL" if filter.active else "r.ended_at IS NOT NULL",)


_PREFIX = "r.path >= ? AND r.path < ?"  # an index range, also in front of a glob


def _below(prefix: str) -> list[str]:
    return [prefix, prefix + "\U0010ffff"]


def _path(pattern: str, db: Tables) -> tuple[str, list[str]]:
    literal = re.split(r"[*?[]", pattern, maxsplit=1)[0]
    ends = _below(literal)
    if literal == pattern:
        return f"({_PREFIX})", ends
    # Matched by the very function that decides in Python, which is asked for as few as possible.
    glob = f"CASE WHEN {_PREFIX} THEN {db.GLOB} ELSE false END"
    literally = _below(pattern)  # names may have such signs, too
    return f"({_PREFIX} OR {_PREFIX} AND {glob})", [*literally, *ends, *ends, db.as_glob(pattern)]


def _any_hidden(filter: Filter, db: Tables) -> bool:
    """Whether any record is of a domain or below a folder that is left out: in most stores none
    is, which two indexes say at once."""
    query = "SELECT 1 FROM records WHERE domain <> '' AND domain = ? LIMIT 1"
    if any(not name or db.execute(query, (name,)).fetchone() for name in filter.not_domain):
        return True
    query = "SELECT 1 FROM records WHERE path >= ? AND path < ? LIMIT 1"
    return any(db.execute(query, _below(folder)).fetchone() for folder in filter.not_within)


class FilterCache:
    """The last filters used, each with the set it stands for and the log position it is true at."""

    SIZE = 32
    PATCH_AT_MOST = 20_000
    """More changed records than this: ask anew rather than patch."""

    def __init__(self) -> None:
        self._sets: Recent[Filter, tuple[log.Place, Allowed]] = Recent(self.SIZE)

    def allowed(self, filter: Filter, db: Tables, head: log.Place | None = None) -> Allowed | None:
        """None: no restriction. `head` is where the log ends, where that was read already."""
        if not filter:
            return None
        kept = self._sets.use(filter)
        if kept is not None and kept[0] == (head or log.head(db)):
            return kept[1]
        fresh = self._patched(filter, kept, db) if kept is not None else None
        if fresh is None:
            # A count and a set that agree by chance, because somebody has written between them,
            # would open a filter to everything.
            with one_moment(db):
                fresh = log.head(db), self._asked(filter, db)
        self._sets.keep(filter, fresh)
        return fresh[1]

    def count(self, filter: Filter, db: Tables, head: log.Place | None = None) -> int:
        """How many records it leaves."""
        hides = filter.not_domain or filter.not_within
        found = None if hides else self.allowed(filter, db, head)
        if found is None:  # a set that hides may have numbers in it that are no record's any more
            condition, values = where(filter, db)
            query = f"SELECT COUNT(*) FROM records AS r WHERE {condition}"
            return int(db.execute(query, values).fetchone()[0])
        return found.count

    def _asked(self, filter: Filter, db: Tables) -> Allowed:
        size = (db.execute("SELECT MAX(rid) FROM records").fetchone()[0] or 0) + 1
        wanted = filter.without("not_domain", "not_within")
        if wanted == filter or _any_hidden(filter, db):
            wanted = filter
        elif not wanted:  # those that are gone are in no index either
            return Allowed(np.ones(size, dtype=np.bool_), size, whole=True)
        condition, values = where(wanted, db)
        rows = db.execute(f"SELECT r.rid FROM records AS r WHERE {condition}", values).fetchall()
        rids = np.fromiter((row[0] for row in rows), dtype=np.int64, count=len(rows))
        mask = np.zeros(size, dtype=np.bool_)
        mask[rids] = True
        there = db.execute("SELECT COUNT(*) FROM records").fetchone()[0]
        return Allowed(mask, len(rids), whole=len(rids) == there)

    def _patched(
        self, filter: Filter, kept: tuple[log.Place, Allowed], db: Tables
    ) -> tuple[log.Place, Allowed] | None:
        changes = log.since(db, kept[0])
        if changes is None or changes.size("record") > self.PATCH_AT_MOST:
            return None
        touched = changes.numbers("record")
        if not touched:
            return changes.place, kept[1]
        mask = np.zeros(max(len(kept[1].mask), max(touched) + 1), dtype=np.bool_)
        mask[: len(kept[1].mask)] = kept[1].mask
        mask[touched] = False
        condition, values = where(filter, db)
        whole = kept[1].whole
        for some in batched(touched, 500):
            marks = ", ".join("?" * len(some))
            rows = db.execute(
                f"SELECT r.rid, {condition} FROM records AS r WHERE r.rid IN ({marks})",
                [*values, *some],
            ).fetchall()
            mask[[rid for rid, match in rows if match]] = True
            whole &= all(match for _, match in rows)
        return changes.place, Allowed.of(mask, whole=whole)
