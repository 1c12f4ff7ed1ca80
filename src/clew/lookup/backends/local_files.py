"""Folders of files that are in no store: text, code, PDF, Office files, by their words.

They are read by the readers of `clew index` into a store of its own (aside.py). Each lookup first
brings it up to date, which costs a look at the times of the files and the reading of those that
changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from clew.cache import fingerprint
from clew.errors import ClewError, SourceError
from clew.ingest.sync import read_folders
from clew.lookup.backends import Backend, Setup
from clew.lookup.backends.aside import GLANCE, WAIT, Aside
from clew.lookup.backends.marks import domains_of
from clew.lookup.result import Found, Partial
from clew.types import Hit

if TYPE_CHECKING:
    from clew.engine import Engine

__all__ = ["local_files"]

SHOWN = 5
"""Files that were left aside are named up to this many."""


class _Files(Backend):
    def __init__(self, setup: Setup):
        self._setup = setup
        given = [Path(f).expanduser().resolve() for f in setup.settings.folders]
        self._folders = list(dict.fromkeys(given))
        self._state: tuple[object, str] = (None, "")
        self._read_by: Engine | None = None
        """The store, where it has all of the folders."""
        most = setup.settings.max_file_mb
        self._aside = Aside(lambda: setup.folder("files"), max_file_mb=most)

    def close(self) -> None:
        self._aside.close()

    def __call__(self, query: str, limit: int) -> Partial:
        engine, problems, notes = self._up_to_date(WAIT)
        result = engine.search(
            query,
            limit=limit,
            mode="keyword",
            group_by="record",
            filter=self._setup.filter,
            include_personal=self._setup.include_personal,
            syntax=False,
        )
        found = self._found(result, engine)
        return Partial(found, "; ".join((*problems, *result.degraded)) or None, notes)

    def freshness(self) -> str:
        engine, problems, _ = self._up_to_date(GLANCE)
        if problems:
            raise SourceError("; ".join(problems))
        edition = engine.store.changes.edition()
        if self._state[0] != edition:  # told by the files, so that it means the same tomorrow
            store = engine.store
            files = {
                folder: (
                    store.notes.get(f"groups of {name}"),
                    sorted(
                        (path, state.digest) for path, state in store.files.states(name).items()
                    ),
                )
                for name, folder in store.files.roots().items()
            }
            self._state = edition, fingerprint(files)
        return self._state[1]

    def _up_to_date(self, share: float) -> tuple[Engine, list[str], tuple[str, ...]]:
        """The store as the folders are now, what could not be looked at, what was left aside."""
        problems: list[str] = []
        skipped: list[tuple[str, str]] = []
        engine, whole = self._aside.brought_up(
            partial(self._read, problems=problems, skipped=skipped),
            seconds=self._setup.settings.deadline * share,
        )
        self._read_by = engine if whole else None
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
                skipped += self._bring_in(engine, folder)
            except ClewError as error:
                problems.append(str(error))

    def _bring_in(self, engine: Engine, folder: Path) -> list[tuple[str, str]]:
        """As `clew index` does, but for the settings, which are the folder's own."""
        report = read_folders(
            engine.store,
            engine.root or folder,
            [folder],
            max_file_mb=engine.config.max_file_mb,
            chunk_size=engine.config.chunk_size,
            groups_of=domains_of,
            progress=self._aside.go_on,
        )
        return report.skipped

    def _found(self, hits: Iterable[Hit], engine: Engine) -> list[Found]:
        """With the place where each can be opened, which is also its name: a store may have another
        file of the same name."""
        roots = engine.store.files.roots()
        found = []
        for hit in hits:
            folder = roots.get(hit.id.partition(":")[0], "")
            place = str(Path(folder, hit.path or ""))
            told = {**hit.metadata, "path": place, "folder": folder}
            placed = replace(hit, id=f"file:{place}", path=place, metadata=told)
            found.append(Found(placed, file=place))
        return found

    def now(self, files: Iterable[str], /) -> Mapping[str, str]:
        """A store may have an older state of them."""
        engine = self._read_by
        if engine is None:
            return {}
        folders = {Path(folder): name for name, folder in engine.store.files.roots().items()}
        ids = {}
        for file in map(Path, files):
            around = [folder for folder in folders if folder in file.parents]
            if around:
                folder = max(around, key=lambda each: len(each.parts))
                ids[f"{folders[folder]}:{file.relative_to(folder).as_posix()}"] = str(file)
        told = {ids[record.id]: record.content for record in engine.store.get(list(ids))}
        gone = {f: "" for f in ids.values() if f not in told and not Path(f).exists()}
        return told | gone


def local_files(setup: Setup) -> Backend | None:
    """The files of `folders`."""
    return _Files(setup) if setup.settings.folders else None
