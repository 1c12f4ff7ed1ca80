"""What a git repository has, asked of the `git` command: files, messages, and diffs with the lines
they changed.

A repository's own settings may name commands: hooks, pagers, diff drivers, signature checkers, file
system monitors, helpers that fetch. None of them is run: only plumbing that has no use for most of
them is called, with those it has a use for switched off, and without the user's own settings and
variables. Nothing is written, and nothing is fetched.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NamedTuple

from clew.errors import SourceError
from clew.protocols import batched
from clew.trust import read_regular
from clew.types import Chunk, Entry, Record

SECONDS = 120.0
"""The longest that one command may run."""
MOST_BYTES = 64 * 1024 * 1024
"""What is held of an answer which is read as a whole."""
MEMORY = 2 * 2**30
"""What git may hold itself: it unpacks a commit or a list of files whole, however small they lie on
disk."""
LARGEST_DIFF = 64 * 1024
"""Characters of one file's diff that are looked at: a larger one is data, or made by a tool."""
LARGEST_FILE = 16 * 1024 * 1024
"""Bytes of a file. Git reads one that was added or deleted whole, before it finds it binary."""
LONGEST_LINE = 2_000
LONGEST_MESSAGE = 20_000
PATHS = 200
"""Paths that are named to one command."""
MOST_BROKEN = 100
"""Objects that cannot be read, after which a repository counts as damaged as a whole."""
_OPTIONS = (
    "--no-pager",
    "--no-replace-objects",
    "--literal-pathspecs",
    *("-c", "core.fsmonitor=false"),
    *("-c", f"core.hooksPath={os.devnull}"),
    *("-c", f"core.attributesFile={os.devnull}"),
    *("-c", "core.pager=cat"),
    *("-c", "core.quotePath=false"),
    *("-c", "core.bigFileThreshold=1m"),  # larger ones count as binary: no diff reads them
    *("-c", "log.showSignature=false"),
    *("-c", "gpg.program=false"),
    *("-c", "protocol.allow=never"),
    *("-c", "submodule.recurse=false"),
)
_ENVIRONMENT = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_SYSTEM": os.devnull,
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_ALLOW_PROTOCOL": "",
    "GIT_PAGER": "cat",
    "LC_ALL": "C",
}
_FIELDS = ("%H", "%an", "%at", "%B")
_LINK = "120000"
_LAST_SECOND = 253_402_300_799
"""Of the year 9999. Some commits have been given times beyond any calendar."""
_NAME = re.compile(rb"[0-9a-f]{40}(?:[0-9a-f]{24})?\n?")
_HUNK = re.compile(r"@@ -\d+(?:,\d+)? \+(\d+)(?:,(\d+))? @@ ?(.*)")


class Blob(NamedTuple):
    """A file of a commit. One that this clone left out, or that is damaged, has no size (-1)."""

    path: str
    name: str
    size: int


@dataclass(frozen=True, slots=True)
class Commit:
    name: str
    author: str
    time: float
    message: str

    @property
    def subject(self) -> str:
        return self.message.partition("\n")[0][:200]

    def record(self, repository: str, kind: str, content: str, path: str | None = None) -> Record:
        """What it says (its message), or what it did to one file (the diff)."""
        told = {"commit": self.name, "author": self.author, "repository": repository}
        return Record(
            id=f"git:{repository}@{self.name}" + ("" if path is None else f":{path}"),
            content=content,
            title=self.subject if path is None else f"{self.subject} ({path})",
            path=path,
            collection=f"{repository}/{kind}s",
            type=kind,
            created_at=self.time,
            updated_at=self.time,
            metadata=told if path is None else {**told, "subject": self.subject},
        )


