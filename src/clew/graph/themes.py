"""Global search: the themes of a store that fit a query, what they are about, and their records.

A theme is a community. What ranks it is its records that words and vectors find, those that may be
seen and no others; several count more than one, the best most. A theme whose words fit as well
comes before. Where fewer themes fit than are asked for, the largest follow.

Beside other sources a theme votes only where it is what was asked: its names and what sums it up
have nearly all words of the query, and those are more than two.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

from clew.errors import ConfigError, InputError
from clew.graph.communities import MISSING
from clew.graph.snapshot import Snapshot
from clew.graph.view import GraphView
from clew.models import traits
from clew.text.analyser import tokens
from clew.types import Candidate, Terms, Vector

DEPTH = 100  # records of each leg that speak for their themes
VOICES = 10  # records of one theme that count
SHOWN_ENTITIES, SHOWN_RECORDS = 8, 10
WORDS, SHARE, THEMES, PART = 3, 0.75, 3, 0.5
"""For a vote: the fewest words of a query, the share of them that a theme has, how many themes
vote, and what a record counts at most. Two words fit by chance: a query of cacm lost by it."""


class Voices(NamedTuple):
    """Records of a theme that fit a query, the best first, and what they count together."""

    ids: list[str]
    score: float


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

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {
            "score": round(self.score, 6),
            "sentences": [{"id": name, "text": text} for name, text in self.sentences],
            "entities": list(self.entities),
            "records": list(self.records),
        }

    def share(self, terms: Terms) -> float:
        """The share of the query's words that it is described with."""
        return _share(terms, _words(*self.entities, self.title, self.summary))


def search_themes(
    view: GraphView,
    terms: Terms,
    *,
    vector: Vector | None,
    model: str,
    level: int | None = None,
    limit: int = 5,
) -> list[Theme]:
    """The best themes of one level (0 is the finest; by default the middle one)."""
    level = choose_level(view.snapshot, level)
    voices = _voices(view, _evidence(view, terms, vector, model), level)
    best = sorted(voices, key=lambda number: (-voices[number].score, number))[: 3 * limit]
    found = [
        replace(theme, score=theme.score * (1.0 + 0.5 * theme.share(terms)))
        for theme in describe_themes(view, best, voices)
    ]
    found.sort(key=lambda theme: (-theme.score, theme.number))
    if len(found) < limit:
        others = [number for number in largest_themes(view.snapshot, level) if number not in voices]
        found += describe_themes(view, others[: 3 * limit])
    return found[:limit]


def rank_records(themes: Sequence[Theme], *, limit: int) -> list[Candidate]:
    """The records of themes as one list: theme by theme, each less than the one before."""
    found: dict[str, float] = {}
    most = max((theme.score for theme in themes), default=0.0)
    for theme in themes:
        for place, name in enumerate(theme.records):
            score = theme.score / most / (1 + 0.1 * place) if most else 0.0
            found[name] = max(found.get(name, 0.0), score)
    return _candidates(found)[:limit]


def vote_records(
    view: GraphView, terms: Terms, *, vector: Callable[[], Vector | None], model: str
) -> list[Candidate]:
    """Records of the themes, of any level, that are what was asked, as far as words and vectors
    find them. Where no theme is, the store is not asked at all."""
    snapshot = view.snapshot
    if len(terms.words) < WORDS or not len(snapshot.levels):
        return []
    likely = {number for number, said in _labels(snapshot).items() if _share(terms, said) >= SHARE}
    if not likely:
        return []
    evidence = _evidence(view, terms, vector(), model)
    voices: dict[int, Voices] = {}
    for level in range(len(snapshot.levels)):
        voices |= _voices(view, evidence, level)
    themes = describe_themes(view, sorted(likely & voices.keys()), voices)
    fit = [(share, theme) for theme in themes if (share := theme.share(terms)) >= SHARE]
    fit.sort(key=lambda each: (-each[0], -each[1].score, each[1].number))
    found: dict[str, float] = {}
    for share, theme in fit[:THEMES]:
        for name in voices[theme.number].ids[:VOICES]:
            found.setdefault(name, PART * share * evidence[name] / 2)
    return _candidates(found)


