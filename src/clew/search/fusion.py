"""One list out of several: scores on scales, lists weighed, and what each is heard on.

`search` and `clew tune` both take this path, so that what was tuned is what is searched.

A list of a part of the store (a collection, some folders) has a first place to give away however
far its best is from what was asked. So it is heard only on contenders: on what the words and
vectors of the whole store, fused by themselves, put within reach of their own first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from clew.ranking.adaptive import Facts, share_of_vectors, signs, trust_in_vectors
from clew.ranking.fusion import Fused, fuse, one_vote
from clew.types import Candidate

LEGS = ("keyword", "vectors")
"""Lists that a fusion by scores has scales of its own for."""

WORDS = ("keyword", "all_words")
"""Kinds that score by BM25."""
REACH = 0.97
"""The part of the best score from which on a record is a contender. On k8s_docs in six collections
(docs/benchmarks/athena.md) .90 costs .036 nDCG@10, .95 costs .012, this .006; at 1 a collection's
weight would settle nothing but exact ties."""
VERBATIM = 4
"""Words of a query, all of them in one line, that make the line what was asked."""


class RankedList(NamedTuple):
    """What one source gave, and what the settings say of it."""

    candidates: Sequence[Candidate]
    kind: str
    weight: float = 1.0
    part: bool = False
    """Whether it looks at a part of the store only."""
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

    def fused(
        self, head: int | None = None, *, further: float = 0.0, usual: int = 0
    ) -> list[Fused]:
        """Every record of any list, or the best `head`, best first; further passages of one as
        `fuse` says."""
        return fuse(
            self.strategy,
            self.lists,
            k=self.k,
            weights=self.weights,
            head=head,
            facts=self.facts,
            further=further,
            usual=usual,
            places=self.places,
        )

    def trace(self) -> dict[str, Any]:
        """How the lists are weighed, and why."""
        said: dict[str, Any] = {"strategy": self.strategy, "weights": dict(self.weights)}
        facts, because = self.facts, {}
        if self.strategy in ("rrf", "weighted_rrf"):
            said["k"] = self.k
        elif self.strategy == "adaptive" and all(self.lists.get(leg) for leg in LEGS):
            words, near = (one_vote(self.lists[leg])[0] for leg in LEGS)
            because = signs(words, near, facts)
            said["share_of_vectors"] = round(share_of_vectors(because, facts), 4)
        if facts.known < 1 and (because or self.strategy == "weighted_rrf"):
            because["known_script"] = facts.known
        if because:
            said["because"] = {name: round(value, 4) for name, value in because.items()}
        return said


def weigh_lists(
    lists: Mapping[str, RankedList], facts: Facts, *, strategy: str, k: int = 60
) -> WeightedLists:
    """The votes that each list has, with scores on scales, and what it weighs.

    A strategy by scores has scales of its own for words and vectors. All else is on one from 0 to 1
    that means the same in every source: a cosine is the way from unrelated to identical, a keyword
    score a part of what a passage with all words could reach.
    """
    whole = {name: of for name, of in lists.items() if not of.part}
    heard = _contenders(whole, facts, strategy, k) if len(whole) < len(lists) else frozenset()
    counted: dict[str, Sequence[Candidate]] = {}
    for name, of in lists.items():
        scaled = of.candidates
        if strategy == "weighted_rrf" or (of.kind in LEGS and name not in LEGS):
            scaled = _shares(of, facts)
        silent = of.part and bool(heard)
        counted[name] = [c for c in scaled if c.id in heard] if silent else scaled
    trust = trust_in_vectors(facts) if strategy == "weighted_rrf" else 1.0
    return WeightedLists(
        strategy,
        k,
        counted,
        {n: of.weight * (trust if of.kind == "vectors" else 1.0) for n, of in lists.items()},
        facts,
        {name: of.places for name, of in lists.items() if of.places},
    )


def _contenders(
    lists: Mapping[str, RankedList], facts: Facts, strategy: str, k: int
) -> frozenset[str]:
    """What words and vectors of the whole store put within reach of the first, and lines of
    CANONICAL.md that are what was asked; where none of these finds anything, none."""
    legs = {name: of for name, of in lists.items() if of.kind in (*WORDS, "vectors")}
    if facts.words >= VERBATIM:
        for name, of in lists.items():
            if of.kind == "canonical":
                said = [c for c in of.candidates if c.score == 1.0]
                legs[name] = of._replace(candidates=said)
    fused = weigh_lists(legs, facts, strategy=strategy, k=k).fused()
    return frozenset(each.id for each in fused if each.score >= REACH * fused[0].score)


def _shares(of: RankedList, facts: Facts) -> list[Candidate]:
    """Scores on a scale from 0 to 1."""
    least, most = 0.0, 1.0
    if of.kind == "vectors":
        least = facts.unrelated
    elif of.kind in WORDS and facts.reach > 0:
        most = facts.reach
    return [
        c._replace(score=min(1.0, max(0.0, (c.score - least) / (most - least))))
        for c in of.candidates
    ]
