"""A list has a floor: what lies below it is not named, beside other sources."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from listed import Folder, by

import clew
from clew import Record
from clew.errors import ConfigError

from hashing import HashingEmbedder

FILES = {"keel-bolts.md": "---\ntags: [keel]\n---\nTorque.", "mast.md": "The keel and its bolts."}


def named(engine: clew.Engine, source: str, query: str) -> list[str]:
    listed = engine.search(query, explain=True).trace["lists"][source]
    return [row["id"].partition(":")[2] for row in listed]


@pytest.mark.parametrize("source", ["filenames", "tags"])
def test_a_floor_is_the_share_of_the_words(folder: Folder, source: str) -> None:
    engine = folder(FILES, sources={source: {"floor": 0.5}})
    assert named(engine, source, "keel") == ["keel-bolts.md"]
    assert named(engine, source, "keel yard") == ["keel-bolts.md"]
    assert named(engine, source, "keel yard spring haul") == []
    assert by(source, engine, "keel yard spring haul")  # who asks nobody else gets all it has
    plain = folder(FILES)
    assert named(plain, source, "keel yard spring haul") == ["keel-bolts.md"]


def test_a_floor_is_a_number(folder: Folder) -> None:
    with pytest.raises(ConfigError, match="floor"):
        folder(FILES, sources={"tags": {"floor": "high"}})


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[clew.Engine]:
    """Athena's folders: what is asked for lies in the collection that weighs least."""
    notes = {
        ".context/references/keel": "torque of the keel bolts in newton metres",
        ".context/sessions/soup": "miso soup with spring onions and tofu",
        ".context/case_studies/bread": "sourdough bread baked in a cast iron pot",
        ".agent/skills/protocols/paint": "two coats of paint below the waterline",
        ".framework/rigging": "shrouds and stays are tuned each season",
    }
    with clew.open(tmp_path, embedder=HashingEmbedder(dim=512), profile="athena") as engine:
        for path, text in notes.items():
            file = tmp_path / f"{path}.md"
            file.parent.mkdir(parents=True)
            file.write_text(f"# {path.rpartition('/')[2].title()}\n\n{text}\n")
        (tmp_path / "CANONICAL.md").write_text("Bolts of the keel take 45 newton metres torque.\n")
        engine.index(tmp_path)
        yield engine


def test_a_collection_is_not_heard_on_what_is_far_away(workspace: clew.Engine) -> None:
    found = workspace.search("torque of the keel bolts in newton metres", explain=True)
    assert {found[0].path, found[1].path} == {".context/references/keel.md", "CANONICAL.md"}
    assert [row["id"] for row in found.trace["lists"]["reference"]]
    assert not any(found.trace["lists"][name] for name in ("session", "case_study", "protocol"))
    assert found[0].confidence == "HIGH"


def test_nonsense_is_not_high(workspace: clew.Engine) -> None:
    for query in ("colourless green ideas sleep furiously", "velvet giraffe orchard sermon"):
        found = workspace.search(query)
        assert all(hit.confidence == "LOW" for hit in found)
        assert not workspace.search(query, strict=True).hits


def test_a_line_of_canon_comes_first_and_can_be_cited(workspace: clew.Engine) -> None:
    (first, *_) = workspace.search("Bolts of the keel take 45 newton metres torque.")
    assert (first.path, first.lines) == ("CANONICAL.md", (1, 1))
    assert {"canonical", "keyword", "vectors"} <= set(first.signals)
    assert first.signals["canonical"]["contrib"] == pytest.approx(2.0 * 1.5 / 61)


# ---------------------------------------------------------------------- while vectors are made


def test_what_has_no_vector_yet_is_judged_by_its_words(tmp_path: Path) -> None:
    """A short glossary entry that has its vector must not win over a page that has none yet."""
    others = [Record(f"e{i}", f"boat {i} has a mast, sails and oars") for i in range(60)]
    short = Record("glossary", "A keel bolt holds.")
    query = "keel bolt torque"
    with clew.open(tmp_path, embedder=HashingEmbedder(dim=512), cache=False) as engine:
        engine.add([short, *others])
        engine.embed()
        engine.add([Record("right", "Tighten each keel bolt to the torque of its size.")])
        assert engine.search(query, mode="keyword")[0].id == "right"
        found = engine.search(query)
        assert [hit.id for hit in found[:2]] == ["right", "glossary"]
        assert "vectors" not in found[0].signals  # nothing is made up
        assert any("98 % of passages are embedded" in said for said in found.degraded)
        engine.embed()
        assert "vectors" in engine.search(query)[0].signals
