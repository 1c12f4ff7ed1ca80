"""The command line inside the test's process: quick, with the code and the words it would give."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from clew.cli import run
from commands import Command, Done


@pytest.fixture
def command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Command:
    """Run `clew …` in the test's folder. No model, so that words alone decide."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CLEW_MODEL", "none")
    monkeypatch.setenv("COLUMNS", "200")

    def call(*arguments: str | Path) -> Done:
        code = run([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return Done(code, captured.out, captured.err)

    return call


@pytest.fixture
def indexed(tmp_path: Path, command: Command) -> Callable[..., Command]:
    """Write notes into the test's folder, and index them."""

    def index(**notes: str) -> Command:
        for name, text in notes.items():
            (tmp_path / f"{name}.md").write_text(f"{text}\n", "utf-8")
        assert command("index", "--quiet").code == 0
        return command

    return index
