"""Remember and recall through public names."""

from __future__ import annotations

import asyncio
import datetime as dt
import time
from pathlib import Path

import numpy as np
import pytest

import clew

from hashing import HashingEmbedder

DAY = 86_400.0


def contents(found: list[clew.memory.Recalled]) -> list[str]:
    return [memory["content"] for memory in found]


# ---------------------------------------------------------------- remembering


def test_what_is_remembered_comes_back_with_everything_that_was_said_of_it(
    memory: clew.Memory,
) -> None:
    made = memory.remember(
        "Ana is allergic to walnuts",
        type="semantic",
        importance=0.9,
        tags=["health"],
        metadata={"source": "chat", "turn": 7},
    )
    assert made["status"] == "created"
    (found,) = memory.recall("walnuts")
    assert found["id"] == made["id"]
    assert found["content"] == "Ana is allergic to walnuts"
    assert found["type"] == "semantic"
    assert found["importance"] == 0.9
    assert found["tags"] == ("health",)
    assert found["metadata"] == {"source": "chat", "turn": 7}
    assert found["search_type"] == "hybrid"
    assert abs(found["created_at"] - time.time()) < 60
    assert {"id", "content", "score", "search_type", "type", "importance"} <= set(found)
    with pytest.raises(KeyError):
        found["nothing"]


def test_the_same_words_are_kept_once_and_take_over_what_is_new_beside_them(
    memory: clew.Memory,
) -> None:
    first = memory.remember("the key is under the mat", tags="home")
    again = memory.remember("  the key is under the mat\n")
    more = memory.remember("the key is under the mat", tags="secret", importance=0.8)
    assert [first.status, again.status, more.status] == ["created", "duplicate", "updated"]
    assert first.id == again.id == more.id
    (found,) = memory.recall("key")
    assert set(found.tags) == {"home", "secret"}
    assert found.importance == 0.8
    assert memory.remember("the key is under the mat", type="episodic").status == "created"
    assert memory.remember("the key is under the mat", namespace="ben").status == "created"


def test_many_are_kept_in_order_or_none_at_all(memory: clew.Memory) -> None:
    made = memory.remember_many(
        [{"content": "one egg", "id": "a"}, {"content": "one egg"}, {"content": "two eggs"}]
    )
    assert [m.status for m in made] == ["created", "duplicate", "created"]
    assert made[0].id == made[1].id == "a"
    with pytest.raises(clew.InputError, match="content is empty"):
        memory.remember_many([{"content": "three eggs"}, {"content": " "}])
    with pytest.raises(clew.InputError, match="unknown field 'contents': did you mean 'content'"):
        memory.remember_many([{"contents": "three eggs"}])
    with pytest.raises(clew.InputError, match="the id 'a' is taken by another text"):
        memory.remember_many([{"content": "four eggs"}, {"content": "three eggs", "id": "a"}])
    assert memory.stats()["memories"] == 2


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"content": ""}, "content is empty"),
        ({"content": " \n"}, "content is empty"),
        ({"content": 7}, "content must be text"),
        ({"content": "x" * 10_000_001}, "is too long"),
        ({"type": "semantc"}, "did you mean 'semantic'"),
        ({"importance": 1.5}, "importance must be a number from 0 to 1"),
        ({"importance": float("nan")}, "importance must be a number from 0 to 1"),
        ({"importance": "high"}, "importance must be a number from 0 to 1"),
        ({"embedding": [1.0, 2.0]}, "has 2 dimensions, this memory's have 4"),
        ({"embedding": [1.0, float("nan"), 0, 0]}, "NaN or infinity"),
        ({"embedding": [0, 0, 0, 0]}, "all zeros"),
        ({"embedding": [[1, 0, 0, 0]]}, "one row of numbers"),
        ({"embedding": "text"}, "one row of numbers"),
        ({"namespace": "../ana"}, "is no namespace"),
        ({"namespace": ""}, "is no namespace"),
        ({"namespace": "a\nb"}, "is no namespace"),
        ({"created_at": dt.datetime(2026, 3, 1, 9)}, "has no time zone"),
        ({"created_at": "2026-03-01T09:00"}, "has no time zone"),
        ({"created_at": "yesterday"}, "is not a date"),
        ({"metadata": {"a": object()}}, "metadata cannot be kept"),
        ({"metadata": [1]}, "metadata must be a mapping"),
        ({"tags": [1]}, "tags must be a string or several"),
        ({"id": ""}, "an id is a text"),
        ({"content": "half \ud800"}, "half a character"),
    ],
)
def test_bad_input_is_refused_and_nothing_is_written(
    plain: clew.Memory, wrong: dict[str, object], said: str
) -> None:
    with pytest.raises(clew.InputError, match=said):
        plain.remember(**{"content": "fine", **wrong})
    assert plain.stats()["memories"] == 0


