"""An FTS5 table, asked with MATCH and ranked by its bm25.

Ranking is dear for each row that has a word (the row's length is looked up), walking a word's rows
is cheap. So a query is made to rank few rows:

- Rows with all words come first; only where they are too few does any word count.
- Then only rows with one of the rarer words are ranked, as many words as have MANY rows together.
  The frequent words count for these rows but bring none of their own. The first ten are
  hardly ever others; what it saves is in docs/benchmarks/exocortex.md, against plain FTS5.
- Where even the rarest word is frequent, titles are asked first: what is called by it comes first
  anyway.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

from clew.sources.rows import Columns, Found, Judge, Row, Words, identifier, spelt_words
from clew.sources.scan import scanned
from clew.sources.sqlite_file import Layout, interrupted
from clew.text import analyser
from clew.text.analyser import quoted
from clew.types import Query, Record

__all__ = ["ranked"]

MANY = 20_000
"""Rows that may be ranked for the sake of any word."""
SAMPLE = 2_000
"""Rows of a word that are counted; of a more frequent one, the rest is estimated from how close
they lie together."""
TITLE = 2.0
"""What a word in the title counts, against one in the text. Chosen between 1, 2 and 5 on CACM, CISI
and SciFact's training queries, which differ little and not in the same direction."""
MOST_WORDS = 64
IN_PART = "not all rows could be ranked in time: ask for rarer words, or raise `seconds`"

_PIECES = re.compile(r"[^\W_]+")


class _Word(NamedTuple):
    """One word of the query as FTS5 takes it: quoted, with the columns it is looked for in."""

    anywhere: str
    in_title: str
    """Empty where there are no titles."""


def ranked(
    db: sqlite3.Connection,
    layout: Layout,
    columns: Columns,
    query: Query,
    words: Words,
    judge: Judge,
) -> Found:
    """Rows by bm25. The best one's score is the share of the query's words it has, and the others
    are scaled to it."""
    asked = _words(query.text, layout, columns)
    if not asked:  # shorter than the three characters that some tables need
        return scanned(db, layout, columns, query, words, judge)
    phrases = _phrases(query, layout, columns)
    found: list[tuple[float, Record]] = []
    problem = None
    try:
        for wanted in _ladder(_rarest_first(db, layout, asked), judge):
            expression = " AND ".join(f"({part})" for part in [*phrases, wanted])
            found = _best(db, layout, columns, expression, query, judge)
            if len(found) >= min(query.limit, query.depth):
                break
    except sqlite3.OperationalError as error:
        if not (found and interrupted(error)):
            raise
        problem = IN_PART
    return Found(_scored(found, words), problem)


def _ladder(counted: list[tuple[int, _Word]], judge: Judge) -> Iterator[str]:
    """What to ask for until enough is found, from strict to lenient; rarest words first."""
    words = [word for _, word in counted]
    titled = all(word.in_title for word in words)
    if counted[0][0] > MANY and titled:
        yield " AND ".join(word.in_title for word in words)
    yield " AND ".join(word.anywhere for word in words)
    if len(words) == 1:
        return
    sums = accumulate(count for count, _ in counted)
    few = max(1, sum(total <= MANY for total in sums))
    rare, rest = [w.anywhere for w in words[:few]], [w.anywhere for w in words[few:]]
    yield _any(rare, rare, rest)
    if rest and titled:
        yield _any([*rare, *(w.in_title for w in words[few:])], rare, rest)
    if rest and (judge.refused or not titled):  # what may be shown can be anywhere
        yield _any([*rare, *rest], rare, rest)


def _any(needed: list[str], rare: list[str], rest: list[str]) -> str:
    """Rows with one of `needed`, ranked by all words. bm25 counts a word as often as it stands in
    the expression, so each stands there twice."""
    if not rest:
        return " OR ".join(rare)
    return f"({' OR '.join(needed)}) AND ({' OR '.join([*rare, *rest, *rest])})"


def _best(
    db: sqlite3.Connection,
    layout: Layout,
    columns: Columns,
    expression: str,
    query: Query,
    judge: Judge,
) -> list[tuple[float, Record]]:
    """The best rows that may be candidates, each record once."""
    table = identifier(layout.table)
    weights = [TITLE if name == columns.title else 1.0 for name in layout.columns]
    places = ", ".join("?" * len(weights))
    statement = (
        f"SELECT rowid, -bm25({table}, {places}) AS worth FROM {table} WHERE {table} MATCH ? "
        "ORDER BY worth DESC, rowid"
    )
    whole = f"SELECT {columns.selected()} FROM {table} WHERE rowid = ?"
    found: dict[str, tuple[float, Record]] = {}
    for rowid, worth in db.execute(statement, (*weights, expression)):
        row = db.execute(whole, (rowid,)).fetchone()
        if row and (record := judge(Row._make(row))):
            found.setdefault(record.id, (worth, record))
            if len(found) == query.depth:
                break
    return list(found.values())


