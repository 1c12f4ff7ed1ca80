"""Conditions that no record meets: the answer says what was read as what, and what there is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import clew
from clew import Filter, Record
from clew.search.advice import unmet
from clew.store import EmbeddedStore
from clew.types import Candidate, Note


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[clew.Engine]:
    store = EmbeddedStore(tmp_path / "store")
    with clew.Engine(store, config=clew.engine.Config(model="none")) as opened:
        opened.add(
            [
                Record("a", "spec:\n  type: LoadBalancer", type="code", path="deploy/web/a.yaml"),
                Record("b", "A service.", type="markdown", tags="electrics", path="notes/b.md"),
                Record("c", "Another service.", type="markdown", tags="safety", path="notes/c.md"),
                Record("d", "My service.", type="diary", tags="secrets", domain="personal"),
            ]
        )
        yield opened


def only(notes: tuple[Note, ...]) -> Note:
    (note,) = notes
    return note


def test_a_type_that_no_record_has_is_words(engine: clew.Engine) -> None:
    found = engine.search("service type:LoadBalancer")
    assert {hit.id for hit in found} >= {"a", "b"}
    assert [hit.snippet for hit in found if hit.id == "a"] == ["spec:\n  type: LoadBalancer"]
    note = only(found.notes)
    assert (note.field, note.value, note.read_as) == ("type", "LoadBalancer", "words")
    assert note.known == ("markdown", "code")
    assert "taken as words" in note.text and "types here: markdown, code" in note.text
    assert found.to_dict()["notes"][0]["read_as"] == "words"
    assert engine.search("service type:LoadBalancer").notes == found.notes  # from the cache as well


def test_a_type_that_records_have_is_a_filter(engine: clew.Engine) -> None:
    found = engine.search("service type:markdown")
    assert {hit.id for hit in found} == {"b", "c"} and found.notes == ()


def test_a_filter_that_cannot_be_left_out_leaves_out_its_word_and_says_so(
    engine: clew.Engine,
) -> None:
    for written, field in (("-type:LoadBalancer", "type"), ("-path:deploy/", "path")):
        (note,) = engine.search(f"service {written}").notes
        assert (note.field, note.read_as) == (f"-{field}", "words")
        assert f"{written} left out the word" in note.text and "only tag:" in note.text
    assert "a" not in [hit.id for hit in engine.search("spec -type:LoadBalancer")]
    assert not engine.search("service -tag:draft").notes


def test_a_type_of_some_other_source_is_a_filter(engine: clew.Engine) -> None:
    engine.sources["tickets"] = lambda query, context: [Candidate("b", 1.0)]
    assert only(engine.search("type:ticket").notes).read_as == "filter"


@pytest.mark.parametrize(
    ("query", "field", "value", "near"),
    [
        ("service tag:electrik", "tag", "electrik", "did you mean tag:electrics?"),
        ("service path:nots/", "path", "nots/", "did you mean path:notes/?"),
        ("service path:*.pdf", "path", "*.pdf", "folders here: notes/, deploy/, deploy/web/"),
        (
            "service collection:Defaults",
            "collection",
            "Defaults",
            "did you mean collection:default?",
        ),
        ("tag:electrik", "tag", "electrik", "tags here: electrics, safety"),
    ],
)
def test_a_name_that_no_record_has_is_said_with_the_nearest(
    engine: clew.Engine, query: str, field: str, value: str, near: str
) -> None:
    found = engine.search(query)
    note = only(found.notes)
    assert not found.hits and (note.field, note.value, note.read_as) == (field, value, "filter")
    assert f"{field}:{value} was read as a filter" in note.text and near in note.text
    assert f'write "{field}:{value}" in quotes' in note.text


def test_conditions_that_exclude_each_other_are_named_together(engine: clew.Engine) -> None:
    note = only(engine.search("tag:safety path:deploy/ after:2020-01-01").notes)
    assert note.field == "" and "tag:safety, path:deploy/, after" in note.text


def test_nothing_is_said_where_words_alone_find_nothing(engine: clew.Engine) -> None:
    assert engine.search("xyzzy").notes == ()
    assert engine.search("xyzzy tag:safety").notes == ()
    assert engine.search("service", filter=Filter(tags="none such")).notes == ()
    assert engine.search("tag:none such", syntax=False).notes == ()


def test_of_many_conditions_a_few_are_looked_at(engine: clew.Engine) -> None:
    """Each takes as long as a search, and its note lists what there is."""
    many = [f"no{number}" for number in range(300)]
    for field in ("tag", "type"):
        assert len(engine.search(" ".join(f"{field}:{name}" for name in many)).notes) == 20
    for wanted in (Filter(tags=many), Filter(metadata=dict.fromkeys(many, 1))):
        assert len(unmet(wanted, Filter(), engine.store)) == 20
    note = only(unmet(Filter(tags="safety", ids="b", not_tags=many), Filter(), engine.store))
    assert note.text.endswith(", …") and len(note.text) < 500


def test_names_that_may_not_be_seen_are_not_said(engine: clew.Engine) -> None:
    note = only(engine.search("tag:secret").notes)
    assert note.known == ("electrics", "safety") and "secrets" not in note.text
    assert only(engine.search("service type:diary").notes).read_as == "words"
    assert only(engine.search("tag:secret", include_personal=True).notes).known[-1] == "secrets"
    narrow = engine.search("tag:electrics", filter=Filter(path="deploy/"))
    assert only(narrow.notes).known == ()


def test_an_empty_store_has_no_advice(tmp_path: Path) -> None:
    store = EmbeddedStore(tmp_path / "store")
    with clew.Engine(store, config=clew.engine.Config(model="none")) as empty:
        assert empty.search("tag:risk").notes == ()


def test_the_parts_of_a_query_share_its_notes(engine: clew.Engine) -> None:
    found = clew.agentic_search("service and balancer type:LoadBalancer", engine=engine)
    assert [note["value"] for note in found["meta"]["notes"]] == ["LoadBalancer"]


@pytest.mark.parametrize(
    ("named", "said"),
    [
        ({"prioritie": 2}, "no record has 'prioritie' in its metadata; did you mean priority?"),
        ({"Priority": 2}, "did you mean priority (case counts)? keys here: priority, status"),
        ({"status": "Open"}, "no record has status=Open: case counts, and there is status=open"),
        ({"status": "closed"}, "no record meets all of these conditions at once: status"),
    ],
)
def test_a_key_of_metadata_is_said_with_the_nearest(
    engine: clew.Engine, named: dict[str, object], said: str
) -> None:
    engine.add([Record("e", "A ticket.", metadata={"priority": 2, "status": "open"})])
    assert said in only(unmet(Filter(metadata=named), Filter(), engine.store, typed=False)).text


@pytest.mark.parametrize(
    ("ending", "kind"), [("pdf", "document"), (".PY", "code"), ("csv", "table"), ("md", "markdown")]
)
def test_who_names_an_ending_is_told_its_type(engine: clew.Engine, ending: str, kind: str) -> None:
    said = only(unmet(Filter(type=ending), Filter(), engine.store, typed=False)).text
    assert f"a .{ending.lower().lstrip('.')} file is of type:{kind}; types here: markdown" in said
