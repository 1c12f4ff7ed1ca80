"""The examples of docs/lookup.md run as they are printed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from repositories import Repository

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "lookup.md").read_text("utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
PRINTED = [
    ["keel-bolts-kestrel", "1.0"],
    ["storage_keyword", "local_git", "keel-bolts"],
    ["sauna-heater.md"],
    ["['anything']"],
    ["['tickets']"],
    ["keel bolt\nv3:", "('v2:", "backend=web|query=keel bolt|"],
]


@pytest.mark.parametrize(("code", "printed"), list(zip(EXAMPLES, PRINTED, strict=True)))
def test_an_example_runs(code: str, printed: list[str], tmp_path: Path) -> None:
    folder = tmp_path / "checkout"
    shutil.copytree(ROOT / "sample", folder / "sample", ignore=shutil.ignore_patterns(".clew"))
    Repository(folder).commit("Keel bolts")
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    for words in printed:
        assert words in done.stdout
