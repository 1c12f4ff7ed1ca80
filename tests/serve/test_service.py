"""The user service that starts the server at login."""

from __future__ import annotations

import configparser
import plistlib
import sys
from pathlib import Path

import pytest

from clew.cli import run
from clew.errors import ConfigError
from clew.serve import service


@pytest.fixture(autouse=True)
def no_system(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("PATH", str(tmp_path))  # where there is no systemctl


def test_the_unit_runs_the_command_with_its_settings(
    notes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("CLEW_TOKEN", "secret")
    db = tmp_path / 'odd "name" 50%.db'
    assert run(["serve", str(notes), "--db", str(db), "--port", "9000", "--install"]) == 0
    file = tmp_path / "config" / "systemd" / "user" / "clew.service"
    assert f"Wrote {file}" in (said := capsys.readouterr().out)
    assert "systemctl --user enable --now clew.service" in said
    assert file.stat().st_mode & 0o077 == 0  # an address among the settings may have a password
    unit = configparser.RawConfigParser(strict=False)
    unit.read_string(text := file.read_text("utf-8"))
    command = unit["Service"]["ExecStart"]
    assert command.startswith(f'"{sys.executable}" "-P" "-m" "clew" "serve" "{notes}"')
    assert '"--port" "9000"' in command and 'odd \\"name\\" 50%%.db' in command
    assert "CLEW_MODEL=none" in unit["Service"]["Environment"] and "secret" not in text
    assert unit["Install"]["WantedBy"] == "default.target"
    assert run(["serve", "--uninstall"]) == 0
    assert not file.exists()
    assert run(["serve", "--uninstall"]) == 1


def test_the_unit_has_every_bound_and_no_server_for_all(
    notes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    install = ["serve", str(notes), "--rate", "2.5", "--install"]
    assert run([*install, "--token", "secret"]) == 0
    assert "--token-file" in capsys.readouterr().err
    file = tmp_path / "config" / "systemd" / "user" / "clew.service"
    assert '"--rate" "2.5"' in file.read_text("utf-8")
    assert run([*install, "--token", "secret", "--host", "0.0.0.0"]) == 1
    assert "--token-file" in capsys.readouterr().err
    (tmp_path / "token").write_text("secret")
    assert run([*install, "--token-file", str(tmp_path / "token"), "--host", "0.0.0.0"]) == 0
    assert '"--token-file"' in file.read_text("utf-8")


def test_the_launch_agent_runs_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    text = service.describe_service(["/notes"], {"CLEW_MODEL": "none"}, Path("/home/ana"))
    said = plistlib.loads(text.encode())
    assert said["ProgramArguments"] == [sys.executable, "-P", "-m", "clew", "serve", "/notes"]
    assert said["EnvironmentVariables"] == {"CLEW_MODEL": "none"} and said["RunAtLoad"]
    assert service.service_file(Path("/home/ana")).name == "search.clew.serve.plist"


def test_a_line_break_cannot_add_a_line_to_the_unit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    with pytest.raises(ConfigError, match="line break"):
        service.describe_service(["a\nExecStartPost=evil"], {}, Path())