def _candidates(scores: Mapping[str, float]) -> list[Candidate]:
    ranked = sorted(scores.items(), key=lambda pair: (-pair[1], pair[0]))
    return [Candidate(name, score) for name, score in ranked if score > 0]


def choose_level(snapshot: Snapshot, level: int | None) -> int:
    """The level that is meant; None is the middle one."""
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


def largest_themes(snapshot: Snapshot, level: int) -> list[int]:
    """All themes of a level, the largest first."""
    query = "SELECT number FROM communities WHERE level = ? ORDER BY size DESC, number"
    return [row[0] for row in snapshot.rows(query, level)]


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
        snapshot.labels = {number: _words(*some) for number, some in texts.items()}
    return snapshot.labels


def _words(*texts: str) -> frozenset[str]:
    return frozenset(tokens(" ".join(texts)))


def _share(terms: Terms, said: Set[str]) -> float:
    """Of the query's words."""
    there = [not said.isdisjoint(group) for group in terms.words]
    return sum(there) / len(there) if there else 0.0


def _evidence(view: GraphView, terms: Terms, vector: Vector | None, model: str) -> dict[str, float]:
    """How well records fit by themselves, words and meaning alike: at most 2."""
    found: dict[str, float] = {}
    hits = view.store.keyword(terms, view.filter, limit=DEPTH) if terms else []
    for hit in hits:
        found[hit.id] = hit.score / (hits[0].score or 1.0)
    if vector is not None:
        none = traits(model).unrelated
        for hit in view.store.nearest(vector, view.filter, model=model, limit=DEPTH, terms=terms):
            near = max(0.0, (hit.score - none) / (1.0 - none))
            found[hit.id] = found.get(hit.id, 0.0) + near
    return found


def _voices(view: GraphView, evidence: Mapping[str, float], level: int) -> dict[int, Voices]:
    """By theme of a level."""
    old = view.changed()
    nodes = view.snapshot.nodes_of([name for name in evidence if name not in old])
    fitting: dict[int, list[str]] = defaultdict(list)
    for name in sorted(nodes, key=lambda name: (-evidence[name], name)):
        if (number := int(view.snapshot.levels[level][nodes[name]])) >= 0:
            fitting[number].append(name)
    return {
        number: Voices(some, sum(evidence[name] / (1 + i) for i, name in enumerate(some[:VOICES])))
        for number, some in fitting.items()
    }


def describe_themes(
    view: GraphView, numbers: Sequence[int], voices: Mapping[int, Voices] | None = None
) -> list[Theme]:
    """Communities as they may be seen; those of which nothing is left are left out."""
    snapshot, voices = view.snapshot, voices or {}
    members = snapshot.among(
        """SELECT community, node FROM members
           WHERE community IN (SELECT value FROM json_each(?)) ORDER BY 1, central DESC, node""",
        numbers,
    )
    records: dict[int, list[int]] = defaultdict(list)
    entities: dict[int, list[int]] = defaultdict(list)
    for number, node in members:
        (records if node < snapshot.records else entities)[number].append(node)
    visible = view.visible(node for some in records.values() for node in some)
    about = {
        number: (level, summary)
        for number, level, summary in snapshot.among(
            """SELECT number, level, summary FROM communities
               WHERE number IN (SELECT value FROM json_each(?))""",
            numbers,
        )
    }
    found: list[Theme] = []
    for number in numbers:
        mine = {node: visible[node] for node in records[number] if node in visible}
        if not mine or number not in about:
            continue
        level, summary = about[number]
        names = view.spellings(entities[number], mine)[:SHOWN_ENTITIES]
        said = snapshot.rows(
            "SELECT record, text FROM sentences WHERE community = ? ORDER BY place", number
        )
        sentences = tuple((visible[record], text) for record, text in said if record in visible)
        if len(sentences) < len(said):
            summary = ""  # what a chat model wrote may say what any of its records says
        fitting, score = voices.get(number, ([], 0.0))
        found.append(
            Theme(
                number=number,
                level=level,
                score=score,
                title=", ".join(names[:3]) or next(iter(mine.values())),
                summary=summary or " ".join(text for _, text in sentences),
                sentences=sentences,
                entities=tuple(names),
                records=tuple(dict.fromkeys([*fitting, *mine.values()]))[:SHOWN_RECORDS],
                size=len(mine),
            )
        )
    return found
