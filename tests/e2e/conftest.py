"""What is searched."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from installed import SAMPLE, answer


@pytest.fixture(scope="module")
def notes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample folder, indexed by the command with the real model."""
    folder = tmp_path_factory.mktemp("home") / "sample"
    shutil.copytree(SAMPLE, folder, ignore=shutil.ignore_patterns(".clew"))
    report = answer("index", folder, cwd=folder.parent)
    assert report["skipped"] == [] and report["embedded"] == report["chunks"]
    return folder
