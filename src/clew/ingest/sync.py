"""Bring a store up to date with folders: the first pass of indexing, text only.

walk → (unchanged: stop) → hash (unchanged: stop) → read, chunk → one short transaction per batch.
A batch carries the file states with the records, so an interrupted run resumes where it stopped.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from hashlib import blake2b
from itertools import chain, count
from pathlib import Path, PurePosixPath
from typing import Any

from clew.errors import InputError
from clew.filter import Filter, domain_in, domain_of, exact_glob
from clew.ingest.readers import (
    VERSION,
    BrokenFileError,
    Reading,
    has_reader,
    is_table,
    known_suffixes,
    read_each,
)
from clew.ingest.walk import DiskFile, HeldFolder, Skip, walk
from clew.ingest.workers import Workers, read_files
from clew.protocols import Progress, Store, batched
from clew.timestamps import UNDATED, timestamp
from clew.types import LOCATION_UNIT, Chunk, Document, Entry, FileState, Record, TableRow
from clew.validate import is_number

BATCH_CHARS = 1_000_000
BATCH_FILES = 250
BATCH_ROWS = 2_000
BATCH_DELETES = 1_000
REFRESH_SECONDS = 3.0
"""How often, during a long run, what is written so far becomes searchable."""
RACY_NS = 2_000_000_000
"""A file changed this shortly before it was indexed may have changed again within one clock tick:
its time is not trusted, its hash is."""
_BEGUN = ""
"""The hash of a table of which not all was written yet."""


@dataclass(slots=True)
class IndexReport:
    """What a run of indexing did."""

    added: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    moved: list[tuple[str, str]] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    unchanged: int = 0
    skipped: list[tuple[str, str]] = field(default_factory=list)
    """(path, reason): could not be read this time; what was known of it is kept."""
    warnings: list[tuple[str, str]] = field(default_factory=list)
    unread: dict[str, int] = field(default_factory=dict)
    """Files of kinds that no reader knows (pictures, archives…), counted by suffix."""
    rows: int = 0
    """Rows of tables that were read, each a record of its own."""
    chunks: int = 0
    embedded: int = 0
    encoded: int = 0
    """Passages that got codes for late interaction."""
    seconds: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def empty(self) -> bool:
        return not (self.added or self.changed or self.moved or self.removed or self.unchanged)

    def note_if_empty(self) -> None:
        """Say that nothing came of it, and what would."""
        if self.empty and self.skipped:
            self.notes.append("nothing was indexed: each file was skipped, for the reason given")
        elif self.empty:
            kinds = ", ".join(sorted(known_suffixes()))
            self.notes.append(
                f"nothing was indexed: no file here is of a kind that is read. These are: {kinds}, "
                "and files without a suffix"
            )

    def to_dict(self) -> dict[str, Any]:
        return {
            **asdict(self),
            "moved": [{"from": old, "to": new} for old, new in self.moved],
            "skipped": [{"path": path, "reason": reason} for path, reason in self.skipped],
            "warnings": [{"path": path, "warning": text} for path, text in self.warnings],
            "seconds": {stage: round(s, 3) for stage, s in self.seconds.items()},
        }


@dataclass(frozen=True, slots=True)
class Groups:
    """Which collection and which domain a file belongs to, by the folder it lies in: the settings
    `[collections]` and `[domains]`. The innermost folder decides, but what lies in a personal one
    is personal."""

    collections: Mapping[str, tuple[str, ...]]
    domains: Mapping[str, tuple[str, ...]]

    def collection(self, path: str) -> str | None:
        return next(iter(_groups_around(path, self.collections)), None)

    def domain(self, path: str) -> str | None:
        return domain_of(_groups_around(path, self.domains)) or None

    @property
    def fingerprint(self) -> str:
        """Another one: files that have not changed belong elsewhere now. It names the rule as well:
        files that were read under another one are read again."""
        known = sorted(self.collections.items()), sorted(self.domains.items())
        return repr((*known, "the most private domain"))


def _groups_around(path: str, groups: Mapping[str, tuple[str, ...]]) -> list[str]:
    """The groups that have a folder around this file, the innermost first."""
    around = [
        (len(folder), name)
        for name, folders in groups.items()
        for folder in folders
        if path.startswith(folder)
    ]
    return [name for _, name in sorted(around, reverse=True)]


def read_folders(
    store: Store,
    base: Path,
    paths: Sequence[str | Path],
    *,
    max_file_mb: float,
    chunk_size: int,
    groups_of: Callable[[Path], Groups],
    force: bool = False,
    progress: Progress | None = None,
    workers: Workers | None = None,
) -> IndexReport:
    """Bring the store up to date with `paths`; without any, with all folders it knows, or else with
    `base`, the store's own folder. `groups_of` says of a folder where its files belong."""
    report = IndexReport()
    for collection, root, only in list(_find_roots(store, base, paths)):
        sync = _FolderSync(
            store=store,
            collection=collection,
            root=root,
            only=only,
            report=report,
            max_bytes=int(max_file_mb * 1024 * 1024),
            chunk_size=chunk_size,
            groups=groups_of(root),
            progress=progress,
            workers=workers,
        )
        sync.run(force=force)
    return report


