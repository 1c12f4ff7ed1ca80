"""What becomes of memories: chains, returns, ties and moments."""

from __future__ import annotations

import time

import pytest

import clew
from clew.types import Life

DAY = 86_400.0


def contents(found: list[clew.memory.Recalled]) -> list[str]:
    return [memory.content for memory in found]


def test_a_chain_of_a_thousand_has_one_that_holds_and_a_history_of_all(plain: clew.Memory) -> None:
    begun = time.time() - 2000
    last = plain.remember("the count is 0", created_at=begun)
    for number in range(1, 1000):
        last = plain.supersede(last.id, f"the count is {number}", created_at=begun + number)
    assert contents(plain.recall("count", k=50)) == ["the count is 999"]
    told = contents(plain.history(last.id))
    assert told == [f"the count is {number}" for number in range(999, -1, -1)]
    assert contents(plain.recall("count", as_of=begun + 500, k=50)) == ["the count is 500"]
    assert plain.stats()["ended"] == {"superseded": 999}


def test_at_the_very_moment_of_supersession_the_new_one_holds(plain: clew.Memory) -> None:
    old = plain.remember("Ana lives in Porto", created_at=100.0)
    plain.supersede(old.id, "Ana lives in Lisbon", created_at=200.0)
    for moment, place in ((99.9, None), (100.0, "Porto"), (199.9, "Porto"), (200.0, "Lisbon")):
        found = contents(plain.recall("Ana", as_of=moment))
        assert found == ([] if place is None else [f"Ana lives in {place}"]), moment
    assert plain.recall("Ana", as_of="0001-01-01") == []
    assert contents(plain.recall("Ana", as_of="9999-12-31")) == ["Ana lives in Lisbon"]


@pytest.mark.parametrize("at", [0, 50.0])
def test_what_is_superseded_by_something_older_never_held(plain: clew.Memory, at: float) -> None:
    old = plain.remember("Ana lives in Porto", created_at=100.0)
    new = plain.supersede(old.id, "Ana lives in Lisbon", created_at=at)
    for moment in (60.0, 100.0, 1000.0):
        assert contents(plain.recall("Ana", as_of=moment)) == ["Ana lives in Lisbon"]
    ended = plain.get(old.id)
    assert ended is not None
    assert (ended.ended_at, ended.successor) == (100.0, new.id)


def test_what_is_recalled_of_another_time_says_how_it_ended(memory: clew.Memory) -> None:
    old = memory.remember("Ana lives in Porto", created_at=time.time() - DAY)
    memory.recall("Ana")
    new = memory.supersede(old.id, "Ana lives in Lisbon")
    memory.stats()  # the access is counted by then
    (found,) = memory.recall("Ana", as_of=time.time() - 60)
    assert (found.reason, found.successor, found.accesses) == ("superseded", new.id, 1)
    assert memory.latest()[0].accesses == 0


def test_superseding_with_what_is_known_already_points_to_that(memory: clew.Memory) -> None:
    memory.remember("Ana lives in Lisbon", id="known")
    old = memory.remember("Ana lives in Porto")
    made = memory.supersede(old.id, "Ana lives in Lisbon")
    assert (made.id, made.status) == ("known", "duplicate")
    assert contents(memory.history("known")) == ["Ana lives in Lisbon", "Ana lives in Porto"]
    assert len(memory.recall("Ana")) == 1


def test_a_successor_may_be_named_but_not_after_another(memory: clew.Memory) -> None:
    memory.remember("Ana lives in Porto", id="a")
    memory.remember("Ana likes boats", id="b")
    for taken in ("a", "b"):
        with pytest.raises(clew.InputError, match="is taken by another text"):
            memory.supersede("a", "Ana lives in Lisbon", new_id=taken)
    assert memory.supersede("a", "Ana lives in Porto", new_id="a").id == "a"  # nothing has changed
    assert len(memory.recall("Ana")) == 2
    assert memory.supersede("a", "Ana lives in Lisbon", new_id="c").id == "c"
    assert contents(memory.history("c")) == ["Ana lives in Lisbon", "Ana lives in Porto"]


def test_a_hard_deletion_leaves_no_hole_in_a_history(memory: clew.Memory) -> None:
    first = memory.remember("version one")
    second = memory.supersede(first.id, "version two")
    third = memory.supersede(second.id, "version three")
    assert memory.forget(second.id, hard=True)
    assert contents(memory.history(third.id)) == ["version three", "version one"]
    assert memory.forget(third.id, hard=True)
    alone = memory.get(first.id)
    assert alone is not None
    assert (alone.reason, alone.successor) == ("superseded", None)
    assert memory.restore(first.id) == 1


def test_a_circle_made_by_hand_has_an_end(memory: clew.Memory) -> None:
    a, b = memory.remember("one").id, memory.remember("two").id
    memory.store.lifecycle.set({a: Life(successor=b), b: Life(successor=a)})
    assert sorted(contents(memory.history(a))) == ["one", "two"]
    assert memory.forget(a, hard=True)
    assert contents(memory.history(b)) == ["two"]
    memory.store.lifecycle.set({b: Life(successor=b)})
    assert contents(memory.history(b)) == ["two"]
    assert memory.forget(b, hard=True)


