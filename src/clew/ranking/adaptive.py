"""How much the vectors may say, query by query.

Collections want different mixes: code questions nine tenths of vectors, a folder of documentation
half. The scales below bring these closer together; on them the share follows from what is known
when the query is asked. Over the training sets that is no better than the one best fixed share; on
collections unlike them, which is what it is for, it is (docs/benchmarks/fusion.md):

    share = σ(BIAS + Σ coefficient · sign)

    confidence  how near the nearest passage is, from unrelated (0) to identical (1)
    contrast    how far the best keyword score stands above the tenth
    coverage    the best keyword score as a part of what a passage with all words could reach
    agreement   how many of the first ten both legs name

Late interaction (search/token_match.py) is a third sign, read off the head of what these two give.
Its share is a logistic function, too, and the others divide the rest as they would without it:

    confidence, coverage  as above
    lead    how far its best stands above its tenth
    accord  how many of its first ten are among the first ten that it was read from
    length  of its first ten passages: turns of a conversation are short, abstracts long
    code    how much of these is brackets and the like: programs are not what the model reads well

A query that is nothing but an identifier (TX-4471-B, getUserName), which some passage has, is left
to the words: no model knows what it means.

Where passages are longer than what the model reads, which Clew's own are not, the vectors' share is
cut to the part they know of; and while vectors are being made, to the part that has one.

Both legs are put on scales that do not depend on how deep their lists are: the first `DEPTH` ranks
decide, and a keyword list that ends before is followed by zeros, since nothing else matches.
Keyword scores are counted in standard deviations above the last; cosines are taken as they are, in
parts of what lies between unrelated and identical, so that a leg whose scores hardly differ says
little.

`python benchmarks/fit_fusion.py` finds the coefficients on the training sets and reports, for each
of them, what a fit without it gives there. Four choices had a test set in sight, so its figures
flatter them: `FOREIGN` was chosen with xquad_ar at hand (the training set in another script,
cmrc2018_zh, is indifferent to it); the rule behind `Facts.read` came from looking at k8s_docs; and
weighing words within a scope (index/bm25.py) was tried on LoCoMo directly, though no
constant was tuned there. So had `LATE_FADES`: benchmarks/fit_late.py says how.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

DEPTH = 50
"""Ranks of a list that decide its scale."""
BIAS = 1.96
COEFFICIENTS: Mapping[str, float] = {
    "confidence": 0.72,
    "contrast": -1.63,
    "coverage": -0.56,
    "agreement": -0.79,
}
FOREIGN = 0.02
"""The share of vectors where the model does not know the query's script, or the words are enough:
it orders what they leave open."""
WRITTEN = 0.4
"""The coverage from which on a passage has an identifier itself, and not one of its parts (all of
the hundred in docs/benchmarks/late.md do, by .45 or more)."""
SPREAD = 4.0
"""Standard deviations that count as one: a strong match stands so far above the fiftieth."""
WORTH = 3.0
"""What a passage that covers the whole query counts at most in a short list, in the same unit."""
STEP = 2.15
"""What the whole way from unrelated to identical counts, against keyword scores in that unit."""

K1, B = 1.2, 0.75
"""Of BM25: how soon a repetition stops to count, and how much a length does, as Tantivy has
them."""
TITLE = 0.2
"""What a word in the title adds to its worth in the text (which has the title in it). Chosen
between 0, .2 and .5: CACM and CISI gain by it, SciFact's training queries lose a little."""
LENGTHS = (*range(32), *(24 + ((8 + code % 8) << (code // 8 - 1)) for code in range(8, 232)))
"""Those that Tantivy keeps, in one byte: exact up to 40, then with three bits after the first."""

LATE_STEP = 0.07
"""What late interaction counts as one: so much more of each token of the query."""
LATE_BIAS = -0.50  # these six by benchmarks/fit_late.py: docs/benchmarks/late_fit.md
LATE_COEFFICIENTS: Mapping[str, float] = {
    "confidence": -3.85,
    "coverage": 1.68,
    "lead": 2.47,
    "accord": 2.93,
    "length": -0.51,
}
LATE_FADES: Mapping[str, tuple[float, float]] = {"coverage": (0.8, 1.2), "code": (0.012, 0.036)}
"""Between these it falls silent. Where a passage has all the words of a query, as with titles,
codes and names, these have said it: on the training sets late interaction gains below .9, and loses
from there to 1.2; codes with digits, of which they have none, are why it ends at 0. And where
passages are programs: cosqa's have .04 to .07 of `CODE`, and late interaction loses there however
small its share; prose has .01 at most."""
CODE = re.compile(r"[(){}\[\]=;_<>]")
READ = 600
"""Characters of a passage that tell whether it is code."""
USUAL = 512
"""Characters of a passage of the length 0; twice as many are 1."""


class Facts(NamedTuple):
    """What fusion is told about a query beside its lists."""

    reach: float = 0.0
    """The most a passage with all words could score; 0: unknown."""
    unrelated: float = 0.5
    """The cosine of texts that have nothing to do with each other, by this model."""
    known: float = 1.0
    """The share of the query's letters that are of a script the model knows."""
    read: float = 1.0
    """The part of a passage that the model reads, on average: it knows nothing of the rest."""
    embedded: float = 1.0
    """The part of the passages that have a vector by now."""
    words: int = 0
    """How many the query has, without stopwords."""
    identifier: bool = False
    """Whether the query is nothing but identifiers."""
    gauged: bool = True
    """Whether `unrelated` is known of this model, and no guess."""
    late: float = 0.0
    """The share of late interaction."""


@runtime_checkable
class KnowsFacts(Protocol):
    """The context of a search, which can say them."""

    def facts(self) -> Facts: ...


def nearness(cosine: float, unrelated: float) -> float:
    """How far a cosine is on the way from that of unrelated texts (0) to identical ones (1)."""
    return (cosine - unrelated) / (1.0 - unrelated)


def rarity(total: float, holders: float) -> float:
    """Inverse document frequency, as Lucene and Tantivy have it."""
    return math.log(1 + max(0.5, total - holders + 0.5) / (holders + 0.5))


def keyword_scale(scores: Sequence[float], facts: Facts, more: Sequence[float] = ()) -> list[float]:
    """Standard deviations above the last of the first `DEPTH`. `more` are put on the scale, too,
    and have no say in it."""
    head = [*scores[:DEPTH], *[0.0] * (DEPTH - len(scores))]
    mean = math.fsum(head) / DEPTH
    sigma = math.sqrt(math.fsum((score - mean) ** 2 for score in head) / DEPTH)
    if not sigma:
        return [1.0] * (len(scores) + len(more))
    unit = 1.0 / (SPREAD * sigma)
    if len(scores) < DEPTH and facts.reach > 0:
        # In a small store one chance word stands out by itself: its worth is what it covers.
        unit = min(unit, WORTH / facts.reach)
    return _above((*scores, *more), head[-1], unit)


def vector_scale(scores: Sequence[float], facts: Facts, more: Sequence[float] = ()) -> list[float]:
    """Cosines above the last of the first `DEPTH`, in parts of the way to identical. A shorter list
    has everything in it, and its last need not be far: there, unrelated is nothing at most."""
    last = scores[DEPTH - 1] if len(scores) >= DEPTH else min([*scores[-1:], facts.unrelated])
    return _above((*scores, *more), last, STEP / (1.0 - facts.unrelated))


def _above(scores: Sequence[float], last: float, unit: float) -> list[float]:
    """Add a trifle: being listed is worth something, and a list past `DEPTH` keeps its order."""
    return [
        ((score - last) * unit if score > last else 0.0) + 1e-6 * (1.0 + score / (1.0 + abs(score)))
        for score in scores
    ]


def signs(keyword: Sequence[Any], vectors: Sequence[Any], facts: Facts) -> dict[str, float]:
    """What the lists (candidates or hits, best first) tell about each leg."""
    best = keyword[0].score if keyword else 0.0
    tenth = keyword[9].score if len(keyword) > 9 else 0.0
    nearest = vectors[0].score if vectors else 0.0
    shared = {hit.id for hit in keyword[:10]} & {hit.id for hit in vectors[:10]}
    return {
        "confidence": nearness(nearest, facts.unrelated),
        "contrast": (best - tenth) / best if best > 0 else 0.0,
        "coverage": min(2.0, best / facts.reach) if facts.reach > 0 else 0.5,
        "agreement": len(shared) / 10,
    }


def share_of_vectors(seen: Mapping[str, float], facts: Facts) -> float:
    """Between 0 and 1, from these signs."""
    if facts.identifier and seen["coverage"] >= WRITTEN:
        return FOREIGN
    logit = BIAS + math.fsum(COEFFICIENTS[name] * seen[name] for name in COEFFICIENTS)
    share = facts.read * facts.embedded / (1.0 + math.exp(-logit))
    return facts.known * share + (1.0 - facts.known) * FOREIGN


def late_scale(scores: Sequence[float], more: Sequence[float] = ()) -> list[float]:
    """Mean products above that of the fiftieth, in units of `LATE_STEP`."""
    last = scores[min(DEPTH, len(scores)) - 1] if scores else 0.0
    return _above((*scores, *more), last, 1.0 / LATE_STEP)


def late_signs(
    late: Sequence[Any],
    head: Sequence[str],
    lists: Mapping[str, Any],
    facts: Facts,
    texts: Sequence[str],
) -> dict[str, float]:
    """What the list by tokens tells, beside the fused one that it was read from, the legs', and the
    texts of its first passages."""
    best: dict[str, float] = {}
    for each in late:
        best.setdefault(each.id, each.score)
    scores = list(best.values()) or [0.0]
    legs = [lists[leg].candidates if leg in lists else () for leg in ("keyword", "vectors")]
    seen = signs(legs[0], legs[1], facts)
    count = max(1, len(texts))
    code = math.fsum(len(CODE.findall(t[:READ])) / max(1, len(t[:READ])) for t in texts)
    return {
        "confidence": seen["confidence"],
        "coverage": seen["coverage"],
        "lead": (scores[0] - scores[min(9, len(scores) - 1)]) / 0.1,
        "accord": len({*list(best)[:10]} & {*head[:10]}) / 10,
        "length": math.log2(max(1, sum(map(len, texts))) / count / USUAL),
        "code": code / count,
    }


def share_of_late(seen: Mapping[str, float], facts: Facts) -> float:
    """Between 0 and 1, from these signs."""
    if facts.identifier:
        return 0.0
    logit = LATE_BIAS + math.fsum(c * seen[name] for name, c in LATE_COEFFICIENTS.items())
    return late_fade(seen) / (1.0 + math.exp(-logit))


def late_fade(seen: Mapping[str, float]) -> float:
    """The part of its share that late interaction keeps where words have said it, or in code."""
    left = [(last - seen[of]) / (last - first) for of, (first, last) in LATE_FADES.items()]
    return math.prod(min(1.0, max(0.0, part)) for part in left)


def trust_in_vectors(facts: Facts) -> float:
    """The part of their weight that vectors keep in a fusion that weighs no query by itself: all of
    it once all is embedded, and next to nothing where the model does not know the query's script.
    """
    return facts.known * facts.embedded + (1.0 - facts.known) * FOREIGN
