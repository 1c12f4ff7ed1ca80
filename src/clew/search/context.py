"""What the sources of one search share: the store, and the query's vector, made on first use; and
whether the files of what a search shows are still as they were indexed."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Literal

from clew.config import FILE_NAME
from clew.errors import InputError, ModelError, counted
from clew.models import EXTERNAL, CurrentModel, NullEmbeddingProvider, traits
from clew.protocols import Store
from clew.ranking.adaptive import Facts
from clew.search.plan import PlannedSource
from clew.storage import FOLDER
from clew.text.analyser import is_identifier, known_share
from clew.types import FileState, Hit, Query, Vector
from clew.validate import unit_row

NONE_YET = "no passage is embedded yet: run `clew index` or call `embed()`"


class QueryContext:
    """What sources may ask of one search. `vector` is the query's embedding where the caller has it
    already, by `model` if that is not the store's own. `home` is the folder whose store it is."""

    def __init__(
        self,
        store: Store,
        current: CurrentModel,
        query: Query,
        vector: Vector | Sequence[float] | None = None,
        *,
        model: str | None = None,
        home: Path | None = None,
    ):
        self.store = store
        self.files = IndexedFiles(store, home)
        self.model = model or current.name
        self.why_no_vector: str | None = None
        self._current, self.query = current, query
        self._given = None if vector is None else _given(vector, store, self.model)
        self._made: Vector | None = None
        self._fresh: bool | None = None
        self._lock = threading.Lock()

    @property
    def has_vector(self) -> bool:
        return self._given is not None

    @property
    def vector_at_hand(self) -> Vector | None:
        """The query's vector, if it is given or was made."""
        return self._made if self._given is None else self._given

    @property
    def may_embed(self) -> bool:
        """Whether the query's vector can be made here and now: not on another machine, which may
        keep us waiting past the deadline."""
        return self._given is None and self._current.local

    @property
    def current(self) -> bool:
        if self._fresh is None:
            indexes = self.store.indexes
            self._fresh = indexes.current() and not indexes.remote
        return self._fresh

    @property
    def at_hand(self) -> bool:
        current = self._current
        known = self._given is not None or current.unwanted or current.knows(self.query.text)
        return known and self.current

    def facts(self) -> Facts:
        """What fusion may know of the query beside the lists."""
        model = traits(self.model)
        lengths = tuple(self.store.indexes.lengths())
        return Facts(
            reach=self.store.indexes.reach(self.query.terms, self.query.filter),
            unrelated=model.unrelated,
            known=known_share(self.query.text, model.scripts),
            read=_share_read(lengths, model.window),
            embedded=self.store.indexes.coverage(self.model),
            words=len(self.query.terms.words),
            identifier=is_identifier(self.query.text),
            gauged=model.gauged,
        )

    def degraded(self, planned: Sequence[PlannedSource], facts: Facts) -> tuple[str, ...]:
        """What kept the store from answering in full, and files from being shown."""
        problems = []
        embedded = round(facts.embedded, 4)
        if self.why_no_vector:
            problems.append(f"vectors: {self.why_no_vector}")
        elif (
            embedded < 1
            and self.model != EXTERNAL  # a model that could give vectors to what has none
            and any(one.kind == "vectors" for one in planned)
        ):
            share = f"{int(embedded * 100)} % of passages are embedded so far"
            problems.append(f"vectors: {share}: run `clew index` or call `embed()`")
        if behind := self.store.indexes.behind:
            reason = self.store.indexes.behind_because
            problems.append(f"{counted(behind, 'change')} not searchable yet: {reason}")
        return (*problems, *describe_damage(self.store), *self.files.problems)

    @property
    def lasting(self) -> tuple[str, ...]:
        """What of `degraded` the settings ask for: it will be so next time as well."""
        return (f"vectors: {NullEmbeddingProvider().reason}",) if self._current.unwanted else ()

    def query_vector(self, *, seconds: float | None = None) -> Vector | None:
        """The vector, within so many seconds where no source asks: sources can be left."""
        if self._given is not None:
            return self._given
        with self._lock:
            if self._made is None and self.why_no_vector is None:
                if not self.store.indexes.prepare(self.model):
                    reason = self._current.why_missing
                    self.why_no_vector = reason or NONE_YET
                    return None
                try:
                    self._made = self._current.embed_query(self.query.text, seconds=seconds)
                except ModelError as error:
                    self.why_no_vector = str(error)
            return self._made


