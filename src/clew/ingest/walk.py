"""Which files of a folder are to be read, and which were left aside and why."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from clew.errors import InputError
from clew.ingest import ignore
from clew.ingest.contents import MEGABYTE, contents

__all__ = ["Found", "Skipped", "walk"]

MOST_PATTERNS = MEGABYTE
"""Bytes of an ignore file; a larger one is none."""

# Other hidden folders (.github, .agent…) hold what people write: they are walked.
_FOLDERS_LEFT_OUT = frozenset(
    {
        # records of version control, and our own index
        ".bzr",
        ".clew",
        ".git",
        ".hg",
        ".jj",
        ".svn",
        # what Python's tools make again
        "__pycache__",
        ".direnv",
        ".eggs",
        ".hypothesis",
        ".ipynb_checkpoints",
        ".mypy_cache",
        ".nox",
        ".pytest_cache",
        ".ruff_cache",
        ".tox",
        ".venv",
        "venv",
        "site-packages",
        # what other languages' tools make again
        "bower_components",
        "node_modules",
        ".next",
        ".npm",
        ".nuxt",
        ".parcel-cache",
        ".pnpm-store",
        ".svelte-kit",
        ".turbo",
        ".yarn",
        ".dart_tool",
        ".gradle",
        ".terraform",
        # settings of editors, and what was thrown away
        ".idea",
        ".obsidian",
        ".trash",
        ".Trash",
        ".Trashes",
        ".Spotlight-V100",
        ".fseventsd",
    }
)
_FOLDER_ENDINGS = (".clew", ".dist-info", ".egg-info")  # the first: indexes of a memory
# A folder that holds one of these is a cache or a virtual environment, whatever its name.
_FOLDER_MARKS = frozenset({"CACHEDIR.TAG", "pyvenv.cfg"})
_IGNORE_FILES = (".gitignore", ".clewignore")  # the second one's patterns win
# In a worktree or a submodule `.git` is a file.
_FILES_LEFT_OUT = frozenset(
    {*_IGNORE_FILES, "clew.toml", ".git", ".DS_Store", "Thumbs.db", "desktop.ini"}
)


@dataclass(frozen=True, slots=True)
class Found:
    """A file to be read."""

    path: str
    """Relative to the root, with forward slashes."""
    absolute: str
    size: int
    mtime_ns: int


@dataclass(frozen=True, slots=True)
class Skipped:
    """A file or a folder that was to be read and cannot be."""

    path: str
    reason: str


def walk(root: Path, *, only: Path | None = None, max_bytes: int) -> Iterator[Found | Skipped]:
    """Every file below `root`, in an order that depends on the names alone.

    `only` (a file or a folder, absolute or relative to `root`) narrows the walk; the ignore files
    between the root and it still hold. What is ignored is passed over in silence.
    """
    top = os.path.realpath(root)
    if not Path(top).is_dir():
        raise InputError(f"there is no folder {str(root)!r}: give one that exists")
    return _walk(top, _parts_below(top, only), max_bytes)


def _parts_below(top: str, only: Path | None) -> tuple[str, ...]:
    if only is None:
        return ()
    given = Path(os.path.normpath(Path(top, only)))
    if os.path.realpath(given) == top:
        return ()
    # Its parent is resolved and not it itself: a link is judged by the walk.
    place = given.parent.resolve() / given.name
    if not _is_below(str(place), top):
        raise InputError(f"{str(only)!r} is not inside {top!r}: give a path below the folder")
    return place.relative_to(top).parts


def _is_below(place: str, top: str) -> bool:
    return place.startswith(top if top.endswith(os.sep) else top + os.sep)


def _walk(top: str, parts: tuple[str, ...], max_bytes: int) -> Iterator[Found | Skipped]:
    # A stack and no recursion: folders can be nested deeper than Python's frames.
    stack: list[tuple[str, str, tuple[ignore.Rules, ...], tuple[str, ...]]] = [(top, "", (), parts)]
    while stack:
        folder, prefix, chain, wanted = stack.pop()
        try:
            with os.scandir(folder) as listing:
                entries = {entry.name: entry for entry in listing}
        except FileNotFoundError:
            if not prefix:
                raise InputError(f"the folder {top!r} has gone: give one that exists") from None
            continue
        except OSError as error:
            if not prefix:
                raise InputError(f"cannot list {top!r}: {_reason(error)}") from error
            yield Skipped(prefix.rstrip("/"), f"cannot list the folder: {_reason(error)}")
            continue
        if prefix and not _FOLDER_MARKS.isdisjoint(entries):
            continue
        rules, troubles = _rules_in(folder, prefix, entries)
        yield from troubles
        chain = chain if rules is None else (rules, *chain)
        if wanted:
            entries = {wanted[0]: entries[wanted[0]]} if wanted[0] in entries else {}
        below: list[tuple[str, str, tuple[ignore.Rules, ...], tuple[str, ...]]] = []
        for name in sorted(entries):
            entry = entries[name]
            path = prefix + name
            try:
                is_folder = entry.is_dir(follow_symlinks=False)
                if is_folder:
                    if name in _FOLDERS_LEFT_OUT or name.endswith(_FOLDER_ENDINGS):
                        continue
                elif name in _FILES_LEFT_OUT:
                    continue
                if chain and ignore.ignored(chain, path, name, folder=is_folder):
                    continue
                if not name.isascii() and not _is_text(name):
                    shown = path.encode("utf-8", "backslashreplace").decode()
                    yield Skipped(shown, "the name is not valid UTF-8: rename it to index it")
                elif is_folder:
                    below.append((entry.path, path + "/", chain, wanted[1:]))
                elif len(wanted) > 1:
                    pass  # what is wanted lies below a folder, and this is none
                elif entry.is_symlink():
                    if reason := _why_not_follow(entry.path, top):
                        yield Skipped(path, reason)
                else:
                    yield _look(entry, path, max_bytes)
            except FileNotFoundError:
                continue  # gone since the folder was listed
            except OSError as error:
                yield Skipped(path, _reason(error))
        stack.extend(reversed(below))


def _look(entry: os.DirEntry[str], path: str, max_bytes: int) -> Found | Skipped:
    status = entry.stat(follow_symlinks=False)
    if not stat.S_ISREG(status.st_mode):
        return Skipped(path, "not a regular file")
    if status.st_size > max_bytes:
        size, limit = status.st_size / MEGABYTE, max_bytes / MEGABYTE
        return Skipped(path, f"{size:.1f} MB is more than max_file_mb allows ({limit:.3g} MB)")
    return Found(path, entry.path, status.st_size, status.st_mtime_ns)


def _why_not_follow(link: str, top: str) -> str | None:
    try:
        target = os.path.realpath(link, strict=True)
    except FileNotFoundError:
        return "broken link"
    except OSError as error:
        return f"link cannot be resolved: {_reason(error)}"
    # Inside the root its target is met under its own name.
    return None if target == top or _is_below(target, top) else "link leads out of the folder"


def _rules_in(
    folder: str, prefix: str, entries: dict[str, os.DirEntry[str]]
) -> tuple[ignore.Rules | None, list[Skipped]]:
    names = [name for name in _IGNORE_FILES if name in entries]
    if not prefix and ".git" in entries:
        names.insert(0, ".git/info/exclude")
    texts: list[str] = []
    troubles: list[Skipped] = []
    for name in names:
        try:
            data = contents(Path(folder, name), max_bytes=MOST_PATTERNS)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except (InputError, OSError) as error:
            why = _reason(error) if isinstance(error, OSError) else str(error)
            troubles.append(Skipped(prefix + name, f"its patterns do not hold: {why}"))
            continue
        # surrogateescape is how the file system's own odd names come in: they can match.
        texts.append(data.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "surrogateescape"))
    return (ignore.parse("\n".join(texts), prefix=prefix) if texts else None), troubles


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _reason(error: OSError) -> str:
    return error.strerror or str(error)
