"""Building the graph: from little, from odd things, again after an edit, and never half."""

from __future__ import annotations

import json
import shutil
import sys
import threading
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from yard import YARD, Opened, page

import clew
from clew import Engine
from clew.errors import ConfigError, SourceError

CRANE, GRETA = "notes:crane.md", "notes:greta.md"


def place(engine: Engine) -> Path:
    assert engine.root is not None
    return engine.root / ".clew" / "derived" / "graph"


@pytest.mark.parametrize("count", [0, 1, 2])
def test_next_to_nothing_makes_a_graph(opened: Opened, count: int) -> None:
    engine = opened()
    engine.add(YARD[:count])
    report = engine.graph.build()
    assert (report.records, report.read) == (count, count)
    assert engine.graph.status()["built"]
    assert len(engine.search("crane", sources=["graph"])) == count
    assert engine.graph.show()["records"] == count
    if count:
        engine.graph.query("crane", mode="global")


def test_texts_that_are_all_alike_make_a_graph(opened: Opened) -> None:
    engine = opened()
    engine.add([page(f"p{i}", "Same", "The Same Thing by Ada Lovelace.") for i in range(30)])
    engine.graph.build()
    found = engine.graph.query("Ada Lovelace")
    assert len(found.records) == 10
    assert engine.graph.query("Ada Lovelace", mode="global").themes[0]["size"] > 1


def test_links_in_a_circle_end(opened: Opened) -> None:
    engine = opened()
    names = ["a", "b", "c"]
    engine.add(
        page(f"page-{x}", f"Page {x}", f"[[page-{y}]] and [[page-{x}]]", links=(f"page-{y}",))
        for x, y in zip(names, [*names[1:], names[0]], strict=True)
    )
    assert engine.graph.build().links == 3
    assert len(engine.graph.query("Page a").records) == 3


def test_an_entity_with_ten_thousand_mentions_costs_what_any_costs(opened: Opened) -> None:
    engine = opened()
    engine.add(
        {
            "id": f"r{i:05}",
            "title": f"Report {i}",
            "content": f"The Everywhere Corporation met Person{i % 4000} Smith in the hall.",
        }
        for i in range(10_000)
    )
    report = engine.graph.build()
    everywhere = engine.graph.show("Everywhere Corporation", limit=3)
    assert everywhere["mentions"] >= 200 and report.entities > 10_000
    from clew.graph.snapshot import open_graph as snapshot_of

    snapshot = snapshot_of(engine.store)
    assert snapshot is not None
    degrees = snapshot.begins[1:] - snapshot.begins[:-1]
    assert degrees[snapshot.records :].max() <= 200
    assert snapshot.rows("SELECT COUNT(*) FROM relations")[0][0] < 20 * report.entities
    # who shares a rare name comes before the thousands that share the common one
    found = engine.graph.query("Report 17", limit=3)
    assert {record["id"] for record in found.records[:3]} == {"r00017", "r04017", "r08017"}


def test_only_what_changed_is_read_again(yard: Engine) -> None:
    again = yard.graph.build()
    assert (again.read, again.removed, again.records) == (0, 0, 4)
    yard.add(
        [{**YARD[0], "content": "The crane belongs to [[roaster]] now.", "links": ["roaster"]}]
    )
    yard.remove("notes:blend.md")
    assert yard.graph.status()["behind"] == 2
    report = yard.graph.build()
    assert (report.read, report.removed, report.records) == (1, 1, 3)
    assert yard.graph.status()["behind"] == 0
    assert yard.graph.query("Harbour crane licence").records[1]["id"] == "notes:roaster.md"


def test_an_update_gives_what_a_build_from_nothing_gives(yard: Engine) -> None:
    yard.add([{**YARD[2], "content": "A Drum of Steel, by Ada Lovelace. " * 3}])
    yard.remove("notes:crane.md")
    yard.graph.build()
    grown = yard.graph.show(limit=100)
    yard.graph.drop()
    yard.graph.build()
    assert yard.graph.show(limit=100) == grown


def test_a_build_that_was_interrupted_misses_no_name(opened: Opened) -> None:
    """A page may be called what others say that did not change."""
    engine = opened()
    engine.add([*YARD, page("log", "Log", "Boats wait for what the tide table says of the crane.")])
    engine.graph.build()
    engine.add([page("tides", "Tide table", "High water is at six.")])

    def stop(stage: str, done: int, total: int) -> None:
        if stage == "reading":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        engine.graph.build(progress=stop)
    engine.graph.build()
    grown = engine.graph.show(limit=100), engine.graph.show("Tide table")
    engine.graph.drop()
    engine.graph.build()
    assert (engine.graph.show(limit=100), engine.graph.show("Tide table")) == grown


def test_the_same_records_make_the_same_graph(opened: Opened) -> None:
    shown = []
    for name, order in (("one", YARD), ("two", YARD[::-1])):
        engine = opened(name)
        engine.add(order)
        engine.graph.build()
        shown.append(
            (engine.graph.show(limit=100), engine.graph.query("licence", mode="global").themes)
        )
    assert shown[0] == shown[1]


