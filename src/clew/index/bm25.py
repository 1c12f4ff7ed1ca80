"""BM25 over one state of a keyword index: what Tantivy has on disk, and the tail in memory.

Okapi BM25 (Robertson and Zaragoza, 2009) with Lucene's idf. Both parts are put on one scale: a word
is weighed by how many passages of both have it, on disk by a factor on Tantivy's own weight, in the
tail by computing as Tantivy does. Only the average length stays that of the disk until the next
time the index is written, so that a score differs by a few per cent from what it will be then, and
equal passages score alike wherever they are.
"""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
import tantivy
from tantivy import Occur
from tantivy import Query as TantivyQuery

from clew.background import Recent
from clew.index.unflushed import (
    ChunkScore,
    Floats,
    Numbers,
    WordTail,
    character_pattern,
    level_scores,
    merge_rankings,
)
from clew.ranking.adaptive import K1, LENGTHS, TITLE, B, rarity
from clew.storage import log
from clew.storage.filters import Allowed
from clew.storage.log import Changes, Place
from clew.storage.rows import chunk_texts
from clew.storage.tables import Tables
from clew.text import analyser
from clew.types import Terms

TERM = 20
"""Hits that are read as quickly as one record is looked for by its number."""
SMALL_SET = 400
"""A filter this selective is put to Tantivy as terms; a broader one is checked hit by hit, which
measures faster (a term costs more than a hit) and is just as exact: see `_rank_on_disk`."""
SAMPLE = 256
"""Records of a filter that are looked at, once per filter and change."""
CHARACTERS = 100_000
"""Of their passages that are read: a sample of them where there is more. To cut text into words is
what takes the time, and a search waits for it."""
RARE = 1_000
"""A word that at most this many passages have is counted, which is quick."""
PRIOR = 16
"""Passages' worth of belief in the store's own figure, for what the sample happens to miss."""
SCOPES = 32
"""Filters of which it is kept."""
BROAD = 0.5
"""A filter that leaves more than this part of the store is as good as none."""

_LENGTHS = np.array(LENGTHS, np.int64)
_NOWHERE = np.zeros(0, np.float32)


