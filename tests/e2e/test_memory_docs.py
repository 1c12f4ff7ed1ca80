"""The examples about memory in the documents, run as they are printed, with the real model."""

from __future__ import annotations

import datetime as dt
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WRITTEN = "2026-11-15"
"""The day the page was written: there it stands for the day of a run."""


def test_the_page_about_memory_says_what_happens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs" / "memory.md").read_text("utf-8")
    blocks = re.findall(r"^```(python|text)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    names: dict[str, object] = {}
    compared = 0
    for kind, block in blocks:
        if kind == "python":
            capsys.readouterr()
            exec(compile(block, "docs/memory.md", "exec"), names)
        else:
            today = dt.datetime.now(dt.UTC).date().isoformat()
            assert capsys.readouterr().out.replace(today, WRITTEN) == block
            compared += 1
    assert compared == 8


def test_the_example_in_the_readme_works_as_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    section = (ROOT / "README.md").read_text("utf-8").partition("## Memory for agents")[2]
    block = section.partition("```python\n")[2].partition("```")[0]
    exec(compile(block, "README.md", "exec"), {})
    expected = re.findall(r"^    # (.*)$", block, re.MULTILINE)
    assert capsys.readouterr().out.splitlines() == expected and expected
