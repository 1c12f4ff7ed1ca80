"""Ids are per namespace, and a handle bound to one has nothing to do with any other."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import clew
from clew.memory.record import find_records, make_scope, public_id, record_ids

from hashing import HashingEmbedder


def contents(found: Any) -> list[str]:
    return [memory.content for memory in found]


def told(memory: clew.Memory) -> None:
    for space in ("ana", "ben", "default"):
        memory.remember(f"the profile of {space}", id="profile", namespace=space)


# ---------------------------------------------------------------- ids


def test_one_id_in_several_namespaces_is_several_memories(memory: clew.Memory) -> None:
    told(memory)
    for space in ("ana", "ben", "default"):
        (found,) = memory.recall("profile", namespace=space)
        assert (found.id, found.namespace) == ("profile", space)
        one = memory.get("profile", namespace=space)
        assert one is not None and one.content == f"the profile of {space}"
    assert memory.update("profile", "ana's, anew", namespace="ana").id == "profile"
    new = memory.supersede("profile", "ben's, anew", namespace="ben", new_id="later")
    assert new.id == "later"
    assert [m.id for m in memory.history("later")] == ["later", "profile"]
    assert memory.history("later")[1].successor == "later"
    assert memory.feedback("profile", namespace="default")["id"] == "profile"
    assert memory.forget("profile", namespace="default")
    assert contents(memory.latest(namespace="ana")) == ["ana's, anew"]
    assert memory.restore("profile", namespace="default") == 1


def test_an_import_touches_only_the_namespaces_it_names(memory: clew.Memory) -> None:
    told(memory)
    memory.import_json([{"id": "profile", "namespace": "ben", "content": "another"}])
    assert contents(memory.latest(namespace="ana")) == ["the profile of ana"]
    assert contents(memory.latest(namespace="ben")) == ["another"]
    whole = memory.export_json()
    assert isinstance(whole, dict)
    assert {(m["id"], m["namespace"]) for m in whole["memories"]} == {
        ("profile", space) for space in ("ana", "ben", "default")
    }


def test_an_import_can_be_put_into_one_namespace(memory: clew.Memory) -> None:
    told(memory)
    memory.supersede("profile", "the profile of ana since", namespace="ana", new_id="since")
    whole = memory.export_json(namespace="ana")
    assert memory.import_json(whole, namespace="carl") == {
        "created": 2, "updated": 0, "unchanged": 0,
    }  # fmt: skip
    assert memory.import_json(whole, namespace="carl")["unchanged"] == 2
    assert contents(memory.latest(namespace="carl")) == ["the profile of ana since"]
    assert [m.id for m in memory.history("since", namespace="carl")] == ["since", "profile"]
    assert len(memory.latest(namespace="ben")) == 1


def test_without_a_namespace_the_one_that_has_the_id_is_meant(memory: clew.Memory) -> None:
    memory.remember("only ben has it", id="alone", namespace="ben")
    found = memory.get("alone")
    assert found is not None and found.namespace == "ben"
    assert memory.update("alone", "and so it is").status == "updated"
    memory.remember("now ana as well", id="alone", namespace="ana")
    calls: list[Callable[[], Any]] = [
        lambda: memory.get("alone"),
        lambda: memory.update("alone", "whose?"),
        lambda: memory.supersede("alone", "whose?"),
        lambda: memory.forget("alone", hard=True),
        lambda: memory.restore("alone"),
        lambda: memory.feedback("alone"),
        lambda: memory.history("alone"),
    ]
    for call in calls:
        with pytest.raises(clew.InputError, match=r"several namespaces .*'ana', 'ben'"):
            call()
    assert memory.stats()["memories"] == 2


names = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0") | st.sampled_from("\x1f :/"),
    min_size=1,
    max_size=4,
).filter(lambda name: name.strip())
spaces = st.sampled_from(["default", "a", "b", "a:b", "a/b"])


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> clew.Memory:
    return clew.Memory(tmp_path_factory.mktemp("ids") / "memory.db", embedding_dim=4)


@settings(max_examples=60, deadline=None)
@given(named=st.lists(st.tuples(names, spaces), min_size=1, max_size=6, unique=True))
def test_whatever_ids_and_namespaces_are_made_of_none_gets_in_anothers_way(
    shared: clew.Memory, named: list[tuple[str, str]]
) -> None:
    shared.store.delete([r.id for r in shared.store.select(clew.Filter(), limit=99)])
    for name, space in named:
        shared.remember(f"{name!r} of {space}", id=name, namespace=space)
    for name, space in named:
        (found,) = find_records(shared.store, [name], space)
        assert (found.content, found.collection) == (f"{name!r} of {space}", space)
        assert public_id(found.id, space) == name
        assert record_ids(shared.store, [(name, space)]) == {(name, space): found.id}
    assert shared.store.count(clew.Filter()) == len(named)


def test_files_from_before_keep_their_ids_and_their_namespaces(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    with clew.Memory(path, embedding_dim=4) as memory:
        memory.remember("ana's, from before", id="profile", namespace="ana")
        memory.remember("ana's second", id="second", namespace="ana")
        memory.supersede("second", "ana's third", namespace="ana", new_id="third")
    db = sqlite3.connect(path)  # as it was written then
    old = "substr(id, 1, instr(id, char(31)) - 1), checksum = NULL"
    db.execute(f"UPDATE records SET id = {old}")
    db.execute("UPDATE lives SET successor = substr(successor, 1, instr(successor, char(31)) - 1)")
    db.commit()
    db.close()
    with clew.Memory(path, embedding_dim=4) as memory:
        assert contents([memory.get("profile")]) == ["ana's, from before"]
        assert memory.get("profile", namespace="default") is None
        memory.remember("everybody's", id="profile")
        memory.remember("ben's", id="profile", namespace="ben")
        assert memory.update("profile", "ana's still", namespace="ana").status == "updated"
        memory.import_json([{"id": "profile", "namespace": "ana", "content": "ana's again"}])
        got = {s: memory.get("profile", namespace=s) for s in ("ana", "ben", "default")}
        assert {s: m.content for s, m in got.items() if m} == {
            "ana": "ana's again", "ben": "ben's", "default": "everybody's",
        }  # fmt: skip
        assert [m.id for m in memory.history("third")] == ["third", "second"]
        memory.recall("ana's again", namespace="ana")
        assert memory.stats()["namespaces"] == {"ana": 2, "ben": 1, "default": 1}
        used = memory.get("profile", namespace="ana")
        assert used is not None and used.accesses == 1


def test_recall_may_be_of_several_namespaces_by_name(memory: clew.Memory) -> None:
    told(memory)
    found = memory.recall("profile", namespace=["ana", "default"], k=9)
    assert {m.namespace for m in found} == {"ana", "default"}
    assert len(memory.fts_search("profile", namespace=["ana", "ben"], k=9)) == 2
    memory.stats()
    for space, uses in (("ana", 1), ("ben", 0), ("default", 1)):
        one = memory.get("profile", namespace=space)
        assert one is not None and one.accesses == uses, space
    for wrong in ([], [1], None, ["ana", "../x"]):
        with pytest.raises(clew.InputError, match="is no namespace"):
            memory.recall("profile", namespace=wrong)  # type: ignore[arg-type]


# ---------------------------------------------------------------- a handle bound to one

OTHERS: dict[str, Callable[[clew.Memory], Any]] = {
    "remember": lambda m: m.remember("x", namespace="ben"),
    "remember, by place": lambda m: m.remember("x", "semantic", 0.5, (), None, None, "ben"),
    "remember_many": lambda m: m.remember_many([{"content": "x", "namespace": "ben"}]),
    "recall": lambda m: m.recall("profile", namespace="ben"),
    "recall of several": lambda m: m.recall("profile", namespace=["ana", "ben"]),
    "fts_search": lambda m: m.fts_search("profile", namespace="ben"),
    "vector_search": lambda m: m.vector_search([1.0] * 64, namespace="ben"),
    "hybrid_search": lambda m: m.hybrid_search("profile", namespace="ben"),
    "context_pack": lambda m: m.context_pack("profile", namespace="ben"),
    "working_memory": lambda m: m.working_memory("profile", namespace="ben"),
    "latest": lambda m: m.latest(namespace="ben"),
    "list_newest": lambda m: m.list_newest(make_scope("ben"), limit=9),
    "explain_absence": lambda m: m.explain_absence("ben"),
    "get": lambda m: m.get("profile", namespace="ben"),
    "history": lambda m: m.history("profile", namespace="ben"),
    "update": lambda m: m.update("profile", "x", namespace="ben"),
    "supersede": lambda m: m.supersede("profile", "x", namespace="ben"),
    "forget": lambda m: m.forget("profile", namespace="ben"),
    "restore": lambda m: m.restore("profile", namespace="ben"),
    "feedback": lambda m: m.feedback("profile", namespace="ben"),
    "evict": lambda m: m.evict(0, namespace="ben"),
    "consolidate": lambda m: m.consolidate("ben"),
    "stats": lambda m: m.stats(namespace="ben"),
    "export_json": lambda m: m.export_json(namespace="ben"),
    "import_json": lambda m: m.import_json([], namespace="ben"),
    "reembed": lambda m: m.reembed(namespace="ben"),
    "scoped": lambda m: m.scoped("ben"),
}


@pytest.mark.parametrize("call", OTHERS.values(), ids=OTHERS)
def test_a_bound_handle_refuses_to_be_sent_elsewhere(
    memory: clew.Memory, call: Callable[[clew.Memory], Any]
) -> None:
    told(memory)
    with pytest.raises(clew.InputError, match="bound to the namespace 'ana'"):
        call(memory.scoped("ana"))


def snapshot(memory: clew.Memory, space: str) -> Any:
    return memory.export_json(namespace=space)


def test_nothing_a_bound_handle_does_is_felt_elsewhere(memory: clew.Memory) -> None:
    for space in ("ana", "ben", "default"):
        memory.remember_many(
            [
                {"content": f"the profile of {space}", "id": "profile", "namespace": space},
                {"content": f"{space} likes dark mode", "namespace": space},
                {"content": f"{space} likes dark mode.", "namespace": space},
            ]
        )
    before = {space: snapshot(memory, space) for space in ("ben", "default")}
    ana = memory.scoped("ana")
    assert ana.remember("a new one", id="new").status == "created"
    assert ana.remember_many([{"content": "and one more"}])[0].status == "created"
    for found in (ana.recall("profile dark mode", k=99), ana.latest(99), ana.fts_search("profile")):
        assert {m.namespace for m in found} == {"ana"}
    assert ana.update("profile", "ana's own").id == "profile"
    assert ana.supersede("new", "newer", new_id="newer").id == "newer"
    assert [m.id for m in ana.history("newer")] == ["newer", "new"]
    assert len(ana.consolidate()) == 1
    assert ana.get("profile") is not None
    assert ana.forget("profile") and ana.restore("profile") == 1
    assert ana.feedback("profile")["useful"] == 1
    whole = ana.export_json()
    assert isinstance(whole, dict) and {m["namespace"] for m in whole["memories"]} == {"ana"}
    ana.import_json([{"id": "in", "content": "from ben's file", "namespace": "ben"}])
    assert ana.get("in") is not None
    assert ana.stats()["namespaces"].keys() == {"ana"}
    assert ana.stats()["embedded"] == 1.0
    assert "path" not in ana.stats()
    assert ana.evict(1) and len(ana.latest(99)) == 1
    assert {space: snapshot(memory, space) for space in ("ben", "default")} == before


def test_a_bound_handle_never_learns_what_others_have(memory: clew.Memory) -> None:
    memory.remember("ben's secret", id="secret", namespace="ben")
    ana = memory.scoped("ana")
    assert ana.get("secret") is None and not ana.forget("secret", hard=True)
    for call in (ana.history, ana.feedback, lambda name: ana.update(name, "x")):
        with pytest.raises(clew.InputError) as said:
            call("secret")
        assert "ben" not in str(said.value)
    assert ana.list_newest(make_scope(None), limit=9) == ([], False)
    assert ana.explain_absence() == ana.explain_absence("ana", tags="boat") == []
    assert ana.remember("ana's own", id="secret").status == "created"
    assert contents(ana.list_newest(make_scope(None), limit=9)[0]) == ["ana's own"]
    (absent,) = ana.explain_absence(tags="boat")
    assert "'boat'" in absent and "ben" not in absent
    assert ana.remember("ben's secret").status == "created"  # not a duplicate of his


def test_who_names_a_namespace_never_learns_what_others_have(memory: clew.Memory) -> None:
    memory.remember("ben's secret", id="secret", namespace="ben")
    for call in (memory.history, memory.feedback, lambda *a, **o: memory.supersede(*a, "x", **o)):
        with pytest.raises(clew.InputError, match="no memory 'secret' in 'ana'") as said:
            call("secret", namespace="ana")
        assert "ben" not in str(said.value)


def test_a_bound_handle_gives_vectors_to_its_own_only(tmp_path: Path) -> None:
    with clew.Memory(tmp_path / "memory.db", model="none") as words:
        for space in ("ana", "ben"):
            words.remember("the boat has a keel", namespace=space)
    with clew.Memory(tmp_path / "memory.db", embedder=HashingEmbedder()) as memory:
        ana = memory.scoped("ana")
        assert ana.stats()["embedded"] == 0.0
        assert ana.reembed() == 1
        assert ana.stats()["embedded"] == 1.0
        assert memory.stats(namespace="ben")["embedded"] == 0.0


def test_the_file_stays_its_owners_to_close(memory: clew.Memory) -> None:
    with memory.scoped("ana") as ana:
        ana.remember("kept")
    assert contents(memory.latest(namespace="ana")) == ["kept"]
    memory.close()
    assert contents(ana.open().latest()) == ["kept"]


def test_what_is_awaited_can_be_bound_too(tmp_path: Path) -> None:
    async def turn() -> None:
        async with clew.AsyncMemory(tmp_path / "memory.db", embedding_dim=4) as memory:
            ana = memory.scoped("ana")
            await ana.remember("ana's own", id="profile")
            await memory.remember("everybody's", id="profile")
            found = await ana.recall("own")
            assert contents(found) == ["ana's own"]
            with pytest.raises(clew.InputError, match="bound to"):
                await ana.recall("own", namespace="default")

    asyncio.run(turn())
