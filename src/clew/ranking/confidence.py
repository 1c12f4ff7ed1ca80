"""How far a hit may be trusted: its chance of being relevant, and by that HIGH, MED or LOW.

A fused score says which hit of a query is better, not whether any is good: the best hit of a
question that nothing answers looks like a true one. So the chance is judged by the passage itself,
and by how far it stands above the rest:

    chance = σ(bias + coverage + nearness + both + lead), each times its coefficient

    coverage  the share of the query's words that it has: in its text, title, heading, tags or file
              name
    nearness  its cosine, from unrelated (0) to identical (1)
    both      their product: one may stand for the other, so that both say less than their sum
    lead      how far it stands above the third best other in the leg where that is less: the
              cosine in the same unit, the keyword score as a part of what a passage with all words
              could reach

The first three are the same in every store and beside any other hit. A lead only adds, so that good
answers do not cancel each other; equal scores count once, so that copies do not either. Where a
passage has no vector, the words decide alone; where the query has no words, the vectors do; in a
script that the model does not know, the words do as far as it is one; so they do for a code with
digits (TX-4471-B) that is written in the passage beside all other words of the query, which is as
good as any lead. The cross-encoder has no part in it: reranking changes the order and no badge.

Where late interaction has read the passage beside words and vector, what it found is one sign more
on top of that:

    chance = σ(bias + before + match), each but the bias times its coefficient

    before  the logit of the chance as it is without
    match   the mean, over the query's tokens, of the best product with one of the passage's

`python benchmarks/fit_confidence.py` finds the coefficients and the thresholds on the training
sets, where each query is asked with its relevant documents and without, and others that nothing
there is about. How often a badge is right on other sets is in docs/benchmarks/confidence.md; the
coefficients of late interaction are by `python benchmarks/fit_late_confidence.py`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from clew.ranking.adaptive import Facts, nearness
from clew.text.analyser import Matcher
from clew.types import Terms

Confidence = Literal["HIGH", "MED", "LOW"]


class Coefficients(NamedTuple):
    """What each sign counts."""

    bias: float
    coverage: float = 0.0
    nearness: float = 0.0
    both: float = 0.0
    lead: float = 0.0


LEGS: Mapping[str, Coefficients] = {
    "both": Coefficients(bias=-4.44, coverage=2.85, nearness=6.40, both=-3.40, lead=7.15),
    "words": Coefficients(bias=-4.25, coverage=4.27, lead=5.33),
    "vectors": Coefficients(bias=-3.95, nearness=6.11, lead=5.31),
}
"""By what the chance is judged by. Words alone are steeper than their fit (-3.26 and 3.28), with
the same chance for a passage that has all of them: so MED begins at a bit more than a quarter of
them, and not at any chance word."""


class Evidence(NamedTuple):
    """What counts where late interaction has read a passage."""

    bias: float
    before: float
    match: float


TOKENS = Evidence(bias=0.0, before=1.0, match=0.0)
"""It says nothing so far. The fit (-34.25, 0.67, 36.69) is less calibrated, on sets left out, than
the chance without it (docs/benchmarks/late_confidence.md)."""
NOTHING = -7.0
"""The logit of a passage with none of the query's words, where the vectors cannot tell."""
OTHERS = 3
"""A lead is over so many others: two more answers that are as good take nothing from it."""
MOST_COVERED = 1.5
"""A keyword score above that part of what is reached at most counts as this: parts of compounds
count beside the whole."""


class Chance(NamedTuple):
    """That a hit is relevant, from 0 to 1, and what that follows from."""

    value: float
    by: str
    """One of LEGS."""
    coverage: float | None = None
    nearness: float | None = None
    lead: float = 0.0
    match: float | None = None
    """By late interaction; None: it has not read it, or words or vectors judge alone."""


def confidence(score: float, *, high: float, med: float) -> Confidence:
    return "HIGH" if score >= high else "MED" if score >= med else "LOW"


