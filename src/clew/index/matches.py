"""What a keyword index answers: BM25 over what is on disk and over its tail in memory.

Both parts are put on one scale. A word is weighed by how many passages of both have it: on disk by
a factor on Tantivy's own weight, in the tail by computing as Tantivy does. Only the average length
stays that of the disk until the next time the index is written, so that a score differs by a few
per cent from what it will be then, and equal passages score alike wherever they are.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import tantivy
from tantivy import Occur
from tantivy import Query as TantivyQuery

from clew.index.scale import K1, Figures, Scale, rarity
from clew.index.scope import Scope
from clew.index.tail import Found, merged
from clew.index.tail_words import WordTail, any_with
from clew.storage.filters import Allowed
from clew.types import Terms

__all__ = ["Matches"]

TITLE = 0.2
"""What a word in the title adds to its worth in the text (which has the title in it). Chosen
between 0, .2 and .5: CACM and CISI gain by it, SciFact's training queries lose a little."""
TIES = 1_000
"""Hits looked at past the limit to settle equal scores by id; more than that are as good as any."""
TERM = 20
"""Hits that are read as quickly as one record is looked for by its number."""
SMALL_SET = 400
"""A filter this selective is put to Tantivy as terms; a broader one is checked hit by hit, which
measures faster (a term costs more than a hit) and is just as exact: see `_ranked`."""


