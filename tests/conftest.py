"""Shared by every test."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from disks import Disk, mounted
from endpoint import Endpoint
from servers import answering

# How long an example takes depends on what else the machine is doing, so no test fails for it.
settings.register_profile("clew", deadline=None, print_blob=True)
settings.load_profile("clew")
# Tests make their folders, so they trust them, and nobody's own settings count.
os.environ["CLEW_TRUST"] = tempfile.gettempdir()
_config = tempfile.TemporaryDirectory(prefix="clew-config-", ignore_cleanup_errors=True)
_lookups = tempfile.TemporaryDirectory(prefix="clew-lookups-", ignore_cleanup_errors=True)
os.environ["XDG_CONFIG_HOME"], os.environ["CLEW_LOOKUPS"] = _config.name, _lookups.name


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[Endpoint]:
    """Speaks OpenAI's API; what the developer's own shell says of it does not count."""
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID"):
        monkeypatch.delenv(name, raising=False)
    for name in ("GEMINI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_GEMINI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with answering(Endpoint()) as server:
        yield server


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    """A small one, which can be filled up and made read-only."""
    with mounted(tmp_path / "disk", megabytes=24) as made:
        yield made


@pytest.fixture
def script(request: pytest.FixtureRequest) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts a script that lies beside the test as another process; what still runs in the end is
    killed."""
    here, running = request.path.parent, []
    places = [str(here), str(here.parent), os.environ.get("PYTHONPATH", "")]

    def start(name: str, *arguments: object) -> subprocess.Popen[str]:
        running.append(
            subprocess.Popen(
                [sys.executable, str(here / name), *map(str, arguments)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(places)},
            )
        )
        return running[-1]

    yield start
    for process in running:
        process.kill()
        process.wait()
