"""Confidence: where the coefficients of the chance come from, and what they are worth unseen.

    python benchmarks/fit_confidence.py --out docs/benchmarks/confidence-fit.md

The training sets of benchmarks/fit_fusion.py, each query asked twice: with its relevant documents
and without them (benchmarks/answerless.py). Every one of the first ten hits is a case, right if it
was judged relevant. The coefficients of src/clew/ranking/confidence.py are those of a logistic
regression (Newton's method, a small penalty on the standardised coefficients, every set counting
the same however many queries it has), one for each of what there is to judge by: both legs, words
alone, vectors alone. Where adaptive fusion gives the words more than the vectors a query counts for
words alone. Nothing in it is random.

Then each set is left out in turn and judged by a fit on the other six. That decided which signs are
used: the log loss of a left-out set is in the second table, for the fused score, for evidence that
does not depend on the other hits, and for what was added to lead and nearness. `agreement` (how many
of the first ten both legs name) would lower it by another hundredth, but a left-out set's HIGH hits
were then less often right (scifact .84 instead of .93, cosqa .57 instead of .64), and they are what
a badge is for.

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
TRIED = (
    ("fused",),
    ("nearness", "coverage"),
    ("lead",),
    ("fused", "nearness"),
    ("lead", "nearness"),
    ("lead", "nearness", "fused"),
    ("lead", "nearness", "coverage"),
    ("lead", "nearness", "agreement"),
)
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


def compare(sets: dict[str, Cases]) -> Table:
    rows: list[tuple[Any, ...]] = []
    for names in TRIED:
        fits = left_out(sets, names)
        losses = [loss(judged, fits[name].chances(judged)) for name, judged in sets.items()]
        rows.append((", ".join(names), *(f"{of:.4f}" for of in losses), f"{np.mean(losses):.4f}"))
    return Table(
        "Log loss on a set that was left out, by signs",
        ("signs", *sets, "mean"),
        rows,
        "Both legs. Less is better. `fused` is the score of adaptive fusion, `coverage` the keyword "
        "score as a part of what a passage with all words could reach.",
    )


def badges(sets: dict[str, Cases], by: str, high: float) -> Table:
    """How a set's HIGH hits fare when it took no part in the fit."""
    rows: list[tuple[Any, ...]] = []
    fits = left_out(sets, USED[by])
    for name, judged in sets.items():
        marked = fits[name].chances(judged) >= high
        whole = marked & ~judged.bare
        share = f"{judged.right[whole].mean():.2f}" if whole.any() else "–"
        unanswered = len(set(judged.query[marked & judged.bare].tolist())) / judged.queries
        answered = len(set(judged.query[whole].tolist())) / judged.queries
        rows.append((name, judged.queries, int(whole.sum()), share, answered, unanswered))
    columns = ("set", "queries", "HIGH hits", "right", "queries with one", "with nothing relevant")
    note = f"A chance of {high} and more, fitted on the other six sets."
    title = {"both": "both legs", "words": "words alone", "vectors": "vectors alone"}[by]
    shown = [(*row[:4], f"{row[4]:.2f}", f"{row[5]:.2f}") for row in rows]
    return Table(f"HIGH on a set that was left out: {title}", columns, shown, note)


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
        compare(sets["both"]),
        *(badges(of, by, high) for by, of in sets.items()),
    ]
    numbers = {
        by: {"bias": f.bias, **dict(zip(f.names, f.coefficients, strict=True))}
        for by, f in fits.items()
    }
    publish("Fit of the confidence", __doc__, tables, numbers, arguments)


if __name__ == "__main__":
    main()
