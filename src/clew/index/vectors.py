"""The vector index of one model: float32 rows in a memory-mapped file, searched in stages.

    vectors-<model>/
      rows-*.f32  one row per position from the `first` on, append-only
      cids.i64    position → chunk        rids.i64    position → record
      dead.i64    positions that were replaced or removed, append-only
      state.json  how much of each file counts, how far the change log is applied, what is sealed
      ivf-*.faiss the sealed inverted lists over the first positions, in rough codes

Below `threshold` rows every search is exact. Above it, sealed inverted lists give more candidates
than asked, which are scored again from the exact rows; rows added since are scanned. A filter
that leaves few rows is always answered exactly.

Rows of the lists are read a hundred or two a search. Where the database gives so few in next to no
time, their copies here are dropped when there is time to (`drop_sealed`): they are the largest part
of an index.
"""

from __future__ import annotations

import contextlib
import os
import re
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

FORMAT = 3
TAIL_SHARE = 0.02
"""The sealed part is renewed when more than this share of the rows lies outside it (and at least
TAIL_ROWS do: below that a scan is cheaper than any index)."""
TAIL_ROWS = 5_000
READ = 1_000
"""Chunks whose vectors are read at a time."""
EXACT_ROWS = 2_000
"""With a filter that leaves at most this many rows, scoring them all beats probing for them."""
DEEP = 50
"""When more than one row in this many is wanted, all lists are looked at."""
FILTERS, POSITIONS = 32, 8_000_000
"""Filters whose positions are kept, and positions of all of them: 64 MB."""
NONE: Numbers = np.empty(0, np.int64)
ROWS = "rows"
"""What the checksum of the file of rows goes by, which has another name whenever it is begun."""
ROWS_NAME = re.compile(r"rows-[0-9a-f]{12}\.f32")

Nearest = tuple[Numbers, Vectors]
"""Positions and their scores, best first."""


class TableRows:
    """The rows of chunks as the tables have them; NaN where there is none (any more)."""

    def __init__(self, reader: Callable[[], Tables], model: str, dim: int):
        """`reader` is asked for a connection when the first row is: a small store needs none."""
        self._reader, self._model, self._dim = reader, model, dim
        self.lacking = False
        """Whether any was asked for that is not there."""

    def __call__(self, cids: Numbers) -> Vectors:
        wanted = cids.tolist()
        got, rows = self._reader().vectors_of(wanted, self._model, self._dim)
        if got == wanted:
            return rows
        self.lacking = True
        every = np.full((len(wanted), self._dim), np.nan, np.float32)
        places = {cid: place for place, cid in enumerate(wanted)}
        every[[places[cid] for cid in got]] = rows
        return every


class PlacedRows:
    """All rows by position: those that have no copy in the file, as the tables have them."""

    def __init__(self, files: VectorFiles, read: TableRows):
        self._files, self._read = files, read
        self.shape = files.count, files.rows.shape[1]

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, places: slice | Numbers) -> Vectors:
        """Of positions in order."""
        files = self._files
        if isinstance(places, slice):
            start, stop, _ = places.indices(len(self))
            if start >= files.first:
                return files.rows[start - files.first : stop - files.first]
            places = np.arange(start, stop)
        cut = int(np.searchsorted(places, files.first))
        if not cut:
            return files.rows[places - files.first if files.first else places]
        rows = self._read(files.cids[places[:cut]])
        if cut == len(places):
            return rows
        return np.concatenate([rows, files.rows[places[cut:] - files.first]])


