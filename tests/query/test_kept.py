"""Searches answered from what was kept."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import clew

from hashing import HashingEmbedder


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


def ids(result: clew.SearchResult) -> list[str]:
    return [hit.id for hit in result]


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


def test_what_is_personal_never_comes_out_of_a_cache_for_others(engine: clew.Engine) -> None:
    asked = engine.search("keel diary", include_personal=True)
    assert "own" in ids(asked)
    assert "own" not in ids(engine.search("keel diary"))
    assert "own" not in ids(engine.search("diary keel"))


def test_a_search_that_means_the_same_is_answered_by_meaning(engine: clew.Engine) -> None:
    first = engine.search("keel of a boat")
    second = engine.search("a boat of keel")  # the same words: the same vector here
    assert second.cache == "semantic"
    assert second.hits == first.hits
    assert second.trace["query"] == "a boat of keel"
    assert second.trace["cache"]["query"] == "keel of a boat"


def test_another_scope_another_tag_or_another_number_is_not_the_same(engine: clew.Engine) -> None:
    engine.search("keel of a boat")
    assert engine.search("a boat of keel", filter={"collection": "other"}).cache is None
    assert engine.search("a boat of keel tag:boat").cache is None
    engine.search("keel 32 of a boat")
    assert engine.search("a boat of keel 33").cache is None


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
