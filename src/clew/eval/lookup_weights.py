"""Which weights suit a collection that `clew.Search` looks up: chosen on training queries, measured
on others, as tune.py does for fusion.

Every query is looked up once; each share of meaning then ranks the pool anew. What credibility
counts is left as it is: documents of a collection come from no domain.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from clew.engine import Engine
from clew.eval import metrics
from clew.eval.datasets import Dataset, Question
from clew.eval.harness import SHOWN
from clew.eval.metrics import HEADLINE
from clew.eval.tune import SIGNIFICANT, TIE
from clew.lookup import Search
from clew.protocols import Progress
from clew.ranking.lookup_score import WEIGHTS, hybrid, ordered
from clew.types import Hit

__all__ = ["Pool", "ask", "lines", "tune"]

SHARES = tuple(twentieth / 20 for twentieth in range(21))
DEFAULT = WEIGHTS["semantic"] / (WEIGHTS["bm25"] + WEIGHTS["semantic"])
PATIENCE = 60.0


@dataclass(frozen=True, slots=True)
class Pool:
    """What was found for one query, with its components."""

    ids: tuple[str, ...]
    components: Mapping[str, tuple[float, ...]]

    def ranked(self, share: float) -> list[str]:
        scores = hybrid(self.components, weights=_weights(share))
        return ordered(self.ids, scores, self.ids)[:SHOWN]


def _weights(share: float) -> dict[str, float]:
    """Meaning has this share of what it and words have together."""
    rest = 1 - WEIGHTS["credibility"]
    near = round(rest * share, 4)
    return {**WEIGHTS, "bm25": round(rest - near, 4), "semantic": near}


def ask(
    engine: Engine, questions: Sequence[Question], *, progress: Progress | None = None
) -> dict[str, Pool]:
    """The pool of each query, looked up within its scope."""
    pools: dict[str, Pool] = {}
    with ExitStack() as stack:
        searches: dict[str | None, Search] = {}
        for done, question in enumerate(questions, 1):
            if question.scope not in searches:
                within = None if question.scope is None else {"collection": question.scope}
                made = Search(engine, filter=within, cache=False, embed=0, deadline=PATIENCE)
                searches[question.scope] = stack.enter_context(made)
            pools[question.id] = _pool(searches[question.scope].pool(question.text))
            if progress:
                progress("lookups", done, len(questions))
    return pools


def _pool(found: Sequence[Hit]) -> Pool:
    names = [name for name in WEIGHTS if all(name in hit.signals for hit in found)]
    return Pool(
        tuple(hit.id for hit in found),
        {name: tuple(hit.signals[name]["score"] for hit in found) for name in names},
    )


def tune(
    train: Dataset, asked: Mapping[str, Pool], test: Dataset, unseen: Mapping[str, Pool]
) -> dict[str, Any]:
    """The share of meaning that is best on the training queries (of equals, the nearest to the
    default), and what it and the default are worth on the others."""
    means = {share: fmean(_scores(train, asked, share)) for share in {*SHARES, DEFAULT}}
    enough = max(means.values()) - TIE
    good = [share for share, mean in means.items() if mean >= enough]
    chosen = min(good, key=lambda share: (abs(share - DEFAULT), share))
    values = {share: _scores(test, unseen, share) for share in {chosen, DEFAULT}}
    gap, p = metrics.difference(values[chosen], values[DEFAULT])
    return {
        "weights": _weights(chosen),
        "default": {"weights": dict(WEIGHTS), HEADLINE: round(fmean(values[DEFAULT]), 4)},
        "chosen": {"weights": _weights(chosen), HEADLINE: round(fmean(values[chosen]), 4)},
        "difference": round(gap, 4),
        "p": round(p, 4),
        "better": gap > 0 and p < SIGNIFICANT,
    }


def _scores(dataset: Dataset, asked: Mapping[str, Pool], share: float) -> list[float]:
    ranked = {q.id: asked[q.id].ranked(share) for q in dataset.queries}
    scores = metrics.per_query(dataset.qrels, ranked, measures=[HEADLINE])[HEADLINE]
    return [scores[q.id] for q in dataset.queries]


def lines(found: Mapping[str, Any]) -> str:
    """For clew.toml, of one line: a table of its own would take in what is written below it."""
    chosen, usual = (found[which][HEADLINE] for which in ("chosen", "default"))
    shares = ", ".join(f"{name} = {weight:g}" for name, weight in found["weights"].items())
    said = f"# Lookups: nDCG@10 {chosen:.4f}, the default {usual:.4f}, p = {found['p']:.4f}."
    if found["better"]:
        return f"{said}\nlookup = {{ weights = {{ {shares} }} }}\n"
    return f"{said}\n# No significant gain, so they stay. Chosen was: {shares}\n"
