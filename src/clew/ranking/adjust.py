"""Bounded adjustments to a fused list: newer, more important, less of the same. All opt-in.

An adjustment adds at most its share of the best score, so nothing passes what is better by more
than that; whatever it changes, the list is sorted again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from clew.ranking.fusion import Fused
from clew.types import Adjust, Life, Record, Vector

DAY = 86_400.0
MOST_VARIED = 2_000
"""Hits among which variety chooses, which takes the square of their number; the others stay behind
them as they are."""


def adjusted(
    fused: Sequence[Fused], records: Mapping[str, Record], adjust: Adjust, *, now: float
) -> list[Fused]:
    """Add what recency and importance do, and sort again. Ages count from `created_at`."""
    top = max((hit.score for hit in fused), default=0.0)
    made: list[Fused] = []
    for hit in fused:
        record = records.get(hit.id)
        if record is None:  # deleted since it was ranked
            made.append(hit)
            continue
        age = max(0.0, now - (now if record.created_at is None else record.created_at))
        extra = {
            "recency": top * adjust.recency * 0.5 ** (age / DAY / adjust.half_life_days),
            "importance": top * adjust.importance * record.importance,
        }
        signals = {
            **hit.signals,
            **{name: {"contrib": share} for name, share in extra.items() if share},
        }
        made.append(hit._replace(score=hit.score + sum(extra.values()), signals=signals))
    return sorted(made, key=lambda hit: (-hit.score, hit.id))


def diversified(
    fused: Sequence[Fused],
    vectors: Mapping[str, Vector],
    *,
    diversity: float,
    limit: int,
    unrelated: float = 0.0,
) -> list[Fused]:
    """The best, then each time the one that is good and unlike those before it: maximal marginal
    relevance (Carbonell and Goldstein, SIGIR 1998). What has no vector is like nothing.

    Likeness is the cosine; where that of what is `unrelated` is known, it is 0 there: many models
    put all texts into a narrow cone, in which the plain cosine of a paraphrase hardly differs from
    that of anything else. From there to 1 it rises by 3x² − 2x³: a paraphrase is as good as a copy,
    and what merely is of the same topic hardly counts.
    """
    import numpy as np

    head = sorted(fused[:MOST_VARIED], key=lambda hit: (-hit.score, hit.id))
    held = [i for i, hit in enumerate(head) if hit.id in vectors]
    if not held:
        return [*head, *fused[MOST_VARIED:]]
    rows = np.zeros((len(head), len(vectors[head[held[0]].id])), np.float32)
    rows[held] = [vectors[head[i].id] for i in held]
    worth = (1.0 - diversity) * np.array([hit.score for hit in head]) / (head[0].score or 1.0)
    nearest = np.zeros(len(head))
    chosen: list[int] = []
    while len(chosen) < min(limit, len(head)):
        best = int(np.argmax(worth - diversity * nearest))  # of equals the first
        chosen.append(best)
        worth[best] = -np.inf
        like = (rows @ rows[best]).astype(np.float64)
        if unrelated:
            like = np.clip((like - unrelated) / (1 - unrelated), 0.0, 1.0)
            like *= like * (3 - 2 * like)
        np.maximum(nearest, like, out=nearest)
    left = set(range(len(head))).difference(chosen)
    return [head[i] for i in (*chosen, *sorted(left))] + list(fused[MOST_VARIED:])


# ---------------------------------------------------------------- how a memory fades

# Formulas of the contract. Retention is Ebbinghaus' curve, R = e^(−t/S): t seconds since the last
# access, S the time constant, which grows with importance and with every access.

GROWTH = 1.5
"""What an access multiplies the strength by."""
STRONGEST = 100.0
OFTEN = 100
"""Accesses from which on more of them add nothing."""


def retention(life: Life, *, importance: float, created_at: float, now: float) -> float:
    """A share that goes from 1, just seen, to 0. What has no importance is forgotten at once."""
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
