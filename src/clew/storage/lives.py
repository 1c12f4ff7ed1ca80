"""How records fare: accesses, feedback, their end and what took their place.

Only an end or a return is noted in the change log, for filters see it. All the rest is beside the
records and touches no index.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from clew.filter import Filter
from clew.ranking.retention import GROWTH, STRONGEST
from clew.storage import log
from clew.storage.filters import where
from clew.storage.rows import among, rids_of
from clew.storage.tables import Tables
from clew.types import Life

__all__ = [
    "accessed",
    "end",
    "ledger",
    "lives",
    "next_change",
    "predecessors",
    "rated",
    "revive",
    "set_lives",
    "tally",
]

_COLUMNS = "accesses, strength, accessed_at, useful, useless, reason, successor"
_UNSET = Life()


def lives(db: Tables, ids: Sequence[str]) -> dict[str, Life]:
    """Of those that exist; what nothing has happened to yet has a life like any new one."""
    query = f"SELECT r.id, {_COLUMNS} FROM records AS r LEFT JOIN lives USING (rid)"
    return {row[0]: _life(row[1:]) for row in among(db, query + " WHERE r.id IN ({})", ids)}


def set_lives(db: Tables, given: Mapping[str, Life]) -> None:
    rids = rids_of(db, list(given))
    rows = [
        (rids[name], *(getattr(life, column) for column in _COLUMNS.split(", ")))
        for name, life in given.items()
        if name in rids
    ]
    marks = ", ".join("?" * 8)
    db.executemany(f"INSERT OR REPLACE INTO lives (rid, {_COLUMNS}) VALUES ({marks})", rows)


def accessed(db: Tables, counts: Mapping[str, int], *, at: float) -> None:
    rids = rids_of(db, list(counts))
    db.executemany(
        """INSERT INTO lives (rid, accesses, strength, accessed_at) VALUES (?1, ?2, MIN(?3, ?4), ?5)
           ON CONFLICT (rid) DO UPDATE SET
             accesses = accesses + ?2,
             strength = MIN(strength * ?3, ?4),
             accessed_at = MAX(COALESCE(accessed_at, ?5), ?5)""",
        [
            (rid, counts[name], GROWTH ** min(counts[name], 64), STRONGEST, at)
            for name, rid in rids.items()
        ],
    )


def rated(db: Tables, id: str, *, useful: int, useless: int) -> bool:
    rids = rids_of(db, [id])
    db.executemany(
        """INSERT INTO lives (rid, useful, useless) VALUES (?1, ?2, ?3)
           ON CONFLICT (rid) DO UPDATE SET useful = useful + ?2, useless = useless + ?3""",
        [(rid, useful, useless) for rid in rids.values()],
    )
    return bool(rids)


def end(
    db: Tables, ids: Sequence[str], *, at: float, reason: str, successor: str | None
) -> list[str]:
    """Those of them that had not ended yet."""
    query = "SELECT id, rid FROM records WHERE ended_at IS NULL AND id IN ({})"
    rids = dict(among(db, query, ids))
    db.executemany(
        "UPDATE records SET ended_at = ? WHERE rid = ?", [(at, r) for r in rids.values()]
    )
    db.executemany(
        """INSERT INTO lives (rid, reason, successor) VALUES (?1, ?2, ?3)
           ON CONFLICT (rid) DO UPDATE SET reason = ?2, successor = ?3""",
        [(rid, reason, successor) for rid in rids.values()],
    )
    log.append(db, "record", rids.values())
    return list(rids)


def revive(db: Tables, ids: Sequence[str]) -> list[str]:
    """Those of them that had ended."""
    query = "SELECT id, rid FROM records WHERE ended_at IS NOT NULL AND id IN ({})"
    rids = dict(among(db, query, ids))
    some = [(rid,) for rid in rids.values()]
    db.executemany("UPDATE records SET ended_at = NULL WHERE rid = ?", some)
    db.executemany("UPDATE lives SET reason = '', successor = NULL WHERE rid = ?", some)
    log.append(db, "record", rids.values())
    return list(rids)


def ledger(db: Tables, filter: Filter) -> list[tuple[str, float, float, Life]]:
    condition, values = where(filter)
    query = f"""SELECT r.id, r.importance, r.created_at, {_COLUMNS}
                FROM records AS r LEFT JOIN lives USING (rid) WHERE {condition} ORDER BY r.id"""
    return [(*row[:3], _life(row[3:])) for row in db.execute(query, values).fetchall()]


def next_change(db: Tables, at: float) -> float | None:
    query = """SELECT MIN(moment) FROM (
                   SELECT MIN(valid_from) AS moment FROM records
                   WHERE valid_from > ? AND ended_at IS NULL
                   UNION ALL
                   SELECT MIN(valid_to) FROM records WHERE valid_to > ? AND ended_at IS NULL)"""
    moment: float | None = db.execute(query, (at, at)).fetchone()[0]
    return moment


def predecessors(db: Tables, id: str) -> list[str]:
    rows = db.execute(
        """SELECT r.id FROM lives AS l JOIN records AS r USING (rid) WHERE l.successor = ?
           ORDER BY r.created_at DESC, r.id""",
        (id,),
    )
    return [row[0] for row in rows]


def tally(db: Tables) -> list[tuple[str, str, str, int]]:
    found: list[tuple[str, str, str, int]] = db.execute(
        """SELECT r.collection, r.type,
                  CASE WHEN r.ended_at IS NULL THEN ''
                       ELSE COALESCE(NULLIF(l.reason, ''), 'ended') END, COUNT(*)
           FROM records AS r LEFT JOIN lives AS l USING (rid) GROUP BY 1, 2, 3 ORDER BY 1, 2, 3"""
    ).fetchall()
    return found


def _life(columns: Sequence[Any]) -> Life:
    return _UNSET if columns[0] is None else Life(*columns)
