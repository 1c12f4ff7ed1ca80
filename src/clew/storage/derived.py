"""What every derived index shares: a small state file, replaced whole, that says what it covers."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

__all__ = ["read_state", "write_state"]


def read_state(path: Path, *fields: str) -> dict[str, Any] | None:
    """The state, or None when there is none or it is not whole (then the index is rebuilt)."""
    try:
        state = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return state if isinstance(state, dict) and state.keys() >= set(fields) else None


def write_state(path: Path, state: dict[str, Any]) -> None:
    """Replace the state in one step: a reader sees the old or the new one, never half of it."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    temporary.write_text(json.dumps(state), "utf-8")
    temporary.replace(path)
