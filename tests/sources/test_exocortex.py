"""Wikipedia's abstracts as a source."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import clew
from clew.errors import ConfigError, SourceError
from clew.filter import Filter
from clew.ingest.wikipedia import build_exocortex
from clew.sources.sqlite import TableSource, exocortex
from clew.text.parse import parse
from clew.types import Answer, Candidate

CONTEXT: Any = None
STORE: Any = None

ARTICLES = {
    "Keel": "A keel is the bottom-most longitudinal structural element of a watercraft.",
    "Sailing": "Sailing uses the wind to propel a craft with a keel or a centreboard.",
    "Kiel": "Kiel is the capital of Schleswig-Holstein.",
    "Antonín Dvořák": "Antonín Dvořák was a Czech composer.",
    "京都タワー": "京都タワーは、京都市下京区にある展望塔である。",
    "ซีอาน": "ซีอานเป็นเมืองหลวงของมณฑลฉ่านซี",
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder with an exocortex in its usual place."""
    (tmp_path / ".clew").mkdir()
    dump = tmp_path / "dump.jsonl"
    lines = (
        json.dumps({"title": title, "abstract": text, "url": f"https://w.example/{title}"})
        for title, text in ARTICLES.items()
    )
    dump.write_text("\n".join(lines), "utf-8")
    build_exocortex(str(dump), tmp_path / ".clew" / "exocortex.db")
    return tmp_path


def found(root: Path, query: str, **asked: Any) -> list[Candidate]:
    answer = exocortex(root, seconds=60)(parse(query, **asked), CONTEXT)
    assert not isinstance(answer, Answer)
    return list(answer)


def titles(root: Path, query: str, **asked: Any) -> list[str]:
    return [candidate.id.removeprefix("exocortex:") for candidate in found(root, query, **asked)]


def test_an_article_is_found_by_its_title_first(root: Path) -> None:
    assert titles(root, "keel") == ["Keel", "Sailing"]
    best = found(root, "keel")[0]
    assert best.score == 1.0 and best.passage is not None
    record = best.passage.record
    assert (record.title, record.path) == ("Keel", "https://w.example/Keel")
    assert (record.type, record.collection) == ("exocortex", "exocortex")
    assert best.passage.text == ARTICLES["Keel"]


def test_words_are_found_without_accents_and_in_other_forms(root: Path) -> None:
    assert titles(root, "dvorak composers") == ["Antonín Dvořák"]


@pytest.mark.parametrize(
    "query", ["京都", "京都タワー", "都市下", "タ", "塔", "展望塔はどこ", '"京都市"']
)
def test_scripts_without_spaces_are_found_by_any_part(root: Path, query: str) -> None:
    assert titles(root, query)[:1] == ["京都タワー"]


def test_thai_is_found_by_any_part(root: Path) -> None:
    assert titles(root, "เมืองหลวง") == ["ซีอาน"]


def test_phrases_exclusions_and_filters_hold(root: Path) -> None:
    assert titles(root, '"a keel or"') == ["Sailing"]
    assert titles(root, "keel -wind") == ["Keel"]
    assert titles(root, '"京市"') == []
    assert titles(root, "keel", filter=Filter(path="https://w.example/S")) == ["Sailing"]
    assert titles(root, "keel", filter=Filter(collection="notes")) == []
    assert titles(root, "keel", filter=Filter(not_domain="personal")) == ["Keel", "Sailing"]


def test_a_missing_file_is_said_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(
        SourceError, match="no exocortex built yet: run `clew exocortex build DUMP`"
    ):
        exocortex(tmp_path)(parse("keel"), CONTEXT)
    assert list(tmp_path.iterdir()) == []


def test_a_missing_file_is_passed_over_where_it_is_optional(tmp_path: Path) -> None:
    assert list(exocortex(tmp_path, optional=True)(parse("keel"), CONTEXT)) == []


def test_another_file_may_be_named(root: Path) -> None:
    (root / ".clew" / "exocortex.db").rename(root / "other.db")
    assert exocortex(root, file="other.db")(parse("keel"), CONTEXT)
    with pytest.raises(ConfigError):
        exocortex(root, file="")
    with pytest.raises(ConfigError):
        exocortex(root, seconds=-1)


def test_a_file_that_is_no_exocortex_is_an_error(root: Path) -> None:
    (root / ".clew" / "exocortex.db").write_bytes(b"something else")
    with pytest.raises(SourceError, match="not an SQLite database"):
        exocortex(root)(parse("keel"), CONTEXT)


def test_a_new_build_is_seen_at_once_and_changes_the_freshness(root: Path) -> None:
    source = exocortex(root)
    assert isinstance(source, TableSource)
    before = source.freshness(STORE)
    dump = root / "new.jsonl"
    dump.write_text('{"title": "Rudder", "abstract": "A rudder steers."}', "utf-8")
    build_exocortex(str(dump), root / ".clew" / "exocortex.db")
    assert source(parse("rudder"), CONTEXT) and not source(parse("keel"), CONTEXT)
    assert source.freshness(STORE) != before


def test_a_search_shows_articles_beside_ones_own_notes(root: Path) -> None:
    with clew.open(root, model="none") as engine:
        engine.add([{"id": "mine", "content": "my own keel"}])
        engine.sources["exocortex"] = exocortex(root)
        hits = engine.search("keel")
    assert {"mine", "exocortex:Keel"} <= {hit.id for hit in hits}
