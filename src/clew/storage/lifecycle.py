"""How records fare: accesses, feedback, their end and what took their place.

Only an end or a return is noted in the change log, for filters see it. All the rest is beside the
records and touches no index.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, replace
from typing import Any

from clew.filter import Filter
from clew.ranking.adjust import GROWTH, STRONGEST
from clew.storage import log
from clew.storage.filters import where
from clew.storage.tables import LIFE, Database, Tables, plain
from clew.types import Life

_LIFE = ", ".join(LIFE)
_UNSET = Life()


class SqlLifecycle:
    """What there is is read, changed and written anew: while one writes, nobody comes between."""

    def __init__(self, db: Database):
        self._db = db

    @plain
    def get(self, ids: Sequence[str]) -> dict[str, Life]:
        """What nothing has happened to yet has a life like any new one."""
        return {name: life for name, (_, life) in _known(self._db.reader, ids).items()}

    def set(self, lives: Mapping[str, Life]) -> None:
        self._change(list(lives), lambda name, _: lives[name])

    def count_accesses(self, counts: Mapping[str, int], *, at: float) -> None:
        def change(name: str, life: Life) -> Life:
            return replace(
                life,
                accesses=life.accesses + counts[name],
                strength=min(life.strength * GROWTH ** min(counts[name], 64), STRONGEST),
                accessed_at=at if life.accessed_at is None else max(life.accessed_at, at),
            )

        self._change(list(counts), change)

    def rate(self, id: str, *, useful: int = 0, useless: int = 0) -> bool:
        def change(_: str, life: Life) -> Life:
            return replace(life, useful=life.useful + useful, useless=life.useless + useless)

        return bool(self._change([id], change))

    def end(
        self, ids: Sequence[str], *, at: float, reason: str, successor: str | None = None
    ) -> list[str]:
        return self._set_end(ids, at, reason, successor)

    def revive(self, ids: Sequence[str]) -> list[str]:
        return self._set_end(ids, None, "", None)

    def _set_end(
        self, ids: Sequence[str], at: float | None, reason: str, successor: str | None
    ) -> list[str]:
        ended = "IS NOT NULL" if at is None else "IS NULL"
        query = f"SELECT id FROM records WHERE ended_at {ended} AND id IN ({{}})"
        with self._db.transaction() as db:
            names = [row[0] for row in db.among(query, ids)]
            rids = self._change(
                names, lambda _, life: replace(life, reason=reason, successor=successor)
            )
            update = f"UPDATE records SET ended_at = ? WHERE rid IN (SELECT value FROM {db.LIST})"
            if rids:
                db.execute(update, [at, db.as_list(rids)])
            log.append(db, {"record": rids})
        return names

    def _change(self, ids: Sequence[str], change: Callable[[str, Life], Life]) -> list[int]:
        """The numbers of those that are there."""
        with self._db.transaction() as db:
            known = _known(db, ids)
            rows = [(rid, *astuple(change(name, life))) for name, (rid, life) in known.items()]
            db.insert("lives", rows, replacing=1)
            return [row[0] for row in rows]

    @plain
    def ledger(self, filter: Filter) -> list[tuple[str, float, float, Life]]:
        db = self._db.reader
        condition, values = where(filter, db)
        query = f"""SELECT r.id, r.importance, r.created_at, {_LIFE} FROM records AS r
                    LEFT JOIN lives USING (rid) WHERE {condition} ORDER BY r.id"""
        return [(*row[:3], _life(row[3:])) for row in db.execute(query, values).fetchall()]

    @plain
    def next_change(self, at: float) -> float | None:
        query = """SELECT MIN(moment) FROM (
                       SELECT MIN(valid_from) AS moment FROM records
                       WHERE valid_from > ? AND ended_at IS NULL
                       UNION ALL
                       SELECT MIN(valid_to) FROM records WHERE valid_to > ? AND ended_at IS NULL)"""
        moment: float | None = self._db.reader.execute(query, (at, at)).fetchone()[0]
        return moment

    @plain
    def predecessors(self, id: str) -> list[str]:
        query = """SELECT r.id FROM lives AS l JOIN records AS r USING (rid) WHERE l.successor = ?
                   ORDER BY r.created_at DESC, r.id"""
        return [row[0] for row in self._db.reader.execute(query, (id,))]

    @plain
    def tally(self) -> list[tuple[str, str, str, int]]:
        found: list[tuple[str, str, str, int]] = self._db.reader.execute(
            """SELECT r.collection, r.type,
                      CASE WHEN r.ended_at IS NULL THEN ''
                           ELSE COALESCE(NULLIF(l.reason, ''), 'ended') END, COUNT(*)
               FROM records AS r LEFT JOIN lives AS l USING (rid)
               GROUP BY 1, 2, 3 ORDER BY 1, 2, 3"""
        ).fetchall()
        return found


def _known(db: Tables, ids: Sequence[str]) -> dict[str, tuple[int, Life]]:
    query = f"SELECT r.id, r.rid, {_LIFE} FROM records AS r LEFT JOIN lives USING (rid)"
    found = db.among(query + " WHERE r.id IN ({})", ids)
    return {name: (rid, _life(columns)) for name, rid, *columns in found}


def _life(columns: Sequence[Any]) -> Life:
    return _UNSET if columns[0] is None else Life(*columns)
