"""Several ranked lists into one. Pure functions: the lists come in, a new list goes out.

Every strategy takes `{source: hits, best first}` and gives hits with their fused score in
`rrf_score` and, per source, `signals[source] = {"rank", "score", "weight", "contrib"}`. A record
counts once per source, at its best rank. Order: fused score descending, then id ascending.

The pipeline fuses candidates without making a Hit of each (`fuse`). There a list may name several
passages of one record, and those that win on their own are listed beside its best.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from math import fsum, inf, sqrt
from typing import Any, NamedTuple, get_args

from clew.config import check_weights
from clew.errors import ConfigError, InputError, check_known
from clew.ranking.adaptive import (
    Facts,
    keyword_scale,
    late_scale,
    share_of_vectors,
    signs,
    trust_in_vectors,
    vector_scale,
)
from clew.types import Candidate, FusionName, Hit
from clew.validate import guarded, is_number

Lists = Mapping[str, Sequence[Hit]]
Weights = Mapping[str, float] | None


class Fused(NamedTuple):
    """One record's place in the fused list."""

    id: str
    score: float
    source: str
    """The source that contributed most."""
    signals: dict[str, dict[str, float]]
    reranked: float | None = None
    """What its place is decided by after reranking."""
    passage: Candidate | None = None
    """Where this is a further passage of a record that is listed already: that one."""


ATHENA_WEIGHTS: Mapping[str, float] = {
    "canonical": 2.0,
    "tags": 2.2,
    "graphrag": 2.5,
    "filenames": 2.0,
    "framework_docs": 2.5,
    "sqlite": 1.5,
    "exocortex": 1.5,
    "case_study": 3.0,
    "session": 3.0,
    "user_profile": 2.5,
    "protocol": 2.8,
    "framework": 2.3,
    **dict.fromkeys(
        ("capability", "playbook", "workflow", "entity", "reference", "system_doc"), 1.8
    ),
}
"""What `weighted_rrf` weighs by when it is told nothing; any other source counts 1."""


@guarded
def rrf(ranked_lists: Lists, k: int = 60, weights: Weights = None) -> list[Hit]:
    """Reciprocal rank fusion: Σ weight / (k + rank). Cormack, Clarke, Büttcher, SIGIR 2009."""
    return _hits("rrf", ranked_lists, k, weights)


@guarded
def weighted_rrf(ranked_lists: Lists, k: int = 60, weights: Weights = None) -> list[Hit]:
    """Σ weight · (0.5 + score) / (k + rank): a source's own confidence counts too (Athena)."""
    return _hits("weighted_rrf", ranked_lists, k, ATHENA_WEIGHTS if weights is None else weights)


def convex(ranked_lists: Lists, k: int = 60, weights: Weights = None) -> list[Hit]:
    """Σ weight · min–max-normalised score, weights summing to 1. Bruch et al., TOIS 2023."""
    return _hits("convex", ranked_lists, k, weights)


def dbsf(ranked_lists: Lists, k: int = 60, weights: Weights = None) -> list[Hit]:
    """Do as `convex`, each list scaled by its mean ± 3σ instead: one outlier does not rule."""
    return _hits("dbsf", ranked_lists, k, weights)


def adaptive(
    ranked_lists: Lists, k: int = 60, weights: Weights = None, *, facts: Facts | None = None
) -> list[Hit]:
    """The lists `keyword` and `vectors` weighed by what they look like: see adaptive.py. Any other
    list counts by its scores, where these are shares from 0 to 1, and else as in `convex`."""
    return _hits("adaptive", ranked_lists, k, weights, facts or Facts())


STRATEGIES: tuple[str, ...] = get_args(FusionName)