class Matches:
    """One state of the index: what is on disk, and the tail. Replaced as a whole."""

    def __init__(
        self,
        searcher: tantivy.Searcher,
        schema: tantivy.Schema,
        tail: WordTail,
        scale: Scale | None = None,
    ):
        self.searcher, self.tail = searcher, tail
        self._schema = schema
        self._scale = Scale(searcher, schema) if scale is None else scale

    def with_tail(self, tail: WordTail) -> Matches:
        return Matches(self.searcher, self._schema, tail, self._scale)

    @property
    def size(self) -> int:
        """Passages there are."""
        return int(self.searcher.num_docs) - len(self.tail.masked) + self.tail.alive

    # ------------------------------------------------------------------ searching

    def search(
        self,
        terms: Terms,
        allowed: Allowed | None,
        limit: int,
        *,
        scope: Scope | None = None,
        per_record: int = 1,
    ) -> list[Found]:
        """The best `limit` records by BM25, with at most `per_record` passages each: all words
        first, any word when too few have all. Words are weighed by how rare they are within the
        scope, if there is one."""
        if not terms or (allowed is not None and not allowed.count):
            return []
        worth = self._worth(terms, scope)
        phrases = [self._weighed_phrase(phrase, worth) for phrase in terms.phrases]
        if terms.words and limit <= self._with_all(terms):
            every = [(Occur.Must, self._word(group, worth)) for group in terms.words]
            every += self._titled([group[0] for group in terms.words], worth)
            query = _both(TantivyQuery.boolean_query(every), phrases)
            found = self._ranked(query, allowed, limit, per_record)
            if self.tail.alive:
                more = self.tail.search(
                    terms, worth, allowed, limit, every=True, per_record=per_record
                )
                found = merged(found, more, limit, per_record)
            if len(found) >= limit and len({rid for rid, _, _ in found}) >= limit:
                return found
        tokens = dict.fromkeys(token for group in terms.words for token in group)
        anything = [(Occur.Should, self._weighed(token, worth)) for token in tokens]
        anything += [(Occur.Should, phrase) for phrase in phrases]
        anything += self._titled(tokens, worth)
        found = self._ranked(TantivyQuery.boolean_query(anything), allowed, limit, per_record)
        if self.tail.alive:
            more = self.tail.search(
                terms, worth, allowed, limit, every=False, per_record=per_record
            )
            found = merged(found, more, limit, per_record)
        return found

    def _with_all(self, terms: Terms) -> float:
        """About how many have all words, for a guess whether it is worth asking: no more than have
        the rarest one; each further word halves the logarithm of what is left, since the words of
        one query keep company."""
        total = max(1, self.size)
        shares = sorted(
            max(self._holders(token) for token in group) / total for group in terms.words
        )
        return total * float(math.prod(share**0.5**i for i, share in enumerate(shares)))

    def reach(self, terms: Terms, scope: Scope | None) -> float:
        """BM25 of a passage in which every word is as frequent as can count."""
        total, holders = self._statistics(terms, scope)
        rarities = (max(holders[token] for token in group) for group in terms.words)
        return (K1 + 1) * sum(rarity(total, count) for count in rarities)

    def containing(self, phrases: Sequence[tuple[str, ...]]) -> npt.NDArray[np.int64]:
        """The records that have all of these, each with its tokens in a row in some passage. The
        rarest is looked for first, and the others among what it leaves: most often nothing, long
        before the commonest would have to be read."""

        found: npt.NDArray[np.int64] | None = None
        for phrase in sorted(phrases, key=self._most):
            if found is None or len(found):
                found = self._containing(phrase, found)
        return np.empty(0, np.int64) if found is None else found

    def _containing(
        self, phrase: tuple[str, ...], among: npt.NDArray[np.int64] | None
    ) -> npt.NDArray[np.int64]:
        searcher, rids = self.searcher, np.empty(0, np.int64)
        query = TantivyQuery.const_score_query(self._phrase(phrase), 1.0)
        if among is not None and len(among) * TERM < self._most(phrase):
            query = self._inside(among.tolist(), query)
        if searcher.num_docs:
            hits = searcher.search(query, max(1, self._most(phrase)), count=False).hits
            rids = self._rids([address for _, address in hits])
        if self.tail.alive:
            rids = np.concatenate([rids, self.tail.containing(phrase)])
        return np.unique(rids) if among is None else np.intersect1d(rids, among)

    def _most(self, phrase: tuple[str, ...]) -> int:
        """How many passages on disk may have it: Tantivy makes room for as many as it is asked."""
        if any(any_with(token) for token in phrase):
            return int(self.searcher.num_docs)
        return min(int(self.searcher.doc_freq("body", token)) for token in phrase)

    def _inside(self, rids: list[int], query: TantivyQuery) -> TantivyQuery:
        """The same, of these records only."""
        one_of = TantivyQuery.term_set_query(self._schema, "rid", rids)
        scoreless = TantivyQuery.const_score_query(one_of, 0.0)
        return TantivyQuery.boolean_query([(Occur.Must, scoreless), (Occur.Must, query)])

    def _rids(self, addresses: list[Any]) -> npt.NDArray[np.int64]:
        """The records of these hits, without those that are gone."""
        rids = np.array(self.searcher.fast_field_values("rid", addresses), np.int64)
        if self.tail.masked:
            rids = rids[~self._gone(addresses)]
        return rids

    def _gone(self, addresses: list[Any]) -> npt.NDArray[np.bool_]:
        cids, masked = self.searcher.fast_field_values("cid", addresses), self.tail.masked
        return np.array([cid in masked for cid in cids], np.bool_)

    # ------------------------------------------------------------------ how words are weighed

    def _holders(self, token: str) -> int:
        """How many passages have this word, also those deleted as long as Tantivy counts them."""
        there = int(self.searcher.doc_freq("body", token))
        return there + self.tail.holders("body", token) if self.tail.alive else there

    def _worth(self, terms: Terms, scope: Scope | None) -> _Worth:
        """How much rarer (or more common) each word is in the scope than in all of the store."""
        if scope is None:
            return _Worth(self.searcher, self._scale, self.tail, {})
        total, inside = self._statistics(terms, scope)
        rarer = {
            token: rarity(total, holders) / rarity(self.size, self._holders(token))
            for token, holders in inside.items()
            if holders
        }
        return _Worth(self.searcher, self._scale, self.tail, rarer)

    def _statistics(self, terms: Terms, scope: Scope | None) -> tuple[int, dict[str, float]]:
        """How many passages there are, and about how many of them have each word."""
        tokens = dict.fromkeys(token for group in terms.words for token in group)
        everywhere = {token: self._holders(token) for token in tokens}
        if scope is None:
            return self.size, {token: float(count) for token, count in everywhere.items()}

        def count(token: str, allowed: Allowed) -> int:
            query = TantivyQuery.const_score_query(self._token(token), 1.0)
            hits = self.searcher.search(query, max(1, everywhere[token]), count=False).hits
            rids = self._rids([address for _, address in hits])
            found = int(np.count_nonzero(allowed.of_rids(rids)))
            return found + self.tail.count(token, allowed) if self.tail.alive else found

        return scope.passages, {
            token: scope.holders(token, everywhere[token], self.size, count) for token in tokens
        }

    # ------------------------------------------------------------------ queries

    def _token(self, token: str) -> TantivyQuery:
        if pattern := any_with(token):
            return TantivyQuery.regex_query(self._schema, "body", pattern)
        return TantivyQuery.term_query(self._schema, "body", token, "freq")

    def _weighed(self, token: str, worth: _Worth) -> TantivyQuery:
        return _boosted(self._token(token), worth.factor(token))

    def _titled(self, tokens: Iterable[str], worth: _Worth) -> list[tuple[Occur, TantivyQuery]]:
        return [
            (Occur.Should, TantivyQuery.boost_query(self._in_title(token), worth.in_title(token)))
            for token in tokens
            if self.searcher.doc_freq("title", token)
        ]

    def _in_title(self, token: str) -> TantivyQuery:
        return TantivyQuery.term_query(self._schema, "title", token, "freq")

    def _word(self, group: tuple[str, ...], worth: _Worth) -> TantivyQuery:
        """A compound is there as its whole or as all of its parts."""
        whole = self._weighed(group[0], worth)
        if len(group) == 1:
            return whole
        each = [(Occur.Must, self._weighed(token, worth)) for token in group[1:]]
        parts = TantivyQuery.boolean_query(each)
        return TantivyQuery.boolean_query([(Occur.Should, whole), (Occur.Should, parts)])

    def _phrase(self, tokens: tuple[str, ...]) -> TantivyQuery:
        if len(tokens) == 1:
            return self._token(tokens[0])
        return TantivyQuery.phrase_query(self._schema, "body", list(tokens))

    def _weighed_phrase(self, tokens: tuple[str, ...], worth: _Worth) -> TantivyQuery:
        return _boosted(self._phrase(tokens), worth.phrase_factor(tokens))

    def _ranked(
        self, query: TantivyQuery, allowed: Allowed | None, limit: int, per_record: int
    ) -> list[Found]:
        """The best `limit` allowed records on disk, exactly: asks deeper until they are there or
        all is seen. More than `limit` come back where scores at the cut are equal."""
        searcher, masked = self.searcher, self.tail.masked
        total = searcher.num_docs
        depth = limit + 16
        if allowed is not None and not allowed.whole:
            if allowed.count <= SMALL_SET:
                query = self._inside(np.flatnonzero(allowed.mask).tolist(), query)
            else:
                depth = int(depth * max(1.0, total / allowed.count) * 1.2)
        while True:
            depth = min(max(depth, 1), max(total, 1))
            hits = searcher.search(query, depth, count=False).hits
            addresses = [address for _, address in hits]
            rids = searcher.fast_field_values("rid", addresses)
            best = _by_record(rids, allowed, self._gone(addresses) if masked else None, per_record)
            firsts = [mine[0] for mine in best.values()]
            if len(hits) < depth or depth >= total:
                break
            if len(best) > limit and (
                hits[firsts[limit - 1]][0] > hits[-1][0] or len(best) > limit + TIES
            ):
                break
            depth *= 4
        last = hits[firsts[limit - 1]][0] if len(firsts) > limit else -1.0
        places = firsts if per_record == 1 else sorted(i for mine in best.values() for i in mine)
        places = [i for i in places if hits[i][0] >= last]
        cids = searcher.fast_field_values("cid", [hits[i][1] for i in places])
        return [
            (int(rids[i] or 0), int(cid or 0), round(float(hits[i][0]), 6))
            for i, cid in zip(places, cids, strict=True)
        ]