class KeywordSearcher:
    """One state of the index: what is on disk, and the tail. Replaced as a whole."""

    def __init__(
        self,
        searcher: tantivy.Searcher,
        schema: tantivy.Schema,
        tail: WordTail,
        figures: dict[str, tuple[int, float]] | None = None,
    ):
        self.searcher, self.schema, self.tail = searcher, schema, tail
        self.documents = int(searcher.num_docs)
        self._figures = {} if figures is None else figures
        self._asked: tuple[Terms, Scope | None, _KeywordQuery] | None = None

    def extended(self, db: Tables, changes: Changes) -> KeywordSearcher:
        tail = self.tail.extended(db, changes)
        return KeywordSearcher(self.searcher, self.schema, tail, self._figures)

    def bare(self, place: Place) -> KeywordSearcher:
        tail = WordTail(Changes(place, place))
        return KeywordSearcher(self.searcher, self.schema, tail, self._figures)

    @property
    def size(self) -> int:
        """Passages there are."""
        return self.documents - len(self.tail.masked) + self.tail.count

    def search(
        self,
        terms: Terms,
        allowed: Allowed | None,
        limit: int,
        scope: Scope | None,
        per_record: int,
    ) -> list[ChunkScore]:
        """The best `limit` records by BM25, with at most `per_record` passages each: all words
        first, any word when too few have all. Words are weighed by how rare they are within the
        scope, if there is one."""
        if not terms or (allowed is not None and not allowed.count):
            return []
        query = self._weigh(terms, scope)
        if terms.words and limit <= query.with_all_words():
            found = self._rank(query.every_word(), allowed, limit, per_record)
            if len(found) >= limit and len({rid for rid, _, _ in found}) >= limit:
                return found
        return self._rank(query.any_word(), allowed, limit, per_record)

    def reach(self, terms: Terms, scope: Scope | None) -> float:
        query = self._weigh(terms, scope)
        return greatest_score(terms, query.inside, query.passages)

    def _weigh(self, terms: Terms, scope: Scope | None) -> _KeywordQuery:
        """The words, counted once for a search that ranks by them and asks how far they reach."""
        asked = self._asked
        if asked is None or asked[0] is not terms or asked[1] is not scope:
            asked = self._asked = terms, scope, _KeywordQuery(self, terms, scope)
        return asked[2]

    def containing(self, phrases: Sequence[tuple[str, ...]]) -> Numbers:
        """The records that have all of these, each with its tokens in a row in some passage. The
        rarest is looked for first, and the others among what it leaves: most often nothing, long
        before the commonest would have to be read."""
        found: Numbers | None = None
        for phrase in sorted(phrases, key=self._at_most):
            if found is None or len(found):
                found = self._containing(phrase, found)
        return np.empty(0, np.int64) if found is None else found

    def _containing(self, phrase: tuple[str, ...], among: Numbers | None) -> Numbers:
        query, most = self.row_query(phrase), self._at_most(phrase)
        if among is not None and len(among) * TERM < most:
            query = self._inside(among.tolist(), query)
        rids = self._records_with(query, most)
        if self.tail.count:
            one = len(phrase) == 1 and character_pattern(phrase[0])
            tail = self.tail
            has = tail.with_character(phrase[0]) if one else tail.frequencies("body", phrase)
            rids = np.concatenate([rids, tail.rids[has > 0]])
        return np.unique(rids) if among is None else np.intersect1d(rids, among)

    def _at_most(self, phrase: tuple[str, ...]) -> int:
        """How many passages on disk may have it: Tantivy makes room for as many as it is asked."""
        if any(character_pattern(token) for token in phrase):
            return self.documents
        return min(int(self.searcher.doc_freq("body", token)) for token in phrase)

    def holders_among(self, token: str, allowed: Allowed) -> int:
        """How many passages of these records have it."""
        most = int(self.searcher.doc_freq("body", token))
        rids = self._records_with(self.row_query((token,)), most)
        if self.tail.count:
            mine = self.tail.rids[self.tail.frequencies("body", (token,)) > 0]
            rids = np.concatenate([rids, mine])
        return int(np.count_nonzero(allowed.of_rids(rids)))

    def figures(self, field: str) -> tuple[int, float]:
        """What scores on disk are computed with: passages, also those deleted as long as Tantivy
        counts them, and tokens per passage. Tantivy tells only where it explains a score; where no
        word is shared with the tail, lengths are taken to be as in that."""
        if (known := self._figures.get(field)) is not None:
            return known
        for token in self.tail.vocabulary(field):
            if not self.searcher.doc_freq(field, token):
                continue
            query = TantivyQuery.term_query(self.schema, field, token, "freq")
            for _, address in self.searcher.search(query, 1, count=False).hits:
                explanation = json.loads(query.explain(self.searcher, address).to_json())
                said = dict(_explained(explanation))
                known = self._figures[field] = int(said["N"]), said["avgdl"]
                return known
        return self.documents, self.tail.average(field)

    # ------------------------------------------------------------------ on disk

    def row_query(self, tokens: Sequence[str]) -> TantivyQuery:
        """Passages with these tokens in a row."""
        if len(tokens) > 1:
            return TantivyQuery.phrase_query(self.schema, "body", list(tokens))
        if pattern := character_pattern(tokens[0]):
            return TantivyQuery.regex_query(self.schema, "body", pattern)
        return TantivyQuery.term_query(self.schema, "body", tokens[0], "freq")

    def _inside(self, rids: list[int], query: TantivyQuery) -> TantivyQuery:
        """The same, of these records only."""
        one_of = TantivyQuery.term_set_query(self.schema, "rid", rids)
        scoreless = TantivyQuery.const_score_query(one_of, 0.0)
        return TantivyQuery.boolean_query([(Occur.Must, scoreless), (Occur.Must, query)])

    def _records_with(self, query: TantivyQuery, most: int) -> Numbers:
        """The record of each passage that matches, without those that are gone."""
        query = TantivyQuery.const_score_query(query, 1.0)
        hits = self.searcher.search(query, max(1, most), count=False).hits
        addresses = [address for _, address in hits]
        rids = np.array(self.searcher.fast_field_values("rid", addresses), np.int64)
        return rids[~self._gone(addresses)] if self.tail.masked else rids

    def _gone(self, addresses: list[Any]) -> Any:
        cids = self.searcher.fast_field_values("cid", addresses)
        return np.array([cid in self.tail.masked for cid in cids], np.bool_)

    def _rank(
        self, clause: _Clause, allowed: Allowed | None, limit: int, per_record: int
    ) -> list[ChunkScore]:
        found = self._rank_on_disk(clause.query, allowed, limit, per_record)
        if not self.tail.count:
            return found
        more = self.tail.rank(clause.scores, allowed, limit, per_record)
        return merge_rankings(found, more, limit, per_record)

    def _rank_on_disk(
        self, query: TantivyQuery, allowed: Allowed | None, limit: int, per_record: int
    ) -> list[ChunkScore]:
        """The best `limit` allowed records on disk, exactly: asks deeper until they are there or
        all is seen. More than `limit` come back where scores at the cut are equal."""
        searcher, total = self.searcher, self.documents
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
            scores: list[float] = level_scores(np.array([score for score, _ in hits])).tolist()
            rids: list[Any] = searcher.fast_field_values("rid", addresses)
            best: dict[int, list[int]] = {}
            for i in self._visible(addresses, rids, allowed):  # best first
                best.setdefault(rids[i], []).append(i)
            firsts = [mine[0] for mine in best.values()]
            last = scores[firsts[limit - 1]] if len(firsts) > limit else -1.0
            if len(hits) < depth or depth >= total or last > scores[-1]:
                break
            depth *= 4
        cids: list[Any] = searcher.fast_field_values("cid", addresses)
        found: list[ChunkScore] = []
        for rid, mine in best.items():
            if len(mine) > 1:  # of equals the first passage, wherever Tantivy has it
                mine = sorted(mine, key=lambda i: (-scores[i], cids[i]))[:per_record]
            found += [(rid, int(cids[i]), round(scores[i], 6)) for i in mine if scores[i] >= last]
        return found if per_record == 1 else sorted(found, key=lambda each: -each[2])

    def _visible(
        self, addresses: list[Any], rids: list[Any], allowed: Allowed | None
    ) -> Iterable[int]:
        """Which hits are allowed, and not gone."""
        if (allowed is None or allowed.whole) and not self.tail.masked:
            known = math.inf if allowed is None else len(allowed.mask)
            return [i for i, rid in enumerate(rids) if rid < known]
        mask = ~self._gone(addresses) if self.tail.masked else np.ones(len(rids), np.bool_)
        if allowed is not None:
            mask &= allowed.of_rids(np.array(rids, dtype=np.int64))
        places: list[int] = np.flatnonzero(mask).tolist()
        return places


