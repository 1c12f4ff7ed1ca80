"""Both legs, on the server: words by the product of sparse vectors, which comes to BM25, and
vectors by theirs.

How rare a word is is asked of the whole store, and under a filter of what that leaves: Qdrant's own
weighing counts shard by shard. What a passage's vector has of a word follows from its frequency and
the passage's length beside the average when it was written; the average moves slowly, and `refresh`
with `optimise` writes those anew that it has left behind.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np

from clew.filter import Filter
from clew.index.unflushed import level_scores
from clew.ranking.adaptive import K1, TITLE, rarity
from clew.servers.qdrant.client import Json, Server
from clew.servers.qdrant.conditions import both, condition_of, having
from clew.servers.qdrant.journal import Head
from clew.servers.qdrant.records import dimension, mark
from clew.text import analyser
from clew.types import Candidate, LabelKind, Terms

BROAD = 0.5
"""A filter that leaves more than this part of the store is as good as none: see index/bm25.py."""
EXACT = 50_000
"""Passages up to which everything is counted; of more, Qdrant's estimates will do."""
DEEPEST = 16_384
"""Passages that are ranked where equals, or many of one record, are at the cut."""
HOLDERS = 100_000
"""Passages of a phrase up to which the records that have it are listed. What more have than that
holds passage by passage."""
LABELLED = 100
"""Records of one label that are taken up, the newest."""
EF = 128
"""How many neighbours the graph of vectors keeps in sight."""


def occurs(phrase: Sequence[str]) -> Json:
    """The condition of passages with these tokens in a row."""
    if len(phrase) > 1:
        return {"key": "body", "match": {"phrase": " ".join(phrase)}}
    token = mark(phrase[0]) if analyser.is_character(phrase[0]) else phrase[0]
    return {"key": "body", "match": {"text": token}}


class Statistics:
    """One state of a store, as searches know it: how common words are, what filters leave."""

    def __init__(self, server: Server, head: Head):
        self.server, self.head = server, head
        self.passages = int(head.figures["chunks"])
        self._exact = self.passages <= EXACT
        self._counts: dict[tuple[str, str, Filter | None], int] = {}
        self._conditions: dict[Filter, Json | None] = {}
        self._scopes: dict[Filter, int] = {}
        self._holders: dict[tuple[str, ...], list[str] | None] = {}

    def condition(self, filter: Filter) -> Json | None:
        if not filter:
            return None
        if filter not in self._conditions:
            self._conditions[filter] = condition_of(filter, self.server)
        return self._conditions[filter]

    def scope(self, filter: Filter) -> int:
        """Passages among which words are weighed; 0: all, which need not be counted apart."""
        if not filter or not self.passages:
            return 0
        if filter not in self._scopes:
            left = self.server.count("words", self.condition(filter), exact=self._exact)
            self._scopes[filter] = 0 if left > BROAD * self.passages else left
        return self._scopes[filter]

    def holders(
        self, tokens: Iterable[str], field: str = "body", within: Filter | None = None
    ) -> dict[str, int]:
        """How many passages have each word, of all or of those that a filter leaves."""
        tokens = list(tokens)
        missing = [token for token in tokens if (field, token, within) not in self._counts]
        condition = None if within is None else self.condition(within)

        def count(token: str) -> int:
            has = {"key": field, "match": {"text": token}}
            every = both(condition, {"must": [has]})
            return self.server.count("words", every, exact=self._exact or within is not None)

        counted = map(count, missing) if len(missing) < 2 else self.server.pool.map(count, missing)
        for token, number in zip(missing, counted, strict=True):
            self._counts[field, token, within] = number
        return {token: self._counts[field, token, within] for token in tokens}

    def with_phrase(self, phrase: tuple[str, ...]) -> list[str] | None:
        """The records that have it in some passage; None: too many to list."""
        if phrase not in self._holders:
            found: dict[str, None] = {}
            points = self.server.scroll(
                "words", {"must": [occurs(phrase)]}, ["record"], most=HOLDERS + 1, page=10_000
            )
            seen = 0
            for point in points:
                found[point["payload"]["record"]] = None
                seen += 1
            self._holders[phrase] = None if seen > HOLDERS else list(found)
        return self._holders[phrase]

    def narrow(self, condition: Json | None, terms: Terms | None) -> Json | None:
        """With required phrases and excluded words, which are about records and not passages."""
        if terms is None or not terms.narrows:
            return condition
        must: list[Json] = []
        must_not: list[Json] = []
        common: set[str] | None = None
        for phrase in terms.phrases:
            if (names := self.with_phrase(phrase)) is None:
                must.append(occurs(phrase))
            else:
                common = set(names) if common is None else common.intersection(names)
        if common is not None:
            must.append(having(*(f"r:{name}" for name in sorted(common))))
        for phrase in terms.excluded:
            if (names := self.with_phrase(phrase)) is None:
                must_not.append(occurs(phrase))
            elif names:
                must_not.append(having(*(f"r:{name}" for name in names)))
        return both(condition, {"must": must} if must else None, {"must_not": must_not})


