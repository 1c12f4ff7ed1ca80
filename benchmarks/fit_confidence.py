"""Confidence: where the coefficients of the chance come from, and what they are worth unseen.

    python benchmarks/fit_confidence.py --out docs/benchmarks/confidence-fit.md

The training sets of benchmarks/fit_fusion.py, at most 300 queries of each (a third of that for one
leg alone), asked twice: with their relevant documents and without them; and questions of other
training sets, which nothing there is about (benchmarks/answerless.py). Every one of the first ten
hits is a case, right if it was judged relevant. The coefficients of src/clew/ranking/confidence.py
are those of a logistic regression (Newton's method, a small penalty on the standardised
coefficients), one for each of what there is to judge by: both legs, words alone, vectors alone,
each from searches of that mode. Every set counts the same however many queries it has, and within
it answerable queries as much as the two other kinds together. Nothing in it is random.

The thresholds follow from the chances that each set gets by a fit on the other six. MED, the line
of `--strict`, is the lowest chance from which on 90 % of the answers to off-topic questions are
dropped, in the set where that is hardest. HIGH is the lowest from which on at most 5 % of the
queries get one when their relevant documents are gone, likewise.

The tables by signs say what each adds: on a set that was left out, the log loss, what is kept and
dropped at a threshold chosen as above, and how HIGH fares. The sets that confidence.md reports on
were looked at while signs were chosen, but took no part in the fit.

--stores names a folder with a ready store for each set, by the set's name; without it they are made
(half an hour, kept in the user's cache folder as those of `clew eval`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from answerless import MOST, ask, ask_off_topic, opened
from clew import config as settings
from clew.eval import datasets
from clew.ranking.confidence import LEGS
from clew.types import Mode, SearchResult
from fit_fusion import SETS, logistic

from report import Table, options, publish, say

PENALTY = 0.001
STEPS = 50
WORTH = {"with": 1.0, "without": 0.5, "off-topic": 0.5}
"""What the cases of each kind count together: of queries with their relevant documents, without
them, and of those that nothing is about."""
SIGNS = ("coverage", "nearness", "both", "lead")
MODES: dict[str, Mode] = {"both": "hybrid", "words": "keyword", "vectors": "vector"}
TRIED: dict[str, tuple[tuple[str, ...], ...]] = {
    "both": (
        ("nearness",),
        ("coverage", "nearness"),
        ("coverage", "nearness", "both"),
        ("coverage", "nearness", "lead"),
        SIGNS,
    ),
    "words": (("coverage",), ("lead",), ("coverage", "lead")),
    "vectors": (("nearness",), ("lead",), ("nearness", "lead")),
}
"""The last of each is what is used."""
TITLES = {"both": "both legs", "words": "words alone", "vectors": "vectors alone"}
DROPPED, UNANSWERED = 0.9, 0.05
"""What the thresholds are to do."""

Floats = npt.NDArray[np.float64]
Booleans = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Cases:
    """The hits of one set, a row each."""

    signs: Floats
    right: Booleans
    first: Booleans
    kind: npt.NDArray[np.str_]
    query: npt.NDArray[np.int64]

    def columns(self, names: Sequence[str]) -> Floats:
        return self.signs[:, [SIGNS.index(name) for name in names]]

    def queries(self, kind: str, among: Booleans | None = None) -> int:
        """How many of this kind have such a hit."""
        of = self.kind == kind
        return len(set(self.query[of if among is None else of & among].tolist()))


def cases(answers: Iterable[tuple[str, SearchResult, frozenset[str]]]) -> Cases:
    """Of the answers of one set: their kind, and which hits are right."""
    rows = [
        (_signs(found.trace["confidence"]["because"][hit.id]), hit.id in right, not i, kind, number)
        for number, (kind, found, right) in enumerate(answers)
        for i, hit in enumerate(found)
    ]
    signs, right, first, kinds, queries = zip(*rows, strict=True)
    return Cases(
        np.array(signs), np.array(right), np.array(first), np.array(kinds), np.array(queries)
    )


def _signs(because: Mapping[str, Any]) -> list[float]:
    covered, near = because["coverage"] or 0.0, because["nearness"] or 0.0
    return [covered, near, covered * near, because["lead"]]


# ---------------------------------------------------------------------- the fit


@dataclass(frozen=True, slots=True)
class Fit:
    bias: float
    coefficients: Floats
    names: tuple[str, ...]

    def chances(self, judged: Cases) -> Floats:
        return logistic(judged.columns(self.names) @ self.coefficients + self.bias)


def fit(sets: Sequence[Cases], names: tuple[str, ...]) -> Fit:
    """The coefficients with which the right hits of these sets are most likely."""
    signs = np.concatenate([judged.columns(names) for judged in sets])
    mean, deviation = signs.mean(0), signs.std(0) + 1e-9
    rows = np.column_stack([np.ones(len(signs)), (signs - mean) / deviation])
    right = np.concatenate([judged.right for judged in sets]).astype(np.float64)
    counts = np.concatenate([_counts(judged) for judged in sets]) / len(sets)
    penalised = np.array([0.0, *[PENALTY] * len(names)])  # the bias is free
    weights = np.zeros(rows.shape[1])
    for _ in range(STEPS):
        chance = logistic(rows @ weights)
        slope = rows.T @ (counts * (chance - right)) + penalised * weights
        curve = (rows * (counts * chance * (1 - chance))[:, None]).T @ rows + np.diag(penalised)
        weights = weights - np.linalg.solve(curve, slope)
    coefficients = weights[1:] / deviation
    return Fit(float(weights[0] - coefficients @ mean), coefficients, names)


def _counts(judged: Cases) -> Floats:
    """What each case counts in its set, 1 together."""
    counts = np.zeros(len(judged.right))
    for kind, worth in WORTH.items():
        of = judged.kind == kind
        counts[of] = worth / max(1, of.sum())
    whole: Floats = counts / counts.sum()
    return whole


def unseen(sets: Mapping[str, Cases], names: tuple[str, ...]) -> dict[str, Floats]:
    """The chances of each set's cases by a fit on the others."""
    return {
        name: fit([of for other, of in sets.items() if other != name], names).chances(judged)
        for name, judged in sets.items()
    }