def fuse(
    strategy: str,
    lists: Mapping[str, Sequence[Candidate]] | Lists,
    *,
    k: int = 60,
    weights: Weights = None,
    head: int | None = None,
    facts: Facts | None = None,
    further: float = 0.0,
    usual: int = 0,
    places: Mapping[str, Mapping[str, int]] | None = None,
) -> list[Fused]:
    """Fuse by a strategy's name: every record of any list, or the best `head`, best first.

    `facts` are what `adaptive` wants to know of the query beside the lists. With `further` above 0
    the other passages of a record that lists name are listed too, each by what the lists give it
    alone: the first of them keeps this part of that, the second this part of this part. Past
    `usual` passages of a record (0: any number) they stand behind everything else. `places` are of
    records that a source cannot judge yet (source → id → where in its list their words would put
    them, from 0): their keyword vote gains what the source gives there.
    """
    check_known("unknown fusion", STRATEGIES, strategy, kind=ConfigError)
    if not is_number(k, 0):
        raise ConfigError(f"k must be a number of at least 0, not {k!r}")
    facts = facts or Facts()
    # sorted: the order of the mapping decides nothing
    split = {source: one_vote(lists[source]) for source in sorted(lists)}
    weight = _weigh(
        strategy, check_weights(weights or {}), {s: hits for s, (hits, _) in split.items()}, facts
    )
    votes: dict[str, list[_Vote]] = defaultdict(list)
    passages: dict[str, dict[Any, tuple[Candidate, list[_Vote]]]] = defaultdict(dict)
    waiting: list[tuple[str, str, float]] = []
    for source, (hits, others) in split.items():
        share = weight[source]
        scores, more = [hit.score for hit in hits], [hit.score for hit in others if further]
        ranks = _ranks(scores, more)
        parts = _contributions(strategy, source, scores, more, k, facts)
        every = hits if not more else (*hits, *others)
        cast = [
            (source, rank, hit.score, share, part * share)
            for hit, rank, part in zip(every, ranks, parts, strict=True)
        ]
        for hit, vote in zip(hits, cast, strict=False):
            votes[hit.id].append(vote)
        if further:
            for hit, vote in zip(every, cast, strict=True):
                if (place := _place(hit)) is not None:
                    passages[hit.id].setdefault(place, (hit, []))[1].append(vote)
        for name, at in (places or {}).get(source, {}).items():
            if at < len(hits):
                waiting.append((name, source, parts[at] * share))
    for name, source, worth in waiting:
        _by_words(votes.get(name, []), source, worth)
    ranked = [(False, -_sum(some), name, 0) for name, some in votes.items()]
    others_of: dict[tuple[str, int], tuple[Candidate, list[_Vote]]] = {}
    first: dict[str, dict[str, Any]] = {}
    for name, of in passages.items():
        if len(of) < 2:
            continue
        strongest = max(votes[name], key=lambda vote: vote[4])[0]
        if strongest not in first:
            first[strongest] = {hit.id: _place(hit) for hit in split[strongest][0]}
        shown = first[strongest][name]
        rest = [passage for place, passage in of.items() if place != shown]
        rest.sort(key=lambda passage: -_sum(passage[1]))
        for number, (hit, some) in enumerate(rest, start=1):
            some = [(*vote[:4], vote[4] * further**number) for vote in some]
            others_of[name, number] = hit, some
            ranked.append((0 < usual <= number, -_sum(some), name, number))
    ranked.sort()
    found: list[Fused] = []
    for _, score, name, number in ranked[:head]:
        passage, some = others_of[name, number] if number else (None, votes[name])
        found.append(_fused(name, -score, some, passage))
    return found


_Vote = tuple[str, int, float, float, float]
"""Source, rank, own score, weight, contribution. A plain tuple: a search has hundreds of them."""


