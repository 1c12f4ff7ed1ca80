"""The `git` command, asked for what it has and for nothing else.

A repository's own settings may name commands: hooks, pagers, diff drivers, signature checkers, file
system monitors, helpers that fetch. None of them is run: only plumbing that has no use for most of
them is called, with those it has a use for switched off, and without the user's own settings and
variables. Nothing is written, and nothing is fetched.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from clew.errors import SourceError

__all__ = ["Git", "Tip"]

SECONDS = 120.0
"""The longest that one command may run."""
MOST = 64 * 1024 * 1024
"""Bytes that are held of an answer which is read as a whole."""
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


class Git:
    """One repository: a working tree or a bare one."""

    def __init__(self, folder: Path, *, seconds: float = SECONDS):
        self.folder, self._seconds = folder, seconds

    def text(self, *arguments: str) -> str:
        """What a command says, as one line; a SourceError in git's own words where it fails."""
        return self.read(*arguments).decode("utf-8", "replace").strip()

    def read(self, *arguments: str) -> bytes:
        return self.given(*arguments)

    def given(self, *arguments: str, given: bytes = b"") -> bytes:
        """What a command says to this, as a whole."""
        with self.stream(*arguments, given=given) as out:
            data = out.read(MOST + 1)
        if len(data) > MOST:
            raise SourceError(
                f"git {arguments[0]} of {self.folder} gives more than {MOST >> 20} MB"
            )
        return data

    @contextmanager
    def stream(self, *arguments: str, given: bytes = b"") -> Iterator[IO[bytes]]:
        """What a command says, as it comes. One that is not read to its end is ended."""
        if not self.folder.is_dir():
            raise SourceError(f"there is no folder {str(self.folder)!r}: check `repositories`")
        with tempfile.TemporaryFile() as said, tempfile.TemporaryFile() as told:
            told.write(given)
            told.seek(0)
            try:
                process = subprocess.Popen(
                    ["git", *_OPTIONS, *arguments],
                    cwd=self.folder,
                    env=self._environment(),
                    stdin=told,
                    stdout=subprocess.PIPE,
                    stderr=said,
                )
            except OSError as error:
                raise SourceError(f"git cannot be run: {error}; install it") from error
            late = threading.Timer(self._seconds, process.kill)
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
                raise SourceError(self._why(arguments[0], code, said.read(4_000)))

    def _why(self, command: str, code: int, said: bytes) -> str:
        lines = said.decode("utf-8", "replace").strip().splitlines()
        reason = lines[0].removeprefix("fatal: ") if lines else f"it ended with {code}"
        if code < 0:
            reason = f"it was not done within {self._seconds:g} s"
        if "dubious ownership" in reason:
            reason = "it belongs to somebody else: run this as its owner"
        return f"git {command} in {self.folder}: {reason}"

    def _environment(self) -> dict[str, str]:
        """Without what the caller's shell tells git; a repository above this folder is another."""
        plain = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        return {**plain, **_ENVIRONMENT, "GIT_CEILING_DIRECTORIES": str(self.folder.parent)}


class Tip:
    """The commit that is checked out. Git is asked again only when the files that say it have
    changed: starting it takes longer than the rest of a lookup that was kept."""

    def __init__(self, git: Git):
        self._git = git
        self._seen: tuple[object, str] = (None, "")
        self._places: tuple[Path, Path] | None = None

    def commit(self) -> str:
        """A SourceError where there is no repository, or none was made yet."""
        seen = self._files()
        if seen is not None and seen == self._seen[0]:
            return self._seen[1]
        git = self._git
        own, shared = git.text("rev-parse", "--git-dir", "--git-common-dir").splitlines()
        self._places = git.folder / own, git.folder / shared
        seen = self._files()  # before git is asked: what changes meanwhile is seen the next time
        try:
            last = git.text("rev-parse", "--verify", "--quiet", "--end-of-options", "HEAD^{commit}")
        except SourceError:
            raise SourceError(f"{git.folder}: the repository has no commits yet") from None
        self._seen = seen, last
        return last

    def _files(self) -> object:
        """What they say; None: that is not the whole story."""
        if self._places is None:
            return None
        own, shared = self._places
        try:
            head = (own / "HEAD").read_bytes()
            if (shared / "reftable").exists():
                return None
            named = head.removeprefix(b"ref: ").strip().decode()
            if not head.startswith(b"ref: "):
                return head
            for place in (own, shared):
                if (place / named).is_file():
                    branch = (place / named).read_bytes()
                    return None if branch.startswith(b"ref: ") else (head, branch)
            packed = (shared / "packed-refs").stat()
            return head, packed.st_mtime_ns, packed.st_size, packed.st_ino
        except (OSError, UnicodeDecodeError):
            return None
