"""The stores that one resident process keeps open: folders and memories, each by its name."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Literal

from clew.engine import Engine, open_engine
from clew.errors import ClewError, InputError, StoreError, nearest
from clew.ingest.sync import free_name
from clew.memory import Memory
from clew.storage import FOLDER, is_url
from clew.store import EmbeddedStore
from clew.trust import hide_password

Kind = Literal["folder", "memory"]
Opened = Engine | Memory


class UnknownStoreError(InputError):
    """No store of this name is served."""


class ServedStore:
    """One store that is open. Where its database was deleted, or another one is in its place since,
    that one is opened; an error while there is none."""

    def __init__(self, kind: Kind, place: str, open: Callable[[bool], Opened]):
        """`place` is the folder, or the memory's file or URL; `open` is told whether to begin what
        is not there."""
        self.kind, self.place, self._open = kind, place, open
        self._opened, self._opening = open(True), threading.Lock()
        opened = self._opened
        self.name = opened.path.stem if isinstance(opened, Memory) else Path(place).name
        self.name = self.name or kind

    @property
    def is_local(self) -> bool:
        """Whether it is a SQLite file, which answers small questions at once."""
        return type(_engine_of(self._opened).store) is EmbeddedStore

    @property
    def engine(self) -> Engine:
        return _engine_of(self._current())

    @property
    def memory(self) -> Memory | None:
        return opened if isinstance(opened := self._current(), Memory) else None

    def _current(self) -> Opened:
        if _in_place(self._opened):
            return self._opened
        with self._opening:
            if not _in_place(was := self._opened):
                self._opened = self._open(False)
                was.close()
            return self._opened

    def close(self) -> None:
        self._opened.close()


def _engine_of(opened: Opened) -> Engine:
    return opened.engine if isinstance(opened, Memory) else opened


def _in_place(opened: Opened) -> bool:
    store = _engine_of(opened).store
    return not isinstance(store, EmbeddedStore) or store.in_place()


def show_place(place: str) -> str:
    """The folder or the file, or the URL without its password."""
    return hide_password(place) if is_url(place) else place


class ServedStores:
    """Stores by name. The first of a kind is meant where none is named. A context manager."""

    def __init__(self) -> None:
        self._named: dict[str, ServedStore] = {}
        self._closing = ExitStack()

    def open_folder(self, folder: str | Path, **overrides: Any) -> ServedStore:
        """Open the store of a folder, which has to be there."""
        root = Path(folder).expanduser().absolute()
        root = root.parent if root.name == FOLDER else root
        return self._add(
            "folder", str(root), lambda _: open_engine(root, create=False, **overrides)
        )

    def open_memory(self, db: str | Path, **overrides: Any) -> ServedStore:
        """Open a memory, or begin one."""
        place: str | Path = db if is_url(db) else Path(db).expanduser().absolute()
        return self._add(
            "memory", str(place), lambda create: Memory(place, create=create, **overrides).open()
        )

    def _add(self, kind: Kind, place: str, open: Callable[[bool], Opened]) -> ServedStore:
        if any(each.place == place for each in self):
            raise StoreError(f"{show_place(place)} is named twice: once is enough")
        made = ServedStore(kind, place, open)
        self._closing.callback(made.close)
        made.name = free_name(made.name, self._named)
        self._named[made.name] = made
        return made

    def __iter__(self) -> Iterator[ServedStore]:
        return iter(self._named.values())

    def __len__(self) -> int:
        return len(self._named)

    def find(self, name: str | None = None) -> ServedStore:
        """The store of this name, of any kind."""
        if name is None and self._named:
            return next(iter(self))
        if name in self._named:
            return self._named[name]
        raise UnknownStoreError(f"no store {name!r} is served: {nearest(name or '', self._named)}")

    def folder(self, name: str | None = None) -> ServedStore:
        """A folder's store; a memory's, where it is named or there is nothing else."""
        if name is not None:
            return self.find(name)
        folders = (each for each in self if each.kind == "folder")
        return next(folders, None) or self.find()

    def memory(self, name: str | None = None) -> Memory:
        found = self.find(name) if name is not None else None
        if found is None:
            found = next((each for each in self if each.kind == "memory"), None)
        if found is None:
            raise UnknownStoreError("no memory is served here: `clew serve --db FILE` does")
        if (memory := found.memory) is None:
            raise UnknownStoreError(
                f"{found.name!r} is the store of a folder, not a memory: name another"
            )
        return memory

    def warm_up(self) -> threading.Thread:
        """Load models and indexes in the background, so that the first who asks need not wait."""

        def load() -> None:
            for each in self:
                with suppress(ClewError):  # said to whoever asks
                    each.engine.search("clew", limit=1, cache=False)

        thread = threading.Thread(target=load, name="clew-warm-up", daemon=True)
        thread.start()
        return thread

    def __enter__(self) -> ServedStores:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._closing.close()
        self._named.clear()
