"""A table without an index of its words, looked through row by row.

SQLite leaves out most rows by looking for pieces of the words (LIKE, every special character
escaped); what is left is analysed as Clew's own texts are. No row with a word is lost by that: an
ASCII text has the root of the word in it, and a text that is not ASCII is always looked at.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Sequence
from typing import NamedTuple

from clew.sources.rows import Columns, Found, Judge, Row, Words, identifier, text_of
from clew.sources.sqlite_file import Layout, interrupted
from clew.text import analyser
from clew.types import Query, Record, Terms

__all__ = ["scanned"]

TITLE = 0.3
"""The part of a score that the words in the title make up. Chosen between 0, .1
and .3 on CACM and CISI: the best of these on both."""
KEPT = 8
"""Rows kept on the way for each one wanted: what words are worth changes while rows are read."""
MOST_PIECES = 128
"""From more pieces on (a pasted page), most rows have one, and looking for them takes longer."""
IN_PART = "not all rows could be looked at in time: make an FTS5 table of them, or raise `seconds`"


class _Hit(NamedTuple):
    """A row with some of the words, by their numbers."""

    record: Record
    anywhere: set[int]
    in_title: set[int]


def scanned(
    db: sqlite3.Connection,
    layout: Layout,
    columns: Columns,
    query: Query,
    words: Words,
    judge: Judge,
) -> Found:
    """Rows by the share of the query's words they have, a rare word counting for more."""
    where, values = _where(columns, query.terms)
    statement = f"SELECT {columns.selected()} FROM {identifier(layout.table)}{where}"
    holders, rows = [0] * len(words), 0
    found: list[_Hit] = []
    problem = None
    try:
        for row in map(Row._make, db.execute(statement, values)):
            in_title = words.within(text_of(row.title)) if row.title else set()
            anywhere = in_title | words.within(text_of(row.text))
            if not anywhere:
                continue
            rows += 1
            for number in anywhere:
                holders[number] += 1
            if (record := judge(row)) is None:
                continue
            found.append(_Hit(record, anywhere, in_title))
            if len(found) >= 2 * KEPT * query.depth:
                found = _best(found, _worths(holders, rows), columns)[: KEPT * query.depth]
    except sqlite3.OperationalError as error:
        if not (found and interrupted(error)):
            raise
        problem = IN_PART
    worths = _worths(holders, rows)
    best = _best(found, worths, columns)[: query.depth]
    return Found([(_score(hit, worths, columns), hit.record) for hit in best], problem)


def _worths(holders: Sequence[int], rows: int) -> list[float]:
    """What each word adds to a score; 1 in all. The fewer rows have it, the more."""
    worths = [math.log(1 + rows / max(count, 0.5)) for count in holders]
    return [worth / (sum(worths) or 1.0) for worth in worths]


def _score(hit: _Hit, worths: Sequence[float], columns: Columns) -> float:
    there = sum(worths[number] for number in hit.anywhere)
    if columns.title:
        in_title = sum(worths[number] for number in hit.in_title)
        there = (1 - TITLE) * there + TITLE * in_title
    return round(min(1.0, there), 6)


def _best(found: list[_Hit], worths: Sequence[float], columns: Columns) -> list[_Hit]:
    """Best first, each record once."""
    ordered = sorted(found, key=lambda hit: (-_score(hit, worths, columns), hit.record.id))
    once: dict[str, _Hit] = {}
    for hit in ordered:
        once.setdefault(hit.record.id, hit)
    return list(once.values())


def _where(columns: Columns, terms: Terms) -> tuple[str, list[str]]:
    """A condition that every row with one of the words meets, and its values."""
    tokens = dict.fromkeys(token for group in terms.words for token in group)
    unspaced = [token for token in tokens if analyser.unspaced(token)]
    plain = [token for token in tokens if not analyser.unspaced(token)]
    pieces = list(dict.fromkeys(root for t in plain if t.isascii() for root in analyser.roots(t)))
    if not tokens or len(pieces) + len(unspaced) > MOST_PIECES:
        return "", []
    texts = [f"CAST({identifier(name)} AS TEXT)" for name in (columns.text, columns.title) if name]
    tests: list[str] = []
    for text in texts:
        tests += [f"{text} LIKE ?{i} ESCAPE '\\'" for i, _ in enumerate(pieces, 1)]
        tests += [f"instr({text}, ?{i})" for i, _ in enumerate(unspaced, len(pieces) + 1)]
        if plain:  # more bytes than characters: there is something that LIKE does not understand
            tests.append(f"length({text}) <> length(CAST({text} AS BLOB))")
    return f" WHERE {' OR '.join(tests)}", [*map(_like, pieces), *unspaced]


def _like(piece: str) -> str:
    for special in "\\%_":
        piece = piece.replace(special, "\\" + special)
    return f"%{piece}%"
