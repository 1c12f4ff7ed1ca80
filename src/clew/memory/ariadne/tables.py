"""Ariadne's other tables: which memory each of their rows belongs to, and which rows to none."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from clew.memory.ariadne.file import Database, Row
from clew.memory.ariadne.values import identity, listed, moment, plain_row

__all__ = ["ATTACHED", "Attached", "Whole", "attached", "named", "survey", "unclaimed"]

ATTACHED = {
    "access_log": ("memory_id", "access_log"),
    "feedback": ("memory_id", "feedback"),
    "memory_entities": ("memory_id", "entities"),
    "memory_links": ("source_id", "links"),
    "sources": ("memory_id", "sources"),
}
"""Tables whose rows belong to a memory: the column that says to which, and what they are called
where they stand with it."""

Attached = dict[str, list[Row]]
"""Rows that stand with one memory, by what they are called there."""


@dataclass(frozen=True, slots=True)
class Whole:
    """What must be known of the whole database before its first memory is read."""

    replaced: dict[int, tuple[int, float | None]] = field(default_factory=dict)
    """Memories that another one supersedes: which, and since when."""
    merged: dict[int, int] = field(default_factory=dict)
    """Memories that were consolidated into another one."""
    mentioned: dict[int, int] = field(default_factory=dict)
    """Entities, each with the first memory that has it."""
    graph: dict[int | None, Attached] = field(default_factory=dict)
    """Edges and consolidations by the memory that they stand with; None: no memory has them."""


def survey(db: Database) -> Whole:
    """Read what the memories need to know of each other."""
    whole = Whole()
    if db.has("memories", "supersedes_id"):
        alive = "AND is_deleted = 0" if db.has("memories", "is_deleted") else ""
        for row in db.rows(
            "SELECT supersedes_id, id, created_at FROM memories WHERE supersedes_id IS NOT NULL "
            f"AND supersedes_id != id {alive} ORDER BY created_at, id"
        ):
            since = moment(row["created_at"])[0]
            whole.replaced.setdefault(row["supersedes_id"], (row["id"], since))  # the first counts
    if db.has("memory_links", "source_id", "target_id", "link_type"):
        for row in db.rows(
            "SELECT source_id, target_id FROM memory_links WHERE link_type = 'consolidated' "
            "AND source_id IN (SELECT id FROM memories) ORDER BY source_id"
        ):
            whole.merged[row["target_id"]] = row["source_id"]
    if _has_entities(db):
        for row in db.rows(
            "SELECT entity_id, MIN(memory_id) AS memory_id FROM memory_entities "
            "WHERE memory_id IN (SELECT id FROM memories) GROUP BY entity_id"
        ):
            whole.mentioned[row["entity_id"]] = row["memory_id"]
    _edges(db, whole)
    _consolidations(db, whole)
    return whole


def _has_entities(db: Database) -> bool:
    return db.has("memory_entities", "memory_id", "entity_id") and db.has("entities", "id", "name")


def _edges(db: Database, whole: Whole) -> None:
    """An edge stands once, with the first memory that mentions one of its ends."""
    if not db.has("edges", "source_id", "target_id"):
        return
    for row in db.rows("SELECT * FROM edges ORDER BY 1, 2"):
        edge = plain_row(row)
        ends = row["source_id"], row["target_id"]
        owner = next((whole.mentioned[end] for end in ends if end in whole.mentioned), None)
        for side, end in zip(("source", "target"), ends, strict=True):
            if called := _entity(db, end).get("name"):
                edge.setdefault(side, called)
        whole.graph.setdefault(owner, {}).setdefault("edges", []).append(edge)


def _consolidations(db: Database, whole: Whole) -> None:
    """A consolidation stands with the memory that it made, else with one that it was made from."""
    if not db.has("consolidations", "memory_ids"):
        return
    for row in db.rows("SELECT * FROM consolidations ORDER BY 1, 2"):
        members = [each for each in listed(row["memory_ids"]) if isinstance(each, int)]
        made = (whole.merged[each] for each in members if each in whole.merged)
        there = (each for each in members if named(db, "memories", each))
        owner = next(made, None) or next(there, None)
        whole.graph.setdefault(owner, {}).setdefault("consolidations", []).append(plain_row(row))


# ---------------------------------------------------------------- with a memory


def attached(db: Database, memories: list[Row]) -> dict[int, Attached]:
    """The rows that belong to these memories, which follow each other by number."""
    span = memories[0]["id"], memories[-1]["id"]
    found: dict[int, Attached] = {}
    for table, (owner, called) in ATTACHED.items():
        if not db.has(table, owner):
            continue
        sql = f"SELECT * FROM {table} WHERE {owner} BETWEEN ? AND ? ORDER BY 1, 2"
        for row in db.rows(sql, span):
            whose = found.setdefault(row.pop(owner), {})
            whose.setdefault(called, []).append(_resolved(db, table, row))
    return found


def _resolved(db: Database, table: str, row: Row) -> Row:
    """The row, with what its numbers stand for."""
    shown = plain_row(row)
    if table == "memory_entities" and _has_entities(db):
        entity = _entity(db, shown.pop("entity_id")) or {"id": row["entity_id"]}
        return {**entity, **{f"link_{name}": value for name, value in shown.items()}}
    for column, other, called in (
        ("target_id", "memories", "target"),
        ("episode_id", "episodes", "episode"),
    ):
        if column in row and (name := named(db, other, row[column])):
            shown.setdefault(called, name)
    return shown


def _entity(db: Database, number: Any) -> Row:
    if not db.has("entities", "id", "name"):
        return {}
    found = db.rows("SELECT * FROM entities WHERE id = ?", (number,))
    return plain_row(found[0]) if found else {}


def named(db: Database, table: str, number: Any) -> str | None:
    """The id that Clew's memory made of this row has; None where there is no such row."""
    if number is None or not db.has(table, "id", "created_at"):
        return None
    found = db.rows(f"SELECT id, created_at FROM {table} WHERE id = ?", (number,))
    return identity(table, found[0]["id"], found[0]["created_at"]) if found else None


# ---------------------------------------------------------------- with none


def unclaimed(db: Database, whole: Whole) -> dict[str, list[Row]]:
    """Rows that stand with no memory, by table. A table that is not known here is among them."""
    left: dict[str, list[Row]] = {}
    for table in db.tables:
        if table == "memories" or (table == "episodes" and db.has(table, "id", "content")):
            continue
        if rows := _unclaimed(db, table, whole):
            left[table] = rows
    return left


def _unclaimed(db: Database, table: str, whole: Whole) -> list[Row]:
    graph = whole.graph.get(None, {})
    if table == "edges" and db.has(table, "source_id", "target_id"):
        return graph.get("edges", [])
    if table == "consolidations" and db.has(table, "memory_ids"):
        return graph.get("consolidations", [])
    quoted = table.replace('"', '""')
    sql = f'SELECT * FROM "{quoted}"'
    owner = ATTACHED.get(table, ("",))[0]
    if owner and db.has(table, owner):
        sql += f" WHERE {owner} IS NULL OR {owner} NOT IN (SELECT id FROM memories)"
    rows = db.rows(f"{sql} ORDER BY 1")
    if table == "entities" and _has_entities(db):
        rows = [row for row in rows if row["id"] not in whole.mentioned]
    return [plain_row(row) for row in rows]