def describe_damage(view: Store) -> tuple[str, ...]:
    """What a view has left out because the disk has not kept it as it was written."""
    if not (names := sorted(view.damaged or ())):
        return ()
    some = ", ".join(names[:3]) + (", …" if len(names) > 3 else "")
    return (
        f"{counted(len(names), 'record')} left out, for the disk has not kept them as they "
        f"were written ({some}): run `clew doctor`",
    )


@lru_cache(maxsize=8)
def _share_read(lengths: tuple[int, ...], window: int) -> float:
    """How much of a passage a model reads, on a sample of their lengths."""
    read = [min(1.0, window / length) for length in lengths if length and window]
    return sum(read) / len(read) if read else 1.0


def _given(vector: Vector | Sequence[float], store: Store, model: str) -> Vector:
    row = unit_row(vector)
    dim = store.indexes.prepare(model)
    if dim and len(row) != dim:
        store.indexes.refresh()  # those of another length may all be gone
        dim = store.indexes.prepare(model)
    if dim and len(row) != dim:
        raise InputError(
            f"the query vector has {counted(len(row), 'dimension')}, this store's have {dim}: "
            f"embed it with {model}"
        )
    return row


# ---------------------------------------------------------------------- files

FileChange = Literal["gone", "stale", "missing"]
"""Deleted; changed since it was indexed; in a folder that is not there as a whole."""


class IndexedFiles:
    """The files behind one search's hits. Looks at the files of the hits that it is asked about and
    at no other: a stat for each, microseconds. What is in no indexed folder, or was given, is not
    touched."""

    def __init__(self, store: Store, home: Path | None):
        self._store, self._home = store, home
        self._roots: dict[str, str] | None = None
        self._gone: set[tuple[str, str]] = set()
        self._missing: dict[str, Path] = {}

    def states(self, named: Sequence[tuple[str, str | None]]) -> list[FileChange | None]:
        """What became of records' files, by (id, path); None: as it was, or no file."""
        by_root: dict[str, list[str]] = {}
        for name, path in named:
            if path is not None:
                by_root.setdefault(name.partition(":")[0], []).append(path)
        if by_root and self._roots is None:
            self._roots = self._store.files.roots()
        found: dict[tuple[str, str], FileChange | None] = {}
        for name, paths in by_root.items():
            folder = (self._roots or {}).get(name)
            root = None if folder is None else (self._home or Path()) / folder
            if root is not None and root.is_absolute():
                for path, known in self._store.files.states(name, paths).items():
                    found[name, path] = self._compare(name, root, path, known)
        return [found.get((name.partition(":")[0], path or "")) for name, path in named]

    def as_shown(self, hits: Sequence[Hit]) -> bool:
        """Whether these, which were found earlier, can still be shown as they are."""
        states = self.states([(hit.id, hit.path) for hit in hits])
        marked = [hit.metadata.get("stale") for hit in hits]
        return all(
            state == ("stale" if m else None) for state, m in zip(states, marked, strict=True)
        )

    @property
    def problems(self) -> tuple[str, ...]:
        """What was in the way of showing everything that was found, for `degraded`."""
        said = [
            f"the folder {root} is not there, or empty: what is shown of it may be gone"
            for root in self._missing.values()
        ]
        if self._gone:
            are = "is" if len(self._gone) == 1 else "are"
            said.append(
                f"{counted(len(self._gone), 'file')} {are} gone since the last `clew index`"
            )
        return tuple(said)

    def _compare(self, name: str, root: Path, path: str, known: FileState) -> FileChange | None:
        try:
            about = os.stat(f"{root}/{path}")  # noqa: PTH116 - thrice as quick, and often asked
        except (FileNotFoundError, NotADirectoryError):
            if _is_bare(root):
                self._missing[name] = root
                return "missing"
            self._gone.add((name, path))
            return "gone"
        except (OSError, ValueError):  # not to be looked at: then it was not, either
            return None
        same = (about.st_size, about.st_mtime_ns) == (known.size, known.mtime_ns)
        return None if same else "stale"


def _is_bare(root: Path) -> bool:
    """Whether there is no such folder, or nothing in it but a store: a disk that is not mounted, or
    an index that was taken elsewhere without its files."""
    try:
        with os.scandir(root) as entries:
            return all(entry.name in (FOLDER, FILE_NAME) for entry in entries)
    except OSError:
        return True
