"""Figures of a run, by `ir-measures` (which asks trec_eval), and how far chance explains them.

nDCG has linear gains, as in trec_eval and BEIR. Intervals are 95 % percentile bootstrap over
queries; the comparison of two modes is a paired randomisation test, which assumes nothing about
how scores are distributed (Smucker, Allan, Carterette, CIKM 2007). Both are seeded: the same run
gives the same figures. Where several pairs are compared at once, p is corrected for their number
(Holm, Scandinavian Journal of Statistics 1979): one of ten comparisons is easily below 0.05 by
chance alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

from clew.errors import needs_extra

MEASURES = {
    "ndcg@10": "nDCG@10",
    "mrr@10": "RR@10",
    "recall@1": "R@1",
    "recall@5": "R@5",
    "recall@10": "R@10",
    "recall@100": "R@100",
    "success@1": "Success@1",
}
"""Our name → the name in ir-measures."""
HEADLINE = "ndcg@10"
"""What modes are compared by."""
SEED = 20_240_229
RESAMPLES = 1_000
FLIPS = 9_999
"""Random reassignments of the paired test: p is known to about ± 0.004 near 0.05."""

Ranked = Mapping[str, Sequence[str]]
"""Per query the ids found, best first."""


def require(*names: str) -> Any:
    """The last of these modules of the `eval` extra; of one that is not there, how to get it. What
    takes an hour asks for all of them first."""
    from importlib import import_module

    with needs_extra("eval", "evaluation"):
        return [import_module(name) for name in names][-1]


def per_query(
    qrels: Mapping[str, Mapping[str, int]], ranked: Ranked, *, measures: Iterable[str] = MEASURES
) -> dict[str, dict[str, float]]:
    """Each of these measures of each query in `qrels`; one that found nothing counts 0."""
    ir = require("ir_measures")
    wanted = {ir.parse_measure(MEASURES[ours]): ours for ours in measures}
    # Scores that fall with the rank: ties would be broken by id, and ours are not ties.
    run = {
        query: {name: 1.0 / rank for rank, name in enumerate(ids, 1)}
        for query, ids in ranked.items()
    }
    figures = {name: dict.fromkeys(qrels, 0.0) for name in wanted.values()}
    judged = {query: dict(documents) for query, documents in qrels.items()}
    for figure in ir.iter_calc(list(wanted), judged, run):
        if figure.query_id in qrels:
            figures[wanted[figure.measure]][figure.query_id] = float(figure.value)
    return figures


def mean(values: Sequence[float]) -> float:
    return fmean(values) if values else 0.0


def interval(values: Sequence[float]) -> tuple[float, float] | None:
    """95 % bootstrap interval of the mean; None when a single query cannot give one."""
    if len(values) < 2:
        return None
    stats = require("scipy.stats")
    import numpy as np

    found = stats.bootstrap(
        (np.asarray(values),),
        np.mean,
        n_resamples=RESAMPLES,
        method="percentile",
        rng=np.random.default_rng(SEED),
    ).confidence_interval
    return float(found.low), float(found.high)


def round_interval(values: Sequence[float]) -> list[float] | None:
    bounds = interval(values)
    return None if bounds is None else [round(bound, 4) for bound in bounds]


def difference(first: Sequence[float], second: Sequence[float]) -> tuple[float, float]:
    """(mean of first − second, two-sided p of a paired randomisation test)."""
    import numpy as np

    a, b = np.asarray(first, float), np.asarray(second, float)
    gap = float(np.mean(a - b)) if len(a) else 0.0
    if len(a) < 2 or np.array_equal(a, b):
        return gap, 1.0
    test = require("scipy.stats").permutation_test(
        (a, b),
        lambda x, y, axis: np.mean(x - y, axis=axis),
        permutation_type="samples",
        vectorized=True,
        n_resamples=FLIPS,
        batch=max(1, 2_000_000 // len(a)),  # bounded memory for thousands of queries
        rng=np.random.default_rng(SEED),
    )
    return gap, float(test.pvalue)


def holm(ps: Sequence[float]) -> list[float]:
    """Each p corrected for how many there are, in the order given.

    The smallest is multiplied by their number, the next by one less and so on; none falls below a
    smaller one's. Below 0.05 they hold together: the chance that any is wrong is 0.05 at most.
    """
    corrected = [0.0] * len(ps)
    least = 0.0
    for rank, i in enumerate(sorted(range(len(ps)), key=lambda i: ps[i])):
        least = max(least, min(1.0, ps[i] * (len(ps) - rank)))
        corrected[i] = least
    return corrected
