"""Confidence: where the coefficients of the chance come from, and what they are worth unseen.

    python benchmarks/fit_confidence.py --out docs/benchmarks/confidence-fit.md

The training sets of benchmarks/fit_fusion.py, each query asked twice: with its relevant documents
and without them (benchmarks/answerless.py). Every one of the first ten hits is a case, right if it
was judged relevant. The coefficients of src/clew/ranking/confidence.py are those of a logistic
regression (Newton's method, a small penalty on the standardised coefficients, every set counting
the same however many queries it has), one for each of what there is to judge by: both legs, words
alone, vectors alone. Where adaptive fusion gives the words more than the vectors a query counts for
words alone. Nothing in it is random.

Then each set is left out in turn and judged by a fit on the other six. The second table has the
log loss of a left-out set by signs: the fused score, evidence that does not depend on other hits,
and what was added to lead and nearness. `agreement` (how many of the first ten both legs name)
lowers it by another hundredth, but fewer of the HIGH hits are then right, and those are what a
badge is for. The sets that confidence.md reports on were looked at while this was made, but took no
part in the fit, and the choice of signs can be seen in the tables here.

--stores names a folder with a ready store for each set, by the set's name; without it they are made
(half an hour, kept in the user's cache folder as those of `clew eval`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from answerless import SHOWN, Asked, ask, lists_and_facts, opened
from clew import config as settings
from clew.eval import datasets
from clew.ranking import adaptive
from clew.ranking.confidence import LEGS, chances
from clew.types import SearchResult
from fit_fusion import SETS

from report import Table, options, publish, say

__all__: list[str] = []

PENALTY = 0.001
STEPS = 50
SIGNS = ("fused", "nearness", "coverage", "lead", "agreement")
"""All that is tried; a case has a column for each."""
TRIED: dict[str, tuple[tuple[str, ...], ...]] = {
    "both": (
        ("fused",),
        ("nearness", "coverage"),
        ("lead",),
        ("fused", "nearness"),
        ("lead", "nearness"),
        ("lead", "nearness", "fused"),
        ("lead", "nearness", "coverage"),
        ("lead", "nearness", "agreement"),
    ),
    "words": (("lead",), ("coverage",), ("lead", "coverage")),
    "vectors": (("lead",), ("nearness",), ("lead", "nearness")),
}
TITLES = {"both": "both legs", "words": "words alone", "vectors": "vectors alone"}
USED = {"both": ("lead", "nearness"), "words": ("lead",), "vectors": ("lead", "nearness")}

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Cases:
    """The hits of one set, judged by one of LEGS."""

    signs: Floats
    right: npt.NDArray[np.bool_]
    query: npt.NDArray[np.int64]
    bare: npt.NDArray[np.bool_]
    """Of a query with nothing relevant."""
    queries: int

    def columns(self, names: Sequence[str]) -> Floats:
        return self.signs[:, [SIGNS.index(name) for name in names]]


def cases(asked: Sequence[Asked], by: str) -> Cases:
    rows: list[tuple[list[float], bool, int, bool]] = []
    for number, each in enumerate(asked):
        for bare, found in ((False, each.whole), (True, each.bare)):
            for name, signs in _signs(found, by):
                rows.append((signs, not bare and name in each.relevant, number, bare))
    signs, right, query, bares = zip(*rows, strict=True)
    return Cases(
        np.array(signs), np.array(right), np.array(query), np.array(bares), queries=len(asked)
    )


def _signs(found: SearchResult, by: str) -> list[tuple[str, list[float]]]:
    """Of each hit that is judged by these legs."""
    lists, facts = lists_and_facts(found)
    keyword, vectors = lists["keyword"], lists["vectors"]
    shown = [(hit.id, hit.rrf_score) for hit in found]
    if by != "both":
        lists = {"keyword": keyword} if by == "words" else {"vectors": vectors}
        shown = [(c.id, c.score) for c in next(iter(lists.values()))[:SHOWN]]
    judge = chances(lists, facts)
    covers = {c.id: c.score / facts.reach for c in keyword} if facts.reach else {}
    agreement = adaptive.signs(keyword, vectors, facts)["agreement"]
    signs = []
    for name, fused in shown:
        chance = judge(name)
        if chance.by == by:
            near = chance.nearness or 0.0
            signs.append((name, [fused, near, covers.get(name, 0.0), chance.lead, agreement]))
    return signs


# ---------------------------------------------------------------------- the fit


@dataclass(frozen=True, slots=True)
class Fit:
    bias: float
    coefficients: Floats
    names: tuple[str, ...]

    def chances(self, judged: Cases) -> Floats:
        return _logistic(judged.columns(self.names) @ self.coefficients + self.bias)


def fit(sets: Sequence[Cases], names: tuple[str, ...]) -> Fit:
    """The coefficients with which the right hits of these sets are most likely."""
    signs = np.concatenate([judged.columns(names) for judged in sets])
    mean, deviation = signs.mean(0), signs.std(0) + 1e-9
    rows = np.column_stack([np.ones(len(signs)), (signs - mean) / deviation])
    right = np.concatenate([judged.right for judged in sets]).astype(np.float64)
    counts = np.concatenate([np.full(len(s.right), 1 / len(s.right)) for s in sets]) / len(sets)
    penalised = np.array([0.0, *[PENALTY] * len(names)])  # the bias is free
    weights = np.zeros(rows.shape[1])
    for _ in range(STEPS):
        chance = _logistic(rows @ weights)
        slope = rows.T @ (counts * (chance - right)) + penalised * weights
        curve = (rows * (counts * chance * (1 - chance))[:, None]).T @ rows + np.diag(penalised)
        weights = weights - np.linalg.solve(curve, slope)
    coefficients = weights[1:] / deviation
    return Fit(float(weights[0] - coefficients @ mean), coefficients, names)


def _logistic(logit: Floats) -> Floats:
    chance: Floats = 1 / (1 + np.exp(-np.clip(logit, -30, 30)))
    return chance


# ---------------------------------------------------------------------- figures


def loss(judged: Cases, chance: Floats) -> float:
    likely = np.clip(np.where(judged.right, chance, 1 - chance), 1e-6, 1)
    return float(-np.log(likely).mean())


def left_out(sets: dict[str, Cases], names: tuple[str, ...]) -> dict[str, Fit]:
    """For each set a fit on the others."""
    return {
        name: fit([judged for other, judged in sets.items() if other != name], names)
        for name in sets
    }


@dataclass(frozen=True, slots=True)
class Marked:
    """A set's HIGH hits."""

    hits: int
    right: int
    answered: float
    """The share of queries that get one."""
    unanswered: float
    """The same with nothing relevant."""


