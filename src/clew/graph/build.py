"""Make the graph of a store, or bring it up to date: only what changed is read again.

records → extract (unchanged: kept) → assemble → communities → summaries → swapped in
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sqlite3
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any

from clew.errors import ConfigError, SourceError, StoreError, counted
from clew.filter import EVERYTHING
from clew.graph.extract import BY_RULES, Extract, Proposer, RecordExtract, digest, extract
from clew.graph.snapshot import NOTE, GraphSnapshot, folder_of, token_of, write
from clew.protocols import LLM, Progress, Store, ignore_progress
from clew.storage.ownership import create_private, harden
from clew.storage.snapshot import DerivedFolder, State
from clew.types import Record

ANSWERS = "graph-answers.db"
LOCK = "graph.lock"
EXTRACTS = "extracts.db"
_EXTRACTS = """CREATE TABLE IF NOT EXISTS extracts (
    id TEXT PRIMARY KEY, digest TEXT NOT NULL, title TEXT NOT NULL, path TEXT, data TEXT NOT NULL
) WITHOUT ROWID"""
_ANSWERS = """CREATE TABLE IF NOT EXISTS answers (
    digest TEXT PRIMARY KEY, answer TEXT NOT NULL) WITHOUT ROWID"""
"""What a chat model said, by a digest of what it was asked."""
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

    @contextlib.contextmanager
    def timing(self, phase: str) -> Iterator[None]:
        begun = time.perf_counter()
        yield
        self.seconds[phase] = time.perf_counter() - begun


def _batches(store: Store) -> Iterator[list[Record]]:
    """All records, by id."""
    after = ""
    while some := store.select(EVERYTHING, limit=BATCH, after=after):
        yield some
        after = some[-1].id


@contextlib.contextmanager
def _alone(store: Store, progress: Progress) -> Iterator[None]:
    import filelock

    lock = filelock.FileLock(store.folder / LOCK)
    try:
        lock.acquire(blocking=False)
    except filelock.Timeout:
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
    progress = progress or ignore_progress
    report = Report(model=llm.model if llm else "")
    folder = folder_of(store)
    with _alone(store, progress), contextlib.ExitStack() as stack:
        # Before reading: what is written meanwhile counts as missing.
        edition = store.changes.edition()
        if not (token := token_of(store)):
            token = os.urandom(8).hex()
            store.notes[NOTE] = token
        extracts = BuildFile(folder.place / EXTRACTS, _EXTRACTS)
        stack.callback(extracts.close)
        proposer = None
        if llm is not None:
            answers = BuildFile(store.folder / ANSWERS, _ANSWERS)
            stack.callback(answers.close)
            proposer = Proposer(llm, answers, seconds=seconds)
        with report.timing("reading"):
            _catch_up(store, extracts, report, proposer, force=force, progress=progress)
        facts = {"token": token, "edition": list(edition), "model": report.model}
        contents = blake2b(digest_size=16)  # a graph made from the same is the same
        for row in extracts.rows("SELECT id, digest FROM extracts ORDER BY id"):
            contents.update(json.dumps(row).encode("utf-8", "surrogatepass"))
        facts["made_from"] = contents.hexdigest()
        state = folder.state()
        if state is not None and not force and _serves(folder, state, facts):
            folder.save({**state, "edition": facts["edition"]})
        else:
            state = _make(store, extracts, report, proposer, facts, progress)
            if proposer is not None:
                report.asked, report.kept = proposer.calls, proposer.kept
                report.failures = proposer.failures
                if report.read == state["records"]:  # else some speak of records not read this time
                    known = {row[0] for row in answers.rows("SELECT digest FROM answers")}
                    gone = [(mark,) for mark in known - proposer.used]
                    answers.write("DELETE FROM answers WHERE digest = ?", gone)
    if report.failures and proposer is not None:
        left = "; it was not asked again after that" if proposer.given_up else ""
        report.notes.append(
            f"{counted(report.failures, 'passage')} read by rules, since the chat model failed"
            f"{left}: {proposer.problem}. `clew graph build` asks again"
        )
    report.records, report.entities = state["records"], state["entities"]
    report.links, report.relations = state["links"], state["relations"]
    report.communities = list(state["levels"])
    return report


def _serves(folder: DerivedFolder, state: State, facts: State) -> bool:
    """Whether what is there was made from these very extracts, is undamaged, and lacks nothing."""
    if any(state[name] != facts[name] for name in ("token", "made_from")):
        return False
    if "checksums" not in state:
        return False  # of an older version
    if not state["levels"] and state["entities"]:
        return False  # for want of igraph, which may be here by now
    try:
        return not GraphSnapshot(folder, state).damaged()
    except SourceError:
        return False


def _catch_up(
    store: Store,
    extracts: BuildFile,
    report: Report,
    proposer: Proposer | None,
    *,
    force: bool,
    progress: Progress,
) -> None:
    """Every record's extract as the record is now. Each batch is kept as soon as it is read."""
    known = dict(extracts.rows("SELECT id, digest FROM extracts"))
    gone = set(known)
    model = proposer.model if proposer else ""
    total = store.count(EVERYTHING)
    seen = 0
    for records in _batches(store):
        gone.difference_update(record.id for record in records)
        marks = {record.id: digest(record, llm=model) for record in records}
        changed = [r for r in records if force or known.get(r.id) != marks[r.id]]
        chunks = store.vectors.chunks([record.id for record in changed]) if changed else {}
        rows: list[tuple[str, str, str, str | None, str]] = []
        for record in changed:
            held = [each.chunk for each in chunks.get(record.id, ())]
            mark, proposed = marks[record.id], {}
            if proposer is not None:
                for i, chunk in enumerate(held):
                    text = record.content[chunk.start : chunk.end]
                    if (said := proposer.entities(record.title, text)) is not None:
                        proposed[i] = said
                if len(proposed) < len(held):
                    mark += BY_RULES
                progress("reading", seen + len(rows), max(total, seen + len(records)))
            data = extract(record, held, proposed=proposed).to_json()
            rows.append((record.id, mark, record.title, record.path, data))
        if rows:
            extracts.write("INSERT OR REPLACE INTO extracts VALUES (?, ?, ?, ?, ?)", rows)
        report.read += len(rows)
        seen += len(records)
        progress("reading", seen, max(total, seen))
    extracts.write("DELETE FROM extracts WHERE id = ?", [(name,) for name in sorted(gone)])
    report.removed = len(gone)


