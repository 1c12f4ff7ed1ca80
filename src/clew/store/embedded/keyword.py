"""The keyword index: BM25 by Tantivy over tokens from text/tokenise.py, derived from SQLite.

One document per chunk, with three fields: `cid`, `rid` and `body`. Filters are sets of records
(filters.py), so a record's tags or importance can change without touching this index.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import shutil
import sqlite3
import threading
import uuid
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tantivy
from tantivy import Occur
from tantivy import Query as TantivyQuery

from clew.errors import StoreError
from clew.protocols import Progress
from clew.store.embedded import log, rows
from clew.store.embedded.derived import read_state, write_state
from clew.store.embedded.filters import Allowed
from clew.store.embedded.scope import Scope
from clew.text import tokenise
from clew.types import Terms

__all__ = ["IndexDamagedError", "KeywordIndex"]

FORMAT = 2
BULK = 5_000
"""From this many changed chunks on, the writer gets a large buffer and both cores."""
K1 = 1.2
"""Tantivy's: how soon a word's repetition stops to count."""
PURGE_SHARE = 0.2
TITLE = 0.2
"""What a word in the title adds to its worth in the text (which has the title in it). Chosen
between 0, .2 and .5: CACM and CISI gain by it, SciFact's training queries lose a little."""
TIES = 1_000
"""Hits looked at past the limit to settle equal scores by id; more than that are as good as any."""
SMALL_SET = 400
"""A filter this selective is put to Tantivy as terms; a broader one is checked hit by hit, which
measures faster (a term costs more than a hit) and is just as exact: see `_ranked`."""

Found = tuple[int, int, float]
"""(rid, cid, score)"""


def _schema() -> tantivy.Schema:
    builder = tantivy.SchemaBuilder()
    builder.add_unsigned_field("cid", indexed=True, fast=True)
    builder.add_unsigned_field("rid", indexed=True, fast=True)
    builder.add_text_field("body", tokenizer_name="whitespace", index_option="position")
    builder.add_text_field("title", tokenizer_name="whitespace", index_option="freq")
    return builder.build()


