"""Make the graph of a store, or bring it up to date: only what changed is read again.

records → extract (unchanged: kept) → assemble → communities → summaries → swapped in
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from clew.errors import ConfigError, SourceError, StoreError, counted
from clew.filter import EVERYTHING
from clew.graph.extract import digest, extract
from clew.graph.extracts import Answers, Extracts
from clew.graph.proposed import Proposer
from clew.graph.snapshot import NOTE, Snapshot, folder_of, token_of, write
from clew.protocols import LLM, Progress, Store
from clew.storage.snapshot import DerivedFolder, State
from clew.types import Record

__all__ = ["ANSWERS", "Report", "behind", "build", "drop", "records_of"]

ANSWERS = "graph-answers.db"
LOCK = "graph.lock"
BATCH = 200
COUNTED = 50_000
"""Records up to which it is worth reading all of them to say how many have changed."""


@dataclass(slots=True)
class Report:
    """What a build did."""

    records: int = 0
    read: int = 0
    """Records that were new or had changed."""
    removed: int = 0
    entities: int = 0
    links: int = 0
    relations: int = 0
    communities: list[int] = field(default_factory=list)
    """Per level, from fine to coarse."""
    model: str = ""
    asked: int = 0
    """Questions put to the chat model; those answered from what was kept are not counted."""
    kept: int = 0
    failures: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"seconds": {k: round(s, 3) for k, s in self.seconds.items()}}


def records_of(store: Store) -> Iterator[list[Record]]:
    """All of them, by id."""
    after = ""
    while some := store.select(EVERYTHING, limit=BATCH, after=after):
        yield some
        after = some[-1].id


@contextlib.contextmanager
def _alone(store: Store, progress: Progress | None) -> Iterator[None]:
    import filelock

    lock = filelock.FileLock(store.folder / LOCK)
    try:
        lock.acquire(blocking=False)
    except filelock.Timeout:
        if progress:
            progress("waiting", 0, 0)
        lock.acquire()
    except (OSError, NotImplementedError) as error:
        raise StoreError(
            f"{store.folder} cannot be written ({error}): copy the store to where it can"
        ) from error
    try:
        yield
    finally:
        lock.release()


def build(
    store: Store,
    *,
    llm: LLM | None = None,
    seconds: float = 10.0,
    force: bool = False,
    progress: Progress | None = None,
) -> Report:
    """Bring the graph up to date, from nothing if need be. `force` reads every record again (what a
    chat model said is kept all the same)."""
    report = Report(model=llm.model if llm else "")
    folder = folder_of(store)
    with _alone(store, progress), contextlib.ExitStack() as opened:
        edition = store.edition()  # before reading: what is written meanwhile counts as missing
        if not (token := token_of(store)):
            token = os.urandom(8).hex()
            store.set_note(NOTE, token)
        extracts = Extracts(folder.place / "extracts.db")
        opened.callback(extracts.close)
        proposer = None
        if llm is not None:
            answers = Answers(store.folder / ANSWERS)
            opened.callback(answers.close)
            proposer = Proposer(llm, answers, seconds=seconds)
        begun = time.perf_counter()
        _catch_up(store, extracts, report, proposer, force=force, progress=progress)
        report.seconds["reading"] = time.perf_counter() - begun
        state, made_from = folder.state(), extracts.fingerprint()
        if state is not None and not force and _serves(folder, state, token, made_from):
            folder.save({**state, "edition": list(edition)})
            _take_figures(report, state)
            return report
        facts = {"token": token, "edition": list(edition), "model": report.model}
        facts["made_from"] = made_from
        _take_figures(report, _make(store, folder, extracts, report, proposer, facts, progress))
        if proposer is not None:
            _say(report, proposer)
            if report.read == report.records:  # else some speak of records not read this time
                answers.keep(proposer.used)
    return report


def _serves(folder: DerivedFolder, state: State, token: str, made_from: str) -> bool:
    """Whether what is there was made from these very extracts, is undamaged, and lacks nothing."""
    if state["token"] != token or state["made_from"] != made_from:
        return False
    if "checksums" not in state:
        return False  # of an older version
    if not state["levels"] and state["entities"]:
        return False  # for want of igraph, which may be here by now
    try:
        return not Snapshot(folder, state).damaged()
    except SourceError:
        return False


def _take_figures(report: Report, state: dict[str, Any]) -> None:
    report.records, report.entities = state["records"], state["entities"]
    report.links, report.relations = state["links"], state["relations"]
    report.communities = list(state["levels"])


def _say(report: Report, proposer: Proposer) -> None:
    report.asked, report.kept, report.failures = proposer.asked, proposer.kept, proposer.failures
    if proposer.failures:
        left = "; it was not asked again after that" if proposer.given_up else ""
        report.notes.append(
            f"{counted(proposer.failures, 'passage')} read by rules, since the chat model failed"
            f"{left}: {proposer.problem}. `clew graph build` asks again"
        )


def _catch_up(
    store: Store,
    extracts: Extracts,
    report: Report,
    proposer: Proposer | None,
    *,
    force: bool,
    progress: Progress | None,
) -> None:
    """Every record's extract as the record is now. Each batch is kept as soon as it is read."""
    known = {} if force else extracts.digests()
    gone = set(extracts.digests())
    model = proposer.model if proposer else ""
    total = store.count(EVERYTHING)
    seen = 0
    for records in records_of(store):
        seen += len(records)
        gone.difference_update(record.id for record in records)
        changed = [(r, d) for r in records if known.get(r.id) != (d := digest(r, llm=model))]
        if changed:
            chunks = store.chunks_of([record.id for record, _ in changed])
            rows: list[tuple[str, str, str, str | None, str]] = []
            for record, mark in changed:
                held = [each.chunk for each in chunks.get(record.id, ())]
                proposed = {}
                failed = False
                for i, chunk in enumerate(held) if proposer is not None else ():
                    assert proposer is not None
                    said = proposer.entities(record.title, record.content[chunk.start : chunk.end])
                    if said is None:
                        failed = True
                    else:
                        proposed[i] = said
                data = extract(record, held, proposed=proposed).to_json()
                if proposer is not None and progress:
                    progress("reading", seen - len(records) + len(rows), max(total, seen))
                # what the model did not read is read again next time
                mark = f"{mark} by rules" if failed else mark
                rows.append((record.id, mark, record.title, record.path, data))
            with extracts.writing():
                extracts.put(rows)
            report.read += len(rows)
        if progress:
            progress("reading", seen, max(total, seen))
    with extracts.writing():
        extracts.remove(sorted(gone))
    report.removed = len(gone)


