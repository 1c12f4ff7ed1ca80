"""The pool of a lookup ranked: each component scored over all of it, then made one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from clew.lookup.gather import Pooled
from clew.lookup.settings import Settings
from clew.ranking.lookup_score import (
    bm25,
    credibility,
    effective,
    hybrid,
    normalised,
    ordered,
    semantic,
)
from clew.text import analyser
from clew.text.parse import parse
from clew.text.passage import HEADINGS, passage
from clew.text.snippet import matcher, snippet
from clew.types import Hit, Terms, Vector

if TYPE_CHECKING:
    from clew.filter import Filter
    from clew.protocols import Store

__all__ = ["Meaning", "Ranked", "rank", "rarities", "with_snippets", "words_of"]

LONGEST = 20_000
"""Characters of a text that are looked at."""


@dataclass(frozen=True, slots=True)
class Meaning:
    """What is known of the meaning of the query and of each text of the pool."""

    query: Vector | None = None
    vectors: Sequence[Vector | None] = ()
    why_not: str | None = None
    """Why meaning takes no part."""


@dataclass(frozen=True, slots=True)
class Ranked:
    hits: list[Hit]
    trace: Mapping[str, Any] = field(default_factory=dict)


def rank(
    query: str,
    pool: Sequence[Pooled],
    meaning: Meaning,
    settings: Settings,
    *,
    rarities: Sequence[float] | None = None,
) -> Ranked:
    """Everything in the pool, best first. `rarities` are those of the query's words."""
    raw = _components(query, pool, meaning, settings, rarities)
    taking_part = {settings.ranking: raw[settings.ranking]} if settings.ranking in raw else raw
    by, why_not = settings.ranking, meaning.why_not
    if by != "hybrid" and by not in raw:
        by, taking_part = "bm25", {"bm25": raw["bm25"]}  # meaning is asked for, and there is none
    if "semantic" not in raw and why_not is None:
        why_not = "no text has a vector"
    weights = settings.weights if by == "hybrid" else {by: 1.0}
    shares = effective(taking_part, weights)
    scores = hybrid(taking_part, weights=weights)
    scaled = {name: normalised(values) for name, values in raw.items()}
    hits = []
    for i, each in enumerate(pool):
        signals: dict[str, dict[str, float]] = {
            name: {
                "score": raw[name][i],
                "normalised": scaled[name][i],
                "weight": shares.get(name, 0.0),
                "contrib": shares.get(name, 0.0) * scaled[name][i],
            }
            for name in raw
        }
        if by == "hybrid":
            signals["hybrid"] = {"score": scores[i]}
        hits.append(_scored(each, scores[i], signals))
    ids = [hit.id for hit in hits]
    trace = {"by": by, "weights": shares, "pool": len(pool)}
    if why_not:
        trace["semantic"] = why_not
    return Ranked(ordered(hits, scores, ids), trace)


def _components(
    query: str,
    pool: Sequence[Pooled],
    meaning: Meaning,
    settings: Settings,
    rarities: Sequence[float] | None,
) -> dict[str, list[float]]:
    texts = [words_of(each.found.hit) for each in pool]
    components = {"bm25": bm25(query, texts, rarities=rarities)}
    if meaning.why_not is None and meaning.query is not None:
        near = semantic(
            meaning.query,
            meaning.vectors,
            similarities=[each.found.similarity for each in pool],
        )
        known = [score for score in near if score is not None]
        if known:  # what has no vector gains nothing by it, and nothing is made up for it
            components["semantic"] = [min(known) if s is None else s for s in near]
    table = settings.credibility
    components["credibility"] = [
        credibility(_address(each.found.hit), table=table) for each in pool
    ]
    return components


def words_of(hit: Hit) -> str:
    """A hit's words with the title and the headings they stand under."""
    heading = hit.metadata.get("heading")
    return passage(hit.title, heading if isinstance(heading, str) else "", hit.content)[:LONGEST]


def _address(hit: Hit) -> str | None:
    """Where it is on the web. A path is of this machine, whatever its folders are called."""
    given = hit.metadata.get("url")
    if isinstance(given, str):
        return given
    return hit.path if hit.path and hit.path.startswith(("http://", "https://")) else None


def _scored(each: Pooled, score: float, signals: Mapping[str, Mapping[str, float]]) -> Hit:
    hit = each.found.hit
    told: dict[str, Any] = {"backends": list(each.backends)}
    if each.also:
        told["also"] = list(each.also)
    return replace(
        hit,
        score=score,
        rrf_score=0.0,
        confidence=None,
        metadata={**hit.metadata, **told},
        signals={**hit.signals, **signals},
    )


def with_snippets(query: str, lists: Iterable[Sequence[Hit]]) -> dict[str, Hit]:
    """By id, the hits of these lists with the words that show why: none other needs them."""
    find = matcher(parse(query, syntax=False).terms)
    shown: dict[str, Hit] = {}
    for hit in (hit for hits in lists for hit in hits):
        if hit.id not in shown:
            heading, kind = (str(hit.metadata.get(name) or "") for name in ("heading", "type"))
            known = (hit.title, *heading.split(HEADINGS))
            words = snippet(hit.content[:LONGEST], find, kind=kind, known=known)
            shown[hit.id] = replace(hit, snippet=words.text, highlights=words.highlights)
    return shown


def rarities(store: Store, query: str, filter: Filter) -> list[float] | None:
    """How rare each word of the query is among all that a store holds; None: it holds nothing."""
    groups = dict.fromkeys(analyser.words(query))
    found = [store.indexes.reach(Terms((group,)), filter) for group in groups]
    return found if any(found) else None
