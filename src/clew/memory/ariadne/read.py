"""Memories of an Ariadne database, with Clew's names, and nothing lost.

What Clew has a field for goes there. Everything else stands under `metadata["ariadne"]`, by the
names of Ariadne's own columns: those of the memory's row, also ones that nobody here has heard of;
its rows in other tables; and every value that had to be changed to fit, as it was.

- An id is `ariadne-17-` and eight characters that stand for the moment the memory was made: reading
  twice gives the same ids, and two databases share none.
- A memory that another replaced, that was merged into another or deleted softly has ended.
- Episodes become memories of type episodic. An edge of the graph stands with the first memory that
  mentions one of its ends.
- Rows that belong to no memory, memories without a text, and tables that are not known here make
  one more memory at the end. It has ended as well: it is kept, and never in the way of an answer.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

from clew.memory.ariadne import values
from clew.memory.ariadne.file import Database, Row, opened
from clew.memory.ariadne.tables import Attached, Whole, attached, named, survey, unclaimed

__all__ = ["read_ariadne"]

T = TypeVar("T")

BATCH = 500
USEFUL, USELESS = ("approve", "relevant"), ("reject", "irrelevant")
"""What Ariadne lets its users say of a memory. Any other word counts by what it did to the
confidence."""


def read_ariadne(path: str | Path) -> Iterator[dict[str, Any]]:
    """One mapping per memory, in the order in which they were made, with the names of an export.

    The file is only read, also while Ariadne has it open. What makes it unreadable is said at once,
    before the first memory.
    """
    file = Path(path).expanduser()
    with opened(file):
        pass
    return _read(file)


def _read(file: Path) -> Iterator[dict[str, Any]]:
    left: dict[str, list[Row]] = {}
    with opened(file) as db:
        whole = survey(db)
        for rows in _batches(db, "memories"):
            beside = attached(db, rows)
            for row in rows:
                around = {**beside.get(row["id"], {}), **whole.graph.get(row["id"], {})}
                memory = _memory(db, row, around, whole)
                if memory["content"]:
                    yield memory
                else:
                    more = {"beside": around} if around else {}
                    left.setdefault("memories", []).append(values.plain_row(row) | more)
        if db.has("episodes", "id", "content"):
            for row in chain.from_iterable(_batches(db, "episodes")):
                episode = _episode(row)
                if episode["content"]:
                    yield episode
                else:
                    left.setdefault("episodes", []).append(values.plain_row(row))
        left |= unclaimed(db, whole)
    if left:
        yield _remainder(left)


def _batches(db: Database, table: str) -> Iterator[list[Row]]:
    sql = f"SELECT * FROM {table} WHERE id > ? ORDER BY id LIMIT {BATCH}"
    last = -(2**63)
    while rows := db.rows(sql, (last,)):
        yield rows
        last = rows[-1]["id"]


class _Columns:
    """A row on its way: what was taken for a field, and what is left of it."""

    def __init__(self, table: str, row: Row):
        self.left = dict(row)
        self.kept: Row = {"table": table, "id": self.left.pop("id")}
        self.id = values.identity(table, self.kept["id"], row.get("created_at"))

    def take(self, column: str, fit: Callable[[Any], tuple[T, bool]]) -> T:
        """A column as a field; where that does not say the same, the column is kept beside it."""
        raw = self.left.pop(column, None)
        value, same = fit(raw)
        if not same:
            self.kept[column] = values.plain(raw)
        return value

    def metadata(self, own: dict[str, Any], beside: Attached) -> dict[str, Any]:
        """The user's own, and under "ariadne" everything that no field took."""
        for column, value in values.plain_row(self.left).items():
            taken = column in self.kept or column in beside
            self.kept[f"{column}_" if taken else column] = value
        return {**own, values.OWN: {**self.kept, **beside}}


