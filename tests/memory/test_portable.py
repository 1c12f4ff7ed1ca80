"""Memories out of one file and into another, and nothing lost on the way."""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import clew

from hashing import HashingEmbedder

DAY = 86_400.0


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[clew.Memory]:
    with clew.Memory(tmp_path / "memory.db", embedder=HashingEmbedder(dim=16)) as opened:
        yield opened


@pytest.fixture
def lived(memory: clew.Memory) -> clew.Memory:
    """With every field of a memory and of its life in use somewhere."""
    memory.remember(
        "Ana is allergic to walnuts",
        importance=0.9,
        tags=["Health", "food"],
        metadata={"source": "chat", "nested": {"list": [1, None, "ü"]}},
        created_at=time.time() - 3 * DAY,
        id="nuts",
    )
    porto = memory.remember("Ana lives in Porto", namespace="ana", type="episodic")
    memory.supersede(porto.id, "Ana lives in Lisbon")
    memory.forget(memory.remember("the tide is out", id="tide").id)
    memory.remember("a long story. " * 400, id="long", type="procedural")
    memory.recall("walnuts", k=1)
    memory.feedback("nuts", useful=True)
    memory.feedback("nuts", useful=False)
    return memory


@pytest.fixture
def embedder() -> HashingEmbedder:
    """That of `empty`, which says what it was asked."""
    return HashingEmbedder(dim=16)


@pytest.fixture
def empty(tmp_path: Path, embedder: HashingEmbedder) -> Iterator[clew.Memory]:
    with clew.Memory(tmp_path / "other.db", embedder=embedder) as opened:
        yield opened


def everything(memory: clew.Memory) -> dict[str, Any]:
    data = memory.export_json()
    assert isinstance(data, dict)
    return data


# ---------------------------------------------------------------- there and back


def test_an_export_says_everything_there_is_to_know(lived: clew.Memory) -> None:
    data = everything(lived)
    assert (data["format"], data["version"]) == ("clew-memory", 1)
    nuts = next(m for m in data["memories"] if m["id"] == "nuts")
    row = np.frombuffer(base64.b64decode(nuts.pop("embedding")), "<f4")
    assert row.shape == (16,) and np.linalg.norm(row) == pytest.approx(1)
    assert abs(nuts.pop("accessed_at") - time.time()) < 60
    assert abs(nuts.pop("updated_at") - time.time()) < 60
    assert abs(nuts.pop("created_at") + 3 * DAY - time.time()) < 60
    assert nuts == {
        "id": "nuts",
        "content": "Ana is allergic to walnuts",
        "type": "semantic",
        "namespace": "default",
        "importance": 0.85,
        "tags": ["food", "health"],
        "metadata": {"source": "chat", "nested": {"list": [1, None, "ü"]}},
        "ended_at": None,
        "accesses": 1,
        "strength": 1.5,
        "useful": 1,
        "useless": 1,
        "reason": "",
        "successor": None,
        "embedding_model": "hashing@1",
        "embedding_dim": 16,
    }
    ended = {m["content"]: m["reason"] for m in data["memories"] if m["ended_at"]}
    assert ended == {"Ana lives in Porto": "superseded", "the tide is out": "forgotten"}
    json.dumps(data, allow_nan=False)


def test_a_round_trip_through_an_empty_file_gives_the_same(
    lived: clew.Memory, empty: clew.Memory, embedder: HashingEmbedder
) -> None:
    data = everything(lived)
    assert empty.import_json(data) == {"created": 5, "updated": 0, "unchanged": 0}
    assert everything(empty) == data
    assert embedder.embedded == []  # vectors came along
    found = empty.recall("where does Ana live", namespace="ana")
    assert [m.content for m in found] == ["Ana lives in Lisbon"]
    assert [m.content for m in empty.history(found[0].id)][1:] == ["Ana lives in Porto"]
    assert empty.fts_search("tide") == []
    assert empty.restore("tide") == 1


def test_importing_twice_is_the_same_as_once(lived: clew.Memory, empty: clew.Memory) -> None:
    data = everything(lived)
    empty.import_json(data)
    before = empty.stats()["generation"]
    assert empty.import_json(data) == {"created": 0, "updated": 0, "unchanged": 5}
    assert empty.stats()["generation"] == before
    assert everything(empty) == data


