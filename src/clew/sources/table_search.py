"""Rows of a user's table ranked for a query, as records.

An FTS5 table is asked with MATCH and ranked by its bm25. Ranking is dear for each row that has a
word, walking a word's rows is cheap, so few rows are ranked: those with all words; where they are
too few, those with one of the rarer words; and where even the rarest is frequent, titles come first
(docs/benchmarks/exocortex.md). Any other table is looked through row by row: SQLite leaves out most
by looking for pieces of the words, what is left is analysed as Clew's own texts are. No row with a
word is lost by that: an ASCII text has the root of the word in it, any other is always looked at.
"""

from __future__ import annotations

import math
import re
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from clew.filter import PERSONAL
from clew.text import analyser
from clew.text.analyser import STOPWORDS, fits, quoted
from clew.text.passage import passage as as_read
from clew.text.snippet import matcher
from clew.types import Candidate, Chunk, Document, Passage, Query, Record

PASSAGE = 1_500
"""Characters that are shown of a row; of a longer one, the passage with most of the words."""
LONGEST = 200_000
"""Characters of a row that are looked at."""
MANY = 20_000
"""Rows of an FTS5 table that may be ranked for the sake of any word."""
SAMPLE = 2_000
"""Rows of a word that are counted; of a more frequent one, the rest is estimated from how close
they lie together."""
TITLE_WEIGHT = 2.0
"""What a word in the title counts in bm25, against one in the text. Chosen between 1, 2 and 5 on
CACM, CISI and SciFact's training queries, which differ little and not in the same direction."""
TITLE_SHARE = 0.3
"""The part of a scanned row's score that the words in the title make up. Chosen between 0, .1
and .3 on CACM and CISI: the best of these on both."""
MOST_WORDS = 64
MOST_PIECES = 128
"""From more pieces on (a pasted page), most rows have one, and looking for them takes longer."""
KEPT = 8
"""Rows kept on the way for each one wanted: what words are worth changes while rows are read."""
RANKED_IN_PART = "not all rows could be ranked in time: ask for rarer words, or raise `seconds`"
READ_IN_PART = (
    "not all rows could be looked at in time: make an FTS5 table of them, or raise `seconds`"
)

_PIECES = re.compile(r"[^\W_]+")
_POSSESSIVE = re.compile(r"['’]s?$")
_SPECIAL = re.compile(r"[\\%_]")

Scored = list[tuple[float, Record]]


@dataclass(frozen=True, slots=True)
class Table:
    """One table: what its columns are for (an empty name: there is no such column), what all its
    records have in common, and what its schema says."""

    name: str
    text: str
    id: str = "rowid"
    title: str = ""
    path: str = ""
    pairs: str = ""
    """Pairs of characters, made by text/analyser.py."""
    source: str = "sqlite"
    """The source's name in the settings, with which the ids of records begin."""
    collection: str = "sqlite"
    type: str = "sqlite"
    domain: str = ""
    personal: tuple[str, ...] = ()
    """Rows whose path begins so are of the personal domain."""
    columns: tuple[str, ...] = ()
    fts5: bool = False
    trigram: bool = False
    """Its words are any three characters in a row."""
    detail: str = "full"
    """How much an FTS5 table knows of where a word stands: full, column or none."""

    def record(self, id: Any, title: Any, text: Any, path: Any) -> Record:
        place = None if path is None else _as_text(path)
        private = place is not None and place.startswith(self.personal)
        return Record(
            id=f"{self.source}:{_as_text(id)}",
            content=_as_text(text),
            title=" ".join(_as_text(title).split()),
            path=place,
            collection=self.collection,
            type=self.type,
            domain=PERSONAL if private else self.domain,
        )

    @property
    def quoted(self) -> str:
        return identifier(self.name)

    @property
    def selected(self) -> str:
        """The columns of a row, for SQL. These are names of the schema: see `read_schema`."""
        names = (self.id, self.title, self.text, self.path)
        return ", ".join(identifier(name) if name else "NULL" for name in names)

    @property
    def searched(self) -> tuple[str, ...]:
        return tuple(filter(None, (self.text, self.title)))


def _as_text(value: Any) -> str:
    """A column's value as text."""
    if isinstance(value, bytes):
        value = value[: 4 * LONGEST].decode("utf-8", "replace")
    return "" if value is None else str(value)[:LONGEST]