def _weigh(
    strategy: str, given: Mapping[str, float], lists: Mapping[str, Sequence[Any]], facts: Facts
) -> dict[str, float]:
    """What each list counts. Scores are weighed so that the lists that have something to say sum to
    1; by `adaptive` the two legs divide between them what both have together."""
    weight = {source: given.get(source, 1.0) for source in lists}
    if strategy in ("rrf", "weighted_rrf"):
        return weight
    apart = strategy == "adaptive" and bool(lists.get(LATE))  # it has its own share, even if none
    heard = [source for source in weight if lists[source] and not (apart and source == LATE)]
    total = sum(weight[source] for source in heard) or 1.0
    weight = {source: w / total for source, w in weight.items()}
    if strategy == "adaptive" and all(lists.get(leg) for leg in LEGS):
        share = share_of_vectors(signs(lists["keyword"], lists["vectors"], facts), facts)
        weight["keyword"] *= 2 * (1.0 - share)
        weight["vectors"] *= 2 * share
    if apart:
        weight = {source: w * (1.0 - facts.late) for source, w in weight.items()}
        weight[LATE] = facts.late
    return weight


def _contributions(
    strategy: str,
    source: str,
    scores: Sequence[float],
    more: Sequence[float],
    k: float,
    facts: Facts,
) -> list[float]:
    """What the ranks of a list add, and then further passages of the records in it."""
    if strategy == "rrf":
        return [1.0 / (k + rank) for rank in _ranks(scores, more)]
    if strategy == "weighted_rrf":
        ranked = zip((*scores, *more), _ranks(scores, more), strict=True)
        return [(0.5 + score) / (k + rank) for score, rank in ranked]
    if strategy == "dbsf":
        return three_sigma(scores, more)
    if strategy == "adaptive":
        if source == "keyword":
            return keyword_scale(scores, facts, more)
        if source == "vectors":
            return vector_scale(scores, facts, more)
        if source == LATE:
            return late_scale(scores, more)
        if all(0.0 <= score <= 1.0 for score in scores):
            return [*scores, *more]  # shares already: the last of a list is not nothing
    return min_max(scores, more)


def _ranks(scores: Sequence[float], more: Sequence[float]) -> list[int]:
    """`more` stand where they would have come in."""
    behind = [-score for score in scores] if more else []
    return [*range(1, len(scores) + 1), *(bisect_right(behind, -score) + 1 for score in more)]


def _sum(votes: list[_Vote]) -> float:
    """Equal votes in another order are an exact tie: fsum, from three on."""
    if len(votes) == 1:
        return votes[0][4]
    if len(votes) == 2:
        return votes[0][4] + votes[1][4]
    return math.fsum([vote[4] for vote in votes])


def _place(hit: Candidate) -> Any:
    """What tells passages of one record apart; None: all of the record is meant."""
    if hit.chunk is not None:
        return hit.chunk
    return hit.passage.lines if hit.passage is not None else None


def _by_words(votes: list[_Vote], source: str, worth: float) -> None:
    """Let the words of a record count in the place of a source that cannot judge it yet, as far as
    that source does not give it as much by another passage."""
    given = sum(vote[4] for vote in votes if vote[0] == source)
    for i, (name, rank, own, weight, part) in enumerate(votes):
        if name == "keyword" and part > 0 and given < worth:
            more = worth - given
            votes[i] = name, rank, own, weight * (part + more) / part, part + more


def _fused(name: str, score: float, votes: list[_Vote], passage: Candidate | None) -> Fused:
    """Give a record its signals, which most of a list never need: they are made for the head
    alone."""
    best, most = "", -math.inf
    signals: dict[str, dict[str, float]] = {}
    for source, rank, own, weight, part in votes:
        signals[source] = {"rank": rank, "score": own, "weight": weight, "contrib": part}
        if part > most:
            best, most = source, part
    return Fused(name, score, best, signals, passage=passage)


