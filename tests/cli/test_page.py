"""The page that explains a search: well-formed, safe, self-contained, and never in the way."""

from __future__ import annotations

import re
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

import clew
from clew.cli import page
from clew.cli.view import view_result
from clew.types import Hit, SearchResult
from commands import Command

SPACE = "{http://www.w3.org/1999/xhtml}"


def result(text: str = "keel bolts", *, reranked: bool = False) -> SearchResult:
    signals = {
        "keyword": {"rank": 2, "score": 7.5, "weight": 1.0, "contrib": 0.0123},
        "tags": {"rank": 1, "score": 1.0, "weight": 2.2, "contrib": 0.0361},
    }
    score = 0.0484
    if reranked:
        for signal, part in zip(signals.values(), (0.2, 0.5), strict=True):
            signal["part"] = part
        read = {"rank": 1, "score": 3.0, "weight": 0.3, "contrib": 0.25, "part": 0.25}
        signals, score = {**signals, "reranker": read}, 0.95
    hit = Hit(
        id="a",
        content=text,
        score=score,
        rrf_score=0.0484,
        title=text,
        path=f"{text}.md",
        confidence="HIGH",
        metadata={"heading": text, "snippet_line": 3},
        signals=signals,
        snippet=text,
        highlights=((0, 4),),
    )
    trace = {
        "query": text,
        "mode": "hybrid",
        "sources": {
            "keyword": {"kind": "keyword", "weight": 1.0, "count": 9, "ms": 1.5, "problem": None},
            "tags": {"kind": "tags", "weight": 2.2, "count": 1, "ms": 0.5, "problem": text},
        },
        "stages_ms": {"parse": 0.1, "collect": 2.0, "fuse": 0.2, "snippet": 0.4},
        "total_ms": 2.7,
        "generation": 5,
        "model": text,
        "embedded": 1.0,
        "fusion": {"strategy": "weighted_rrf", "k": 60, "because": {"contrast": 0.5}},
    }
    return SearchResult((hit,), suppressed=2, degraded=(f"tags: {text}",), trace=trace)


def tree(found: SearchResult) -> ElementTree.Element:
    return ElementTree.fromstring(page.page(view_result(found)))


def words(element: ElementTree.Element) -> str:
    return "".join(element.itertext())


def test_everything_there_is_to_say_is_on_the_page() -> None:
    said = words(tree(result()).find(f"{SPACE}body"))
    for wanted in ("keel bolts", "keel bolts.md:3", "HIGH", "fused 0.0484", "weighted_rrf"):
        assert wanted in said
    for wanted in ("contrast", "tags: keel bolts", "2 weaker results suppressed", "2.2"):
        assert wanted in said


def test_the_waterfall_and_the_bars_are_drawn_to_scale() -> None:
    drawn = tree(result())
    waterfall, *_ = (t for t in drawn.iter(f"{SPACE}table") if "time" in t.get("class", ""))
    bars = {
        title.text.split(":")[0]: rect for rect in waterfall.iter(f"{SPACE}rect") for title in rect
    }
    assert list(bars) == ["parse", "collect", "keyword", "tags", "fuse", "snippet"]
    percent = lambda name, key: float(bars[name].get(key).rstrip("%"))  # noqa: E731
    assert percent("collect", "width") == pytest.approx(100 * 2.0 / 2.7, abs=0.01)
    assert percent("keyword", "x") == percent("collect", "x")
    assert percent("snippet", "x") == pytest.approx(100 * 2.3 / 2.7, abs=0.01)
    stack = next(s for s in drawn.iter(f"{SPACE}svg") if s.get("class") == "stack")
    widths = [float(rect.get("width").rstrip("%")) for rect in stack]
    assert sum(widths) == pytest.approx(100, abs=0.1)
    assert widths[1] / widths[0] == pytest.approx(0.0361 / 0.0123, rel=0.01)


@pytest.mark.parametrize("reranked", [False, True])
def test_the_numbers_of_a_hit_add_up(reranked: bool) -> None:
    article = next(tree(result(reranked=reranked)).iter(f"{SPACE}article"))
    _, *rows, last = ([words(cell) for cell in row] for row in article.iter(f"{SPACE}tr"))
    assert last[0] == "sum" and last[-1] == ("0.9500" if reranked else "0.0484")
    assert sum(Decimal(row[-1]) for row in rows) == Decimal(last[-1])
    if reranked:
        assert last[-2] == "0.0484"
        assert sum(Decimal(row[-2]) for row in rows if row[-2] != "–") == Decimal("0.0484")


HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)> & \x1b[2J\x00 ]]> </style>"


def test_text_stays_text_whatever_it_says() -> None:
    text = page.page(view_result(result(HOSTILE)))
    assert not re.search(r"<script|<img|\x1b|\x00", text)
    drawn = ElementTree.fromstring(text)
    allowed = {"html", "head", "meta", "title", "link", "style", "body", "header", "main", "aside"}
    allowed |= {"h1", "h2", "h3", "p", "ul", "li", "section", "article", "div", "span", "mark"}
    allowed |= {"table", "tr", "th", "td", "svg", "rect", "line", "dl", "dt", "dd"}
    assert {element.tag.removeprefix(SPACE) for element in drawn.iter()} <= allowed
    for element in drawn.iter():
        assert not [name for name in element.attrib if name.startswith("on")]
    assert "<script>alert(1)</script>" in words(next(drawn.iter(f"{SPACE}h3")))


@given(st.text())
def test_any_text_gives_a_well_formed_page(text: str) -> None:
    tree(result(text))


def test_nothing_is_fetched_and_nothing_is_run() -> None:
    text = page.page(view_result(result())).replace('xmlns="http://www.w3.org/1999/xhtml"', "")
    assert not re.search(r"https?:|//\w|url\(|@import|<script|javascript:", text)
    assert "default-src 'none'" in text
    assert "prefers-color-scheme: dark" in text


def test_an_answer_of_nothing_has_a_page_too() -> None:
    assert "Nothing found" in words(tree(SearchResult(trace={"query": "x"})))
    assert "Nothing found" in words(tree(SearchResult()))


def test_a_kept_answer_says_that_its_sources_were_asked_before() -> None:
    found = result()
    kept = {**found.trace, "stages_ms": {"parse": 0.1, "cache": 0.2}, "total_ms": 0.3}
    drawn = words(tree(replace(found, trace=kept, cache="exact")))
    assert "answered by the exact cache" in drawn and "Sources, when they were asked" in drawn


def test_more_sources_than_colours_are_all_told_apart_by_name() -> None:
    found = result()
    sources = {f"source{i}": {"count": 0, "ms": 0.1, "problem": None} for i in range(20)}
    drawn = tree(replace(found, trace={**found.trace, "sources": sources}))
    assert all(name in words(drawn) for name in sources)


# ---------------------------------------------------------------------- the file


def test_the_command_writes_the_page_and_replaces_its_own(tmp_path: Path, command: Command) -> None:
    (tmp_path / "keel.md").write_text("# Keel\n\nBolts of the keel.\n", "utf-8")
    assert command("index", "--quiet").code == 0
    out = tmp_path / "why.html"
    for query in ("keel", "bolts"):
        done = command("search", query, "--explain", "--html", out)
        assert done.code == 0 and "why.html" in done.err
        assert f"<h1>{query}</h1>" in out.read_text("utf-8")
    assert command("search", "keel", "--html", out, "--json").data["results"]
    assert [p.name for p in tmp_path.iterdir() if "why" in p.name] == ["why.html"]


def test_a_file_of_somebody_else_is_not_overwritten(tmp_path: Path, command: Command) -> None:
    out = tmp_path / "thesis.html"
    out.write_text("<html>years of work</html>", "utf-8")
    done = command("search", "keel", "--html", out)
    assert done.code == 1 and "give --html another name" in done.err
    assert out.read_text("utf-8") == "<html>years of work</html>"


def test_a_missing_folder_is_said_before_the_search(tmp_path: Path, command: Command) -> None:
    done = command("search", "keel", "--html", tmp_path / "nowhere" / "why.html")
    assert done.code == 1 and "nowhere" in done.err and "make it first" in done.err
    done = command("search", "keel", "--html", tmp_path)
    assert done.code == 1 and "is a folder" in done.err


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_page_that_cannot_be_written_leaves_what_was_there(tmp_path: Path) -> None:
    out = tmp_path / "why.html"
    page.write_page(view_result(result("first")), out)
    with files_of_at_most(500), pytest.raises(clew.InputError, match="cannot be written"):
        page.write_page(view_result(result("second")), out)
    assert [p.name for p in tmp_path.iterdir()] == ["why.html"]
    assert "<h1>first</h1>" in out.read_text("utf-8")


def test_a_name_too_long_for_the_disk_is_said(tmp_path: Path) -> None:
    with pytest.raises(clew.InputError, match="give another name"):
        page.check_file(tmp_path / ("n" * 300))