def _explained(explanation: dict[str, Any]) -> Iterator[tuple[str, float]]:
    yield explanation["description"].partition(",")[0], explanation["value"]
    for detail in explanation.get("details", ()):
        yield from _explained(detail)


class _Clause(NamedTuple):
    """Part of a query: as Tantivy is asked it, and what it is worth to each passage of the tail;
    0 for those that do not match."""

    query: TantivyQuery
    scores: Floats


def _combined(parts: Sequence[tuple[Occur, _Clause]]) -> _Clause:
    query = TantivyQuery.boolean_query([(occur, part.query) for occur, part in parts])
    if parts and not len(parts[0][1].scores):  # an empty tail
        return _Clause(query, parts[0][1].scores)
    scores: Floats = np.sum([part.scores for _, part in parts], axis=0, dtype=np.float32)
    for occur, part in parts:
        if occur == Occur.Must:
            scores = np.where(part.scores > 0, scores, np.float32(0))
    return _Clause(query, scores)


class _KeywordQuery:
    """The words of a query, weighed."""

    def __init__(self, state: KeywordSearcher, terms: Terms, scope: Scope | None):
        self._state, self._tail, self._terms = state, state.tail, terms
        self.tokens = terms.tokens
        self._frequencies: dict[tuple[str, Sequence[str]], Floats] = {}
        self._everywhere = {token: self._holders("body", token) for token in self.tokens}
        self.passages = state.size if scope is None else scope.passages
        self.inside: dict[str, float] = dict(self._everywhere)
        """About how many passages of the scope have each word."""
        self._rarer: dict[str, float] = {}
        """How much rarer (or more common) it is there than in all of the store."""
        if scope is not None:
            for token, count in self._everywhere.items():
                inside = scope.holders(token, count, state.size, state.holders_among)
                self.inside[token] = inside
                if inside:
                    rare = rarity(scope.passages, inside)
                    self._rarer[token] = rare / rarity(state.size, count)
        self._dampings: dict[str, Floats] = {}

    def _in_tail(self, field: str, tokens: tuple[str, ...]) -> Floats:
        """How often each passage of the tail has these tokens in a row."""
        if (known := self._frequencies.get((field, tokens))) is None:
            known = self._frequencies[field, tokens] = self._tail.frequencies(field, tokens)
        return known

    def _holders(self, field: str, token: str) -> int:
        """How many passages have this word, also those deleted as long as Tantivy counts them."""
        there = int(self._state.searcher.doc_freq(field, token))
        if self._tail.count:
            there += int(np.count_nonzero(self._in_tail(field, (token,))))
        return there

    def with_all_words(self) -> float:
        return guess_having_all(self._terms, self._everywhere, self._state.size)

    def every_word(self) -> _Clause:
        """Passages with all words; phrases and titles add to the score."""
        words = [(Occur.Must, self._word(group)) for group in self._terms.words]
        titles = self._titles([group[0] for group in self._terms.words])
        whole = _combined([*words, *titles])
        phrases = self._phrases()
        return _combined([(Occur.Must, whole), *phrases]) if phrases else whole

    def any_word(self) -> _Clause:
        """Passages with any word, also in the title, or any phrase."""
        words = [(Occur.Should, self._token(token)) for token in self.tokens]
        return _combined([*words, *self._phrases(), *self._titles(self.tokens)])

    def _word(self, group: tuple[str, ...]) -> _Clause:
        """A compound is there as its whole or as all of its parts."""
        whole = self._token(group[0])
        if len(group) == 1:
            return whole
        parts = _combined([(Occur.Must, self._token(token)) for token in group[1:]])
        return _combined([(Occur.Should, whole), (Occur.Should, parts)])

    def _token(self, token: str) -> _Clause:
        return self._row((token,), self._rarer.get(token, 1.0))

    def _phrases(self) -> list[tuple[Occur, _Clause]]:
        """Phrases are not weighed by the scope: they must occur anyway."""
        return [(Occur.Should, self._row(tokens, 1.0)) for tokens in self._terms.phrases]

    def _titles(self, tokens: Iterable[str]) -> list[tuple[Occur, _Clause]]:
        found = []
        for token in tokens:
            if self._holders("title", token):
                query = TantivyQuery.term_query(self._state.schema, "title", token, "freq")
                factor = TITLE * self._rarer.get(token, 1.0)
                found.append((Occur.Should, self._weighed(query, "title", (token,), factor)))
        return found

    def _row(self, tokens: tuple[str, ...], factor: float) -> _Clause:
        query = self._state.row_query(tokens)
        if len(tokens) == 1 and character_pattern(tokens[0]):  # counts 1, however rare
            has = self._tail.with_character(tokens[0])
            return _Clause(_boosted(query, factor), has * np.float32(factor))
        return self._weighed(query, "body", tokens, factor)

    def _weighed(
        self, query: TantivyQuery, field: str, tokens: tuple[str, ...], factor: float
    ) -> _Clause:
        """Tokens in a row, whose weight is times `factor` what Tantivy's will be when it has the
        tail. Weights are multiplied in single precision and in this order, as Tantivy does it."""
        if not self._tail.count:
            return _Clause(_boosted(query, factor), _NOWHERE)
        total, average = self._state.figures(field)
        there = now = 0.0
        for token in tokens:
            on_disk = int(self._state.searcher.doc_freq(field, token))
            there += rarity(total, on_disk)
            now += rarity(total + self._tail.count, self._holders(field, token))
        factor *= now / there
        frequencies = self._in_tail(field, tokens)
        if not frequencies.any():
            return _Clause(_boosted(query, factor), frequencies)
        if (damping := self._dampings.get(field)) is None:
            damping = self._dampings[field] = _damping(self._tail.lengths(field), average)
        weight = np.float32(there) * np.float32(1 + K1) * np.float32(factor)
        return _Clause(_boosted(query, factor), weight * (frequencies / (frequencies + damping)))


