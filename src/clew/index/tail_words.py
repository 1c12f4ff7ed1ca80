"""The tail of the keyword index: passages not in it yet, weighed as it would weigh them."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from clew.index.scale import Floats, damping, rounded
from clew.index.tail import Found, Lag, best
from clew.storage import log
from clew.storage.filters import Allowed
from clew.storage.tables import Tables
from clew.text import analyser
from clew.types import Terms

__all__ = ["Weights", "WordEntry", "WordTail", "any_with"]

Mask = npt.NDArray[np.bool_]
Scored = tuple[Mask, Floats]
"""Which passages match, and what that is worth."""


class Weights(Protocol):
    """What a match is worth, before a passage's length and the repetitions in it count."""

    def of(self, field: str, token: str) -> np.float32: ...

    def of_phrase(self, tokens: Sequence[str]) -> np.float32: ...

    def of_character(self, character: str) -> np.float32: ...

    def average(self, field: str) -> float:
        """The length of a passage, in tokens."""
        ...


class WordTail:
    """One state of the tail. Later states share the book with it, and only add to that."""

    __slots__ = ("_book", "_count", "_dead", "alive", "lag", "masked")

    def __init__(
        self,
        lag: Lag,
        book: _Book | None = None,
        dead: frozenset[int] = frozenset(),
        masked: frozenset[int] = frozenset(),
    ):
        self.lag = lag
        self.masked = masked
        """Chunks of the index on disk that are gone."""
        self._book = _Book() if book is None else book
        self._count = len(self._book.cids)
        self._dead = dead
        self.alive = self._count - len(dead)

    def __bool__(self) -> bool:
        return bool(self.alive or self.masked)

    def extended(self, db: Tables, mentions: Sequence[log.Mention]) -> WordTail:
        """With what these rows of the log name, as it is in the tables now."""
        lag = self.lag.further(mentions)
        new = Lag.of(self.lag.place, mentions)
        added, gone = new.numbers("chunk"), new.numbers("gone")
        entries = [WordEntry(*row) for row in db.chunk_texts(sorted(added))]
        return self._with(lag, entries, added, gone)

    def rebased(self, base: log.Place) -> WordTail:
        """What is left of it when the index on disk has all up to `base`."""
        lag = self.lag.rebased(base)
        if lag is self.lag:
            return self
        added = lag.numbers("chunk")
        entries = [self._book.entries[i] for i in self._living() if self._book.cids[i] in added]
        return WordTail(Lag.none(base))._with(lag, entries, added, lag.numbers("gone"))

    def _with(
        self, lag: Lag, entries: Iterable[WordEntry], added: set[int], gone: set[int]
    ) -> WordTail:
        book = self._book
        places = {number for cid in gone if (number := book.places.get(cid)) is not None}
        # What came and went since is not on disk, and the book has never seen it.
        masked = gone.difference(book.places, added)
        for entry in entries:
            book.add(entry)
        return WordTail(lag, book, self._dead | places, self.masked | masked)

    def entry(self, cid: int) -> WordEntry | None:
        """A passage that was read into the tail."""
        number = self._book.places.get(cid)
        return None if number is None else self._book.entries[number]

    def _living(self) -> Iterator[int]:
        return (i for i in range(self._count) if i not in self._dead)

    # ------------------------------------------------------------------ searching

    def tokens(self, field: str) -> Iterable[str]:
        return list(self._book.fields[field])

    def holders(self, field: str, token: str) -> int:
        """How many passages have this word."""
        known = self._book.fields[field].get(token, ())
        if not self._dead:  # they are in the order of their numbers
            return bisect_left(known, (self._count, 0))
        return sum(i < self._count and i not in self._dead for i, _ in known)

    def count(self, token: str, allowed: Allowed) -> int:
        """How many of those of these records have it."""
        mask = self._frequencies("body", token) > 0
        return int(np.count_nonzero(mask & allowed.of_rids(self._rids())))

    def average(self, field: str) -> float:
        lengths = [self._book.lengths[field][i] for i in self._living()]
        return sum(lengths) / max(1, len(lengths))

    def containing(self, phrase: Sequence[str]) -> npt.NDArray[np.int64]:
        """The records with a passage that has these tokens in a row."""
        return np.unique(self._rids()[self._occurrences(phrase) > 0])

    def search(
        self,
        terms: Terms,
        weights: Weights,
        allowed: Allowed | None,
        limit: int,
        *,
        every: bool,
        per_record: int = 1,
    ) -> list[Found]:
        """The best `limit` records that match, with all words or with any, so many entries each."""
        scorer = _Scorer(self, weights)
        mask, scores = scorer.every(terms) if every else scorer.anything(terms)
        if allowed is not None:
            mask = mask & allowed.of_rids(self._rids())
        hits = np.flatnonzero(mask)
        hits = hits[np.argsort(-scores[hits], kind="stable")]
        ranked = (
            (self._book.rids[i], self._book.cids[i], round(score, 6))
            for i, score in zip(hits.tolist(), scores[hits].tolist(), strict=True)
        )
        return best(ranked, limit, per_record)

    def _rids(self) -> npt.NDArray[np.int64]:
        return np.array(self._book.rids[: self._count], np.int64)

    def _lengths(self, field: str) -> npt.NDArray[np.int64]:
        return np.array(self._book.rounded[field][: self._count], np.int64)

    def _frequencies(self, field: str, token: str) -> Floats:
        """How often each passage has this word."""
        found = np.zeros(self._count, np.float32)
        for i, count in self._book.fields[field].get(token, ()):
            if i < self._count and i not in self._dead:
                found[i] = count
        return found

    def _occurrences(self, phrase: Sequence[str]) -> Floats:
        """How often each passage has these tokens in a row."""
        if len(phrase) == 1 and any_with(phrase[0]):
            return self._with_character(phrase[0])
        found = self._frequencies("body", phrase[0])
        if len(phrase) == 1:
            return found
        first, width = phrase[0], len(phrase)
        for token in phrase[1:]:
            found[self._frequencies("body", token) == 0] = 0
        for i in np.flatnonzero(found).tolist():
            body = self._book.entries[i].body
            starts = [at for at, token in enumerate(body) if token == first]
            found[i] = sum(body[at : at + width] == list(phrase) for at in starts)
        return found

    def _with_character(self, character: str) -> Floats:
        pattern = re.compile(any_with(character))
        found = np.zeros(self._count, np.float32)
        for token in self.tokens("body"):
            if pattern.fullmatch(token):
                found = np.maximum(found, self._frequencies("body", token))
        return found


