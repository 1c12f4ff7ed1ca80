"""The examples of docs/adapters.md run as they are printed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "adapters.md").read_text("utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
PRINTED = {
    "langchain": ["Look at the heater first.", ".md"],
    "llama_index": ["Ana is allergic to walnuts ['health']"],
    "langgraph": ["I am allergic to walnuts"],
}


@pytest.mark.parametrize("adapter", PRINTED)
def test_the_example_of_each_adapter_runs(adapter: str, tmp_path: Path) -> None:
    (code,) = [each for each in EXAMPLES if f"clew.adapters.{adapter} import" in each]
    shutil.copytree(ROOT / "sample", tmp_path / "sample", ignore=shutil.ignore_patterns(".clew"))
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "CLEW_MODEL": "none", "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    for words in PRINTED[adapter]:
        assert words in done.stdout