class _Worth:
    """What the words of one query count: factors for the disk, weights for the tail."""

    def __init__(
        self,
        searcher: tantivy.Searcher,
        scale: Scale,
        tail: WordTail,
        rarer: Mapping[str, float],
    ):
        self._searcher, self._scale, self._tail = searcher, scale, tail
        self._rarer = rarer
        """How much rarer a word is in the scope."""
        self._known: dict[tuple[str, str], tuple[float, float]] = {}

    def factor(self, token: str) -> float | None:
        """For a word in the text. None: Tantivy's weight will do."""
        if not self._tail.alive:
            return self._rarer.get(token)
        if any_with(token):  # counts 1, however rare
            return self._rarer.get(token)
        return self._rarer.get(token, 1.0) * self._since("body", token)

    def in_title(self, token: str) -> float:
        factor = TITLE * self._rarer.get(token, 1.0)
        return factor * self._since("title", token) if self._tail.alive else factor

    def phrase_factor(self, tokens: Sequence[str]) -> float | None:
        """Phrases are not weighed by the scope: they must occur anyway."""
        if not self._tail.alive or (len(tokens) == 1 and any_with(tokens[0])):
            return None
        there, now = zip(*(self._rarities("body", token) for token in tokens), strict=True)
        return float(sum(now) / sum(there))

    def _since(self, field: str, token: str) -> float:
        """What the tail changes in a word's weight."""
        there, now = self._rarities(field, token)
        return now / there

    def _rarities(self, field: str, token: str) -> tuple[float, float]:
        """Of a word on disk, and with the tail."""
        known = self._known.get((field, token))
        if known is None:
            total = self._figures(field).total
            there = self._searcher.doc_freq(field, token)
            more = self._tail.holders(field, token)
            now = rarity(total + self._tail.alive, there + more)
            known = self._known[field, token] = rarity(total, there), now
        return known

    def _figures(self, field: str) -> Figures:
        """Of the disk; where no word is shared with it, lengths are taken to be as in the tail."""
        known = self._scale.of(field, lambda: self._tail.tokens(field))
        return known or Figures(int(self._searcher.num_docs), self._tail.average(field))

    # ------------------------------------------------------------------ for the tail

    def average(self, field: str) -> float:
        return self._figures(field).average

    def of(self, field: str, token: str) -> np.float32:
        """In single precision and in this order, as Tantivy multiplies them."""
        factor = self.in_title(token) if field == "title" else self.factor(token)
        there = np.float32(self._rarities(field, token)[0])
        return there * np.float32(1 + K1) * np.float32(1.0 if factor is None else factor)

    def of_phrase(self, tokens: Sequence[str]) -> np.float32:
        there = np.float32(sum(self._rarities("body", token)[0] for token in tokens))
        return there * np.float32(1 + K1) * np.float32(self.phrase_factor(tokens) or 1.0)

    def of_character(self, character: str) -> np.float32:
        return np.float32(self._rarer.get(character, 1.0))


