"""Ask a set's queries twice: as it is, and as if their relevant documents were not there.

Taking records out of a store for every query and putting them back would take hours, so sources
are told to pass over them: each asks deeper by as many as are gone and gives lists as long as ever.
Only how rare a word is stays as it was. `really_without` does take them out, of a copy of the
store, so that a sample can say whether that matters.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import clew
from clew import config as settings
from clew.engine import FOLDER, Engine
from clew.eval import datasets, harness
from clew.filter import Filter
from clew.protocols import Context, Source
from clew.ranking.adaptive import Facts
from clew.sources.configure import Configured, configure
from clew.types import Answer, Candidate, Query, SearchResult

from report import say

__all__ = ["Asked", "ask", "lists_and_facts", "opened", "really_without", "relevant"]

SHOWN = 10
PATIENT: Mapping[str, Any] = {"deadline": 3600.0, "cache": False}
"""A list that came late, or from a cache, would be measured."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One query's answers."""

    relevant: frozenset[str]
    whole: SearchResult
    bare: SearchResult
    """With nothing relevant in it."""


def ask(engine: Engine, dataset: datasets.Dataset, **changed: Any) -> list[Asked]:
    """Every query of a set, ten hits each. `changed` are settings."""
    gone: set[str] = set()
    config = settings.load(engine.root, {**PATIENT, **changed})
    sources = {
        name: replace(source, source=_passing_over(gone, source.source))
        for name, source in configure(config, engine.root or Path()).items()
    }
    asking = Engine(
        engine.store,
        config=config,
        root=engine.root,
        embedder=engine.embedder,
        sources=dict[str, Source | Configured](sources),
    )
    asked: list[Asked] = []
    for question in dataset.queries:
        found = []
        for out in (frozenset[str](), relevant(dataset, question)):
            gone.clear()
            gone.update(out)
            found.append(_search(asking, question))
        asked.append(Asked(relevant(dataset, question), *found))
    say(f"{dataset.name} {dataset.split}: {len(asked):,} queries")
    return asked


def relevant(dataset: datasets.Dataset, question: datasets.Question) -> frozenset[str]:
    return frozenset(name for name, grade in dataset.qrels[question.id].items() if grade > 0)


def _search(engine: Engine, question: datasets.Question) -> SearchResult:
    within = Filter(collection=question.scope) if question.scope is not None else None
    asked: dict[str, Any] = {"filter": within, "group_by": "record", "syntax": False}
    found = engine.search(question.text, limit=SHOWN, explain=True, **asked)
    if found.degraded:
        raise SystemExit(f"{question.id}: not a fair answer: {found.degraded}")
    return found


def _passing_over(gone: set[str], source: Source) -> Source:
    def asked(query: Query, context: Context) -> list[Candidate]:
        found = source(replace(query, depth=query.depth + len(gone)), context)
        candidates = found.candidates if isinstance(found, Answer) else found
        return [c for c in candidates if c.id not in gone][: query.depth]

    return asked


def lists_and_facts(found: SearchResult) -> tuple[dict[str, list[Candidate]], Facts]:
    """What the sources gave and what was known of the query, from the trace."""
    lists = {
        source: [Candidate(row["id"], row["score"]) for row in rows]
        for source, rows in found.trace["lists"].items()
    }
    return lists, Facts(**found.trace["fusion"]["facts"])


def really_without(
    engine: Engine, dataset: datasets.Dataset, questions: list[datasets.Question], work: Path | None
) -> Iterator[SearchResult]:
    """Each question's answer from a copy of the store out of which its relevant records were taken.
    They are put back before the next."""
    records = {record.id: record for record in dataset.records or ()}
    with TemporaryDirectory(dir=work) as copy:
        shutil.copytree((engine.root or Path()) / FOLDER, Path(copy) / FOLDER)
        with clew.open(copy, create=False, **PATIENT) as cut:
            for question in questions:
                out = sorted(relevant(dataset, question))
                cut.remove(out)
                yield _search(cut, question)
                cut.add([records[name] for name in out])
                cut.embed()


def opened(dataset: datasets.Dataset, stores: Path | None) -> Engine:
    """The set's index: a ready one, or the one that `clew eval` would make and keep."""
    if stores is not None:
        engine = clew.open(stores / dataset.name, create=False, **PATIENT)
        figures = engine.status()
        if figures["records"] == len(dataset.records or ()) and figures["embedded"] == 1:
            return engine
        engine.close()
        say(f"{stores / dataset.name} does not hold what is in {dataset.folder}: another is made")
    engine, no_vectors = harness.open_indexed(dataset, overrides=PATIENT)
    if no_vectors:
        raise SystemExit(no_vectors)
    return engine
