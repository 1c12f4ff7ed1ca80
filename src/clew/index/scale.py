"""BM25 as Tantivy computes it, so that passages in memory can be weighed on the scale of those on
disk. Okapi BM25 (Robertson and Zaragoza, 2009) with Lucene's idf and lengths kept in one byte."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import tantivy
from tantivy import Query as TantivyQuery

__all__ = ["K1", "B", "Figures", "Floats", "Scale", "damping", "rarity", "rounded"]

K1 = 1.2
"""Tantivy's: how soon a word's repetition stops to count."""
B = 0.75
"""Tantivy's: how much a passage's length counts."""

Floats = npt.NDArray[np.float32]


def rarity(total: float, holders: float) -> float:
    """Inverse document frequency, as Tantivy has it."""
    return math.log(1 + max(0.5, total - holders + 0.5) / (holders + 0.5))


def _lengths() -> npt.NDArray[np.int64]:
    """The 256 lengths that fit in a byte: exact up to 40, then with three bits after the first."""
    found = list(range(24))
    for code in range(232):
        bits, shift = code & 7, (code >> 3) - 1
        found.append(24 + (bits if shift < 0 else (bits | 8) << shift))
    return np.array(found, np.int64)


_LENGTHS = _lengths()


def rounded(length: int) -> int:
    """A length as it is kept: the next that is no more."""
    return int(_LENGTHS[np.searchsorted(_LENGTHS, length, side="right") - 1])


def damping(lengths: npt.NDArray[np.int64], average: float) -> Floats:
    """What is added to a word's frequency before it is divided by it, per passage."""
    one, share = np.float32(1 - B), np.float32(B)
    relative = lengths.astype(np.float32) / np.float32(max(average, 1e-9))
    return (np.float32(K1) * (one + share * relative)).astype(np.float32)


class Figures(NamedTuple):
    """What a field's scores on disk are computed with."""

    total: int
    """Passages, also those deleted since, as long as Tantivy counts them."""
    average: float
    """Tokens per passage."""


class Scale:
    """The figures of one state of an index. Tantivy tells them only where it explains a score."""

    def __init__(self, searcher: tantivy.Searcher, schema: tantivy.Schema):
        self._searcher, self._schema = searcher, schema
        self._known: dict[str, Figures] = {}

    def of(self, field: str, tokens: Callable[[], Iterable[str]]) -> Figures | None:
        """None where none of these tokens occurs in that field."""
        if (known := self._known.get(field)) is None:
            there = (token for token in tokens() if self._searcher.doc_freq(field, token))
            known = next(filter(None, (self._explained(field, token) for token in there)), None)
            if known is not None:
                self._known[field] = known
        return known

    def _explained(self, field: str, token: str) -> Figures | None:
        query = TantivyQuery.term_query(self._schema, field, token, "freq")
        said: dict[str, float] = {}
        for _, address in self._searcher.search(query, 1, count=False).hits:
            _collect(json.loads(query.explain(self._searcher, address).to_json()), said)
        return Figures(int(said["N"]), said["avgdl"]) if said else None  # all deleted since


def _collect(explanation: dict[str, Any], said: dict[str, float]) -> None:
    said[explanation["description"].partition(",")[0]] = explanation["value"]
    for detail in explanation.get("details", ()):
        _collect(detail, said)
