"""Python files that lie in a folder are read, and never run: Python itself looks for modules in the
folder that one is in."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from clew.cli.setup import find_command

MODULES = ("pickle", "struct", "types", "re", "pip", "yaml", "numpy", "clew")

PROGRAM = """
import os, sys
import clew
from clew.cli import run
with clew.open(".", model="none", sources={"moon": {}}) as engine:
    assert len(engine.index(".").added) == 9
    assert len(engine.index(".", force=True, workers=2).changed) == 9
    found = engine.search("keel", sources=["moon", "keyword"])
    assert found and not found.degraded, found.degraded
assert run(["models", "pull", "bge-small"]) == 1
"""


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A package with a kind of source, as pip would leave it."""
    about = tmp_path / "site" / "moonlight-1.0.dist-info"
    about.mkdir(parents=True)
    (about.parent / "moonlight.py").write_text(
        "from clew.sources import FunctionSource\n"
        "def moon(root): return FunctionSource(lambda query, context: [], outside='')\n"
    )
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: moonlight\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[clew.sources]\nmoon = moonlight:moon\n")
    return about.parent


def test_no_process_of_clew_runs_what_lies_in_the_current_folder(
    tmp_path: Path, installed: Path
) -> None:
    folder = tmp_path / "cloned"
    folder.mkdir()
    mark = tmp_path / "run"
    for name in MODULES:
        (folder / f"{name}.py").write_text(f"open({str(mark)!r}, 'w').write({name!r})")
    (folder / "note.md").write_text("the keel bolts")
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(installed), *filter(None, sys.path)]),
        "CLEW_MODELS": str(tmp_path / "models"),
        "HF_ENDPOINT": "http://127.0.0.1:9",
        "PIP_NO_INDEX": "1",
    }
    command = [sys.executable, "-P", "-c", textwrap.dedent(PROGRAM)]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert "pip download" in done.stderr
    assert not mark.exists(), mark.read_text()


def test_what_a_client_is_told_to_run_starts_clew(monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent's client starts it in the folder of a project."""
    monkeypatch.setattr(sys, "executable", str(Path("nowhere", "python")))
    monkeypatch.setenv("PATH", "")
    assert find_command()[1:3] == ["-P", "-m"]
