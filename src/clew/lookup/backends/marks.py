"""What the clew.toml of a folder says of its files, also where no store was made of it.

Who marks a folder as personal means it for whoever looks, and not for one store alone.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from clew import config
from clew.ingest.sync import Groups

__all__ = ["domains_of"]


def domains_of(folder: Path) -> Groups:
    """The domains of the files below this folder, by the nearest clew.toml at it or above it."""
    folder = folder.resolve()
    for root in (folder, *folder.parents):
        try:
            stat = (root / config.FILE_NAME).stat()
        except OSError:
            continue
        return _read(folder, root, stat.st_mtime_ns, stat.st_size)
    return Groups({}, {})


@lru_cache(maxsize=64)
def _read(folder: Path, root: Path, *_version: int) -> Groups:
    inner = "" if folder == root else f"{folder.relative_to(root).as_posix()}/"
    return Groups(
        {}, {name: _below(inner, given) for name, given in config.load(root).domains.items()}
    )


def _below(inner: str, given: tuple[str, ...]) -> tuple[str, ...]:
    """Folders as they are called within the inner one; empty: all of it."""
    within = [each.removeprefix(inner) for each in given if each.startswith(inner)]
    return (*within, *([""] if any(inner.startswith(each) for each in given) else []))
