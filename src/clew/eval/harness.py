"""Index a collection once, ask its queries in every mode, keep what was found and how long it took.

Each mode makes two passes. The first asks for ten results, as people do: all figures up to rank 10
and all times come from it. The second asks for a hundred and only fills ranks 11 to 100, for
recall@100. So no figure depends on whether a deeper search ranks its head alike.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

from clew import config as settings
from clew import trust
from clew.config import Config
from clew.engine import Engine, open_engine
from clew.errors import InputError, ModelError, check_known
from clew.eval.datasets import Dataset, Question
from clew.models import configured_name
from clew.protocols import Embedder, Progress
from clew.storage import FOLDER, has_store
from clew.storage.snapshot import read_state, write_state
from clew.text import analyser

MODES: dict[str, dict[str, Any]] = {
    "keyword": {"mode": "keyword"},
    "vector": {"mode": "vector", "floor": 0},  # all that is found is judged
    "hybrid": {"mode": "hybrid"},
    "rerank": {"mode": "hybrid", "rerank": True},
}
"""What each mode asks of `Engine.search`."""
DEFAULT_MODES = ("keyword", "vector", "hybrid")
SHOWN = 10
DEEP = 100
WARM_UP = ("warm up", "read what is on disk once")
"""Asked first: a command's first search pays for opening files, the others do not."""
MARKER = "eval.json"
"""In a store this module made: which collection it holds, and whether all of it."""


@dataclass(frozen=True, slots=True)
class Run:
    mode: str
    ranked: Mapping[str, tuple[str, ...]]
    """Per query up to a hundred ids, best first."""
    ms: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """Per stage its time in every search that had it; `total` is the whole call."""
    degraded: Mapping[str, int] = field(default_factory=dict)
    """What could not take part in full → in how many searches."""


def check_modes(modes: Iterable[str]) -> list[str]:
    wanted = list(dict.fromkeys(mode.strip() for mode in modes if mode.strip()))
    check_known("unknown mode", MODES, *wanted)
    if not wanted:
        raise InputError(f"name at least one mode of {', '.join(MODES)}")
    return wanted


# ---------------------------------------------------------------------- index once


def cache_folder() -> Path:
    """Where indexes and runs are kept: CLEW_EVAL, or the user's cache folder."""
    return trust.cache_folder("eval", "CLEW_EVAL")


def key(dataset: Dataset, config: Config, *, model: str | None = None) -> str:
    """Names everything an index depends on: the documents, the model, how text is cut."""
    digest = blake2b(digest_size=10)
    model = model or configured_name(config)
    digest.update(f"{model}|{config.chunk_size}|{analyser.VERSION}".encode())
    for record in dataset.records or ():
        fields = (record.id, record.title, record.content, record.collection)
        digest.update(json.dumps([*fields, record.metadata], ensure_ascii=True).encode())
    return digest.hexdigest()


