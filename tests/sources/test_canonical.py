from __future__ import annotations

import importlib
from pathlib import Path

import pytest
from listed import Folder, by

import clew

CANONICAL = """# Keel torque
The keel bolts take 45 Nm of torque.
Torque is checked yearly.
Sails are washed in May.
The keel is lead, its torque known.
"""


def lines(engine: clew.Engine, query: str) -> dict[int, float]:
    found = by("canonical", engine, query)
    return {int(name.rpartition("#L")[2]): score for name, score in found.items()}


def test_lines_with_two_of_the_words_are_found_and_headings_count_less(folder: Folder) -> None:
    engine = folder({"CANONICAL.md": CANONICAL, "other.md": "keel torque keel torque"})
    assert lines(engine, "keel torque") == {2: 1.0, 5: 1.0, 1: 0.9}


def test_a_query_of_one_word_needs_one_and_the_best_three_are_given(folder: Folder) -> None:
    engine = folder({"CANONICAL.md": CANONICAL})
    assert lines(engine, "sails") == {4: 1.0}
    assert list(lines(engine, "torque")) == [2, 3, 5]


def test_the_score_is_the_share_of_the_words(folder: Folder) -> None:
    engine = folder({"CANONICAL.md": CANONICAL})
    assert lines(engine, "the keel torque in May of a lead boat")[5] == 0.6
    assert lines(engine, "keel weather forecast tomorrow") == {}


def test_a_hit_is_the_line_with_its_place(folder: Folder) -> None:
    engine = folder({"CANONICAL.md": CANONICAL})
    (hit,) = engine.search("sails washed", sources=["canonical"])
    assert (hit.content, hit.path, hit.lines) == (
        "Sails are washed in May.",
        "CANONICAL.md",
        (4, 4),
    )
    assert (hit.source, hit.id.partition(":")[2]) == ("canonical", "CANONICAL.md")


def test_a_line_is_a_vote_for_its_file_which_may_have_others(folder: Folder) -> None:
    engine = folder({"CANONICAL.md": CANONICAL, "other.md": "keel torque keel torque"})
    found = engine.search("keel torque")
    (hit,) = [hit for hit in found if hit.path == "CANONICAL.md"]
    assert {"canonical", "keyword"} <= set(hit.signals)
    alone = engine.search("keel torque", weights={"keyword": 0})  # the best line is what is shown
    assert (alone[0].content, alone[0].lines) == ("The keel bolts take 45 Nm of torque.", (2, 2))


def test_an_edit_is_seen_by_the_next_search(folder: Folder, tmp_path: Path) -> None:
    engine = folder({"CANONICAL.md": CANONICAL})
    assert lines(engine, "mast height") == {}
    (tmp_path / "CANONICAL.md").write_text("The mast has a height of 12 m.\n")
    engine.index(embed=False, force=True)
    assert lines(engine, "mast height") == {1: 1.0}
    assert lines(engine, "keel torque") == {}


def test_filters_and_visibility_hold(folder: Folder) -> None:
    engine = folder({"CANONICAL.md": f"---\ndomain: personal\ntags: [facts]\n---\n{CANONICAL}"})
    assert lines(engine, "keel torque") == {}
    assert by("canonical", engine, "keel torque", include_personal=True)
    assert by("canonical", engine, "keel torque tag:facts", include_personal=True)
    assert not by("canonical", engine, "keel torque tag:other", include_personal=True)


def test_a_very_long_file_is_looked_at_in_part_and_that_is_said(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.import_module("clew.sources.store"), "LONGEST", 1 << 20)
    filler = "nothing of interest in this line\n" * 40_000
    engine = folder({"CANONICAL.md": CANONICAL + filler + "the rudder and its torque\n"})
    found = engine.search("torque rudder keel", sources=["canonical"], explain=True)
    assert {row["lines"][0] for row in found.trace["lists"]["canonical"]} == {1, 2, 5}
    assert "first 1 MB" in found.degraded[0]


def test_a_line_that_was_taken_back_is_not_found(folder: Folder) -> None:
    """A search within a block of writes sees what it writes, and nobody else does if it fails."""
    engine = folder({"CANONICAL.md": CANONICAL, "other.md": "the sloop"})
    names = [record.id for record in engine.store.select(clew.Filter(), limit=9)]
    with pytest.raises(ZeroDivisionError), engine.store.atomic():
        engine.add([{"id": names[0], "path": "CANONICAL.md", "content": "Oars are of ash."}])
        assert lines(engine, "oars ash") == {1: 1.0}
        raise ZeroDivisionError
    engine.add([{"id": names[1], "path": "other.md", "content": "the ketch"}])
    assert lines(engine, "oars ash") == {}
    assert lines(engine, "sails") == {4: 1.0}