def _scored(found: list[tuple[float, Record]], words: Words) -> list[tuple[float, Record]]:
    if not found:
        return []
    worth, best = found[0]
    there = len(words.within(f"{best.title}\n{best.content}"))
    top = max(1, there) / max(1, len(words))  # its analyser may see a word where ours does not
    return [(round(top * w / worth, 6) if worth else top, record) for w, record in found]


# ---------------------------------------------------------------- words


def _words(text: str, layout: Layout, columns: Columns) -> list[_Word]:
    """The query's words, spelt as the user spelt them: the table has an analyser of its own."""
    once = {word.lower(): word for word in spelt_words(text) if word}.values()
    pieces = [piece for word in once for piece in _pieces(word, layout, columns)]
    return list(dict.fromkeys(pieces))[:MOST_WORDS]


def _pieces(word: str, layout: Layout, columns: Columns) -> list[_Word]:
    if analyser.unspaced(word):
        if columns.pairs:
            pairs = analyser.tokens(word)
            return [_Word(_in((columns.pairs,), pair, start=len(pair) < 2), "") for pair in pairs]
        if not layout.trigram:  # such a run is one word to it
            return [_word(word, layout, columns, start=True)]
        return [_word(word[i : i + 3], layout, columns) for i in range(len(word) - 2)]
    if layout.trigram and len(word) < 3:
        return []
    if layout.detail != "full":  # words in a row cannot be asked for
        return [_word(piece, layout, columns) for piece in _PIECES.findall(word)]
    return [_word(word, layout, columns)]


def _word(word: str, layout: Layout, columns: Columns, *, start: bool = False) -> _Word:
    if layout.detail == "none":  # nor can columns
        return _Word(quoted(word) + " *" * start, "")
    named = tuple(filter(None, (columns.text, columns.title)))
    in_title = _in((columns.title,), word, start=start) if columns.title else ""
    return _Word(_in(named, word, start=start), in_title)


def _in(columns: Sequence[str], words: str, *, start: bool = False) -> str:
    """These words in a row, in one of the columns."""
    return f"{{{' '.join(map(quoted, columns))}}} : {quoted(words)}{' *' * start}"


def _phrases(query: Query, layout: Layout, columns: Columns) -> list[str]:
    """The query's phrases, as they were spelt. What a table cannot be asked for, the judge sees."""
    if layout.detail != "full" or layout.trigram or not query.terms.phrases:
        return []
    spelt = analyser.spelt(query.text)
    groups = [analyser.tokens(word) for word in spelt]
    named = tuple(filter(None, (columns.text, columns.title)))
    asked: list[str] = []
    for phrase in query.terms.phrases:
        if not any(map(analyser.unspaced, phrase)):
            if words := _run(spelt, groups, list(phrase)):
                asked.append(_in(named, " ".join(words)))
        elif columns.pairs and all(map(analyser.unspaced, phrase)):
            asked.append(_in((columns.pairs,), " ".join(phrase), start=len(phrase[-1]) < 2))
    return asked


def _run(spelt: list[str], groups: list[list[str]], phrase: list[str]) -> list[str]:
    """The words that stand in a row and have these tokens."""
    for first in range(len(spelt)):
        tokens: list[str] = []
        for last in range(first, len(spelt)):
            tokens += groups[last]
            if tokens == phrase:
                return spelt[first : last + 1]
            if len(tokens) >= len(phrase):
                break
    return []


def _rarest_first(
    db: sqlite3.Connection, layout: Layout, words: list[_Word]
) -> list[tuple[int, _Word]]:
    """The words with about how many rows have them."""
    table = identifier(layout.table)
    ends = f"SELECT rowid FROM {table} ORDER BY rowid"
    first, last = (
        db.execute(f"{ends} LIMIT 1").fetchone(),
        db.execute(f"{ends} DESC LIMIT 1").fetchone(),
    )
    statement = (
        "SELECT count(*), max(rowid) FROM "
        f"(SELECT rowid FROM {table} WHERE {table} MATCH ? LIMIT {SAMPLE})"
    )
    counted = []
    for word in words:
        count, reached = db.execute(statement, (word.anywhere,)).fetchone()
        if count == SAMPLE:
            count = int(count * (last[0] - first[0] + 1) / (reached - first[0] + 1))
        counted.append((count, word))
    return sorted(counted, key=lambda each: each[0])