class KeywordIndex:
    """Reads and maintains one Tantivy folder. Writing is serialised by the store's derived lock."""

    def __init__(self, derived: Path, store_id: str):
        self._derived = derived
        self._state_path = derived / "keyword.json"
        self._identity = {"store": store_id, "format": FORMAT, "analyser": tokenise.VERSION}
        self._schema = _schema()
        self._index: tantivy.Index | None = None
        self._searcher: tantivy.Searcher | None = None
        self._folder = ""
        self._deleted = 0
        self._beside: Any = None
        self._lock = threading.Lock()
        self.place = log.NOWHERE
        """How far the change log is applied in what this object serves."""

    @property
    def size(self) -> int:
        """Chunks indexed."""
        return self._searcher.num_docs if self._searcher else 0

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
            if same and tuple(state["place"]) == self.place:
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
            self._index, self._searcher, self.place = index, searcher, tuple(state["place"])
            self._folder, self._deleted = state["folder"], state["deleted"]
            return True

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

    def catch_up(self, db: sqlite3.Connection, *, progress: Progress | None = None) -> None:
        """Apply the change log; rebuild from the tables when that is not possible.

        Only under the store's derived lock.
        """
        changes = log.since(db, self.place) if self.load() else None
        if changes is None:
            self.rebuild(db, progress=progress)
            return
        added, gone = changes.numbers("chunk"), changes.numbers("gone")
        before = self.size
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
        self._publish(changes.place)
        self._deleted += max(0, before + len(added) - self.size)

    @property
    def purge_due(self) -> bool:
        """Deleted chunks still count in BM25's statistics, and only a rebuild takes them out."""
        return self._deleted > PURGE_SHARE * self.size

    def rebuild(self, db: sqlite3.Connection, *, progress: Progress | None = None) -> None:
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

    def _publish(self, place: log.Place) -> None:
        assert self._index is not None
        self._index.reload()
        searcher = self._index.searcher()
        state = {"place": place, "docs": searcher.num_docs, "deleted": self._deleted}
        write_state(self._state_path, {**self._identity, **state, "folder": self._folder})
        self._searcher, self.place = searcher, place

    def _write(
        self,
        index: tantivy.Index,
        db: sqlite3.Connection,
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
                for cid, rid, title, text in rows.chunk_texts(db, batch):
                    document = tantivy.Document()
                    document.add_unsigned("cid", cid)
                    document.add_unsigned("rid", rid)
                    document.add_text("body", tokenise.joined(text))
                    if title:
                        document.add_text("title", tokenise.joined(title))
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

    # ------------------------------------------------------------------ searching

    def search(
        self, terms: Terms, allowed: Allowed | None, limit: int, *, scope: Scope | None = None
    ) -> list[Found]:
        """The best `limit` records by BM25: all words first, any word when too few have all. Words
        are weighed by how rare they are within the scope, if there is one."""
        with _watched():
            return self._search(terms, allowed, limit, scope)

    def _search(
        self, terms: Terms, allowed: Allowed | None, limit: int, scope: Scope | None
    ) -> list[Found]:
        searcher = self._searcher
        if searcher is None or not terms or (allowed is not None and not allowed.count):
            return []
        phrases = [self._phrase(phrase) for phrase in terms.phrases]
        worth = self._worth(searcher, terms, scope)
        if terms.words and limit <= self._with_all(searcher, terms):
            every = [(Occur.Must, self._word(group, worth)) for group in terms.words]
            every += self._titled(searcher, [group[0] for group in terms.words], worth)
            found = self._ranked(
                searcher, _both(TantivyQuery.boolean_query(every), phrases), allowed, limit
            )
            if len(found) >= limit:
                return found
        tokens = dict.fromkeys(token for group in terms.words for token in group)
        anything = [(Occur.Should, self._weighed(token, worth)) for token in tokens]
        anything += [(Occur.Should, phrase) for phrase in phrases]
        anything += self._titled(searcher, tokens, worth)
        return self._ranked(searcher, TantivyQuery.boolean_query(anything), allowed, limit)

    def _with_all(self, searcher: tantivy.Searcher, terms: Terms) -> float:
        """About how many have all words, for a guess whether it is worth asking: no more than have
        the rarest one; each further word halves the logarithm of what is left, since the words of
        one query keep company."""
        total = max(1, searcher.num_docs)
        shares = sorted(
            max(searcher.doc_freq("body", token) for token in group) / total
            for group in terms.words
        )
        return total * float(math.prod(share**0.5**i for i, share in enumerate(shares)))

    def reach(self, terms: Terms, scope: Scope | None) -> float:
        """BM25 of a passage in which every word is as frequent as can count."""
        searcher = self._searcher
        if searcher is None:
            return 0.0
        with _watched():
            total, holders = self._statistics(searcher, terms, scope)
        rarities = (max(holders[token] for token in group) for group in terms.words)
        return (K1 + 1) * sum(_rarity(total, count) for count in rarities)

    def _worth(
        self, searcher: tantivy.Searcher, terms: Terms, scope: Scope | None
    ) -> Mapping[str, float]:
        """How much rarer (or more common) each word is in the scope than in all of the store."""
        if scope is None:
            return {}
        total, inside = self._statistics(searcher, terms, scope)
        return {
            token: _rarity(total, holders)
            / _rarity(searcher.num_docs, searcher.doc_freq("body", token))
            for token, holders in inside.items()
            if holders
        }

    def _statistics(
        self, searcher: tantivy.Searcher, terms: Terms, scope: Scope | None
    ) -> tuple[int, dict[str, float]]:
        """How many passages there are, and about how many of them have each word."""
        tokens = dict.fromkeys(token for group in terms.words for token in group)
        everywhere = {token: searcher.doc_freq("body", token) for token in tokens}
        total = searcher.num_docs
        if scope is None:
            return total, {token: float(count) for token, count in everywhere.items()}

        def count(token: str, allowed: Allowed) -> int:
            query = TantivyQuery.const_score_query(self._token(token), 1.0)
            hits = searcher.search(query, max(1, everywhere[token]), count=False).hits
            rids = searcher.fast_field_values("rid", [address for _, address in hits])
            return int(np.count_nonzero(allowed.of_rids(np.array(rids, dtype=np.int64))))

        return scope.passages, {
            token: scope.holders(token, everywhere[token], total, count) for token in tokens
        }

    def containing(self, phrase: tuple[str, ...]) -> npt.NDArray[np.int64]:
        """The records with a chunk that has these tokens in a row."""
        searcher = self._searcher
        if searcher is None or not searcher.num_docs:
            return np.empty(0, dtype=np.int64)
        with _watched():
            hits = searcher.search(self._phrase(phrase), searcher.num_docs, count=False).hits
            rids = searcher.fast_field_values("rid", [address for _, address in hits])
        return np.unique(np.array(rids, dtype=np.int64))

    def forget(self) -> None:
        """Give up what is there: the next `catch_up` makes it anew."""
        self._state_path.unlink(missing_ok=True)
        self._index = None
        self.place = log.NOWHERE

    def _token(self, token: str) -> TantivyQuery:
        if len(token) == 1 and tokenise.unspaced(token):
            # Unspaced scripts are indexed in pairs: one character is part of two of them.
            pattern = f".?{re.escape(token)}.?"
            return TantivyQuery.regex_query(self._schema, "body", pattern)
        return TantivyQuery.term_query(self._schema, "body", token, "freq")

    def _weighed(self, token: str, worth: Mapping[str, float]) -> TantivyQuery:
        query = self._token(token)
        return TantivyQuery.boost_query(query, worth[token]) if token in worth else query

    def _titled(
        self, searcher: tantivy.Searcher, tokens: Iterable[str], worth: Mapping[str, float]
    ) -> list[tuple[Occur, TantivyQuery]]:
        return [
            (
                Occur.Should,
                TantivyQuery.boost_query(self._in_title(token), TITLE * worth.get(token, 1.0)),
            )
            for token in tokens
            if searcher.doc_freq("title", token)
        ]

    def _in_title(self, token: str) -> TantivyQuery:
        return TantivyQuery.term_query(self._schema, "title", token, "freq")

    def _word(self, group: tuple[str, ...], worth: Mapping[str, float]) -> TantivyQuery:
        """A compound is there as its whole or as all of its parts."""
        whole = self._weighed(group[0], worth)
        if len(group) == 1:
            return whole
        each = [(Occur.Must, self._weighed(token, worth)) for token in group[1:]]
        parts = TantivyQuery.boolean_query(each)
        return TantivyQuery.boolean_query([(Occur.Should, whole), (Occur.Should, parts)])

    def _phrase(self, tokens: tuple[str, ...]) -> TantivyQuery:
        if len(tokens) == 1:
            return self._token(tokens[0])
        return TantivyQuery.phrase_query(self._schema, "body", list(tokens))

    def _ranked(
        self,
        searcher: tantivy.Searcher,
        query: TantivyQuery,
        allowed: Allowed | None,
        limit: int,
    ) -> list[Found]:
        """The best `limit` allowed records, exactly: asks deeper until they are there or all is
        seen. More than `limit` come back where scores at the cut are equal."""
        total = searcher.num_docs
        depth = limit + 16
        if allowed is not None:
            if allowed.count <= SMALL_SET:
                few = np.flatnonzero(allowed.mask).tolist()
                one_of = TantivyQuery.term_set_query(self._schema, "rid", few)
                scoreless = TantivyQuery.const_score_query(one_of, 0.0)
                query = TantivyQuery.boolean_query([(Occur.Must, scoreless), (Occur.Must, query)])
            else:
                depth = int(depth * max(1.0, total / allowed.count) * 1.2)
        while True:
            depth = min(max(depth, 1), max(total, 1))
            hits = searcher.search(query, depth, count=False).hits
            rids = searcher.fast_field_values("rid", [address for _, address in hits])
            best = _one_vote(rids, allowed)
            places = list(best.values())
            if len(hits) < depth or depth >= total:
                break
            if len(best) > limit and (
                hits[places[limit - 1]][0] > hits[-1][0] or len(best) > limit + TIES
            ):
                break
            depth *= 4
        last = hits[places[limit - 1]][0] if len(places) > limit else -1.0
        places = [i for i in places if hits[i][0] >= last]
        cids = searcher.fast_field_values("cid", [hits[i][1] for i in places])
        return [
            (int(rids[i] or 0), int(cid or 0), round(float(hits[i][0]), 6))
            for i, cid in zip(places, cids, strict=True)
        ]


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


def _rarity(total: float, holders: float) -> float:
    """Inverse document frequency, as Tantivy has it."""
    return math.log(1 + max(0.5, total - holders + 0.5) / (holders + 0.5))


def _one_vote(rids: list[Any], allowed: Allowed | None) -> dict[int, int]:
    """Record → the place of its best hit, for those allowed. Hits come best first."""
    best: dict[int, int] = {}
    if allowed is None:
        for i, rid in enumerate(rids):
            best.setdefault(rid, i)
        return best
    for i in np.flatnonzero(allowed.of_rids(np.array(rids, dtype=np.int64))).tolist():
        best.setdefault(rids[i], i)
    return best


def _both(query: TantivyQuery, phrases: list[TantivyQuery]) -> TantivyQuery:
    if not phrases:
        return query
    parts = [(Occur.Must, query), *((Occur.Should, phrase) for phrase in phrases)]
    return TantivyQuery.boolean_query(parts)


def _batches(numbers: Any, size: int = 500) -> Iterator[list[int]]:
    batch: list[int] = []
    for number in numbers:
        batch.append(number)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch
