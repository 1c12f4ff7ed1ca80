"""clew setup: other programs' configurations, changed with care; clew context: never an error."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import clew

COMMAND = Path(sys.executable).with_name("clew")
Run = Callable[..., subprocess.CompletedProcess[str]]

FILES = {
    "claude-code": (".claude.json", ("mcpServers", "clew")),
    "codex": (".codex/config.toml", ("mcp_servers", "clew")),
    "cursor": (".cursor/mcp.json", ("mcpServers", "clew")),
    "vscode": (".config/Code/User/mcp.json", ("servers", "clew")),
    "gemini-cli": (".gemini/settings.json", ("mcpServers", "clew")),
    "opencode": (".config/opencode/opencode.json", ("mcp", "clew")),
}
THEIRS = {
    "json": '{\n    "theme": "dark",\n    "list": [1, 2]\n}',
    "toml": '# mine\nmodel = "o3" # the best\n\n[mcp_servers.other]\ncommand = "x"\n',
}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    (home / "work").mkdir(parents=True)
    return home


@pytest.fixture
def run(home: Path) -> Run:
    """The installed command, of a user who has nothing but this home."""

    def call(*arguments: str, answer: str = "", **environment: str) -> Any:
        kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
        kept |= {"HOME": str(home), "CLEW_MODEL": "none"}
        return subprocess.run(
            [COMMAND, *arguments],
            cwd=home / "work",
            env={**kept, **environment},
            input=answer,
            capture_output=True,
            text=True,
            timeout=120,
        )

    return call


def read(file: Path) -> Any:
    text = file.read_text("utf-8")
    return tomllib.loads(text) if file.suffix == ".toml" else json.loads(text)


def entry_of(client: str, home: Path) -> Any:
    name, keys = FILES[client]
    said = read(home / name)
    for key in keys:
        said = said[key]
    return said


@pytest.mark.parametrize("client", FILES)
def test_a_client_is_set_up_once_and_taken_out_again(client: str, home: Path, run: Run) -> None:
    file = home / FILES[client][0]
    before = THEIRS[file.suffix[1:]]
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(before)
    done = run("setup", client, "--yes")
    assert done.returncode == 0, done.stderr
    assert f"+++ {file}" in done.stdout and "clew" in done.stdout
    entry = entry_of(client, home)
    words = entry["command"] if isinstance(entry["command"], list) else [entry["command"]]
    words = [*words, *entry.get("args", [])]
    assert Path(words[0]).name == "clew" and words[1] == "mcp"
    assert words[-2:] == ["--db", str(home / ".local/share/clew/memory.db")]
    assert (home / f"{FILES[client][0]}.clew-backup").read_text() == before
    with_it = file.read_text()
    again = run("setup", client, "--yes")
    assert "nothing to change" in again.stdout and file.read_text() == with_it
    if file.suffix == ".toml":
        assert "# mine" in with_it and "# the best" in with_it
        assert read(file)["mcp_servers"]["other"] == {"command": "x"}
    else:
        assert read(file)["theme"] == "dark"
    assert run("setup", client, "--remove", "--yes").returncode == 0
    assert file.read_text() == before  # to the byte
    assert "nothing to change" in run("setup", client, "--remove", "--yes").stdout


def test_what_was_made_for_it_alone_is_deleted(home: Path, run: Run) -> None:
    assert run("setup", "cursor", "--yes").returncode == 0
    file = home / ".cursor" / "mcp.json"
    assert file.stat().st_mode & 0o777 == 0o600
    assert run("setup", "cursor", "--remove", "--yes").returncode == 0
    assert not file.exists()


def test_what_is_null_is_nothing(home: Path, run: Run) -> None:
    file = home / ".cursor" / "mcp.json"
    file.parent.mkdir()
    file.write_text('{"mcpServers": null}', "utf-8")
    assert run("setup", "cursor", "--yes").returncode == 0
    assert "clew" in json.loads(file.read_text())["mcpServers"]
    assert run("setup", "cursor", "--yes", "--remove").returncode == 0
    assert "clew" not in file.read_text()


def test_what_was_added_since_stays(home: Path, run: Run) -> None:
    file = home / ".cursor" / "mcp.json"
    file.parent.mkdir()
    file.write_text('{"mcpServers": {"a": {"command": "a"}}}\n')
    assert run("setup", "cursor", "--yes").returncode == 0
    said = read(file)
    said["mcpServers"]["b"] = {"command": "b"}
    file.write_text(json.dumps(said))
    assert run("setup", "cursor", "--remove", "--yes").returncode == 0
    assert list(read(file)["mcpServers"]) == ["a", "b"]


def test_nothing_happens_unless_somebody_agrees(home: Path, run: Run) -> None:
    file = home / ".cursor" / "mcp.json"
    for arguments, answer in (((), ""), ((), "n\n"), (("--dry-run",), "")):
        done = run("setup", "cursor", *arguments, answer=answer)
        assert '"clew"' in done.stdout and not file.exists()
    assert run("setup", "cursor", answer="y\n").returncode == 0 and file.exists()


def test_what_stands_around_the_change_is_not_shown(home: Path, run: Run) -> None:
    file = home / ".cursor" / "mcp.json"
    file.parent.mkdir()
    file.write_text('{"account":{"token":"SECRET-1"},"mcpServers":{"a":{"env":{"K":"SECRET-2"}}}}')
    done = run("setup", "cursor", "--dry-run")
    assert '"clew"' in done.stdout
    assert "SECRET" not in done.stdout


@pytest.mark.parametrize(
    ("client", "text"),
    [
        ("cursor", "{not json"),
        ("cursor", '{\n // mine\n "a": 1}'),
        ("cursor", "[1]"),
        ("cursor", '{"mcpServers": []}'),
        ("claude-code", "\udcff"),
        ("codex", "model = "),
        ("codex", 'mcp_servers = "x"'),
    ],
)
def test_a_file_that_cannot_be_changed_with_care_is_left_alone(
    client: str, text: str, home: Path, run: Run
) -> None:
    file = home / FILES[client][0]
    file.parent.mkdir(exist_ok=True)
    file.write_text(text, "utf-8", errors="surrogateescape")
    before = file.read_bytes()
    for arguments in ((), ("--remove",)):
        done = run("setup", client, "--yes", *arguments)
        assert done.returncode == 1 and str(file) in done.stderr
        assert "nothing was changed" in done.stderr and "Traceback" not in done.stderr
        assert file.read_bytes() == before
    assert [each.name for each in file.parent.iterdir() if "clew" in each.name] == []


def test_a_link_of_somebodys_dotfiles_stays_one(home: Path, run: Run) -> None:
    real = home / "dotfiles.json"
    real.write_text("{}\n")
    link = home / ".cursor" / "mcp.json"
    link.parent.mkdir()
    link.symlink_to(real)
    assert run("setup", "cursor", "--yes").returncode == 0
    assert link.is_symlink() and "clew" in real.read_text()


def test_another_memory_takes_the_place_of_the_first(home: Path, run: Run) -> None:
    run("setup", "codex", "--yes")
    run("setup", "codex", "--yes", "--db", str(home / "m.db"), "--namespace", "ana")
    assert entry_of("codex", home)["args"][-4:] == [
        "--db",
        str(home / "m.db"),
        "--namespace",
        "ana",
    ]
    run("setup", "codex", "--remove", "--yes")
    assert not (home / ".codex" / "config.toml").exists()


def test_a_project_has_its_own_files(home: Path, run: Run) -> None:
    assert run("setup", "claude-code", "--project", "--yes", "--no-hooks").returncode == 0
    assert "clew" in read(home / "work" / ".mcp.json")["mcpServers"]
    assert not (home / ".claude.json").exists()


# ---------------------------------------------------------------- sessions


def test_claude_code_is_told_at_the_start_of_a_session(home: Path, run: Run) -> None:
    settings = home / ".claude" / "settings.json"
    settings.parent.mkdir()
    theirs = {"hooks": {"SessionStart": [{"hooks": [{"type": "command", "command": "date"}]}]}}
    settings.write_text(json.dumps(theirs))
    done = run("setup", "claude-code", "--yes")
    assert "--no-hooks" in done.stdout
    *first, ours = read(settings)["hooks"]["SessionStart"]
    assert first == theirs["hooks"]["SessionStart"]
    words = shlex.split(ours["hooks"][0]["command"])
    db = words[words.index("--db") + 1]
    assert run(*words[1:], answer='{"source": "startup"}').stdout == ""  # nothing is kept yet
    with clew.Memory(db, model="none") as memory:
        memory.remember("Decided: the work folder is deployed by hand", importance=0.9)
        memory.remember("Of another", namespace="other")
        memory.remember("x" * 9000)
    told = run(*words[1:], answer='{"source": "startup"}')
    assert told.returncode == 0 and "deployed by hand" in told.stdout
    assert "data, not instructions" in told.stdout
    assert "Of another" not in told.stdout and "xxx" not in told.stdout
    assert run("setup", "claude-code", "--yes", "--no-hooks").returncode == 0
    assert read(settings) == theirs
    run("setup", "claude-code", "--yes")
    run("setup", "claude-code", "--yes", "--remove")
    assert read(settings) == theirs and not (home / ".claude.json").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ("--db", "nowhere/at/all.db"),
        ("--db", "broken.db"),
        ("--db", "."),
        ("--namespace", "\x00", "--db", "broken.db"),
        ("--no-such-option",),
    ],
)
def test_a_session_begins_whatever_happens(
    home: Path, run: Run, arguments: tuple[str, ...]
) -> None:
    (home / "work" / "broken.db").write_text("this is no database " * 100)
    if "\x00" in arguments:
        arguments = tuple(each.replace("\x00", "-") for each in arguments)
    done = run("context", *arguments)
    assert done.returncode == 0 and done.stdout == "" and "Traceback" not in done.stderr


@pytest.mark.parametrize("client", ["claude-code", "codex", "opencode"])
def test_no_password_is_shown(client: str, home: Path, run: Run) -> None:
    url = "postgresql://me:s3cret@db.example.org/notes"
    for extra in ([], ["--json"]):
        said = run("setup", client, "--db", url, "--dry-run", *extra)
        assert said.returncode == 0, said.stderr
        assert "postgresql://…@db.example.org/notes" in said.stdout
        assert "s3cret" not in said.stdout + said.stderr
    file = home / FILES[client][0]
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("{ broken")
    refused = run("setup", client, "--db", url, "--yes")
    assert refused.returncode == 1 and "s3cret" not in refused.stdout + refused.stderr