@pytest.mark.parametrize("name", ["m.json", "m.jsonl", "m.json.gz", "m.jsonl.gz"])
def test_files_of_every_kind_come_back_whole(
    lived: clew.Memory, empty: clew.Memory, tmp_path: Path, name: str
) -> None:
    file = tmp_path / name
    assert lived.export_json(file) == 5
    raw = gzip.decompress(file.read_bytes()) if name.endswith("gz") else file.read_bytes()
    if "jsonl" in name:
        assert [json.loads(row)["id"] for row in raw.splitlines()] == sorted(
            m["id"] for m in everything(lived)["memories"]
        )
    else:
        assert json.loads(raw) == everything(lived)
    assert empty.import_json(str(file))["created"] == 5
    assert everything(empty) == everything(lived)
    assert [path.name for path in tmp_path.glob(".*")] == []


@pytest.mark.parametrize("name", ["m.json", "m.jsonl"])
def test_nothing_at_all_can_be_exported_and_imported(
    memory: clew.Memory, empty: clew.Memory, tmp_path: Path, name: str
) -> None:
    assert memory.export_json(tmp_path / name) == 0
    assert sum(empty.import_json(tmp_path / name).values()) == 0


def test_an_export_can_be_narrowed(lived: clew.Memory) -> None:
    ana = lived.export_json(namespace="ana")
    assert isinstance(ana, dict)
    assert {m["content"] for m in ana["memories"]} == {"Ana lives in Porto", "Ana lives in Lisbon"}
    found = lived.export_json(ended=False, embeddings=False)
    assert isinstance(found, dict)
    assert sorted(m["id"] for m in found["memories"])[:1] != ["tide"]
    assert len(found["memories"]) == 3
    assert not any("embedding" in m for m in found["memories"])


def test_what_comes_without_a_vector_gets_one_unless_told_otherwise(
    lived: clew.Memory, empty: clew.Memory, tmp_path: Path
) -> None:
    bare = lived.export_json(embeddings=False)
    assert isinstance(bare, dict)
    empty.import_json(bare)
    assert empty.recall("walnuts", record_access=False)[0].search_type == "hybrid"
    assert everything(empty) == everything(lived)
    with clew.Memory(tmp_path / "third.db", embedder=HashingEmbedder(dim=16)) as third:
        third.import_json(bare, embed=False)
        assert third.export_json() == bare
        assert third.recall("walnuts", record_access=False)[0].search_type == "fts"
        assert third.import_json(everything(lived)) == {"created": 0, "updated": 5, "unchanged": 0}
        assert everything(third) == everything(lived)


@given(
    st.lists(
        st.fixed_dictionaries(
            {
                "id": st.text("abcdef", min_size=1, max_size=3),
                "content": st.text(min_size=1).filter(
                    lambda text: text.strip() and not any("\ud800" <= c <= "\udfff" for c in text)
                ),
                "importance": st.floats(0, 1),
                "tags": st.lists(st.text("abcÄß#", min_size=1).filter(lambda t: t.strip("#"))),
                "metadata": st.dictionaries(
                    st.text("xyz"), st.none() | st.booleans() | st.integers(-(2**40), 2**40)
                ),
                "created_at": st.floats(0, 4e9),
                "ended_at": st.none() | st.floats(0, 4e9),
                "accesses": st.integers(0, 10**6),
                "strength": st.floats(0.001, 100),
                "successor": st.none() | st.text("abc", min_size=1),
                "embedding": st.none()
                | st.lists(st.floats(0.01, 9), min_size=4, max_size=4)
                | st.lists(st.floats(0.01, 9), min_size=2, max_size=2),
            }
        ),
        max_size=8,
    )
)
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_was_imported_survives_a_round_trip(
    tmp_path_factory: pytest.TempPathFactory, items: list[dict[str, Any]]
) -> None:
    folder = tmp_path_factory.mktemp("round")
    with (
        clew.Memory(folder / "one.db", embedding_dim=4) as one,
        clew.Memory(folder / "two.db", embedding_dim=4) as two,
    ):
        one.import_json(items)
        first = everything(one)
        one.import_json(items)
        assert everything(one) == first
        two.import_json(first)
        assert everything(two) == first


# ---------------------------------------------------------------- a restore