def _make(
    store: Store,
    extracts: BuildFile,
    report: Report,
    proposer: Proposer | None,
    facts: dict[str, Any],
    progress: Progress,
) -> dict[str, Any]:
    """From extracts to the graph in force; its state."""
    from clew.graph.assemble import assemble
    from clew.graph.communities import Levels, find_levels, summarise

    progress("joining", 0, 0)
    with report.timing("joining"):
        query = "SELECT id, title, path, data, digest FROM extracts ORDER BY id"
        graph = assemble(
            RecordExtract(name, title, path, Extract.from_json(data), mark)
            for name, title, path, data, mark in extracts.rows(query)
        )
    progress("grouping", 0, 0)
    levels: Levels = []
    with report.timing("grouping"):
        try:
            levels = find_levels(graph.edges, graph.nodes)
        except ConfigError as error:
            report.notes.append(str(error))
    with report.timing("summarising"):
        levels = summarise(graph, levels, store.get, proposer=proposer, progress=progress)
    with report.timing("writing"):
        return write(folder_of(store), graph, levels, facts | {"built_at": time.time()})


def drop(store: Store, *, answers: bool = False) -> bool:
    """Delete the graph, and with `answers` what a chat model said; whether there was one."""
    folder, said = folder_of(store), store.folder / ANSWERS
    there = folder.place.exists()
    if there or answers:
        with _alone(store, ignore_progress):
            folder.file.unlink(missing_ok=True)  # first: nobody finds half of it
            shutil.rmtree(folder.place, ignore_errors=True)
            if answers:
                there = there or said.exists()
                said.unlink(missing_ok=True)
    return there


def count_behind(store: Store, *, model: str = "") -> int | None:
    """How many records were added, changed or removed since; None: too many to look at each."""
    if store.count(EVERYTHING) > COUNTED:
        return None
    known: dict[str, str] = {}
    uri = f"{(folder_of(store).place / EXTRACTS).absolute().as_uri()}?mode=ro"
    with (
        contextlib.suppress(sqlite3.Error),
        contextlib.closing(sqlite3.connect(uri, uri=True)) as db,
    ):
        known = dict(db.execute("SELECT id, digest FROM extracts"))
    count = 0
    for records in _batches(store):
        for record in records:
            mark = known.pop(record.id, "")
            count += mark.removesuffix(BY_RULES) != digest(record, llm=model)
    return count + len(known)


# ---------------------------------------------------------------------- what is kept between builds


class BuildFile:
    """One SQLite file that may be lost: one that cannot be read is begun anew."""

    def __init__(self, file: Path, schema: str):
        self.file = file
        file.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._db = self._open(schema)
        except sqlite3.OperationalError as error:  # locked, no room, no right: it may be sound
            raise StoreError(
                f"{file} cannot be opened: {error}; try again, and see whether the disk is full"
            ) from error
        except sqlite3.DatabaseError:
            for name in (file, file.with_name(f"{file.name}-journal")):
                name.unlink(missing_ok=True)
            self._db = self._open(schema)
        self.close = self._db.close

    def _open(self, schema: str) -> sqlite3.Connection:
        create_private(self.file)
        db = sqlite3.connect(self.file, isolation_level=None, check_same_thread=False)
        try:
            db.execute("PRAGMA secure_delete = ON")
            strange = harden(db)
            db.execute("PRAGMA synchronous = OFF")
            if strange or db.execute("PRAGMA quick_check(1)").fetchone()[0] != "ok":
                raise sqlite3.DatabaseError("damaged")
            db.execute(schema)
        except sqlite3.Error:
            db.close()
            raise
        return db

    def rows(self, query: str, *values: str) -> Iterator[Any]:
        try:
            yield from self._db.execute(query, values)
        except sqlite3.Error as error:
            raise StoreError(
                f"{self.file} cannot be read: {error}; run `clew graph build` again, which makes "
                "a damaged one anew"
            ) from error

    def write(self, statement: str, rows: Iterable[Sequence[str | None]]) -> None:
        """For all of these rows, or for none."""
        try:
            self._db.execute("BEGIN")
            self._db.executemany(statement, rows)
            self._db.execute("COMMIT")
        except sqlite3.Error as error:
            with contextlib.suppress(sqlite3.Error):
                self._db.execute("ROLLBACK")
            raise StoreError(
                f"{self.file} cannot be written: {error}; is the disk full? Free some space and "
                "run `clew graph build` again"
            ) from error
