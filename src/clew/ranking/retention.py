"""How a memory fades, and which one is given up first. Formulas of CONTRACT D, as pure functions.

Retention is Ebbinghaus' curve, R = e^(−t/S): t seconds since the last access, S the time constant,
which grows with importance and with every access.
"""

from __future__ import annotations

import math

from clew.types import Life

DAY = 86_400.0
GROWTH = 1.5
"""What an access multiplies the strength by."""
STRONGEST = 100.0
OFTEN = 100
"""Accesses from which on more of them add nothing."""


def retention(life: Life, *, importance: float, created_at: float, now: float) -> float:
    """From 1, just seen, towards 0. What has no importance at all is forgotten at once."""
    since = max(0.0, now - (created_at if life.accessed_at is None else life.accessed_at))
    constant = DAY * importance * life.strength
    if constant <= 0:
        return 1.0 if since == 0 else 0.0
    return math.exp(-since / constant)


def priority(life: Life, *, importance: float, created_at: float, now: float) -> float:
    """The lowest are evicted first."""
    age = max(0.0, now - created_at) / DAY
    return (
        0.4 * importance
        + 0.3 / (1 + age)
        + 0.2 * min(1.0, life.accesses / OFTEN)
        + 0.1 * retention(life, importance=importance, created_at=created_at, now=now)
    )
