"""Walk a folder: which files are to be read, and which cannot be and why.

The rules of .gitignore and .clewignore are decided one folder entry at a time, as git does it; the
tests compare with git itself. pathspec answers for whole paths: it calls the folder `a` ignored
under `a/**`, so a walk that passes ignored folders by would lose `!a/keep.txt`, which git keeps.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
from collections.abc import Iterator
from io import FileIO
from pathlib import Path
from typing import NamedTuple

from clew.errors import InputError
from clew.filter import FOLDERS, STAR, join_glob
from clew.validate import encodable

MEGABYTE = 1024 * 1024
PAGE = 4096
"""Some of what is not on a disk can only be read in round numbers."""
MOST_PATTERNS = MEGABYTE
"""Bytes of an ignore file; a larger one is none."""
_READ_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
_LIST_FLAGS = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0)
_BY_NAME = os.open in os.supports_dir_fd and os.scandir in os.supports_fd
"""Whether a file can be opened by its name in a folder that is held."""

# Other hidden folders (.github, .agent…) hold what people write: they are walked.
_FOLDERS_LEFT_OUT = frozenset(
    (
        # records of version control, and our own index
        *(".bzr", ".clew", ".git", ".hg", ".jj", ".svn"),
        # what Python's tools make again
        *("__pycache__", ".direnv", ".eggs", ".hypothesis", ".ipynb_checkpoints", ".mypy_cache"),
        *(".nox", ".pytest_cache", ".ruff_cache", ".tox", ".venv", "venv", "site-packages"),
        # what other languages' tools make again
        *("bower_components", "node_modules", ".next", ".npm", ".nuxt", ".parcel-cache"),
        *(".pnpm-store", ".svelte-kit", ".turbo", ".yarn", ".dart_tool", ".gradle", ".terraform"),
        # settings of editors, and what was thrown away
        *(".idea", ".obsidian", ".trash", ".Trash", ".Trashes", ".Spotlight-V100", ".fseventsd"),
    )
)
_FOLDER_ENDINGS = (".clew", ".dist-info", ".egg-info")  # the first: indexes of a memory
# A folder that holds one of these is a cache or a virtual environment, whatever its name.
_FOLDER_MARKS = frozenset({"CACHEDIR.TAG", "pyvenv.cfg"})
_IGNORE_FILES = (".gitignore", ".clewignore")  # the second one's patterns win
# In a worktree or a submodule `.git` is a file.
_FILES_LEFT_OUT = frozenset(
    {*_IGNORE_FILES, "clew.toml", ".git", ".DS_Store", "Thumbs.db", "desktop.ini"}
)


class DiskFile(NamedTuple):
    path: str
    """Relative to the root, with forward slashes."""
    size: int
    mtime_ns: int


class Skip(NamedTuple):
    """A file or a folder that was to be read and cannot be."""

    path: str
    reason: str


def walk(root: Path, *, only: Path | None = None, max_bytes: int) -> Iterator[DiskFile | Skip]:
    """Every file below `root`, in an order that depends on the names alone.

    `only` (a file or a folder, absolute or relative to `root`) narrows the walk; the ignore files
    between the root and it still hold. What is ignored is passed over in silence.
    """
    top = os.path.realpath(root)
    if not Path(top).is_dir():
        raise InputError(f"there is no folder {str(root)!r}: give one that exists")
    return _walk(top, _parts_below(top, only), max_bytes)


def is_left_out(path: str) -> bool:
    """Whether a walk never comes there, whatever the ignore files say."""
    *folders, name = path.split("/")
    return name in (".git", ".DS_Store") or any(
        each in _FOLDERS_LEFT_OUT or each.endswith(_FOLDER_ENDINGS) for each in (*folders, name)
    )


class HeldFolder:
    """A folder that is held open. What lies below it is opened from there, one name at a time and
    never through a link: whatever is put in the place of a file or a folder meanwhile, nothing from
    outside is read."""

    def __init__(self, place: str | Path):
        self._place = str(place)
        try:
            self._top = os.open(self._place, _LIST_FLAGS) if _BY_NAME else -1
        except FileNotFoundError:
            raise InputError(f"the folder {self._place!r} has gone: give one that exists") from None
        except OSError as error:
            raise InputError(f"cannot list {self._place!r}: {_reason(error)}") from error
        self._last = "", self._top
        """The folder that something was opened in last: the next thing mostly lies there too."""

    def __enter__(self) -> HeldFolder:
        return self

    def __exit__(self, *_: object) -> None:
        if _BY_NAME:
            for handle in {self._top, self._last[1]}:
                os.close(handle)

    def open(self, path: str, flags: int) -> int:
        """What lies at this path below it, as the operating system opens it."""
        if not _BY_NAME:  # Windows, where few may make links
            return os.open(Path(self._place, path), flags)
        folder, _, name = path.rpartition("/")
        return os.open(name, flags | os.O_NOFOLLOW, dir_fd=self._reach(folder))

    def _reach(self, folder: str) -> int:
        known, at = self._last
        if folder == known:
            return at
        if not known or not folder.startswith(f"{known}/"):
            self._leave()
            known, at = self._last
        for name in folder.removeprefix(known).strip("/").split("/") if folder else ():
            at = os.open(name, _LIST_FLAGS | os.O_NOFOLLOW, dir_fd=at)
            known = f"{known}/{name}".lstrip("/")
            self._leave()
            self._last = known, at
        return at

    def _leave(self) -> None:
        if self._last[1] != self._top:
            os.close(self._last[1])
        self._last = "", self._top

    @contextlib.contextmanager
    def list(self, prefix: str) -> Iterator[dict[str, os.DirEntry[str]]]:
        """The entries of a folder, which can be looked at for as long as this lasts."""
        if not _BY_NAME:
            with os.scandir(Path(self._place, prefix)) as listing:
                yield {entry.name: entry for entry in listing}
            return
        handle = self.open(prefix.rstrip("/") or ".", _LIST_FLAGS)
        try:
            with os.scandir(handle) as listing:
                entries = {entry.name: entry for entry in listing}
            yield entries
        finally:
            os.close(handle)

    def read(self, path: str, *, max_bytes: int) -> bytes:
        """All bytes of a regular file. InputError when it is none, or has more; else an OSError.

        What a folder lists as a file may be anything by the time it is opened, and below /proc a
        file of size 0 can go on without end or have nothing to give until something happens.
        """
        # O_NONBLOCK: opening a pipe nobody writes to, or reading what is not there yet, would hang.
        try:
            handle = self.open(path, _READ_FLAGS)
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise InputError("it is a link, and links are not followed") from error
            raise
        with FileIO(handle) as file:
            return _read_all(file, max_bytes)


def _parts_below(top: str, only: Path | None) -> tuple[str, ...]:
    if only is None:
        return ()
    given = Path(os.path.normpath(Path(top, only)))
    if os.path.realpath(given) == top:
        return ()
    # Its parent is resolved and not it itself: a link is judged by the walk.
    place = given.parent.resolve() / given.name
    if not place.is_relative_to(top):
        raise InputError(f"{str(only)!r} is not inside {top!r}: give a path below the folder")
    return place.relative_to(top).parts


WalkFolder = tuple[str, tuple["_Rules", ...], tuple[str, ...]]
"""A folder's path, the rules around it, and what of it is wanted."""


