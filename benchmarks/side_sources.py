"""Side sources: what file names and folders gain beside words and vectors, by their weight.

    python benchmarks/side_sources.py --out docs/benchmarks/side_sources.md

The sources `filenames` and `tags` count next to words and vectors with the weight that the profile
gives them. Of the public sets only k8s_docs has paths: its ids are those of the pages. So each
record gets the path id + ".md", in a copy of the set's index; a path is no part of the text, so no
vector is made anew. `tags` finds records by the names of their folders there, since the pages have
no tags of their own. Nothing here says anything about tags that people give, nor about `canonical`:
no set has a CANONICAL.md.

Each query is asked as a search for ten with each weight, words and vectors at 1. nDCG@10 is
ir-measures'; p is of a paired randomisation test against a weight of 0, corrected for the weights
of a column (Holm).

The set has no training queries, and benchmarks/quality.py reports on it (without paths): a weight
chosen by this table would be chosen on the test. The table says what the default is worth and
whether it does harm. Its judgements come from the texts of links, which resemble titles, and so the
names of files, more than what people ask.

--stores names a folder with a ready store, by the set's name; without it one is made as by `clew
eval`.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import clew
from answerless import PATIENT, SHOWN, opened
from clew import config as settings
from clew.engine import Engine
from clew.eval import datasets, metrics
from clew.sources import configure
from clew.storage import FOLDER

from report import Table, options, publish, say

SET = "k8s_docs"
WEIGHTS = (0.0, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0)
SIDES = {"filenames": ("filenames",), "tags": ("tags",), "both": ("filenames", "tags")}
"""What is weighed in each column; the other one is left out."""
LEGS = ("keyword", "vectors")


def with_paths(dataset: datasets.Dataset, stores: Path | None, work: Path) -> Engine:
    """A copy of the set's index in which every record has a path."""
    with opened(dataset, stores) as ready:
        root = ready.root or Path()
    shutil.copytree(root / FOLDER, work / FOLDER)
    engine = clew.open(work, create=False, **PATIENT)
    engine.add(replace(record, path=f"{record.id}.md") for record in dataset.records or ())
    engine.embed()  # what a ready store held in another form; a path alone changes no vector
    return engine


def ask(engine: Engine, dataset: datasets.Dataset, **asked: Any) -> dict[str, list[str]]:
    """The ids that each query finds."""
    run = {}
    for question in dataset.queries:
        found = engine.search(
            question.text, limit=SHOWN, group_by="record", syntax=False, floor=0, **asked
        )
        if found.degraded:
            raise SystemExit(f"{question.id}: not a fair answer: {found.degraded}")
        run[question.id] = [hit.id for hit in found]
    return run


def measure(engine: Engine, dataset: datasets.Dataset) -> dict[str, list[list[float]]]:
    """nDCG@10 of each query, by what is weighed and by weight."""
    scores: dict[str, list[list[float]]] = {}
    for column, sides in SIDES.items():
        for weight in WEIGHTS:
            weights = dict.fromkeys(LEGS, 1.0) | dict.fromkeys(sides, weight)
            sources = list(weights) if weight else list(LEGS)
            run = ask(engine, dataset, sources=sources, weights={n: weights[n] for n in sources})
            found = metrics.per_query(dataset.qrels, run, measures=("ndcg@10",))["ndcg@10"]
            scores.setdefault(column, []).append([found[name] for name in run])
        say(f"  {column}")
    return scores


def by_weight(scores: Mapping[str, list[list[float]]], default: Mapping[str, float]) -> Table:
    rows: list[tuple[Any, ...]] = []
    corrected = {
        column: metrics.holm([metrics.difference(row, of[0])[1] for row in of[1:]])
        for column, of in scores.items()
    }
    for i, weight in enumerate(WEIGHTS):
        cells = [f"{metrics.mean(of[i]):.4f}" for of in scores.values()]
        if i:
            cells = [
                f"{cell} (p = {corrected[column][i - 1]:.4f})"
                for cell, column in zip(cells, scores, strict=True)
            ]
        rows.append((f"{weight:g}", *cells))
    said = ", ".join(f"{name} {weight:g}" for name, weight in default.items())
    note = f"In the default profile: {said}."
    return Table("nDCG@10 by weight", ("weight", *scores), rows, note)


def who_says_what(engine: Engine, dataset: datasets.Dataset) -> Table:
    """How often each side says anything, and how often that is right."""
    rows: list[tuple[Any, ...]] = []
    for side in SIDES["both"]:
        run = ask(engine, dataset, sources=[side])
        right = [
            [dataset.qrels[name].get(each, 0) > 0 for each in found]
            for name, found in run.items()
            if found
        ]
        first, any_of = [of[0] for of in right], [any(of) for of in right]
        share = f"{len(right) / len(run):.0%}"
        rows.append((side, share, *(f"{metrics.mean(x):.0%}" for x in (first, any_of))))
    columns = ("source", "queries it answers", "its first is relevant", "one of its ten is")
    return Table("What they say", columns, rows, "The last two of the queries it answers.")


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--stores", type=Path, help="folder with a ready store for the set")
    arguments = parser.parse_args()
    metrics.require("ir_measures", "scipy.stats")
    dataset = datasets.read(arguments.data / SET)
    with (
        TemporaryDirectory(dir=arguments.work, ignore_cleanup_errors=True) as work,
        with_paths(dataset, arguments.stores, Path(work)) as engine,
    ):
        scores, said = measure(engine, dataset), who_says_what(engine, dataset)
    profile = configure(settings.load(None, {}), Path())
    default = {side: profile[side].weight for side in SIDES["both"]}
    tables = [by_weight(scores, default), said]
    numbers = {
        column: {
            f"{weight:g}": round(metrics.mean(row), 4)
            for weight, row in zip(WEIGHTS, of, strict=True)
        }
        for column, of in scores.items()
    }
    publish("Side sources", __doc__, tables, {"ndcg@10": numbers}, arguments)


if __name__ == "__main__":
    main()
