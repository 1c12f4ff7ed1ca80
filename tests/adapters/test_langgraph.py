"""ClewStore through LangGraph's own interface, beside the package's InMemoryStore."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langgraph.config import get_store
from langgraph.graph import END, START, StateGraph
from langgraph.store.base import (
    GetOp,
    InvalidNamespaceError,
    Item,
    ListNamespacesOp,
    MatchCondition,
    PutOp,
    SearchOp,
)

import clew
from clew.adapters.langgraph import ClewStore, key_of, labels_of, namespace_of, path_of
from clew.memory.record import NAMESPACE

from hashing import HashingEmbedder


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[clew.Memory]:
    with clew.Memory(tmp_path / "memory.db", embedder=HashingEmbedder(dim=512)) as opened:
        yield opened


@pytest.fixture
def store(memory: clew.Memory) -> ClewStore:
    return ClewStore(memory)


def keys(items: list[Any]) -> list[str]:
    return [item.key for item in items]


# ---------------------------------------------------------------- items


def test_an_item_is_put_read_replaced_and_deleted(store: ClewStore) -> None:
    place = ("test", "documents")
    store.put(place, "doc", {"title": "First", "n": 1})
    first = store.get(place, "doc")
    assert first is not None
    assert (first.namespace, first.key, first.value) == (place, "doc", {"title": "First", "n": 1})
    assert first.created_at == first.updated_at
    assert first.created_at.tzinfo is not None
    assert abs(first.created_at.timestamp() - time.time()) < 60

    store.put(place, "doc", {"title": "Second"})
    second = store.get(place, "doc")
    assert second is not None
    assert second.value == {"title": "Second"}
    assert second.created_at == first.created_at
    assert second.updated_at > first.updated_at
    assert len(store.search(("test",))) == 1

    assert store.get(("test", "other"), "doc") is None
    assert store.get(("test",), "documents") is None
    store.delete(place, "doc")
    store.delete(place, "doc")
    assert store.get(place, "doc") is None
    assert store.search(()) == []


def test_the_same_value_again_is_a_newer_item(store: ClewStore) -> None:
    store.put(("a",), "k", {"x": 1})
    before = store.get(("a",), "k")
    store.put(("a",), "k", {"x": 1})
    after = store.get(("a",), "k")
    assert before is not None
    assert after is not None
    assert after.updated_at > before.updated_at


def test_two_keys_with_the_same_value_are_two_items(store: ClewStore) -> None:
    store.put(("a",), "k", {"text": "likes tea"})
    store.put(("a",), "l", {"text": "likes tea"})
    store.put(("b",), "k", {"text": "likes tea"})
    assert len(store.search((), query="tea")) == 3
    store.delete(("a",), "k")
    assert keys(store.search((), query="tea")) == ["l", "k"]


def test_items_outlive_the_process(tmp_path: Path) -> None:
    with clew.Memory(tmp_path / "m.db", embedder=HashingEmbedder()) as memory:
        ClewStore(memory).put(("users", "ana"), "tea", {"text": "Ana drinks tea", "cups": 3})
    with clew.Memory(tmp_path / "m.db", embedder=HashingEmbedder()) as memory:
        (found,) = ClewStore(memory).search(("users",), query="tea")
        assert found.value == {"text": "Ana drinks tea", "cups": 3}


def test_a_batch_reads_first_and_writes_the_last_of_each_key(store: ClewStore) -> None:
    store.put(("test", "foo"), "a", {"data": "one"})
    results = store.batch(
        [
            GetOp(("test", "foo"), "a"),
            PutOp(("test", "foo"), "a", {"data": "two"}),
            PutOp(("test", "foo"), "a", {"data": "three"}),
            PutOp(("test", "bar"), "b", {"data": "four"}),
            PutOp(("test", "bar"), "c", {"data": "five"}),
            PutOp(("test", "bar"), "c", None),
            SearchOp(("test",), filter={"data": "one"}),
            ListNamespacesOp(),
            GetOp(("test",), "missing"),
        ]
    )
    assert isinstance(results[0], Item)
    assert results[0].value == {"data": "one"}
    assert results[1:6] == [None] * 5
    assert keys(results[6]) == ["a"]  # type: ignore[arg-type]
    assert results[7:] == [[("test", "foo")], None]
    assert {item.key: item.value for item in store.search(())} == {
        "a": {"data": "three"},
        "b": {"data": "four"},
    }


def test_a_batch_with_one_bad_value_writes_nothing(store: ClewStore) -> None:
    with pytest.raises(clew.InputError, match="is not JSON"):
        store.batch([PutOp(("a",), "good", {"x": 1}), PutOp(("a",), "bad", {"x": object()})])
    assert store.search(()) == []


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"x": float("nan")}, "is not JSON"),
        ({"x": 10**400}, "too large to be kept"),
        ({"x": {1, 2}}, "is not JSON"),
        ({"x": {1: "one"}}, "a key that is no text"),
        ([1], "must be a mapping"),
        ({"x": "half \ud800"}, "half a character"),
    ],
)
def test_a_value_that_would_not_come_back_as_it_was_is_refused(
    store: ClewStore, value: Any, said: str
) -> None:
    with pytest.raises(clew.InputError, match=said):
        store.put(("a",), "k", value)
    assert store.get(("a",), "k") is None


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8"), max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=4), inner, max_size=3)
    ),
    max_leaves=8,
)


@pytest.fixture(scope="module")
def lasting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClewStore]:
    path = tmp_path_factory.mktemp("langgraph") / "memory.db"
    with clew.Memory(path, embedder=HashingEmbedder()) as memory:
        yield ClewStore(memory)


@given(value=st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=4), JSON, max_size=3))
def test_a_value_comes_back_exactly(lasting: ClewStore, value: dict[str, Any]) -> None:
    lasting.put(("exact",), "k", value)
    found = lasting.get(("exact",), "k")
    assert found is not None
    assert repr(found.value) == repr(value)  # 1 is not 1.0 and not True


# ---------------------------------------------------------------- namespaces


def test_odd_names_are_kept_apart_and_come_back(store: ClewStore) -> None:
    odd = [
        (("users", "ana/bo"), "k"),
        (("users", "ana"), "bo/k"),
        (("users", "ana", "bo"), "k"),
        (("users", "ana+2Fbo"), "k"),
        (("Üsers", "安娜", "tab\tnew\nline", " ", "%_*?[", "🐟"), "clé/🗝"),
        (("users", "ANA", "bo"), "k"),
        (("users",), ""),
        (("users",), "."),
        (("users",), "a" * 400),
        (tuple("deep" * 20), "k"),
    ]
    for number, (labels, key) in enumerate(odd):
        store.put(labels, key, {"n": number})
    for number, (labels, key) in enumerate(odd):
        found = store.get(labels, key)
        assert found is not None
        assert (found.namespace, found.key, found.value) == (labels, key, {"n": number})
        assert (labels, key) in [(i.namespace, i.key) for i in store.search(labels)]
    assert len(store.search((), limit=100)) == len(odd)
    assert set(store.list_namespaces()) == {labels for labels, _ in odd}
    assert len(store.search(("users", "ana"))) == 2


@given(
    labels=st.lists(st.text(min_size=1, max_size=5), min_size=1, max_size=4).map(tuple),
    key=st.text(max_size=5),
)
def test_every_name_can_be_read_back_from_its_place(labels: tuple[str, ...], key: str) -> None:
    place = path_of(labels, key)
    assert place.rpartition("/")[0] == namespace_of(labels)
    assert (labels_of(namespace_of(labels)), key_of(place)) == (labels, key)
    assert NAMESPACE.fullmatch(namespace_of(labels))
    place.encode()  # no half characters


def test_bad_namespaces_are_refused_as_langgraph_does(store: ClewStore) -> None:
    for bad in ((), ("a.b",), ("a", ""), ("langgraph", "x")):
        with pytest.raises(InvalidNamespaceError):
            store.put(bad, "k", {})
        with pytest.raises(InvalidNamespaceError):
            asyncio.run(store.aput(bad, "k", {}))
    for odd in ((1,), ("a", "")):
        with pytest.raises(InvalidNamespaceError):
            store.batch([PutOp(odd, "k", {})])  # type: ignore[arg-type]
    store.put(("a", "langgraph"), "k", {"x": 1})
    store.batch([PutOp(("langgraph", "internal"), "k", {"x": 2})])  # as LangGraph itself may
    assert [item.value for item in store.search(("langgraph",))] == [{"x": 2}]


def test_namespaces_are_listed_by_prefix_suffix_and_depth(store: ClewStore) -> None:
    places = [
        ("a", "b", "c"),
        ("a", "b", "d", "e"),
        ("a", "b", "d", "i"),
        ("a", "b", "f"),
        ("a", "c", "f"),
        ("b", "a", "f"),
        ("users", "123"),
    ]
    for place in places:
        store.put(place, "k", {"x": 1})
        store.put(place, "l", {"x": 2})
    assert store.list_namespaces() == sorted(places)
    assert store.list_namespaces(prefix=("a", "b")) == places[:4]
    assert store.list_namespaces(prefix=("a", "b"), max_depth=3) == [
        ("a", "b", "c"),
        ("a", "b", "d"),
        ("a", "b", "f"),
    ]
    assert store.list_namespaces(suffix=("f",)) == places[3:6]
    assert store.list_namespaces(prefix=("a",), suffix=("f",)) == places[3:5]
    assert store.list_namespaces(prefix=("a", "*", "f")) == places[3:5]
    assert store.list_namespaces(suffix=("*", "f")) == places[3:6]
    assert store.list_namespaces(prefix=("a", "b"), limit=2, offset=1) == places[1:3]
    assert store.list_namespaces(prefix=("nowhere",)) == []
    with pytest.raises(clew.InputError, match="by prefix or suffix"):
        store.batch([ListNamespacesOp((MatchCondition("infix", ("a",)),))])  # type: ignore[arg-type]
    store.delete(("users", "123"), "k")
    assert ("users", "123") in store.list_namespaces()
    store.delete(("users", "123"), "l")
    assert ("users", "123") not in store.list_namespaces()


# ---------------------------------------------------------------- searching


def test_a_filter_holds_before_the_limit(store: ClewStore) -> None:
    store.batch(
        [
            PutOp(
                ("boats",),
                f"{i:03}",
                {
                    "text": f"the boat has a keel number {i}",
                    "n": i,
                    "rare": i % 100 == 0,
                    "parts": {"keel": i % 50},
                    "tags": ["old", "red"] if i % 60 == 0 else ["old"],
                },
            )
            for i in range(300)
        ]
    )
    for query in (None, "boat keel"):

        def found(query: str | None = query, **wanted: Any) -> list[str]:
            items = store.search(("boats",), query=query, filter=wanted, limit=10)
            return sorted(keys(items))

        assert found(rare=True) == ["000", "100", "200"]
        assert found(n={"$gte": 297}) == ["297", "298", "299"]
        assert found(n={"$gt": 10, "$lt": 13}) == ["011", "012"]
        assert found(n={"$lte": 0}) == ["000"]
        assert found(parts={"keel": 7}) == ["007", "057", "107", "157", "207", "257"]
        assert found(parts={"keel": {"$gte": 49}}, n={"$lt": 100}) == ["049", "099"]
        assert found(tags=["old", "red"]) == ["000", "060", "120", "180", "240"]
        assert found(tags={"$ne": ["old"]}) == ["000", "060", "120", "180", "240"]
        assert found(tags="old") == []
        assert found(n={"$eq": 5}, rare={"$ne": True}) == ["005"]
        assert found(text={"$lt": "the boat has a keel number 10"}) == ["000", "001"]
        assert found(missing=None, n=3) == ["003"]
        assert found(n={"$gt": "3"}) == []
        assert found(n={"$gt": 10**400}) == found(n={"$lt": float("-inf")}) == []
        assert found(n=float("nan")) == found(text="half \ud800") == []
        assert len(found(rare={"$ne": True})) == 10
        with pytest.raises(clew.InputError, match=r"unknown operator '\$gte_': did you mean"):
            found(n={"$gte_": 3})


def test_a_query_finds_by_meaning_and_the_rest_follows_without_a_score(store: ClewStore) -> None:
    store.put(("t",), "zebra", {"text": "zany zebra Xerxes"})
    store.put(("t",), "dogs", {"text": "something about dogs"})
    store.put(("t",), "birds", {"text": "text about birds"})
    first = store.search(("t",), query="Zany Xerxes")[0]
    assert first.key == "zebra"
    assert first.score is not None

    store.put(("t",), "zebra", {"text": "new text about cats"})
    again = {item.key: item.score for item in store.search(("t",), query="Zany Xerxes")}
    assert (again["zebra"] or 0) < first.score
    assert store.search(("t",), query="new text about cats")[0].key == "zebra"

    store.put(("t",), "hidden", {"text": "new text about cats"}, index=False)
    assert "hidden" not in keys(store.search(("t",), query="new text about cats", limit=3))
    last = store.search(("t",), query="new text about cats", limit=4)[-1]
    assert (last.key, last.score) == ("hidden", None)
    assert "hidden" in keys(store.search(("t",)))
    assert all(item.score is None for item in store.search(("t",)))
    assert store.get(("t",), "hidden") is not None

    store.put(("t",), "hidden", {"text": "new text about cats"})
    assert "hidden" in keys(store.search(("t",), query="new text about cats", limit=2))


def test_fields_say_what_is_indexed_and_a_put_can_say_otherwise(memory: clew.Memory) -> None:
    store = ClewStore(memory, fields=["title", "notes[*].text", "meta.author"])
    value = {
        "title": "keel",
        "notes": [{"text": "mast"}, {"text": "rudder"}],
        "meta": {"author": "ines"},
        "secret": "anchor",
    }
    store.put(("t",), "doc", value)
    store.put(("t",), "other", {"title": "unrelated", "secret": "sail"})
    for word in ("keel", "mast", "rudder", "ines"):
        (first, second) = store.search(("t",), query=word)
        assert first.key == "doc"
        # each text has a vector of its own, so one word meets it whole
        (near,) = memory.vector_search(memory.engine.embed_query(word), 1, namespace="langgraph/t")
        assert near.score == pytest.approx(1, abs=1e-3)
        assert (first.score or 0) > (second.score or 0)
    text = memory.get("langgraph/t/doc")
    assert text is not None
    assert "anchor" not in text.content
    assert memory.fts_search("anchor", namespace="langgraph/t") == []

    store.put(("t",), "doc", value, index=["secret"])
    assert store.search(("t",), query="anchor")[0].key == "doc"
    assert memory.fts_search("rudder", namespace="langgraph/t") == []
    with pytest.raises(clew.InputError, match="a list of paths"):
        store.put(("t",), "doc", value, index="secret")  # type: ignore[arg-type]


def test_a_long_text_is_found_by_its_last_words(memory: clew.Memory) -> None:
    store = ClewStore(memory, fields=["title", "body"])
    store.put(("t",), "long", {"title": "a log", "body": "the sea was calm. " * 500 + "walrus"})
    store.put(("t",), "short", {"title": "a note", "body": "nothing"})
    assert store.search(("t",), query="walrus")[0].key == "long"


def test_pages_of_a_query_are_one_list(store: ClewStore) -> None:
    for i in range(7):
        store.put(
            ("t",), f"doc{i}", {"text": f"test document number {i}"}, index=None if i else False
        )
    whole = keys(store.search(("t",), query="test number 3", limit=10))
    pages = [store.search(("t",), query="test number 3", limit=3, offset=n) for n in (0, 3, 6, 9)]
    assert [key for page in pages for key in keys(page)] == whole
    assert sorted(whole) == [f"doc{i}" for i in range(7)]
    assert [len(page) for page in pages] == [3, 3, 1, 0]
    assert store.search(("t",), limit=0) == []
    with pytest.raises(clew.InputError, match="from 0 on"):
        store.search(("t",), offset=-1)


@pytest.mark.parametrize(
    "query", ["", " ", None, "test " * 2000, "test!@#$%^&*()", '"', "-test", "?"]
)
def test_any_query_is_answered(store: ClewStore, query: str | None) -> None:
    store.put(("t",), "doc", {"text": "test document"})
    assert keys(store.search(("t",), query=query)) == ["doc"]


def test_every_script_is_found(store: ClewStore) -> None:
    texts = ["这是中文", "これは日本語です", "이건 한국어야", "Это русский", "यह रूसी है"]
    for number, text in enumerate(texts):
        store.put(("user_123", "memories"), str(number), {"text": text})
    for number, text in enumerate(texts):
        assert store.search(("user_123",), query=text)[0].key == str(number)


def test_without_a_model_a_query_goes_by_words(tmp_path: Path) -> None:
    with clew.Memory(tmp_path / "m.db", embedding_dim=4) as memory:
        store = ClewStore(memory, fields=["text"])
        store.put(("t",), "nuts", {"text": "Ana is allergic to walnuts"})
        store.put(("t",), "tea", {"text": "Ana drinks tea"})
        first, second = store.search(("t",), query="walnuts")
        assert (first.key, second.key, second.score) == ("nuts", "tea", None)
        assert first.score is not None


# ---------------------------------------------------------------- beside the rest of Clew


def test_items_and_other_memories_do_not_see_each_other(
    memory: clew.Memory, store: ClewStore
) -> None:
    memory.remember("the keel is red", namespace="users")
    memory.remember("the keel is blue")
    store.put(("users",), "k", {"text": "the keel is green"})
    assert keys(store.search((), query="keel")) == ["k"]
    assert store.list_namespaces() == [("users",)]
    assert [m.content for m in memory.recall("keel", namespace="users")] == ["the keel is red"]
    (item,) = memory.recall("keel", namespace="langgraph/users")
    assert item.metadata == {"text": "the keel is green"}


def test_what_was_evicted_or_forgotten_is_gone_and_can_be_put_again(
    memory: clew.Memory, store: ClewStore
) -> None:
    store.put(("users",), "k", {"text": "the keel is green"})
    before = store.get(("users",), "k")
    assert memory.evict(0)
    assert store.get(("users",), "k") is None
    assert store.search((), query="keel") == store.search(()) == store.list_namespaces() == []
    assert memory.restore("langgraph/users/k") == 1
    assert store.get(("users",), "k") == before
    memory.forget("langgraph/users/k")
    store.put(("users",), "k", {"text": "the keel is new"})
    (found,) = store.search((), query="keel")
    assert before is not None
    assert found.created_at > before.created_at
    assert memory.get("langgraph/users/k").reason == ""  # type: ignore[union-attr]


def test_a_deleted_item_leaves_no_trace_after_vacuum(
    tmp_path: Path, memory: clew.Memory, store: ClewStore
) -> None:
    store.put(("users",), "k", {"text": "a walnut of brass"})
    store.search(("users",), query="walnut")
    store.delete(("users",), "k")
    memory.vacuum()
    memory.close()
    left = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert left
    assert not [path for path in left if b"walnut" in path.read_bytes()]


def test_time_to_live_is_refused_rather_than_ignored(store: ClewStore) -> None:
    assert store.supports_ttl is False
    with pytest.raises(NotImplementedError, match="TTL is not supported by ClewStore"):
        store.put(("a",), "k", {}, ttl=5)
    store.put(("a",), "k", {}, ttl=None)
    assert store.get(("a",), "k", refresh_ttl=True) is not None


def test_what_is_no_memory_or_no_operation_is_refused(store: ClewStore) -> None:
    with pytest.raises(clew.InputError, match="keeps its items in a Memory"):
        ClewStore("memory.db")  # type: ignore[arg-type]
    with pytest.raises(clew.InputError, match="has no operation"):
        store.batch(["get"])  # type: ignore[list-item]


# ---------------------------------------------------------------- threads, loops and graphs


def test_the_same_awaited(tmp_path: Path) -> None:
    async def through() -> None:
        async with clew.AsyncMemory(tmp_path / "m.db", embedder=HashingEmbedder()) as memory:
            store = ClewStore(memory)
            await asyncio.gather(
                *(store.aput(("t", str(i % 2)), f"k{i}", {"text": f"egg {i}"}) for i in range(20))
            )
            assert len(await store.asearch(("t",), query="egg", limit=50)) == 20
            assert len(await store.asearch(("t", "1"), filter={"text": "egg 3"})) == 1
            assert await store.alist_namespaces(suffix=("1",)) == [("t", "1")]
            await store.adelete(("t", "1"), "k3")
            assert await store.aget(("t", "1"), "k3") is None

    asyncio.run(through())


def test_threads_that_write_the_same_keys_leave_one_item_each(store: ClewStore) -> None:
    def write(number: int) -> None:
        for i in range(10):
            store.put(("t",), f"k{i}", {"text": f"egg {i}", "by": number})
            store.search(("t",), query="egg")

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(write, range(4)))
    assert sorted(keys(store.search(("t",), limit=100))) == [f"k{i}" for i in range(10)]


class State(TypedDict):
    user: str
    said: str
    known: list[str]


def test_a_graph_keeps_and_finds_what_its_nodes_put(memory: clew.Memory) -> None:
    def keep(state: State) -> dict[str, Any]:
        store = get_store()
        known = store.search(("users", state["user"]), query=state["said"], limit=2)
        store.put(("users", state["user"]), state["said"][:20], {"text": state["said"]})
        return {"known": [item.value["text"] for item in known]}

    async def akeep(state: State) -> dict[str, Any]:
        known = await get_store().asearch(("users", state["user"]), query=state["said"], limit=1)
        return {"known": [item.value["text"] for item in known]}

    def graph(node: Any) -> Any:
        builder = StateGraph(State)
        builder.add_node("keep", node)
        builder.add_edge(START, "keep")
        builder.add_edge("keep", END)
        return builder.compile(store=ClewStore(memory, fields=["text"]))

    sync = graph(keep)
    first = sync.invoke({"user": "ana", "said": "I am allergic to walnuts", "known": []})
    other = sync.invoke({"user": "bo", "said": "no walnuts for me either?", "known": []})
    again = sync.invoke({"user": "ana", "said": "a cake without walnuts", "known": []})
    assert (first["known"], other["known"]) == ([], [])
    assert again["known"] == ["I am allergic to walnuts"]
    asked = {"user": "ana", "said": "cake", "known": []}
    assert asyncio.run(graph(akeep).ainvoke(asked))["known"] == ["a cake without walnuts"]


def test_items_of_an_imported_file_are_found_and_bound_memories_refused(tmp_path: Path) -> None:
    with clew.Memory(tmp_path / "memory.db", model="none") as memory:
        memory.remember("not an item", id="langgraph/users/ana/tea")
        store = ClewStore(memory, fields=["text"])
        store.put(("users", "ana"), "tea", {"text": "green tea"})
        item = store.get(("users", "ana"), "tea")
        assert item is not None and item.value == {"text": "green tea"}
        (found,) = store.search(("users",), query="green")
        assert (found.namespace, found.key) == (("users", "ana"), "tea")
        store.delete(("users", "ana"), "tea")
        assert store.get(("users", "ana"), "tea") is None
        assert memory.get("langgraph/users/ana/tea", namespace="default") is not None
        with pytest.raises(clew.InputError, match="namespaces of its own"):
            ClewStore(memory.scoped("ana"))
