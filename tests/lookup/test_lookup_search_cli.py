"""Scenario: search CLI. What the command line finds is what a lookup's storage finds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from clew import Search
from clew.cli import run


@pytest.fixture
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "keel.md").write_text("# Keel\n\nKeel bolts take forty newton metres.\n", "utf-8")
    (folder / "mast.md").write_text("# Mast\n\nThe mast is of spruce.\n", "utf-8")
    monkeypatch.chdir(folder)
    return folder


def test_a_folder_is_indexed_and_searched_from_the_command_line_and_from_the_class(
    notes: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # Given a folder that the command line has indexed
    assert run(["index", "--quiet"]) == 0
    # When it is searched there and looked up by the class, in the same folder
    assert run(["search", "--json", "spruce"]) == 0
    printed = capsys.readouterr().out
    found = Search.external_lookup("spruce")
    # Then both find the same record, without anything configured
    assert [hit.path for hit in found] == ["mast.md"]
    assert '"mast.md"' in printed and '"keel.md"' not in printed


def test_the_settings_of_the_folder_hold_for_lookups_and_an_edit_is_taken_up(
    notes: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (notes / "more").mkdir()
    (notes / "more" / "oar.md").write_text("Oars of ash.\n")
    (notes / ".clewignore").write_text("more/\n")
    (notes / "clew.toml").write_text('[lookup]\nfolders = ["more"]\nweights = { bm25 = 1.0 }\n')
    assert run(["index", "--quiet"]) == 0
    result = Search.external_lookup("ash oars", return_handles=True)
    assert [hit.path for hit in result] == [str(notes / "more" / "oar.md")]
    assert result.trace["ranking"]["weights"]["bm25"] == 1.0  # type: ignore[union-attr]
    (notes / "clew.toml").write_text("[lookup]\nweights = { credibility = 1.0 }\n")
    result = Search.external_lookup("ash oars", return_handles=True)
    assert list(result) == []
    assert result.trace["ranking"]["weights"]["credibility"] == 1.0  # type: ignore[union-attr]


def test_a_setting_of_lookups_that_makes_no_sense_is_named_with_its_file(
    notes: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (notes / "clew.toml").write_text("[lookup]\nweights = { bm25 = 0.5 }\n")
    assert run(["index", "--quiet"]) != 0
    assert "sum to 0.5" in capsys.readouterr().err


def test_several_places_are_asked_from_the_command_line_and_named_with_each_result(
    notes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # Given an indexed folder, another one, and a repository that is none
    assert run(["index", "--quiet"]) == 0
    other = tmp_path / "other"
    other.mkdir()
    (other / "boom.md").write_text("The boom is of spruce too.\n")
    places = ["--folder", str(other), "--repo", str(other)]
    # When both are asked
    assert run(["lookup", "--json", *places, "spruce"]) == 0
    told = json.loads(capsys.readouterr().out)
    # Then each result says where it is from, and the place that failed is named beside them
    backends = {hit["metadata"]["path"]: hit["metadata"]["backends"] for hit in told["results"]}
    assert set(backends) == {"mast.md", str(other / "boom.md")}
    assert backends[str(other / "boom.md")] == ["local_files"]
    assert any(problem.startswith("local_git:") for problem in told["degraded"])
    # And people read the same
    assert run(["lookup", "--explain", *places, "spruce"]) == 0
    printed = capsys.readouterr().out
    assert "boom.md:1" in printed and "(local_files)" in printed and "! local_git:" in printed
    assert "bm25" in printed and "credibility" in printed


def test_a_lookup_with_nowhere_to_look_says_what_to_give(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["lookup", "anything"]) == 1
    assert "clew index" in capsys.readouterr().err
    assert run(["lookup", "--backend", "storage_keywords", "anything"]) == 1
    assert "storage_keyword" in capsys.readouterr().err
    assert run(["lookup", "--folder", str(tmp_path), "   "]) == 1
    assert "empty" in capsys.readouterr().err
    for option in ("--folder", "--repo"):
        assert run(["lookup", option, str(tmp_path / "gone"), "anything"]) == 1
        said = capsys.readouterr().err
        assert "gone" in said and f"check {option}" in said
