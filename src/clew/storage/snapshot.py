"""The derived folder: what the indexes, the graph and the tree keep on disk, and may lose.

A small state file says which files count, how much of the change log is in them, and their
checksums. It is replaced in one step, after the files it names are written: a reader sees the old
state or the new one, whole, whenever a process is killed. Who has files of the old one open or
mapped keeps them. What is damaged, of another store, another version or another user has no state,
and is made anew from the database.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar
from zlib import crc32

import numpy as np

from clew import trust

State = dict[str, Any]
T = TypeVar("T")

BLOCK, MOST_STATE = 1 << 20, 1 << 24
SIGNATURE = "signature"
HEADER = 128
"""Bytes of an .npy file without a number in it."""


def read_state(path: Path, *fields: str) -> State | None:
    """The state, or None when there is none or it is not whole."""
    try:
        state = json.loads(trust.read_regular(path, MOST_STATE))
    except (OSError, ValueError, RecursionError):  # a stranger's is as long and deep as they like
        return None
    return state if isinstance(state, dict) and state.keys() >= set(fields) else None


def write_state(path: Path, state: Mapping[str, Any], *, durable: bool = False) -> None:
    """Replace the state in one step; `durable`: it is on the disk itself before that."""
    with trust.replace_file(path, durable=durable) as file:
        file.write(json.dumps(state).encode())


def checksum(
    file: Path, size: int | None = None, stopped: Callable[[], bool] | None = None
) -> int | None:
    """The checksum of a file, or of its first `size` bytes. None: it was `stopped` before the
    end."""
    found, left = 0, file.stat().st_size if size is None else size
    with file.open("rb") as stream:
        while left > 0 and (block := stream.read(min(BLOCK, left))):
            found, left = crc32(block, found), left - len(block)
            if stopped is not None and stopped():
                return None
    return found


def save_array(file: Path, array: Any) -> None:
    """Do as `np.save` does, but for a full disk: C, to which that leaves the writing, may notice
    only when it closes the file, and says nothing then."""
    made = io.BytesIO()
    np.save(made, array)
    file.write_bytes(made.getbuffer())


def map_array(file: Path) -> Any:
    """An array as `save_array` has written it, mapped; what is empty cannot be."""
    return np.load(file, mmap_mode="r" if file.stat().st_size > HEADER else None)


class DerivedFolder:
    """A state file, and the folders beside it of which it names one under `key`."""

    def __init__(
        self,
        file: Path,
        *fields: str,
        identity: Mapping[str, Any],
        key: str = "folder",
        prefix: str = "",
    ):
        """A state counts that has these fields, and the values of `identity`."""
        self.file, self.place = file, file.parent
        self._fields, self._identity = fields, dict(identity)
        self._key, self._prefix = key, prefix

    def state(self) -> State | None:
        state = read_state(self.file, *self._fields)
        if state is None or any(state.get(k) != v for k, v in self._identity.items()):
            return None
        return state if self._is_ours(state) else None

    def _is_ours(self, state: State) -> bool:
        """Whether this user's Clew wrote it, in this place: files of others are never opened, since
        those who read them believe what they say. On a disk where none can be made, the user's word
        counts."""
        signed = state.pop(SIGNATURE, None)
        return signed == self._signature(state) or trust.is_known(self.place)

    def _signature(self, state: Mapping[str, Any]) -> str:
        told = f"{os.path.realpath(self.file)}\0{json.dumps(state)}"
        return trust.sign(told.encode("utf-8", "surrogateescape")).hex()

    def folder(self, state: Mapping[str, Any]) -> Path:
        name = str(state[self._key])
        return self.place / f"{self._prefix}{name.removeprefix(self._prefix)}"

    def save(self, state: Mapping[str, Any], *, durable: bool = False) -> State:
        whole = {**self._identity, **state}
        write_state(self.file, {**whole, SIGNATURE: self._signature(whole)}, durable=durable)
        return whole

    def open(self, load: Callable[[Path, State], T]) -> T | None:
        """What `load` makes of the folder in force, tried again where another process has swapped
        it meanwhile; None: there is no state."""
        while (state := self.state()) is not None:
            try:
                return load(self.folder(state), state)
            except Exception:
                if self.state() == state:
                    raise
        return None

    @contextlib.contextmanager
    def fresh(self) -> Iterator[Path]:
        """A new folder, to be filled and saved under its name; it goes again if that fails."""
        folder = self.place / f"{self._prefix}{uuid.uuid4().hex[:12]}"
        try:
            folder.mkdir(parents=True)
            yield folder
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise

    def swap(self, fill: Callable[[Path], Mapping[str, Any]]) -> State:
        """Have a new folder filled with files that will not change, and make it the one in force,
        whole or not at all; the state. `fill` gives what else is to be in that."""
        with self.fresh() as folder:
            facts = fill(folder)
            files = sorted(folder.iterdir())
            trust.flush(*files)
            state = {
                self._key: folder.name.removeprefix(self._prefix),
                "files": {file.name: file.stat().st_size for file in files},
                "checksums": {file.name: checksum(file) for file in files},
                **facts,
            }
            whole = self.save(state, durable=True)
        self.sweep(folder)
        return whole

    def damaged(self, state: Mapping[str, Any], among: Collection[str] | None = None) -> str:
        """The first file (of those) that is not as it was written; empty: all are."""
        for name, known in state.get("checksums", {}).items():
            file = self.folder(state) / name
            if among is not None and name not in among:
                continue
            try:
                sound = checksum(file) == known
            except OSError:  # gone, or the disk does not give it back
                sound = False
            if not sound:
                return str(name)
        return ""

    def sweep(self, keep: Path | None) -> None:
        """Remove the folders of before, and what a killed process has left."""
        for other in self.place.glob(f"{self._prefix}*"):
            if other.is_dir() and other != keep:
                shutil.rmtree(other, ignore_errors=True)
