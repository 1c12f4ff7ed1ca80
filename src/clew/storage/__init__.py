"""Where records live. A store is named by a URL; none means the embedded one of a folder.

duckdb:///notes.duckdb       one DuckDB file, from the folder on, or absolute after four slashes
embedded:///folder           the store in .clew/ of a folder
embedded:///memory.db        one file, as a memory has it
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from clew import config
from clew.errors import ConfigError, StoreError

if TYPE_CHECKING:
    from clew.protocols import Store

__all__ = [
    "FOLDER",
    "Place",
    "has_store",
    "home_of",
    "is_url",
    "located",
    "open_store",
    "same_file",
]

FOLDER = ".clew"


@dataclass(frozen=True, slots=True)
class Place:
    """What a URL says, with the path as it is from here."""

    scheme: str
    path: Path

    @property
    def whole(self) -> bool:
        """Whether it is the store of a folder, in its `.clew/`, and not one file."""
        return self.scheme == "embedded" and _is_folder(self.path)

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


def located(url: str, base: Path) -> Place:
    """Where it is; relative to `base`. Where that has no such folder but the disk has, the path is
    taken from its root: `duckdb:///tmp/x.duckdb` is what many write for an absolute one."""
    if not url:
        return Place("embedded", base)
    config.check_url(url)
    scheme, _, rest = url.partition("://")
    given = Path(rest[1:]).expanduser()
    path, root = base / given, Path(rest)
    if not given.is_absolute() and not path.parent.is_dir() and len(root.parts) > 2:
        path = root if root.parent.is_dir() else path
    return Place(scheme, path.parent if scheme == "embedded" and path.name == FOLDER else path)


def _is_folder(path: Path) -> bool:
    return path.is_dir() or (not path.exists() and not path.suffix)


def has_store(folder: Path) -> bool:
    """Whether a folder has a store, in `.clew/` or where its settings say."""
    if (folder / FOLDER / "clew.db").exists():
        return True
    if not (folder / FOLDER).is_dir():
        return False
    with contextlib.suppress(ConfigError):  # said when the store is opened
        url = config.load(folder).store
        return bool(url) and located(url, folder).file.exists()
    return False


def same_file(one: Path, other: Path) -> bool:
    """Also by a link, or written in another way."""
    if one.resolve() == other.resolve():
        return True
    with contextlib.suppress(OSError):
        return one.samefile(other)
    return False


def home_of(place: Place, near: Path | None = None) -> Path | None:
    """The folder whose store this is, from which it tells where indexed folders are: that around
    it, or `near`, if its settings say so. None: a store that belongs to no folder."""
    if place.whole:
        return place.path
    parent = place.path.absolute().parent
    for folder in (near, parent.parent if parent.name == FOLDER else parent):
        with contextlib.suppress(ConfigError):
            url = "" if folder is None else config.load(folder).store
            if folder is not None and url and same_file(located(url, folder).file, place.file):
                return folder
    return None


def open_store(
    url: str,
    *,
    base: Path,
    folder: Path | None = None,
    create: bool = True,
    ivf_threshold: int = 50_000,
    busy_seconds: float = 10.0,
    synchronous: str = "NORMAL",
) -> Store:
    """The store of this URL; `folder` is where its derived indexes go, if not to the usual place.

    What is missing is made, unless `create` is False: then it is an error.
    """
    place = located(url, base)
    if not create and not place.file.exists():
        raise StoreError(f"there is no store in {place.file}: check the path, or index something")
    if place.scheme == "duckdb":
        from clew.storage.duckdb import DuckStore

        return DuckStore(
            place.path,
            folder=folder,
            create=create,
            ivf_threshold=ivf_threshold,
            busy_seconds=busy_seconds,
        )
    from clew.storage.store import EmbeddedStore, make_folder

    file = place.file
    beside = file.parent if place.whole else file.with_name(f"{file.name}{FOLDER}")
    elsewhere = folder is not None and folder.absolute() != beside.absolute()
    if place.whole and elsewhere and create:
        make_folder(file.parent)
    return EmbeddedStore(
        folder or beside,
        database=file if elsewhere or not place.whole else None,
        create=create,
        ivf_threshold=ivf_threshold,
        busy_seconds=busy_seconds,
        synchronous=synchronous,
    )
