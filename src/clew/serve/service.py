"""A service of the user's own, which starts the server at login: systemd, or launchd on a Mac."""

from __future__ import annotations

import os
import plistlib
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from clew.errors import ConfigError
from clew.storage.ownership import replace_private

NAME = "clew"
LABEL = "search.clew.serve"


def service_file(home: Path | None = None) -> Path:
    """Where the system looks for a user's services."""
    home = home or Path.home()
    if sys.platform == "darwin":
        return home / "Library" / "LaunchAgents" / f"{LABEL}.plist"
    base = Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config")
    return base / "systemd" / "user" / f"{NAME}.service"


def describe_service(arguments: Sequence[str], environment: Mapping[str, str], folder: Path) -> str:
    """What the file says: the command, its settings, and where it runs."""
    command = [sys.executable, "-P", "-m", "clew", "serve", *arguments]
    if sys.platform == "darwin":
        return plistlib.dumps(
            {
                "Label": LABEL,
                "ProgramArguments": command,
                "EnvironmentVariables": dict(environment),
                "WorkingDirectory": str(folder),
                "RunAtLoad": True,
                "KeepAlive": {"SuccessfulExit": False},
                "Umask": 0o077,
            }
        ).decode()
    # systemd expands % and $ in what it runs
    said = " ".join(_quoted(each) for each in command)
    settings = [f"Environment={_quoted(f'{name}={of}')}\n" for name, of in environment.items()]
    return (
        "[Unit]\n"
        "Description=Clew: search in files and memories\n"
        "\n"
        "[Service]\n"
        f"ExecStart={said}\n"
        f"WorkingDirectory={str(folder).replace('%', '%%')}\n"
        f"{''.join(settings)}"
        "Restart=on-failure\n"
        "UMask=0077\n"
        "NoNewPrivileges=yes\n"
        "\n"
        "[Install]\n"
        "WantedBy=default.target\n"
    )


def _quoted(text: str) -> str:
    if any(character in text for character in "\n\r\0"):
        raise ConfigError(
            f"{text!r:.100} cannot stand in a service's file: leave the line break out"
        )
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped.replace("$", "$$")}"'


def start_commands(file: Path) -> list[list[str]]:
    """What has the system take up the file, and start what it says."""
    if sys.platform == "darwin":
        return [["launchctl", "load", "-w", str(file)]]
    return [
        ["systemctl", "--user", "daemon-reload"],
        ["systemctl", "--user", "enable", "--now", file.name],
    ]


def stop_commands(file: Path) -> list[list[str]]:
    if sys.platform == "darwin":
        return [["launchctl", "unload", "-w", str(file)]]
    return [["systemctl", "--user", "disable", "--now", file.name]]


def install(text: str, file: Path) -> list[str]:
    """Write the file and start the service; what is left to the user where the system's command is
    not there. Addresses among the settings may have passwords: only the user may read it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    replace_private(file, text)
    return _run(start_commands(file))


def uninstall(file: Path) -> list[str]:
    """Stop the service and delete the file."""
    if not file.exists():
        raise ConfigError(f"no service is installed: there is no {file}")
    left = _run(stop_commands(file))
    file.unlink()
    return left


def _run(commands: Sequence[Sequence[str]]) -> list[str]:
    left = []
    for command in commands:
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
            failed = done.returncode != 0
        except (OSError, subprocess.TimeoutExpired):
            failed = True
        if failed:
            left.append(shlex.join(command))
    return left
