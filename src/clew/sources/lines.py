"""Single lines that have the query's words: of CANONICAL.md, where a workspace keeps what it holds
to be true, and of the folders that say how it works.

Texts are the store's own, so that a write is seen by the next search and filters hold.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from clew.filter import Filter
from clew.protocols import Context, Source, Store
from clew.sources import FunctionSource
from clew.text.analyser import fits, tokens
from clew.types import Answer, Candidate, Passage, Query, Record

HEADING = 0.9
"""A heading names a subject and says nothing of it."""
LONGEST = 8 * 1024 * 1024
"""Characters that are looked at; a second's work to take apart."""
FOLDERS = (".framework/", ".context/memory_bank/")


class _Lines(NamedTuple):
    """One record's lines, and the numbers of those that have each token."""

    record: Record
    lines: list[str]
    holders: dict[str, list[int]]


def canonical(root: Path, *, file: str = "CANONICAL.md", best: int = 3) -> Source:
    """Lines with at least two of the query's words (one where it has but one), scored by the share
    of the words they have. Each is a vote for the file's record, with the line as its passage.
    Lines are taken apart once and kept until the text changes."""
    known: tuple[int, list[_Lines]] = (-1, [])

    def source(query: Query, context: Context) -> Sequence[Candidate] | Answer:
        nonlocal known
        at, texts = context.store.changes.generation(), known[1]
        if known[0] != at:
            texts = _read(context.store, file, texts)
            known = at, texts
        found = [c for text in texts for c in _matches(text, query)]
        found.sort(key=lambda c: (-c.score, c.id))  # of equals in a file, the first line
        ranked = found[: min(best, query.depth)]
        if all(len(text.record.content) <= LONGEST for text in texts):
            return ranked
        return Answer(ranked, f"{file} is long: only its first {LONGEST >> 20} MB are looked at")

    return FunctionSource(source, outside="", by_terms=True)


def _read(store: Store, file: str, before: Sequence[_Lines]) -> list[_Lines]:
    names = tuple(f"{root}:{file}" for root in store.files.roots())
    records = store.select(Filter(ids=names), limit=len(names)) if names else []
    old = {text.record.id: text for text in before}
    return [
        old[record.id]
        if record.id in old and old[record.id].record == record
        else _take_apart(record)
        for record in records
    ]


def _take_apart(record: Record) -> _Lines:
    lines = record.content[:LONGEST].splitlines()
    holders: dict[str, list[int]] = {}
    for number, line in enumerate(lines):
        for token in set(tokens(line)):
            holders.setdefault(token, []).append(number)
    return _Lines(record, lines, holders)


def _matches(text: _Lines, query: Query) -> list[Candidate]:
    words = query.terms.words
    if not words or not query.filter.allows(text.record):
        return []
    hits: Counter[int] = Counter()
    for group in words:
        hits.update({number for token in group for number in text.holders.get(token, ())})
    found: list[Candidate] = []
    for number, count in sorted(hits.items()):
        line = text.lines[number]
        if count >= min(2, len(words)) and fits(query.terms, line):
            share = count / len(words) * (HEADING if line.lstrip().startswith("#") else 1.0)
            passage = Passage(0, text.record, line.strip(), (number + 1, number + 1))
            found.append(Candidate(text.record.id, share, None, passage))
    return found


def framework_docs(root: Path, *, folders: tuple[str, ...] = FOLDERS, best: int = 5) -> Source:
    """The keyword index proposes passages; the share of the query's words in the best line of each
    is its score."""
    below = Filter(within=folders)

    def source(query: Query, context: Context) -> Sequence[Candidate]:
        words, allowed = query.terms.words, query.filter.narrowed(below)
        if not words or allowed is None:
            return ()
        found = context.store.keyword(query.terms, allowed, limit=min(best, query.depth))
        passages = context.store.passages(found)
        scored = [
            candidate._replace(score=_best_line(passage, words))
            for candidate, passage in zip(found, passages, strict=True)
            if passage is not None
        ]
        return sorted(scored, key=lambda c: (-c.score, c.id))

    return FunctionSource(source, outside="", by_terms=True)


def _best_line(passage: Passage, words: Sequence[tuple[str, ...]]) -> float:
    lines = (set(tokens(line)) for line in passage.text.splitlines())
    hits = (sum(not has.isdisjoint(group) for group in words) for has in lines)
    return max(hits, default=0) / len(words)
