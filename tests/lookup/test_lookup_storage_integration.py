"""Scenario: storage integration. Lookups read the storage by its one path, and write nothing."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from handles import look_up

import clew
from clew import Filter, Search
from clew.lookup import pool
from clew.search import hits

from hashing import HashingEmbedder


def test_the_legs_find_what_the_engine_finds(search: Search, storage: clew.Engine) -> None:
    found = look_up(search, "torque wrench")
    for backend, mode in (("storage_keyword", "keyword"), ("storage_vector", "vector")):
        own = {hit.id for hit in storage.search("torque wrench", mode=mode)}  # type: ignore[arg-type]
        assert {hit.id for hit in found.by_backend[backend]} == own


def test_a_lookup_asks_each_index_once_and_makes_snippets_for_what_it_returns(
    storage: clew.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage.add({"id": f"r{i:02}", "content": f"keel bolts, number {i}"} for i in range(50))
    storage.embed()
    calls: Counter[str] = Counter()

    def count(place: object, name: str) -> None:
        real = getattr(place, name)

        def counted(*arguments: Any, **more: Any) -> Any:
            calls[name] += 1
            return real(*arguments, **more)

        monkeypatch.setattr(place, name, counted)

    for name in ("keyword", "nearest"):
        count(storage.store, name)
    for module in (hits, pool):
        count(module, "snippet")
    with Search(storage) as search:
        found = look_up(search, "keel bolts")
    shown = {hit.id for some in (found, *found.by_backend.values()) for hit in some}
    assert calls == {"keyword": 1, "nearest": 1, "snippet": len(shown)} and len(shown) <= 15


def test_a_lookup_writes_nothing(search: Search, storage: clew.Engine) -> None:
    before = storage.store.changes.edition()
    search.external_lookup("keel bolts")
    search.embedding_lookup(storage.embed_query("keel"))
    search.add_embeddings([{"content": "keel"}])
    assert storage.store.changes.edition() == before


def test_adding_a_record_again_updates_it_and_makes_no_second(
    search: Search, storage: clew.Engine
) -> None:
    for _ in range(2):
        storage.add([{"id": "keel", "content": "Keel bolts are of bronze now."}])
        storage.embed()
        ids = [hit.id for hit in search.external_lookup("keel bolts bronze", 10)]
        assert ids.count("keel") == 1 and ids[0] == "keel"


def test_a_vector_finds_its_neighbours_with_their_cosine(
    search: Search, storage: clew.Engine
) -> None:
    vector = storage.embed_query("bolt cutters in the shed")
    found = search.embedding_lookup(vector, 2)
    assert found[0].id == "shed" and len(found) == 2
    expected = storage.store.nearest(vector, Filter(), model=storage.model, limit=1)[0].score
    assert found[0].score == pytest.approx(expected)
    assert search.embedding_lookup([float(x) for x in vector], 2) == found
    storage.remove("shed")
    assert search.embedding_lookup(vector, 2)[0].id != "shed"


def test_embeddings_are_added_to_documents(search: Search, storage: clew.Engine) -> None:
    documents = [{"title": "Keel", "snippet": "bolts"}, {"content": "soup"}]
    hit = storage.search("keel")[0]
    given = search.add_embeddings([*documents, hit], storage.embed_query("keel bolts"))
    assert given[0] is documents[0] and len(given[0]["embedding"]) == 64
    assert given[0]["similarity"] > given[1]["similarity"]
    assert given[2]["id"] == "keel" and given[2]["similarity"] > given[1]["similarity"]
    own = [1.0] * 64
    (kept,) = search.add_embeddings([{"content": "x", "embedding": own}])
    assert kept["embedding"] is own and "similarity" not in kept


def test_what_a_filter_shuts_out_is_found_by_no_backend(tmp_path: Path) -> None:
    with clew.open(tmp_path / "s", embedder=HashingEmbedder()) as engine:
        engine.add(
            {"id": f"{who}{i}", "content": f"keel {i}", "collection": who}
            for who in ("mine", "yours")
            for i in range(30)
        )
        engine.add([{"id": "private", "content": "keel diary", "domain": "personal"}])
        engine.embed()
        with Search(engine, filter={"collection": "mine"}) as search:
            found = look_up(search, "keel", 20)
            assert len(found) == 20 and all(hit.id.startswith("mine") for hit in found)
            vector = engine.embed_query("keel")
            near = search.embedding_lookup(vector, 20)
            assert len(near) == 20 and all(hit.id.startswith("mine") for hit in near)
        with Search(engine) as search:
            assert "private" not in {hit.id for hit in look_up(search, "keel diary", 70)}
        with Search(engine, include_personal=True) as search:
            assert look_up(search, "keel diary")[0].id == "private"


def test_searches_with_other_filters_share_no_answers(storage: clew.Engine, tmp_path: Path) -> None:
    file = tmp_path / "kept.json"
    with Search(storage, cache_file=file) as search:
        assert search.external_lookup("keel")[0].id == "keel"
    with Search(storage, cache_file=file, filter={"collection": "none"}) as search:
        assert search.external_lookup("keel") == []
    with Search(storage, cache_file=file) as search:
        assert look_up(search, "keel").trace["cache"]["slot"] == "primary"


def test_what_became_personal_or_was_deleted_is_in_no_kept_answer(tmp_path: Path) -> None:
    folder = tmp_path / "notes"
    (folder / "diary").mkdir(parents=True)
    for name in ("diary/monday.md", "bolts.md"):
        (folder / name).write_text("The keel bolts.", "utf-8")
    with clew.open(folder, embedder=HashingEmbedder()) as engine:
        engine.index()
        with Search(engine, backends=["storage_keyword"]) as search:
            assert {hit.path for hit in search.external_lookup("keel")} == {
                "diary/monday.md",
                "bolts.md",
            }
            assert look_up(search, "keel").trace["cache"]["slot"] == "primary"
            (folder / "clew.toml").write_text('[domains]\npersonal = ["diary/"]\n')
            assert [hit.path for hit in search.external_lookup("keel")] == ["bolts.md"]
            (folder / "bolts.md").unlink()
            assert search.external_lookup("keel") == []


def test_passages_without_a_vector_are_embedded_to_be_compared(storage: clew.Engine) -> None:
    pages = [{"id": f"p{i}", "text": f"page {i} on soup"} for i in range(10)]
    pages.append({"id": "meant", "text": "keel bolts"})
    with Search(storage, backends={"pages": lambda query, limit: pages}) as search:
        found = look_up(search, "keel bolts", 20)
        (meant,) = [hit for hit in found if hit.id == "meant"]
        assert meant.signals["semantic"]["score"] == pytest.approx(1.0, abs=1e-3)
    with Search(storage, backends={"pages": lambda query, limit: pages}, embed=0) as search:
        found = look_up(search, "keel bolts", 20)
        (meant,) = [hit for hit in found if hit.id == "meant"]
        assert meant.signals["semantic"]["normalised"] == 0.0


def test_a_folder_is_opened_and_closed_again(tmp_path: Path, storage: clew.Engine) -> None:
    with Search(tmp_path / "storage", embedder=HashingEmbedder()) as search:
        found = look_up(search, "keel bolts")
        assert found[0].id == "keel" and found.storage is not storage
    with pytest.raises(clew.StoreError), Search(tmp_path / "nothing") as search:
        search.external_lookup("keel")


def test_some_backends_are_named_and_only_those_are_asked(storage: clew.Engine) -> None:
    with Search(storage, backends=["storage_vector"]) as search:
        found = look_up(search, "keel")
        assert set(found.by_backend) == {"storage_vector"}
        search.register("mine", lambda query, limit: [{"id": "m", "text": "keel"}])
        assert set(look_up(search, "keel").by_backend) == {"storage_vector"}
    with Search(storage) as search:
        assert look_up(search, "keel").by_backend["storage_vector"][0].id == "keel"
        search.register("storage_vector", lambda query, limit: [{"id": "m", "text": "keel"}])
        assert [hit.id for hit in look_up(search, "keel").by_backend["storage_vector"]] == ["m"]