def _boosted(query: TantivyQuery, factor: float | None) -> TantivyQuery:
    return query if factor is None else TantivyQuery.boost_query(query, factor)


def _by_record(
    rids: list[Any],
    allowed: Allowed | None,
    gone: npt.NDArray[np.bool_] | None,
    per_record: int,
) -> dict[int, list[int]]:
    """Record → the places of its best hits, for those allowed. Hits come best first."""
    best: dict[int, list[int]] = {}
    if (allowed is None or allowed.whole) and gone is None:
        known = math.inf if allowed is None else len(allowed.mask)
        places: Iterable[int] = [i for i, rid in enumerate(rids) if rid < known]
    else:
        mask = np.ones(len(rids), np.bool_) if gone is None else ~gone
        if allowed is not None:
            mask &= allowed.of_rids(np.array(rids, dtype=np.int64))
        places = np.flatnonzero(mask).tolist()
    for i in places:
        if (mine := best.get(rids[i])) is None:
            best[rids[i]] = [i]
        elif len(mine) < per_record:
            mine.append(i)
    return best


def _both(query: TantivyQuery, phrases: list[TantivyQuery]) -> TantivyQuery:
    if not phrases:
        return query
    parts = [(Occur.Must, query), *((Occur.Should, phrase) for phrase in phrases)]
    return TantivyQuery.boolean_query(parts)