class Git:
    """One repository: a working tree or a bare one."""

    SHORT = 12  # characters of a commit's name that are told of a change that cannot be read

    def __init__(self, folder: Path):
        self.folder = folder
        self.unread: list[str] = []
        """Changes that `read_diffs` could not read, as COMMIT:PATH; all of a commit's as COMMIT."""

    # ------------------------------------------------------------------ the command

    def text(self, *arguments: str) -> str:
        """What a command says, as one line; a SourceError in git's own words where it fails."""
        return self.read(*arguments).decode("utf-8", "replace").strip()

    def read(self, *arguments: str, given: bytes = b"") -> bytes:
        """What a command says to this, as a whole."""
        with self.stream(*arguments, given=given) as out:
            data = out.read(MOST_BYTES + 1)
        if len(data) > MOST_BYTES:
            raise SourceError(
                f"git {arguments[0]} of {self.folder} gives more than {MOST_BYTES >> 20} MB"
            )
        return data

    @contextmanager
    def stream(self, *arguments: str, given: bytes = b"") -> Iterator[IO[bytes]]:
        """What a command says, as it comes. One that is not read to its end is ended."""
        if not self.folder.is_dir():
            raise SourceError(f"there is no folder {str(self.folder)!r}: check `repositories`")
        # Without what the caller's shell tells git; a repository above this folder is another.
        plain = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        ceiling = {"GIT_CEILING_DIRECTORIES": str(self.folder.parent)}
        with tempfile.TemporaryFile() as said, tempfile.TemporaryFile() as told:
            told.write(given)
            told.seek(0)
            try:
                process = subprocess.Popen(
                    ["git", *_OPTIONS, *arguments],
                    cwd=self.folder,
                    env={**plain, **_ENVIRONMENT, **ceiling},
                    stdin=told,
                    stdout=subprocess.PIPE,
                    stderr=said,
                )
            except OSError as error:
                raise SourceError(f"git cannot be run: {error}; install it") from error
            with suppress(ImportError, AttributeError, OSError):  # only Linux has it
                import resource

                resource.prlimit(process.pid, resource.RLIMIT_DATA, (MEMORY, MEMORY))
            late = threading.Timer(SECONDS, process.kill)
            late.daemon = True
            late.start()
            assert process.stdout is not None
            whole = False
            try:
                yield process.stdout
                whole = not process.stdout.read(1)
            finally:
                if not whole:
                    process.kill()
                process.stdout.close()
                code = process.wait()
                late.cancel()
            if whole and code:
                said.seek(0)
                raise SourceError(self._explain(arguments[0], code, said.read(4_000)))

    def _explain(self, command: str, code: int, said: bytes) -> str:
        lines = said.decode("utf-8", "replace").strip().splitlines()
        reason = lines[0].removeprefix("fatal: ") if lines else f"it ended with {code}"
        if code < 0:
            reason = f"it was not done within {SECONDS:g} s"
        if "dubious ownership" in reason:
            reason = "it belongs to somebody else: run this as its owner"
        return f"git {command} in {self.folder}: {reason}"

    # ------------------------------------------------------------------ files and history

    def head(self) -> str:
        """The commit that is checked out; a SourceError where there is no repository, or none was
        made yet."""
        try:
            return self.text("rev-parse", "--verify", "HEAD^{commit}")
        except SourceError as error:
            if "Needed a single revision" in str(error):
                raise SourceError(f"{self.folder}: the repository has no commits yet") from None
            raise

    def list_files(self, commit: str) -> tuple[list[Blob], int, list[str]]:
        """The files of a commit, links aside, how many submodules there are, and folders that
        cannot be read."""
        rows, submodules, lost = list[tuple[str, str]](), 0, list[str]()
        for mode, kind, name, path in self._list_tree(commit, b"", lost):
            if kind == "commit":
                submodules += 1
            elif kind == "blob" and mode != _LINK:
                rows.append((path.decode("utf-8", "backslashreplace"), name))
        sizes = self._sizes({name for _, name in rows})
        return [Blob(path, name, sizes.get(name, -1)) for path, name in rows], submodules, lost

    def _list_tree(
        self, commit: str, folder: bytes, lost: list[str]
    ) -> Iterator[tuple[str, str, str, bytes]]:
        """(mode, kind, object, path) of all in a folder. Git dies of one in it that is damaged, or
        not here: then they are asked for one by one."""

        def read(*how: str) -> Iterator[tuple[str, str, str, bytes]]:
            within = ("--", os.fsdecode(folder)) if folder else ()
            said = self.read("ls-tree", *how, "-z", "--full-tree", commit, *within)
            for row in said.split(b"\0")[:-1]:
                about, _, path = row.partition(b"\t")
                mode, kind, name = about.decode().split()
                yield mode, kind, name, path

        try:
            yield from list(read("-r"))
        except SourceError:
            try:
                inside = list(read())
            except SourceError:
                if not folder:
                    raise
                lost.append(folder.decode("utf-8", "backslashreplace"))
                return
            for each in inside:
                if each[1] == "tree":
                    yield from self._list_tree(commit, each[3] + b"/", lost)
                else:
                    yield each

    def _sizes(self, names: set[str]) -> dict[str, int]:
        """Sizes of those objects that are here. Git dies of the first that a partial clone left
        out, since nothing may be fetched: then it is asked what there is."""
        asked = "--batch-check=%(objectname) %(objectsize)"

        def read(*more: str, given: bytes = b"") -> dict[str, int]:
            with self.stream("cat-file", asked, *more, given=given) as out:
                rows = (line.decode("ascii", "replace").split() for line in out)
                return {
                    row[0]: int(row[1])
                    for row in rows
                    if len(row) == 2 and row[1].isdigit() and row[0] in names
                }

        try:
            return read(given=_lines(sorted(names)))
        except SourceError:
            return read("--batch-all-objects", "--unordered")

    def read_files(self, blobs: Sequence[Blob]) -> Iterator[tuple[Blob, bytes | None]]:
        """Their bytes; None: it cannot be read. Git dies of one that is damaged, and is asked for
        those after it once more."""
        at = 0
        for _ in range(MOST_BROKEN):
            rest = blobs[at:]
            try:
                with self.stream("cat-file", "--batch", given=_lines(b.name for b in rest)) as out:
                    for blob in rest:
                        header = out.readline(200).split()
                        size = int(header[2]) if len(header) == 3 else 0
                        data = out.read(size + 1) if len(header) == 3 else b""
                        if not header or len(data) < size:
                            break
                        at += 1
                        yield blob, data[:-1] if len(header) == 3 else None
                return
            except SourceError:
                if at == len(blobs) or not self.folder.is_dir():
                    raise
                yield blobs[at], None
                at += 1
        raise SourceError(f"more than {MOST_BROKEN} objects of {self.folder} cannot be read")

    def list_commits(self, head: str, *, most: int) -> tuple[list[Commit], str]:
        """The newest so many that lead to `head`, newest first; and why there are none before
        them, where one cannot be read."""
        said, problem = b"", ""
        try:
            with self.stream(
                *("log", "-z", f"--max-count={most}", f"--format={'%x00'.join(_FIELDS)}"),
                *("--encoding=UTF-8", "--no-show-signature", "--no-color", "--no-decorate"),
                *("--no-notes", "--no-mailmap", head, "--"),
            ) as out:
                said = out.read(MOST_BYTES)
        except SourceError as error:
            if not said:
                raise
            problem = str(error)
        parts = said.decode("utf-8", "replace").split("\0")
        size = len(_FIELDS)
        whole = len(parts) - size + 1 - bool(problem)  # the last may have been cut off
        rows = (parts[i : i + size] for i in range(0, whole, size))
        return [
            Commit(
                name,
                author,
                float(min(int(when), _LAST_SECOND)) if when.isdecimal() else 0.0,
                message.strip(),
            )
            for name, author, when, message in rows
        ], problem

    def list_shallow(self) -> set[str]:
        """Commits in which a shallow clone ends: their parents are not here."""
        try:
            file = self.folder / self.text("rev-parse", "--git-path", "shallow")
            return set(read_regular(file, MOST_BYTES).decode("ascii").split())
        except (OSError, ValueError):
            return set()

    def read_diffs(
        self, commits: Sequence[Commit], repository: str, *, size: int
    ) -> Iterator[Entry]:
        """An entry for each file that each of these commits changed. A merge has none."""
        self.unread = []
        by_name = {commit.name: commit for commit in commits}
        for names, paths in self._comparable(list(by_name)):
            for name, patch in self._read_patches(names, paths):
                made = _read_patch(by_name[name], patch, repository, size)
                if made is not None:
                    yield made

    def _read_patches(
        self, commits: Sequence[str], paths: Sequence[str]
    ) -> Iterator[tuple[str, list[bytes]]]:
        """(commit, lines of one file's diff). Git dies of an object that is damaged: then what it
        was asked for is asked for by halves, down to the file that it is."""
        known: set[tuple[str, bytes]] = set()
        last: tuple[str, list[bytes]] | None = None  # git may have died in the middle of it
        try:
            with self.stream(
                "diff-tree",
                *("--stdin", "-r", "--root", "-p", "--unified=3", "--full-index", "--no-renames"),
                *("--no-color", "--no-ext-diff", "--no-textconv", "--submodule=short"),
                *("--src-prefix=a/", "--dst-prefix=b/"),
                *(("--", *paths) if paths else ()),
                given=_lines(commits),
            ) as out:
                for name, patch in _split_patches(out):
                    if last is not None:
                        known.add((last[0], last[1][0]))
                        yield last
                    last = name, patch
        except SourceError:
            if len(commits) == 1 and not paths:
                paths = [path for path, _ in self._changed_files(commits).get(commits[0], ())]
            elif len(commits) == 1 == len(paths):
                self.unread.append(f"{commits[0][: self.SHORT]}:{paths[0]}")
                paths = ()
            if len(self.unread) > MOST_BROKEN or (len(commits) == 1 and not paths):
                return
            whole = commits if len(commits) > 1 else paths
            for half in (whole[: len(whole) // 2], whole[len(whole) // 2 :]):
                one = (half, paths) if len(commits) > 1 else (commits, half)
                for name, patch in self._read_patches(*one) if half else ():
                    if (name, patch[0]) not in known:
                        yield name, patch
        else:
            if last is not None:
                yield last

    def _comparable(self, commits: Sequence[str]) -> Iterator[tuple[list[str], list[str]]]:
        """The commits in their order, some at a time, each time with the paths that may be
        compared: none named means all. What a commit changed is known without looking into any
        file: trees are compared, sizes asked for. One that is too large, before or after, is left
        out, and so is one that is not here."""
        changed = self._changed_files(commits)
        blobs = {blob for files in changed.values() for _, two in files for blob in two}
        sizes = self._sizes({blob for blob in blobs if blob.strip("0")})
        bad = {b for b in blobs if b.strip("0") and sizes.get(b, LARGEST_FILE + 1) > LARGEST_FILE}
        together: list[str] = []
        for commit in commits:
            if not (files := changed.get(commit)):
                continue
            if bad.isdisjoint(blob for _, two in files for blob in two):
                together.append(commit)
                continue
            if together:
                yield together, []
                together = []
            self.unread += [
                f"{commit[: self.SHORT]}:{path}"
                for path, two in files
                if any(blob.strip("0") and blob not in sizes for blob in two)
            ]
            small = [path for path, two in files if bad.isdisjoint(two)]
            for paths in batched(small, PATHS):
                yield [commit], paths
        if together:
            yield together, []

    def _changed_files(self, commits: Sequence[str]) -> dict[str, list[tuple[str, list[str]]]]:
        """Commit → (path, blobs before and after). Git dies of a folder that is damaged, or not
        here: then it is asked by halves, down to the commit that it is of."""
        try:
            said = self.read(
                "diff-tree",
                *("--stdin", "-r", "--root", "--raw", "-z", "--no-abbrev", "--no-renames"),
                given=_lines(commits),
            )
        except SourceError:
            half = len(commits) // 2
            if not half or len(self.unread) > MOST_BROKEN:
                self.unread += [commit[: self.SHORT] for commit in commits]
                return {}
            return self._changed_files(commits[:half]) | self._changed_files(commits[half:])
        changed: dict[str, list[tuple[str, list[str]]]] = {}
        commit, blobs = "", list[str]()
        for field in said.split(b"\0"):
            if blobs:  # the path of what was told last
                path = field.decode("utf-8", "surrogateescape")
                changed.setdefault(commit, []).append((path, blobs))
                blobs = []
            elif field.startswith(b":"):
                blobs = field.decode("ascii", "replace").split()[2:4]
            elif field:
                commit = field.strip().decode()
        return changed


def _lines(names: Iterator[str] | Sequence[str]) -> bytes:
    return "".join(f"{name}\n" for name in names).encode()


# ---------------------------------------------------------------------- messages and diffs


def message_entry(commit: Commit, repository: str) -> Entry:
    message = commit.message[:LONGEST_MESSAGE] or "(no message)"
    record = commit.record(repository, "commit", message)
    return Entry(record, (Chunk(0, len(message), (1, message.count("\n") + 1)),))


def _split_patches(out: IO[bytes]) -> Iterator[tuple[str, list[bytes]]]:
    """(commit, lines of one file's diff). Only a commit's name has a line of nothing but a name."""
    name, lines, held = "", list[bytes](), 0
    for line in iter(lambda: out.readline(1 << 20), b""):
        named = _NAME.fullmatch(line)
        if named or line.startswith(b"diff --git "):
            if lines:
                yield name, lines
            lines, held = [], 0
            if named:
                name = line.strip().decode()
                continue
        if held < LARGEST_DIFF:
            lines.append(line[:LONGEST_LINE].rstrip(b"\n"))
            held += len(lines[-1])
    if lines:
        yield name, lines


def _read_patch(commit: Commit, patch: list[bytes], repository: str, size: int) -> Entry | None:
    first = next((i for i, line in enumerate(patch) if line.startswith(b"@@ ")), None)
    if first is None:  # binary, empty, or a change of mode
        return None
    path = _read_path(patch[:first])
    if path is None or any(line[1:].startswith(b"Subproject commit ") for line in patch[first:]):
        return None
    lines = [line.decode("utf-8", "replace").replace("\0", "\ufffd") for line in patch[first:]]
    record = commit.record(repository, "diff", "\n".join(lines), path)
    return Entry(record, tuple(_hunks(lines, size)))


def _hunks(lines: Sequence[str], size: int) -> Iterator[Chunk]:
    """Each hunk a passage, with its lines in the new file; a long one is cut between lines."""
    at = start = 0  # in the text
    line = begun = 1  # in the new file
    heading = ""
    for each in lines:
        head = _HUNK.match(each)
        if at > start and (head or at + len(each) - start > size):
            yield Chunk(start, at - 1, (begun, max(begun, line - 1)), heading)
            start, begun = at, line
        if head:
            line = begun = max(1, int(head[1]))
            heading = head[3].strip()
        elif not each.startswith(("-", "\\")):
            line += 1
        at += len(each) + 1
    if at > start:
        yield Chunk(start, at - 1, (begun, max(begun, line - 1)), heading)


def _read_path(head: Sequence[bytes]) -> str | None:
    """The path of the file after the commit; of one that it deleted, before."""
    named = [line[4:] for line in reversed(head) if line.startswith((b"+++ ", b"--- "))]
    for name in named:  # the new one first
        if name.rstrip(b"\t") != b"/dev/null":
            name = name.removesuffix(b"\t")
            if name.startswith(b'"'):
                name = name[1:-1].decode("unicode_escape").encode("latin-1")
            return name[2:].decode("utf-8", "backslashreplace")
    return None
