"""Adaptive fusion: where its coefficients come from, and what they are worth on a set unseen.

    python benchmarks/fit_fusion.py --out docs/benchmarks/fusion.md

Only training sets take part: scifact's train, cosqa's dev, and five collections that
benchmarks/quality.py does not report on. Each query is asked once, as a search for ten. Its lists,
on the scales of src/clew/ranking/adaptive.py, are mixed with 21 shares of the vectors between 0 and
1, which gives nDCG@10 as a function of the share, blurred a little because it moves in steps. The
coefficients are those for which the share, a logistic function of the four signs, makes the mean
nDCG@10 largest: gradient ascent (Adam) from zero, every set counting the same however many queries
it has, with a small penalty on the standardised coefficients. Nothing in it is random.

Then each set is left out in turn: `without it` is a fit on the other six, measured on this one.
`fixed, from the others` is the same for a single share, the best on the other six; `convex, from
the others` likewise, with lists scaled by their least and greatest score. `best fixed` and `best
per query` are no methods: they choose by the judgements, and say what there is to gain. The scales
and the choice of signs are taken as they are; they were not made anew without the set.

Last, the sets that benchmarks/quality.py reports on, which took no part in the fit: that on
all training sets, the one share that is best on the training sets, and what there would be to gain.

Three choices beside the fit had a set of the last table, or another that quality.py reports on, in
sight, so that its figures flatter them. The share of vectors in a script the model does not know
(0.02) was chosen with xquad_ar at hand; the training set in another script, cmrc2018_zh, is
indifferent to it. That passages longer than what the model reads cut the vectors' share came from
looking at k8s_docs. Weighing words by how rare they are within a scope was tried on locomo
directly; no constant was tuned there.

The first run makes the indexes of the seven sets (half an hour, kept in the user's cache folder as
those of `clew eval`); --stores names a folder with a ready store for each, by the set's name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import clew
from clew.eval import datasets, harness, metrics, tune
from clew.eval.metrics import HEADLINE
from clew.eval.tune import Asked, Fusion
from clew.ranking import adaptive

from report import Table, options, publish, say

SETS = {
    "scifact": "train",
    "cosqa": "dev",
    "cisi": "test",
    "medline1033": "test",
    "cacm": "test",
    "nq_utd": "test",
    "vaswani": "test",
}
"""What may be fitted on, and which split of it."""
HELD_OUT = ("scifact", "cosqa", "cranfield", "locomo", "k8s_docs", "xquad_en")
"""Of these the test queries are only reported on."""
SHARES = np.linspace(0, 1, 21)
BLUR = np.array([1, 2, 3, 2, 1]) / 9
PENALTY = 0.01
STEPS, RATE = 1_200, 0.03
SIGNS = tuple(adaptive.COEFFICIENTS)
SHOWN = 10

Floats = npt.NDArray[np.float64]


# ---------------------------------------------------------------------- what is known of a set


@dataclass(frozen=True, slots=True)
class Seen:
    """One training set, asked once."""

    name: str
    dataset: datasets.Dataset
    asked: list[Asked]
    signs: Floats
    """A row for each query."""
    gains: Floats
    """nDCG@10 of each query with each of the shares."""
    convex: Floats
    """The same by `convex`."""

    def ndcg(self, rank: Callable[[int], Sequence[str]]) -> Floats:
        """Of the list that `rank` gives for each query, by its place."""
        return ndcg(self.dataset, [rank(i) for i in range(len(self.asked))])

    def mixed(self, shares: Floats) -> Floats:
        """nDCG@10 with a share of its own for each query: ranked anew, not interpolated."""
        return self.ndcg(lambda i: mix(*scaled(self.asked[i]), float(shares[i])))


def ndcg(dataset: datasets.Dataset, ranked: Sequence[Sequence[str]]) -> Floats:
    found = {q.id: ids for q, ids in zip(dataset.queries, ranked, strict=True)}
    scores = metrics.per_query(dataset.qrels, found, measures=[HEADLINE])[HEADLINE]
    return np.array([scores[q.id] for q in dataset.queries])


def look(data: Path, name: str, split: str, stores: Path | None) -> Seen:
    """Ask a set's queries."""
    dataset = datasets.read(data / name, split=split)
    with opened(dataset, stores) as engine:
        answers, degraded = tune.ask(engine, dataset.queries)
    if degraded:
        raise SystemExit(f"{name}: not a fair answer: {degraded}")
    asked = [answers[q.id] for q in dataset.queries]
    signs = [adaptive.signs(*_legs(each), each.facts) for each in asked]
    scales = [scaled(each) for each in asked]
    gains = [ndcg(dataset, [mix(*both, share) for both in scales]) for share in SHARES]
    convex = [ndcg(dataset, [a.rank(Fusion("convex", s)) for a in asked]) for s in SHARES.tolist()]
    rows = np.array([[seen[sign] for sign in SIGNS] for seen in signs])
    say(f"{name}: {len(asked):,} queries")
    return Seen(name, dataset, asked, rows, np.stack(gains, axis=1), np.stack(convex, axis=1))


