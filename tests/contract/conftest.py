"""The stores under contract. Another one joins by one function here and one line in FACTORIES."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from clew.protocols import Store

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


FACTORIES: list[Factory] = [embedded, duckdb]


@pytest.fixture(params=FACTORIES, ids=lambda factory: factory.__name__, scope="session")
def factory(request: pytest.FixtureRequest) -> Factory:
    made: Factory = request.param
    return made


@pytest.fixture(scope="session")
def fresh(factory: Factory, tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Opener]:
    """Makes a new, empty store on each call: for tests that need one per example."""
    return lambda: factory(tmp_path_factory.mktemp("store"))


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