def test_a_superseded_memory_that_is_restored_holds_beside_its_successor(
    memory: clew.Memory,
) -> None:
    """Somebody said that it still holds; that the new one does not is for them to say as well."""
    old = memory.remember("Ana lives in Porto")
    new = memory.supersede(old.id, "Ana lives in Lisbon")
    assert memory.restore(old.id) == 1
    assert sorted(contents(memory.recall("Ana"))) == ["Ana lives in Lisbon", "Ana lives in Porto"]
    assert contents(memory.history(new.id)) == ["Ana lives in Lisbon"]
    assert memory.supersede(old.id, "Ana lives in Faro").status == "created"


def test_what_is_told_again_by_its_id_is_back(memory: clew.Memory) -> None:
    memory.remember("the key is under the mat", id="key", tags="home")
    memory.forget("key")
    again = memory.remember("the key is under the mat", id="key")
    assert (again.id, again.status) == ("key", "updated")
    (found,) = memory.recall("key")
    assert (found.id, found.reason, found.ended_at) == ("key", "", None)


def test_feedback_moves_the_importance_within_its_bounds(memory: clew.Memory) -> None:
    memory.remember("the boat has a keel", id="a", importance=0.95)
    assert [memory.feedback("a")["importance"] for _ in range(3)] == [1.0, 1.0, 1.0]
    for _ in range(20):
        said = memory.feedback("a", useful=False)
    assert said == {"id": "a", "useful": 3, "useless": 20, "importance": 0.0}
    assert memory.recall("keel", importance_min=0.01) == []
    assert memory.recall("keel", importance_min=0.0)[0].importance == 0.0


def test_feedback_on_what_has_ended_does_not_bring_it_back(memory: clew.Memory) -> None:
    memory.remember("the boat has a keel", id="a")
    memory.forget("a")
    memory.feedback("a")
    memory.update("a", tags="boat")
    assert memory.recall("keel") == []
    kept = memory.get("a")
    assert kept is not None
    assert (kept.reason, kept.tags) == ("forgotten", ("boat",))


def test_an_update_keeps_what_others_said_meanwhile(
    memory: clew.Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between its look at the memory and its write another thread forgets it and adds a tag."""
    memory.remember("the boat has a keel", id="a", tags="boat")
    embed = memory.engine.embedder.embed_documents

    def slowly(texts: list[str]) -> object:
        monkeypatch.undo()
        memory.update("a", tags=["boat", "red"])
        memory.forget("a")
        return embed(texts)

    monkeypatch.setattr(memory.engine.embedder, "embed_documents", slowly)
    memory.update("a", "the boat has a red keel")
    kept = memory.get("a")
    assert kept is not None
    assert kept.content == "the boat has a red keel"
    assert set(kept.tags) == {"boat", "red"}
    assert kept.reason == "forgotten"
    assert memory.recall("keel") == []


def test_of_two_who_supersede_one_memory_the_second_is_told(
    memory: clew.Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory.remember("Ana lives in Porto", id="a")
    embed = memory.engine.embedder.embed_documents

    def slowly(texts: list[str]) -> object:
        monkeypatch.undo()
        memory.supersede("a", "Ana lives in Lisbon")
        return embed(texts)

    monkeypatch.setattr(memory.engine.embedder, "embed_documents", slowly)
    with pytest.raises(clew.InputError, match="has ended already"):
        memory.supersede("a", "Ana lives in Faro")
    assert contents(memory.recall("Ana")) == ["Ana lives in Lisbon"]


def test_of_equals_the_first_by_id_is_evicted_first(memory: clew.Memory) -> None:
    at = time.time() - DAY
    memory.remember_many(
        [{"content": f"fact {name}", "id": name, "created_at": at} for name in "dbca"]
    )
    assert [m["id"] for m in memory.evict(2)] == ["a", "b"]
    assert memory.evict(2) == []
    assert [m["id"] for m in memory.evict(0)] == ["c", "d"]
    assert memory.recall("fact") == memory.latest() == []
    assert memory.stats()["memories"] == 0
    assert memory.restore(["a", "b", "c", "d"]) == 4


def test_eviction_keeps_to_its_namespace_and_weighs_accesses(memory: clew.Memory) -> None:
    at = time.time() - DAY
    for namespace in ("ana", "ben"):
        for i in range(3):
            memory.remember(
                f"fact {i}",
                namespace=namespace,
                id=f"{namespace}{i}",
                created_at=at,
                importance=0.0,
            )
    for _ in range(5):
        memory.recall("fact 0", k=1, namespace="ana")
    assert [m["id"] for m in memory.evict(1, namespace="ana")] == ["ana1", "ana2"]
    assert len(memory.latest(namespace="ben")) == 3
