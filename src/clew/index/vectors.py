"""The vector index of one model: float32 rows in a memory-mapped file, searched in stages.

    vectors-<model>/
      rows.f32    one row per position, append-only
      cids.i64    position → chunk        rids.i64    position → record
      dead.i64    positions that were replaced or removed, append-only
      state.json  how much of each file counts, how far the change log is applied, what is sealed
      ivf-*.faiss the sealed inverted lists over the first positions, in rough codes

Below `threshold` rows every search is exact. Above it, the sealed lists (sealed.py) give more
candidates than asked, which are scored again from the exact rows; rows added since are scanned.
A filter that leaves few rows is always answered exactly.
"""

from __future__ import annotations

import contextlib
import io
import shutil
import threading
import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO
from zlib import crc32

import numpy as np

from clew.index.nearest import View, nearest
from clew.index.sealed import Sealed, build
from clew.index.tail import ROOM, Found, Lag, best, merged
from clew.index.tail_vectors import Places, Row, VectorTail
from clew.protocols import Progress
from clew.storage import log
from clew.storage.filters import Allowed
from clew.storage.snapshot import read_state, write_state
from clew.storage.tables import Tables
from clew.types import Vector

__all__ = ["VectorIndex", "folder_name"]

FORMAT = 1
STATE = ("place", "count", "dead", "sealed", "sums", "epoch")
TAIL_SHARE = 0.02
"""The sealed part is renewed when more than this share of the rows lies outside it (and at least
TAIL_ROWS do: below that a scan is cheaper than any index)."""
TAIL_ROWS = 5_000

TIES = 1_000
"""Rows looked at past the limit to settle equal scores by id; more than that are as good as any."""

NARROWED = 32
"""Filters whose positions are kept."""

READ = 1_000
"""Chunks whose vectors are read at a time."""


@contextlib.contextmanager
def _at(path: Path, offset: int) -> Iterator[BinaryIO]:
    """Open for writing from `offset` on; what a process that died had begun to add is cut off."""
    path.touch()
    with path.open("r+b") as file:
        file.truncate(offset)
        file.seek(offset)
        yield file


def folder_name(model: str) -> str:
    return "vectors-" + "".join(c if c.isalnum() or c in "-_." else "_" for c in model)


