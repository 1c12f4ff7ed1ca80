"""Rows of a user's table as records, and which of them a query may have."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, NamedTuple

from clew.filter import PERSONAL
from clew.text import analyser
from clew.text.analyser import STOPWORDS, fits
from clew.text.passage import passage as as_read
from clew.text.snippet import matcher
from clew.types import Candidate, Chunk, Document, Passage, Query, Record

__all__ = [
    "Columns",
    "Found",
    "Judge",
    "Origin",
    "Row",
    "Words",
    "candidate",
    "identifier",
    "spelt_words",
    "text_of",
]

PASSAGE = 1_500
"""Characters that are shown of a row; of a longer one, the passage with most of the words."""
_POSSESSIVE = re.compile(r"['’]s?$")
LONGEST = 200_000
"""Characters of a row that are looked at."""


@dataclass(frozen=True, slots=True)
class Columns:
    """What a table's columns are for. An empty name: there is no such column."""

    text: str
    id: str = "rowid"
    title: str = ""
    path: str = ""
    pairs: str = ""
    """Pairs of characters, made by text/fts.py."""

    def selected(self) -> str:
        """The columns of a Row, for SQL. These are names of the schema, see `Layout.fit`."""
        return ", ".join(
            identifier(name) if name else "NULL"
            for name in (self.id, self.title, self.text, self.path)
        )


class Row(NamedTuple):
    """As it comes out of the table."""

    id: Any
    title: Any
    text: Any
    path: Any


class Found(NamedTuple):
    """What a look into a table gave, best first."""

    scored: list[tuple[float, Record]]
    problem: str | None = None
    """What is in the way of a whole answer."""


@dataclass(frozen=True, slots=True)
class Origin:
    """What all records of one table have in common."""

    source: str
    """Its name in the settings, with which their ids begin."""
    collection: str
    type: str
    domain: str = ""
    personal: tuple[str, ...] = ()
    """Rows whose path begins so are of the personal domain."""

    def record(self, row: Row) -> Record:
        path = None if row.path is None else text_of(row.path)
        private = path is not None and path.startswith(self.personal)
        return Record(
            id=f"{self.source}:{text_of(row.id)}",
            content=text_of(row.text),
            title=" ".join(text_of(row.title).split()),
            path=path,
            collection=self.collection,
            type=self.type,
            domain=PERSONAL if private else self.domain,
        )


def text_of(value: Any) -> str:
    """A column's value as text."""
    if isinstance(value, bytes):
        value = value[: 4 * LONGEST].decode("utf-8", "replace")
    return "" if value is None else str(value)[:LONGEST]


class Judge:
    """Says of each row whether it may be a candidate, before anything is cut."""

    def __init__(self, query: Query, origin: Origin):
        self._filter, self._terms, self._origin = query.filter, query.terms, origin
        fixed = query.filter
        fixed = fixed.without("path", "within", "not_within", "ids", "domain", "not_domain")
        self.hopeless = not fixed.allows(origin.record(Row("", "", "", None)))
        """Whether the filter asks for something that no row of this table has."""
        self.refused = 0
        """Rows that had the words and may not be shown."""

    def __call__(self, row: Row) -> Record | None:
        """The row's record, if filter, phrases and exclusions let it pass."""
        if row.id is None:
            return None
        record = self._origin.record(row)
        text = as_read(record.title, "", record.content)
        if self._filter.allows(record) and fits(self._terms, text):
            return record
        self.refused += 1
        return None


class Words:
    """The words of a query, looked for in texts. Remembers what it has seen between texts."""

    def __init__(self, query: Query):
        self._groups = query.terms.words
        self._find = matcher(query.terms)

    def __len__(self) -> int:
        return len(self._groups)

    def within(self, text: str) -> set[int]:
        """The numbers of those that are there. A compound is, as its whole or in its parts."""
        matches = {text[start:end] for start, end, _ in self._find(text)}
        tokens = {token for match in matches for token in analyser.tokens(match)}
        return {
            number
            for number, (whole, *parts) in enumerate(self._groups)
            if whole in tokens or (parts and tokens.issuperset(parts))
        }


def spelt_words(text: str) -> list[str]:
    """The words of a query as the user spelt them, without stopwords: for tables that have an
    analyser of their own."""
    spelt = [_POSSESSIVE.sub("", word) for word in analyser.spelt(text)]
    return [word for word in spelt if word.lower() not in STOPWORDS] or spelt


def candidate(record: Record, score: float, words: Words) -> Candidate:
    """With the passage to show, since the store does not know this record."""
    text, lines = record.content, (1, 1 + record.content.count("\n"))
    if len(text) > PASSAGE:
        from clew.ingest.chunk import chunk

        def worth(place: Chunk) -> int:
            return len(words.within(text[place.start : place.end]))

        if chunks := chunk(Document(text, "text"), size=PASSAGE):
            best = max(chunks, key=worth)  # the first of equals
            text, lines = text[best.start : best.end], best.lines
    return Candidate(record.id, score, None, Passage(0, record, text, lines))


def identifier(name: str) -> str:
    """A name of the schema, quoted for SQL."""
    return '"' + name.replace('"', '""') + '"'
