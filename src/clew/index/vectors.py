"""The vector index of one model: float32 rows in a memory-mapped file, searched in stages.

    vectors-<model>/
      rows.f32    one row per position, append-only
      cids.i64    position → chunk        rids.i64    position → record
      dead.i64    positions that were replaced or removed, append-only
      state.json  how much of each file counts, how far the change log is applied, what is sealed
      ivf-*.faiss the sealed inverted lists over the first positions, in rough codes

Below `threshold` rows every search is exact. Above it, sealed inverted lists give more candidates
than asked, which are scored again from the exact rows; rows added since are scanned. A filter
that leaves few rows is always answered exactly.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO
from zlib import crc32

import numpy as np

from clew.index.inverted_lists import InvertedLists, build_lists, dot
from clew.index.unflushed import (
    CHECKED_AT_ONCE,
    ChunkScore,
    DerivedIndex,
    Numbers,
    cut_ranking,
    level_scores,
    merge_rankings,
)
from clew.protocols import Progress
from clew.storage import log
from clew.storage.filters import Allowed
from clew.storage.log import Changes, Place
from clew.storage.ownership import open_private
from clew.storage.rows import vector_rows
from clew.storage.snapshot import DerivedFolder, State, checksum
from clew.storage.tables import Tables
from clew.types import Vector, Vectors

FORMAT = 2
TAIL_SHARE = 0.02
"""The sealed part is renewed when more than this share of the rows lies outside it (and at least
TAIL_ROWS do: below that a scan is cheaper than any index)."""
TAIL_ROWS = 5_000
READ = 1_000
"""Chunks whose vectors are read at a time."""
EXACT_ROWS = 20_000
"""With a filter that leaves at most this many rows, scoring them all beats probing for them."""
DEEP = 50
"""When more than one row in this many is wanted, all are scored."""
FILTERS = 32
"""Filters whose positions are kept."""
NONE: Numbers = np.empty(0, np.int64)

Nearest = tuple[Numbers, Vectors]
"""Positions and their scores, best first."""


class VectorFiles:
    """One consistent state of the files, mapped (or as many rows in memory); never changed."""

    def __init__(
        self,
        rows: Vectors,
        cids: Numbers,
        rids: Numbers,
        dead: Numbers = NONE,
        lists: InvertedLists | None = None,
    ):
        """`dead` are positions that were replaced or removed."""
        self.rows, self.cids, self.rids, self.lists = rows, cids, rids, lists
        self.count, self.dead = len(rows), len(dead)
        self.alive = np.ones(self.count, np.bool_)
        self.alive[dead] = False
        self._filtered: OrderedDict[int, tuple[Allowed, Numbers]] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def listed(self) -> int:
        """How many rows are in inverted lists."""
        return self.lists.count if self.lists else 0

    @cached_property  # which takes a millisecond or two
    def _newest_chunk(self) -> int:
        return int(self.cids.max(initial=0))

    @cached_property
    def _newest_record(self) -> int:
        return int(self.rids.max(initial=0))

    def places_of(self, cids: Numbers) -> Numbers:
        """The positions of these chunks. Most are new, and nowhere."""
        known = cids[cids <= self._newest_chunk] if len(cids) else cids
        if not len(known):
            return NONE
        return np.flatnonzero(np.isin(self.cids, known) & self.alive).astype(np.int64)

    def _allowed_places(self, allowed: Allowed) -> Numbers:
        """The positions of allowed records. Kept for the next search with the same filter: to go
        through a million rows takes longer than the search itself."""
        key = id(allowed)
        with self._lock:
            kept = self._filtered.get(key)
            if kept is not None and kept[0] is allowed:
                self._filtered.move_to_end(key)
                return kept[1]
        places = np.flatnonzero(allowed.of_rids(self.rids) & self.alive)
        with self._lock:
            self._filtered[key] = allowed, places
            while len(self._filtered) > FILTERS:
                self._filtered.popitem(last=False)
        return places

    def search(
        self, query: Vector, allowed: Allowed | None, masked: Numbers, limit: int, per_record: int
    ) -> list[ChunkScore]:
        """The best `limit` records, without what is masked, so many entries each; more than that
        where scores at the cut are equal."""
        if self.count == self.dead:
            return []
        places = None
        # A set of all is no restriction, unless somebody has added to the rows meanwhile.
        if allowed is not None and not (allowed.whole and self._newest_record < len(allowed.mask)):
            places = self._allowed_places(allowed)
            if not len(places):
                return []
        total = self.count - self.dead if places is None else len(places)
        want = limit + 16
        while True:
            at, scores = self._nearest(query, places, total, want)
            if len(masked):
                current = ~np.isin(at, masked)
                at, scores = at[current], scores[current]
            rids = self.rids[at]
            ranked = level_scores(scores.astype(np.float64)).round(6)
            _, firsts = np.unique(rids, return_index=True)
            firsts.sort()  # where each record's best row is
            cut = ranked[firsts[limit - 1]] if len(firsts) > limit else -np.inf
            if want >= total or cut > ranked[-1]:
                if per_record == 1:
                    at, rids, ranked = at[firsts], rids[firsts], ranked[firsts]
                keep = int(np.searchsorted(-ranked, -cut, side="right"))
                cids = self.cids[at[:keep]].tolist()
                found = zip(rids[:keep].tolist(), cids, ranked[:keep].tolist(), strict=True)
                return list(found) if per_record == 1 else cut_ranking(found, len(rids), per_record)
            want *= 4

    def _nearest(self, query: Vector, places: Numbers | None, total: int, want: int) -> Nearest:
        """The best `want` of these positions (None: of all that are alive), best first."""
        lists = self.lists
        few = places is not None and len(places) <= EXACT_ROWS
        if lists is not None and places is not None and not few:
            # fewer rows than the probes would look at: scoring them is cheaper, and exact
            few = len(places) * lists.state["lists"] <= lists.state["probes"] * lists.count
        # So deep into the list that most inverted lists would have to be looked at.
        if lists is None or few or want * DEEP > total:
            return self._exact(query, self._living(0) if places is None else places, want)
        if places is None:
            # The dead are found and dropped: leaving them out in FAISS takes a bitmap of all.
            inside, tail = None, self._living(lists.count)
            alive = self.alive if self.dead else None
        else:
            inside, tail, alive = places[places < lists.count], places[places >= lists.count], None
        candidates = lists.candidates(query, self.rows, want, inside=inside, alive=alive)
        at, scores = self._exact(query, candidates, want)
        if len(tail):
            more, others = self._exact(query, tail, want)
            at, scores = np.concatenate([at, more]), np.concatenate([scores, others])
            order = np.lexsort((at, -scores))[:want]
            at, scores = at[order], scores[order]
        if len(at) < min(want, total):  # a filter along cluster borders: look at everything
            return self._exact(query, self._living(0) if places is None else places, want)
        return at, scores

    def _living(self, first: int) -> Numbers:
        if not self.dead:
            return np.arange(first, self.count)
        return first + np.flatnonzero(self.alive[first:])

    def _exact(self, query: Vector, places: Numbers, want: int) -> Nearest:
        n = len(places)
        if not n:
            return places, np.empty(0, np.float32)
        first, last = int(places[0]), int(places[-1]) + 1
        if last - first == n:
            scores = dot(self.rows[first:last], query)
        elif n * 4 > self.count:  # most rows: one sweep beats picking them
            scores = dot(self.rows[first:last], query)[places - first]
        else:
            scores = dot(self.rows[places], query)
        if n > want:
            top = np.argpartition(-scores, want)[:want]
            scores, places = scores[top], places[top]
        order = np.lexsort((places, -scores))
        return places[order], scores[order]


class VectorTail:
    """One state of the tail; never changed. Later states may share the table of rows with it, and
    write only behind those that it knows of."""

    def __init__(
        self,
        changes: Changes,
        table: Vectors,
        cids: Numbers = NONE,
        rids: Numbers = NONE,
        dead: Numbers = NONE,
        masked: Numbers = NONE,
    ):
        self.changes = changes
        self.masked = masked
        """Positions in the files that were replaced or removed."""
        self._table = table
        """With room for more rows than there are."""
        self.memory = VectorFiles(table[: len(cids)], cids, rids, dead)

    def extended(self, changes: Changes, db: Tables, model: str, files: VectorFiles) -> VectorTail:
        """With what these name, as it is in the tables now."""
        table, memory = self._table, self.memory
        added = sorted(changes.numbers("vector"))
        rows = vector_rows(db, added, model=model, dim=table.shape[1]) if added else []
        touched = np.array(changes.numbers("vector", "gone"), np.int64)
        total = memory.count + len(rows)
        if total > len(table):
            table = np.empty((2 * total, table.shape[1]), np.float32)
            table[: memory.count] = memory.rows
        for i, (_, _, row) in enumerate(rows, start=memory.count):
            table[i] = row
        more = files.places_of(touched)
        return VectorTail(
            self.changes.extended(changes.rows),
            table,
            np.append(memory.cids, np.array([row[0] for row in rows], np.int64)),
            np.append(memory.rids, np.array([row[1] for row in rows], np.int64)),
            np.flatnonzero(~memory.alive | np.isin(memory.cids, touched)),
            np.union1d(self.masked, more) if len(more) else self.masked,
        )

    def rebased(self, base: Place, files: VectorFiles) -> VectorTail:
        """What is left of it when the files, as they are now, have all up to `base`."""
        changes, memory = self.changes.rebased(base), self.memory
        if changes is self.changes and not len(self.masked):
            return self
        keep = memory.alive & np.isin(memory.cids, changes.numbers("vector"))
        touched = np.array(changes.numbers("vector", "gone"), np.int64)
        left = memory.rows[keep], memory.cids[keep], memory.rids[keep]
        return VectorTail(changes, *left, masked=files.places_of(touched))


class VectorSearcher:
    """One state of a vector index: its files, and the tail. Replaced as a whole."""

    def __init__(self, model: str, files: VectorFiles, tail: VectorTail):
        self.model, self.files, self.tail = model, files, tail

    @property
    def size(self) -> int:
        files, memory = self.files, self.tail.memory
        masked = len(self.tail.masked)
        return files.count - files.dead - masked + memory.count - memory.dead

    def extended(self, db: Tables, changes: Changes) -> VectorSearcher:
        tail = self.tail.extended(changes, db, self.model, self.files)
        return VectorSearcher(self.model, self.files, tail)

    def search(
        self, query: Vector, allowed: Allowed | None, limit: int, per_record: int = 1
    ) -> list[ChunkScore]:
        """The best `limit` records by inner product, so many entries each; more than that where
        scores at the cut are equal."""
        if allowed is not None and not allowed.count:
            return []
        found = self.files.search(query, allowed, self.tail.masked, limit, per_record)
        more = self.tail.memory.search(query, allowed, NONE, limit, per_record)
        return merge_rankings(found, more, limit, per_record)


# ---------------------------------------------------------------------- the files


@contextlib.contextmanager
def open_at(path: Path, offset: int) -> Iterator[BinaryIO]:
    """Open for writing from `offset` on; what a process that died had begun to add is cut off."""
    with os.fdopen(open_private(path, os.O_RDWR | os.O_CREAT), "r+b") as file:
        file.truncate(offset)
        file.seek(offset)
        yield file


def folder_name(model: str) -> str:
    return "vectors-" + "".join(c if c.isalnum() or c in "-_." else "_" for c in model)


def discard(place: Path) -> None:
    """Remove an index; what says that it is whole, first."""
    (place / "state.json").unlink(missing_ok=True)
    shutil.rmtree(place, ignore_errors=True)


class VectorIndex(DerivedIndex[VectorSearcher]):
    """Reads and maintains one folder."""

    kinds = ("vector", "gone")

    def __init__(self, place: Path, store_id: str, *, model: str, dim: int, threshold: int):
        identity = {"store": store_id, "format": FORMAT, "model": model, "dim": dim}
        fields = ("place", "count", "dead", "sealed", "sums", "epoch")
        super().__init__(DerivedFolder(place / "state.json", *fields, identity=identity))
        self._place = place
        self.dim, self.model, self._threshold = dim, model, threshold
        self._sums = {"cids.i64": 0, "rids.i64": 0, "dead.i64": 0, "rows.f32": 0}
        self._epoch = ""
        """Changes when the rows are started over."""

    @property
    def files(self) -> VectorFiles | None:
        return self._served.files if self._served else None

    @property
    def stage(self) -> dict[str, Any]:
        files = self.files
        if files is None or files.lists is None:
            return {"stage": "exact", "rows": self.size, "recall": 1.0}
        return {
            "stage": "inverted lists",
            "rows": self.size,
            "sealed": files.listed,
            "tail": files.count - files.listed,
            **{key: files.lists.state[key] for key in ("lists", "probes", "recall")},
        }

    def search(
        self, query: Vector, allowed: Allowed | None, limit: int, per_record: int = 1
    ) -> list[ChunkScore]:
        served = self._served
        return [] if served is None else served.search(query, allowed, limit, per_record)

    # ------------------------------------------------------------------ catching up

    def load(self) -> bool:
        with self._lock:
            if (state := self._folder.state()) is None:
                return False
            files = self.files
            if files is not None and tuple(state["place"]) == self.committed:
                name = files.lists.name if files.lists else None
                if (state["sealed"] or {}).get("name") == name and state["count"] == files.count:
                    return True
            try:
                if files is None and not self._undamaged(state):
                    return False
                files = self._map(state)
            except (OSError, ValueError):
                return False
            self._epoch, self._sums = state["epoch"], dict(state["sums"])
            self._publish(files, tuple(state["place"]))
            return True

    def _publish(self, files: VectorFiles, place: Place) -> None:
        """Serve what is on disk now, with what is left of the tail."""
        if self._served is None:
            tail = VectorTail(Changes(place, place), np.empty((0, self.dim), np.float32))
        else:
            tail = self._served.tail.rebased(place, files)
        self._serve(VectorSearcher(self.model, files, tail), place)

    def _undamaged(self, state: State) -> bool:
        """Whether the files are as written: garbled, they would give wrong answers. Rows that are
        too many to look at on opening are looked at later: see `check_files`."""
        few = 4 * self.dim * state["count"] <= CHECKED_AT_ONCE
        self.checked = few and not state["sealed"]
        names = (name for name in self._sums if few or name != "rows.f32")
        return all(self._is_sound(name, state) for name in names)

    def _is_sound(self, name: str, state: State, stopped: Callable[[], bool] | None = None) -> bool:
        count = state["dead" if name == "dead.i64" else "count"]
        size = count * (4 * self.dim if name == "rows.f32" else 8)
        known = state["sums"][name]
        if not size:
            return not known
        return checksum(self._place / name, size, stopped) in (known, None)

    def check_files(self, stopped: Callable[[], bool]) -> bool:
        state = self._folder.state()
        try:
            if state is not None and not self._is_sound("rows.f32", state, stopped):
                return False
            sealed = state["sealed"] if state is not None else None
            if sealed and "checksum" in sealed:
                found = checksum(self._place / sealed["name"], None, stopped)
                if found not in (sealed["checksum"], None):
                    return False
        except FileNotFoundError:  # made anew since, or lists renewed: looked at the next time
            return True
        self.checked = not stopped()
        return True

    def _map(self, state: State) -> VectorFiles:
        count = state["count"]

        def file(name: str, dtype: str, *shape: int) -> Any:
            if not shape[0]:
                return np.empty(shape, dtype)
            # fails with ValueError when the file is shorter than the state says
            # as a plain array: np.memmap's own indexing costs a microsecond or two each time
            return np.asarray(np.memmap(self._place / name, dtype=dtype, mode="r", shape=shape))

        lists, old = None, self.files.lists if self.files else None
        if state["sealed"] and "margin" in state["sealed"]:  # else of an older form: renewed soon
            same = old is not None and old.name == state["sealed"]["name"]
            lists = old if same else InvertedLists.open(self._place, state["sealed"])
        return VectorFiles(
            file("rows.f32", "<f4", count, self.dim),
            file("cids.i64", "<i8", count),
            file("rids.i64", "<i8", count),
            file("dead.i64", "<i8", state["dead"]),
            lists,
        )

    def catch_up(self, db: Tables, *, progress: Progress | None = None) -> None:
        state = self._folder.state() if self.load() else None
        changes = log.since(db, self.committed) if state else None
        files = self.files
        if state is None or changes is None or files is None:
            discard(self._place)  # what is mapped stays served till then
            self._place.mkdir(parents=True)
            query = "SELECT cid FROM vectors WHERE embedding_model = ? ORDER BY cid"
            added = [row[0] for row in db.execute(query, (self.model,))]
            place = log.head(db)
            self._epoch = uuid.uuid4().hex
            self._sums = dict.fromkeys(self._sums, 0)
            self.checked = True
            self._save(place, self._append(db, added, 0, progress), 0, None)
            return
        self._sums = dict(state["sums"])  # a write that failed, on a full disk, has added to them
        added, gone = changes.numbers("vector"), changes.numbers("gone")
        dead = self._bury(files, [*gone, *added])
        count = self._append(db, added, files.count, progress)
        self._save(changes.place, count, dead, files.lists.state if files.lists else None)

    def _save(self, place: Place, count: int, dead: int, sealed: State | None) -> None:
        state = {"place": place, "count": count, "dead": dead, "sealed": sealed}
        state |= {"sums": self._sums, "epoch": self._epoch}
        files = self._map(self._folder.save(state))
        with self._lock:
            self._publish(files, place)

    def _bury(self, files: VectorFiles, cids: list[int]) -> int:
        """Note the positions of these chunks as no longer current; how many are in all."""
        places = files.places_of(np.array(cids, np.int64)).astype("<i8")
        if not len(places):  # as with every bulk load
            return files.dead
        with open_at(self._place / "dead.i64", 8 * files.dead) as file:
            self._add(file, "dead.i64", places.tobytes())
        return files.dead + len(places)

    def _add(self, file: BinaryIO, name: str, data: bytes) -> None:
        file.write(data)
        self._sums[name] = crc32(data, self._sums[name])

    def _append(
        self, db: Tables, cids: Sequence[int], count: int, progress: Progress | None
    ) -> int:
        """Rows for these chunks after the first `count`; how many there are then."""
        if not cids:
            return count
        widths = {"rows.f32": 4 * self.dim, "cids.i64": 8, "rids.i64": 8}
        with contextlib.ExitStack() as stack:
            files = {
                name: stack.enter_context(open_at(self._place / name, count * width))
                for name, width in widths.items()
            }
            for i in range(0, len(cids), READ):
                rows = vector_rows(db, cids[i : i + READ], model=self.model, dim=self.dim)
                self._add(files["rows.f32"], "rows.f32", b"".join(row[2].data for row in rows))
                for field, name in enumerate(("cids.i64", "rids.i64")):
                    numbers = np.array([row[field] for row in rows], "<i8")
                    self._add(files[name], name, numbers.tobytes())
                count += len(rows)
                if progress:
                    progress("vector index", min(i + READ, len(cids)), len(cids))
        return count

    # ------------------------------------------------------------------ sealing

    def seal_due(self, *, waiting: bool = False) -> bool:
        """Whether it is worth new lists while others search; or, less of it, where somebody is
        waiting for the best shape anyway."""
        files = self.files
        if files is None or files.count < self._threshold:
            return False
        buried = files.dead - (files.lists.state["dead"] if files.lists else 0)
        least = 0 if waiting else TAIL_ROWS
        return files.count - files.listed > max(least, TAIL_SHARE * files.count) or (
            buried > max(TAIL_ROWS, 2 * TAIL_SHARE * files.count)
        )

    @property
    def mostly_unlisted(self) -> bool:
        """Whether more rows than not are scanned one by one, and they are many."""
        files = self.files
        return files is not None and 2 * files.listed < files.count >= self._threshold

    def build_lists(self, progress: Progress | None, *, stopped: Callable[[], bool]) -> State:
        """Make new inverted lists beside the old ones. Slow, and needs no lock: rows don't move."""
        files, epoch = self.files, self._epoch
        assert files is not None
        try:
            state = build_lists(
                self._place,
                files.rows,
                dead=files.dead,
                previous=files.lists,
                progress=progress,
                stopped=stopped,
            )
        except (OSError, RuntimeError) as error:
            now = self._folder.state()
            if now is None or now["epoch"] != epoch:
                raise InterruptedError("the rows were started over meanwhile") from error
            raise
        return {**state, "epoch": epoch}

    @property
    def compact_due(self) -> bool:
        """More rows are dead than alive."""
        files = self.files
        return files is not None and files.dead > max(1000, files.count - files.dead)

    def adopt_lists(self, sealed: State) -> None:
        """Swap them in, under the derived lock, unless the rows were started over since."""
        whole = self.load() and self._epoch == sealed["epoch"]
        if whole and self.files is not None and (self._place / sealed["name"]).exists():
            self._save(self.committed, self.files.count, self.files.dead, sealed)
            for path in self._place.glob("ivf-*"):  # older lists, and what a killed build left
                if path.name != sealed["name"]:
                    path.unlink(missing_ok=True)  # those who have it mapped keep it
