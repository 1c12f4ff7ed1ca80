"""Which files commits changed, without looking into any: trees are compared, sizes asked for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from clew.lookup.backends.git import Git

__all__ = ["without_large"]

AT_ONCE = 200
"""Paths that are named to one command."""


def without_large(
    git: Git, commits: Sequence[str], *, largest: int
) -> Iterator[tuple[list[str], list[str]]]:
    """The commits in their order, some at a time, each time with the paths that may be compared:
    none named means all. A file with more bytes than `largest`, before or after, is left out."""
    changed = _changed(git, commits)
    blobs = {blob for files in changed.values() for _, two in files for blob in two}
    large = _larger(git, blobs, largest)
    together: list[str] = []
    for commit in commits:
        files = changed.get(commit, [])
        if large.isdisjoint(blob for _, two in files for blob in two):
            together.append(commit)
            continue
        if together:
            yield together, []
            together = []
        small = [path for path, two in files if large.isdisjoint(two)]
        for i in range(0, len(small), AT_ONCE):
            yield [commit], small[i : i + AT_ONCE]
    if together:
        yield together, []


def _changed(git: Git, commits: Sequence[str]) -> dict[str, list[tuple[str, tuple[bytes, bytes]]]]:
    """Commit → (path, blobs before and after)."""
    said = git.given(
        "diff-tree",
        *("--stdin", "-r", "--root", "--raw", "-z", "--no-abbrev", "--no-renames"),
        given="".join(f"{name}\n" for name in commits).encode(),
    )
    changed: dict[str, list[tuple[str, tuple[bytes, bytes]]]] = {}
    commit, about = "", list[bytes]()
    for field in said.split(b"\0"):
        if about:  # the path of what was told last
            path = field.decode("utf-8", "surrogateescape")
            changed.setdefault(commit, []).append((path, (about[2], about[3])))
            about = []
        elif field.startswith(b":"):
            about = field.split()
        elif field:
            commit = field.strip().decode()
    return changed


def _larger(git: Git, blobs: set[bytes], largest: int) -> set[bytes]:
    asked = b"".join(blob + b"\n" for blob in sorted(blobs) if blob.strip(b"0"))
    said = git.given("cat-file", "--batch-check=%(objectname) %(objectsize)", given=asked)
    rows = (row.split() for row in said.splitlines())
    return {row[0] for row in rows if len(row) == 2 and row[1].isdigit() and int(row[1]) > largest}
