"""clew tree, and clew search --tree: with vectors from a server, as an API model has them."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from commands import Command
from endpoint import Endpoint

XHTML = "{http://www.w3.org/1999/xhtml}"


@pytest.fixture
def notes(
    tmp_path: Path, command: Command, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> Command:
    monkeypatch.setenv("CLEW_MODEL", "openai:small")
    monkeypatch.setenv("CLEW_MODEL_URL", endpoint.url)
    for n in range(40):
        words = ("keel " * (n % 7 + 1), "oak " * (n % 5 + 1))
        (tmp_path / f"note{n:02}.md").write_text(f"# Note {n}\n\n{words[n % 2]} {n}\n", "utf-8")
    assert command("index", "--quiet").code == 0
    return command


def test_a_tree_is_built_shown_searched_and_dropped(notes: Command) -> None:
    built = notes("tree", "build", "--mode", "top-down", "--branching", "5", "--json").data
    assert built["leaves"] == 40 and built["mode"] == "top-down" and built["branching"] == 5
    shown = notes("tree", "show", "--depth", "9", "--json").data
    assert shown["leaves"] == 40 and shown["children"]
    found = notes("search", "--tree", "--json", "keel", "-n", "3").data
    assert len(found["results"]) == 3
    assert found["trace"]["sources"]["tree"]["how"]["scored"] > 0
    assert notes("tree", "drop", "--json").data == {"dropped": True}
    gone = notes("search", "--tree", "keel")
    assert gone.code == 1 and "clew tree build" in gone.err


def test_people_are_told_in_lines(notes: Command) -> None:
    built = notes("tree", "build")
    assert built.code == 0 and "40 records below" in built.out
    shown = notes("tree", "show", "--depth", "2")
    assert shown.out.startswith("0 everything (40 records)") and "· Note" in shown.out
    assert "nodes over 40 records, 0 summaries stale" in notes("status").out
    assert notes("tree", "drop", "--yes").out == "The tree is removed.\n"
    assert notes("tree", "drop", "--yes").out == "There was no tree.\n"
    assert "summaries" not in notes("status").out


def test_the_walk_is_explained_in_lines(notes: Command) -> None:
    notes("tree", "build")
    found = notes("search", "--tree", "--explain", "keel", "keel")
    assert "How the tree was walked" in found.out and "embedding" in found.out
    assert "slates" in found.out and "path everything (1.00) ›" in found.out
    assert "bias" in found.out


def test_the_walk_is_drawn_as_a_page(notes: Command, tmp_path: Path) -> None:
    (tmp_path / "note00.md").write_text("# <script>alert(1)</script> & co\n\nkeel keel\n", "utf-8")
    notes("index", "--quiet")
    notes("tree", "build")
    assert notes("search", "--tree", "keel", "--html", "walk.html").code == 0
    text = (tmp_path / "walk.html").read_text("utf-8")
    page = ET.fromstring(text.removeprefix("<!DOCTYPE html>\n"))
    walk = page.find(f".//{XHTML}section[@class='walk']")
    assert walk is not None and walk.findall(f"{XHTML}details")
    assert "<script" not in text and "calibrated" in text
    assert "https://" not in text and "http-equiv" in text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("search", "--scorer", "llm", "x"), "go with --tree"),
        (("search", "--no-abort", "x"), "go with --tree"),
        (("search", "--tree", "--agentic", "x"), "take one"),
        (("search", "--tree", "--scorer", "llm", "x"), "clew config llm"),
        (("tree", "show"), "clew tree build"),
        (("tree", "show", "--depth", "-1"), "levels"),
        (("tree", "build", "--mode", "sideways"), "bottom-up"),
        (("tree", "build", "--branching", "50"), "20"),
    ],
)
def test_what_makes_no_sense_is_said(notes: Command, arguments: tuple[str, ...], said: str) -> None:
    done = notes(*arguments)
    assert done.code != 0 and said in done.err


def test_a_walk_under_a_filter_goes_on_if_told_to(notes: Command) -> None:
    notes("tree", "build", "--branching", "3")
    walk = ("search", "--tree", "--json", "keel", "--path", "note1*.md")
    assert "fallback" in notes(*walk).data["trace"]["sources"]["tree"]["how"]
    found = notes(*walk, "--no-abort").data
    assert "fallback" not in found["trace"]["sources"]["tree"]["how"]
    assert {hit["path"][:5] for hit in found["results"]} == {"note1"}
