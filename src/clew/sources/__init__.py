"""The kinds of sources: each gives one ranked list. A function in a file here and one line in
`KINDS` per kind.

A kind is a function that makes a source from the folder whose store it is and the options that
`[sources.NAME]` of the settings gives (see configure.py). One that has records of its own has the
option `name`, which it is told and nobody sets: ids begin with it. An installed package adds kinds
by the entry point group `clew.sources`: they run in a process of their own (worker.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path

from clew.protocols import Context, Source, Store
from clew.types import Answer, Candidate, Hit, Passage, Query, Vector

__all__ = [
    "KINDS",
    "PARTIAL",
    "QUICK",
    "ExternalPassage",
    "FunctionSource",
    "Listing",
    "file_state",
    "find_kind",
]

KINDS = {
    "all_words": "clew.sources.keyword",
    "canonical": "clew.sources.lines",
    "exocortex": "clew.sources.sqlite",
    "filenames": "clew.sources.labels",
    "files": "clew.sources.files",
    "framework_docs": "clew.sources.lines",
    "git": "clew.sources.git",
    "graph": "clew.sources.graph",
    "keyword": "clew.sources.keyword",
    "sqlite": "clew.sources.sqlite",
    "tags": "clew.sources.labels",
    "tokens": "clew.sources.tokens",
    "tree": "clew.sources.tree",
    "vectors": "clew.sources.keyword",
    "web": "clew.sources.web",
}
"""Each with the module that has the function of its name, imported when settings name the kind."""
QUICK = frozenset(KINDS) - {"exocortex", "files", "git", "graph", "sqlite", "tree", "web"}
"""Kinds that answer from this store's own indexes, in less time than a thread takes to wake: see
search/collect.py."""
PARTIAL = frozenset({"framework_docs"})
"""Kinds that look at a part of the store; so does any quick one that is told a `collection`."""

Listing = Callable[[Query, Context], Sequence[Candidate] | Answer]
"""A source without its hooks."""


@dataclass(frozen=True)
class FunctionSource(Source):
    """A function as a source. Of one that reads the store alone, `outside` is ""; what any other
    reads, nobody knows."""

    function: Listing
    outside: str | None = None
    by_terms: bool = False
    """Whether of the query's words it reads the terms alone, in whatever order."""

    def __call__(self, query: Query, context: Context) -> Sequence[Candidate] | Answer:
        if self.by_terms:  # in one order for all, so that sums of their worths are the same
            words = tuple(sorted(query.terms.words))
            query = replace(query, terms=replace(query.terms, words=words))
        return self.function(query, context)

    def freshness(self, store: Store) -> str | None:
        return self.outside

    def reads(self, query: Query) -> tuple[tuple[str, ...], ...] | None:
        return tuple(sorted(query.terms.words)) if self.by_terms else None

    @classmethod
    def of(cls, given: Source | Listing) -> Source:
        """What is a source already, or a function made one."""
        return given if isinstance(given, Source) else cls(given)


@dataclass(frozen=True, slots=True)
class ExternalPassage(Passage):
    """What a source found outside the store, with what it knows of it."""

    hit: Hit | None = None
    """As lookups show it, where that is not as a passage of a record."""
    vector: Vector | None = None
    """By the storage's model."""
    similarity: float | None = None
    """The cosine to the query that the source has measured."""
    file: str | None = None
    """The file of this machine that it is in, from the root."""


def find_kind(name: str) -> Callable[..., Source] | None:
    """The function that makes sources of this kind, if it is one of ours."""
    if name not in KINDS:
        return None
    make: Callable[..., Source] = getattr(import_module(KINDS[name]), name)
    return make


def file_state(*files: Path) -> str:
    """What changes with these files: for what a source says of its freshness."""
    states = []
    for file in files:
        try:
            about = file.stat()
            states.append(f"{about.st_ino}.{about.st_mtime_ns}.{about.st_size}")
        except OSError:
            states.append("-")
    return "/".join(states)