def _find_roots(
    store: Store, base: Path, paths: Sequence[str | Path]
) -> Iterator[tuple[str, Path, Path | None]]:
    """(collection, its folder, what of it to look at; None: all). A path outside the known folders
    becomes one of them. All paths are looked at before that."""
    base = base.absolute()
    known = {name: (base / folder).resolve() for name, folder in store.files.roots().items()}
    for path in paths:
        if not Path(path).expanduser().exists() and not was_indexed(store, base, path):
            raise InputError(f"there is no {str(path)!r} to index: check the path")
    if not paths and known:
        yield from ((name, folder, None) for name, folder in known.items())
        return
    for path in paths or [base]:
        place = Path(path).expanduser().resolve()
        around = [name for name, folder in known.items() if place.is_relative_to(folder)]
        if around:
            name = max(around, key=lambda n: len(known[n].parts))
        else:
            folder = place if place.is_dir() else place.parent
            stem = re.sub(r"[^\w.-]+", "-", folder.name.casefold()).strip("-") or "files"
            name = free_name(stem, known)
            store.files.set_root(name, "." if folder == base.resolve() else str(folder))
            known[name] = folder
        yield name, known[name], None if place == known[name] else place


def was_indexed(store: Store, base: Path, path: str | Path) -> bool:
    """Whether records of this path, or of files below it, are known, though it may be gone."""
    place = Path(path).expanduser().absolute()
    place = place.parent.resolve() / place.name
    for name, at in store.files.roots().items():
        if place.is_relative_to(folder := (base.absolute() / at).resolve()):
            below = place.relative_to(folder).as_posix()
            if store.get([f"{name}:{below}"]) or store.select(Filter(within=below), limit=1):
                return True
    return False


def free_name(stem: str, taken: Collection[str]) -> str:
    names = chain([stem], (f"{stem}-{number}" for number in count(2)))
    return next(name for name in names if name not in taken)


