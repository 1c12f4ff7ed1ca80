"""Ask a set's queries twice: as it is, and as if their relevant documents were not there; and ask
it what nothing there is about.

Taking records out of a store for every query and putting them back would take hours, so sources
are told to pass over them: each asks deeper by as many as are gone and gives lists as long as ever.
Only how rare a word is stays as it was. `really_without` does take them out, of a copy of the
store, so that a sample can say whether that matters.

Off-topic questions are those of sets about something else: SciFact's claims are no question to a
folder of Python functions.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import clew
from clew import config as settings
from clew.engine import Engine
from clew.eval import datasets, harness
from clew.filter import Filter
from clew.protocols import Context, Source
from clew.sources import Configured, configure
from clew.storage import FOLDER
from clew.types import Answer, Candidate, Mode, Query, SearchResult

from report import say

SHOWN = 10
MOST = 300
"""Queries of a training set that are asked."""
EACH = 40
"""Questions that another set gives."""
OFF_TOPIC: Mapping[str, tuple[str, ...]] = {
    "scifact train": ("cosqa dev", "nq_utd"),
    "cosqa dev": ("scifact train", "medline1033", "nq_utd"),
    "cisi": ("scifact train", "medline1033", "nq_utd"),
    "medline1033": ("cosqa dev", "nq_utd"),
    "cacm": ("scifact train", "medline1033", "nq_utd"),
    "nq_utd": ("cosqa dev", "medline1033"),
    "vaswani": ("scifact train", "medline1033", "nq_utd"),
    "longmemeval": ("scifact train", "cacm", "vaswani"),
    "scifact": ("xquad_en", "locomo", "k8s_docs", "2wiki_dev"),
    "cranfield": ("k8s_docs", "xquad_en", "locomo", "2wiki_dev"),
    "locomo": ("scifact", "cranfield", "k8s_docs", "xquad_en"),
    "cosqa": ("scifact", "cranfield", "xquad_en", "locomo", "2wiki_dev"),
    "k8s_docs": ("scifact", "cranfield", "xquad_en", "locomo", "2wiki_dev"),
    "xquad_en": ("scifact", "cranfield", "k8s_docs", "locomo"),
    "xquad_zh": ("cmrc2018_zh",),
}
"""Per set (and split, if it is not the test) those that are about something else: training sets for
what is fitted on, and none of them for what is reported on. Abstracts of one science are not asked
about another's: `applied stochastic processes` is a question to many."""
PATIENT: Mapping[str, Any] = {"deadline": 3600.0, "cache": False}
"""A list that came late, or from a cache, would be measured."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One query's answers."""

    relevant: frozenset[str]
    whole: SearchResult
    bare: SearchResult
    """With nothing relevant in it."""


def ask(
    engine: Engine,
    dataset: datasets.Dataset,
    *,
    most: int | None = None,
    mode: Mode = "hybrid",
    **changed: Any,
) -> list[Asked]:
    """Every query of a set (or `most` of them, evenly), ten hits each. `changed` are settings."""
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
    for question in _some(dataset.queries, most):
        found = []
        for out in (frozenset[str](), relevant(dataset, question)):
            gone.clear()
            gone.update(out)
            found.append(_search(asking, question.text, question.scope, mode))
        asked.append(Asked(relevant(dataset, question), *found))
    say(f"{dataset.name} {dataset.split}: {len(asked):,} queries, {mode}")
    return asked


def ask_off_topic(
    engine: Engine,
    dataset: datasets.Dataset,
    *,
    mode: Mode = "hybrid",
    each: int = EACH,
    **changed: Any,
) -> list[SearchResult]:
    """The answers to questions of other sets, each in one of this set's scopes, if it has any."""
    scopes = sorted({q.scope for q in dataset.queries if q.scope is not None}) or [None]
    config = settings.load(engine.root, {**PATIENT, **changed})
    asking = Engine(engine.store, config=config, root=engine.root, embedder=engine.embedder)
    return [
        _search(asking, text, scopes[number % len(scopes)], mode)
        for number, text in enumerate(off_topic(dataset, each))
    ]


def off_topic(dataset: datasets.Dataset, each: int = EACH) -> list[str]:
    """Questions that nothing in a set is about, so many of each of the others."""
    texts: list[str] = []
    here = dataset.name if dataset.split == "test" else f"{dataset.name} {dataset.split}"
    for other in OFF_TOPIC.get(here, ()):
        name, _, split = other.partition(" ")
        folder = dataset.folder.parent / name
        others = datasets.read(folder, split=split or "test", skip_bad=True).queries
        texts += [question.text for question in _some(others, each)]
    return texts


def _some(questions: Sequence[datasets.Question], most: int | None) -> list[datasets.Question]:
    step = 1 if most is None else max(1, len(questions) // most)
    return list(questions)[::step][:most]


def relevant(dataset: datasets.Dataset, question: datasets.Question) -> frozenset[str]:
    return frozenset(name for name, grade in dataset.qrels[question.id].items() if grade > 0)


def _search(engine: Engine, text: str, scope: str | None, mode: Mode = "hybrid") -> SearchResult:
    within = None if scope is None else Filter(collection=scope)
    asked: dict[str, Any] = {"filter": within, "group_by": "record", "syntax": False, "floor": 0}
    found = engine.search(text, limit=SHOWN, mode=mode, **asked)
    if found.degraded:
        raise SystemExit(f"{text!r}: not a fair answer: {found.degraded}")
    return found


def _passing_over(gone: set[str], source: Source) -> Source:
    def asked(query: Query, context: Context) -> list[Candidate]:
        found = source(replace(query, depth=query.depth + len(gone)), context)
        candidates = found.candidates if isinstance(found, Answer) else found
        return [c for c in candidates if c.id not in gone][: query.depth]

    return asked


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
                yield _search(cut, question.text, question.scope)
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
