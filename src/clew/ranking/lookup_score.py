"""Words, meaning and credibility in one score: s = normalise(Σ weight · normalised component).

Bruch, Gai and Ingber, TOIS 2023, call such a sum a convex combination. Components and their sum are
scaled so that the least is 0 and the greatest 1; where all are equal, all are 1.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar
from urllib.parse import urlsplit

from clew.errors import ConfigError, InputError, nearest
from clew.ranking.fusion import min_max
from clew.text import analyser
from clew.types import Vector

COMPONENTS = ("bm25", "semantic", "credibility")
WEIGHTS: Mapping[str, float] = {"bm25": 0.3, "semantic": 0.5, "credibility": 0.2}
TOLERANCE = 0.001
"""By which the sum of the weights may miss 1."""
DIGITS = 6
"""To which scores are told apart; then the id decides."""
_NOISE = 12
"""Digits beyond which sums of floats differ by the order of adding, which scaling would stretch."""

T = TypeVar("T")


def check_shares(given: Mapping[str, Any]) -> dict[str, float]:
    """Weights of the components, none left out. They sum to 1, or are all 0: then each component
    that takes part counts the same."""
    if not isinstance(given, Mapping):
        raise ConfigError(f"weights are a table such as {dict(WEIGHTS)}, not {given!r:.100}")
    for name, value in given.items():
        if name not in COMPONENTS:
            raise ConfigError(f"weights: no component {name!r}: {nearest(str(name), COMPONENTS)}")
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not number or not 0 <= value < math.inf:
            raise ConfigError(f"the weight of {name} must be a number of at least 0, not {value!r}")
    shares = {name: float(given.get(name, 0.0)) for name in COMPONENTS}
    total = math.fsum(shares.values())
    if total and round(abs(total - 1), 9) > TOLERANCE:
        raise ConfigError(f"the weights sum to {total:g}: let them sum to 1")
    return shares


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
    for name in components:
        if name not in COMPONENTS:
            raise InputError(f"no component {name!r}: {nearest(str(name), COMPONENTS)}")
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

K1, B = 1.2, 0.75
"""How soon a repetition stops to count, and how much a length does: as Tantivy has them."""


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


def rarity(total: float, holders: float) -> float:
    """Inverse document frequency, as Lucene and Tantivy have it."""
    return math.log(1 + max(0.5, total - holders + 0.5) / (holders + 0.5))


# ---------------------------------------------------------------- meaning

DIGITS = 6
"""Of a product of float32 rows the rest is noise, which scaling would make a ranking of."""


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
    """From -1…1 to 0…1."""
    return min(1.0, max(0.0, (cosine + 1) / 2))


def _cosines(
    query: Vector | Sequence[float] | None, vectors: Sequence[Vector | Sequence[float] | None]
) -> list[float | None]:
    """None where there is no vector, or one of another dimension."""
    if query is None or not any(vector is not None for vector in vectors):
        return [None] * len(vectors)
    import numpy as np

    from clew.models.vectors import unit

    asked = unit(np.asarray(query, dtype=np.float32).reshape(1, -1))[0]
    cosines: list[float | None] = []
    for vector in vectors:
        row = np.empty(0) if vector is None else np.asarray(vector, dtype=np.float32)
        fits = row.shape == asked.shape
        cosines.append(float(unit(row.reshape(1, -1))[0] @ asked) if fits else None)
    return cosines


# ---------------------------------------------------------------- credibility

CREDIBILITY: Mapping[str, float] = {
    "nature.com": 0.95,
    "science.org": 0.95,
    "nih.gov": 0.95,
    "wikipedia.org": 0.9,
    "ieee.org": 0.9,
    "acm.org": 0.9,
    "github.com": 0.85,
    "arxiv.org": 0.85,
    "gov": 0.85,
    "stackoverflow.com": 0.8,
    "edu": 0.8,
    "medium.com": 0.7,
}
"""A domain stands for all below it; of several that fit, the longest counts."""
UNKNOWN = 0.5


def credibility(source: str | None, *, table: Mapping[str, float] = CREDIBILITY) -> float:
    """Of an address or a host name. What is from nowhere in particular is neither good nor bad."""
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


def check_credibility(given: Mapping[str, Any]) -> dict[str, float]:
    """The table with what was given over it. A leading dot says nothing: `.gov` is `gov`."""
    table = dict(CREDIBILITY)
    for name, value in given.items():
        if not isinstance(name, str):
            raise ConfigError(f"credibility is by domain, such as 'example.org', not {name!r}")
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not number or not 0 <= value <= 1:
            raise ConfigError(
                f"credibility of {name!r}: expected a number from 0 to 1, not {value!r}"
            )
        table[name.lower().strip(".")] = float(value)
    return table
