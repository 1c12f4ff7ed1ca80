"""Records by what they are labelled with: tags, folders they lie in, words of their file's name.

A label may be on a hundred thousand records, and then says little: of each label only the `MOST`
newest records are taken up, and others are asked only whether they have it too. That keeps the cost
of a query bounded.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from clew.filter import Filter
from clew.storage import rows
from clew.storage.filters import Allowed, where
from clew.storage.tables import Tables
from clew.text.passage import lineage
from clew.types import Candidate

__all__ = ["labelled", "ranked"]

MOST = 100

_HOLDERS = {
    "tag": "SELECT rid FROM tags WHERE tag = ?",
    "folder": "SELECT rid FROM labels WHERE kind = 'folder' AND label = ?",
    "name": "SELECT rid FROM labels WHERE kind = 'name' AND label = ?",
}
Groups = Sequence[tuple[float, Sequence[str]]]


def labelled(
    db: Tables,
    kinds: Iterable[str],
    groups: Groups,
    filter: Filter,
    *,
    limit: int,
    allowed: Allowed | None = None,
) -> list[Candidate]:
    """The best `limit` by the sum of the groups of which they have a label. `allowed` are those
    that may be found, where the filter does not say it all."""
    asked = list(dict.fromkeys(label for _, group in groups for label in group))
    has: dict[int, set[str]] = {}
    broad: list[tuple[str, str]] = []
    for kind in kinds:
        present = [*_present(db, kind, asked), *(_below(db, asked) if kind == "tag" else ())]
        for label in dict.fromkeys(present):
            rids = _newest(db, kind, label, filter, allowed)
            if len(rids) >= MOST:
                broad.append((kind, label))
            for rid in rids:
                has.setdefault(rid, set()).add(label)
    for kind, label in broad:
        others = [rid for rid, mine in has.items() if label not in mine]
        query = f"""SELECT other.value FROM json_each(?) AS other
                    WHERE EXISTS ({_HOLDERS[kind]} AND rid = other.value)"""
        for (rid,) in db.execute(query, (json.dumps(others), label)).fetchall():
            has[rid].add(label)
    return ranked(has, groups, limit=limit, names=lambda some: rows.names(db, some))


def ranked(
    has: Mapping[int, set[str]],
    groups: Groups,
    *,
    limit: int,
    names: Callable[[list[int]], Mapping[int, str]],
) -> list[Candidate]:
    """Records by the labels they have, the best first; `names` gives their ids."""
    scores = {
        rid: sum(worth for worth, group in groups if not mine.isdisjoint(group))
        for rid, labels in has.items()
        for mine in [{name for label in labels for name in lineage(label)}]
    }
    if len(scores) > limit:  # ids, which settle ties, are looked up for the best alone
        least = sorted(scores.values(), reverse=True)[limit - 1]
        scores = {rid: score for rid, score in scores.items() if score >= least}
    ids = names(list(scores)) if scores else {}
    found = [Candidate(ids[rid], score) for rid, score in scores.items() if rid in ids]
    return sorted(found, key=lambda c: (-c.score, c.id))[:limit]


def _present(db: Tables, kind: str, labels: Sequence[str]) -> list[str]:
    """Those that any record has, in one go: a query of ten words may name a hundred tags."""
    holds = _HOLDERS[kind].replace("?", "asked.value")
    query = f"SELECT value FROM json_each(?) AS asked WHERE EXISTS ({holds})"
    return [row[0] for row in db.execute(query, (json.dumps(list(labels)),))]


def _below(db: Tables, tags: Sequence[str]) -> list[str]:
    """Tags that lie below one of these, found by stepping through the index from one to the next:
    there may be many records with each."""
    query = f"""WITH RECURSIVE below(asked, tag) AS (
                  SELECT value, (SELECT MIN(tag) FROM tags
                                 WHERE tag > value || '/' AND tag < value || '0') FROM json_each(?)
                  UNION ALL
                  SELECT asked, (SELECT MIN(tag) FROM tags
                                 WHERE tag > below.tag AND tag < asked || '0')
                  FROM below WHERE below.tag IS NOT NULL)
                SELECT tag FROM below WHERE tag IS NOT NULL LIMIT {MOST}"""
    return [row[0] for row in db.execute(query, (json.dumps(list(tags)),))]


def _newest(
    db: Tables, kind: str, label: str, filter: Filter, allowed: Allowed | None
) -> list[int]:
    holders = _HOLDERS[kind]
    if allowed is not None:
        every = np.array([row[0] for row in db.execute(holders, (label,))], dtype=np.int64)
        newest: list[int] = every[allowed.of_rids(every)][::-1][:MOST].tolist()
        return newest
    if not filter:
        query, values = f"{holders} ORDER BY rid DESC LIMIT {MOST}", [label]
    else:
        condition, bounds = where(filter)
        # The label's own rows, newest first, until it is enough: by r.rid, SQLite sorts them all.
        query = f"""SELECT r.rid FROM ({holders}) AS l CROSS JOIN records AS r USING (rid)
                    WHERE {condition} ORDER BY l.rid DESC LIMIT {MOST}"""
        values = [label, *bounds]
    return [row[0] for row in db.execute(query, values)]
