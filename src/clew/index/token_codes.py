"""The token vectors of passages as residual codes in a memory-mapped file, found by what they say.

    tokens-<model>/
      codes-*.bin     one row per token, append-only: its centroid (2 bytes), the length that code
                      has (1 byte), and the rest, 4 bits a dimension (2 in a compact one)
      passages-*.bin  one row per passage, append-only: the digest of its text, how many tokens,
                      and a checksum of their codes, which is compared whenever they are read
      codebook-*.npy  centroids, then where the residuals are cut and what each cell stands for
      state.json      which of them count, how much of each, and checksums

A code follows from text and model alone, so that whoever has a text has its code, in whichever
record it stands and wherever that is moved. It takes long to make: these files follow no change log
and go neither with the other indexes nor with their damage. What was deleted stays until more is
dead than alive. Residuals are cut at places that all dimensions share, each cell stands for its
mean, and rows are given length 1 again (Santhanam et al., NAACL 2022, who cut at quantiles: halfway
between neighbouring means, as Lloyd has it, less is lost).
"""

from __future__ import annotations

import contextlib
import mmap
import os
import sys
import threading
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
import numpy.typing as npt

from clew.errors import StoreError
from clew.index.vectors import discard, open_at
from clew.storage.snapshot import DerivedFolder, State, checksum, read_state, save_array
from clew.types import Vectors
from clew.validate import multiply

FORMAT = 2
PREFIX = "tokens-"
"""Of a folder's name; then comes the model's."""
FEW, MANY = 1_024, 4_096
"""Centroids of a small store and of a large one."""
LARGE = 1_000_000
"""Tokens from which on a store is large."""
SAMPLE = 40
"""Tokens for each centroid that a codebook is made from, at most."""
LEAST = 16
"""Tokens for each centroid, at least: with fewer there are fewer centroids."""
FIRST = 2_048
"""Tokens from which on searches make a codebook by themselves."""
OUTGROWN = 8
"""Times as many tokens as a codebook of few centroids was made for, and it is made anew."""
STEP = 0.5 / 255
"""Of the byte that says a row's length, from 0.75 on."""
PASSAGE = np.dtype([("digest", "V16"), ("tokens", "<u4"), ("sum", "<u4")])
LLOYD = 40
"""Times that cells of residuals are cut anew."""
LANES = 4
"""Rows of a query are filled up to a multiple of so many: as BLAS works."""
CACHED = 1_620
"""Tokens that are unpacked at a time, to be multiplied before they leave the processor's cache."""
BATCH = 50_000
READ = 2_000
"""Passages that are taken over at a time."""

LENGTHS = (1 / (0.75 + STEP * np.arange(256))).astype(np.float32)
"""What brings a row to length 1, by that byte."""

Bytes = npt.NDArray[np.uint8]
Spans = dict[bytes, tuple[int, int, int]]
"""Where the tokens of a passage begin and end, and their checksum, by its digest."""


