"""Bring a store up to date with a folder: the first pass of indexing, text only.

walk → (unchanged: stop) → read → hash (unchanged: stop) → chunk → one short transaction per batch.
A batch carries the file states with the records, so an interrupted run resumes where it stopped.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from pathlib import Path, PurePosixPath
from typing import Any

from clew.errors import InputError
from clew.filter import Filter, domain_in, domain_of
from clew.ingest.chunk import chunk
from clew.ingest.contents import contents
from clew.ingest.groups import Groups
from clew.ingest.readers import VERSION, is_table, known_suffixes, read, reader_for
from clew.ingest.walk import Found, Skipped, walk
from clew.protocols import Progress, Store
from clew.timestamps import UNDATED, timestamp
from clew.types import LOCATION_UNIT, Document, Entry, FileState, Record, TableRow

__all__ = ["Report", "row_ids", "sync"]

NO_GROUPS = Groups({}, {})
BATCH_CHARS = 1_000_000
BATCH_FILES = 250
BATCH_ROWS = 2_000
REFRESH_SECONDS = 3.0
"""How often, during a long run, what is written so far becomes searchable."""
RACY_NS = 2_000_000_000
"""A file changed this shortly before it was indexed may have changed again within one clock tick:
its time is not trusted, its hash is."""


@dataclass(slots=True)
class Report:
    """What a run of indexing did."""

    added: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    moved: list[tuple[str, str]] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    skipped: list[tuple[str, str]] = field(default_factory=list)
    """(path, reason): could not be read this time; what was known of it is kept."""
    warnings: list[tuple[str, str]] = field(default_factory=list)
    unread: dict[str, int] = field(default_factory=dict)
    """Files of kinds that no reader knows (pictures, archives…), counted by suffix."""
    unchanged: int = 0
    rows: int = 0
    """Rows of tables that were read, each a record of its own."""
    chunks: int = 0
    embedded: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def empty(self) -> bool:
        """Whether no file was, or had been, indexed."""
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
            "added": self.added,
            "changed": self.changed,
            "moved": [{"from": old, "to": new} for old, new in self.moved],
            "removed": self.removed,
            "unchanged": self.unchanged,
            "skipped": [{"path": path, "reason": reason} for path, reason in self.skipped],
            "warnings": [{"path": path, "warning": text} for path, text in self.warnings],
            "unread": self.unread,
            "rows": self.rows,
            "chunks": self.chunks,
            "embedded": self.embedded,
            "seconds": {stage: round(s, 3) for stage, s in self.seconds.items()},
            "notes": self.notes,
        }


def sync(
    store: Store,
    collection: str,
    root: Path,
    report: Report,
    *,
    only: Path | None = None,
    force: bool = False,
    max_bytes: int,
    chunk_size: int,
    groups: Groups = NO_GROUPS,
    progress: Progress | None = None,
) -> None:
    """Add, change, move and remove records of `collection` until they match the files in `root`."""
    known = store.files(collection)
    # By what the files were read. Another one: all are read anew, and what did not change by that
    # keeps its vectors.
    way = f"readers {VERSION}, groups {groups.fingerprint}"
    noted = f"groups of {collection}"
    if not known:
        store.set_note(noted, way)  # now: a first run that is interrupted goes on where it stopped
    anew = store.note(noted) != way
    force = force or anew
    seen: set[str] = set()
    look: list[Found] = []
    left_aside: list[str] = []
    for item in walk(root, only=only, max_bytes=max_bytes):
        if reader_for(item.path) is None and not isinstance(item, Skipped):
            kind = PurePosixPath(item.path).suffix.lower() or "no suffix"
            report.unread[kind] = report.unread.get(kind, 0) + 1
            continue
        if isinstance(item, Skipped):
            report.skipped.append((item.path, item.reason))
            left_aside.append(item.path)
            continue
        seen.add(item.path)
        if force or not _untouched(item, known.get(item.path)):
            look.append(item)
        else:
            report.unchanged += 1
        if progress and not len(seen) % 500:
            progress("looking", len(seen), 0)
    gone = _gone(known, seen, left_aside, root, only)
    run = _Run(
        store,
        collection,
        report,
        known,
        gone,
        max_bytes=max_bytes,
        chunk_size=chunk_size,
        groups=groups,
    )
    begun = time.monotonic()
    for done, item in enumerate(look, 1):
        run.take(item, force=force)
        if run.full:
            run.flush()
            if time.monotonic() - begun > REFRESH_SECONDS:
                store.refresh()
                begun = time.monotonic()
        if progress:
            progress("reading", done, len(look))
    run.flush()
    run.remove_gone()
    if anew and only is None:
        store.set_note(noted, way)
    store.refresh(progress=progress)


class _Run:
    """One pass over the files that may have changed."""

    def __init__(
        self,
        store: Store,
        collection: str,
        report: Report,
        known: Mapping[str, FileState],
        gone: set[str],
        *,
        max_bytes: int,
        chunk_size: int,
        groups: Groups,
    ):
        self._groups = groups
        self._store, self._collection, self._report = store, collection, report
        self._known, self._gone = known, gone
        self._max_bytes, self._chunk_size = max_bytes, chunk_size
        self._moved_from = {known[path].digest: path for path in sorted(gone)}
        self._entries: list[Entry] = []
        self._touched: dict[str, FileState] = {}
        self._chars = 0

    @property
    def full(self) -> bool:
        return self._chars > BATCH_CHARS or len(self._entries) + len(self._touched) >= BATCH_FILES

    def take(self, item: Found, *, force: bool) -> None:
        now = time.time_ns()
        try:
            data = contents(item.absolute, max_bytes=self._max_bytes)
        except InputError as error:
            self._report.skipped.append((item.path, str(error)))
            return
        except OSError as error:
            self._report.skipped.append((item.path, error.strerror or str(error)))
            return
        digest = blake2b(data, digest_size=16).hexdigest()
        state = FileState(item.size, item.mtime_ns, digest, now)
        before = self._known.get(item.path)
        if before and before.digest == digest and not force:
            self._touched[item.path] = state
            self._report.unchanged += 1
            return
        try:
            document = read(data, item.path)
            entry = self._entry(item, document, state)
            rows = [self._row(entry.record, row) for row in document.rows]
        except InputError as error:
            self._report.skipped.append((item.path, str(error)))
            return
        self._report.warnings += [(item.path, warning) for warning in document.warnings]
        self._report.rows += len(rows)
        self._report.chunks += sum(len(each.chunks) for each in (entry, *rows))
        old = None if before else self._moved_from.pop(digest, None)
        if old is not None:
            self.flush()
            self._move(old, entry, rows)
            self._gone.discard(old)
            self._report.moved.append((old, item.path))
            return
        (self._report.changed if before else self._report.added).append(item.path)
        if is_table(item.path):
            self._put_rows(item.path, rows, known=before is not None)
        self._entries.append(entry)
        self._chars += len(document.text)

    def _entry(self, item: Found, document: Document, state: FileState) -> Entry:
        meta = document.metadata
        if document.unit != "line":
            meta = {**meta, LOCATION_UNIT: document.unit}
        record = Record(
            id=f"{self._collection}:{item.path}",
            content=document.text,
            title=document.title,
            path=item.path,
            collection=self._groups.collection(item.path) or self._collection,
            type=document.kind,
            domain=domain_of(domain_in(meta), self._groups.domain(item.path)),
            tags=document.tags,
            links=document.links,
            importance=self._number(item.path, meta, "importance", 0.5),
            created_at=_date(meta, "created", "date"),
            updated_at=_date(meta, "updated", "date") or item.mtime_ns / 1e9,
            metadata=meta,
        )
        return Entry(record, chunk(document, size=self._chunk_size), file=state)

    def _row(self, table: Record, row: TableRow) -> Entry:
        """A row as a record of its own: what it does not say of itself its table says."""
        unit = {key: table.metadata[key] for key in (LOCATION_UNIT,) if key in table.metadata}
        record = replace(
            table,
            id=f"{table.id}#{row.key}",
            content=row.text,
            title=row.title,
            domain=domain_of(domain_in(row.metadata), table.domain),
            tags=tuple(dict.fromkeys((*table.tags, *row.tags))),
            created_at=_own(row.created_at, table.created_at, column=row.of_dates[0]),
            updated_at=_own(row.updated_at, table.updated_at, column=row.of_dates[1]),
            metadata={**row.metadata, **unit},
        )
        passages = chunk(Document(row.text, "text", title=row.title), size=self._chunk_size)
        return Entry(record, tuple(replace(passage, lines=row.lines) for passage in passages))

    def _put_rows(self, path: str, rows: list[Entry], *, known: bool) -> None:
        """Before the file's own record, whose state says that the file was read to its end."""
        for i in range(0, len(rows), BATCH_ROWS):
            self._store.put(rows[i : i + BATCH_ROWS])
        if known:
            there = {entry.record.id for entry in rows}
            known_ids = row_ids(self._store, self._collection, path)
            self._store.delete([name for name in known_ids if name not in there])

    def _move(self, old: str, entry: Entry, rows: list[Entry]) -> None:
        before = f"{self._collection}:{old}"
        with self._store.atomic():
            for row in rows:
                self._store.rename(before + row.record.id.removeprefix(entry.record.id), row)
            self._store.rename(before, entry)

    def _number(self, path: str, meta: Mapping[str, Any], key: str, default: float) -> float:
        value = meta.get(key, default)
        if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= 1:
            return float(value)
        self._report.warnings.append((path, f"{key} {value!r} is not a number from 0 to 1"))
        return default

    def flush(self) -> None:
        if self._entries:
            self._store.put(self._entries)
        if self._touched:
            self._store.set_files(self._collection, self._touched)
        self._entries, self._touched, self._chars = [], {}, 0

    def remove_gone(self) -> None:
        paths = sorted(self._gone)
        ids = [f"{self._collection}:{path}" for path in paths]
        for path in filter(is_table, paths):
            ids += row_ids(self._store, self._collection, path)
        for i in range(0, len(ids), 1000):
            self._store.delete(ids[i : i + 1000])
        self._report.removed += paths


