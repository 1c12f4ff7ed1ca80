"""The installed command, run as people and programs run it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

SAMPLE = Path(__file__).parents[2] / "sample"
COMMAND = Path(sys.executable).with_name("clew")


def run(
    *command: str | Path, cwd: Path, given: str = "", **environment: str
) -> subprocess.CompletedProcess[str]:
    own = {name: value for name, value in os.environ.items() if name != "CLEW_MEMORY"}
    return subprocess.run(
        command,
        cwd=cwd,
        env={**own, "COLUMNS": "120", **environment},
        input=given,
        capture_output=True,
        text=True,
        timeout=240,
    )


def clew(*arguments: str | Path, cwd: Path, **options: str) -> subprocess.CompletedProcess[str]:
    return run(COMMAND, *arguments, cwd=cwd, **options)


def answer(*arguments: str | Path, cwd: Path, **options: str) -> Any:
    done = clew(*arguments, "--json", cwd=cwd, **options)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
