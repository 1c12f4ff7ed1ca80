"""How records fare, in DuckDB: as embedded/lives.py. What there is is read, changed and written
anew: under the writer's lock nobody comes in between."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, fields, replace
from typing import TYPE_CHECKING

from clew.filter import Filter
from clew.ranking.retention import GROWTH, STRONGEST
from clew.storage.duckdb.filters import where
from clew.storage.duckdb.rows import among
from clew.storage.duckdb.writing import note_changes
from clew.storage.lives import next_change, predecessors, tally
from clew.types import Life

if TYPE_CHECKING:
    from clew.storage.duckdb.connection import Connection

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

_COLUMNS = [field.name for field in fields(Life)]
_NAMED = ", ".join(_COLUMNS)
_UNSET = Life()


def lives(db: Connection, ids: Sequence[str]) -> dict[str, Life]:
    """Of those that exist; what nothing has happened to yet has a life like any new one."""
    return {name: life for name, (_, life) in _known(db, ids).items()}


def _known(db: Connection, ids: Sequence[str]) -> dict[str, tuple[int, Life]]:
    query = f"SELECT r.id, r.rid, {_NAMED} FROM records AS r LEFT JOIN lives USING (rid)"
    found = among(db, query + " WHERE r.id IN ({})", ids)
    return {
        name: (rid, _UNSET if columns[0] is None else Life(*columns))
        for name, rid, *columns in found
    }


def _write(db: Connection, given: Mapping[int, Life]) -> None:
    if not given:
        return
    db.execute("DELETE FROM lives WHERE rid IN (SELECT unnest(?))", [list(given)])
    columns = zip(*(astuple(life) for life in given.values()), strict=True)
    values = {name: list(column) for name, column in zip(_COLUMNS, columns, strict=True)}
    db.insert("lives", {"rid": list(given), **values})


def _change(
    db: Connection, ids: Sequence[str], change: Callable[[str, Life], Life]
) -> dict[str, int]:
    known = _known(db, ids)
    _write(db, {rid: change(name, life) for name, (rid, life) in known.items()})
    return {name: rid for name, (rid, _) in known.items()}


def set_lives(db: Connection, given: Mapping[str, Life]) -> None:
    _change(db, list(given), lambda name, _: given[name])


def accessed(db: Connection, counts: Mapping[str, int], *, at: float) -> None:
    def change(name: str, life: Life) -> Life:
        before = at if life.accessed_at is None else life.accessed_at
        return replace(
            life,
            accesses=life.accesses + counts[name],
            strength=min(life.strength * GROWTH ** min(counts[name], 64), STRONGEST),
            accessed_at=max(before, at),
        )

    _change(db, list(counts), change)


def rated(db: Connection, id: str, *, useful: int, useless: int) -> bool:
    def change(_: str, life: Life) -> Life:
        return replace(life, useful=life.useful + useful, useless=life.useless + useless)

    return bool(_change(db, [id], change))


def end(
    db: Connection, ids: Sequence[str], *, at: float, reason: str, successor: str | None
) -> list[str]:
    """Those of them that had not ended yet."""
    query = "SELECT id FROM records WHERE ended_at IS NULL AND id IN ({})"
    lasting = [row[0] for row in among(db, query, ids)]
    rids = _change(db, lasting, lambda _, life: replace(life, reason=reason, successor=successor))
    _set_end(db, rids, at)
    return list(rids)


def revive(db: Connection, ids: Sequence[str]) -> list[str]:
    """Those of them that had ended."""
    query = "SELECT id FROM records WHERE ended_at IS NOT NULL AND id IN ({})"
    ended = [row[0] for row in among(db, query, ids)]
    rids = _change(db, ended, lambda _, life: replace(life, reason="", successor=None))
    _set_end(db, rids, None)
    return list(rids)


def _set_end(db: Connection, rids: Mapping[str, int], at: float | None) -> None:
    if rids:
        query = "UPDATE records SET ended_at = ? WHERE rid IN (SELECT unnest(?))"
        db.execute(query, [at, list(rids.values())])
        note_changes(db, {"record": list(rids.values())})


def ledger(db: Connection, filter: Filter) -> list[tuple[str, float, float, Life]]:
    condition, values = where(filter)
    query = f"""SELECT r.id, r.importance, r.created_at, {_NAMED}
                FROM records AS r LEFT JOIN lives USING (rid) WHERE {condition} ORDER BY r.id"""
    return [
        (name, importance, created, _UNSET if columns[0] is None else Life(*columns))
        for name, importance, created, *columns in db.execute(query, values)
    ]