def open_indexed(
    dataset: Dataset,
    *,
    folder: Path | None = None,
    vectors: bool = True,
    embedder: Embedder | None = None,
    overrides: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> tuple[Engine, str | None]:
    """The collection's own index, made if need be, and why it has no vectors (None: it has them).

    `embedder` takes the place of the configured model; `overrides` are settings of the engine.
    An interrupted run goes on where it stopped: documents that are in are left alone, and vectors
    that are there are not made again.
    """
    given = dict(overrides or {})
    if folder is not None and folder.name == FOLDER:
        folder = folder.parent
    model = embedder.model if embedder is not None else None
    name = key(dataset, settings.load(folder, given), model=model)
    folder = folder or cache_folder() / f"{dataset.name}-{name}"
    marker = folder / FOLDER / MARKER
    engine = open_engine(folder, embedder=embedder, **given)
    try:
        known = read_state(marker) or {"key": name}
        if known.get("key") != name:
            raise InputError(
                f"{folder} holds the index of another collection or model: "
                "give another --store, or none"
            )
        if not known.get("whole"):
            marker.parent.mkdir(parents=True, exist_ok=True)
            write_state(marker, {"key": name, "whole": False})
            engine.add(dataset.records or (), progress=progress)
            engine.optimise(progress=progress)
            write_state(marker, {"key": name, "whole": True})
        return engine, _embed(engine, progress) if vectors else None
    except BaseException:
        engine.close()
        raise


def is_own(folder: Path) -> bool:
    """Whether this is somebody's own store: searched as it is, never written to."""
    here = folder if folder.name == FOLDER else folder / FOLDER
    return has_store(here.parent) and not (here / MARKER).exists()


def _embed(engine: Engine, progress: Progress | None) -> str | None:
    try:
        if engine.store.indexes.coverage(engine.embedder.model) < 1:
            engine.embed(progress=progress)
        elif not engine.embedder.dim:
            engine.embedder.embed_query("")  # says why it cannot
    except ModelError as error:
        return str(error)
    return None


def check_store(dataset: Dataset, engine: Engine, *, skip_bad: bool = False) -> Dataset:
    """Judgements about a store must name what is in it; with `skip_bad` the others are left out and
    named in the notes."""
    wanted = sorted({name for judged in dataset.qrels.values() for name in judged})
    known = {record.id for record in engine.store.get(wanted)}
    skipped: list[str] = []
    qrels = {query: dict(judged) for query, judged in dataset.qrels.items()}
    for (query, document), where in dataset.places.items():
        if query not in qrels or document in known:
            continue
        what = f"there is no record {document!r} in {engine.root}"
        if not skip_bad:
            raise InputError(f"{where}: {what}")
        del qrels[query][document]
        skipped.append(f"{Path(where).name}: {what}")
    if not skipped:
        return dataset
    notes = [*dataset.notes, f"{len(skipped)} judgements were skipped: {'; '.join(skipped[:3])}"]
    kept = [q for q in dataset.queries if any(rel > 0 for rel in qrels[q.id].values())]
    if not kept:
        raise InputError(
            f"{dataset.folder}: no judgement is about a record of {engine.root}: give its own store"
        )
    if left_out := len(dataset.queries) - len(kept):
        notes.append(f"{left_out} queries have no relevant document there and are left out")
    return dataset.only(kept, qrels=qrels, notes=tuple(notes))


def why_no_vectors(engine: Engine) -> str | None:
    """Why somebody's own store can only be asked for words; None: it has vectors."""
    figures = engine.status()
    if not figures["ready"]:
        return str(figures["why_not"])
    return None if figures["embedded"] else "this store has no vectors yet: run `clew index`"


# ---------------------------------------------------------------------- ask


def run_modes(
    engine: Engine,
    questions: Sequence[Question],
    modes: Iterable[str],
    *,
    no_vectors: str | None = None,
    syntax: bool = False,
    progress: Progress | None = None,
) -> tuple[list[Run], dict[str, str]]:
    """The runs of all modes that can be run here, and why the others cannot."""
    runs: list[Run] = []
    unavailable: dict[str, str] = {}
    for mode in modes:
        try:
            if "rerank" in MODES[mode]:
                engine.load_reranker()
            if no_vectors and MODES[mode]["mode"] != "keyword":
                raise ModelError(no_vectors)
            runs.append(run_mode(engine, questions, mode, syntax=syntax, progress=progress))
        except ModelError as error:
            unavailable[mode] = str(error)
    return runs, unavailable


def run_mode(
    engine: Engine,
    questions: Sequence[Question],
    mode: str,
    *,
    syntax: bool = False,
    progress: Progress | None = None,
) -> Run:
    """Ask every question in one mode.

    Queries are words only unless `syntax`: a question that quotes something makes no condition of
    it. The first pass sees no query's vector in memory from an earlier mode, because its time is
    measured.
    """
    asked = {**MODES[mode], "group_by": "record", "syntax": syntax}
    beyond = {name: value for name, value in asked.items() if name != "rerank"}  # only the head is
    fresh = Engine(  # the same, with none of what its searches have remembered
        engine.store,
        config=replace(engine.config, cache=False),
        root=engine.root,
        embedder=engine.embedder,
        sources=engine.sources,
        reranker=engine._reranker,  # given, or loaded by now
    )
    times: dict[str, list[float]] = {}
    degraded: Counter[str] = Counter()
    ranked: dict[str, tuple[str, ...]] = {}
    for text in WARM_UP:
        fresh.search(text, limit=SHOWN, **asked)
    for done, question in enumerate(questions, 1):
        text, within = question.text, question.filter
        try:
            begun = time.perf_counter()
            result = fresh.search(text, limit=SHOWN, filter=within, **asked)
            total = (time.perf_counter() - begun) * 1e3
            rest = fresh.search(text, limit=DEEP, filter=within, **beyond)
        except InputError as error:
            raise InputError(f"query {question.id!r}: {error}") from error
        for stage, ms in result.trace.get("stages_ms", {}).items():
            times.setdefault(stage, []).append(ms)
        for source, outcome in result.trace.get("sources", {}).items():
            times.setdefault(f"source {source}", []).append(outcome["ms"])
        times.setdefault("total", []).append(total)
        degraded.update(result.degraded)
        ids = dict.fromkeys([hit.id for hit in result] + [hit.id for hit in rest])
        ranked[question.id] = tuple(ids)[:DEEP]
        if progress:
            progress(f"{mode} queries", done, len(questions))
    fresh._collector.close()  # its threads; the store is the other engine's
    return Run(mode, ranked, {stage: tuple(ms) for stage, ms in times.items()}, dict(degraded))
