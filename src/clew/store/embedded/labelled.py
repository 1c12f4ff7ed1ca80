"""Records by what they are labelled with: tags, folders they lie in, words of their file's name.

A label may be on a hundred thousand records, and then says little: of each label only the `MOST`
newest records are looked at, which keeps the cost of a query bounded. Which labels those have is
then counted in full.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from typing import Any

import numpy as np

from clew.filter import Filter
from clew.store.embedded.filters import Allowed, where

__all__ = ["labelled"]

MOST = 1_000

_TABLES = {
    "tag": ("SELECT rid FROM tags WHERE tag = ?", "SELECT rid, tag FROM tags"),
    "folder": (
        "SELECT rid FROM labels WHERE kind = 'folder' AND label = ?",
        "SELECT rid, label FROM labels WHERE kind = 'folder'",
    ),
    "name": (
        "SELECT rid FROM labels WHERE kind = 'name' AND label = ?",
        "SELECT rid, label FROM labels WHERE kind = 'name'",
    ),
}


def labelled(
    db: sqlite3.Connection,
    kind: str,
    labels: Sequence[str],
    filter: Filter,
    allowed: Allowed | None = None,
) -> dict[str, set[str]]:
    """Record ids, each with those of the labels it has. `allowed` are those that may be found,
    where the filter does not say it all."""
    one, every = _TABLES[kind]
    condition, values = where(filter)
    rids: set[int] = set()
    for label in labels:
        if allowed is not None:
            every_one = np.array([row[0] for row in db.execute(one, [label])], dtype=np.int64)
            rids |= set(every_one[allowed.of_rids(every_one)][::-1][:MOST].tolist())
            continue
        bare = f"{one} ORDER BY rid DESC LIMIT {MOST}"
        narrowed = f"""SELECT r.rid FROM ({one}) AS l JOIN records AS r USING (rid)
                       WHERE {condition} ORDER BY r.rid DESC LIMIT {MOST}"""
        found = db.execute(narrowed, [label, *values]) if filter else db.execute(bare, [label])
        rids |= {row[0] for row in found.fetchall()}
    if not rids:
        return {}
    column = "tag" if kind == "tag" else "label"
    joint = "WHERE" if kind == "tag" else "AND"
    rows: list[tuple[Any, ...]] = db.execute(
        f"""SELECT r.id, l.{column} FROM ({every} {joint} {column} IN
              (SELECT value FROM json_each(?1)) AND rid IN (SELECT value FROM json_each(?2))) AS l
            JOIN records AS r USING (rid)""",
        (json.dumps(list(labels)), json.dumps(sorted(rids))),
    ).fetchall()
    found_labels: dict[str, set[str]] = {}
    for name, label in rows:
        found_labels.setdefault(name, set()).add(label)
    return found_labels
