"""Whether the files of what a search shows are still there, and as they were indexed."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from clew.config import FILE_NAME
from clew.errors import counted
from clew.protocols import Store
from clew.storage.location import FOLDER
from clew.types import FileState, Hit

FileChange = Literal["gone", "stale", "missing"]
"""Deleted; changed since it was indexed; in a folder that is not there as a whole."""


class IndexedFiles:
    """For one search. Looks at the files of the hits that it is asked about and at no other: a stat
    for each, microseconds. What is in no indexed folder, or was given, is not touched."""

    def __init__(self, store: Store, home: Path | None):
        self._store, self._home = store, home
        self._roots: dict[str, str] | None = None
        self._gone: set[tuple[str, str]] = set()
        self._missing: dict[str, Path] = {}

    def states(self, named: Sequence[tuple[str, str | None]]) -> list[FileChange | None]:
        """Of records, by (id, path); None: as it was, or no file."""
        by_root: dict[str, list[str]] = {}
        for name, path in named:
            if path is not None:
                by_root.setdefault(name.partition(":")[0], []).append(path)
        if by_root and self._roots is None:
            self._roots = self._store.files.roots()
        found: dict[tuple[str, str], FileChange | None] = {}
        for name, paths in by_root.items():
            folder = (self._roots or {}).get(name)
            root = None if folder is None else (self._home or Path()) / folder
            if root is not None and root.is_absolute():
                for path, known in self._store.files.states(name, paths).items():
                    found[name, path] = self._compare(name, root, path, known)
        return [found.get((name.partition(":")[0], path or "")) for name, path in named]

    def as_shown(self, hits: Sequence[Hit]) -> bool:
        """Whether these, which were found earlier, can still be shown as they are."""
        states = self.states([(hit.id, hit.path) for hit in hits])
        marked = [hit.metadata.get("stale") for hit in hits]
        return all(
            state == ("stale" if m else None) for state, m in zip(states, marked, strict=True)
        )

    @property
    def problems(self) -> tuple[str, ...]:
        """What was in the way of showing everything that was found, for `degraded`."""
        said = [
            f"the folder {root} is not there: what is shown of it may be gone"
            for root in self._missing.values()
        ]
        if self._gone:
            are = "is" if len(self._gone) == 1 else "are"
            said.append(
                f"{counted(len(self._gone), 'file')} {are} gone since the last `clew index`"
            )
        return tuple(said)

    def _compare(self, name: str, root: Path, path: str, known: FileState) -> FileChange | None:
        try:
            about = os.stat(f"{root}/{path}")  # noqa: PTH116 - thrice as quick, and often asked
        except (FileNotFoundError, NotADirectoryError):
            if _is_bare(root):
                self._missing[name] = root
                return "missing"
            self._gone.add((name, path))
            return "gone"
        except (OSError, ValueError):  # not to be looked at: then it was not, either
            return None
        same = (about.st_size, about.st_mtime_ns) == (known.size, known.mtime_ns)
        return None if same else "stale"


def _is_bare(root: Path) -> bool:
    """Whether there is no such folder, or nothing in it but a store: a disk that is not mounted, or
    an index that was taken elsewhere without its files."""
    try:
        with os.scandir(root) as entries:
            return all(entry.name in (FOLDER, FILE_NAME) for entry in entries)
    except OSError:
        return True
