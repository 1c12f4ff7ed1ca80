"""Global search: the themes of a store that fit a query, what they are about, and their records.

A theme is a community (communities.py). What ranks it is its records that words and vectors find,
those that may be seen and no others; several count more than one, the best most. A theme whose
words fit as well comes before. Where fewer themes fit than are asked for, the largest follow.

Beside other sources a theme votes only where it is what was asked (`votes`): its names and what
sums it up have nearly all words of the query, and those are more than two.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace

from clew.errors import ConfigError, InputError
from clew.filter import Filter
from clew.graph.communities import MISSING
from clew.graph.snapshot import Snapshot, changed, seen
from clew.models import traits
from clew.protocols import Store
from clew.text.analyser import tokens
from clew.types import Candidate, Terms, Vector

__all__ = ["Theme", "candidates", "describe", "search", "votes"]

DEPTH = 100
"""Records of each leg that speak for their themes."""
VOICES = 10
"""Records of one theme that count."""
SHOWN_ENTITIES, SHOWN_RECORDS = 8, 10
WORDS, SHARE, THEMES, PART = 3, 0.75, 3, 0.5
"""For a vote: the fewest words of a query, the share of them that a theme has, how many themes
vote, and what a record counts at most. Two words fit by chance: a query of cacm lost by it."""


@dataclass(frozen=True, slots=True)
class Theme:
    """One community, as far as it may be seen."""

    number: int
    level: int
    score: float
    title: str
    summary: str
    sentences: tuple[tuple[str, str], ...]
    """(record, sentence)"""
    entities: tuple[str, ...]
    records: tuple[str, ...]
    """Ids: those that fit the query first, then the most central."""
    size: int
    """How many of its records may be seen, of the most central ones that are kept by name."""

    def to_dict(self) -> dict[str, object]:
        return {
            "number": self.number,
            "level": self.level,
            "score": round(self.score, 6),
            "title": self.title,
            "summary": self.summary,
            "sentences": [{"id": name, "text": text} for name, text in self.sentences],
            "entities": list(self.entities),
            "records": list(self.records),
            "size": self.size,
        }


def search(
    snapshot: Snapshot,
    store: Store,
    terms: Terms,
    filter: Filter,
    *,
    vector: Vector | None = None,
    model: str = "",
    level: int | None = None,
    limit: int = 5,
) -> list[Theme]:
    """The best themes of one level (0 is the finest; by default the middle one)."""
    level = checked_level(snapshot, level)
    evidence = _evidence(store, terms, filter, vector, model)
    voices, scores = _voices(snapshot, store, evidence, level)
    best = sorted(scores, key=lambda number: (-scores[number], number))[: 3 * limit]
    found: list[Theme] = []
    for theme in describe(snapshot, store, filter, best, voices, scores):
        share = _share(terms, _said(theme.entities, theme.title, theme.summary))
        found.append(replace(theme, score=scores[theme.number] * (1.0 + 0.5 * share)))
    found.sort(key=lambda theme: (-theme.score, theme.number))
    if len(found) < limit:
        rows = snapshot.rows(
            "SELECT number FROM communities WHERE level = ? ORDER BY size DESC, number", level
        )
        others = [row[0] for row in rows if row[0] not in scores][: 3 * limit]
        found += describe(snapshot, store, filter, others)
    return found[:limit]


def votes(
    snapshot: Snapshot,
    store: Store,
    terms: Terms,
    filter: Filter,
    *,
    vector: Callable[[], Vector | None],
    model: str,
) -> list[Candidate]:
    """Records of the themes, of any level, that are what was asked, as far as words and vectors
    find them. Where no theme is, the store is not asked at all."""
    if len(terms.words) < WORDS or not len(snapshot.levels):
        return []
    likely = {number for number, said in _labels(snapshot).items() if _share(terms, said) >= SHARE}
    if not likely:
        return []
    evidence = _evidence(store, terms, filter, vector(), model)
    voices: dict[int, list[str]] = {}
    scores: dict[int, float] = {}
    for level in range(len(snapshot.levels)):
        some, worth = _voices(snapshot, store, evidence, level)
        voices, scores = voices | some, scores | worth
    fit: list[tuple[float, Theme]] = []
    for theme in describe(snapshot, store, filter, sorted(likely & voices.keys()), voices, scores):
        share = _share(terms, _said(theme.entities, theme.title, theme.summary))
        if share >= SHARE:
            fit.append((share, theme))
    fit.sort(key=lambda each: (-each[0], -each[1].score, each[1].number))
    found: dict[str, float] = {}
    for share, theme in fit[:THEMES]:
        for name in voices[theme.number][:VOICES]:
            found.setdefault(name, PART * share * evidence[name] / 2)
    ranked = sorted(found.items(), key=lambda pair: (-pair[1], pair[0]))
    return [Candidate(name, score) for name, score in ranked if score > 0]


def _labels(snapshot: Snapshot) -> dict[int, frozenset[str]]:
    """What each theme has at most in its names and summary, whoever may see it."""
    if snapshot.labels is None:
        texts: dict[int, list[str]] = defaultdict(list)
        for query in (
            "SELECT number, summary FROM communities",
            "SELECT community, text FROM sentences",
            "SELECT community, name FROM members JOIN entities USING (node)",
        ):
            for number, text in snapshot.rows(query):
                texts[number].append(text)
        snapshot.labels = {number: _said(some) for number, some in texts.items()}
    return snapshot.labels


def _said(some: Sequence[str], *more: str) -> frozenset[str]:
    return frozenset(tokens(" ".join((*some, *more))))


def _share(terms: Terms, said: Set[str]) -> float:
    """Of the query's words."""
    there = [not said.isdisjoint(group) for group in terms.words]
    return sum(there) / len(there) if there else 0.0