# ---------------------------------------------------------------------- figures


def loss(judged: Cases, chance: Floats) -> float:
    likely = np.clip(np.where(judged.right, chance, 1 - chance), 1e-6, 1)
    return float(-np.log(likely).mean())


def kept(judged: Cases, passed: Booleans) -> float:
    """The share of right first hits that pass."""
    return float(passed[judged.right & judged.first].mean())


def dropped(judged: Cases, passed: Booleans) -> float:
    """The share of answers to off-topic questions that do not."""
    return float(1 - passed[judged.kind == "off-topic"].mean())


def silent(judged: Cases, passed: Booleans) -> float:
    """The share of off-topic questions that are left with no answer."""
    return 1 - judged.queries("off-topic", passed) / judged.queries("off-topic")


def unanswered(judged: Cases, passed: Booleans) -> float:
    """The share of queries without their relevant documents that have a hit which passes."""
    return judged.queries("without", passed) / judged.queries("without")


def right(judged: Cases, passed: Booleans) -> str:
    among = judged.right[passed & (judged.kind == "with")]
    return f"{among.mean():.2f} of {len(among)}" if len(among) else "–"


def lowest(
    sets: Mapping[str, Cases], chances: Mapping[str, Floats], holds: Callable[[Cases, Any], bool]
) -> float:
    """The lowest threshold, in hundredths, from which on that holds in every set."""
    for hundredth in range(99, 0, -1):
        if not all(holds(of, chances[name] >= hundredth / 100) for name, of in sets.items()):
            return (hundredth + 1) / 100
    return 0.01


def thresholds(sets: Mapping[str, Cases], names: tuple[str, ...]) -> tuple[float, float]:
    """HIGH and MED."""
    chances = unseen(sets, names)
    return (
        lowest(sets, chances, lambda of, passed: unanswered(of, passed) <= UNANSWERED),
        lowest(sets, chances, lambda of, passed: dropped(of, passed) >= DROPPED),
    )


