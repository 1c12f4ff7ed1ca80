"""Records in the tables of a database, whichever that is; the store over them is clew/store.py.

Here is where a store is: named by a URL; none means the embedded one of a folder.

duckdb:///notes.duckdb       one DuckDB file, from the folder on, or absolute after four slashes
embedded:///folder           the store in .clew/ of a folder
embedded:///memory.db        one file, as a memory has it
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import NamedTuple

from clew import config
from clew.errors import ConfigError

FOLDER = ".clew"


class StoreLocation(NamedTuple):
    """What a URL says, with the path as it is from here."""

    scheme: str
    path: Path

    @property
    def whole(self) -> bool:
        """Whether it is the store of a folder, in its `.clew/`, and not one file."""
        folder = self.path.is_dir() or not (self.path.exists() or self.path.suffix)
        return self.scheme == "embedded" and folder

    @property
    def file(self) -> Path:
        """The database."""
        if self.whole:
            return self.path / FOLDER / "clew.db"
        return self.path

    @property
    def url(self) -> str:
        """The same, however it was written."""
        return f"{self.scheme}:///{self.path.absolute()}"


def is_url(given: object) -> bool:
    return isinstance(given, str) and "://" in given


def locate(url: str, base: Path) -> StoreLocation:
    """Where it is; relative to `base`. Where that has no such folder but the disk has, the path is
    taken from its root: `duckdb:///tmp/x.duckdb` is what many write for an absolute one."""
    if not url:
        return StoreLocation("embedded", base)
    config.check_url(url)
    scheme, _, rest = url.partition("://")
    given = Path(rest[1:]).expanduser()
    path, root = base / given, Path(rest)
    if not given.is_absolute() and not path.parent.is_dir() and len(root.parts) > 2:
        path = root if root.parent.is_dir() else path
    return StoreLocation(
        scheme, path.parent if scheme == "embedded" and path.name == FOLDER else path
    )


def has_store(folder: Path) -> bool:
    """Whether a folder has a store, in `.clew/` or where its settings say."""
    if (folder / FOLDER / "clew.db").exists():
        return True
    if not (folder / FOLDER).is_dir():
        return False
    with contextlib.suppress(ConfigError):  # said when the store is opened
        url = config.load(folder).store
        return bool(url) and locate(url, folder).file.exists()
    return False


def same_file(one: Path, other: Path) -> bool:
    """Also by a link, or written in another way."""
    if one.resolve() == other.resolve():
        return True
    with contextlib.suppress(OSError):
        return one.samefile(other)
    return False


def home_of(place: StoreLocation, near: Path | None = None) -> Path | None:
    """The folder whose store this is, from which it tells where indexed folders are: that around
    it, or `near`, if its settings say so. None: a store that belongs to no folder."""
    if place.whole:
        return place.path
    parent = place.path.absolute().parent
    for folder in (near, parent.parent if parent.name == FOLDER else parent):
        with contextlib.suppress(ConfigError):
            url = "" if folder is None else config.load(folder).store
            if folder is not None and url and same_file(locate(url, folder).file, place.file):
                return folder
    return None
