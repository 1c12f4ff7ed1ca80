"""Shared by every test."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator

import pytest
from hypothesis import settings

from endpoint import Endpoint, serving

# How long an example takes depends on what else the machine is doing, so no test fails for it.
settings.register_profile("clew", deadline=None, print_blob=True)
settings.load_profile("clew")
# Tests make their folders, so they trust them, and nobody's own settings count.
os.environ["CLEW_TRUST"] = tempfile.gettempdir()
os.environ["XDG_CONFIG_HOME"] = tempfile.mkdtemp(prefix="clew-config-")
os.environ["CLEW_LOOKUPS"] = tempfile.mkdtemp(prefix="clew-lookups-")


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[Endpoint]:
    """Speaks OpenAI's API; what the developer's own shell says of it does not count."""
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID"):
        monkeypatch.delenv(name, raising=False)
    for name in ("GEMINI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_GEMINI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with serving() as server:
        yield server
