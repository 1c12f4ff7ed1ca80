"""Real repositories for tests."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

BOAT = '''class Keel:
    """Below the water."""

    def torque(self) -> int:
        return 40  # newton metres
'''


class Repository:
    """Made with git, with no settings but its own."""

    def __init__(self, folder: Path, *options: str):
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.git("init", "-q", "-b", "main", *options)

    def git(self, *arguments: str, **more: str) -> str:
        done = subprocess.run(
            ["git", "-c", "user.name=Ada", "-c", "user.email=ada@example.org", *arguments],
            cwd=self.folder,
            check=True,
            capture_output=True,
            env=environment(**more),
        )
        return done.stdout.decode("utf-8", "replace").strip()

    def write(self, path: str, text: str | bytes) -> None:
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text.encode() if isinstance(text, str) else text)

    def commit(self, message: str, files: dict[str, str | bytes] | None = None) -> str:
        for path, text in (files or {}).items():
            self.write(path, text)
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", message)
        return self.git("rev-parse", "HEAD")


def environment(**more: str) -> dict[str, str]:
    plain = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    fixed = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    return {**plain, **fixed, "GIT_ALLOW_PROTOCOL": "file", **more}


def boat(folder: Path) -> Repository:
    """Two commits: a file, and a change of it."""
    made = Repository(folder)
    made.commit("Model the keel", {"boat.py": BOAT, "README.md": "# Boat\n\nA sloop of wood.\n"})
    made.commit(
        "Raise the torque\n\nThe bolts came loose in the gale.",
        {"boat.py": BOAT.replace("40", "55")},
    )
    return made