def _hits(
    strategy: str, lists: Lists, k: int, weights: Weights, facts: Facts | None = None
) -> list[Hit]:
    """Fused hits, each as its strongest source has it. Of what is no number there is none."""
    for source, hits in lists.items():
        for hit in hits:
            if not math.isfinite(hit.score):
                raise InputError(
                    f"{source!r} has {hit.id!r} with the score {hit.score}: scores must be finite"
                )
    fused = fuse(strategy, lists, k=k, weights=weights, facts=facts)
    given = {source: {hit.id: hit for hit in reversed(hits)} for source, hits in lists.items()}
    return [given[f.source][f.id].changed(rrf_score=f.score, signals=f.signals) for f in fused]


def one_vote(hits: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any]]:
    """Each record at its best rank, and what else the list has of those records."""
    if len({hit.id for hit in hits}) == len(hits):
        return hits, ()
    seen: dict[str, Any] = {}
    others: list[Any] = []
    for hit in hits:
        if seen.setdefault(hit.id, hit) is not hit:
            others.append(hit)
    return list(seen.values()), others


def keep_places(
    fused: Sequence[Fused], behind: Mapping[str, Sequence[Candidate]], source: str
) -> list[Fused]:
    """The list with what a source wants right behind single hits (`Source.behind`) in its place: it
    counts as much as the hit. What stands before that already stays; no hit that leads on moves."""
    leading = set(behind)
    later = {each.id: each for each in reversed(fused) if each.passage is None}
    placed: dict[str, None] = {}
    found: list[Fused] = []
    for each in fused:
        if each.passage is None and each.id in placed:
            continue
        found.append(each)
        if each.passage is not None or each.id in placed:
            continue
        placed[each.id] = None
        for one in behind.get(each.id, ()):
            if one.id not in placed and one.id not in leading:
                placed[one.id] = None
                own = later.get(one.id) or Fused(one.id, 0.0, source, {})
                vote = {"rank": 1, "score": one.score, "weight": 1.0, "contrib": each.score}
                signals = {**own.signals, source: vote}
                found.append(own._replace(score=each.score, signals=signals, source=own.source))
    return found


# ---------------------------------------------------------------- scales


def min_max(scores: Sequence[float], more: Sequence[float] = ()) -> list[float]:
    """The lowest 0, the highest 1. A single score, or all equal: 1, not 0. `more`, scores between
    these, are put on the scale and have no say in it; so with the others."""
    if not scores:
        return []
    low, high = min(scores), max(scores)
    if high == low:
        return [1.0] * (len(scores) + len(more))
    if high - low == inf:  # halved, they are still apart
        return min_max([score / 2 for score in scores], [score / 2 for score in more])
    return [(score - low) / (high - low) for score in (*scores, *more)]


def three_sigma(scores: Sequence[float], more: Sequence[float] = ()) -> list[float]:
    """Mean − 3σ is 0, mean + 3σ is 1, clamped (distribution-based score fusion)."""
    if not scores:
        return []
    if min(scores) == max(scores):
        return [1.0] * (len(scores) + len(more))
    mean = fsum(scores) / len(scores)
    sigma = sqrt(fsum((score - mean) ** 2 for score in scores) / len(scores))
    if not sigma:  # too close for floating point to tell apart
        return [1.0] * (len(scores) + len(more))
    return [
        min(1.0, max(0.0, (score - mean + 3 * sigma) / (6 * sigma))) for score in (*scores, *more)
    ]


# ---------------------------------------------------------------- the lists of a search

# `search` and `clew tune` both take this path, so that what was tuned is what is searched. A list
# of a part of the store (a collection, some folders) has a first place to give away however far its
# best is from what was asked. So it is heard only on contenders: on what the words and vectors of
# the whole store, fused by themselves, put within reach of their own first.

LEGS = ("keyword", "vectors")
"""Lists that a fusion by scores has scales of its own for."""

LATE = "late_interaction"
"""The list that is read off the head of what the others give."""
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


class WeightedLists(NamedTuple):
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
        """Do what `fuse` says."""
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
        if facts.late:
            said["share_of_late"] = round(facts.late, 4)
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