def opened(dataset: datasets.Dataset, stores: Path | None, **settings: Any) -> clew.Engine:
    """The index of a set, made if it is not in `stores`."""
    patient = {"deadline": 3600.0, **settings}  # a list that came late would be fitted on
    if stores is None:
        engine, no_vectors = harness.open_indexed(dataset, overrides=patient)
        if no_vectors:
            raise SystemExit(no_vectors)
        return engine
    engine = clew.open(stores / dataset.name, create=False, cache=False, **patient)
    wanted, figures = len(dataset.records or ()), engine.status()
    if figures["records"] == wanted and figures["embedded"] == 1:
        return engine
    engine.close()
    say(f"{stores / dataset.name} does not hold what is in {dataset.folder}: another is made")
    return opened(dataset, None, **settings)


def _legs(asked: Asked) -> tuple[Sequence[Any], Sequence[Any]]:
    keyword, vectors = (asked.lists.get(leg) for leg in ("keyword", "vectors"))
    return keyword.candidates if keyword else (), vectors.candidates if vectors else ()


def scaled(asked: Asked) -> tuple[dict[str, float], dict[str, float]]:
    """Both legs' scores by id, as `adaptive` sees them."""
    keyword, vectors = _legs(asked)
    words = adaptive.keyword_scale([c.score for c in keyword], asked.facts)
    near = adaptive.vector_scale([c.score for c in vectors], asked.facts)
    return (
        {c.id: score for c, score in zip(keyword, words, strict=True)},
        {c.id: score for c, score in zip(vectors, near, strict=True)},
    )


def mix(words: dict[str, float], near: dict[str, float], share: float) -> list[str]:
    scores = {
        name: (1 - share) * words.get(name, 0.0) + share * near.get(name, 0.0)
        for name in words.keys() | near.keys()
    }
    return sorted(scores, key=lambda name: (-scores[name], name))[:SHOWN]


# ---------------------------------------------------------------------- the fit


@dataclass(frozen=True, slots=True)
class Fit:
    bias: float
    coefficients: Floats

    def shares(self, signs: Floats) -> Floats:
        return logistic(signs @ self.coefficients + self.bias)


def fit(sets: Sequence[Seen], *, penalty: float = PENALTY) -> Fit:
    """The coefficients with which the mean nDCG@10 of these sets is largest."""
    everything = np.concatenate([seen.signs for seen in sets])
    mean, deviation = everything.mean(0), everything.std(0) + 1e-9
    columns = [
        np.column_stack([np.ones(len(seen.signs)), (seen.signs - mean) / deviation])
        for seen in sets
    ]
    gains = [_blurred(seen.gains) for seen in sets]
    count = everything.shape[1]
    weights = np.zeros(1 + count)
    first, second = np.zeros_like(weights), np.zeros_like(weights)
    penalised = np.array([0.0, *[penalty] * count])  # the bias is free
    for step in range(1, STEPS + 1):
        slope = -penalised * weights
        for rows, of in zip(columns, gains, strict=True):
            share = logistic(rows @ weights)
            by_logit = _slopes(of, share) * share * (1 - share)
            slope = slope + (rows * by_logit[:, None]).mean(0) / len(sets)
        first = 0.9 * first + 0.1 * slope
        second = 0.999 * second + 0.001 * slope**2
        stride = np.sqrt(second / (1 - 0.999**step)) + 1e-8
        weights = weights + RATE * first / (1 - 0.9**step) / stride
    coefficients = weights[1:] / deviation
    return Fit(float(weights[0] - coefficients @ mean), coefficients)


def _blurred(gains: Floats) -> Floats:
    """Along the share: steps have no slope to climb."""
    reach = len(BLUR) // 2
    padded = np.pad(gains, ((0, 0), (reach, reach)), mode="edge")
    width = gains.shape[1]
    return sum((part * padded[:, i : i + width] for i, part in enumerate(BLUR)), np.zeros(1))


def _slopes(gains: Floats, share: Floats) -> Floats:
    """Of each query's gain at its share, between the two nearest of the grid."""
    cells = len(SHARES) - 1
    left = np.clip((share * cells).astype(int), 0, cells - 1)
    row = np.arange(len(gains))
    slope: Floats = (gains[row, left + 1] - gains[row, left]) * cells
    return slope


def logistic(logit: Floats) -> Floats:
    share: Floats = 1 / (1 + np.exp(-np.clip(logit, -30, 30)))
    return share


# ---------------------------------------------------------------------- figures