def row_ids(store: Store, collection: str, path: str) -> list[str]:
    """The records of a table's rows."""
    literal = re.split(r"[*?\[]", path, maxsplit=1)[0]  # no filter takes a path as it is
    rows = store.ledger(Filter(path=literal or ()))
    return [name for name, *_ in rows if name.startswith(f"{collection}:{path}#")]


def _untouched(item: Found, state: FileState | None) -> bool:
    return (
        state is not None
        and (state.size, state.mtime_ns) == (item.size, item.mtime_ns)
        and state.mtime_ns < state.indexed_ns - RACY_NS
    )


def _gone(
    known: Mapping[str, FileState],
    seen: set[str],
    left_aside: list[str],
    root: Path,
    only: Path | None,
) -> set[str]:
    """Known files that are no longer there; what merely could not be looked at is not gone."""
    gone = set(known) - seen
    if only is not None:
        below = only.relative_to(root).as_posix() if only.is_absolute() else only.as_posix()
        gone = {p for p in gone if below == "." or _within(p, below)}
    return {p for p in gone if not any(_within(p, aside) for aside in left_aside)}


def _within(path: str, place: str) -> bool:
    return path == place or path.startswith(place.rstrip("/") + "/")


def _own(date: float | None, of_table: float | None, *, column: bool) -> float | None:
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
