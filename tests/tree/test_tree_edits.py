"""A tree and its store: edits, other stores, other models, few or odd records."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from topics import TOPICS, records, text

import clew
from clew.errors import SourceError
from clew.tree import Walk
from clew.tree.hierarchy import Tree, is_leaf
from entries import ids

from hashing import HashingEmbedder


def tree_of(engine: clew.Engine) -> Tree:
    return engine.tree.current(engine.model)


def check(tree: Tree) -> None:
    """Every leaf that is somewhere is in one place, and no node has too many children."""
    keys = [key for node in range(len(tree)) for key in tree.children(node)]
    assert len(keys) == len(set(keys))
    assert {~k for k in keys if is_leaf(k)} == set(np.flatnonzero(tree.homes >= 0).tolist())
    assert {k for k in keys if not is_leaf(k)} == set(range(1, len(tree)))
    for node in range(len(tree)):
        children = tree.children(node)
        assert len(children) <= tree.branching
        assert all(tree.parent(key) == node for key in children)
    assert tree.sizes[0] == (tree.homes >= 0).sum()


def walked(engine: clew.Engine, query: str, **more: object) -> list[str]:
    found = engine.search(query, tree=Walk(abort=False), limit=50, **more)  # type: ignore[arg-type]
    return ids(found)


def test_a_new_record_is_found_without_building_anew(engine: clew.Engine) -> None:
    before = tree_of(engine)
    engine.add([clew.Record(id="new", content="violin cello tempo chord")])
    engine.embed()
    assert "new" in walked(engine, "violin cello tempo chord")[:3]
    after = tree_of(engine)
    check(after)
    assert after.built == before.built and after.moved[0] == 1
    home = after.parent(~after.leaf_of["new"])
    beside = [after.ids[~key] for key in after.children(home) if is_leaf(key)]
    assert sum(name.startswith("music") for name in beside) > len(beside) / 2


def test_a_record_that_is_edited_is_found_by_its_new_text_only(engine: clew.Engine) -> None:
    engine.add([clew.Record(id="boats-003", content=TOPICS["stars"])])
    assert "boats-003" not in walked(engine, TOPICS["stars"])  # it has no vector yet
    engine.embed()
    assert "boats-003" in walked(engine, TOPICS["stars"])[:5]
    check(tree_of(engine))


def test_a_record_that_is_removed_is_masked(engine: clew.Engine) -> None:
    first = walked(engine, TOPICS["trees"])[0]
    engine.remove(first)
    assert first not in walked(engine, TOPICS["trees"])
    tree = tree_of(engine)
    check(tree)
    assert tree.gone.sum() == 1 and engine.status()["tree"]["masked"] == 1


def test_one_that_comes_back_is_found_again(engine: clew.Engine) -> None:
    known = engine.get("trees-004")
    assert known is not None
    engine.remove("trees-004")
    assert "trees-004" not in walked(engine, known.content)
    engine.add([known])
    engine.embed()
    assert "trees-004" in walked(engine, known.content)[:3]
    check(tree_of(engine))


def test_a_change_of_a_tag_moves_nothing(engine: clew.Engine) -> None:
    before = tree_of(engine)
    known = engine.get("music-007")
    assert known is not None
    engine.add([clew.Record(id=known.id, title=known.title, content=known.content, tags=("loud",))])
    after = tree_of(engine)
    assert after.edition != before.edition and after.moved[0] == 0
    assert after.leaf_of["music-007"] == before.leaf_of["music-007"]


def test_nodes_that_get_too_full_are_split(engine: clew.Engine) -> None:
    before = len(tree_of(engine))
    for start in range(0, 120, 40):
        engine.add(
            clew.Record(id=f"more-{n:03}", content=text("bread", n) + f" batch{n % 7}")
            for n in range(start, start + 40)
        )
        engine.embed()
        check(tree_of(engine))
    after = tree_of(engine)
    assert len(after) > before and after.sizes[0] == 150 + 120
    assert all(after.labels[node] for node in range(len(after)))
    assert all(name[:4] in ("brea", "more") for name in walked(engine, TOPICS["bread"])[:20])


def test_edits_leave_no_heap_of_leaves_that_are_nowhere(engine: clew.Engine) -> None:
    for number in range(3):
        engine.add(
            clew.Record(id=f"boats-{n:03}", content=text("boats", n) + f" mended {number}")
            for n in range(25)
        )
        engine.embed()
        tree = tree_of(engine)
        check(tree)
        void = np.flatnonzero(tree.homes < 0)
        assert np.isin(void, tree.examples).all()
        assert len(set(tree.leaf_of)) == tree.there.sum() == 150
    assert set(walked(engine, TOPICS["boats"])[:10]) <= {f"boats-{n:03}" for n in range(25)}


def test_status_says_how_stale_the_summaries_are(engine: clew.Engine) -> None:
    assert engine.status()["tree"]["stale_summaries"] == 0
    engine.add(clew.Record(id=f"n{n}", content=text("boats", n) + " wharf") for n in range(4))
    engine.embed()
    assert engine.status()["tree"]["waiting"] == 4
    tree_of(engine)
    figures = engine.status()["tree"]
    assert figures["waiting"] == 0 and figures["moved"] == 4
    engine.remove([f"stars-{n:03}" for n in range(25)])
    tree_of(engine)
    assert engine.status()["tree"]["stale_summaries"] > 0
    engine.tree.build(branching=10)
    figures = engine.status()["tree"]
    assert (figures["stale_summaries"], figures["masked"], figures["moved"]) == (0, 0, 0)


@settings(max_examples=15)
@given(
    st.lists(st.tuples(st.sampled_from(["add", "edit", "remove"]), st.integers(0, 40)), max_size=40)
)
def test_any_edits_leave_a_sound_tree_that_has_what_the_store_has(
    tmp_path_factory: pytest.TempPathFactory, edits: list[tuple[str, int]]
) -> None:
    topics = list(TOPICS)
    with clew.open(tmp_path_factory.mktemp("edits"), embedder=HashingEmbedder()) as engine:
        engine.add(clew.Record(id=f"r{n}", content=text(topics[n % 6], n)) for n in range(15))
        engine.embed()
        engine.tree.build(branching=4)
        for n, (what, number) in enumerate(edits):
            if what == "remove":
                engine.remove(f"r{number}")
            else:
                body = text(topics[(number + (what == "edit")) % 6], n)
                engine.add([clew.Record(id=f"r{number}", content=body)])
            if n % 5 == 0:
                engine.embed()
                check(tree_of(engine))
        engine.embed()
        tree = tree_of(engine)
        check(tree)
        there = {tree.ids[n] for n in np.flatnonzero(tree.there).tolist()}
        assert there == {row[0] for row in engine.store.lifecycle.ledger(clew.Filter())}


# ---------------------------------------------------------------------- few, and odd ones


@pytest.fixture
def bare(tmp_path: Path) -> Iterator[clew.Engine]:
    with clew.open(tmp_path, embedder=HashingEmbedder(), cache=False) as opened:
        yield opened


@pytest.mark.parametrize("mode", ["bottom-up", "top-down"])
@pytest.mark.parametrize("count", [0, 1, 2])
def test_a_corpus_of_next_to_nothing_has_a_tree(bare: clew.Engine, mode: str, count: int) -> None:
    bare.add(clew.Record(id=f"r{n}", content=f"keel mast {n}") for n in range(count))
    bare.embed()
    report = bare.tree.build(mode=mode)
    assert report["leaves"] == count and report["nodes"] == 1
    bare.add([clew.Record(id="later", content="keel rudder")])
    bare.embed()
    assert set(walked(bare, "keel")) == {"later", *(f"r{n}" for n in range(count))}
    check(tree_of(bare))


@pytest.mark.parametrize("mode", ["bottom-up", "top-down"])
def test_texts_that_are_all_the_same_have_a_tree(bare: clew.Engine, mode: str) -> None:
    bare.add(clew.Record(id=f"r{n:03}", content="keel mast rudder") for n in range(130))
    bare.embed()
    bare.tree.build(mode=mode, branching=10)
    check(tree_of(bare))
    assert len(walked(bare, "keel mast")) == 50
    bare.add(clew.Record(id=f"s{n:03}", content="keel mast rudder") for n in range(60))
    bare.embed()
    check(tree_of(bare))


def test_records_without_a_vector_are_counted_and_placed_when_they_have_one(
    bare: clew.Engine,
) -> None:
    bare.add(records(3))
    bare.embed()
    bare.add([clew.Record(id="bare", content="keel keel keel")])
    assert bare.tree.build()["unplaced"] == 1
    assert "bare" not in walked(bare, "keel")
    bare.embed()
    assert walked(bare, "keel")[0] == "bare"
    assert bare.status()["tree"]["unplaced"] == 0


# ---------------------------------------------------------------------- other stores, other models


def test_a_tree_of_another_store_is_refused(engine: clew.Engine, tmp_path: Path) -> None:
    folder = tmp_path / "other"
    with clew.open(folder, embedder=HashingEmbedder()) as other:
        other.add(records(25))
        other.embed()
        shutil.copytree(
            tmp_path / ".clew" / "derived", folder / ".clew" / "derived", dirs_exist_ok=True
        )
        with pytest.raises(SourceError, match="clew tree build"):
            other.search("oak", tree=True)
        assert "clew tree build" in other.status()["tree"]["problem"]
        other.tree.build()
        assert other.search("oak", tree=True)


def test_a_tree_of_another_model_is_refused(engine: clew.Engine, tmp_path: Path) -> None:
    engine.close()
    with clew.open(tmp_path, embedder=HashingEmbedder(model="hashing@2")) as other:
        other.embed()
        with pytest.raises(SourceError, match=r"hashing@1.*clew tree build"):
            other.search("oak", tree=True)


def test_a_tree_of_an_older_generation_catches_up_when_it_is_opened(
    engine: clew.Engine, tmp_path: Path
) -> None:
    engine.add([clew.Record(id="new", content="violin cello tempo chord")])
    engine.embed()
    engine.remove("music-001")
    engine.close()
    with clew.open(tmp_path, embedder=HashingEmbedder()) as again:
        found = walked(again, "violin cello tempo chord")
        assert "new" in found and "music-001" not in found


def test_a_store_in_duckdb_has_trees_too(tmp_path: Path) -> None:
    pytest.importorskip("duckdb")
    url = "duckdb:///notes.duckdb"
    with clew.open(tmp_path, embedder=HashingEmbedder(), store=url, cache=False) as engine:
        engine.add(records(12))
        engine.embed()
        engine.tree.build(branching=10)
        assert walked(engine, TOPICS["bikes"])[0].startswith("bikes")
        engine.add([clew.Record(id="new", content=TOPICS["bikes"])])
        engine.embed()
        engine.remove("bikes-001")
        found = walked(engine, TOPICS["bikes"])
        assert "new" in found and "bikes-001" not in found


def test_searches_beside_edits_all_get_an_answer(engine: clew.Engine) -> None:
    def ask() -> None:
        for _ in range(10):
            assert engine.search("violin cello", tree=True)

    with ThreadPoolExecutor(3) as threads:
        asked = [threads.submit(ask) for _ in range(3)]
        for n in range(10):
            engine.add([clew.Record(id=f"beside-{n}", content=text("music", n))])
            engine.embed()
    for each in asked:
        each.result()
    check(tree_of(engine))


def test_dropped_it_is_gone_and_the_records_are_not(engine: clew.Engine, tmp_path: Path) -> None:
    assert engine.tree.drop() is True
    assert engine.tree.drop() is False
    assert not list((tmp_path / ".clew" / "derived").glob("tree-*"))
    assert engine.status()["tree"] is None and engine.status()["records"] == 150
    with pytest.raises(SourceError, match="clew tree build"):
        engine.search("oak", tree=True)


def test_what_is_vacuumed_leaves_no_trace_in_the_tree(engine: clew.Engine, tmp_path: Path) -> None:
    engine.add([clew.Record(id="secret", title="zanzibar", content=TOPICS["boats"] + " zanzibar")])
    engine.embed()
    engine.tree.build(branching=10)
    engine.remove("secret")
    engine.vacuum()
    files = [file for file in (tmp_path / ".clew").rglob("*") if file.is_file()]
    assert not [file for file in files if b"zanzibar" in file.read_bytes()]