@dataclass(slots=True)
class _FolderSync:
    """Adds, changes, moves and removes records of a collection until they match its folder."""

    store: Store
    collection: str
    root: Path
    only: Path | None
    report: IndexReport
    max_bytes: int
    chunk_size: int
    groups: Groups
    progress: Progress | None
    workers: Workers | None
    known: Mapping[str, FileState] = field(init=False)
    gone: set[str] = field(init=False)
    entries: list[Entry] = field(default_factory=list)
    touched: dict[str, FileState] = field(default_factory=dict)
    chars: int = 0

    def run(self, *, force: bool) -> None:
        store, progress = self.store, self.progress
        self.known = store.files.states(self.collection)
        # By what the files were read. Another one: all are read anew, and what did not change by
        # that keeps its vectors.
        way = f"readers {VERSION}, groups {self.groups.fingerprint}"
        note = f"groups of {self.collection}"
        if not self.known:
            store.notes[note] = way  # now: a first run that is interrupted resumes where it was
        anew = store.notes.get(note) != way
        force = force or anew
        candidates = self._find_candidates(force=force)
        moved_from = {self.known[path].digest: path for path in sorted(self.gone)}
        refreshed = time.monotonic()
        opened = self._open_each(candidates, force=force) if candidates else ()
        read = read_each if self.workers is None else partial(read_files, self.workers)
        for (item, state), found in read(opened, chunk_size=self.chunk_size):
            self._take(item, state, found, moved_from)
            files = len(self.entries) + len(self.touched)
            if self.chars > BATCH_CHARS or files >= BATCH_FILES:
                self._flush()
                if time.monotonic() - refreshed > REFRESH_SECONDS:
                    store.indexes.refresh()
                    refreshed = time.monotonic()
        self._flush()
        self._remove_gone()
        if anew and self.only is None:
            store.notes[note] = way
        store.indexes.refresh(progress=progress)

    def _find_candidates(self, *, force: bool) -> list[DiskFile]:
        """The files that may have changed; those that are gone are noted as well."""
        seen: set[str] = set()
        candidates: list[DiskFile] = []
        unseen: list[str] = []
        for item in walk(self.root, only=self.only, max_bytes=self.max_bytes):
            if isinstance(item, Skip):
                self.report.skipped.append(item)
                unseen.append(item.path)
                continue
            if not has_reader(item.path):
                kind = PurePosixPath(item.path).suffix.lower() or "no suffix"
                self.report.unread[kind] = self.report.unread.get(kind, 0) + 1
                continue
            seen.add(item.path)
            state = self.known.get(item.path)
            if force or not _is_untouched(item, state):
                candidates.append(item)
            elif state and (why := _why_broken(state)):
                self.report.skipped.append((item.path, why))
            else:
                self.report.unchanged += 1
            if self.progress and not len(seen) % 500:
                self.progress("looking", len(seen), 0)
        self.gone = set(self.known) - seen
        if self.only is not None:
            below = self.only.relative_to(self.root).as_posix()
            self.gone = {path for path in self.gone if _is_within(path, below)}
        # What merely could not be looked at is not gone.
        self.gone = {p for p in self.gone if not any(_is_within(p, place) for place in unseen)}
        return candidates

    def _open_each(
        self, candidates: Sequence[DiskFile], *, force: bool
    ) -> Iterator[tuple[tuple[DiskFile, FileState], bytes, str]]:
        """Files that are to be read, with their bytes."""
        with HeldFolder(self.root) as held:
            for done, item in enumerate(candidates, 1):
                now, before = time.time_ns(), self.known.get(item.path)
                try:
                    data = held.read(item.path, max_bytes=self.max_bytes)
                except (InputError, OSError) as error:
                    reason = getattr(error, "strerror", None) or str(error)
                    self.report.skipped.append((item.path, reason))
                    continue
                finally:
                    if self.progress:
                        self.progress("reading", done, len(candidates))
                digest = blake2b(data, digest_size=16).hexdigest()
                state = FileState(item.size, item.mtime_ns, digest, now)
                if force or before is None or before.digest.partition(" ")[0] != digest:
                    yield (item, state), data, item.path
                    continue
                self.touched[item.path] = state._replace(digest=before.digest)
                if why := _why_broken(before):
                    self.report.skipped.append((item.path, why))
                else:
                    self.report.unchanged += 1

    def _take(
        self,
        item: DiskFile,
        state: FileState,
        found: Reading | InputError,
        moved_from: dict[str, str],
    ) -> None:
        before = self.known.get(item.path)
        if isinstance(found, InputError):
            self.report.skipped.append((item.path, str(found)))
            if isinstance(found, BrokenFileError):
                self._delete_files([item.path])  # it does not say that any more
                broken = state._replace(digest=f"{state.digest} {found}")
                self.store.files.set_states(self.collection, {item.path: broken})
            return
        document = found.document
        entry = self._entry(item, document, found.chunks, state)
        rows = [
            self._row(entry.record, row, passages)
            for row, passages in zip(document.rows, found.rows, strict=True)
        ]
        self.report.warnings += [(item.path, warning) for warning in document.warnings]
        self.report.rows += len(rows)
        self.report.chunks += sum(len(each.chunks) for each in (entry, *rows))
        old = None if before else moved_from.pop(state.digest, None)
        if old is not None:
            self._flush()
            self._move(old, entry, rows)
            self.gone.discard(old)
            self.report.moved.append((old, item.path))
            return
        read_before = before is not None and before.digest != _BEGUN
        (self.report.changed if read_before else self.report.added).append(item.path)
        if is_table(item.path):
            self._put_rows(item.path, rows, state, known=before is not None)
        self.entries.append(entry)
        self.chars += len(document.text)

    def _entry(
        self, item: DiskFile, document: Document, chunks: tuple[Chunk, ...], state: FileState
    ) -> Entry:
        meta = document.metadata
        if document.unit != "line":
            meta = {**meta, LOCATION_UNIT: document.unit}
        importance = meta.get("importance", 0.5)
        if not is_number(importance, 0, 1):
            trouble = f"importance {importance!r} is not a number from 0 to 1"
            self.report.warnings.append((item.path, trouble))
            importance = 0.5
        record = Record(
            id=f"{self.collection}:{item.path}",
            content=document.text,
            title=document.title,
            path=item.path,
            collection=self.groups.collection(item.path) or self.collection,
            type=document.kind,
            domain=domain_of(domain_in(meta), self.groups.domain(item.path)),
            tags=document.tags,
            links=document.links,
            importance=float(importance),
            created_at=_date(meta, "created", "date"),
            updated_at=_date(meta, "updated", "date") or item.mtime_ns / 1e9,
            metadata=meta,
        )
        return Entry(record, chunks, file=state)

    def _row(self, table: Record, row: TableRow, passages: tuple[Chunk, ...]) -> Entry:
        """A row as a record of its own: what it does not say of itself its table says."""
        unit = {key: table.metadata[key] for key in (LOCATION_UNIT,) if key in table.metadata}
        record = replace(
            table,
            id=f"{table.id}#{row.key}",
            content=row.text,
            title=row.title,
            domain=domain_of(domain_in(row.metadata), table.domain),
            tags=tuple(dict.fromkeys((*table.tags, *row.tags))),
            created_at=_own_date(row.created_at, table.created_at, column=row.of_dates[0]),
            updated_at=_own_date(row.updated_at, table.updated_at, column=row.of_dates[1]),
            metadata={**row.metadata, **unit},
        )
        return Entry(record, tuple(passage._replace(lines=row.lines) for passage in passages))

    def _put_rows(self, path: str, rows: list[Entry], state: FileState, *, known: bool) -> None:
        """Before the file's own record, whose state says that the file was read to its end. Until
        then there is one that says it was not: who is killed leaves rows of a known file."""
        if rows and not known:
            begun = state._replace(digest=_BEGUN, indexed_ns=0)
            self.store.files.set_states(self.collection, {path: begun})
        for some in batched(rows, BATCH_ROWS):
            statuses = self.store.put(some)
            known |= statuses.count("created") < len(statuses)
        if known:
            there = {entry.record.id for entry in rows}
            known_ids = row_ids(self.store, self.collection, path)
            self.store.delete([name for name in known_ids if name not in there])

    def _move(self, old: str, entry: Entry, rows: list[Entry]) -> None:
        before = f"{self.collection}:{old}"
        with self.store.atomic():
            for row in rows:
                self.store.rename(before + row.record.id.removeprefix(entry.record.id), row)
            self.store.rename(before, entry)
            if is_table(old):  # what it had as another kind of table, or is none any more
                self.store.delete(row_ids(self.store, self.collection, old))

    def _flush(self) -> None:
        if self.entries:
            self.store.put(self.entries)
        if self.touched:
            self.store.files.set_states(self.collection, self.touched)
        self.entries, self.touched, self.chars = [], {}, 0

    def _remove_gone(self) -> None:
        paths = sorted(self.gone)
        self._delete_files(paths)
        self.report.removed += [path for path in paths if not _why_broken(self.known[path])]

    def _delete_files(self, paths: Sequence[str]) -> None:
        tables = filter(is_table, paths)
        ids = [name for path in tables for name in row_ids(self.store, self.collection, path)]
        ids += [f"{self.collection}:{path}" for path in paths]  # last: with it goes what is known
        for some in batched(ids, BATCH_DELETES):
            self.store.delete(some)
        if broken := [p for p in paths if p in self.known and _why_broken(self.known[p])]:
            self.store.files.forget(self.collection, broken)


def row_ids(store: Store, collection: str, path: str) -> list[str]:
    rows = store.lifecycle.ledger(Filter(path=exact_glob(path)))
    return [name for name, *_ in rows if name.startswith(f"{collection}:{path}#")]


def _why_broken(state: FileState) -> str:
    """Why the file could not be read and will not be tried again, which stands behind its digest;
    empty: it was read."""
    return state.digest.partition(" ")[2]


def _is_untouched(item: DiskFile, state: FileState | None) -> bool:
    return (
        state is not None
        and (state.size, state.mtime_ns) == (item.size, item.mtime_ns)
        and state.mtime_ns < state.indexed_ns - RACY_NS
    )


def _is_within(path: str, place: str) -> bool:
    return f"{path}/".startswith(f"{place}/")


def _own_date(date: float | None, of_table: float | None, *, column: bool) -> float | None:
    return date if date is not None else UNDATED if column else of_table


def _date(meta: Mapping[str, Any], *keys: str) -> float | None:
    for key in keys:
        value = meta.get(key)
        if isinstance(value, str):
            try:
                return timestamp(value)
            except (InputError, OverflowError, OSError):
                continue
    return None
