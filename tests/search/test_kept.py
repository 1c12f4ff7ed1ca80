"""Searches answered from what was kept."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import clew
from clew.protocols import Source
from entries import ids

from hashing import Hanging, HashingEmbedder

AMPLE = 30.0
"""Seconds that a test never waits when all is well."""


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[clew.Engine]:
    with clew.open(tmp_path, embedder=HashingEmbedder()) as opened:
        opened.add(
            [
                clew.Record("a", "the keel of a boat", tags=("boat",)),
                clew.Record("b", "sails and keel", collection="other"),
                clew.Record("own", "my keel diary", domain="personal"),
            ]
        )
        opened.embed()
        yield opened


def test_the_same_search_is_answered_from_the_cache(engine: clew.Engine) -> None:
    first, second = engine.search("keel boat"), engine.search("  keel   boat ")
    assert (first.cache, second.cache) == (None, "exact")
    assert second.hits == first.hits
    assert set(second.trace["stages_ms"]) == {"parse", "cache"}


@pytest.mark.parametrize(
    "change",
    [
        lambda engine: engine.add([clew.Record("c", "a new keel boat")]),
        lambda engine: engine.remove("a"),
        lambda engine: engine.add([clew.Record("b", "keel boat, no sails", collection="other")]),
    ],
    ids=["added", "removed", "changed"],
)
def test_a_write_is_seen_by_the_very_next_search(engine: clew.Engine, change: Any) -> None:
    engine.search("keel boat")
    before = engine.search("keel boat")
    change(engine)
    after = engine.search("keel boat")
    assert before.cache == "exact" and after.cache is None
    assert after.hits != before.hits
    assert after.hits == engine.search("keel boat", cache=False).hits


@pytest.mark.parametrize(
    "options",
    [
        {"limit": 1},
        {"filter": {"collection": "other"}},
        {"mode": "keyword"},
        {"weights": {"keyword": 2.0}},
        {"sources": ["keyword"]},
        {"include_personal": True},
        {"skills_only": True},
        {"strict": True},
        {"explain": True},
        {"syntax": False},
    ],
    ids=str,
)
def test_searches_that_differ_in_anything_share_no_entry(
    engine: clew.Engine, options: dict[str, Any]
) -> None:
    engine.search("keel boat")
    other = engine.search("keel boat", **options)
    assert other.cache is None
    assert engine.search("keel boat", **options).cache in ("exact", None)
    assert engine.search("keel boat").cache == "exact"


def test_a_source_that_is_asked_alone_has_an_answer_of_its_own(tmp_path: Path) -> None:
    floor = {"vectors": {"floor": 0.9}}
    with clew.open(tmp_path, embedder=HashingEmbedder(), sources=floor) as engine:
        engine.add([clew.Record("a", "the keel of a boat"), clew.Record("b", "a sail, a keel")])
        engine.embed()
        asked = {"mode": "vector", "floor": 0.0}
        assert ids(engine.search("keel of a boat", **asked)) == []  # type: ignore[arg-type]
        alone = engine.search("keel of a boat", sources=["vectors"], **asked)  # type: ignore[arg-type]
        assert ids(alone) == ["a", "b"]


def test_what_is_personal_never_comes_out_of_a_cache_for_others(engine: clew.Engine) -> None:
    asked = engine.search("keel diary", include_personal=True)
    assert "own" in ids(asked)
    assert "own" not in ids(engine.search("keel diary"))
    assert "own" not in ids(engine.search("diary keel"))


def test_a_search_of_the_same_words_uses_the_lists_of_another(engine: clew.Engine) -> None:
    engine.search("keel of a boat")
    second = engine.search("a boat of keel")  # the same words: the same vector here
    assert second.cache == "semantic"
    assert second.hits == engine.search("a boat of keel", cache=False).hits
    assert second.trace["query"] == "a boat of keel"
    about = second.trace["cache"]
    assert (about["query"], about["cosine"]) == ("keel of a boat", 1.0)
    assert "keyword" in about["lent"] and "vectors" not in about["lent"]
    assert engine.search("a boat of keel").cache == "exact"
    assert engine.cache.stats()["hits"] == {"exact": 1, "semantic": 1}


def test_another_scope_another_tag_or_another_number_is_not_the_same(engine: clew.Engine) -> None:
    engine.search("keel of a boat")
    assert engine.search("a boat of keel", filter={"collection": "other"}).cache is None
    assert engine.search("a boat of keel tag:boat").cache is None
    engine.search("keel 32 of a boat")
    assert engine.search("a boat of keel 33").cache is None


class Blurred(HashingEmbedder):
    """To which all texts are much alike, as close questions are to a real model."""

    def embed_query(self, text: str) -> Any:
        row = super().embed_query(text) * 0.3 + 1
        return row / np.linalg.norm(row)


WORDS = st.lists(
    st.sampled_from(["keel", "boats", "boat", "of", "a", "the", "vertical", "horizontal", "not"])
)


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[clew.Engine]:
    with clew.open(tmp_path_factory.mktemp("pages"), embedder=Blurred()) as opened:
        for name in ("horizontal keel", "vertical keel", "boat", "not a boat", "keel of boats"):
            opened.add([clew.Record(name, f"{name}. About the {name}.", title=name)])
        opened.embed()
        yield opened


def test_near_queries_with_other_words_lend_nothing(pages: clew.Engine) -> None:
    first = pages.search("horizontal keel boat")
    near = pages.embed_query("horizontal keel boat") @ pages.embed_query("vertical keel boat")
    assert near > 0.95
    other = pages.search("vertical keel boat")
    assert other.cache is None and ids(other) != ids(first)


@settings(max_examples=60)
@given(st.lists(WORDS.map(" ".join).filter(str.strip), min_size=2, max_size=6))
def test_no_answer_depends_on_what_was_asked_before(pages: clew.Engine, asked: list[str]) -> None:
    for text in asked:
        found = pages.search(text)
        alone = pages.search(text, cache=False)
        assert found.hits == alone.hits
        assert found.degraded == alone.degraded


def test_what_is_further_than_the_settings_say_lends_nothing(tmp_path: Path) -> None:
    class Ordered(HashingEmbedder):
        def embed_query(self, text: str) -> Any:
            return self._vector(text.split()[0])

    with clew.open(tmp_path, embedder=Ordered()) as engine:
        engine.add([clew.Record("a", "the keel of a boat")])
        engine.embed()
        engine.search("keel boat")
        assert engine.search("boat keel").cache is None
        assert engine.search("boat a keel").cache == "semantic"


@pytest.mark.parametrize("semantic_cache", [True, False])
def test_an_embedding_that_hangs_keeps_no_search_waiting(
    tmp_path: Path, semantic_cache: bool
) -> None:
    embedder = Hanging()
    embedder.free.set()
    settings = {"deadline": AMPLE, "semantic_cache": semantic_cache}
    with clew.open(tmp_path, embedder=embedder, **settings) as engine:
        engine.add([clew.Record("a", "the keel of a boat")])
        engine.embed()
        assert not engine.search("keel boat").degraded
        engine.config = replace(engine.config, deadline=1.0)
        embedder.free.clear()
        found = engine.search("boat keel")  # to which the first would lend
        assert ids(found) == ["a"]
        assert any(each.startswith("vectors: no ") for each in found.degraded)
        with pytest.raises(clew.ModelError, match=r"no vector of the query within 0.1 s"):
            engine.embed_query("another", seconds=0.1)
        embedder.free.set()


def test_caches_can_be_switched_off(tmp_path: Path, engine: clew.Engine) -> None:
    assert engine.search("keel", cache=False).cache is None
    assert engine.search("keel", cache=False).cache is None
    (tmp_path / "clew.toml").write_text("semantic_cache = false\n")
    engine.search("keel of a boat")
    assert engine.search("a boat of keel").cache is None
    (tmp_path / "clew.toml").write_text("cache = false\n")
    engine.search("keel of a boat")
    assert engine.search("keel of a boat").cache is None


def test_an_edit_of_the_settings_asks_anew(tmp_path: Path, engine: clew.Engine) -> None:
    engine.search("keel boat")
    (tmp_path / "clew.toml").write_text('fusion = "rrf"\n')
    assert engine.search("keel boat").cache is None


def test_another_process_finds_what_this_one_kept(tmp_path: Path, engine: clew.Engine) -> None:
    first = engine.search("keel boat")
    engine.cache.flush()
    with clew.open(tmp_path, embedder=HashingEmbedder()) as other:
        again = other.search("keel boat")
    assert again.cache == "exact"
    assert again.hits == first.hits


def test_an_answer_in_which_something_was_missing_is_not_kept(engine: clew.Engine) -> None:
    engine.add([clew.Record("new", "a keel without a vector")])
    assert engine.search("keel").degraded
    assert engine.search("keel").cache is None


def test_sources_that_the_settings_do_not_name_are_not_kept(engine: clew.Engine) -> None:
    given = [[clew.types.Candidate("a", 1.0)], [clew.types.Candidate("b", 1.0)]]
    engine.sources["mine"] = lambda query, context: given.pop(0)
    assert ids(engine.search("keel", sources=["mine"])) == ["a"]
    assert ids(engine.search("keel", sources=["mine"])) == ["b"]


class Outside(Source):
    """Answers from a place outside the store, which it can or cannot tell the state of."""

    def __init__(self) -> None:
        self.said: str | None = "1"

    def __call__(self, query: Any, context: Any) -> list[clew.types.Candidate]:
        return [clew.types.Candidate("a" if self.said == "1" else "b", 1.0)]

    def freshness(self, store: Any) -> str | None:
        return self.said


def test_a_source_outside_the_store_says_how_fresh_it_is_or_nothing_is_kept(
    engine: clew.Engine,
) -> None:
    engine.sources["mine"] = outside = Outside()
    for _ in range(2):
        found = engine.search("keel", sources=["mine"])
        assert ids(found) == ["a"]
    assert found.cache == "exact"
    outside.said = "2"
    assert ids(engine.search("keel", sources=["mine"])) == ["b"]
    outside.said = None
    for _ in range(2):
        assert engine.search("keel", sources=["mine"]).cache is None


def test_an_edit_of_a_file_of_tags_is_seen_by_the_next_search(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.md").write_text(f"the {name} of a boat")
    shard = tmp_path / "tags.txt"
    shard.write_text("#keel: a.md\n")
    tags = {"tags": {"shards": ["tags.txt"]}}
    with clew.open(tmp_path, model="none", sources=tags) as engine:
        engine.index()
        for _ in range(2):
            found = engine.search("keel", sources=["tags"])
        assert found.cache == "exact" and [hit.path for hit in found] == ["a.md"]
        shard.write_text("#keel: b.md\n# edited\n")
        assert [hit.path for hit in engine.search("keel", sources=["tags"])] == ["b.md"]


def test_a_broken_edit_of_the_settings_is_said_also_where_the_cache_answers(
    tmp_path: Path, engine: clew.Engine
) -> None:
    engine.search("keel boat")
    (tmp_path / "clew.toml").write_text("fusion = rrf")
    again = engine.search("keel boat")
    assert again.cache == "exact"
    assert any("clew.toml" in problem for problem in again.degraded)


def test_how_each_source_did_is_noted(tmp_path: Path, engine: clew.Engine) -> None:
    def broken(query: Any, context: Any) -> Any:
        raise OSError("no disk")

    engine.search("keel")
    engine.sources["broken"] = broken
    engine.search("keel")
    states = {state["name"]: state for state in engine.source_states()}
    assert states["keyword"]["ms"] > 0 and states["keyword"]["problem"] is None
    assert states["keyword"]["state"] == "on"
    assert states["broken"]["problem"] == "OSError: no disk"
    engine.cache.flush()
    with clew.open(tmp_path, model="none") as other:
        noted = {state["name"]: state for state in other.source_states()}
    assert noted["keyword"]["ms"] == pytest.approx(states["keyword"]["ms"])


def kept_bytes(folder: Path) -> bytes:
    return b"".join(file.read_bytes() for file in (folder / ".clew").glob("cache.db*"))


def test_what_was_removed_leaves_the_cache_as_well(tmp_path: Path, engine: clew.Engine) -> None:
    engine.add([clew.Record("secret", "the xylophone is hidden under the keel")])
    engine.embed()
    assert ids(engine.search("xylophone"))[0] == "secret"
    engine.cache.flush()
    assert b"xylophone" in kept_bytes(tmp_path)
    engine.remove("secret")
    assert b"xylophone" not in kept_bytes(tmp_path)


def test_what_a_run_of_indexing_finds_gone_or_changed_leaves_the_cache(tmp_path: Path) -> None:
    for name in ("gone", "changed", "stays"):
        (tmp_path / f"{name}.md").write_text(f"the keel, {name}: xylophone {name}")
    with clew.open(tmp_path, embedder=HashingEmbedder()) as engine:
        engine.index()
        engine.search("xylophone")
        engine.cache.flush()
        assert b"xylophone gone" in kept_bytes(tmp_path)
        (tmp_path / "gone.md").unlink()
        (tmp_path / "changed.md").write_text("nothing")
        engine.index()
        assert b"xylophone" not in kept_bytes(tmp_path)


def test_a_vacuum_leaves_no_trace_of_what_was_deleted_in_kept_answers(
    tmp_path: Path, engine: clew.Engine
) -> None:
    engine.add([clew.Record("secret", "the xylophone is hidden under the keel")])
    engine.embed()
    assert ids(engine.search("xylophone"))[0] == "secret"
    engine.cache.flush()
    engine.remove("secret")
    engine.vacuum()
    for file in (tmp_path / ".clew").rglob("*"):
        assert not file.is_file() or b"xylophone" not in file.read_bytes(), file


def test_without_a_model_answers_are_kept_as_well(tmp_path: Path) -> None:
    with clew.open(tmp_path, model="none") as engine:
        engine.add([clew.Record("a", "the keel of a boat")])
        first, second = engine.search("keel"), engine.search("keel")
        assert first.degraded == second.degraded != ()
        assert (first.cache, second.cache) == (None, "exact")


def test_a_search_asked_again_sees_what_has_changed_beside_the_store(tmp_path: Path) -> None:
    note = tmp_path / "a.md"
    note.write_text("the keel of a boat", "utf-8")
    (tmp_path / "b.md").write_text("its mast", "utf-8")
    with clew.open(tmp_path, model="none") as engine:
        engine.index()
        for _ in range(3):
            found = engine.search("keel")
        assert found.cache == "exact" and "stale" not in found[0].metadata
        note.write_text("the keel of a boat, painted", "utf-8")
        assert engine.search("keel")[0].metadata["stale"]
        note.unlink()
        assert not [hit for hit in engine.search("keel") if hit.path == "a.md"]


def test_what_a_caller_does_to_an_answer_nobody_else_sees(engine: clew.Engine) -> None:
    for _ in range(3):
        found = engine.search("keel boat")
        assert "mine" not in found[0].metadata and "mine" not in found.trace["fusion"]
        found[0].metadata["mine"] = found.trace["fusion"]["mine"] = True  # type: ignore[index]