def test_an_id_that_is_here_with_another_text_is_replaced(
    lived: clew.Memory, memory: clew.Memory
) -> None:
    data = everything(lived)
    memory.update("nuts", content="Ana eats everything", tags=[], importance=0.1)
    memory.forget("nuts")
    memory.restore("tide")
    assert memory.import_json(data) == {"created": 0, "updated": 2, "unchanged": 3}
    assert everything(memory) == data
    assert memory.fts_search("walnuts")[0].id == "nuts"
    assert memory.fts_search("everything") == []
    assert memory.fts_search("tide") == []


def test_accesses_alone_make_an_update_that_touches_no_index(
    lived: clew.Memory, memory: clew.Memory
) -> None:
    data = everything(lived)
    memory.recall("walnuts", k=1)
    assert everything(memory) != data
    before = memory.stats()["generation"]
    assert memory.import_json(data)["updated"] == 1
    assert everything(memory) == data
    assert memory.stats()["generation"] == before


def test_texts_without_an_id_are_kept_once(memory: clew.Memory) -> None:
    known = memory.remember("the key is under the mat")
    items = [{"content": "the key is under the mat"}, {"content": "the lamp is green"}]
    assert memory.import_json(items) == {"created": 1, "updated": 0, "unchanged": 1}
    assert memory.import_json(iter(items)) == {"created": 0, "updated": 0, "unchanged": 2}
    items[0] = {**items[0], "tags": "home"}  # type: ignore[dict-item]
    assert memory.import_json(items)["updated"] == 1
    (found,) = memory.fts_search("key")
    assert (found.id, found.tags) == (known.id, ("home",))
    assert memory.recall("lamp")[0].search_type == "hybrid"


def test_vectors_without_a_models_name_are_kept_whatever_their_size(tmp_path: Path) -> None:
    with clew.Memory(tmp_path / "m.db", embedding_dim=4) as memory:
        memory.import_json(
            [
                {"id": "a", "content": "north", "embedding": [3, 0, 0, 0]},
                {"id": "b", "content": "east", "embedding": np.array([0, 1, 0], np.float32)},
                {"id": "c", "content": "up", "feedback": {"useful": 2, "useless": 1}},
            ]
        )
        assert [m.id for m in memory.vector_search([1, 0, 0, 0])] == ["a"]
        models = {m["id"]: m.get("embedding_model") for m in everything(memory)["memories"]}
        assert models == {"a": "external", "b": "external-3", "c": None}
        assert memory.store.lifecycle.get(["c"])["c"].useful == 2


# ---------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"content": " "}, "content is empty"),
        ({"contents": "x"}, "unknown field 'contents': did you mean 'content'"),
        ({"type": "fact"}, "unknown type 'fact'"),
        ({"importance": 7}, "importance must be a number"),
        ({"accesses": -1}, "accesses must be a whole number from 0 on"),
        ({"accesses": 2**64}, "accesses must be a whole number from 0 on"),
        ({"strength": 0}, "strength must be a number above 0"),
        ({"ended_at": "soon"}, "is not a date"),
        ({"successor": 7}, "successor is a text"),
        ({"metadata": {"a": float("nan")}}, "cannot be kept"),
        ({"content": "half \ud800"}, "half a character"),
        ({"feedback": 3}, "feedback is"),
        ({"embedding": "?"}, "no base64"),
        ({"embedding": "AAA="}, "no base64"),
        ({"embedding": "AAAAAA=="}, "all zeros"),
        ({"embedding": [[1, 2], [3]]}, "one row of numbers"),
        ({"embedding": [1, float("inf")]}, "NaN or infinity"),
        ({"embedding": [1, 2, 3], "embedding_dim": 2}, "embedding_dim says 2"),
        ({"memory_type": "semantic"}, "clew import --from arriadne"),
    ],
)
def test_a_bad_line_is_named_and_nothing_of_its_batch_is_written(
    memory: clew.Memory, tmp_path: Path, wrong: dict[str, Any], said: str
) -> None:
    file = tmp_path / "m.jsonl"
    rows = [{"content": "fine"}, {"content": "also fine", **wrong}]
    file.write_text("\n\n".join(map(json.dumps, rows)))
    with pytest.raises(clew.InputError, match=said) as error:
        memory.import_json(file)
    assert f"{file}:3: " in str(error.value) and "(nothing was imported)" in str(error.value)
    assert memory.stats()["memories"] == 0
    with pytest.raises(clew.InputError, match=r"^memory 2: "):
        memory.import_json(rows)


