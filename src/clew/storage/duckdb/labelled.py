"""Records by what they are labelled with: as embedded/labelled.py, in one statement for all."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from clew.filter import Filter
from clew.storage.duckdb.filters import where
from clew.storage.filters import Allowed
from clew.storage.labelled import MOST, Groups, ranked
from clew.types import Candidate

if TYPE_CHECKING:
    from clew.storage.duckdb.connection import Connection

__all__ = ["labelled"]


def labelled(
    db: Connection,
    kinds: Iterable[str],
    groups: Groups,
    filter: Filter,
    *,
    limit: int,
    allowed: Allowed | None = None,
) -> list[Candidate]:
    """The best `limit` by the sum of the groups of which they have a label. `allowed` are those
    that may be found, where the filter does not say it all."""
    asked = dict.fromkeys(label for _, group in groups for label in group)
    pairs = db.file.vocabulary.present(db, [(kind, label) for kind in kinds for label in asked])
    if not pairs:
        return []
    condition, values = where(filter)
    source = "labels AS l" if not filter else "labels AS l JOIN records AS r USING (rid)"
    below = "(l.kind = ? AND (l.label = ? OR l.kind = 'tag' AND starts_with(l.label, ? || '/')))"
    holds = " OR ".join([below] * len(pairs))
    holders = db.numpy(
        f"""SELECT l.kind AS kind, l.label AS label, l.rid AS rid FROM {source}
            WHERE ({holds}) AND {condition} ORDER BY l.rid DESC""",
        [*(part for kind, label in pairs for part in (kind, label, label)), *values],
    )
    every = zip(*(holders[name].tolist() for name in ("kind", "label", "rid")), strict=True)
    may = None if allowed is None else allowed.of_rids(holders["rid"].astype(np.int64)).tolist()
    room: dict[tuple[str, str], int] = {}
    has: dict[int, set[str]] = {}
    others: list[tuple[str, int]] = []
    for i, (kind, label, rid) in enumerate(every):  # the newest first
        if may is not None and not may[i]:
            continue
        if room.setdefault((kind, label), MOST):
            room[kind, label] -= 1
            has.setdefault(rid, set()).add(label)
        else:
            others.append((label, rid))
    for label, rid in others:
        if rid in has:
            has[rid].add(label)
    return ranked(has, groups, limit=limit, names=lambda some: db.file.names.of(db, some))
