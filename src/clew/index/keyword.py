"""The keyword index: BM25 by Tantivy over tokens from text/analyser.py, derived from the database.

One document per chunk, with four fields: `cid`, `rid`, `body`, `title`. Filters are sets of records
(filters.py), so a record's tags or importance can change without touching this index.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar
from zlib import crc32

import tantivy
from tantivy import Query as TantivyQuery

from clew.background import returned_memory
from clew.errors import StoreError
from clew.index.bm25 import KeywordSearcher
from clew.index.unflushed import CHECKED_AT_ONCE, FEWEST, ROOM, SHARE, DerivedIndex, WordTail
from clew.protocols import Progress, batched
from clew.storage import log, rows
from clew.storage.log import Changes
from clew.storage.snapshot import DerivedFolder, checksum
from clew.storage.tables import Tables
from clew.text import analyser

T = TypeVar("T")

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


class KeywordIndex(DerivedIndex[KeywordSearcher]):
    """Reads and maintains one Tantivy folder."""

    kinds = ("chunk", "gone")

    def __init__(self, derived: Path, store_id: str):
        identity = {"store": store_id, "format": FORMAT, "analyser": analyser.VERSION}
        fields = ("folder", "place", "docs", "deleted")
        super().__init__(
            DerivedFolder(derived / "keyword.json", *fields, identity=identity, prefix="keyword-")
        )
        self._schema = _schema()
        self._index: tantivy.Index | None = None
        self._name = ""
        """Of the folder that it is in."""
        self._deleted = 0
        self._beside: Any = None

    @property
    def room(self) -> int:
        return min(ROOM, max(FEWEST, int(SHARE * self._documents)))

    @property
    def _documents(self) -> int:
        return self._served.documents if self._served else 0

    def whole(self) -> bool:
        there = self._folder.folder({"folder": self._name}) / "meta.json"
        return super().whole() and there.exists()

    def load(self) -> bool:
        with self._lock:
            state = self._folder.state()
            if state is None or not (self._folder.folder(state) / "meta.json").exists():
                return False
            same = self._index is not None and state["folder"] == self._name
            if same and tuple(state["place"]) == self.committed:
                return True
            if not same and not self._examine(state):
                return False
            try:
                index = self._index if same else None
                index = index or self._open(self._folder.folder(state))
                index.reload()
                searcher = index.searcher()
            except BaseException as error:
                if _is_damage(error):
                    return False
                raise
            # Another count, or commit: a process died between its commit and its state, or is there
            # now; or files were lost.
            commit = _read_meta(self._folder.folder(state)).get("opstamp")
            if searcher.num_docs != state["docs"] or state.get("commit", commit) != commit:
                return False
            self._index, self._name, self._deleted = index, state["folder"], state["deleted"]
            self._publish_searcher(searcher, tuple(state["place"]))
            return True

    def _examine(self, state: Mapping[str, Any]) -> bool:
        """Whether the files are as they were written, as far as there is time to look."""
        folder = self._folder.folder(state)
        if "schema" in state and state["schema"] != _sum_schema(folder):
            return False
        files = list(segment_files(folder))
        self.checked = sum(map(_size, files)) <= CHECKED_AT_ONCE
        return not (self.checked and any(map(is_damaged, files)))

    def check_files(self, stopped: Callable[[], bool]) -> bool:
        for file in segment_files(self._folder.folder({"folder": self._name})):
            if stopped():
                return True
            if is_damaged(file):
                return False
        self.checked = True
        return True

    def _publish_searcher(self, searcher: tantivy.Searcher, place: log.Place) -> None:
        """Serve what is on disk now, with what is left of the tail."""
        old = self._served
        tail = old.tail.rebased(place) if old else WordTail(Changes(place, place))
        self._serve(KeywordSearcher(searcher, self._schema, tail), place)

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
                self._write(self._index, db, added, [*gone, *added], len(added), progress)
            except BaseException as error:
                if not _is_damage(error):
                    raise
                # Files that a killed writer left can be in the way. A full disk fails here again.
                self.rebuild(db, progress=progress)
                return
        self._publish(changes.place, expected=before + len(added))

    @property
    def purge_due(self) -> bool:
        """Deleted chunks still count in BM25's statistics, and only a rebuild takes them out."""
        share = PURGE_SHARE if self._documents > SOON_REBUILT else 0.0
        return self._deleted > share * self._documents

    def rebuild(self, db: Tables, *, progress: Progress | None = None) -> None:
        """A new index beside the old one, which is served until then. Under the derived lock."""
        place = log.head(db)
        total = db.execute("SELECT COUNT(*) FROM chunks").fetchone()[0]
        with self._folder.fresh() as folder:
            index = tantivy.Index(self._schema, str(folder))
            if total:
                numbers = (row[0] for row in db.execute("SELECT cid FROM chunks ORDER BY cid"))
                self._write(index, db, numbers, [], total, progress)
        self._index, self._name, self._deleted = index, folder.name, 0
        self.checked = True
        self._publish(place)
        self._folder.sweep(folder)

    def _publish(self, place: log.Place, *, expected: int = 0) -> None:
        """Serve what was written, in which there would be so many had none been deleted."""
        assert self._index is not None
        self._index.reload()
        searcher = self._index.searcher()
        docs = int(searcher.num_docs)
        self._deleted += max(0, expected - docs)
        state = {"folder": self._name, "place": place, "docs": docs, "deleted": self._deleted}
        folder = self._folder.folder(state)
        state |= {"schema": _sum_schema(folder), "commit": _read_meta(folder).get("opstamp")}
        self._folder.save(state)
        with self._lock:
            self._publish_searcher(searcher, place)

    @returned_memory()
    def _write(
        self,
        index: tantivy.Index,
        db: Tables,
        added: Iterable[int],
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
            for batch in batched(gone, 5_000):
                # by query: deletion by term takes a Python int for signed, and finds nothing
                query = TantivyQuery.term_set_query(self._schema, "cid", batch)
                writer.delete_documents_by_query(query)
            done = 0
            for batch in batched(added, 500):
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

    def _tokenised(self, db: Tables, cids: Sequence[int]) -> Iterator[tuple[int, int, str, str]]:
        """(chunk, record, title, text) as Tantivy is given them. What the tail has taken apart is
        not taken apart again: that would keep searches in other threads from the interpreter. But
        what is in no log any more may have numbers that others have now."""
        tail, missing = self._served.tail if self._served else None, []
        if tail is not None and log.since(db, tail.changes.place, at_most=0) is None:
            tail = None
        for cid in cids:
            if tail is None or (known := tail.passages.get(cid)) is None:
                missing.append(cid)
            else:
                title, body = (" ".join(known.tokens[field]) for field in ("title", "body"))
                yield cid, known.rid, title, body
        for cid, rid, name, text in rows.chunk_texts(db, missing):
            yield cid, rid, analyser.joined(name), analyser.joined(text)

    def ask(self, question: Callable[[KeywordSearcher], T], otherwise: T) -> T:
        """What the state that is served says; `otherwise` where there is none."""
        try:
            return otherwise if self._served is None else question(self._served)
        except BaseException as error:
            if _is_damage(error):
                raise IndexDamagedError(str(error)) from None
            raise

    def forget(self) -> None:
        super().forget()
        self._index = None


class IndexDamagedError(StoreError):
    """Files of the index are not what was written."""


def _is_damage(error: BaseException) -> bool:
    # Rust's panics come as a BaseException of a class that cannot be imported.
    return isinstance(error, (OSError, ValueError)) or type(error).__name__ == "PanicException"


def _read_meta(folder: Path) -> dict[str, Any]:
    try:
        meta = json.loads((folder / "meta.json").read_bytes())
    except (OSError, ValueError):
        return {}
    return meta if isinstance(meta, dict) else {}


def _sum_schema(folder: Path) -> int:
    """Of that part of what Tantivy says of its index that no commit changes."""
    meta = _read_meta(folder)
    return crc32(json.dumps([meta.get("schema"), meta.get("index_settings")]).encode())


def segment_files(folder: Path) -> Iterator[Path]:
    """Those that the last commit names: what a writer is at now is not whole yet."""
    for segment in _read_meta(folder).get("segments", ()):
        name = str(segment.get("segment_id", "")).replace("-", "")
        for file in folder.glob(f"{name}.*"):
            opstamp = (segment.get("deletes") or {}).get("opstamp")
            if file.suffix != ".del" or file.name == f"{name}.{opstamp}.del":
                yield file


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except FileNotFoundError:  # merged into another since
        return 0


def is_damaged(file: Path) -> bool:
    """Whether a file of Tantivy's is not what its footer says: JSON with a CRC-32 of all before it,
    then the JSON's length and a number that is always the same."""
    try:
        with file.open("rb") as stream:
            size = stream.seek(0, os.SEEK_END)
            stream.seek(max(0, size - 8))
            length = int.from_bytes(stream.read(4), "little")
            if stream.read(4) != _MAGIC or length > size - 8:
                return True
            stream.seek(size - 8 - length)
            footer = json.loads(stream.read(length))
        return bool(checksum(file, size - 8 - length) != footer["crc"])
    except FileNotFoundError:  # merged into another since
        return False
    except (OSError, ValueError, KeyError, TypeError):
        return True


_MAGIC = (1337).to_bytes(4, "little")
