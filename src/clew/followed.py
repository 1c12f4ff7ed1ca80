"""Settings that follow their file: an edit of clew.toml takes effect with the next search."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from clew import config as settings
from clew.config import Config
from clew.errors import ConfigError
from clew.sources.configure import Configured, configure

__all__ = ["Followed"]


class Followed:
    """One folder's clew.toml, looked at before every search: one stat, a microsecond or two."""

    def __init__(self, root: Path, overrides: Mapping[str, Any]):
        self._root, self._overrides = root, overrides
        self._file = root / settings.FILE_NAME
        self._seen = self._state()
        self.problem: str | None = None
        """Why the file as it is now is not in force."""

    def _state(self) -> tuple[int, int] | None:
        try:
            about = self._file.stat()
        except OSError:
            return None
        return about.st_mtime_ns, about.st_size

    def changed(self) -> tuple[Config, dict[str, Configured]] | None:
        """The new settings and their sources, if there are any that make sense."""
        state = self._state()
        if state == self._seen:
            return None
        self._seen = state
        try:
            config = settings.load(self._root, self._overrides)
            made = config, configure(config, self._root)
        except ConfigError as error:
            self.problem = f"{error} (until then, the settings before this edit hold)"
            return None
        self.problem = None
        return made