def _walk(top: str, parts: tuple[str, ...], max_bytes: int) -> Iterator[DiskFile | Skip]:
    # A stack and no recursion: folders can be nested deeper than Python's frames.
    stack: list[WalkFolder] = [("", (), parts)]
    with HeldFolder(top) as held:
        while stack:
            prefix, chain, wanted = stack.pop()
            try:
                with held.list(prefix) as entries:
                    if prefix and not _FOLDER_MARKS.isdisjoint(entries):
                        continue
                    rules, troubles = _rules_in(held, prefix, entries)
                    yield from troubles
                    chain = chain if rules is None else (rules, *chain)
                    if wanted:
                        entries = {name: entries[name] for name in wanted[:1] if name in entries}
                    below: list[WalkFolder] = []
                    for entry in sorted(entries.values(), key=lambda entry: entry.name):
                        yield from _judge(entry, (prefix, chain, wanted), top, max_bytes, below)
                    stack.extend(reversed(below))
            except FileNotFoundError:
                if not prefix:
                    raise InputError(f"the folder {top!r} has gone: give one that exists") from None
            except OSError as error:
                if not prefix:
                    raise InputError(f"cannot list {top!r}: {_reason(error)}") from error
                yield Skip(prefix.rstrip("/"), f"cannot list the folder: {_reason(error)}")