def test_a_file_that_is_cut_short_says_so_and_what_was_imported(
    memory: clew.Memory, empty: clew.Memory, tmp_path: Path
) -> None:
    memory.remember_many({"content": f"fact number {i}", "id": f"m{i:04}"} for i in range(1200))
    whole = tmp_path / "whole.jsonl"
    memory.export_json(whole)
    cut = tmp_path / "cut.jsonl"
    cut.write_bytes(whole.read_bytes()[:-40])
    with pytest.raises(clew.InputError, match=r"cut\.jsonl:1200: .*cut short") as error:
        empty.import_json(cut)
    assert "imported so far: 1,000 created" in str(error.value)
    assert empty.stats()["memories"] == 1000
    assert empty.import_json(whole) == {"created": 200, "updated": 0, "unchanged": 1000}
    for name in ("cut.json", "cut.jsonl.gz"):
        memory.export_json(tmp_path / name)
        (tmp_path / name).write_bytes((tmp_path / name).read_bytes()[:-40])
    with pytest.raises(clew.InputError, match=r"cut\.json is not JSON, or cut short"):
        empty.import_json(tmp_path / "cut.json")
    with pytest.raises(clew.InputError, match="gzip file is truncated"):
        empty.import_json(tmp_path / "cut.jsonl.gz")


def test_what_is_no_export_is_refused(memory: clew.Memory, tmp_path: Path) -> None:
    for name, text, said in (
        ("a.json", '{"format": "other", "memories": []}', "no export of memories"),
        ("b.json", '{"content": "one"}', "no export of memories"),
        ("c.json", '{"version": 2, "memories": []}', "version 2 of the format"),
        ("d.json", "7", "is no export"),
        ("e.json", '{"id": 1}\n{"id": 2}\n', r"must end in \.jsonl"),
        ("f.json", "", "is not JSON"),
        ("g.jsonl", "[1]", "a memory is a mapping"),
    ):
        (tmp_path / name).write_text(text)
        with pytest.raises(clew.InputError, match=said):
            memory.import_json(tmp_path / name)
    with pytest.raises(clew.InputError, match="is not there"):
        memory.import_json(tmp_path / "nowhere.json")
    with pytest.raises(clew.InputError, match="is a folder"):
        memory.import_json(tmp_path)
    with pytest.raises(clew.InputError, match="is a database, not an export"):
        memory.import_json(tmp_path / "memory.db")
    assert memory.stats()["memories"] == 0


def test_a_file_that_cannot_be_written_leaves_the_old_one(
    lived: clew.Memory, tmp_path: Path
) -> None:
    with pytest.raises(clew.StoreError, match="could not be written"):
        lived.export_json(tmp_path / "nowhere" / "m.json")
    with pytest.raises(clew.InputError, match="is the memory itself"):
        lived.export_json(tmp_path / "memory.db")
    old = tmp_path / "m.json"
    old.write_text("old")

    def broken(*_: object, **__: object) -> Any:
        raise OSError(28, "No space left on device")

    lived.store.lifecycle.get = broken  # type: ignore[method-assign]
    with pytest.raises(clew.StoreError, match="No space left on device"):
        lived.export_json(old)
    assert old.read_text() == "old"
    assert [path.name for path in tmp_path.glob(".*")] == []


def test_a_memory_whose_indexes_were_not_copied_makes_them_anew(
    lived: clew.Memory, tmp_path: Path
) -> None:
    lived.close()
    copy = tmp_path / "copy.db"
    copy.write_bytes((tmp_path / "memory.db").read_bytes())
    with clew.Memory(copy, embedder=HashingEmbedder(dim=16), create=False) as memory:
        assert memory.recall("walnuts")[0].id == "nuts"


def test_the_asynchronous_memory_has_both(lived: clew.Memory, tmp_path: Path) -> None:
    async def there_and_back() -> dict[str, int]:
        async with clew.AsyncMemory(tmp_path / "a.db", embedding_dim=4) as other:
            return await other.import_json(everything(lived))

    assert asyncio.run(there_and_back())["created"] == 5
