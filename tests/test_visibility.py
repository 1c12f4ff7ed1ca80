"""What may be seen holds in every source."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import clew

from hashing import HashingEmbedder

FILES = {
    "CANONICAL.md": "The keel takes torque.\n",
    "keel-open.md": "---\ntags: [keel]\n---\nThe keel of the boat.\n",
    "keel-own.md": "---\ntags: [keel]\ndomain: personal\n---\nMy keel diary.\n",
    "diary/keel.md": "The keel again, in the folder that is personal.\n",
    ".agent/skills/keel/skill.md": "A skill: how to mend a keel.\n",
    ".agent/other/keel.md": "Not a skill, though about a keel.\n",
    ".framework/keel.md": "The framework's keel rule.\n",
}


@pytest.fixture(params=["default", "athena"])
def engine(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[clew.Engine]:
    for path, text in FILES.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    opened = clew.open(
        tmp_path,
        profile=request.param,
        domains={"personal": ["diary"]},
        embedder=HashingEmbedder(),
        sources={"framework_docs": {}},
    )
    with opened as engine:
        engine.index(tmp_path)
        yield engine


def paths(result: clew.SearchResult) -> set[str | None]:
    return {hit.path for hit in result}


def voters(result: clew.SearchResult) -> set[str]:
    return {source for hit in result for source in hit.signals}


def test_what_is_personal_is_found_only_when_asked_for(engine: clew.Engine) -> None:
    own = {"keel-own.md", "diary/keel.md"}
    usual = engine.search("keel", limit=50)
    assert not paths(usual) & own
    assert {"keyword", "vectors", "tags", "filenames", "canonical", "framework_docs"} <= voters(
        usual
    )
    assert own <= paths(engine.search("keel", limit=50, include_personal=True))
    assert paths(engine.search("keel", limit=50, filter={"domain": "personal"})) == own


@pytest.mark.parametrize(
    "source", ["keyword", "vectors", "tags", "filenames", "canonical", "framework_docs"]
)
def test_both_rules_hold_in_every_source(engine: clew.Engine, source: str) -> None:
    found = engine.search("keel", sources=[source], limit=50)
    assert found and not paths(found) & {"keel-own.md", "diary/keel.md"}
    skills = engine.search("keel", sources=[source], limit=50, skills_only=True)
    assert paths(skills) <= {".agent/skills/keel/skill.md"}


def test_skills_only_narrows_whatever_else_is_asked(engine: clew.Engine) -> None:
    assert paths(engine.search("keel", skills_only=True)) == {".agent/skills/keel/skill.md"}
    assert not engine.search("keel path:diary/", skills_only=True, include_personal=True)
    assert not engine.search("keel", skills_only=True, filter={"collection": "nowhere"})


PERSONAL = [
    *("domain: Personal", 'domain: "personal "', "domain: [personal, health]"),
    *("domain: [health, PERSONAL]", "domain: health, personal", "domain: health personal"),
    *("Domain: personal", "'DOMAIN ': personal", "domain: work\nDOMAIN: personal"),
    *("domain: personal\ndomain: work", "domain: work\ndomain:\n  - personal"),
    *(
        "domain: personal/health",
        'domain: "#personal"',
        "domain: #personal",
        "domain: personal|work",
    ),
    *('domain: "personal."', "domain: personal/", "domain: ｐｅｒｓｏｎａｌ"),
    *("domain: per\u00adsonal", "domain: per\u200bsonal", "domain: {personal: true}"),
    *("domain: {personal}", "domains: [personal]", "title: a: b\ndomain: [personal]"),
    "\tdomain: personal",
]


@pytest.mark.parametrize("said", PERSONAL)
def test_every_way_to_say_personal_is_understood(tmp_path: Path, said: str) -> None:
    (tmp_path / "keel-said.md").write_text(f"---\n{said}\n---\nA keel of my own.\n", "utf-8")
    (tmp_path / "keel-open.md").write_text("A keel.\n", "utf-8")
    with clew.open(tmp_path, model="none") as engine:
        engine.index()
        assert paths(engine.search("keel")) == {"keel-open.md"}
        assert paths(engine.search("keel", filter={"domain": "Personal"})) == {"keel-said.md"}


def test_front_matter_may_come_after_a_blank_line(tmp_path: Path) -> None:
    (tmp_path / "keel.md").write_text("\n---\ndomain: personal\n---\nA keel.\n", "utf-8")
    with clew.open(tmp_path, model="none") as engine:
        engine.index()
        assert not engine.search("keel") and engine.search("keel", include_personal=True)


@pytest.mark.parametrize(
    "said",
    [
        *("domain: personal-finance", "domain: impersonal", "domain: {personal: false}"),
        *("domain: work  # not personal", "domain: work\ndomain: crew # nothing personal"),
        *("domains: [example.org]", "title: personal"),
    ],
)
def test_what_only_resembles_personal_is_found(tmp_path: Path, said: str) -> None:
    (tmp_path / "keel-said.md").write_text(f"---\n{said}\n---\nA keel.\n", "utf-8")
    with clew.open(tmp_path, model="none") as engine:
        engine.index()
        assert paths(engine.search("keel")) == {"keel-said.md"}


def test_a_row_is_personal_by_any_of_its_domain_columns(tmp_path: Path) -> None:
    rows = "note,DOMAIN,domain,domains\nkeel,work,personal,\nkeel,work,,a|personal\nkeel,work,,\n"
    (tmp_path / "keel.csv").write_text(rows, "utf-8")
    with clew.open(tmp_path, model="none") as engine:
        engine.index()
        found = engine.search("keel note", mode="keyword", limit=50)
        assert {hit.lines for hit in found if "#" in hit.id} == {(4, 4)}


def test_a_row_is_personal_by_a_field_of_its_domain(tmp_path: Path) -> None:
    rows = '{"note": "keel", "domain": {"personal": true}}\n{"note": "keel", "domain": {"x": 1}}\n'
    (tmp_path / "keel.jsonl").write_text(rows, "utf-8")
    with clew.open(tmp_path, model="none") as engine:
        engine.index()
        found = engine.search("keel note", mode="keyword", limit=50)
        assert {hit.lines for hit in found if "#" in hit.id} == {(2, 2)}


def test_a_personal_folder_that_matches_no_file_is_told_of(tmp_path: Path) -> None:
    (tmp_path / "diary").mkdir()
    (tmp_path / "diary" / "keel.md").write_text("A keel.\n", "utf-8")
    with clew.open(tmp_path, model="none", domains={"personal": ["diary", "diery"]}) as engine:
        (note,) = (note for note in engine.index().notes if "personal" in note)
        assert "diery/" in note
    with clew.open(tmp_path, model="none", profile="athena") as engine:
        assert not any("personal" in note for note in engine.index().notes)


@pytest.mark.parametrize("domain", ["Personal", " personal", ["health", "personal"], {"personal"}])
def test_what_is_given_as_personal_is_hidden_as_well(engine: clew.Engine, domain: Any) -> None:
    given = {"id": "mine", "content": "my keel"}
    engine.add([{**given, "domain": domain}, {**given, "id": "ours", "domain": ["work", "x"]}])
    found = {hit.id for hit in engine.search("keel", limit=50)}
    assert "ours" in found and "mine" not in found


def test_a_changed_table_of_domains_acts_at_once_in_every_source(
    tmp_path: Path, engine: clew.Engine
) -> None:
    before = engine.search("keel", limit=50)
    assert engine.search("keel", limit=50).cache == "exact"
    (tmp_path / "clew.toml").write_text('[domains]\nPersonal = [".framework", ".agent/other"]\n')
    with clew.open(tmp_path, profile=engine.config.profile, embedder=HashingEmbedder()) as other:
        now = {".framework/keel.md", ".agent/other/keel.md"}
        assert now <= paths(before)
        assert not now & paths(other.search("keel", limit=50))
        for source in ("keyword", "vectors", "tags", "filenames"):
            assert not now & paths(other.search("keel", sources=[source], limit=50)), source
        assert now <= paths(other.search("keel", limit=50, include_personal=True))
        # What is no longer listed was called personal when it was indexed, and stays so till then.
        assert "diary/keel.md" not in paths(other.search("keel", limit=50))
        other.index()
        assert "diary/keel.md" in paths(other.search("keel", limit=50))


def test_a_listing_by_filters_alone_hides_what_is_personal_too(engine: clew.Engine) -> None:
    assert paths(engine.search("tag:keel")) == {"keel-open.md"}
    both = {"keel-open.md", "keel-own.md"}
    assert paths(engine.search("tag:keel", include_personal=True)) == both
