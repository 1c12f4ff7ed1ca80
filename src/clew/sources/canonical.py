"""Lines of CANONICAL.md, where a workspace keeps what it holds to be true.

The text is the store's own, so that a write is seen by the next search and filters hold. Its lines
are taken apart once and kept until the text changes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from clew.filter import Filter
from clew.protocols import Context, Source, Store
from clew.sources import FunctionSource
from clew.text.analyser import fits, tokens
from clew.types import Answer, Candidate, Passage, Query, Record

__all__ = ["canonical"]

BEST = 3
HEADING = 0.9
"""A heading names a subject and says nothing of it."""
LONGEST = 8 * 1024 * 1024
"""Characters that are looked at; a second's work to take apart."""


@dataclass(frozen=True, slots=True)
class _Lines:
    """One record's lines, by the tokens they have."""

    record: Record
    lines: tuple[str, ...]
    holders: dict[str, tuple[int, ...]]
    whole: bool


def canonical(root: Path, *, file: str = "CANONICAL.md", best: int = BEST) -> Source:
    """Lines with at least two of the query's words (one where it has but one), scored by the share
    of the words they have. Each is a vote for the file's record, with the line as its passage."""
    known: tuple[int, list[_Lines]] = (-1, [])

    def source(query: Query, context: Context) -> Sequence[Candidate] | Answer:
        nonlocal known
        at, texts = context.store.generation(), known[1]
        if known[0] != at:
            texts = _read(context.store, file, texts)
            known = at, texts
        found = [c for text in texts for c in _matches(text, query)]
        found.sort(key=lambda c: (-c.score, c.id))  # of equals in a file, the first line
        ranked = found[: min(best, query.depth)]
        if all(text.whole for text in texts):
            return ranked
        return Answer(ranked, f"{file} is long: only its first {LONGEST >> 20} MB are looked at")

    return FunctionSource(source, outside="", by_terms=True)


def _read(store: Store, file: str, before: Sequence[_Lines]) -> list[_Lines]:
    names = tuple(f"{root}:{file}" for root in store.roots())
    records = store.select(Filter(ids=names), limit=len(names)) if names else []
    old = {text.record.id: text for text in before}
    same = [old[r.id] if r.id in old and old[r.id].record == r else None for r in records]
    return [text or _apart(record) for text, record in zip(same, records, strict=True)]


def _apart(record: Record) -> _Lines:
    lines = tuple(record.content[:LONGEST].splitlines())
    holders: dict[str, list[int]] = {}
    for number, line in enumerate(lines):
        for token in set(tokens(line)):
            holders.setdefault(token, []).append(number)
    kept = {token: tuple(numbers) for token, numbers in holders.items()}
    return _Lines(record, lines, kept, len(record.content) <= LONGEST)


def _matches(text: _Lines, query: Query) -> list[Candidate]:
    words = query.terms.words
    if not words or not query.filter.allows(text.record):
        return []
    hits: Counter[int] = Counter()
    for group in words:
        hits.update({number for token in group for number in text.holders.get(token, ())})
    found: list[Candidate] = []
    for number, count in sorted(hits.items()):
        if count >= min(2, len(words)):
            line = text.lines[number]
            if not fits(query.terms, line):
                continue
            share = count / len(words) * (HEADING if line.lstrip().startswith("#") else 1.0)
            passage = Passage(0, text.record, line.strip(), (number + 1, number + 1))
            found.append(Candidate(text.record.id, share, None, passage))
    return found
