"""A graph after a few edits: patched, and as good as one that is made whole."""

from __future__ import annotations

from typing import Any

import pytest
from yard import Opened, page

from clew import Engine

FILLER = [page(f"f{i:03}", f"Ledger Sheet {i}", f"Entry of day {i}.") for i in range(120)]
FILM = page("film", "The Glass Ferry", "Directed by Ada Norell for the Sund Company.")
ADA = page("ada", "Ada Norell", "She came from Lund.", metadata={"author": "Olof Berg"})
IVO = page("ivo", "Ivo Brand", "He came from Graz.")


@pytest.fixture
def large(opened: Opened) -> Engine:
    engine = opened()
    engine.add([*FILLER, FILM, ADA, IVO])
    engine.graph.build()
    return engine


def state(engine: Engine) -> dict[str, Any]:
    found = engine.graph._state()
    assert found is not None
    return found


def behind(engine: Engine, question: str) -> list[str]:
    about = engine.search(question).trace["sources"]["graph"]
    return [name for some in about.get("behind", {}).values() for name in some]


def test_an_edit_is_patched_in(large: Engine) -> None:
    question = "Where was the director of The Glass Ferry born?"
    assert behind(large, question) == ["notes:ada.md"]
    large.add([{**FILM, "content": "Directed by Ivo Brand, for the Moon Society."}])
    assert behind(large, question) == []
    report = large.graph.build()
    assert report.read == 1 and state(large)["patched"] == 1 and "patching" in report.seconds
    assert behind(large, question) == ["notes:ivo.md"]
    assert large.graph.show("Moon Society")["records"] == ["notes:film.md"]
    assert large.graph.query("Moon Society").records[0]["id"] == "notes:film.md"
    assert "notes:film.md" in large.graph.show("Ivo Brand")["records"]
    assert "notes:film.md" not in large.graph.show("Ada Norell")["records"]
    assert large.graph.status()["behind"] == 0 and not large.search("Ivo Brand").degraded[1:]


def test_what_is_added_and_removed_is_patched(large: Engine) -> None:
    large.remove("notes:ada.md")
    large.add([page("sequel", "The Iron Ferry", "Directed by Ivo Brand for the Sund Company.")])
    report = large.graph.build()
    assert (report.read, report.removed, report.records) == (1, 1, 123)
    assert state(large)["patched"] == 2
    assert behind(large, "Where was the director of The Iron Ferry born?") == ["notes:ivo.md"]
    both = large.graph.show("Sund Company")["records"]
    assert sorted(both) == ["notes:film.md", "notes:sequel.md"]
    near = [record["id"] for record in large.graph.query("Sund Company").records]
    assert set(both) <= set(near)
    assert large.graph.query("what is in the ledger", mode="global").themes
    assert not any(wrong for _, well, wrong in large.graph.check() if not well)


@pytest.mark.parametrize("edited", [{"title": "The Glass Boat"}, {"path": "the-glass-boat.md"}])
def test_another_title_makes_it_whole(large: Engine, edited: dict[str, Any]) -> None:
    large.add([{**FILM, **edited}])
    large.graph.build()
    assert "patched" not in state(large)


def test_many_edits_make_it_whole(large: Engine) -> None:
    for i in range(3):
        large.add([{**FILLER[i], "content": "Other words."}])
        large.graph.build()
    assert "patched" not in state(large)


def test_what_was_patched_equals_what_is_made_whole(large: Engine, opened: Opened) -> None:
    large.add([{**FILM, "content": "Directed by Ivo Brand, for the Moon Society."}])
    large.graph.build()
    assert state(large)["patched"] == 1
    names = ("Ivo Brand", "Moon Society", "Ada Norell", "The Glass Ferry")
    patched = [large.graph.show(name) for name in names]
    large.graph.build(force=True)
    assert "patched" not in state(large)
    for name, before in zip(names, patched, strict=True):
        whole = large.graph.show(name)
        for field in ("name", "records", "mentions", "spellings"):
            assert before[field] == whole[field], (name, field)
