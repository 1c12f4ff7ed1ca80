"""Folders of files that are in no store: text, code, PDF, Office files, by their words.

They are read by the readers of `clew index` into a store of its own, which lies in the user's cache
folder, so that the next process need not read them again. Each question first brings it up to date,
which costs a look at the times of the files and the reading of those that changed.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from clew import config
from clew.background import within
from clew.errors import ClewError, SourceError, StoreError
from clew.ingest.sync import Groups, read_folders
from clew.protocols import Context, Source, Store
from clew.sources import ExternalPassage
from clew.storage import FOLDER
from clew.store import open_store
from clew.text.passage import digest
from clew.trust import cache_folder
from clew.types import Answer, Candidate, Query

WAIT, GLANCE = 0.4, 0.1
"""The parts of its seconds that a source waits for reading, and that it waits to learn whether what
was kept will do."""
USED, LOCK = "used", "reading.lock"
NOTES = 5
"""Files that were left aside are named up to this many."""
MOST_KEPT, REST = 16, 3600.0
"""Stores in the user's cache folder: beyond so many, those that nobody has used for so many seconds
are removed, the oldest first."""


def kept_home() -> Path:
    """Where lookups keep what they read: CLEW_LOOKUPS, or the user's cache folder."""
    return cache_folder("lookup", "CLEW_LOOKUPS")


def kept_folder(kind: str, *parts: object) -> Path:
    """Where what is read of these places is kept. Another version, or another way of cutting text,
    has another place."""
    from clew import __version__
    from clew.ingest.readers import VERSION

    way = (__version__, VERSION, config.load().chunk_size, *map(str, parts))
    return kept_home() / f"{kind}-{digest(repr(way)).hex()}"


class ScratchStore:
    """A store for what a source reads elsewhere: words only, in `place`, which others may use at
    the same time, or without one in a folder that goes with it.

    Reading a large folder for the first time takes longer than a search may. It goes on behind the
    search's back, what has been read can be searched already, and the answer says that there is
    more. Opened when first used. Thread-safe.
    """

    def __init__(self, read: Callable[[Store], None], place: Path | None = None):
        self._read, self._place = read, place
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
                self._store = self._open()
            store = self._store

        def work() -> None:
            if not self.reading.acquire(timeout=seconds):
                raise TimeoutError
            try:
                with self._alone(seconds):
                    self._read(store)
            finally:
                self.reading.release()

        try:
            within(seconds, work)
        except TimeoutError:
            return store, False
        return store, True

    def _open(self) -> Store:
        """What is kept is made anew where it cannot be opened, and done without where it may not
        be written, or somebody else could have put it there."""
        if self._place is not None:
            try:
                remove_unused(self._place)
                self._place.mkdir(mode=0o700, parents=True, exist_ok=True)
                (self._place / USED).touch()
                try:
                    return open_store("", base=self._place)
                except StoreError:
                    shutil.rmtree(self._place / FOLDER)  # not through a link
                    return open_store("", base=self._place)
            except (OSError, StoreError):
                self._place = None
        self._folder = tempfile.TemporaryDirectory(
            prefix="clew-lookup-", ignore_cleanup_errors=True
        )
        return open_store("", base=Path(self._folder.name))

    @contextmanager
    def _alone(self, seconds: float) -> Iterator[None]:
        """While another process reads the same, nobody else does."""
        if self._place is None:
            yield
            return
        import filelock

        with contextlib.suppress(OSError):
            (self._place / USED).touch()
        with filelock.FileLock(self._place / LOCK, timeout=seconds):  # a Timeout is a TimeoutError
            yield

    def go_on(self, *_: object) -> None:
        """Called by who reads, now and then: raises when nobody wants it any more."""
        if self._ending.is_set():
            raise SourceError("the search was closed")

    def close(self) -> None:
        self._ending.set()
        with self.reading, self._opening:
            if self._store is not None:
                self._store.close()
            if self._folder is not None:
                self._folder.cleanup()


def remove_unused(place: Path) -> None:
    """Remove stores that nobody uses from around this one, beyond the most that are kept."""
    used: list[tuple[float, Path]] = []
    for each in place.parent.iterdir() if place.parent.is_dir() else ():
        with contextlib.suppress(OSError):
            used.append(((each / USED).stat().st_mtime, each))
    for last, each in sorted(used)[: max(0, len(used) - MOST_KEPT)]:
        if each != place and last < time.time() - REST:
            shutil.rmtree(each, ignore_errors=True)


class FilesSource(Source):
    """The files of `folders`, which are seen from `root`, as they are now."""

    def __init__(
        self,
        root: Path,
        *,
        folders: tuple[str, ...],
        max_file_mb: float = 10.0,
        seconds: float = 5.0,
        keep: bool = True,
    ):
        places = ((root / Path(each).expanduser()).resolve() for each in folders)
        self._folders = list(dict.fromkeys(places))
        self._max_file_mb, self._seconds = max_file_mb, seconds
        self._problems: list[str] = []
        self._skipped: list[tuple[str, str]] = []
        self._state: tuple[object, str] = (None, "")
        self._whole: Store | None = None
        """The store, where it has all of the folders."""
        self._place = kept_folder("files", max_file_mb, *self._folders) if keep else None
        self.scratch = ScratchStore(self._read, self._place)

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
        self.scratch, self._whole = ScratchStore(self._read, self._place), None

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
        """Read as `clew index` does, but for the settings, which are the folder's own."""
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
