"""Words in Postgres: BM25 over `tsvector`s, with the statistics of the whole store.

A passage's tokens, as the analyser gives them, are a `tsvector` with their places: its GIN index
finds the passages that have some words, or have them in a row. Postgres's own ranking knows nothing
of how rare a word is, so BM25 is said in SQL, by the formula of index/bm25.py.

How many passages have a word stands in `terms`: each write adds what it has changed, and a word's
figure is the sum of its rows, at every moment and for everybody. Two rows are no word's: "" has the
number of tokens (of texts, of titles), " " the number of passages. A row also lists the passages
that it counts, with all that BM25 needs of each; what is gone since is in no row of `words`.

A passage that has any of some words is scored from these lists, one sum over the words that it has.
Where they do not do (every word, phrases, single characters, and who may not see the statistics of
all) a passage is asked how often it has a word. No function tells; but `ts_rank` of one word is the
sum of 1/n² over its places, from which `width_bucket` finds their number again.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from clew.ranking.adaptive import K1, LENGTHS, TITLE, B, rarity
from clew.storage.rows import chunk_texts
from clew.storage.tables import Row
from clew.text import analyser

if TYPE_CHECKING:
    from clew.storage.postgres import PostgresTables
    from clew.types import Terms

TOKENS, PASSAGES = "", " "
"""What stands in `terms` beside words."""
MOST_PLACES = 16_000
"""Tokens of a passage that have a place of their own; Postgres has no more, and a row no room."""
_MOST_COUNTED = 255
"""Places of a token that are kept: as many as the sums below tell apart."""
_LISTS = "cids, body_counts, title_counts, body_lengths, title_lengths"
_BATCH = 5_000
"""Passages that are taken apart at once."""
_CHARACTER = "\x01"
"""Before a character of a script without spaces, which is indexed in pairs, and by itself too."""
_SUMS = enumerate(accumulate(1 / n**2 for n in range(1, 256)), 1)
_COUNTS = ",".join(f"{(total - 0.5 / n**2) / 1.64493406685:.8f}" for n, total in _SUMS)


# ---------------------------------------------------------------------- written


def index_words(db: PostgresTables, changes: Iterable[Row]) -> None:
    """What new rows of the change log name, within the transaction that has written them."""
    numbers: dict[str, dict[int, None]] = {"chunk": {}, "gone": {}}
    for _, kind, first, last, _ in changes:
        if kind in numbers:
            numbers[kind].update(dict.fromkeys(range(first, last + 1)))
    if numbers["gone"]:
        _forget(db, list(numbers["gone"]))
    for _ in index_passages(db, list(numbers["chunk"])):
        pass


def index_passages(db: PostgresTables, cids: Sequence[int]) -> Iterator[int]:
    """Bring words of passages in; how many are done, after each batch."""
    for i in range(0, len(cids), _BATCH):
        _index(db, cids[i : i + _BATCH])
        yield min(len(cids), i + _BATCH)


def _index(db: PostgresTables, cids: Sequence[int]) -> None:
    """The server takes the words apart again and lists them: it is quicker at that than to be sent
    a row for each."""
    rows: list[Row] = []
    totals = [0, 0]
    for cid, rid, name, text in chunk_texts(db, cids):
        fields = [analyser.tokens(each)[:MOST_PLACES] for each in (text, name)]
        lengths = [len(tokens) for tokens in fields]
        totals = [total + length for total, length in zip(totals, lengths, strict=True)]
        rows.append((cid, rid, *lengths, *keep_lengths(lengths), *map(_vector, fields)))
    if not rows:
        return
    db.insert("words", rows)
    each = "SELECT cid, body_length, title_length, lexeme, {} FROM words, unnest({}) WHERE {}"
    among = "cid = ANY(?)"
    held = each.format("cardinality(positions) AS body, 0 AS title", "body", among)
    if totals[1]:
        titles = each.format("0, cardinality(positions)", "title", among)
        held = f"""SELECT cid, body_length, title_length, lexeme, SUM(body) AS body,
                   SUM(title) AS title FROM ({held} UNION ALL {titles}) AS fields
                   GROUP BY 1, 2, 3, 4"""
    given = db.as_list([row[0] for row in rows])
    db.execute(
        f"""INSERT INTO terms (token, body, title, {_LISTS})
            SELECT lexeme, COUNT(*) FILTER (WHERE body > 0), COUNT(*) FILTER (WHERE title > 0),
                   array_agg(cid), array_agg(body), array_agg(title),
                   array_agg(body_length), array_agg(title_length)
            FROM ({held}) AS held WHERE NOT starts_with(lexeme, {_text(_CHARACTER)})
            GROUP BY lexeme""",
        [given, given] if totals[1] else [given],
    )
    _note(db, ({}, {}), totals, len(rows), 1)


def _forget(db: PostgresTables, cids: Sequence[int]) -> None:
    given = (db.as_list(cids),)
    query = """SELECT COUNT(*), SUM(body_tokens), SUM(title_tokens) FROM words
               WHERE cid = ANY(?)"""
    ((passages, *totals),) = db.execute(query, given)
    if not passages:
        return
    query = """SELECT lexeme, COUNT(*) FROM words, unnest({}) WHERE cid = ANY(?) GROUP BY 1"""
    counts: list[dict[str, int]] = [
        dict(db.execute(query.format(field), given).fetchall()) for field in ("body", "title")
    ]
    db.execute("DELETE FROM words WHERE cid = ANY(?)", given)
    _note(db, counts, totals, passages, -1)


def _note(
    db: PostgresTables,
    counts: Sequence[Mapping[str, int]],
    totals: Sequence[int],
    passages: int,
    sign: int,
) -> None:
    """How many more, or fewer, have each word, and how many there are."""
    body, title = counts
    none = (db.as_list([]),) * 5
    rows: list[Row] = [
        (token, sign * body.get(token, 0), sign * title.get(token, 0), *none)
        for token in sorted(body.keys() | title.keys())
        if not token.startswith(_CHARACTER)
    ]
    rows += (
        (TOKENS, *(sign * total for total in totals), *none),
        (PASSAGES, sign * passages, 0, *none),
    )
    db.insert("terms", rows)


def keep_lengths(lengths: Sequence[int]) -> list[int]:
    """As BM25 has them everywhere: in steps, as Tantivy keeps them in a byte."""
    return [LENGTHS[bisect_right(LENGTHS, length) - 1] for length in lengths]


def _vector(tokens: Sequence[str]) -> str:
    """Tokens with their places, as Postgres reads it."""
    said: dict[str, str] = {}
    for place, token in enumerate(tokens, 1):
        if token in said:
            said[token] += f",{place}"
        else:
            said[token] = f"{_quote(token)}:{place}"
        if len(token) <= 2 and analyser.unspaced(token):
            for character in token:
                marked = _CHARACTER + character
                before = f"{said[marked]}," if marked in said else f"{_quote(marked)}:"
                said[marked] = f"{before}{place}"
    if len(tokens) > _MOST_COUNTED:
        for token, text in said.items():
            quoted, _, places = text.rpartition(":")
            said[token] = f"{quoted}:{','.join(places.split(',')[:_MOST_COUNTED])}"
    return " ".join(said.values())


def _quote(token: str) -> str:
    if "\\" in token or "'" in token:
        token = token.replace("\\", "\\\\").replace("'", "''")
    return f"'{token}'"


def fold_terms(db: PostgresTables) -> None:
    """One row for each word again, when writes have left many, and passages that are there."""
    query = "SELECT COUNT(*) > 2 * COUNT(DISTINCT token) + 1000 FROM terms"
    if db.execute(query)[0][0]:
        lists = _LISTS.split(", ")
        one_by_one = ", ".join(f"array_agg(p.{name}) AS {name}" for name in lists)
        or_none = ", ".join(f"coalesce({name}, '{{}}')" for name in lists)
        db.execute(
            f"""WITH gone AS (DELETE FROM terms RETURNING *),
                held AS (SELECT token, {one_by_one} FROM gone, unnest({_LISTS}) AS p({_LISTS})
                         WHERE EXISTS (SELECT 1 FROM words AS w WHERE w.cid = p.cids) GROUP BY 1),
                sums AS (SELECT token, SUM(body) AS body, SUM(title) AS title FROM gone GROUP BY 1
                         HAVING SUM(body) <> 0 OR SUM(title) <> 0)
                INSERT INTO terms (token, body, title, {_LISTS})
                SELECT token, body, title, {or_none} FROM sums LEFT JOIN held USING (token)"""
        )


# ---------------------------------------------------------------------- asked


class Figures(NamedTuple):
    """What BM25 is computed with: passages there are, the average lengths of texts and of titles,
    how many passages have each word in them, and whether `terms` may be seen."""

    passages: int
    averages: tuple[float, float]
    body: Mapping[str, int]
    title: Mapping[str, int]
    listed: bool


def read_figures(
    db: PostgresTables, tokens: Sequence[str], known: dict[str, Sequence[int]]
) -> Figures:
    """`known` has what was asked since the last write: the rest is added to it. Who may not see the
    statistics of all counts what he sees."""
    missing = [token for token in (PASSAGES, TOKENS, *tokens) if token not in known]
    if missing:
        query = """SELECT token, SUM(body)::bigint, SUM(title)::bigint FROM terms
                   WHERE token = ANY(?) GROUP BY 1"""
        found: dict[str, Sequence[int]] = {
            token: counts for token, *counts in db.execute(query, (db.as_list(missing),))
        }
        if PASSAGES in missing:
            if not (listed := PASSAGES in found):
                query = """SELECT SUM(body_tokens)::bigint, SUM(title_tokens)::bigint, COUNT(*)
                           FROM words"""
                *totals, passages = db.execute(query)[0]
                found = {PASSAGES: [passages, 0], TOKENS: [each or 0 for each in totals]}
            found[PASSAGES] = [found[PASSAGES][0], int(listed)]
            known |= {PASSAGES: found[PASSAGES], TOKENS: found[TOKENS]}
        if known[PASSAGES][0] and not known[PASSAGES][1]:
            query = """SELECT COUNT(*) FILTER (WHERE body @@ ?::tsquery),
                              COUNT(*) FILTER (WHERE title @@ ?::tsquery) FROM words"""
            for token in tokens:
                if token not in known:
                    found[token] = db.execute(query, (_quote(token),) * 2)[0]
        known |= {token: found.get(token, (0, 0)) for token in missing}
    passages, may_see = known[PASSAGES]
    body, title = (total / passages if passages else 0.0 for total in known[TOKENS])
    return Figures(
        passages,
        (body, title),
        {token: known[token][0] for token in tokens},
        {token: known[token][1] for token in tokens},
        bool(may_see),
    )


class WordQuery:
    """The words of a query, weighed: the passages, among which is `words AS w`, and their score."""

    def __init__(self, terms: Terms, figures: Figures, rarer: Mapping[str, float]):
        self._terms, self._figures, self._rarer = terms, figures, rarer
        self.tokens = terms.tokens

    def every_word(self) -> tuple[str, str]:
        """Phrases and titles add to the score."""
        condition = " & ".join(f"({self._has_word(group)})" for group in self._terms.words)
        scores = [self._word(group) for group in self._terms.words]
        scores += self._titles([group[0] for group in self._terms.words])
        return _having(condition), " + ".join([*scores, *self._phrases()])

    def any_word(self) -> tuple[str, str]:
        has = [*map(_has, self.tokens), *map(in_a_row, self._terms.phrases)]
        scores = [*map(self._token, self.tokens), *self._phrases(), *self._titles(self.tokens)]
        return _having(" | ".join(f"({each})" for each in has)), " + ".join(scores) or "0"

    @property
    def listed(self) -> bool:
        """Whether the lists will do."""
        of_lists = not self._terms.phrases and not any(map(analyser.is_character, self.tokens))
        return self._figures.listed and of_lists and bool(self.tokens)

    def any_listed(self, best: int = 0) -> tuple[str, str]:
        """Any word, from the lists: all passages, or those of the records that so many of the best
        (and what is as good as the last of them) are of. Most passages have some word: only these
        are looked up."""
        figures, asked = self._figures, []
        for token in self.tokens:
            factor = self._rarer.get(token, 1.0) * (K1 + 1)
            body = rarity(figures.passages, figures.body[token]) * factor
            title = rarity(figures.passages, figures.title[token]) * TITLE * factor
            asked.append(f"({_text(token)}, {body!r}::float8, {title!r}::float8)")
        body_damping, title_damping = (self._damping(field, "p") for field in (0, 1))
        sums = f"""SELECT p.cid,
                       SUM(asked.body * p.body_count / (p.body_count + {body_damping}) +
                           asked.title * p.title_count / (p.title_count + {title_damping})
                       )::real AS score
                   FROM (VALUES {", ".join(asked)}) AS asked(token, body, title)
                   JOIN terms AS t USING (token), unnest({_LISTS})
                       AS p(cid, body_count, title_count, body_length, title_length)
                   GROUP BY p.cid HAVING SUM(p.body_count) > 0"""
        if not best:
            return f"({sums}) AS s JOIN words AS w USING (cid)", "s.score"
        return (
            f"""(WITH sums AS MATERIALIZED ({sums}),
                 best AS (SELECT cid FROM sums ORDER BY score DESC
                          FETCH FIRST {best} ROWS WITH TIES),
                 kept AS (SELECT k.cid FROM words AS k
                          WHERE k.rid IN (SELECT o.rid FROM best JOIN words AS o USING (cid)))
                 SELECT w.cid, w.rid, s.score FROM sums AS s JOIN words AS w USING (cid)
                 WHERE (s.cid IN (SELECT cid FROM kept)) IS TRUE) AS w""",
            "w.score",
        )

    def _has_word(self, group: tuple[str, ...]) -> str:
        """A compound is there as its whole or as all of its parts."""
        if len(group) == 1:
            return _has(group[0])
        return f"{_has(group[0])} | ({' & '.join(map(_has, group[1:]))})"

    def _word(self, group: tuple[str, ...]) -> str:
        whole = self._token(group[0])
        if len(group) == 1:
            return whole
        parts = " + ".join(map(self._token, group[1:]))
        all_of_them = literal(" & ".join(map(_has, group[1:])))
        return f"{whole} + CASE WHEN w.body @@ {all_of_them} THEN {parts} ELSE 0 END"

    def _token(self, token: str) -> str:
        factor = self._rarer.get(token, 1.0)
        if analyser.is_character(token):  # counts 1, however rare
            return f"CASE WHEN w.body @@ {literal(_has(token))} THEN {factor} ELSE 0 END"
        weight = rarity(self._figures.passages, self._figures.body[token]) * factor
        return self._weighed(weight, _count("body", token), 0)

    def _titles(self, tokens: Iterable[str]) -> list[str]:
        return [
            self._weighed(
                rarity(self._figures.passages, held) * TITLE * self._rarer.get(token, 1.0),
                _count("title", token),
                1,
            )
            for token in tokens
            if (held := self._figures.title[token])
        ]

    def _phrases(self) -> Iterator[str]:
        """Phrases are not weighed by the scope: they must occur anyway."""
        for phrase in self._terms.phrases:
            if len(phrase) == 1:
                held = self._figures.body[phrase[0]]
                if analyser.is_character(phrase[0]):
                    yield f"CASE WHEN w.body @@ {literal(_has(phrase[0]))} THEN 1 ELSE 0 END"
                else:
                    weight = rarity(self._figures.passages, held)
                    yield self._weighed(weight, _count("body", phrase[0]), 0)
                continue
            weight = sum(
                rarity(self._figures.passages, self._figures.body[token]) for token in phrase
            )
            yield self._weighed(weight, _count_row(phrase), 0)

    def _weighed(self, weight: float, count: str, field: int) -> str:
        """`n / (n + d)`, said so that n is computed once."""
        damping = self._damping(field, "w")
        return f"{weight * (K1 + 1)!r} * (1 - {damping} / ({count} + {damping}))"

    def _damping(self, field: int, row: str) -> str:
        """In binary: a number as it is written is a decimal one, with which all takes longer."""
        average = max(self._figures.averages[field], 1e-9)
        length = f"{row}.{('body', 'title')[field]}_length"
        return f"({K1 * (1 - B)!r}::float8 + {K1 * B / average!r}::float8 * {length})"


def _has(token: str) -> str:
    return _quote(_CHARACTER + token if analyser.is_character(token) else token)


def in_a_row(phrase: tuple[str, ...]) -> str:
    """As Postgres is asked for tokens that stand beside each other."""
    return " <-> ".join(map(_quote, phrase)) if len(phrase) > 1 else _has(phrase[0])


def _having(condition: str) -> str:
    return f"(SELECT * FROM words AS w WHERE w.body @@ {literal(condition)}) AS w"


def literal(query: str) -> str:
    quoted = query.replace("\\", "\\\\").replace("'", "\\'").replace("?", "\\x3f")
    return f"E'{quoted}'::tsquery"


def _count(field: str, token: str) -> str:
    """How often a passage has it."""
    rank = f"ts_rank('{{1,1,1,1}}', w.{field}, {literal(_quote(token))})"
    return f"width_bucket({rank}::float8, '{{{_COUNTS}}}'::float8[])"


def _count_row(phrase: tuple[str, ...]) -> str:
    """How often a passage has these tokens in a row: the places of the first that have the second
    behind them, and so on. Few have any."""
    places = "(SELECT unnest(positions) - {} AS place FROM unnest(w.body) WHERE lexeme = {})"
    parts = [
        f"{places.format(number, _text(token))} AS p{number}" for number, token in enumerate(phrase)
    ]
    joined = f"SELECT COUNT(*) FROM {parts[0]}" + "".join(
        f" JOIN {p} USING (place)" for p in parts[1:]
    )
    return f"CASE WHEN w.body @@ {literal(in_a_row(phrase))} THEN ({joined}) ELSE 0 END"


def _text(token: str) -> str:
    quoted = token.replace("\\", "\\\\").replace("'", "\\'").replace("?", "\\x3f")
    return f"E'{quoted}'"
