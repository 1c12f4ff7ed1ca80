"""The stores that one resident process keeps open: folders and memories, each by its name."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Literal, NamedTuple

from clew.engine import Engine, open_engine
from clew.errors import ClewError, InputError, StoreError, nearest
from clew.memory import Memory
from clew.storage import is_url
from clew.store import EmbeddedStore

Kind = Literal["folder", "memory"]
_MISSING = {
    "folder": "no folder is served here: `clew serve FOLDER` does",
    "memory": "no memory is served here: `clew serve --db FILE` does",
}


class UnknownStoreError(InputError):
    """No store of this name is served."""


class ServedStore(NamedTuple):
    """One store that is open."""

    name: str
    kind: Kind
    place: str
    """The folder, or the memory's file or URL."""
    engine: Engine
    memory: Memory | None = None

    @property
    def is_local(self) -> bool:
        """Whether it is a SQLite file, which answers small questions at once."""
        return type(self.engine.store) is EmbeddedStore


class ServedStores:
    """Stores by name. The first of a kind is meant where none is named. A context manager."""

    def __init__(self) -> None:
        self._named: dict[str, ServedStore] = {}
        self._opened = ExitStack()

    def open_folder(self, folder: str | Path, **overrides: Any) -> ServedStore:
        """Open the store of a folder, which has to be there."""
        root = Path(folder).expanduser().absolute()
        engine = self._opened.enter_context(open_engine(root, create=False, **overrides))
        place = str(engine.root or root)
        return self._add(ServedStore(Path(place).name or "store", "folder", place, engine))

    def open_memory(self, db: str | Path, **overrides: Any) -> ServedStore:
        """Open a memory, or begin one."""
        place: str | Path = db if is_url(db) else Path(db).expanduser().absolute()
        memory = self._opened.enter_context(Memory(place, **overrides))
        return self._add(
            ServedStore(memory.path.stem or "memory", "memory", str(place), memory.engine, memory)
        )

    def _add(self, opened: ServedStore) -> ServedStore:
        if any(each.place == opened.place for each in self):
            raise StoreError(f"{opened.place} is named twice: once is enough")
        name, number = opened.name, 2
        while opened.name in self._named:
            opened = opened._replace(name=f"{name}-{number}")
            number += 1
        self._named[opened.name] = opened
        return opened

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
        if found is None or found.memory is None:
            raise UnknownStoreError(_MISSING["memory"] if found is None else _not(found))
        return found.memory

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
        self._opened.close()
        self._named.clear()


def _not(found: ServedStore) -> str:
    return f"{found.name!r} is the store of a folder, not a memory: name another"