def measure(seen: Seen, everything: Fit, without: Fit, others: Sequence[Seen]) -> dict[str, Floats]:
    """nDCG@10 of each query, by how the lists were made one."""
    asked = seen.asked
    usual = int(np.mean([other.gains.mean(0) for other in others], axis=0).argmax())
    plain = int(np.mean([other.convex.mean(0) for other in others], axis=0).argmax())
    best = int(seen.gains.mean(0).argmax())
    return {
        "keyword": seen.ndcg(lambda i: [c.id for c in _legs(asked[i])[0][:SHOWN]]),
        "vector": seen.ndcg(lambda i: [c.id for c in _legs(asked[i])[1][:SHOWN]]),
        "rrf k=60": seen.ndcg(lambda i: asked[i].rank(Fusion("rrf"))),
        "convex .5": seen.ndcg(lambda i: asked[i].rank(Fusion("convex"))),
        "convex, from the others": seen.convex[:, plain],
        "fixed, from the others": seen.gains[:, usual],
        "adaptive, without it": seen.mixed(without.shares(seen.signs)),
        "adaptive, fitted on all": seen.mixed(everything.shares(seen.signs)),
        "adaptive, as it is": seen.ndcg(lambda i: asked[i].rank(Fusion("adaptive"))),
        "best fixed": seen.gains[:, best],
        "best per query": seen.gains.max(1),
    }


def quality(title: str, scores: dict[str, dict[str, Floats]], sets: Sequence[Seen]) -> Table:
    names = [seen.name for seen in sets]
    ways = list(next(iter(scores.values())))
    if sets[0].name not in SETS or sets[0].dataset.split != SETS[sets[0].name]:
        ways.remove("adaptive, without it")  # all of them are
    rows: list[tuple[Any, ...]] = []
    for way in ways:
        means = [float(scores[name][way].mean()) for name in names]
        rows.append((way, *(f"{mean:.4f}" for mean in means), f"{np.mean(means):.4f}"))
    best = ", ".join(f"{s.name} {SHARES[s.gains.mean(0).argmax()]:.2f}" for s in sets)
    counts = ", ".join(f"{s.name} {s.dataset.split} {len(s.asked)}" for s in sets)
    note = (
        f"Queries: {counts}. The best fixed share of the vectors: {best}. "
        "`as it is` are the coefficients in adaptive.py, rounded."
    )
    return Table(title, ("fusion", *names, "mean"), rows, note)


def against(scores: dict[str, dict[str, Floats]], rivals: Sequence[str]) -> Table:
    rows: list[tuple[Any, ...]] = []
    for name, of in scores.items():
        cells = []
        for rival in rivals:
            gap, p = metrics.difference(of["adaptive, without it"].tolist(), of[rival].tolist())
            cells.append(f"{gap:+.4f} (p = {p:.4f})")
        rows.append((name, *cells))
    note = "Difference in nDCG@10, with p of a paired randomisation test over the set's queries."
    return Table("Adaptive, fitted without the set, against", ("set", *rivals), rows, note)


def coefficients(everything: Fit, without: dict[str, Fit]) -> Table:
    def row(name: str, found: Fit) -> tuple[Any, ...]:
        return (name, *(f"{value:.2f}" for value in (found.bias, *found.coefficients)))

    now = Fit(adaptive.BIAS, np.array(list(adaptive.COEFFICIENTS.values())))
    rows = [row("all sets", everything), row("in adaptive.py", now)]
    rows += [row(f"without {name}", found) for name, found in without.items()]
    lines = [f"    BIAS = {everything.bias:.2f}", "    COEFFICIENTS: Mapping[str, float] = {"]
    for sign, value in zip(SIGNS, everything.coefficients, strict=True):
        lines.append(f'        "{sign}": {value:.2f},')
    note = "\n".join(["For src/clew/ranking/adaptive.py:", "", *lines, "    }"])
    return Table("Coefficients", ("fitted on", "bias", *SIGNS), rows, note)


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--stores", type=Path, help="folder with a ready store for each set")
    arguments = parser.parse_args()
    metrics.require("ir_measures", "scipy.stats")
    sets = [look(arguments.data, name, split, arguments.stores) for name, split in SETS.items()]
    everything = fit(sets)
    say("fitted on all sets")
    without: dict[str, Fit] = {}
    scores: dict[str, dict[str, Floats]] = {}
    for seen in sets:
        others = [other for other in sets if other is not seen]
        without[seen.name] = fit(others)
        scores[seen.name] = measure(seen, everything, without[seen.name], others)
        say(f"fitted without {seen.name}")
    unseen = [look(arguments.data, name, "test", arguments.stores) for name in HELD_OUT]
    held_out = {seen.name: measure(seen, everything, everything, sets) for seen in unseen}
    tables = [
        quality("nDCG@10 on the training sets", scores, sets),
        quality("nDCG@10 on sets that took no part in the fit", held_out, unseen),
        against(
            scores, ("rrf k=60", "convex .5", "convex, from the others", "fixed, from the others")
        ),
        coefficients(everything, without),
    ]
    numbers = {
        "ndcg@10": {
            name: {way: round(float(values.mean()), 4) for way, values in of.items()}
            for name, of in scores.items()
        },
        "bias": everything.bias,
        "coefficients": dict(zip(SIGNS, everything.coefficients.tolist(), strict=True)),
    }
    publish("Adaptive fusion", __doc__, tables, numbers, arguments)


if __name__ == "__main__":
    main()
