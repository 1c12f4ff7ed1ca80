"""How far a hit may be trusted: HIGH, MED or LOW, by the thresholds of the profile.

With reciprocal rank fusion the fused score decides, as Athena has it. Any other fused score is
relative to the query's own lists: the best hit of a question that nothing answers looks like a true
one. There the thresholds are on the chance that the hit is relevant:

    chance = σ(bias + Σ coefficient · sign)

    lead      how far it stands above every other record, in the leg where it stands out less; in
              units of SPREAD standard deviations of the leg's first ranks
    nearness  its cosine, from unrelated (0) to identical (1)

Where fusion gives the words more than the vectors (an identifier, a script the model does not know)
the words alone decide, by lead only. Other sources name what the legs may not know, a row of a
table for one: a share of the query's words counts as it is, as a lead of words. The cross-encoder
has no part in it: reranking changes the order and no badge.

`python benchmarks/fit_confidence.py` finds the coefficients on the training sets, where each query
is asked twice, with its relevant documents and without. How often a badge is right on other sets is
in docs/benchmarks/confidence.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from clew.ranking.adaptive import DEPTH, SPREAD, WORTH, Facts, share_of_vectors, signs
from clew.ranking.normalise import min_max

__all__ = ["LEGS", "Chance", "Coefficients", "Confidence", "chances", "confidence"]

Confidence = Literal["HIGH", "MED", "LOW"]


class Coefficients(NamedTuple):
    """What each sign counts."""

    bias: float
    lead: float
    nearness: float = 0.0


LEGS: Mapping[str, Coefficients] = {
    "both": Coefficients(bias=-2.03, lead=1.61, nearness=4.05),
    "words": Coefficients(bias=-1.12, lead=1.57),
    "vectors": Coefficients(bias=-3.24, lead=1.12, nearness=4.89),
}
"""By what the chance is judged by."""


class Chance(NamedTuple):
    """That a hit is relevant, from 0 to 1, and what that follows from."""

    value: float
    by: str
    """One of LEGS, or another source's name."""
    lead: float
    nearness: float | None = None


def confidence(score: float, *, high: float, med: float) -> Confidence:
    return "HIGH" if score >= high else "MED" if score >= med else "LOW"


def chances(lists: Mapping[str, Sequence[Any]], facts: Facts) -> Callable[[str], Chance]:
    """From the sources' lists (candidates or hits, best first): a function that says of a record,
    by its id, how likely it is to be relevant."""
    keyword, vectors = lists.get("keyword"), lists.get("vectors", ())
    words = near = None
    if keyword is not None and facts.reach > 0:  # without words, finding none says nothing
        words = _leg(keyword, beyond=0.0, most=WORTH / facts.reach)
    if vectors and (words is None or _vectors_count(keyword or (), vectors, facts)):
        near = _leg(vectors, beyond=facts.unrelated)
    others = {
        name: _shares(hits)
        for name, hits in lists.items()
        if hits and name not in ("keyword", "vectors")
    }

    def chance(id: str) -> Chance:
        best = Chance(0.0, "", 0.0)
        if near is not None:
            lead, by = near.lead(id), "vectors"
            if words is not None:
                lead, by = min(lead, words.lead(id)), "both"
            nearness = (near.score(id) - facts.unrelated) / (1.0 - facts.unrelated)
            best = Chance(_logistic(LEGS[by], lead, nearness), by, lead, nearness)
        elif words is not None:
            lead = words.lead(id)
            best = Chance(_logistic(LEGS["words"], lead), "words", lead)
        for name, leg in others.items():
            if id in leg.scores:
                lead = leg.lead(id)
                found = Chance(_logistic(LEGS["words"], lead), name, lead)
                best = max(best, found, key=lambda each: each.value)
        return best

    return chance


def _logistic(counts: Coefficients, lead: float, nearness: float = 0.0) -> float:
    logit = counts.bias + counts.lead * lead + counts.nearness * nearness
    return round(1.0 / (1.0 + math.exp(-logit)), 4)


def _vectors_count(keyword: Sequence[Any], vectors: Sequence[Any], facts: Facts) -> bool:
    """Whether adaptive fusion would give them at least as much as the words."""
    return share_of_vectors(signs(keyword, vectors, facts), facts) >= 0.5


class _Leg(NamedTuple):
    """One list, and what it takes to say how far a record stands out in it."""

    scores: dict[str, float]
    first: str
    best: float
    second: float
    last: float
    """What a record that is not listed has at most."""
    unit: float

    def score(self, id: str) -> float:
        return self.scores.get(id, self.last)

    def lead(self, id: str) -> float:
        """Above the best of all others: less than 0 for all but the first."""
        other = self.second if id == self.first else self.best
        return (max(self.score(id), self.last) - other) * self.unit


def _leg(hits: Sequence[Any], *, beyond: float, most: float = math.inf) -> _Leg:
    """`beyond` is the most that anything can have that a short list does not name. So few may stand
    out by chance: then `most` is the largest unit."""
    head = [hit.score for hit in hits[:DEPTH]]
    head += [min([beyond, *head[-1:]])] * (DEPTH - len(head))
    mean = math.fsum(head) / DEPTH
    sigma = math.dist(head, [mean] * DEPTH) / math.sqrt(DEPTH)
    unit = 1.0 / (SPREAD * sigma) if sigma else 0.0
    if len(hits) < DEPTH:
        unit = min(unit, most)
    scores = {hit.id: hit.score for hit in reversed(hits)}
    return _Leg(scores, hits[0].id if hits else "", head[0], head[1], min(head), unit)


def _shares(hits: Sequence[Any]) -> _Leg:
    """Most sources score by the share of the query's words; any other scale is made one."""
    shares = [hit.score for hit in hits]
    if not all(0.0 <= share <= 1.0 for share in shares):
        shares = min_max(shares)
    scores = {hit.id: share for hit, share in zip(reversed(hits), reversed(shares), strict=True)}
    return _Leg(scores, hits[0].id, shares[0], max(shares[1:], default=0.0), 0.0, 1.0)