class Judge:
    """Says of each hit of one query how likely it is to be relevant."""

    def __init__(
        self,
        terms: Terms,
        facts: Facts,
        find: Matcher,
        *,
        keyword: Mapping[str, float] | None = None,
        cosines: Mapping[str, float] | None = None,
    ):
        """`find` looks for the query's words. The scores are those of the legs' lists, by id; None:
        a leg was not asked."""
        self._words, self._facts, self._find = terms.words, facts, find
        reach = facts.reach or math.inf
        covers = {name: min(MOST_COVERED, of / reach) for name, of in (keyword or {}).items()}
        self.near = {name: self._near(of) for name, of in (cosines or {}).items()}
        self._leads = {}
        if keyword is not None:
            self._leads["words"] = _leads(covers)
        if cosines is not None:
            self._leads["vectors"] = _leads(self.near)

    def __call__(
        self,
        id: str,
        text: str,
        labels: str,
        cosine: float | None = None,
        match: float | None = None,
    ) -> Chance:
        """Of a passage: its text, and what stands above and beside it. `cosine` is for one that no
        list has, `match` is late interaction's score of it; None: there is none."""
        covered = near = None
        has: set[str] = set()
        if self._words:
            covered = coverage(self._words, has := self._find.tokens(text))
            if covered < 1:
                covered = coverage(self._words, has := has | self._find.tokens(labels))
        if id in self.near:
            near = self.near[id]
        elif cosine is not None:
            near = self._near(cosine)
        leads = {leg: of.get(id, 0.0) for leg, of in self._leads.items()}
        lead, known = min(leads.values(), default=0.0), self._facts.known
        if covered == 1 and any(_is_code(word[0]) and word[0] in has for word in self._words):
            near, leads["words"] = None, 1.0  # no model knows what TX-4471-B means
        by = "words" if near is None else "vectors" if covered is None else "both"
        alone = (
            weigh_signs(LEGS["words"], covered, 0.0, leads.get("words", 0.0))
            if covered
            else NOTHING
        )
        logit = alone
        if by != "words":
            logit = weigh_signs(LEGS[by], covered or 0.0, near or 0.0, leads.get(by, lead))
        if by == "both" and known < 1:
            logit = known * logit + (1.0 - known) * alone
            by = "both" if known >= 0.5 else "words"
        if by != "both":
            match = None  # it was fitted beside words and vectors only
        elif match is not None:
            logit = TOKENS.bias + TOKENS.before * logit + TOKENS.match * match
        chance = round(1.0 / (1.0 + math.exp(-logit)), 4)
        return Chance(chance, by, covered, near, leads.get(by, lead), match)

    def is_below(self, chance: Chance, floor: float) -> bool:
        """Whether it is less than that, as far as can be said: not where what the model's cosines
        mean is a guess."""
        return chance.value < floor and (self._facts.gauged or chance.nearness is None)

    def _near(self, cosine: float) -> float:
        return nearness(cosine, self._facts.unrelated)


def coverage(words: Sequence[tuple[str, ...]], has: set[str]) -> float:
    """The share of these words that are among the tokens; a compound is there as its whole, or as
    far as its parts are. Rarer words do not count more: how rare one is depends on the store."""
    there = [
        1.0 if group[0] in has else len(has.intersection(group[1:])) / max(1, len(group) - 1)
        for group in words
        if not has.isdisjoint(group)
    ]
    return math.fsum(there) / len(words)


def _is_code(word: str) -> bool:
    """Letters and digits with dashes between them: TX-4471-B. Not k8s.io/node, which is a name."""
    parts = word.replace("_", "-").split("-")
    letters, digits = (any(map(kind, word)) for kind in (str.isalpha, str.isdigit))
    return len(parts) > 1 and all(map(str.isalnum, parts)) and letters and digits


def _leads(scores: Mapping[str, float]) -> dict[str, float]:
    """How far each stands above the last of the best others; equal ones count once, and where there
    are fewer, 0 is what they could have at most."""
    best: list[float] = []
    first: list[tuple[str, float]] = []
    for name, score in sorted(scores.items(), key=lambda each: -each[1]):
        own = round(score, 4)
        if not best or own != best[-1]:
            if len(best) > OTHERS:
                break  # nobody further down stands above these
            best.append(own)
        first.append((name, own))
    last = {own: ([*(s for s in best if s != own), *[0.0] * OTHERS])[OTHERS - 1] for own in best}
    return {name: max(0.0, own - max(0.0, last[own])) for name, own in first}


def weigh_signs(counts: Coefficients, covered: float, near: float, lead: float) -> float:
    """The logit of a chance."""
    words = max(0.0, counts.coverage + counts.both * near)  # no word speaks against a passage
    return counts.bias + counts.nearness * near + words * covered + counts.lead * lead