def identifier(name: str) -> str:
    """A name of the schema, quoted for SQL."""
    return '"' + name.replace('"', '""') + '"'


def spelt_words(text: str) -> list[str]:
    """The words of a query as the user spelt them, without stopwords: for tables that have an
    analyser of their own."""
    spelt = [_POSSESSIVE.sub("", word) for word in analyser.spelt(text)]
    return [word for word in spelt if word.lower() not in STOPWORDS] or spelt


Word = tuple[str, str]
"""One word of the query as FTS5 takes it: anywhere, and in the title ("": there is none)."""
ScannedRow = tuple[Record, set[int], set[int]]
"""A row with the numbers of the words that it has anywhere, and in its title."""


class TableSearch:
    """One query's look into one table."""

    def __init__(self, query: Query, table: Table):
        self._query, self._table = query, table
        self._groups, self._find = query.terms.words, matcher(query.terms)
        fixed = query.filter.without("path", "within", "not_within", "ids", "domain", "not_domain")
        self.hopeless = not query.terms or not fixed.allows(table.record("", "", "", None))
        """Whether the query asks for something that no row of this table has."""
        self._refused = 0
        """Rows that had the words and may not be shown."""

    def rank(self, db: sqlite3.Connection, table: Table) -> tuple[Scored, str | None]:
        """The best rows of the table as its schema has it, with scores from 0 to 1; and what is in
        the way of a whole answer."""
        self._db, self._table = db, table
        words = self._full_text_words() if table.fts5 else []
        # FTS5 needs three characters of a word in some tables
        return self._rank_full_text(words) if words else self._scan()

    def candidate(self, record: Record, score: float) -> Candidate:
        """A candidate with the passage to show, since the store does not know this record."""
        text, lines = record.content, (1, 1 + record.content.count("\n"))
        if len(text) > PASSAGE:
            from clew.ingest.chunk import chunk

            def worth(place: Chunk) -> int:
                return len(self._words_in(text[place.start : place.end]))

            if chunks := chunk(Document(text, "text"), size=PASSAGE):
                best = max(chunks, key=worth)  # the first of equals
                text, lines = text[best.start : best.end], best.lines
        return Candidate(record.id, score, None, Passage(0, record, text, lines))

    def _admit(self, row: Sequence[Any]) -> Record | None:
        """The row's record, if filter, phrases and exclusions let it pass, before any cut."""
        if row[0] is None:
            return None
        record = self._table.record(*row)
        text = as_read(record.title, "", record.content)
        if self._query.filter.allows(record) and fits(self._query.terms, text):
            return record
        self._refused += 1
        return None

    def _words_in(self, text: str) -> set[int]:
        """The numbers of the query's words there. A compound is, as its whole or in its parts."""
        matches = {text[start:end] for start, end, _ in self._find(text)}
        tokens = {token for match in matches for token in analyser.tokens(match)}
        return {
            number
            for number, (whole, *parts) in enumerate(self._groups)
            if whole in tokens or (parts and tokens.issuperset(parts))
        }

    # ------------------------------------------------------------------ FTS5

    def _rank_full_text(self, words: list[Word]) -> tuple[Scored, str | None]:
        """Rows by bm25. The best one's score is the share of the query's words it has, and the
        others are scaled to it."""
        query, found, problem = self._query, Scored(), None
        phrases = self._phrases()
        try:
            for wanted in self._ladder(self._rarest_first(words)):
                expression = " AND ".join(f"({part})" for part in [*phrases, wanted])
                found = self._match(expression)
                if len(found) >= min(query.limit, query.depth):
                    break
        except sqlite3.OperationalError as error:
            if not (found and is_interrupted(error)):
                raise
            problem = RANKED_IN_PART
        if not found:
            return [], problem
        best, record = found[0]
        there = len(self._words_in(f"{record.title}\n{record.content}"))
        # its analyser may see a word where ours does not
        top = max(1, there) / max(1, len(self._groups))
        return [(round(top * w / best, 6) if best else top, r) for w, r in found], problem

    def _ladder(self, counted: list[tuple[int, Word]]) -> Iterator[str]:
        """What to ask for until enough is found, from strict to lenient; rarest words first."""
        anywhere, in_title = zip(*(word for _, word in counted), strict=True)
        titled = all(in_title)
        if counted[0][0] > MANY and titled:
            yield " AND ".join(in_title)
        yield " AND ".join(anywhere)
        if len(counted) == 1:
            return
        few = max(1, sum(total <= MANY for total in accumulate(count for count, _ in counted)))
        rare, rest = anywhere[:few], anywhere[few:]

        def any_of(*needed: str) -> str:
            # bm25 counts a word as often as it stands in the expression: each stands there twice
            return f"({' OR '.join(needed)}) AND ({' OR '.join([*rare, *rest, *rest])})"

        if not rest:
            yield " OR ".join(rare)
            return
        yield any_of(*rare)
        if titled:
            yield any_of(*rare, *in_title[few:])
        if self._refused or not titled:  # what may be shown can be anywhere
            yield any_of(*rare, *rest)

    def _match(self, expression: str) -> Scored:
        """The best rows that may be candidates, each record once."""
        table = self._table
        weights = [TITLE_WEIGHT if name == table.title else 1.0 for name in table.columns]
        places = ", ".join("?" * len(weights))
        statement = (
            f"SELECT rowid, -bm25({table.quoted}, {places}) AS worth FROM {table.quoted} "
            f"WHERE {table.quoted} MATCH ? ORDER BY worth DESC, rowid"
        )
        whole = f"SELECT {table.selected} FROM {table.quoted} WHERE rowid = ?"
        found: dict[str, tuple[float, Record]] = {}
        for rowid, worth in self._db.execute(statement, (*weights, expression)):
            row = self._db.execute(whole, (rowid,)).fetchone()
            if row and (record := self._admit(row)):
                found.setdefault(record.id, (worth, record))
                if len(found) == self._query.depth:
                    break
        return list(found.values())

    def _rarest_first(self, words: list[Word]) -> list[tuple[int, Word]]:
        """The words with about how many rows have them."""
        table, db = self._table.quoted, self._db
        ends = f"SELECT rowid FROM {table} ORDER BY rowid"
        first = db.execute(f"{ends} LIMIT 1").fetchone()
        last = db.execute(f"{ends} DESC LIMIT 1").fetchone()
        statement = (
            "SELECT count(*), max(rowid) FROM "
            f"(SELECT rowid FROM {table} WHERE {table} MATCH ? LIMIT {SAMPLE})"
        )
        counted = []
        for word in words:
            count, reached = db.execute(statement, word[:1]).fetchone()
            if count == SAMPLE:
                count = int(count * (last[0] - first[0] + 1) / (reached - first[0] + 1))
            counted.append((count, word))
        return sorted(counted, key=lambda each: each[0])

    def _full_text_words(self) -> list[Word]:
        """The query's words, spelt as the user spelt them: the table has an analyser of its own."""
        once = {word.lower(): word for word in spelt_words(self._query.text) if word}.values()
        pieces = [piece for word in once for piece in self._pieces(word)]
        return list(dict.fromkeys(pieces))[:MOST_WORDS]

    def _pieces(self, word: str) -> list[Word]:
        table = self._table
        if analyser.unspaced(word):
            if pairs := table.pairs:
                each = analyser.tokens(word)
                return [(_in((pairs,), pair, start=len(pair) < 2), "") for pair in each]
            if not table.trigram:  # such a run is one word to it
                return [self._word(word, start=True)]
            return [self._word(word[i : i + 3]) for i in range(len(word) - 2)]
        if table.trigram and len(word) < 3:
            return []
        if table.detail != "full":  # words in a row cannot be asked for
            return [self._word(piece) for piece in _PIECES.findall(word)]
        return [self._word(word)]

    def _word(self, word: str, *, start: bool = False) -> Word:
        if self._table.detail == "none":  # nor can columns
            return quoted(word) + " *" * start, ""
        title = self._table.title
        in_title = _in((title,), word, start=start) if title else ""
        return _in(self._table.searched, word, start=start), in_title

    def _phrases(self) -> list[str]:
        """The query's phrases, as they were spelt. What a table cannot be asked for is seen when
        its rows are looked at."""
        table, terms = self._table, self._query.terms
        if table.detail != "full" or table.trigram or not terms.phrases:
            return []
        spelt = analyser.spelt(self._query.text)
        groups = [analyser.tokens(word) for word in spelt]
        asked: list[str] = []
        for phrase in terms.phrases:
            if not any(map(analyser.unspaced, phrase)):
                if words := _words_in_a_row(spelt, groups, list(phrase)):
                    asked.append(_in(table.searched, " ".join(words)))
            elif table.pairs and all(map(analyser.unspaced, phrase)):
                asked.append(_in((table.pairs,), " ".join(phrase), start=len(phrase[-1]) < 2))
        return asked

    # ------------------------------------------------------------------ any other table

    def _scan(self) -> tuple[Scored, str | None]:
        """Rows by the share of the query's words they have, a rare word counting for more."""
        where, values = self._where()
        depth = self._query.depth
        statement = f"SELECT {self._table.selected} FROM {self._table.quoted}{where}"
        holders, rows = [0] * len(self._groups), 0
        found: list[ScannedRow] = []
        problem = None
        try:
            for row in self._db.execute(statement, values):
                in_title = self._words_in(_as_text(row[1])) if row[1] else set()
                anywhere = in_title | self._words_in(_as_text(row[2]))
                if not anywhere:
                    continue
                rows += 1
                for number in anywhere:
                    holders[number] += 1
                if (record := self._admit(row)) is None:
                    continue
                found.append((record, anywhere, in_title))
                if len(found) >= 2 * KEPT * depth:
                    best = self._best(found, holders, rows)[: KEPT * depth]
                    found = [scanned for _, scanned in best]
        except sqlite3.OperationalError as error:
            if not (found and is_interrupted(error)):
                raise
            problem = READ_IN_PART
        best = self._best(found, holders, rows)[:depth]
        return [(score, scanned[0]) for score, scanned in best], problem

    def _best(
        self, found: list[ScannedRow], holders: Sequence[int], rows: int
    ) -> list[tuple[float, ScannedRow]]:
        """Best first, each record once. What a word adds to a score, the fewer rows have it, the
        more, is 1 in all."""
        worths = [math.log(1 + rows / max(count, 0.5)) for count in holders]
        total = sum(worths) or 1.0
        title_share = TITLE_SHARE if self._table.title else 0.0
        best: dict[str, tuple[float, ScannedRow]] = {}
        for row in found:
            record, *places = row
            there, in_title = (sum(worths[n] for n in place) / total for place in places)
            score = round(min(1.0, (1 - title_share) * there + title_share * in_title), 6)
            if record.id not in best or score > best[record.id][0]:
                best[record.id] = score, row
        return sorted(best.values(), key=lambda each: (-each[0], each[1][0].id))

    def _where(self) -> tuple[str, list[str]]:
        """A condition that every row with one of the words meets, and its values."""
        tokens = self._query.terms.tokens
        unspaced = [token for token in tokens if analyser.unspaced(token)]
        plain = [token for token in tokens if not analyser.unspaced(token)]
        roots = (root for token in plain if token.isascii() for root in analyser.roots(token))
        pieces = list(dict.fromkeys(roots))
        if not tokens or len(pieces) + len(unspaced) > MOST_PIECES:
            return "", []
        tests: list[str] = []
        for name in self._table.searched:
            text = f"CAST({identifier(name)} AS TEXT)"
            tests += [f"{text} LIKE ?{i} ESCAPE '\\'" for i, _ in enumerate(pieces, 1)]
            tests += [f"instr({text}, ?{i})" for i, _ in enumerate(unspaced, len(pieces) + 1)]
            if plain:  # more bytes than characters: something that LIKE does not understand
                tests.append(f"length({text}) <> length(CAST({text} AS BLOB))")
        likes = ["%" + _SPECIAL.sub(r"\\\g<0>", piece) + "%" for piece in pieces]
        return f" WHERE {' OR '.join(tests)}", [*likes, *unspaced]


def _in(columns: Sequence[str], words: str, *, start: bool = False) -> str:
    """These words in a row, in one of the columns, as FTS5 takes it."""
    return f"{{{' '.join(map(quoted, columns))}}} : {quoted(words)}{' *' * start}"


def _words_in_a_row(spelt: list[str], groups: list[list[str]], phrase: list[str]) -> list[str]:
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


def is_interrupted(error: sqlite3.Error) -> bool:
    """Whether it was stopped because its time was over."""
    return getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_INTERRUPT
