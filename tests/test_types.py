from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

import clew
from clew.types import Hit, Record, SearchResult, Terms

# ---------------------------------------------------------------- Terms


def test_terms_are_true_when_there_is_something_to_look_for() -> None:
    assert Terms(words=(("keel",),))
    assert Terms(phrases=(("keel",),))
    assert not Terms()
    assert not Terms(excluded=(("keel",),))


# ---------------------------------------------------------------- Record


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("id", None),
        ("id", 5),
        ("content", None),
        ("content", b"bytes"),
        ("title", None),
        ("title", 7),
        ("path", 3.5),
        ("collection", None),
        ("type", ["text"]),
        ("domain", False),
        ("tags", None),
        ("tags", 5),
        ("tags", ["a", 5]),
        ("tags", ("a", None)),
        ("links", b"x"),
        ("links", {"a": 1}),
        ("importance", None),
        ("importance", "high"),
        ("importance", True),
        ("importance", 7),
        ("importance", -0.1),
        ("importance", float("nan")),
        ("created_at", "yesterday"),
        ("updated_at", True),
        ("updated_at", [1]),
        ("metadata", None),
        ("metadata", [("a", 1)]),
    ],
)
def test_a_field_that_makes_no_sense_is_an_input_error_that_names_it(
    field: str, value: Any
) -> None:
    with pytest.raises(clew.InputError, match=rf"\b{field}\b"):
        Record(**{"id": "a", "content": "b", field: value})


def test_a_record_takes_what_can_only_be_meant_one_way() -> None:
    record = Record("a", "b", tags="case study", links=["x.md", "y.md"], importance=1)  # type: ignore[arg-type]
    assert record.tags == ("case study",)  # one tag: commas and spaces may be part of it
    assert record.links == ("x.md", "y.md")
    assert Record("a", "b", tags={"z", "y"}).tags == ("y", "z")  # type: ignore[arg-type]
    assert Record("a", "b", tags="").tags == ()  # type: ignore[arg-type]
    dated = Record("a", "b", created_at="2026-03-14T00:00Z", updated_at=1)  # type: ignore[arg-type]
    assert (dated.created_at, dated.updated_at) == (1773446400.0, 1.0)
    assert type(dated.updated_at) is float


def test_a_record_that_is_fine_stays_as_given() -> None:
    tags, metadata = ("a", "b"), {"k": [1]}
    record = Record("a", "", tags=tags, metadata=metadata, path=None, created_at=1.5)
    assert record.tags is tags and record.metadata is metadata and record.created_at == 1.5


# ---------------------------------------------------------------- Hit

PROMISED = {
    "score": 0.0,
    "source": "",
    "rrf_score": 0.0,
    "title": "",
    "path": None,
    "lines": None,
    "confidence": None,
    "metadata": {},
    "signals": {},
}


def test_a_hit_has_the_promised_fields_and_defaults() -> None:
    hit = Hit("a", "words")
    assert {name: getattr(hit, name) for name in PROMISED} == PROMISED
    assert list(hit)[:11] == ["id", "content", *PROMISED]
    by_place = Hit("a", "words", 1.0, "keyword", 0.5, "T", "p.md", (1, 2), "HIGH", {"x": 1}, {})
    assert by_place == Hit(
        id="a",
        content="words",
        score=1.0,
        source="keyword",
        rrf_score=0.5,
        title="T",
        path="p.md",
        lines=(1, 2),
        confidence="HIGH",
        metadata={"x": 1},
        signals={},
    )


def test_a_hit_reads_like_a_mapping() -> None:
    hit = Hit("a", "words", score=0.5, path="notes/a.md")
    assert isinstance(hit, Mapping)
    assert hit["id"] == "a"
    assert hit.get("path") == "notes/a.md"
    assert hit.get("nothing", "else") == "else"
    assert "score" in hit and "nothing" not in hit
    assert len(hit) == len(list(hit)) == len(dict(hit))
    assert dict(hit)["content"] == "words"
    assert {**hit} == dict(hit)
    assert Hit(**hit) == hit


@pytest.mark.parametrize("key", ["nothing", "to_dict", "__class__", "keys", "", 0, None])
def test_a_hit_has_no_other_keys(key: Any) -> None:
    with pytest.raises(KeyError):
        Hit("a", "words")[key]


def test_a_hit_is_frozen() -> None:
    hit = Hit("a", "words")
    with pytest.raises(dataclasses.FrozenInstanceError):
        hit.score = 1.0  # type: ignore[misc]
    with pytest.raises(TypeError):
        hit["score"] = 1.0  # type: ignore[index]
    with pytest.raises((AttributeError, TypeError)):
        hit.extra = 1  # type: ignore[attr-defined]


def test_hits_share_no_metadata() -> None:
    assert Hit("a", "").metadata is not Hit("b", "").metadata


# ---------------------------------------------------------------- SearchResult

HITS = tuple(
    Hit(name, f"words of {name}", score=score, lines=(1, 2), highlights=((0, 5),))
    for name, score in (("a", 0.9), ("b", 0.5), ("c", 0.1))
)


def test_a_result_is_a_sequence_of_hits() -> None:
    result = SearchResult(HITS)
    assert isinstance(result, Sequence)
    assert len(result) == 3
    assert [hit.id for hit in result] == ["a", "b", "c"]
    assert (result[0], result[-1]) == (HITS[0], HITS[2])
    assert tuple(result[1:]) == HITS[1:]
    assert HITS[1] in result
    assert Hit("z", "") not in result
    assert list(reversed(result)) == list(reversed(HITS))
    assert result.index(HITS[2]) == 2
    with pytest.raises(IndexError):
        result[3]


def test_a_result_is_true_when_something_was_found() -> None:
    assert SearchResult(HITS)
    assert not SearchResult()


def test_a_result_has_the_promised_defaults() -> None:
    result = SearchResult()
    assert (result.suppressed, result.degraded, result.cache) == (0, (), None)
    assert result.trace == {}
    with pytest.raises(dataclasses.FrozenInstanceError):
        result.suppressed = 1  # type: ignore[misc]


def test_a_result_becomes_plain_data() -> None:
    signals = {"keyword": {"rank": 1, "score": 2.5, "contrib": 0.5}}
    hit = dataclasses.replace(HITS[0], signals=signals, metadata={"path": "a.md", "type": "text"})
    result = SearchResult((hit,), 2, ("vectors: late",), {"query": "keel"}, "exact")
    plain = result.to_dict()
    assert json.loads(json.dumps(plain)) == plain
    (only,) = plain["results"]
    promised = {
        "id",
        "content",
        "source",
        "score",
        "rrf_score",
        "confidence",
        "metadata",
        "signals",
    }
    assert promised <= set(only)
    assert only["signals"] == signals
    assert only["metadata"] == {"path": "a.md", "type": "text"}
    assert only["lines"] == [1, 2]
    assert (plain["suppressed"], plain["degraded"], plain["cache"]) == (
        2,
        ["vectors: late"],
        "exact",
    )
    assert "message" not in plain


def test_an_empty_result_says_so_in_plain_data() -> None:
    plain = SearchResult().to_dict()
    assert plain["results"] == []
    assert plain["message"]


def test_the_answer_of_an_engine_becomes_json(tmp_path: Any) -> None:
    metadata = {"status": "open", "effort": 3, "list": [1, {"deep": None}]}
    with clew.open(tmp_path, model="none") as engine:
        engine.add([Record("a", "the keel", tags=("risk",), metadata=metadata)])
        found = engine.search("keel", explain=True)
    plain = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert plain["results"][0]["id"] == "a"
    assert plain["results"][0]["metadata"]["effort"] == 3
