"""The stores under contract. Another one joins by one function here and one line in FACTORIES."""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, suppress
from functools import cache
from itertools import count
from pathlib import Path

import pytest

from clew.errors import StoreError
from clew.protocols import Store
from clew.types import Entry
from entries import MODEL
from qdrant_server import serving

Opener = Callable[[], Store]
"""Opens one and the same store, each time it is called: as another process would."""
Factory = Callable[[Path], Opener]
"""Prepares an empty store; the folder is its own, to keep files in or to be told apart by."""


def embedded(folder: Path) -> Opener:
    from clew.store import EmbeddedStore

    return lambda: EmbeddedStore(folder)


def duckdb(folder: Path) -> Opener:
    from clew.store import DuckStore

    return lambda: DuckStore(folder / "clew.duckdb")


class _Reused:
    """Stores on one server. To make one takes a hundred times as long as to empty it, so those that
    were closed are used again."""

    def __init__(self, new: Callable[[], str], empty: Callable[[str], None]) -> None:
        self._new, self._empty = new, empty
        self._stores: dict[str, list[Store]] = {}

    def prepare(self, folder: Path) -> Opener:
        from clew.store import open_store

        free = (url for url, opened in self._stores.items() if opened and _are_closed(opened))
        if (url := next(free, "")) != "":
            self._empty(url)
        else:
            url = self._new()
        opened = self._stores[url] = []

        def open_one() -> Store:
            store = open_store(url, base=folder, folder=folder)
            opened.append(store)
            return store

        return open_one


def _are_closed(stores: list[Store]) -> bool:
    for store in stores:
        with suppress(StoreError):
            store.indexes.current()
            return False
    return True


@cache
def _qdrant() -> _Reused:
    address = os.environ.get("QDRANT_URL", "").removeprefix("qdrant://").strip("/")
    if not address:
        ends = ExitStack()
        (node,) = ends.enter_context(serving())
        address = node.address
        atexit.register(ends.close)
    numbers = count()

    def empty(url: str) -> None:
        from clew.servers.qdrant.client import Address, Server

        server = Server(Address.of(url), patience=1.0)
        for part in server.collections():
            server.write(part, [{"delete": {"filter": {}}}])
        server.close()

    return _Reused(lambda: f"qdrant://{address}/contract-{os.getpid()}-{next(numbers)}", empty)


def qdrant(folder: Path) -> Opener:
    return _qdrant().prepare(folder)


@cache
def _postgres() -> _Reused:
    from postgres_server import empty, new_url

    return _Reused(new_url, empty)


def postgres(folder: Path) -> Opener:
    return _postgres().prepare(folder)


FACTORIES: list[Factory] = [embedded, duckdb, qdrant, postgres]


@pytest.fixture(params=FACTORIES, ids=lambda factory: factory.__name__, scope="session")
def factory(request: pytest.FixtureRequest) -> Factory:
    made: Factory = request.param
    return made


@pytest.fixture(scope="session")
def fresh(factory: Factory, tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Opener]:
    """Makes a new, empty store on each call: for tests that need one per example."""
    return lambda: factory(tmp_path_factory.mktemp("store"))


@pytest.fixture(scope="module")
def shared(fresh: Callable[[], Opener]) -> Iterator[Callable[[Sequence[Entry]], Store]]:
    """Makes stores for all tests of a module that leave them as they find them: most of a small
    test's time goes into making its store."""
    with ExitStack() as opened:

        def make(entries: Sequence[Entry]) -> Store:
            store = opened.enter_context(closing(fresh()()))
            store.put(entries, model=MODEL)
            return store

        yield make


@pytest.fixture
def open_store(fresh: Callable[[], Opener]) -> Iterator[Opener]:
    opener, opened = fresh(), []

    def open_and_note() -> Store:
        opened.append(opener())
        return opened[-1]

    yield open_and_note
    for store in opened:
        store.close()


@pytest.fixture
def store(open_store: Opener) -> Store:
    return open_store()
