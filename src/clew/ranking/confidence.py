"""How much a hit's score may be trusted: HIGH, MED or LOW, by the thresholds of the profile."""

from __future__ import annotations

from typing import Literal

__all__ = ["Confidence", "confidence"]

Confidence = Literal["HIGH", "MED", "LOW"]


def confidence(score: float, *, high: float, med: float) -> Confidence:
    return "HIGH" if score >= high else "MED" if score >= med else "LOW"
