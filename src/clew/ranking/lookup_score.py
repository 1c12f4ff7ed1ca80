"""Words, meaning and credibility in one score: s = normalise(Σ weight · normalised component).

Bruch, Gai and Ingber, TOIS 2023, call such a sum a convex combination. Components and their sum are
scaled so that the least is 0 and the greatest 1; where all are equal, all are 1.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeVar
from urllib.parse import urlsplit

from clew.errors import InputError, check_known
from clew.lookup_settings import COMPONENTS, CREDIBILITY, WEIGHTS, check_shares
from clew.ranking.adaptive import K1, B, rarity
from clew.ranking.fusion import min_max
from clew.text import analyser
from clew.types import Vector
from clew.validate import unit

DIGITS = 6
"""To which scores are told apart; then the id decides. Of a product of float32 rows the rest is
noise, which scaling would make a ranking of."""
_NOISE = 12
"""Digits beyond which sums of floats differ by the order of adding, which scaling would stretch."""

T = TypeVar("T")


class PoolScores(NamedTuple):
    """What a lookup has found, scored."""

    by: str
    """What decides: hybrid, or one component."""
    weights: Mapping[str, float]
    scores: Sequence[float]
    """One from 0 to 1 for each text."""
    signals: Sequence[Mapping[str, Mapping[str, float]]]
    """How each text comes by its score, component by component."""


def score_pool(
    query: str,
    texts: Sequence[str],
    addresses: Sequence[str | None],
    near: Sequence[float | None] | None,
    *,
    ranking: str = "hybrid",
    weights: Mapping[str, float] = WEIGHTS,
    table: Mapping[str, float] = CREDIBILITY,
    rarities: Sequence[float] | None = None,
) -> PoolScores:
    """Score all texts by every component, and by `ranking`. `near` is what `semantic` gives for
    them, `table` the credibility of domains."""
    raw = {"bm25": bm25(query, texts, rarities=rarities)}
    known = [score for score in near or () if score is not None]
    if near and known:  # what has no vector gains nothing by it, and nothing is made up for it
        raw["semantic"] = [min(known) if score is None else score for score in near]
    raw["credibility"] = [credibility(address, table=table) for address in addresses]
    # where meaning is asked for and there is none, words decide
    by = ranking if ranking in ("hybrid", *raw) else "bm25"
    counted, weights = (raw, weights) if by == "hybrid" else ({by: raw[by]}, {by: 1.0})
    shares, scores = effective(counted, weights), hybrid(counted, weights=weights)
    scaled = {name: normalised(values) for name, values in raw.items()}
    signals: list[dict[str, dict[str, float]]] = []
    for i, score in enumerate(scores):
        of: dict[str, dict[str, float]] = {
            name: {
                "score": raw[name][i],
                "normalised": scaled[name][i],
                "weight": shares.get(name, 0.0),
                "contrib": shares.get(name, 0.0) * scaled[name][i],
            }
            for name in raw
        }
        signals.append({**of, "hybrid": {"score": score}} if by == "hybrid" else of)
    return PoolScores(by, shares, scores, signals)


def hybrid(
    components: Mapping[str, Sequence[float]], *, weights: Mapping[str, float] = WEIGHTS
) -> list[float]:
    """One score from 0 to 1 for each text. `components` has a list of scores for each component
    that takes part, all of one length, on whatever scale."""
    shares = effective(components, weights)
    lengths = {len(scores) for scores in components.values()}
    if len(lengths) > 1:
        raise InputError("components are of different lengths: give each text a score in every one")
    scaled = {name: normalised(scores) for name, scores in components.items()}
    count = lengths.pop() if lengths else 0
    sums = [
        math.fsum(shares[name] * scores[i] for name, scores in scaled.items()) for i in range(count)
    ]
    return normalised(sums)


def effective(
    components: Mapping[str, Sequence[float]], weights: Mapping[str, float]
) -> dict[str, float]:
    """What each component that takes part counts, in sum 1."""
    checked = check_shares(weights)
    check_known("no component", COMPONENTS, *components)
    total = math.fsum(checked[name] for name in components)
    if not total:
        return {name: 1 / len(components) for name in components}
    return {name: checked[name] / total for name in components}


def normalised(scores: Sequence[float]) -> list[float]:
    """Least 0, greatest 1; differences that are noise are none."""
    if not all(math.isfinite(score) for score in scores):
        raise InputError("a score is not a finite number: leave that text out")
    return min_max([round(score, _NOISE) for score in scores])


def ordered(items: Sequence[T], scores: Sequence[float], ids: Sequence[str]) -> list[T]:
    """Best first; what scores the same to six digits, by id."""
    keys = sorted(range(len(items)), key=lambda i: (-round(scores[i], DIGITS), ids[i]))
    return [items[i] for i in keys]


# ---------------------------------------------------------------- words


def bm25(
    query: str, texts: Sequence[str], *, rarities: Sequence[float] | None = None
) -> list[float]:
    """How much each text has of the query's words; 0: none of them.

    How rare a word is, is counted in the texts themselves. Those were found for having the words,
    which makes the rarest look common: who knows better gives `rarities`, one for each of
    `analyser.words(query)`.
    """
    groups = list(dict.fromkeys(analyser.words(query)))
    if rarities is not None and len(rarities) != len(groups):
        raise InputError(f"{len(rarities)} rarities for {len(groups)} words: give one for each")
    counts = [Counter(analyser.tokens(text)) for text in texts]
    lengths = [counted.total() for counted in counts]
    mean = sum(lengths) / len(lengths) if lengths else 0.0
    often = [[_often(group, counted) for group in groups] for counted in counts]
    if rarities is None:
        rarities = [
            rarity(len(texts), sum(row[i] > 0 for row in often)) for i in range(len(groups))
        ]
    return [
        math.fsum(
            rare * times * (K1 + 1) / (times + K1 * (1 - B + B * length / mean))
            for rare, times in zip(rarities, row, strict=True)
            if times
        )
        for row, length in zip(often, lengths, strict=True)
    ]


def _often(group: tuple[str, ...], counted: Counter[str]) -> int:
    """A compound counts as its whole, or as often as the rarest of its parts."""
    whole, *parts = group
    return counted[whole] or (min(counted[part] for part in parts) if parts else 0)


# ---------------------------------------------------------------- meaning


def semantic(
    query: Vector | Sequence[float] | None,
    vectors: Sequence[Vector | Sequence[float] | None],
    *,
    similarities: Sequence[float | None] | None = None,
) -> list[float | None]:
    """(cos + 1) / 2 of each; averaged with the store's own similarity where there is one.

    A store's similarity is a cosine too, of the best passage of the record rather than of the one
    that is shown, and is put on the same scale. A text of which neither is known has no score.
    """
    known = [None] * len(vectors) if similarities is None else list(similarities)
    if len(known) != len(vectors):
        raise InputError(f"{len(known)} similarities for {len(vectors)} texts: give one for each")
    found: list[float | None] = []
    for own, given in zip(_cosines(query, vectors), known, strict=True):
        parts = [share(cosine) for cosine in (own, given) if cosine is not None]
        found.append(round(sum(parts) / len(parts), DIGITS) if parts else None)
    return found


def share(cosine: float) -> float:
    """Bring a cosine from -1…1 to 0…1."""
    return min(1.0, max(0.0, (cosine + 1) / 2))


def _cosines(
    query: Vector | Sequence[float] | None, vectors: Sequence[Vector | Sequence[float] | None]
) -> list[float | None]:
    """None where there is no vector, or one of another dimension."""
    if query is None or not any(vector is not None for vector in vectors):
        return [None] * len(vectors)
    import numpy as np

    asked = unit(np.asarray(query, dtype=np.float32).reshape(1, -1))[0]
    cosines: list[float | None] = []
    for vector in vectors:
        row = np.empty(0) if vector is None else np.asarray(vector, dtype=np.float32)
        fits = row.shape == asked.shape
        cosines.append(float(unit(row.reshape(1, -1))[0] @ asked) if fits else None)
    return cosines


# ---------------------------------------------------------------- credibility

UNKNOWN = 0.5


def credibility(source: str | None, *, table: Mapping[str, float] = CREDIBILITY) -> float:
    """The worth of an address or a host. What is from nowhere in particular is neither good nor
    bad."""
    labels = domain(source or "").split(".")
    names = (".".join(labels[i:]) for i in range(len(labels)))  # the longest first
    return next((table[name] for name in names if name in table), UNKNOWN)


def domain(source: str) -> str:
    """The host of an address, in lower case; empty where it has none."""
    source = source.strip().replace("\\", "/")  # as browsers read it
    if "://" not in source:
        if "@" in source:  # a letter box
            return ""
        source = f"//{source.removeprefix('//')}"
    try:
        host = urlsplit(source).hostname
    except ValueError:  # such as an open bracket
        return ""
    return (host or "").rstrip(".")