def guess_having_all(terms: Terms, holders: Mapping[str, float], passages: int) -> float:
    """About how many have all words, to tell whether it is worth asking: no more than have the
    rarest one; each further word halves the logarithm of what is left, since the words of one query
    keep company."""
    total = max(1, passages)
    shares = sorted(max(holders[token] for token in group) / total for group in terms.words)
    return total * float(math.prod(share**0.5**i for i, share in enumerate(shares)))


def greatest_score(terms: Terms, holders: Mapping[str, float], passages: float) -> float:
    """BM25 of a passage in which every word is as frequent as can count."""
    counts = (max(holders[token] for token in group) for group in terms.words)
    return (K1 + 1) * sum(rarity(passages, count) for count in counts)


def _damping(lengths: Numbers, average: float) -> Floats:
    """What is added to a word's frequency before it is divided by it, per passage."""
    kept = _LENGTHS[np.searchsorted(_LENGTHS, lengths, side="right") - 1]
    relative = kept.astype(np.float32) / np.float32(max(average, 1e-9))
    return (np.float32(K1) * (np.float32(1 - B) + np.float32(B) * relative)).astype(np.float32)


def _boosted(query: TantivyQuery, factor: float) -> TantivyQuery:
    return query if factor == 1.0 else TantivyQuery.boost_query(query, factor)


# ---------------------------------------------------------------------- within a filter


