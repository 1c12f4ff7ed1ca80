"""Scenario: search CLI. What the command line finds is what a lookup's storage finds."""

from __future__ import annotations

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
