"""Confidence: how often HIGH, MED and LOW are right.

    python benchmarks/confidence.py --out docs/benchmarks/confidence.md

The sets of benchmarks/quality.py, none of whose queries had a part in the fit of the coefficients
(confidence-fit.md), searched as anyone searches: default profile, passages, ten hits. A hit is
right if it was judged relevant; what nobody judged counts as wrong, so the true shares are higher.
Each query is asked twice, the second time as if its relevant documents were not in the store
(benchmarks/answerless.py): whatever is marked HIGH then is wrong.

Words alone and vectors alone are the same searches with one leg. What thresholds on the score of
adaptive fusion would give is in a table of its own, and so are the badges of weighted_rrf, which
are by its score and Athena's thresholds. With reranking the badges are the same: they are decided
before it, and only the order changes.

--stores names a folder with a ready store for each set, by the set's name; without it they are made
(half an hour, kept in the user's cache folder as those of `clew eval`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from answerless import SHOWN, Asked, ask, lists_and_facts, opened, really_without
from clew import config as settings
from clew.engine import Engine
from clew.eval import datasets
from clew.ranking.confidence import chances, confidence
from clew.types import SearchResult
from quality import SETS

from report import Table, figure, options, publish, say

__all__: list[str] = []

BADGES = ("HIGH", "MED", "LOW")
PROMISED = ("scifact", "k8s_docs")
"""The sets whose figures are promised."""
RIGHT, UNANSWERED = 0.7, 0.1
"""How often HIGH is right there at least, and how often a query with no relevant document gets it
at most."""
FUSED = (0.8, 0.9, 1.0, 1.1, 1.2)
"""Thresholds on the score of adaptive fusion that are tried."""
REMOVED = 25
"""Queries of each promised set for which records are really taken out."""

Judged = Callable[[SearchResult], Sequence[tuple[str, str]]]
"""Id and badge of what is shown, best first."""


def as_shown(found: SearchResult) -> list[tuple[str, str]]:
    return [(hit.id, hit.confidence or "") for hit in found]


def with_leg(leg: str) -> Judged:
    """The same search with one leg only."""
    profile = settings.profile("default")
    high, med = profile["confidence_high"], profile["confidence_med"]

    def judged(found: SearchResult) -> list[tuple[str, str]]:
        lists, facts = lists_and_facts(found)
        judge = chances({leg: lists[leg]}, facts)
        shown = [candidate.id for candidate in lists[leg][:SHOWN]]
        return [(name, confidence(judge(name).value, high=high, med=med)) for name in shown]

    return judged


def by_fused(high: float) -> Judged:
    def judged(found: SearchResult) -> list[tuple[str, str]]:
        return [(hit.id, "HIGH" if hit.rrf_score >= high else "LOW") for hit in found]

    return judged


# ---------------------------------------------------------------------- figures


def shares(
    asked: Sequence[Asked], judged: Judged = as_shown, *, first: int = SHOWN
) -> dict[str, tuple[int, float]]:
    """Per badge: hits of answerable queries, and the share of them that is relevant."""
    right: dict[str, list[bool]] = {badge: [] for badge in BADGES}
    for each in asked:
        for name, badge in judged(each.whole)[:first]:
            right[badge].append(name in each.relevant)
    return {badge: (len(of), sum(of) / len(of) if of else 0.0) for badge, of in right.items()}


def reached(results: Sequence[SearchResult], judged: Judged = as_shown) -> dict[str, float]:
    """Per badge: the share of queries whose best hit has it."""
    best = [
        min((BADGES.index(badge) for _, badge in judged(found)), default=len(BADGES) - 1)
        for found in results
    ]
    return {badge: best.count(i) / len(best) for i, badge in enumerate(BADGES)}


def promises(sets: Mapping[str, Sequence[Asked]]) -> Table:
    rows = []
    for name in PROMISED:
        if name not in sets:
            continue
        count, right = shares(sets[name])["HIGH"]
        rows.append(
            figure(
                f"HIGH hits on {name} that are relevant",
                f"{right:.1%} of {count}",
                f"≥ {RIGHT:.0%}",
                right >= RIGHT,
            )
        )
        high = reached([each.bare for each in sets[name]])["HIGH"]
        rows.append(
            figure(
                f"queries on {name} with nothing relevant that get a HIGH",
                f"{high:.1%} of {len(sets[name])}",
                f"≤ {UNANSWERED:.0%}",
                high <= UNANSWERED,
            )
        )
    return Table("Figures", ("figure", "measured", "wanted", "holds"), rows)


def right_by_badge(title: str, sets: Mapping[str, Sequence[Asked]], *, first: int) -> Table:
    rows: list[tuple[Any, ...]] = []
    for name, asked in sets.items():
        cells = [
            f"{share:.2f} of {count:,}" for count, share in shares(asked, first=first).values()
        ]
        rows.append((name, len(asked), *cells))
    return Table(title, ("set", "queries", *BADGES), rows, _NOTES.get(title, ""))


def best_by_badge(sets: Mapping[str, Sequence[Asked]]) -> Table:
    rows: list[tuple[Any, ...]] = []
    for name, asked in sets.items():
        there, gone = reached([each.whole for each in asked]), reached([e.bare for e in asked])
        rows.append((name, *(f"{of[badge]:.2f}" for of in (there, gone) for badge in BADGES)))
    columns = ("set", *BADGES, *(f"{badge} without" for badge in BADGES))
    title = "The best badge that a query gets"
    return Table(title, columns, rows, _NOTES[title])


def legs(sets: Mapping[str, Sequence[Asked]]) -> Table:
    rows: list[tuple[Any, ...]] = []
    for name, asked in sets.items():
        cells = []
        for judged in (with_leg("keyword"), with_leg("vectors")):
            count, right = shares(asked, judged)["HIGH"]
            without = reached([each.bare for each in asked], judged)["HIGH"]
            cells += [f"{right:.2f} of {count:,}" if count else "–", f"{without:.2f}"]
        rows.append((name, *cells))
    columns = ("set", "HIGH by words", "without", "HIGH by vectors", "without")
    title = "Words alone, vectors alone"
    return Table(title, columns, rows, _NOTES[title])


def on_the_score(sets: Mapping[str, Sequence[Asked]]) -> Table:
    rows: list[tuple[Any, ...]] = []
    for name, asked in sets.items():
        cells = []
        for threshold in FUSED:
            count, right = shares(asked, by_fused(threshold))["HIGH"]
            without = reached([each.bare for each in asked], by_fused(threshold))["HIGH"]
            cells.append(
                f"{right:.2f} of {count:,}, {without:.2f}" if count else f"–, {without:.2f}"
            )
        rows.append((name, *cells))
    title = "If the score of adaptive fusion decided"
    return Table(title, ("set", *(f"≥ {threshold}" for threshold in FUSED)), rows, _NOTES[title])


def as_athena(sets: Mapping[str, Sequence[Asked]]) -> Table:
    rows: list[tuple[Any, ...]] = []
    for name, asked in sets.items():
        cells = [f"{share:.2f} of {count:,}" for count, share in shares(asked).values()]
        without = reached([each.bare for each in asked])["HIGH"]
        rows.append((name, *cells, f"{without:.2f}"))
    title = "weighted_rrf with Athena's thresholds"
    return Table(title, ("set", *BADGES, "HIGH without"), rows, _NOTES[title])


def removed(
    engine: Engine, dataset: datasets.Dataset, asked: Sequence[Asked], work: Path | None
) -> tuple[Any, ...]:
    """Whether passing over the relevant records comes to the same as taking them out."""
    step = max(1, len(asked) // REMOVED)
    some = list(range(0, len(asked), step))[:REMOVED]
    questions = [dataset.queries[i] for i in some]
    pairs = [
        (asked[i].bare, found)
        for i, found in zip(some, really_without(engine, dataset, questions, work), strict=True)
    ]
    same = sum([h.id for h in over] == [h.id for h in out] for over, out in pairs)
    badges = sum([h.confidence for h in over] == [h.confidence for h in out] for over, out in pairs)
    both = [
        (hit.metadata["chance"], again.metadata["chance"])
        for over, out in pairs
        for hit, again in _both(over, out)
    ]
    say(f"{dataset.name}: {len(pairs)} queries with their records taken out")
    most = max(abs(one - other) for one, other in both)
    return (dataset.name, len(pairs), same, badges, f"{most:.3f}")


def _both(over: SearchResult, out: SearchResult) -> Iterator[tuple[Any, Any]]:
    again = {hit.id: hit for hit in out}
    return ((hit, again[hit.id]) for hit in over if hit.id in again)


_NOTES = {
    "All ten hits": "Share that is relevant, of how many. On cranfield the surest hits are "
    "unjudged papers whose titles all but repeat the question: those that it was made from, by the "
    "look of them.",
    "The best badge that a query gets": "Shares of queries; `without`: of the same queries with "
    "their relevant documents gone. With `strict` those in the LOW columns find nothing.",
    "Words alone, vectors alone": "HIGH hits that are relevant, of how many; `without`: the share "
    "of queries that get one although nothing is relevant.",
    "If the score of adaptive fusion decided": "HIGH hits that are relevant, of how many, and the "
    "share of queries that get one although nothing is relevant. 1.0 would just do for scifact and "
    "k8s_docs, but marks a third to two thirds of the queries of xquad that nothing answers.",
    "weighted_rrf with Athena's thresholds": "HIGH from 0.03, MED from 0.02 on, two sources "
    "(keyword, vectors) of weight 1: the first ranks of both lists pass, whatever they hold.",
}


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--stores", type=Path, help="folder with a ready store for each set")
    parser.add_argument("--sets", help=f"with commas (default: {','.join(SETS)})")
    arguments = parser.parse_args()
    sets: dict[str, list[Asked]] = {}
    athena: dict[str, list[Asked]] = {}
    out: list[tuple[Any, ...]] = []
    for name in arguments.sets.split(",") if arguments.sets else SETS:
        dataset = datasets.read(arguments.data / name)
        with opened(dataset, arguments.stores) as engine:
            sets[name] = ask(engine, dataset)
            if name in PROMISED:
                athena[name] = ask(engine, dataset, fusion="weighted_rrf")
                out.append(removed(engine, dataset, sets[name], arguments.work))
    columns = ("set", "queries", "same ten hits", "same badges", "largest difference of a chance")
    tables = [
        promises(sets),
        right_by_badge("All ten hits", sets, first=SHOWN),
        right_by_badge("The first hit alone", sets, first=1),
        best_by_badge(sets),
        legs(sets),
        on_the_score(sets),
        as_athena(athena),
        Table("Records passed over, against records taken out", columns, out),
    ]
    numbers = {
        name: {"shares": shares(asked), "unanswered": reached([each.bare for each in asked])}
        for name, asked in sets.items()
    }
    publish("Confidence", __doc__, tables, numbers, arguments)


if __name__ == "__main__":
    main()
