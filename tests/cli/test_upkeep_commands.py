"""clew remove, config…: look after a store."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from commands import Command


@pytest.fixture
def notes(tmp_path: Path, command: Command) -> Command:
    (tmp_path / "a.md").write_text("About anchors.\n", "utf-8")
    assert command("index", "--quiet").code == 0
    return command


@pytest.mark.parametrize("answer", ["n\n", "\n", ""], ids=["no", "enter", "nobody there"])
def test_without_a_yes_nothing_is_removed(
    notes: Command, monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(answer))
    done = notes("remove", "a.md")
    assert done.code == 1 and "nothing was" in done.err and "Aborted" not in done.err
    assert notes("get", "a.md").code == 0


def test_an_interrupt_at_the_question_removes_nothing(
    notes: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(prompt: str = "") -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr("click.termui.visible_prompt_func", interrupt)
    done = notes("remove", "a.md")
    assert done.code == 130 and "stopped" in done.err
    assert notes("get", "a.md").code == 0
