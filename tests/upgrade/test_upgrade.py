"""What every version has left on disk opens, answers the same and can be written to."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest
from make import QUERIES, STORES, best_hits, lookup_key, memory_facts, record_facts

import clew
from clew.cache import LookupCache

from hashing import HashingEmbedder

VERSIONS = sorted(each.name for each in Path(__file__).parent.iterdir() if each.name[0].isdigit())


@pytest.fixture(params=VERSIONS)
def left(request: pytest.FixtureRequest) -> Path:
    return Path(__file__).parent / str(request.param)


def expected(left: Path, name: str) -> Any:
    return json.loads((left / "expected.json").read_text("utf-8"))[name]


def unpack(left: Path, name: str, folder: Path) -> Path:
    with tarfile.open(left / f"{name}.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return folder


def assert_same(engine: clew.Engine, known: Any) -> None:
    assert record_facts(engine) == known["records"]
    assert [list(each) for each in best_hits(engine)] == known["hits"]
    engine.store.indexes.refresh()
    assert [row for row in engine.doctor() if not row["ok"]] == []


def test_this_version_is_there() -> None:
    assert clew.__version__ in VERSIONS, "run tests/upgrade/make.py"


@pytest.mark.parametrize("name", STORES)
def test_a_store_opens_answers_and_is_written_to(left: Path, name: str, tmp_path: Path) -> None:
    folder, known = unpack(left, name, tmp_path), expected(left, name)
    with clew.open(folder, embedder=HashingEmbedder()) as engine:
        assert_same(engine, known)
        engine.add([clew.Record(id="new", content="A winch of bronze")])
        engine.embed()
    with clew.open(folder, embedder=HashingEmbedder()) as engine:
        assert engine.search("bronze winch", limit=1)[0].id == "new"
        engine.remove(["new"])
        done = engine.index()
        assert (done.added, done.removed, done.changed) == ([], [], [])
        assert_same(engine, known)


@pytest.mark.parametrize("name", STORES)
def test_it_answers_the_same_without_its_derived_indexes(
    left: Path, name: str, tmp_path: Path
) -> None:
    from shutil import rmtree

    folder = unpack(left, name, tmp_path)
    rmtree(folder / ".clew" / "derived")
    with clew.open(folder, embedder=HashingEmbedder()) as engine:
        assert_same(engine, expected(left, name))


@pytest.mark.parametrize("name", STORES)
def test_a_backup_is_restored(left: Path, name: str, tmp_path: Path) -> None:
    folder = unpack(left, name, tmp_path)
    with clew.open(folder, embedder=HashingEmbedder()) as engine:
        engine.remove(["tides"])
    clew.restore_backup(left / f"{name}.clew", folder, force=True)
    with clew.open(folder, embedder=HashingEmbedder()) as engine:
        assert_same(engine, expected(left, name))


def test_a_memory_knows_what_it_knew(left: Path, tmp_path: Path) -> None:
    folder, known = unpack(left, "memory", tmp_path), expected(left, "memory")
    with clew.Memory(folder / "memory.db", embedder=HashingEmbedder()) as memory:
        assert memory_facts(memory) == known["memories"]
        assert memory.recall("where does Ana live")[0].content == "Ana lives in Lisbon"
        assert [each.content for each in memory.history(known["newest"])] == [
            "Ana lives in Lisbon",
            "Ana lives in Porto",
        ]
        memory.remember("Ana has moved to Faro")
        assert "Faro" in memory.recall("Ana moved Faro")[0].content


def test_a_snapshot_of_lookups_is_read(left: Path) -> None:
    cache = LookupCache(seconds=1e12)
    assert cache.load(left / "lookups.json") == 1
    found = cache.get(lookup_key())
    assert found is not None and found.result[0].id.endswith(QUERIES["painted red keel"])
