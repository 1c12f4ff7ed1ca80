"""Passages of a ranked list chosen to be shown, and made into hits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from clew.filter import may_be_seen
from clew.protocols import Store, batched
from clew.ranking.fusion import Fused
from clew.search.collect import Outcome
from clew.search.context import FileChange, QueryContext
from clew.text.analyser import Matcher
from clew.text.passage import HEADINGS, titles
from clew.text.snippet import NO_SNIPPET, snippet
from clew.timestamps import UNDATED
from clew.types import LOCATION_UNIT, Candidate, Hit, Passage, Query


class ShownPassage(NamedTuple):
    """A passage that will be a hit."""

    fused: Fused
    passage: Passage
    file: FileChange | None = None
    """What became of its file since it was indexed."""


def choose_passages(
    ranked: Sequence[Fused],
    outcomes: Sequence[Outcome],
    query: Query,
    context: QueryContext,
    *,
    most: int = 0,
) -> list[ShownPassage]:
    """The first `limit`, at most so many of one file (0: any number). One deleted since it was
    ranked makes room, as does one whose file was deleted since it was indexed."""
    shown: list[ShownPassage] = []
    of_record: dict[str, list[Passage]] = {}
    of_file: Counter[tuple[str, str | None]] = Counter()
    for some in batched(ranked, query.limit):
        passages = read_passages(name_candidates(some, outcomes), context.store)
        there = [(f, p) for f, p in zip(some, passages, strict=True) if p is not None]
        states = context.files.states([(p.record.id, p.record.path) for _, p in there])
        for (fused, passage), state in zip(there, states, strict=True):
            if state == "gone" or len(shown) == query.limit:
                continue
            record = passage.record
            if not may_be_seen(record, query.filter):  # its source does not look
                continue
            others = of_record.setdefault(record.id, [])
            if any(_overlap(passage, other) for other in others):
                continue
            # What rows of one table share, and passages of one text.
            file = (record.id, None) if record.path is None else (record.collection, record.path)
            of_file[file] += 1
            if not most or of_file[file] <= most:
                shown.append(ShownPassage(fused, passage, state))
                others.append(passage)
        if len(shown) == query.limit:
            break
    return shown


def _overlap(one: Passage, other: Passage) -> bool:
    """Whether one is a line, or a few, of the other. Passages as they were cut never are."""
    if bool(one.chunk) == bool(other.chunk):
        return False
    outer, inner = (one, other) if one.chunk else (other, one)
    return outer.lines[0] <= inner.lines[0] and inner.lines[1] <= outer.lines[1]


def name_candidates(some: Sequence[Fused], outcomes: Sequence[Outcome]) -> list[Candidate]:
    """Each as its strongest source found it."""
    wanted = {(f.source, f.id) for f in some}
    sources = {f.source for f in some}
    found = {
        (o.source, c.id): c
        for o in outcomes
        if o.source in sources
        for c in reversed(o.candidates)
        if (o.source, c.id) in wanted
    }
    return [f.passage or found.get((f.source, f.id)) or Candidate(f.id, 0.0) for f in some]


def read_passages(candidates: Sequence[Candidate], store: Store) -> list[Passage | None]:
    """What each brought along, or else what the store has of it."""
    read = iter(store.passages([c for c in candidates if c.passage is None]))
    return [next(read) if c.passage is None else c.passage for c in candidates]


def label_text(passage: Passage) -> str:
    """What stands above and beside a passage."""
    record = passage.record
    file = (record.path or "").rpartition("/")[2]
    names = titles(record.title, record.metadata)
    return "\n".join((names, passage.heading, *record.tags, file))


def make_hit(
    shown: ShownPassage,
    find: Matcher | None,
    *,
    confidence: str | None = None,
    chance: float | None = None,
) -> Hit:
    """A passage as it is shown: with a snippet where there are words to `find`, else with its
    record, for those who show it in their own way."""
    fused, passage, file = shown
    record = passage.record
    words = NO_SNIPPET
    if find is not None:
        known = (record.title, *passage.heading.split(HEADINGS))
        words = snippet(passage.text, find, kind=record.type, known=known)
    first = passage.lines[0]
    metadata: dict[str, Any] = {
        **record.metadata,
        "path": record.path,
        "type": record.type,
        "collection": record.collection,
        "heading": passage.heading,
        "tags": list(record.tags),
        "updated_at": None if record.updated_at == UNDATED else record.updated_at,
        "snippet_line": first + words.line if words.line and _is_line_by_line(passage) else first,
    }
    if file is not None:
        metadata[file] = True
    return Hit(
        id=record.id,
        content=passage.text,
        score=fused.score if fused.reranked is None else fused.reranked,
        source=fused.source,
        rrf_score=fused.score,
        title=record.title,
        path=record.path,
        lines=passage.lines,
        confidence=confidence,
        metadata=metadata,
        signals=fused.signals,
        snippet=words.text,
        highlights=words.highlights,
        chunk=passage.chunk or None,
        chance=chance,
        record=record if find is None else None,
    )


def _is_line_by_line(passage: Passage) -> bool:
    """Whether a line of its text is a line of the file: not so of what was extracted from it."""
    first, last = passage.lines
    counted = LOCATION_UNIT not in passage.record.metadata
    return counted and last - first == passage.text.count("\n")