def _memory(db: Database, row: Row, beside: Attached, whole: Whole) -> dict[str, Any]:
    columns = _Columns("memories", row)
    content = columns.take("content", values.content)
    if row["content_hash"] == hashlib.sha256(str(row["content"]).encode()).hexdigest():
        del columns.left["content_hash"]
    moments = ("created_at", "updated_at", "accessed_at")
    created, updated, accessed = (columns.take(name, values.moment) for name in moments)
    # Reading twice must give the same, so a time that says nothing is not the time of reading.
    created = next((each for each in (created, updated, accessed) if each is not None), 0.0)
    updated = created if updated is None else updated
    ended, reason, successor = _end(columns, whole, created=created, updated=updated)
    since, until = _validity(columns)
    if older := named(db, "memories", row.get("supersedes_id")):
        columns.kept["supersedes"] = older
    return {
        "id": columns.id,
        "content": content,
        "type": columns.take("memory_type", values.kind),
        "importance": columns.take("importance", values.share),
        "tags": columns.take("tags", values.labels),
        "namespace": columns.take("namespace", values.space),
        "embedding": columns.take("embedding", values.vector),
        "created_at": created,
        "updated_at": updated,
        "valid_from": since,
        "valid_to": until,
        "ended_at": ended,
        "reason": reason,
        "successor": None if successor is None else named(db, "memories", successor),
        "accesses": columns.take("access_count", values.count),
        "strength": columns.take("retention_strength", values.strength),
        "accessed_at": accessed,
        "feedback": _feedback(beside.get("feedback", [])),
        "metadata": columns.metadata(columns.take("metadata", values.mapping), beside),
    }


def _validity(columns: _Columns) -> tuple[float | None, float | None]:
    """Since when and till when it is true. What is reversed says nothing, and is kept aside."""
    since, until = (values.moment(columns.left.get(n))[0] for n in ("valid_from", "valid_to"))
    if since is not None and until is not None and since > until:
        return None, None
    return columns.take("valid_from", values.moment), columns.take("valid_to", values.moment)


def _end(
    columns: _Columns, whole: Whole, *, created: float, updated: float
) -> tuple[float | None, str, int | None]:
    """When a memory ended, why, and which one took its place."""
    number = columns.kept["id"]
    deleted = bool(columns.left.pop("is_deleted", 0))
    successor, since = whole.replaced.get(number, (None, None))
    ends = []
    if successor is not None:
        ends.append(max(since or 0.0, created))  # a link may have been made afterwards
    if deleted:
        when = values.moment(columns.left.get("deleted_at"))[0]
        # An old row may not say when; it was changed for the last time before.
        ends.append(updated if when is None else when)
        if successor is None:
            successor = whole.merged.get(number)
    ended = min(ends) if ends else None
    if ended is not None and ended == columns.left.get("deleted_at"):
        del columns.left["deleted_at"]
    if deleted:
        return ended, "consolidated" if number in whole.merged else "forgotten", successor
    return ended, "superseded" if ends else "", successor


def _feedback(rows: list[Row]) -> dict[str, int]:
    counts = {"useful": 0, "useless": 0}
    for row in rows:
        said, change = row.get("action"), row.get("confidence_delta", 0)
        known = said in USEFUL or said in USELESS
        sign = change if isinstance(change, (int, float)) and not known else 0
        counts["useful"] += said in USEFUL or sign > 0
        counts["useless"] += said in USELESS or sign < 0
    return counts


def _episode(row: Row) -> dict[str, Any]:
    columns = _Columns("episodes", row)
    created = columns.take("created_at", values.moment) or 0.0
    return {
        "id": columns.id,
        "content": columns.take("content", values.content),
        "type": "episodic",
        "namespace": columns.take("namespace", values.space),
        "created_at": created,
        **_untouched(),
        "updated_at": created,
        "metadata": columns.metadata(columns.take("metadata", values.mapping), {}),
    }


def _untouched() -> dict[str, Any]:
    """The life of a memory that nobody has asked for yet."""
    return {
        "importance": 0.5,
        "tags": [],
        "embedding": None,
        "valid_from": None,
        "valid_to": None,
        "ended_at": None,
        "reason": "",
        "successor": None,
        "accesses": 0,
        "strength": 1.0,
        "accessed_at": None,
        "feedback": _feedback([]),
    }


def _remainder(left: dict[str, list[Row]]) -> dict[str, Any]:
    """What belongs to no memory, as one that has ended. Its id changes with what it holds, so that
    those of two databases never get in each other's way."""
    digest = hashlib.blake2b(json.dumps(left, sort_keys=True).encode(), digest_size=8).hexdigest()
    made = [
        row[name]
        for rows in left.values()
        for row in rows
        for name in ("created_at", "accessed_at")
        if values.moment(row.get(name))[0] is not None
    ]
    newest = float(max(made, default=0.0))
    sizes = ", ".join(f"{len(rows)} of {table}" for table, rows in left.items())
    return {
        "id": f"ariadne-rest-{digest}",
        "content": f"Rows of an Ariadne database that belong to no memory of it: {sizes}.",
        "type": "semantic",
        "namespace": values.OWN,
        **_untouched(),
        "importance": 0.0,
        "created_at": newest,
        "updated_at": newest,
        "ended_at": newest,
        "reason": "forgotten",
        "metadata": {values.OWN: {"table": None, "rows": left}},
    }
