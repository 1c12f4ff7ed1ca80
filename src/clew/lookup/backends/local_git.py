"""Repositories: the files of their last commit, the messages and the diffs of those before it.

What git gives is kept in a store of its own that goes when the search does; a lookup first asks
which commit is the last, and reads only what is new since. Nothing in the repository is touched.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from clew.cache import fingerprint
from clew.errors import ClewError, InputError, SourceError, counted
from clew.filter import Filter, domain_in, domain_of
from clew.ingest.chunk import chunk
from clew.ingest.readers import read, reader_for
from clew.ingest.sync import Groups
from clew.lookup.backends import Backend, Setup
from clew.lookup.backends.aside import WAIT, Aside
from clew.lookup.backends.commits import commits, diffs
from clew.lookup.backends.git import Git, Tip
from clew.lookup.backends.marks import domains_of
from clew.lookup.result import Partial
from clew.types import Entry, Hit, Record

if TYPE_CHECKING:
    from clew.engine import Engine

__all__ = ["local_git"]

KINDS = ("files", "commits", "diffs")
BATCH = 200
_LINK = "120000"
_DOMAIN = re.compile(r"^[ +-]domains?\s*[:=](.*(?:\n[ +-]\s*- .*)*)", re.MULTILINE | re.IGNORECASE)
_SIGNS = re.compile(r"(?:[\s+,\[\]\"']|(?<!\w)-)+")

T = TypeVar("T")


class _Blob(NamedTuple):
    path: str
    name: str
    size: int


class _Repository:
    """One of them, and what of it is in the store."""

    def __init__(self, folder: Path, name: str):
        self.git, self.name = Git(folder), name
        self.head = ""
        self._tip = Tip(self.git)
        self._groups = Groups({}, {})
        self._personal: dict[str, str] = {}
        """Path → the domain that the front matter of some state of the file gives it."""
        self._blobs: dict[str, str] = {}
        self._history: dict[str, list[str]] = {}
        """Commit → its records."""
        self.notes: tuple[str, ...] = ()
        self._go_on: Callable[[], None] = lambda: None

    def collection(self, kind: str) -> str:
        return f"{self.name}/{kind}"

    def last(self) -> str:
        """The commit that is checked out; a SourceError where there is no repository, or none."""
        return self._tip.commit()

    def read(
        self, engine: Engine, *, max_bytes: int, most: int, size: int, go_on: Callable[[], None]
    ) -> None:
        """Bring the store up to date with the last commit."""
        head, groups = self.last(), domains_of(self.git.folder)
        if groups != self._groups:  # files that have not changed belong elsewhere now
            engine.store.delete([self._id(path) for path in self._blobs])
            engine.store.delete([name for names in self._history.values() for name in names])
            self._groups, self._blobs, self._history, self.head = groups, {}, {}, ""
        if head == self.head:
            return
        self._go_on = go_on
        self._read_files(engine, head, max_bytes=max_bytes, size=size)
        self._read_history(engine, head, most=most, size=size)
        engine.store.indexes.refresh()
        self.head = head

    def _read_files(self, engine: Engine, head: str, *, max_bytes: int, size: int) -> None:
        listed, submodules = self._tree(head)
        wanted = {b.path: b for b in listed if b.size <= max_bytes and reader_for(b.path)}
        large = sum(b.size > max_bytes for b in listed)
        self.notes = (
            *([f"{counted(large, 'file')} larger than max_file_mb"] if large else ()),
            *([f"{counted(submodules, 'submodule')} not looked into"] if submodules else ()),
        )
        gone = [path for path in self._blobs if path not in wanted]
        engine.store.delete([self._id(path) for path in gone])
        for path in gone:
            del self._blobs[path]
        new = [blob for path, blob in wanted.items() if self._blobs.get(path) != blob.name]
        missing: list[str] = []
        for some in self._batches(self._entries(new, size, missing)):
            engine.store.put([entry for _, entry in some])
            self._blobs.update({blob.path: blob.name for blob, _ in some})
        if missing:
            self.notes = (*self.notes, f"{counted(len(missing), 'file')} not in this clone")

    def _tree(self, head: str) -> tuple[list[_Blob], int]:
        said = self.git.read("ls-tree", "-r", "-z", "-l", "--full-tree", head)
        blobs, submodules = [], 0
        for row in said.split(b"\0"):
            about, _, path = row.partition(b"\t")
            mode, kind, name, size = about.decode().split() if about else ("", "", "", "")
            if kind == "commit":
                submodules += 1
            elif kind == "blob" and mode != _LINK and size.isdigit():
                blobs.append(_Blob(path.decode("utf-8", "backslashreplace"), name, int(size)))
        return blobs, submodules

    def _entries(
        self, blobs: list[_Blob], size: int, missing: list[str]
    ) -> Iterator[tuple[_Blob, Entry]]:
        """Those that a reader makes something of."""
        given = "".join(f"{blob.name}\n" for blob in blobs).encode()
        with self.git.stream("cat-file", "--batch", given=given) as out:
            for blob in blobs:
                header = out.readline(200).split()
                if len(header) != 3:  # a clone that left it out
                    missing.append(blob.path)
                    continue
                data = out.read(int(header[2]) + 1)[:-1]
                try:
                    yield blob, self._entry(blob, data, size)
                except InputError:
                    continue  # not what its name says

    def _entry(self, blob: _Blob, data: bytes, size: int) -> Entry:
        document = read(data, blob.path)
        if own := domain_in(document.metadata):
            self._personal[blob.path] = own
        else:
            self._personal.pop(blob.path, None)
        record = Record(
            id=self._id(blob.path),
            content=document.text,
            title=document.title or blob.path,
            path=blob.path,
            collection=self.collection("files"),
            type=document.kind,
            domain=self._domain(blob.path),
            tags=document.tags,
            metadata={"repository": self.name, "blob": blob.name},
        )
        return Entry(record, chunk(document, size=size))

    def _domain(self, path: str) -> str:
        return domain_of(self._personal.get(path), self._groups.domain(path))

    def _id(self, path: str) -> str:
        return f"git:{self.name}:{path}"

    def _read_history(self, engine: Engine, head: str, *, most: int, size: int) -> None:
        listed = commits(self.git, head, most=most)
        names = {commit.name for commit in listed}
        for old in [name for name in self._history if name not in names]:
            engine.store.delete(self._history.pop(old))  # history was written anew, or has grown
        new = [commit for commit in listed if commit.name not in self._history]
        where = self.collection("commits")
        for some in self._batches(commit.entry(self.name, collection=where) for commit in new):
            engine.store.put(some)
        made: dict[str, list[str]] = {c.name: [f"git:{self.name}@{c.name}"] for c in new}
        # A shallow clone ends in commits whose parents are not here: they seem to add everything.
        cut = self._shallow()
        whole = [commit for commit in new if commit.name not in cut]
        where = self.collection("diffs")
        for some in self._batches(diffs(self.git, whole, self.name, collection=where, size=size)):
            # The newest come first, so that of a file which was deleted it is known what it said.
            for entry in some:
                self._note_domain(entry)
                made[entry.record.metadata["commit"]].append(entry.record.id)
            engine.store.put([self._marked(entry) for entry in some])
        self._history |= made

    def _note_domain(self, diff: Entry) -> None:
        """What a diff shows of the front matter of a file that is no longer there."""
        path = diff.record.path or ""
        if path not in self._blobs and (shown := _DOMAIN.findall(diff.record.content)):
            before = self._personal.get(path)
            self._personal[path] = domain_of(before, _SIGNS.split(" ".join(shown)))

    def _marked(self, diff: Entry) -> Entry:
        domain = self._domain(diff.record.path or "")
        return replace(diff, record=replace(diff.record, domain=domain)) if domain else diff

    def _batches(self, items: Iterable[T]) -> Iterator[list[T]]:
        remaining = iter(items)
        while some := list(islice(remaining, BATCH)):
            self._go_on()
            yield some

    def _shallow(self) -> set[str]:
        file = self.git.folder / self.git.text("rev-parse", "--git-path", "shallow")
        try:
            return set(file.read_text("ascii").split())
        except (OSError, UnicodeDecodeError):
            return set()


class _Repositories(Backend):
    def __init__(self, setup: Setup):
        self._setup = setup
        self._repositories: list[_Repository] = []
        given = [Path(folder).expanduser().resolve() for folder in setup.settings.repositories]
        for folder in dict.fromkeys(given):
            taken = {repository.name for repository in self._repositories}
            self._repositories.append(_Repository(folder, _name(folder, taken)))
        most = setup.settings.max_file_mb
        self._aside = Aside(lambda: setup.folder("git"), max_file_mb=most)

    def close(self) -> None:
        self._aside.close()

    def __call__(self, query: str, limit: int) -> Partial:
        engine, problems, notes = self._up_to_date()
        hits: list[Hit] = []
        for repository in self._repositories:
            for kind in KINDS:  # each by itself: a word of the code is in most of its diffs as well
                scope = self._setup.filter.narrowed(Filter(collection=repository.collection(kind)))
                if scope is None:
                    continue
                found = engine.search(
                    query,
                    limit=limit,
                    mode="keyword",
                    group_by="record",
                    filter=scope,
                    include_personal=self._setup.include_personal,
                    syntax=False,
                )
                hits += [self._placed(hit, repository, kind) for hit in found]
        return Partial(hits, "; ".join(problems) or None, notes)

    def freshness(self) -> str:
        """The last commits, and who may see what."""
        return " ".join(
            f"{repository.last()} {fingerprint(domains_of(repository.git.folder))}"
            for repository in self._repositories
        )

    def _up_to_date(self) -> tuple[Engine, list[str], tuple[str, ...]]:
        """The store as the repositories are now."""
        problems: list[str] = []
        engine, whole = self._aside.brought_up(
            partial(self._read, problems=problems), seconds=self._setup.settings.deadline * WAIT
        )
        if not whole:
            return engine, ["the repositories are still being read: ask again"], ()
        if len(problems) == len(self._repositories):
            raise SourceError("; ".join(problems))
        return engine, problems, tuple(n for repo in self._repositories for n in repo.notes)

    def _read(self, engine: Engine, *, problems: list[str]) -> None:
        settings = self._setup.settings
        for repository in self._repositories:
            try:
                repository.read(
                    engine,
                    max_bytes=int(settings.max_file_mb * 1024 * 1024),
                    most=settings.commits,
                    size=engine.config.chunk_size,
                    go_on=self._aside.go_on,
                )
            except ClewError as error:
                problems.append(str(error))

    def _placed(self, hit: Hit, repository: _Repository, kind: str) -> Hit:
        """With the commit at which its lines are these."""
        told = {"kind": kind.removesuffix("s"), "folder": str(repository.git.folder)}
        if kind == "files":
            told["commit"] = repository.head
        return replace(hit, metadata={**hit.metadata, **told})


def local_git(setup: Setup) -> Backend | None:
    """The repositories of `repositories`."""
    return _Repositories(setup) if setup.settings.repositories else None


def _name(folder: Path, taken: set[str]) -> str:
    stem = folder.name.removesuffix(".git") or "repository"
    name, number = stem, 2
    while name in taken:
        name, number = f"{stem}-{number}", number + 1
    return name
