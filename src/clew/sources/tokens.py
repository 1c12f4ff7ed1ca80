"""Token recall: the share of the query's words that a record has, as they are written.

No stemming, no folding of accents, no compounds (analyser.py has them) and no weights: a name is
there or it is not. Where the filter leaves
few records all of them are looked at. Where it leaves many, the keyword index says which may have
how many of the words, and they are read in that order until no other can be better. Both give the
same list, but for parts of words that only the plain rule takes for words of their own, and for
records that have nothing but words which thousands have.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from clew.errors import ConfigError
from clew.filter import Filter
from clew.protocols import Context, Source, Store, read_pages
from clew.sources import FunctionSource
from clew.text.analyser import STOPWORDS, spelt, words
from clew.types import Candidate, Query

LEAST_RECALL = 0.33
"""One word of three: below it, a text is not about the query."""

_CJK = (
    "\u3040-\u30ff\u31f0-\u31ff\uff66-\uff9f"  # kana
    "\u1100-\u11ff\uac00-\ud7af"  # Hangul
    "\u3005\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"  # Han, and extension A
    "\U00020000-\U000323af"  # extensions B to H
)
_TOKEN = re.compile(rf"[{_CJK}]|[^\W{_CJK}]+")
ALL = 2_000
"""Up to this many records all are looked at: a millisecond once their words are known."""
CHARACTERS = 4_000_000
"""More text than this is not gone through, however few records it is."""
PAGE = 500
SCOPES = 8
"""Filters whose records' words are kept until something is written."""
SHORT = 2_000
"""Characters of a text whose words are kept between writes."""
HOLDERS = 5_000
"""A word that this many records have may be anybody's: who has it is not listed."""
MANY, MANY_SIGNS = 32, 12
"""Different words, and signs that are words by themselves, above which the index is asked for all
at once: a record with a third of them is among the best by any count. A sign takes 3 ms in 100,000
records."""
BEST = 2_000
"""Records that are read then."""
BATCH = 100
READ = 5_000
"""Records that are read at most."""
ELIDED = (
    *("c", "d", "j", "l", "m", "n", "o", "s", "t"),
    *("all", "dell", "lorsqu", "nell", "puisqu", "qu", "quell", "sull", "un"),
)
"""What stands before an apostrophe. The index has l'école as one word, the plain rule as two."""

Tokens = frozenset[str]
_Texts = list[tuple[str, Tokens]]


def record_tokens(text: str) -> frozenset[str]:
    """Runs of word characters in lower case; of Chinese, Japanese and Korean each character."""
    return frozenset(_TOKEN.findall(text.lower()))


def query_tokens(text: str) -> frozenset[str]:
    """The same without stopwords and single letters, which every text has."""
    return frozenset(
        token
        for token in _TOKEN.findall(text.lower())
        if token not in STOPWORDS
        and (len(token) > 1 or token.isdigit() or re.match(f"[{_CJK}]", token))
    )


def token_recall(query: frozenset[str], record: frozenset[str]) -> float:
    """|query ∩ record| / |query|; 0 for a query without words."""
    return len(query & record) / len(query) if query else 0.0


def tokens(root: Path, *, least: float = LEAST_RECALL, all_up_to: int = ALL) -> Source:
    """Records with at least that share of the query's words, as far as the query has any."""
    if not 0 <= least <= 1:
        raise ConfigError(f"tokens: least is a share from 0 to 1, not {least!r}")
    kept: dict[Filter, tuple[object, _Texts | None]] = {}

    def texts_of(filter: Filter, store: Store) -> _Texts | None:
        # Before reading: what is written meanwhile is seen next time.
        edition = store.changes.edition()
        known, texts = kept.get(filter, (None, None))
        if known != edition:
            texts = _read_texts(filter, store) if store.count(filter) <= all_up_to else None
            if len(kept) >= SCOPES:
                kept.clear()
            kept[filter] = edition, texts
        return texts

    def source(query: Query, context: Context) -> Sequence[Candidate]:
        wanted = query_tokens(query.text)
        if not wanted:
            return ()
        # phrases, and words that are left out, the index answers
        texts = None if query.terms.narrows else texts_of(query.filter, context.store)
        if texts is None:
            found = _proposed(wanted, query, context.store)
        else:
            found = _ranked(((name, token_recall(wanted, has)) for name, has in texts))
        return [c for c in found[: query.depth] if c.score >= least]

    return FunctionSource(source, outside="")