class VectorIndex:
    """Reads and maintains one folder. Writing is serialised by the store's derived lock."""

    kinds = ("vector", "gone")
    """Rows of the log that it goes by."""

    def __init__(self, folder: Path, store_id: str, *, model: str, dim: int, threshold: int):
        self._folder = folder
        self._state_path = folder / "state.json"
        self._identity = {"store": store_id, "format": FORMAT, "model": model, "dim": dim}
        self.dim = dim
        self.model, self._threshold = model, threshold
        self._served: tuple[View, VectorTail] | None = None
        self._narrowed: OrderedDict[int, tuple[Allowed, View, Places]] = OrderedDict()
        self._lock = threading.Lock()
        self.committed = log.NOWHERE
        """How far the change log is applied in the files that this object serves."""
        self._sums = {"cids.i64": 0, "rids.i64": 0, "dead.i64": 0}
        self._epoch = ""
        """Changes when the rows are started over."""

    @property
    def _view(self) -> View | None:
        return self._served[0] if self._served else None

    @property
    def place(self) -> log.Place:
        """How far it is applied in all that this object serves: in the files and in the tail."""
        if self._served is None or self.committed == log.NOWHERE:
            return log.NOWHERE
        return self._served[1].lag.place

    @property
    def size(self) -> int:
        """Chunks that have a vector here."""
        return self.counted[1]

    @property
    def counted(self) -> tuple[log.Place, int]:
        """Place and size of one moment."""
        if (served := self._served) is None:
            return log.NOWHERE, 0
        view, tail = served
        return tail.lag.place, view.count - view.dead - len(tail.masked) + tail.alive

    @property
    def lag(self) -> int:
        """Changes in the tail."""
        return self._served[1].lag.size(self.kinds) if self._served else 0

    @property
    def room(self) -> int:
        """Changes that the tail is meant for: what is in memory is as exact as what is not."""
        return ROOM

    @property
    def stage(self) -> dict[str, Any]:
        view = self._view
        if view is None or view.sealed is None:
            return {"stage": "exact", "rows": self.size, "recall": 1.0}
        return {
            "stage": "inverted lists",
            "rows": self.size,
            "sealed": view.sealed.count,
            "tail": view.count - view.sealed.count,
            **view.sealed.about,
        }

    # ------------------------------------------------------------------ catching up

    def load(self) -> bool:
        """Serve what is on disk. False: nothing whole is there (what was served stays served)."""
        with self._lock:
            state = read_state(
                self._state_path, "place", "count", "dead", "sealed", "sums", "epoch"
            )
            if state is None or any(state.get(k) != v for k, v in self._identity.items()):
                return False
            view = self._view
            if view is not None and tuple(state["place"]) == self.committed:
                name = view.sealed.name if view.sealed else None
                if (state["sealed"] or {}).get("name") == name and state["count"] == view.count:
                    return True
            try:
                if self._view is None and not self._undamaged(state):
                    return False
                view = self._map(state)
            except (OSError, ValueError):
                return False
            self._epoch, self._sums = state["epoch"], dict(state["sums"])
            self._serve(view, tuple(state["place"]))
            return True

    def _serve(self, view: View, place: log.Place) -> None:
        """What is on disk now, with what is left of the tail."""
        tail = VectorTail(Lag.none(place), self.dim)
        if self._served is not None:
            tail = self._served[1].rebased(place, view)
        self._served, self.committed = (view, tail), place

    def follow(self, db: Tables, since: log.Place, mentions: Sequence[log.Mention]) -> None:
        """Take these rows of the log, which come after `since`, into the tail."""
        with self._lock:
            if self._served is None or self.place != since:  # it has moved meanwhile
                return
            view, tail = self._served
            added = sorted(Lag.of(since, mentions).numbers("vector"))
            rows = [row for some in self._read(db, added) for row in some]
            self._served = view, tail.extended(mentions, rows, view)

    def whole(self) -> bool:
        """Whether what is served is on the disk still."""
        return self._state_path.exists()

    def _undamaged(self, state: dict[str, Any]) -> bool:
        """Whether the files that say which row is whose are as written: garbled, they would give
        wrong answers. The rows are too many to look at on opening; `doctor` compares a sample."""
        for name, summed in state["sums"].items():
            size = 8 * state["dead" if name == "dead.i64" else "count"]
            with (self._folder / name).open("rb") if size else io.BytesIO() as file:
                if crc32(file.read(size)) != summed:
                    return False
        return True

    def _map(self, state: dict[str, Any]) -> View:
        count, dim = state["count"], self.dim
        if not count:
            empty = np.empty(0, np.int64)
            rows = np.empty((0, dim), np.float32)
            return View(0, rows, empty, empty, np.empty(0, np.bool_), 0, None)

        def file(name: str, dtype: str, shape: tuple[int, ...]) -> Any:
            # fails with ValueError when the file is shorter than the state says
            # as a plain array: np.memmap's own indexing costs a microsecond or two each time
            return np.asarray(np.memmap(self._folder / name, dtype=dtype, mode="r", shape=shape))

        alive = np.ones(count, np.bool_)
        if state["dead"]:
            alive[file("dead.i64", "<i8", (state["dead"],))] = False
        sealed, old = None, self._view.sealed if self._view else None
        if state["sealed"] and "margin" in state["sealed"]:  # else of an older form: renewed soon
            same = old is not None and old.name == state["sealed"]["name"]
            sealed = old if same else Sealed.open(self._folder, state["sealed"])
        return View(
            count,
            file("rows.f32", "<f4", (count, dim)),
            file("cids.i64", "<i8", (count,)),
            file("rids.i64", "<i8", (count,)),
            alive,
            state["dead"],
            sealed,
        )

    def catch_up(self, db: Tables, *, progress: Progress | None = None) -> None:
        """Apply the change log; start over from the tables when that is not possible.

        Only under the store's derived lock.
        """
        changes = log.since(db, self.committed) if self.load() else None
        view = self._view
        if changes is None or view is None:
            shutil.rmtree(self._folder, ignore_errors=True)  # what is mapped stays served till then
            self._folder.mkdir(parents=True)
            query = "SELECT cid FROM vectors WHERE embedding_model = ? ORDER BY cid"
            added = [row[0] for row in db.execute(query, (self.model,))]
            place = log.head(db)
            self._epoch = uuid.uuid4().hex
            self._sums = dict.fromkeys(self._sums, 0)
            self._save(place, self._append(db, added, 0, progress), 0, None)
            return
        added, gone = changes.numbers("vector"), changes.numbers("gone")
        dead = self._bury(view, [*gone, *added])
        count = self._append(db, added, view.count, progress)
        self._save(changes.place, count, dead, view.sealed.state if view.sealed else None)

    def _save(self, place: log.Place, count: int, dead: int, sealed: dict[str, Any] | None) -> None:
        state = {
            **self._identity,
            "place": place,
            "count": count,
            "dead": dead,
            "sealed": sealed,
            "sums": self._sums,
            "epoch": self._epoch,
        }
        write_state(self._state_path, state)
        view = self._map(state)
        with self._lock:
            self._serve(view, place)

    def _bury(self, view: View, cids: list[int]) -> int:
        """Note the positions of these chunks as no longer current; how many are in all."""
        places = view.places_of(np.array(cids, np.int64)).astype("<i8")
        if not len(places):  # as with every bulk load
            return view.dead
        with _at(self._folder / "dead.i64", 8 * view.dead) as file:
            self._add(file, "dead.i64", places)
        return view.dead + len(places)

    def _add(self, file: BinaryIO, name: str, numbers: Places) -> None:
        data = numbers.tobytes()
        file.write(data)
        self._sums[name] = crc32(data, self._sums[name])

    def _append(self, db: Tables, cids: list[int], count: int, progress: Progress | None) -> int:
        """Rows for these chunks after the first `count`; how many there are then."""
        if not cids:
            return count
        widths = {"rows.f32": 4 * self.dim, "cids.i64": 8, "rids.i64": 8}
        with contextlib.ExitStack() as stack:
            files = {
                name: stack.enter_context(_at(self._folder / name, count * width))
                for name, width in widths.items()
            }
            done = 0
            for rows in self._read(db, cids):
                files["rows.f32"].write(b"".join(row[2] for row in rows))
                for place, name in enumerate(("cids.i64", "rids.i64")):
                    self._add(files[name], name, np.array([row[place] for row in rows], "<i8"))
                count += len(rows)
                done = min(done + READ, len(cids))
                if progress:
                    progress("vector index", done, len(cids))
        return count

    def _read(self, db: Tables, cids: list[int]) -> Iterator[list[Row]]:
        """The vectors of this model that these chunks have now, so many chunks at a time."""
        for i in range(0, len(cids), READ):
            yield db.vector_rows(cids[i : i + READ], model=self.model, dim=self.dim)

    # ------------------------------------------------------------------ sealing

    @property
    def seal_due(self) -> bool:
        """Whether it is worth new lists while others search."""
        return self._outgrown(TAIL_ROWS)

    @property
    def seal_useful(self) -> bool:
        """Whether it is worth them where somebody waits for the best shape anyway."""
        return self._outgrown(0)

    def _outgrown(self, rows: int) -> bool:
        view = self._view
        if view is None or view.count < self._threshold:
            return False
        tail = view.count - view.sealed_count
        buried = view.dead - (view.sealed.state["dead"] if view.sealed else 0)
        return tail > max(rows, TAIL_SHARE * view.count) or (
            buried > max(TAIL_ROWS, 2 * TAIL_SHARE * view.count)
        )

    def build_sealed(
        self, progress: Progress | None = None, *, stopped: Callable[[], bool]
    ) -> dict[str, Any]:
        """Make new inverted lists beside the old ones. Slow, and needs no lock: rows don't move."""
        view, epoch = self._view, self._epoch
        assert view is not None
        state = build(
            self._folder,
            view.rows,
            dead=view.dead,
            previous=view.sealed,
            progress=progress,
            stopped=stopped,
        )
        return {**state, "epoch": epoch}

    @property
    def compact_due(self) -> bool:
        """More rows are dead than alive."""
        view = self._view
        return view is not None and view.dead > max(1000, view.count - view.dead)

    def forget(self) -> None:
        """Give up what is there: the next `catch_up` starts over from the tables."""
        self._state_path.unlink(missing_ok=True)
        self.committed = log.NOWHERE

    def adopt(self, sealed: dict[str, Any]) -> None:
        """Swap them in, under the derived lock, unless the rows were started over since."""
        whole = self.load() and self._view is not None and self._epoch == sealed["epoch"]
        if whole and (self._folder / sealed["name"]).exists():
            assert self._view is not None
            self._save(self.committed, self._view.count, self._view.dead, sealed)
            for path in self._folder.glob("ivf-*"):  # older lists, and what a killed build left
                if path.name != sealed["name"]:
                    path.unlink(missing_ok=True)  # those who have it mapped keep it

    # ------------------------------------------------------------------ searching

    def search(
        self, query: Vector, allowed: Allowed | None, limit: int, per_record: int = 1
    ) -> list[Found]:
        """The best `limit` records by inner product, so many entries each; more than that where
        scores at the cut are equal."""
        served = self._served
        if served is None or (allowed is not None and not allowed.count):
            return []
        view, tail = served
        found: list[Found] = []
        if view.count:
            found = self._search(view, tail.masked, query, allowed, limit, per_record)
        if not tail.alive:
            return found
        more = tail.search(query, allowed, limit, per_record)
        return merged(found, more, limit, per_record)

    def _search(
        self,
        view: View,
        masked: Places,
        query: Vector,
        allowed: Allowed | None,
        limit: int,
        per_record: int,
    ) -> list[Found]:
        """In the files, without what is masked."""
        places = None
        # A set of all is no restriction, unless somebody has added to the rows meanwhile.
        if allowed is not None and not (allowed.whole and view.newest_record < len(allowed.mask)):
            places = self._places(view, allowed)
            if not len(places):
                return []
        want = limit + 16
        while True:
            (at, scores), whole = nearest(view, query, places, want)
            if len(masked):
                current = ~np.isin(at, masked)
                at, scores = at[current], scores[current]
            rids = view.rids[at]
            ranked = scores.astype(np.float64).round(6)
            _, firsts = np.unique(rids, return_index=True)
            firsts.sort()  # where each record's best row is
            cut = ranked[firsts[limit - 1]] if len(firsts) > limit else -np.inf
            if whole or len(firsts) > limit + TIES or cut > ranked[-1]:
                if per_record == 1:
                    at, rids, ranked = at[firsts], rids[firsts], ranked[firsts]
                keep = int(np.searchsorted(-ranked, -cut, side="right"))
                found = zip(
                    rids[:keep].tolist(),
                    view.cids[at[:keep]].tolist(),
                    ranked[:keep].tolist(),
                    strict=True,
                )
                return list(found) if per_record == 1 else best(found, len(rids), per_record)
            want *= 4

    def _places(self, view: View, allowed: Allowed) -> Places:
        """The positions of allowed records. Kept for the next search with the same filter: to go
        through a million rows takes longer than the search itself."""
        key = id(allowed)
        with self._lock:
            kept = self._narrowed.get(key)
            if kept is not None and kept[0] is allowed and kept[1] is view:
                self._narrowed.move_to_end(key)
                return kept[2]
        places = np.flatnonzero(allowed.of_rids(view.rids) & view.alive)
        with self._lock:
            self._narrowed[key] = allowed, view, places
            while len(self._narrowed) > NARROWED:
                self._narrowed.popitem(last=False)
        return places