def test_files_that_cannot_be_a_memory_are_refused(tmp_path: Path) -> None:
    other = tmp_path / "notes.txt"
    other.write_text("not a database " * 100)
    with pytest.raises(clew.StoreError, match="not a database"):
        clew.Memory(other)
    assert other.read_text() == "not a database " * 100
    with pytest.raises(clew.StoreError, match="there is no folder"):
        clew.Memory(tmp_path / "nowhere" / "memory.db")
    with pytest.raises(clew.StoreError, match="is a folder"):
        clew.Memory(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["notes.txt"]


def test_a_given_vector_of_a_long_text_survives_every_change_beside_the_text(
    plain: clew.Memory,
) -> None:
    long = "the keel of the boat is made of oak. " * 400
    made = plain.remember(long, embedding=[1, 0, 0, 0])
    plain.remember(long, tags="boats", embedding=[1, 0, 0, 0])
    plain.update(made.id, importance=0.9)
    plain.feedback(made.id)
    (found,) = plain.vector_search([1, 0, 0, 0])
    assert (found.id, found.importance, found.tags) == (made.id, 0.95, ("boats",))


# ---------------------------------------------------------------- recalling


def test_every_filter_holds_before_the_cut(memory: clew.Memory) -> None:
    now = time.time()
    for i in range(200):
        memory.remember(
            f"the boat has a keel number {i}",
            type="episodic" if i % 20 == 0 else "semantic",
            importance=1.0 if i % 25 == 0 else 0.1,
            tags=["rare"] if i % 40 == 0 else ["often"],
            metadata={"n": i},
            created_at=now - i * DAY,
            namespace="ana" if i % 50 == 0 else "default",
        )

    def count(**wanted: object) -> int:
        return len(memory.recall("boat keel", k=10, **wanted))

    assert count() == 10
    assert count(namespace="ana") == 4
    assert count(type_filter="episodic") == 8
    assert count(importance_min=0.9) == 4
    assert count(tags="rare") == 4
    assert count(time_range=(now - 5 * DAY, now)) == 5  # the newest is Ana's
    assert count(time_range=(None, now - 195 * DAY)) == 5
    assert count(metadata={"n": {"gte": 195}}) == 5
    assert count(as_of=now - 198 * DAY) == 2
    with pytest.raises(clew.InputError, match="reversed"):
        count(time_range=(now, now - DAY))
    with pytest.raises(clew.InputError, match="time zone"):
        count(time_range=(dt.datetime(2026, 1, 1), None))


def test_all_words_first_and_any_only_when_none_has_all(plain: clew.Memory) -> None:
    plain.remember("deploy the server to production")
    plain.remember("the server is down")
    assert contents(plain.recall("deploy server")) == ["deploy the server to production"]
    assert len(plain.recall("server chocolate")) == 2
    assert plain.recall("server")[0]["search_type"] == "fts"
    assert plain.recall("chocolate") == []
    for signs in ('"', "AND", "a* OR (", "NEAR(x y)", "server:down", "-server", "'; DROP TABLE"):
        plain.recall(signs)


def test_settings_of_searches_are_none_of_plain_fusion(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLEW_WEIGHTS", "vectors=3,tokens=2")
    monkeypatch.setenv("CLEW_RERANK", "true")
    with clew.Memory(tmp_path / "memory.db", embedder=HashingEmbedder()) as memory:
        memory.remember("the keel of a boat")
        found = memory.hybrid_search("keel boat")
        assert found[0].score == 2 / 61 and not found.diagnostics["degraded"]
        assert memory.working_memory("keel boat")[0]["score"] == 2 / 61
        assert "reranker" not in memory.fts_search("keel")[0].signals


def test_hybrid_search_is_plain_reciprocal_rank_fusion(plain: clew.Memory) -> None:
    rng = np.random.default_rng(3)
    for i in range(40):
        plain.remember(f"keel {'boat ' * (i % 3)}{i}", embedding=rng.standard_normal(4), id=f"{i}")
    query = rng.standard_normal(4)
    for rrf_k in (60, 10):
        expected: dict[str, float] = {}
        for ranked in (plain.fts_search("keel boat", 50), plain.vector_search(query, 50)):
            for rank, found in enumerate(ranked, 1):
                expected[found.id] = expected.get(found.id, 0) + 1 / (rrf_k + rank)
        best = sorted(expected.items(), key=lambda pair: (-pair[1], pair[0]))[:10]
        found = plain.hybrid_search("keel boat", query, k=10, rrf_k=rrf_k)
        assert [m.id for m in found] == [name for name, _ in best]
        assert [m.score for m in found] == pytest.approx([score for _, score in best])
        assert {m.search_type for m in found} == {"hybrid"}


def test_vector_search_is_the_inner_product_of_unit_vectors(plain: clew.Memory) -> None:
    plain.remember("north", embedding=[3, 0, 0, 0])
    plain.remember("east", embedding=[0, 5, 0, 0])
    plain.remember("no direction")
    found = plain.vector_search([1, 1, 0, 0], k=5)
    assert sorted(contents(found)) == ["east", "north"]
    assert [m.score for m in found] == pytest.approx([0.5**0.5] * 2, abs=1e-6)
    assert found[0].search_type == "vector"


def test_recency_and_importance_re_sort_and_are_bounded(memory: clew.Memory) -> None:
    now = time.time()
    memory.remember("the keel is red", created_at=now - 400 * DAY, id="a-old", importance=0.1)
    memory.remember("the keel is blue", created_at=now, id="b-new", importance=0.1)
    memory.remember("the keel is green", created_at=now - 400 * DAY, id="c-dear", importance=1.0)
    memory.remember("sails are torn", created_at=now, id="d-other", importance=1.0)
    assert memory.recall("keel", recency_boost=0.5)[0].id == "b-new"
    assert memory.recall("keel", importance_boost=0.5)[0].id == "c-dear"
    found = memory.recall("keel", recency_boost=0.2, importance_boost=0.2)
    assert "d-other" not in [m.id for m in found[:3]]
    assert [m.score for m in found] == sorted((m.score for m in found), reverse=True)
    with pytest.raises(clew.InputError, match="recency must be a number from 0 to 1"):
        memory.recall("keel", recency_boost=2)


def test_mmr_prefers_what_is_unlike_the_first(plain: clew.Memory) -> None:
    plain.remember("keel one", embedding=[1, 0, 0, 0], id="a")
    plain.remember("keel two", embedding=[0.999, 0.01, 0, 0], id="b")
    plain.remember("keel three", embedding=[0.8, 0, 0.6, 0], id="c")
    query = [1, 0, 0, 0]
    assert [m.id for m in plain.recall("keel", query, k=3)] == ["a", "b", "c"]
    assert [m.id for m in plain.recall("keel", query, k=3, mmr=0.7)] == ["a", "c", "b"]


def test_an_embedder_that_fails_loses_nothing(tmp_path: Path) -> None:
    broken = False

    def embed(text: str) -> list[float]:
        if broken:
            raise ConnectionError("no route")
        return [float(len(text)), 1.0, 0.0]

    with clew.Memory(tmp_path / "m.db", embedding_dim=3, embedder=embed) as memory:
        assert memory.remember("the boat has a keel").embedded
        broken = True
        assert not memory.remember("the keel is red").embedded
        found = memory.recall("keel")
        assert len(found) == 2
        assert {m.search_type for m in found} == {"fts"}
        assert "no route" in found.diagnostics["degraded"][0]
        both = memory.hybrid_search("keel")
        assert len(both) == 2 and "no route" in both.diagnostics["degraded"][0]
        broken = False
        assert memory.reembed() == 1
        assert memory.recall("keel")[0].search_type == "hybrid"


# ---------------------------------------------------------------- lives


def test_a_recall_is_an_access_and_touches_no_index(memory: clew.Memory) -> None:
    made = memory.remember("the boat has a keel")
    before = memory.stats()["generation"]
    for _ in range(3):
        memory.recall("keel")
    memory.recall("keel", record_access=False)
    found = memory.get(made.id)
    assert found is not None
    assert found.accesses == 3
    assert memory.stats()["generation"] == before


def test_a_superseded_memory_is_found_only_as_of_its_time(memory: clew.Memory) -> None:
    old = memory.remember("Ana lives in Porto", created_at=time.time() - 10 * DAY, tags="home")
    new = memory.supersede(old.id, "Ana lives in Lisbon")
    assert contents(memory.recall("where does Ana live")) == ["Ana lives in Lisbon"]
    assert memory.recall("Ana")[0].tags == ("home",)
    then = memory.recall("where does Ana live", as_of=time.time() - DAY)
    assert contents(then) == ["Ana lives in Porto"]
    assert contents(memory.history(new.id)) == ["Ana lives in Lisbon", "Ana lives in Porto"]
    third = memory.supersede(new.id, "Ana lives in Faro")
    assert len(memory.history(third.id)) == 3
    with pytest.raises(clew.InputError, match="has ended already"):
        memory.supersede(old.id, "Ana lives on a boat")
    back = memory.supersede(third.id, "Ana lives in Porto")  # true again: a memory of its own
    assert back.status == "created"


def test_forgetting_softly_can_be_undone_and_hard_cannot(memory: clew.Memory) -> None:
    made = memory.remember("the code is 4471")
    assert memory.forget(made.id)
    assert not memory.forget(made.id)
    assert memory.recall("code") == []
    assert memory.restore(made.id) == 1
    assert len(memory.recall("code")) == 1
    assert memory.forget(made.id, hard=True)
    assert memory.get(made.id) is None
    assert memory.restore(made.id) == 0


def test_a_hard_delete_leaves_no_trace_of_the_text_in_any_file(
    memory: clew.Memory, tmp_path: Path
) -> None:
    memory.remember("the boat has a keel")
    made = memory.remember("xylophonequartz is the password", metadata={"k": "zyzzyvamarker"})
    memory.recall("xylophonequartz password")
    memory.update(made.id, content="xylophonequartz was the password")
    memory.supersede(made.id, "xylophonequartz is no password any more")
    for found in memory.history(memory.recall("xylophonequartz")[0].id):
        memory.forget(found.id, hard=True)
    memory.vacuum()
    memory.close()
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files
    for path in files:
        data = path.read_bytes().lower()
        assert b"xylophonequartz" not in data, path
        assert b"zyzzyvamarker" not in data, path


def test_only_what_is_above_the_limit_is_evicted_lowest_priority_first(
    memory: clew.Memory,
) -> None:
    now = time.time()
    for i in range(10):
        memory.remember(f"fact {i}", importance=i / 10, id=f"m{i}", created_at=now - DAY)
    assert memory.evict(10) == []
    planned = memory.evict(7, dry_run=True)
    assert [m["id"] for m in planned] == ["m0", "m1", "m2"]
    assert memory.stats()["memories"] == 10
    assert memory.evict(7) == planned or len(planned) == 3
    assert memory.stats()["memories"] == 7
    assert memory.stats()["ended"] == {"evicted": 3}
    assert memory.recall("fact 0", k=10)[0].id != "m0"
    assert memory.restore(["m0", "m1"]) == 2
    assert memory.stats()["memories"] == 9


def test_namespaces_never_see_each_other(memory: clew.Memory) -> None:
    for name in ("ana", "ben"):
        memory.remember(f"the secret of {name} is a keel", namespace=name, id=f"of-{name}")
    assert [m.id for m in memory.recall("secret keel", namespace="ana")] == ["of-ana"]
    assert [m.id for m in memory.latest(namespace="ben")] == ["of-ben"]
    assert memory.recall("secret") == []
    assert memory.get("of-ana", namespace="ben") is None
    assert not memory.forget("of-ana", namespace="ben")
    with pytest.raises(clew.InputError, match="no memory 'of-ana' in 'ben'"):
        memory.update("of-ana", "stolen", namespace="ben")
    assert memory.restore("of-ana", namespace="ben") == 0


def test_the_pack_stays_within_its_budget(memory: clew.Memory) -> None:
    for i in range(30):
        memory.remember(f"keel fact number {i} " + "word " * i)
    for budget in (1, 20, 100, 1000):
        text = memory.context_pack("keel fact", token_budget=budget)
        assert len(text) / 4 <= budget
    assert memory.context_pack("keel fact", token_budget=1) == ""
    assert memory.context_pack("keel fact", 1000).startswith("- [20")


def test_a_closed_memory_says_so_and_can_be_opened_again(memory: clew.Memory) -> None:
    memory.remember("the boat has a keel")
    memory.close()
    with pytest.raises(clew.StoreError, match="closed"):
        memory.recall("keel")
    memory.open()
    assert len(memory.recall("keel")) == 1


def test_the_asynchronous_memory_has_the_same_names(tmp_path: Path) -> None:
    public = {name for name in dir(clew.Memory) if not name.startswith("_")} - {"model"}
    assert public <= set(dir(clew.AsyncMemory))

    async def life() -> None:
        async with clew.AsyncMemory(tmp_path / "m.db", embedder=HashingEmbedder()) as memory:
            made = await asyncio.gather(*(memory.remember(f"fact {i}") for i in range(20)))
            assert len({m.id for m in made}) == 20
            found = await asyncio.gather(*(memory.recall(f"fact {i}") for i in range(20)))
            assert [f[0].content for f in found] == [f"fact {i}" for i in range(20)]
            assert len(await memory.alatest(3)) == 3

    asyncio.run(life())


def test_a_recall_reads_no_memory_twice(
    memory: clew.Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = "The keel is bolted. " + "Nothing else is known of it. " * 200
    memory.remember_many([{"content": long}, {"content": "The mast is of spruce"}])

    def refuse(ids: object) -> None:
        raise AssertionError("a hit has its memory with it")

    monkeypatch.setattr(memory.store, "get", refuse)
    for found in (
        memory.recall("keel", k=1, record_access=False),
        memory.fts_search("keel", k=1),
        memory.hybrid_search("keel", k=1),
    ):
        assert [m.content for m in found] == [long.strip()]


def test_stats_show_the_vectors_that_callers_gave(tmp_path: Path) -> None:
    rows = np.eye(4, dtype=np.float32)
    with clew.Memory(tmp_path / "memory.db", embedding_dim=4, ivf_threshold=1_000) as memory:
        memory.remember_many(
            {"content": f"fact {i}", "embedding": rows[i % 4] + i} for i in range(1_200)
        )
        stats = memory.stats()
        assert stats["models"] == {"external": 1_200}
        assert (stats["vectors"]["rows"], stats["embedded"]) == (1_200, 1.0)