class VectorFiles:
    """One consistent state of the files, mapped (or as many rows in memory); never changed."""

    def __init__(
        self,
        rows: Vectors,
        cids: Numbers,
        rids: Numbers,
        dead: Numbers = NONE,
        lists: InvertedLists | None = None,
        first: int = 0,
    ):
        """`dead` are positions that were replaced or removed; rows are from the `first` on."""
        self.rows, self.cids, self.rids, self.lists, self.first = rows, cids, rids, lists, first
        self.count, self.dead = len(cids), len(dead)
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
            held = sum(len(of) for _, of in self._filtered.values())
            while len(self._filtered) > 1 and (len(self._filtered) > FILTERS or held > POSITIONS):
                held -= len(self._filtered.popitem(last=False)[1][1])
        return places

    def search(
        self,
        query: Vector,
        allowed: Allowed | None,
        masked: Numbers,
        limit: int,
        per_record: int,
        read: TableRows,
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
        want, every = limit + 16, PlacedRows(self, read)
        while True:
            at, scores = self._nearest(query, places, total, want, every)
            if len(masked):
                current = ~np.isin(at, masked)
                at, scores = at[current], scores[current]
            if not len(at):
                if want >= total:
                    return []
                want *= 4
                continue
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

    def _nearest(
        self, query: Vector, places: Numbers | None, total: int, want: int, rows: PlacedRows
    ) -> Nearest:
        """The best `want` of these positions (None: of all that are alive), best first."""
        lists = self.lists
        if lists is None or (places is not None and len(places) <= EXACT_ROWS):
            every = self._living(0) if places is None else places
            return _best(query, every, rows, want)
        # So deep into the list, or so few are allowed, that most lists would be looked at anyway.
        among = self.count if places is None else len(places)
        everywhere = want * DEEP > total or (
            among * lists.state["lists"] <= lists.state["probes"] * lists.count
        )
        if places is None:
            # The dead are found and dropped: leaving them out in FAISS takes a bitmap of all.
            inside, tail = None, self._living(lists.count)
            alive = self.alive if self.dead else None
        else:
            inside, tail, alive = places[places < lists.count], places[places >= lists.count], None
        while True:
            candidates = lists.candidates(
                query, want, inside=inside, alive=alive, everywhere=everywhere
            )
            at, scores = _best(query, candidates, rows, want)
            if len(tail):
                more, others = _best(query, tail, rows, want)
                at, scores = np.concatenate([at, more]), np.concatenate([scores, others])
                order = np.lexsort((at, -scores))[:want]
                at, scores = at[order], scores[order]
            if everywhere or len(at) >= min(want, total):
                return at, scores
            everywhere = True  # a filter along cluster borders

    def _living(self, first: int) -> Numbers:
        if not self.dead:
            return np.arange(first, self.count)
        return first + np.flatnonzero(self.alive[first:])


def _best(query: Vector, places: Numbers, rows: PlacedRows, want: int) -> Nearest:
    n = len(places)
    if not n:
        return places, np.empty(0, np.float32)
    first, last = int(places[0]), int(places[-1]) + 1
    if last - first == n:
        scores = dot(rows[first:last], query)
    elif n * 4 > len(rows):  # most rows: one sweep beats picking them
        scores = dot(rows[first:last], query)[places - first]
    else:
        scores = dot(rows[places], query)
    if (there := ~np.isnan(scores)).sum() < n:
        places, scores = places[there], scores[there]
    if len(places) > want:
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

    def bare(self, place: Place) -> VectorSearcher:
        rows = np.empty((0, self.files.rows.shape[1]), np.float32)
        return VectorSearcher(self.model, self.files, VectorTail(Changes(place, place), rows))

    def search(
        self,
        read: TableRows,
        query: Vector,
        allowed: Allowed | None,
        limit: int,
        per_record: int = 1,
    ) -> list[ChunkScore]:
        """The best `limit` records by inner product, so many entries each; more than that where
        scores at the cut are equal."""
        if allowed is not None and not allowed.count:
            return []
        found = self.files.search(query, allowed, self.tail.masked, limit, per_record, read)
        more = self.tail.memory.search(query, allowed, NONE, limit, per_record, read)
        return merge_rankings(found, more, limit, per_record)


# ---------------------------------------------------------------------- the files


@contextlib.contextmanager
def open_at(path: Path, offset: int) -> Iterator[BinaryIO]:
    """Open for writing from `offset` on; what a process that died had begun to add is cut off."""
    with os.fdopen(open_private(path, os.O_RDWR | os.O_CREAT), "r+b") as file:
        file.truncate(offset)
        file.seek(offset)
        yield file


def _name_rows() -> str:
    return f"rows-{uuid.uuid4().hex[:12]}.f32"


def folder_name(model: str, prefix: str = "vectors-") -> str:
    """Another one for each model: where a file cannot have its name, a checksum follows."""
    name = "".join(c if c.isalnum() or c in "-_.@" else "_" for c in model)
    told = crc32(model.encode("utf-8", "surrogatepass"))
    return prefix + (name if name == model else f"{name}-{told:08x}")


def discard(place: Path) -> None:
    """Remove an index; what says that it is whole, first."""
    (place / "state.json").unlink(missing_ok=True)
    shutil.rmtree(place, ignore_errors=True)


class VectorIndex(DerivedIndex[VectorSearcher]):
    """Reads and maintains one folder."""

    kinds = ("vector", "gone")

    def __init__(self, place: Path, store_id: str, *, model: str, dim: int, threshold: int):
        identity = {"store": store_id, "format": FORMAT, "model": model, "dim": dim}
        fields = ("place", "count", "dead", "sealed", "rows", "first", "sums", "epoch")
        super().__init__(DerivedFolder(place / "state.json", *fields, identity=identity))
        self._place = place
        self.dim, self.model, self._threshold = dim, model, threshold
        self._state: State = {}
        """What is served says this of itself; replaced as a whole, never changed."""

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
        self,
        read: TableRows,
        query: Vector,
        allowed: Allowed | None,
        limit: int,
        per_record: int = 1,
    ) -> list[ChunkScore]:
        served = self._served
        return [] if served is None else served.search(read, query, allowed, limit, per_record)

    # ------------------------------------------------------------------ catching up

    def _read_state(self) -> State | None:
        """`epoch` changes when the rows are started over."""
        state = self._folder.state()
        return state if state and ROWS_NAME.fullmatch(str(state["rows"])) else None

    def load(self) -> bool:
        with self._lock:
            if (state := self._read_state()) is None:
                return False
            if self.files is not None and state == self._state:
                return True
            try:
                if self.files is None and not self._undamaged(state):
                    return False
                self._publish(self._map(state), state)
            except (OSError, ValueError):
                return False
            return True

    def _publish(self, files: VectorFiles, state: State) -> None:
        """Serve what is on disk now, with what is left of the tail."""
        place = tuple(state["place"])
        self._state = state
        if self._served is None:
            tail = VectorTail(Changes(place, place), np.empty((0, self.dim), np.float32))
        else:
            tail = self._served.tail.rebased(place, files)
        self._serve(VectorSearcher(self.model, files, tail), place)

    def _undamaged(self, state: State) -> bool:
        """Whether the files are as written: garbled, they would give wrong answers. Rows that are
        too many to look at on opening are looked at later: see `check_files`."""
        few = 4 * self.dim * (state["count"] - state["first"]) <= CHECKED_AT_ONCE
        self.checked = few and not state["sealed"]
        names = (name for name in state["sums"] if few or name != ROWS)
        return all(self._is_sound(name, state) for name in names)

    def _is_sound(self, name: str, state: State, stopped: Callable[[], bool] | None = None) -> bool:
        size = 8 * state["dead" if name == "dead.i64" else "count"]
        if name == ROWS:
            size = 4 * self.dim * (state["count"] - state["first"])
        known = state["sums"][name]
        if not size:
            return not known
        file = self._place / (state["rows"] if name == ROWS else name)
        return checksum(file, size, stopped) in (known, None)

    def check_files(self, stopped: Callable[[], bool]) -> bool:
        state = self._read_state()
        try:
            if state is not None and not self._is_sound(ROWS, state, stopped):
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
        if state["sealed"]:
            same = old is not None and old.name == state["sealed"]["name"]
            lists = old if same else InvertedLists.open(self._place, state["sealed"])
        return VectorFiles(
            file(state["rows"], "<f4", count - state["first"], self.dim),
            file("cids.i64", "<i8", count),
            file("rids.i64", "<i8", count),
            file("dead.i64", "<i8", state["dead"]),
            lists,
            state["first"],
        )

    def catch_up(self, db: Tables, *, progress: Progress | None = None) -> None:
        state = self._read_state() if self.load() else None
        changes = log.since(db, self.committed) if state else None
        files = self.files
        if state is None or changes is None or files is None:
            discard(self._place)  # what is mapped stays served till then
            self._place.mkdir(parents=True, exist_ok=True)  # lists may be being written there
            query = "SELECT cid FROM vectors WHERE embedding_model = ? ORDER BY cid"
            added = [row[0] for row in db.execute(query, (self.model,))]
            place, epoch = log.head(db), uuid.uuid4().hex
            sums = {"cids.i64": 0, "rids.i64": 0, "dead.i64": 0, ROWS: 0}
            state = {"count": 0, "dead": 0, "sealed": None, "sums": sums, "epoch": epoch}
            state |= {"rows": _name_rows(), "first": 0}
            self.checked = True
        else:
            added, gone = changes.numbers("vector"), changes.numbers("gone")
            self._bury(files, [*gone, *added], state)
            place = changes.place
        self._append(db, added, state, progress)
        self._save(state, place)

    def _save(self, state: State, place: Place) -> None:
        whole = self._folder.save(state | {"place": list(place)})
        files = self._map(whole)
        with self._lock:
            self._publish(files, whole)

    def _bury(self, files: VectorFiles, cids: list[int], state: State) -> None:
        """Note the positions of these chunks as no longer current."""
        places = files.places_of(np.array(cids, np.int64)).astype("<i8")
        if len(places):  # else as with every bulk load
            with open_at(self._place / "dead.i64", 8 * state["dead"]) as file:
                _add(file, "dead.i64", places.tobytes(), state)
            state["dead"] += len(places)

    def _append(
        self, db: Tables, cids: Sequence[int], state: State, progress: Progress | None
    ) -> None:
        """Rows for these chunks after those that there are."""
        if not cids:
            return
        with contextlib.ExitStack() as stack:
            files = {
                name: stack.enter_context(open_at(self._place / name, 8 * state["count"]))
                for name in ("cids.i64", "rids.i64")
            }
            offset = 4 * self.dim * (state["count"] - state["first"])
            files[ROWS] = stack.enter_context(open_at(self._place / state["rows"], offset))
            for i in range(0, len(cids), READ):
                rows = vector_rows(db, cids[i : i + READ], model=self.model, dim=self.dim)
                _add(files[ROWS], ROWS, b"".join(row[2].data for row in rows), state)
                for field, name in enumerate(("cids.i64", "rids.i64")):
                    numbers = np.array([row[field] for row in rows], "<i8")
                    _add(files[name], name, numbers.tobytes(), state)
                state["count"] += len(rows)
                if progress:
                    progress("vector index", min(i + READ, len(cids)), len(cids))

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

    def build_lists(
        self,
        reader: Callable[[], Tables],
        progress: Progress | None,
        *,
        stopped: Callable[[], bool],
    ) -> State:
        """Make new inverted lists beside the old ones. Slow, and needs no lock: rows don't move."""
        with self._lock:
            files, epoch = self.files, self._state["epoch"]
        assert files is not None
        try:
            state = build_lists(
                self._place,
                PlacedRows(files, TableRows(reader, self.model, self.dim)),
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
        """Swap them in, under the locks of both, unless the rows were started over since."""
        state = self._read_state() if self.load() else None
        started_over = state is None or state["epoch"] != sealed["epoch"]
        if state is not None and not started_over and (self._place / sealed["name"]).exists():
            self._save(state | {"sealed": sealed}, self.committed)
            self._sweep("ivf-*", sealed["name"])

    def drop_sealed(self) -> None:
        """Leave out of the file the rows that are in lists, under the derived lock: a search has
        them from the tables, where these give so few in next to no time."""
        state = self._read_state() if self.load() else None
        files = self.files
        if state is None or files is None:
            return
        if files.listed > files.first:
            left = files.rows[files.listed - files.first :]
            state |= {"rows": _name_rows(), "first": files.listed}
            state["sums"][ROWS] = 0
            with open_at(self._place / state["rows"], 0) as file:
                _add(file, ROWS, left.tobytes(), state)
            self._save(state, self.committed)
        self._sweep("rows-*", state["rows"])

    def _sweep(self, pattern: str, keep: str) -> None:
        """Remove those of before, and what a killed process has left."""
        for path in self._place.glob(pattern):
            if path.name != keep:
                path.unlink(missing_ok=True)  # those who have it mapped keep it


def _add(file: BinaryIO, name: str, data: bytes, state: State) -> None:
    file.write(data)
    state["sums"][name] = crc32(data, state["sums"][name])
