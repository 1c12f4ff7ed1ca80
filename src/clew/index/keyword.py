"""The keyword index: BM25 by Tantivy over tokens from text/analyser.py, derived from the database.

One document per chunk, with three fields: `cid`, `rid` and `body`. Filters are sets of records
(filters.py), so a record's tags or importance can change without touching this index.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tantivy
from tantivy import Query as TantivyQuery

from clew.errors import StoreError
from clew.index.matches import Matches
from clew.index.scope import Scope
from clew.index.tail import Found, Lag, room
from clew.index.tail_words import WordTail
from clew.protocols import Progress
from clew.storage import log
from clew.storage.filters import Allowed
from clew.storage.snapshot import read_state, write_state
from clew.storage.tables import Tables
from clew.text import analyser
from clew.types import Terms

__all__ = ["IndexDamagedError", "KeywordIndex"]

FORMAT = 2
BULK = 5_000
"""From this many changed chunks on, the writer gets a large buffer and both cores."""
PURGE_SHARE = 0.2
SOON_REBUILT = 2_000
"""An index of so few is made anew for a single deletion, when there is time for it."""


def _schema() -> tantivy.Schema:
    builder = tantivy.SchemaBuilder()
    builder.add_unsigned_field("cid", indexed=True, fast=True)
    builder.add_unsigned_field("rid", indexed=True, fast=True)
    builder.add_text_field("body", tokenizer_name="whitespace", index_option="position")
    builder.add_text_field("title", tokenizer_name="whitespace", index_option="freq")
    return builder.build()


class KeywordIndex:
    """Reads and maintains one Tantivy folder. Writing is serialised by the store's derived lock."""

    kinds = ("chunk", "gone")
    """Rows of the log that it goes by."""

    def __init__(self, derived: Path, store_id: str):
        self._derived = derived
        self._state_path = derived / "keyword.json"
        self._identity = {"store": store_id, "format": FORMAT, "analyser": analyser.VERSION}
        self._schema = _schema()
        self._index: tantivy.Index | None = None
        self._served: Matches | None = None
        self._folder = ""
        self._deleted = 0
        self._beside: Any = None
        self._lock = threading.Lock()
        self.committed = log.NOWHERE
        """How far the change log is applied in the files that this object serves."""

    @property
    def place(self) -> log.Place:
        """How far it is applied in all that this object serves: in the files and in the tail."""
        if self._served is None or self.committed == log.NOWHERE:
            return log.NOWHERE
        return self._served.tail.lag.place

    @property
    def size(self) -> int:
        """Chunks that are found."""
        return self.counted[1]

    @property
    def counted(self) -> tuple[log.Place, int]:
        """Place and size of one moment."""
        served = self._served
        return (log.NOWHERE, 0) if served is None else (served.tail.lag.place, served.size)

    @property
    def lag(self) -> int:
        """Changes in the tail."""
        return self._served.tail.lag.size(self.kinds) if self._served else 0

    @property
    def room(self) -> int:
        """Changes that the tail is meant for."""
        return room(self._served.searcher.num_docs) if self._served else 0

    def follow(self, db: Tables, since: log.Place, mentions: Sequence[log.Mention]) -> None:
        """Take these rows of the log, which come after `since`, into the tail."""
        with self._lock:
            if self._served is not None and self.place == since:  # else it has moved meanwhile
                self._served = self._served.with_tail(self._served.tail.extended(db, mentions))

    def whole(self) -> bool:
        """Whether what is served is on the disk still."""
        return self._state_path.exists() and (self._derived / self._folder / "meta.json").exists()

    def load(self) -> bool:
        """Serve what is on disk. False: nothing whole is there (what was served stays served)."""
        with self._lock:
            state = read_state(self._state_path, "folder", "place", "docs", "deleted")
            if state is None or any(state.get(k) != v for k, v in self._identity.items()):
                return False
            folder = self._derived / state["folder"]
            if not (folder / "meta.json").exists():
                return False
            same = self._index is not None and state["folder"] == self._folder
            if same and tuple(state["place"]) == self.committed:
                return True
            try:
                index = self._index if same else None
                index = index or self._open(folder)
                index.reload()
                searcher = index.searcher()
            except BaseException as error:
                if _is_damage(error):
                    return False
                raise
            # Another count: a process died between its commit and its state, or files were lost.
            if searcher.num_docs != state["docs"]:
                return False
            self._index, self._folder, self._deleted = index, state["folder"], state["deleted"]
            self._serve(searcher, tuple(state["place"]))
            return True

    def _serve(self, searcher: tantivy.Searcher, place: log.Place) -> None:
        """What is on disk now, with what is left of the tail."""
        tail = self._served.tail.rebased(place) if self._served else WordTail(Lag.none(place))
        self._served, self.committed = Matches(searcher, self._schema, tail), place

    def _open(self, folder: Path) -> tantivy.Index:
        if os.access(folder, os.W_OK):
            return tantivy.Index.open(str(folder))
        # Tantivy locks with files of its own in the folder. On a read-only disk it gets another
        # folder for them, in which everything else is a link.
        import tempfile

        self._beside = tempfile.TemporaryDirectory(prefix="clew-")
        for file in folder.iterdir():
            if file.suffix != ".lock":
                Path(self._beside.name, file.name).symlink_to(file.absolute())
        return tantivy.Index.open(self._beside.name)

    def catch_up(self, db: Tables, *, progress: Progress | None = None) -> None:
        """Apply the change log; rebuild from the tables when that is not possible.

        Only under the store's derived lock.
        """
        changes = log.since(db, self.committed) if self.load() else None
        if changes is None:
            self.rebuild(db, progress=progress)
            return
        gone = dict.fromkeys(changes.numbers("gone"))
        added = [cid for cid in changes.numbers("chunk") if cid not in gone]
        before = self._documents
        if added or gone:
            assert self._index is not None
            try:
                self._write(self._index, db, _batches(added), [*gone, *added], len(added), progress)
            except BaseException as error:
                if not _is_damage(error):
                    raise
                # Files that a killed writer left can be in the way. A full disk fails here again.
                self.rebuild(db, progress=progress)
                return
        self._publish(changes.place, expected=before + len(added))

    @property
    def _documents(self) -> int:
        return int(self._served.searcher.num_docs) if self._served else 0

    @property
    def purge_due(self) -> bool:
        """Deleted chunks still count in BM25's statistics, and only a rebuild takes them out."""
        share = PURGE_SHARE if self._documents > SOON_REBUILT else 0.0
        return self._deleted > share * self._documents

    def rebuild(self, db: Tables, *, progress: Progress | None = None) -> None:
        """A new index beside the old one, which is served until then. Under the derived lock."""
        place = log.head(db)
        total = db.execute("SELECT COUNT(*) FROM chunks").fetchone()[0]
        folder = self._derived / f"keyword-{uuid.uuid4().hex[:12]}"
        folder.mkdir(parents=True)
        try:
            index = tantivy.Index(self._schema, str(folder))
            if total:
                numbers = (row[0] for row in db.execute("SELECT cid FROM chunks ORDER BY cid"))
                self._write(index, db, _batches(numbers), [], total, progress)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        self._index, self._folder, self._deleted = index, folder.name, 0
        self._publish(place)
        for other in self._derived.glob("keyword-*"):
            if other != folder:  # those who have it mapped keep it
                shutil.rmtree(other, ignore_errors=True)

    def _publish(self, place: log.Place, *, expected: int = 0) -> None:
        """Serve what was written, in which there would be so many had none been deleted."""
        assert self._index is not None
        self._index.reload()
        searcher = self._index.searcher()
        self._deleted += max(0, expected - searcher.num_docs)
        state = {"place": place, "docs": searcher.num_docs, "deleted": self._deleted}
        write_state(self._state_path, {**self._identity, **state, "folder": self._folder})
        with self._lock:
            self._serve(searcher, place)

    def _write(
        self,
        index: tantivy.Index,
        db: Tables,
        batches: Iterator[list[int]],
        gone: list[int],
        total: int,
        progress: Progress | None,
    ) -> None:
        bulk = total >= BULK
        writer = index.writer(256_000_000 if bulk else 15_000_000, 2 if bulk else 1)
        try:
            # A writer's first deletion can be skipped for segments that a killed one was merging:
            # let it be one that matters to nobody (41 of 240 stores lost one, then none).
            nobody = TantivyQuery.term_set_query(self._schema, "cid", [2**60])
            writer.delete_documents_by_query(nobody)
            for batch in _batches(gone, 5_000):
                # by query: deletion by term takes a Python int for signed, and finds nothing
                query = TantivyQuery.term_set_query(self._schema, "cid", batch)
                writer.delete_documents_by_query(query)
            done = 0
            for batch in batches:
                for cid, rid, title, body in self._tokenised(db, batch):
                    document = tantivy.Document()
                    document.add_unsigned("cid", cid)
                    document.add_unsigned("rid", rid)
                    document.add_text("body", body)
                    if title:
                        document.add_text("title", title)
                    writer.add_document(document)
                done += len(batch)
                if progress:
                    progress("keyword index", done, total)
            writer.commit()
            # Always: a merge that outlives its writer brings back what the next one deletes
            # (measured with tantivy 0.27: one store in three after some twenty writes).
            writer.wait_merging_threads()
        finally:
            del writer  # an error that is kept keeps this frame, which must not keep the lock

    def _tokenised(self, db: Tables, cids: list[int]) -> Iterator[tuple[int, int, str, str]]:
        """(chunk, record, title, text) as Tantivy is given them. What the tail has taken apart is
        not taken apart again: that would keep searches in other threads from the interpreter."""
        tail, missing = self._served.tail if self._served else None, []
        for cid in cids:
            if tail is not None and (entry := tail.entry(cid)) is not None:
                yield cid, entry.rid, " ".join(entry.title), " ".join(entry.body)
            else:
                missing.append(cid)
        for cid, rid, title, text in db.chunk_texts(missing):
            yield cid, rid, analyser.joined(title), analyser.joined(text)

    # ------------------------------------------------------------------ searching

    def search(
        self,
        terms: Terms,
        allowed: Allowed | None,
        limit: int,
        *,
        scope: Scope | None = None,
        per_record: int = 1,
    ) -> list[Found]:
        """The best `limit` records by BM25: see matches.py."""
        if (served := self._served) is None:
            return []
        with _watched():
            return served.search(terms, allowed, limit, scope=scope, per_record=per_record)

    def reach(self, terms: Terms, scope: Scope | None) -> float:
        """BM25 of a passage in which every word is as frequent as can count."""
        if (served := self._served) is None:
            return 0.0
        with _watched():
            return served.reach(terms, scope)

    def containing(self, phrases: Sequence[tuple[str, ...]]) -> npt.NDArray[np.int64]:
        """The records that have all of these, each with its tokens in a row in some chunk."""
        if (served := self._served) is None:
            return np.empty(0, dtype=np.int64)
        with _watched():
            return served.containing(phrases)

    def forget(self) -> None:
        """Give up what is there: the next `catch_up` makes it anew."""
        self._state_path.unlink(missing_ok=True)
        self._index = None
        self.committed = log.NOWHERE


class IndexDamagedError(StoreError):
    """Files of the index are not what was written."""


@contextlib.contextmanager
def _watched() -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        if _is_damage(error):
            raise IndexDamagedError(str(error)) from None
        raise


def _is_damage(error: BaseException) -> bool:
    # Rust's panics come as a BaseException of a class that cannot be imported.
    return isinstance(error, (OSError, ValueError)) or type(error).__name__ == "PanicException"


def _batches(numbers: Any, size: int = 500) -> Iterator[list[int]]:
    batch: list[int] = []
    for number in numbers:
        batch.append(number)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch
