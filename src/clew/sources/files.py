"""Folders of files that are in no store: text, code, PDF, Office files, by their words.

They are read by the readers of `clew index` into a store of its own. Each question first brings it
up to date, which costs a look at the times of the files and the reading of those that changed.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from clew import config
from clew.background import within
from clew.errors import ClewError, SourceError
from clew.ingest.sync import Groups, read_folders
from clew.protocols import Context, Source, Store
from clew.sources import ExternalPassage
from clew.store import open_store
from clew.text.passage import digest
from clew.types import Answer, Candidate, Query

WAIT, GLANCE = 0.4, 0.1
"""The parts of its seconds that a source waits for reading, and that it waits to learn whether what
was kept will do."""
NOTES = 5
"""Files that were left aside are named up to this many."""


class ScratchStore:
    """A store for what a source reads elsewhere: words only, in a folder that goes with it.

    Reading a large folder for the first time takes longer than a search may. It goes on behind the
    search's back, what has been read can be searched already, and the answer says that there is
    more. Opened when first used. Thread-safe.
    """

    def __init__(self, read: Callable[[Store], None]):
        self._read = read
        self._store: Store | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._opening, self.reading = threading.Lock(), threading.Lock()
        self._ending = threading.Event()

    def update(self, *, seconds: float) -> tuple[Store, bool]:
        """The store, and whether it was brought up to date within this time. One reads at a time: a
        second one, when its turn comes, finds little left to do."""
        with self._opening:
            self.go_on()
            if self._store is None:
                self._folder = tempfile.TemporaryDirectory(
                    prefix="clew-lookup-", ignore_cleanup_errors=True
                )
                self._store = open_store("", base=Path(self._folder.name))
            store = self._store

        def work() -> None:
            if not self.reading.acquire(timeout=seconds):
                raise TimeoutError
            try:
                self._read(store)
            finally:
                self.reading.release()

        try:
            within(seconds, work)
        except TimeoutError:
            return store, False
        return store, True

    def go_on(self, *_: object) -> None:
        """Called by who reads, now and then: raises when nobody wants it any more."""
        if self._ending.is_set():
            raise SourceError("the search was closed")

    def close(self) -> None:
        self._ending.set()
        with self.reading, self._opening:
            if self._store is not None and self._folder is not None:
                self._store.close()
                self._folder.cleanup()


class FilesSource(Source):
    """The files of `folders`, which are seen from `root`, as they are now."""

    def __init__(
        self,
        root: Path,
        *,
        folders: tuple[str, ...],
        max_file_mb: float = 10.0,
        seconds: float = 5.0,
    ):
        places = ((root / Path(each).expanduser()).resolve() for each in folders)
        self._folders = list(dict.fromkeys(places))
        self._max_file_mb, self._seconds = max_file_mb, seconds
        self._problems: list[str] = []
        self._skipped: list[tuple[str, str]] = []
        self._state: tuple[object, str] = (None, "")
        self._whole: Store | None = None
        """The store, where it has all of the folders."""
        self.scratch = ScratchStore(self._read)

    def __call__(self, query: Query, context: Context) -> Answer:
        store, problems = self._update(WAIT)
        found = store.keyword(query.terms, query.filter, limit=query.depth)
        roots = store.files.roots()
        candidates: dict[str, Candidate] = {}
        for candidate, passage in zip(found, store.passages(found), strict=True):
            if passage is None:
                continue
            record = passage.record
            folder = roots.get(record.id.partition(":")[0], "")
            place = str(Path(folder, record.path or ""))
            # named by its place: a store may have another file of the same name
            told = {**record.metadata, "folder": folder}
            placed = replace(record, id=f"file:{place}", path=place, metadata=told)
            brought = ExternalPassage(
                0, placed, passage.text, passage.lines, passage.heading, file=place
            )
            one = Candidate(placed.id, candidate.score, None, brought)
            if Path(place).exists():
                candidates.setdefault(one.id, one)
        notes = [f"{path}: {reason}" for path, reason in self._skipped[:NOTES]]
        if len(self._skipped) > NOTES:
            notes.append(f"and {len(self._skipped) - NOTES} more")
        trace = {"notes": notes if self._whole else []}
        return Answer(list(candidates.values()), "; ".join(problems), trace)

    def freshness(self, store: Store) -> str | None:
        """Told by the files, so that it means the same tomorrow."""
        try:
            own, problems = self._update(GLANCE)
        except SourceError:
            return None
        if problems:
            return None
        edition = own.changes.edition()
        if self._state[0] != edition:
            known = {
                folder: (
                    own.notes.get(f"groups of {name}"),
                    sorted((path, state.digest) for path, state in own.files.states(name).items()),
                )
                for name, folder in sorted(own.files.roots().items())
            }
            self._state = edition, digest(repr(known)).hex()
        return self._state[1]

    def read_files(self, files: Iterable[str]) -> Mapping[str, str]:
        store = self._whole
        if store is None:
            return {}
        folders = {Path(folder): name for name, folder in store.files.roots().items()}
        ids = {}
        for file in map(Path, files):
            around = [folder for folder in folders if folder in file.parents]
            if around:
                folder = max(around, key=lambda each: len(each.parts))
                ids[f"{folders[folder]}:{file.relative_to(folder).as_posix()}"] = str(file)
        told = {ids[record.id]: record.content for record in store.get(list(ids))}
        gone = {f: "" for f in ids.values() if f not in told and not Path(f).exists()}
        return told | gone

    def close(self) -> None:
        self.scratch.close()
        self.scratch, self._whole = ScratchStore(self._read), None

    def _update(self, share: float) -> tuple[Store, list[str]]:
        """The store as the folders are now, and what could not be looked at."""
        store, whole = self.scratch.update(seconds=self._seconds * share)
        self._whole = store if whole else None
        if not whole:
            return store, ["the folders are still being read: ask again"]
        if len(self._problems) == len(self._folders):
            raise SourceError("; ".join(self._problems))
        return store, self._problems

    def _read(self, store: Store) -> None:
        """As `clew index` does, but for the settings, which are the folder's own."""
        problems, skipped = list[str](), list[tuple[str, str]]()
        for folder in self._folders:
            self.scratch.go_on()
            try:
                report = read_folders(
                    store,
                    store.folder,
                    [folder],
                    max_file_mb=self._max_file_mb,
                    chunk_size=config.load().chunk_size,
                    groups_of=domains_of,
                    progress=self.scratch.go_on,
                )
                skipped += report.skipped
            except ClewError as error:
                problems.append(str(error))
        self._problems, self._skipped = problems, skipped


files = FilesSource


def domains_of(folder: Path) -> Groups:
    """The domains of the files below this folder, by the nearest clew.toml at it or above it, also
    where no store was made of it: who marks a folder as personal means it for whoever looks."""
    folder = folder.resolve()
    around = (place for place in (folder, *folder.parents) if (place / config.FILE_NAME).exists())
    if (root := next(around, None)) is None:
        return Groups({}, {})
    inner = "" if folder == root else f"{folder.relative_to(root).as_posix()}/"

    def below(given: tuple[str, ...]) -> tuple[str, ...]:
        """Folders as they are called within the inner one; empty: all of it."""
        named = [each.removeprefix(inner) for each in given if each.startswith(inner)]
        return (*named, *([""] if any(inner.startswith(each) for each in given) else []))

    domains = config.load(root).domains
    return Groups({}, {name: below(given) for name, given in domains.items()})
