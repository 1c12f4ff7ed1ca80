"""What worlds are made of: items, what becomes of them, and where two accounts differ."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "storage")]

State = dict[str, str]
"""What each item is, in a word that says all of it."""
Changes = dict[str, str | None]
Plan = tuple[Changes, Callable[[], object]]
Operation = Callable[[Any, random.Random, State], Plan]

OWN, OTHER = "own@1", "other@1"
DIM = 16
SEALED = 120
"""Vectors from which inverted lists are built; far fewer than in earnest."""
ASKED = 12
"""Items that are looked for one by one, of those there are."""
SIZE = 150
"""Records of a store, about: what is more is removed."""


def differences(right: dict[str, Any], said: dict[str, Any]) -> list[str]:
    wrong = []
    for what in {**right, **said}:
        one, other = right.get(what), said.get(what)
        if isinstance(one, list) and isinstance(other, list) and len(one) + len(other) > 4:
            missing = [each for each in one if each not in other]
            one, other = missing, [each for each in other if each not in right[what]]
            if _same_scores(one, other):
                continue
            if not one and not other and len(right[what]) < len(said[what]):
                wrong.append(f"{what}: something is there twice")
        if one != other:
            wrong.append(f"{what}: {shorten(other)}, not {shorten(one)}")
    return wrong


def _same_scores(right: list[Any], said: list[Any]) -> bool:
    """Names with scores that differ by rounding alone."""
    try:
        pairs = list(zip(sorted(right), sorted(said), strict=True))
        return bool(pairs) and all(a[0] == b[0] and abs(a[1] - b[1]) < 2e-3 for a, b in pairs)
    except (TypeError, ValueError):
        return False


def shorten(value: object) -> str:
    written = repr(value)
    return written if len(written) < 400 else f"{written[:400]}…"
