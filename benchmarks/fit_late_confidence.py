"""Confidence with late interaction: where its coefficients come from, and what they change.

    python benchmarks/fit_late_confidence.py --stores FOLDER --out FILE

A chance is judged as without late interaction (benchmarks/fit_confidence.py); where that has read
the passage as well, its score is one sign more on top of the logit. Coefficients are those of a
logistic regression on the training sets of benchmarks/fit_late.py, over the first ten hits of each
query, asked with its relevant documents and without, and of questions that nothing there is about,
weighed as there; each set is left out in turn.

Token vectors of whole sets take an hour or two, so each set is a part of itself: so many of its
queries (--most), evenly, and so many documents (--documents): up to five relevant ones of each of
these queries, the two that have most of an off-topic question's words, and then those that have
most of the queries' words, by turns. A part has fewer passages that nothing is about than the set,
but those that are hardest to tell from right ones by their words. Stores are made in --stores and
kept, with vectors and codes as `clew index` makes them with the setting `on`.

`before` and `after` are of the same hits: the chance without the sign and with it. The tables over
sets that are reported on, of which no query had a part in the fit, are of parts made the same way,
and of the whole sample folder.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import numpy.typing as npt

import clew
import fit_confidence
from answerless import PATIENT, Asked, ask, ask_off_topic, off_topic, relevant
from clew import config as settings
from clew.eval import datasets
from clew.ranking.confidence import LEGS, TOKENS, weigh_signs
from clew.types import SearchResult
from confidence import ask_sample
from fit_fusion import logistic
from fit_late import SETS

from report import Table, options, publish, say

REPORTED = ("scifact", "cranfield", "locomo", "cosqa", "k8s_docs", "xquad_en")
MOST, DOCUMENTS, EACH = 60, 500, 12
"""Queries of a set, documents, and questions that another set gives."""
RELEVANT, FIRST = 5, 2
"""Relevant documents of a query that are in a part, and documents for an off-topic question."""
DEPTH = 40
SIGNS = ("coverage", "nearness", "both", "lead", "before", "match")
TRIED = (
    ("before",),
    ("before", "match"),
    ("coverage", "nearness", "both", "lead"),
    ("coverage", "nearness", "both", "lead", "match"),
)
USED = TRIED[1]
BINS = (0.0, 0.01, 0.045, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0)
ON: Mapping[str, Any] = {"late_interaction": "on"}

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Cases(fit_confidence.Cases):
    """The hits of one set; a sign that could not be had is not a number."""

    chance: Floats
    """As the search gave it."""

    def columns(self, names: Sequence[str]) -> Floats:
        return self.signs[:, [SIGNS.index(name) for name in names]]

    def known(self) -> Cases:
        """Those that late interaction has a say in."""
        of = ~np.isnan(self.signs[:, -1])
        rows = (self.signs, self.right, self.first, self.kind, self.query, self.chance)
        return Cases(*(row[of] for row in rows))

    def before(self) -> Floats:
        return np.where(np.isnan(self.signs[:, -1]), self.chance, logistic(self.signs[:, -2]))

    def after(self, found: fit_confidence.Fit) -> Floats:
        asked = np.nan_to_num(self.columns(found.names))
        chance = logistic(asked @ found.coefficients + found.bias)
        return np.where(np.isnan(self.signs[:, -1]), self.chance, chance)


def cases(answers: Sequence[tuple[str, SearchResult, frozenset[str]]]) -> Cases:
    rows = [
        (_signs(found.trace["confidence"]["because"][hit.id]), hit.id in right, not i, kind, number)
        for number, (kind, found, right) in enumerate(answers)
        for i, hit in enumerate(found)
    ]
    chances = [hit.chance or 0.0 for _, found, _ in answers for hit in found]
    signs, right, first, kinds, queries = (np.array(of) for of in zip(*rows, strict=True))
    return Cases(signs, right, first, kinds, queries, np.array(chances))


def _signs(because: Mapping[str, Any]) -> list[float]:
    covered, near = because["coverage"] or 0.0, because["nearness"] or 0.0
    before = weigh_signs(LEGS["both"], covered, near, because["lead"])
    return [covered, near, covered * near, because["lead"], before, because.get("match", np.nan)]


# ---------------------------------------------------------------------- a part of a set


def take_part(dataset: datasets.Dataset, arguments: Any) -> datasets.Dataset:
    """Some queries, with documents that are hard to tell from what answers them."""
    step = max(1, len(dataset.queries) // arguments.most)
    asked = dataset.queries[::step][: arguments.most]
    names = [sorted(relevant(dataset, question))[:RELEVANT] for question in asked]
    wanted = dict.fromkeys(name for of in names for name in of)
    with TemporaryDirectory(dir=arguments.work) as place, clew.open(place, model="none") as engine:
        engine.add(dataset.records or ())

        def find(text: str, within: clew.Filter | None, most: int) -> list[str]:
            found = engine.search(
                text, limit=most, mode="keyword", filter=within, group_by="record", syntax=False
            )
            return [hit.id for hit in found]

        for text in off_topic(dataset, EACH):
            wanted |= dict.fromkeys(find(text, None, FIRST))
        ranked = [find(question.text, question.filter, DEPTH) for question in asked]
    for rank in range(DEPTH):
        wanted |= dict.fromkeys(of[rank] for of in ranked if rank < len(of))
    kept = set(list(wanted)[: arguments.documents])
    records = tuple(record for record in dataset.records or () if record.id in kept)
    qrels = {
        q.id: {name: grade for name, grade in dataset.qrels[q.id].items() if name in kept}
        for q in asked
    }
    return dataset.only(
        [q for q in asked if any(qrels[q.id].values())], qrels=qrels, records=records
    )


@contextmanager
def indexed(dataset: datasets.Dataset, stores: Path) -> Any:
    """A store of these documents with vectors and codes."""
    place = stores / f"{dataset.name}-{dataset.split}-{len(dataset.records or ())}"
    with clew.open(place, **PATIENT, **ON) as engine:
        engine.add(dataset.records or ())
        engine.embed()
        yield engine


def look(name: str, split: str, arguments: Any) -> Cases:
    dataset = take_part(datasets.read(arguments.data / name, split=split), arguments)
    with indexed(dataset, arguments.stores) as engine:
        passages = engine.status()["chunks"]
        asked = ask(engine, dataset, **ON)
        others = ask_off_topic(engine, dataset, each=EACH, **ON)
    found = to_cases(asked, others)
    say(f"{name} {split}: {len(dataset.records or ())} documents, {passages} passages")
    return found


def to_cases(asked: Sequence[Asked], others: Sequence[SearchResult]) -> Cases:
    answers = [("with", each.whole, each.relevant) for each in asked]
    answers += [("without", each.bare, frozenset()) for each in asked]
    answers += [("off-topic", found, frozenset()) for found in others]
    return cases(answers)


# ---------------------------------------------------------------------- figures


def compare(sets: Mapping[str, Cases]) -> Table:
    rows: list[tuple[Any, ...]] = []
    known = {name: of.known() for name, of in sets.items()}
    untouched = [
        fit_confidence.loss(of, logistic(of.columns(("before",))[:, 0])) for of in known.values()
    ]
    rows.append(("as it is without", *_four(untouched)))
    for names in TRIED:
        chances = fit_confidence.unseen(known, names)
        losses = [fit_confidence.loss(of, chances[name]) for name, of in known.items()]
        rows.append((", ".join(names), *_four(losses)))
    note = (
        "Per hit, of chances by a fit on the other sets: less is better. `before` is the logit of "
        "the chance without late interaction, whose coefficients were fitted on the whole of seven "
        "of these sets; the last two rows fit all signs on these parts alone. Used: "
        f"{', '.join(USED)}."
    )
    return Table("Log loss, by signs", ("signs", *sets, "mean"), rows, note)


def _four(losses: Sequence[float]) -> list[str]:
    return [f"{of:.4f}" for of in (*losses, float(np.mean(losses)))]


def coefficients(found: fit_confidence.Fit, sets: Mapping[str, Cases]) -> Table:
    rows: list[tuple[Any, ...]] = []
    known = {name: of.known() for name, of in sets.items()}

    def row(what: str, values: Sequence[float]) -> None:
        rows.append((what, *(f"{of:.2f}" for of in values)))

    row("fitted", (found.bias, *found.coefficients))
    row("in confidence.py", TOKENS)
    for name in known:
        part = fit_confidence.fit([of for other, of in known.items() if other != name], USED)
        row(f"without {name}", (part.bias, *part.coefficients))
    return Table("Coefficients", ("fitted on", "bias", *USED), rows)


def strict(title: str, sets: Mapping[str, Cases], after: Mapping[str, Floats]) -> Table:
    now = settings.profile("default")
    high, med = now["confidence_high"], now["confidence_med"]
    rows: list[tuple[Any, ...]] = []
    for name, of in sets.items():
        for what, chance in (("before", of.before()), ("after", after[name])):
            passed, sure = chance >= med, chance >= high
            right = of.right & (of.kind == "with")
            bare = "–"
            if of.queries("without"):
                bare = f"{fit_confidence.unanswered(of, sure):.2f}"
            rows.append(
                (
                    name,
                    what,
                    f"{fit_confidence.kept(of, passed):.3f}",
                    f"{passed[right].mean():.3f} of {right.sum()}",
                    f"{fit_confidence.dropped(of, passed):.3f}",
                    f"{fit_confidence.silent(of, passed):.2f}",
                    fit_confidence.right(of, sure),
                    bare,
                )
            )
    note = (
        f"At MED = {med} and HIGH = {high}: right first hits that `--strict` keeps, right hits of "
        "all ten that it keeps (what it costs in recall), answers to off-topic questions that it "
        "drops, such questions that are left with none; HIGH hits that are relevant, and queries "
        "that get one although nothing is."
    )
    columns = ("set", "", "first kept", "recall kept", "dropped", "silent", "HIGH right", "without")
    return Table(title, columns, rows, note)


def curve(title: str, sets: Mapping[str, Cases], after: Mapping[str, Floats]) -> Table:
    """Of all sets, each counting the same."""
    rows: list[tuple[Any, ...]] = []
    right = np.concatenate([of.right for of in sets.values()]).astype(np.float64)
    counts = np.concatenate([np.full(len(of.right), 1 / len(of.right)) for of in sets.values()])
    ways = [
        np.concatenate([of.before() for of in sets.values()]),
        np.concatenate([after[name] for name in sets]),
    ]
    errors = [0.0, 0.0]
    for low, top in pairwise(BINS):
        cells = []
        for way, chance in enumerate(ways):
            of = (chance >= low) & ((chance < top) | (top == 1.0))
            if not of.any():
                cells += ["–", "–", "0"]
                continue
            said = float(np.average(chance[of], weights=counts[of]))
            true = float(np.average(right[of], weights=counts[of]))
            errors[way] += abs(said - true) * float(counts[of].sum()) / len(sets)
            cells += [f"{said:.3f}", f"{true:.3f}", f"{of.sum():,}"]
        rows.append((f"{low:g} to {top:g}", *cells))
    note = (
        "All hits of queries with and without relevant documents and of off-topic questions, every "
        f"set counting the same. Mean distance of what is said from what is right: {errors[0]:.3f} "
        f"before, {errors[1]:.3f} after."
    )
    columns = ("chance", "before: said", "right", "hits", "after: said", "right", "hits")
    return Table(title, columns, rows, note)


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--stores", type=Path, required=True, help="for stores, which are kept")
    parser.add_argument("--sets", default=",".join(SETS), help="to fit on, by name")
    parser.add_argument("--reported", default=",".join(REPORTED), help="to report on, by name")
    parser.add_argument("--most", type=int, default=MOST, help=f"queries of a set ({MOST})")
    parser.add_argument("--documents", type=int, default=DOCUMENTS, help=f"of a set ({DOCUMENTS})")
    arguments = parser.parse_args()
    sets = {name: look(name, SETS[name], arguments) for name in arguments.sets.split(",")}
    known = {name: of.known() for name, of in sets.items()}
    found = fit_confidence.fit(list(known.values()), USED)
    say(f"fitted: {found}")
    left_out = {
        name: of.after(fit_confidence.fit([o for n, o in known.items() if n != name], USED))
        for name, of in sets.items()
    }
    sample = ask_sample(arguments.work, **ON)
    others = {"sample": to_cases(sample.asked, sample.off_topic)}
    others |= {n: look(n, "test", arguments) for n in arguments.reported.split(",") if n}
    there = {name: of.after(found) for name, of in others.items()}
    tables = [
        coefficients(found, sets),
        compare(sets),
        strict("Training sets, each left out", sets, left_out),
        curve("Reliability on training sets, each left out", sets, left_out),
        strict("The sample, and sets that took no part", others, there),
        curve("Reliability on the sample, and on sets that took no part", others, there),
    ]
    numbers = {"bias": found.bias, **dict(zip(USED, found.coefficients.tolist(), strict=True))}
    publish("Confidence with late interaction", __doc__, tables, numbers, arguments)


if __name__ == "__main__":
    main()
