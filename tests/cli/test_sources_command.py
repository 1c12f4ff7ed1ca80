from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

import clew
from clew.cli import app


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with clew.open(tmp_path, model="none") as engine:
        engine.add([clew.Record("a", "keel")])
        engine.search("keel")
    return tmp_path


def test_sources_are_listed_with_weight_state_time_and_error(folder: Path) -> None:
    (folder / "clew.toml").write_text("[sources.tags]\nenabled = false\nweight = 0.75\n")
    shown = CliRunner().invoke(app, ["sources", "--store", str(folder)])
    assert shown.exit_code == 0, shown.output
    lines = {line.split()[0]: line.split() for line in shown.output.splitlines() if line.strip()}
    assert lines["tags"][1:3] == ["0.75", "off"]
    assert lines["keyword"][1:3] == ["1", "on"]
    assert float(lines["keyword"][3]) >= 0

    data = json.loads(CliRunner().invoke(app, ["sources", "--store", str(folder), "--json"]).output)
    assert data["profile"] == "default"
    states = {state["name"]: state for state in data["sources"]}
    assert states["tags"]["state"] == "off"
    assert states["keyword"]["ms"] > 0


def test_a_source_that_does_not_exist_is_said_with_the_nearest(folder: Path) -> None:
    (folder / "clew.toml").write_text("[sources.tagz]\n")
    refused = CliRunner().invoke(app, ["sources", "--store", str(folder)])
    assert isinstance(refused.exception, clew.ConfigError)
    assert "did you mean 'tags'" in str(refused.exception)