class KeywordQuery:
    """The words of a query, weighed."""

    def __init__(self, statistics: Statistics, terms: Terms, filter: Filter):
        self._terms = terms
        self.tokens = terms.tokens
        of_phrases = [token for phrase in terms.phrases for token in phrase]
        plain = [
            t for t in dict.fromkeys((*self.tokens, *of_phrases)) if not analyser.is_character(t)
        ]
        total = statistics.passages
        self._everywhere = statistics.holders(plain)
        held = [token for token in plain if self._everywhere[token]]
        self._titled = (
            {} if not statistics.head.figures["title"] else statistics.holders(held, "title")
        )
        self.passages = statistics.scope(filter) or total
        self.inside: dict[str, float] = dict(self._everywhere)
        """How many passages of the scope have each word."""
        self._rare = {token: rarity(total, n) for token, n in self._everywhere.items()}
        self._rarer: dict[str, float] = {}
        if self.passages != total:
            for token, count in statistics.holders(held, within=filter).items():
                self.inside[token] = count
                if count:
                    self._rarer[token] = rarity(self.passages, count) / self._rare[token]
        self._total = total

    def reach(self) -> float:
        """BM25 of a passage in which every word is as frequent as can count."""
        counts = (max(self.inside.get(token, 0) for token in group) for group in self._terms.words)
        return float((K1 + 1) * sum(rarity(self.passages, count) for count in counts))

    def with_all_words(self) -> float:
        """About how many have all words: as index/bm25.py guesses it."""
        total = max(1, self._total)
        everywhere = self._everywhere
        shares = sorted(
            max(everywhere.get(token, total) for token in group) / total
            for group in self._terms.words
        )
        return float(total * math.prod(share**0.5**i for i, share in enumerate(shares)))

    def weights(self, *, every: bool, unknown: bool = False) -> dict[int, float]:
        """The query as a sparse vector. A phrase counts as its tokens do: it has to occur. With
        words that nobody has, where they are `unknown` for being written only now."""
        found: dict[int, float] = {}

        def add(field: str, token: str, weight: float) -> None:
            if weight > 0:
                place = dimension(field, token)
                found[place] = found.get(place, 0.0) + weight

        for token in self.tokens:
            if analyser.is_character(token):
                add("c", token, 1.0)  # however rare
            elif unknown or self._everywhere[token]:
                add("b", token, self._rare[token] * self._rarer.get(token, 1.0))
        for phrase in self._terms.phrases:
            for token in phrase:
                if analyser.is_character(token):
                    add("c", token, 1.0)
                elif unknown or self._everywhere[token]:
                    add("b", token, self._rare[token])
        titles = [group[0] for group in self._terms.words] if every else self.tokens
        for token in dict.fromkeys(titles):
            if holders := self._titled.get(token):
                factor = TITLE * self._rarer.get(token, 1.0)
                add("t", token, factor * rarity(self._total, holders))
        return found

    def every_word(self) -> Json:
        """The condition of passages with all words; a compound is there as its whole or as all of
        its parts."""
        must: list[Json] = []
        for whole, *parts in self._terms.words:
            if parts:
                all_parts = {"must": [occurs((part,)) for part in parts]}
                must.append({"should": [occurs((whole,)), all_parts]})
            else:
                must.append(occurs((whole,)))
        return {"must": must}