def _judge(
    entry: os.DirEntry[str], at: WalkFolder, top: str, max_bytes: int, below: list[WalkFolder]
) -> Iterator[DiskFile | Skip]:
    """What an entry of a folder is; a folder that is to be walked goes to those `below`."""
    prefix, chain, wanted = at
    name, path = entry.name, prefix + entry.name
    try:
        is_folder = entry.is_dir(follow_symlinks=False)
        slash = "/" if is_folder else ""
        if is_folder:
            left_out = name in _FOLDERS_LEFT_OUT or name.endswith(_FOLDER_ENDINGS)
        else:
            left_out = name in _FILES_LEFT_OUT
        if left_out or _is_ignored(chain, path + slash, name + slash):
            return
        if encodable(name) != name:
            shown = path.encode("utf-8", "backslashreplace").decode()
            yield Skip(shown, "the name is not valid UTF-8: rename it to index it")
        elif is_folder:
            below.append((path + "/", chain, wanted[1:]))
        elif len(wanted) > 1:
            pass  # what is wanted lies below a folder, and this is none
        elif entry.is_symlink():
            if reason := _why_not_follow(f"{top}/{path}", top):
                yield Skip(path, reason)
        else:
            yield _look_at(entry, path, max_bytes)
    except FileNotFoundError:
        return  # gone since the folder was listed
    except OSError as error:
        yield Skip(path, _reason(error))


def _look_at(entry: os.DirEntry[str], path: str, max_bytes: int) -> DiskFile | Skip:
    status = entry.stat(follow_symlinks=False)
    if not stat.S_ISREG(status.st_mode):
        return Skip(path, "not a regular file")
    if status.st_size > max_bytes:
        size, limit = status.st_size / MEGABYTE, max_bytes / MEGABYTE
        return Skip(path, f"{size:.1f} MB is more than max_file_mb allows ({limit:.3g} MB)")
    return DiskFile(path, status.st_size, status.st_mtime_ns)


def _why_not_follow(link: str, top: str) -> str | None:
    try:
        target = os.path.realpath(link, strict=True)
    except FileNotFoundError:
        return "broken link"
    except OSError as error:
        return f"link cannot be resolved: {_reason(error)}"
    # Inside the root its target is met under its own name.
    return None if Path(target).is_relative_to(top) else "link leads out of the folder"


def _reason(error: OSError | InputError) -> str:
    return getattr(error, "strerror", None) or str(error)


def _read_all(file: FileIO, max_bytes: int) -> bytes:
    status = os.fstat(file.fileno())
    if not stat.S_ISREG(status.st_mode):
        raise InputError("not a regular file")
    data = bytearray()
    step = (min(status.st_size, max_bytes) // PAGE + 1) * PAGE  # mostly, all of it at once
    while (more := file.read(step)) != b"":
        if more is None:
            raise InputError("reading it would mean waiting for what is not there yet")
        data += more
        if len(data) > max_bytes:
            limit = max_bytes / MEGABYTE
            raise InputError(f"it gives more than the {limit:.3g} MB that are read at most")
        step = MEGABYTE
    return bytes(data)


# ---------------------------------------------------------------- ignore files


class _Rules(NamedTuple):
    """The patterns that lie in one folder."""

    prefix: str
    """The folder, relative to the root, with a slash at its end; empty for the root."""
    globs: re.Pattern[str]
    """All of them, the last (which wins) first, each with an empty group that tells which it was.
    They match an entry's name, a NUL and its path below the folder; of a folder, each with a slash
    at its end."""
    ignores: tuple[bool, ...]
    """Of each: whether it ignores what it matches, or takes it back in."""


def _is_ignored(chain: tuple[_Rules, ...], path: str, name: str) -> bool:
    """Whether an entry is left out; `chain` runs from the deepest folder to the root."""
    for rules in chain:
        if found := rules.globs.fullmatch(f"{name}\0{path[len(rules.prefix) :]}"):
            return rules.ignores[(found.lastindex or 1) - 1]
    return False


def _rules_in(
    held: HeldFolder, prefix: str, entries: dict[str, os.DirEntry[str]]
) -> tuple[_Rules | None, list[Skip]]:
    names = [name for name in _IGNORE_FILES if name in entries]
    if not prefix and ".git" in entries:
        names.insert(0, ".git/info/exclude")
    rules: list[tuple[str, bool]] = []
    troubles: list[Skip] = []
    for name in names:
        try:
            data = held.read(prefix + name, max_bytes=MOST_PATTERNS)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except (InputError, OSError) as error:
            troubles.append(Skip(prefix + name, f"its patterns do not hold: {_reason(error)}"))
            continue
        # surrogateescape is how the file system's own odd names come in: they can match.
        text = data.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "surrogateescape")
        rules += (rule for line in text.split("\n") if (rule := _rule(line.removesuffix("\r"))))
    if not rules:
        return None, troubles
    globs, ignores = zip(*reversed(rules), strict=True)
    return _Rules(prefix, re.compile("|".join(globs), re.DOTALL), ignores), troubles


