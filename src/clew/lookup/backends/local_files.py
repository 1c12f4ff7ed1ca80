"""Folders of files that are in no store: text, code, PDF, Office files, by their words.

They are read by the readers of `clew index` into a store of its own (aside.py). Each lookup first
brings it up to date, which costs a look at the times of the files and the reading of those that
changed.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from clew.errors import ClewError, SourceError
from clew.lookup.backends import Backend, Setup
from clew.lookup.backends.aside import GLANCE, WAIT, Aside
from clew.lookup.result import Partial
from clew.types import Hit

if TYPE_CHECKING:
    from clew.engine import Engine

__all__ = ["local_files"]

SHOWN = 5
"""Files that were left aside are named up to this many."""


class _Files:
    def __init__(self, setup: Setup):
        self._setup = setup
        self._folders = [Path(f).expanduser().absolute() for f in setup.settings.folders]
        most = setup.settings.max_file_mb
        self._aside = Aside(lambda: setup.folder("files"), max_file_mb=most)
        self.close = self._aside.close

    def __call__(self, query: str, limit: int) -> Partial:
        engine, problems, notes = self._up_to_date(WAIT)
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
        engine, problems, _ = self._up_to_date(GLANCE)
        if problems:
            raise SourceError("; ".join(problems))
        return ".".join(map(str, engine.store.edition()))

    def _up_to_date(self, share: float) -> tuple[Engine, list[str], tuple[str, ...]]:
        """The store as the folders are now, what could not be looked at, what was left aside."""
        problems: list[str] = []
        skipped: list[tuple[str, str]] = []
        engine, whole = self._aside.brought_up(
            partial(self._read, problems=problems, skipped=skipped),
            seconds=self._setup.settings.deadline * share,
        )
        if not whole:
            return engine, ["the folders are still being read: ask again"], ()
        if len(problems) == len(self._folders):
            raise SourceError("; ".join(problems))
        notes = [f"{path}: {reason}" for path, reason in skipped[:SHOWN]]
        if len(skipped) > SHOWN:
            notes.append(f"and {len(skipped) - SHOWN} more")
        return engine, problems, tuple(notes)

    def _read(self, engine: Engine, *, problems: list[str], skipped: list[tuple[str, str]]) -> None:
        for folder in self._folders:
            self._aside.go_on()
            try:
                report = engine.index(folder, embed=False, progress=self._aside.go_on)
                skipped += report.skipped
            except ClewError as error:
                problems.append(str(error))

    def _placed(self, hit: Hit, roots: dict[str, str]) -> Hit:
        """With the place where it can be opened."""
        folder = roots.get(hit.id.partition(":")[0], "")
        place = str(Path(folder, hit.path or ""))
        return replace(hit, path=place, metadata={**hit.metadata, "path": place, "folder": folder})


def local_files(setup: Setup) -> Backend | None:
    """The files of `folders`."""
    return _Files(setup) if setup.settings.folders else None
