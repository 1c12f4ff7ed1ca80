"""A repository's history as entries of a store: messages, and diffs with the lines they changed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import IO

from clew.lookup.backends.changes import without_large
from clew.lookup.backends.git import Git
from clew.types import Chunk, Entry, Record

__all__ = ["Commit", "commits", "diffs"]

LARGEST = 64 * 1024
"""Characters of one file's diff that are looked at: a larger one is data, or made by a tool."""
LARGEST_FILE = 16 * 1024 * 1024
"""Bytes of a file. Git reads one that was added or deleted whole, before it finds it binary."""
LONGEST_LINE = 2_000
MESSAGE = 20_000
_FIELDS = ("%H", "%an", "%at", "%B")
_NAME = re.compile(rb"[0-9a-f]{40}(?:[0-9a-f]{24})?\n?")
_HUNK = re.compile(r"@@ -\d+(?:,\d+)? \+(\d+)(?:,(\d+))? @@ ?(.*)")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "v": "\v", "f": "\f"}
_ESCAPED = re.compile(rb"\\([0-7]{3}|.)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Commit:
    name: str
    author: str
    time: float
    message: str

    @property
    def subject(self) -> str:
        return self.message.partition("\n")[0][:200]

    def entry(self, repository: str, *, collection: str) -> Entry:
        message = self.message[:MESSAGE] or "(no message)"
        record = Record(
            id=f"git:{repository}@{self.name}",
            content=message,
            title=self.subject,
            collection=collection,
            type="commit",
            created_at=self.time,
            updated_at=self.time,
            metadata={"commit": self.name, "author": self.author, "repository": repository},
        )
        return Entry(record, (Chunk(0, len(message), (1, message.count("\n") + 1)),))


def commits(git: Git, head: str, *, most: int) -> list[Commit]:
    """The newest so many that lead to `head`, newest first."""
    said = git.read(
        "log",
        "-z",
        f"--max-count={most}",
        f"--format={'%x00'.join(_FIELDS)}",
        "--encoding=UTF-8",
        *("--no-show-signature", "--no-color", "--no-decorate", "--no-notes", "--no-mailmap"),
        head,
        "--",
    )
    parts = said.decode("utf-8", "replace").split("\0")
    size = len(_FIELDS)
    return [
        Commit(name, author, _seconds(when), message.strip())
        for name, author, when, message in (
            parts[i : i + size] for i in range(0, len(parts) - size + 1, size)
        )
    ]


def _seconds(text: str) -> float:
    """Some have been given times beyond any calendar."""
    try:
        return float(min(max(int(text), 0), 253_402_300_799))
    except ValueError:
        return 0.0


def diffs(
    git: Git, wanted: Sequence[Commit], repository: str, *, collection: str, size: int
) -> Iterator[Entry]:
    """An entry for each file that each of these commits changed. A merge has none of its own."""
    by_name = {commit.name: commit for commit in wanted}
    small = without_large(git, list(by_name), largest=LARGEST_FILE)
    for names, paths in small:
        given = "".join(f"{name}\n" for name in names).encode()
        with git.stream(
            "diff-tree",
            *("--stdin", "-r", "--root", "-p", "--unified=3", "--full-index", "--no-renames"),
            *("--no-color", "--no-ext-diff", "--no-textconv", "--submodule=short"),
            *("--src-prefix=a/", "--dst-prefix=b/"),
            *(("--", *paths) if paths else ()),
            given=given,
        ) as out:
            for name, patch in _patches(out):
                made = _entry(by_name[name], patch, repository, collection, size)
                if made is not None:
                    yield made


def _patches(out: IO[bytes]) -> Iterator[tuple[str, list[bytes]]]:
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
        if held < LARGEST:
            lines.append(line[:LONGEST_LINE].rstrip(b"\n"))
            held += len(lines[-1])
    if lines:
        yield name, lines


def _entry(
    commit: Commit, patch: list[bytes], repository: str, collection: str, size: int
) -> Entry | None:
    first = next((i for i, line in enumerate(patch) if line.startswith(b"@@ ")), None)
    if first is None:  # binary, empty, or a change of mode
        return None
    path = _path(patch[:first])
    if path is None or any(line[1:].startswith(b"Subproject commit ") for line in patch[first:]):
        return None
    lines = [line.decode("utf-8", "replace").replace("\0", "\ufffd") for line in patch[first:]]
    text = "\n".join(lines)
    record = Record(
        id=f"git:{repository}@{commit.name}:{path}",
        content=text,
        title=f"{commit.subject} ({path})",
        path=path,
        collection=collection,
        type="diff",
        created_at=commit.time,
        updated_at=commit.time,
        metadata={
            "commit": commit.name,
            "author": commit.author,
            "repository": repository,
            "subject": commit.subject,
        },
    )
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


def _path(head: Sequence[bytes]) -> str | None:
    """Of the file after the commit; of one that it deleted, before."""
    named = [line[4:] for line in reversed(head) if line.startswith((b"+++ ", b"--- "))]
    for name in named:  # the new one first
        if name.rstrip(b"\t") != b"/dev/null":
            name = name.removesuffix(b"\t")
            if name.startswith(b'"'):
                name = _ESCAPED.sub(_unescaped, name[1:-1])
            return name[2:].decode("utf-8", "backslashreplace")
    return None


def _unescaped(found: re.Match[bytes]) -> bytes:
    code = found[1].decode("latin-1")
    if code.isdigit():
        return bytes([int(code, 8) & 255])
    return _ESCAPES.get(code, code).encode("latin-1")
