"""Calibration: what it is worth to know that a scorer is stricter in one slate than in another.

    python benchmarks/calibration.py --out docs/benchmarks/calibration.md

A simulation. A tree of 4,096 leaves has relevances that are known: every child's is its parent's
plus its own chance, and what is far below the best counts nothing. A scorer says a · relevance + a
bias of the slate + noise, as a chat model does that sees one slate at a time. The walk is the real
one (20 iterations, beam 2, 10 sampled leaves), with biases fitted and with slates compared as they
are. nDCG@10 is of the leaves by path relevance, with the true relevance as gain.

What was fitted is compared with what is true, in the terms of the fit: relevances of the nodes that
were scored with a mean of one half and a spread of one quarter, which fixes scale and biases.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from clew.tree import Walk
from clew.tree.traverse import MIDDLE, SPREAD, Traversal, calibrate, traverse

from report import Table, figure, options, p, publish

FAN, LEVELS = 16, 3
SCALE = 40.0
NOISES = (2.0, 5.0, 10.0)
BIASES = (0.0, 5.0, 10.0, 20.0)
MAIN = (20.0, 5.0)
"""Bias and noise of the figures: half of the scale, and an eighth."""


class Simulated:
    """Ground to walk on. Nodes are numbered level by level, leaves from ~0 on."""

    branching = FAN

    def __init__(self, seed: int):
        rng = np.random.default_rng(seed)
        level = np.zeros(1)
        levels = [level]
        for depth in range(1, LEVELS + 1):
            spread = rng.normal(0.0, 0.5 if depth < LEVELS else 0.35, len(level) * FAN)
            level = np.repeat(level, FAN) + spread
            levels.append(level)
        # A node is worth what its best leaves are worth.
        worth = levels[LEVELS]
        worths = [worth]
        for _ in range(LEVELS):
            worth = np.sort(worth.reshape(-1, FAN), axis=1)[:, -3:].mean(axis=1)
            worths.insert(0, worth)
        low = np.percentile(worths[-1], 50)
        high = worths[-1].max()
        self._levels = [np.clip((w - low) / (high - low), 0.0, 1.0) for w in worths]
        self._firsts = np.cumsum([0] + [len(w) for w in worths[:-1]]).tolist()
        self.leaves = self._levels[-1]

    def relevance(self, key: int) -> float:
        if key < 0:
            return float(self.leaves[~key])
        level = int(np.searchsorted(self._firsts, key, "right")) - 1
        return float(self._levels[level][key - self._firsts[level]])

    def children(self, node: int) -> list[int]:
        level = int(np.searchsorted(self._firsts, node, "right")) - 1
        first = (node - self._firsts[level]) * FAN
        if level == LEVELS - 1:
            return [~n for n in range(first, first + FAN)]
        return [self._firsts[level + 1] + n for n in range(first, first + FAN)]

    def open(self, key: int) -> bool:
        return True

    def share(self, node: int) -> float:
        return 1.0

    def prior(self, keys: Sequence[int]) -> list[float]:
        return [0.0] * len(keys)


class Moody:
    """Says a · relevance + a bias of the slate + noise."""

    name, absolute = "moody", False

    def __init__(self, ground: Simulated, *, bias: float, noise: float, seed: int):
        self._ground, self._bias, self._noise = ground, bias, noise
        self._rng = np.random.default_rng(seed)
        self.biases: list[float] = []

    def score(self, keys: Sequence[int]) -> list[float]:
        bias = float(self._rng.normal(0.0, self._bias))
        self.biases.append(bias)
        noise = self._rng.normal(0.0, self._noise, len(keys))
        true = np.array([self._ground.relevance(key) for key in keys])
        return (SCALE * true + bias + noise).tolist()


def ndcg(found: Traversal, ground: Simulated) -> float:
    gains = np.array([ground.relevance(key) for key, _ in found.leaves[:10]])
    best = np.sort(ground.leaves)[::-1][:10]
    discount = 1.0 / np.log2(np.arange(2, 12))
    return float((gains * discount[: len(gains)]).sum() / (best * discount).sum())


def recovered(found: Traversal, scorer: Moody, ground: Simulated) -> tuple[float, float, float]:
    """Fitted scale by the true one; correlation and typical error of the biases."""
    nodes = list(found.calibration.scores)
    true = np.array([ground.relevance(node) for node in nodes])
    scale = SCALE * true.std() / SPREAD
    offset = SCALE * true.mean() - scale * MIDDLE
    biases = np.array(scorer.biases) + offset
    fitted = np.array(found.calibration.biases)
    error = float(np.sqrt(((fitted - biases) ** 2).mean()))
    return (
        found.calibration.scale / scale,
        float(np.corrcoef(fitted, biases)[0, 1]) if biases.std() > 0 else 1.0,
        error,
    )


def measure(bias: float, noise: float, runs: int) -> dict[str, Any]:
    with_, without, scales, agreements, errors = [], [], [], [], []
    for seed in range(runs):
        ground = Simulated(seed)
        for calibrated, into in ((True, with_), (False, without)):
            scorer = Moody(ground, bias=bias, noise=noise, seed=10_000 + seed)
            found = traverse(ground, scorer, Walk(calibrated=calibrated, seed=seed))
            into.append(ndcg(found, ground))
            if calibrated:
                scale, agreement, error = recovered(found, scorer, ground)
                scales.append(scale)
                agreements.append(agreement)
                errors.append(error)
    return {
        "bias": bias,
        "noise": noise,
        "with": float(np.mean(with_)),
        "without": float(np.mean(without)),
        "gain": float(np.mean(with_) / np.mean(without) - 1),
        "scale": float(np.median(scales)),
        "agreement": float(np.median(agreements)),
        "error": float(np.median(errors)),
    }


def solving(runs: int = 50) -> list[float]:
    """Milliseconds of work for one fit of a whole history: 40 slates of 26 nodes."""
    rng = np.random.default_rng(0)
    times = []
    for _ in range(runs):
        slates = [
            dict(
                zip(
                    rng.choice(700, 26, replace=False).tolist(),
                    rng.normal(size=26).tolist(),
                    strict=True,
                )
            )
            for _ in range(40)
        ]
        begun = time.thread_time()  # what else the machine does is not part of it
        calibrate(slates)
        times.append((time.thread_time() - begun) * 1e3)
    return times


def main() -> None:
    parser = options(__doc__, data=False)
    parser.add_argument("--runs", type=int, default=100, help="trees per row")
    arguments = parser.parse_args()
    pairs = [(bias, noise) for bias in BIASES for noise in NOISES]
    results = [measure(bias, noise, arguments.runs) for bias, noise in pairs]
    main_one = results[pairs.index(MAIN)]
    times = solving()
    figures = [
        figure(
            f"nDCG@10 gained by calibration (bias {MAIN[0]:g}, noise {MAIN[1]:g})",
            f"{main_one['gain']:+.1%}",
            "≥ +10 %",
            main_one["gain"] >= 0.1,
        ),
        figure(
            "fitted scale by the true one (median)",
            f"{main_one['scale']:.3f}",
            "0.9 to 1.1",
            0.9 <= main_one["scale"] <= 1.1,
        ),
        figure(
            "correlation of fitted and true biases (median)",
            f"{main_one['agreement']:.3f}",
            "≥ 0.95",
            main_one["agreement"] >= 0.95,
        ),
        figure("one fit, CPU, p95", f"{p(times, 95):.2f} ms", "milliseconds", p(times, 95) < 10),
    ]
    rows = [
        (
            *(f"{r['bias']:g}", f"{r['noise']:g}", f"{r['with']:.4f}", f"{r['without']:.4f}"),
            *(
                f"{r['gain']:+.1%}",
                f"{r['scale']:.3f}",
                f"{r['agreement']:.3f}",
                f"{r['error']:.2f}",
            ),
        )
        for r in results
    ]
    columns = (
        *("spread of biases", "of noise", "nDCG@10, fitted", "as they are", "gain"),
        *("scale / true", "biases: correlation", "error"),
    )
    note = (
        f"Scores are {SCALE:g} times relevances from 0 to 1, plus bias and noise. {arguments.runs} "
        "trees per row; the last three columns are medians, errors in units of scores."
    )
    tables = [
        Table("Figures", ("figure", "measured", "wanted", "holds"), figures),
        Table("By how moody the scorer is", columns, rows, note),
    ]
    publish("Calibration", __doc__, tables, {"rows": results, "ms": p(times, 95)}, arguments)


if __name__ == "__main__":
    main()
