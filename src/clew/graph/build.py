"""Make the graph of a store, or bring it up to date: only what changed is read again.

records → extract (unchanged: kept) → assemble → communities → summaries → swapped in
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import asdict, dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any

from clew.errors import ConfigError, SourceError, StoreError, counted
from clew.filter import EVERYTHING
from clew.graph.extract import (
    BY_RULES,
    MOST_TITLES,
    VERSION,
    Extract,
    Proposal,
    RecordExtract,
    TitleFinder,
    digest,
    extract,
    title_keys,
)
from clew.graph.proposal import Proposer
from clew.graph.snapshot import NOTE, GraphSnapshot, folder_of, token_of, write
from clew.protocols import LLM, Progress, Store, batched, hold_lock, ignore_progress, read_pages
from clew.storage.ownership import create_private, harden
from clew.storage.snapshot import DerivedFolder, State
from clew.text.analyser import tokens, words
from clew.types import Chunk, Record, Terms

ANSWERS = "graph-answers.db"
LOCK = "graph.lock"
EXTRACTS = "extracts.db"
_EXTRACTS = """
    CREATE TABLE IF NOT EXISTS extracts (
        id TEXT PRIMARY KEY, digest TEXT NOT NULL, title TEXT NOT NULL, path TEXT,
        data TEXT NOT NULL) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS complete (at TEXT NOT NULL)"""
"""`complete`: what all extracts together are of: rules, model, edition of the store."""
_ANSWERS = """CREATE TABLE IF NOT EXISTS answers (
    digest TEXT PRIMARY KEY, answer TEXT NOT NULL) WITHOUT ROWID"""
"""What a chat model said, by a digest of what it was asked."""
BATCH, BATCH_ASKED = 200, 20
"""Records that are read together; fewer where a chat model reads them: its answers are kept by
passage, but their records only then."""
FEW_TITLES, NAMING = 100, 1000
"""New titles up to which the words of each are looked up, and records that are looked at for it."""
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
    with hold_lock(store.folder / LOCK, progress=progress), contextlib.ExitStack() as stack:
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
            renamed = _catch_up(
                store, extracts, report, proposer, edition, force=force, progress=progress
            )
        facts = {"token": token, "edition": list(edition), "model": report.model}
        contents = blake2b(digest_size=16)  # a graph made from the same is the same
        for row in extracts.rows(f"{_KNOWN} ORDER BY id"):
            contents.update(json.dumps(row).encode("utf-8", "surrogatepass"))
        facts["made_from"] = contents.hexdigest()
        state = folder.state()
        if state is not None and not force and _serves(folder, state, facts):
            folder.save({**state, "edition": facts["edition"]})
        else:
            patched = None
            if state is not None and not force:
                patched = _patch(folder, state, extracts, renamed, facts, report)
            state = patched or _make(store, extracts, report, proposer, facts, progress)
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
    edition: tuple[int, int],
    *,
    force: bool,
    progress: Progress,
) -> set[str]:
    """Every record's extract as the record is now. Each batch is kept as soon as it is read. Those
    that did not change and name one by a title that is new."""
    known = {name: (mark, title) for name, mark, title in extracts.rows(_KNOWN)}
    model = proposer.model if proposer else ""
    marks: dict[str, str] = {}
    titles = {name: title for name, (_, title) in known.items()}
    before = {each for title in titles.values() for each in title_keys(title)}
    if not list(extracts.rows("SELECT at FROM complete")):
        before = set()  # a run that was interrupted has kept titles that it did not look for
    changed: list[str] = []
    some = None if force else _written_since(store, extracts, known, model)
    extracts.write("DELETE FROM complete", [()])  # until all is read again
    gone = known.keys() - {row[0] for row in store.lifecycle.ledger(EVERYTHING)}
    gets = map(store.get, batched(some or (), BATCH))
    for records in read_pages(store, EVERYTHING, BATCH) if some is None else gets:
        for record in records:
            mark = digest(record, llm=model)
            if force or record.id not in known or known[record.id][0] != mark:
                changed.append(record.id)
                marks[record.id], titles[record.id] = mark, record.title
    for name in gone:
        del titles[name]
    names = {each for title in titles.values() for each in title_keys(title)}
    find_titles = TitleFinder(names)
    for records in map(store.get, batched(changed, BATCH_ASKED if proposer else BATCH)):
        chunks = store.vectors.chunks([record.id for record in records])
        cut = {r.id: [held.chunk for held in chunks.get(r.id, ())] for r in records}
        proposals: dict[str, dict[int, Proposal]] = {}
        if proposer is not None:
            proposals = _propose(proposer, records, cut, progress)
        rows: list[tuple[str, str, str, str | None, str]] = []
        for record in records:
            mark, proposed = marks[record.id], proposals.get(record.id, {})
            if proposer is not None and len(proposed) < len(cut[record.id]):
                mark += BY_RULES
            found = extract(record, cut[record.id], proposed=proposed, find_titles=find_titles)
            rows.append((record.id, mark, record.title, record.path, found.to_json()))
        extracts.write("INSERT OR REPLACE INTO extracts VALUES (?, ?, ?, ?, ?)", rows)
        report.read += len(rows)
        progress("reading", report.read, len(changed))
    others = known.keys() - {*changed, *gone}
    renamed = _find_new_titles(store, extracts, find_titles, names - before, others)
    extracts.write("DELETE FROM extracts WHERE id = ?", [(name,) for name in sorted(gone)])
    extracts.write("INSERT INTO complete VALUES (?)", [(_completeness(model, edition),)])
    report.removed = len(gone)
    return renamed


def _propose(
    proposer: Proposer,
    records: Sequence[Record],
    cut: Mapping[str, Sequence[Chunk]],
    progress: Progress,
) -> dict[str, dict[int, Proposal]]:
    """What a chat model finds in the passages of some records, by record and passage."""
    places = [(r, i, chunk) for r in records for i, chunk in enumerate(cut[r.id])]
    done = itertools.count(1)
    said = proposer.entities(
        [(r.title, r.content[chunk.start : chunk.end]) for r, _, chunk in places],
        lambda: progress("asking", next(done), len(places)),
    )
    found: dict[str, dict[int, Proposal]] = {}
    for (record, i, _), proposal in zip(places, said, strict=True):
        if proposal is not None:
            found.setdefault(record.id, {})[i] = proposal
    return found


_KNOWN = "SELECT id, digest, title FROM extracts"


def _completeness(model: str, edition: Sequence[int]) -> str:
    return json.dumps([VERSION, model, *edition])


def _written_since(
    store: Store, extracts: BuildFile, known: Mapping[str, tuple[str, str]], model: str
) -> list[str] | None:
    """Ids of what may be other than its extract; None: anything may."""
    for (told,) in extracts.rows("SELECT at FROM complete"):
        version, by, *edition = json.loads(told)
        if (version, by) == (VERSION, model):
            touched = store.changes.touched((edition[0], edition[1]))
            if touched is not None:
                again = [name for name, (mark, _) in known.items() if mark.endswith(BY_RULES)]
                return sorted({*touched, *again})
    return None


def _find_new_titles(
    store: Store,
    extracts: BuildFile,
    find_titles: TitleFinder,
    new: Set[str],
    others: Set[str],
) -> set[str]:
    """Titles that are new may stand in records that did not change: those."""
    if not new or not others:
        return set()
    naming: set[str] = set(others)
    if len(new) <= FEW_TITLES:
        hits = [
            store.keyword(
                Terms(tuple(words(each)), phrases=(tuple(tokens(each)),)), EVERYTHING, limit=NAMING
            )
            for each in sorted(new)
        ]
        naming &= {hit.id for some in hits for hit in some}
    for records in map(store.get, batched(sorted(naming), BATCH)):
        rows: list[tuple[str, str]] = []
        for record in records:
            query = "SELECT data FROM extracts WHERE id = ?"
            for (data,) in extracts.rows(query, record.id):
                found = Extract.from_json(data)
                found.titles = find_titles(record.content)[:MOST_TITLES]
                rows.append((found.to_json(), record.id))
        extracts.write("UPDATE extracts SET data = ? WHERE id = ?", rows)
    return naming


def _patch(
    folder: DerivedFolder,
    state: State,
    extracts: BuildFile,
    renamed: Set[str],
    facts: State,
    report: Report,
) -> State | None:
    """The graph in force with what changed since; None: it has to be made whole."""
    from clew.graph.patch import is_small, patch

    if any(state[name] != facts[name] for name in ("token", "model")) or "checksums" not in state:
        return None
    if not state["levels"]:
        return None  # for want of igraph, which may be here by now
    with report.timing("patching"):
        try:
            snapshot = GraphSnapshot(folder, state)
            if snapshot.damaged():
                return None
            known = dict(snapshot.rows("SELECT id, digest FROM records"))
        except SourceError:
            return None
        pages = [
            RecordExtract(name, title, path, Extract(), mark)
            for name, title, path, mark in extracts.rows(
                "SELECT id, title, path, digest FROM extracts ORDER BY id"
            )
        ]
        changed = {p.id for p in pages if known.get(p.id) != p.digest or p.id in renamed}
        gone = sorted(known.keys() - {page.id for page in pages})
        if not is_small(state, len(changed) + len(gone)):
            return None
        for number, page in enumerate(pages):
            if page.id in changed:
                for (data,) in extracts.rows("SELECT data FROM extracts WHERE id = ?", page.id):
                    pages[number] = page._replace(data=Extract.from_json(data))
        some = [page for page in pages if page.id in changed]
        built = {**facts, "built_at": time.time()}
        return patch(folder, state, some, gone, pages, built)


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
        with hold_lock(store.folder / LOCK):
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
    for records in read_pages(store, EVERYTHING, BATCH):
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
            db.executescript(schema)
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
