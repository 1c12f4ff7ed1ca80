"""Folders of files that are in no store: text, code, PDF, Office files, by their words.

They are read by the readers of `clew index` into a store of its own, in a folder that is not theirs
and that goes when the search does. Each lookup first brings it up to date, which costs a look at
the times of the files and the reading of those that changed.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from clew.errors import ClewError, SourceError
from clew.lookup.backends import Backend, Setup
from clew.lookup.result import Partial
from clew.types import Hit

if TYPE_CHECKING:
    from clew.engine import Engine

__all__ = ["WAIT", "local_files", "open_aside"]

WAIT, GLANCE = 0.4, 0.1
"""The parts of the deadline that a lookup waits for another that is reading the files, and that it
waits to know whether what was kept will do."""
SHOWN = 5
"""Files that were left aside are named up to this many."""


def open_aside(folder: Path, *, max_file_mb: float) -> Engine:
    """A store for what a backend derives: words only, nothing kept of searches."""
    from clew.engine import open_engine

    return open_engine(folder, model="none", cache=False, max_file_mb=max_file_mb)


class _Files:
    def __init__(self, setup: Setup):
        self._setup = setup
        self._folders = [Path(f).expanduser().absolute() for f in setup.settings.folders]
        self._engine: Engine | None = None
        self._lock = threading.Lock()

    def __call__(self, query: str, limit: int) -> Partial:
        engine, problems, notes = self._up_to_date(self._setup.settings.deadline * WAIT)
        result = engine.search(
            query,
            limit=limit,
            mode="keyword",
            filter=self._setup.filter,
            include_personal=self._setup.include_personal,
            syntax=False,
        )
        roots = engine.store.roots()
        hits = [self._placed(hit, roots) for hit in result]
        return Partial(hits, "; ".join((*problems, *result.degraded)) or None, notes)

    def freshness(self) -> str:
        engine, problems, _ = self._up_to_date(self._setup.settings.deadline * GLANCE)
        if problems:
            raise SourceError("; ".join(problems))
        return ".".join(map(str, engine.store.edition()))

    def close(self) -> None:
        with self._lock:
            if self._engine is not None:
                self._engine.close()

    def _up_to_date(self, seconds: float) -> tuple[Engine, list[str], tuple[str, ...]]:
        """The store as the folders are now; what could not be looked at, and what was left aside.
        Where another lookup has been reading them for long, as far as it has come."""
        if not self._lock.acquire(timeout=seconds):
            if self._engine is None:
                raise SourceError("the folders are still being opened: ask again")
            return self._engine, ["the folders are still being read: ask again"], ()
        problems: list[str] = []
        skipped: list[tuple[str, str]] = []
        try:
            if self._engine is None:
                most = self._setup.settings.max_file_mb
                self._engine = open_aside(self._setup.folder("files"), max_file_mb=most)
            engine = self._engine
            for folder in self._folders:
                try:
                    skipped += engine.index(folder, embed=False).skipped
                except ClewError as error:
                    problems.append(str(error))
        finally:
            self._lock.release()
        if len(problems) == len(self._folders):
            raise SourceError("; ".join(problems))
        notes = [f"{path}: {reason}" for path, reason in skipped[:SHOWN]]
        if len(skipped) > SHOWN:
            notes.append(f"and {len(skipped) - SHOWN} more")
        return engine, problems, tuple(notes)

    def _placed(self, hit: Hit, roots: dict[str, str]) -> Hit:
        """With the place where it can be opened."""
        folder = roots.get(hit.id.partition(":")[0], "")
        place = str(Path(folder, hit.path or ""))
        return replace(hit, path=place, metadata={**hit.metadata, "path": place, "folder": folder})


def local_files(setup: Setup) -> Backend | None:
    """The files of `folders`."""
    return _Files(setup) if setup.settings.folders else None
