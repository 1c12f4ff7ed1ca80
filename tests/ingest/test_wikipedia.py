"""From a dump to an exocortex: what is read, what is skipped, and what a failure leaves behind."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import os
import sqlite3
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clew.errors import InputError, StoreError
from clew.ingest import wikipedia
from clew.ingest.wikipedia import ExocortexReport, build_exocortex
from clew.sources.sqlite import describe_exocortex

ARTICLES = [
    ("Keel", "A keel is the lowest part of a ship's hull & carries it.", "https://w.example/Keel"),
    ("Naïve", "Naïve is a word with a diaeresis.", "https://w.example/Na%C3%AFve"),
    ("京都タワー", "京都タワーは京都市にある塔。", "https://w.example/kyoto"),
]
Rows = list[tuple[str, str, str]]


def xml(articles: Rows = ARTICLES, *, site: str = "Wikipedia: ") -> bytes:
    docs = "".join(
        f"<doc>\n<title>{escape(site + title)}</title>\n<url>{escape(url)}</url>\n"
        f"<abstract>{escape(abstract)}</abstract>\n<links>\n<sublink linktype='nav'>"
        "<anchor>title</anchor><link>x</link></sublink></links>\n</doc>\n"
        for title, abstract, url in articles
    )
    return f"<feed>\n{docs}</feed>\n".encode()


def lines(articles: Rows = ARTICLES) -> bytes:
    rows = [dict(zip(("title", "abstract", "url"), a, strict=True)) for a in articles]
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def gzipped(data: bytes) -> bytes:
    return gzip.compress(data, mtime=0)  # the same at any time: examples are named by their bytes


def built(tmp_path: Path, dump: bytes, **options: Any) -> ExocortexReport:
    file = tmp_path / "dump"
    file.write_bytes(dump)
    return build_exocortex(str(file), tmp_path / "exo.db", **options)


def rows(file: Path) -> Rows:
    with closing(sqlite3.connect(file)) as db:
        return db.execute("SELECT title, abstract, url FROM abstracts ORDER BY rowid").fetchall()


def files(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())


# ---------------------------------------------------------------- what is read


@pytest.mark.parametrize("packed", [bytes, gzipped, bz2.compress])
@pytest.mark.parametrize("made", [xml, lines])
def test_dumps_of_every_kind_give_the_same(
    tmp_path: Path, made: Callable[[], bytes], packed: Callable[[bytes], bytes]
) -> None:
    report = built(tmp_path, packed(made()))
    assert rows(tmp_path / "exo.db") == ARTICLES
    assert (report.articles, report.replaced, report.skipped, report.examples) == (3, 0, 0, [])
    assert report.bytes == (tmp_path / "exo.db").stat().st_size
    assert files(tmp_path) == ["dump", "exo.db"]


@pytest.mark.parametrize("packed", [bytes, gzipped, bz2.compress])
def test_a_dump_may_come_from_standard_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, packed: Callable[[bytes], bytes]
) -> None:
    given = io.TextIOWrapper(io.BufferedReader(io.BytesIO(packed(xml()))))
    monkeypatch.setattr(sys, "stdin", given)
    build_exocortex("-", tmp_path / "exo.db")
    assert rows(tmp_path / "exo.db") == ARTICLES
    assert describe_exocortex(tmp_path / "exo.db")["from"] == "standard input"


@pytest.mark.parametrize(
    "site", ["", "Wikipedia: ", "Wikipédia\u00a0: ", "Википедия: ", "Wikipedia：", "维基百科："]
)
def test_the_name_of_the_site_is_taken_off_the_title(tmp_path: Path, site: str) -> None:
    articles = [("Keel: a history", "About keels.", "u"), ("Wikidata", "A knowledge base.", "v")]
    built(tmp_path, xml(articles, site=site))
    assert rows(tmp_path / "exo.db") == articles


@pytest.mark.parametrize(
    "row",
    [
        {"title": "Keel", "abstract": "Of a ship."},
        {"name": "Keel", "abstract": "Of a ship.", "text": "Much more."},
        {"title": "Keel", "extract": "Of a ship.", "description": "part"},
        {"title": "Keel", "text": "Of a ship.", "id": 7},
        {"title": "Keel", "opening_text": "Of a ship.", "text": "Of a ship. More."},
        {"title": " Keel ", "abstract": None, "summary": "Of\n a \u0000 ship.", "url": None},
    ],
)
def test_the_usual_names_of_fields_are_known(tmp_path: Path, row: dict[str, Any]) -> None:
    built(tmp_path, json.dumps(row).encode())
    assert rows(tmp_path / "exo.db") == [("Keel", "Of a ship.", "")]


def test_lines_of_a_search_dump_that_only_name_an_index_are_passed_over(tmp_path: Path) -> None:
    dump = b'{"index": {"_id": "1"}}\n{"title": "Keel", "opening_text": "Of a ship."}\n'
    report = built(tmp_path, dump)
    assert (report.articles, report.skipped) == (1, 0)


def test_of_articles_with_one_title_the_last_counts(tmp_path: Path) -> None:
    articles = [("Keel", "old", "a"), ("Bilge", "one", "b"), ("Keel", "older", "c")]
    report = built(tmp_path, lines([*articles, ("Keel", "new", "d")]))
    assert rows(tmp_path / "exo.db") == [("Bilge", "one", "b"), ("Keel", "new", "d")]
    assert (report.articles, report.replaced) == (2, 2)


def test_a_very_long_abstract_is_cut(tmp_path: Path) -> None:
    for made in (xml, lines):
        built(tmp_path, made([("Keel", "word " * 100_000, "u")]))
        ((_, abstract, _),) = rows(tmp_path / "exo.db")
        assert len(abstract) <= wikipedia.LONGEST_ABSTRACT


def test_half_a_character_does_no_harm(tmp_path: Path) -> None:
    report = built(tmp_path, b'{"title": "Keel \\ud800", "abstract": "Of a \\udfff ship."}')
    assert report.articles == 1


def test_building_tells_how_far_it_is(tmp_path: Path) -> None:
    told: list[tuple[str, int, int]] = []
    built(tmp_path, xml(), progress=lambda *said: told.append(said))
    assert ("reading", 3, 0) in told and ("indexing", 3, 3) in told


def test_a_file_knows_what_it_was_made_from(tmp_path: Path) -> None:
    built(tmp_path, xml())
    facts = describe_exocortex(tmp_path / "exo.db")
    assert (facts["articles"], facts["from"], facts["skipped"]) == (3, "dump", 0)
    assert facts["built"].startswith("20") and facts["bytes"]


# ---------------------------------------------------------------- what is skipped


def test_broken_lines_are_counted_and_the_first_are_named(tmp_path: Path) -> None:
    broken = [
        b"{not json",
        b"[1]",
        b'{"title": "x"}',
        b'{"abstract": "x"}',
        b"\xff\xfe",
        b"{" * 9999,
    ]
    report = built(tmp_path, lines() + b"\n".join(broken) + b"\n" + lines([("Z", "z", "z")]))
    assert (report.articles, report.skipped) == (4, 6)
    assert len(report.examples) == 5
    first, second, third, fourth, _ = report.examples
    assert f"{tmp_path / 'dump'}:4: not JSON" in first
    assert ":5: not a JSON object" in second
    assert ":6: no abstract" in third and ":7: no title" in fourth
    assert describe_exocortex(tmp_path / "exo.db")["skipped"] == 6


def test_articles_without_an_abstract_are_skipped(tmp_path: Path) -> None:
    report = built(tmp_path, xml([("Keel", "", "u"), ("", "x", "u"), ("Bilge", "Wet.", "u")]))
    assert (report.articles, report.skipped) == (1, 2)
    assert ":8: no abstract" in report.examples[0]  # where the article ends


def test_a_line_without_end_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wikipedia, "LONGEST_PIECE", 1000)
    monkeypatch.setattr(wikipedia, "BLOCK", 100)
    long = lines([("Long", "x" * 5000, "u")])
    report = built(tmp_path, lines() + long + lines([("Z", "z", "z")]))
    assert (report.articles, report.skipped) == (4, 1)
    assert ":4: a line of more than" in report.examples[0]


# ---------------------------------------------------------------- what ends it

BOMB = (
    b'<!DOCTYPE feed [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">'
    b'<!ENTITY c "&b;&b;&b;&b;&b;&b;&b;&b;">]><feed><doc><title>&c;</title></doc></feed>'
)
OUTSIDE = (
    b'<!DOCTYPE feed [<!ENTITY x SYSTEM "file:///etc/hostname">]>'
    b"<feed><doc><title>Keel</title><abstract>&x;</abstract></doc></feed>"
)
EXPORT = (
    b"<mediawiki><page><title>Keel</title><revision><text>x</text></revision></page></mediawiki>"
)


@pytest.mark.parametrize(
    ("dump", "says"),
    [
        (b"", "is empty"),
        (b" \n\n ", "is empty"),
        (gzipped(b""), "is empty"),
        (b"hello", "neither XML nor JSON lines"),
        (b"%PDF-1.7", "neither XML nor JSON lines"),
        (b'[{"title": "Keel"}]', "one object per line"),
        (b"{not json\n", "no article"),
        (EXPORT, "no article"),
        (xml()[:-20], "dump:2[0-9]: not well-formed XML"),
        (xml().replace(b"</url>", b"</wrong>", 1), "dump:4: not well-formed XML"),
        (xml().replace(b"&amp;", b"&nothing;"), "dump:5: not well-formed XML"),
        (xml() + b"<feed/>", "not well-formed XML"),
        (gzipped(xml() * 500)[:-400], "dump:[0-9]+: the compressed dump is cut short"),
        (gzipped(lines() * 500)[:-400], "dump:[0-9]+: the compressed dump is cut short"),
        (bz2.compress(lines() * 500)[:-50], "dump:[0-9]+: the compressed dump is cut short"),
        (gzipped(xml())[:40] + b"garbage" * 20, "cut short or damaged"),
        (b"BZh9" + b"garbage" * 20, "cut short or damaged"),
        (gzipped(xml()) + b"trailing", "cut short or damaged"),
        (BOMB, "declares entities"),
        (OUTSIDE, "declares entities"),
        (b"<feed>" + b"<a>" * 10_000, "without end"),
    ],
)
def test_a_bad_dump_is_an_error_that_keeps_the_old_file(
    tmp_path: Path, dump: bytes, says: str
) -> None:
    built(tmp_path, xml())
    before = (tmp_path / "exo.db").read_bytes()
    with pytest.raises(InputError, match=says):
        built(tmp_path, dump)
    assert (tmp_path / "exo.db").read_bytes() == before
    assert files(tmp_path) == ["dump", "exo.db"]


def test_a_tag_without_end_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wikipedia, "LONGEST_PIECE", 10_000)
    monkeypatch.setattr(wikipedia, "BLOCK", 1_000)
    with pytest.raises(InputError, match="a tag of more than"):
        built(tmp_path, b"<feed><doc x='" + b"y" * 1_000_000)


def test_a_dump_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nowhere\.xml cannot be read: No such file"):
        build_exocortex("nowhere.xml", tmp_path / "exo.db")
    with pytest.raises(InputError, match="directory"):
        build_exocortex(str(tmp_path), tmp_path / "exo.db")
    assert files(tmp_path) == []


@given(st.binary(max_size=200), st.sampled_from([b"", b"<feed><doc>", b'{"title": ']))
def test_any_bytes_are_built_from_or_refused(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, start: bytes
) -> None:
    folder = tmp_path_factory.mktemp("any")
    try:
        assert built(folder, start + data).articles
    except InputError:
        assert files(folder) == ["dump"]


# ---------------------------------------------------------------- the file


def test_an_interrupted_build_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    built(tmp_path, xml())

    def press(stage: str, done: int, total: int) -> None:
        if stage == "indexing":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        built(tmp_path, lines([("New", "new", "new")]), progress=press)
    assert rows(tmp_path / "exo.db") == ARTICLES
    assert files(tmp_path) == ["dump", "exo.db"]


def test_what_a_killed_build_left_is_cleared_away_but_not_what_is_at_work(tmp_path: Path) -> None:
    old, new = tmp_path / "exo.db.0123abcd.part", tmp_path / "exo.db.4567abcd.part"
    for part in (old, new):
        part.touch()
    os.utime(old, (time.time() - 100_000,) * 2)
    built(tmp_path, xml())
    assert files(tmp_path) == ["dump", "exo.db", "exo.db.4567abcd.part"]


@pytest.mark.parametrize("content", [b"my notes", b"SQLite format 3\0" + bytes(200)])
def test_what_is_no_exocortex_is_never_overwritten(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "exo.db").write_bytes(content)
    with pytest.raises(InputError, match="not overwritten"):
        built(tmp_path, xml())
    with pytest.raises(InputError, match="was not made by"):
        describe_exocortex(tmp_path / "exo.db")
    assert (tmp_path / "exo.db").read_bytes() == content


def test_a_place_that_does_not_exist_is_named(tmp_path: Path) -> None:
    (tmp_path / "dump").write_bytes(xml())
    with pytest.raises(InputError, match="no folder"):
        build_exocortex(str(tmp_path / "dump"), tmp_path / "nowhere" / "exo.db")
    (tmp_path / "folder").mkdir()
    with pytest.raises(InputError, match="not overwritten"):
        build_exocortex(str(tmp_path / "dump"), tmp_path / "folder")
    with pytest.raises(InputError, match="clew exocortex build"):
        describe_exocortex(tmp_path / "exo.db")


def test_a_full_disk_is_said_to_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:

    monkeypatch.setattr(wikipedia, "SCHEMA", wikipedia.SCHEMA + "PRAGMA max_page_count = 12;")
    with pytest.raises(StoreError, match="full; make room"):
        built(tmp_path, lines([(f"T{i}", "word " * 100, "u") for i in range(2000)]))
    assert files(tmp_path) == ["dump"]
