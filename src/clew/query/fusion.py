"""One list out of several: each on a scale, above its floor, weighed and fused.

`search` and `clew tune` both take this path, so that what was tuned is what is searched.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from clew.ranking.adaptive import Facts, share_of_vectors, signs, trust_in_vectors
from clew.ranking.fuse import Fused, fuse
from clew.types import Candidate

__all__ = ["RankedList", "WeightedLists", "traced", "weigh_lists"]

LEGS = ("keyword", "vectors")
"""Lists that a fusion by scores has scales of its own for."""

WORDS = ("keyword", "all_words")
"""Kinds that score by BM25."""


class RankedList(NamedTuple):
    """What one source gave, and what the settings say of it."""

    candidates: Sequence[Candidate]
    kind: str
    weight: float = 1.0
    floor: float = 0.0
    """The least share of its scale, from 0 to 1, with which a candidate has a vote."""
    places: Mapping[str, int] = {}
    """Of records that it cannot judge yet: see `Answer`."""


@dataclass(frozen=True, slots=True)
class WeightedLists:
    """The lists of one search as a strategy counts them."""

    strategy: str
    k: int
    lists: Mapping[str, Sequence[Candidate]]
    weights: Mapping[str, float]
    facts: Facts
    places: Mapping[str, Mapping[str, int]]

    def fused(self, head: int | None = None) -> list[Fused]:
        """Every record of any list, or the best `head`, best first."""
        return fuse(
            self.strategy,
            self.lists,
            k=self.k,
            weights=self.weights,
            head=head,
            facts=self.facts,
            places=self.places,
        )

    def trace(self) -> dict[str, Any]:
        """How the lists are weighed, and why."""
        said: dict[str, Any] = {"strategy": self.strategy, "weights": dict(self.weights)}
        facts, because = self.facts, {}
        if self.strategy in ("rrf", "weighted_rrf"):
            said["k"] = self.k
        elif self.strategy == "adaptive" and all(self.lists.get(leg) for leg in LEGS):
            because = signs(self.lists["keyword"], self.lists["vectors"], facts)
            said["share_of_vectors"] = round(share_of_vectors(because, facts), 4)
        if facts.known < 1 and (because or self.strategy == "weighted_rrf"):
            because["known_script"] = facts.known
        if because:
            said["because"] = {name: round(value, 4) for name, value in because.items()}
        return said


def weigh_lists(
    lists: Mapping[str, RankedList], facts: Facts, *, strategy: str, k: int = 60
) -> WeightedLists:
    """What stands above the floor of its list, with scores on scales, and what each list weighs.

    A strategy by scores has scales of its own for words and vectors. All else is on one from 0 to 1
    that means the same in every source: a cosine is the way from unrelated to identical, a keyword
    score a part of what a passage with all words could reach.
    """
    shares = {name: _shares(of, facts) for name, of in lists.items()}
    trust = trust_in_vectors(facts) if strategy == "weighted_rrf" else 1.0
    counted: dict[str, Sequence[Candidate]] = {}
    for name, of in lists.items():
        pairs = zip(of.candidates, shares[name], strict=True)
        kept = [(c, share) for c, share in pairs if share >= of.floor]
        own = strategy != "weighted_rrf" and (name in LEGS or of.kind not in LEGS)
        counted[name] = [c if own else c._replace(score=min(1.0, share)) for c, share in kept]
    return WeightedLists(
        strategy,
        k,
        counted,
        {n: of.weight * (trust if of.kind == "vectors" else 1.0) for n, of in lists.items()},
        facts,
        {name: of.places for name, of in lists.items() if of.places},
    )


def _shares(of: RankedList, facts: Facts) -> list[float]:
    """Scores on a scale from 0 to 1, as far as what gave them keeps to it."""
    scores = [c.score for c in of.candidates]
    if of.kind == "vectors":
        none = facts.unrelated
        scores = [(score - none) / (1.0 - none) for score in scores]
    elif of.kind in WORDS and facts.reach > 0:
        scores = [score / facts.reach for score in scores]
    return [max(0.0, score) for score in scores]


def traced(trace: Mapping[str, Any]) -> tuple[dict[str, RankedList], Facts]:
    """From the trace of a search with `explain`, all it takes to fuse again."""
    lists = {
        name: RankedList(
            [Candidate(row["id"], row["score"], row["chunk"]) for row in rows],
            of["kind"],
            of["weight"],
            of["floor"],
            of["places"],
        )
        for name, rows in trace.get("lists", {}).items()
        for of in (trace["sources"][name],)
    }
    return lists, Facts(**trace.get("fusion", {}).get("facts", {}))
