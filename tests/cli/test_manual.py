"""What shells and man know of the commands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from commands import Command


@pytest.mark.parametrize(
    ("shell", "file"),
    [
        ("bash", "bash-completion/completions/clew"),
        ("fish", "fish/completions/clew.fish"),
        ("zsh", ".zfunc/_clew"),
    ],
)
def test_completion_is_put_where_the_shell_looks(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shell: str, file: str
) -> None:
    for name in ("XDG_DATA_HOME", "XDG_CONFIG_HOME", "ZDOTDIR"):
        monkeypatch.setenv(name, str(tmp_path / "own"))
    monkeypatch.setenv("SHELL", f"/bin/{shell}")
    printed = command("completion", shell).out
    done = command("completion", "--install")
    assert done.code == 0 and str(tmp_path / "own" / file) in done.out
    assert (tmp_path / "own" / file).read_text("utf-8").strip() == printed.strip()


def test_an_unknown_shell_is_asked_for(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHELL", "/bin/csh")
    assert "bash, zsh, fish" in command("completion").err


def test_a_page_says_what_the_command_does(command: Command) -> None:
    page = command("man", "search").out
    assert page.startswith('.TH "CLEW-SEARCH" 1')
    assert ".SH OPTIONS" in page and "\\-\\-limit" in page and ".SH EXIT STATUS" in page
    assert not re.search(r"^[.'](?!\\\"|[A-Z]+\b|nf|fi)", page, re.MULTILINE)
    assert "graph show" in command("man", "graph", "show").out
    assert command("man", "nonsense").code == 1


def test_all_pages_are_installed(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "share"))
    assert command("man", "--install").code == 0
    pages = {file.name for file in (tmp_path / "share" / "man" / "man1").iterdir()}
    assert {"clew.1", "clew-search.1", "clew-graph-show.1", "clew-serve.1"} <= pages