class Codebook(NamedTuple):
    """What codes are read with."""

    centroids: Vectors
    cuts: Vectors
    means: Vectors

    @property
    def bits(self) -> int:
        return len(self.means).bit_length() - 1

    @property
    def width(self) -> int:
        """Bytes of a token."""
        return 3 + int(self.centroids.shape[1]) * self.bits // 8

    @classmethod
    def train(cls, rows: Vectors, *, bits: int, most: int) -> Codebook:
        """From a sample of token vectors."""
        import faiss

        rows = np.ascontiguousarray(rows, np.float32)
        count = max(1, min(most, len(rows) // LEAST))
        kmeans = faiss.Kmeans(
            rows.shape[1], count, niter=10, seed=1, spherical=True, min_points_per_centroid=1
        )
        kmeans.train(rows)
        centroids = np.array(kmeans.centroids, np.float32)
        rest = np.sort((rows - centroids[_nearest(rows, centroids)]).ravel()[:4_000_000])
        cells = np.array_split(rest, 1 << bits)
        for _ in range(LLOYD):
            means = [float(cell.mean()) for cell in cells]
            cuts = np.array([(a + b) / 2 for a, b in pairwise(means)], np.float32)
            parts = np.split(rest, np.searchsorted(rest, cuts))
            if not all(map(len, parts)):
                break
            cells = parts
        return cls(centroids, cuts, np.array(means, np.float32))

    def encode(self, rows: Vectors) -> Bytes:
        """A code for each row."""
        codes = np.empty((len(rows), self.width), np.uint8)
        for i in range(0, len(rows), BATCH):
            some = np.ascontiguousarray(rows[i : i + BATCH], np.float32)
            near = _nearest(some, self.centroids)
            rest, cells = some - self.centroids[near], np.zeros(some.shape, np.uint8)
            for cut in self.cuts:  # a tenth of the time of a search
                cells += rest >= cut
            lengths = np.linalg.norm(self.centroids[near] + self.means[cells], axis=1)
            into = codes[i : i + BATCH]
            into[:, :2] = near.astype("<u2")[:, None].view(np.uint8)
            into[:, 2] = np.clip((lengths - 0.75) / STEP + 0.5, 0, 255)
            into[:, 3:] = self._pack(cells)
        return codes

    def _pack(self, cells: Bytes) -> Bytes:
        parts = 8 // self.bits
        packed = cells[:, ::parts].copy()
        for i in range(1, parts):
            packed |= cells[:, i::parts] << (self.bits * i)
        return packed

    def _table(self) -> npt.NDArray[Any]:
        """What each byte of a residual stands for: two numbers or four, to be looked up at once."""
        parts = 8 // self.bits
        every = np.arange(256)[:, None] >> (self.bits * np.arange(parts)) & ((1 << self.bits) - 1)
        kind = np.uint64 if parts == 2 else np.complex128  # as wide, and copied as one
        table: npt.NDArray[Any] = np.ascontiguousarray(self.means[every]).view(kind).ravel()
        return table

    def decode(self, codes: Bytes) -> Vectors:
        """The rows that codes stand for, of length 1."""
        near = codes[:, :2].copy().view("<u2").ravel()
        rest = self._table()[codes[:, 3:]].view(np.float32)
        rows = self.centroids[near] + rest
        unit: Vectors = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        return unit

    def best_products(self, query: Vectors, codes: Bytes, starts: npt.NDArray[np.intp]) -> Vectors:
        """For each passage, whose tokens begin at these places, the best product of each row of the
        query with any of it. Rows are never put together: products with centroids are looked up,
        those with residuals are made, and both are brought to length."""
        wide = np.zeros((query.shape[1], -(-len(query) // LANES) * LANES), np.float32)
        wide[:, : len(query)] = query.T
        near = np.ndarray(len(codes), "<u2", codes, strides=codes.strides[:1]).astype(np.intp)
        by_centroid, lengths = multiply(self.centroids, wide), LENGTHS[codes[:, 2], None]
        products = np.empty((len(codes), wide.shape[1]), np.float32)
        table = self._table()  # looked up with "wrap", which costs least: no place is outside
        rest = np.empty((min(CACHED, len(codes)), self.width - 3), table.dtype)
        for i in range(0, len(codes), CACHED):
            some, into = codes[i : i + CACHED], products[i : i + CACHED]
            part = rest[: len(some)]
            np.take(table, some[:, 3:], out=part, mode="wrap")
            multiply(part.view(np.float32), wide, into)
            into += np.take(by_centroid, near[i : i + CACHED], axis=0, mode="wrap")
            into *= lengths[i : i + CACHED]
        best: Vectors = np.maximum.reduceat(products, starts, axis=0)
        return best[:, : len(query)]


def _nearest(rows: Vectors, centroids: Vectors) -> npt.NDArray[np.intp]:
    parts = [(rows[i : i + BATCH] @ centroids.T).argmax(axis=1) for i in range(0, len(rows), BATCH)]
    found: npt.NDArray[np.intp] = np.concatenate(parts) if parts else np.empty(0, np.intp)
    return found


def _sum_up(codes: Bytes) -> int:
    """Their checksum."""
    return crc32(codes.data)


def _index(digests: Sequence[bytes], lengths: Sequence[int], codes: Bytes) -> npt.NDArray[np.void]:
    """The rows of passages that have these codes, one after the other."""
    parts = np.split(codes, np.cumsum(lengths)[:-1])
    rows = zip(map(np.void, digests), lengths, map(_sum_up, parts), strict=True)
    return np.array(list(rows), PASSAGE)


class _Files(NamedTuple):
    """One consistent state of the files, mapped; never changed."""

    state: State
    codebook: Codebook
    codes: Bytes
    passages: npt.NDArray[np.void]
    ends: npt.NDArray[np.int64]
    digests: npt.NDArray[np.void]
    sums: npt.NDArray[np.uint32]
    order: npt.NDArray[np.intp]
    """The passages by the first half of their digests."""
    keys: npt.NDArray[np.uint64]
    mapped: mmap.mmap | None

    def fetch(self, spans: Iterable[tuple[int, int, int]]) -> None:
        """Have these tokens' codes read side by side where they are not in memory. A touch would
        wait for each, and for the megabytes around it that the system takes along."""
        if self.mapped is None or sys.platform == "win32":
            return
        width = self.codes.shape[1]
        with contextlib.suppress(OSError):  # it is no more than a hint
            for first, last, _ in spans:
                start = first * width & -mmap.PAGESIZE
                self.mapped.madvise(mmap.MADV_WILLNEED, start, last * width - start)


def find_codes(folder: Path) -> Iterator[TokenCodes]:
    """All codes that a store's folder has, by whichever model."""
    for file in folder.glob(f"{PREFIX}*/state.json"):
        state = read_state(file, "model", "dim", "bits")
        if state is not None:
            yield TokenCodes(file.parent, **{of: state[of] for of in ("model", "dim", "bits")})


class TokenCodes:
    """Reads and adds to one folder. Safe across threads and processes."""

    def __init__(self, place: Path, *, model: str, dim: int, bits: int = 4):
        identity = {"format": FORMAT, "model": model, "dim": dim, "bits": bits}
        fields = ("build", "count", "passages", "sums", "centroids", "trained")
        self._folder = DerivedFolder(place / "state.json", *fields, identity=identity)
        self._place, self.dim, self.bits = place, dim, bits
        self._files: _Files | None = None
        self._seen: tuple[int, int] | None = None
        self._mutex = threading.Lock()
        self.harmed = 0
        self._waiting: dict[bytes, Vectors] = {}
        """For there to be enough of them to make a codebook from."""

    # ------------------------------------------------------------------ reading

    def files(self) -> _Files | None:
        """As they are now; None: there are none that can be believed."""
        try:
            about = os.stat(self._folder.file)  # noqa: PTH116 - asked on every search
        except OSError:
            self._files = self._seen = None
            return None
        seen = about.st_mtime_ns, about.st_ino
        with self._mutex:
            if seen != self._seen:
                state = self._folder.state()
                self._files = None if state is None else self._map(state)
                self._seen = seen
            return self._files

    def _map(self, state: State) -> _Files | None:
        build, count, whole = state["build"], state["count"], state["sums"]
        book = self._place / f"codebook-{build}.npy"
        try:
            if checksum(book) != whole["codebook"]:
                return None
            codebook = self._read_codebook(np.load(book), state["centroids"])
            passages, codes = np.empty(0, PASSAGE), np.empty((0, codebook.width), np.uint8)
            mapped = None
            if count:  # a file that is shorter than the state says is a ValueError
                place = self._place / f"passages-{build}.bin"
                passages = np.fromfile(place, PASSAGE, state["passages"])
                with (self._place / f"codes-{build}.bin").open("rb") as file:
                    size = count * codebook.width
                    mapped = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ)
                codes = np.frombuffer(mapped, np.uint8).reshape(count, codebook.width)
        except (OSError, ValueError):
            return None
        ends = np.cumsum(passages["tokens"], dtype=np.int64)
        if crc32(passages.tobytes()) != whole["passages"] or (count and ends[-1] != count):
            return None
        digests = np.ascontiguousarray(passages["digest"])
        keys = digests.view("<u8")[::2]
        order = np.argsort(keys, kind="stable")
        sums = np.ascontiguousarray(passages["sum"])
        about = passages, ends, digests, sums, order, keys[order]
        return _Files(state, codebook, codes, *about, mapped)

    def _read_codebook(self, numbers: Vectors, count: int) -> Codebook:
        size, cells = count * self.dim, 1 << self.bits
        if numbers.shape != (size + 2 * cells - 1,) or not np.isfinite(numbers).all():
            raise ValueError("no codebook")
        cuts = numbers[size : size + cells - 1]
        return Codebook(numbers[:size].reshape(count, self.dim), cuts, numbers[size + cells - 1 :])

    def find(self, digests: Sequence[bytes]) -> Spans:
        """Of those that have codes."""
        return self._find(self.files(), digests)

    @staticmethod
    def _find(files: _Files | None, digests: Sequence[bytes]) -> Spans:
        if files is None or not digests or not len(files.keys):
            return {}
        wanted = np.frombuffer(b"".join(digests), "<u8").reshape(-1, 2)
        pairs, last = files.digests.view("<u8").reshape(-1, 2), len(files.keys) - 1
        at = np.minimum(np.searchsorted(files.keys, wanted[:, 0]), last)
        numbers = files.order[at]
        same = (pairs[numbers] == wanted).all(axis=1)
        for i in np.flatnonzero(~same & (files.keys[at] == wanted[:, 0])).tolist():
            # others begin as this one does
            for number in files.order[at[i] : np.searchsorted(files.keys, wanted[i, 0], "right")]:
                if (pairs[number] == wanted[i]).all():
                    numbers[i], same[i] = number, True
        ends = files.ends[numbers]
        spans = zip(
            (ends - files.passages["tokens"][numbers]).tolist(),
            ends.tolist(),
            files.sums[numbers].tolist(),
            strict=True,
        )
        return {d: of for d, of, is_it in zip(digests, spans, same.tolist(), strict=True) if is_it}

    def score(self, query: Vectors, digests: Sequence[bytes]) -> dict[bytes, float]:
        """By digest, of those that have codes: the mean over the query's rows of the best product
        with any token, 1 at most. Codes that are not as they were written are passed over, and
        `harmed` counts them."""
        if (files := self.files()) is None:
            waiting = self._waiting  # which another search may take
            known = {d: waiting[d] for d in digests if d in waiting}
            return {d: float((query @ of.T).max(axis=1).mean()) for d, of in known.items()}
        spans = {d: span for d, span in self._find(files, digests).items() if span[0] < span[1]}
        files.fetch(spans.values())
        read = {d: files.codes[first:last] for d, (first, last, _) in spans.items()}
        sound = {d: codes for d, codes in read.items() if _sum_up(codes) == spans[d][2]}
        self.harmed = len(read) - len(sound)
        if not sound or not len(query):
            return {}
        starts = np.cumsum([0, *map(len, sound.values())][:-1])
        best = files.codebook.best_products(query, np.concatenate(list(sound.values())), starts)
        return dict(zip(sound, best.mean(axis=1).tolist(), strict=True))

    def rows(self, digest: bytes) -> Vectors | None:
        """The token vectors of one passage, as its codes have them."""
        files = self.files()
        span = self._find(files, [digest]).get(digest)
        if files is None or span is None:
            return None
        codes = files.codes[span[0] : span[1]]
        return files.codebook.decode(codes) if _sum_up(codes) == span[2] else None

    def figures(self) -> dict[str, Any]:
        """For `clew status`."""
        files = self.files()
        size = sum(p.stat().st_size for p in self._place.glob("*")) if files is not None else 0
        count = 0 if files is None else files.state["count"]
        passages = 0 if files is None else files.state["passages"]
        return {"passages": passages, "tokens": count, "bytes": size, "bits": self.bits}

    def damaged(self) -> str:
        """What is not as it was written; empty: nothing."""
        if not self._folder.file.exists():
            return ""
        if (files := self.files()) is None:
            return "its state"
        sound = crc32(files.codes.tobytes()) == files.state["sums"]["codes"]
        return "" if sound else "a file of codes"

    # ------------------------------------------------------------------ writing

    @property
    def outgrown(self) -> bool:
        """Whether there are far more tokens than the codebook was made for, and it is small."""
        state = files.state if (files := self.files()) is not None else None
        if state is None:
            return False
        small = state["centroids"] < (MANY if state["count"] >= LARGE else FEW)
        return bool(small and state["count"] > OUTGROWN * state["trained"])

    def train(self, rows: Vectors, *, tokens: int) -> None:
        """Start over with a codebook made from a sample, for about so many tokens in all."""
        codebook = self._make_codebook(rows, tokens)
        with self._writing() as mine:
            if not mine:
                raise StoreError(f"{self._place} cannot be written: is another process at it?")
            self.save(self.begin(codebook, trained=max(len(rows), tokens)))

    def retrain(self) -> None:
        """Take the codes that there are over to a codebook that fits them."""
        if (files := self.files()) is None:
            return
        count = files.state["count"]
        step = max(1, count // (SAMPLE * MANY))
        codebook = self._make_codebook(files.codebook.decode(files.codes[::step]), count)
        with self._writing() as mine:
            if not mine or (files := self.files()) is None:
                return
            state, first = self.begin(codebook, trained=count), 0
            for i in range(0, len(files.ends), READ):
                last = int(files.ends[i : i + READ][-1])
                codes = codebook.encode(files.codebook.decode(files.codes[first:last]))
                some = files.passages[i : i + READ]
                index = _index(some["digest"].tolist(), some["tokens"].tolist(), codes)
                state, first = self.extend(state, codes, index), last
            self.save(state)

    def _make_codebook(self, rows: Vectors, tokens: int) -> Codebook:
        most = MANY if tokens >= LARGE else FEW
        step = max(1, len(rows) // (SAMPLE * most))
        return Codebook.train(rows[::step], bits=self.bits, most=most)

    def add(self, passages: Mapping[bytes, Vectors], *, seconds: float = 60.0) -> bool:
        """Keep the token vectors of passages, by the digests of their texts; whether they were:
        another process may have been at it for so long, or there is no codebook."""
        with self._writing(seconds) as mine:
            if not mine or (files := self.files()) is None:
                return False
            known = self.find(list(passages))
            fresh = {digest: rows for digest, rows in passages.items() if digest not in known}
            if fresh:
                codes = files.codebook.encode(np.concatenate(list(fresh.values())))
                index = _index(list(fresh), [len(rows) for rows in fresh.values()], codes)
                self.save(self.extend(files.state, codes, index))
            return True

    def keep(self, passages: Mapping[bytes, Vectors]) -> None:
        """What a search has encoded, if that takes no waiting and nothing is in the way. The first
        few thousand tokens make a small codebook."""
        with contextlib.suppress(StoreError):
            if self.files() is not None:
                self.add(passages, seconds=0)
                return
            with self._mutex:
                waiting = self._waiting | {d: rows for d, rows in passages.items() if len(rows)}
                enough = sum(map(len, waiting.values())) >= FIRST
                self._waiting = {} if enough else waiting
            if enough:
                rows = np.concatenate(list(waiting.values()))
                self.train(rows, tokens=len(rows))
                self.add(waiting, seconds=0)

    def drop(self) -> None:
        """Remove all of it."""
        discard(self._place)

    def keep_only(self, living: Sequence[bytes], *, always: bool = False) -> None:
        """Drop the codes of what is gone, if that is more than what is left; `always`, in any case,
        and those that are damaged, too. Files that cannot be believed go as a whole."""
        if (files := self.files()) is None:
            self.drop()
            return
        spans = self.find(list(dict.fromkeys(living)))
        left = sum(last - first for first, last, _ in spans.values())
        whole = len(spans) == len(files.passages)
        if whole and not (always and self.damaged()):
            return
        if not always and 2 * left >= files.state["count"]:
            return
        with self._writing() as mine:
            if not mine or (files := self.files()) is None:
                return
            state = self.begin(files.codebook, trained=files.state["trained"])
            found = list(self.find(list(spans)).items())
            for i in range(0, len(found), READ):
                parts = {d: (files.codes[a:b], crc) for d, (a, b, crc) in found[i : i + READ]}
                sound = {d: codes for d, (codes, crc) in parts.items() if _sum_up(codes) == crc}
                if sound:
                    codes = np.concatenate(list(sound.values()))
                    index = _index(list(sound), list(map(len, sound.values())), codes)
                    state = self.extend(state, codes, index)
            self.save(state)

    @contextlib.contextmanager
    def _writing(self, seconds: float = 60.0) -> Iterator[bool]:
        """Whether this process is the only one that writes here; False, where another was at it for
        so long. A disk that is full is a StoreError."""
        import filelock

        lock = filelock.FileLock(self._place.with_name(f"{self._place.name}.lock"))
        try:
            self._place.mkdir(parents=True, exist_ok=True)
            with lock.acquire(timeout=seconds):
                yield True
        except filelock.Timeout:
            yield False
        except (OSError, NotImplementedError) as error:
            raise StoreError(
                f"codes cannot be written to {self._place}: {error}; is the disk full?"
            ) from error

    def begin(self, codebook: Codebook, *, trained: int) -> State:
        """Files of their own, with nothing in them but the codebook."""
        build = uuid.uuid4().hex[:12]
        numbers = np.concatenate([part.ravel() for part in codebook]).astype(np.float32)
        book = self._place / f"codebook-{build}.npy"
        save_array(book, numbers)
        sums = {"codes": 0, "passages": 0, "codebook": checksum(book)}
        state: State = {"build": build, "count": 0, "passages": 0, "sums": sums}
        return state | {"centroids": len(codebook.centroids), "trained": trained}

    def extend(self, state: State, codes: Bytes, passages: npt.NDArray[np.void]) -> State:
        """The state with these behind what it counts; what a process that died has left is cut."""
        sums = dict(state["sums"])
        for name, at, rows in (("codes", "count", codes), ("passages", "passages", passages)):
            data = rows.tobytes()
            width = rows.itemsize * (rows.shape[1] if rows.ndim > 1 else 1)
            with open_at(self._place / f"{name}-{state['build']}.bin", state[at] * width) as file:
                file.write(data)
            sums[name] = crc32(data, sums[name])
        more = {"count": state["count"] + len(codes), "passages": state["passages"] + len(passages)}
        return {**state, **more, "sums": sums}

    def save(self, state: State) -> None:
        """From now on these files count. Who has others mapped keeps them."""
        self._folder.save(state)
        for other in self._place.glob("*-*.*"):
            if state["build"] not in other.name:
                other.unlink(missing_ok=True)