def _rule(line: str) -> tuple[str, bool] | None:
    """An alternative of `_Rules.globs`, and whether what it matches is to be ignored."""
    if line.startswith("#"):
        return None
    # Trailing spaces do not count, unless a backslash holds on to one.
    pattern = line.rstrip(" ")
    held = len(pattern) - len(pattern.rstrip("\\"))
    if held % 2 and len(pattern) < len(line):
        pattern += " "
    ignores = not pattern.startswith("!")
    pattern = pattern.removeprefix("!")
    end = "/" if pattern.endswith("/") else "/?"
    pattern = pattern.removesuffix("/")
    by_name = "/" not in pattern  # at any depth
    pattern = pattern.removeprefix("/")
    glob = _translate(pattern) if pattern else None
    if glob is None:
        return None
    return rf"{glob}{end}\0.*()" if by_name else rf"[^\0]*\0{glob}{end}()", ignores


_GLOB = re.compile(
    r"(?P<all>(?<![^/])\*\*+\Z)|(?P<folders>(?<![^/])\*\*+/)|(?P<star>\*+)|(?P<one>\?)"
    r"|(?P<bracket>\[)|\\(?P<escaped>.)|(?P<plain>[^\\])",
    re.DOTALL,
)
_WILD = {"all": (FOLDERS, STAR), "folders": (FOLDERS,), "star": (STAR,), "one": ("[^/]",)}
_MEMBER = re.compile(
    r"\[:(?P<class>.*?):\]|(?!\[:)\\?(?P<low>.)(?:-(?!\])\\?(?P<high>.))?", re.DOTALL
)
_CLASSES = {
    "alnum": "0-9A-Za-z",
    "alpha": "A-Za-z",
    "blank": " \\t",
    "cntrl": "\\x00-\\x1f\\x7f",
    "digit": "0-9",
    "graph": "!-~",
    "lower": "a-z",
    "print": " -~",
    "punct": "!-/:-@\\[-`{-~",
    "space": " \\t-\\r",
    "upper": "A-Z",
    "xdigit": "0-9A-Fa-f",
}


def _translate(pattern: str) -> str | None:
    """A regular expression for a glob; None for one that git holds to match nothing."""
    parts: list[str] = []
    at = 0
    while at < len(pattern):
        if (token := _GLOB.match(pattern, at)) is None:
            return None  # a backslash at the end
        kind, at = token.lastgroup or "", token.end()
        if kind == "bracket":
            if (bracket := _bracket(pattern, at)) is None:
                return None
            expression, at = bracket
            parts.append(expression)
        else:
            parts += _WILD.get(kind) or (re.escape(token[kind]),)
    return join_glob(parts)


def _bracket(pattern: str, at: int) -> tuple[str, int] | None:
    """What stands between `[` and `]`, and where it ends; None when it is never closed."""
    negated = pattern[at : at + 1] in ("!", "^")
    begin = at = at + negated
    inside = ""
    while at == begin or not pattern.startswith("]", at):
        if (member := _MEMBER.match(pattern, at)) is None:
            return None
        at, low, high = member.end(), member["low"], member["high"]
        if low is None:
            if member["class"] not in _CLASSES:
                return None
            inside += _CLASSES[member["class"]]
        elif high is None:
            inside += re.escape(low)
        elif low <= high:
            inside += f"{re.escape(low)}-{re.escape(high)}"
    if negated:
        return f"[^/{inside}]", at + 1
    return (f"(?!/)[{inside}]" if inside else "(?!)"), at + 1