def _voices(
    snapshot: Snapshot, store: Store, evidence: Mapping[str, float], level: int
) -> tuple[dict[int, list[str]], dict[int, float]]:
    """By theme of a level: its records that fit, the best first; and what they count together."""
    old = changed(snapshot, store)
    nodes = snapshot.nodes_of([name for name in evidence if name not in old])
    voices: dict[int, list[str]] = defaultdict(list)
    for name in sorted(nodes, key=lambda name: (-evidence[name], name)):
        if (number := int(snapshot.levels[level][nodes[name]])) >= 0:
            voices[number].append(name)
    scores = {
        number: sum(evidence[name] / (1 + i) for i, name in enumerate(some[:VOICES]))
        for number, some in voices.items()
    }
    return voices, scores


def checked_level(snapshot: Snapshot, level: int | None) -> int:
    count = len(snapshot.levels)
    if not count:
        if snapshot.state["entities"]:
            raise ConfigError(MISSING)
        raise InputError("the graph has no themes: it was built from no records")
    if level is None:
        return min(1, count - 1)
    if not 0 <= level < count:
        raise InputError(f"the graph has no level {level}: 0 is the finest, {count - 1} the last")
    return level


def _evidence(
    store: Store, terms: Terms, filter: Filter, vector: Vector | None, model: str
) -> dict[str, float]:
    """How well records fit by themselves, words and meaning alike: at most 2."""
    found: dict[str, float] = {}
    hits = store.keyword(terms, filter, limit=DEPTH) if terms else []
    for hit in hits:
        found[hit.id] = hit.score / (hits[0].score or 1.0)
    if vector is not None:
        none = traits(model).unrelated
        for hit in store.nearest(vector, filter, model=model, limit=DEPTH, terms=terms):
            near = max(0.0, (hit.score - none) / (1.0 - none))
            found[hit.id] = found.get(hit.id, 0.0) + near
    return found


def describe(
    snapshot: Snapshot,
    store: Store,
    filter: Filter,
    numbers: Sequence[int],
    voices: Mapping[int, Sequence[str]] | None = None,
    scores: Mapping[int, float] | None = None,
) -> list[Theme]:
    """Communities as this filter lets them be seen; those of which nothing is left are left out."""
    voices, scores = voices or {}, scores or {}
    members = snapshot.among(
        """SELECT community, node FROM members
           WHERE community IN (SELECT value FROM json_each(?)) ORDER BY 1, central DESC, node""",
        list(numbers),
    )
    records: dict[int, list[int]] = defaultdict(list)
    entities: dict[int, list[int]] = defaultdict(list)
    for number, node in members:
        (records if node < snapshot.records else entities)[number].append(node)
    ids = snapshot.ids(sorted({node for some in records.values() for node in some}))
    may = seen(snapshot, store, filter, list(ids.values()))
    visible = {node for node, name in ids.items() if name in may}
    about = {
        row[0]: row[1:]
        for row in snapshot.among(
            """SELECT number, level, summary FROM communities
               WHERE number IN (SELECT value FROM json_each(?))""",
            list(numbers),
        )
    }
    found: list[Theme] = []
    for number in numbers:
        mine = [node for node in records[number] if node in visible]
        if not mine or number not in about:
            continue
        names = spelt_by(snapshot, entities[number], mine)[:SHOWN_ENTITIES]
        level, summary = about[number]
        said = snapshot.rows(
            "SELECT record, text FROM sentences WHERE community = ? ORDER BY place", number
        )
        whole = all(record in visible for record, _ in said)
        sentences = tuple((ids[record], text) for record, text in said if record in visible)
        first = list(voices.get(number, ()))
        order = dict.fromkeys([*first, *(ids[node] for node in mine)])
        found.append(
            Theme(
                number=number,
                level=level,
                score=scores.get(number, 0.0),
                title=", ".join(names[:3]) or ids[mine[0]],
                # what a chat model wrote may say what any of its records says
                summary=(summary if whole else "") or " ".join(text for _, text in sentences),
                sentences=sentences,
                entities=tuple(names),
                records=tuple(order)[:SHOWN_RECORDS],
                size=len(mine),
            )
        )
    return found


def spelt_by(snapshot: Snapshot, entities: Sequence[int], records: Sequence[int]) -> list[str]:
    """The names of entities as these records write them; none for what they do not name."""
    rows = snapshot.rows(
        """SELECT entity, written FROM mentions
           WHERE entity IN (SELECT value FROM json_each(?))
             AND record IN (SELECT value FROM json_each(?))
           ORDER BY entity, after, times, record DESC""",
        json.dumps(list(entities)),
        json.dumps(list(records)),
    )
    names = dict(rows)  # the last of each: named after it, or most often
    return list(dict.fromkeys(names[node] for node in entities if node in names))


def candidates(themes: Sequence[Theme], *, limit: int) -> list[Candidate]:
    """The records of themes as one list: theme by theme, each less than the one before."""
    found: dict[str, float] = {}
    most = max((theme.score for theme in themes), default=0.0)
    for theme in themes:
        for place, name in enumerate(theme.records):
            score = theme.score / most / (1 + 0.1 * place) if most else 0.0
            found[name] = max(found.get(name, 0.0), score)
    ranked = sorted(found.items(), key=lambda pair: (-pair[1], pair[0]))
    return [Candidate(name, score) for name, score in ranked if score > 0][:limit]