def mark(judged: Cases, chance: Floats, high: float) -> Marked:
    marked = chance >= high
    whole = marked & ~judged.bare
    queries = (len(set(judged.query[some].tolist())) for some in (whole, marked & judged.bare))
    answered, unanswered = (count / judged.queries for count in queries)
    return Marked(int(whole.sum()), int(judged.right[whole].sum()), answered, unanswered)


def compare(sets: dict[str, Cases], by: str, high: float) -> Table:
    rows: list[tuple[Any, ...]] = []
    for names in TRIED[by]:
        fits = left_out(sets, names)
        losses = [loss(judged, fits[name].chances(judged)) for name, judged in sets.items()]
        marks = [mark(judged, fits[name].chances(judged), high) for name, judged in sets.items()]
        hits, right = sum(m.hits for m in marks), sum(m.right for m in marks)
        share = f"{right / hits:.2f} of {hits}" if hits else "–"
        fares = share, f"{max(m.unanswered for m in marks):.2f}"
        cells = (f"{of:.4f}" for of in (*losses, np.mean(losses)))
        rows.append((", ".join(names), *cells, *fares))
    return Table(
        f"Log loss on a set that was left out, by signs: {TITLES[by]}",
        ("signs", *sets, "mean", "HIGH right", "without"),
        rows,
        "Less is better. `HIGH right`: of all hits of left-out sets with a chance of "
        f"{high} and more; `without`: the set with most queries that get one although nothing is "
        "relevant. `fused` is the score of adaptive fusion, `coverage` the keyword score as a part "
        "of what a passage with all words could reach.",
    )


def badges(sets: dict[str, Cases], by: str, high: float) -> Table:
    """How a set's HIGH hits fare when it took no part in the fit."""
    rows: list[tuple[Any, ...]] = []
    fits = left_out(sets, USED[by])
    for name, judged in sets.items():
        found = mark(judged, fits[name].chances(judged), high)
        share = f"{found.right / found.hits:.2f} of {found.hits}" if found.hits else "–"
        queries = f"{found.answered:.2f}", f"{found.unanswered:.2f}"
        rows.append((name, judged.queries, share, *queries))
    columns = ("set", "queries", "HIGH right", "queries with one", "without")
    note = f"A chance of {high} and more, fitted on the other six; `without`: nothing is relevant."
    return Table(f"HIGH on a set that was left out: {TITLES[by]}", columns, rows, note)


def coefficients(fits: dict[str, Fit]) -> Table:
    rows: list[tuple[Any, ...]] = []
    lines = []
    for by, found in fits.items():
        new = {"bias": found.bias, **dict(zip(found.names, found.coefficients, strict=True))}
        now = {name: value for name, value in LEGS[by]._asdict().items() if name in new}
        for what, values in (("fitted", new), ("in confidence.py", now)):
            rows.append((by, what, *(f"{values.get(n, 0.0):.2f}" for n in LEGS[by]._fields)))
        given = ", ".join(f"{name}={value:.2f}" for name, value in new.items())
        lines.append(f'        "{by}": Coefficients({given}),')
    note = "\n".join(["For src/clew/ranking/confidence.py:", "", "    LEGS = {", *lines, "    }"])
    return Table("Coefficients", ("judged by", "", *LEGS["both"]._fields), rows, note)


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--stores", type=Path, help="folder with a ready store for each set")
    arguments = parser.parse_args()
    sets: dict[str, dict[str, Cases]] = {by: {} for by in LEGS}
    for name, split in SETS.items():
        dataset = datasets.read(arguments.data / name, split=split)
        with opened(dataset, arguments.stores) as engine:
            asked = ask(engine, dataset)
        for by in LEGS:
            sets[by][name] = cases(asked, by)
    fits = {by: fit(list(of.values()), USED[by]) for by, of in sets.items()}
    say("fitted on all sets")
    high = settings.profile("default")["confidence_high"]
    tables = [
        coefficients(fits),
        *(compare(of, by, high) for by, of in sets.items()),
        *(badges(of, by, high) for by, of in sets.items()),
    ]
    numbers = {
        by: {"bias": f.bias, **dict(zip(f.names, f.coefficients, strict=True))}
        for by, f in fits.items()
    }
    publish("Fit of the confidence", __doc__, tables, numbers, arguments)


if __name__ == "__main__":
    main()