def compare(sets: Mapping[str, Cases], by: str) -> Table:
    rows: list[tuple[Any, ...]] = []
    for names in TRIED[by]:
        chances = unseen(sets, names)
        high, med = thresholds(sets, names)
        losses = [loss(judged, chances[name]) for name, judged in sets.items()]
        passed = {name: chance >= med for name, chance in chances.items()}
        sure = {name: chance >= high for name, chance in chances.items()}
        least = min(kept(of, passed[name]) for name, of in sets.items())
        hits = [judged.right[sure[name] & (judged.kind == "with")] for name, judged in sets.items()]
        among = np.concatenate(hits)
        share = f"{among.mean():.2f} of {len(among)}" if len(among) else "–"
        cells = (f"{of:.4f}" for of in (*losses, np.mean(losses)))
        rows.append((", ".join(names), *cells, f"{med:.2f}", f"{least:.2f}", f"{high:.2f}", share))
    return Table(
        f"By signs: {TITLES[by]}",
        ("signs", *sets, "mean", "MED", "kept", "HIGH", "right"),
        rows,
        "Log loss per set, of chances by a fit on the other six: less is better. MED and HIGH are "
        "the thresholds that these signs would want; `kept` is the share of right first hits from "
        "MED on in the set where it is least, `right` that of the HIGH hits of all sets.",
    )


def badges(sets: Mapping[str, Cases], by: str, high: float, med: float) -> Table:
    rows: list[tuple[Any, ...]] = []
    chances = unseen(sets, TRIED[by][-1])
    for name, judged in sets.items():
        passed, sure = chances[name] >= med, chances[name] >= high
        strict = kept(judged, passed), dropped(judged, passed), silent(judged, passed)
        shares = (f"{of:.2f}" for of in (*strict, unanswered(judged, sure)))
        cells = list(shares)
        rows.append((name, judged.queries("with"), *cells[:3], right(judged, sure), cells[3]))
    return Table(
        f"On a set that was left out: {TITLES[by]}",
        ("set", "queries", "kept", "dropped", "silent", "HIGH right", "without"),
        rows,
        f"At MED = {med} and HIGH = {high}: right first hits that `--strict` keeps, answers to "
        "off-topic questions that it drops, off-topic questions that are left with none; HIGH hits "
        "that are relevant, and queries that get one although nothing is.",
    )


def coefficients(fits: Mapping[str, Fit], limits: tuple[float, float]) -> Table:
    rows: list[tuple[Any, ...]] = []
    lines = []
    names = LEGS["both"]._fields
    for by, found in fits.items():
        new = {"bias": found.bias, **dict(zip(found.names, found.coefficients, strict=True))}
        for what, values in (("fitted", new), ("in confidence.py", LEGS[by]._asdict())):
            rows.append((by, what, *(f"{values.get(name, 0.0):.2f}" for name in names)))
        given = ", ".join(f"{name}={new[name]:.2f}" for name in names if name in new)
        lines.append(f'        "{by}": Coefficients({given}),')
    now = settings.profile("default")
    used = now["confidence_high"], now["confidence_med"]
    note = "\n".join(
        [
            "For src/clew/ranking/confidence.py:",
            "",
            "    LEGS = {",
            *lines,
            "    }",
            "",
            f"Thresholds: HIGH {limits[0]:.2f}, MED {limits[1]:.2f} (in the default profile: "
            f"{used[0]:.2f}, {used[1]:.2f}).",
        ]
    )
    return Table("Coefficients", ("judged by", "", *names), rows, note)


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--stores", type=Path, help="folder with a ready store for each set")
    arguments = parser.parse_args()
    sets: dict[str, dict[str, Cases]] = {by: {} for by in LEGS}
    for name, split in SETS.items():
        dataset = datasets.read(arguments.data / name, split=split)
        with opened(dataset, arguments.stores) as engine:
            for by, mode in MODES.items():
                asked = ask(engine, dataset, most=MOST if by == "both" else MOST // 3, mode=mode)
                off_topic = ask_off_topic(engine, dataset, mode=mode)
                answers = [("with", each.whole, each.relevant) for each in asked]
                answers += [("without", each.bare, frozenset()) for each in asked]
                answers += [("off-topic", found, frozenset()) for found in off_topic]
                sets[by][name] = cases(answers)
    fits = {by: fit(list(of.values()), TRIED[by][-1]) for by, of in sets.items()}
    limits = thresholds(sets["both"], SIGNS)
    say("fitted on all sets")
    now = settings.profile("default")
    used = now["confidence_high"], now["confidence_med"]
    tables = [
        coefficients(fits, limits),
        *(compare(of, by) for by, of in sets.items()),
        *(badges(of, by, *used) for by, of in sets.items()),
    ]
    numbers = {
        by: {"bias": f.bias, **dict(zip(f.names, f.coefficients, strict=True))}
        for by, f in fits.items()
    }
    publish("Fit of the confidence", __doc__, tables, numbers, arguments)


if __name__ == "__main__":
    main()
