"""clew graph: what it says, as text and as JSON."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from commands import Command


@pytest.fixture
def yard(tmp_path: Path, command: Command) -> Path:
    notes = tmp_path / "yard"
    notes.mkdir()
    (notes / "crane.md").write_text(
        "# Harbour crane\n\nIt lifts nine tonnes. Looked after by [[greta|Greta]].\n"
    )
    (notes / "greta.md").write_text(
        "# Greta Oltmanns\n\nBoat builder. Her licence has the number KR-5582, says she.\n"
    )
    (notes / "evil.md").write_text(
        "# </script><script>alert(1)</script>\n\nSee [[crane]] and [[greta]].\n"
    )
    assert command("index", notes, "--quiet").code == 0
    return notes


def test_the_graph_is_built_asked_shown_and_dropped(command: Command, yard: Path) -> None:
    built = command("graph", "build", "-C", yard)
    assert built.code == 0 and "3 records: 3 read, 0 gone" in built.out
    again = command("graph", "build", "-C", yard, "--json")
    assert json.loads(again.out)["read"] == 0
    asked = command("graph", "query", "-C", yard, "Harbour", "crane", "licence")
    assert asked.code == 0 and "Named: Harbour crane" in asked.out
    lines = asked.out.splitlines()
    assert [i for i, line in enumerate(lines) if "greta.md:" in line]
    shown = command("graph", "show", "-C", yard, "Greta")
    assert "Greta Oltmanns (page" in shown.out and "in yard:crane.md" in shown.out
    assert "Themes" in command("graph", "show", "-C", yard).out
    dropped = command("graph", "drop", "-C", yard)
    assert (dropped.code, dropped.out.strip()) == (0, "The graph is gone.")
    assert command("graph", "drop", "-C", yard).out.strip() == "There was no graph."


def test_answers_come_as_json_for_programs(command: Command, yard: Path) -> None:
    command("graph", "build", "-C", yard)
    local = json.loads(command("graph", "query", "-C", yard, "crane licence", "--json").out)
    assert local["mode"] == "local" and local["records"][0].keys() >= {"id", "score", "text"}
    whole = command("graph", "query", "-C", yard, "--mode", "global", "crane", "--json", "-n", "1")
    theme = json.loads(whole.out)["themes"][0]
    assert theme.keys() >= {"title", "summary", "records", "entities", "level"}
    assert json.loads(command("graph", "show", "-C", yard, "--json").out)["records"] == 3


def test_what_cannot_be_done_is_one_line_that_says_what_to_do(command: Command, yard: Path) -> None:
    early = command("graph", "query", "-C", yard, "crane")
    assert early.code == 1 and "clew graph build" in early.err
    command("graph", "build", "-C", yard)
    unknown = command("graph", "show", "-C", yard, "nobody we know")
    assert unknown.code == 1 and "knows no" in unknown.err
    nowhere = command("graph", "show", "-C", yard, "--html", yard / "no" / "such" / "x.html")
    assert nowhere.code == 1 and "make it first" in nowhere.err
    mine = yard / "mine.html"
    mine.write_text("<p>mine</p>")
    refused = command("graph", "show", "-C", yard, "--html", mine)
    assert refused.code == 1 and "not a page that Clew wrote" in refused.err
    assert mine.read_text() == "<p>mine</p>"


def test_the_picture_needs_nothing_else_and_obeys_no_text(
    command: Command, yard: Path, tmp_path: Path
) -> None:
    command("graph", "build", "-C", yard)
    file = tmp_path / "graph.html"
    drawn = command("graph", "show", "-C", yard, "--html", file, "--json")
    assert json.loads(drawn.out)["nodes"] > 3
    page = file.read_text("utf-8")
    assert not re.search(r"https?:|src=|@import|url\(", page)
    assert page.count("<script") == page.count("</script") == 1
    found = re.search(r"const data = (\{.*\});", page)
    assert found is not None
    data = json.loads(found[1])
    assert any("alert(1)" in node["name"] for node in data["nodes"])
    known = {node["id"] for node in data["nodes"]}
    assert all({edge["from"], edge["to"]} <= known for edge in data["edges"])
    name = next(node["name"] for node in data["nodes"] if node["record"] is None)
    around = command("graph", "show", "-C", yard, name, "--html", file, "--json")
    assert 0 < json.loads(around.out)["nodes"] < len(data["nodes"])
    unknown = command("graph", "show", "-C", yard, "nobody", "--html", file)
    assert unknown.code == 1 and "knows no" in unknown.err


def test_status_says_how_the_graph_is(command: Command, yard: Path) -> None:
    assert "none: clew graph build" in command("status", "-C", yard).out
    command("graph", "build", "-C", yard)
    assert "up to date" in command("status", "-C", yard).out
    (yard / "new.md").write_text("# New\n\nAbout the [[crane]].\n")
    command("config", "graph_update", "false", "-C", yard)
    command("index", yard, "--quiet")
    assert "1 record behind: clew graph build" in command("status", "-C", yard).out
    figures = json.loads(command("status", "-C", yard, "--json").out)["graph"]
    assert (figures["built"], figures["behind"]) == (True, 1)
