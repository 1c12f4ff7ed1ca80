"""Whose a store is: looked at before anything of it is opened.

A store may have come with a folder from somebody else, or lie where others can write. So there are
no links in it, which would have Clew write elsewhere; it belongs to the user; and nobody else may
read or change it. Who keeps a store on another disk by a link, or shares one, says so (`clew
trust`).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import stat
from collections.abc import Iterator
from pathlib import Path

from clew import trust
from clew.errors import StoreError
from clew.resident import SOCKET
from clew.storage import FOLDER

_FLAGS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
_BESIDE = ("", "-wal", "-shm", "-journal", ".wal", ".new", ".new.wal")
"""What databases keep beside their file."""


def check_ownership(folder: Path, file: Path) -> None:
    """A StoreError unless the folder of a store and its database may be opened. What others may
    read or write is narrowed; derived indexes that they could have changed are made anew."""
    if not hasattr(os, "geteuid"):
        return
    apart = file.parent.absolute() != folder.absolute()
    if apart and file.parent.name == FOLDER:  # whose derived indexes are elsewhere
        _check_folder(file.parent)
    elif apart:
        for ending in _BESIDE:
            place = file.with_name(file.name + ending)
            with contextlib.suppress(FileNotFoundError):
                _narrow(place, _check_outermost(place))
    _check_folder(folder)


def _check_folder(folder: Path) -> None:
    try:
        own = _check_outermost(folder)
    except FileNotFoundError:
        return
    depth = str(folder).count(os.sep) + 1
    for name, status in _walk(str(folder)):
        regular = stat.S_ISREG(status.st_mode)
        served = stat.S_ISSOCK(status.st_mode) and name == str(folder / SOCKET)  # by `clew serve`
        if not regular and not served and not stat.S_ISDIR(status.st_mode):
            raise StoreError(
                f"{name} is a link or no file at all: a store has none, and to write to it would "
                "change something else. Remove it; if you did not make it, be wary of the folder"
            )
        if status.st_uid != os.geteuid():
            _check_owner(folder, Path(name), status)
        elif regular and name.count(os.sep) == depth and not name.endswith(".lock"):
            _narrow(Path(name), status)
    if _narrow(folder, own):
        shutil.rmtree(folder / "derived", ignore_errors=True)


def _walk(folder: str) -> Iterator[tuple[str, os.stat_result]]:
    """What is in it, without following links; what goes meanwhile is left out."""
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                status = entry.stat(follow_symlinks=False)
                yield entry.path, status
                if stat.S_ISDIR(status.st_mode):
                    yield from _walk(entry.path)


def _check_outermost(place: Path) -> os.stat_result:
    """The status of a store: what is at the very place of a store may be a link, if the user says
    so."""
    status = place.lstat()
    if stat.S_ISLNK(status.st_mode):
        if not trust.is_trusted_store(place):
            raise StoreError(
                f"{place} is a link to {place.readlink()}, where Clew would write: "
                f"{trust_command(place)}"
            )
        status = place.stat()
    _check_owner(place, place, status)
    return status


def _check_owner(store: Path, entry: Path, status: os.stat_result) -> None:
    if status.st_uid != os.geteuid() and not trust.is_trusted_store(store):
        raise StoreError(
            f"{entry} belongs to another user (number {status.st_uid}), who may have put anything "
            f"there: {trust_command(store)}"
        )


def trust_command(store: Path) -> str:
    """What to do about it, for the folder or the file of a store."""
    place = store.parent / store.name.removesuffix(FOLDER)
    return f"if that is as it should be, run: clew trust {place} (or set {trust.ENVIRONMENT})"


def _narrow(place: Path, status: os.stat_result) -> bool:
    """Take from others what they may do there; whether they could write."""
    mode = stat.S_IMODE(status.st_mode)
    if not mode & 0o077 or status.st_uid != os.geteuid() or trust.is_trusted_store(place):
        return False
    with contextlib.suppress(OSError):  # a disk that is read-only
        place.chmod(mode & 0o700)
    return bool(mode & 0o022)


# ---------------------------------------------------------------------- what Clew writes


def make_folder(folder: Path) -> None:
    """Make the folder of a store, or of what is derived from one."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise StoreError(
            f"cannot make {folder}: {error.strerror}; give a folder you may write to"
        ) from error


def open_private(path: str | Path, flags: int) -> int:
    """Open a file for `open(…, opener=open_private)`: no link is followed, and only the user may
    read it."""
    return os.open(path, flags | _FLAGS, 0o600)


def create_private(path: Path) -> None:
    """An empty file, unless there is one; what is in the way is said by who opens it."""
    with contextlib.suppress(OSError):
        os.close(open_private(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL))


def replace_private(file: Path, text: str) -> None:
    """Write a file in one step; only the user may read it."""
    with trust.replace_file(file) as opened:
        opened.write(text.encode())


# ---------------------------------------------------------------------- what SQLite may run

_STRANGE = """SELECT name FROM sqlite_master
              WHERE type NOT IN ('table', 'index') OR sql LIKE 'CREATE VIRTUAL%' LIMIT 1"""


HOSTILE = (
    "has a trigger or view that Clew did not make ({!r}): it may be meant to do harm, so it is not "
    "opened. Index the files anew, or export from it with SQLite's own tools"
)


def harden(db: sqlite3.Connection) -> str:
    """Let nothing in a file's schema run code; the name of a trigger or view, which Clew makes
    none of."""
    db.execute("PRAGMA trusted_schema = OFF")
    if hasattr(db, "setconfig"):  # from Python 3.12 on
        db.setconfig(getattr(sqlite3, "SQLITE_DBCONFIG_DEFENSIVE"), True)  # noqa: B009
    row = db.execute(_STRANGE).fetchone()
    return str(row[0]) if row else ""
