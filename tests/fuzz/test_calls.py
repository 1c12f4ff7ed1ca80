"""Every public function and method, called with odd values: only ClewError leaves."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from odd import ALONE, VALUES, attempt

import clew

from hashing import HashingEmbedder

BUT = settings(
    max_examples=8,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    database=None,
    phases=[Phase.explicit, Phase.generate],
    derandomize=True,
)


@pytest.fixture(autouse=True)
def aside(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Odd paths are made where they can be thrown away."""
    place = tmp_path_factory.mktemp("odd")
    monkeypatch.chdir(place)
    monkeypatch.setenv("HOME", str(place))
    monkeypatch.setenv("CLEW_OFFLINE", "1")


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[clew.Engine]:
    folder = tmp_path_factory.mktemp("store")
    (folder / "a.md").write_text("# Harbour\n\nthe crane lifts [[b]] #sea\n")
    with clew.open(folder, embedder=HashingEmbedder()) as opened:
        opened.index()
        yield opened


@pytest.fixture(scope="module")
def memory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[clew.Memory]:
    file = tmp_path_factory.mktemp("memory") / "m.db"
    with clew.Memory(file, embedder=HashingEmbedder()) as opened:
        opened.remember("Ana is allergic to walnuts", tags=["health"])
        yield opened


def methods(of: type, without: str = "") -> list[str]:
    found = inspect.getmembers(of, inspect.isfunction)
    return [name for name, _ in found if not name.startswith("_") and name not in without.split()]


@pytest.mark.parametrize("name", methods(clew.Engine, "close"))
def test_engine(engine: clew.Engine, name: str) -> None:
    run(getattr(engine, name))


@pytest.mark.parametrize("name", methods(clew.Memory, "close"))
def test_memory(memory: clew.Memory, name: str) -> None:
    run(getattr(memory, name))


@pytest.mark.parametrize("name", methods(clew.AsyncMemory, "close open"))
def test_async_memory(name: str, tmp_path: Path) -> None:
    async def once(data: st.DataObject) -> None:
        async with clew.AsyncMemory(tmp_path / "m.db", embedder=HashingEmbedder()) as memory:
            made: list[Any] = []
            call = getattr(memory, name)
            draw(_keeping(call, made), data)
            for each in made:
                if inspect.isawaitable(each):
                    with contextlib.suppress(clew.ClewError):
                        await each

    @settings(BUT, max_examples=2)
    @given(st.data())
    def check(data: st.DataObject) -> None:
        asyncio.run(once(data))

    check()


def _keeping(call: Callable[..., Any], made: list[Any]) -> Callable[..., Any]:
    def keep(*args: Any, **options: Any) -> None:
        made.append(call(*args, **options))

    keep.__signature__ = inspect.signature(call)  # type: ignore[attr-defined]
    return keep


@pytest.mark.parametrize("name", ["build", "search", "entity", "themes", "path", "status"])
def test_graph(engine: clew.Engine, name: str) -> None:
    if call := getattr(engine.graph, name, None):
        run(call)


@pytest.mark.parametrize("name", ["build", "search", "status"])
def test_tree(engine: clew.Engine, name: str) -> None:
    if call := getattr(engine.tree, name, None):
        run(call)


@pytest.mark.parametrize("name", ALONE)
def test_functions(name: str) -> None:
    run(ALONE[name])


@pytest.mark.parametrize("name", methods(clew.Search, "close"))
def test_search(name: str, tmp_path: Path) -> None:
    with clew.open(tmp_path / "s", embedder=HashingEmbedder()) as engine:
        engine.add([{"id": "a", "content": "harbour"}])
    try:
        search = clew.Search(tmp_path / "s")
    except (TypeError, clew.ClewError):
        search = clew.Search()
    run(getattr(search, name))


@pytest.mark.parametrize("framework", ["langchain", "llama_index"])
@pytest.mark.parametrize("of", ["engine", "memory"])
def test_retrievers(framework: str, of: str, request: pytest.FixtureRequest) -> None:
    adapter = pytest.importorskip(f"clew.adapters.{framework}")
    source = request.getfixturevalue(of)
    make = adapter.ClewRetriever

    def open_retriever(source: Any, k: Any = 5, options: Any = None) -> None:
        make(source, k=k, options=options)

    def ask(query: Any, k: Any = 5, options: Any = None) -> None:
        retriever = make(source, k=k, options=options)
        if framework == "langchain":
            retriever._get_relevant_documents(query, k=k)
        else:
            retriever._retrieve(adapter.QueryBundle(query))

    run(open_retriever, examples=40)
    run(ask, examples=40)

    def ask_with(name: str) -> Callable[..., None]:
        return lambda query, value: ask(query, options={name: value})

    for name in ("filter", "mode", "vector", "tags", "namespace", "type_filter", "now", "weights"):
        run(ask_with(name))


def test_langgraph(memory: clew.Memory) -> None:
    adapter = pytest.importorskip("clew.adapters.langgraph")
    from langgraph.store import base

    store = adapter.ClewStore(memory)
    run(adapter.ClewStore)
    run(store.batch)
    for kind in (base.GetOp, base.PutOp, base.SearchOp, base.ListNamespacesOp, base.MatchCondition):

        def ask(op: Any) -> None:
            store.batch([op])

        def made(kind: Any = kind, ask: Any = ask, **options: Any) -> None:
            ask(kind(**options))

        made.__signature__ = inspect.signature(kind)  # type: ignore[attr-defined]
        run(made, examples=60)
    for name, value in (("a", 1), ("b", {"c": "d"})):
        store.batch([base.PutOp(("a",), name, {name: value})])

    def search(filter: Any, query: Any = None) -> None:
        store.batch([base.SearchOp(("a",), filter=filter, query=query)])

    def search_with(make: Callable[[Any], Any]) -> Callable[..., None]:
        return lambda value: search(make(value))

    run(search, examples=40)
    for name in ("a", "b", "$eq"):
        run(search_with(lambda value, name=name: {name: value}), examples=40)
        run(search_with(lambda value, name=name: {name: {"$gt": value}}), examples=20)


def run(call: Callable[..., Any], *, examples: int = 8) -> None:
    @settings(BUT, max_examples=max(examples, BUT.max_examples))
    @given(st.data())
    def check(data: st.DataObject) -> None:
        draw(call, data)

    check()


def draw(call: Callable[..., Any], data: st.DataObject) -> None:
    try:
        attempt(call, lambda: data.draw(VALUES), lambda: data.draw(st.booleans()))
    except clew.ClewError as error:
        assert str(error).strip()