def any_with(token: str) -> str:
    """A pattern for the tokens that have this character in them, where it is one that needs it.

    Unspaced scripts are indexed in pairs: one character is part of two of them.
    """
    return f".?{re.escape(token)}.?" if len(token) == 1 and analyser.unspaced(token) else ""


class _Scorer:
    """The boolean queries of matches.py, over all passages of a tail at once."""

    def __init__(self, tail: WordTail, weights: Weights):
        self._tail, self._weights = tail, weights
        self._damping = {
            field: damping(tail._lengths(field), weights.average(field))
            for field in ("body", "title")
        }

    def every(self, terms: Terms) -> Scored:
        """Passages with all words; phrases and titles add to the score."""
        mask, scores = self._word(terms.words[0])
        for group in terms.words[1:]:
            also, more = self._word(group)
            mask, scores = mask & also, scores + more
        extra = self._either([self._titled(group[0]) for group in terms.words])
        extra = self._either([extra, *map(self._phrase, terms.phrases)])
        return mask, scores + extra[1]

    def anything(self, terms: Terms) -> Scored:
        """Passages with any word, also in the title, or any phrase."""
        tokens = dict.fromkeys(token for group in terms.words for token in group)
        return self._either(
            [
                *(self._token(token) for token in tokens),
                *(self._phrase(phrase) for phrase in terms.phrases),
                *(self._titled(token) for token in tokens),
            ]
        )

    def _word(self, group: tuple[str, ...]) -> Scored:
        """A compound is there as its whole or as all of its parts."""
        whole = self._token(group[0])
        if len(group) == 1:
            return whole
        mask, scores = self._token(group[1])
        for token in group[2:]:
            also, more = self._token(token)
            mask, scores = mask & also, scores + more
        return self._either([whole, (mask, np.where(mask, scores, np.float32(0)))])

    def _either(self, parts: Sequence[Scored]) -> Scored:
        mask = np.zeros(self._tail._count, np.bool_)
        scores = np.zeros(self._tail._count, np.float32)
        for also, more in parts:
            mask, scores = mask | also, scores + more
        return mask, scores

    def _token(self, token: str) -> Scored:
        if any_with(token):
            mask = self._tail._with_character(token) > 0
            return mask, mask * self._weights.of_character(token)
        frequencies = self._tail._frequencies("body", token)
        return self._damped("body", frequencies, lambda: self._weights.of("body", token))

    def _titled(self, token: str) -> Scored:
        frequencies = self._tail._frequencies("title", token)
        return self._damped("title", frequencies, lambda: self._weights.of("title", token))

    def _phrase(self, tokens: tuple[str, ...]) -> Scored:
        if len(tokens) == 1 and any_with(tokens[0]):
            return self._token(tokens[0])
        found = self._tail._occurrences(tokens)
        return self._damped("body", found, lambda: self._weights.of_phrase(tokens))

    def _damped(self, field: str, frequencies: Floats, weight: Callable[[], np.float32]) -> Scored:
        if not frequencies.any():  # as with most words, and their weight has to be asked for
            return frequencies > 0, frequencies
        share = frequencies / (frequencies + self._damping[field])
        return frequencies > 0, weight() * share


class WordEntry:
    """One passage, taken apart."""

    __slots__ = ("body", "cid", "rid", "title")

    def __init__(self, cid: int, rid: int, title: str, text: str):
        self.cid, self.rid = cid, rid
        self.body = analyser.tokens(text)
        self.title = analyser.tokens(title)


class _Book:
    """Passages by number, and who has which word. Entries are added and never change, so that who
    knows how many there were may read while another adds."""

    def __init__(self) -> None:
        self.entries: list[WordEntry] = []
        self.rids: list[int] = []
        self.cids: list[int] = []
        self.places: dict[int, int] = {}
        self.fields: dict[str, dict[str, list[tuple[int, int]]]] = {"body": {}, "title": {}}
        self.lengths: dict[str, list[int]] = {"body": [], "title": []}
        self.rounded: dict[str, list[int]] = {"body": [], "title": []}

    def add(self, entry: WordEntry) -> None:
        number = len(self.cids)
        for field, tokens in (("body", entry.body), ("title", entry.title)):
            self.lengths[field].append(len(tokens))
            self.rounded[field].append(rounded(len(tokens)))
            for token, count in Counter(tokens).items():
                self.fields[field].setdefault(token, []).append((number, count))
        self.entries.append(entry)
        self.places[entry.cid] = number
        self.rids.append(entry.rid)
        self.cids.append(entry.cid)
