"""Repositories: the files of their last commit, the messages and the diffs of those before it.

What git gives is kept in a store of its own in the user's cache folder; each question first asks
which commit is the last, and reads only what is new since: a blob or a commit of a name never says
anything else. What cannot be read, or is not in a partial clone, is named and passed over. Nothing
in the repository is touched.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from clew import config
from clew.errors import ClewError, InputError, SourceError, counted
from clew.filter import Filter, domain_in, domain_of
from clew.ingest.readers import has_reader, read_each
from clew.ingest.sync import Groups, free_name
from clew.protocols import Context, Source, Store, batched
from clew.sources.files import WAIT, ScratchStore, domains_of, kept_folder
from clew.sources.git_repository import Blob, Git, message_entry
from clew.text.analyser import tokens
from clew.types import Answer, Candidate, Entry, Passage, Query, Record

KINDS = ("file", "commit", "diff")
BATCH = 200
COMMITS = 100
"""Whose diffs are read together: what was read before a process ended need not be read again."""
NAMED = 3
"""Of what cannot be read, so many are named."""
_AWAY = "not in this clone, or damaged"
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
        keep: bool = True,
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
        self._place = kept_folder("git", commits, max_file_mb, *names) if keep else None
        self._scratch = ScratchStore(self._read, self._place)

    def __call__(self, query: Query, context: Context) -> Answer:
        """Give at most `query.limit` of each kind."""
        store, whole = self._scratch.update(seconds=self._seconds * WAIT)
        problems = self._problems if whole else ["the repositories are still being read: ask again"]
        if len(self._problems) == len(self._repositories) and whole:
            raise SourceError("; ".join(problems))
        found: list[Candidate] = []
        for repository in self._repositories:
            if whole and repository.problem:
                problems = [*problems, repository.problem]
            own_files: dict[str, Candidate] = {}
            for kind in KINDS:  # each by itself: a word of the code is in most of its diffs as well
                own = Filter(collection=f"{repository.name}/{kind}s")
                if (scope := query.filter.narrowed(own)) is not None:
                    some = store.keyword(query.terms, scope, limit=query.limit)
                    for candidate, passage in zip(some, store.passages(some), strict=True):
                        if passage is None:
                            continue
                        placed = repository.place(passage, kind)
                        one = Candidate(candidate.id, candidate.score, None, placed)
                        path = placed.record.path or ""
                        if kind == "file":
                            own_files[path] = one
                        elif kind == "diff" and path in own_files:
                            file = own_files[path].passage
                            assert file is not None
                            if _says_the_same(query, file, placed):
                                own_files[path] = _note_change(own_files[path], file, placed)
                                continue
                        if kind != "file":
                            found.append(one)
            found += own_files.values()
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
        self._scratch = ScratchStore(self._read, self._place)

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
        """Nothing is known of what is in the store."""
        self._head = self._grouped = self.problem = ""
        self._edition: tuple[int, int] | None = None
        """Of the store, as this left it."""
        self._groups = Groups({}, {})
        self._personal: dict[str, str] = {}
        """Path → the domain that the front matter of some state of the file gives it."""
        self._blobs: dict[str, str] = {}
        self._unread: set[Blob] = set()
        """Blobs that no reader makes anything of."""
        self._history: dict[str, list[str]] = {}
        """Commit → its records."""
        self._missing: list[str] = []
        """Files that cannot be read."""
        self._lost: list[str] = []
        """Folders that cannot be."""
        self._broken: list[str] = []
        """Changes that cannot be, as COMMIT:PATH."""
        self.notes: list[str] = []

    def _recall(self, store: Store) -> None:
        """What is in the store: another process, or an earlier one, may have written it, or died
        while it did."""
        if self._edition == store.changes.edition():
            return
        self.forget()
        try:
            told = json.loads(store.notes.get(f"git {self.name}", "{}"))
        except ValueError:
            told = {}
        prefixes = f"git:{self.name}:", f"git:{self.name}@"
        there = {row[0] for row in store.lifecycle.ledger(Filter()) if row[0].startswith(prefixes)}
        self._head, self._grouped = told.get("head", ""), told.get("grouped", "")
        self._personal, self.problem = told.get("personal", {}), told.get("problem", "")
        self.notes, self._broken = told.get("notes", []), told.get("broken", [])
        self._unread = {Blob(*each) for each in told.get("unread", ())}
        blobs, history = told.get("blobs", {}), told.get("history", {})
        self._blobs = {path: name for path, name in blobs.items() if self._id(path) in there}
        self._history = {name: ids for name, ids in history.items() if there.issuperset(ids)}
        if (len(self._blobs), len(self._history)) != (len(blobs), len(history)):
            self._head = ""
        known = {self._id(path) for path in self._blobs}.union(*self._history.values())
        store.delete(sorted(there - known))
        self._edition = store.changes.edition()

    def _note(self, store: Store) -> None:
        told = {
            # what is not here may have been fetched by the time another process looks
            "head": "" if self.problem or self._missing or self._lost else self._head,
            "grouped": self._grouped,
            "personal": self._personal,
            "problem": self.problem,
            "notes": self.notes,
            "broken": self._broken,
            "unread": sorted(self._unread),
            "blobs": self._blobs,
            "history": self._history,
        }
        store.notes[f"git {self.name}"] = json.dumps(told)
        self._edition = store.changes.edition()

    def state(self) -> str:
        return f"{self._git.head()} {domains_of(self._git.folder).fingerprint}"

    def place(self, passage: Passage, kind: str) -> Passage:
        """Add the commit at which its lines are these."""
        record = passage.record
        told = {**record.metadata, "kind": kind, "folder": str(self._git.folder)}
        if kind == "file":
            told["commit"] = self._head
        return replace(passage, chunk=0, record=replace(record, metadata=told))

    def read(self, store: Store, go_on: Callable[[], None]) -> None:
        """Bring the store up to date with the last commit."""
        head = self._git.head()
        self._recall(store)
        self._groups = domains_of(self._git.folder)
        if self._grouped != self._groups.fingerprint:  # files that did not change belong elsewhere
            store.delete([self._id(path) for path in self._blobs])
            store.delete([name for names in self._history.values() for name in names])
            self._blobs, self._history, self._head = {}, {}, ""
            self._grouped = self._groups.fingerprint
        if head == self._head:
            return
        self._head, problems, notes = "", list[str](), list[str]()
        for step in (self._read_files, self._read_history):
            try:
                notes += step(store, head, go_on)
            except SourceError as error:
                go_on()  # is it that nobody wants it any more?
                problems.append(str(error))
        store.indexes.refresh()
        if len(problems) == 2:
            raise SourceError(problems[0])
        self._head, self.problem, self.notes = head, "; ".join(problems), notes
        self._note(store)

    def _read_files(self, store: Store, head: str, go_on: Callable[[], None]) -> list[str]:
        listed, submodules, self._lost = self._git.list_files(head)
        readable = [blob for blob in listed if has_reader(blob.path)]
        wanted = {b.path: b for b in readable if 0 <= b.size <= self._max_bytes}
        gone = [path for path in self._blobs if path not in wanted]
        store.delete([self._id(path) for path in gone])
        for path in gone:
            del self._blobs[path]
        new = [
            blob
            for path, blob in wanted.items()
            if self._blobs.get(path) != blob.name and blob not in self._unread
        ]
        missing = self._missing = [blob.path for blob in readable if blob.size < 0]
        for some in _batches(self._entries(new), go_on):
            store.put([entry for _, entry in some])
            self._blobs.update({blob.path: blob.name for blob, _ in some})
            self._note(store)
        stale = [
            blob.path
            for blob in new
            if (blob in self._unread or blob.path in missing) and self._blobs.pop(blob.path, "")
        ]
        store.delete([self._id(path) for path in stale])
        large = sum(blob.size > self._max_bytes for blob in listed)
        unread = len(self._unread.intersection(wanted.values()))
        return [
            *([f"{counted(large, 'file')} larger than max_file_mb"] if large else ()),
            *([f"{counted(unread, 'file')} that cannot be read"] if unread else ()),
            *([f"{counted(submodules, 'submodule')} not looked into"] if submodules else ()),
            *_name_some(missing, "file"),
            *_name_some(self._lost, "folder"),
        ]

    def _entries(self, blobs: list[Blob]) -> Iterator[tuple[Blob, Entry]]:
        """Entries of blobs that a reader makes something of."""

        def found() -> Iterator[tuple[Blob, bytes, str]]:
            for blob, data in self._git.read_files(blobs):
                if data is None:
                    self._missing.append(blob.path)
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

    def _read_history(self, store: Store, head: str, go_on: Callable[[], None]) -> list[str]:
        listed, problem = self._git.list_commits(head, most=self._most_commits)
        names = {commit.name for commit in listed}
        for old in [name for name in self._history if name not in names]:
            store.delete(self._history.pop(old))  # history was written anew, or has grown
        new = [commit for commit in listed if commit.name not in self._history]
        # Commits whose parents are not here seem to add everything.
        cut = self._git.list_shallow()
        short = {name[: Git.SHORT] for name in names}
        self._broken = [each for each in self._broken if each[: Git.SHORT] in short]
        for some in batched(new, COMMITS):
            for messages in _batches((message_entry(c, self.name) for c in some), go_on):
                store.put(messages)
            made: dict[str, list[str]] = {c.name: [f"git:{self.name}@{c.name}"] for c in some}
            whole = [commit for commit in some if commit.name not in cut]
            diffs = self._git.read_diffs(whole, self.name, size=config.load().chunk_size)
            for entries in _batches(diffs, go_on):
                # The newest come first, so that it is known what a file said that was deleted.
                for entry in entries:
                    self._note_domain(entry.record)
                    made[entry.record.metadata["commit"]].append(entry.record.id)
                store.put([self._mark(entry) for entry in entries])
            self._broken += self._git.unread
            self._history |= made
            self._note(store)
        return [
            *_name_some(self._broken, "change"),
            *([f"history ends early: {problem}"] if problem else ()),
        ]

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


def _says_the_same(query: Query, file: Passage, diff: Passage) -> bool:
    """Whether all that a diff added stands in the file, most of it in the passage of it that was
    found, and nothing that it took away is what was looked for."""
    lines = diff.text.splitlines()
    added = [line[1:].strip() for line in lines if line[:1] == "+" and line[1:].strip()]
    content = {line.strip() for line in file.record.content.splitlines()}
    here = {line.strip() for line in file.text.splitlines()}
    if not added or not content.issuperset(added):
        return False
    removed = tokens(" ".join(line[1:] for line in lines if line[:1] == "-"))
    asked = {token for word in query.terms.words for token in word}
    gone = asked.intersection(removed).difference(tokens(file.text))
    return not gone and 2 * sum(line in here for line in added) >= len(added)


def _note_change(found: Candidate, file: Passage, diff: Passage) -> Candidate:
    """The file, with the commit whose diff is the same passage."""
    told = dict(file.record.metadata)
    told["changed_in"] = [*told.get("changed_in", ()), diff.record.metadata["commit"]]
    return found._replace(passage=replace(file, record=replace(file.record, metadata=told)))


def _name_some(names: list[str], what: str) -> list[str]:
    """A note of how many they are, and the first of them."""
    if not names:
        return []
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return [f"{counted(len(names), what)} {_AWAY}: {', '.join(names[:NAMED])}{more}"]


def _batches(items: Iterable[T], go_on: Callable[[], None]) -> Iterator[list[T]]:
    for some in batched(items, BATCH):
        go_on()
        yield some