def rank_words(
    server: Server, query: KeywordQuery, terms: Terms, condition: Json | None, **limits: int
) -> list[Candidate]:
    """All words first, any word where too few have all."""
    limit = limits["limit"]
    if terms.words and limit <= query.with_all_words():
        every = both(condition, query.every_word())
        found = _rank_sparse(server, query.weights(every=True), every, **limits)
        if len({candidate.id for candidate in found}) >= limit:
            return found
    return _rank_sparse(server, query.weights(every=False), condition, **limits)


def _rank_sparse(
    server: Server, weights: Mapping[int, float], condition: Json | None, **limits: int
) -> list[Candidate]:
    if not weights:
        return []
    vector = {"indices": list(weights), "values": list(weights.values())}
    return rank(server, "words", {"query": vector, "using": "words"}, condition, **limits)


def rank(
    server: Server,
    part: str,
    query: Json,
    condition: Json | None,
    *,
    limit: int,
    per_record: int,
) -> list[Candidate]:
    """The best `limit` records, with at most `per_record` passages each; deeper until they are
    there and nothing that is as good as the last of them is left out."""
    depth = limit * per_record + 16
    while True:
        search = {**query, "limit": depth, "with_payload": ["record"]}
        if condition:
            search["filter"] = condition
        points = server.query(part, [search])[0]
        scores = level_scores(np.array([point["score"] for point in points])).tolist()
        best: dict[str, list[tuple[float, int]]] = {}
        for point, score in zip(points, scores, strict=True):
            best.setdefault(point["payload"]["record"], []).append((-score, point["id"]))
        firsts = [mine[0][0] for mine in best.values()]
        last = -firsts[limit - 1] if len(firsts) > limit else -math.inf
        if len(points) < depth or depth >= DEEPEST or last > scores[-1]:
            break
        depth = min(DEEPEST, 4 * depth)
    found = [
        Candidate(name, round(-score, 6), number)
        for name, mine in best.items()
        for score, number in sorted(mine)[:per_record]
    ]
    return cut(found, limit)


def cut(found: Iterable[Candidate], limit: int) -> list[Candidate]:
    """In order: by score, then by id and passage; those of the first `limit` records."""
    ordered = sorted(found, key=lambda c: (-c.score, c.id, c.chunk or 0))
    kept = frozenset(islice(dict.fromkeys(c.id for c in ordered), limit))
    return [c for c in ordered if c.id in kept]


def rank_labels(
    statistics: Statistics,
    kinds: Sequence[LabelKind],
    groups: Sequence[tuple[float, Sequence[str]]],
    condition: Json | None,
    *,
    limit: int,
) -> list[Candidate]:
    """The newest records of each label, in one request; what else they have is in their points."""
    present = [kind for kind in kinds if statistics.head.figures["labels"][kind]]
    labels = list(dict.fromkeys(label for _, group in groups for label in group if label))
    if not present or not labels:
        return []
    signs = {"tag": "#", "folder": "lf:", "name": "ln:"}
    words = {label: [f"{signs[kind]}{label}" for kind in present] for label in labels}
    newest: Json = {"order_by": {"key": "rid", "direction": "desc"}}
    searches = [
        {
            "query": newest,
            "filter": both(condition, {"must": [having(*mine)]}),
            "limit": LABELLED,
            "with_payload": ["id", "is"],
        }
        for mine in words.values()
    ]
    has: dict[str, frozenset[str]] = {}
    for points in statistics.server.query("records", searches):
        has |= {point["payload"]["id"]: frozenset(point["payload"]["is"]) for point in points}
    asked = [
        (worth, [w for label in group if label for w in words[label]]) for worth, group in groups
    ]
    found = []
    for name, mine in has.items():
        score = sum(worth for worth, some in asked if not mine.isdisjoint(some))
        found.append(Candidate(name, score))
    return sorted(found, key=lambda c: (-c.score, c.id))[:limit]


def dense_query(vector: Any) -> Json:
    return {"query": vector.tolist(), "using": "dense", "params": {"hnsw_ef": EF}}