def _make(
    store: Store,
    folder: DerivedFolder,
    extracts: Extracts,
    report: Report,
    proposer: Proposer | None,
    facts: dict[str, Any],
    progress: Progress | None,
) -> dict[str, Any]:
    from clew.graph.assemble import assemble
    from clew.graph.communities import communities
    from clew.graph.summaries import summarised

    begun = time.perf_counter()
    if progress:
        progress("joining", 0, 0)
    graph = assemble(extracts.all())
    report.seconds["joining"] = time.perf_counter() - begun
    begun = time.perf_counter()
    if progress:
        progress("grouping", 0, 0)
    try:
        levels = communities(graph.edges, graph.nodes)
    except ConfigError as error:
        levels = []
        report.notes.append(str(error))
    report.seconds["grouping"] = time.perf_counter() - begun
    begun = time.perf_counter()
    found, numbered = summarised(graph, levels, store.get, proposer=proposer, progress=progress)
    report.seconds["summarising"] = time.perf_counter() - begun
    begun = time.perf_counter()
    facts = {**facts, "built_at": time.time(), "communities": len(found)}
    state = write(folder, graph, found, numbered, facts)
    report.seconds["writing"] = time.perf_counter() - begun
    return state


def drop(store: Store, *, answers: bool = False) -> bool:
    """Delete the graph, and with `answers` what a chat model said; whether there was one."""
    folder = folder_of(store)
    there = folder.place.exists()
    if there or answers:
        with _alone(store, None):
            folder.file.unlink(missing_ok=True)  # first: nobody finds half of it
            shutil.rmtree(folder.place, ignore_errors=True)
            if answers:
                there = there or (store.folder / ANSWERS).exists()
                (store.folder / ANSWERS).unlink(missing_ok=True)
    return there


def behind(store: Store, *, model: str = "") -> int | None:
    """How many records were added, changed or removed since; None: too many to look at each."""
    if store.count(EVERYTHING) > COUNTED:
        return None
    known = Extracts.known(folder_of(store).place / "extracts.db")
    count = 0
    for records in records_of(store):
        for record in records:
            mark = known.pop(record.id, "")
            count += mark.removesuffix(" by rules") != digest(record, llm=model)
    return count + len(known)