def test_indexing_brings_a_graph_up_to_date(opened: Opened, tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    notes.mkdir()
    (notes / "a.md").write_text("# Alpha\n\nSee [[b]] for more of it, please.\n")
    (notes / "b.md").write_text("# Beta\n\nNothing to be said here.\n")
    engine = opened("notes")
    engine.index(notes)
    assert not engine.graph.built
    engine.graph.build()
    (notes / "c.md").write_text("# Gamma\n\nAnother page about [[a]].\n")
    engine.index(notes)
    assert engine.graph.status()["behind"] == 0
    assert engine.graph.query("Gamma").records[1]["path"] == "a.md"


def test_a_store_in_duckdb_has_a_graph_as_well(opened: Opened) -> None:
    engine = opened(store="duckdb:///notes.duckdb")
    engine.add(YARD)
    engine.graph.build()
    assert engine.graph.query("Harbour crane licence").records[1]["id"] == "notes:greta.md"
    assert engine.status()["graph"]["built"]


# ---------------------------------------------------------------------- what may be wrong


def test_without_igraph_there_are_no_themes_and_all_else(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "igraph", None)
    engine = opened()
    engine.add(YARD)
    report = engine.graph.build()
    assert "pip install 'clew-search[graph]'" in report.notes[0]
    assert engine.graph.update() == []  # it is not said again after every `clew index`
    assert engine.graph.query("Harbour crane licence").records[1]["id"] == "notes:greta.md"
    with pytest.raises(ConfigError, match=r"clew-search\[graph\]"):
        engine.graph.query("licence", mode="global")
    monkeypatch.undo()
    assert engine.graph.build().communities  # made up for as soon as it is there


def test_the_graph_of_another_store_is_not_served(opened: Opened) -> None:
    one, two = opened("one"), opened("two")
    for engine in (one, two):
        engine.add(YARD)
        engine.graph.build()
    shutil.rmtree(place(two))
    shutil.copytree(place(one), place(two))
    found = two.search("Harbour crane licence")
    assert any("another store" in said for said in found.degraded)
    assert "graph" not in found[0].signals
    assert "another store" in two.graph.status()["problem"]
    two.graph.build()
    assert not any("graph" in said for said in two.search("Harbour crane licence").degraded)


def damaged_state(folder: Path) -> None:
    (folder / "current.json").write_text("{")


def other_format(folder: Path) -> None:
    state = json.loads((folder / "current.json").read_text())
    (folder / "current.json").write_text(json.dumps({**state, "format": 99}))


def cut_short(folder: Path) -> None:
    file = next(folder.glob("*/targets.npy"))
    file.write_bytes(file.read_bytes()[:-3])


def gone(folder: Path) -> None:
    next(folder.glob("*/graph.db")).unlink()


def no_database(folder: Path) -> None:
    file = next(folder.glob("*/graph.db"))
    file.write_bytes(b"x" * file.stat().st_size)


def junk_in(name: str) -> Any:
    def harm(folder: Path) -> None:
        file = next(folder.glob(f"*/{name}.npy"))
        whole = file.read_bytes()
        file.write_bytes(whole[:128] + b"\x7e" * (len(whole) - 128))

    harm.__name__ = f"junk_in_{name}"
    return harm


HARMS = [
    *(damaged_state, other_format, cut_short, gone, no_database),
    *(junk_in(name) for name in ("begins", "targets", "shares")),
]


@pytest.mark.parametrize("harm", HARMS)
def test_a_damaged_graph_is_named_and_built_again(opened: Opened, harm: Any) -> None:
    engine = opened()
    engine.add(YARD)
    engine.graph.build()
    harm(place(engine))
    engine.close()
    engine = opened()
    found = engine.search("Harbour crane licence")
    assert found.hits and any("clew graph build" in said for said in found.degraded)
    assert engine.graph.status()["problem"]
    assert not all(finding["ok"] for finding in engine.doctor())
    engine.graph.build()
    assert engine.graph.query("Harbour crane licence").records[1]["id"] == "notes:greta.md"
    assert all(finding["ok"] for finding in engine.doctor())


@pytest.mark.parametrize("name", ["begins", "targets", "shares"])
def test_whoever_asks_a_damaged_graph_is_told_what_to_do(opened: Opened, name: str) -> None:
    engine = opened()
    engine.add(YARD)
    engine.graph.build()
    junk_in(name)(place(engine))
    engine.close()
    engine = opened()
    with pytest.raises(SourceError, match="clew graph build --force"):
        engine.graph.query("Harbour crane licence")


@pytest.mark.parametrize("name", ["levels.npy", "graph.db"])
def test_a_change_is_noticed_by_the_doctor_and_by_whoever_asks(opened: Opened, name: str) -> None:
    engine = opened()
    engine.add(YARD)
    engine.graph.build()
    file = next(place(engine).glob(f"*/{name}"))
    whole = file.read_bytes()
    at = whole.index(b"Greta Oltmanns") if name == "graph.db" else len(whole) - 4
    file.write_bytes(whole[:at] + b"\xff\xfe\xfd\x7e" + whole[at + 4 :])
    findings = [one for one in engine.doctor() if not one["ok"]]
    assert any(name in json.dumps(one) and "--force" in json.dumps(one) for one in findings)
    for ask in (
        lambda: engine.graph.query("Greta Oltmanns"),
        lambda: engine.graph.query("licence", mode="global"),
        lambda: engine.graph.show(limit=100),
    ):
        with pytest.raises(SourceError, match="clew graph build --force"):
            ask()
    engine.graph.build()
    assert engine.graph.query("Greta Oltmanns")
    assert all(finding["ok"] for finding in engine.doctor() if "graph" in finding["check"])


def test_extracts_that_cannot_be_read_are_made_anew(yard: Engine) -> None:
    (place(yard) / "extracts.db").write_bytes(b"no database" * 1000)
    report = yard.graph.build()
    assert report.read == 4
    assert yard.graph.query("Harbour crane licence").records[1]["id"] == "notes:greta.md"


def test_a_build_that_fails_leaves_the_old_graph_in_place(
    yard: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    yard.add([page("new", "New page", "About Ada Lovelace.")])
    monkeypatch.setattr("clew.graph.snapshot._fill", _full_disk)
    with pytest.raises(clew.StoreError, match="still in use"):
        yard.graph.build()
    assert yard.graph.query("Harbour crane licence").records[1]["id"] == "notes:greta.md"
    monkeypatch.undo()
    yard.graph.build()
    assert yard.graph.query("New page").records[0]["id"] == "notes:new.md"
    assert len([p for p in place(yard).iterdir() if p.is_dir()]) == 1


def _full_disk(*_: object) -> None:
    raise OSError(28, "No space left on device")


def test_mending_and_vacuum_keep_a_graph_without_what_is_gone(yard: Engine) -> None:
    yard.remove("notes:greta.md")
    yard.vacuum()
    assert yard.graph.status()["behind"] == 0
    kept = b"".join(file.read_bytes() for file in place(yard).rglob("*") if file.is_file())
    assert b"KR-5582" not in kept
    yard.doctor(mend=True)
    assert yard.graph.status()["built"]


def test_dropping_leaves_nothing_behind(yard: Engine) -> None:
    assert yard.graph.drop()
    assert not place(yard).exists() and not yard.graph.built
    assert not yard.graph.drop()


def test_whoever_asks_while_it_is_built_again_gets_whole_answers(yard: Engine) -> None:
    stop = threading.Event()

    def keep_asking() -> None:
        while not stop.is_set():
            found = yard.search("Harbour crane licence", sources=["graph"], cache=False)
            assert not any("graph" in said for said in found.degraded)
            assert [hit.id for hit in found][:2] == [CRANE, GRETA]

    def keep_building() -> None:
        for _ in range(8):
            yard.graph.build(force=True)

    with ThreadPoolExecutor(3) as threads:
        asking = threads.submit(keep_asking)
        builders = [threads.submit(keep_building) for _ in range(2)]
        wait(builders)
        stop.set()
    for each in (asking, *builders):
        each.result()


def test_a_memory_has_a_graph_as_well(tmp_path: Path) -> None:
    with clew.Memory(tmp_path / "memory.db", embedder=clew.NullEmbeddingProvider()) as memory:
        memory.remember("Ada Lovelace wrote the first program.")
        memory.remember("The engine that Ada Lovelace wrote for was never built.")
        memory.remember("Bread is baked on Fridays.")
        assert memory.engine.graph.build().records == 3
        found = memory.engine.graph.query("Ada Lovelace")
        assert {record["text"][:3] for record in found.records} == {"Ada", "The"}
        assert memory.recall("Ada Lovelace")


words = st.sampled_from(["Ada Lovelace", "PDB", "`code_x`", "[[p1]]", "[[p2|Two]]", "the", "."])


@settings(max_examples=25)
@given(st.lists(st.lists(words, max_size=8).map(" ".join), max_size=6))
def test_any_records_make_a_graph_whose_names_can_be_asked(texts: list[str]) -> None:
    from clew.graph.assemble import assemble
    from clew.graph.extract import RecordExtract, extract
    from clew.types import Chunk, Record

    records = [
        Record(id=f"n:p{i}.md", content=text, title=f"Page {i}", path=f"p{i}.md", type="markdown")
        for i, text in enumerate(texts)
    ]
    graph = assemble(
        RecordExtract(r.id, r.title, r.path, extract(r, [Chunk(0, len(r.content))]))
        for r in records
    )
    one, other, weight = graph.edges
    assert (one < other).all() or not len(one)
    named = {node for _, _, node in graph.tables["names"]}
    assert (weight > 0).all() and named <= set(range(len(records), graph.nodes))
    assert all(count >= 1 for _, _, _, count, _ in graph.tables["entities"])
