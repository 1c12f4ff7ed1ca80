"""Read the head of the list again, together with the query, and let that count too.

A cross-encoder sees query and passage at once: slow, sharp, and wrong in its own ways. It knows
questions (nDCG@10 of nq_utd .852 → .900 by its order alone) and not abstracts or code (Medline .822
→ .776, CoSQA's dev queries .608 → .457), so its scores are blended with the fused ones, both put
between 0 and 1 over the passages that were read. Three tenths of it have the best mean over the
training sets, .651 where there is .647 without; more on questions (nq_utd .871), less than nothing
on code (.597). benchmarks/fit_rerank.py measures this; docs/benchmarks/rerank.md has all of it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from clew.protocols import Reranker
from clew.ranking.fusion import Fused, min_max

HEAD = 25
"""Passages of the fused list that are read, if there is time."""
AT_ONCE = 4
"""Read between looks at the clock: as many as keep a few cores busy."""


def read(reranker: Reranker, query: str, passages: Sequence[str], *, budget: float) -> list[float]:
    """A score for each passage, from the first on, as many as fit into `budget` seconds."""
    end = time.perf_counter() + budget
    scores: list[float] = []
    while len(scores) < len(passages) and (not scores or time.perf_counter() < end):
        some = passages[len(scores) : len(scores) + AT_ONCE]
        scores += reranker.score(query, some)
    return scores


def blended(fused: Sequence[Fused], scores: Sequence[float], *, blend: float) -> list[Fused]:
    """The first `len(scores)` in their new order, the others after them as they were.

    `blend` is the reranker's part: 0 leaves the order alone, 1 takes its word for it. Every signal
    gets a `part` beside its `contrib`: contributions of sources add up to the fused score as
    before, parts (the reranker's too) to the one that decides now.
    """
    count = min(len(scores), len(fused))
    if not count:
        return list(fused)
    high, low = fused[0].score, fused[count - 1].score
    step = (high - low) or 1.0
    again = min_max(scores)
    order = sorted(range(count), key=lambda i: (-scores[i], fused[i].id))
    rank_of = {i: rank for rank, i in enumerate(order, 1)}
    mixed: list[Fused] = []
    for i, entry in enumerate(fused):  # below the head on the same scale: scores fall all the way
        kept, part = (1.0 - blend) * (entry.score - low) / step, 0.0
        even = 1.0 / (len(entry.signals) or 1)
        signals = {
            source: {**of, "part": kept * (of["contrib"] / entry.score if entry.score else even)}
            for source, of in entry.signals.items()
        }
        if i < count:
            part = blend * again[i]
            signals["reranker"] = {"rank": rank_of[i], "score": scores[i], "weight": blend}
            signals["reranker"] |= {"contrib": part, "part": part}
        mixed.append(entry._replace(signals=signals, reranked=kept + part))
    head = sorted(mixed[:count], key=lambda entry: (-(entry.reranked or 0.0), entry.id))
    return [*head, *mixed[count:]]