def _ranked(scores: Iterable[tuple[str, float]]) -> list[Candidate]:
    found = [Candidate(name, score) for name, score in scores if score]
    return sorted(found, key=lambda c: (-c.score, c.id))


# ---------------------------------------------------------------- few records: all of them


def _read_texts(filter: Filter, store: Store) -> _Texts | None:
    """The words of every record that the filter leaves; None: that is too much text."""
    texts: _Texts = []
    characters = 0
    for page in read_pages(store, filter, PAGE):
        characters += sum(len(record.content) for record in page)
        if characters > CHARACTERS:
            return None
        texts += [(record.id, _token_set(record.content)) for record in page]
    return texts


def _token_set(text: str) -> Tokens:
    return _known(text) if len(text) <= SHORT else record_tokens(text)


_known = lru_cache(maxsize=4_096)(record_tokens)
"""A write changes one text of a thousand."""


# ---------------------------------------------------------------- many: what the index proposes


def _proposed(wanted: Tokens, query: Query, store: Store) -> list[Candidate]:
    """The best `depth`. The index takes more for equal than the plain rule (stems, accents), so it
    says at most how many of the words a record has."""
    if len(wanted) > MANY or sum(len(token) == 1 for token in wanted) > MANY_SIGNS:
        found = store.keyword(query.terms, query.filter, limit=BEST)
        return _ranked(_recalls(wanted, [c.id for c in found], store))
    most = _most(wanted, query, store)
    order = sorted(most, key=lambda name: (-most[name], name))[:READ]
    scores: list[tuple[str, float]] = []
    for i in range(0, len(order), BATCH):
        scores += _recalls(wanted, order[i : i + BATCH], store)
        best = _ranked(scores)
        if i + BATCH < len(order) and len(best) >= query.depth:
            following, last = order[i + BATCH], best[query.depth - 1]
            if (-last.score, last.id) < (-most[following] / len(wanted), following):
                break
    return _ranked(scores)


def _recalls(wanted: Tokens, ids: Sequence[str], store: Store) -> list[tuple[str, float]]:
    return [(r.id, token_recall(wanted, _token_set(r.content))) for r in store.get(ids)]


def _most(wanted: Tokens, query: Query, store: Store) -> dict[str, int]:
    """Records that may have any of the words, each with how many at most."""
    counts: dict[str, int] = {}
    anybodys = 0
    for groups in _index_words(query.text, wanted).values():
        terms = replace(query.terms, words=groups)
        found = store.keyword(terms, query.filter, limit=HOLDERS) if groups else []
        rare = bool(groups) and len(found) < HOLDERS
        anybodys += not rare
        for candidate in found:
            counts[candidate.id] = counts.get(candidate.id, 0) + rare
    if anybodys:  # those with several such words
        for candidate in store.keyword(query.terms, query.filter, limit=BEST):
            counts.setdefault(candidate.id, 0)
    return {name: count + anybodys for name, count in counts.items()}


def _index_words(text: str, wanted: Tokens) -> Mapping[str, tuple[tuple[str, ...], ...]]:
    """Each word as the keyword index may have it; nothing where it does not know such a word.

    One character of Chinese, Japanese or Korean is found in any pair: see `Store.keyword`.
    """
    found = {token: words(token, keep_stopwords=True) for token in sorted(wanted)}
    for word in spelt(text):
        groups = words(word, keep_stopwords=True)
        parts = {part for group in groups for part in group[1:]}
        for token in record_tokens(word) & wanted:
            # The index takes it apart elsewhere: don't → dont, not don; getUserName → get, user…
            if parts.isdisjoint(part for group in found[token] for part in group):
                found[token] += groups
    for token, groups in found.items():
        for part in ELIDED if token.isalpha() else ():
            behind = words(f"{part}'{token}", keep_stopwords=True)
            groups += behind if len(behind) == 1 else []  # else an apostrophe joins nothing there
    return {token: tuple(dict.fromkeys(groups)) for token, groups in found.items()}
