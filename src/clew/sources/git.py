"""Repositories: the files of their last commit, the messages and the diffs of those before it.

What git gives is kept in a store of its own that goes with the source; each question first asks
which commit is the last, and reads only what is new since. Nothing in the repository is touched.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TypeVar

from clew import config
from clew.errors import ClewError, InputError, SourceError, counted
from clew.filter import Filter, domain_in, domain_of
from clew.ingest.readers import has_reader, read_each
from clew.ingest.sync import Groups, free_name
from clew.protocols import Context, Source, Store
from clew.sources.files import WAIT, ScratchStore, domains_of
from clew.sources.git_repository import Blob, Git, message_entry
from clew.types import Answer, Candidate, Entry, Passage, Query, Record

KINDS = ("file", "commit", "diff")
BATCH = 200
_DOMAIN = re.compile(r"^[ +-]domains?\s*[:=](.*(?:\n[ +-]\s*- .*)*)", re.MULTILINE | re.IGNORECASE)
_SIGNS = re.compile(r"(?:[\s+,\[\]\"']|(?<!\w)-)+")

T = TypeVar("T")


class GitSource(Source):
    """Code, messages and diffs of `repositories`, which are seen from `root`: as their last commits
    are, and of the newest `commits`."""

    def __init__(
        self,
        root: Path,
        *,
        repositories: tuple[str, ...],
        commits: int = 1000,
        max_file_mb: float = 10.0,
        seconds: float = 5.0,
    ):
        self._seconds = seconds
        self._problems: list[str] = []
        names: dict[Path, str] = {}
        for each in repositories:
            folder = (root / Path(each).expanduser()).resolve()
            if folder not in names:
                stem = folder.name.removesuffix(".git") or "repository"
                names[folder] = free_name(stem, names.values())
        self._repositories = [
            _Repository(Git(folder), name, int(max_file_mb * 1024 * 1024), commits)
            for folder, name in names.items()
        ]
        self._scratch = ScratchStore(self._read)

    def __call__(self, query: Query, context: Context) -> Answer:
        """At most `query.limit` of each kind."""
        store, whole = self._scratch.update(seconds=self._seconds * WAIT)
        problems = self._problems if whole else ["the repositories are still being read: ask again"]
        if len(self._problems) == len(self._repositories) and whole:
            raise SourceError("; ".join(problems))
        found: list[Candidate] = []
        for repository in self._repositories:
            for kind in KINDS:  # each by itself: a word of the code is in most of its diffs as well
                own = Filter(collection=f"{repository.name}/{kind}s")
                if (scope := query.filter.narrowed(own)) is not None:
                    some = store.keyword(query.terms, scope, limit=query.limit)
                    for candidate, passage in zip(some, store.passages(some), strict=True):
                        if passage is not None:
                            placed = repository.place(passage, kind)
                            found.append(Candidate(candidate.id, candidate.score, None, placed))
        found.sort(key=lambda c: (-c.score, c.id))
        notes = [note for repository in self._repositories for note in repository.notes]
        return Answer(found, "; ".join(problems), {"notes": notes if whole else []})

    def freshness(self, store: Store) -> str | None:
        """The last commits, and who may see what."""
        try:
            return " ".join(repository.state() for repository in self._repositories)
        except SourceError:
            return None

    def close(self) -> None:
        self._scratch.close()
        for repository in self._repositories:
            repository.forget()
        self._scratch = ScratchStore(self._read)

    def _read(self, store: Store) -> None:
        problems: list[str] = []
        for repository in self._repositories:
            try:
                repository.read(store, self._scratch.go_on)
            except ClewError as error:
                problems.append(str(error))
        self._problems = problems


git = GitSource


class _Repository:
    """One of them, and what of it is in the store."""

    def __init__(self, git: Git, name: str, max_bytes: int, most_commits: int):
        self.name = name
        self._git, self._max_bytes, self._most_commits = git, max_bytes, most_commits
        self.forget()

    def forget(self) -> None:
        """Nothing of it is in the store."""
        self._head = ""
        self._groups = Groups({}, {})
        self._personal: dict[str, str] = {}
        """Path → the domain that the front matter of some state of the file gives it."""
        self._blobs: dict[str, str] = {}
        self._unread: set[Blob] = set()
        """Blobs that no reader makes anything of."""
        self._history: dict[str, list[str]] = {}
        """Commit → its records."""
        self.notes: list[str] = []

    def state(self) -> str:
        return f"{self._git.head()} {domains_of(self._git.folder).fingerprint}"

    def place(self, passage: Passage, kind: str) -> Passage:
        """With the commit at which its lines are these."""
        record = passage.record
        told = {**record.metadata, "kind": kind, "folder": str(self._git.folder)}
        if kind == "file":
            told["commit"] = self._head
        return replace(passage, chunk=0, record=replace(record, metadata=told))

    def read(self, store: Store, go_on: Callable[[], None]) -> None:
        """Bring the store up to date with the last commit."""
        head, groups = self._git.head(), domains_of(self._git.folder)
        if groups != self._groups:  # files that have not changed belong elsewhere now
            store.delete([self._id(path) for path in self._blobs])
            store.delete([name for names in self._history.values() for name in names])
            self._groups, self._blobs, self._history, self._head = groups, {}, {}, ""
        if head == self._head:
            return
        self._read_files(store, head, go_on)
        self._read_history(store, head, go_on)
        store.indexes.refresh()
        self._head = head

    def _read_files(self, store: Store, head: str, go_on: Callable[[], None]) -> None:
        listed, submodules = self._git.list_files(head)
        wanted = {b.path: b for b in listed if b.size <= self._max_bytes and has_reader(b.path)}
        gone = [path for path in self._blobs if path not in wanted]
        store.delete([self._id(path) for path in gone])
        for path in gone:
            del self._blobs[path]
        new = [
            blob
            for path, blob in wanted.items()
            if self._blobs.get(path) != blob.name and blob not in self._unread
        ]
        missing: list[str] = []
        for some in _batches(self._entries(new, missing), go_on):
            store.put([entry for _, entry in some])
            self._blobs.update({blob.path: blob.name for blob, _ in some})
        stale = [b.path for b in new if b in self._unread and self._blobs.pop(b.path, "")]
        store.delete([self._id(path) for path in stale])
        large = sum(blob.size > self._max_bytes for blob in listed)
        unread = len(self._unread.intersection(wanted.values()))
        self.notes = [
            *([f"{counted(large, 'file')} larger than max_file_mb"] if large else ()),
            *([f"{counted(unread, 'file')} that cannot be read"] if unread else ()),
            *([f"{counted(submodules, 'submodule')} not looked into"] if submodules else ()),
            *([f"{counted(len(missing), 'file')} not in this clone"] if missing else ()),
        ]

    def _entries(self, blobs: list[Blob], missing: list[str]) -> Iterator[tuple[Blob, Entry]]:
        """Those that a reader makes something of."""

        def found() -> Iterator[tuple[Blob, bytes, str]]:
            for blob, data in self._git.read_files(blobs):
                if data is None:
                    missing.append(blob.path)
                else:
                    yield blob, data, blob.path

        for blob, reading in read_each(found(), chunk_size=config.load().chunk_size):
            if isinstance(reading, InputError):
                self._unread.add(blob)  # not what its name says, or meant to do harm
                continue
            document = reading.document
            if own := domain_in(document.metadata):
                self._personal[blob.path] = own
            else:
                self._personal.pop(blob.path, None)
            record = Record(
                id=self._id(blob.path),
                content=document.text,
                title=document.title or blob.path,
                path=blob.path,
                collection=f"{self.name}/files",
                type=document.kind,
                domain=self._domain(blob.path),
                tags=document.tags,
                metadata={"repository": self.name, "blob": blob.name},
            )
            yield blob, Entry(record, reading.chunks)

    def _read_history(self, store: Store, head: str, go_on: Callable[[], None]) -> None:
        listed = self._git.list_commits(head, most=self._most_commits)
        names = {commit.name for commit in listed}
        for old in [name for name in self._history if name not in names]:
            store.delete(self._history.pop(old))  # history was written anew, or has grown
        new = [commit for commit in listed if commit.name not in self._history]
        for messages in _batches((message_entry(c, self.name) for c in new), go_on):
            store.put(messages)
        made: dict[str, list[str]] = {c.name: [f"git:{self.name}@{c.name}"] for c in new}
        # Commits whose parents are not here seem to add everything.
        cut = self._git.list_shallow()
        whole = [commit for commit in new if commit.name not in cut]
        diffs = self._git.read_diffs(whole, self.name, size=config.load().chunk_size)
        for some in _batches(diffs, go_on):
            # The newest come first, so that of a file which was deleted it is known what it said.
            for entry in some:
                self._note_domain(entry.record)
                made[entry.record.metadata["commit"]].append(entry.record.id)
            store.put([self._mark(entry) for entry in some])
        self._history |= made

    def _note_domain(self, diff: Record) -> None:
        """What a diff shows of the front matter of a file that is no longer there."""
        path = diff.path or ""
        if path not in self._blobs and (shown := _DOMAIN.findall(diff.content)):
            before = self._personal.get(path)
            self._personal[path] = domain_of(before, _SIGNS.split(" ".join(shown)))

    def _mark(self, diff: Entry) -> Entry:
        domain = self._domain(diff.record.path or "")
        return diff._replace(record=replace(diff.record, domain=domain)) if domain else diff

    def _domain(self, path: str) -> str:
        return domain_of(self._personal.get(path), self._groups.domain(path))

    def _id(self, path: str) -> str:
        return f"git:{self.name}:{path}"


def _batches(items: Iterable[T], go_on: Callable[[], None]) -> Iterator[list[T]]:
    remaining = iter(items)
    while some := list(islice(remaining, BATCH)):
        go_on()
        yield some