class Scope:
    """One filter's records, as they are now, and how common words are among them.

    BM25 weighs a word by how rare it is. Counted over the whole store, a name that is in every turn
    of one conversation looks rare because nine others do not have it, and what is kept in one
    namespace sways the ranking in another. So under a filter words are weighed by how rare they are
    within it. To count exactly would take as long as the search: a word that few have is counted,
    one that many have is estimated from a sample of the filter's own passages.
    """

    def __init__(self, allowed: Any, passages: int, sample: Sequence[frozenset[str]]):
        """`allowed` is what the caller counts by (see `holders`)."""
        self.allowed, self.passages = allowed, max(1, passages)
        self._sample = sample
        self._whole = len(sample) >= self.passages
        self._counts: dict[str, float] = {}

    def holders(
        self, token: str, everywhere: int, total: int, count: Callable[[str, Any], int]
    ) -> float:
        """About how many of its passages have this word. `count` does it exactly."""
        known = self._counts.get(token)
        if known is None:
            if not everywhere:
                known = 0.0
            elif not self._whole and everywhere <= RARE:
                known = float(count(token, self.allowed))
            else:
                seen = float(sum(token in tokens for tokens in self._sample))
                if not self._whole:
                    belief = PRIOR * everywhere / max(1, total)
                    seen = (seen + belief) / (len(self._sample) + PRIOR) * self.passages
                known = min(seen, float(everywhere))
            self._counts[token] = known
        return known


def choose_passages(there: Iterable[tuple[int, int, int]]) -> list[tuple[int, int]]:
    """Of (chunk, record, characters) as many as there is time to read; always the same."""
    shuffled = sorted(there, key=lambda passage: _shuffle(passage[0]))
    sums = accumulate(size for _, _, size in shuffled)
    return [
        (cid, rid) for (cid, rid, _), size in zip(shuffled, sums, strict=True) if size <= CHARACTERS
    ]


class Scopes:
    """Those of the last filters. A filter's set is a new object once something was written; what
    was read for it before is kept, except of records that the log names since."""

    def __init__(self) -> None:
        self._kept: Recent[int, Scope] = Recent(SCOPES)
        self._words: dict[int, dict[int, frozenset[str]]] = {}
        """Record → the words of each of its passages that was read."""
        self._place = log.NOWHERE
        self._lock = threading.Lock()

    def of(self, allowed: Allowed | None, db: Tables) -> Scope | None:
        """None where the figures of the whole store will do."""
        if allowed is None or allowed.whole or not allowed.count:
            return None
        kept = self._kept.use(id(allowed))
        if kept is not None and kept.allowed is allowed:
            return kept
        # About how many there are. Asked for both at once, SQLite goes through the whole table.
        query = "SELECT (SELECT MIN(rid) FROM records), (SELECT MAX(rid) FROM records)"
        low, high = db.execute(query).fetchone()
        if allowed.count > BROAD * (0 if low is None else high - low + 1):
            return None
        with self._lock:
            made = self._read(allowed, db)
            self._kept.keep(id(allowed), made)
        return made

    def _read(self, allowed: Allowed, db: Tables) -> Scope:
        self._forget_changed(db)
        rids = np.flatnonzero(allowed.mask)
        if len(rids) > SAMPLE:  # a record more or less changes the sample by one at most
            rids = rids[np.argpartition(_shuffle(rids), SAMPLE)[:SAMPLE]]
        query = 'SELECT cid, rid, "end" - "start" FROM chunks WHERE rid IN ({})'
        there = list(db.among(query, rids.tolist()))
        chosen = choose_passages(there)
        missing = [cid for cid, rid in chosen if cid not in self._words.get(rid, {})]
        for cid, rid, _, text in chunk_texts(db, missing):
            self._words.setdefault(rid, {})[cid] = frozenset(analyser.tokens(text))
        read = ((cid, self._words.get(rid, {})) for cid, rid in chosen)
        sample = [words[cid] for cid, words in read if cid in words]
        return Scope(allowed, round(len(there) * allowed.count / max(1, len(rids))), sample)

    def _forget_changed(self, db: Tables) -> None:
        changes = log.since(db, self._place)
        if changes is None or len(self._words) > SCOPES * SAMPLE:
            self._words.clear()
        else:
            touched = set(changes.numbers("record"))
            for rid in touched & self._words.keys():
                del self._words[rid]
        self._place = log.head(db) if changes is None else changes.place


def _shuffle(number: Any) -> Any:
    """An order that is as good as any, but always the same: Knuth's multiplicative hash."""
    return (number * 2_654_435_761) % 2**32
